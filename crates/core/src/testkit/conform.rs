//! The suites: what a sink and a supply promise, whatever they are made of.

use std::sync::Arc;

use crate::error::Result;
use crate::pool::{Piece, Pool};
use crate::sink::Sink;
use crate::supply::Supply;

/// One transfer of the suite, in bytes.
const TRANSFER: usize = 64 << 10;

/// Tries a sink. `make` opens one for the family of the given name, without leave to overwrite; `read_back` gives the
/// bytes that a reader would find under that name, none when there is nothing. Pass
/// `None::<fn(&str) -> Vec<u8>>` for a sink that keeps nothing or cannot take anything back (`nul:`, a pipe).
///
/// # Panics
/// When the sink does not conform.
pub fn sink_conforms<B: Fn(&str) -> Vec<u8>>(make: impl Fn(&str) -> Result<Box<dyn Sink>>, read_back: Option<B>) {
    let pool = Pool::new(8, TRANSFER).expect("memory for the test");
    for (index, length) in [0, 1, 4095, 4096, TRANSFER, 20 * TRANSFER, 20 * TRANSFER + 12_345].into_iter().enumerate() {
        let name = format!("whole-{index}");
        let bytes = pattern(length);
        let mut sink = make(&name).expect("open");
        write_all(&mut *sink, &pool, &bytes);
        sink.sync().expect("sync");
        assert_eq!(sink.in_flight(), 0, "sync leaves nothing in flight");
        assert_eq!(home(&pool), 8, "sync brings every buffer home");
        assert_nothing(&read_back, &name, "a family that is synced and not published");
        sink.publish().expect("publish");
        sink.retire().expect("retire");
        assert_eq!(sink.account().bytes, length as u64, "the account counts every byte once");
        drop(sink);
        if let Some(read_back) = &read_back {
            assert!(read_back(&name) == bytes, "a family of {length} bytes comes back as it was written");
        }
    }
    the_order_of_calls_is_kept(&make, &pool, &read_back);
    what_is_not_published_leaves_nothing(&make, &pool, &read_back);
    nothing_is_overwritten(&make, &pool, &read_back);
    assert_eq!(home(&pool), 8, "every buffer comes home on every path");
}

fn the_order_of_calls_is_kept<B: Fn(&str) -> Vec<u8>>(
    make: &impl Fn(&str) -> Result<Box<dyn Sink>>,
    pool: &Arc<Pool>,
    read_back: &Option<B>,
) {
    let mut sink = make("gap").expect("open");
    write_all(&mut *sink, pool, &pattern(TRANSFER));
    let mut buffer = pool.take().expect("a buffer");
    buffer.fill(1);
    let gap = sink.write(2 * TRANSFER as u64, Piece::new(buffer, 0..TRANSFER));
    assert!(gap.is_err(), "a gap is refused");
    drop(sink);
    assert_nothing(read_back, "gap", "a family with a gap");

    let mut sink = make("settle").expect("open");
    write_all(&mut *sink, pool, &pattern(3 * TRANSFER));
    sink.settle(1).expect("settle");
    assert!(sink.in_flight() <= 1);
    sink.settle(0).expect("settle");
    assert_eq!((sink.in_flight(), home(pool)), (0, 8), "settling brings every buffer home");
}

fn what_is_not_published_leaves_nothing<B: Fn(&str) -> Vec<u8>>(
    make: &impl Fn(&str) -> Result<Box<dyn Sink>>,
    pool: &Arc<Pool>,
    read_back: &Option<B>,
) {
    for synced in [false, true] {
        for dropped in [false, true] {
            let name = format!("gone-{synced}-{dropped}");
            let mut sink = make(&name).expect("open");
            write_all(&mut *sink, pool, &pattern(5 * TRANSFER + 1));
            if synced {
                sink.sync().expect("sync");
            }
            if !dropped {
                sink.abandon();
                sink.abandon();
            }
            drop(sink);
            assert_eq!(home(pool), 8, "{name}: every buffer comes home");
            assert_nothing(read_back, &name, "an abandoned family");
        }
    }
    let mut sink = make("taken-back").expect("open");
    write_all(&mut *sink, pool, &pattern(TRANSFER));
    sink.sync().expect("sync");
    sink.publish().expect("publish");
    sink.abandon();
    drop(sink);
    assert_nothing(read_back, "taken-back", "a family abandoned after it was published");
    drop(make("taken-back").expect("the name is free again"));
}

fn nothing_is_overwritten<B: Fn(&str) -> Vec<u8>>(
    make: &impl Fn(&str) -> Result<Box<dyn Sink>>,
    pool: &Arc<Pool>,
    read_back: &Option<B>,
) {
    let Some(read_back) = read_back else { return };
    let mut first = make("twice").expect("open");
    let (one, two) = (pattern(TRANSFER), pattern(2 * TRANSFER));
    write_all(&mut *first, pool, &one);
    // A device that can refuses the second one at once.
    let second = make("twice").map(|mut second| {
        write_all(&mut *second, pool, &two);
        second.sync().expect("sync");
        second
    });
    first.sync().expect("sync");
    first.publish().expect("publish");
    if let Ok(mut second) = second {
        assert!(second.publish().is_err(), "a name that was taken meanwhile is not overwritten");
        second.abandon();
    }
    assert!(read_back("twice") == one, "the one who came first is untouched");
    if let Ok(mut third) = make("twice") {
        third.sync().expect("sync");
        assert!(third.publish().is_err(), "nor is one that was there before");
    }
    assert!(read_back("twice") == one, "the one who came first is untouched");
}

