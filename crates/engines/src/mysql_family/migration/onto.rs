//! The log of the source, applied to the target as it grows.
//!
//! The log is read to its end again and again. Everything that was read becomes one transaction of the target, or several
//! if it is much. The place in the log is written in the same transaction.

use std::time::{Duration, Instant};

use fullbore_core::{Error, Result};

use super::definitions;
use super::servers::Servers;
use super::state::{Mark, Phase, State, note};
use crate::engine::Standing;
use crate::mysql_family::binlog::dump::Pull;
use crate::mysql_family::binlog::end::{End, Place};
use crate::mysql_family::binlog::event::{HEADER, Header, MAGIC, kind};
use crate::mysql_family::binlog::join::join;
use crate::mysql_family::binlog::preflight::{Clock, Server, Status, is_beyond, status};
use crate::mysql_family::binlog::statement::Statement;
use crate::mysql_family::binlog::through::apply::{Applier, Passed};
use crate::mysql_family::binlog::through::settings::names;
use crate::mysql_family::binlog::walk::Walk;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical_set::load::control;
use crate::mysql_family::logical_set::selection::{MIGRATION, OWN, Selection};

/// A transaction of the target ends with the group that makes its rows longer than this, in bytes.
const TRANSACTION: u64 = 8 << 20;
/// The end of a RENAME TABLE: see [`make_marker`].
const RENAMED: &str = "\n, fullbore_migrate.renaming TO fullbore_migrate.renamed";
/// How long a migration waits for the session of another one, in seconds.
const LOCK_WAIT_S: u32 = 10;

/// Proves that the log of the source continues the place of the snapshot, and that the account may read it.
///
/// # Errors
/// It may not, or the log is gone.
pub fn demand_joined(servers: &Servers, place: &End) -> Result<()> {
    let (server, mut connection) = Server::of(&servers.source)?;
    join(&server, place, Clock::ask(&mut connection)?).map(drop)
}

/// The log on its way.
pub struct Onto {
    server: Server,
    /// Asks the source.
    asking: Connection,
    /// Asks the target for its definitions.
    definitions: Connection,
    applier: Applier,
    selection: Selection,
    /// Up to here, everything is in the target.
    stands: End,
    /// The events that come in, and whether the first one is there already.
    pull: Option<(Pull, bool)>,
    /// The place after the last group that was applied.
    before_group: Option<Walk>,
    /// Statements that change definitions, of the group that is under way.
    defined: u32,
    /// How many of the next group's have run before an interruption.
    ran: u32,
    /// The state has another place than `stands`.
    moved: bool,
    /// How often the place was written.
    step: u64,
    /// The server's clock is ahead of this host's by so much, in microseconds.
    ahead: i64,
    event: Vec<u8>,
    totals: Standing,
}

impl Onto {
    /// Continues at the place that the target holds.
    ///
    /// # Errors
    /// A server refuses, another migration runs, or the target holds no place.
    pub fn begin(servers: &Servers, selection: &Selection) -> Result<Self> {
        let (server, mut asking) = Server::of(&servers.source)?;
        let takes = selection.clone();
        let [source, target] = [&servers.source, &servers.target].map(|login| login.address.dialect);
        let takes = Box::new(move |schema: &str, table: &str| takes.takes_table(schema, table));
        let mut applying = control(&servers.target)?;
        take_lock(&mut applying)?;
        let mut definitions = control(&servers.target)?;
        // Not before the lock: another migration may move it until then.
        let Some(State { phase: Phase::Following { place, mark }, step, .. }) = State::read(&mut definitions)? else {
            let why = "it holds no migration that could be continued";
            return Err(Error::refused(definitions.name(), why, "begin again without --resume"));
        };
        let foreign = (source != target).then(|| names(&mut asking)).transpose()?;
        let applier = Applier::new(applying, [source, target], foreign, takes)?;
        let ran = match &mark.before {
            // It was running when the migration was interrupted.
            Some(before) if *before != definitions::digest(&mut definitions, selection, &mark.about)? => mark.done + 1,
            _ => mark.done,
        };
        let ahead = Clock::ask(&mut asking)?.ahead;
        Ok(Self {
            server,
            asking,
            definitions,
            applier,
            selection: selection.clone(),
            stands: *place,
            pull: None,
            before_group: None,
            defined: 0,
            ran,
            moved: false,
            step,
            ahead,
            event: Vec::new(),
            totals: Standing::default(),
        })
    }

