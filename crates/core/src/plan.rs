//! The plan: every thread and every buffer of a job, known before the first read.

use crate::codec::Compression;
use crate::error::{Error, Result};

/// Step and least value of MAXTRANSFERSIZE in bytes.
pub const TRANSFER_STEP: u32 = 64 << 10;
/// Greatest MAXTRANSFERSIZE in bytes.
pub const TRANSFER_MAX: u32 = 64 << 20;
/// Memory outside the pool that a job may need besides its codec contexts, in bytes: code, stacks, rings,
/// the windows of the page map, the engine's maps, what a differential has claimed (`unpack`, at most 16 MiB).
pub const FIXED_MEMORY: u64 = 64 << 20;

/// Bytes in one buffer and in one device write (SQL Server's MAXTRANSFERSIZE): 64 KiB…64 MiB in 64 KiB steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransferSize(u32);

impl TransferSize {
    /// Checks the bounds.
    pub fn new(bytes: u64) -> Result<Self> {
        let valid = (u64::from(TRANSFER_STEP)..=u64::from(TRANSFER_MAX)).contains(&bytes)
            && bytes.is_multiple_of(u64::from(TRANSFER_STEP));
        if valid {
            return Ok(Self(bytes as u32));
        }
        Err(Error::usage(
            "--max-transfer-size",
            format!("{bytes} bytes is not a multiple of 64 KiB from 64 KiB to 64 MiB"),
            "write for example 1MiB",
        ))
    }

    /// In bytes.
    pub fn bytes(self) -> u32 {
        self.0
    }
}

impl Default for TransferSize {
    fn default() -> Self {
        Self(1 << 20)
    }
}

/// Alignment unit of a family (SQL Server's BLOCKSIZE): 512…65536 bytes, a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSize(u32);

impl BlockSize {
    /// Checks the bounds.
    pub fn new(bytes: u64) -> Result<Self> {
        if (512..=65536).contains(&bytes) && bytes.is_power_of_two() {
            return Ok(Self(bytes as u32));
        }
        Err(Error::usage(
            "--block-size",
            format!("{bytes} bytes is not a power of two from 512 to 65536"),
            "write for example 4096",
        ))
    }

    /// In bytes.
    pub fn bytes(self) -> u32 {
        self.0
    }

    /// At least what a device needs for direct I/O.
    pub fn at_least(self, alignment: u32) -> Self {
        Self(self.0.max(alignment.clamp(512, 65536).next_power_of_two()))
    }
}

impl Default for BlockSize {
    fn default() -> Self {
        Self(4096)
    }
}

/// What the user may set; everything left out is chosen by [`Plan`].
#[derive(Debug, Clone, Default)]
pub struct Knobs {
    /// MAXTRANSFERSIZE.
    pub transfer_size: TransferSize,
    /// BLOCKSIZE.
    pub block_size: BlockSize,
    /// BUFFERCOUNT.
    pub buffer_count: Option<usize>,
    /// Operations in flight per family.
    pub queue_depth: Option<usize>,
    /// Parallel source readers.
    pub readers: Option<usize>,
    /// Transform threads.
    pub workers: Option<usize>,
    /// Source bytes per second, at most; of a job that reads media, bytes of the media.
    pub throttle: Option<u64>,
}

/// Everything a backup uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Bytes in one buffer.
    pub transfer_size: u32,
    /// Alignment unit of a family.
    pub block_size: u32,
    /// Media families.
    pub stripes: usize,
    /// Parallel source readers.
    pub readers: usize,
    /// Transform threads.
    pub workers: usize,
    /// Writes in flight per family.
    pub queue_depth: usize,
    /// Bytes of a part where families go into an object store; 0 where none does.
    pub part_size: u64,
    /// Buffers that readers fill.
    pub input_buffers: usize,
    /// Buffers for packed blocks, with each worker's own.
    pub output_buffers: usize,
    /// Bytes of all codec contexts.
    pub codec_bytes: u64,
    /// Source bytes per second, at most.
    pub throttle: Option<u64>,
}

