//! A hot copy as a backup's session: two connections to the server, and the facts before and after the copy.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fullbore_core::halt::Halt;
use fullbore_core::io::{Mode, hole_bytes};
use fullbore_core::source::{Source, Stream};
use fullbore_core::{Error, Result};
use serde_json::json;

use super::engine::ACCEPT_LEFT_OUT;
use super::hot_copy::{
    self, CopiedFile, HotCopy, LeftOut, Listing, Outcome, Places, Statements, TableEngines, list, warnings_of_left_out,
};
use super::preflight;
use crate::mysql_family::Dialect;
use crate::mysql_family::account::Channel;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::credentials::{Credentials, PasswordSources};
use crate::mysql_family::innodb::damage;
use crate::mysql_family::logical_set;
use crate::mysql_family::server_options::{ACCEPT_UNVERIFIED, PASSWORD_FILE};
use crate::mysql_family::url::ServerAddress;
use crate::{ExtraWork, Facts, Options, Session};

/// How long the server may be silent beyond the locks that it waits for: it may have much to flush.
const SILENCE: Duration = Duration::from_secs(300);
/// The unit of the expected stream.
const UNIT: u32 = 16384;
/// Smaller files are not asked for holes: they have hardly any.
const HOLES_FROM: u64 = 1 << 20;
/// How many tables that are left out the manifest names.
const LEFT_OUT_MAX: usize = 1000;
/// How many files outside of the data directory a warning names.
const NAMED_MAX: usize = 3;

/// A hot copy that begins with its first reader.
pub struct MariadbSession {
    /// The input of the copy, until it begins.
    start: Mutex<Option<Start>>,
    copy: OnceLock<HotCopy>,
    facts: preflight::Facts,
    datadir: PathBuf,
    /// Bytes of the redo log that were expected.
    redo_bytes: u64,
    /// The server's files before the copy, for estimates: one after another they make one stream.
    pub(super) files: Vec<(PathBuf, u64)>,
    expected: [Stream; 1],
    /// Tables that a copy would not hold, before it begins.
    left_out: Vec<LeftOut>,
    /// That tables and files are left out is known to the user.
    accept_left_out: bool,
}

struct Start {
    /// Holds the lock.
    stages: Connection,
    /// Is asked for LSNs.
    monitor: Connection,
    places: Places,
    options: hot_copy::Options,
}

impl MariadbSession {
    /// Checks the server. Takes no lock yet.
    ///
    /// # Errors
    /// The server refuses, its files are not readable here, or the backup must not be stored in the requested way.
    pub fn open(url: &str, options: &Options) -> Result<Self> {
        let address = ServerAddress::parse(url)?;
        let sources = PasswordSources::of_this_process(options.given.file(&PASSWORD_FILE).map(Into::into));
        let credentials = Credentials::find(&address, &sources)?;
        // Not the job's: a copy that is ended still has to give the lock back.
        let cut = Halt::new();
        let mut stages = Connection::open(&address, &credentials, options.halt.clone())?;
        let facts = preflight::ask(&mut stages, options.given.has(&ACCEPT_UNVERIFIED))?;
        let mut places = Places::ask(&mut stages)?;
        if let Some(datadir) = &address.datadir {
            places.move_to(datadir);
        }
        preflight::demand_readable(&places)?;
        let redo_bytes = redo_bytes(&mut stages);
        stages.quit();
        let mut stages = Connection::open_patient(&address, &credentials, Some(cut.clone()))?;
        stages.set_silence(options.lock_timeout + SILENCE);
        let monitor = Connection::open_patient(&address, &credentials, Some(cut.clone()))?;
        let listing = list(&places)?;
        let left_out = TableEngines::default().look(&listing.others)?;
        let files = sizes(listing);
        crate::streams::demand(&address.name(), files.len() as u64 + 1)?; // And the redo log.
        let size = files.iter().map(|(_, size)| size).sum::<u64>() + redo_bytes;
        let expected = [Stream { id: 1, name: String::new(), unit: UNIT, size }];
        let (datadir, accept_left_out) = (places.datadir.clone(), options.given.has(&ACCEPT_LEFT_OUT));
        let options = hot_copy::Options {
            threads: options.readers,
            mode: Mode::from_environment()?,
            lock_timeout: options.lock_timeout,
            continue_after_error: options.continue_after_error,
            // The key is not in the copy, but the log has the last changes of such tables in clear.
            refuse_encrypted: facts.has_keys && !options.media_encrypted && !facts.encrypts_log,
            halt: options.halt.clone().unwrap_or_default(),
            cut,
        };
        let start = Mutex::new(Some(Start { stages, monitor, places, options }));
        let copy = OnceLock::new();
        Ok(Self { start, copy, facts, datadir, redo_bytes, files, expected, left_out, accept_left_out })
    }

