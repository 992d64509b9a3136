//! A logical set into a running server: tables first, then each chunk of rows as it comes, then everything else.

mod accounts;
pub mod check;
pub mod creation;
mod ddl;
mod definers;
mod given;
mod grants;
pub mod history;
pub mod notes;
pub mod objects;
mod passed_over;
mod plan;
mod prepare;
mod redo;
mod rollback;
mod rows;
mod straight;
mod streams;
mod vendor;
mod words;

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fullbore_core::error::counted;
use fullbore_core::threads::in_turns;
use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};

pub use ddl::set_sequence;
pub use given::Feed;
pub use prepare::{SETTINGS, control, session_names};
pub use vendor::{fit_code, nearest as nearest_collation, with_collations, with_nearest as with_nearest_collations};

use super::catalog::Account;
use super::lock;
use super::server::{Facts, Login};
use super::tsv::Tally;
use crate::Options;
use crate::engine::{Load, LoadOrder, Loaded};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical::columns::have_history;
use crate::mysql_family::server_options::{DISABLE_REDO, USERS};
use crate::mysql_family::system_zone::SystemZone;
use crate::mysql_family::version::series;
use plan::{Plan, PlannedDatabase, PlannedTable};
use redo::RedoOff;
use rows::{Loader, Way};
use streams::StreamLoad;

/// How many names a warning lists.
const NAMED_MAX: usize = 10;

/// The warning about a target that somebody else, or a load that was killed, has made unsafe.
const REDO_IS_OFF: &str = "the redo log of the target is off (ALTER INSTANCE DISABLE INNODB REDO_LOG): a crash of the server \
                           loses the instance. ALTER INSTANCE ENABLE INNODB REDO_LOG switches it on";

/// A load into a server.
pub struct ServerLoad {
    login: Login,
    dialect: Dialect,
    way: Way,
    order: LoadOrder,
    plan: Plan,
    /// The accounts to make (`--users`).
    accounts: Vec<Account>,
    streams: HashMap<u32, Mutex<StreamLoad>>,
    /// The other streams of the set: not chosen, or loaded already.
    passed: HashSet<u32>,
    control: Mutex<Connection>,
    spare: [Mutex<Vec<Loader>>; 2],
    /// The rows of each table, by the set.
    expected: Mutex<Vec<Tally>>,
    loaded_rows: AtomicU64,
    /// Held by the only statement that loads a table whose rows lock each other.
    one_at_a_time: Mutex<()>,
    begun: Mutex<&'static str>,
    notes: Vec<String>,
    /// With `--disable-redo`.
    redo: Option<RedoOff>,
}

impl ServerLoad {
    /// Connects, checks, and creates databases and tables.
    ///
    /// # Errors
    /// As for [`LogicalEngine::load`](crate::engine::LogicalEngine::load).
    pub fn begin(url: &str, order: LoadOrder, options: &Options) -> Result<Self> {
        let login = Login::of(url, &options.given, options.halt.clone())?;
        if login.address.database.is_some() {
            let why = "a load goes into the databases of the set";
            return Err(Error::usage("--into", why, "leave the database out, and rename with --map OLD=NEW"));
        }
        Self::on(login, order, options)
    }