/// Bytes of parts under way and of parts that are filling, for all stripes into object stores together. Beyond them a
/// plan does not grow by itself.
const PARTS_MEMORY: u64 = 192 << 20;
/// Bytes that are read ahead of an object, and of all objects together: twice the latter brought nothing on a quiet
/// machine.
const RANGES_OF_ONE: u64 = 32 << 20;
const RANGES_OF_ALL: u64 = 64 << 20;
/// Bytes of unpacked blocks that wait for the target, besides those of a restore from files. A range comes all at once,
/// and its blocks are unpacked faster than they are written. Without room for them, the buffers of the range stay in
/// use, and the next range is not requested.
const UNPACKED_AT_ONCE: u64 = 16 << 20;

const MOST_THREADS: usize = 256;
const MOST_QUEUE_DEPTH: usize = 256;

impl Plan {
    /// The plan of a backup into `stripes` families. `differential` needs one more buffer per worker.
    pub fn backup(knobs: &Knobs, stripes: usize, compression: Compression, differential: bool) -> Result<Self> {
        Self::backup_in_parts(knobs, stripes, compression, differential, 0)
    }

    /// The same for devices that take parts of so many bytes, such as object stores: each stripe has buffers for the
    /// part that it fills, and for the parts under way.
    pub fn backup_in_parts(
        knobs: &Knobs,
        stripes: usize,
        compression: Compression,
        differential: bool,
        part_size: u64,
    ) -> Result<Self> {
        if !(1..=64).contains(&stripes) {
            return Err(Error::usage(
                "--stripes",
                format!("{stripes} is not from 1 to 64"),
                "a media set has 1 to 64 families",
            ));
        }
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let readers = bounded("--readers", knobs.readers, 4, MOST_THREADS)?;
        let workers = bounded("--workers", knobs.workers, cores, MOST_THREADS)?;
        let queue_depth = bounded("--queue-depth", knobs.queue_depth, (8 / stripes).clamp(2, 4), MOST_QUEUE_DEPTH)?;
        let (least_input, least_output) = least_of_backup(stripes, readers, workers, differential);
        let transfer_size = knobs.transfer_size.bytes();
        let parts = (part_size * (stripes * (1 + queue_depth)) as u64).min(PARTS_MEMORY) / u64::from(transfer_size);
        let in_flight = (stripes * queue_depth).max(parts as usize);
        let packs = compression != Compression::None;
        let (wanted_input, wanted_output) = if packs {
            (least_input + readers.max(workers), least_output + in_flight)
        } else {
            (least_input + in_flight, least_output + stripes)
        };
        let (input_buffers, output_buffers) =
            share_out(knobs.buffer_count, (least_input, least_output), (wanted_input, wanted_output))?;
        let codec_bytes = workers as u64 * crate::codec::memory(compression, transfer_size as usize) as u64;
        Ok(Self {
            transfer_size,
            block_size: knobs.block_size.bytes(),
            stripes,
            readers,
            workers,
            queue_depth,
            part_size,
            input_buffers,
            output_buffers,
            codec_bytes,
            throttle: knobs.throttle,
        })
    }

    /// BUFFERCOUNT.
    pub fn buffer_count(&self) -> usize {
        self.input_buffers + self.output_buffers
    }

    /// The least BUFFERCOUNT with these threads and stripes.
    pub fn least_buffers(&self, differential: bool) -> usize {
        let (input, output) = least_of_backup(self.stripes, self.readers, self.workers, differential);
        input + output
    }

    /// BUFFERCOUNT × MAXTRANSFERSIZE in bytes.
    pub fn pool_bytes(&self) -> u64 {
        self.buffer_count() as u64 * u64::from(self.transfer_size)
    }
}

/// Input and output buffers below which a backup could wait for ever (ARCHITECTURE.md, "The memory rule").
fn least_of_backup(stripes: usize, readers: usize, workers: usize, differential: bool) -> (usize, usize) {
    let per_worker = if differential { 3 } else { 2 };
    (readers + workers, stripes + workers * per_worker)
}

