//! The head of `ib_logfile0`: its header, and the two places of checkpoints.

use fullbore_core::checksum::crc32c;

use super::ring::{LSN_MAX, LSN_MIN, PAYLOAD_AT};

/// Bytes of the header that its checksum covers, with the checksum.
pub const HEADER: usize = 512;
/// Where the two checkpoints are in the file; a server writes them by turns.
pub const CHECKPOINTS_AT: [u64; 2] = [4096, 8192];
/// Bytes of a checkpoint.
pub const CHECKPOINT: usize = 64;
/// Everything before the payload.
pub const HEAD: usize = PAYLOAD_AT as usize;

/// Formats, by the first four bytes.
const PLAIN_10_8: [u8; 4] = *b"Phys";
const PLAIN_10_5: [u8; 4] = *b"PHYS";
const ENCRYPTED_11: [u8; 4] = [0xF0, 0x9F, 0x97, 0x9D];
const CREATOR: std::ops::Range<usize> = 16..48;
const ENCRYPTION: std::ops::Range<usize> = 48..508;
const CHECKSUM: std::ops::Range<usize> = 508..512;
const CHECKPOINT_CHECKSUM: std::ops::Range<usize> = 60..64;

/// The first bytes of a creator that is a backup tool. A server that finds it treats its start as the first after a
/// restore, and drops the leftovers of an ALTER TABLE.
pub const BACKUP_CREATOR: &str = "Backup ";

/// The header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The LSN of the first byte of payload, on the first lap.
    pub first_lsn: u64,
    /// The creator of the file: "MariaDB 10.11.18".
    pub creator: String,
    /// Whether its records are encrypted. They are copied as they are: no key is needed.
    pub encrypted: bool,
    /// Its bytes as in the file, to keep the description of the encryption.
    bytes: [u8; HEADER],
}

/// A checkpoint: every change before it is in the data files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// All changes before this LSN are in the data files.
    pub lsn: u64,
    /// Where the mini-transaction begins that ends with the record of this checkpoint.
    pub end_lsn: u64,
}

/// Why a head cannot be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadHead {
    /// Fewer bytes than a head has.
    Short,
    /// The format of MariaDB 10.5 to 10.7.
    Before10_8,
    /// An unknown format.
    Unknown([u8; 4]),
    /// The checksum is wrong: the header is damaged, or was read during a write.
    Checksum,
    /// An impossible first LSN.
    FirstLsn(u64),
    /// Neither checkpoint is valid.
    NoCheckpoint,
}

impl std::fmt::Display for BadHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadHead::Short => write!(f, "it ends within its header"),
            BadHead::Before10_8 => write!(f, "it is in the format of MariaDB 10.5 to 10.7"),
            BadHead::Unknown(magic) => write!(f, "it begins with {magic:02x?}, which is not a known format"),
            BadHead::Checksum => write!(f, "the checksum of its header is wrong"),
            BadHead::FirstLsn(lsn) => write!(f, "its first LSN is impossible: {lsn}"),
            BadHead::NoCheckpoint => write!(f, "it has no valid checkpoint"),
        }
    }
}

impl Header {
    /// Parses the begin of the file.
    pub fn parse(file: &[u8]) -> Result<Self, BadHead> {
        let bytes: &[u8; HEADER] = file.first_chunk().ok_or(BadHead::Short)?;
        let magic = [bytes[0], bytes[1], bytes[2], bytes[3]];
        match magic {
            PLAIN_10_8 | ENCRYPTED_11 => {}
            PLAIN_10_5 => return Err(BadHead::Before10_8),
            _ => return Err(BadHead::Unknown(magic)),
        }
        if bytes[CHECKSUM] != crc32c(&bytes[..CHECKSUM.start]).to_be_bytes() || bytes[4..8] != [0; 4] {
            return Err(BadHead::Checksum);
        }
        let first_lsn = u64_at(bytes, 8);
        if !(LSN_MIN..=LSN_MAX).contains(&first_lsn) {
            return Err(BadHead::FirstLsn(first_lsn));
        }
        let creator = String::from_utf8_lossy(&bytes[CREATOR]).trim_end_matches('\0').to_owned();
        // The older mark of encryption: the format does not change, and the place of the key is not empty.
        let encrypted = magic == ENCRYPTED_11 || bytes[ENCRYPTION.start..ENCRYPTION.start + 4] != [0; 4];
        Ok(Self { first_lsn, creator, encrypted, bytes: *bytes })
    }

    /// The header of the file in the restored directory: the same format and encryption, and a payload that begins with
    /// `lsn`.
    pub fn restored(&self, lsn: u64, version: &str) -> [u8; HEADER] {
        let mut bytes = self.bytes;
        bytes[8..16].copy_from_slice(&lsn.to_be_bytes());
        bytes[CREATOR].fill(0);
        let creator = format!("{BACKUP_CREATOR}{version}");
        // One byte stays zero: it ends the text.
        for (place, byte) in bytes[CREATOR.start..CREATOR.end - 1].iter_mut().zip(creator.bytes()) {
            *place = byte;
        }
        let checksum = crc32c(&bytes[..CHECKSUM.start]);
        bytes[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }

    /// A header as a server writes it, for tests and fuzzing.
    #[doc(hidden)]
    pub fn made(first_lsn: u64, encrypted: bool) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(if encrypted { &ENCRYPTED_11 } else { &PLAIN_10_8 });
        Self { first_lsn, creator: String::new(), encrypted, bytes }.restored(first_lsn, "test")
    }
}

