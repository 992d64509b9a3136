//! The source, read-only: nobody changes a row from [`Freeze::take`] on until [`Freeze::release`].

use std::time::Duration;

use fullbore_core::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::logical_set::server::{Facts, Login};
use crate::mysql_family::migration::servers::Servers;
use crate::mysql_family::migration::state::State;

/// How long the server may be silent beyond a lock that it waits for.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a source is tried to be made writable again.
const CLEAN_UP: Duration = Duration::from_secs(30);
const SECONDS_MAX: u64 = 31_536_000;
/// How long sessions that have waited for the lock of MariaDB need to write.
const WAITERS: Duration = Duration::from_millis(200);
const WRITERS: &str = "end the sessions and events of accounts with SUPER or READ_ONLY ADMIN that write to the source (SHOW \
                       PROCESSLIST, SET GLOBAL event_scheduler = OFF), then continue with --resume --cut-over";

/// What a source was before a migration made it read-only. The target keeps it until the source is so again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// The name of the source.
    pub server: String,
    read_only: bool,
    /// Of MySQL.
    super_read_only: bool,
    /// MariaDB ran events: they may write to a read-only server.
    #[serde(default)]
    runs_events: bool,
}

impl Before {
    /// Asks the source.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    pub fn ask(login: &Login) -> Result<Self> {
        let of_dialect = match login.address.dialect {
            Dialect::MySql => "@@GLOBAL.super_read_only, 0",
            Dialect::MariaDb => "0, @@GLOBAL.event_scheduler = 'ON'",
        };
        let answer = login.ask()?.query(&format!("SELECT @@GLOBAL.read_only, {of_dialect}"))?;
        let is_on = |column| answer.value(0, column).is_some_and(|value| !matches!(value, "0" | "OFF"));
        let (read_only, super_read_only, runs_events) = (is_on(0), is_on(1), is_on(2));
        Ok(Self { server: login.address.name(), read_only, super_read_only, runs_events })
    }

    /// Whether it takes no writes.
    pub fn is_read_only(&self) -> bool {
        self.read_only || self.super_read_only
    }

    /// The statements that make the source what it was.
    pub fn undo(&self, dialect: Dialect) -> Vec<&'static str> {
        let mut undo = Vec::new();
        if dialect == Dialect::MySql && !self.super_read_only {
            undo.push("SET GLOBAL super_read_only = OFF");
        }
        if !self.read_only {
            undo.push("SET GLOBAL read_only = OFF");
        }
        if self.runs_events {
            undo.push("SET GLOBAL event_scheduler = ON");
        }
        undo
    }

    /// What the user has to do if this migration does not know the source.
    pub fn left_by_hand(&self, dialect: Dialect) -> String {
        let (server, undo) = (&self.server, self.undo(dialect).join("; "));
        format!("an earlier migration has left its source {server} read-only: run {undo} on it")
    }

    /// Makes the source what it was, also after a signal.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    pub fn restore(&self, login: &Login) -> Result<()> {
        let login = Login { halt: None, ..login.clone() };
        let mut connection = login.ask()?;
        connection.clean_up_within(CLEAN_UP);
        self.undo(login.address.dialect).iter().try_for_each(|statement| Ok(connection.query(statement).map(drop)?))
    }
}

/// Makes a source what it was before a run that was killed in its cut-over. `same`: it is the source of this migration.
///
/// # Errors
/// A server cannot be reached, or refuses.
pub fn unfreeze(servers: &mut Servers, state: &State, same: bool) -> Result<Option<String>> {
    let Some(before) = &state.source else { return Ok(None) };
    let undo = before.undo(servers.source.address.dialect).join("; ");
    if !same {
        return Ok(Some(before.left_by_hand(servers.source.address.dialect)));
    }
    before.restore(&servers.source)?;
    State::keep_source(&mut servers.control, None)?;
    let name = servers.source.address.name();
    Ok(Some(format!("{name} is what it was before an earlier run made it read-only ({undo})")))
}

/// A source that is read-only because of a migration.
pub struct Freeze {
    login: Login,
    timeout: Duration,
    before: Before,
    /// MariaDB: the account may not stop its events.
    still_runs_events: bool,
    /// MariaDB: the connection with the lock, which also stops accounts that may write to a read-only server.
    held: Option<Connection>,
}

