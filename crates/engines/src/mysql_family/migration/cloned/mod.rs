//! The full as files: the target copies those of the source by CLONE INSTANCE, and starts again on them. Only between two
//! MySQL servers. `docs/verbs/migrate.md` says what must be true.

mod checks;
mod copy;
mod place;
mod restart;
mod scheduler;

use fullbore_core::error::counted;
use fullbore_core::units::show_bytes;
use fullbore_core::{Error, Result};

use super::servers::Servers;
use super::state::{Origin, State, selection};
use super::{ServerMigration, events, onto};
use crate::engine::{Flow, Loaded, MigrationOrder, MigrationPlan, Moved};
use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::end::{End, Piece};
use crate::mysql_family::binlog::preflight::status;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical_set::listing::{Kind, Listed, Listing};
use crate::mysql_family::logical_set::session::LogicalSession;
use crate::mysql_family::url::{Endpoint, ServerAddress, TlsMode};
use restart::Found;
use scheduler::Scheduler;

pub use checks::check;

/// The flag.
const FLAG: &str = "--method physical";

/// Where the target finds the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Donor {
    host: String,
    port: u16,
    /// What CLONE INSTANCE demands of the connection.
    require: &'static str,
}

/// A clone that can begin.
pub struct Cloned {
    donor: Donor,
    scheduler: Scheduler,
    /// The session of the target that runs the statement.
    id: String,
    /// Databases of the target before.
    there: Vec<String>,
    /// Databases of the source.
    made: Vec<String>,
    /// After an error: what the user should know of the target.
    pub left: Option<String>,
}

/// Refuses what no server has to be asked about.
///
/// # Errors
/// The order names another kind of server, a part of one, or a source that the target cannot reach.
pub fn demand_possible(order: &MigrationOrder) -> Result<()> {
    if !order.physical {
        return Ok(());
    }
    let [source, target] = [ServerAddress::parse(&order.source)?, ServerAddress::parse(&order.target)?];
    let refused = |why: String, hint: &str| Err(Error::usage(FLAG, why, hint));
    if let Some(other) = [&source, &target].into_iter().find(|address| address.dialect != Dialect::MySql) {
        let why = format!("only a MySQL server copies the files of another one, and {} is not one", other.name());
        return refused(why, "use --method logical");
    }
    if source.database.is_some() || !order.databases.is_empty() {
        let hint = "leave the database out, or use --method logical";
        return refused("CLONE copies the whole server, and one database is named".into(), hint);
    }
    Donor::of(&source, &target).map(drop)
}

/// What the user of a logical plan should know, if the full could come as files.
pub fn other_way(servers: &mut Servers, order: &MigrationOrder) -> Option<String> {
    demand_possible(&MigrationOrder { physical: true, ..order.clone() }).ok()?;
    check(servers, &mut MigrationPlan::default(), false).ok()?;
    if order.follow {
        checks::demand_ordered(&mut servers.asking).ok()?;
    }
    Some(format!("{FLAG} is possible: the target copies the files of the source, and gets its accounts, too"))
}

impl Donor {
    /// As a server names it.
    fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    fn of(source: &ServerAddress, target: &ServerAddress) -> Result<Self> {
        let refused = |why: String, hint: &str| Err(Error::usage(FLAG, why, hint));
        let Endpoint::Tcp { host, port } = &source.endpoint else {
            let why = format!("the target connects to the source, and {} is a socket of this machine", source.name());
            return refused(why, "write the source as the target sees it: mysql://USER@HOST:PORT");
        };
        if host.contains(':') {
            let why = format!("CLONE takes no IPv6 address ({host})");
            return refused(why, "name the host of the source, or give its IPv4 address");
        }
        let is_loopback = |host: &str| host == "localhost" || host.starts_with("127.");
        if let (true, Endpoint::Tcp { host: other, .. }) = (is_loopback(host), &target.endpoint)
            && !is_loopback(other)
            && other != "::1"
        {
            let why = format!("the target connects to the source, and {host} is its own machine there");
            return refused(why, "write the source as the target sees it: mysql://USER@HOST:PORT");
        }
        let require = match source.tls.mode {
            TlsMode::Disabled => " REQUIRE NO SSL",
            TlsMode::Preferred => "",
            TlsMode::Required | TlsMode::VerifyCa => " REQUIRE SSL",
            TlsMode::VerifyIdentity => {
                return refused(
                    "CLONE does not compare the certificate of the source with its name".into(),
                    "use ssl-mode=verify-ca in the URL of the source, or --method logical",
                );
            }
        };
        // The client library of the server takes a socket for this name.
        let host = if host == "localhost" { "127.0.0.1".to_owned() } else { host.clone() };
        Ok(Self { host, port: *port, require })
    }
}

impl ServerMigration {
    /// Checks what would end the migration later. Statements that change tables do not disturb it.
    pub(super) fn open_clone(&mut self) -> Result<()> {
        let replace = self.order.replace || self.again;
        let mut cloned = check(&mut self.servers, &mut self.plan, replace)?;
        let mut asking = self.servers.source.ask()?;
        let Listing { databases, tables, .. } = Listing::ask(&mut asking, &mut None, Dialect::MySql, &self.selection)?;
        let tables: Vec<_> = tables.iter().filter(|table| table.kind == Kind::Table).collect();
        if self.order.follow {
            self.demand_log_behind_files(&mut asking, &tables)?;
            onto::demand_joined(&self.servers, &end_of_log(&self.servers, &mut asking)?)?;
        }
        self.plan.tables = tables.len() as u64;
        self.plan.bytes = tables.iter().map(|table| table.bytes).fold(0, u64::saturating_add);
        if self.order.dry_run {
            self.session = Some(LogicalSession::open(&self.order.source, &self.order.source_options)?);
        }
        cloned.made = databases;
        self.cloned = Some(cloned);
        Ok(())
    }

