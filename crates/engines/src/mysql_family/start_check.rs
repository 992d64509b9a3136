//! Proof of a restored directory: starts its server on it once, on a private socket and without networking, checks
//! every table, and stops the server.
//!
//! The server runs as the current user, without any configuration file, binary log, events or replication. It runs
//! without its grant tables, because their passwords are unknown here; only this user can reach the socket.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::io::{PrivateDirectory, end_with_this_thread};
use fullbore_core::media::ManifestStream;
use fullbore_core::{Error, Result};

use super::emptied;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::credentials::Credentials;
use crate::mysql_family::logical::load::{self, TableText};
use crate::mysql_family::logical::names::quoted;
use crate::mysql_family::single_table::missing_files;
use crate::mysql_family::url::{Endpoint, ServerAddress, TlsOptions};
use crate::mysql_family::version::series;

/// How long the server may take until it answers, recovery included.
const READY_LIMIT: Duration = Duration::from_secs(3600);
/// How long it may take to shut down.
const STOP_LIMIT: Duration = Duration::from_secs(600);
/// How long it may be silent while it checks one table.
const CHECK_LIMIT: Duration = Duration::from_secs(24 * 3600);
const TICK: Duration = Duration::from_millis(50);
/// How much of the end of its log is searched for errors, and how many are shown.
const LOG_END: usize = 64 << 10;
const ERRORS_MAX: usize = 3;
/// The option that takes single tables out of a backup.
pub const TABLE: &str = "--table";
/// How many tables that are not OK are named.
const NAMED_MAX: usize = 10;

/// A server's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerProgram {
    pub(crate) dialect: Dialect,
    path: PathBuf,
    /// As the program reports it.
    pub version: String,
    /// The option that it is started for.
    purpose: &'static str,
    /// The system time zone that it is started with, as `TZ` has it; None: that of this process.
    pub(crate) zone: Option<String>,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// From the start until it answered: recovery.
    pub ready: Duration,
    /// For all tables.
    pub checking: Duration,
    /// How many were checked.
    pub tables: u64,
    /// How many of them were loaded from texts before.
    pub loaded: u64,
}

impl ServerProgram {
    /// Finds the program for a backup of `engine` in this version ("MariaDB 10.11.18"): `named`, or a program in PATH.
    /// `purpose` is the option that needs it, for errors.
    ///
    /// # Errors
    /// No program was found, it is of another series, or it would run as root.
    pub fn find(engine: &str, engine_version: &str, named: Option<&Path>, purpose: &'static str) -> Result<Self> {
        let usage = |why: &str, hint: &str| Err(Error::usage(purpose, why, hint));
        let Some(dialect) = Dialect::named(engine) else {
            return usage("only servers can be started: MySQL and MariaDB", "leave it out");
        };
        let names: &[&str] = match dialect {
            Dialect::MySql => &["mysqld"],
            Dialect::MariaDb => &["mariadbd", "mysqld"],
        };
        if rustix::process::geteuid().is_root() {
            return usage(
                "the server would run as root on the data of the backup",
                "run fullbore as the user of the server: sudo -u mysql fullbore …",
            );
        }
        let program = match named {
            Some(path) => Self { dialect, path: path.to_owned(), version: version_of(path)?, purpose, zone: None },
            None => {
                let in_path = in_path(names, &std::env::var_os("PATH").unwrap_or_default());
                let found = in_path.into_iter().filter_map(|path| Some((version_of(&path).ok()?, path)));
                let found = found.map(|(version, path)| Self { dialect, path, version, purpose, zone: None });
                Self::choose(found.collect(), engine_version, purpose)?
            }
        };
        program.demand_series(engine_version)?;
        Ok(program)
    }

