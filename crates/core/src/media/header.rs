//! The header of a family: which set, which family of it, how it was written.

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::{halves, joined};
use super::{FORMAT_VERSION, Flaw, broken, require, round_up};
use crate::checksum::crc32c;
use crate::cipher::{CipherId, WrappedKey};

/// Most families in a media set.
pub const MAX_FAMILIES: u16 = 64;
/// Shortest header in bytes.
pub const HEADER_MIN: usize = 4096;
/// Longest header in bytes.
pub const HEADER_MAX: usize = 1 << 20;
/// Most streams that the header's table may hold.
pub const MAX_HEADER_STREAMS: u32 = 1024;
/// Most blocks that the window of ordered streams may have.
pub const WINDOW_MAX: u32 = 4096;
/// Most bytes of these blocks: a restore holds as many.
pub const WINDOW_BYTES_MAX: u64 = 1 << 30;
const MAX_KEYS: u32 = 64;
const MAX_LABEL: u32 = 4096;
/// The first bytes of every family.
pub const FAMILY_MAGIC: [u8; 8] = *b"FULLBORE";

/// What a backup set contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SetKind {
    /// Everything.
    Full,
    /// What changed since its full.
    Differential,
    /// The log between two positions.
    Log,
}

impl SetKind {
    fn code(self) -> u8 {
        match self {
            SetKind::Full => 1,
            SetKind::Differential => 2,
            SetKind::Log => 3,
        }
    }

    fn from_code(code: u8) -> Result<Self, Flaw> {
        match code {
            1 => Ok(SetKind::Full),
            2 => Ok(SetKind::Differential),
            3 => Ok(SetKind::Log),
            _ => Err(broken(format!("unknown kind of backup set {code}"))),
        }
    }
}

impl std::fmt::Display for SetKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SetKind::Full => "full",
            SetKind::Differential => "differential",
            SetKind::Log => "log",
        })
    }
}

/// The names a user gave; only on media without a cipher.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// `--name`.
    pub name: String,
    /// `--description`.
    pub description: String,
    /// `--media-name`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_name: String,
    /// The database as the engine names it.
    pub database: String,
}

impl Label {
    /// True if a header has room for it. A reader refuses a longer one.
    pub fn fits(&self) -> bool {
        serde_json::to_vec(self).is_ok_and(|label| label.len() <= MAX_LABEL as usize)
    }
}

/// One stream in the header's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRecord {
    /// The number that blocks carry.
    pub id: u32,
    /// Phase of the restore.
    pub layer: u16,
    /// Unit of a differential in bytes.
    pub unit: u32,
    /// Units per MAP block; 0 without a map.
    pub map_window: u32,
    /// Bytes of the restored stream.
    pub size: u64,
    /// A restore gets its bytes in order.
    pub ordered: bool,
}

/// What all families of a set have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetHeader {
    /// Version of the media format, at most [`FORMAT_VERSION`].
    pub format_version: u16,
    /// Identity of the media.
    pub media_set_id: Uuid,
    /// Identity of the backup.
    pub backup_set_id: Uuid,
    /// Number of families, 1…64.
    pub families: u16,
    /// How blocks are encrypted.
    pub cipher: CipherId,
    /// What the set contains.
    pub kind: SetKind,
    /// Alignment unit of device writes in bytes, 512…65536.
    pub block_size: u32,
    /// Most bytes in a block, its header included: 64 KiB…64 MiB.
    pub transfer_size: u32,
    /// How far blocks of ordered streams may be out of order, in blocks; 0: the set has no ordered stream.
    pub window: u32,
    /// The codec asked for, for information: number and level.
    pub codec: (u8, i8),
    /// Microseconds since 1970, UTC.
    pub started_at: i64,
    /// Name of the engine, at most 16 ASCII characters.
    pub engine: String,
    /// Version of the program, at most 16 ASCII characters.
    pub tool_version: String,
    /// The full that a differential belongs to.
    pub base_backup_set_id: Option<Uuid>,
    /// The data key, wrapped for each recipient.
    pub keys: Vec<WrappedKey>,
    /// What the set restores to; empty when it is open.
    pub streams: Vec<StreamRecord>,
    /// Streams appear while the source is read: the manifest's table is what the set restores to.
    pub open: bool,
    /// Names; `None` on encrypted media.
    pub label: Option<Label>,
}

