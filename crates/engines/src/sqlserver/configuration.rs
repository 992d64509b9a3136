//! The description of the database in a backup set: the stream MQCI of the blocks MSCI and MSLS. It has a sub-chunk
//! SCIN, and one SFGI for each filegroup and one SFIN for each file.

use jiff::civil::DateTime;
use uuid::Uuid;

use super::fields::{Fields, Parsed, StringType, Wrong};
use super::lsn::Lsn;

/// The longest description that is read, in bytes. A database has at most 32,767 files, each with about 1,200 bytes.
pub const CONFIGURATION_MAX: u64 = 64 << 20;
/// Tag and size of a sub-chunk.
const CHUNK_HEAD: usize = 8;

/// The kinds of backup sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupKind {
    /// `D`.
    Full,
    /// `I`.
    Differential,
    /// `L`.
    Log,
    /// `F`: files or filegroups.
    Files,
    /// `G`: a differential of files.
    FilesDifferential,
    /// `P`: partial.
    Partial,
    /// `Q`: a differential of a partial backup.
    PartialDifferential,
    /// A letter that is not known.
    Unknown(u8),
}

/// The kinds with their letters. D, I and L are verified on genuine files; the others are those of `msdb`.
const KINDS: [(u8, BackupKind); 7] = [
    (b'D', BackupKind::Full),
    (b'I', BackupKind::Differential),
    (b'L', BackupKind::Log),
    (b'F', BackupKind::Files),
    (b'G', BackupKind::FilesDifferential),
    (b'P', BackupKind::Partial),
    (b'Q', BackupKind::PartialDifferential),
];

impl BackupKind {
    fn of(letter: u8) -> Self {
        KINDS.iter().find(|(known, _)| *known == letter).map_or(Self::Unknown(letter), |(_, kind)| *kind)
    }

    /// Its letter on media.
    pub fn letter(self) -> u8 {
        match self {
            Self::Unknown(letter) => letter,
            known => KINDS.iter().find(|(_, kind)| *kind == known).map_or(b'?', |(letter, _)| *letter),
        }
    }
}

/// The sub-chunk SCIN: what RESTORE HEADERONLY shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseHeader {
    /// True if the set was made WITH CHECKSUM.
    pub has_checksums: bool,
    /// Major and minor version and build of the server.
    pub software: (u8, u8, u16),
    /// FirstLSN, LastLSN, CheckpointLSN, DatabaseBackupLSN.
    pub first: Lsn,
    /// See `first`.
    pub last: Lsn,
    /// See `first`.
    pub checkpoint: Lsn,
    /// See `first`.
    pub full_backup: Lsn,
    /// When the database was made; dates are in the server's time zone.
    pub created: Option<DateTime>,
    /// When the backup began.
    pub started: Option<DateTime>,
    /// When it was finished; `None` at the start of a set.
    pub finished: Option<DateTime>,
    /// The kind.
    pub kind: BackupKind,
    /// SortOrder.
    pub sort_order: u8,
    /// CompatibilityLevel.
    pub compatibility: u8,
    /// DatabaseVersion.
    pub database_version: u16,
    /// BackupSize: bytes of all families.
    pub size: u64,
    /// CompressedBackupSize, from SQL Server 2008 on.
    pub compressed_size: Option<u64>,
    /// DatabaseName.
    pub database: String,
    /// ServerName.
    pub server: String,
    /// UnicodeLocaleId and UnicodeComparisonStyle.
    pub unicode: (u32, u32),
    /// BindingID.
    pub binding: Uuid,
    /// RecoveryForkID.
    pub fork: Uuid,
    /// FirstRecoveryForkID; zero if the log has one fork.
    pub first_fork: Uuid,
    /// ForkPointLSN.
    pub fork_point: Lsn,
    /// FamilyGUID.
    pub family: Uuid,
    /// DifferentialBaseLSN and DifferentialBaseGUID; zero for other kinds.
    pub base_lsn: Lsn,
    /// See `base_lsn`.
    pub base: Uuid,
}

impl DatabaseHeader {
    fn decode(chunk: &[u8]) -> Parsed<Self> {
        let fields = Fields(chunk);
        let strings = [fields.u16(0x6a)?, fields.u16(0x6e)?];
        // Strings follow the fixed part, which grew from version to version.
        let fixed = strings.iter().filter(|offset| **offset > 0).min().map_or(chunk.len(), |offset| (*offset).into());
        let compressed_size = if fixed >= 0x160 { Some(fields.u64(0x158)?) } else { None };
        Ok(Self {
            has_checksums: fields.u32(0x08)? & 0x10 != 0,
            software: (fields.u8(0x1b)?, fields.u8(0x1a)?, fields.u16(0x18)?),
            first: fields.lsn(0x20)?,
            last: fields.lsn(0x2a)?,
            checkpoint: fields.lsn(0x34)?,
            full_backup: fields.lsn(0x3e)?,
            created: fields.date(0x48)?,
            started: fields.date(0x4d)?,
            finished: fields.date(0x52)?,
            kind: BackupKind::of(fields.u8(0x57)?),
            sort_order: fields.u8(0x58)?,
            compatibility: fields.u8(0x5b)?,
            database_version: fields.u16(0x5e)?,
            size: fields.u64(0x60)?,
            compressed_size,
            database: fields.text(0x68, StringType::Utf16)?,
            server: fields.text(0x6c, StringType::Utf16)?,
            unicode: (fields.u32(0x74)?, fields.u32(0x78)?),
            binding: fields.guid(0x7c)?,
            fork: fields.guid(0x9c)?,
            fork_point: fields.lsn(0xac)?,
            first_fork: fields.guid(0xb8)?,
            family: fields.guid(0xe0)?,
            base_lsn: fields.lsn(0x104)?,
            base: fields.guid(0x110)?,
        })
    }
}

