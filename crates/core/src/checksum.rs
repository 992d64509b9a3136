//! Checksums and digests: each finds a different kind of harm, and each runs at the speed of memory.
//!
//! | what | function | why this one | public description |
//! |---|---|---|---|
//! | headers, stored bytes | CRC-32C | every burst of up to 32 bits; hardware everywhere | RFC 3720 B.4 |
//! | events of a binary log | CRC-32 | MySQL and MariaDB write it | RFC 1952 §8 |
//! | plain bytes, units | XXH3, 128 bits, seeded | 25 GB/s a core, collisions not in reach of chance | xxHash project |
//! | a family | BLAKE3 | collisions not in reach of intent | the BLAKE3 paper and test vectors |
//!
//! CRC-32C is also called "CRC-32/ISCSI". Units are those of the page map.

use twox_hash::xxhash3_128;

/// CRC-32C (Castagnoli, reflected, initial value and final XOR all ones) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C over several slices, as if they were one.
pub struct Crc32c(crc_fast::Digest);

impl Crc32c {
    /// Of nothing so far.
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32 // The upper half of a 32-bit CRC is zero.
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// CRC-32 of zlib and gzip (reflected, initial value and final XOR all ones) over several slices, as if they were one.
pub struct Crc32(crc_fast::Digest);

impl Crc32 {
    /// Of nothing so far.
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32IsoHdlc))
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32 // The upper half of a 32-bit CRC is zero.
    }
}

impl Default for Crc32 {
    fn default() -> Self {
        Self::new()
    }
}

/// XXH3 with 128 bits of `bytes`, as a number: xxHash's `high64 << 64 | low64`.
pub fn xxh3_128(seed: u64, bytes: &[u8]) -> u128 {
    xxhash3_128::Hasher::oneshot_with_seed(seed, bytes)
}

/// [`xxh3_128`] as it is on media: little-endian, so `low64` before `high64`, each little-endian.
///
/// This is the reverse of xxHash's canonical form (what `xxhsum -H2` prints), which is big-endian.
pub fn xxh3_128_le(seed: u64, bytes: &[u8]) -> [u8; 16] {
    xxh3_128(seed, bytes).to_le_bytes()
}

/// [`xxh3_128_le`] with seed 0 over several slices, as if they were one: the digest of a block's plain bytes, taken
/// piece by piece while each is still in the processor's first caches.
pub struct PlainDigest(xxhash3_128::Hasher);

impl PlainDigest {
    /// Of nothing so far.
    pub fn new() -> Self {
        Self(xxhash3_128::Hasher::new())
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The digest of all bytes so far, as it is on media.
    pub fn finish(&self) -> [u8; 16] {
        self.0.finish_128().to_le_bytes()
    }
}

impl Default for PlainDigest {
    fn default() -> Self {
        Self::new()
    }
}

/// What the page map holds for a unit that is zero or free; no hash ever equals it.
pub const ZERO_UNIT: [u8; MAP_ENTRY] = [0; MAP_ENTRY];
/// What the page map of an open set holds for a unit whose bytes were not written in one piece: a differential always
/// stores it.
pub const UNKNOWN_UNIT: [u8; MAP_ENTRY] = [0xFF; MAP_ENTRY];
/// Bytes of one entry of the page map.
pub(crate) const MAP_ENTRY: usize = 16;

/// The entry of the page map for one unit: [`xxh3_128_le`], where the one value that would be [`ZERO_UNIT`] becomes 1.
///
/// For many units, make a [`UnitHasher`] once: some 10 % faster on units of 4 KiB.
pub fn unit_hash(seed: u64, unit: &[u8]) -> [u8; 16] {
    never_zero(xxh3_128(seed, unit))
}

fn never_zero(hash: u128) -> [u8; 16] {
    hash.max(1).to_le_bytes()
}

/// [`unit_hash`] for many units with one seed: XXH3 derives 192 bytes from its seed, here once.
#[derive(Clone)]
pub struct UnitHasher {
    seed: u64,
    secret: Box<[u8]>,
}

impl UnitHasher {
    /// For the seed of one full backup.
    pub fn new(seed: u64) -> Self {
        Self { seed, secret: xxhash3_128::Hasher::with_seed(seed).into_secret() }
    }

