//! What the stub knows: databases, files, the history of backups, running statements, tasks of RDS.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// `@@SERVERNAME`
pub const SERVER_NAME: &str = "STUB";

/// The first LSN of each log.
pub const FIRST_LSN: u128 = 34_000_000_018_400_037;

/// A database.
#[derive(Debug, Clone)]
pub struct Database {
    /// `state_desc`
    pub state: String,
    /// `recovery_model_desc`
    pub recovery_model: String,
    /// `is_in_standby`
    pub in_standby: bool,
    /// Bytes of its data files.
    pub bytes: i64,
}

impl Default for Database {
    fn default() -> Self {
        Self { state: "ONLINE".into(), recovery_model: "FULL".into(), in_standby: false, bytes: 200 << 20 }
    }
}

/// A set on a file.
#[derive(Debug, Clone)]
pub struct StoredSet {
    /// Its database.
    pub database: String,
    /// `D`, `I`, `L`.
    pub kind: String,
    /// BackupSetGUID.
    pub id: String,
    /// ServerName.
    pub server: String,
    /// BackupSize.
    pub bytes: i64,
    /// CompressedBackupSize.
    pub stored_bytes: i64,
    /// The expiration date.
    pub expires: Option<(i32, u32)>,
    /// FirstLSN, LastLSN, CheckpointLSN and DatabaseBackupLSN.
    pub lsns: [u128; 4],
    /// Minutes from the first set to its end.
    pub minute: u32,
}

/// A file, or an object: one family of a media set.
#[derive(Debug, Clone)]
pub struct StoredFile {
    /// MediaSetId.
    pub media: String,
    /// FamilySequenceNumber.
    pub number: i64,
    /// FamilyCount.
    pub families: i64,
    /// Its sets, in order.
    pub sets: Vec<StoredSet>,
}

/// A row of `msdb.dbo.backupset`, with its media.
#[derive(Debug, Clone)]
pub struct Past {
    /// The set.
    pub set: StoredSet,
    /// Identity of its media.
    pub media: String,
    /// Its files.
    pub files: Vec<String>,
    /// How long it took, in whole seconds.
    pub seconds: i64,
}

