//! Log sets of a repository, applied to a target that remembers how far it is: `migrate --repo`. The full is a logical
//! set that the job loads. Each run applies the sets that came since.

use std::path::Path;
use std::time::Instant;

use fullbore_core::halt::Halt;
use fullbore_core::units::{counted, first_of};
use fullbore_core::{Error, Result};

use super::NAMED_MAX;
use super::events;
use super::landing::{Incoming, Landing, PassedOver};
use super::servers::{FROM_MYSQL, refuse_json};
use super::state::{Origin, Phase, State, demand_alone, selection_of_sets};
use crate::engine::{AppliedLog, LogReplay, LogStop, RefreshBase, RefreshOrder, Refreshed, Replayed, UnpackedLog};
use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::end::{End, complete_at, show_time};
use crate::mysql_family::binlog::session::{as_json, set_end};
use crate::mysql_family::binlog::stage::{Kept, Stage, Way};
use crate::mysql_family::binlog::through::apply::Applier;
use crate::mysql_family::binlog::through::settings::Names;
use crate::mysql_family::binlog::walk::Walk;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical_set::catalog::{self, Object};
use crate::mysql_family::logical_set::load::control;
use crate::mysql_family::logical_set::selection::Selection;
use crate::mysql_family::logical_set::server::{Facts, Login, demand_case};
use crate::mysql_family::server_defaults::ServerDefaults;
use crate::mysql_family::sql_text::find_outside;
use crate::mysql_family::system_zone::SystemZone;
use crate::mysql_family::version::series;

/// How far a target is.
///
/// # Errors
/// It cannot be reached, or holds another migration.
pub fn refreshed(order: &RefreshOrder<'_>) -> Result<Refreshed> {
    let (login, mut control) = connect(order)?;
    let Some(state) = State::read(&mut control)? else { return Ok(Refreshed::Nothing) };
    demand_same(&state, &login, order)?;
    match state.phase {
        Phase::Full { .. } => Ok(Refreshed::Begun),
        Phase::Following { place, mark } => {
            let position = as_json(&*place, &login.address.name())?;
            Ok(Refreshed::UpTo(set_end(&place, position), mark.origin.encrypted))
        }
    }
}

/// Ends it: the target keeps what it has.
///
/// # Errors
/// The target cannot be reached, or holds no such migration.
pub fn end(order: &RefreshOrder<'_>) -> Result<Vec<String>> {
    let (login, mut control) = connect(order)?;
    let dialect = dialect_of(order)?;
    demand_alone(&mut control)?;
    let name = login.address.name();
    let Some(state) = State::read(&mut control)? else {
        return Err(Error::refused(name, "it holds no migration that could be ended", "leave --abort out"));
    };
    demand_same(&state, &login, order)?;
    if let (Some(_), Phase::Following { mark, .. }) = (&state.source, &state.phase) {
        // A cut-over was killed, perhaps while it enabled events.
        events::drop_all(&mut control, &Selection::of_databases(&mark.origin.databases))?;
    }
    State::remove(&mut control)?;
    let notes = state.source.map(|before| before.left_by_hand(dialect));
    Ok(notes.into_iter().chain([format!("{name} keeps what it has; no later log set is applied to it")]).collect())
}

fn connect(order: &RefreshOrder<'_>) -> Result<(Login, Connection)> {
    let login = Login::of(order.url, &order.options.given, order.options.halt.clone())?;
    if login.address.database.is_some() {
        let why = "a migration goes into databases of the same names";
        return Err(Error::usage("--into", why, "leave the database out"));
    }
    let control = control(&login)?;
    Ok((login, control))
}

/// The vendor of the server that the sets are of.
fn dialect_of(order: &RefreshOrder<'_>) -> Result<Dialect> {
    Dialect::named(order.engine).ok_or(Error::Halted)
}

fn demand_same(state: &State, login: &Login, order: &RefreshOrder<'_>) -> Result<()> {
    if state.selection == selection_of_sets(order.database) || state.selection.is_empty() {
        return Ok(());
    }
    let why = "it holds a migration of another database, or one that follows its source without a repository";
    let hint = "continue that migration, end it with --abort, or begin again with --replace";
    Err(Error::refused(login.address.name(), why, hint))
}

/// A refresh that is possible.
pub struct Refresh {
    login: Login,
    /// The vendor of the server that the sets are of.
    dialect: Dialect,
    control: Connection,
    selection: String,
    /// The full that is loaded first.
    full: Option<Full>,
    stage: Option<Stage>,
    begun: Instant,
}