/// The header of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyHeader {
    /// What all families share.
    pub set: SetHeader,
    /// Which of them this is, from 1.
    pub family: u16,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Fixed {
    magic: [u8; 8],
    format_version: U16,
    reserved_a: [u8; 2],
    header_length: U32,
    media_set_id: [u8; 16],
    backup_set_id: [u8; 16],
    family: U16,
    families: U16,
    parity_families: U16,
    cipher: u8,
    kind: u8,
    block_size: U32,
    transfer_size: U32,
    window: U32,
    codec: u8,
    level: u8,
    flags: u8,
    reserved_b: u8,
    started_at: I64,
    engine: [u8; 16],
    tool_version: [u8; 16],
    base_backup_set_id: [u8; 16],
    key_count: U32,
    stream_count: U32,
    label_length: U32,
    reserved_c: [u8; 112],
    header_crc: U32,
}
const FIXED: usize = 256;
const _: () = assert!(size_of::<Fixed>() == FIXED);
/// Flag: the set is open.
const OPEN: u8 = 1;
const CRC_AT: std::ops::Range<usize> = 252..256;
const FAMILY_AT: std::ops::Range<usize> = 48..50;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct FixedStream {
    id_low: U16,
    role: u8,
    reserved_a: u8,
    layer: U16,
    id_high: U16,
    unit: U32,
    map_window: U32,
    size: U64,
    reserved_b: [u8; 8],
}
const STREAM: usize = 32;
const _: () = assert!(size_of::<FixedStream>() == STREAM);

impl FamilyHeader {
    /// The header as it is at the start of the family: a multiple of `block_size`, checksum included.
    pub fn encode(&self) -> Vec<u8> {
        let set = &self.set;
        let label = set.label.as_ref().map(|label| serde_json::to_vec(label).unwrap_or_default()).unwrap_or_default();
        let content = FIXED + set.keys.len() * WrappedKey::LENGTH + set.streams.len() * STREAM + label.len();
        let length =
            round_up(content.max(HEADER_MIN) as u64, u64::from(set.block_size.max(HEADER_MIN as u32))) as usize;
        let fixed = Fixed {
            magic: FAMILY_MAGIC,
            format_version: U16::new(set.format_version),
            reserved_a: [0; 2],
            header_length: U32::new(length as u32),
            media_set_id: *set.media_set_id.as_bytes(),
            backup_set_id: *set.backup_set_id.as_bytes(),
            family: U16::new(self.family),
            families: U16::new(set.families),
            parity_families: U16::new(0),
            cipher: set.cipher.number(),
            kind: set.kind.code(),
            block_size: U32::new(set.block_size),
            transfer_size: U32::new(set.transfer_size),
            window: U32::new(set.window),
            codec: set.codec.0,
            level: set.codec.1.cast_unsigned(),
            flags: if set.open { OPEN } else { 0 },
            reserved_b: 0,
            started_at: I64::new(set.started_at),
            engine: padded(&set.engine),
            tool_version: padded(&set.tool_version),
            base_backup_set_id: set.base_backup_set_id.map_or([0; 16], |id| *id.as_bytes()),
            key_count: U32::new(set.keys.len() as u32),
            stream_count: U32::new(set.streams.len() as u32),
            label_length: U32::new(label.len() as u32),
            reserved_c: [0; 112],
            header_crc: U32::new(0),
        };
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(fixed.as_bytes());
        for key in &set.keys {
            bytes.extend_from_slice(&key.to_bytes());
        }
        for stream in &set.streams {
            bytes.extend_from_slice(encode_stream(stream).as_bytes());
        }
        bytes.extend_from_slice(&label);
        bytes.resize(length, 0);
        let crc = crc32c(&bytes);
        bytes[CRC_AT].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// How long the header is, from the first [`HEADER_MIN`] bytes of a family.
    pub fn length(start: &[u8]) -> Result<usize, Flaw> {
        let fixed = fixed_part(start)?;
        let length = fixed.header_length.get() as usize;
        require((HEADER_MIN..=HEADER_MAX).contains(&length), "header length out of bounds")?;
        Ok(length)
    }

    /// True when two headers describe the same set: they differ only in the number of the family and the checksum.
    pub fn same_set(one: &[u8], other: &[u8]) -> bool {
        let shared = |bytes: &[u8]| {
            let mut shared = bytes.to_vec();
            for range in [FAMILY_AT, CRC_AT] {
                shared.iter_mut().take(range.end).skip(range.start).for_each(|byte| *byte = 0);
            }
            shared
        };
        shared(one) == shared(other)
    }

    /// Reads and checks a header of exactly [`length`](Self::length) bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Flaw> {
        let fixed = fixed_part(bytes)?;
        require(Self::length(bytes)? == bytes.len(), "the length of the header differs from the length in it")?;
        let mut unsigned = bytes.to_vec();
        unsigned[CRC_AT].fill(0);
        require(crc32c(&unsigned) == fixed.header_crc.get(), "header checksum does not match")?;
        check_numbers(&fixed)?;
        decode_checked(&fixed, bytes)
    }
}

