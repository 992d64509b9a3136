//! The header and the record heads of an MSSQLBAK container, as bytes at fixed offsets.
//!
//! ```text
//! 0x000  "MSSQLBAK", u32 2, u32 3: the layout
//! 0x1e0  the first record
//!
//! head of a record, 24 bytes
//! 0   u8    type: 0x21 data, 0x24 pad, 0x2c index
//! 1   u8    data: plain length in units of 512 bytes
//! 2   u16   data and pad: length of the payload behind the head
//! 4   16 bytes without a meaning: memory of the server
//! 20  u32   0
//!
//! payload of an index: u16 1, u16 1, u32 entries, u32 length of the payload, u32 checksum of the entries, the entries,
//! zeros, and the first 16 bytes again. An entry is where a block is in the plain stream and where in the container.
//! ```
//! Microsoft has published no description. This one is from genuine backups of SQL Server 2019. A value that these
//! backups do not have is refused by name, because its meaning is unknown.

use fullbore_core::{Error, Result};

/// The first bytes of a container.
pub const MAGIC: &[u8; 8] = b"MSSQLBAK";
/// The layout that this module reads: the two numbers behind the magic.
pub(super) const LAYOUT: (u32, u32) = (2, 3);
/// Bytes of the header; the first record follows.
pub(super) const HEADER: usize = 0x1E0;
/// Bytes of the head of a record.
pub(super) const HEAD: usize = 24;
/// Soft filemarks begin at a multiple of this, in bytes.
pub(super) const UNIT: u64 = 512;
/// Type of a record with a block of the plain stream.
pub(super) const DATA: u8 = 0x21;
/// Type of a record that fills the space to the next unit.
pub(super) const PAD: u8 = 0x24;
/// Type of a record that says where data records are.
pub(super) const INDEX: u8 = 0x2C;
/// Bytes of the fixed part of an index, which its end repeats.
pub(super) const INDEX_HEAD: usize = 16;

/// The head of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    /// A checksum and a block that unpacks to so many bytes.
    Data { plain: usize, packed: usize },
    /// Bytes to skip.
    Pad { length: u64 },
    /// An index, which tells its own length.
    Index,
}

/// Checks the header of a container; `device` is its name in messages.
pub(super) fn check_header(header: &[u8; HEADER], device: &str) -> Result<()> {
    let (magic, rest) = header.split_at(MAGIC.len());
    if magic.starts_with(b"TAPE") {
        let hint = "use this file as it is: there is nothing to unpack";
        return Err(Error::refused(
            device,
            "is a backup of SQL Server without compression (it begins with TAPE)",
            hint,
        ));
    }
    if magic != MAGIC {
        let why = "is not a compressed backup of SQL Server: it does not begin with MSSQLBAK";
        return Err(Error::refused(device, why, "name a file that BACKUP … WITH COMPRESSION has written"));
    }
    let number = |at: usize| rest.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b));
    let layout = (number(0), number(4));
    if layout == LAYOUT {
        return Ok(());
    }
    let of = if layout.0 <= 1 || layout.1 <= 1 { ", probably of SQL Server 2008 to 2012," } else { "" };
    let why = format!("has the container layout {}.{}{of} which this version does not know", layout.0, layout.1);
    Err(Error::refused(device, why, RESTORE_THERE))
}

/// The hint where only the server itself can help.
pub(super) const RESTORE_THERE: &str =
    "restore it with SQL Server and back it up again WITH NO_COMPRESSION; please report the layout";

impl Record {
    /// From the 24 bytes at byte `at` of a container.
    ///
    /// # Errors
    /// A type or a value that is not known, or an impossible length.
    pub fn parse(head: &[u8; HEAD], at: u64, device: &str) -> Result<Self> {
        let [kind, units, low, high, ..] = *head;
        let length = u16::from_le_bytes([low, high]);
        if !matches!(kind, DATA | PAD | INDEX) {
            return Err(unknown(device, at, &format!("a record of type 0x{kind:02x}")));
        }
        if head.last_chunk::<4>() != Some(&[0; 4]) {
            return Err(unknown(device, at, "a record with a value where all known records have 0"));
        }
        match kind {
            PAD => Ok(Self::Pad { length: length.into() }),
            INDEX => Ok(Self::Index),
            _ if units == 0 || length == 0 => Err(Error::damaged(device, at, "a data record is empty")),
            _ if usize::from(units) * UNIT as usize > super::xpress::BLOCK_MAX => {
                Err(unknown(device, at, &format!("a data record with {} plain bytes", u64::from(units) * UNIT)))
            }
            _ => Ok(Self::Data { plain: usize::from(units) * UNIT as usize, packed: length.into() }),
        }
    }
}

/// Something that genuine backups may have, but that no description and no sample explains.
pub(super) fn unknown(device: &str, at: u64, what: &str) -> Error {
    let why = format!(
        "{what} at byte {at} is not known: the backup may be encrypted, or compressed by QAT_DEFLATE (SQL Server 2022) \
         or ZSTD (SQL Server 2025), or it is damaged"
    );
    Error::refused(device, why, RESTORE_THERE)
}

/// The checksum of the payload of a data record or of the entries of an index: each 32-bit word is joined to the sum by
/// exclusive or, after the sum was rotated by one bit. Zeros fill the last word.
pub fn checksum(payload: &[u8]) -> u32 {
    checksum_from(0, payload)
}

/// The checksum of bytes behind others whose checksum is `sum`. The others are whole words.
pub(super) fn checksum_from(sum: u32, payload: &[u8]) -> u32 {
    let (words, rest) = payload.as_chunks::<4>();
    let mut last = [0; 4];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let add = |sum: u32, word: [u8; 4]| sum.rotate_left(1) ^ u32::from_le_bytes(word);
    let sum = words.iter().fold(sum, |sum, word| add(sum, *word));
    if rest.is_empty() { sum } else { add(sum, last) }
}
