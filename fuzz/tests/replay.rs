//! Runs a target on its committed seeds and on changes of them: the same inputs each time, without a fuzzer.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use fastrand::Rng;

/// Changed inputs of each target.
const CHANGED: usize = 300;
/// Largest input in bytes, as in `cargo xtask fuzz`.
const LARGEST: usize = 64 << 10;
/// Numbers at which parsers go wrong: little and big endian, one to eight bytes of them.
const NUMBERS: [u64; 8] = [0, 1, 0x7f, 0x80, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test] fn $name() { replay(stringify!($name), fullbore_fuzz::targets::$name::run); })*
    };
}

fullbore_fuzz::for_each_target!(tests);

/// Runs every seed and [`CHANGED`] changes of seeds. A panic names the file that keeps its input.
fn replay(name: &str, target: fn(&[u8])) {
    let seeds = seeds(name);
    for seed in &seeds {
        run(name, target, seed);
    }
    let mut random = Rng::with_seed(1);
    for _ in 0..CHANGED {
        run(name, target, &changed(&seeds, &mut random));
    }
}

fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(name);
    let listed = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = listed.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} holds no seed: commit at least one good input", folder.display());
    paths.iter().map(|path| fs::read(path).expect("a readable seed")).collect()
}

fn run(name: &str, target: fn(&[u8]), input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let kept = std::env::temp_dir().join(format!("fullbore-fuzz-{name}"));
        fs::write(&kept, input).expect("room for the input");
        eprintln!("{name}: the input is in {}", kept.display());
        std::panic::resume_unwind(panic);
    }
}

/// A seed with one to four changes.
fn changed(seeds: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut bytes = seeds[random.usize(..seeds.len())].clone();
    for _ in 0..random.usize(1..=4) {
        let at = random.usize(..=bytes.len());
        match random.u8(..6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.u8(..)),
            2 => {
                let other = &seeds[random.usize(..seeds.len())];
                bytes.truncate(at);
                bytes.extend_from_slice(&other[random.usize(..=other.len())..]);
            }
            3 => {
                let end = random.usize(at..=bytes.len());
                bytes.extend_from_within(at..end);
            }
            4 => put_number(&mut bytes[at..], random),
            _ => bytes[at..].iter_mut().take(1).for_each(|byte| *byte ^= 1 << random.u8(..8)),
        }
    }
    bytes.truncate(LARGEST);
    bytes
}

/// Writes a number over the first one to eight bytes.
fn put_number(bytes: &mut [u8], random: &mut Rng) {
    let number = NUMBERS[random.usize(..NUMBERS.len())];
    let width = 1 << random.u32(..4);
    let (little, big) = (number.to_le_bytes(), number.to_be_bytes());
    let new = if random.bool() { &little[..width] } else { &big[8 - width..] };
    bytes.iter_mut().zip(new).for_each(|(byte, new)| *byte = *new);
}
