//! The manifest: what a backup set is, as JSON that `zstd -d` and `jq` can read.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::paths::check_paths;
use super::{EngineValue, Flaw, LogRange, SetHeader, SetKind, StreamRecord, broken, require, total};

/// Most bytes of JSON that a manifest may have, packed or not.
const MANIFEST_MAX: usize = 64 << 20;
/// Most streams of a set: each has a line of some 250 bytes in the manifest, with its name.
pub const STREAMS_MAX: usize = MANIFEST_MAX / 256;
/// Most families, and most warnings.
const FAMILIES_MAX: usize = super::MAX_FAMILIES as usize;
const WARNINGS_MAX: usize = u16::MAX as usize;
/// Most bytes in an engine's account of one file.
const DETAIL_MAX: usize = 4096;

/// A backup set, described.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this description.
    pub schema: u32,
    /// Version of the program.
    pub tool_version: String,
    /// Name of the engine.
    pub engine: String,
    /// Version of the database software.
    pub engine_version: String,
    /// Where the backup ran.
    pub host: String,
    /// The database as the engine names it; information only.
    pub database: String,
    /// Full, differential, log.
    pub kind: SetKind,
    /// Outside the chain.
    pub copy_only: bool,
    /// Identity of the media.
    pub media_set_id: Uuid,
    /// Identity of the backup.
    pub backup_set_id: Uuid,
    /// The full that a differential belongs to.
    pub base_backup_set_id: Option<Uuid>,
    /// `--name`.
    pub name: String,
    /// `--description`.
    pub description: String,
    /// `--media-name`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub media_name: String,
    /// RFC 3339.
    pub started_at: String,
    /// RFC 3339: when the last byte of the database was read.
    pub finished_at: String,
    /// The codec asked for, as the user writes it.
    pub codec: String,
    /// Alignment unit of device writes in bytes.
    pub block_size: u32,
    /// Longest block in bytes.
    pub transfer_size: u32,
    /// Where the families were written to; information only.
    #[serde(deserialize_with = "at_most::<FAMILIES_MAX, _, _>")]
    pub families: Vec<ManifestFamily>,
    /// What the set restores to.
    #[serde(deserialize_with = "at_most::<STREAMS_MAX, _, _>")]
    pub streams: Vec<ManifestStream>,
    /// How the page map was made; `None` without one.
    pub map: Option<ManifestMap>,
    /// Of a differential: by which rule its units were chosen.
    #[serde(default, skip_serializing_if = "Changes::are_compared")]
    pub changes: Changes,
    /// The engine's own account of the snapshot's position.
    pub position: Position,
    /// Warnings of the backup.
    #[serde(deserialize_with = "at_most::<WARNINGS_MAX, _, _>")]
    pub warnings: Vec<String>,
}

/// Reads a list that has no more than `MOST` items.
pub(super) fn at_most<'de, const MOST: usize, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    struct Items<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Items<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST} items")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = from.next_element()? {
                if items.len() == MOST {
                    return Err(A::Error::custom(format!("a list has more than {MOST} items")));
                }
                items.push(item);
            }
            Ok(items)
        }
    }
    from.deserialize_seq(Items::<T, MOST>(PhantomData))
}

impl Manifest {
    /// Bytes of all restored streams.
    pub fn database_bytes(&self) -> u64 {
        total(self.streams.iter().map(|stream| stream.size))
    }