    /// The copy; the first call begins it.
    pub(super) fn copy(&self) -> Result<&HotCopy> {
        let mut start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Start { stages, monitor, places, options }) = start.take() {
            // It is the first.
            let _ = self.copy.set(HotCopy::start(Box::new(stages), Box::new(monitor), places, options)?);
        }
        self.copy.get().ok_or(Error::Halted)
    }

    /// The copy, if it has begun.
    pub(super) fn begun(&self) -> Option<&HotCopy> {
        self.copy.get()
    }

    /// The expected size, as one stream.
    pub(super) fn expected(&self) -> &[Stream] {
        &self.expected
    }

    fn outcome(&self) -> Option<&Outcome> {
        self.begun().and_then(|copy| copy.outcome().ok())
    }
}

/// Bytes of the redo log at the start of a copy: those since the checkpoint. Bytes that are written during the copy are
/// unknown. 0 if the server does not report it.
fn redo_bytes(server: &mut dyn Statements) -> u64 {
    let answer = server.execute("SHOW GLOBAL STATUS LIKE 'Innodb_checkpoint_age'").unwrap_or_default();
    answer.first().and_then(|row| row.number(1)).unwrap_or(0)
}

/// The server's files and their current sizes.
fn sizes(listing: Listing) -> Vec<(PathBuf, u64)> {
    let tablespaces = listing.tablespaces.into_iter().map(|file| file.path);
    let paths = tablespaces.chain(listing.others.into_iter().map(|file| file.path));
    // A file that was removed meanwhile has no size.
    paths
        .map(|path| (std::fs::metadata(&path).map_or(0, |stat| stat.len()), path))
        .map(|(size, path)| (path, size))
        .collect()
}