fn fixed_part(bytes: &[u8]) -> Result<Fixed, Flaw> {
    let (fixed, _) = Fixed::read_from_prefix(bytes).map_err(|_| Flaw::NotMedia)?;
    if fixed.magic != FAMILY_MAGIC {
        return Err(Flaw::NotMedia);
    }
    match fixed.format_version.get() {
        0..=FORMAT_VERSION => Ok(fixed),
        newer => Err(Flaw::Newer(newer)),
    }
}

fn check_numbers(fixed: &Fixed) -> Result<(), Flaw> {
    let (block_size, transfer_size) = (fixed.block_size.get(), fixed.transfer_size.get());
    require(block_size.is_power_of_two() && (512..=65536).contains(&block_size), "block size out of bounds")?;
    require(fixed.header_length.get().is_multiple_of(block_size), "header length is not a multiple of the block size")?;
    require(
        (1 << 16..=1 << 26).contains(&transfer_size) && transfer_size.is_multiple_of(1 << 16),
        "transfer size out of bounds",
    )?;
    require((1..=MAX_FAMILIES).contains(&fixed.families.get()), "number of families out of bounds")?;
    require((1..=fixed.families.get()).contains(&fixed.family.get()), "family number out of bounds")?;
    require(fixed.parity_families.get() == 0, "parity families are not known to this version")?;
    let window_bytes = u64::from(fixed.window.get()) * u64::from(transfer_size);
    let fits = fixed.window.get() <= WINDOW_MAX && window_bytes <= WINDOW_BYTES_MAX;
    require(fits, "window of ordered streams out of bounds")?;
    require(fixed.key_count.get() <= MAX_KEYS, "too many wrapped keys")?;
    require(
        (fixed.key_count.get() == 0) == (fixed.cipher == 0),
        "wrapped keys without a cipher, or a cipher without keys",
    )?;
    require(fixed.stream_count.get() <= MAX_HEADER_STREAMS, "too many streams in the header")?;
    require(fixed.label_length.get() <= MAX_LABEL, "label too long")?;
    require(fixed.flags & !OPEN == 0, "flags of the header that this version does not know")?;
    require(fixed.flags & OPEN == 0 || fixed.stream_count.get() == 0, "an open set with streams in its header")?;
    let reserved = [&fixed.reserved_a[..], &[fixed.reserved_b], &fixed.reserved_c];
    require(reserved.iter().all(|bytes| bytes.iter().all(|&b| b == 0)), "reserved bytes of the header are not zero")
}