/// The sub-chunk SFGI: a filegroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filegroup {
    /// Its id.
    pub id: u32,
    /// Its name, such as `PRIMARY`.
    pub name: String,
}

/// The kinds of files of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Pages.
    Data,
    /// The log.
    Log,
    /// FILESTREAM, full-text or a kind that is not known.
    Other(u32),
}

/// The sub-chunk SFIN: what RESTORE FILELISTONLY shows. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseFile {
    /// FileId.
    pub id: u32,
    /// Bytes of it in the backup. At the start of a set this is a plan; at its end the size of the last copy.
    pub backup_bytes: u64,
    /// Data or log.
    pub kind: FileKind,
    /// SourceBlockSize.
    pub block_size: u32,
    /// FileGroupId; 0 for the log.
    pub filegroup: u32,
    /// Size.
    pub size: u64,
    /// LogicalName.
    pub logical_name: String,
    /// PhysicalName.
    pub physical_name: String,
    /// MaxSize.
    pub max_size: u64,
    /// UniqueId.
    pub unique_id: Uuid,
    /// DifferentialBaseLSN.
    pub base_lsn: Lsn,
    /// DifferentialBaseGUID.
    pub base: Uuid,
}

impl DatabaseFile {
    fn decode(chunk: &[u8]) -> Parsed<Self> {
        let fields = Fields(chunk);
        Ok(Self {
            backup_bytes: u64::from(fields.u32(0x10)?).saturating_mul(fields.u32(0x18)?.into()),
            id: fields.u32(0x14)?,
            kind: match fields.u32(0x1c)? {
                1 => FileKind::Data,
                2 => FileKind::Log,
                other => FileKind::Other(other),
            },
            block_size: fields.u32(0x20)?,
            filegroup: fields.u32(0x24)?,
            size: fields.u64(0x28)?,
            logical_name: fields.text(0x30, StringType::Utf16)?,
            physical_name: fields.text(0x34, StringType::Utf16)?,
            max_size: fields.u64(0x56)?,
            base_lsn: fields.lsn(0x9e)?,
            base: fields.guid(0xaa)?,
            unique_id: fields.guid(0xba)?,
        })
    }
}

/// The description of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configuration {
    /// The database and the backup.
    pub database: DatabaseHeader,
    /// Its filegroups.
    pub filegroups: Vec<Filegroup>,
    /// Its files.
    pub files: Vec<DatabaseFile>,
}

impl Configuration {
    /// From the stream.
    ///
    /// # Errors
    /// A sub-chunk is shorter than its head or longer than the stream (CVE-2008-0107 was a reader without these two
    /// checks), a field cannot be right, or there is no SCIN.
    pub fn decode(stream: &[u8]) -> Parsed<Self> {
        let (mut database, mut filegroups, mut files) = (None, Vec::new(), Vec::new());
        let mut at = 0;
        while at < stream.len() {
            let head = Fields(stream);
            let (tag, size) = (head.bytes::<4>(at)?, head.u32(at + 4)? as usize);
            if size < CHUNK_HEAD {
                return Err(Wrong { at: at + 4, what: "a sub-chunk says that it is shorter than its own head" });
            }
            let chunk = stream.get(at..at.saturating_add(size));
            let chunk = chunk.ok_or(Wrong { at: at + 4, what: "a sub-chunk is longer than its stream" })?;
            let inside = |wrong: Wrong| Wrong { at: at + wrong.at, ..wrong };
            match &tag {
                b"SCIN" => database = Some(DatabaseHeader::decode(chunk).map_err(inside)?),
                b"SFGI" => {
                    let fields = Fields(chunk);
                    let id = fields.u32(0x0c).map_err(inside)?;
                    let name = fields.text(0x10, StringType::Utf16).map_err(inside)?;
                    filegroups.push(Filegroup { id, name });
                }
                b"SFIN" => files.push(DatabaseFile::decode(chunk).map_err(inside)?),
                _ => {}
            }
            at += size;
        }
        let database = database.ok_or(Wrong { at: 0, what: "the description of the database has no SCIN" })?;
        Ok(Self { database, filegroups, files })
    }

    /// The name of a file's filegroup; empty for the log.
    pub fn filegroup_of(&self, file: &DatabaseFile) -> &str {
        self.filegroups.iter().find(|group| group.id == file.filegroup).map_or("", |group| &group.name)
    }
}