    /// The first program in PATH of the backup's series, or else the first of its kind. MariaDB is also installed as
    /// `mysqld`.
    fn choose(found: Vec<Self>, engine_version: &str, purpose: &'static str) -> Result<Self> {
        let (mut ours, others): (Vec<Self>, Vec<Self>) = found.into_iter().partition(Self::is_of_its_kind);
        let same = ours.iter().position(|program| series(&program.version) == series(engine_version));
        if !ours.is_empty() {
            return Ok(ours.swap_remove(same.unwrap_or(0)));
        }
        let seen: Vec<String> =
            others.iter().map(|program| format!("{} is {}", program.path.display(), program.version)).collect();
        let seen = if seen.is_empty() { String::new() } else { format!(" ({})", seen.join(", ")) };
        let why = format!("there is no server program for {engine_version} in PATH{seen}");
        Err(Error::usage(purpose, why, "name the program with --server-program"))
    }

    fn is_of_its_kind(&self) -> bool {
        self.version.contains("MariaDB") == (self.dialect == Dialect::MariaDb)
    }

    /// The program.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn demand_series(&self, engine_version: &str) -> Result<()> {
        if self.is_of_its_kind() && series(&self.version) == series(engine_version) && series(engine_version) != (0, 0)
        {
            return Ok(());
        }
        Err(Error::refused(
            self.path.display().to_string(),
            format!("it has version {}, but the backup is of {engine_version}", self.version),
            "name a server of the same series with --server-program",
        ))
    }

    /// Starts it on `directory`, loads the tables that are stored there as texts, checks every table, and stops it.
    /// `options` are further options of the server, without their dashes; `position` and `streams` are from the backup.
    /// Loaded texts are removed, except those of tables in memory, which the server forgets when it stops.
    ///
    /// # Errors
    /// It does not start, a table is not OK, or it does not stop by itself; the server has ended in any case.
    pub fn check(
        &self,
        directory: &Path,
        position: &serde_json::Value,
        streams: &[ManifestStream],
        options: &[String],
        halt: &Halt,
    ) -> Result<Checked> {
        let mut started = self.start_recovered(directory, position, streams, options, &without_account()?, halt)?;
        let begun = Instant::now();
        let texts = load::texts(streams);
        let restored = |schema: &str, name: &str, engine: &str| {
            let stored = || texts.iter().any(|text| text.table.schema == schema && text.table.name == name);
            self.dialect == Dialect::MariaDb || matches!(engine, "InnoDB" | "MyISAM" | "CSV") || stored()
        };
        let checked = check_tables(&mut started.connection, &restored);
        let tables = checked.map_err(|error| started.server.explained(error))?;
        let (ready, loaded, checking) = (started.ready, started.loaded, begun.elapsed());
        started.stop(directory, halt)?;
        Ok(Checked { ready, checking, tables, loaded })
    }

    /// Starts it on `directory`, waits for its recovery, and loads the tables that are stored there as texts. The other
    /// parameters, and errors, are those of [`check`](Self::check). `account` is for a server with grant tables.
    pub(crate) fn start_recovered(
        &self,
        directory: &Path,
        position: &serde_json::Value,
        streams: &[ManifestStream],
        options: &[String],
        account: &Credentials,
        halt: &Halt,
    ) -> Result<Started> {
        let begun = Instant::now();
        let start = || -> Result<Running> {
            let mut server = Running::start(self, directory, position, options)?;
            server.account = account.clone();
            Ok(server)
        };
        let mut server = start()?;
        let ready = server.wait_until_ready(halt);
        let mut connection = match ready {
            Err(_) if position["parallel_appliers"].as_u64() > Some(0) && server.finds_prepared() => {
                drop(server);
                self.roll_back_prepared(directory, position, options, halt)?;
                server = start()?;
                server.wait_until_ready(halt)?
            }
            ready => ready?,
        };
        let ready = begun.elapsed();
        connection.set_silence(CHECK_LIMIT);
        if self.dialect == Dialect::MySql && !emptied::is_emptied(position) {
            emptied::make_empty(&mut connection).map_err(|error| server.explained(error))?;
        }
        let texts: Vec<TableText> =
            load::texts(streams).into_iter().filter(|text| directory.join(&text.path).exists()).collect();
        for text in &texts {
            server.load(directory, text, halt).map_err(|error| server.explained(error))?;
        }
        let loaded = texts.len() as u64;
        let kept = texts.into_iter().filter(|text| !text.table.is_in_memory()).collect();
        Ok(Started { server, connection, ready, loaded, kept })
    }

    /// The copy of a replica with parallel appliers may hold prepared transactions that waited for an earlier one. They
    /// are in no binary log, and the source sends them again. With this option the server rolls them back and ends.
    fn roll_back_prepared(
        &self,
        directory: &Path,
        position: &serde_json::Value,
        options: &[String],
        halt: &Halt,
    ) -> Result<()> {
        let mut options = options.to_vec();
        options.push("tc-heuristic-recover=ROLLBACK".into());
        let mut server = Running::start(self, directory, position, &options)?;
        match server.end_within(READY_LIMIT, halt)? {
            Some(_) => Ok(()),
            None => Err(server.refused("it does not end after the rollback of its prepared transactions".into())),
        }
    }

    fn command(&self, private: &Path, directory: &Path, position: &serde_json::Value, options: &[String]) -> Command {
        let mut command = Command::new(&self.path);
        let path = |name: &str, path: &Path| format!("--{name}={}", path.display());
        command.arg("--no-defaults");
        command.args([path("datadir", directory), path("tmpdir", private), path("pid-file", &private.join("pid"))]);
        command.arg(path("socket", &private.join(SOCKET)));
        command.args(["--skip-networking", "--skip-grant-tables", "--skip-log-bin", "--performance-schema=OFF"]);
        command.args(["--innodb-buffer-pool-load-at-startup=OFF", "--innodb-buffer-pool-dump-at-shutdown=OFF"]);
        if self.dialect == Dialect::MariaDb {
            command.arg(format!("--innodb-buffer-pool-size={}", recovery_pool(directory)));
        }
        command.args(match self.dialect {
            Dialect::MariaDb => &["--skip-slave-start"][..],
            // Its X Protocol would open another socket; keys and certificates must not be made here.
            Dialect::MySql => &[
                // The first one is new in 8.0.26, the second one is gone in 8.4.
                "--loose-skip-replica-start",
                "--loose-skip-slave-start",
                "--loose-mysqlx=OFF",
                "--loose-auto-generate-certs=OFF",
                // The maximum, for texts of tables.
                "--max-allowed-packet=1G",
            ],
        });
        for name in ["innodb_page_size", "lower_case_table_names"] {
            if let Some(value) = position[name].as_u64() {
                command.arg(format!("--{name}={value}"));
            }
        }
        if let Some(files) = position["innodb_data_file_path"].as_str().filter(|files| !files.is_empty()) {
            command.arg(format!("--innodb_data_file_path={files}"));
        }
        command.args(options.iter().map(|option| format!("--{option}")));
        command.envs(self.zone.iter().map(|zone| ("TZ", zone)));
        command
    }
}

