//! A page map whose entries come in any order and more than once, as those of an open set do. They wait in a scratch
//! file, one window after the other in the order of their first use.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::checksum::{MAP_ENTRY, UNKNOWN_UNIT, ZERO_UNIT, is_zero};
use crate::error::Result;
use crate::io::ScratchFile;
use crate::media::StreamRecord;

/// The entries of all streams. In memory is one number for each window that holds anything but zeros.
pub(crate) struct MapScratch {
    file: ScratchFile,
    places: Mutex<Places>,
}

/// Where windows begin in the file.
#[derive(Default)]
struct Places {
    windows: HashMap<(u32, u64), u64>,
    end: u64,
}

impl MapScratch {
    /// All units are zero.
    ///
    /// # Errors
    /// No scratch file can be made.
    pub fn new() -> Result<Self> {
        Ok(Self { file: ScratchFile::new()?, places: Mutex::default() })
    }

    /// Puts entries of units from number `unit` on over the existing ones. The stream has a map.
    pub fn put(&self, stream: &StreamRecord, mut unit: u64, mut entries: &[u8]) -> Result<()> {
        let window = u64::from(stream.map_window);
        while !entries.is_empty() {
            let left = (window - unit % window).min((entries.len() / MAP_ENTRY) as u64);
            let (now, later) = entries.split_at(left as usize * MAP_ENTRY);
            if let Some(start) = self.place(stream, unit / window, !is_zero(now)) {
                self.file.write(start + unit % window * MAP_ENTRY as u64, now)?;
            }
            (unit, entries) = (unit + left, later);
        }
        Ok(())
    }

    /// Makes a range of units zero.
    pub fn put_zeros(&self, stream: &StreamRecord, units: Range<u64>) -> Result<()> {
        let window = u64::from(stream.map_window);
        let mut unit = units.start;
        while unit < units.end {
            let left = (window - unit % window).min(units.end - unit);
            if let Some(start) = self.place(stream, unit / window, false) {
                let zeros = vec![0; left as usize * MAP_ENTRY];
                self.file.write(start + unit % window * MAP_ENTRY as u64, &zeros)?;
            }
            unit += left;
        }
        Ok(())
    }

    /// Reads window `number` of a stream of its final size: as many entries as it has units there.
    pub fn window(&self, stream: &StreamRecord, number: u64, into: &mut Vec<u8>) -> Result<()> {
        let unit = u64::from(stream.unit);
        let first = number * u64::from(stream.map_window);
        let count = stream.size.div_ceil(unit).saturating_sub(first).min(stream.map_window.into());
        into.clear();
        into.resize(count as usize * MAP_ENTRY, 0);
        if let Some(start) = self.place(stream, number, false) {
            self.file.read(start, into)?;
        }
        let cut_off = !stream.size.is_multiple_of(unit) && stream.size / unit + 1 == first + count;
        if let Some(last) = into.last_chunk_mut::<MAP_ENTRY>().filter(|last| cut_off && **last != ZERO_UNIT) {
            *last = UNKNOWN_UNIT; // The hashed unit was longer.
        }
        Ok(())
    }

    fn place(&self, stream: &StreamRecord, number: u64, make: bool) -> Option<u64> {
        let mut places = self.lock();
        let Places { windows, end } = &mut *places;
        if !make {
            return windows.get(&(stream.id, number)).copied();
        }
        let place = windows.entry((stream.id, number)).or_insert_with(|| {
            let place = *end;
            *end += (u64::from(stream.map_window) * MAP_ENTRY as u64).next_multiple_of(4096);
            place
        });
        Some(*place)
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parts of `length` bytes at `offset` of a stream that lie in one unit each: whole ones, but perhaps for the first
/// and the last.
pub(crate) fn units(offset: u64, length: usize, unit: u32) -> impl Iterator<Item = Range<usize>> {
    let first = unit as usize - (offset % u64::from(unit)) as usize;
    let mut from = 0;
    std::iter::from_fn(move || {
        let end = if from == 0 { first } else { from + unit as usize }.min(length);
        let part = from..end;
        from = end;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(id: u32, size: u64) -> StreamRecord {
        StreamRecord { id, layer: 0, unit: 4096, map_window: 4, size, ordered: false }
    }

    fn entries(scratch: &MapScratch, stream: &StreamRecord) -> Vec<u8> {
        let (mut all, mut window) = (Vec::new(), Vec::new());
        for number in 0..stream.size.div_ceil(4 * 4096) {
            scratch.window(stream, number, &mut window).unwrap();
            all.extend(window.chunks(MAP_ENTRY).map(|entry| entry[0]));
        }
        all
    }

    #[test]
    fn later_entries_stand_over_earlier_ones_in_windows_of_any_order() {
        let scratch = MapScratch::new().unwrap();
        let (one, two) = (stream(1, 9 * 4096), stream(2, 3 * 4096));
        scratch.put(&one, 3, &[[5; 16], [6; 16]].concat()).unwrap();
        scratch.put(&two, 0, &[8; 48]).unwrap();
        scratch.put(&one, 4, &[[7; 16], [9; 16]].concat()).unwrap();
        scratch.put_zeros(&one, 5..9).unwrap();
        assert_eq!(entries(&scratch, &one), [0, 0, 0, 5, 7, 0, 0, 0, 0]);
        assert_eq!(entries(&scratch, &two), [8, 8, 8]);
        assert_eq!(scratch.lock().windows.len(), 3, "a window of zeros needs no place");
    }

    #[test]
    fn a_unit_that_is_cut_off_is_unknown_unless_it_is_zero() {
        let scratch = MapScratch::new().unwrap();
        scratch.put(&stream(1, 0), 0, &[[3; 16], [4; 16], [0; 16], [5; 16], [6; 16]].concat()).unwrap();
        assert_eq!(entries(&scratch, &stream(1, 4096 + 1)), [3, 255]);
        assert_eq!(entries(&scratch, &stream(1, 2 * 4096 + 1)), [3, 4, 0]);
        assert_eq!(entries(&scratch, &stream(1, 4 * 4096 + 1)), [3, 4, 0, 5, 255]);
        assert_eq!(entries(&scratch, &stream(1, 2 * 4096)), [3, 4]);
    }

    proptest! {
        #[test]
        fn parts_lie_in_one_unit_each_and_cover_all(offset in 0_u64..30_000, length in 0_usize..40_000) {
            let mut end = 0;
            for part in units(offset, length, 4096) {
                prop_assert_eq!(part.start, end);
                let (first, last) = (offset + part.start as u64, offset + part.end as u64 - 1);
                prop_assert_eq!(first / 4096, last / 4096);
                prop_assert!(part.start == 0 || first.is_multiple_of(4096));
                end = part.end;
            }
            prop_assert_eq!(end, length);
        }
    }
}
