//! Work on bytes in memory, by a given number of threads: codecs, checksums, the cipher.

use std::hint::black_box;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use fullbore_core::checksum::{PlainDigest, UnitHasher, crc32c, is_zero};
use fullbore_core::cipher::{DataKey, Sealer};
use fullbore_core::codec::{Decoder, Encoder};
use fullbore_core::{Error, Result, threads};

use super::disk::joined;
use super::pace::{Pace, thread_seconds};
use super::sample::{BLOCK, Packed};
use super::stream::Moved;
use fullbore_model::profile::{HandOver, Round};

/// Bytes of a page: the unit of the page map.
const PAGE: usize = 4096;
/// Bytes that the digest of a block gets at a time, as in a worker: so they are still in the cache.
const DIGEST_STEP: usize = 16 << 10;

/// Does `once` with one block after the other until the round is over; each thread begins with another block. The
/// length of a round is the mean working time of the threads: so `threads × seconds / bytes` is the time of one thread
/// for a byte.
fn round<W: FnMut(usize) -> Result<usize>>(
    threads: u64,
    blocks: usize,
    pace: &Pace<'_>,
    make: impl Fn() -> Result<W> + Sync,
) -> Result<Option<Round>> {
    if blocks == 0 {
        return Ok(None);
    }
    let done = threads::side_by_side("worker", 0..threads as usize, |_, number| {
        let mut once = make()?;
        let (begun, processor) = (Instant::now(), thread_seconds());
        let (until, mut bytes, mut at) = (begun + pace.length, 0, number);
        while Instant::now() < until {
            pace.conduct.check()?;
            bytes += once(at % blocks)? as u64;
            at += 1;
        }
        let cpu_seconds = (thread_seconds() - processor).max(0.0);
        Ok(Moved { bytes, begun, ended: Instant::now(), sync_seconds: 0.0, cpu_seconds })
    })?;
    let worked: f64 = done.iter().map(|moved| (moved.ended - moved.begun).as_secs_f64()).sum();
    Ok(joined(&done).map(|round| Round { seconds: worked / threads as f64, ..round }))
}

/// Buffers of all threads together: as many as in the pool of a usual job. A thread takes them in turn. So a buffer has
/// left the processor's caches when it is used again, as in a job. With one buffer, unpacking was up to a fifth faster
/// than in a restore.
const BUFFERS: usize = 32;

/// The buffers of one of several threads, in turn.
struct InTurn {
    buffers: Vec<Vec<u8>>,
    next: usize,
}

impl InTurn {
    fn new(threads: u64) -> Self {
        // Write to them once: new memory costs a page fault, and a job pays it only once.
        let buffers = vec![vec![1; BLOCK]; BUFFERS.div_ceil(threads as usize)];
        Self { buffers, next: 0 }
    }

    fn take(&mut self) -> &mut [u8] {
        self.next = (self.next + 1) % self.buffers.len();
        &mut self.buffers[self.next]
    }
}

/// Packs the sample.
pub(super) fn pack(blocks: &[Vec<u8>], packed: &Packed, threads: u64, pace: &Pace<'_>) -> Result<Option<Round>> {
    round(threads, blocks.len(), pace, || {
        let (mut encoder, mut buffers) = (Encoder::new(packed.compression)?, InTurn::new(threads));
        Ok(move |at: usize| {
            black_box(encoder.encode(&blocks[at], buffers.take())?);
            Ok(blocks[at].len())
        })
    })
}

/// Unpacks the packed sample.
pub(super) fn unpack(blocks: &[Vec<u8>], packed: &Packed, threads: u64, pace: &Pace<'_>) -> Result<Option<Round>> {
    round(threads, blocks.len(), pace, || {
        let (mut decoder, mut buffers) = (Decoder::new()?, InTurn::new(threads));
        Ok(move |at: usize| {
            let (codec, stored) = &packed.blocks[at];
            let plain = &mut buffers.take()[..blocks[at].len()];
            let unpacked = decoder.decode(*codec, stored, plain);
            unpacked.map_err(|why| {
                Error::refused("codec", why.to_string(), "this is a defect of fullbore: please report it")
            })?;
            black_box(plain);
            Ok(blocks[at].len())
        })
    })
}

/// The work of a worker on plain bytes besides packing.
pub(super) fn checksum(blocks: &[Vec<u8>], threads: u64, pace: &Pace<'_>) -> Result<Option<Round>> {
    round(threads, blocks.len(), pace, || {
        let hasher = UnitHasher::new(1);
        Ok(move |at: usize| {
            let mut digest = PlainDigest::new();
            for step in blocks[at].chunks(DIGEST_STEP) {
                for page in step.chunks(PAGE) {
                    black_box((is_zero(page), hasher.hash(page)));
                }
                digest.update(step);
            }
            black_box((digest.finish(), crc32c(&blocks[at])));
            Ok(blocks[at].len())
        })
    })
}

/// Encrypts blocks in place.
pub(super) fn cipher(blocks: &[Vec<u8>], threads: u64, pace: &Pace<'_>) -> Result<Option<Round>> {
    round(threads, blocks.len(), pace, || {
        // Each thread has its own key: so no block number is used twice with one key.
        let (sealer, mut bytes, mut number) = (Sealer::new(&DataKey::random()?), blocks[0].clone(), 0);
        Ok(move |_: usize| {
            black_box(sealer.seal_in_place(number, &[], &mut bytes)?);
            number += 1;
            Ok(bytes.len())
        })
    })
}

/// Passes one buffer after the other through a reader, a worker and a writer, which do nothing with it. Each waits for
/// the one before, so that a buffer costs as many sleeps as in a job whose threads all wait.
pub(super) fn hand_over(pace: &Pace<'_>) -> Result<Option<HandOver>> {
    let (free, reader) = sync_channel(1);
    let (read, worker) = sync_channel(1);
    let (packed, writer) = sync_channel(1);
    free.send(0_u64).map_err(|_| Error::Halted)?;
    let until = Instant::now() + pace.length;
    let stages = [(reader, read), (worker, packed), (writer, free)];
    let done = threads::side_by_side("stage", stages, |number, (from, to)| {
        let processor = thread_seconds();
        let mut passed = 0_u64;
        // The first stage that ends closes its channels, and so ends the others.
        while let Ok(buffer) = from.recv() {
            passed += 1;
            let over = number == 0 && (pace.conduct.check().is_err() || Instant::now() >= until);
            if over || to.send(buffer + 1).is_err() {
                break;
            }
        }
        Ok((passed, (thread_seconds() - processor).max(0.0)))
    })?;
    pace.conduct.check()?;
    let buffers = done.iter().map(|(passed, _)| *passed).min().unwrap_or(0);
    let cpu_seconds = done.iter().map(|(_, seconds)| seconds).sum();
    Ok((buffers > 0).then_some(HandOver { buffers, cpu_seconds }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;
    use fullbore_core::conduct::Conduct;

    #[test]
    fn buffers_pass_three_threads_until_the_round_is_over() {
        let conduct = Conduct::default();
        let round = || hand_over(&Pace::new(Duration::from_millis(20), None, &conduct)).unwrap();
        // On a busy machine a round may end before a buffer has passed all threads.
        let made = (0..100).find_map(|_| round()).unwrap();
        assert!(made.buffers > 0 && made.cpu_seconds > 0.0, "{made:?}");
    }
}