    /// Applies what the source has logged, for at most this time.
    ///
    /// # Errors
    /// The log cannot be read, or the target does not take a change.
    pub fn step(&mut self, most: Duration) -> Result<Standing> {
        let until = Instant::now() + most;
        if self.pull.is_none() && !self.open()? {
            return Ok(self.standing(None));
        }
        loop {
            if !self.next()? {
                return self.reached_end();
            }
            let is_late = Instant::now() >= until;
            if !self.applier.is_inside() && (is_late || self.applier.pending() >= TRANSACTION) {
                self.keep()?;
            }
            if is_late {
                let now = status(&mut self.asking)?;
                return Ok(self.standing(now.as_ref()));
            }
        }
    }

    /// Asks for the events behind the place. False if there are none.
    fn open(&mut self) -> Result<bool> {
        let now = status(&mut self.asking)?;
        if now.as_ref().is_some_and(|now| !is_beyond(now, &self.stands.binlog)) {
            return Ok(false);
        }
        let clock = Clock::ask(&mut self.asking)?;
        self.ahead = clock.ahead;
        let joined = join(&self.server, &self.stands, clock)?;
        if !joined.has_more {
            return Ok(false);
        }
        // A file that is begun in the middle: its first event describes the format of all others.
        if joined.base.binlog.offset > MAGIC.len() as u64 {
            let size = joined.head.first_chunk::<HEADER>().and_then(Header::parse).map_or(0, |header| header.size);
            let format = joined.head.get(..size as usize).unwrap_or_default();
            self.applier.take(format)?;
        }
        self.before_group = None;
        self.pull = Some((joined.pull, true));
        Ok(true)
    }

    /// Applies the next event. False at the end of the log.
    fn next(&mut self) -> Result<bool> {
        let Some((pull, is_ready)) = &mut self.pull else { return Ok(false) };
        if !std::mem::take(is_ready) && !pull.next()? {
            return Ok(false);
        }
        self.event.clear();
        let longest = self.applier.longest();
        if pull.size() > longest {
            let why = format!("a change is longer than a packet of the target ({longest} bytes)");
            let hint = "raise max_allowed_packet on the target, then continue with --resume";
            return Err(Error::refused(format!("the log of {}", self.server.name()), why, hint));
        }
        pull.whole(&mut self.event)?;
        self.totals.applied_bytes += self.event.len() as u64;
        if self.event.get(4) == Some(&kind::FORMAT) && !self.applier.is_inside() {
            // The format of events is told between transactions of the target.
            self.keep()?;
        }
        match self.applier.take(&self.event)? {
            Passed::Inside => {}
            Passed::End => self.end_group(),
            Passed::PassedOver(_, ends) => {
                if ends {
                    self.end_group();
                }
            }
            Passed::Definition(statement, ends) => self.define(&statement, ends)?,
        }
        Ok(true)
    }

    fn end_group(&mut self) {
        self.totals.transactions += 1;
        self.moved = true;
        (self.defined, self.ran) = (0, 0);
        self.before_group = self.pull.as_ref().map(|(pull, _)| pull.walk.clone());
    }

    /// Everything so far is committed, with the place.
    fn keep(&mut self) -> Result<()> {
        let Some((pull, _)) = &self.pull else { return Ok(()) };
        self.stands.binlog = place_of(&pull.walk);
        match std::mem::take(&mut self.moved) {
            true => self.commit_with(&Mark::default()),
            false => self.applier.commit(None),
        }
    }

