//! Lets a private server apply staged relay logs to a restored directory: in parallel, in one run, without network.

pub(in crate::mysql_family) mod account;
pub(super) mod logged_events;
mod wanted;
pub(super) mod without_rows;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};
use serde_json::Value;

use account::Account;
use wanted::Wanted;

use super::cut::place_of;
use super::end::{End, complete_at};
use super::relays::{self, RELAY, Relays};
use super::stage::Stage;
use super::through::xa;
use crate::engine::{AppliedLog, LogReplay, LogStop, LogicalEngine, ReplayOn, Replayed, UnpackedLog};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, ResultSet};
use crate::mysql_family::logical_set::LogicalSets;
use crate::mysql_family::logical_set::selection::{MIGRATION, NOTES};
use crate::mysql_family::outside::outside_files;
use crate::mysql_family::start_check::{Running, ServerProgram};
use crate::mysql_family::system_zone::SystemZone;
use crate::mysql_family::version::is_at_least;

/// How often the server is asked how far it is.
const TICK: Duration = Duration::from_millis(50);
/// How long the server may be silent while it stops its applier.
const SILENCE: Duration = Duration::from_secs(3600);
/// How many workers apply the log.
const WORKERS: usize = 8;
/// How often in a row the applier must be idle before a difference is an error.
const IDLE: u32 = 20;
/// How MySQL begins the error of a worker, and how much of it is shown.
const FAILED_WORKER: &str = "failed executing transaction";
const SAID_MAX: usize = 500;
/// The first MySQL with all statements and options about a replica in their new words.
const NEW_WORDS: [u16; 3] = [8, 0, 26];
/// The columns of `SHOW REPLICA STATUS`, alike in both since MySQL 5.7 and MariaDB 10.
mod column {
    pub const RUNS: usize = 11;
    pub const ERROR: usize = 19;
}

/// A replay that is possible: its server program exists and fits the backup.
pub struct Replay<'a> {
    dialect: Dialect,
    program: ServerProgram,
    on: ReplayOn<'a>,
    stage: Option<Stage>,
}

impl<'a> Replay<'a> {
    /// Finds the server's program.
    ///
    /// # Errors
    /// There is none here of the backup's series.
    pub fn new(dialect: Dialect, on: ReplayOn<'a>) -> Result<Self> {
        let program = ServerProgram::find(dialect.name(), on.engine_version, on.program, "log sets");
        let program = program.map_err(|error| {
            error.noting("a server of the same series applies log sets; restore without them with --set ID of a full")
        })?;
        Ok(Self { dialect, program, on, stage: None })
    }
}

