//! After a fail-over, the log of the promoted server continues the log sets of the server before it. Its files and places
//! are others: GTIDs prove where it continues, and that both servers have the same transactions up to there.

use fullbore_core::{Error, Result};

use super::dump::Pull;
use super::end::{End, Place};
use super::gtid::Gtids;
use super::join::{self, Joined};
use super::preflight::{Clock, Server};
use super::range::place;
use super::walk::Walk;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure};

const NEW_FULL: &str = "take a new full of this server: it begins a new chain";

/// Joins the log to the first of `bases`, which is the end of a log set of another server.
///
/// # Errors
/// The GTIDs do not prove that this log continues it; or a full of the other server is behind it: no set would lead from
/// that full to this server.
pub fn join(server: &Server, bases: &[End], clock: Clock) -> Result<Joined> {
    let [base, others @ ..] = bases else { return Err(Error::Halted) };
    let is_behind = |other: &End| other.server == base.server && place(&other.binlog) > place(&base.binlog);
    if others.iter().any(is_behind) {
        let why = "the other server has a full behind its last log set, and no log set leads from it to this server";
        return Err(Error::refused(server.name(), why, NEW_FULL));
    }
    let search = Search { server, end: end_of(server, base)? };
    let mut asking = server.connect()?;
    search.refuse_filters(&mut asking)?;
    search.demand_gtids(&mut asking)?;
    let place = search.place(&search.files(&mut asking)?)?;
    let Place { gtid, servers, .. } = base.binlog.clone();
    let there = End { binlog: Place { gtid, servers, ..place }, server: server.identity.clone(), ..base.clone() };
    Ok(Joined { base: base.clone(), ..join::join(server, &there, clock)? })
}

/// The GTIDs at the end of a log set.
fn end_of(server: &Server, base: &End) -> Result<Gtids> {
    let refused = |why: &str| Err(Error::refused(server.name(), why, NEW_FULL));
    if base.binlog.file_crc.is_none() {
        return refused("the newest set of the other server is not a log set: only a log set knows all its GTIDs");
    }
    match Gtids::of_place(server.dialect, &base.binlog) {
        Some(end) if base.binlog.gtid.is_empty() || end.beyond(&end).is_none() => {
            refused("the last set does not know all GTIDs up to its end: the log has none, or an old fullbore wrote it")
        }
        Some(end) => Ok(end),
        None => Err(Error::Halted),
    }
}

/// The search for the place where a log continues these GTIDs.
struct Search<'a> {
    server: &'a Server,
    end: Gtids,
}