/// Bytes of the buffer pool for MariaDB's recovery of this directory: room for its whole redo log. A larger log is
/// recovered in several batches, where 10.11.18 aborted with a log of 582 MiB ("outside the bounds of the file:
/// .//undo001"; found by `tests/campaigns/ddl`). Short undo files can cause that too
/// (`mariadb/undo_length.rs`). The server uses only as much memory as the log needs.
fn recovery_pool(directory: &Path) -> u64 {
    const LEAST: u64 = 128 << 20;
    const MOST: u64 = 4 << 30;
    let log = fs::metadata(directory.join("ib_logfile0")).map_or(0, |log| log.len());
    log.saturating_mul(2).clamp(LEAST, MOST)
}

/// A server that has recovered a restored directory.
pub(crate) struct Started {
    pub server: Running,
    pub connection: Connection,
    /// From the start until it answered.
    pub ready: Duration,
    /// How many tables were loaded from texts.
    pub loaded: u64,
    /// Texts of tables that now exist.
    kept: Vec<TableText>,
}

impl Started {
    /// Stops the server as an operator would, and removes texts that it has loaded.
    pub fn stop(self, directory: &Path, halt: &Halt) -> Result<()> {
        self.connection.quit();
        self.server.stop(halt)?;
        load::remove(directory, &self.kept.iter().collect::<Vec<_>>())
    }
}

