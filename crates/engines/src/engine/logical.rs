//! Sets of rows and statements: a running server as the target of a restore.

use std::path::Path;

use fullbore_core::Result;
use fullbore_core::media::ManifestStream;
use fullbore_core::unpack::{MediaSet, Target};
use serde_json::Value;
use uuid::Uuid;

use super::{ForeignTables, GivenOptions};
use crate::Options;

/// An engine whose sets may hold rows and statements instead of files.
pub trait LogicalEngine: Sync {
    /// Whether a set with this position is such a set.
    fn is_logical(&self, position: &Value) -> bool;

    /// Whether the options of a backup ask for such a set.
    fn is_wanted(&self, options: &GivenOptions) -> bool;

    /// Whether a stream of such a set is a catalog: small, and needed before all rows.
    fn is_catalog(&self, stream: &ManifestStream) -> bool;

    /// Makes files for people out of the streams in `directory`, which are there under their names. `position` is from
    /// the set's manifest.
    ///
    /// # Errors
    /// A file cannot be read or written.
    fn finish_files(&self, directory: &Path, position: &Value) -> Result<()>;

    /// The tables of such a set, read out of it without a server. `title` says which set it is, for messages.
    ///
    /// # Errors
    /// The set cannot be read.
    fn tables(&self, set: MediaSet, title: String) -> Result<Box<dyn ForeignTables>>;

    /// Connects to the server of `url`, checks that it can take the rows, and creates the tables.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, holds something already, or cannot hold what the set has.
    fn load(&self, url: &str, order: LoadOrder, options: &Options) -> Result<Box<dyn Load>>;
}

/// What is loaded, and how.
#[derive(Debug, Clone, Default)]
pub struct LoadOrder {
    /// The set.
    pub set: Uuid,
    /// The engine of the set.
    pub engine: String,
    /// The version of the server that was backed up.
    pub engine_version: String,
    /// The position of the set, as its engine has written it.
    pub position: Value,
    /// The catalogs: names and bytes.
    pub catalogs: Vec<(String, Vec<u8>)>,
    /// The streams of the set.
    pub streams: Vec<ManifestStream>,
    /// Tables that are large, although no stream says so yet: database and name.
    pub large: Vec<(String, String)>,
    /// `DATABASE.TABLE` or `DATABASE.*`; empty: everything.
    pub tables: Vec<String>,
    /// Databases that get another name: old and new.
    pub maps: Vec<(String, String)>,
    /// What the target holds under these names may be dropped.
    pub replace: bool,
    /// The events of the set are left out: they would run on the target.
    pub leave_events: bool,
    /// The target was made for this load: its root account may be replaced.
    pub new_server: bool,
    /// Continues an interrupted load of the same set.
    pub resume: bool,
    /// At the end, all rows are read again and compared.
    pub check: bool,
    /// Only looks: creates and drops nothing.
    pub dry_run: bool,
    /// How many statements run at once after the rows.
    pub at_once: usize,
}

/// What a load did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Tables.
    pub tables: u64,
    /// Their rows.
    pub rows: u64,
    /// What the user should know, although everything is loaded.
    pub warnings: Vec<String>,
    /// Facts that need no action.
    pub notes: Vec<String>,
}

/// A load that is under way. It takes the bytes of all streams.
pub trait Load: Target + Send {
    /// What the load will do, or has found, before the first row.
    fn plan(&self) -> Loaded;

    /// After the last row: indexes, foreign keys, and all other objects.
    ///
    /// # Errors
    /// The server refuses one of them, a stream is not complete, or the rows are not those of the set.
    fn finish(&self) -> Result<Loaded>;

    /// After an error: what the target holds now, as a sentence.
    fn left(&self) -> String;
}