/// A full on its way.
struct Full {
    place: End,
    /// The source's collations, if it is of another vendor than the target.
    names: Option<Names>,
    origin: Origin,
    databases: Vec<String>,
}

impl Refresh {
    /// Connects and checks. If there is a base, its rows are loaded first.
    ///
    /// # Errors
    /// The target cannot be reached, cannot take the log, or holds something else.
    pub fn begin(order: &RefreshOrder<'_>, base: Option<&RefreshBase<'_>>) -> Result<Self> {
        let (login, mut control) = connect(order)?;
        let dialect = dialect_of(order)?;
        let facts = Facts::ask(&mut control, login.address.dialect)?;
        let dialects = [dialect, login.address.dialect];
        Applier::new(self::control(&login)?, dialects, None, Box::new(|_, _| false)).map(drop)?;
        let of_source = base.and_then(|base| base.position["lower_case_table_names"].as_u64());
        demand_case(&mut control, of_source.unwrap_or(0))?;
        let full = match base {
            Some(base) => Some(full(&login, &mut control, &facts, order, base)?),
            None => None,
        };
        let selection = selection_of_sets(order.database);
        Ok(Self { login, dialect, control, selection, full, stage: None, begun: Instant::now() })
    }
}

/// Checks the full, and what the target holds of an earlier one.
fn full(
    login: &Login,
    control: &mut Connection,
    facts: &Facts,
    order: &RefreshOrder<'_>,
    base: &RefreshBase<'_>,
) -> Result<Full> {
    let name = login.address.name();
    let dialects = [dialect_of(order)?, login.address.dialect];
    let is_foreign = dialects[0] != dialects[1];
    if !is_foreign && facts.series < series(base.engine_version) {
        let why = format!("it is a {}, older than the source ({})", facts.version, base.engine_version);
        return Err(Error::refused(name, why, "migrate into a server that is not older"));
    }
    let place = End::read(dialects[0], base.position).map_err(|why| {
        let hint = "take another logical full, with an account that may see its place in the log, then a log set";
        Error::refused("the full", format!("no log set can be applied after it: {why}"), hint)
    })?;
    let place = End { at: show_time(base.finished), ..place };
    let databases = databases_of(base, dialects == FROM_MYSQL)?;
    let names = if is_foreign { Some(names_of(base)?) } else { None };
    let earlier = State::read(control)?;
    if let Some(before) = earlier.as_ref().and_then(|state| state.source.as_ref()) {
        let hint = "do so, then end that migration with --abort";
        return Err(Error::refused(name, before.left_by_hand(dialects[0]), hint));
    }
    if let Some(state) = earlier.filter(|_| !base.replace) {
        demand_same(&state, login, order)?;
        match state.phase {
            Phase::Full { made } => demand_own(control, &databases, &made, &name)?,
            Phase::Following { .. } => {
                let why = "another run has just filled it";
                return Err(Error::refused(name, why, "run this again: it applies the log sets"));
            }
        }
    }
    let only = databases.first().filter(|only| databases.len() == 1 && order.database.ends_with(&format!("/{only}")));
    let origin = Origin {
        databases: only.cloned().into_iter().collect(),
        complete: complete_at(base.position),
        encrypted: base.encrypted,
    };
    Ok(Full { place, names, origin, databases })
}

/// The databases of the full. The log must be one that can be applied to its tables.
fn databases_of(base: &RefreshBase<'_>, refuses_json: bool) -> Result<Vec<String>> {
    let (mut databases, mut others, mut with_json) = (Vec::new(), Vec::new(), Vec::new());
    let is_json =
        |create: &str| [" json ", " json,", " json\n"].iter().any(|kind| find_outside(create, kind).is_some());
    for (stream, bytes) in base.catalogs {
        for object in catalog::read(stream, bytes)? {
            match object {
                Object::Database { name, .. } => databases.push(name),
                Object::Table(table) if table.has_rows() && !table.engine.eq_ignore_ascii_case("InnoDB") => {
                    others.push(format!("{} ({})", table.shown(), table.engine));
                }
                Object::Table(table) if refuses_json && is_json(&table.create) => with_json.push(table.shown()),
                _ => {}
            }
        }
    }
    if others.is_empty() {
        return refuse_json("the full", with_json).map(|()| databases);
    }
    let why = format!("the log cannot be applied to tables without transactions: {}", first_of(others, NAMED_MAX));
    let hint = "convert them (ALTER TABLE … ENGINE=InnoDB), and take a new full";
    Err(Error::refused("the full", why, hint))
}

