//! Migrations of MySQL and MariaDB: a full straight into the target, then the log of the source, then the cut-over.
//! `docs/decisions/0025-migration.md` has the reasons, `docs/verbs/migrate.md` the rules.
//!
//! The full is a logical backup without media (`logical_set/load/straight.rs`), or comes as files ([`cloned`]). [`onto`] reads the log of the source, [`refresh`] log
//! sets; [`landing`] applies both, and [`state`] keeps the place on the target; [`freeze`] makes the source read-only; [`compare`] reads all rows of both servers, and
//! [`compare_definitions`] everything else; [`events`] come last.

mod cloned;
mod compare;
mod compare_definitions;
mod definitions;
mod events;
mod foresee;
mod freeze;
mod landing;
mod onto;
mod refresh;
mod servers;
pub mod state;

use std::time::Duration;

use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::Dialect;
use super::binlog::end::End;
use super::binlog::preflight::{Server, is_beyond, status};
use super::from_sqlite::FromSqlite;
use super::logical_set::describe;
use super::logical_set::load::{ServerLoad, control, history};
use super::logical_set::selection::Selection;
use super::logical_set::server::demand_case;
use super::logical_set::session::LogicalSession;
use super::system_zone::SystemZone;
use crate::Session;
use crate::engine::{
    Compared, Flow, Foreseen, LoadOrder, Loaded, LogReplay, Migration, MigrationEngine, MigrationOrder, MigrationPlan,
    Moved, RefreshBase, RefreshEngine, RefreshOrder, Refreshed, Standing,
};
use cloned::Cloned;
use freeze::{Before, Freeze, unfreeze};
use onto::Onto;
use servers::Servers;
use state::{Origin, Phase, State};

/// The longest step of [`Migration::follow`].
const STEP: Duration = Duration::from_millis(500);
/// How many names an error lists.
const NAMED_MAX: usize = 5;

/// How databases of the engine with the name `source` are migrated into servers of both vendors.
pub fn migration_from(source: &str) -> Option<&'static dyn MigrationEngine> {
    match source {
        "sqlite" => Some(&FromSqlite),
        _ => Dialect::named(source).map(|_| -> &dyn MigrationEngine { &Migrations }),
    }
}

/// Migrations of both engines.
pub struct Migrations;

impl MigrationEngine for Migrations {
    fn begin(&self, order: MigrationOrder) -> Result<Box<dyn Migration>> {
        Ok(Box::new(ServerMigration::begin(order)?))
    }

    fn abort(&self, order: MigrationOrder) -> Result<Vec<String>> {
        let mut servers = Servers::connect(&order)?;
        state::demand_alone(&mut servers.control)?;
        let name = servers.target.address.name();
        let Some(state) = State::read(&mut servers.control)? else {
            return Err(Error::refused(name, "it holds no migration that could be ended", "leave --abort out"));
        };
        state.demand_same(&name, &state::selection(&servers, &order), true)?;
        if state.source.is_some() {
            // A cut-over was killed, perhaps while it enabled events.
            let selection = Selection::of(&servers.source.address, &servers.given(&order))?;
            events::drop_all(&mut servers.control, &selection)?;
        }
        let mut notes: Vec<String> = unfreeze(&mut servers, &state, true)?.into_iter().collect();
        State::remove(&mut servers.control)?;
        notes.push(format!("{name} keeps what was moved so far: drop its databases if nobody needs them"));
        Ok(notes)
    }

    fn out_of_sets(&self) -> Option<&dyn RefreshEngine> {
        Some(self)
    }
}

impl RefreshEngine for Migrations {
    fn refreshed(&self, order: &RefreshOrder<'_>) -> Result<Refreshed> {
        refresh::refreshed(order)
    }

    fn refresh(&self, order: &RefreshOrder<'_>, base: Option<&RefreshBase<'_>>) -> Result<Box<dyn LogReplay>> {
        Ok(Box::new(refresh::Refresh::begin(order, base)?))
    }

    fn cut_over(&self, order: MigrationOrder, database: &str) -> Result<Box<dyn Migration>> {
        Ok(Box::new(ServerMigration::behind_sets(order, database)?))
    }

    fn end_refresh(&self, order: &RefreshOrder<'_>) -> Result<Vec<String>> {
        refresh::end(order)
    }
}

