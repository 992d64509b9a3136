//! One moment for all connections, and its place in the binary log.

use std::time::{Duration, Instant};

use fullbore_core::{Error, Result};
use serde_json::{Value, json};

use super::listing::{Kind, Listing};
use super::server::{Facts, Login};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure, ServerError};

/// How long MariaDB's snapshots are compared before a lock is tried. Under 4,000 transactions a second it took 20 ms.
const COMPARING: Duration = Duration::from_secs(20);
/// How long the server may be silent beyond a lock that it waits for.
const SILENCE: Duration = Duration::from_secs(60);
/// The answers to a lock that the account may not have.
const FORBIDDEN: [u32; 5] = [1044, 1045, 1142, 1227, 1290];
/// ER_LOCK_WAIT_TIMEOUT.
const LOCK_WAIT_TIMEOUT: u32 = 1205;

const BEGIN: &str = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";

/// The place in a snapshot's transaction to which readers return: this gives back the locks on the definitions of tables
/// that were read, so that ALTER TABLE waits for a table and not for the backup.
const SAVEPOINT: &str = "SAVEPOINT fullbore";
/// Returns to it.
pub const GIVE_BACK: &str = "ROLLBACK TO SAVEPOINT fullbore";

/// How the connections got the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// MariaDB: each connection knows the place of its snapshot. Without a lock.
    Compared,
    /// FLUSH TABLES WITH READ LOCK.
    Flushed,
    /// LOCK TABLES … READ.
    Locked,
    /// One connection, at an unknown place of the binary log.
    Alone,
}

impl How {
    /// For the manifest.
    pub fn told(self) -> &'static str {
        match self {
            Self::Compared => "compared places in the binary log",
            Self::Flushed => "FLUSH TABLES WITH READ LOCK",
            Self::Locked => "LOCK TABLES",
            Self::Alone => "one connection",
        }
    }
}

/// Connections with the same snapshot.
pub struct Snapshot {
    /// For the readers.
    pub connections: Vec<Connection>,
    /// How it was made.
    pub how: How,
    /// The place in the binary log, in the fields of the engine's physical sets; null if it is unknown.
    pub place: Value,
    /// How long writers could have waited.
    pub blocked: Duration,
}

/// Makes a snapshot of up to `count` connections. `control` takes the lock, where one is needed.
///
/// # Errors
/// The server refuses, or a lock is not free within the time.
pub fn take(
    login: &Login,
    count: usize,
    control: &mut Connection,
    facts: &Facts,
    listing: &Listing,
    lock_timeout: Duration,
) -> Result<Snapshot> {
    let connections = || (0..count.max(1)).map(|_| reading(login)).collect::<Result<Vec<_>>>();
    if facts.dialect == Dialect::MariaDb && facts.binary_log {
        let mut connections = connections()?;
        if let Some(place) = compared(&mut connections, control)? {
            set_savepoints(&mut connections)?;
            return Ok(Snapshot { connections, how: How::Compared, place, blocked: Duration::ZERO });
        }
    }
    let mut connections = connections()?;
    let seconds = lock_timeout.as_secs().clamp(1, 31_536_000);
    control.query(&format!("SET SESSION lock_wait_timeout = {seconds}"))?;
    control.set_silence(lock_timeout + SILENCE);
    let tables = lock_tables(listing);
    let flush = Some("FLUSH TABLES WITH READ LOCK".to_owned());
    for (how, lock) in [(How::Flushed, flush), (How::Locked, tables)] {
        let Some(lock) = lock else { continue };
        let since = Instant::now();
        match control.query(&lock) {
            Ok(_) => {
                let place = begin(&mut connections).and_then(|()| place(control, facts));
                control.query("UNLOCK TABLES")?;
                set_savepoints(&mut connections)?;
                return Ok(Snapshot { connections, how, place: place?, blocked: since.elapsed() });
            }
            Err(Failure::Server(error)) if FORBIDDEN.contains(&error.code) => {}
            Err(Failure::Server(error)) if error.code == LOCK_WAIT_TIMEOUT => {
                return Err(not_free(login, how, &error));
            }
            Err(failure) => return Err(failure.into()),
        }
    }
    connections.truncate(1);
    begin(&mut connections)?;
    set_savepoints(&mut connections)?;
    Ok(Snapshot { connections, how: How::Alone, place: Value::Null, blocked: Duration::ZERO })
}

