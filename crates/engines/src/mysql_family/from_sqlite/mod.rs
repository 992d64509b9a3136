//! Migrations of an SQLite database into a database of a MySQL or MariaDB server. `docs/verbs/migrate.md` has the rules.
//!
//! Everything that can be refused is refused before the first row: all values are read once in the snapshot ([`facts`]),
//! and say which types their columns get ([`kinds`], [`drafts`]). [`statements`] makes the tables. Then the same snapshot
//! is read again, and goes into the target as LOAD DATA text, as the server itself would write it ([`values`]).

mod checks;
mod drafts;
mod facts;
mod kinds;
mod statements;
mod target;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod values;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use fullbore_core::checksum::xxh3_128;
use fullbore_core::error::counted;
use fullbore_core::threads::in_turns;
use fullbore_core::{Error, Result};
use serde_json::json;
use uuid::Uuid;

use super::logical_set::catalog::{self, Object, TableObject};
use super::logical_set::load::{Feed, ServerLoad, check};
use super::logical_set::lock;
use super::logical_set::tsv::{self, Tally};
use super::migration::state::{Phase, State};
use crate::engine::{
    Compared, Definition, Flow, Foreseen, Load, LoadOrder, Loaded, Migration, MigrationEngine, MigrationOrder,
    MigrationPlan, Moved, Standing,
};
use crate::sqlite::outgoing::Outgoing;
use drafts::{Draft, Told};
use facts::TableFacts;
use target::Target;

/// The secondary indexes of a table with more bytes of values are made after its rows.
const LARGE: u64 = 8 << 20;

/// Migrations of SQLite databases into servers of both vendors.
pub struct FromSqlite;

impl MigrationEngine for FromSqlite {
    fn begin(&self, order: MigrationOrder) -> Result<Box<dyn Migration>> {
        Ok(Box::new(SqliteMigration::begin(order)?))
    }

    fn abort(&self, order: MigrationOrder) -> Result<Vec<String>> {
        let mut target = Target::connect(&order)?;
        let name = target.login.address.name();
        let Some(state) = State::read(&mut target.control)? else {
            return Err(Error::refused(name, "it holds no migration that could be ended", "leave --abort out"));
        };
        state.demand_same(&name, &selection(&order, &target), true)?;
        State::remove(&mut target.control)?;
        super::logical_set::load::notes::remove(&mut target.control)?;
        Ok(vec![format!(
            "{name} keeps what was moved so far: drop its database {} if nobody needs it",
            target.database
        )])
    }

    fn follows(&self) -> bool {
        false
    }
}

/// The digest of what is migrated.
fn selection(order: &MigrationOrder, target: &Target) -> String {
    let source = order.source.split_once(':').map_or("", |(_, path)| path);
    let source = std::fs::canonicalize(source).unwrap_or_else(|_| source.into());
    format!("{:032x}", xxh3_128(0, json!(["sqlite", source, target.database]).to_string().as_bytes()))
}

/// A migration that is under way.
struct SqliteMigration {
    order: MigrationOrder,
    target: Target,
    selection: String,
    source: Option<Outgoing>,
    drafts: Vec<Draft>,
    objects: Vec<TableObject>,
    /// The rows of the source, as they were read for the target.
    tallies: Vec<Tally>,
    plan: MigrationPlan,
    /// How long the source was read to know its values.
    read: Duration,
    /// The target may be dropped: a run that was interrupted has made it.
    again: bool,
}

impl SqliteMigration {
    fn begin(order: MigrationOrder) -> Result<Self> {
        let mut target = Target::connect(&order)?;
        let selection = selection(&order, &target);
        let name = target.login.address.name();
        let mut plan = MigrationPlan::default();
        let mut again = false;
        match State::read(&mut target.control)? {
            None if order.resume => {
                let why = "it holds no migration that could be continued";
                return Err(Error::refused(name, why, "leave --resume out"));
            }
            Some(state) if !order.replace || order.resume => {
                state.demand_same(&name, &selection, order.resume)?;
                let made = vec![target.database.clone()];
                again = matches!(&state.phase, Phase::Full { made: known } if *known == made);
                plan.notes.push("the migration was interrupted: it begins again".into());
            }
            _ => {}
        }
        // Before the source is locked and read.
        if !order.replace && !again {
            target.demand_empty()?;
        }
        let mut this = Self {
            source: None,
            drafts: Vec::new(),
            objects: Vec::new(),
            tallies: Vec::new(),
            read: Duration::ZERO,
            plan,
            selection,
            target,
            again,
            order,
        };
        drop(this.load(true)?);
        this.open()?;
        Ok(this)
    }

