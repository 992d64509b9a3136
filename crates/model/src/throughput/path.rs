//! The path: the speed of the hardware, in numbers that are measured by calibration, promised by a volume, or fitted to
//! history.

use serde::{Deserialize, Serialize};

use super::configuration::{Configuration, Direction};
use super::requests::Requests;

/// A ceiling that lasts while credit lasts (burst buckets of cloud volumes).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// Bytes per second of all streams together while there is credit: more than the ceiling's `total_rate`.
    pub rate: f64,
    /// Bytes above `total_rate` that may pass, at the start of the job.
    pub credit: f64,
}

/// The speed of one side in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceiling {
    /// Bytes per second of one stream (a family, a reader, a writer) with enough operations in flight.
    pub stream_rate: f64,
    /// Bytes per second of all streams together.
    pub total_rate: f64,
    /// Seconds of an operation besides the transfer of its bytes.
    pub latency: f64,
    /// Processor seconds for moving a byte.
    pub processor: f64,
    /// A higher ceiling while credit lasts.
    pub burst: Option<Burst>,
}

impl Ceiling {
    /// No limit that is known.
    pub const NONE: Self =
        Self { stream_rate: f64::INFINITY, total_rate: f64::INFINITY, latency: 0.0, processor: 0.0, burst: None };

    /// A ceiling for all streams together, in bytes per second, and none for one stream.
    pub fn total(rate: f64) -> Self {
        Self { total_rate: rate, ..Self::NONE }
    }

    /// Seconds of a byte in an operation of `transfer_bytes` that is alone on its stream.
    pub fn alone(&self, transfer_bytes: f64) -> f64 {
        self.latency / transfer_bytes + 1.0 / self.stream_rate
    }

    /// Seconds of a byte on one stream, if this many operations hide each other's latency.
    pub fn of_stream(&self, in_flight: f64, transfer_bytes: f64) -> f64 {
        (1.0 / self.stream_rate).max(self.alone(transfer_bytes) / in_flight)
    }
}

/// A device or several devices, in both directions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// Reading from it.
    pub read: Ceiling,
    /// Writing to it.
    pub write: Ceiling,
}

impl Device {
    /// No limit that is known.
    pub const NONE: Self = Self { read: Ceiling::NONE, write: Ceiling::NONE };

    /// The ceiling of one direction.
    pub fn ceiling(&self, way: Access) -> &Ceiling {
        match way {
            Access::Read => &self.read,
            Access::Write => &self.write,
        }
    }

    /// The same, to change it.
    pub fn ceiling_mut(&mut self, way: Access) -> &mut Ceiling {
        match way {
            Access::Read => &mut self.read,
            Access::Write => &mut self.write,
        }
    }
}

/// One end of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The side of the database.
    Database,
    /// The side of the families.
    Media,
}

/// The direction in which a side is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// From it.
    Read,
    /// To it.
    Write,
}

/// Processors, and their costs for bytes besides the codec.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Processors that the job may use: those of the machine or of its control group.
    pub cores: f64,
    /// Processor seconds for a buffer on its way from thread to thread: from its reader to a worker, to a writer and
    /// back to the pool.
    pub hand_over: f64,
    /// Processor seconds for the page hashes and digests of a plain byte, in a worker.
    pub checksum: f64,
    /// Processor seconds for the cipher of a stored byte, in a worker.
    pub cipher: f64,
}

impl Machine {
    /// Processors whose only costs are those of codecs.
    pub fn with_cores(cores: f64) -> Self {
        Self { cores, hand_over: 0.0, checksum: 0.0, cipher: 0.0 }
    }
}

/// The costs of a codec for this database, on one worker of this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct CodecCost {
    /// As `--compression` spells it: `zstd:1`.
    pub name: String,
    /// Seconds for packing a plain byte on one worker.
    pub pack: f64,
    /// Seconds for unpacking a plain byte on one worker.
    pub unpack: f64,
    /// Stored bytes for a plain byte.
    pub stored_share: f64,
    /// Bytes of one worker's context.
    pub context_bytes: f64,
}

impl CodecCost {
    /// No codec: no work, no saving.
    pub fn none() -> Self {
        Self { name: "none".into(), pack: 0.0, unpack: 0.0, stored_share: 1.0, context_bytes: 0.0 }
    }
}

/// The costs of a job that do not depend on its size.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct FixedCosts {
    /// Seconds of a backup before its first byte and after its last one, besides `commit`: to start the program, open a
    /// session, make the pool, publish.
    pub backup: f64,
    /// The same for a restore.
    pub restore: f64,
    /// Seconds for syncing and publishing one stripe.
    pub commit: f64,
    /// Seconds of the database's device for reading one file, besides its bytes: those of a short operation among
    /// others.
    pub read_file: f64,
    /// Seconds for making one file at the database, besides its bytes: until it is durable.
    pub write_file: f64,
    /// Seconds of the database's device for writing one byte that waits in the page cache.
    pub flush: f64,
    /// Bytes of memory besides the pool and codec contexts.
    pub memory: f64,
}

impl FixedCosts {
    /// Seconds of a job in that direction, for any size and any number of stripes.
    pub fn of(&self, direction: Direction) -> f64 {
        match direction {
            Direction::Backup => self.backup,
            Direction::Restore => self.restore,
        }
    }

