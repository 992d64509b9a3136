//! Media that a database system writes by itself, and that this program reads without a server.

use std::path::{Path, PathBuf};

use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use uuid::Uuid;

use super::Engine;
use crate::foreign_set::bytes::FamilyBytes;
use crate::foreign_set::tap::Inlet;

use super::foreign_tables::ForeignTables;
use super::restore_to_time::{RestorableBase, RestorableLog};

/// How many bytes [`ForeignMedia::recognises`] gets.
pub const FOREIGN_HEAD: usize = 16;

/// So many of `families` are read side by side: one for each processor, and 8 at most.
pub fn families_at_once(families: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    families.min(cores).clamp(1, 8)
}

/// One family of media.
pub struct ForeignFamily {
    /// The device, for messages.
    pub device: String,
    /// Its bytes.
    pub bytes: Box<dyn FamilyBytes>,
}

/// Media of another program.
pub trait ForeignMedia: Sync {
    /// What they are, as people write it, such as `SQL Server backup`.
    fn title(&self) -> &'static str;

    /// The engine of sets that hold such media.
    fn engine(&self) -> &'static dyn Engine;

    /// The word before the colon where a restore gives these media back: `bak` in `bak:DIRECTORY`.
    fn scheme(&self) -> &'static str;

    /// True if a family of this kind begins with `head`: [`FOREIGN_HEAD`] bytes, or fewer if the file is shorter.
    fn recognises(&self, head: &[u8]) -> bool;

    /// Reads the descriptions on these families, and puts the families together.
    ///
    /// # Errors
    /// A family is damaged before its first description.
    fn describe(&self, families: Vec<ForeignFamily>) -> Result<ForeignDescription>;

    /// Reads every byte of these families, which belong to one media set, and checks every checksum. With `file`, only
    /// damage in the set at this position counts.
    ///
    /// # Errors
    /// A device cannot be read. Damage is in the result.
    fn verify(&self, families: Vec<ForeignFamily>, file: Option<u16>) -> Result<ForeignVerification>;

    /// Verifies these families, which are all those of one media set, and passes their bytes on with their places.
    ///
    /// # Errors
    /// As of [`verify`](Self::verify), or the bytes are not taken any more.
    fn survey(&self, families: Vec<ForeignFamily>, to: &Inlet) -> Result<Surveyed>;

    /// Writes the files of a database: a full, and the newest differential over it. `open` opens a device again from its
    /// first byte. `wanted` is the beginning of the identity of one set.
    ///
    /// # Errors
    /// A set or a family is missing, damage was found, or a file cannot be written. Then no file is left.
    fn restore(
        &self,
        devices: &[String],
        open: &dyn Fn(&str) -> Result<ForeignFamily>,
        wanted: Option<&str>,
        into: &FilePlaces,
    ) -> Result<ForeignRestore>;

    /// Which stored media a restore of the media `chosen` needs: `stored` are the positions of all media that are stored,
    /// as their sets have them.
    ///
    /// # Errors
    /// Something that it needs is not stored.
    fn needed(&self, stored: &[&Value], chosen: usize) -> Result<NeededMedia>;

    /// Opens the tables of the database that [`restore`](Self::restore) would write. `scratch` is an empty directory for
    /// its pages; the tables read from it as long as they exist.
    ///
    /// # Errors
    /// As of [`restore`](Self::restore), or the system tables cannot be read.
    fn tables(
        &self,
        devices: &[String],
        open: &dyn Fn(&str) -> Result<ForeignFamily>,
        wanted: Option<&str>,
        scratch: &Path,
    ) -> Result<Box<dyn ForeignTables>>;
}

/// What a restore of stored media needs. The media have their numbers among those that are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NeededMedia {
    /// The media with the pages, in the order of a restore.
    pub pages: Vec<usize>,
    /// The media with the log that follows them, in the order of the log.
    pub logs: Vec<usize>,
    /// The identity of the backup set that has the last pages.
    pub database_set: Option<String>,
}

/// Media that were read to be stored.
#[derive(Debug, Default)]
pub struct Surveyed {
    /// What a verification finds.
    pub verification: ForeignVerification,
    /// The layout of each family, in their order.
    pub layouts: Vec<Vec<u8>>,
    /// What is on the media, as it was read: one media set.
    pub media_sets: Vec<ForeignMediaSet>,
}