impl LogReplay for Replay<'_> {
    fn stage(&mut self, set: &UnpackedLog<'_>, stop: Option<&LogStop>) -> Result<AppliedLog> {
        let dialect = self.dialect;
        let base = End::read(dialect, &set.stands.position);
        let base = base.map_err(|why| Error::incomplete(set.name, why, "use another full"))?;
        if self.stage.is_none() {
            relays::clear(set.database);
        }
        let stage = self.stage.get_or_insert_with(|| {
            let complete = complete_at(self.on.position).filter(|_| is_of_rows(self.on.position));
            let mut stage = Stage::new(dialect, set.database, &base);
            stage.complete = complete.and_then(|(file, offset)| place_of(&file, offset));
            stage
        });
        stage.add(set, stop)?;
        let position = super::session::as_json(&stage.stands, set.name)?;
        Ok(AppliedLog { stands: super::session::set_end(&stage.stands, position), stopped: stage.cut.stopped })
    }

    fn wants_statements(&self) -> bool {
        // MySQL passes over an XA transaction without rows if it has rules about tables, as behind a logical full, and never ends.
        self.stage
            .as_ref()
            .is_some_and(|stage| stage.redefines || stage.prepares_nothing && self.dialect == Dialect::MySql)
    }

    fn run(self: Box<Self>, directory: &Path, stop: Option<&LogStop>, halt: &Halt) -> Result<Replayed> {
        let Self { dialect, mut program, on, stage } = *self;
        let Some(mut stage) = stage else { return Ok(Replayed::default()) };
        stage.demand(stop)?;
        let relays = stage.relays()?;
        match dialect {
            Dialect::MySql => relays.end()?,
            Dialect::MariaDb => relays.close()?,
        }
        let begun = Instant::now();
        write_index(directory, relays)?;
        // None: nothing of the log is applied, because the stop is the end of the full.
        let first = relays.names.first().cloned();
        if dialect == Dialect::MariaDb && first.is_some() {
            write_infos(directory, relays)?;
        }
        let mut options = options(dialect, &stage);
        // `_` alone stands for any letter there.
        let pattern = |name: &str| format!("replicate-wild-ignore-table={}.%", name.replace('_', "\\_"));
        options.extend(stage.defaults.options());
        let ignored = ignored(&on);
        if let Some(place) = stage.alters_sequence.as_ref().filter(|_| !ignored.is_empty()) {
            let why = "it has ALTER SEQUENCE, which the applier of MariaDB passes over behind a logical full";
            let hint = "restore into a running server (--into mariadb://…), or from a physical full; or stop before it";
            return Err(Error::refused(format!("the transaction at {place} of the log"), why, hint));
        }
        options.extend(ignored.into_iter().map(pattern));
        options.extend(on.options.iter().cloned());
        if dialect == Dialect::MariaDb && outside_files(dialect, on.position)?.is_empty() {
            // `DATA DIRECTORY` in the log would write outside of the directory, perhaps into that of a live server.
            options.push("symbolic-links=0".into());
        }
        program.zone = stage.system_zone.as_ref().and_then(SystemZone::environment);
        let account = Account::new(dialect, directory)?;
        options.extend(account.options.iter().cloned());
        let mut started =
            program.start_recovered(directory, on.position, on.streams, &options, &account.credentials, halt)?;
        let (gtid, warnings) = {
            let (server, connection) = (&mut started.server, &mut started.connection);
            connection.set_silence(SILENCE);
            stage.system_zone.as_ref().map_or(Ok(()), |zone| zone.demand_in(connection))?;
            let applied = match &first {
                Some(first) => apply(dialect, connection, server, (&stage, first), (on.position, halt)),
                None => Ok(<(String, Vec<String>)>::default()),
            };
            let applied = applied.and_then(|done| account.drop_it(connection).map(|()| done));
            applied.map_err(|error| server.explained(error))?
        };
        let loaded = started.loaded;
        started.stop(directory, halt)?;
        relays::clear(directory);
        for name in ["master.info", "relay-log.info"] {
            let _ = fs::remove_file(directory.join(name)); // The server has removed them, or never made them.
        }
        Ok(Replayed {
            transactions: stage.counts.0,
            gtid,
            place: stage.stands.binlog.show(),
            seconds: begun.elapsed().as_secs_f64(),
            loaded,
            warnings,
            ..Replayed::default()
        })
    }
}

/// Starts the applier, waits until it is at the end, and lets the server forget its source. Returns the GTIDs then, and warnings.
fn apply(
    dialect: Dialect,
    connection: &mut Connection,
    server: &mut Running,
    (stage, first): (&Stage, &str),
    (position, halt): (&Value, &Halt),
) -> Result<(String, Vec<String>)> {
    // MySQL runs without its grant tables; the log may have statements about accounts, which need them.
    connection.query("FLUSH PRIVILEGES")?;
    let events = logged_events::all(connection)?;
    let (start, show, stop, forget) = match dialect {
        Dialect::MySql if is_at_least(&connection.greeting().version, NEW_WORDS) => {
            connection.query(&format!(
                "CHANGE REPLICATION SOURCE TO RELAY_LOG_FILE = '{first}', RELAY_LOG_POS = 4, \
                 SOURCE_HOST = 'dummy.invalid'"
            ))?;
            ("START REPLICA SQL_THREAD", "SHOW REPLICA STATUS", "STOP REPLICA", "RESET REPLICA ALL")
        }
        _ => {
            if dialect == Dialect::MySql {
                let source = "RELAY_LOG_POS = 4, MASTER_HOST = 'dummy.invalid'";
                connection.query(&format!("CHANGE MASTER TO RELAY_LOG_FILE = '{first}', {source}"))?;
            }
            ("START SLAVE SQL_THREAD", "SHOW SLAVE STATUS", "STOP SLAVE", "RESET SLAVE ALL")
        }
    };
    let of_log = (&stage.defined, stage.alters_sequence.is_some());
    let left_out = without_rows::leave_out(dialect, connection, position, of_log)?;
    let wanted = Wanted::of(dialect, connection, stage)?;
    connection.query(start)?;
    let reached = wait(connection, show, &wanted, halt);
    reached.map_err(|why| match why {
        Why::Fault(error) => error,
        Why::Refused(why) => server.refused_logs(&said_by_worker(&server.log().unwrap_or_default()).unwrap_or(why)),
    })?;
    connection.query(stop)?;
    connection.query(forget)?;
    let mut warnings = stage.events.give_back(connection, &events)?;
    warnings.extend(left_out);
    warnings.extend(xa::warning(xa::prepared(dialect, connection)?.into_iter()));
    let now = wanted.now(connection)?;
    if !wanted.is_reached(&now) {
        return Err(server.refused_logs(&format!("at the end it has the GTIDs `{now}`, not `{}`", wanted.shown())));
    }
    Ok((now, warnings))
}