/// A task of RDS.
#[derive(Debug, Clone)]
pub struct Task {
    /// The states that are still to come; each look takes one, and the last one stays.
    pub states: Vec<(&'static str, i64)>,
    /// Its database.
    pub database: String,
    /// `BACKUP_DB`, `RESTORE_DB`.
    pub kind: &'static str,
    /// The object.
    pub arn: String,
    /// The state of the database after it.
    pub state: &'static str,
}

/// A running BACKUP or RESTORE.
#[derive(Debug, Clone, Copy, Default)]
pub struct Running {
    /// `percent_complete`
    pub percent: u8,
    /// KILL came.
    pub killed: bool,
}

/// What goes wrong, and how fast everything is.
#[derive(Debug, Clone)]
pub struct Faults {
    /// The time of one tenth of a BACKUP or RESTORE.
    pub tenth: Duration,
    /// It stays at this percent until it is killed.
    pub stands_at: Option<u8>,
    /// The server goes away at this percent.
    pub gone_at: Option<u8>,
    /// The server says nothing more from this percent on, on no connection.
    pub silent_at: Option<u8>,
    /// From this percent on the server does not know the run any more, and its connection stays silent.
    pub vanishes_at: Option<u8>,
    /// What the server answers after a BACKUP or RESTORE that ended: `@@ERROR`. `None`: nothing.
    pub ends_with: Option<i64>,
    /// The bytes of an answer to LABELONLY, before its end.
    pub label: Option<Vec<u8>>,
    /// An error of BACKUP and RESTORE.
    pub error: Option<(i32, String)>,
    /// The login may not see the progress.
    pub hides_progress: bool,
    /// The login sees no other session.
    pub sees_itself_only: bool,
    /// The login may not kill.
    pub refuses_kill: bool,
    /// An error of LABELONLY, by its path.
    pub label_error: Option<(String, String)>,
    /// The database stays RESTORING after a RESTORE.
    pub stays_restoring: bool,
    /// `is_damaged` of new sets.
    pub damaged: bool,
    /// How far the clock is ahead of UTC, in minutes.
    pub zone_minutes: Option<i64>,
    /// How long the procedures of RDS that start a task take. The task starts at the end of this time.
    pub starts_after: Duration,
    /// They start the task, and answer nothing.
    pub starts_silently: bool,
    /// The history has no new rows.
    pub forgets: bool,
    /// How tasks of RDS end: SUCCESS, ERROR. `None`: they run until they are cancelled.
    pub task_ends: Option<&'static str>,
}

/// Everything that the stub knows.
pub struct Model {
    /// By name.
    pub databases: BTreeMap<String, Database>,
    /// By path or URL.
    pub files: BTreeMap<String, StoredFile>,
    /// Files that are no backups.
    pub others: BTreeSet<String>,
    /// Beginnings of URLs with a CREDENTIAL.
    pub credentials: Vec<String>,
    /// Oldest first.
    pub history: Vec<Past>,
    /// By session.
    pub running: BTreeMap<i64, Running>,
    /// By number, from 1.
    pub tasks: Vec<Task>,
    /// All batches, with their sessions.
    pub batches: Vec<(i64, String)>,
    /// What goes wrong.
    pub faults: Faults,
    /// The log of each database: its next LSN, the end of its last log backup, and the checkpoint of its last full.
    pub logs: BTreeMap<String, [u128; 3]>,
    pub(super) next_id: u128,
    pub(super) is_gone: bool,
    pub(super) is_silent: bool,
}

impl Default for Model {
    fn default() -> Self {
        let faults = Faults {
            tenth: Duration::from_millis(30),
            stands_at: None,
            gone_at: None,
            silent_at: None,
            vanishes_at: None,
            ends_with: Some(0),
            label: None,
            label_error: None,
            stays_restoring: false,
            damaged: false,
            zone_minutes: Some(60),
            starts_after: Duration::ZERO,
            starts_silently: false,
            error: None,
            hides_progress: false,
            sees_itself_only: false,
            refuses_kill: false,
            forgets: false,
            task_ends: Some("SUCCESS"),
        };
        Self {
            databases: [("shop".to_owned(), Database::default())].into(),
            files: BTreeMap::new(),
            others: BTreeSet::new(),
            credentials: Vec::new(),
            history: Vec::new(),
            running: BTreeMap::new(),
            tasks: Vec::new(),
            batches: Vec::new(),
            faults,
            logs: BTreeMap::new(),
            next_id: 0x1000_0000_0000_0000_0000_0000_0000_0001,
            is_gone: false,
            is_silent: false,
        }
    }
}

impl Model {
    /// A GUID that was not given before.
    pub fn new_guid(&mut self) -> String {
        self.next_id += 1 << 96;
        let digits = format!("{:032X}", self.next_id);
        [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
    }

    /// The LSNs of a new set: a log begins where the last one ended.
    fn next_lsns(&mut self, database: &str, kind: &str) -> [u128; 4] {
        let [next, log_end, full] = self.logs.entry(database.to_owned()).or_insert([FIRST_LSN, FIRST_LSN, 0]);
        let (begin, end) = (*next, *next + 2);
        *next += 10;
        let base = *full;
        match kind {
            "D" => *full = begin + 1,
            "L" => return [std::mem::replace(log_end, end), end, begin + 1, base],
            _ => {}
        }
        [begin, end, begin + 1, base]
    }

    /// Stores a set in `files`, as a finished BACKUP does; `anew` removes what is there.
    pub fn store(&mut self, database: &str, kind: &str, files: &[String], anew: bool) {
        let (id, media) = (self.new_guid(), self.new_guid());
        let set = StoredSet {
            database: database.to_owned(),
            kind: kind.to_owned(),
            id,
            server: SERVER_NAME.into(),
            bytes: 100 << 20,
            stored_bytes: 25 << 20,
            expires: None,
            lsns: self.next_lsns(database, kind),
            minute: self.history.len() as u32,
        };
        let families = files.len() as i64;
        for (number, file) in (1..).zip(files.iter().filter(|file| *file != "NUL")) {
            let known = self.files.get_mut(file).filter(|_| !anew);
            match known {
                Some(known) => known.sets.push(set.clone()),
                None => {
                    let new = StoredFile { media: media.clone(), number, families, sets: vec![set.clone()] };
                    self.files.insert(file.clone(), new);
                }
            }
        }
        if !self.faults.forgets {
            self.history.push(Past { set, media, files: files.to_vec(), seconds: 10 });
        }
    }
}
