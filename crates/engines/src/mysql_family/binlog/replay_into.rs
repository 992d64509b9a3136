//! Applies log sets to a running server through a connection: each set when it is staged.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fullbore_core::halt::Halt;
use fullbore_core::units::counted;
use fullbore_core::{Error, Result};

use super::end::{End, complete_at};
use super::session::{as_json, set_end};
use super::stage::{Stage, Way};
use super::through::guard::{Guard, RUNS_EVENTS, is_not_a_users};
use super::through::statements::{Connect, Statements};
use super::through::xa;
use crate::engine::{AppliedLog, LogReplay, LogStop, ReplayInto, Replayed, UnpackedLog};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::credentials::{Credentials, PasswordSources};
use crate::mysql_family::logical_set::catalog::{self, Code, Object};
use crate::mysql_family::logical_set::load::{history, notes};
use crate::mysql_family::logical_set::server::demand_case;
use crate::mysql_family::server_options::{PASSWORD_FILE, USERS};
use crate::mysql_family::url::ServerAddress;
use crate::mysql_family::version::series;

/// How long a statement of the log may take.
const SILENCE: std::time::Duration = std::time::Duration::from_secs(86_400);
/// What the notes of a load have in the place of its selection while the log is applied.
const MARK: &str = "log";

/// A replay into a running server.
pub(super) struct ReplayByStatements {
    dialect: Dialect,
    connect: Connect,
    /// The databases that the set has as a whole.
    databases: Vec<String>,
    state: State,
    begun: Instant,
}

/// A connection becomes a stage with the first set.
enum State {
    Connected(Option<Box<Statements>>),
    Staged(Box<Stage>),
}

impl ReplayByStatements {
    /// Connects, and checks that the server can apply the log.
    ///
    /// # Errors
    /// It cannot.
    pub fn begin(dialect: Dialect, on: &ReplayInto<'_>) -> Result<Self> {
        let address = ServerAddress::parse(on.url)?;
        if address.dialect != dialect {
            let why = format!("it is not a {} server, so it cannot apply this log", dialect.title());
            return Err(Error::refused(
                address.name(),
                why,
                "restore without --stop-at, from the newest full: --set ID",
            ));
        }
        let sources = PasswordSources::of_this_process(on.options.given.file(&PASSWORD_FILE).map(Into::into));
        let credentials = Credentials::find(&address, &sources)?;
        let halt = on.options.halt.clone();
        let name = address.name();
        let connect: Connect = Arc::new(move || {
            let mut connection = Connection::open_patient(&address, &credentials, halt.clone())?;
            connection.set_silence(SILENCE);
            Ok(connection)
        });
        let mut connection = connect()?;
        let version = connection.greeting().own_version().to_owned();
        if series(&version) < series(on.engine_version) {
            let why = format!("it is a {version}, older than the source ({})", on.engine_version);
            return Err(Error::refused(name, why, "apply the log to a server that is not older"));
        }
        demand_case(&mut connection, on.position["lower_case_table_names"].as_u64().unwrap_or(0))?;
        let (guard, databases) = guard(&mut connection, on)?;
        connection.quit();
        let statements = Statements::begin(connect.clone(), dialect, guard)?;
        let state = State::Connected(Some(Box::new(statements)));
        Ok(Self { dialect, connect, databases, state, begun: Instant::now() })
    }
}

/// What of the log must not be applied, and the databases that the set has as a whole.
fn guard(connection: &mut Connection, on: &ReplayInto<'_>) -> Result<(Guard, Vec<String>)> {
    let mut databases = Vec::new();
    let mut guard = Guard { replace: on.replace, ..Guard::default() };
    let all = connection.query("SELECT LOWER(schema_name) FROM information_schema.schemata")?;
    guard.foreign = all.rows.into_iter().filter_map(|row| row.into_iter().next()?).collect();
    guard.foreign.retain(|name| !is_not_a_users(name));
    guard.runs_events = connection.query("SELECT @@GLOBAL.event_scheduler")?.single() == Some("ON");
    for (name, bytes) in on.catalogs {
        for object in catalog::read(name, bytes)? {
            match object {
                Object::Database { name, whole, .. } => {
                    guard.foreign.remove(&name.to_lowercase());
                    databases.extend(whole.then_some(name));
                }
                Object::Table(table) if table.has_rows() && !table.engine.eq_ignore_ascii_case("InnoDB") => {
                    guard.unsettled.insert(table.shown().to_lowercase());
                }
                Object::Account(_) => guard.has_accounts = true,
                Object::Code(code) if guard.runs_events && runs(&code) => {
                    let why = format!("the set has {}: {RUNS_EVENTS}", code.shown());
                    let hint = "after the restore: SET GLOBAL event_scheduler = ON";
                    return Err(Error::refused(connection.name(), why, hint));
                }
                _ => {}
            }
        }
    }
    guard.with_accounts = guard.has_accounts && on.options.given.has(&USERS);
    guard.complete = complete_at(on.position);
    Ok((guard, databases))
}