/// The collations of the server that was backed up, by the numbers that its log has.
fn names_of(base: &RefreshBase<'_>) -> Result<Names> {
    let names: Names = serde_json::from_value(base.position["collations"].clone()).unwrap_or_default();
    if !names.is_empty() {
        return Ok(names);
    }
    let why = "it does not name the collations of its server, which a target of another vendor needs";
    Err(Error::refused("the full", why, "take another logical full with this version of fullbore, then a log set"))
}

/// A full that begins again drops the databases that the interrupted one has made, and no others.
fn demand_own(control: &mut Connection, wanted: &[String], made: &[String], server: &str) -> Result<()> {
    let there = control.query("SELECT schema_name FROM information_schema.schemata")?;
    let there: Vec<&str> = there.rows.iter().filter_map(|row| row.first()?.as_deref()).collect();
    let is_there = |name: &String| there.iter().any(|known| known.eq_ignore_ascii_case(name));
    match wanted.iter().find(|name| !made.contains(name) && is_there(name)) {
        None => Ok(()),
        Some(name) => {
            let why = format!("it has a database `{name}` that the interrupted migration has not made");
            let hint = "rename or drop this database, or begin again with --replace, which drops it";
            Err(Error::refused(server, why, hint))
        }
    }
}

impl LogReplay for Refresh {
    fn loads(&mut self) -> Result<()> {
        let Some(full) = &self.full else { return Ok(()) };
        State::begin(&mut self.control, &self.selection, &full.databases)?;
        full.names.as_ref().map_or(Ok(()), |names| State::keep_names(&mut self.control, names))
    }

    fn mark(&mut self) -> Result<()> {
        let Some(full) = self.full.take() else { return Ok(()) };
        State::follow(&mut self.control, &full.place, full.origin)
    }

    fn stage(&mut self, set: &UnpackedLog<'_>, stop: Option<&LogStop>) -> Result<AppliedLog> {
        let stage = match &mut self.stage {
            Some(stage) => stage,
            None => {
                let name = format!("the log that {} holds", set.name);
                let from = Incoming { dialect: self.dialect, name, source: None, selection: None };
                let landing = Landing::begin(&self.login, from)?;
                self.begun = Instant::now();
                let base = landing.stands.clone();
                self.stage.insert(Stage::by(Way::Kept(Box::new(landing)), self.dialect, &base))
            }
        };
        stage.add(set, stop)?;
        let position = as_json(&stage.stands, set.name)?;
        Ok(AppliedLog { stands: set_end(&stage.stands, position), stopped: stage.is_stopped() })
    }

    fn run(self: Box<Self>, _: &Path, stop: Option<&LogStop>, _: &Halt) -> Result<Replayed> {
        let Some(stage) = self.stage else { return Ok(Replayed::default()) };
        stage.demand(stop)?;
        let Way::Kept(kept) = &stage.way else { return Err(Error::Halted) };
        Ok(Replayed {
            gtid: stage.stands.binlog.gtid.clone(),
            place: stage.stands.binlog.show(),
            seconds: self.begun.elapsed().as_secs_f64(),
            ..kept.told()
        })
    }
}

impl Kept for Landing {
    fn longest(&self) -> usize {
        Self::longest(self)
    }

    fn describe(&mut self, format: &[u8]) -> Result<()> {
        Self::describe(self, format)
    }

    fn event(&mut self, event: &[u8], walk: &Walk) -> Result<()> {
        self.take(event, walk)?;
        self.keep_if_long(walk)
    }

    fn end_of_set(&mut self, end: &End) -> Result<()> {
        if self.is_inside() {
            let why = format!("it ends within a transaction, at {}", end.binlog.show());
            return Err(Error::incomplete("log set", why, "use another copy of the set"));
        }
        self.keep_end(end)
    }

    fn enter_source(&mut self, zone: Option<&SystemZone>, defaults: &ServerDefaults) {
        Self::enter_source(self, zone, defaults);
    }

    fn leave_server(&mut self, begin: End) {
        Self::leave_server(self, begin);
    }

    fn told(&self) -> Replayed {
        let PassedOver { accounts, events } = self.passed;
        let told = |count: u64, about: &str, way: &str| {
            (count > 0).then(|| format!("{} about {about} left out: {way}", counted(count, "statement")))
        };
        let notes = [
            told(accounts, "accounts", "create them on the target by hand"),
            told(events, "events", "they would run on the target"),
        ];
        let notes = notes.into_iter().flatten().collect();
        Replayed { transactions: self.totals.transactions, notes, ..Replayed::default() }
    }
}
