//! A sum over bytes at their places, which is the same in whatever order they come. It tells whether two readings of the
//! same families gave the same bytes. It is no protection against somebody who wants to deceive.

use fullbore_core::checksum::xxh3_128;

/// Bytes of a part. Runs begin at multiples of it, and so does every reading.
pub const PART: usize = 512;

/// The sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delivered {
    sum: u128,
    bytes: u64,
}

impl Delivered {
    /// Adds bytes from `offset` of a family on, which is a multiple of [`PART`]. They have whole parts, but for the end
    /// of the family.
    pub fn add(&mut self, family: u16, offset: u64, bytes: &[u8]) {
        for (part, number) in bytes.chunks(PART).zip(0..) {
            let seed = u64::from(family) << 48 ^ (offset + number * PART as u64);
            self.sum = self.sum.wrapping_add(xxh3_128(seed, part));
        }
        self.bytes += bytes.len() as u64;
    }

    /// Adds the sum of other bytes.
    pub fn join(&mut self, other: Self) {
        self.sum = self.sum.wrapping_add(other.sum);
        self.bytes += other.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_does_not_count_and_every_bit_and_place_does() {
        let bytes: Vec<u8> = (0..3 * PART + 100).map(|at| (at * 7 % 251) as u8).collect();
        let mut whole = Delivered::default();
        whole.add(1, 512, &bytes);
        let (first, rest) = bytes.split_at(2 * PART);
        let (mut parts, mut second) = (Delivered::default(), Delivered::default());
        parts.add(1, 512 + 2 * PART as u64, rest);
        second.add(1, 512, first);
        parts.join(second);
        assert_eq!(parts, whole);
        let mut flipped = bytes.clone();
        flipped[900] ^= 1;
        for (family, offset, bytes) in [(2, 512, &bytes), (1, 1024, &bytes), (1, 512, &flipped)] {
            let mut other = Delivered::default();
            other.add(family, offset, bytes);
            assert_ne!(other, whole);
        }
    }
}