impl Checkpoint {
    /// Parses one of the two checkpoints; `None` if it was never written, or is being written.
    pub fn parse(block: &[u8], first_lsn: u64) -> Option<Self> {
        let block: &[u8; CHECKPOINT] = block.first_chunk()?;
        let (lsn, end_lsn) = (u64_at(block, 0), u64_at(block, 8));
        let sound = block[CHECKPOINT_CHECKSUM] == crc32c(&block[..CHECKPOINT_CHECKSUM.start]).to_be_bytes()
            && block[16..CHECKPOINT_CHECKSUM.start].iter().all(|byte| *byte == 0)
            && first_lsn <= lsn
            && lsn <= end_lsn
            && end_lsn <= LSN_MAX;
        sound.then_some(Self { lsn, end_lsn })
    }

    /// The bytes of one place.
    pub fn to_bytes(self) -> [u8; CHECKPOINT] {
        let mut block = [0; CHECKPOINT];
        block[..8].copy_from_slice(&self.lsn.to_be_bytes());
        block[8..16].copy_from_slice(&self.end_lsn.to_be_bytes());
        let checksum = crc32c(&block[..CHECKPOINT_CHECKSUM.start]);
        block[CHECKPOINT_CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
        block
    }

    /// The newer of the two checkpoints in a head of [`HEAD`] bytes.
    pub fn newest(head: &[u8], first_lsn: u64) -> Result<Self, BadHead> {
        let places = CHECKPOINTS_AT.iter().filter_map(|at| head.get(*at as usize..));
        places
            .filter_map(|block| Self::parse(block, first_lsn))
            .max_by_key(|found| found.lsn)
            .ok_or(BadHead::NoCheckpoint)
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |chunk| u64::from_be_bytes(*chunk))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_way_into_the_restored_directory() {
        for encrypted in [false, true] {
            let source = Header::parse(&Header::made(12288, encrypted)).unwrap();
            let restored = Header::parse(&source.restored(70_000, "10.11.18")).unwrap();
            assert_eq!((restored.first_lsn, restored.creator.as_str()), (70_000, "Backup 10.11.18"));
            assert_eq!(restored.encrypted, encrypted);
        }
        let long = Header::parse(&Header::made(12288, false)).unwrap().restored(12288, &"9".repeat(90));
        assert_eq!(Header::parse(&long).unwrap().creator.len(), 31);
    }

    #[test]
    fn every_flipped_bit_of_a_header_is_noticed() {
        let mut bytes = Header::made(12288, false);
        for bit in 0..HEADER * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::parse(&bytes).is_err(), "bit {bit} went unnoticed");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(Header::parse(&bytes[..100]), Err(BadHead::Short));
    }

    #[test]
    fn older_formats_and_lsns_that_cannot_be_are_named() {
        let mut bytes = Header::made(12288, false);
        bytes[..4].copy_from_slice(b"PHYS");
        assert_eq!(Header::parse(&bytes), Err(BadHead::Before10_8));
        bytes[..4].copy_from_slice(b"abcd");
        assert_eq!(Header::parse(&bytes), Err(BadHead::Unknown(*b"abcd")));
        assert_eq!(Header::parse(&Header::made(1, false)), Err(BadHead::FirstLsn(1)));
    }

    #[test]
    fn the_newest_valid_checkpoint_counts_and_a_torn_one_does_not() {
        let (older, newer) = (Checkpoint { lsn: 20_000, end_lsn: 20_000 }, Checkpoint { lsn: 30_000, end_lsn: 30_500 });
        let mut head = vec![0; HEAD];
        assert_eq!(Checkpoint::newest(&head, 12288), Err(BadHead::NoCheckpoint));
        head[4096..4160].copy_from_slice(&newer.to_bytes());
        head[8192..8256].copy_from_slice(&older.to_bytes());
        assert_eq!(Checkpoint::newest(&head, 12288), Ok(newer));
        head[4100] ^= 1;
        assert_eq!(Checkpoint::newest(&head, 12288), Ok(older));
        assert_eq!(Checkpoint::newest(&head, 25_000), Err(BadHead::NoCheckpoint));
        let backwards = Checkpoint { lsn: 30_000, end_lsn: 29_999 };
        assert_eq!(Checkpoint::parse(&backwards.to_bytes(), 12288), None);
        let far = Checkpoint { lsn: 30_000, end_lsn: u64::MAX };
        assert_eq!(Checkpoint::parse(&far.to_bytes(), 12288), None);
    }
}
