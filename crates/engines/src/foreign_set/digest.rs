//! The digest of a family: it proves that the family comes back byte for byte.
//!
//! Each part of 1 MiB has its XXH3 digest, which costs a twentieth of BLAKE3; a BLAKE3 digest is over these. The blocks of
//! a set are proved in the same way.

use fullbore_core::checksum::PlainDigest;
use serde_json::Value;

/// Bytes of a part.
const PART: usize = 1 << 20;
/// The member of a stream's detail with this digest.
const MEMBER: &str = "parts";
/// That of sets before this digest: BLAKE3 of the bytes.
const MEMBER_OF_BYTES: &str = "blake3";

/// The digest that a set has of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyDigest {
    /// Over the digests of its parts.
    OfParts([u8; 32]),
    /// Over its bytes.
    OfBytes([u8; 32]),
}

impl FamilyDigest {
    /// From the detail of a stream.
    pub fn in_detail(detail: &Value) -> Option<Self> {
        let member = |name: &str| detail[name].as_str().and_then(|hex| blake3::Hash::from_hex(hex).ok());
        let of_parts = member(MEMBER).map(|hash| Self::OfParts(*hash.as_bytes()));
        of_parts.or_else(|| member(MEMBER_OF_BYTES).map(|hash| Self::OfBytes(*hash.as_bytes())))
    }

    /// Its member of the detail of a stream.
    pub fn member(&self) -> (String, Value) {
        let (name, bytes) = match self {
            Self::OfParts(bytes) => (MEMBER, bytes),
            Self::OfBytes(bytes) => (MEMBER_OF_BYTES, bytes),
        };
        (name.to_owned(), Value::from(blake3::Hash::from_bytes(*bytes).to_hex().to_string()))
    }

    /// A digest of the same kind, of nothing so far.
    pub fn begin_again(&self) -> FamilyDigester {
        match self {
            Self::OfParts(_) => FamilyDigester::OfParts(Box::default()),
            Self::OfBytes(_) => FamilyDigester::OfBytes(Box::default()),
        }
    }
}

/// Computes a [`FamilyDigest`].
pub enum FamilyDigester {
    /// Over the digests of parts.
    OfParts(Box<PartsDigester>),
    /// Over bytes.
    OfBytes(Box<blake3::Hasher>),
}

impl FamilyDigester {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::OfParts(digester) => digester.update(bytes),
            Self::OfBytes(hasher) => drop(hasher.update(bytes)),
        }
    }

    /// The digest of all bytes so far.
    pub fn finish(&self) -> FamilyDigest {
        match self {
            Self::OfParts(digester) => FamilyDigest::OfParts(digester.finish()),
            Self::OfBytes(hasher) => FamilyDigest::OfBytes(*hasher.finalize().as_bytes()),
        }
    }
}

/// Computes the digest over the digests of parts.
#[derive(Default)]
pub struct PartsDigester {
    parts: blake3::Hasher,
    part: PlainDigest,
    filled: usize,
}

impl PartsDigester {
    /// Adds bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while let Some((now, later)) = bytes.split_at_checked(PART - self.filled) {
            self.part.update(now);
            self.parts.update(&std::mem::take(&mut self.part).finish());
            (self.filled, bytes) = (0, later);
        }
        self.part.update(bytes);
        self.filled += bytes.len();
    }

    /// The digest of all bytes so far. The last part may be shorter.
    pub fn finish(&self) -> [u8; 32] {
        let mut parts = self.parts.clone();
        if self.filled > 0 {
            parts.update(&self.part.finish());
        }
        *parts.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::checksum::xxh3_128_le;

    use super::*;

    #[test]
    fn the_digest_is_over_the_digests_of_each_mebibyte_however_the_bytes_come() {
        for length in [0, 1, PART - 1, PART, PART + 1, 3 * PART, 3 * PART + 77] {
            let bytes: Vec<u8> = (0..length).map(|at| ((at * at) >> 7) as u8).collect();
            let each = bytes.chunks(PART).flat_map(|part| xxh3_128_le(0, part)).collect::<Vec<u8>>();
            for step in [PART, 8 << 10, 700_001] {
                let mut digester = PartsDigester::default();
                bytes.chunks(step).for_each(|piece| digester.update(piece));
                assert_eq!(digester.finish(), *blake3::hash(&each).as_bytes(), "{length} in steps of {step}");
            }
        }
    }

    #[test]
    fn both_kinds_of_digest_are_read_from_a_detail() {
        for digest in [FamilyDigest::OfParts([1; 32]), FamilyDigest::OfBytes([2; 32])] {
            let detail = Value::Object([digest.member()].into_iter().collect());
            assert_eq!(FamilyDigest::in_detail(&detail), Some(digest));
        }
        assert_eq!(FamilyDigest::in_detail(&serde_json::json!({ "parts": "no digest" })), None);
    }
}
