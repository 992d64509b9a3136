//! Which bytes of a family come next: all of them in order, or some ranges that were asked for.

use std::collections::VecDeque;
use std::ops::Range;

/// How many of `room` bytes (whole transfers) from `start` on are requested together, so that the next transfer begins a
/// whole number of transfers from `beginning`.
pub(super) fn up_to_a_beginning(start: u64, room: usize, transfer: usize, beginning: u64) -> usize {
    let transfer = transfer as u64;
    let too_far = (start + room as u64 + (transfer - beginning % transfer)) % transfer;
    room - too_far as usize
}

/// Ranges of a family that are still to be read, in order.
pub(crate) struct Ranges(VecDeque<Range<u64>>);

impl Ranges {
    /// All of a family of so many bytes.
    pub fn whole(size: u64) -> Self {
        Self(std::iter::once(0..size).filter(|range| !range.is_empty()).collect())
    }

    /// These ranges, without the empty ones.
    pub fn of(ranges: Vec<Range<u64>>) -> Self {
        Self(ranges.into_iter().filter(|range| !range.is_empty()).collect())
    }

    /// The rest of the range that is read now; `None` at the end.
    pub fn now(&self) -> Option<Range<u64>> {
        self.0.front().cloned()
    }

    /// So many bytes of it have been requested.
    pub fn pass(&mut self, bytes: u64) {
        if let Some(range) = self.0.front_mut() {
            range.start += bytes;
            if range.is_empty() {
                self.0.pop_front();
            }
        }
    }
}