impl Session for MariadbSession {
    fn engine(&self) -> &'static str {
        Dialect::MariaDb.name()
    }

    fn source(&self) -> &dyn Source {
        self
    }

    /// LSNs, and the place in the binary log that the copy is consistent with, exactly.
    fn position(&self) -> Result<serde_json::Value> {
        let outcome = self.outcome().ok_or(Error::Halted)?;
        let milliseconds = |time: Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
        let blocked = &outcome.blocked;
        let mut position = json!({
            "version": self.facts.version,
            "hostname": self.facts.hostname,
            "server_id": self.facts.server_id,
            "innodb_page_size": self.facts.page_size,
            "innodb_data_file_path": self.facts.data_file_path,
            "lower_case_table_names": self.facts.lower_case_table_names,
            "replica_of": self.facts.channels.iter().map(Channel::described).collect::<Vec<_>>(),
            "parallel_appliers": self.facts.parallel_appliers,
            "gtid_slave_pos": outcome.position.gtid_slave_pos,
            "checkpoint_lsn": outcome.checkpoint.lsn,
            "end_lsn": outcome.end_lsn,
            "binary_log": if self.facts.binary_log { json!(outcome.position) } else { json!(null) },
            "gtid_slave_pos": outcome.position.gtid_slave_pos,
            "blocked_ms": {
                "commits": milliseconds(blocked.commits),
                "of_that_waiting_for_commits": milliseconds(blocked.waited_for_commits),
                "ddl": milliseconds(blocked.ddl),
                "of_that_waiting_for_ddl": milliseconds(blocked.waited_for_ddl),
                "writes_of_other_engines": milliseconds(blocked.other_engines),
            },
            "tablespaces_copied_while_blocked": outcome.copied_while_blocked,
            "other_files_copied_while_blocked": outcome.others_while_blocked,
            "undo_bytes": outcome.undo_lengths,
            "pages_read_again": outcome.torn_pages,
            "encrypted_tablespaces": outcome.files.iter().filter(|file| file.encrypted).count(),
            "outside_the_data_directory": outside(outcome)
                .map(|(file, was)| json!({ "path": file.name, "was": was }))
                .collect::<Vec<_>>(),
        });
        if !outcome.left_out.is_empty() {
            let named = |left: &LeftOut| json!({ "table": left.table, "engine": left.engine });
            position["left_out_tables"] = outcome.left_out.iter().take(LEFT_OUT_MAX).map(named).collect();
            position["left_out_count"] = json!(outcome.left_out.len());
        }
        damage::write(&outcome.damaged, &mut position);
        Ok(position)
    }

    /// A MariaDB server has no id of its own. A wrong full costs only space: a differential leaves out a unit only if
    /// the full has the same bytes.
    fn accepts_base(&self, position: &serde_json::Value) -> Result<(), String> {
        logical_set::refuse_as_base(position)?;
        let told = |name: &str| position.get(name).cloned().unwrap_or_default();
        let (host, server) = (told("hostname"), told("server_id"));
        if host == json!(self.facts.hostname) && server == json!(self.facts.server_id) {
            return Ok(());
        }
        let mine = (&self.facts.hostname, self.facts.server_id);
        Err(format!("of another server (server_id {server} on {host}; this server has {} on {:?})", mine.1, mine.0))
    }

    fn facts(&self) -> Facts {
        let mut warnings = self.facts.warnings.clone();
        let left_out = self.outcome().map_or(&self.left_out, |outcome| &outcome.left_out);
        if !self.accept_left_out {
            warnings.extend(warnings_of_left_out(left_out));
            warnings.extend(self.outcome().iter().flat_map(|outcome| outcome.passed_over.iter().cloned()));
        }
        if let Some(outcome) = self.outcome() {
            warnings.extend(outcome.warnings.iter().cloned());
            warnings.extend(warning_of_outside(outcome));
            warnings.extend(damage::warning(&outcome.damaged));
            warnings.extend(warning_of_keys(outcome).filter(|_| !self.facts.has_keys));
        }
        Facts {
            warnings,
            writers_blocked: self.outcome().map_or(Duration::ZERO, |outcome| outcome.blocked.commits),
            free_bytes: 0,
            library: format!("MariaDB {}", self.facts.version.trim_end_matches("-MariaDB")),
            direct: false,
        }
    }

    fn database_at(&self) -> Result<PathBuf, String> {
        Ok(self.datadir.clone())
    }

    /// Logins, queries and stages of an idle server do not count: before its first byte a job takes 0.095 s here, and
    /// 0.091 s with SQLite.
    fn extra_work(&self) -> ExtraWork {
        ExtraWork {
            files: self.files.len() as u64 + 1, // And the redo log.
            log_bytes: self.redo_bytes,
            hole_bytes: self.files.iter().filter(|(_, size)| *size >= HOLES_FROM).map(holes).sum(),
        }
    }
}

/// The bytes of a file that were never written; 0 for a file that was removed meanwhile.
fn holes((path, size): &(PathBuf, u64)) -> u64 {
    File::open(path).map_or(0, |file| hole_bytes(&file, *size))
}

/// Files outside of the server's data directory.
fn outside(outcome: &Outcome) -> impl Iterator<Item = (&CopiedFile, String)> {
    outcome.files.iter().filter_map(|file| Some((file, file.elsewhere.as_ref()?.display().to_string())))
}

/// The warning of tablespaces that a server without keys cannot read: the copy has them, but a restore needs the keys.
fn warning_of_keys(outcome: &Outcome) -> Option<String> {
    let encrypted: Vec<&str> =
        outcome.files.iter().filter(|file| file.encrypted).map(|file| file.name.as_str()).collect();
    let more = if encrypted.len() > NAMED_MAX { ", …" } else { "" };
    let named = encrypted.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
    (!encrypted.is_empty()).then(|| {
        format!(
            "encrypted tablespaces for which the server has no keys: {} ({named}{more}); they are in this backup as \
             they are, and without the keys that they were written with they cannot be read",
            encrypted.len()
        )
    })
}

fn warning_of_outside(outcome: &Outcome) -> Option<String> {
    // The restored server finds files that its variables place elsewhere in its data directory.
    let tables: Vec<String> =
        outside(outcome).filter(|(file, _)| file.name.ends_with(".ibd")).map(|(_, was)| was).collect();
    let more = if tables.len() > NAMED_MAX { ", …" } else { "" };
    let named = tables.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    (!tables.is_empty()).then(|| {
        format!(
            "tables with a DATA DIRECTORY of their own: {} ({named}{more}); the restored server looks for them there, \
             and a restore says what to do",
            tables.len()
        )
    })
}
