//! An object that is read, at any place.

use fullbore_core::cipher::SecretKey;
use fullbore_core::pool::Pool;
use fullbore_core::unpack::{BlockPlaces, MediaSet};
use fullbore_core::{Error, Result};
use fullbore_engines::{StoredPart, object_parts};
use fullbore_repository::Repository;
use fullbore_repository::discovery;
use fullbore_repository::inventory::StoredSet;

/// A block that is read, unpacked and sent, and the pieces that wait for the client.
const BLOCKS: u64 = 12 << 20;

/// Blocks of an object of this length, at most: parts end with a short block, and parts may have been sent again.
pub(in crate::job) fn most_blocks(bytes: u64) -> u64 {
    (bytes >> 19) + 40_000
}

/// Bytes that reading an object of this length takes.
pub(in crate::job) fn memory(bytes: u64) -> u64 {
    BLOCKS + most_blocks(bytes) * BlockPlaces::BYTES as u64
}

/// An object of a set.
pub(in crate::job) struct SetReader {
    set: MediaSet,
    places: BlockPlaces,
    parts: Vec<StoredPart>,
}

/// Opens the object of a set.
///
/// # Errors
/// The set is not there any more, is damaged, or is encrypted for another key.
pub(in crate::job) fn open(stored: &StoredSet, repository: &Repository, key: Option<&SecretKey>) -> Result<SetReader> {
    let devices: Vec<String> = stored.devices(repository)?.iter().map(ToString::to_string).collect();
    let gone = || Error::refused(format!("backup set {}", stored.record.backup_set_id), "is not there any more", "");
    let found = discovery::find(&devices, &repository.stores)?;
    let media = stored.record.media_set_id;
    let found = found.sets.into_iter().find(|found| found.media_set_id == media).ok_or_else(gone)?;
    let mut set = discovery::open_set(&found, &Pool::new(0, 4096)?, 1, key)?;
    let streams = set.manifest().map(|manifest| manifest.streams.clone()).unwrap_or_default();
    let parts = object_parts(&streams)?;
    let bytes = parts.last().map_or(0, |part| part.at.saturating_add(part.bytes));
    let places = set.block_places(usize::try_from(most_blocks(bytes)).unwrap_or(usize::MAX))?;
    Ok(SetReader { set, places, parts })
}

impl SetReader {
    /// Bytes from `at` on: one or more, as many as a block has.
    ///
    /// # Errors
    /// The object has no byte there, or it cannot be read.
    pub fn read_at(&mut self, at: u64) -> Result<Vec<u8>> {
        let behind = self.parts.partition_point(|part| part.at <= at);
        // Parts without bytes are before the one that begins at the same place.
        let part = behind.checked_sub(1).and_then(|place| self.parts.get(place)).copied();
        let within = |part: &StoredPart| at - part.at < part.bytes;
        let missing = || Error::incomplete("object", format!("it has no byte at {at}"), "");
        let part = part.filter(within).ok_or_else(missing)?;
        let mut bytes = self.set.bytes_at(&self.places, part.stream, at - part.at)?;
        bytes.truncate(usize::try_from(part.bytes - (at - part.at)).unwrap_or(usize::MAX));
        Ok(bytes)
    }
}
