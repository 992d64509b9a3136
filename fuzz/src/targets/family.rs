//! A whole family, changed here and there with its checksums put right: opened, assembled, verified from a file and from
//! a pipe, restored, and used as the base of a differential.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use fullbore_core::Result;
use fullbore_core::halt::Halt;
use fullbore_core::media::{FamilyHeader, HEADER_MAX};
use fullbore_core::meter::Progress;
use fullbore_core::plan::UnpackPlan;
use fullbore_core::pool::Pool;
use fullbore_core::supply::Supply;
use fullbore_core::testkit::{MemorySupply, Shelf};
use fullbore_core::unpack::{BaseMap, Family, MediaSet, NullTarget, Target, Unpack};
use crate::{Layout, open_set, sample};

/// Larger transfers would only be slower.
const TRANSFER_MAX: u32 = 256 << 10;
/// A restore takes as many buffers as the window says.
const WINDOW_MAX: u32 = 64;

static SAMPLES: LazyLock<Vec<(Vec<u8>, Layout)>> = LazyLock::new(|| {
    let samples = ["none", "lz4", "zstd", "gzip"].into_iter().map(sample).chain(open_set::samples());
    let laid_out = |bytes: Vec<u8>| {
        let layout = Layout::of(&bytes);
        (bytes, layout)
    };
    samples.map(laid_out).collect()
});

/// Accepts what lies inside the streams of the set; those of an open one are cut off at their sizes later.
struct Bounds {
    sizes: HashMap<u32, u64>,
    open: bool,
}

impl Bounds {
    fn of(set: &MediaSet) -> Self {
        let header = set.header();
        let named = set.manifest().filter(|_| header.open).map(|manifest| &manifest.streams);
        let sizes = match named {
            Some(streams) => streams.iter().map(|stream| (stream.id, stream.size)).collect(),
            None => header.streams.iter().map(|stream| (stream.id, stream.size)).collect(),
        };
        Self { sizes, open: header.open }
    }

    fn check(&self, stream: u32, offset: u64, length: u64) {
        let size = *self.sizes.get(&stream).expect("a stream that the set names");
        let end = offset.checked_add(length).expect("a place in a stream");
        assert!(end <= size || self.open, "outside of its stream");
    }
}

impl Target for Bounds {
    fn discards(&self) -> bool {
        false
    }

    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(stream, offset, bytes.len() as u64);
        Ok(())
    }

    fn zero(&self, stream: u32, offset: u64, length: u64) -> Result<()> {
        self.check(stream, offset, length);
        Ok(())
    }
}

/// One input.
pub fn run(input: &[u8]) {
    let Some((&[which, level, cut], edits)) = input.split_first_chunk::<3>() else { return };
    let (bytes, layout) = &SAMPLES[usize::from(which) % SAMPLES.len()];
    let mut bytes = bytes.clone();
    for edit in edits.as_chunks::<4>().0 {
        apply(&mut bytes, *edit);
    }
    layout.put_right(&mut bytes, level % 4);
    if cut > 200 {
        let length = bytes.len() * usize::from(cut - 200) / 56;
        bytes.truncate(length);
    }
    read(&Arc::new(Mutex::new(bytes)), level >> 2 & 3);
    // What the pool remembers for tests looks like a leak to the fuzzer, which then looks for one each time: slowly.
    drop(Pool::made_here());
}

/// Three bytes say where, the fourth what.
fn apply(bytes: &mut [u8], [a, b, c, value]: [u8; 4]) {
    let at = usize::from(a) | usize::from(b) << 8 | usize::from(c & 1) << 16;
    // Half of them count from the end, where trailer and footer are.
    let at = if c & 2 == 0 { at } else { bytes.len().saturating_sub(at % 8192 + 1) };
    let Some(byte) = bytes.get_mut(at) else { return };
    *byte = match c >> 2 & 3 {
        0 => value,
        1 => *byte ^ value,
        2 => byte.wrapping_add(value),
        _ => 0xFF,
    };
}

/// Verifies it, and reads it once more in the way that `how` says: each way starts threads, which is what takes time.
fn read(shelf: &Shelf, how: u8) {
    let start: Vec<u8> = shelf.lock().expect("no panic holds it").iter().take(HEADER_MAX).copied().collect();
    let length = FamilyHeader::length(&start).unwrap_or(0).min(start.len());
    let Ok(header) = FamilyHeader::decode(&start[..length]) else { return drop(open(shelf, &pool(0, 4096))) };
    if header.set.transfer_size > TRANSFER_MAX || header.set.window > WINDOW_MAX {
        return;
    }
    let size = header.set.transfer_size as usize;
    let filed = |input: &Arc<Pool>| MediaSet::assemble(vec![open(shelf, input)?], None, &[]);
    let piped = |input: &Arc<Pool>| MediaSet::piped(Box::new(MemorySupply::new("pipe", shelf, input)), None, &[]);
    let verified = unpack(size, filed, |_| Box::new(NullTarget));
    match how {
        0 => {}
        1 => {
            let restored = unpack(size, filed, |set| Box::new(Bounds::of(set)));
            // Not the other way: a restore does not look at the page map.
            assert!(!verified || restored, "verify accepts what restore refuses");
        }
        2 => {
            let from_pipe = unpack(size, piped, |_| Box::new(NullTarget));
            // The names in an open set come last.
            assert!(!verified || from_pipe || header.set.open, "a pipe is not what a file is");
        }
        _ => {
            if let Ok(base) = filed(&pool(0, size)).and_then(BaseMap::open) {
                look_up(&base);
            }
        }
    }
}

fn look_up(base: &BaseMap) {
    let mut entries = Vec::new();
    for stream in base.streams() {
        for unit in [0, 1, stream.size / u64::from(stream.unit)] {
            let _ = base.entries(Some(stream.id), unit * u64::from(stream.unit), 20, &mut entries);
        }
    }
}

fn pool(count: usize, size: usize) -> Arc<Pool> {
    Pool::new(count, size).expect("memory")
}

fn open(shelf: &Shelf, input: &Arc<Pool>) -> Result<Family> {
    let supply: Box<dyn Supply> = Box::new(MemorySupply::new("family", shelf, input));
    Family::open(supply)
}

/// Whether it was accepted; every buffer comes home either way.
fn unpack(
    size: usize,
    set: impl Fn(&Arc<Pool>) -> Result<MediaSet>,
    target: impl Fn(&MediaSet) -> Box<dyn Target>,
) -> bool {
    let mut plan = UnpackPlan {
        transfer_size: size as u32,
        workers: 1,
        queue_depth: 1,
        writers: 1,
        input_buffers: 4,
        output_buffers: 3,
        window: 0,
        throttle: None,
    };
    let input = pool(plan.input_buffers, size);
    let accepted = (|| {
        let mut set = set(&input)?;
        plan.window = set.header().window as usize;
        plan.output_buffers += plan.window;
        let (target, progress, halt) = (target(&set), Progress::default(), Halt::new());
        let (target, progress, halt) = (&*target, &progress, &halt);
        Unpack { plan: &plan, target, progress, halt, tick: &|| Ok(()), input: &input }.run(&mut set)
    })();
    assert_eq!(input.free(), plan.input_buffers, "a buffer did not come home");
    accepted.is_ok()
}