const SOCKET: &str = "s";

/// A server that runs in a private directory. A drop kills it and removes the directory.
pub(crate) struct Running {
    child: Child,
    private: PrivateDirectory,
    address: ServerAddress,
    /// Any account will do for a server without its grant tables.
    pub(crate) account: Credentials,
    program: String,
    purpose: &'static str,
}

impl Running {
    pub(crate) fn start(
        program: &ServerProgram,
        directory: &Path,
        position: &serde_json::Value,
        options: &[String],
    ) -> Result<Self> {
        Self::start_reading(program, directory, position, options, Stdio::null())
    }

    /// The same with something to read.
    pub(crate) fn start_reading(
        program: &ServerProgram,
        directory: &Path,
        position: &serde_json::Value,
        options: &[String],
        input: Stdio,
    ) -> Result<Self> {
        let directory =
            fs::canonicalize(directory).map_err(|e| Error::io("find", directory.display().to_string(), e))?;
        // The path of a socket has at most 107 bytes.
        let private = PrivateDirectory::new(&std::env::temp_dir(), "start")?;
        let path = private.path();
        let begun = (|| {
            let log = File::create(path.join(LOG)).map_err(|e| Error::io("create", path.display().to_string(), e))?;
            let again = log.try_clone().map_err(|e| Error::io("open", path.display().to_string(), e))?;
            let mut command = program.command(path, &directory, position, options);
            // In a group of its own: Ctrl-C is for this program, which stops it.
            command.stdin(input).stdout(log).stderr(again).current_dir(path).process_group(0);
            // If this program is killed, it cannot stop the server itself.
            end_with_this_thread(&mut command);
            command.spawn().map_err(|e| Error::io("start", program.path.display().to_string(), e))
        })();
        let child = begun?;
        let endpoint = Endpoint::Socket(path.join(SOCKET));
        let tls = TlsOptions::default();
        let dialect = program.dialect;
        let address =
            ServerAddress { dialect, endpoint, user: None, database: None, tls, datadir: None, read_timeout: None };
        let name = program.path.display().to_string();
        let account = without_account()?;
        Ok(Self { child, private, address, account, program: name, purpose: program.purpose })
    }

    /// The private directory.
    pub(crate) fn private(&self) -> &Path {
        self.private.path()
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.private.path().join(SOCKET)
    }

    pub(crate) fn wait_until_ready(&mut self, halt: &Halt) -> Result<Connection> {
        let since = Instant::now();
        loop {
            halt.check()?;
            if let Some(status) = self.ended()? {
                return Err(self.refused(format!("it ended with {status} instead of starting")));
            }
            // Before it listens it refuses connections; while it starts it may also close them.
            if self.private.path().join(SOCKET).exists()
                && let Ok(connection) = Connection::open(&self.address, &self.account, Some(halt.clone()))
            {
                return Ok(connection);
            }
            if since.elapsed() > READY_LIMIT {
                return Err(self.refused(format!("it does not answer after {} seconds", READY_LIMIT.as_secs())));
            }
            std::thread::sleep(TICK);
        }
    }

    /// Over a separate connection: the text changes settings of its session.
    fn load(&self, directory: &Path, text: &TableText, halt: &Halt) -> Result<()> {
        let mut connection = Connection::open(&self.address, &self.account, Some(halt.clone()))?;
        connection.set_silence(CHECK_LIMIT);
        load::load(&mut connection, directory, text)?;
        connection.quit();
        Ok(())
    }

