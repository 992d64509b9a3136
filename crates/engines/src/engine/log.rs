//! Engines with log backups: where a set ends, how the next one is made, and how it is applied.

use std::fs::File;
use std::path::Path;

use fullbore_core::halt::Halt;
use fullbore_core::media::{LogRange, ManifestStream, Position, SetKind};
use fullbore_core::{Error, Result};

use super::{AlsoIn, EngineOption, OptionKind};
use crate::{Options, Session};

/// Continues the database of a server that failed.
pub static FAIL_OVER_FROM: EngineOption = EngineOption {
    name: "fail-over-from",
    kind: OptionKind::Text("NAME"),
    help: "This server is a promoted replica of the database NAME in the repository, such as db1:3306. Its sets get this \
           name, and a log set may continue those of the other server, if GTIDs prove that nothing is missing",
    elsewhere: "only MySQL and MariaDB continue the log of another server",
    also: &[AlsoIn::LogFollow],
};

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

    /// True if the server keeps its log apart from the database, so that a full neither cuts the log nor begins it: then a
    /// log set continues the log set before the full, and the log sets of all fulls are one chain.
    fn outlives_fulls(&self) -> bool {
        false
    }

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

    /// Applies a log set to a restored database that is a file.
    ///
    /// # Errors
    /// The set does not continue the database, or breaks its format. Then the database must not be used.
    fn apply(&self, set: &UnpackedLog<'_>, stop: Option<&LogStop>) -> Result<AppliedLog>;

    /// Refuses a stop that does not name one transaction in the words of the engine.
    ///
    /// # Errors
    /// It names none, or several.
    fn demand_name(&self, stop: &LogStop) -> Result<()> {
        let _ = stop;
        Ok(())
    }

    /// True if a stop is in a log set with this position, or at its end. A time is in no set.
    fn holds(&self, position: &Position, stop: &LogStop) -> bool {
        let _ = (position, stop);
        false
    }

    /// True if a log set with this position begins at a stop: then nothing of it is applied.
    fn begins_at(&self, position: &Position, stop: &LogStop) -> bool {
        let _ = (position, stop);
        false
    }

    /// Looks whether a restore can stop at a place in this log set. `stands` of the set does not count.
    ///
    /// # Errors
    /// The stop is inside of a transaction, or the set is damaged.
    fn demand_stop(&self, set: &UnpackedLog<'_>, stop: &LogStop) -> Result<()> {
        let _ = (set, stop);
        Ok(())
    }

    /// Prepares to apply log sets to a restored directory, by a server on it. `None` of an engine that applies each set
    /// by itself.
    ///
    /// # Errors
    /// The server's program is not here.
    fn replay<'a>(&self, on: ReplayOn<'a>) -> Result<Option<Box<dyn LogReplay + 'a>>> {
        let _ = on;
        Ok(None)
    }

    /// Prepares to apply log sets to a running server, behind the rows of a logical set: through a connection, each set
    /// when it is staged. `None` of an engine that cannot.
    ///
    /// # Errors
    /// The server cannot be reached, is too old, or the account may not apply a log.
    fn replay_into(&self, on: ReplayInto<'_>) -> Result<Option<Box<dyn LogReplay>>> {
        let _ = on;
        Ok(None)
    }
}

/// A running server that log sets are applied to.
#[derive(Clone, Copy)]
pub struct ReplayInto<'a> {
    /// The server.
    pub url: &'a str,
    /// How it is reached.
    pub options: &'a Options,
    /// The version of the server that was backed up.
    pub engine_version: &'a str,
    /// The position of the loaded set.
    pub position: &'a serde_json::Value,
    /// Its catalogs: the name of a stream, and its bytes.
    pub catalogs: &'a [(String, Vec<u8>)],
    /// What the target holds under the names of the set may be dropped.
    pub replace: bool,
}

/// Where a restore stops in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogStop {
    /// After the last commit at or before this time, in microseconds since 1970.
    Time(i64),
    /// After the transaction with this GTID.
    ThroughGtid(String),
    /// Before the transaction with this GTID.
    BeforeGtid(String),
    /// At a place in the server's log, `FILE:OFFSET`.
    Place(String),
}

