//! The page map of a full while it is made: hashes of units, collected into windows. A window is given out with its
//! last entry, so only the windows that are being read are in memory.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::checksum::{MAP_ENTRY, ZERO_UNIT};
use crate::error::{Error, Result};
use crate::media::StreamRecord;

/// Source bytes of a MAP block, when the transfer size allows it.
const WINDOW_BYTES: u64 = 64 << 20;
/// Windows open at once; more means that the source is not read in order.
const MOST_OPEN: usize = 64;

/// Units in one MAP block of a stream with this unit.
pub fn map_window(unit: u32, transfer_size: u32) -> u32 {
    let fits = (transfer_size as usize - 4096) / MAP_ENTRY;
    let wanted = (WINDOW_BYTES / u64::from(unit)) as usize;
    // A power of two, so that a window's number is a shift; `fits` is at least 3840.
    let most = wanted.min(fits);
    1 << most.ilog2()
}

/// A finished window: the entries of consecutive units.
pub(super) struct Window {
    pub stream: u32,
    /// First byte of the stream that it describes.
    pub offset: u64,
    /// Bytes of the stream that it describes.
    pub length: u32,
    /// 16 bytes for each unit.
    pub entries: Vec<u8>,
}

/// All windows that are not finished yet.
pub(super) struct PageMap {
    open: Mutex<HashMap<(u32, u64), Open>>,
}

struct Open {
    entries: Vec<u8>,
    missing: usize,
}

impl PageMap {
    pub fn new() -> Self {
        Self { open: Mutex::new(HashMap::new()) }
    }

    /// Adds the entries of units from byte `offset` on; returns the windows that they finish.
    pub fn add(&self, stream: &StreamRecord, offset: u64, mut entries: &[u8]) -> Result<Vec<Window>> {
        let mut finished = Vec::new();
        let mut unit = offset / u64::from(stream.unit);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        while !entries.is_empty() {
            let number = unit / u64::from(stream.map_window);
            let first = number * u64::from(stream.map_window);
            let units_in_stream = stream.size.div_ceil(u64::from(stream.unit));
            let units = (units_in_stream - first).min(u64::from(stream.map_window)) as usize;
            let place = (unit - first) as usize;
            let count = (entries.len() / MAP_ENTRY).min(units - place);
            let (now, later) = entries.split_at(count * MAP_ENTRY);
            let window = open
                .entry((stream.id, number))
                .or_insert_with(|| Open { entries: vec![ZERO_UNIT[0]; units * MAP_ENTRY], missing: units });
            window.entries[place * MAP_ENTRY..(place + count) * MAP_ENTRY].copy_from_slice(now);
            let twice = "a part of the source was given twice";
            let report = "this is a defect of the engine: please report it";
            window.missing =
                window.missing.checked_sub(count).ok_or_else(|| Error::refused("page map", twice, report))?;
            if window.missing == 0 {
                finished.extend(open.remove(&(stream.id, number)).map(|done| close(stream, first, done)));
            }
            unit += count as u64;
            entries = later;
        }
        if open.len() > MOST_OPEN {
            return Err(Error::refused(
                "page map",
                "the source is read too far out of order to keep its map in memory",
                "this is a defect of the engine: please report it",
            ));
        }
        Ok(finished)
    }

    /// True when every window was finished.
    pub fn is_complete(&self) -> bool {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

fn close(stream: &StreamRecord, first_unit: u64, window: Open) -> Window {
    let offset = first_unit * u64::from(stream.unit);
    let described = (window.entries.len() / MAP_ENTRY) as u64 * u64::from(stream.unit);
    Window { stream: stream.id, offset, length: described.min(stream.size - offset) as u32, entries: window.entries }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(units: u64, map_window: u32) -> StreamRecord {
        StreamRecord { id: 1, layer: 0, unit: 4096, map_window, size: units * 4096 - 100, ordered: false }
    }

    #[test]
    fn a_window_is_given_out_with_its_last_entry_in_any_order() {
        let map = PageMap::new();
        let stream = stream(5, 4);
        assert!(map.add(&stream, 2 * 4096, &[3; 16]).unwrap().is_empty());
        assert!(map.add(&stream, 0, &[1; 32]).unwrap().is_empty());
        let finished = map.add(&stream, 3 * 4096, &[4; 32]).unwrap();
        assert_eq!(finished.len(), 2);
        assert_eq!((finished[0].offset, finished[0].length), (0, 16384));
        assert_eq!((finished[1].offset, finished[1].length), (16384, 3996));
        assert!(map.is_complete());
    }

    #[test]
    fn a_unit_that_is_given_twice_is_an_error_and_no_wrapped_count() {
        let map = PageMap::new();
        let stream = stream(4, 4);
        map.add(&stream, 0, &[1; 48]).unwrap();
        assert!(map.add(&stream, 0, &[1; 48]).is_err());
    }

    #[test]
    fn a_map_block_fits_into_the_smallest_transfer() {
        assert_eq!(map_window(4096, 64 << 10), 2048);
        assert_eq!(map_window(4096, 1 << 20), 16384);
        assert_eq!(map_window(65536, 1 << 20), 1024);
    }
}
