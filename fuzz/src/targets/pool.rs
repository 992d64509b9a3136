//! Any order of taking, keeping, sharing and dropping buffers: never more than the pool's count, and all come home.

use fullbore_core::pool::Pool;

const COUNT: usize = 7;
const SIZE: usize = 4096;

/// One input.
pub fn run(steps: &[u8]) {
    let pool = Pool::new(COUNT, SIZE).expect("28 KiB are there");
    let mut kept = Vec::new();
    for step in steps {
        match step % 4 {
            0 | 1 => match pool.try_take() {
                Some(mut buffer) => {
                    assert!(kept.len() < COUNT, "an eighth buffer");
                    assert_eq!(buffer.len(), SIZE);
                    buffer.fill(*step); // Overlapping buffers would show in the check below.
                    kept.push((buffer, *step));
                }
                None => assert_eq!(kept.len(), COUNT, "a buffer is lost"),
            },
            2 if !kept.is_empty() => {
                let (buffer, mark) = kept.swap_remove(usize::from(*step) % kept.len());
                assert!(buffer.iter().all(|byte| *byte == mark), "two buffers share memory");
            }
            _ => kept.truncate(usize::from(step / 4) % (COUNT + 1)),
        }
    }
    drop(kept);
    let all: Vec<_> = std::iter::from_fn(|| pool.try_take()).collect();
    assert_eq!(all.len(), COUNT, "a buffer did not come home");
    // What the pool remembers for tests looks like a leak to the fuzzer, which then looks for one each time: slowly.
    drop((all, pool));
    drop(Pool::made_here());
}
