//! The sidecar of a rotation: new wrapped keys for a media set whose families never change.

use super::recipient::{MAX_RECIPIENTS, WrappedKey};
use crate::checksum::crc32c;
use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"fbKEYS\0\0";
const VERSION: u16 = 0;
const HEADER: usize = 32;
/// The most bytes of a sidecar.
pub(crate) const LARGEST: usize = HEADER + MAX_RECIPIENTS * WrappedKey::LENGTH + 4;

/// The wrapped keys of one media set, in a file of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sidecar {
    /// The set.
    pub media_set_id: [u8; 16],
    /// 1 to [`MAX_RECIPIENTS`] records.
    pub records: Vec<WrappedKey>,
}

/// Why bytes are not a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSidecar {
    /// Another kind of file.
    #[error("it is not a sidecar with keys")]
    Magic,
    /// Made by a later version.
    #[error("its format version is {0}, and this program knows {VERSION}")]
    Version(u16),
    /// No records, or more than [`MAX_RECIPIENTS`].
    #[error("it claims {0} keys; 1 to {MAX_RECIPIENTS} are possible")]
    Count(u16),
    /// Shorter or longer than its records.
    #[error("it has {found} bytes, and its keys need {expected}")]
    Length {
        /// Bytes there.
        found: usize,
        /// Bytes that its count of records asks for.
        expected: usize,
    },
    /// The checksum does not fit the bytes.
    #[error("its checksum does not fit")]
    Checksum,
    /// Bytes that have to be zero are not.
    #[error("its reserved bytes are not zero")]
    Reserved,
}

impl Sidecar {
    /// The bytes of the file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let count = self.records.len();
        if count == 0 || count > MAX_RECIPIENTS {
            let why = format!("{count} keys; 1 to {MAX_RECIPIENTS} are possible");
            return Err(Error::usage("--encrypt-to", why, "name between 1 and 64 public keys"));
        }
        let mut bytes = Vec::with_capacity(LARGEST);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(count as u16).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.media_set_id);
        self.records.iter().for_each(|record| bytes.extend_from_slice(&record.to_bytes()));
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        Ok(bytes)
    }

    /// Trusts nothing: magic, version, count, length, checksum, in this order.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadSidecar> {
        let Some(header) = bytes.first_chunk::<HEADER>() else {
            let expected = HEADER + WrappedKey::LENGTH + 4;
            let known = bytes.starts_with(MAGIC);
            return Err(if known { BadSidecar::Length { found: bytes.len(), expected } } else { BadSidecar::Magic });
        };
        let (magic, rest) = header.split_at(8);
        let number = |at: usize| u16::from_le_bytes([rest[at], rest[at + 1]]);
        if magic != MAGIC {
            return Err(BadSidecar::Magic);
        }
        if number(0) != VERSION {
            return Err(BadSidecar::Version(number(0)));
        }
        let count = usize::from(number(2));
        if count == 0 || count > MAX_RECIPIENTS {
            return Err(BadSidecar::Count(number(2)));
        }
        let expected = HEADER + count * WrappedKey::LENGTH + 4;
        if bytes.len() != expected {
            return Err(BadSidecar::Length { found: bytes.len(), expected });
        }
        let (covered, checksum) = bytes.split_at(expected - 4);
        if checksum != crc32c(covered).to_le_bytes() {
            return Err(BadSidecar::Checksum);
        }
        if rest[4..8] != [0; 4] {
            return Err(BadSidecar::Reserved);
        }
        let mut media_set_id = [0; 16];
        media_set_id.copy_from_slice(&rest[8..]);
        let (records, _) = covered[HEADER..].as_chunks();
        let records = records.iter().map(WrappedKey::from_bytes).collect::<Result<_, _>>();
        Ok(Self { media_set_id, records: records.map_err(|_| BadSidecar::Reserved)? })
    }
}
