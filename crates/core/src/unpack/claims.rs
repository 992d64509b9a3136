//! The units of a differential that came in a block already: one bit for each.
//!
//! A full needs no such memory: its runs cover everything once, which a [`Balance`](super::balance::Balance) tells. The
//! runs of a differential may cover any units, and only a memory of them finds a unit that comes twice.

use std::hash::{BuildHasher, RandomState};

use crate::media::StreamRecord;

/// Most memory, in bytes: enough for 512 GiB of units of 4 KiB. A part of `plan::FIXED_MEMORY`.
const CLAIMS_MAX: u64 = 16 << 20;

/// The units of all streams in one row, and which of them were claimed.
pub(super) struct Claims {
    /// The number of each stream's first unit.
    bases: Vec<u64>,
    /// The first unit that is looked at.
    from: u64,
    bits: Vec<u64>,
}

impl Claims {
    /// No unit is claimed. If the memory does not hold all units, it holds as many as fit, from a random one on.
    pub fn new(streams: &[StreamRecord]) -> Self {
        Self::within(streams, CLAIMS_MAX * 8, RandomState::new().hash_one(0))
    }

    fn within(streams: &[StreamRecord], most: u64, random: u64) -> Self {
        let mut units = 0;
        let mut bases = Vec::with_capacity(streams.len());
        for stream in streams {
            bases.push(units);
            units += stream.size.div_ceil(u64::from(stream.unit)); // At most 1024 × 2^50.
        }
        let from = if units > most { random % (units - most + 1) } else { 0 };
        // Memory that is never touched is never taken: the allocator gives pages of zeros.
        Self { bases, from, bits: vec![0; units.min(most).div_ceil(64) as usize] }
    }

    /// Claims `count` units of the stream at `place` in the header's table; false when one of them was claimed before.
    pub fn claim(&mut self, place: usize, unit: u64, count: u64) -> bool {
        let first = self.bases[place] + unit;
        let limit = self.bits.len() as u64 * 64;
        let (mut at, end) =
            (first.saturating_sub(self.from).min(limit), (first + count).saturating_sub(self.from).min(limit));
        while at < end {
            let (word, bit) = ((at / 64) as usize, at % 64);
            let here = (64 - bit).min(end - at);
            let mask = (u64::MAX >> (64 - here)) << bit;
            if self.bits[word] & mask != 0 {
                return false;
            }
            self.bits[word] |= mask;
            at += here;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(id: u32, units: u64) -> StreamRecord {
        StreamRecord { id, layer: 0, unit: 4096, map_window: 0, size: units * 4096 - 5, ordered: false }
    }

    #[test]
    fn the_same_unit_of_two_streams_is_two_units() {
        let mut claims = Claims::new(&[stream(1, 100), stream(2, 100)]);
        assert!(claims.claim(0, 50, 50) && claims.claim(1, 0, 51) && claims.claim(0, 0, 50));
        assert!(!claims.claim(1, 50, 1));
    }

    #[test]
    fn a_sample_of_a_huge_stream_takes_a_part_of_it() {
        let mut claims = Claims::within(&[stream(1, 1 << 50)], 128, 1000);
        assert!(claims.claim(0, 0, 1 << 50));
        assert!(claims.claim(0, 999, 1) && claims.claim(0, 1128, 1), "not looked at");
        assert!(!claims.claim(0, 1000, 1) && !claims.claim(0, 1127, 1));
    }

    proptest! {
        #[test]
        fn claims_are_what_a_set_of_numbers_says(ranges in prop::collection::vec((0_u64..300, 1_u64..90), 0..20)) {
            let mut claims = Claims::new(&[stream(1, 400)]);
            let mut seen = std::collections::HashSet::new();
            for (first, count) in ranges {
                let free = (first..first + count).all(|unit| !seen.contains(&unit));
                prop_assert_eq!(claims.claim(0, first, count), free);
                if !free {
                    break;
                }
                seen.extend(first..first + count);
            }
        }
    }
}