    /// The same as [`unit_hash`] with this seed.
    pub fn hash(&self, unit: &[u8]) -> [u8; 16] {
        let hash = xxhash3_128::Hasher::oneshot_with_seed_and_secret(self.seed, &self.secret, unit);
        never_zero(hash.unwrap_or_else(|_| xxh3_128(self.seed, unit))) // Only a secret that is too short fails.
    }
}

/// True when every byte is zero; ends at the first 4 KiB that are not.
pub fn is_zero(bytes: &[u8]) -> bool {
    // A comparison of slices is the C library's memcmp, with the widest vectors of the processor, also in debug
    // builds; the zeros stay in the first-level cache.
    static ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|chunk| chunk == &ZEROS[..chunk.len()])
}

/// The digest of a family: BLAKE3 with 32 bytes, over several slices.
#[derive(Clone, Default)]
pub struct FamilyDigest(blake3::Hasher);

impl FamilyDigest {
    /// Of nothing so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes so far.
    pub fn finish(&self) -> [u8; 32] {
        *self.0.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn crc32c_gives_the_values_of_rfc_3720() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc32c(&[0xff; 32]), 0x62A8_AB43);
        assert_eq!(crc32c(b""), 0);
        assert_eq!(Crc32c::default().finish(), 0);
    }

    #[test]
    fn xxh3_gives_the_published_values() {
        // XXH3_128bits("") of the xxHash project: 99aa06d3014798d8 6001c324468d497f.
        assert_eq!(xxh3_128(0, b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
        assert_eq!(xxh3_128_le(0, b"")[..4], [0x7f, 0x49, 0x8d, 0x46]);
    }

    #[test]
    fn blake3_gives_the_published_values() {
        let hex = |digest: [u8; 32]| digest.map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(
            hex(FamilyDigest::new().finish()),
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
        let mut one = FamilyDigest::new();
        one.update(&[0]);
        assert_eq!(hex(one.finish()), "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213");
    }

    #[test]
    fn no_unit_hashes_to_the_value_of_a_zero_unit() {
        assert_eq!(never_zero(0), 1_u128.to_le_bytes());
        assert_eq!(never_zero(1), 1_u128.to_le_bytes());
        assert_ne!(unit_hash(5, &[0; 4096]), ZERO_UNIT);
    }

    #[test]
    fn zeros_are_told_from_a_single_bit_anywhere() {
        assert!(is_zero(b""));
        for length in [1, 63, 64, 4095, 4096, 4097, 10_000] {
            let mut bytes = vec![0; length];
            assert!(is_zero(&bytes), "{length}");
            for at in 0..length {
                bytes[at] = 0x10;
                assert!(!is_zero(&bytes), "{at} of {length}");
                bytes[at] = 0;
            }
        }
    }

    proptest! {
        #[test]
        fn slices_give_the_same_as_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..5000),
            cuts in prop::collection::vec(0..5000_usize, 0..5),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let (mut crc, mut digest, mut plain) = (Crc32c::new(), FamilyDigest::new(), PlainDigest::new());
            for pair in cuts.windows(2) {
                crc.update(&bytes[pair[0]..pair[1]]);
                digest.update(&bytes[pair[0]..pair[1]]);
                plain.update(&bytes[pair[0]..pair[1]]);
            }
            let mut whole = FamilyDigest::new();
            whole.update(&bytes);
            prop_assert_eq!(crc.finish(), crc32c(&bytes));
            prop_assert_eq!(plain.finish(), xxh3_128_le(0, &bytes));
            prop_assert_eq!(digest.finish(), whole.finish());
        }

        #[test]
        fn a_unit_hasher_gives_the_unit_hash(
            seed in any::<u64>(),
            unit in prop::collection::vec(any::<u8>(), 0..9000),
        ) {
            prop_assert_eq!(UnitHasher::new(seed).hash(&unit), unit_hash(seed, &unit));
            prop_assert_eq!(unit_hash(seed, &unit), xxh3_128_le(seed, &unit));
            prop_assert_ne!(unit_hash(seed, &unit), unit_hash(seed ^ 1, &unit));
        }

        #[test]
        fn a_flipped_bit_changes_every_checksum(
            mut bytes in prop::collection::vec(any::<u8>(), 1..5000),
            at in any::<prop::sample::Index>(),
            bit in 0..8,
        ) {
            let before = (crc32c(&bytes), unit_hash(9, &bytes));
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            prop_assert_ne!(crc32c(&bytes), before.0);
            prop_assert_ne!(unit_hash(9, &bytes), before.1);
        }
    }
}