/// Why the applier did not reach the end.
enum Why {
    Refused(String),
    Fault(Error),
}

impl<E: Into<Error>> From<E> for Why {
    fn from(error: E) -> Self {
        Self::Fault(error.into())
    }
}

/// Waits until the applier has applied everything.
fn wait(connection: &mut Connection, show: &str, wanted: &Wanted, halt: &Halt) -> Result<(), Why> {
    let mut idle = 0;
    loop {
        halt.check()?;
        let status = connection.query(show)?;
        let value = |column: usize| status.value(0, column).unwrap_or_default();
        if !value(column::ERROR).is_empty() {
            return Err(Why::Refused(format!("its applier stopped: {}", without_query(value(column::ERROR)))));
        }
        if value(column::RUNS) != "Yes" {
            return Err(Why::Refused("its applier stopped".into()));
        }
        let now = wanted.now(connection)?;
        let is_idle = has_read_all(&status) && workers_are_idle(connection)?;
        if is_idle && wanted.is_reached(&now) {
            return Ok(());
        }
        // A worker may be idle for a moment before it takes the next group.
        idle = if is_idle { idle + 1 } else { 0 };
        if idle >= IDLE {
            let why = format!("it has applied everything, and has the GTIDs `{now}`, not `{}`", wanted.shown());
            return Err(Why::Refused(why));
        }
        std::thread::sleep(TICK);
    }
}

/// What the first worker that failed says in the server's log. MySQL 8 refers to it in the error of the applier.
fn said_by_worker(log: &str) -> Option<String> {
    let said =
        log.lines().find_map(|line| line.contains("[ERROR]").then(|| line.split_once(FAILED_WORKER)).flatten())?.1;
    let said: String = without_query(said).chars().filter(|letter| !letter.is_control()).take(SAID_MAX).collect();
    Some(format!("its applier stopped: it {FAILED_WORKER}{said}"))
}

/// The error of an applier without the text of its statement: that may have a password or its hash, and values of rows.
fn without_query(error: &str) -> &str {
    let parts = [" Query: '", " near '"];
    let end = parts.iter().filter_map(|part| error.find(part)).min();
    end.and_then(|end| error.get(..end)).unwrap_or(error)
}

/// True when the applier waits for more.
fn has_read_all(status: &ResultSet) -> bool {
    let waits = |text: &Option<String>| {
        text.as_ref().is_some_and(|text| text.contains("has read all relay log") && text.contains("wait"))
    };
    status.rows.first().is_some_and(|row| row.iter().any(waits))
}

/// True when no worker has work.
fn workers_are_idle(connection: &mut Connection) -> Result<bool> {
    let busy = |row: &Vec<Option<String>>| {
        let text = |column: usize| row.get(column).and_then(Option::as_deref).unwrap_or_default();
        let applies = matches!(text(4), "Query" | "Connect" | "Slave_worker" | "Slave_SQL");
        let waits =
            ["Waiting for an event from Coordinator", "Waiting for work from SQL thread", "has read all relay log"];
        applies && text(1) == "system user" && !waits.iter().any(|wait| text(6).contains(wait))
    };
    Ok(!connection.query("SHOW FULL PROCESSLIST")?.rows.iter().any(busy))
}