    /// Shuts it down as an operator would.
    pub(crate) fn stop(mut self, halt: &Halt) -> Result<()> {
        if let Some(id) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            // It may have ended already: the next check finds that.
            let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        }
        match self.end_within(STOP_LIMIT, halt)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.refused(format!("it ended with {status} when it was stopped"))),
            None => Err(self.refused(format!("it did not stop within {} seconds", STOP_LIMIT.as_secs()))),
        }
    }

    /// Waits for its end; `None` if it runs for longer than `limit`.
    pub(crate) fn end_within(&mut self, limit: Duration, halt: &Halt) -> Result<Option<ExitStatus>> {
        let since = Instant::now();
        loop {
            halt.check()?;
            let ended = self.ended()?;
            if ended.is_some() || since.elapsed() > limit {
                return Ok(ended);
            }
            std::thread::sleep(TICK);
        }
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().map_err(|error| Error::io("wait for", &self.program, error))
    }

    /// Explains an error of the connection: the server may have ended.
    pub(crate) fn explained(&mut self, error: Error) -> Error {
        std::thread::sleep(TICK);
        match self.ended() {
            Ok(Some(status)) => self.refused(format!("it ended with {status} during a query: {error}")),
            _ => error,
        }
    }

    /// The error of a server that does not apply log sets.
    pub(crate) fn refused_logs(&self, why: &str) -> Error {
        let hint = "restore to an earlier time, with --stop-at; add options that the server needs with --server-option";
        Error::refused(&self.program, format!("the server does not apply the log sets: {why}"), hint)
    }

    /// The server's log so far.
    pub(crate) fn log(&self) -> Result<String> {
        let path = self.private.path().join(LOG);
        let log = fs::read(&path).map_err(|e| Error::io("read", path.display().to_string(), e))?;
        Ok(String::from_utf8_lossy(&log).into_owned())
    }

    /// True if it ended because of prepared transactions.
    fn finds_prepared(&self) -> bool {
        self.log().is_ok_and(|log| log.lines().any(|line| line.contains("[ERROR]") && line.contains(PREPARED)))
    }

    pub(crate) fn refused(&self, why: String) -> Error {
        let errors = errors_in(&fs::read(self.private.path().join(LOG)).unwrap_or_default(), self.purpose == TABLE);
        let said = if errors.is_empty() { String::new() } else { format!("; its log says: {errors}") };
        let hint = format!(
            "restore without {} to inspect the directory; add options that the server needs (keys, plugins) with \
             --server-option",
            self.purpose
        );
        Error::refused(&self.program, format!("the server does not run on the restored directory: {why}{said}"), hint)
    }
}

/// The account for a server that runs without its grant tables.
pub(crate) fn without_account() -> Result<Credentials> {
    Credentials::new("root", b"")
}

const LOG: &str = "log";
/// Part of MariaDB's message: "Found 2 prepared transactions! …".
const PREPARED: &str = "prepared transactions";

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill(); // It may have ended by itself.
        let _ = self.child.wait();
    }
}

/// The error that CHECK TABLE finds in a table; `quoted` is its name in a statement.
///
/// # Errors
/// The server does not answer.
pub(crate) fn fault_of_table(connection: &mut Connection, quoted: &str) -> Result<Option<String>> {
    let fine = |text: &str| text == "OK" || text == "Table is already up to date";
    let answer = connection.query(&format!("CHECK TABLE {quoted}"))?;
    let wrong = |row: Vec<Option<String>>| match <[_; 4]>::try_from(row) {
        Ok([_, _, Some(kind), Some(text)]) => {
            let kind = kind.to_ascii_lowercase();
            (kind == "error" || (kind == "status" && !fine(&text))).then_some(text)
        }
        _ => None,
    };
    Ok(answer.rows.into_iter().find_map(wrong))
}

