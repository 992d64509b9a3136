//! Estimates the size of a backup: packs a few samples of the source with the chosen codec.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fullbore_core::codec::Compression;
use fullbore_core::device::{Destination, Device};
use fullbore_core::io::{directory_of, free_space};
use fullbore_core::media::{PADDED_HEAD, Trailer, index_capacity};
use fullbore_core::source::Source;
use fullbore_core::{Error, Result};

use super::samples;
use fullbore_core::units::{counted, show_bytes};

/// The samples of a stream.
const OF_A_STREAM: u64 = 12;
/// Samples are inexact, so more space is required by this factor.
const MARGIN: f64 = 1.03;
/// Bytes of a family in addition to its data: header, index, manifest, footer.
const FAMILY_OVERHEAD: u64 = 256 << 10;

/// The expected size of a full, all families together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Expected {
    /// In bytes.
    pub bytes: u64,
    /// The rows of a logical backup are compressed, and nobody has seen them yet: it may be much smaller.
    pub is_most: bool,
}

impl Expected {
    /// The size of several copies.
    pub fn times(self, copies: usize) -> Self {
        Self { bytes: self.bytes.saturating_mul(copies as u64), ..self }
    }
}

/// The expected size of a full of `source`.
pub(super) fn expected(source: &dyn Source, allocated: u64, compression: Compression) -> Result<Expected> {
    if compression == Compression::None || allocated == 0 {
        // Heads, index and page map: 4 KiB, 48 bytes and 4 KiB for each MiB.
        return Ok(Expected { bytes: allocated + allocated / 100 + FAMILY_OVERHEAD, is_most: false });
    }
    let pieces = samples::pieces(source, OF_A_STREAM)?;
    let ratio = samples::mean(&pieces, &samples::shares(&pieces, compression)?);
    let bytes = (allocated as f64 * ratio * MARGIN) as u64 + allocated / 200 + FAMILY_OVERHEAD;
    Ok(Expected { bytes, is_most: pieces.is_empty() && source.has_ordered() })
}

/// Refuses a transfer size so small that the list of index blocks at the end of a family would not fit into one block.
pub(super) fn check_index(database: u64, families: usize, transfer_size: u32) -> Result<()> {
    let block = u64::from(transfer_size) - PADDED_HEAD as u64;
    // Twice the even share: a fast device may take more.
    let blocks = 2 * (database / block + 1) / families as u64 + 1;
    let references = blocks / index_capacity(transfer_size) as u64 + 64;
    if Trailer::size(references as usize) as u64 <= block {
        return Ok(());
    }
    Err(Error::usage(
        "--max-transfer-size",
        format!(
            "{} is too small for a database of {} in {}",
            show_bytes(transfer_size.into()),
            show_bytes(database),
            counted(families as u64, "family")
        ),
        "use a larger one (1MiB), or more --stripes",
    ))
}

/// Refuses if a file system has less free space than the families on it need. Gives a note if they may need less. Replaced families
/// stay until the new ones are whole, so their space does not count. `freed` are bytes by device number that will be free as well.
pub(super) fn check_room(
    devices: &[Device],
    Expected { bytes, is_most }: Expected,
    freed: &HashMap<u64, u64>,
) -> Result<Option<String>> {
    let per_family = bytes / devices.len().max(1) as u64;
    let mut needed: HashMap<u64, (u64, &Path)> = HashMap::new();
    for device in devices {
        let Destination::File(path) = device.place() else { continue };
        let directory = directory_of(path);
        let Ok(metadata) = std::fs::metadata(directory) else { continue };
        needed.entry(metadata.dev()).or_insert((0, directory)).0 += per_family;
    }
    for (device, (bytes, directory)) in needed {
        let free = free_space(directory)? + freed.get(&device).copied().unwrap_or_default();
        if free < bytes && is_most {
            let (most, free, place) = (show_bytes(bytes), show_bytes(free), directory.display());
            return Ok(Some(format!(
                "{place} has {free} of free space, and the backup is {most} without compression: if it does not fit, it ends with an error"
            )));
        }
        if free < bytes {
            return Err(Error::refused(
                directory.display().to_string(),
                format!("the backup needs about {} there, but {} are free", show_bytes(bytes), show_bytes(free)),
                "free space there, add a device with --to, or choose a stronger --compression",
            ));
        }
    }
    Ok(None)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_that_may_become_small_is_not_refused_for_its_size_without_compression() {
        let directory = tempfile::tempdir().unwrap();
        let device = Device::parse(&directory.path().join("a.bore").display().to_string()).unwrap();
        let room = |is_most| {
            let expected = Expected { bytes: u64::MAX / 2, is_most };
            check_room(std::slice::from_ref(&device), expected, &HashMap::new())
        };
        assert!(room(true).unwrap().is_some_and(|note| note.contains("without compression")));
        assert!(room(false).unwrap_err().to_string().contains("the backup needs about"));
        assert_eq!(check_room(std::slice::from_ref(&device), Expected::default(), &HashMap::new()).unwrap(), None);
    }
}
