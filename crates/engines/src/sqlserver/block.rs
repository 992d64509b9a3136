//! The common header of every block (MTF 1.00a: DBLK).

use super::fields::{Fields, Parsed, StringType, Wrong, xor_of_words};

/// The length of the common header, in bytes.
pub const BLOCK_HEADER: usize = 52;

/// The kinds of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockKind {
    /// `TAPE`: the media header.
    Tape,
    /// `SSET`: a backup set begins.
    SetStart,
    /// `VOLB`: the volume and the machine.
    Volume,
    /// `MSCI`: the description of the database at the start of the set.
    ConfigurationAtStart,
    /// `MSDA`: pages.
    Data,
    /// `MSTL`: a part of the log.
    Log,
    /// `MSLS`: the description of the database at the end of the set.
    ConfigurationAtEnd,
    /// `ESET`: the backup set ends.
    SetEnd,
    /// `SFMB`: a soft file mark. Nothing follows in it.
    FileMark,
    /// `EOTM`: the end of this medium.
    MediumEnd,
    /// Another block of MTF, which SQL Server does not write.
    Other,
}

/// The kinds with their names on media.
const NAMES: [(&[u8; 4], BlockKind); 10] = [
    (b"TAPE", BlockKind::Tape),
    (b"SSET", BlockKind::SetStart),
    (b"VOLB", BlockKind::Volume),
    (b"MSCI", BlockKind::ConfigurationAtStart),
    (b"MSDA", BlockKind::Data),
    (b"MSTL", BlockKind::Log),
    (b"MSLS", BlockKind::ConfigurationAtEnd),
    (b"ESET", BlockKind::SetEnd),
    (b"SFMB", BlockKind::FileMark),
    (b"EOTM", BlockKind::MediumEnd),
];

/// The common header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// The kind.
    pub kind: BlockKind,
    /// The offset of the first stream from the start of the block, in bytes; of a file mark, its length. A file mark of
    /// 65,536 bytes has 0 here.
    pub length: u16,
    /// The encoding of its strings.
    pub strings: StringType,
}

impl BlockHeader {
    /// From media. Checks the checksum first.
    ///
    /// # Errors
    /// The checksum does not match, or a field cannot be right.
    pub fn decode(bytes: &[u8; BLOCK_HEADER]) -> Parsed<Self> {
        let fields = Fields(bytes);
        if xor_of_words(&bytes[..50]) != fields.u16(50)? {
            return Err(Wrong { at: 50, what: "the checksum of a block header does not match" });
        }
        let name = fields.bytes::<4>(0)?;
        let kind = NAMES.iter().find(|(known, _)| **known == name).map_or(BlockKind::Other, |(_, kind)| *kind);
        let length = fields.u16(8)?;
        if usize::from(length) < BLOCK_HEADER && !(kind == BlockKind::FileMark && length == 0) {
            return Err(Wrong { at: 8, what: "a block says that it is shorter than its header" });
        }
        let strings = match fields.u8(48)? {
            0 => StringType::None,
            1 => StringType::Ansi,
            2 => StringType::Utf16,
            _ => return Err(Wrong { at: 48, what: "the string type of a block is not known" }),
        };
        Ok(Self { kind, length, strings })
    }
}

/// The name of a kind on media.
#[cfg(any(test, feature = "testkit"))]
pub fn name_of(kind: BlockKind) -> &'static [u8; 4] {
    NAMES.iter().find(|(_, known)| *known == kind).map_or(b"FILE", |(name, _)| name)
}
