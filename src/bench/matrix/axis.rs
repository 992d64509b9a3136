//! The axes of a matrix: the settings of a cell, and the words that each axis takes.

use fullbore_core::codec::Compression;
use fullbore_core::plan::{BlockSize, TransferSize};
use fullbore_core::{Error, Result};
use serde::Deserialize;

use crate::units;

/// The settings that may differ between cells, in the order of counting: the last changes fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Axis {
    /// backup, restore.
    Operation,
    /// The database.
    Data,
    /// full, differential.
    Kind,
    /// Profile under the database.
    Volume,
    /// Profile under each media directory.
    MediaVolume,
    /// Load beside the job.
    Load,
    /// Processors and memory.
    Instance,
    /// files, nul.
    Media,
    /// Media directories.
    Devices,
    /// The codec of the blocks.
    Codec,
    /// Families.
    Stripes,
    /// BLOCKSIZE.
    BlockSize,
    /// MAXTRANSFERSIZE.
    MaxTransferSize,
    /// BUFFERCOUNT.
    BufferCount,
    /// Operations in flight in each family.
    QueueDepth,
    /// Threads that read the database.
    Readers,
    /// Threads that pack.
    Workers,
}

/// The most of each number.
const MOST_STRIPES: u64 = 64;
const MOST_DEVICES: u64 = 16;
const MOST_THREADS: u64 = 256;
const MOST_BUFFERS: u64 = 1 << 20;

impl Axis {
    /// All of them.
    pub const ALL: [Axis; 17] = [
        Axis::Operation,
        Axis::Data,
        Axis::Kind,
        Axis::Volume,
        Axis::MediaVolume,
        Axis::Load,
        Axis::Instance,
        Axis::Media,
        Axis::Devices,
        Axis::Codec,
        Axis::Stripes,
        Axis::BlockSize,
        Axis::MaxTransferSize,
        Axis::BufferCount,
        Axis::QueueDepth,
        Axis::Readers,
        Axis::Workers,
    ];

    /// Axes of the task, not of its settings: only cells that agree in them are compared.
    pub const GROUP: [Axis; 6] = [Axis::Operation, Axis::Data, Axis::Kind, Axis::Volume, Axis::MediaVolume, Axis::Load];

    /// Its key.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Operation => "operation",
            Axis::Data => "data",
            Axis::Kind => "kind",
            Axis::Volume => "volume",
            Axis::MediaVolume => "media-volume",
            Axis::Load => "load",
            Axis::Instance => "instance",
            Axis::Media => "media",
            Axis::Devices => "devices",
            Axis::Codec => "codec",
            Axis::Stripes => "stripes",
            Axis::BlockSize => "block-size",
            Axis::MaxTransferSize => "max-transfer-size",
            Axis::BufferCount => "buffer-count",
            Axis::QueueDepth => "queue-depth",
            Axis::Readers => "readers",
            Axis::Workers => "workers",
        }
    }

    /// The greatest number on it, if it has numbers.
    pub fn most(self) -> Option<u64> {
        match self {
            Axis::Stripes => Some(MOST_STRIPES),
            Axis::Devices => Some(MOST_DEVICES),
            Axis::BufferCount => Some(MOST_BUFFERS),
            Axis::QueueDepth | Axis::Readers | Axis::Workers => Some(MOST_THREADS),
            _ => None,
        }
    }

    /// Its values are sizes: plain bytes, or with a unit.
    pub fn is_a_size(self) -> bool {
        matches!(self, Axis::BlockSize | Axis::MaxTransferSize)
    }

    /// True if two words of this axis mean the same.
    pub fn is_same(self, one: &str, other: &str) -> bool {
        let codec = |word: &str| word.parse::<Compression>().ok();
        let size = |word: &str| units::bytes(self.name(), word).ok();
        let number = |word: &str| word.parse::<u64>().ok();
        one == other
            || match self {
                Axis::Codec => codec(one) == codec(other),
                _ if self.is_a_size() => size(one) == size(other),
                _ => self.most().is_some() && number(one) == number(other),
            }
    }

    /// Refuses a word that the program would not accept. Names (data, instances, volumes, loads) are checked elsewhere.
    ///
    /// # Errors
    /// A usage error that names the axis.
    pub fn check(self, word: &str) -> Result<()> {
        let one_of = |words: [&str; 2]| match words.contains(&word) {
            true => Ok(()),
            false => Err(Error::usage(
                self.name(),
                format!("`{word}` is not one of its values"),
                format!("write {} or {}", words[0], words[1]),
            )),
        };
        match self {
            Axis::Operation => one_of(["backup", "restore"]),
            Axis::Kind => one_of(["full", "differential"]),
            Axis::Media => one_of(["files", "nul"]),
            Axis::Codec => word.parse::<Compression>().map(drop),
            Axis::MaxTransferSize => TransferSize::new(units::bytes("max-transfer-size", word)?).map(drop),
            Axis::BlockSize => BlockSize::new(units::bytes("block-size", word)?).map(drop),
            Axis::Data | Axis::Volume | Axis::MediaVolume | Axis::Load | Axis::Instance => Ok(()),
            Axis::Devices | Axis::Stripes | Axis::BufferCount | Axis::QueueDepth | Axis::Readers | Axis::Workers => {
                let most = self.most().unwrap_or(1);
                let within = word.parse().is_ok_and(|number: u64| (1..=most).contains(&number));
                let why =
                    || Error::usage(self.name(), format!("`{word}` is out of bounds"), format!("give 1 to {most}"));
                if within { Ok(()) } else { Err(why()) }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn one_value_is_one_however_it_is_written() {
        for (axis, one, other) in [
            (Axis::Codec, "zstd", "zstd:1"),
            (Axis::MaxTransferSize, "1MiB", "1048576"),
            (Axis::Stripes, "4", "04"),
            (Axis::Data, "a", "a"),
        ] {
            assert!(axis.is_same(one, other), "{one} and {other}");
        }
        for (axis, one, other) in
            [(Axis::Codec, "zstd:1", "zstd:3"), (Axis::Workers, "1", "2"), (Axis::Data, "04", "4")]
        {
            assert!(!axis.is_same(one, other), "{one} and {other}");
        }
    }

    #[test]
    fn every_axis_is_found_by_its_name_and_has_bounds() {
        for axis in Axis::ALL {
            let table: BTreeMap<Axis, u8> = toml::from_str(&format!("{} = 1", axis.name())).unwrap();
            assert!(table.contains_key(&axis));
        }
        for (axis, good, bad) in [
            (Axis::Operation, "restore", "verify"),
            (Axis::Codec, "zstd:3", "zip"),
            (Axis::Stripes, "64", "65"),
            (Axis::Workers, "1", "0"),
            (Axis::MaxTransferSize, "4MiB", "3"),
            (Axis::BlockSize, "64KiB", "1000"),
            (Axis::BufferCount, "1024", "many"),
        ] {
            axis.check(good).unwrap();
            assert!(axis.check(bad).is_err(), "{} = {bad}", axis.name());
        }
    }
}