    /// Takes the snapshot, looks at all values, and makes the statements.
    fn open(&mut self) -> Result<()> {
        let alone = self.order.cut_over && !self.order.dry_run;
        let source = Outgoing::open(&self.order.source, &self.order.source_options, alone)?;
        let begun = Instant::now();
        self.plan.frozen_since = source.locked_since;
        self.plan.warnings.extend(source.warnings.iter().cloned());
        let (schema, mut told) = (source.schema()?, Told::default());
        told.left_out.extend(schema.others);
        for table in schema.tables {
            let facts = TableFacts::read(&source, &table)?;
            let orphans = if table.foreign_keys.is_empty() { 0 } else { source.orphans(&table)? };
            if orphans > 0 {
                let (keys, name) = (counted(orphans, "foreign key"), &table.name);
                self.plan.warnings.push(format!("table {name}: {keys} without a parent row, moved as they are"));
            }
            self.drafts.push(Draft::of(table, facts, &self.target.limits, &mut told)?);
        }
        for at in 0..self.drafts.len() {
            let limits = &self.target.limits;
            self.objects.extend(statements::object(
                &source,
                &self.drafts,
                at,
                &self.target.database,
                limits,
                &mut told,
            ));
        }
        self.read = begun.elapsed();
        self.plan.servers = [format!("SQLite {}", rusqlite::version()), self.target.facts.named()];
        self.plan.tables = self.drafts.len() as u64;
        self.plan.bytes = self.drafts.iter().map(|draft| draft.facts.bytes).fold(0, u64::saturating_add);
        self.plan.warnings.extend(told.left_out.into_iter().map(|what| format!("not moved: {what}")));
        self.plan.notes.extend(told.notes);
        let definition = |(draft, object): (&Draft, &TableObject)| Definition {
            table: draft.table.name.clone(),
            rows: draft.facts.rows,
            bytes: draft.facts.bytes,
            create: object.create.clone(),
        };
        self.plan.definitions = self.drafts.iter().zip(&self.objects).map(definition).collect();
        self.source = Some(source);
        Ok(())
    }

    fn load(&self, dry_run: bool) -> Result<ServerLoad> {
        let (database, dialect) = (&self.target.database, self.target.login.address.dialect);
        let create = format!(
            "CREATE DATABASE {} DEFAULT CHARACTER SET utf8mb4 COLLATE {}",
            super::logical::names::quoted(database),
            self.target.limits.binary
        );
        let mut objects = vec![Object::Database { name: database.clone(), create, whole: true }];
        objects.extend(self.objects.iter().cloned().map(Object::Table));
        let large = self.drafts.iter().filter(|draft| draft.facts.bytes > LARGE);
        let order = LoadOrder {
            set: Uuid::now_v7(),
            engine: dialect.name().to_owned(),
            catalogs: vec![(format!("{database}/catalog"), catalog::written(&objects))],
            large: large.map(|draft| (database.clone(), draft.table.name.clone())).collect(),
            replace: self.order.replace || self.again,
            dry_run,
            at_once: self.order.source_options.readers,
            ..LoadOrder::default()
        };
        ServerLoad::on(self.target.login.clone(), order, &self.order.target_options)
    }

    /// Reads all rows of the snapshot, and gives them to the load.
    fn read_rows(&self, source: &Outgoing, feed: &mut Feed<'_>) -> Result<Vec<Tally>> {
        let (mut tallies, mut text, mut value_text) = (Vec::new(), Vec::new(), Vec::new());
        for (place, draft) in self.drafts.iter().enumerate() {
            let mut tally = Tally::default();
            source.rows(&draft.table, |row, values| {
                text.clear();
                for (at, (value, kind)) in values.iter().zip(&draft.kinds).enumerate() {
                    if at > 0 {
                        text.push(b'\t');
                    }
                    if *value == rusqlite::types::ValueRef::Null {
                        text.extend_from_slice(tsv::NULL);
                        continue;
                    }
                    value_text.clear();
                    kind.write(*value, &mut value_text).map_err(|what| {
                        // The snapshot has been looked at before.
                        let why = format!("{row} has {what} now, and had not before");
                        Error::refused(format!("table {}", draft.table.name), why, "this is a defect: please report it")
                    })?;
                    tsv::escape(&value_text, &mut text);
                }
                text.push(b'\n');
                tally.add(&text);
                feed.row(place, &text)
            })?;
            tallies.push(tally);
        }
        Ok(tallies)
    }
}