/// A migration that is under way.
struct ServerMigration {
    order: MigrationOrder,
    servers: Servers,
    selection: Selection,
    plan: MigrationPlan,
    /// With its snapshot, until the full is done.
    session: Option<LogicalSession>,
    /// The full comes as files (`--method physical`).
    cloned: Option<Cloned>,
    /// The full begins again: what the target has of it may be dropped.
    again: bool,
    onto: Option<Onto>,
    freeze: Option<Freeze>,
    /// Definitions are compared, too.
    compares_definitions: bool,
    /// The target ran events that an earlier run had enabled before it was killed.
    ran_events: bool,
}

impl ServerMigration {
    fn begin(order: MigrationOrder) -> Result<Self> {
        cloned::demand_possible(&order)?;
        let mut servers = Servers::connect(&order)?;
        let selection = Selection::of(&servers.source.address, &servers.given(&order))?;
        if order.follow {
            servers.demand_log()?;
        }
        if order.cut_over {
            Freeze::demand_allowed(&mut servers.asking, &servers.source, &servers.facts)?;
        }
        // A clone brings the accounts of the source along.
        if order.cut_over && order.compares_definitions && !order.physical {
            servers.demand_objects_seen(&selection)?;
        }
        if !order.dry_run {
            state::demand_alone(&mut servers.control)?;
        }
        let found = State::read(&mut servers.control)?;
        let selected = state::selection(&servers, &order);
        let warnings = if order.cut_over { servers.warn_of_target() } else { None };
        let warnings = warnings.into_iter().collect();
        let mut plan = MigrationPlan { servers: servers.named(), warnings, ..MigrationPlan::default() };
        if let Some(state) = found.as_ref().filter(|_| (order.replace || order.resume) && !order.dry_run) {
            plan.notes.extend(unfreeze(&mut servers, state, state.selection == selected)?);
        }
        let earlier = found.filter(|_| !order.replace || order.resume);
        let mut this = Self {
            plan,
            servers,
            selection,
            session: None,
            cloned: None,
            again: false,
            onto: None,
            freeze: None,
            compares_definitions: false,
            ran_events: false,
            order,
        };
        match earlier {
            None if this.order.resume => {
                if !this.continue_clone()? {
                    let why = "it holds no migration that could be continued";
                    return Err(nothing_to_continue(&this.servers, why, "leave --resume out"));
                }
            }
            None => this.open_full()?,
            Some(state) => {
                state.demand_same(&this.servers.target.address.name(), &selected, this.order.resume)?;
                match state.phase {
                    Phase::Full { made } => {
                        this.again = true;
                        this.plan.notes.push("the full was interrupted: it begins again".into());
                        this.open_full()?;
                        this.demand_own(&made)?;
                    }
                    Phase::Following { .. } if !this.order.follow => {
                        let why = "its full is complete, and what the source has changed since is in the log only";
                        let hint = "leave --no-follow out, or begin again with --replace and without --resume";
                        return Err(Error::refused(this.servers.target.address.name(), why, hint));
                    }
                    Phase::Following { .. } => {
                        this.plan.is_full_done = true;
                        this.begin_following()?;
                    }
                }
            }
        }
        Ok(this)
    }

