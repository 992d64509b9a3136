//! Servers that write and read their backup files themselves. fullbore gives the order, follows the run and reports it;
//! it moves no byte.

use fullbore_core::Result;
use fullbore_core::media::SetKind;
use serde_json::Value;

use crate::Options;

/// An engine whose servers run backups and restores themselves.
pub trait BackupServer: Sync {
    /// The sentence for people that says how far this is tested.
    fn caveat(&self) -> &'static str;

    /// Connects to the server of `url`; the URL names a database too.
    ///
    /// # Errors
    /// The URL is wrong, the server cannot be reached, or it refuses the account.
    fn connect(&self, url: &str, options: &Options) -> Result<Box<dyn ServerSession>>;
}

/// A backup to run. Its words are those of the command line; the engine refuses what its server does not have.
#[derive(Debug, Clone)]
pub struct BackupOrder {
    /// Full, differential or log.
    pub kind: SetKind,
    /// The places, as the engine spells them.
    pub to: Vec<String>,
    /// The number of files, if it is not the number of places.
    pub stripes: Option<usize>,
    /// The codec, as the engine spells it; `None`: as the server is set.
    pub compression: Option<String>,
    /// Keep it outside the chain.
    pub copy_only: bool,
    /// Existing backups at these places may be replaced.
    pub init: bool,
    /// Store damaged pages as they are.
    pub continue_after_error: bool,
    /// BUFFERCOUNT.
    pub buffer_count: Option<usize>,
    /// MAXTRANSFERSIZE, in bytes.
    pub transfer_size: Option<u64>,
    /// BLOCKSIZE, in bytes.
    pub block_size: Option<u64>,
    /// The name of the set.
    pub name: String,
    /// Its description.
    pub description: String,
    /// The name of the media set.
    pub media_name: String,
    /// Messages in steps of this many percent.
    pub stats: u8,
    /// How long to wait for a lock, in milliseconds; `None`: for ever.
    pub lock_timeout_ms: Option<u64>,
}

impl BackupOrder {
    /// A backup of this kind to these places, with nothing else said.
    pub fn new(kind: SetKind, to: Vec<String>) -> Self {
        Self {
            kind,
            to,
            stripes: None,
            compression: None,
            copy_only: false,
            init: false,
            continue_after_error: false,
            buffer_count: None,
            transfer_size: None,
            block_size: None,
            name: String::new(),
            description: String::new(),
            media_name: String::new(),
            stats: 10,
            lock_timeout_ms: None,
        }
    }
}

/// What a restore does with the database at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RestoreStep {
    /// The only or the last step: the database opens.
    #[default]
    Recovery,
    /// More steps follow.
    NoRecovery,
}

/// A mark in the log of a server: its name, or `lsn:` and an LSN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopMark {
    /// The mark.
    pub mark: String,
    /// Without the transaction of the mark.
    pub before: bool,
    /// Of several marks with this name, the first one at or after this moment, in microseconds since 1970.
    pub after: Option<i64>,
}

/// A restore to run.
#[derive(Debug, Clone, Default)]
pub struct RestoreOrder {
    /// The places, as the engine spells them. Empty: only the recovery of a database that is restoring.
    pub from: Vec<String>,
    /// The set, by a part of its id.
    pub set: Option<String>,
    /// The newest set of the files.
    pub latest: bool,
    /// The set at this position of its media.
    pub position: Option<u16>,
    /// The kind of the set, if the server cannot say it before it reads.
    pub kind: Option<SetKind>,
    /// An existing database may be replaced.
    pub replace: bool,
    /// Its end.
    pub step: RestoreStep,
    /// Stop at this moment, in microseconds since 1970.
    pub stop_at: Option<i64>,
    /// Stop at a mark in the log.
    pub stop_mark: Option<StopMark>,
    /// The database can be read between steps: a file on the server for what recovery undoes.
    pub standby: Option<String>,
    /// Other places for files of the database: logical name and path on the server.
    pub moves: Vec<(String, String)>,
    /// Restore damaged pages as they are.
    pub continue_after_error: bool,
    /// BUFFERCOUNT.
    pub buffer_count: Option<usize>,
    /// Messages in steps of this many percent.
    pub stats: u8,
}

