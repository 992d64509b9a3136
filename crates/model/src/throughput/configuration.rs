//! The configuration of a job: direction, amount, and the settings of the plan.

use super::path::{Access, Side};

/// Backup or restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the database to the media.
    Backup,
    /// From the media to the database.
    Restore,
}

impl Direction {
    /// The direction in which a side is used.
    pub fn way(self, side: Side) -> Access {
        match (self, side) {
            (Self::Backup, Side::Database) | (Self::Restore, Side::Media) => Access::Read,
            (Self::Backup, Side::Media) | (Self::Restore, Side::Database) => Access::Write,
        }
    }

    /// The side that bytes come from.
    pub fn source(self) -> Side {
        match self {
            Self::Backup => Side::Database,
            Self::Restore => Side::Media,
        }
    }

    /// The side that bytes go to.
    pub fn target(self) -> Side {
        match self {
            Self::Backup => Side::Media,
            Self::Restore => Side::Database,
        }
    }
}

/// The pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffers {
    /// One pool: a buffer goes all the way from the source to the target.
    Through(u64),
    /// Two pools: a worker packs from an input buffer into an output buffer.
    Split {
        /// Between source and transform.
        input: u64,
        /// Between transform and target.
        output: u64,
    },
}

impl Buffers {
    /// BUFFERCOUNT.
    pub fn count(self) -> u64 {
        match self {
            Self::Through(count) => count,
            Self::Split { input, output } => input + output,
        }
    }

    /// About `factor` times as many, divided in the same way, at least one of each.
    pub fn scaled(self, factor: f64) -> Self {
        let scale = |count: u64| ((count as f64 * factor).round() as u64).max(1);
        match self {
            Self::Through(count) => Self::Through(scale(count)),
            Self::Split { input, output } => Self::Split { input: scale(input), output: scale(output) },
        }
    }
}

/// The work of a job besides the bytes that pass.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ExtraCost {
    /// Bytes that are written to the target first, and do not pass: a file filled with zeroes.
    pub bytes: f64,
    /// Files of the database that are opened or made: each has a fixed cost.
    pub files: f64,
}

/// The parts of a job that its speed depends on.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    /// Backup or restore.
    pub direction: Direction,
    /// Plain bytes that pass: in a backup the bytes that are read, without those that need no backup.
    pub plain_bytes: f64,
    /// Its other work.
    pub extra: ExtraCost,
    /// Families.
    pub stripes: u64,
    /// Readers of the database in a backup, writers to it in a restore.
    pub database_streams: u64,
    /// Operations in flight in each family; a stream of the database keeps one.
    pub queue_depth: u64,
    /// Bytes of an operation on media in an object store: of a part, or of a range. `None`: a buffer.
    pub request_bytes: Option<f64>,
    /// Transform threads.
    pub workers: u64,
    /// The pool.
    pub buffers: Buffers,
    /// Bytes in one buffer: MAXTRANSFERSIZE.
    pub transfer_bytes: f64,
    /// The codec's name in the path.
    pub codec: String,
    /// Blocks are encrypted.
    pub encrypted: bool,
    /// Plain bytes per second, at most.
    pub throttle: Option<f64>,
}