/// The same for an unpacking: a family holds its reads in flight, the piece it parses and the block it assembles from
/// two pieces. Blocks of ordered streams that wait for an earlier one hold less than `window` buffers.
fn least_of_unpacking(families: usize, workers: usize, window: usize) -> (usize, usize) {
    (families * 3 + workers, 2 * workers + 1 + window)
}

/// The plan of a restore or a verification of `families` families.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnpackPlan {
    /// Bytes in one buffer: the set's transfer size.
    pub transfer_size: u32,
    /// Transform threads.
    pub workers: usize,
    /// Reads in flight per family.
    pub queue_depth: usize,
    /// Writes in flight to the target.
    pub writers: usize,
    /// Buffers that media are read into.
    pub input_buffers: usize,
    /// Buffers that blocks are unpacked into.
    pub output_buffers: usize,
    /// Of these, for blocks of ordered streams that wait for an earlier one.
    pub window: usize,
    /// Bytes of the media that are read per second, at most.
    pub throttle: Option<u64>,
}

impl UnpackPlan {
    /// Chooses what the user left open. `window` is that of the set if a target gets ordered streams, else 0.
    pub fn new(knobs: &Knobs, families: usize, transfer_size: u32, window: u32) -> Result<Self> {
        Self::reading_ahead(knobs, families, (transfer_size, window), (8 / families.max(1)).clamp(2, 4), 0)
    }

    /// The same for families in object stores: one request asks for several buffers, and each takes its time.
    pub fn of_objects(knobs: &Knobs, families: usize, transfer_size: u32, window: u32) -> Result<Self> {
        let bytes = (RANGES_OF_ALL / families.max(1) as u64).min(RANGES_OF_ONE);
        let depth = (bytes / u64::from(transfer_size.max(1))).max(2) as usize;
        let at_once = (UNPACKED_AT_ONCE / u64::from(transfer_size.max(1))) as usize;
        Self::reading_ahead(knobs, families, (transfer_size, window), depth, at_once)
    }

    /// Reads so many buffers of each family ahead; `at_once` packed buffers come at one time.
    fn reading_ahead(
        knobs: &Knobs,
        families: usize,
        (transfer_size, window): (u32, u32),
        depth: usize,
        at_once: usize,
    ) -> Result<Self> {
        let window = window as usize;
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let workers = bounded("--workers", knobs.workers, cores, MOST_THREADS)?;
        let queue_depth = bounded("--queue-depth", knobs.queue_depth, depth, MOST_QUEUE_DEPTH)?;
        let writers = workers.max(4);
        let (least_input, least_output) = least_of_unpacking(families, workers, window);
        let wanted_input = families * (queue_depth + 2) + workers;
        let wanted_output = 2 * workers + writers + 2 + at_once + window;
        let (input_buffers, output_buffers) =
            share_out(knobs.buffer_count, (least_input, least_output), (wanted_input.max(least_input), wanted_output))?;
        let affordable = (input_buffers - workers) / families.max(1) - 2;
        Ok(Self {
            transfer_size,
            workers,
            queue_depth: queue_depth.min(affordable.max(1)),
            writers,
            input_buffers,
            output_buffers,
            window,
            throttle: knobs.throttle,
        })
    }

    /// BUFFERCOUNT.
    pub fn buffer_count(&self) -> usize {
        self.input_buffers + self.output_buffers
    }

    /// The least BUFFERCOUNT with these threads for so many families.
    pub fn least_buffers(&self, families: usize) -> usize {
        let (input, output) = least_of_unpacking(families, self.workers, self.window);
        input + output
    }

    /// BUFFERCOUNT × MAXTRANSFERSIZE in bytes.
    pub fn pool_bytes(&self) -> u64 {
        self.buffer_count() as u64 * u64::from(self.transfer_size)
    }
}

fn bounded(flag: &str, asked: Option<usize>, default: usize, most: usize) -> Result<usize> {
    match asked {
        None => Ok(default.clamp(1, most)),
        Some(n) if (1..=most).contains(&n) => Ok(n),
        Some(n) => Err(Error::usage(
            flag,
            format!("{n} is not from 1 to {most}"),
            "leave it out: fullbore chooses a value that fits the machine",
        )),
    }
}