    /// The cut-over of a target that has the log sets of the source.
    fn behind_sets(order: MigrationOrder, database: &str) -> Result<Self> {
        let mut servers = Servers::connect(&order)?;
        servers.demand_log()?;
        Freeze::demand_allowed(&mut servers.asking, &servers.source, &servers.facts)?;
        let [source, target] = [&servers.source, &servers.target].map(|login| login.address.name());
        if status(&mut servers.asking)?.is_none() {
            let why = "the account may not see the end of its log";
            return Err(Error::refused(source, why, "grant REPLICATION CLIENT (MySQL) or BINLOG MONITOR (MariaDB)"));
        }
        if !order.dry_run {
            state::demand_alone(&mut servers.control)?;
        }
        let found = State::read(&mut servers.control)?;
        let fill = "fill it first: the same command without SOURCE and --cut-over";
        let Some(state) = found.filter(|state| state.selection == state::selection_of_sets(database)) else {
            return Err(nothing_to_continue(&servers, "it does not hold the sets of this database", fill));
        };
        let Phase::Following { place, mark } = &state.phase else {
            return Err(Error::refused(target, "the full is not complete in it", fill));
        };
        let (server, _) = Server::of(&servers.source)?;
        if server.identity != place.server {
            let why = format!(
                "the log sets in the target are of another server ({}; this is {})",
                place.server, server.identity
            );
            return Err(Error::refused(source, why, "name the server that the backups are of"));
        }
        let warnings = servers.warn_of_target().into_iter().collect();
        let mut plan =
            MigrationPlan { servers: servers.named(), is_full_done: true, warnings, ..MigrationPlan::default() };
        let selection = Selection::of_databases(&mark.origin.databases);
        if order.compares_definitions {
            servers.demand_objects_seen(&selection)?;
        }
        let mut ran_events = false;
        if order.dry_run {
            servers.demand_applier()?;
            plan.notes.extend(state.source.as_ref().map(|before| before.left_by_hand(servers.source.address.dialect)));
        } else {
            plan.notes.extend(unfreeze(&mut servers, &state, true)?);
            // Of a run that was killed in its cut-over.
            ran_events = events::drop_all(&mut servers.control, &selection)?;
        }
        let is_named = servers.source.address.database.is_some();
        let databases = if is_named { Vec::new() } else { mark.origin.databases.clone() };
        let mut this = Self {
            order: MigrationOrder { databases, ..order },
            servers,
            selection,
            plan,
            session: None,
            cloned: None,
            again: false,
            onto: None,
            freeze: None,
            compares_definitions: false,
            ran_events,
        };
        if this.order.dry_run {
            this.session = Some(this.snapshot()?);
        }
        Ok(this)
    }

    /// A snapshot of the source, and what it holds.
    fn snapshot(&mut self) -> Result<LogicalSession> {
        let mut options = self.order.source_options.clone();
        options.given = self.servers.given(&self.order);
        let session = LogicalSession::open(&self.order.source, &options)?;
        self.plan.tables = session.tables().count() as u64;
        self.plan.bytes = session.tables().map(|(.., bytes)| bytes).fold(0, u64::saturating_add);
        self.plan.warnings.extend(session.facts().warnings);
        Ok(session)
    }

    /// Takes the snapshot, and checks what would end the migration later.
    fn open_full(&mut self) -> Result<()> {
        if self.order.physical {
            return self.open_clone();
        }
        let session = self.snapshot()?;
        session.demand_unchanged()?;
        if self.order.follow {
            self.demand_transactions(session.tables())?;
            self.servers.demand_no_json(&self.selection)?;
            let of_source = self.servers.facts.lower_case_table_names;
            demand_case(&mut self.servers.control, of_source.into())?;
            // What the account lacks for the log is found before the first row.
            let place = self.place_of(&session)?;
            onto::demand_joined(&self.servers, &place)?;
            self.servers.demand_applier()?;
            self.plan.warnings.extend(self.servers.warn_of_ends(&session.versioned()));
        }
        if self.order.dry_run {
            let load = ServerLoad::begin(&self.order.target, self.load_order(&session)?, &self.order.target_options)?;
            self.plan.notes.extend(crate::engine::Load::plan(&load).notes);
            self.plan.notes.extend(cloned::other_way(&mut self.servers, &self.order));
        }
        self.session = Some(session);
        Ok(())
    }

