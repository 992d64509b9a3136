//! The source, read-only: nobody changes a row from [`Freeze::take`] on until [`Freeze::release`].

use std::time::Duration;

use fullbore_core::{Error, Result};

use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::logical_set::server::{Facts, Login};

/// How long the server may be silent beyond a lock that it waits for.
const SILENCE: Duration = Duration::from_secs(30);
/// How long a source is tried to be made writable again.
const CLEAN_UP: Duration = Duration::from_secs(30);
const SECONDS_MAX: u64 = 31_536_000;

/// A source that is read-only because of a migration.
pub struct Freeze {
    login: Login,
    timeout: Duration,
    /// What the source was before: `read_only`, and of MySQL `super_read_only`.
    before: Option<(bool, bool)>,
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
        if dialect == Dialect::MariaDb && !may_lock {
            let why =
                "the account lacks RELOAD: accounts with READ_ONLY ADMIN are stopped by FLUSH TABLES WITH READ LOCK";
            return refused(why.into(), "GRANT RELOAD ON *.* TO …; or migrate without --cut-over");
        }
        Ok(())
    }

    /// Changes nothing yet.
    pub fn begin(login: &Login, timeout: Duration) -> Self {
        Self { login: login.clone(), timeout, before: None, held: None }
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
        let read_only =
            if self.is_mysql() { "@@GLOBAL.read_only, @@GLOBAL.super_read_only" } else { "@@GLOBAL.read_only, 0" };
        let answer = connection.query(&format!("SELECT {read_only}"))?;
        let is_on = |column| answer.value(0, column).is_some_and(|value| !matches!(value, "0" | "OFF"));
        let seconds = self.timeout.as_secs().clamp(1, SECONDS_MAX);
        connection.query(&format!("SET SESSION lock_wait_timeout = {seconds}"))?;
        connection.set_silence(self.timeout + SILENCE);
        self.before = Some((is_on(0), is_on(1)));
        let statements: &[&str] = match self.is_mysql() {
            true => &["SET GLOBAL super_read_only = ON"],
            false => &["SET GLOBAL read_only = ON", "FLUSH TABLES WITH READ LOCK"],
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

    /// Makes the source what it was. Gives what was done, or what the user has to do.
    pub fn release(&mut self) -> String {
        let name = self.login.address.name();
        let Some(before) = self.before.take() else { return format!("{name} was not made read-only") };
        self.held = None;
        let undo = self.undo(before);
        let done = || -> Result<()> {
            // Also after a signal.
            let login = Login { halt: None, ..self.login.clone() };
            let mut connection = login.ask()?;
            connection.clean_up_within(CLEAN_UP);
            undo.iter().try_for_each(|statement| Ok(connection.query(statement).map(drop)?))
        };
        match done() {
            Ok(()) => format!("{name} is writable as before"),
            Err(error) => {
                format!("{name} could not be made writable again: run {} on it ({})", undo.join("; "), error.one_line())
            }
        }
    }

    fn undo(&self, (read_only, super_read_only): (bool, bool)) -> Vec<String> {
        let mut undo = Vec::new();
        if self.is_mysql() && !super_read_only {
            undo.push("SET GLOBAL super_read_only = OFF".to_owned());
        }
        if !read_only {
            undo.push("SET GLOBAL read_only = OFF".to_owned());
        }
        undo
    }

    /// After the end: how the source gets writable again.
    pub fn way_back(&self) -> String {
        let name = self.login.address.name();
        let undo = self.before.map(|before| self.undo(before)).unwrap_or_default();
        match undo.is_empty() {
            true => format!("{name} was read-only before, and stays so"),
            false => format!(
                "{name} stays read-only. The way back: run {} on it. What is written to the target from now on does not \
                 reach it",
                undo.join("; ")
            ),
        }
    }
}