fn decode_checked(fixed: &Fixed, bytes: &[u8]) -> Result<FamilyHeader, Flaw> {
    let mut rest = &bytes[FIXED..];
    let mut keys = Vec::new();
    for _ in 0..fixed.key_count.get() {
        let record = take(&mut rest, WrappedKey::LENGTH)?.first_chunk().ok_or_else(|| broken("wrapped key cut off"))?;
        keys.push(WrappedKey::from_bytes(record).map_err(|e| broken(e.to_string()))?);
    }
    let mut streams: Vec<StreamRecord> = Vec::new();
    for _ in 0..fixed.stream_count.get() {
        let stream = decode_stream(take(&mut rest, STREAM)?)?;
        require(streams.iter().all(|known| known.id != stream.id), "a stream is in the header twice")?;
        streams.push(stream);
    }
    let label = match fixed.label_length.get() as usize {
        0 => None,
        length => {
            require(fixed.cipher == 0, "a label in plain text on encrypted media")?;
            Some(serde_json::from_slice(take(&mut rest, length)?).map_err(|e| broken(format!("label: {e}")))?)
        }
    };
    require(rest.iter().all(|&b| b == 0), "padding of the header is not zero")?;
    let base = Uuid::from_bytes(fixed.base_backup_set_id);
    let kind = SetKind::from_code(fixed.kind)?;
    require(
        (kind == SetKind::Full) == base.is_nil(),
        "a differential must name its full, a log set its predecessor, and a full neither",
    )?;
    let mapped = streams.iter().filter(|stream| stream.map_window > 0).count();
    let ordered = streams.iter().filter(|stream| stream.ordered).count();
    let most = if kind == SetKind::Full { streams.len() - ordered } else { 0 };
    require(ordered == 0 || fixed.window.get() > 0, "an ordered stream in a set without a window")?;
    require(mapped == 0 || mapped == most, "a page map of only some streams, or of a set that is not a full")?;
    Ok(FamilyHeader {
        family: fixed.family.get(),
        set: SetHeader {
            format_version: fixed.format_version.get(),
            media_set_id: Uuid::from_bytes(fixed.media_set_id),
            backup_set_id: Uuid::from_bytes(fixed.backup_set_id),
            families: fixed.families.get(),
            cipher: CipherId::from_number(fixed.cipher).ok_or_else(|| broken("cipher unknown to this version"))?,
            kind,
            block_size: fixed.block_size.get(),
            transfer_size: fixed.transfer_size.get(),
            window: fixed.window.get(),
            codec: (fixed.codec, fixed.level.cast_signed()),
            started_at: fixed.started_at.get(),
            engine: unpadded(&fixed.engine)?,
            tool_version: unpadded(&fixed.tool_version)?,
            base_backup_set_id: (!base.is_nil()).then_some(base),
            keys,
            streams,
            open: fixed.flags & OPEN != 0,
            label,
        },
    })
}

/// Role of a stream: its blocks may be in any order.
const ANY_ORDER: u8 = 1;
/// Role of a stream: a restore gets its bytes in order.
const ORDERED: u8 = 2;

fn encode_stream(stream: &StreamRecord) -> FixedStream {
    let (id_low, id_high) = halves(stream.id);
    FixedStream {
        id_low: U16::new(id_low),
        role: if stream.ordered { ORDERED } else { ANY_ORDER },
        reserved_a: 0,
        layer: U16::new(stream.layer),
        id_high: U16::new(id_high),
        unit: U32::new(stream.unit),
        map_window: U32::new(stream.map_window),
        size: U64::new(stream.size),
        reserved_b: [0; 8],
    }
}

fn decode_stream(bytes: &[u8]) -> Result<StreamRecord, Flaw> {
    let fixed = FixedStream::read_from_bytes(bytes).map_err(|_| broken("stream record cut off"))?;
    let (id, unit) = (joined(fixed.id_low, fixed.id_high), fixed.unit.get());
    let ordered = fixed.role == ORDERED;
    require(id != 0 && (ordered || fixed.role == ANY_ORDER), "stream record of an unknown role")?;
    require(unit.is_power_of_two() && (4096..=65536).contains(&unit), "unit of a stream out of bounds")?;
    let reserved = [&[fixed.reserved_a][..], &fixed.reserved_b];
    require(
        reserved.iter().all(|bytes| bytes.iter().all(|&b| b == 0)),
        "reserved bytes of a stream record are not zero",
    )?;
    require(fixed.layer.get() == 0, "layers are not known to this version")?;
    let window_bytes = u64::from(fixed.map_window.get()) * u64::from(unit);
    require(fixed.map_window.get() <= 1 << 22 && window_bytes < 1 << 32, "map window of a stream out of bounds")?;
    require(fixed.size.get() <= 1 << 62, "size of a stream out of bounds")?;
    require(!ordered || fixed.map_window.get() == 0, "a page map of an ordered stream")?;
    let (layer, map_window, size) = (fixed.layer.get(), fixed.map_window.get(), fixed.size.get());
    Ok(StreamRecord { id, layer, unit, map_window, size, ordered })
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], Flaw> {
    let (taken, left) = rest.split_at_checked(length).ok_or_else(|| broken("header is shorter than its tables"))?;
    *rest = left;
    Ok(taken)
}