impl LogStop {
    /// The time, if it is one.
    pub fn time(&self) -> Option<i64> {
        match self {
            Self::Time(time) => Some(*time),
            Self::ThroughGtid(_) | Self::BeforeGtid(_) | Self::Place(_) => None,
        }
    }

    /// The option and its value, for errors.
    pub fn option(&self) -> String {
        match self {
            Self::Time(time) => format!("--stop-at {time}"),
            Self::ThroughGtid(gtid) => format!("--stop-at-gtid {gtid}"),
            Self::BeforeGtid(gtid) => format!("--stop-before-gtid {gtid}"),
            Self::Place(place) => format!("--stop-at {place}"),
        }
    }

    /// The time, for an engine whose commits have nothing else.
    ///
    /// # Errors
    /// It is something else.
    pub fn only_time(stop: Option<&Self>) -> Result<Option<i64>> {
        let option = match stop {
            None => return Ok(None),
            Some(Self::Time(time)) => return Ok(Some(*time)),
            Some(other) => other.option(),
        };
        let why = "only a server's log has transactions with names";
        Err(Error::usage(option, why, "give a time: --stop-at TIME"))
    }
}

/// The server for a replay.
#[derive(Clone, Copy)]
pub struct ReplayOn<'a> {
    /// `--server-program`.
    pub program: Option<&'a Path>,
    /// `--server-option`.
    pub options: &'a [String],
    /// The version of the server that was backed up.
    pub engine_version: &'a str,
    /// The position of the restored full or differential.
    pub position: &'a serde_json::Value,
    /// Its streams.
    pub streams: &'a [ManifestStream],
    /// It has the accounts of the source: statements of the log about accounts are applied.
    pub accounts: bool,
}

/// Log sets on their way into a restored directory: staged one by one, and applied in one run of the server.
pub trait LogReplay {
    /// The rows of the set below the log are loaded now.
    ///
    /// # Errors
    /// The target refuses.
    fn loads(&mut self) -> Result<()> {
        Ok(())
    }

    /// The rows are there. Marks the target as not complete, until [`run`](Self::run) has ended well.
    ///
    /// # Errors
    /// The target refuses.
    fn mark(&mut self) -> Result<()> {
        Ok(())
    }

    /// Puts a set into the directory, up to `stop`. Nothing is applied yet.
    ///
    /// # Errors
    /// The set does not continue the database, or breaks its format.
    fn stage(&mut self, set: &UnpackedLog<'_>, stop: Option<&LogStop>) -> Result<AppliedLog>;

    /// True if what was staged can be applied as statements only ([`LogEngine::replay_into`]): a logical set may hold what
    /// the log makes.
    fn wants_statements(&self) -> bool {
        false
    }

    /// Starts the server on the directory, lets it apply everything that was staged, and stops it.
    ///
    /// # Errors
    /// The sets do not have `stop`, or the server does not apply them. Then the directory must not be used.
    fn run(self: Box<Self>, directory: &Path, stop: Option<&LogStop>, halt: &Halt) -> Result<Replayed>;
}

/// The result of a replay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replayed {
    /// How many transactions were applied.
    pub transactions: u64,
    /// The server's GTIDs then, in its words.
    pub gtid: String,
    /// The place in the source's log, in words.
    pub place: String,
    /// How long it took.
    pub seconds: f64,
    /// How many tables were loaded from texts before.
    pub loaded: u64,
    /// What the user should know.
    pub notes: Vec<String>,
    /// What may need an action.
    pub warnings: Vec<String>,
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
    ///
    /// # Errors
    /// Not all of it was read, and the end is known only then.
    fn end(&self) -> Result<SetEnd>;

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
    fn has_news(&mut self) -> Result<bool>;

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

    /// True for an error of [`has_news`](Self::has_news) or [`next_set`](Self::next_set) that may pass: the server is
    /// down for a while, and has the log when it is back.
    fn may_pass(&self, error: &Error) -> bool {
        let _ = error;
        false
    }
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
    /// True when the set holds commits that are behind the place to stop at.
    pub stopped: bool,
}