/// Splits BUFFERCOUNT into an input and an output share, each at least what keeps the threads from waiting for ever.
fn share_out(asked: Option<usize>, least: (usize, usize), wanted: (usize, usize)) -> Result<(usize, usize)> {
    let Some(count) = asked else { return Ok(wanted) };
    let minimum = least.0 + least.1;
    if count < minimum {
        return Err(Error::usage(
            "--buffer-count",
            format!("{count} is fewer than the readers, workers and stripes of this job need"),
            format!("give at least {minimum}, or lower --readers, --workers or --stripes"),
        ));
    }
    if count > 1 << 20 {
        return Err(Error::usage(
            "--buffer-count",
            format!("{count} is more than 1048576"),
            "leave it out: fullbore chooses a value that fits the machine",
        ));
    }
    let surplus = count - minimum;
    let (extra_in, extra_out) = (wanted.0 - least.0, wanted.1 - least.1);
    let to_input = surplus * extra_in / (extra_in + extra_out).max(1);
    Ok((least.0 + to_input, least.1 + surplus - to_input))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(buffer_count: usize) -> Knobs {
        Knobs { buffer_count: Some(buffer_count), readers: Some(2), workers: Some(2), ..Knobs::default() }
    }

    #[test]
    fn a_buffer_count_that_would_deadlock_is_refused_with_the_least_that_does_not() {
        let error = Plan::backup(&knobs(3), 4, Compression::None, false).unwrap_err().to_string();
        assert!(error.contains("at least 12"), "{error}");
        let least = Plan::backup(&knobs(12), 4, Compression::None, false).unwrap();
        assert_eq!((least.buffer_count(), least.least_buffers(false)), (12, 12));
    }

    #[test]
    fn every_asked_buffer_is_shared_out() {
        for count in [12, 13, 50, 1024] {
            assert_eq!(Plan::backup(&knobs(count), 4, Compression::None, false).unwrap().buffer_count(), count);
        }
    }

    #[test]
    fn a_backup_into_stores_has_room_for_parts_but_not_for_ever_more_of_them() {
        const PART: u64 = 8 << 20;
        for compression in [Compression::None, Compression::Lz4] {
            for (stripes, parts) in [(1, 5), (4, 12), (8, 24), (64, 24)] {
                let plan = |part| Plan::backup_in_parts(&Knobs::default(), stripes, compression, false, part).unwrap();
                let (of_files, of_objects) = (plan(0).pool_bytes(), plan(PART).pool_bytes());
                let room = parts * PART;
                assert!((room..=of_files + room).contains(&of_objects), "{stripes}: {of_files} and {of_objects}");
            }
        }
        let asked = Plan::backup_in_parts(&knobs(12), 4, Compression::None, false, PART).unwrap();
        assert_eq!(asked.buffer_count(), 12, "what is asked for is taken");
    }

    #[test]
    fn objects_are_read_further_ahead_than_files_and_all_together_within_bounds() {
        for (families, ahead) in [(1, 32), (2, 32), (4, 16), (8, 8), (64, 2)] {
            let plan = UnpackPlan::of_objects(&Knobs::default(), families, 1 << 20, 0).unwrap();
            assert_eq!(plan.queue_depth, ahead, "{families}");
            assert!(plan.queue_depth >= UnpackPlan::new(&Knobs::default(), families, 1 << 20, 0).unwrap().queue_depth);
        }
        assert_eq!(UnpackPlan::of_objects(&Knobs::default(), 1, TRANSFER_MAX, 0).unwrap().queue_depth, 2);
    }

    #[test]
    fn misaligned_sizes_are_refused() {
        for bytes in [0, 1, 65535, 65537, (64 << 20) + 65536] {
            assert!(TransferSize::new(bytes).is_err());
        }
        for bytes in [0, 511, 513, 4095, 131072] {
            assert!(BlockSize::new(bytes).is_err());
        }
    }
}
