//! The footer: the last 4096 bytes of a family. That of family 1 is the commit record.

use uuid::Uuid;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FORMAT_VERSION, Flaw, MAX_FAMILIES, broken, require};
use crate::checksum::crc32c;

/// Bytes of a footer.
pub const FOOTER: usize = 4096;
const MAGIC: [u8; 8] = *b"FBFOOTER";
const COMMIT: u16 = 1;
const MAC_AT: std::ops::Range<usize> = 2176..2208;
const CRC_AT: usize = FOOTER - 4;

/// The end of a family, as values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footer {
    /// Version of the media format: that of the header.
    pub format_version: u16,
    /// Which family, from 1.
    pub family: u16,
    /// Number of families.
    pub families: u16,
    /// Identity of the media.
    pub media_set_id: Uuid,
    /// Identity of the backup.
    pub backup_set_id: Uuid,
    /// Bytes of the family, footer included.
    pub family_length: u64,
    /// Where the TRAILER block starts.
    pub trailer_offset: u64,
    /// Its header and body in bytes.
    pub trailer_length: u32,
    /// Blocks in this family.
    pub block_count: u64,
    /// Microseconds since 1970, UTC.
    pub finished_at: i64,
    /// Digest of this family.
    pub family_digest: [u8; 32],
    /// The commit record, in family 1 only.
    pub commit: Option<Commit>,
    /// HMAC-SHA256 with a cipher, else zeros.
    pub mac: [u8; 32],
}

/// What makes a set of families a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// Blocks in all families.
    pub set_block_count: u64,
    /// Digest of each family, family 1 first.
    pub digests: Vec<[u8; 32]>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Fixed {
    magic: [u8; 8],
    format_version: U16,
    family: U16,
    families: U16,
    flags: U16,
    media_set_id: [u8; 16],
    backup_set_id: [u8; 16],
    family_length: U64,
    trailer_offset: U64,
    trailer_length: U32,
    reserved_a: [u8; 4],
    block_count: U64,
    set_block_count: U64,
    finished_at: I64,
    family_digest: [u8; 32],
    set_digests: [[u8; 32]; MAX_FAMILIES as usize],
    mac: [u8; 32],
    reserved_b: [u8; 1884],
    footer_crc: U32,
}
const _: () = assert!(size_of::<Fixed>() == FOOTER);