fn padded(text: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let length = text.len().min(16);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

fn unpadded(bytes: &[u8; 16]) -> Result<String, Flaw> {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(16);
    let (text, padding) = bytes.split_at(end);
    require(
        text.iter().all(u8::is_ascii_graphic) && padding.iter().all(|&b| b == 0),
        "a name in the header is not ASCII",
    )?;
    Ok(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::every_flipped_bit_is_refused;
    use super::*;

    fn sample() -> FamilyHeader {
        FamilyHeader {
            family: 2,
            set: SetHeader {
                format_version: FORMAT_VERSION,
                media_set_id: Uuid::from_u128(7),
                backup_set_id: Uuid::from_u128(8),
                families: 4,
                cipher: CipherId::None,
                kind: SetKind::Full,
                block_size: 4096,
                transfer_size: 1 << 20,
                window: 0,
                codec: (2, -3),
                started_at: 1,
                engine: "sqlite".into(),
                tool_version: "0.1.0".into(),
                base_backup_set_id: None,
                keys: vec![],
                streams: vec![StreamRecord {
                    id: 1,
                    layer: 0,
                    unit: 4096,
                    map_window: 16384,
                    size: 123,
                    ordered: false,
                }],
                open: false,
                label: Some(Label {
                    name: "nightly".into(),
                    description: "ü".into(),
                    media_name: String::new(),
                    database: "/data/app.db".into(),
                }),
            },
        }
    }

    #[test]
    fn a_header_comes_back_as_it_was_written() {
        let bytes = sample().encode();
        assert_eq!(bytes.len(), 4096);
        assert_eq!(FamilyHeader::decode(&bytes), Ok(sample()));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        every_flipped_bit_is_refused(sample().encode(), |bytes| FamilyHeader::decode(bytes).is_err());
    }

    #[test]
    fn a_page_map_of_some_streams_only_or_of_a_differential_is_refused() {
        let mut header = sample();
        header.set.streams.push(StreamRecord { id: 2, layer: 0, unit: 4096, map_window: 0, size: 1, ordered: false });
        assert!(FamilyHeader::decode(&header.encode()).is_err());
        header.set.streams[1].map_window = 1;
        assert_eq!(FamilyHeader::decode(&header.encode()), Ok(header.clone()));
        header.set.kind = SetKind::Differential;
        header.set.base_backup_set_id = Some(Uuid::from_u128(3));
        assert!(FamilyHeader::decode(&header.encode()).is_err());
        header.set.streams.iter_mut().for_each(|stream| stream.map_window = 0);
        assert_eq!(FamilyHeader::decode(&header.encode()), Ok(header));
    }

    #[test]
    fn a_map_window_that_no_run_can_describe_is_refused() {
        let mut header = sample();
        header.set.streams[0].map_window = 1 << 20;
        assert!(FamilyHeader::decode(&header.encode()).is_err());
        header.set.streams[0].map_window -= 1;
        assert!(FamilyHeader::decode(&header.encode()).is_ok());
    }

    #[test]
    fn headers_of_one_set_differ_in_family_and_checksum_alone() {
        let (one, mut other) = (sample(), sample());
        other.family = 1;
        assert!(FamilyHeader::same_set(&one.encode(), &other.encode()));
        other.set.started_at += 1;
        assert!(!FamilyHeader::same_set(&one.encode(), &other.encode()));
        assert!(!FamilyHeader::same_set(&one.encode(), &[]));
    }

    #[test]
    fn a_header_of_a_newer_program_says_so() {
        let mut bytes = sample().encode();
        bytes[8] = 9;
        assert_eq!(FamilyHeader::decode(&bytes), Err(Flaw::Newer(9)));
    }

    #[test]
    fn a_header_fills_whole_blocks_of_any_block_size() {
        let mut header = sample();
        for block_size in [512, 4096, 65536] {
            header.set.block_size = block_size;
            assert_eq!(header.encode().len() % block_size as usize, 0);
            assert!(FamilyHeader::decode(&header.encode()).is_ok());
        }
    }
}
