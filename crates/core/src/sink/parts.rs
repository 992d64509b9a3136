//! How an object is cut into parts: few enough for its store, small enough for memory, and larger when it grows beyond what was expected.

const MIB: u64 = 1 << 20;
/// The size of a part, in bytes, as long as the object is not expected to need more of them than are planned: S3 takes no
/// less than 5 MiB, and much less than this is slow where each request takes its time.
pub const LEAST_PART: u64 = 8 * MIB;
/// The largest part: a stripe may have to keep one outside of the pool.
const MOST: u64 = 64 * MIB;

/// The sizes of the parts of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartSizes {
    first: u64,
    parts_most: u64,
}

impl PartSizes {
    /// For an object that is expected to be so long, in bytes, in a store that takes so many parts.
    pub fn new(expected: u64, parts_most: u64) -> Self {
        let needed = expected.div_ceil(planned(parts_most)).div_ceil(MIB) * MIB;
        Self { first: needed.clamp(LEAST_PART, MOST), parts_most }
    }

    /// The most parts that the store takes.
    pub fn parts_most(&self) -> u64 {
        self.parts_most
    }

    /// The size of part `number`, from 0, in bytes: twice as large after each tenth of the parts.
    pub fn size(&self, number: u64) -> u64 {
        let doublings = (number / (self.parts_most / 10).max(1)).min(8);
        (self.first << doublings).min(MOST)
    }

    /// The largest part of an object that is so long, in bytes.
    pub fn largest(&self, length: u64) -> u64 {
        let (mut at, mut number) = (0_u64, 0);
        while at + self.size(number) < length && self.size(number) < MOST {
            at += self.size(number);
            number += 1;
        }
        self.size(number)
    }
}

/// The longest object that may be planned in a store that takes so many parts, in bytes: 500 GiB of 10,000.
pub fn object_most(parts_most: u64) -> u64 {
    planned(parts_most) * MOST
}

/// Parts that an object is planned with; the others are for what was estimated too low.
fn planned(parts_most: u64) -> u64 {
    (parts_most / 10 * 8).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_has_fewer_parts_than_stores_take_also_when_it_was_estimated_far_too_low() {
        for parts_most in [10, 100, 1_000, 10_000] {
            let most = object_most(parts_most);
            for (expected, actual) in [(0, most * 3 / 4), (most, most * 12 / 10), (most / 5, most * 9 / 10), (1, 1)] {
                let (sizes, mut at, mut parts) = (PartSizes::new(expected, parts_most), 0, 0);
                while at < actual {
                    at += sizes.size(parts);
                    parts += 1;
                }
                assert!(parts <= parts_most, "{parts_most}: {expected} expected, {actual} written: {parts} parts");
            }
            let sizes = PartSizes::new(0, parts_most);
            assert!((0..parts_most).all(|number| (LEAST_PART..=MOST).contains(&sizes.size(number))));
        }
    }

    #[test]
    fn the_largest_part_of_an_object_is_what_a_stripe_may_have_to_keep() {
        assert_eq!(PartSizes::new(0, 10_000).largest(0), LEAST_PART);
        assert_eq!(PartSizes::new(0, 10_000).largest(LEAST_PART * 1_000), LEAST_PART);
        assert_eq!(PartSizes::new(0, 10_000).largest(LEAST_PART * 1_000 + 1), 2 * LEAST_PART);
        assert_eq!(PartSizes::new(0, 1_000).largest(u64::MAX / 2), MOST);
        assert_eq!(PartSizes::new(object_most(1_000), 1_000).largest(object_most(1_000)), MOST);
    }
}
