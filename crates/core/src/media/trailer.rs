//! The TRAILER block: where the INDEX and MANIFEST blocks of a family are.

use super::{Flaw, broken, require};

/// Most parts that a manifest may be cut into.
pub const MAX_MANIFEST_PARTS: usize = 4096;
const FIXED: usize = 64;
const REFERENCE: usize = 16;

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockReference {
    /// Bytes from the start of the family.
    pub offset: u64,
    /// Header and body in bytes.
    pub length: u32,
}

/// The content of a TRAILER block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trailer {
    /// Blocks of the family, the TRAILER included.
    pub block_count: u64,
    /// Plain bytes of DATA blocks.
    pub data_bytes: u64,
    /// Bytes of ZERO runs.
    pub zero_bytes: u64,
    /// INDEX blocks in order.
    pub index: Vec<BlockReference>,
    /// MANIFEST blocks in order.
    pub manifest: Vec<BlockReference>,
}

impl Trailer {
    /// Bytes of the payload with that many references.
    pub fn size(references: usize) -> usize {
        FIXED + references * REFERENCE
    }

    /// The payload of the block.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::size(self.index.len() + self.manifest.len()));
        bytes.extend_from_slice(&(self.index.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.manifest.len() as u32).to_le_bytes());
        for number in [self.block_count, self.data_bytes, self.zero_bytes] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.resize(FIXED, 0);
        for reference in self.index.iter().chain(&self.manifest) {
            bytes.extend_from_slice(&reference.offset.to_le_bytes());
            bytes.extend_from_slice(&reference.length.to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
        }
        bytes
    }

    /// Reads the payload of the block; the counts are checked against its length.
    pub fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let (fixed, references) = bytes.split_at_checked(FIXED).ok_or_else(|| broken("trailer cut off"))?;
        let word = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let (index_count, manifest_count) = (word(0) as usize, word(4) as usize);
        require((1..=MAX_MANIFEST_PARTS).contains(&manifest_count), "number of manifest parts out of bounds")?;
        let expected = (index_count as u64 + manifest_count as u64) * REFERENCE as u64;
        require(references.len() as u64 == expected, "the length of the trailer does not fit its counts")?;
        require(fixed[32..].iter().all(|&b| b == 0), "reserved bytes of the trailer are not zero")?;
        let all = references.as_chunks::<REFERENCE>().0.iter().map(decode_reference).collect::<Result<Vec<_>, _>>()?;
        let (index, manifest) = all.split_at(index_count);
        Ok(Self {
            block_count: long(8),
            data_bytes: long(16),
            zero_bytes: long(24),
            index: index.to_vec(),
            manifest: manifest.to_vec(),
        })
    }
}

fn decode_reference(bytes: &[u8; REFERENCE]) -> Result<BlockReference, Flaw> {
    let (offset, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| broken("reference cut off"))?;
    let (length, reserved) = rest.split_first_chunk::<4>().ok_or_else(|| broken("reference cut off"))?;
    require(reserved == [0; 4], "reserved bytes of a reference are not zero")?;
    Ok(BlockReference { offset: u64::from_le_bytes(*offset), length: u32::from_le_bytes(*length) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_comes_back_as_it_was_written() {
        let trailer = Trailer {
            block_count: 5,
            data_bytes: 6,
            zero_bytes: 7,
            index: vec![BlockReference { offset: 1, length: 2 }],
            manifest: vec![BlockReference { offset: 1 << 40, length: 3 }, BlockReference { offset: 4, length: 5 }],
        };
        assert_eq!(Trailer::decode(&trailer.encode()), Ok(trailer));
    }

    #[test]
    fn counts_that_do_not_fit_the_length_are_refused() {
        let mut bytes =
            Trailer { manifest: vec![BlockReference { offset: 1, length: 2 }], ..Trailer::default() }.encode();
        bytes[0..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Trailer::decode(&bytes).is_err());
    }
}
