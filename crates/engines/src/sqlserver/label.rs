//! The media header: TAPE, and the stream RAID in it, which names the media set. RESTORE LABELONLY shows it.

use jiff::civil::DateTime;
use uuid::Uuid;

use super::fields::{Fields, Parsed, StringType, Wrong};

/// The most families of a media set.
const FAMILIES_MAX: u16 = 64;

/// The fields of a TAPE block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tape {
    /// Identity of the family; the same number on all its media.
    pub family_id: u32,
    /// Number of this medium in its family, from 1.
    pub medium: u16,
    /// The length of a soft file mark, in units of 512 bytes.
    pub file_mark: u16,
    /// MEDIANAME.
    pub name: String,
    /// MEDIADESCRIPTION.
    pub description: String,
    /// True if the media have a password (MEDIAPASSWORD, up to SQL Server 2008 R2). It does not encrypt them.
    pub has_password: bool,
    /// The program that wrote the media.
    pub software: String,
    /// Its vendor's number in MTF.
    pub vendor: u16,
    /// When the media were formatted, in the server's time zone.
    pub written: Option<DateTime>,
}

impl Tape {
    /// From the block.
    ///
    /// # Errors
    /// The block is too short, or a field cannot be right.
    pub fn decode(block: &[u8], strings: StringType) -> Parsed<Self> {
        let fields = Fields(block);
        Ok(Self {
            family_id: fields.u32(52)?,
            medium: fields.u16(60)?,
            file_mark: fields.u16(64)?,
            name: fields.text(68, strings)?,
            description: fields.text(72, strings)?,
            has_password: fields.u16(76)? != 0,
            software: fields.text(80, strings)?,
            vendor: fields.u16(86)?,
            written: fields.date(88)?,
        })
    }
}

/// The stream RAID: the place of a family in its media set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripe {
    /// Identity of the media set.
    pub media_set: Uuid,
    /// How many families it has, 1 to 64.
    pub families: u16,
    /// The number of this family, from 1.
    pub family: u16,
    /// How many mirrors each family has, with itself.
    pub mirrors: u16,
}

impl Stripe {
    /// The length of the stream, in bytes.
    pub const SIZE: usize = 32;

    /// From the stream.
    ///
    /// # Errors
    /// A number is outside its range.
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Parsed<Self> {
        let fields = Fields(bytes);
        let (families, family) = (fields.u16(20)?, fields.u16(24)?);
        if !(1..=FAMILIES_MAX).contains(&families) {
            return Err(Wrong { at: 20, what: "the number of families is not between 1 and 64" });
        }
        if !(1..=families).contains(&family) {
            return Err(Wrong { at: 24, what: "the number of the family is greater than the number of families" });
        }
        Ok(Self { media_set: fields.guid(0)?, families, family, mirrors: fields.u16(22)? })
    }
}

/// The whole media header of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaLabel {
    /// From the block TAPE.
    pub tape: Tape,
    /// From the stream RAID.
    pub stripe: Stripe,
}
