//! Migrations of MySQL and MariaDB: a full straight into the target, then the log of the source, then the cut-over.
//! `docs/decisions/0025-migration.md` has the reasons, `docs/verbs/migrate.md` the rules.
//!
//! The full is a logical backup without media (`logical_set/load/straight.rs`). [`onto`] applies the log; [`state`] keeps
//! the place on the target; [`freeze`] makes the source read-only; [`compare`] reads all rows of both servers.

mod compare;
mod definitions;
mod foresee;
mod freeze;
mod onto;
mod servers;
mod state;

use std::time::Duration;

use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::binlog::end::End;
use super::logical_set::describe;
use super::logical_set::load::{ServerLoad, control, objects};
use super::logical_set::selection::Selection;
use super::logical_set::session::LogicalSession;
use crate::Session;
use crate::engine::{
    Compared, Flow, Foreseen, LoadOrder, Migration, MigrationEngine, MigrationOrder, MigrationPlan, Moved, Standing,
};
use freeze::Freeze;
use onto::Onto;
use servers::Servers;
use state::{Phase, State};

/// The longest step of [`Migration::follow`].
const STEP: Duration = Duration::from_millis(500);
/// How many names an error lists.
const NAMED_MAX: usize = 5;

/// Migrations of both engines.
pub struct Migrations;

impl MigrationEngine for Migrations {
    fn begin(&self, order: MigrationOrder) -> Result<Box<dyn Migration>> {
        Ok(Box::new(ServerMigration::begin(order)?))
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
    /// The full begins again: what the target has of it may be dropped.
    again: bool,
    onto: Option<Onto>,
    freeze: Option<Freeze>,
}

impl ServerMigration {
    fn begin(order: MigrationOrder) -> Result<Self> {
        let mut servers = Servers::connect(&order)?;
        let selection = Selection::of(&servers.source.address, &servers.given(&order))?;
        if order.follow {
            servers.demand_log()?;
        }
        if order.cut_over {
            Freeze::demand_allowed(&mut servers.asking, &servers.source, &servers.facts)?;
        }
        let found = State::read(&mut servers.control)?;
        let earlier = found.filter(|_| !order.replace || order.resume);
        let selected = state::selection(&servers, &order);
        let mut this = Self {
            plan: MigrationPlan { servers: servers.named(), ..MigrationPlan::default() },
            servers,
            selection,
            session: None,
            again: false,
            onto: None,
            freeze: None,
            order,
        };
        match earlier {
            None if this.order.resume => {
                let why = "it holds no migration that could be continued";
                return Err(Error::refused(this.servers.target.address.name(), why, "leave --resume out"));
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
                    Phase::Following { .. } => {
                        this.plan.is_full_done = true;
                        this.begin_following()?;
                    }
                }
            }
        }
        Ok(this)
    }

    /// Takes the snapshot, and checks what would end the migration later.
    fn open_full(&mut self) -> Result<()> {
        let mut options = self.order.source_options.clone();
        options.given = self.servers.given(&self.order);
        let session = LogicalSession::open(&self.order.source, &options)?;
        session.demand_unchanged()?;
        if self.order.follow {
            self.demand_transactions(&session)?;
            // What the account lacks for the log is found before the first row.
            let place = self.place_of(&session)?;
            onto::demand_joined(&self.servers, &place)?;
            self.servers.demand_applier()?;
        }
        self.plan.tables = session.tables().count() as u64;
        self.plan.bytes = session.tables().map(|(.., bytes)| bytes).fold(0, u64::saturating_add);
        self.plan.warnings.extend(session.facts().warnings);
        if self.order.dry_run {
            let load = ServerLoad::begin(&self.order.target, self.load_order(&session)?, &self.order.target_options)?;
            self.plan.notes.extend(crate::engine::Load::plan(&load).notes);
        }
        self.session = Some(session);
        Ok(())
    }

    /// Tables without transactions are read at another moment than the snapshot: the log would be applied to them twice
    /// or not at all.
    fn demand_transactions(&self, session: &LogicalSession) -> Result<()> {
        let others: Vec<String> = session
            .tables()
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
        let Some(session) = self.session.as_ref().filter(|_| !self.order.replace) else { return Ok(()) };
        let there = self.servers.control.query("SELECT schema_name FROM information_schema.schemata")?;
        let there: Vec<&str> = there.rows.iter().filter_map(|row| row.first()?.as_deref()).collect();
        let is_there = |name: &String| there.iter().any(|known| known.eq_ignore_ascii_case(name));
        match session.databases().into_iter().find(|name| !made.contains(name) && is_there(name)) {
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
            catalogs: session.catalogs()?,
            large: session.large(),
            replace: self.order.replace || self.again,
            dry_run: self.order.dry_run,
            at_once: session.connections(),
            ..LoadOrder::default()
        })
    }

    fn begin_following(&mut self) -> Result<()> {
        self.onto = Some(Onto::begin(&self.servers, &self.selection)?);
        Ok(())
    }

    /// Events run only on a server that is written to by nobody else.
    fn create_events(&mut self) -> Result<()> {
        let mut asking = self.servers.source.ask()?;
        let events = describe::events(&mut asking, &self.selection)?;
        if events.is_empty() {
            return Ok(());
        }
        objects::create_all(&mut control(&self.servers.target)?, &events)
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

    fn full(&mut self, flow: &Flow<'_>) -> Result<Moved> {
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
        let mut load = ServerLoad::begin(&self.order.target, order, &self.order.target_options)?;
        load.leave_events();
        let (bytes, stages) = load.take_snapshot(&session, flow)?;
        if !self.order.follow {
            session.demand_unchanged()?;
        }
        let writers_blocked = session.facts().writers_blocked;
        drop(session);
        let loaded = crate::engine::Load::finish(&load)?;
        if let Some(place) = place {
            State::follow(&mut self.servers.control, &place)?;
            self.begin_following()?;
        }
        Ok(Moved { loaded, bytes, stages, writers_blocked })
    }

    fn follow(&mut self) -> Result<Standing> {
        self.onto.as_mut().ok_or(Error::Halted)?.step(STEP)
    }

    fn freeze(&mut self) -> Result<()> {
        self.freeze = Some(Freeze::begin(&self.servers.source, self.order.source_options.lock_timeout));
        self.freeze.as_mut().map_or(Ok(()), Freeze::take)
    }

    fn compare(&mut self) -> Result<Compared> {
        compare::all(&self.servers, &self.selection, self.order.source_options.readers)
    }

    fn end(&mut self) -> Result<Vec<String>> {
        self.create_events()?;
        State::remove(&mut self.servers.control)?;
        let mut notes = Vec::new();
        if let Some(freeze) = self.freeze.take() {
            notes.push(freeze.way_back());
        }
        Ok(notes)
    }

    fn give_up(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(mut freeze) = self.freeze.take() {
            notes.push(freeze.release());
        }
        if let Ok(Some(_)) = self.servers.state_now() {
            notes.push(format!(
                "{} holds an unfinished migration (database `{}`): --resume continues it, --replace begins again",
                self.servers.target.address.name(),
                super::logical_set::selection::MIGRATION
            ));
        }
        notes
    }
}
