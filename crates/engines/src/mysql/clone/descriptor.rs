//! InnoDB's descriptors inside CLONE messages: big endian, of exact lengths. Pure: bytes in, checked values out.

use std::fmt;

use zeroize::Zeroizing;

/// The version of all descriptors.
pub const DESCRIPTOR_VERSION: u32 = 100;
/// The longest file name, with its zero.
const NAME_MAX: usize = 4096;
/// The largest piece of a file in one message: the most pages that a donor sends at once, of the greatest size.
pub const DATA_MAX: u32 = 4096 * 65536;
/// No InnoDB file is larger: 2^32 pages of 64 KiB.
pub const FILE_SIZE_MAX: u64 = 1 << 48;
/// The greatest valid file index: no server has more tablespaces.
pub const FILE_INDEX_MAX: u32 = 1 << 24;

const HEADER: usize = 12;

/// A message that breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadMessage(pub &'static str);

/// Phases of a clone, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing is copied yet.
    Init = 1,
    /// Files are copied as they are, torn pages included.
    FileCopy = 2,
    /// Pages that changed in the meantime are sent again.
    PageCopy = 3,
    /// The redo log since the copy of pages began.
    RedoCopy = 4,
    /// Everything was sent.
    Done = 5,
}

impl Stage {
    fn parse(number: u32) -> Result<Self, BadMessage> {
        [Stage::Init, Stage::FileCopy, Stage::PageCopy, Stage::RedoCopy, Stage::Done]
            .into_iter()
            .find(|stage| *stage as u32 == number)
            .ok_or(BadMessage("an unknown stage"))
    }

    /// The stage after this one.
    pub fn next(self) -> Option<Self> {
        Self::parse(self as u32 + 1).ok()
    }
}

/// A descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Descriptor {
    /// Which task the connection has.
    Task(u32),
    /// A stage begins or ends.
    State(StateDescriptor),
    /// A file.
    File(Box<FileDescriptor>),
    /// A piece of a file, whose bytes are the next message.
    Data(DataDescriptor),
}

/// A stage begins, ends, or the donor shows that it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDescriptor {
    /// Which stage.
    pub stage: Stage,
    /// The task's number.
    pub task: u32,
    /// Chunks in the stage.
    pub chunks: u32,
    /// Files in the stage; pages in [`Stage::PageCopy`].
    pub files: u32,
    /// Bytes that the stage will send, as the donor estimates.
    pub estimated_bytes: u64,
    /// Bytes on disk.
    pub estimated_disk_bytes: u64,
    /// See [`StateDescriptor::kind`].
    pub flags: u16,
}

/// The state in a [`StateDescriptor`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKind {
    /// The stage begins for this task.
    Start,
    /// The stage ends for this task.
    End,
    /// The donor waits and lives.
    KeepAlive,
}

const STATE_START: u16 = 1;
const STATE_ACKNOWLEDGED: u16 = 2;

impl StateDescriptor {
    /// Length in bytes.
    pub const SIZE: usize = 46;

    /// The new state.
    pub fn kind(&self) -> StateKind {
        match self.flags {
            flags if flags & STATE_ACKNOWLEDGED != 0 => StateKind::KeepAlive,
            flags if flags & STATE_START != 0 => StateKind::Start,
            _ => StateKind::End,
        }
    }

    /// The same descriptor as COM_ACK sends it back.
    pub fn acknowledgement(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&DESCRIPTOR_VERSION.to_be_bytes());
        bytes[4..8].copy_from_slice(&(Self::SIZE as u32).to_be_bytes());
        bytes[8..12].copy_from_slice(&STATE.to_be_bytes());
        bytes[12..16].copy_from_slice(&(self.stage as u32).to_be_bytes());
        bytes[16..20].copy_from_slice(&self.task.to_be_bytes());
        bytes[20..24].copy_from_slice(&self.chunks.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.files.to_be_bytes());
        bytes[28..36].copy_from_slice(&self.estimated_bytes.to_be_bytes());
        bytes[36..44].copy_from_slice(&self.estimated_disk_bytes.to_be_bytes());
        bytes[44..46].copy_from_slice(&(self.flags | STATE_ACKNOWLEDGED).to_be_bytes());
        bytes
    }
}

/// A tablespace's key and initialisation vector. They come in clear: never show, log or store them so.
#[derive(Clone, PartialEq, Eq)]
pub struct TablespaceKey(pub Zeroizing<[u8; 64]>);

impl fmt::Debug for TablespaceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TablespaceKey")
    }
}

/// A file, or a change of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDescriptor {
    /// The stage that it belongs to.
    pub stage: Stage,
    /// Size in bytes.
    pub size: u64,
    /// Bytes on disk.
    pub allocated: u64,
    /// Flags of the tablespace; all ones for none.
    pub fsp_flags: u32,
    /// Block size of the donor's file system in bytes.
    pub block_size: u32,
    /// See the constants in [`file_flags`].
    pub flags: u16,
    /// Id of the tablespace.
    pub space: u32,
    /// The number that DATA descriptors name.
    pub index: u32,
    /// As the donor gives it, unchecked; empty for redo files. See [`super::names`].
    pub name: String,
    /// The key of an encrypted tablespace, where it is sent with the file.
    pub key: Option<TablespaceKey>,
}