impl Search<'_> {
    fn refused(&self, why: String) -> Error {
        Error::refused(self.server.name(), why, NEW_FULL)
    }

    /// Such a replica has the GTIDs, but not the rows. An account that may not see the filters is not refused.
    fn refuse_filters(&self, asking: &mut Connection) -> Result<()> {
        let question = match self.server.dialect {
            Dialect::MySql => "SELECT COUNT(*) > 0 FROM performance_schema.replication_applier_global_filters",
            Dialect::MariaDb => {
                "SELECT CONCAT(@@GLOBAL.replicate_do_db, @@GLOBAL.replicate_ignore_db, @@GLOBAL.replicate_do_table, \
                 @@GLOBAL.replicate_ignore_table, @@GLOBAL.replicate_wild_do_table, \
                 @@GLOBAL.replicate_wild_ignore_table) <> ''"
            }
        };
        match asking.query(question) {
            Ok(answer) if answer.single() == Some("1") => {
                Err(self.refused("it has replication filters, so it may lack changes of the other server".into()))
            }
            Ok(_) | Err(Failure::Server(_)) => Ok(()),
            Err(Failure::Fault(error)) => Err(error),
        }
    }

    /// MySQL: all its transactions have GTIDs, and it has those of the end.
    fn demand_gtids(&self, asking: &mut Connection) -> Result<()> {
        if self.server.dialect != Dialect::MySql {
            return self.demand_replica(asking);
        }
        let answer = asking.query("SELECT @@GLOBAL.gtid_mode, @@GLOBAL.gtid_executed")?;
        let text = |column| answer.value(0, column).unwrap_or_default();
        if text(0) != "ON" {
            return Err(
                self.refused(format!("gtid_mode is {}: only GTIDs prove that its log continues another one", text(0)))
            );
        }
        let executed = Gtids::parse(Dialect::MySql, text(1));
        let lacking = executed.ok_or_else(|| asking.broken("its gtid_executed is not a set"))?.lack(&self.end);
        match lacking.is_empty() {
            true => Ok(()),
            false => Err(self.refused(format!(
                "it does not have the transactions {lacking}, which are in the last set: the fail-over lost them"
            ))),
        }
    }

    /// MariaDB: a replica has another `server_id` than its source. A server that was restored has the same one, and a history of its own
    /// with the same GTIDs.
    fn demand_replica(&self, asking: &mut Connection) -> Result<()> {
        let own = asking.query("SELECT @@GLOBAL.server_id")?.single().unwrap_or_default().to_owned();
        let end = self.end.to_string();
        let mut writers = end.split(',').filter_map(|gtid| gtid.trim().split('-').nth(1));
        match writers.all(|id| id == own) {
            false => Ok(()),
            true => Err(self.refused(format!(
                "its server_id ({own}) is that of the server which wrote the last set ({end}): it is no replica of that server, but perhaps \
                 a restored copy with another history"
            ))),
        }
    }

    /// The binary logs, oldest first.
    fn files(&self, asking: &mut Connection) -> Result<Vec<String>> {
        let answer = asking.query("SHOW BINARY LOGS").map_err(|failure| match failure {
            Failure::Server(error) => Error::refused(
                self.server.name(),
                format!("the account may not list the binary logs: {error}"),
                "after a fail-over it needs: GRANT REPLICATION CLIENT ON *.* TO … (MariaDB: BINLOG MONITOR)",
            ),
            Failure::Fault(error) => error,
        })?;
        Ok(answer.rows.into_iter().filter_map(|row| row.into_iter().next()?).collect())
    }

    /// The place of the first group that is not among the GTIDs of the end.
    fn place(&self, files: &[String]) -> Result<Place> {
        let mut pull = self.last_before(files)?;
        let mut lacking = self.lacking(&pull.walk);
        let mut alone = self.alone(&pull.walk);
        let mut before = pull.walk.gtids.clone();
        let mut groups = pull.walk.groups;
        let place = loop {
            let here = place_of(&pull.walk);
            if !pull.next()? {
                break here;
            }
            if pull.walk.groups > groups {
                if lacking.is_empty() {
                    break here;
                }
                groups = pull.walk.groups;
                self.demand_order(&pull.walk, before.as_ref())?;
                if self.server.dialect == Dialect::MariaDb {
                    before.clone_from(&pull.walk.gtids);
                }
                lacking = self.lacking(&pull.walk);
                if lacking.is_empty() {
                    alone = self.alone(&pull.walk);
                }
            }
            pull.skip()?;
        };
        if !lacking.is_empty() {
            let why = format!("its log does not have the transactions {lacking}, which are in the last set");
            let hint = "the fail-over lost them, or log_replica_updates (MariaDB: log_slave_updates) is OFF, which a replica \
                        needs before it is promoted: take a new full of this server";
            return Err(Error::refused(self.server.name(), why, hint));
        }
        if pull.walk.anonymous > 0 {
            return Err(self.refused(format!("{} has transactions without GTIDs", place.file)));
        }
        if alone.is_empty() { Ok(place) } else { Err(self.errant(&place.show(), &alone)) }
    }

    /// The newest file whose earlier files have no other GTIDs than the end.
    fn last_before(&self, files: &[String]) -> Result<Pull> {
        let mut alone = String::new();
        for file in files.iter().rev() {
            let mut pull = Pull::begin(self.server, Walk::new(file, None))?;
            while pull.walk.gtids.is_none() && pull.next()? {
                pull.skip()?;
            }
            alone = self.alone(&pull.walk);
            if alone.is_empty() {
                return Ok(pull);
            }
        }
        let oldest = files.first().map_or("its log", String::as_str);
        Err(self.errant(&format!("the start of {oldest}, its oldest file"), &alone))
    }

    /// The GTIDs of the end that the log does not have yet.
    fn lacking(&self, walk: &Walk) -> String {
        walk.gtids.as_ref().map_or_else(|| self.end.to_string(), |gtids| gtids.lack(&self.end))
    }

    /// The GTIDs of the log so far that the end does not have.
    fn alone(&self, walk: &Walk) -> String {
        let alone = |gtids: &Gtids| gtids.beyond(&self.end).unwrap_or_else(|| gtids.to_string());
        walk.gtids.as_ref().map_or_else(String::new, alone)
    }

    fn demand_order(&self, walk: &Walk, before: Option<&Gtids>) -> Result<()> {
        match walk.gtids.as_ref().zip(before) {
            Some((now, before)) if !now.has_grown(before) => Err(self.refused(format!(
                "the numbers of its GTIDs are out of order before {}:{}, so it has transactions of its own: `{now}` follows \
                 `{before}` (gtid_strict_mode prevents that)",
                walk.file, walk.offset
            ))),
            _ => Ok(()),
        }
    }

    fn errant(&self, place: &str, alone: &str) -> Error {
        let why = format!(
            "before {place}, where all transactions of the last set are in its log, it also has {alone}, which no set has"
        );
        let hint = "a session wrote them on the replica before it was promoted, or the replica committed in another order \
                    than its source, or the files behind the last set are purged: take a new full of this server";
        Error::refused(self.server.name(), why, hint)
    }
}

/// Where a walk is.
fn place_of(walk: &Walk) -> Place {
    let (file, offset, file_crc, tail) = (walk.file.clone(), walk.offset, walk.file_crc, walk.tail);
    Place { file, offset, gtid: String::new(), servers: String::new(), file_crc, tail }
}
