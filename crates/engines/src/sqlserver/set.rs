//! The start of a backup set: SSET and VOLB.

use jiff::civil::DateTime;
use uuid::Uuid;

use super::fields::{Fields, Parsed, StringType};

/// The fields of an SSET block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetHeader {
    /// Number of the set on its media, from 1: `FILE = n`.
    pub position: u16,
    /// NAME.
    pub name: String,
    /// DESCRIPTION.
    pub description: String,
    /// True if the set has a password (PASSWORD, up to SQL Server 2008 R2). It does not encrypt the set.
    pub has_password: bool,
    /// The login that made the backup.
    pub user: String,
    /// When the set was begun, in the server's time zone.
    pub written: Option<DateTime>,
    /// Major and minor version of the server.
    pub software: (u8, u8),
    /// BackupSetGUID.
    pub guid: Uuid,
}

impl SetHeader {
    /// From the block.
    ///
    /// # Errors
    /// The block is too short, or a field cannot be right.
    pub fn decode(block: &[u8], strings: StringType) -> Parsed<Self> {
        let fields = Fields(block);
        Ok(Self {
            position: fields.u16(62)?,
            name: fields.text(64, strings)?,
            description: fields.text(68, strings)?,
            has_password: fields.u16(72)? != 0,
            user: fields.text(76, strings)?,
            written: fields.date(88)?,
            software: (fields.u8(93)?, fields.u8(94)?),
            guid: fields.guid(100)?,
        })
    }
}

/// The machine in a VOLB block.
///
/// # Errors
/// The block is too short, or the string is not inside it.
pub fn machine(block: &[u8], strings: StringType) -> Parsed<String> {
    Fields(block).text(64, strings)
}