/// Where the files of a database go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilePlaces {
    /// The directory of files that are not moved.
    pub directory: PathBuf,
    /// Files that go elsewhere: the logical name in the database, and the path.
    pub moves: Vec<(String, PathBuf)>,
}

impl FilePlaces {
    /// All files in one directory.
    pub fn in_directory(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), moves: Vec::new() }
    }
}

/// A file of a database that was restored.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RestoredFile {
    /// Its path.
    pub path: PathBuf,
    /// Its logical name in the database.
    pub logical: String,
    /// Its length in bytes.
    pub size: u64,
    /// Bytes that were written to it; the rest are holes.
    pub bytes: u64,
}

/// The result of a restore.
#[derive(Debug)]
pub struct ForeignRestore {
    /// The name of the database.
    pub database: String,
    /// The kind of the last set, in the words of fullbore.
    pub kind: SetKind,
    /// The sets that were written, in order, for messages.
    pub sets: Vec<String>,
    /// The files.
    pub files: Vec<RestoredFile>,
    /// What is not restored or not right.
    pub warnings: Vec<String>,
}

/// A row of a table, in the order of its columns. Columns have the names of the other program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row(pub Vec<(&'static str, Value)>);

impl Row {
    /// The value of a column.
    pub fn get(&self, column: &str) -> Option<&Value> {
        self.0.iter().find(|(name, _)| *name == column).map(|(_, value)| value)
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// The descriptions of media.
#[derive(Debug, Default)]
pub struct ForeignDescription {
    /// The media sets.
    pub media_sets: Vec<ForeignMediaSet>,
    /// What can be restored of each database on them.
    pub restorable: Vec<Restorable>,
    /// What to look at.
    pub warnings: Vec<String>,
}

/// The points in time of one database that can be restored.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Restorable {
    /// The database.
    pub database: String,
    /// Ranges without a gap, in the order of the log.
    pub ranges: Vec<RestorableRange>,
    /// What is missing, and what cannot be restored without it.
    pub missing: Vec<String>,
}

/// A range of the log that can be restored. Both of its ends are sure. Between them, a time is possible if there are log
/// backups: the other program finds it in log records, which are not read here.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RestorableRange {
    /// The end of the full, or of the differential.
    pub from: PointInTime,
    /// The end of the last log backup; without log backups the same as `from`.
    pub to: PointInTime,
    /// The identity of the full.
    pub full: String,
    /// The identity of the differential.
    pub differential: Option<String>,
    /// How many log backups follow.
    pub log_backups: u64,
    /// The identity of the recovery fork at the end.
    pub recovery_fork: String,
    /// What a restore to a time in the range may begin with, in the order of the log.
    #[serde(skip)]
    pub bases: Vec<RestorableBase>,
    /// The log backups, in their order.
    #[serde(skip)]
    pub logs: Vec<RestorableLog>,
}

/// A place in the log of a database.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct PointInTime {
    /// Its LSN, as the other program prints it.
    pub lsn: String,
    /// The time, by the clock of the server and in its zone.
    pub time: Option<String>,
}

/// A media set.
#[derive(Debug)]
pub struct ForeignMediaSet {
    /// Its identity.
    pub id: String,
    /// The devices of its families that are there, in the order of the families.
    pub devices: Vec<String>,
    /// The label of each of these families.
    pub labels: Vec<Row>,
    /// Its backup sets, in the order of their positions.
    pub sets: Vec<ForeignSet>,
    /// More copies of families: devices that hold the same family as one of `devices`.
    pub copies: Vec<ForeignCopy>,
    /// True if a backup can store its pages by their places: a full, and its families are not compressed.
    pub has_pages_by_place: bool,
    /// The reason why it cannot be restored: a family is missing, or does not belong to the others.
    pub incomplete: Option<Error>,
}

/// A device with a family that another device has too, by their descriptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignCopy {
    /// The device.
    pub device: String,
    /// The device that is read in its place.
    pub of: String,
    /// True if both should have the same bytes: they are whole, and are no mirrors of each other.
    pub is_equal: bool,
}