    /// The same on a server with this login; a database in its address says nothing.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub fn on(login: Login, mut order: LoadOrder, options: &Options) -> Result<Self> {
        let dialect = login.address.dialect;
        let mut control = prepare::control(&login)?;
        let facts = Facts::ask(&mut control, dialect)?;
        let other_vendor = order.engine != dialect.name();
        let mut plan = Plan::of(&mut order, other_vendor)?;
        if order.leave_events {
            // A migration compares the definitions at its end.
            plan.code.iter_mut().for_each(|code| code.broken = false);
            plan.code.retain(|code| code.kind != "EVENT");
        }
        let disables = options.given.has(&DISABLE_REDO);
        if disables {
            redo::demand_possible(&facts)?;
        } else if dialect == Dialect::MySql && redo::is_off(&mut control)? {
            plan.warnings.push(REDO_IS_OFF.to_owned());
        }
        fit(&mut control, &mut plan, dialect, other_vendor)?;
        let local = control.query("SELECT @@local_infile")?;
        let way = if local.single() == Some("1") { Way::LoadData } else { Way::Insert };
        let mut notes = Vec::new();
        if way == Way::Insert {
            notes.push(
                "the target does not allow LOAD DATA LOCAL (local_infile = OFF): INSERT is slower. SET GLOBAL local_infile = \
                 ON allows it"
                    .to_owned(),
            );
        }
        prepare::mark_transactions(&mut control, &mut plan)?;
        let mut accounts = match options.given.has(&USERS) {
            true => accounts::chosen(&mut control, &order, &plan, dialect)?,
            false => Vec::new(),
        };
        plan.warnings.extend(accounts::without_public(&mut accounts, &facts));
        plan.warnings.extend(accounts::fit(&mut control, &mut accounts, dialect, order.new_server)?);
        notes.extend(accounts::with_parts_of_super(&mut accounts, series(&order.engine_version), &facts));
        let zone = SystemZone::of(&order.position);
        plan.warnings.extend(creation::fit_zone(&mut control, &mut plan.code, zone.as_ref()));
        definers::warn(&mut control, &mut plan, &facts, &accounts)?;
        let earlier = prepare::prepared(&mut control, &login, &order, &mut plan, &facts, !accounts.is_empty())?;
        let expected = Mutex::new(vec![Tally::default(); plan.tables.len()]);
        let (streams, passed) = streams::of_order(&order, &plan, &earlier.streams, &mut lock(&expected));
        let redo = if disables && !order.dry_run { Some(RedoOff::begin(&login, &mut control)?) } else { None };
        let whole = earlier.streams.values().filter(|tables| tables.is_none()).count() as u64;
        if whole > 0 {
            let count = counted(whole, "stream");
            notes.push(format!("the target already has {count} of the set"));
        }
        let spare = Default::default();
        let (loaded_rows, begun) = (AtomicU64::new(0), Mutex::new("its tables, without all of their rows"));
        let control = Mutex::new(control);
        Ok(Self {
            login,
            dialect,
            way,
            order,
            plan,
            accounts,
            streams,
            passed,
            control,
            spare,
            expected,
            loaded_rows,
            one_at_a_time: Mutex::default(),
            begun,
            notes,
            redo,
        })
    }

    /// The idle connections for tables with transactions, or without. They stay apart: MySQL warns of a transaction that
    /// mixes engines if its session has loaded a table without transactions before.
    fn spare(&self, transaction: bool) -> &Mutex<Vec<Loader>> {
        &self.spare[usize::from(transaction)]
    }

    fn loader(&self, transaction: bool) -> Result<Loader> {
        if let Some(loader) = lock(self.spare(transaction)).pop() {
            return Ok(loader);
        }
        let mut connection = prepare::control(&self.login)?;
        if self.way == Way::Insert {
            connection.query("SET NAMES binary")?;
        }
        if self.plan.tables.iter().any(|table| have_history(&table.columns)) {
            connection.query(history::INSERT)?;
        }
        Loader::new(connection, self.way)
    }

    /// Does something with each wanted table, on several connections.
    fn each_table(
        &self,
        wanted: impl Fn(&PlannedTable) -> bool,
        work: impl Fn(&mut Connection, &PlannedTable) -> Result<()> + Sync,
    ) -> Result<()> {
        let tables: Vec<&PlannedTable> = self.plan.tables.iter().filter(|table| wanted(table)).collect();
        let connections = Mutex::new(Vec::new());
        in_turns("load", self.order.at_once.max(1), tables, |table| {
            let spare = lock(&connections).pop();
            let mut connection = spare.map_or_else(|| prepare::control(&self.login), Ok)?;
            work(&mut connection, table)?;
            lock(&connections).push(connection);
            Ok(())
        })
    }

    /// Indexes, then foreign keys, which need the indexes of other tables. A load that continues passes over those that
    /// are there.
    fn add_indexes(&self) -> Result<()> {
        let resume = self.order.resume;
        self.each_table(
            |table| !table.split.indexes.is_empty(),
            |connection, table| {
                let mut indexes = table.split.indexes.iter();
                indexes.try_for_each(|what| objects::add(connection, table, what, resume))
            },
        )?;
        self.each_table(
            |table| table.split.foreign_keys.is_some(),
            |connection, table| {
                let there = resume && objects::has_foreign_keys(connection, table)?;
                let mut keys = table.split.foreign_keys.iter().filter(|_| !there);
                keys.try_for_each(|what| objects::add(connection, table, what, false))
            },
        )
    }

    fn demand_complete(&self) -> Result<()> {
        let incomplete = self.streams.iter().find(|(_, load)| !lock(load).is_complete());
        match incomplete {
            None => Ok(()),
            Some((stream, _)) => {
                let why = format!("its stream {stream} did not come to its end");
                Err(Error::incomplete("media set", why, "use another set"))
            }
        }
    }
}

