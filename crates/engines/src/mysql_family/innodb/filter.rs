//! A set of keys in memory of fixed size: it never forgets a key, but may report a key that was not added.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bits: 8 MiB, a part of `plan::FIXED_MEMORY`. With a million keys, it wrongly reports 1 of 1,000 other keys; with ten
/// million keys, 1 of 15.
const BITS: u64 = 1 << 26;

/// The set. Several threads may use it at once.
pub struct Filter {
    bits: Vec<AtomicU64>,
}

impl Filter {
    /// Without a key; `without_room` makes one that is never asked.
    pub fn new(without_room: bool) -> Self {
        let words = if without_room { 0 } else { BITS / 64 };
        Self { bits: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Adds a key of three numbers.
    pub fn put(&self, one: u32, two: u32, three: u16) {
        for bit in places(one, two, three) {
            if let Some(word) = self.bits.get((bit / 64) as usize) {
                word.fetch_or(1 << (bit % 64), Ordering::Relaxed);
            }
        }
    }

    /// Whether a key was added, or looks as if it was.
    pub fn holds(&self, one: u32, two: u32, three: u16) -> bool {
        let holds = |bit: u64| {
            self.bits.get((bit / 64) as usize).is_none_or(|word| word.load(Ordering::Relaxed) >> (bit % 64) & 1 == 1)
        };
        places(one, two, three).into_iter().all(holds)
    }
}

/// Two bits for a key, far from each other and from the bits of its neighbours.
fn places(one: u32, two: u32, three: u16) -> [u64; 2] {
    let key = (u64::from(one) << 32 | u64::from(two)) ^ u64::from(three).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    // Steele's mix of SplitMix64.
    let mixed = (key ^ key >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    let mixed = mixed ^ mixed >> 31;
    [mixed % BITS, (mixed >> 32) % BITS]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_forgotten_and_few_others_look_like_one() {
        let filter = Filter::new(false);
        (0..1_000_000).for_each(|number| filter.put(5, number, 0));
        assert!((0..1_000_000).all(|number| filter.holds(5, number, 0)));
        let wrong = (0..100_000).filter(|number| filter.holds(6, *number, 0) || filter.holds(5, *number, 7)).count();
        assert!(wrong < 500, "{wrong}");
    }
}