    /// Checks that values which the header has too are the same here.
    ///
    /// # Errors
    /// Names what differs.
    pub fn check_against(&self, header: &SetHeader) -> Result<(), Flaw> {
        let ids = (self.media_set_id, self.backup_set_id, self.base_backup_set_id);
        let same = ids == (header.media_set_id, header.backup_set_id, header.base_backup_set_id);
        require(same, "the manifest belongs to another set than the header")?;
        let described = (self.kind, &self.engine, self.block_size, self.transfer_size);
        let same = described == (header.kind, &header.engine, header.block_size, header.transfer_size);
        require(same, "the manifest has another kind, engine or size than the header")?;
        let numbers = self.families.iter().map(|family| family.family);
        require(numbers.eq(1..=header.families), "the manifest has other families than the header")?;
        let streams = self.streams.iter().map(ManifestStream::record);
        if header.open {
            self.check_open_streams()?;
        } else {
            require(streams.eq(header.streams.iter().cloned()), "the manifest has other streams than the header")?;
        }
        let mut ordered = self.streams.iter().filter(|stream| stream.ordered);
        let whole = |stream: &ManifestStream| {
            header.window > 0 && stream.map_window == 0 && stream.base.is_none() && !stream.name.is_empty()
        };
        let why = "an ordered stream with a page map or a base, without a name, or in a set without a window";
        require(ordered.all(whole), why)?;
        let log = self.position.log.as_ref();
        let makes_sense = log.is_none_or(|range| range.makes_sense(self.kind == SetKind::Log));
        require(makes_sense, "the position in the log is not valid in the manifest")?;
        let reported = self.changes == Changes::Reported;
        require(
            !reported || self.kind == SetKind::Differential,
            "reported changes in a set that is not a differential",
        )?;
        let mapped = self.streams.iter().any(|stream| stream.map_window > 0);
        require(!mapped || self.map.is_some(), "the manifest has no seed for the page map that the header announces")?;
        // An open full knows only at the end which streams have a map.
        let allowed =
            mapped || header.kind == SetKind::Full && (self.streams.iter().all(|stream| stream.ordered) || header.open);
        require(
            allowed || self.map.is_none(),
            "the manifest has the seed of a page map that the header does not announce",
        )?;
        self.map.as_ref().map_or(Ok(()), |map| map.seed().map(drop))
    }

    /// In an open set, this table counts.
    fn check_open_streams(&self) -> Result<(), Flaw> {
        let streams = || self.streams.iter();
        require(all_differ(streams().map(|stream| stream.id)), "a stream is in the manifest twice")?;
        check_paths(streams().map(|stream| stream.name.as_str()))?;
        let kept = |stream: &ManifestStream| stream.size > 0 || stream.base.is_some() || !stream.identity.is_empty();
        let mut nameless = streams().filter(|stream| stream.name.is_empty());
        require(!nameless.any(kept), "a stream without a name, but with data to restore")?;
        let (full, differential) = (self.kind == SetKind::Full, self.kind == SetKind::Differential);
        let mapped = || streams().filter(|stream| stream.map_window > 0);
        require(full || mapped().next().is_none(), "a page map in a set that is not a full")?;
        require(mapped().all(|stream| !stream.identity.is_empty()), "a page map of a stream without an identity")?;
        let identities = mapped().map(|stream| stream.identity.as_str());
        require(all_differ(identities), "two streams with the same identity in the manifest")?;
        let bases = || streams().filter_map(|stream| stream.base);
        require(differential || bases().next().is_none(), "a base in a set that is not a differential")?;
        require(all_differ(bases()), "two streams of the manifest with the same base")
    }
}

/// One family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFamily {
    /// From 1.
    pub family: u16,
    /// As the user named it.
    pub device: String,
}

/// One stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestStream {
    /// The number that blocks carry.
    pub id: u32,
    /// Name of the file, relative.
    pub name: String,
    /// Phase of the restore.
    pub layer: u16,
    /// Unit of a differential in bytes.
    pub unit: u32,
    /// Units per MAP block; 0 without a map.
    pub map_window: u32,
    /// Bytes of the restored stream.
    pub size: u64,
    /// A restore gets its bytes in order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ordered: bool,
    /// In an open set: its name-independent id in other backups of the same database; empty: it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub identity: String,
    /// In a differential of an open set: the stream of the full that this stream begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u32>,
    /// In an open set: the engine's own account of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<EngineValue>,
}

impl ManifestStream {
    /// Without its name, as headers have it.
    pub fn record(&self) -> StreamRecord {
        let Self { id, layer, unit, map_window, size, ordered, .. } = *self;
        StreamRecord { id, layer, unit, map_window, size, ordered }
    }
}

fn all_differ<T: Ord>(items: impl Iterator<Item = T>) -> bool {
    let mut items: Vec<T> = items.collect();
    items.sort_unstable();
    items.windows(2).all(|pair| pair[0] != pair[1])
}

/// Most bytes in the identity of a stream.
const IDENTITY_MAX: usize = 256;

/// By which rule the units of a differential were chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Changes {
    /// All units were read, and compared with the page map of the full.
    #[default]
    Compared,
    /// The database reported what has changed since the full. The full needs no page map.
    Reported,
}

