//! Events of a log on their way into the target: rows, definitions, and in the same transaction the place up to which they
//! are there. The log comes from the source ([`super::onto`]), or out of log sets ([`super::refresh`]).

use fullbore_core::{Error, Result};

use super::definitions;
use super::state::{Mark, Origin, Phase, State, note, take_lock};
use crate::engine::Standing;
use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::end::{End, Place, is_up_to};
use crate::mysql_family::binlog::event::kind;
use crate::mysql_family::binlog::statement::{Kind, Statement};
use crate::mysql_family::binlog::through::apply::{Applier, Passed};
use crate::mysql_family::binlog::through::settings::names;
use crate::mysql_family::binlog::walk::Walk;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical_set::load::control;
use crate::mysql_family::logical_set::selection::{MIGRATION, OWN, Selection};
use crate::mysql_family::logical_set::server::Login;
use crate::mysql_family::server_defaults::ServerDefaults;
use crate::mysql_family::system_zone::SystemZone;

/// A transaction of the target ends with the group that makes its rows longer than this, in bytes.
const TRANSACTION: u64 = 8 << 20;
/// The end of a RENAME TABLE: see [`make_marker`].
const RENAMED: &str = "\n, fullbore_migrate.renaming TO fullbore_migrate.renamed";

/// A log, and what of it is applied.
pub struct Incoming {
    /// The vendor of its server.
    pub dialect: Dialect,
    /// What errors call it.
    pub name: String,
    /// A connection to its server, where that can be asked.
    pub source: Option<Connection>,
    /// What is migrated; None: as the state in the target says.
    pub selection: Option<Selection>,
}

/// How many statements were passed over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PassedOver {
    /// About accounts.
    pub accounts: u64,
    /// About events.
    pub events: u64,
}

/// The way into the target.
pub struct Landing {
    /// Asks the server of the log.
    pub source: Option<Connection>,
    /// Asks the target for its definitions.
    definitions: Connection,
    applier: Applier,
    selection: Selection,
    log: String,
    origin: Origin,
    /// Up to here, everything is in the target.
    pub stands: End,
    /// The place after the last group that was applied.
    before_group: Option<Walk>,
    /// Statements that change definitions, of the group that is under way.
    defined: u32,
    /// How many of the next group's have run before an interruption.
    ran: u32,
    /// The last of them was running then.
    cut: bool,
    /// The state has another place than `stands`.
    moved: bool,
    /// How often the place was written.
    step: u64,
    /// What was applied.
    pub totals: Standing,
    /// What was not.
    pub passed: PassedOver,
}

impl Landing {
    /// Continues at the place that the target holds.
    ///
    /// # Errors
    /// A server refuses, another migration runs, or the target holds no place.
    pub fn begin(target: &Login, from: Incoming) -> Result<Self> {
        let Incoming { dialect, name, mut source, selection } = from;
        let mut applying = control(target)?;
        take_lock(&mut applying, MIGRATION)?;
        let mut definitions = control(target)?;
        // Not before the lock: another migration may move it until then.
        let Some(State { phase: Phase::Following { place, mark }, step, .. }) = State::read(&mut definitions)? else {
            let why = "it holds no migration that could be continued";
            return Err(Error::refused(definitions.name(), why, "begin again without --resume"));
        };
        let selection = selection.unwrap_or_else(|| Selection::of_databases(&mark.origin.databases));
        let foreign = match &mut source {
            _ if dialect == target.address.dialect => None,
            Some(source) => Some(names(source)?),
            None => Some(State::names(&mut definitions)?),
        };
        let takes = selection.clone();
        let takes = Box::new(move |schema: &str, table: &str| takes.takes_table(schema, table));
        let applier = Applier::new(applying, [dialect, target.address.dialect], foreign, takes)?;
        // A statement was running when the migration was interrupted.
        let cut = match &mark.before {
            Some(before) => *before != definitions::digest(&mut definitions, &selection, &mark.about)?,
            None => false,
        };
        let ran = mark.done + u32::from(cut);
        Ok(Self {
            source,
            definitions,
            applier,
            selection,
            log: name,
            origin: mark.origin,
            stands: *place,
            before_group: None,
            defined: 0,
            ran,
            cut,
            moved: false,
            step,
            totals: Standing::default(),
            passed: PassedOver::default(),
        })
    }

    /// The system time zone and the settings of the server whose log follows.
    pub fn enter_source(&mut self, zone: Option<&SystemZone>, defaults: &ServerDefaults) {
        self.applier.enter_source(zone, defaults);
    }

    /// The longest event that it takes, in bytes.
    pub fn longest(&self) -> usize {
        self.applier.longest()
    }

    /// Whether a group has begun and not ended.
    pub fn is_inside(&self) -> bool {
        self.applier.is_inside()
    }

    /// The events that follow come from another place of the log.
    pub fn jump(&mut self) {
        self.before_group = None;
    }