/// Flags of a [`FileDescriptor`].
pub mod file_flags {
    /// Pages compressed by zlib, with holes.
    pub const ZLIB: u16 = 1;
    /// Pages compressed by LZ4, with holes.
    pub const LZ4: u16 = 2;
    /// Encrypted.
    pub const ENCRYPTED: u16 = 4;
    /// Renamed since.
    pub const RENAMED: u16 = 8;
    /// Deleted since.
    pub const DELETED: u16 = 16;
    /// The key follows the name.
    pub const HAS_KEY: u16 = 32;
}

/// The space id of all redo files.
pub const REDO_SPACE: u32 = 0xFFFF_FFF0;

impl FileDescriptor {
    /// Redo files have a name space of indexes of their own.
    pub fn is_redo(&self) -> bool {
        self.space == REDO_SPACE
    }

    /// Whether one of [`file_flags`] is set.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// A piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataDescriptor {
    /// The stage.
    pub stage: Stage,
    /// The task that sends it.
    pub task: u32,
    /// The chunk that it is from.
    pub chunk: u32,
    /// The block in the chunk.
    pub block: u32,
    /// The file's number: a redo file in [`Stage::RedoCopy`], else a data file.
    pub file: u32,
    /// Length in bytes, at most [`DATA_MAX`].
    pub length: u32,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// The file's size where page 0 is sent again, else as the donor knows it or 0.
    pub file_size: u64,
}

const TASK: u32 = 2;
const STATE: u32 = 3;
const FILE: u32 = 4;
const DATA: u32 = 5;

impl Descriptor {
    /// Parses a descriptor that must fill `bytes`.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadMessage> {
        if bytes.len() < HEADER {
            return Err(BadMessage("a descriptor that is too short"));
        }
        if u32_at(bytes, 0) != DESCRIPTOR_VERSION {
            return Err(BadMessage("a descriptor of an unknown version"));
        }
        if u32_at(bytes, 4) as usize != bytes.len() {
            return Err(BadMessage("a descriptor with a wrong length field"));
        }
        match (u32_at(bytes, 8), bytes.len()) {
            (TASK, 24) => Ok(Descriptor::Task(u32_at(bytes, 12))),
            (STATE, StateDescriptor::SIZE) => Ok(Descriptor::State(state(bytes)?)),
            (FILE, 62..) => Ok(Descriptor::File(Box::new(file(bytes)?))),
            (DATA, 52) => Ok(Descriptor::Data(data(bytes)?)),
            _ => Err(BadMessage("a descriptor of an unknown kind or of a wrong length")),
        }
    }
}

fn state(bytes: &[u8]) -> Result<StateDescriptor, BadMessage> {
    Ok(StateDescriptor {
        stage: Stage::parse(u32_at(bytes, 12))?,
        task: u32_at(bytes, 16),
        chunks: u32_at(bytes, 20),
        files: u32_at(bytes, 24),
        estimated_bytes: u64_at(bytes, 28),
        estimated_disk_bytes: u64_at(bytes, 36),
        flags: u16_at(bytes, 44),
    })
}

fn file(bytes: &[u8]) -> Result<FileDescriptor, BadMessage> {
    let (flags, length) = (u16_at(bytes, 40), u32_at(bytes, 58) as usize);
    let key_length = if flags & file_flags::HAS_KEY != 0 { 64 } else { 0 };
    if length > NAME_MAX || 62 + length + key_length != bytes.len() {
        return Err(BadMessage("a file whose name has a wrong length"));
    }
    let name = match bytes[62..62 + length].split_last() {
        None => "",
        Some((0, name)) => std::str::from_utf8(name).map_err(|_| BadMessage("a file name that is not UTF-8"))?,
        Some(_) => return Err(BadMessage("a file name without an end")),
    };
    let key = (key_length > 0).then(|| {
        let mut key = Zeroizing::new([0; 64]);
        key.copy_from_slice(&bytes[62 + length..]);
        TablespaceKey(key)
    });
    let file = FileDescriptor {
        stage: Stage::parse(u32_at(bytes, 12))?,
        size: u64_at(bytes, 16),
        allocated: u64_at(bytes, 24),
        fsp_flags: u32_at(bytes, 32),
        block_size: u32_at(bytes, 36),
        flags,
        space: u32_at(bytes, 42),
        index: u32_at(bytes, 46),
        name: name.to_owned(),
        key,
    };
    if file.size > FILE_SIZE_MAX || file.index > FILE_INDEX_MAX || name.contains('\0') {
        return Err(BadMessage("a file of impossible size, number or name"));
    }
    Ok(file)
}