/// How far a run is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// What the server says of its progress, 0 to 100.
    pub percent: f64,
    /// Bytes of the whole, if they are known beforehand.
    pub total_bytes: u64,
}

/// Hears how far a run is, again and again. With an error, the server is told to end the run, and this is its error.
pub type Look<'a> = &'a mut dyn FnMut(&Seen) -> Result<()>;

/// A file of a set on the host of its server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerFile {
    /// Its place, as the command line spells it.
    pub place: String,
    /// Its bytes, if the server says them.
    pub bytes: Option<u64>,
}

/// A backup set, as its server knows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerSet {
    /// Full, differential, log.
    pub kind: Option<SetKind>,
    /// Identity of the set.
    pub backup_set_id: Option<String>,
    /// Identity of the media set.
    pub media_set_id: Option<String>,
    /// Bytes before compression.
    pub bytes: u64,
    /// Bytes on the media.
    pub stored_bytes: u64,
    /// By the clock of the server, without a zone.
    pub started_at: Option<String>,
    /// The same.
    pub finished_at: Option<String>,
    /// First and last position that a restore needs, and the position of the checkpoint, in the words of the server.
    pub first: Value,
    /// The same.
    pub checkpoint: Value,
    /// The same.
    pub last: Value,
    /// Whether the server found checksums in it, or wrote them.
    pub has_checksums: Option<bool>,
}

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerOutcome {
    /// The set that was written or read.
    pub set: ServerSet,
    /// Its files.
    pub files: Vec<ServerFile>,
    /// The statements that ran, without secrets.
    pub statements: Vec<String>,
    /// Version of the server.
    pub server: String,
    /// The server's own number of the run: a session, or a task.
    pub run: Option<String>,
    /// What the user should know, although it is done.
    pub warnings: Vec<String>,
    /// Facts that need no action.
    pub notes: Vec<String>,
}

/// A backup in the history of its server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EarlierBackup {
    /// Bytes before compression.
    pub bytes: u64,
    /// Bytes on the media.
    pub stored_bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Its files.
    pub files: usize,
    /// By the clock of the server.
    pub finished_at: String,
}

/// A connection to such a server, for one database.
pub trait ServerSession {
    /// The server's name for people.
    fn name(&self) -> String;

    /// The database's name on the server.
    fn database(&self) -> &str;

    /// The statements that `order` becomes, after all checks that change nothing.
    ///
    /// # Errors
    /// The order has a word that the server does not have, or the server forbids it.
    fn plan_backup(&mut self, order: &BackupOrder) -> Result<ServerOutcome>;

    /// Runs a backup. `look` hears how far it is.
    ///
    /// # Errors
    /// As [`plan_backup`](Self::plan_backup); the run fails; or the error of `look`.
    fn backup(&mut self, order: &BackupOrder, look: Look<'_>) -> Result<ServerOutcome>;

    /// The statements that `order` becomes, after all checks that change nothing.
    ///
    /// # Errors
    /// As for [`plan_backup`](Self::plan_backup).
    fn plan_restore(&mut self, order: &RestoreOrder) -> Result<ServerOutcome>;

    /// Runs a restore. `look` hears how far it is.
    ///
    /// # Errors
    /// As for [`backup`](Self::backup).
    fn restore(&mut self, order: &RestoreOrder, look: Look<'_>) -> Result<ServerOutcome>;

    /// Earlier backups of the database of the same kind, newest first; and the bytes that a backup would read now.
    ///
    /// # Errors
    /// The server does not say them.
    fn history(&mut self, order: &BackupOrder) -> Result<(Vec<EarlierBackup>, u64)>;
}