    /// Seconds for one file of the database, read or made.
    pub fn of_file_mut(&mut self, way: Access) -> &mut f64 {
        match way {
            Access::Read => &mut self.read_file,
            Access::Write => &mut self.write_file,
        }
    }
}

/// The hardware of a job, from the database to the media.
#[derive(Debug, Clone, PartialEq)]
pub struct Path {
    /// The side of the database.
    pub database: Device,
    /// The side of the families.
    pub media: Device,
    /// Given if both are on one device: the share of the sum that it does when it is read and written at once. 1: reads
    /// and writes share one ceiling. 2: they do not disturb each other. Less than 1: they disturb each other.
    pub simultaneous: Option<f64>,
    /// The factor of `simultaneous` if two bytes are written for each byte that is read, as in a restore of compressed
    /// media.
    pub write_heavy: f64,
    /// A restore with smaller buffers than this, in bytes, writes its files through the page cache. The device writes
    /// them at the end. 0: no restore does.
    pub least_direct_transfer: f64,
    /// Processors.
    pub machine: Machine,
    /// Codecs that a configuration may name.
    pub codecs: Vec<CodecCost>,
    /// For media in object stores: measured requests, by their size and their number at once.
    pub requests: Requests,
    /// Costs that do not depend on the size.
    pub fixed: FixedCosts,
    /// The regularity of service: 0 exponential, 1 no variation at all.
    pub evenness: f64,
}

impl Path {
    /// A path without any limit but the given processors.
    pub fn unlimited(cores: f64) -> Self {
        Self {
            database: Device::NONE,
            media: Device::NONE,
            simultaneous: None,
            write_heavy: 1.0,
            least_direct_transfer: 0.0,
            machine: Machine::with_cores(cores),
            codecs: vec![CodecCost::none()],
            requests: Requests::default(),
            fixed: FixedCosts::default(),
            evenness: 0.0,
        }
    }

    /// One end of the path.
    pub fn side(&self, side: Side) -> &Device {
        match side {
            Side::Database => &self.database,
            Side::Media => &self.media,
        }
    }

    /// The same, to change it.
    pub fn side_mut(&mut self, side: Side) -> &mut Device {
        match side {
            Side::Database => &mut self.database,
            Side::Media => &mut self.media,
        }
    }

    /// True for a restore that writes its files through the page cache.
    pub fn writes_to_cache(&self, configuration: &Configuration) -> bool {
        configuration.direction == Direction::Restore && configuration.transfer_bytes < self.least_direct_transfer
    }

    /// The codec of that name.
    pub fn codec(&self, name: &str) -> Option<&CodecCost> {
        self.codecs.iter().find(|codec| codec.name == name)
    }
}

/// The gain of several streams of a side over one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Headroom {
    /// Devices of the side; for stores, places.
    pub devices: u64,
    /// The greatest factor by which several streams to one device are faster than one.
    pub streams: f64,
    /// A smaller gain is within the scatter of the profile.
    pub noise: f64,
}

impl Headroom {
    /// The speed of the whole side, in multiples of one stream, if it is used by `streams` now.
    pub fn worth(&self, streams: f64) -> f64 {
        let gain = if self.streams > self.noise { self.streams } else { 1.0 };
        streams.max(self.devices as f64 * gain)
    }
}

/// The credit of one side during a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Credit {
    ceiling: Ceiling,
    /// Bytes above the ceiling that may still pass.
    left: f64,
}

impl Credit {
    /// The credit at the start of a job.
    pub fn new(ceiling: &Ceiling) -> Self {
        Self { ceiling: *ceiling, left: ceiling.burst.map_or(0.0, |burst| burst.credit) }
    }

    /// Bytes per second of all streams together, while there is credit.
    pub fn rate(&self) -> f64 {
        self.ceiling.burst.map_or(self.ceiling.total_rate, |burst| burst.rate.max(self.ceiling.total_rate))
    }

    /// The average bytes per second that credit allows from now on: infinite while there is some. Without credit, the
    /// bucket is filled as fast as it is emptied: the flow is as bursty as before, and on average at the ceiling.
    pub fn allows(&self) -> f64 {
        if self.ceiling.burst.is_some() && self.left <= 0.0 { self.ceiling.total_rate } else { f64::INFINITY }
    }

    /// Seconds until it ends at `flow` bytes per second across the side; infinite if it does not end.
    pub fn lasts(&self, flow: f64) -> f64 {
        let drain = flow - self.ceiling.total_rate;
        if self.left > 0.0 && drain > 0.0 { self.left / drain } else { f64::INFINITY }
    }

    /// Lets `seconds` pass at `flow` bytes per second. `ends`: this credit ends after these seconds.
    pub fn pass(&mut self, flow: f64, seconds: f64, ends: bool) {
        let drain = (flow - self.ceiling.total_rate).max(0.0) * seconds;
        self.left = if ends { 0.0 } else { (self.left - drain).max(0.0) };
    }

    /// Seconds for `bytes` with this ceiling as the only limit; they use credit.
    pub fn fill(&mut self, bytes: f64) -> f64 {
        let (mut bytes, mut seconds) = (bytes, 0.0);
        let rate = self.rate();
        let lasts = self.lasts(rate);
        if lasts * rate < bytes {
            self.pass(rate, lasts, true);
            seconds += lasts;
            bytes -= lasts * rate;
        }
        let rate = rate.min(self.allows());
        let rest = bytes / rate;
        self.pass(rate, rest, false);
        seconds + rest
    }
}