    /// Tells the target the format of the events that follow.
    ///
    /// # Errors
    /// The target refuses it.
    pub fn describe(&mut self, format: &[u8]) -> Result<()> {
        self.applier.take(format).map(drop)
    }

    /// Applies an event. `walk` is behind it.
    ///
    /// # Errors
    /// The target refuses it, or it cannot be applied.
    pub fn take(&mut self, event: &[u8], walk: &Walk) -> Result<()> {
        self.totals.applied_bytes += event.len() as u64;
        if event.get(4) == Some(&kind::FORMAT) && !self.applier.is_inside() {
            // The format of events is told between transactions of the target.
            self.keep(walk)?;
        }
        match self.applier.take(event)? {
            Passed::Inside => {}
            Passed::End => self.end_group(walk),
            Passed::PassedOver(kind, ends) => {
                self.passed.accounts += u64::from(kind == Kind::Account);
                self.passed.events += u64::from(kind == Kind::Event);
                if ends {
                    self.end_group(walk);
                }
            }
            Passed::Definition(statement, ends) => self.define(&statement, ends, walk)?,
        }
        Ok(())
    }

    /// Ends the transaction of the target if it is long.
    ///
    /// # Errors
    /// The target refuses a change.
    pub fn keep_if_long(&mut self, walk: &Walk) -> Result<()> {
        if self.applier.is_inside() || self.applier.pending() < TRANSACTION {
            return Ok(());
        }
        self.keep(walk)
    }

    fn end_group(&mut self, walk: &Walk) {
        self.totals.transactions += 1;
        self.moved = true;
        (self.defined, self.ran, self.cut) = (0, 0, false);
        self.before_group = Some(walk.clone());
    }

    /// Everything so far is committed, with the place.
    ///
    /// # Errors
    /// The target refuses a change.
    pub fn keep(&mut self, walk: &Walk) -> Result<()> {
        self.stands.binlog = place_of(walk);
        match std::mem::take(&mut self.moved) {
            true => self.commit_with(Mark::default()),
            false => self.applier.commit(None),
        }
    }

    /// The same at the end of a log set, of which more is known.
    ///
    /// # Errors
    /// The target refuses a change.
    pub fn keep_end(&mut self, end: &End) -> Result<()> {
        self.stands = end.clone();
        self.before_group = None;
        self.moved = false;
        self.commit_with(Mark::default())
    }

    /// The log of another server follows: places are in its files.
    pub fn leave_server(&mut self, begin: End) {
        self.origin.complete = None;
        self.before_group = None;
        self.stands = begin;
    }

    /// Commits with the place. No other migration may have written it meanwhile.
    fn commit_with(&mut self, mark: Mark) -> Result<()> {
        let mark = Mark { origin: self.origin.clone(), ..mark };
        self.applier.commit(Some(note(&self.stands, &mark, self.step)))?;
        self.step += 1;
        Ok(())
    }

    /// A part of a group came: it comes again.
    ///
    /// # Errors
    /// The target is lost.
    pub fn forget_group(&mut self) -> Result<()> {
        self.applier.roll_back()?;
        (self.ran, self.defined) = (self.ran.max(self.defined), 0);
        Ok(())
    }

    /// Runs a statement that changes a definition. It commits by itself, so the state says before it what is about to
    /// change, and after it that it has run.
    fn define(&mut self, statement: &Statement, ends: bool, walk: &Walk) -> Result<()> {
        self.defined += 1;
        let applies = self.applies(statement)?;
        // A server that was killed may have dropped a part.
        let again = self.cut && self.defined == self.ran && statement.drops();
        if applies && (again || self.defined > self.ran) {
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
            self.commit_with(Mark { done: self.defined - 1, before, about, ..Mark::default() })?;
            // A full that was read while definitions changed may hold this one.
            let known = again
                || self.origin.complete.as_ref().is_some_and(|complete| is_up_to(&walk.file, walk.offset, complete));
            self.applier.define(statement, renames.then_some(RENAMED), known)?;
            if !ends {
                self.commit_with(Mark { done: self.defined, ..Mark::default() })?;
            }
        }
        if ends {
            self.end_group(walk);
            if applies {
                self.keep(walk)?;
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
        Error::refused(&self.log, why, hint)
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
        for connection in self.source.iter_mut().chain([&mut self.definitions]) {
            let all = connection.query("SELECT schema_name FROM information_schema.schemata")?;
            let mut names = all.rows.iter().filter_map(|row| row.first()?.as_deref());
            if names.any(|name| !self.selection.takes_database(name) && statement.names_database(name)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Makes the table that a RENAME TABLE renames along with its own: tables that change their names with each other may have
/// equal definitions before and after.
fn make_marker(connection: &mut Connection) -> Result<()> {
    connection.query(&format!("DROP TABLE IF EXISTS {MIGRATION}.renamed"))?;
    connection.query(&format!("CREATE TABLE IF NOT EXISTS {MIGRATION}.renaming (id INT PRIMARY KEY)"))?;
    Ok(())
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