/// Whether it is an event that runs.
fn runs(code: &Code) -> bool {
    code.kind == "EVENT" && code.create.contains(" PRESERVE ENABLE")
}

impl LogReplay for ReplayByStatements {
    fn mark(&mut self) -> Result<()> {
        notes::begin(&mut (self.connect)()?, uuid::Uuid::nil(), MARK, &self.databases)
    }

    fn stage(&mut self, set: &UnpackedLog<'_>, stop: Option<&LogStop>) -> Result<AppliedLog> {
        if let State::Connected(statements) = &mut self.state {
            let base = End::read(self.dialect, &set.stands.position);
            let base = base.map_err(|why| Error::incomplete(set.name, why, "use another full"))?;
            let way = Way::Statements(statements.take().ok_or(Error::Halted)?);
            self.begun = Instant::now();
            self.state = State::Staged(Box::new(Stage::by(way, self.dialect, &base)));
        }
        let State::Staged(stage) = &mut self.state else { return Err(Error::Halted) };
        if let Err(error) = stage.add(set, stop) {
            if let Way::Statements(statements) = &mut stage.way {
                statements.give_up();
            }
            return Err(error);
        }
        let position = as_json(&stage.stands, set.name)?;
        Ok(AppliedLog { stands: set_end(&stage.stands, position), stopped: stage.cut.stopped })
    }

    fn run(self: Box<Self>, _: &Path, stop: Option<&LogStop>, _: &Halt) -> Result<Replayed> {
        let State::Staged(stage) = self.state else { return Ok(Replayed::default()) };
        stage.demand(stop)?;
        let Way::Statements(statements) = &stage.way else { return Err(Error::Halted) };
        let mut notes = Vec::new();
        if !statements.keeps_gtids() && stage.counts.0 > stage.counts.1 {
            notes.push(match self.dialect {
                Dialect::MySql => {
                    "the transactions got new GTIDs on the target: the account lacks REPLICATION_APPLIER, or \
                                   gtid_mode is not ON"
                        .to_owned()
                }
                Dialect::MariaDb => "the transactions got new GTIDs on the target".to_owned(),
            });
        } else if statements.renamed > 0 {
            let count = counted(statements.renamed, "transaction");
            notes.push(format!("{count} got a new GTID, because the target already has one of the same name"));
        }
        let (guard, mut warnings) = (statements.guard(), Vec::new());
        if guard.accounts_left_out > 0 {
            let count = counted(guard.accounts_left_out, "statement");
            let why = match guard.has_accounts {
                true => "--users is not given",
                false => "the set has no accounts",
            };
            notes.push(format!("{count} about accounts of the log left out: {why}"));
        }
        if guard.own_left_out > 0 {
            let count = counted(guard.own_left_out, "statement");
            warnings.push(format!("{count} about tables of the server itself left out, such as those of accounts"));
        }
        warnings.extend(xa::warning(statements.prepared.keys().cloned()));
        let mut connection = (self.connect)()?;
        if self.dialect == Dialect::MariaDb {
            history::close_all(&mut connection)?;
        }
        notes::remove(&mut connection)?;
        Ok(Replayed {
            transactions: stage.counts.0,
            gtid: stage.stands.binlog.gtid.clone(),
            place: stage.stands.binlog.show(),
            seconds: self.begun.elapsed().as_secs_f64(),
            loaded: 0,
            notes,
            warnings,
        })
    }
}