/// `restored` tells by schema, name and engine whether a table can have data: a clone has only the names of ARCHIVE
/// tables.
fn check_tables(connection: &mut Connection, restored: &dyn Fn(&str, &str, &str) -> bool) -> Result<u64> {
    let all = "SELECT table_schema, table_name, engine FROM information_schema.tables \
               WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND engine IS NOT NULL \
               AND engine NOT IN ('PERFORMANCE_SCHEMA', 'MEMORY') \
               AND table_schema NOT IN ('information_schema', 'performance_schema')";
    let tables = connection.query(all)?.rows;
    let (mut count, mut bad) = (0, Vec::new());
    for row in tables {
        let [Some(schema), Some(table), Some(engine)] = &row[..] else { continue };
        if !restored(schema, table, engine) {
            continue;
        }
        count += 1;
        if let Some(text) = fault_of_table(connection, &format!("{}.{}", quoted(schema), quoted(table)))? {
            bad.push(format!("{schema}.{table}: {text}"));
        }
    }
    if bad.is_empty() {
        return Ok(count);
    }
    let named = bad.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join("; ");
    Err(Error::incomplete(
        "--start-check",
        format!("{} of {count} tables of the restored server are not OK: {named}", bad.len()),
        "they may have been damaged before the backup: restore without --start-check to inspect them",
    ))
}

/// The last errors of a server's log, or its last line if there are none; on one line. With `incomplete`, missing files
/// are not errors.
fn errors_in(log: &[u8], incomplete: bool) -> String {
    let end = String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_END)..]).into_owned();
    let is_error = |line: &&str| line.contains("[ERROR]") && !(incomplete && missing_files::is_expected(line));
    let mut errors: Vec<&str> = end.lines().filter(is_error).collect();
    if errors.is_empty() {
        errors.extend(end.lines().rfind(|line| !line.trim().is_empty()));
    }
    let first =
        errors.iter().take(ERRORS_MAX).map(|line| line.split_once("[ERROR]").map_or(*line, |(_, text)| text.trim()));
    first.collect::<Vec<_>>().join("; ").chars().filter(|c| !c.is_control()).take(1000).collect()
}

/// The programs of these names in the folders of a PATH, and in each `sbin` beside a `bin` of it: servers are in
/// `sbin`, which the PATH of a user does not have.
fn in_path(names: &[&str], path: &OsStr) -> Vec<PathBuf> {
    let folders: Vec<PathBuf> = std::env::split_paths(path).filter(|folder| folder.is_absolute()).collect();
    let beside = folders.iter().filter(|folder| folder.ends_with("bin")).map(|folder| folder.with_file_name("sbin"));
    let folders: Vec<PathBuf> = folders.iter().cloned().chain(beside).collect();
    let files = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files.filter(|path| path.is_file()).collect()
}