impl Freeze {
    /// Whether the account may do it, without doing it.
    ///
    /// # Errors
    /// It may not.
    pub fn demand_allowed(connection: &mut Connection, login: &Login, facts: &Facts) -> Result<()> {
        let dialect = login.address.dialect;
        // The same value: it changes nothing, and needs the same privilege.
        let same = match dialect {
            Dialect::MySql => "SET GLOBAL super_read_only = @@GLOBAL.super_read_only",
            Dialect::MariaDb => "SET GLOBAL read_only = @@GLOBAL.read_only",
        };
        let refused = |why: String, hint: &str| Err(Error::refused(login.address.name(), why, hint));
        match connection.query(same) {
            Ok(_) => {}
            Err(Failure::Server(error)) => {
                let hint = match dialect {
                    Dialect::MySql => {
                        "GRANT SYSTEM_VARIABLES_ADMIN, CONNECTION_ADMIN ON *.* TO …; or migrate without --cut-over"
                    }
                    Dialect::MariaDb => "GRANT READ_ONLY ADMIN ON *.* TO …; or migrate without --cut-over",
                };
                return refused(format!("the account may not make it read-only: {error}"), hint);
            }
            Err(Failure::Fault(error)) => return Err(error),
        }
        let may_lock = facts.grants.globally("RELOAD") || facts.grants.globally("ALL PRIVILEGES");
        // XA RECOVER shows the prepared transactions, which may still be committed. MySQL 5.7 asks for no privilege.
        let may_recover =
            ["XA_RECOVER_ADMIN", "ALL PRIVILEGES"].iter().any(|privilege| facts.grants.globally(privilege));
        if dialect == Dialect::MySql && facts.series >= (8, 0) && !may_recover {
            let why = "the account lacks XA_RECOVER_ADMIN: prepared XA transactions may still be committed";
            return refused(why.into(), "GRANT XA_RECOVER_ADMIN ON *.* TO …; or migrate without --cut-over");
        }
        if dialect == Dialect::MariaDb && !may_lock {
            let why =
                "the account lacks RELOAD: accounts with READ_ONLY ADMIN are stopped by FLUSH TABLES WITH READ LOCK";
            return refused(why.into(), "GRANT RELOAD ON *.* TO …; or migrate without --cut-over");
        }
        Ok(())
    }