impl Migration for SqliteMigration {
    fn plan(&self) -> MigrationPlan {
        self.plan.clone()
    }

    fn foresee(&mut self, _: &Flow<'_>, _: Duration) -> Result<Foreseen> {
        // All values were read already.
        Ok(Foreseen { read_bytes: self.plan.bytes, read: self.read, is_all: true, log_bytes: 0 })
    }

    fn full(&mut self, flow: &Flow<'_>, _: &dyn Fn(&str)) -> Result<Moved> {
        let source = self.source.take().ok_or(Error::Halted)?;
        // Refuses what the target cannot make, before it is changed.
        if !self.order.replace && !self.again {
            drop(self.load(true)?);
        }
        State::begin(&mut self.target.control, &self.selection, std::slice::from_ref(&self.target.database))?;
        let load = self.load(false)?;
        let mut tallies = Vec::new();
        let (bytes, stages) = load.take_given(self.order.source_options.readers, flow, |feed| {
            tallies = self.read_rows(&source, feed)?;
            Ok(())
        })?;
        self.tallies = tallies;
        let loaded = load.finish()?;
        self.source = Some(source);
        Ok(Moved { loaded, bytes, stages, writers_blocked: Duration::ZERO })
    }

    fn follow(&mut self) -> Result<Standing> {
        Err(Error::Halted)
    }

    fn freeze(&mut self) -> Result<()> {
        Ok(())
    }

    fn compare(&mut self, _: bool) -> Result<Compared> {
        let spare = Mutex::new(Vec::new());
        let tables: Vec<_> = self.objects.iter().zip(&self.tallies).collect();
        in_turns("compare", self.order.source_options.readers.max(1), tables, |(object, expected)| {
            let kept = lock(&spare).pop();
            let mut connection = kept.map_or_else(|| self.target.login.read(), Ok)?;
            let found = check::tally(&mut connection, &object.quoted(), &object.forms()?)?;
            lock(&spare).push(connection);
            if found == *expected {
                return Ok(());
            }
            let why = match found.rows == expected.rows {
                false => format!("it has {}, and the source has {}", counted(found.rows, "row"), expected.rows),
                true => "the digest of its rows is not that of the source".to_owned(),
            };
            let hint = "another session may have written to the target: begin again with --replace";
            Err(Error::refused(format!("table {} of the target", object.shown()), why, hint))
        })?;
        let rows = self.tallies.iter().map(|tally| tally.rows).sum();
        Ok(Compared { tables: self.objects.len() as u64, rows })
    }

    fn end(&mut self) -> Result<Loaded> {
        State::remove(&mut self.target.control)?;
        let name = self.order.source.clone();
        let source = self.source.take();
        let note = match source.is_some_and(|source| source.locked_since.is_some()) {
            true => format!(
                "fullbore has kept writers out of {name} until now, and has not changed it. Applications can write to it \
                 again: let them use the target. The way back: let them use {name}. What is written to the target from now \
                 on does not reach it"
            ),
            false => format!(
                "the target is {name} at one moment. Later changes of it do not reach the target: SQLite has no log of \
                 rows. To switch, stop the writers and migrate again with --replace --cut-over"
            ),
        };
        Ok(Loaded { notes: vec![note], ..Loaded::default() })
    }

    fn give_up(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.source.take().is_some_and(|source| source.locked_since.is_some()) || self.plan.frozen_since.is_some() {
            notes.push(format!("{} is as before, and applications can write to it again", self.order.source));
        }
        let state = self.target.control_now().and_then(|mut control| State::read(&mut control));
        if let Ok(Some(_)) = state {
            notes.push(format!(
                "{} holds an unfinished migration (database `{}`): --resume or --replace begins again",
                self.target.login.address.name(),
                super::logical_set::selection::MIGRATION
            ));
        }
        notes
    }
}
