//! A sample of the real data, and the blocks that each codec makes of it.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use fullbore_core::codec::{CodecId, Compression, Encoder, memory};
use fullbore_core::{Error, Result};

use super::pace::Pace;
use super::probe_file::ProbeFile;
use fullbore_core::conduct::Conduct;
use fullbore_model::statistics::standard_error;

/// Bytes of a block: the default amount that a worker packs at a time.
pub(super) const BLOCK: usize = 1 << 20;
/// A shorter block at the end of a file is not measured.
const LEAST: usize = 4096;

/// A codec, and the sample packed by it.
pub(super) struct Packed {
    pub compression: Compression,
    /// Each block as it would be stored.
    pub blocks: Vec<(CodecId, Vec<u8>)>,
    /// Stored bytes for a plain byte.
    pub stored_share: f64,
    /// Standard error of `stored_share` over blocks, as a share of it.
    pub stored_share_error: f64,
    pub context_bytes: u64,
}

/// Blocks of the files, spread over them by their sizes, through the page cache: as many as `--throttle` lets through
/// in `time`.
pub(super) fn taken(files: &[&ProbeFile], most: usize, time: Duration, pace: &Pace<'_>) -> Result<Vec<Vec<u8>>> {
    let length: u64 = files.iter().map(|file| file.length).sum();
    let (most, size) = affordable(most, pace.allows(time));
    let step = (length / most.max(1) as u64).max(BLOCK as u64);
    // The last block may come at the end of the time.
    let until = Instant::now() + 2 * time;
    let mut blocks = Vec::new();
    for file in files {
        let mut offset = 0;
        while offset < file.length && blocks.len() < most {
            let range = file.range_from(offset);
            let mut block = vec![0; size.min((range.end - range.start) as usize)];
            if !pace.admits(block.len() as u64, until)? {
                return Ok(blocks);
            }
            let failed = |e| Error::io("read", file.buffered.path.display().to_string(), e);
            let read = file.buffered.file.read_at(&mut block, range.start).map_err(failed)?;
            block.truncate(read);
            if read >= LEAST {
                blocks.push(block);
            }
            offset += step;
        }
    }
    Ok(blocks)
}

/// The number and the length of blocks for this many bytes: one shorter block if there are too few bytes for a whole
/// one.
fn affordable(most: usize, bytes: Option<u64>) -> (usize, usize) {
    match bytes.unwrap_or(u64::MAX) {
        few if few < LEAST as u64 => (0, BLOCK),
        few if few < BLOCK as u64 => (most.min(1), few as usize),
        bytes => ((bytes / BLOCK as u64).min(most as u64) as usize, BLOCK),
    }
}

/// The sample packed by `compression`.
pub(super) fn packed(blocks: &[Vec<u8>], compression: Compression, conduct: &Conduct) -> Result<Packed> {
    let mut encoder = Encoder::new(compression)?;
    let mut out = vec![0; BLOCK];
    let mut stored = Vec::with_capacity(blocks.len());
    for block in blocks {
        conduct.check()?;
        stored.push(match encoder.encode(block, &mut out)? {
            Some(length) => (encoder.id(), out[..length].to_vec()),
            None => (CodecId::None, block.clone()),
        });
    }
    let plain: usize = blocks.iter().map(Vec::len).sum();
    let bytes: usize = stored.iter().map(|(_, block)| block.len()).sum();
    let share = bytes as f64 / plain.max(1) as f64;
    let of_blocks = stored.iter().zip(blocks).map(|((_, stored), plain)| stored.len() as f64 / plain.len() as f64);
    let of_blocks: Vec<f64> = of_blocks.collect();
    Ok(Packed {
        compression,
        stored_share: share,
        stored_share_error: standard_error(&of_blocks, share),
        context_bytes: memory(compression, BLOCK) as u64,
        blocks: stored,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_spread_over_the_files_and_its_share_is_that_of_its_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, blocks: usize, byte: u8| {
            let path = directory.path().join(name);
            std::fs::write(&path, vec![byte; blocks * BLOCK]).unwrap();
            ProbeFile::read(&path).unwrap()
        };
        let (a, b) = (file("a", 6, 1), file("b", 2, 2));
        let conduct = Conduct::default();
        let free = Pace::new(Duration::ZERO, None, &conduct);
        let second = Duration::from_secs(1);
        let blocks = taken(&[&a, &b], 4, second, &free).unwrap();
        assert_eq!(blocks.iter().map(|block| block[0]).collect::<Vec<_>>(), [1, 1, 1, 2]);
        let packed = packed(&blocks, "lz4".parse().unwrap(), &Conduct::default()).unwrap();
        assert!(packed.stored_share < 0.01 && packed.stored_share_error < 0.01);
        assert_eq!(packed.blocks.len(), 4);
        let under = |rate| {
            let begun = Instant::now();
            let blocks = taken(&[&a, &b], 4, 2 * second, &Pace::new(Duration::ZERO, Some(rate), &conduct)).unwrap();
            let bytes: usize = blocks.iter().map(Vec::len).sum();
            assert!(bytes as f64 <= begun.elapsed().as_secs_f64() * rate as f64, "{bytes} at {rate}");
            blocks.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(under(1 << 20), [BLOCK; 2], "fewer blocks if a cap leaves no time for more");
        assert_eq!(under(1 << 17), [BLOCK / 4], "a shorter block if there is no time for a whole one");
        assert_eq!(under(1), [0; 0], "none at all");
    }
}