    /// Asks what the source is. Changes nothing yet.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    pub fn begin(login: &Login, timeout: Duration) -> Result<Self> {
        let mut before = Before::ask(login)?;
        // The same value: it changes nothing, and needs the same privilege.
        let still_runs_events =
            before.runs_events && login.ask()?.query_if_allowed("SET GLOBAL event_scheduler = ON")?.is_none();
        before.runs_events &= !still_runs_events;
        Ok(Self { before, login: login.clone(), timeout, still_runs_events, held: None })
    }

    /// What the source was.
    pub fn before(&self) -> &Before {
        &self.before
    }

    fn is_mysql(&self) -> bool {
        self.login.address.dialect == Dialect::MySql
    }

    /// Makes the source read-only.
    ///
    /// # Errors
    /// It refuses, a lock is not free in time, or an XA transaction is prepared. [`release`](Self::release) follows.
    pub fn take(&mut self) -> Result<()> {
        let mut connection = self.login.ask()?;
        let seconds = self.timeout.as_secs().clamp(1, SECONDS_MAX);
        connection.query(&format!("SET SESSION lock_wait_timeout = {seconds}"))?;
        connection.set_silence(self.timeout + SILENCE);
        let statements: &[&str] = match (self.is_mysql(), self.before.runs_events) {
            (true, _) => &["SET GLOBAL super_read_only = ON"],
            (_, false) => &["SET GLOBAL read_only = ON", "FLUSH TABLES WITH READ LOCK"],
            (_, true) => {
                &["SET GLOBAL event_scheduler = OFF", "SET GLOBAL read_only = ON", "FLUSH TABLES WITH READ LOCK"]
            }
        };
        for statement in statements {
            connection.query(statement).map_err(|failure| match failure {
                Failure::Server(error) => {
                    let why = format!("it does not become read-only: {statement}: {error}");
                    let hint = "a session holds a table (SHOW PROCESSLIST): end it, or raise --lock-timeout";
                    Error::refused(self.login.address.name(), why, hint)
                }
                Failure::Fault(error) => error,
            })?;
        }
        let prepared = connection.query_if_allowed("XA RECOVER")?;
        if prepared.is_some_and(|answer| !answer.rows.is_empty()) {
            let why = "it has prepared XA transactions, which may still be committed";
            let hint = "commit them or roll them back (XA RECOVER lists them), then continue with --resume";
            return Err(Error::refused(self.login.address.name(), why, hint));
        }
        self.held = Some(connection);
        Ok(())
    }

    /// Gives back the lock of MariaDB; the source stays read-only. Accounts that may write all the same write from now on.
    ///
    /// # Errors
    /// Such a session waits for the lock.
    pub fn unlock(&mut self) -> Result<()> {
        let Some(mut held) = self.held.take().filter(|_| !self.is_mysql()) else { return Ok(()) };
        // An ordinary session that takes a number of a sequence waits, too, and is refused then.
        let waits = "state IN ('Waiting for backup lock', 'Waiting for global read lock')";
        let may_write = "(EXISTS (SELECT 1 FROM mysql.roles_mapping r WHERE r.user = p.user) OR EXISTS (SELECT 1 FROM \
                         information_schema.user_privileges u WHERE u.privilege_type IN ('SUPER', 'READ_ONLY ADMIN') AND u.grantee LIKE \
                         CONCAT('''', p.user, '''@%')))";
        let asked = format!("SELECT COUNT(*) FROM information_schema.processlist p WHERE {waits}");
        let waiting = match held.query_if_allowed(&format!("{asked} AND {may_write}"))? {
            Some(waiting) => waiting,
            // Not every account may ask what others may do.
            None => held.query(&asked)?,
        };
        match waiting.single() {
            None | Some("0") => {}
            Some(count) => {
                let why = format!("{count} sessions of accounts with READ_ONLY ADMIN wait to write to it");
                return Err(Error::refused(self.login.address.name(), why, WRITERS));
            }
        }
        held.query("UNLOCK TABLES")?;
        held.quit();
        std::thread::sleep(WAITERS);
        Ok(())
    }

    /// The error of a source whose log has moved after it became read-only.
    pub fn written(&self) -> Error {
        let why = "it was written to after it became read-only, by an account that may";
        Error::refused(self.login.address.name(), why, WRITERS)
    }

    /// Nobody has made the source writable meanwhile.
    ///
    /// # Errors
    /// Somebody has, or it cannot be reached.
    pub fn demand_read_only(&self) -> Result<()> {
        if Before::ask(&self.login)?.is_read_only() {
            return Ok(());
        }
        let why = "somebody has made it writable during the cut-over (read_only), so it may have new rows";
        Err(Error::refused(self.login.address.name(), why, "continue with --resume --cut-over"))
    }

    /// Makes the source what it was. Says what was done.
    ///
    /// # Errors
    /// What the user has to do.
    pub fn release(mut self) -> Result<String, String> {
        let name = self.login.address.name();
        self.held = None;
        match self.before.restore(&self.login) {
            Ok(()) => Ok(format!("{name} is writable as before")),
            Err(error) => {
                let undo = self.before.undo(self.login.address.dialect).join("; ");
                Err(format!("{name} could not be made writable again: run {undo} on it ({})", error.one_line()))
            }
        }
    }

    /// After the end: how the source gets writable again.
    pub fn way_back(&self) -> String {
        let name = self.login.address.name();
        let undo = self.before.undo(self.login.address.dialect);
        let still = match (self.is_mysql(), self.still_runs_events) {
            (true, _) => "",
            (_, false) => ". Accounts with READ_ONLY ADMIN can still write to it",
            (_, true) => {
                ". Accounts with READ_ONLY ADMIN can still write to it, and its events still run there: SET GLOBAL event_scheduler = OFF"
            }
        };
        match undo.is_empty() {
            true => format!("{name} was read-only before, and stays so{still}"),
            false => format!(
                "{name} stays read-only until its next start{still}. The way back: run {} on it. What is written to the target from now on does \
                 not reach it",
                undo.join("; ")
            ),
        }
    }
}