    /// Commits with the place. No other migration may have written it meanwhile.
    fn commit_with(&mut self, mark: &Mark) -> Result<()> {
        self.applier.commit(Some(note(&self.stands, mark, self.step)))?;
        self.step += 1;
        Ok(())
    }

    /// How far the target is.
    pub fn standing_now(&self) -> Standing {
        self.totals
    }

    fn reached_end(&mut self) -> Result<Standing> {
        if self.applier.is_inside() {
            // The server has sent a part of a group. It comes again.
            self.applier.roll_back()?;
            (self.ran, self.defined) = (self.ran.max(self.defined), 0);
            self.pull = None;
            return Ok(Standing { at_end: false, ..self.standing(None) });
        }
        self.keep()?;
        self.pull = None;
        Ok(self.standing(None))
    }

    /// Runs a statement that changes a definition. It commits by itself, so the state says before it what is about to
    /// change, and after it that it has run.
    fn define(&mut self, statement: &Statement, ends: bool) -> Result<()> {
        self.defined += 1;
        let applies = self.applies(statement)?;
        if applies && self.defined > self.ran {
            if self.applier.has_rows_in_group() {
                let why = format!("the statement {} comes after rows of its own transaction", statement.shown());
                return Err(self.refused(&why, "begin again with --replace"));
            }
            if let Some(walk) = &self.before_group {
                self.stands.binlog = place_of(walk);
            }
            self.moved = false;
            let renames = statement.renames_tables();
            if renames {
                make_marker(&mut self.definitions)?;
            }
            // Without names, the statement may change any database.
            let about = statement.databases.clone().unwrap_or_default();
            let before = Some(definitions::digest(&mut self.definitions, &self.selection, &about)?);
            self.commit_with(&Mark { done: self.defined - 1, before, about })?;
            self.applier.define(statement, renames.then_some(RENAMED))?;
            if !ends {
                self.commit_with(&Mark { done: self.defined, ..Mark::default() })?;
            }
        }
        if ends {
            self.end_group();
            if applies {
                self.keep()?;
            }
        }
        Ok(())
    }

    /// Whether a statement is for the databases of the migration.
    fn applies(&mut self, statement: &Statement) -> Result<bool> {
        let applies = self.is_for_us(statement)?;
        let schema = String::from_utf8_lossy(&statement.schema);
        if applies && !schema.is_empty() && !self.selection.takes_database(&schema) && !OWN.contains(&&*schema) {
            let why =
                format!("the statement {} ran in the database `{schema}`, which is not migrated", statement.shown());
            return Err(
                self.refused(&why, "migrate this database too, or begin again with --replace after such statements")
            );
        }
        Ok(applies)
    }

    fn is_for_us(&mut self, statement: &Statement) -> Result<bool> {
        let about = statement.about();
        let taken = about.iter().filter(|name| self.selection.takes_database(name)).count();
        let names_all = statement.databases.as_ref().is_some_and(|names| !names.is_empty());
        if self.selection.is_everything() {
            if !names_all && !about.is_empty() && taken == 0 {
                let why = format!(
                    "the statement {} ran in a database of the server itself, and does not say what it changes",
                    statement.shown()
                );
                return Err(self.refused(&why, "begin again with --replace after such statements"));
            }
            return Ok(about.is_empty() || taken > 0);
        }
        if !names_all && taken > 0 && self.names_others(statement)? {
            return Err(self.of_others_too(statement));
        }
        let text = String::from_utf8_lossy(&statement.text).to_lowercase();
        let mentions = self.selection.named().find(|name| text.contains(&name.to_lowercase()));
        match (taken > 0 && taken == about.len(), taken, mentions) {
            (true, ..) => Ok(true),
            (false, 0, None) => Ok(false),
            (..) => Err(self.of_others_too(statement)),
        }
    }

    fn refused(&self, why: &str, hint: &str) -> Error {
        Error::refused(format!("the log of {}", self.server.name()), why, hint)
    }