/// The options of the server that applies the logs.
fn options(dialect: Dialect, stage: &Stage) -> Vec<String> {
    // With the id of a server in the log, its events would be skipped without an error.
    let id = (1_u32..).find(|id| !stage.servers.contains(id)).unwrap_or(1);
    let mut options = vec![
        format!("server-id={id}"),
        format!("relay-log={RELAY}"),
        format!("relay-log-index={RELAY}.index"),
        "relay-log-recovery=0".into(),
        "relay-log-purge=0".into(),
        // A run that is broken off is done again from the media.
        "sync-binlog=0".into(),
        "innodb-flush-log-at-trx-commit=0".into(),
        "innodb-doublewrite=0".into(),
        // What a session of the source took without it, the server takes.
        "innodb-strict-mode=0".into(),
    ];
    match dialect {
        Dialect::MySql => {
            let mode = match stage.counts {
                (_, 0) => "ON",
                (all, anonymous) if all == anonymous => "OFF",
                _ => "ON_PERMISSIVE",
            };
            options.push(format!("gtid-mode={mode}"));
            options.push(format!("enforce-gtid-consistency={}", if mode == "OFF" { "OFF" } else { "ON" }));
            // Each series knows one of both words, or both.
            for word in ["replica", "slave"] {
                options.push(format!("loose-{word}-parallel-workers={WORKERS}"));
                options.push(format!("loose-{word}-preserve-commit-order=0"));
            }
        }
        Dialect::MariaDb => {
            options.push(format!("slave-parallel-threads={WORKERS}"));
            options.push("slave-parallel-mode=optimistic".into());
        }
    }
    options
}

/// The databases whose changes are left out: behind the rows of a logical set those that it does not hold. Statements about
/// accounts belong to `mysql`.
fn ignored(on: &ReplayOn<'_>) -> Vec<&'static str> {
    let accounts = (!on.accounts).then_some("mysql");
    let own = [NOTES, MIGRATION, "sys"].into_iter().filter(|_| is_of_rows(on.position));
    accounts.into_iter().chain(own).collect()
}

/// Whether the base is a logical set.
fn is_of_rows(position: &Value) -> bool {
    LogicalSets.is_logical(position)
}

fn write_index(directory: &Path, relays: &Relays) -> Result<()> {
    let lines: String = relays.names.iter().map(|name| format!("./{name}\n")).collect();
    write(directory, &format!("{RELAY}.index"), &lines)
}

/// What MariaDB keeps of a source, in its own files: a name that leads nowhere, and where the applier begins.
/// `CHANGE MASTER TO RELAY_LOG_FILE` forgets the source's file name, and then the parallel applier ends the server.
fn write_infos(directory: &Path, relays: &Relays) -> Result<()> {
    // 33 lines, most of them empty, then names with values. Without `using_gtid=0`, MariaDB from 10.10 on looks for GTIDs.
    let mut source = String::from("33\n");
    for line in [relays.first_file.as_str(), "4", "dummy.invalid", "x", "x", "3306", "60", "0"] {
        let _ = writeln!(source, "{line}");
    }
    source.push_str("\n\n\n\n\n0\n30.000\n\n0\n\n0\n\n\n\n\n\n\n\n\n\n\n\n\n\n");
    source.push_str("using_gtid=0\ndo_domain_ids=0\nignore_domain_ids=0\nEND_MARKER\n");
    write(directory, "master.info", &source)?;
    let first = relays.names.first().map(String::as_str).unwrap_or_default();
    write(directory, "relay-log.info", &format!("5\n./{first}\n4\n{}\n4\n0\n", relays.first_file))
}

fn write(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(name);
    fs::write(&path, text).map_err(|error| Error::io("write", path.display().to_string(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_an_applier_has_no_statement() {
        let of_plugin = "Error 'Plugin 'ed25519' is not loaded' on query. Default database: ''.";
        let whole = format!("{of_plugin} Query: 'CREATE USER a IDENTIFIED VIA ed25519 USING PASSWORD('secret')'");
        assert_eq!(without_query(&whole), of_plugin);
        let of_syntax =
            "Error 'check the manual for the right syntax to use near 'AS '*CE2F'' on query. Query: 'GRANT'";
        assert_eq!(without_query(of_syntax), "Error 'check the manual for the right syntax to use");
        assert_eq!(without_query("Slave has stopped"), "Slave has stopped");
        let log = "1 [System] up\n2 [ERROR] [MY-010584] [Repl] Replica SQL: Worker 1 failed executing transaction \
                   'ANONYMOUS' at source log a.000001, end_log_pos 9; Error 'no' on query. Query: 'secret'\n3 [ERROR] next";
        let said = said_by_worker(log).unwrap_or_default();
        assert!(said.ends_with("'ANONYMOUS' at source log a.000001, end_log_pos 9; Error 'no' on query."), "{said}");
        assert_eq!(said_by_worker("1 [Note] failed executing transaction x"), None);
    }
}