    /// The databases of the target that the full drops without `--replace`.
    pub(super) fn dropped(&self) -> Vec<String> {
        match (&self.cloned, &self.session) {
            _ if self.order.replace => Vec::new(),
            (Some(cloned), _) => cloned.there.clone(),
            (None, session) => session.iter().flat_map(LogicalSession::databases).collect(),
        }
    }

    /// The log can be applied to files of these tables.
    fn demand_log_behind_files(&mut self, asking: &mut Connection, tables: &[&Listed]) -> Result<()> {
        let engines = tables.iter().map(|table| (table.object.shown(), table.object.engine.as_str(), table.bytes));
        self.demand_transactions(engines)?;
        checks::demand_ordered(asking)?;
        self.servers.demand_applier()
    }

    /// The full as files. The state is written when the target has started on them.
    pub(super) fn full_by_clone(&mut self, flow: &Flow<'_>, tell: &dyn Fn(&str)) -> Result<Moved> {
        let mut cloned = self.cloned.take().ok_or(Error::Halted)?;
        // A state of another run would not be true any more.
        if State::read(&mut self.servers.control)?.is_some() {
            State::remove(&mut self.servers.control)?;
        }
        let found = cloned.run(&mut self.servers, flow, tell);
        let landed = found.and_then(|found| {
            let notes = self.land(&found, &cloned.made, &cloned.scheduler)?;
            Ok((found, notes))
        });
        let (found, mut notes) = landed.inspect_err(|_| self.cloned = Some(cloned))?;
        cloned_notes(self.servers.target.address.name(), &found, &mut notes);
        let tables = self.plan.tables;
        notes.push(format!("{} copied as files, {}", counted(tables, "table"), show_bytes(found.bytes)));
        let loaded = Loaded { tables, notes, ..Loaded::default() };
        Ok(Moved { loaded, bytes: found.bytes, ..Moved::default() })
    }

    /// The target has started on the files: no event of them stays, and the state is written. Gives what the user should
    /// know.
    fn land(&mut self, found: &Found, made: &[String], scheduler: &Scheduler) -> Result<Vec<String>> {
        events::drop_all(&mut self.servers.control, &self.selection)?;
        let mut end = found.end.clone();
        if self.order.follow {
            end.binlog = place::exact(&mut self.servers.source.ask()?, end.binlog)?;
            onto::demand_joined(&self.servers, &end)?;
        }
        let selected = selection(&self.servers, &self.order);
        State::begin(&mut self.servers.control, &selected, made)?;
        if self.order.follow {
            State::follow(&mut self.servers.control, &end, Origin::default())?;
        }
        let notes = scheduler.give_back(&mut self.servers.control)?;
        if self.order.follow {
            self.begin_following()?;
        }
        Ok(notes)
    }

    /// Continues behind a clone that is complete, although its run ended before the state was written. False without one.
    pub(super) fn continue_clone(&mut self) -> Result<bool> {
        if demand_possible(&MigrationOrder { physical: true, ..self.order.clone() }).is_err() {
            return Ok(false);
        }
        let donor = Donor::of(&self.servers.source.address, &self.servers.target.address)?;
        let Some(found) = restart::complete(&mut self.servers, &donor)? else { return Ok(false) };
        scheduler::demand_off(&mut self.servers.control)?;
        let scheduler = Scheduler::ask(&mut self.servers.control)?;
        let made = checks::databases(&mut self.servers.control)?;
        if self.order.follow {
            let mut asking = self.servers.source.ask()?;
            let listing = Listing::ask(&mut asking, &mut None, Dialect::MySql, &self.selection)?;
            let tables: Vec<_> = listing.tables.iter().filter(|table| table.kind == Kind::Table).collect();
            self.demand_log_behind_files(&mut asking, &tables)?;
        }
        let mut notes = self.land(&found, &made, &scheduler)?;
        notes
            .push(format!("{} has all files of the source: its clone is complete", self.servers.target.address.name()));
        self.plan.notes.extend(notes);
        self.plan.is_full_done = true;
        Ok(true)
    }
}

/// The end of the log of the source now.
fn end_of_log(servers: &Servers, asking: &mut Connection) -> Result<End> {
    let Some(now) = status(asking)? else {
        let why = "the account may not see the end of its log";
        return Err(Error::refused(servers.source.address.name(), why, "grant REPLICATION CLIENT, or use --no-follow"));
    };
    let binlog = Piece { file: now.file, from: now.offset, bytes: 0, head: 0 }.begin();
    Ok(End { binlog, server: servers.facts.server_uuid.clone(), at: String::new(), finished: None, taken: None })
}

fn cloned_notes(target: String, found: &Found, notes: &mut Vec<String>) {
    let login = match found.own_login {
        true => "the login of --into works there, too",
        false => "--into needs the user and the password of the source from now on",
    };
    notes.push(format!("{target} has the accounts of the source now: {login}"));
}