    /// Tables without transactions are read at another moment than the snapshot: the log would be applied to them twice
    /// or not at all.
    fn demand_transactions<'a>(&self, tables: impl Iterator<Item = (String, &'a str, u64)>) -> Result<()> {
        let others: Vec<String> = tables
            .filter(|(_, engine, _)| !engine.eq_ignore_ascii_case("InnoDB"))
            .map(|(name, engine, _)| format!("{name} ({engine})"))
            .collect();
        if others.is_empty() {
            return Ok(());
        }
        let why =
            format!("the log cannot be followed for tables without transactions: {}", first_of(others, NAMED_MAX));
        let hint = "convert them (ALTER TABLE … ENGINE=InnoDB), or stop the writers and use --no-follow";
        Err(Error::refused(self.servers.source.address.name(), why, hint))
    }

    /// A full that begins again drops the databases that the interrupted one has made, and no others.
    fn demand_own(&mut self, made: &[String]) -> Result<()> {
        let dropped = self.dropped();
        let there = self.servers.control.query("SELECT schema_name FROM information_schema.schemata")?;
        let there: Vec<&str> = there.rows.iter().filter_map(|row| row.first()?.as_deref()).collect();
        let is_there = |name: &String| there.iter().any(|known| known.eq_ignore_ascii_case(name));
        match dropped.into_iter().find(|name| !made.contains(name) && is_there(name)) {
            None => Ok(()),
            Some(name) => {
                let why = format!("it has a database `{name}` that the interrupted migration has not made");
                let hint = "rename or drop this database, or begin again with --replace, which drops it";
                Err(Error::refused(self.servers.target.address.name(), why, hint))
            }
        }
    }

    fn place_of(&self, session: &LogicalSession) -> Result<End> {
        let position = session.position()?;
        let end = End::read(self.servers.source.address.dialect, &position).map_err(|why| {
            let why = format!("the place of the snapshot in its log is unknown: {why}");
            let hint = "grant RELOAD and REPLICATION CLIENT (MySQL) or BINLOG MONITOR (MariaDB), or use --no-follow";
            Error::refused(self.servers.source.address.name(), why, hint)
        })?;
        Ok(End { finished: Some(jiff::Timestamp::now().as_microsecond()), ..end })
    }

    fn load_order(&self, session: &LogicalSession) -> Result<LoadOrder> {
        Ok(LoadOrder {
            set: Uuid::now_v7(),
            engine: self.servers.source.address.dialect.name().to_owned(),
            engine_version: self.servers.facts.version.clone(),
            catalogs: session.catalogs()?,
            large: session.large(),
            replace: self.order.replace || self.again,
            dry_run: self.order.dry_run,
            at_once: session.connections(),
            leave_events: true,
            ..LoadOrder::default()
        })
    }

    fn begin_following(&mut self) -> Result<()> {
        self.onto = Some(Onto::begin(&self.servers, &self.selection)?);
        if self.plan.is_full_done {
            // Of a run that was killed in its cut-over.
            self.ran_events = events::drop_all(&mut self.servers.control, &self.selection)?;
        }
        Ok(())
    }

    /// Events run only on a server that is written to by nobody else.
    fn create_events(&mut self) -> Result<Vec<String>> {
        let mut asking = self.servers.source.ask()?;
        let all = describe::events(&mut asking, &self.selection)?;
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let zone = SystemZone::ask(&mut asking)?;
        let warnings = events::create(&mut control(&self.servers.target)?, all, &zone)?;
        if self.compares_definitions {
            compare_definitions::demand_equal(&self.servers, &self.selection, Some(&zone))?;
        }
        Ok(warnings)
    }

    /// The same error, without the events that were created before it.
    fn without_events(&self, error: Error) -> Error {
        let dropped =
            control(&self.servers.target).and_then(|mut target| events::drop_all(&mut target, &self.selection));
        match dropped {
            Ok(_) => error.noting("no event is in the target yet"),
            Err(_) => error.noting("events of the target may be enabled: drop them before you continue"),
        }
    }

    /// The source must not have changed since it became read-only: an account that may write all the same has not.
    fn demand_still(&mut self) -> Result<()> {
        let Some(freeze) = &mut self.freeze else { return Ok(()) };
        let Some(onto) = &mut self.onto else {
            freeze.unlock()?;
            let found = State::read(&mut self.servers.control)?.map(|state| state.phase);
            let Some(Phase::Following { place, .. }) = found else { return Err(Error::Halted) };
            let now = status(&mut self.servers.asking)?;
            let is_still = now.is_some_and(|now| !is_beyond(&now, &place.binlog));
            return if is_still { Ok(()) } else { Err(freeze.written()) };
        };
        let before = onto.standing_now().transactions;
        freeze.unlock()?;
        let standing = loop {
            let standing = onto.step(STEP)?;
            if standing.at_end {
                break standing;
            }
        };
        if standing.transactions == before { Ok(()) } else { Err(freeze.written()) }
    }
}

impl Migration for ServerMigration {
    fn plan(&self) -> MigrationPlan {
        self.plan.clone()
    }

    fn foresee(&mut self, flow: &Flow<'_>, most: Duration) -> Result<Foreseen> {
        let Some(session) = self.session.take() else { return Ok(Foreseen::default()) };
        foresee::look(&mut self.servers.asking, &session, flow, most)
    }

