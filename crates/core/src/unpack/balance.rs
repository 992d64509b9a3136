//! Two multisets compared in 16 bytes of memory, in whatever order their items come.
//!
//! Each item has a weight: a 128-bit hash with a seed that is new in every run. Items of one side are added, items of
//! the other side are subtracted, and the sum is zero when both sides have the same items, each as often. Another
//! reason for a zero is as unlikely as a collision of 128 bits, and cannot be prepared in advance.
//!
//! Ranges are items too, by their ends: the ends alone decide how often each place of a line is covered. So ranges that
//! together have the ends of one range cover it exactly once: no gap, no overlap.

use std::hash::{BuildHasher, RandomState};

use zerocopy::IntoBytes;

use crate::checksum::xxh3_128;

/// The weights of one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weights {
    seed: u64,
}

impl Weights {
    /// Drawn from the randomness that the operating system gives the standard library's hash maps.
    pub fn random() -> Self {
        Self { seed: RandomState::new().hash_one(0) }
    }

    fn of(self, item: [u64; 3]) -> u128 {
        xxh3_128(self.seed, item.as_bytes())
    }
}

/// What one side has more than the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Balance(u128);

impl Balance {
    /// Adds an item.
    pub fn add(&mut self, weights: Weights, item: [u64; 3]) {
        self.0 = self.0.wrapping_add(weights.of(item));
    }

    /// Takes an item away.
    pub fn take(&mut self, weights: Weights, item: [u64; 3]) {
        self.0 = self.0.wrapping_sub(weights.of(item));
    }

    /// Adds a range of a line.
    pub fn add_range(&mut self, weights: Weights, start: u64, end: u64) {
        self.add(weights, [start, 0, 0]);
        self.take(weights, [end, 0, 0]);
    }

    /// Takes a range of a line away.
    pub fn take_range(&mut self, weights: Weights, start: u64, end: u64) {
        self.add_range(weights, end, start);
    }

    /// Adds the content of another balance.
    pub fn join(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    /// True when both sides have said the same.
    pub fn is_even(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_items_in_any_order_are_even_and_one_twice_or_missing_is_not() {
        let weights = Weights::random();
        let balance = |found: &[u64]| {
            let mut balance = Balance::default();
            (0..5).for_each(|number| balance.add(weights, [number, 0, 0]));
            found.iter().for_each(|&number| balance.take(weights, [number, 0, 0]));
            balance.is_even()
        };
        assert!(balance(&[3, 1, 4, 0, 2]));
        assert!(!balance(&[3, 1, 4, 0]));
        assert!(!balance(&[3, 1, 4, 0, 0]));
        assert!(!balance(&[3, 1, 4, 0, 5]));
    }

    #[test]
    fn ranges_that_cover_another_exactly_once_are_even_and_gaps_and_overlaps_are_not() {
        let weights = Weights::random();
        let covers = |parts: &[(u64, u64)]| {
            let mut balance = Balance::default();
            parts.iter().for_each(|&(start, end)| balance.add_range(weights, start, end));
            balance.take_range(weights, 0, 100);
            balance.is_even()
        };
        assert!(covers(&[(50, 100), (0, 20), (20, 50)]));
        assert!(!covers(&[(50, 100), (0, 20), (30, 50)]));
        // A gap and an overlap of the same length: their sum is right.
        assert!(!covers(&[(50, 100), (0, 20), (10, 40)]));
        assert!(!covers(&[(0, 100), (0, 100)]));
        assert!(!covers(&[]));
        // An empty stream has nothing in it.
        let mut balance = Balance::default();
        balance.take_range(weights, 0, 0);
        assert!(balance.is_even());
    }
}
