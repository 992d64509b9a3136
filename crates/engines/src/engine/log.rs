//! Engines with log backups: where a set ends, how the next one is made, and how it is applied.

use std::fs::File;
use std::path::Path;

use fullbore_core::Result;
use fullbore_core::media::{LogRange, Position, SetKind};

use crate::{Options, Session};

/// Log backups of an engine.
pub trait LogEngine: Sync {
    /// Where a set begins and ends in the log; `None` if its position is invalid. `finished_at` is when it was
    /// finished, in microseconds since 1970: it counts if the position has no time.
    fn range(&self, kind: SetKind, position: &Position, finished_at: Option<i64>) -> Option<LogRange>;

    /// The same of a database that was restored up to `end`, with every commit until `until`, in microseconds since
    /// 1970.
    fn range_up_to(&self, end: &SetEnd, until: i64) -> Option<LogRange>;

    /// Where a set ends, from `position.last` of its manifest, which may say anything.
    ///
    /// # Errors
    /// Why the position makes no sense, for the user.
    fn end(&self, position: &serde_json::Value) -> Result<SetEnd, String>;

    /// The streams of a log set: their ids, and how files with their bytes are called.
    fn streams(&self) -> &'static [(u32, &'static str)];

    /// Opens the database that `url` names, and finds the first of `bases` that its log continues. Returns the index of
    /// this base and the log set after it; `None` if nothing was committed since.
    ///
    /// # Errors
    /// The log continues none of them. The reason is that of the first.
    fn open(&self, url: &str, bases: &[SetEnd], options: &Options) -> Result<(usize, Option<Box<dyn LogSession>>)>;

    /// Opens the database that `url` names, and holds its log from now on.
    ///
    /// # Errors
    /// A backup of the database would fail too, or the database has no log.
    fn follow(&self, url: &str, options: &Options) -> Result<Box<dyn LogFollower>>;

    /// Applies a log set to a restored database.
    ///
    /// # Errors
    /// The set does not continue the database, or breaks its format. Then the database must not be used.
    fn apply(&self, set: &UnpackedLog<'_>, stop_at: Option<i64>) -> Result<AppliedLog>;
}

/// The end of a backup set: the next log set continues it, and log sets are applied after it.
#[derive(Debug, Clone, PartialEq)]
pub struct SetEnd {
    /// The engine's own words, as in the manifest.
    pub position: serde_json::Value,
    /// When that was seen, in microseconds since 1970.
    pub time: Option<i64>,
    /// Bytes of the database file at this position. `None` for a database in several files.
    pub file_bytes: Option<u64>,
}

/// A session on the part of the log that becomes one set.
pub trait LogSession: Session {
    /// Where the set ends.
    fn end(&self) -> &SetEnd;

    /// How much was committed, in the engine's words, as `12 frames`.
    fn amount(&self) -> String;
}

/// A follower of a database's log.
pub trait LogFollower {
    /// Continues the first of `bases`, the ends of other runs, that the log continues. Returns its index.
    ///
    /// # Errors
    /// It continues none of them. The reason is that of the first.
    fn join(&mut self, bases: &[SetEnd]) -> Result<usize>;

    /// A snapshot of now, for a full. When the full is durable, the caller calls [`join_own`](Self::join_own).
    ///
    /// # Errors
    /// As for any backup.
    fn snapshot(&self) -> Result<Box<dyn Session>>;

    /// Continues a full that was taken through [`snapshot`](Self::snapshot). `position` is from its session.
    ///
    /// # Errors
    /// The position is invalid.
    fn join_own(&mut self, position: &serde_json::Value) -> Result<()>;

    /// True when there are commits that are in no set.
    ///
    /// # Errors
    /// The files do not belong to the database any more.
    fn has_news(&self) -> Result<bool>;

    /// Every commit since the last set, held until [`shipped`](Self::shipped); `None` if there was none. After a
    /// failure to store it, the caller may call it again.
    ///
    /// # Errors
    /// A part of the log is missing.
    fn next_set(&mut self) -> Result<Option<Box<dyn LogSession>>>;

    /// The set that [`next_set`](Self::next_set) gave is durable. It ends at `end`.
    ///
    /// # Errors
    /// The engine cannot let go of the log.
    fn shipped(&mut self, end: &SetEnd) -> Result<()>;

    /// True while the log may become longer although its sets cannot be stored: until it has as many bytes as the user
    /// allows.
    fn may_grow(&self) -> bool;

    /// Makes the log shorter if it has `limit` bytes and no lock prevents it. True after success: then a set should be
    /// shipped soon.
    ///
    /// # Errors
    /// The engine fails, or a part of the log is missing.
    fn shorten(&mut self, limit: u64) -> Result<bool>;

    /// Bytes that the log takes on the disk.
    fn log_file_bytes(&self) -> u64;
}

/// The streams of an unpacked log set, and the database that they are applied to.
pub struct UnpackedLog<'a> {
    /// The name of the set in errors.
    pub name: &'a str,
    /// Its streams, in the order of [`LogEngine::streams`]. Each is read from its beginning on.
    pub streams: &'a [File],
    /// Where it begins and ends, from its manifest.
    pub position: &'a Position,
    /// The database: a file or a directory.
    pub database: &'a Path,
    /// The position of the database.
    pub stands: &'a SetEnd,
}

/// The result of applying a log set.
#[derive(Debug, Clone, PartialEq)]
pub struct AppliedLog {
    /// The position of the database now.
    pub stands: SetEnd,
    /// True when the set holds commits that are later than the time to stop at.
    pub stopped: bool,
}