impl Footer {
    /// The footer's bytes; `mac` is computed by `authenticate` over them with mac and checksum as zeros.
    pub fn encode(&self, authenticate: impl FnOnce(&[u8]) -> [u8; 32]) -> Vec<u8> {
        let mut set_digests = [[0; 32]; MAX_FAMILIES as usize];
        let commit = self.commit.as_ref();
        for (place, digest) in set_digests.iter_mut().zip(commit.iter().flat_map(|commit| &commit.digests)) {
            *place = *digest;
        }
        let fixed = Fixed {
            magic: MAGIC,
            format_version: U16::new(self.format_version),
            family: U16::new(self.family),
            families: U16::new(self.families),
            flags: U16::new(if commit.is_some() { COMMIT } else { 0 }),
            media_set_id: *self.media_set_id.as_bytes(),
            backup_set_id: *self.backup_set_id.as_bytes(),
            family_length: U64::new(self.family_length),
            trailer_offset: U64::new(self.trailer_offset),
            trailer_length: U32::new(self.trailer_length),
            reserved_a: [0; 4],
            block_count: U64::new(self.block_count),
            set_block_count: U64::new(commit.map_or(0, |commit| commit.set_block_count)),
            finished_at: I64::new(self.finished_at),
            family_digest: self.family_digest,
            set_digests,
            mac: [0; 32],
            reserved_b: [0; 1884],
            footer_crc: U32::new(0),
        };
        let mut bytes = fixed.as_bytes().to_vec();
        let mac = authenticate(&bytes);
        bytes[MAC_AT].copy_from_slice(&mac);
        let crc = crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads and checks the last [`FOOTER`] bytes of a family.
    pub fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let fixed = Fixed::read_from_bytes(bytes).map_err(|_| broken("footer cut off"))?;
        require(fixed.magic == MAGIC, "no footer at the end: the family is incomplete or cut off")?;
        if fixed.format_version.get() > FORMAT_VERSION {
            return Err(Flaw::Newer(fixed.format_version.get()));
        }
        require(crc32c(&bytes[..CRC_AT]) == fixed.footer_crc.get(), "footer checksum does not match")?;
        let (family, families) = (fixed.family.get(), fixed.families.get());
        require(
            (1..=MAX_FAMILIES).contains(&families) && (1..=families).contains(&family),
            "family number out of bounds",
        )?;
        let (digests, unused) = fixed.set_digests.split_at(families as usize);
        require(unused.iter().all(|digest| *digest == [0; 32]), "unused digests of the footer are not zero")?;
        require(
            fixed.reserved_a == [0; 4] && fixed.reserved_b == [0; 1884],
            "reserved bytes of the footer are not zero",
        )?;
        let is_commit = match (fixed.flags.get(), family) {
            (COMMIT, 1) => true,
            (0, 2..) => false,
            _ => return Err(broken("the commit record must be in family 1 and only there")),
        };
        let commit =
            is_commit.then(|| Commit { set_block_count: fixed.set_block_count.get(), digests: digests.to_vec() });
        require(
            is_commit || fixed.set_block_count.get() == 0 && digests.iter().all(|digest| *digest == [0; 32]),
            "digests or blocks of the set without a commit record",
        )?;
        Ok(Self {
            format_version: fixed.format_version.get(),
            family,
            families,
            media_set_id: Uuid::from_bytes(fixed.media_set_id),
            backup_set_id: Uuid::from_bytes(fixed.backup_set_id),
            family_length: fixed.family_length.get(),
            trailer_offset: fixed.trailer_offset.get(),
            trailer_length: fixed.trailer_length.get(),
            block_count: fixed.block_count.get(),
            finished_at: fixed.finished_at.get(),
            family_digest: fixed.family_digest,
            commit,
            mac: fixed.mac,
        })
    }

    /// The bytes that the MAC covers: the footer with mac and checksum as zeros.
    pub fn authenticated(bytes: &[u8]) -> Vec<u8> {
        let mut copy = bytes.to_vec();
        if copy.len() == FOOTER {
            copy[MAC_AT].fill(0);
            copy[CRC_AT..].fill(0);
        }
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::super::every_flipped_bit_is_refused;
    use super::*;

    fn sample() -> Footer {
        Footer {
            format_version: FORMAT_VERSION,
            family: 1,
            families: 2,
            media_set_id: Uuid::from_u128(1),
            backup_set_id: Uuid::from_u128(2),
            family_length: 1 << 33,
            trailer_offset: 77,
            trailer_length: 88,
            block_count: 9,
            finished_at: -5,
            family_digest: [3; 32],
            commit: Some(Commit { set_block_count: 17, digests: vec![[3; 32], [4; 32]] }),
            mac: [0; 32],
        }
    }

    #[test]
    fn a_footer_comes_back_as_it_was_written() {
        assert_eq!(Footer::decode(&sample().encode(|_| [0; 32])), Ok(sample()));
        let second = Footer { family: 2, commit: None, ..sample() };
        assert_eq!(Footer::decode(&second.encode(|_| [0; 32])), Ok(second));
    }

    #[test]
    fn every_flipped_bit_of_a_footer_is_noticed() {
        every_flipped_bit_is_refused(sample().encode(|_| [1; 32]), |bytes| Footer::decode(bytes).is_err());
    }

    #[test]
    fn a_number_of_blocks_of_the_set_outside_the_commit_record_is_refused() {
        let mut bytes = Footer { family: 2, commit: None, ..sample() }.encode(|_| [0; 32]);
        bytes[80] = 1;
        let crc = crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        assert!(Footer::decode(&bytes).is_err());
    }

    #[test]
    fn a_commit_record_outside_family_1_is_refused() {
        let footer = Footer { family: 2, ..sample() };
        assert!(Footer::decode(&footer.encode(|_| [0; 32])).is_err());
    }
}