fn not_free(login: &Login, how: How, error: &ServerError) -> Error {
    let why = format!("{} does not get its lock: {error}", how.told());
    let hint = "a long statement or transaction holds a table (SHOW PROCESSLIST): wait for its end, or raise \
                --lock-timeout";
    Error::refused(login.address.name(), why, hint)
}

fn reading(login: &Login) -> Result<Connection> {
    let mut connection = login.read()?;
    connection.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")?;
    Ok(connection)
}

/// Begins the snapshot on each connection: all statements are sent before the first answer is read.
fn begin(connections: &mut [Connection]) -> Result<()> {
    connections.iter_mut().try_for_each(|connection| connection.send_ahead(&[BEGIN.to_owned()]))?;
    for connection in connections {
        connection.answer()?;
    }
    Ok(())
}

fn set_savepoints(connections: &mut [Connection]) -> Result<()> {
    connections.iter_mut().try_for_each(|connection| Ok(connection.query(SAVEPOINT).map(drop)?))
}

/// Begins the snapshots again and again until all of them are at the same place. None if they never are, or if the
/// server does not say their places.
fn compared(connections: &mut [Connection], control: &mut Connection) -> Result<Option<Value>> {
    let until = Instant::now() + COMPARING;
    let statements = [BEGIN.to_owned(), "SHOW STATUS LIKE 'binlog_snapshot_%'".to_owned()];
    while Instant::now() < until {
        connections.iter_mut().try_for_each(|connection| connection.send_ahead(&statements))?;
        let mut places = Vec::with_capacity(connections.len());
        for connection in connections.iter_mut() {
            connection.answer()?;
            let answer = connection.answer()?;
            let named = |name: &str| {
                let row = answer.rows.iter().find(|row| {
                    row.first().and_then(Option::as_deref).is_some_and(|found| found.eq_ignore_ascii_case(name))
                });
                row.and_then(|row| row.get(1)?.clone()).unwrap_or_default()
            };
            places.push((named("binlog_snapshot_file"), named("binlog_snapshot_position")));
        }
        let Some((file, offset)) = places.first().filter(|(file, _)| !file.is_empty()) else { return Ok(None) };
        if places.iter().all(|place| *place == (file.clone(), offset.clone())) {
            let offset: u64 = offset.parse().unwrap_or(0);
            let gtid = control.query(&format!("SELECT BINLOG_GTID_POS('{}', {offset})", file.replace('\'', "''")))?;
            let slave = control.query("SELECT @@GLOBAL.gtid_slave_pos")?;
            return Ok(Some(json!({
                "file": file,
                "offset": offset,
                "gtid_binlog_pos": gtid.single().unwrap_or_default(),
                "gtid_binlog_state": "",
                "gtid_slave_pos": slave.single().unwrap_or_default(),
            })));
        }
    }
    Ok(None)
}

/// The place in the binary log while a lock is held. Null if the account may not see it, or there is no log.
fn place(control: &mut Connection, facts: &Facts) -> Result<Value> {
    if !facts.binary_log {
        return Ok(Value::Null);
    }
    let newest = facts.dialect == Dialect::MySql && facts.series >= (8, 2);
    let asked = if newest { "SHOW BINARY LOG STATUS" } else { "SHOW MASTER STATUS" };
    let Some(status) = control.query_if_allowed(asked)? else { return Ok(Value::Null) };
    let text = |column| status.value(0, column).unwrap_or_default().to_owned();
    let offset: u64 = text(1).parse().unwrap_or(0);
    if text(0).is_empty() {
        return Ok(Value::Null);
    }
    Ok(match facts.dialect {
        Dialect::MySql => {
            let gtid: String = text(4).chars().filter(|letter| !letter.is_whitespace()).collect();
            json!({ "binary_log_file": text(0), "binary_log_position": offset, "gtid_executed": gtid })
        }
        Dialect::MariaDb => {
            let gtids = control
                .query("SELECT @@GLOBAL.gtid_binlog_pos, @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos")?;
            let gtid = |column| gtids.value(0, column).unwrap_or_default();
            json!({ "file": text(0), "offset": offset, "gtid_binlog_pos": gtid(0), "gtid_binlog_state": gtid(1),
                    "gtid_slave_pos": gtid(2) })
        }
    })
}

/// The statement that locks all tables; none without tables.
fn lock_tables(listing: &Listing) -> Option<String> {
    let tables = listing.tables.iter().filter(|table| table.kind == Kind::Table);
    let locks: Vec<String> = tables.map(|table| format!("{} READ", table.object.quoted())).collect();
    (!locks.is_empty()).then(|| format!("LOCK TABLES {}", locks.join(", ")))
}