fn version_of(path: &Path) -> Result<String> {
    let shown = path.display().to_string();
    let output = Command::new(path).args(["--no-defaults", "--version"]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| Error::io("start", &shown, error))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_once("Ver ").and_then(|(_, rest)| rest.split_whitespace().next());
    let version = version.filter(|version| version.chars().all(|c| c.is_ascii_graphic()) && version.len() < 100);
    version.map(str::to_owned).ok_or_else(|| {
        Error::refused(
            shown,
            "it does not report its version like a server program",
            "name mysqld or mariadbd with --server-program",
        )
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn mariadb_recovers_with_room_for_its_whole_redo_log() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(recovery_pool(directory.path()), 128 << 20, "no log, and what the server takes by itself");
        let log = File::create(directory.path().join("ib_logfile0")).unwrap();
        for (length, pool) in [(96 << 20, 192 << 20), (600 << 20, 1200 << 20), (100 << 30, 4 << 30)] {
            log.set_len(length).unwrap();
            assert_eq!(recovery_pool(directory.path()), pool);
        }
    }

    #[test]
    fn only_a_server_of_the_same_kind_and_series_will_do() {
        let program = |dialect, version: &str| ServerProgram {
            dialect,
            path: "/x".into(),
            version: version.into(),
            purpose: "--table",
            zone: None,
        };
        program(Dialect::MariaDb, "10.11.19-MariaDB-0+deb12u1").demand_series("MariaDB 10.11.18").unwrap();
        program(Dialect::MySql, "9.7.4-2").demand_series("MySQL 9.7.1").unwrap();
        for (dialect, version, backup) in [
            (Dialect::MariaDb, "11.8.6-MariaDB", "MariaDB 10.11.18"),
            (Dialect::MariaDb, "9.7.4", "MariaDB 10.11.18"),
            (Dialect::MySql, "10.11.18-MariaDB", "MySQL 10.11.1"),
            (Dialect::MySql, "8.4.1", "MySQL 9.7.1"),
            (Dialect::MySql, "", ""),
        ] {
            let error = program(dialect, version).demand_series(backup).unwrap_err().to_string();
            assert!(error.contains("--server-program"), "{error}");
        }
    }

    #[test]
    fn the_server_program_of_the_backups_kind_and_series_is_taken_from_path() {
        let choose = |dialect, versions: &[(&str, &str)], backup: &str| {
            let program = |(path, version): &(&str, &str)| ServerProgram {
                dialect,
                path: path.into(),
                version: (*version).into(),
                purpose: "--table",
                zone: None,
            };
            ServerProgram::choose(versions.iter().map(program).collect(), backup, "--table")
        };
        let found =
            [("/usr/sbin/mysqld", "10.11.14-MariaDB-0+deb12u2"), ("/old/mysqld", "8.4.1"), ("/new/mysqld", "9.7.4")];
        let taken = |dialect, backup| choose(dialect, &found, backup).unwrap().path;
        assert_eq!(taken(Dialect::MySql, "MySQL 9.7.1"), Path::new("/new/mysqld"));
        assert_eq!(taken(Dialect::MySql, "MySQL 9.8.0"), Path::new("/old/mysqld"), "it is refused with its version");
        assert_eq!(taken(Dialect::MariaDb, "MariaDB 10.11.2"), Path::new("/usr/sbin/mysqld"));
        let refused = |found: &[(&str, &str)]| choose(Dialect::MySql, found, "MySQL 9.7.1").unwrap_err();
        let error = refused(&found[..1]);
        assert_eq!(error.exit_kind().exit_code(), 2);
        let text = error.to_string();
        assert!(text.contains("/usr/sbin/mysqld is 10.11.14-MariaDB") && text.contains("--server-program"), "{text}");
        assert!(refused(&[]).to_string().contains("no server program for MySQL 9.7.1 in PATH"));
    }

    #[test]
    fn programs_are_looked_for_in_path_and_in_the_sbin_beside_each_bin() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["usr/bin", "usr/sbin", "own", "sbin"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        for name in ["usr/sbin/mysqld", "own/mysqld", "own/mariadbd", "sbin/mysqld"] {
            fs::write(at(name), "").unwrap();
        }
        let path = std::env::join_paths([at("usr/bin"), at("own"), "own".into()]).unwrap();
        let found = in_path(&["mariadbd", "mysqld"], &path);
        assert_eq!(found, [at("own/mariadbd"), at("own/mysqld"), at("usr/sbin/mysqld")]);
        assert_eq!(in_path(&["mysqld"], OsStr::new("")), Vec::<PathBuf>::new());
    }

    #[test]
    fn the_errors_of_a_log_are_told_without_its_other_lines_and_escapes() {
        let log = "2026 0 [Note] fine\n2026 0 [ERROR] InnoDB: no \x1b[1mkey\n2026 0 [ERROR] Aborting\n";
        assert_eq!(errors_in(log.as_bytes(), false), "InnoDB: no [1mkey; Aborting");
        let missing = "[ERROR] InnoDB: File ./a/b.ibd was not found\n[ERROR] Aborting\n";
        assert_eq!(errors_in(missing.as_bytes(), false), "InnoDB: File ./a/b.ibd was not found; Aborting");
        assert_eq!(errors_in(missing.as_bytes(), true), "Aborting");
        assert_eq!(errors_in(b"cannot find\nlibaio.so\n\n", false), "libaio.so");
        assert_eq!(errors_in(b"", false), "");
    }
}
