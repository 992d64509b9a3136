//! How an object is cut into parts: few enough for its store, small enough for memory, and larger when it grows beyond
//! what was expected.

const MIB: u64 = 1 << 20;
/// The size of a part, in bytes, unless the object is expected to need more parts than are planned. S3 accepts no less
/// than 5 MiB, and much smaller parts are slow where each request takes its time.
pub const LEAST_PART: u64 = 8 * MIB;
/// No part is shorter, in bytes, whatever is requested: S3 accepts no less.
pub const SMALLEST_PART: u64 = 5 * MIB;
/// The size of a part, in bytes, if there are enough bytes for several: each request takes its time, and longer parts
/// cost only memory.
const USUAL_PART: u64 = 16 * MIB;
/// Fewer parts of an object than this are not enough to keep several under way.
const USUAL_PARTS: u64 = 8;
/// Bytes that the filling parts may take, of all objects together. One object gets a whole part before another gets
/// any, so most of them are empty; but the plan has room for all.
const FILLING: u64 = 128 * MIB;
/// The largest part: a stripe may have to keep one outside of the pool.
pub const LARGEST_PART: u64 = 64 * MIB;

/// The sizes of the parts of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartSizes {
    first: u64,
    parts_most: u64,
}

impl PartSizes {
    /// For an object with this expected length, in bytes, in a store that takes so many parts. They are `usual` bytes
    /// long, or longer if there would be too many; 0 is [`LEAST_PART`].
    pub fn new(expected: u64, parts_most: u64, usual: u64) -> Self {
        let needed = expected.div_ceil(planned(parts_most)).div_ceil(MIB) * MIB;
        let usual = if usual == 0 { LEAST_PART } else { usual };
        Self { first: needed.max(usual).clamp(SMALLEST_PART, LARGEST_PART), parts_most }
    }

    /// The most parts that the store takes.
    pub fn parts_most(&self) -> u64 {
        self.parts_most
    }

    /// The size of part `number`, from 0, in bytes: twice as large after each tenth of the parts.
    pub fn size(&self, number: u64) -> u64 {
        let doublings = (number / (self.parts_most / 10).max(1)).min(8);
        (self.first << doublings).min(LARGEST_PART)
    }

    /// The largest part of an object of this length, in bytes.
    pub fn largest(&self, length: u64) -> u64 {
        let (mut at, mut number) = (0_u64, 0);
        while at + self.size(number) < length && self.size(number) < LARGEST_PART {
            at += self.size(number);
            number += 1;
        }
        self.size(number)
    }
}

/// The parts that memory is planned for, in bytes, if each of so many objects is expected to be so long: 8 to 16 MiB.
/// An object that needs more of them than its store takes has longer ones; a plan does not grow with these.
pub fn usual_part(expected: u64, objects: usize) -> u64 {
    let affordable = (expected / USUAL_PARTS).min(FILLING / objects.max(1) as u64);
    (affordable / MIB * MIB).clamp(LEAST_PART, USUAL_PART)
}

/// The longest object that may be planned in a store that takes so many parts, in bytes: 500 GiB for 10,000.
pub fn object_most(parts_most: u64) -> u64 {
    planned(parts_most) * LARGEST_PART
}

/// Parts that an object is planned with; the others are for estimates that were too low.
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
                let (sizes, mut at, mut parts) = (PartSizes::new(expected, parts_most, 0), 0, 0);
                while at < actual {
                    at += sizes.size(parts);
                    parts += 1;
                }
                assert!(parts <= parts_most, "{parts_most}: {expected} expected, {actual} written: {parts} parts");
            }
            let sizes = PartSizes::new(0, parts_most, 0);
            assert!((0..parts_most).all(|number| (LEAST_PART..=LARGEST_PART).contains(&sizes.size(number))));
        }
    }

    #[test]
    fn parts_are_longer_where_there_are_several_of_them_all_the_same_and_not_too_many_objects() {
        let of = |mib: u64, objects| usual_part(mib * MIB, objects) / MIB;
        assert_eq!([0, 64, 100, 128, 64 << 10].map(|mib| of(mib, 1)), [8, 8, 12, 16, 16]);
        assert_eq!([4, 8, 12, 64].map(|objects| of(1 << 20, objects)), [16, 16, 10, 8]);
        assert_eq!(PartSizes::new(1 << 30, 10_000, 16 * MIB).size(0), 16 * MIB);
        assert_eq!(PartSizes::new(0, 10_000, MIB).size(0), SMALLEST_PART, "a store takes no shorter ones");
        assert_eq!(PartSizes::new(256 << 30, 10_000, 16 * MIB).size(0), 33 * MIB, "as many as the store takes");
    }

    #[test]
    fn the_largest_part_of_an_object_is_what_a_stripe_may_have_to_keep() {
        assert_eq!(PartSizes::new(0, 10_000, 0).largest(0), LEAST_PART);
        assert_eq!(PartSizes::new(0, 10_000, 0).largest(LEAST_PART * 1_000), LEAST_PART);
        assert_eq!(PartSizes::new(0, 10_000, 0).largest(LEAST_PART * 1_000 + 1), 2 * LEAST_PART);
        assert_eq!(PartSizes::new(0, 1_000, 0).largest(u64::MAX / 2), LARGEST_PART);
        assert_eq!(PartSizes::new(object_most(1_000), 1_000, 0).largest(object_most(1_000)), LARGEST_PART);
    }
}