impl Changes {
    /// The rule of sets that name none.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn are_compared(&self) -> bool {
        *self == Changes::Compared
    }
}

/// How a page map was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestMap {
    /// `xxh3-128`.
    pub hash: String,
    /// 16 hexadecimal digits.
    pub seed: String,
}

impl ManifestMap {
    /// A map made with this seed.
    pub fn new(seed: u64) -> Self {
        Self { hash: "xxh3-128".into(), seed: format!("{seed:016x}") }
    }

    /// The seed as a number.
    pub fn seed(&self) -> Result<u64, Flaw> {
        require(self.hash == "xxh3-128", "the page map uses a hash that this version does not know")?;
        let digits = self.seed.len() == 16 && self.seed.bytes().all(|digit| digit.is_ascii_hexdigit());
        require(digits, "the seed of the page map does not have 16 digits")?;
        u64::from_str_radix(&self.seed, 16).map_err(|_| broken("the seed of the page map is not a hexadecimal number"))
    }
}

/// Where the snapshot is in the database's history.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Position {
    /// First position that a restore needs, in the engine's own words.
    pub first: EngineValue,
    /// The position that the copied bytes are consistent with, in the engine's own words.
    pub checkpoint: EngineValue,
    /// The last position in the set, in the engine's own words.
    pub last: EngineValue,
    /// Where the set begins and ends in the log, in words that all engines share. Sets of engines without log backups
    /// do not have it, and neither do sets from before 2026-11-25.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogRange>,
}

impl Position {
    /// Bytes that it takes in memory, approximately.
    pub fn bytes(&self) -> u64 {
        let words = total([&self.first, &self.checkpoint, &self.last].map(|value| value.text().len() as u64));
        words.saturating_add(self.log.as_ref().map_or(0, LogRange::bytes))
    }
}

/// The packed parts of a manifest: each a Zstandard frame made from at most `part` bytes of JSON.
pub fn pack_manifest(manifest: &Manifest, part: usize) -> Result<Vec<(Vec<u8>, usize)>, Flaw> {
    let json = serde_json::to_vec(manifest).map_err(|e| broken(format!("manifest: {e}")))?;
    unpack_manifest(&json)?; // A manifest that a reader would refuse is not written.
    json.chunks(part.max(1))
        .map(|plain| {
            let packed = zstd::bulk::compress(plain, 3).map_err(|e| broken(format!("manifest: {e}")))?;
            Ok((packed, plain.len()))
        })
        .collect()
}

/// The length of a manifest with one more plain part. Small packed parts may unpack to very much, so the length is
/// bounded here.
pub(crate) fn joined_length(length: usize, part: &[u8]) -> Result<usize, Flaw> {
    let joined = length + part.len();
    require(joined <= MANIFEST_MAX, "manifest out of bounds")?;
    Ok(joined)
}

/// Adds a plain part to those before it.
pub(crate) fn join_manifest(json: &mut Vec<u8>, part: &[u8]) -> Result<(), Flaw> {
    joined_length(json.len(), part)?;
    json.extend_from_slice(part);
    Ok(())
}

/// Reads a manifest from the joined plain parts.
pub fn unpack_manifest(json: &[u8]) -> Result<Manifest, Flaw> {
    require(json.len() <= MANIFEST_MAX, "manifest out of bounds")?;
    let manifest: Manifest = serde_json::from_slice(json).map_err(|e| broken(format!("manifest: {e}")))?;
    require(manifest.schema == 0, "manifest of a newer fullbore")?;
    for stream in &manifest.streams {
        let unit_fits = stream.unit.is_power_of_two() && (4096..=65536).contains(&stream.unit);
        require(unit_fits && stream.id != 0, "a stream of the manifest is out of bounds")?;
        let window = u64::from(stream.unit) * u64::from(stream.map_window);
        let sizes_fit = stream.size <= 1 << 62 && stream.map_window <= 1 << 22 && window < 1 << 32;
        let detail = stream.detail.as_ref().map_or(0, |detail| detail.text().len());
        let texts_fit = stream.identity.len() <= IDENTITY_MAX && detail <= DETAIL_MAX;
        require(sizes_fit && texts_fit, "a stream of the manifest is out of bounds")?;
    }
    Ok(manifest)
}