fn assert_nothing<B: Fn(&str) -> Vec<u8>>(read_back: &Option<B>, name: &str, what: &str) {
    if let Some(read_back) = read_back {
        assert!(read_back(name).is_empty(), "{what} is not there for a reader");
    }
}

/// Tries a supply. `make` opens one for a family of exactly these bytes, with buffers of the pool.
///
/// # Panics
/// When the supply does not conform.
pub fn supply_conforms(make: impl Fn(&[u8], &Arc<Pool>) -> Box<dyn Supply>) {
    for length in [0, 1, 4096, TRANSFER, 20 * TRANSFER + 12_345] {
        for buffers in [1, 8] {
            let pool = Pool::new(buffers, TRANSFER).expect("memory for the test");
            let bytes = pattern(length);
            let mut supply = make(&bytes, &pool);
            assert!(supply.size().is_none_or(|size| size == length as u64));
            let mut got = Vec::new();
            while let Some(piece) = supply.next().expect("next") {
                assert!(!piece.is_empty(), "an empty piece is no end");
                got.extend_from_slice(&piece);
            }
            assert!(got == bytes, "{length} bytes come as they are, with {buffers} buffers");
            assert!(supply.next().expect("next").is_none(), "the end stays the end");
            assert_eq!(supply.account().bytes, length as u64);
            match supply.size() {
                None => {
                    assert!(supply.read_at(0, &mut [0; 1]).is_err(), "a pipe has no random access");
                    assert!(
                        supply.aim(Vec::from_iter([0..1, 2..3])).is_err(),
                        "a pipe is read from its start to its end"
                    );
                }
                Some(_) => {
                    reads_anywhere(&mut *supply, &bytes);
                    gives_what_it_is_aimed_at(&mut *supply, &bytes);
                }
            }
            drop(supply);
            assert_eq!(home(&pool), buffers, "every buffer comes home");
        }
    }
    let pool = Pool::new(8, TRANSFER).expect("memory for the test");
    let mut supply = make(&pattern(20 * TRANSFER), &pool);
    let _ = supply.next().expect("next");
    drop(supply);
    assert_eq!(home(&pool), 8, "a supply dropped half-way brings every buffer home");
}

fn reads_anywhere(supply: &mut dyn Supply, bytes: &[u8]) {
    for offset in [0, 1, bytes.len() / 2, bytes.len().saturating_sub(3), bytes.len(), bytes.len() + 9] {
        let mut buffer = [0; 100];
        let expected = &bytes[offset.min(bytes.len())..(offset + 100).min(bytes.len()).max(offset.min(bytes.len()))];
        let got = supply.read_at(offset as u64, &mut buffer).expect("read_at");
        assert_eq!(&buffer[..got], expected, "at {offset}");
    }
}

fn gives_what_it_is_aimed_at(supply: &mut dyn Supply, bytes: &[u8]) {
    let length = bytes.len() as u64;
    // Apart and side by side, backwards, shorter and longer than a transfer, and nothing.
    let wanted = [(0, 1), (1, 5000), (5003, 5004), (9000, 300_001), (17, 4096), (700_000, 1_310_720), (3, 3), (2, 9)];
    let ranges: Vec<_> = wanted.into_iter().map(|(from, to)| length.min(from)..length.min(to)).collect();
    supply.aim(ranges.clone()).expect("aim");
    for range in ranges.into_iter().filter(|range| !range.is_empty()) {
        let expected = &bytes[range.start as usize..range.end as usize];
        let mut got = 0;
        while got < expected.len() {
            let piece = supply.next().expect("next").expect("a range has its bytes");
            assert!(*piece == expected[got..got + piece.len()], "byte {got} of {range:?}, and no other range");
            got += piece.len();
        }
    }
    assert!(supply.next().expect("next").is_none(), "behind the last range is the end");
    // The same again and again: several of them may be under way at once.
    let short = length.min(1000);
    supply.aim(vec![0..short; 12]).expect("aim at the same");
    let mut again = Vec::new();
    while let Some(piece) = supply.next().expect("next") {
        again.extend_from_slice(&piece);
    }
    assert!(again == bytes[..short as usize].repeat(12), "as often as it was asked for");
    supply.aim(Vec::from_iter([0..length, 0..0])).expect("aim again");
    let mut whole = Vec::new();
    while let Some(piece) = supply.next().expect("next") {
        whole.extend_from_slice(&piece);
        // Behind and before where it is, at borders of transfers and not.
        supply.begin_at((whole.len() / 3 * 4) as u64);
    }
    assert!(whole == bytes, "wherever transfers are wished to begin, the bytes are the same");
}

/// Writes `bytes` in transfers, as a stripe does, and leaves them in flight.
fn write_all(sink: &mut dyn Sink, pool: &Arc<Pool>, bytes: &[u8]) {
    for (index, chunk) in bytes.chunks(TRANSFER).enumerate() {
        if home(pool) == 0 {
            sink.settle(0).expect("settle");
        }
        let mut buffer = pool.take().expect("a buffer");
        buffer[..chunk.len()].copy_from_slice(chunk);
        sink.write((index * TRANSFER) as u64, Piece::new(buffer, 0..chunk.len())).expect("write");
    }
}

/// Bytes without a period that a device could share.
pub(super) fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|index| (index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

/// Free buffers now.
fn home(pool: &Arc<Pool>) -> usize {
    std::iter::from_fn(|| pool.try_take()).collect::<Vec<_>>().len()
}
