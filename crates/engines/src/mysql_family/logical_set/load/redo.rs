//! The redo log of a target, off while its rows are loaded (`--disable-redo`): MySQL 8.0.21 and later.

use std::sync::Mutex;
use std::time::Duration;

use fullbore_core::{Error, Result};

use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::logical_set::lock;
use crate::mysql_family::logical_set::server::{Facts, Login};

/// The privilege.
const PRIVILEGE: &str = "INNODB_REDO_LOG_ENABLE";
const DISABLE: &str = "ALTER INSTANCE DISABLE INNODB REDO_LOG";
const ENABLE: &str = "ALTER INSTANCE ENABLE INNODB REDO_LOG";
/// How long the server may need to write all of its pages before its redo log is on again.
const ENABLING: Duration = Duration::from_secs(3600);

/// The redo log is off. It is on again when this is dropped, whatever the reason.
pub struct RedoOff {
    login: Login,
    is_off: Mutex<bool>,
}

/// Refuses a target whose redo log cannot be switched off by this account.
///
/// # Errors
/// The target has no such statement, or the account lacks the privilege.
pub fn demand_possible(facts: &Facts) -> Result<()> {
    if facts.dialect != Dialect::MySql || facts.series < (8, 0) {
        let why = format!("{} has no ALTER INSTANCE DISABLE INNODB REDO_LOG", facts.named());
        return Err(Error::usage("--disable-redo", why, "leave it out: it is for MySQL 8.0.21 and later"));
    }
    if !facts.grants.globally(PRIVILEGE) {
        let why = format!("the account lacks the privilege {PRIVILEGE}");
        return Err(Error::refused(
            "--disable-redo",
            why,
            format!("GRANT {PRIVILEGE} ON *.* TO it, or leave the flag out"),
        ));
    }
    Ok(())
}

/// Whether the redo log of a server is off. False for servers that always have it.
///
/// # Errors
/// The connection fails.
pub fn is_off(connection: &mut Connection) -> Result<bool> {
    let answer = connection.query("SHOW GLOBAL STATUS LIKE 'Innodb_redo_log_enabled'")?;
    Ok(answer.value(0, 1) == Some("OFF"))
}

impl RedoOff {
    /// Switches it off.
    ///
    /// # Errors
    /// The server refuses.
    pub fn begin(login: &Login, connection: &mut Connection) -> Result<Self> {
        // Enabled again also if only the answer was lost. A signal must not end that.
        let off = Self { login: Login { halt: None, ..login.clone() }, is_off: Mutex::new(true) };
        match connection.query(DISABLE) {
            Ok(_) => Ok(off),
            Err(Failure::Server(error)) => {
                *lock(&off.is_off) = false;
                let why = format!("the target refuses it: {error}");
                Err(Error::refused("--disable-redo", why, "leave it out"))
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// Switches it on, if it is off.
    ///
    /// # Errors
    /// The server refuses, or is lost.
    pub fn end(&self) -> Result<()> {
        let mut is_off = lock(&self.is_off);
        if *is_off {
            let mut connection = Connection::open(&self.login.address, &self.login.credentials, None)?;
            connection.set_silence(ENABLING);
            connection.query(ENABLE)?;
            *is_off = false;
            connection.quit();
        }
        Ok(())
    }

    /// After an error: switches it on, and says whether that was possible.
    pub fn told_end(&self) -> String {
        match self.end() {
            Ok(()) => "its redo log is on again".to_owned(),
            Err(error) => format!(
                "its redo log is still OFF, and a crash of the server now loses the instance. Run {ENABLE}: {}",
                error.one_line()
            ),
        }
    }
}

impl Drop for RedoOff {
    fn drop(&mut self) {
        // The report of a failed load has said it already.
        let _ = self.end();
    }
}