impl ForeignCopy {
    /// The warning where it is not read.
    pub fn not_read(&self) -> String {
        let Self { device, of, .. } = self;
        format!("`{device}` holds a family that another file holds too, `{of}`: not read")
    }
}

/// A backup set.
#[derive(Debug)]
pub struct ForeignSet {
    /// Its number on the media, from 1.
    pub position: u16,
    /// Its header.
    pub header: Row,
    /// The files of its database.
    pub files: Vec<Row>,
    /// One line for a list of sets.
    pub line: Row,
    /// Sorts the sets of one database by their place in its log.
    pub order: String,
    /// Its identity.
    pub id: String,
    /// The identity of the full that a differential needs.
    pub base: Option<String>,
    /// The database, with the server that has it: its name in repositories.
    pub database: String,
    /// Its kind, in the words of its program.
    pub kind: String,
    /// True if the set is a full of the whole database.
    pub is_full: bool,
    /// What it is, from when, in a few words.
    pub summary: String,
    /// The program that wrote it, with its version.
    pub writer: String,
}

impl ForeignMediaSet {
    /// A new identity for a backup set that will hold these media. It begins with the identity of the media, and ends
    /// with random bytes: so a second attempt, and another repository, have sets of their own.
    pub fn new_set_id(&self) -> Uuid {
        let (mut id, (_, random)) = ([0; 16], Uuid::new_v4().as_u64_pair());
        id[..8].copy_from_slice(&self.identity());
        id[8..].copy_from_slice(&random.to_be_bytes());
        uuid::Builder::from_custom_bytes(id).into_uuid()
    }

    /// True if a backup set with this identity holds these media.
    pub fn is_stored_as(&self, set: Uuid) -> bool {
        set.get_version_num() == uuid::Version::Custom as usize && set.as_bytes().starts_with(&self.identity())
    }

    /// What tells these media from others: the identities of the media set and of its backup sets, and the number of
    /// families.
    pub fn identity_of_media(&self) -> (String, Vec<String>, usize) {
        (self.id.clone(), self.sets.iter().map(|set| set.id.clone()).collect(), self.devices.len())
    }

    /// The first half of the identity of sets that hold these media: from the media set and its backup sets.
    fn identity(&self) -> [u8; 8] {
        let mut digest = blake3::Hasher::new_derive_key("fullbore 2026-11 identity of stored media of another program");
        for id in std::iter::once(&self.id).chain(self.sets.iter().map(|set| &set.id)) {
            digest.update(id.as_bytes()).update(b"\n");
        }
        let mut id = [0; 16];
        id.copy_from_slice(digest.finalize().as_bytes().split_at(16).0);
        let (first, _) = uuid::Builder::from_custom_bytes(id).into_uuid().as_u64_pair();
        first.to_be_bytes()
    }
}

impl ForeignDescription {
    /// The differentials whose full is not on these media: the identity of the full, and that of the differential.
    pub fn without_base(&self) -> Vec<(&str, &str)> {
        let sets = || self.media_sets.iter().flat_map(|media| &media.sets);
        let is_here = |base: &str| sets().any(|set| set.id == base);
        let needed = sets().filter_map(|set| Some((set.base.as_deref()?, set.id.as_str())));
        needed.filter(|(base, _)| !is_here(base)).collect()
    }
}

/// The result of a verification.
#[derive(Debug, Default)]
pub struct ForeignVerification {
    /// Bytes that were read.
    pub bytes: u64,
    /// The sets that were read, for messages.
    pub sets: Vec<String>,
    /// Which bytes are protected, and by what. Together they are all bytes.
    pub coverage: Vec<Coverage>,
    /// What was counted, one fact in each line.
    pub facts: Vec<String>,
    /// What to look at, although it is no proof of damage.
    pub warnings: Vec<String>,
    /// Damage, in the order of the bytes.
    pub damage: Vec<Error>,
}

/// How many bytes one kind of protection has.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Coverage {
    /// The check that would find a changed bit, or the reason why none would.
    pub protection: &'static str,
    /// True if a check protects these bytes.
    pub protected: bool,
    /// The bytes.
    pub bytes: u64,
}