fn data(bytes: &[u8]) -> Result<DataDescriptor, BadMessage> {
    let data = DataDescriptor {
        stage: Stage::parse(u32_at(bytes, 12))?,
        task: u32_at(bytes, 16),
        chunk: u32_at(bytes, 20),
        block: u32_at(bytes, 24),
        file: u32_at(bytes, 28),
        length: u32_at(bytes, 32),
        offset: u64_at(bytes, 36),
        file_size: u64_at(bytes, 44),
    };
    let end = data.offset.checked_add(u64::from(data.length));
    if data.length > DATA_MAX || data.file > FILE_INDEX_MAX || data.file_size > FILE_SIZE_MAX {
        return Err(BadMessage("a piece of impossible length, file or file size"));
    }
    if end.is_none_or(|end| end > FILE_SIZE_MAX) {
        return Err(BadMessage("a piece that ends after the end of its file"));
    }
    Ok(data)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) << 16 | u32::from(u16_at(bytes, at + 2))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) << 32 | u64::from(u32_at(bytes, at + 4))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn header(kind: u32, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        bytes[3] = 100;
        bytes[4..8].copy_from_slice(&(length as u32).to_be_bytes());
        bytes[8..12].copy_from_slice(&kind.to_be_bytes());
        bytes
    }

    fn file_bytes(name: &[u8], flags: u16, key: usize) -> Vec<u8> {
        let mut bytes = header(FILE, 62 + name.len() + key);
        bytes[15] = 2;
        bytes[16..24].copy_from_slice(&114_688_u64.to_be_bytes());
        bytes[40..42].copy_from_slice(&flags.to_be_bytes());
        bytes[45] = 9;
        bytes[49] = 7;
        bytes[58..62].copy_from_slice(&(name.len() as u32).to_be_bytes());
        bytes[62..62 + name.len()].copy_from_slice(name);
        bytes
    }

    #[test]
    fn a_state_goes_back_as_its_acknowledgement() {
        let mut bytes = header(STATE, 46);
        bytes[15] = 3;
        bytes[19] = 1;
        bytes[35] = 8;
        let Descriptor::State(state) = Descriptor::parse(&bytes).unwrap() else { panic!() };
        assert_eq!((state.stage, state.task, state.estimated_bytes), (Stage::PageCopy, 1, 8));
        assert_eq!(state.kind(), StateKind::End);
        let back = state.acknowledgement();
        bytes[45] = 2;
        assert_eq!(back[..], bytes);
        let Descriptor::State(back) = Descriptor::parse(&back).unwrap() else { panic!() };
        assert_eq!(back.kind(), StateKind::KeepAlive);
    }

    #[test]
    fn a_file_has_its_name_and_its_key() {
        let Descriptor::File(file) = Descriptor::parse(&file_bytes(b"./shop/a.ibd\0", 4, 0)).unwrap() else { panic!() };
        assert_eq!((file.name.as_str(), file.size, file.space, file.index), ("./shop/a.ibd", 114_688, 9, 7));
        assert!(file.has(file_flags::ENCRYPTED) && file.key.is_none() && !file.is_redo());
        let Descriptor::File(file) = Descriptor::parse(&file_bytes(b"./a\0", 36, 64)).unwrap() else { panic!() };
        assert_eq!(format!("{:?}", file.key), "Some(TablespaceKey)");
        assert!(matches!(Descriptor::parse(&file_bytes(b"", 0, 0)), Ok(Descriptor::File(_))));
    }

    #[test]
    fn names_without_an_end_with_zeros_or_not_in_utf8_and_wrong_lengths_are_refused() {
        let cases: [(&[u8], u16, usize); 5] =
            [(b"./a", 0, 0), (b"a\0b\0", 0, 0), (b"\xff\0", 0, 0), (b"a\0", 32, 0), (b"a\0", 0, 64)];
        for (name, flags, key) in cases {
            assert!(Descriptor::parse(&file_bytes(name, flags, key)).is_err(), "{name:?}");
        }
        for kind in 0..8 {
            for length in [0, 11, 12, 23, 24, 25, 45, 47, 51, 53, 61] {
                let mut bytes = header(kind, length.max(12));
                bytes.truncate(length);
                if (kind, length) != (TASK, 24) {
                    assert!(Descriptor::parse(&bytes).is_err(), "kind {kind}, {length} bytes");
                }
            }
        }
    }

    #[test]
    fn a_piece_that_is_too_long_or_lies_behind_every_file_is_refused() {
        let mut bytes = header(DATA, 52);
        bytes[15] = 2;
        bytes[32..36].copy_from_slice(&DATA_MAX.to_be_bytes());
        assert!(matches!(Descriptor::parse(&bytes), Ok(Descriptor::Data(_))));
        for (at, value) in
            [(32, DATA_MAX + 1), (36, 0xFFFF_FFFF), (44, 0x1_0001), (28, FILE_INDEX_MAX + 1), (12, 6), (0, 101)]
        {
            let mut wrong = bytes.clone();
            wrong[at..at + 4].copy_from_slice(&value.to_be_bytes());
            assert!(Descriptor::parse(&wrong).is_err(), "{value} at {at}");
        }
    }
}