    fn full(&mut self, flow: &Flow<'_>, tell: &dyn Fn(&str)) -> Result<Moved> {
        if self.cloned.is_some() {
            return self.full_by_clone(flow, tell);
        }
        let session = self.session.take().ok_or(Error::Halted)?;
        let place = if self.order.follow { Some(self.place_of(&session)?) } else { None };
        let order = self.load_order(&session)?;
        let selected = state::selection(&self.servers, &self.order);
        // Refuses a target that holds something, before the target is changed.
        if !order.replace {
            drop(ServerLoad::begin(
                &self.order.target,
                LoadOrder { dry_run: true, ..order.clone() },
                &self.order.target_options,
            )?);
        }
        State::begin(&mut self.servers.control, &selected, &session.databases())?;
        let load = ServerLoad::begin(&self.order.target, order, &self.order.target_options)?;
        let (bytes, stages) = load.take_snapshot(&session, flow)?;
        // A reader does not notice that a table has another name: the log would rename it once more.
        if self.order.follow {
            session.demand_kept()?
        } else {
            session.demand_unchanged()?
        }
        let writers_blocked = session.facts().writers_blocked;
        drop(session);
        let loaded = crate::engine::Load::finish(&load)?;
        if let Some(place) = place {
            State::follow(&mut self.servers.control, &place, Origin::default())?;
            self.begin_following()?;
        }
        Ok(Moved { loaded, bytes, stages, writers_blocked })
    }

    fn follow(&mut self) -> Result<Standing> {
        self.onto.as_mut().ok_or(Error::Halted)?.step(STEP)
    }

    fn freeze(&mut self) -> Result<()> {
        let freeze = Freeze::begin(&self.servers.source, self.order.source_options.lock_timeout)?;
        State::keep_source(&mut self.servers.control, Some(freeze.before()))?;
        self.freeze.insert(freeze).take()
    }

    fn compare(&mut self, definitions: bool) -> Result<Compared> {
        self.compares_definitions = definitions;
        if definitions {
            compare_definitions::demand_equal(&self.servers, &self.selection, None)?;
        }
        compare::all(&self.servers, &self.selection, self.order.source_options.readers).map_err(|error| {
            match self.ran_events {
                true => error.noting(
                    "events that a killed cut-over had enabled have run on the target, and may have changed these rows",
                ),
                false => error,
            }
        })
    }

    fn end(&mut self) -> Result<Loaded> {
        self.demand_still()?;
        if self.servers.target_facts.dialect == Dialect::MariaDb {
            history::close_all(&mut self.servers.control)?;
        }
        let made = self.create_events().and_then(|warnings| {
            self.freeze.iter().try_for_each(Freeze::demand_read_only)?;
            Ok(warnings)
        });
        let warnings = made.map_err(|error| self.without_events(error))?;
        let mut notes = Vec::new();
        State::remove(&mut self.servers.control)?;
        if let Some(freeze) = self.freeze.take() {
            notes.push(freeze.way_back());
        }
        Ok(Loaded { warnings, notes, ..Loaded::default() })
    }

    fn give_up(&mut self) -> Vec<String> {
        let mut notes: Vec<String> = self.cloned.take().and_then(|cloned| cloned.left).into_iter().collect();
        if let Some(freeze) = self.freeze.take() {
            match freeze.release() {
                Ok(done) => {
                    notes.push(done);
                    let forget = |mut target| State::keep_source(&mut target, None);
                    let _ = self.servers.control_now().and_then(forget); // Else the next run does it again.
                }
                Err(left) => notes.push(left),
            }
        }
        if let Ok(Some(_)) = self.servers.control_now().and_then(|mut target| State::read(&mut target)) {
            notes.push(format!(
                "{} holds an unfinished migration (database `{}`): --resume continues it, --replace begins again",
                self.servers.target.address.name(),
                super::logical_set::selection::MIGRATION
            ));
        }
        notes
    }
}

/// The error of a target without a migration. A cut-over that was killed behind its last step has left the source read-only.
fn nothing_to_continue(servers: &Servers, why: &str, hint: &str) -> Error {
    let (source, name) = (servers.source.address.name(), servers.target.address.name());
    if !Before::ask(&servers.source).is_ok_and(|before| before.is_read_only()) {
        return Error::refused(name, why, hint);
    }
    let why =
        format!("{why}. {source} is read-only: perhaps a cut-over was killed at its end, and the target is complete");
    let hint = format!(
        "compare both servers. If the target is complete, use it, without --replace. Else make {source} writable (SET GLOBAL \
         read_only = OFF), and {hint}"
    );
    Error::refused(name, why, hint)
}
