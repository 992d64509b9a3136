//! The page map of a full, read window by window while a differential is made.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::set::MediaSet;
use crate::checksum::{MAP_ENTRY, ZERO_UNIT};
use crate::error::{Error, Result};
use crate::media::{BlockKind, BlockReference, ManifestStream, SetKind};

/// Windows kept: more than readers and workers use at once.
const WINDOWS_KEPT: usize = 16;

/// The map of one full. All threads share it.
pub struct BaseMap {
    streams: Vec<ManifestStream>,
    seed: u64,
    backup_set_id: uuid::Uuid,
    media_set_id: uuid::Uuid,
    encrypted: bool,
    open: bool,
    places: HashMap<WindowKey, (usize, BlockReference)>,
    /// Where each stream is among them.
    by_id: HashMap<u32, usize>,
    by_identity: HashMap<String, usize>,
    inner: Mutex<Inner>,
}

struct Inner {
    set: MediaSet,
    /// Least recently used first.
    kept: Vec<(WindowKey, Arc<Vec<u8>>)>,
}

/// Stream, and number of the window in it.
type WindowKey = (u32, u64);

impl BaseMap {
    /// Finds all MAP blocks of a full.
    pub fn open(mut set: MediaSet) -> Result<Self> {
        let name = format!("base {}", set.header().backup_set_id);
        let refused = |why: &str| Error::refused(&name, why, "take a full first (--kind full)");
        if set.header().kind != SetKind::Full {
            return Err(refused("it is not a full; a differential is always made against a full"));
        }
        let manifest = set.manifest().cloned().ok_or_else(|| refused("it is a pipe; the base must be in files"))?;
        let map = manifest.map.as_ref().ok_or_else(|| refused("it has no page map"))?;
        let seed = map.seed().map_err(|flaw| refused(&flaw.to_string()))?;
        let windows: HashMap<u32, u64> = manifest
            .streams
            .iter()
            .map(|stream| (stream.id, u64::from(stream.unit) * u64::from(stream.map_window)))
            .collect();
        let mut places = HashMap::new();
        let mut doubled = false;
        let (families, data_key) = set.parts_mut();
        for (at, family) in families.iter_mut().enumerate() {
            family.for_each_entry(data_key, |entry| {
                let window = windows.get(&entry.stream()).copied().filter(|&bytes| bytes > 0);
                if let (true, Some(bytes)) = (entry.kind == BlockKind::Map as u8, window) {
                    let place = BlockReference { offset: entry.offset.get(), length: entry.length.get() };
                    let key = (entry.stream(), entry.first.get() / bytes);
                    doubled |= places.insert(key, (at, place)).is_some();
                }
            })?;
        }
        if doubled {
            return Err(refused("its page map has a part twice"));
        }
        let header = set.header();
        let (backup_set_id, media_set_id) = (header.backup_set_id, header.media_set_id);
        let (encrypted, open) = (!header.keys.is_empty(), header.open);
        let inner = Mutex::new(Inner { set, kept: Vec::new() });
        let streams = manifest.streams;
        let mapped = || streams.iter().enumerate().filter(|(_, stream)| stream.map_window > 0);
        let by_id = mapped().map(|(at, stream)| (stream.id, at)).collect();
        let known = mapped().filter(|(_, stream)| !stream.identity.is_empty());
        let by_identity = known.map(|(at, stream)| (stream.identity.clone(), at)).collect();
        Ok(Self { streams, seed, backup_set_id, media_set_id, encrypted, open, places, by_id, by_identity, inner })
    }

    /// The set that it was read from.
    pub fn set_mut(&mut self) -> &mut MediaSet {
        &mut self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).set
    }

    /// The backup set it belongs to.
    pub fn backup_set_id(&self) -> uuid::Uuid {
        self.backup_set_id
    }

    /// The media set it belongs to.
    pub fn media_set_id(&self) -> uuid::Uuid {
        self.media_set_id
    }

    /// True when the media of the full are encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// True for an open set: its map may have units that it does not know.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// The secret seed of the hashes.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The streams of the full.
    pub fn streams(&self) -> &[ManifestStream] {
        &self.streams
    }

    /// In an open full: the number of the stream with this identity and unit, if it has a map. A differential of that
    /// stream begins with it.
    pub fn stream_like(&self, identity: &str, unit: u32) -> Option<u32> {
        let stream = &self.streams[*self.by_identity.get(identity)?];
        (stream.unit == unit).then_some(stream.id)
    }

    /// Puts the entries of `count` units from byte `offset` on of a stream of the full into `into`. Units that the full
    /// did not have are zero; with `None`, all of them are.
    pub fn entries(&self, stream: Option<u32>, offset: u64, count: usize, into: &mut Vec<u8>) -> Result<()> {
        into.clear();
        let known = stream.and_then(|stream| self.by_id.get(&stream)).map(|&at| &self.streams[at]);
        let Some(known) = known else {
            into.resize(count * MAP_ENTRY, ZERO_UNIT[0]);
            return Ok(());
        };
        let first = offset / u64::from(known.unit);
        let units = known.size.div_ceil(u64::from(known.unit));
        let mut unit = first;
        let end = first + count as u64;
        while unit < end.min(units) {
            let number = unit / u64::from(known.map_window);
            let window = self.window(known, number)?;
            let place = (unit % u64::from(known.map_window)) as usize * MAP_ENTRY;
            let wanted = ((end.min(units) - unit) as usize * MAP_ENTRY).min(window.len().saturating_sub(place));
            if wanted == 0 {
                return Err(Error::incomplete(
                    format!("base {}", self.backup_set_id),
                    "its page map has a gap",
                    "take a full",
                ));
            }
            into.extend_from_slice(&window[place..place + wanted]);
            unit += (wanted / MAP_ENTRY) as u64;
        }
        into.resize(count * MAP_ENTRY, ZERO_UNIT[0]);
        Ok(())
    }

    fn window(&self, stream: &ManifestStream, number: u64) -> Result<Arc<Vec<u8>>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (stream.id, number);
        if let Some(at) = inner.kept.iter().position(|(kept, _)| *kept == key) {
            let hit = inner.kept.remove(at);
            let window = Arc::clone(&hit.1);
            inner.kept.push(hit);
            return Ok(window);
        }
        let gap = || Error::incomplete(format!("base {}", self.backup_set_id), "its page map has a gap", "take a full");
        let &(family, reference) = self.places.get(&key).ok_or_else(gap)?;
        let (families, data_key) = inner.set.parts_mut();
        let block = families.get_mut(family).ok_or_else(gap)?.block(reference, BlockKind::Map, data_key)?;
        let window_bytes = u64::from(stream.unit) * u64::from(stream.map_window);
        let start = number * window_bytes;
        let length = window_bytes.min(stream.size.saturating_sub(start));
        let units = length.div_ceil(u64::from(stream.unit));
        // The index says where it is; the block itself says what it is.
        let fits = block.header.stream == stream.id
            && matches!(block.runs[..], [run] if run.offset == start && u64::from(run.length) == length)
            && block.payload.len() as u64 == units * MAP_ENTRY as u64;
        if !fits {
            return Err(Error::incomplete(
                format!("base {}", self.backup_set_id),
                "a part of its page map differs from its index",
                "take a full",
            ));
        }
        let entries = block.payload;
        let window = Arc::new(entries);
        if inner.kept.len() == WINDOWS_KEPT {
            inner.kept.remove(0);
        }
        inner.kept.push((key, Arc::clone(&window)));
        Ok(window)
    }
}