    /// The error of a statement that may change databases which are not migrated.
    fn of_others_too(&self, statement: &Statement) -> Error {
        let why = format!("the statement {} may change databases of this migration and others", statement.shown());
        let hint = "migrate all databases that it names, or begin again with --replace after such statements";
        self.refused(&why, hint)
    }

    /// Whether a statement names a database of the source or of the target that is not migrated. Without a list of the
    /// server, the default database says nothing about qualified names.
    fn names_others(&mut self, statement: &Statement) -> Result<bool> {
        for connection in [&mut self.asking, &mut self.definitions] {
            let all = connection.query("SELECT schema_name FROM information_schema.schemata")?;
            let mut names = all.rows.iter().filter_map(|row| row.first()?.as_deref());
            if names.any(|name| !self.selection.takes_database(name) && statement.names_database(name)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn standing(&mut self, now: Option<&Status>) -> Standing {
        let at_end = self.pull.is_none();
        let walk = self.pull.as_ref().map(|(pull, _)| &pull.walk);
        let newest = walk.and_then(|walk| walk.newest);
        let clock = jiff::Timestamp::now().as_microsecond().saturating_add(self.ahead);
        let age = |newest: i64| Duration::from_micros(u64::try_from(clock.saturating_sub(newest)).unwrap_or(0));
        let lag = if at_end { Some(Duration::ZERO) } else { newest.map(age) };
        let behind_bytes = match (walk, now) {
            (Some(walk), Some(now)) => log_bytes(&mut self.asking, &walk.file, walk.offset, now),
            _ => 0,
        };
        let is_inside = !at_end && self.applier.is_inside();
        Standing { at_end, lag, is_inside, behind_bytes, ..self.totals }
    }
}

/// Makes the table that a RENAME TABLE renames along with its own: tables that change their names with each other may have
/// equal definitions before and after.
fn make_marker(connection: &mut Connection) -> Result<()> {
    connection.query(&format!("DROP TABLE IF EXISTS {MIGRATION}.renamed"))?;
    connection.query(&format!("CREATE TABLE IF NOT EXISTS {MIGRATION}.renaming (id INT PRIMARY KEY)"))?;
    Ok(())
}

/// Only one migration at a time applies a log to a server. The server gives the lock back when the session has ended: so a
/// statement of a killed migration is over before the next one continues.
fn take_lock(connection: &mut Connection) -> Result<()> {
    let taken = connection.query(&format!("SELECT GET_LOCK('{MIGRATION}', {LOCK_WAIT_S})"))?;
    if taken.single() == Some("1") {
        return Ok(());
    }
    let why = "another migration applies a log to it, or a statement of a killed one still runs";
    let hint = "SHOW PROCESSLIST on the target shows the session: end the other migration, or wait until it has ended";
    Err(Error::refused(connection.name(), why, hint))
}

/// Bytes of the log from a place on. Without the privilege to list files, those of the last file.
pub fn log_bytes(asking: &mut Connection, file: &str, offset: u64, now: &Status) -> u64 {
    if file == now.file {
        return now.offset.saturating_sub(offset);
    }
    let listed = asking.query("SHOW BINARY LOGS").map(|answer| answer.rows).unwrap_or_default();
    let sizes = listed.iter().filter_map(|row| {
        let (name, size) = (row.first()?.as_deref()?, row.get(1)?.as_deref()?.parse::<u64>().ok()?);
        match name.cmp(file) {
            std::cmp::Ordering::Less => None,
            std::cmp::Ordering::Equal => Some(size.saturating_sub(offset)),
            std::cmp::Ordering::Greater => Some(size),
        }
    });
    sizes.reduce(u64::saturating_add).unwrap_or(now.offset)
}

/// The place of a walk between two groups.
fn place_of(walk: &Walk) -> Place {
    Place {
        file: walk.file.clone(),
        offset: walk.offset,
        gtid: walk.gtids.as_ref().map(ToString::to_string).unwrap_or_default(),
        servers: String::new(),
        file_crc: walk.file_crc,
        tail: walk.tail,
    }
}