/// Writes the definitions in the words of the target. What it has no words for is named in warnings.
fn fit(control: &mut Connection, plan: &mut Plan, dialect: Dialect, other_vendor: bool) -> Result<()> {
    history::fit(control, plan, dialect)?;
    vendor::fit_collations(control, plan)?;
    passed_over::fit(control, plan, dialect)?;
    if other_vendor {
        let lost = words::fit(plan, dialect);
        passed_over::warn(plan, lost);
    }
    leave_databases(plan);
    Ok(())
}

/// A load of a part of a database leaves the database as it is: others may use it. Its objects get the collation that it has.
fn leave_databases(plan: &mut Plan) {
    let parts = || plan.databases.iter().filter(|database| !database.whole);
    let name = |database: &PlannedDatabase| database.name.clone();
    let other: Vec<String> = parts().filter(|it| prepare::has_other_collations(it, plan)).map(name).collect();
    let parts: HashSet<String> = parts().map(name).collect();
    plan.code.iter_mut().filter(|it| parts.contains(&it.schema)).for_each(|it| it.database_collation.clear());
    if !other.is_empty() {
        plan.warnings.push(format!(
            "routines, triggers and events get the present collation of their database, and not the one of their creation, because only a \
             part of it is loaded: {}",
            first_of(other, NAMED_MAX)
        ));
    }
}

impl Load for ServerLoad {
    fn plan(&self) -> Loaded {
        let (tables, rows) = (self.plan.tables.len() as u64, 0);
        Loaded { tables, rows, warnings: self.plan.warnings.clone(), notes: self.notes.clone() }
    }

    fn finish(&self) -> Result<Loaded> {
        self.demand_complete()?;
        *lock(&self.begun) = "all rows, without all of their indexes and keys";
        self.add_indexes()?;
        self.each_table(history::has_period, |connection, table| Ok(history::close(connection, &table.quoted())?))?;
        *lock(&self.begun) = "all rows and indexes, without all of its other objects";
        let left_out = {
            let mut control = lock(&self.control);
            // What the target refuses keeps nothing else away.
            let accounts = accounts::create(&mut control, &self.accounts, self.dialect);
            let code = objects::create_code(&mut control, &self.plan);
            let grants = grants::grant(&mut control, &self.accounts, &self.order.maps, self.dialect);
            let broken = accounts.and(code)?;
            let orphans = objects::without_parents(&mut control, &self.plan)?;
            grants?.into_iter().chain(broken).chain(orphans).collect::<Vec<_>>()
        };
        if self.order.check {
            *lock(&self.begun) = "everything, but the check of its rows did not end well";
            let expected = lock(&self.expected).clone();
            let readers = Mutex::new(Vec::new());
            in_turns("check", self.order.at_once.max(1), 0..self.plan.tables.len(), |place| {
                let spare = lock(&readers).pop();
                let mut connection = spare.map_or_else(|| self.login.read(), Ok)?;
                check::compare(&mut connection, &self.plan, place, &expected)?;
                lock(&readers).push(connection);
                Ok(())
            })?;
        }
        if let Some(redo) = &self.redo {
            redo.end()?;
        }
        notes::remove(&mut lock(&self.control))?;
        let idle = self.spare.iter().flat_map(|spare| std::mem::take(&mut *lock(spare)));
        idle.for_each(|loader| loader.connection.quit());
        let mut loaded = self.plan();
        loaded.warnings.extend(left_out);
        loaded.rows = self.loaded_rows.load(Ordering::Relaxed);
        loaded.notes.push(format!(
            "loaded into {}: {} with {}",
            self.dialect.title(),
            counted(loaded.tables, "table"),
            counted(loaded.rows, "row")
        ));
        if self.redo.is_some() {
            loaded.notes.push("the redo log of the target was off during the load, and is on again".to_owned());
        }
        if !self.accounts.is_empty() {
            let made = self.accounts.iter().filter(|account| !account.is_public()).count();
            let made = counted(made as u64, "account");
            let stay = if self.order.new_server { "The" } else { "root, the account of this load and the" };
            loaded.notes.push(format!("made {made} with their grants. {stay} server's own stay"));
        }
        if self.order.check {
            loaded.notes.push("the rows of each table were read again: they are the rows of the set".to_owned());
        }
        Ok(loaded)
    }

    fn left(&self) -> String {
        format!(
            "{} holds {}; its database `{}` marks it as not complete. The same restore with --resume continues it, and \
             with --replace begins again{}",
            self.login.address.name(),
            lock(&self.begun),
            super::selection::NOTES,
            self.redo.as_ref().map_or_else(String::new, |redo| format!("; {}", redo.told_end()))
        )
    }
}
