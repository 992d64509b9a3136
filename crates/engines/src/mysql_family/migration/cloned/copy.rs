//! The statement CLONE INSTANCE, which another connection watches.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};
use zeroize::Zeroizing;

use super::checks::databases;
use super::restart::{self, Found};
use super::scheduler::demand_off;
use super::{Cloned, Donor};
use crate::engine::Flow;
use crate::mysql_family::connection::{Connection, Failure, ServerError};
use crate::mysql_family::credentials::Credentials;
use crate::mysql_family::logical_set::load::control;
use crate::mysql_family::logical_set::server::Login;
use crate::mysql_family::migration::servers::Servers;

/// The time between two looks at the progress.
const LOOK: Duration = Duration::from_millis(200);
/// The server says nothing until the end of a clone: its other connection shows that it lives.
const SILENCE: Duration = Duration::from_secs(30 * 86_400);
/// How long an answer about the clone may take.
const ANSWER: Duration = Duration::from_secs(60);
/// How long a statement that was killed may take to end.
const KILLED: Duration = Duration::from_secs(60);
/// ER_RESTART_SERVER_FAILED: nobody starts the server again.
const NOT_MANAGED: u32 = 3707;
/// ER_PARSE_ERROR: its text quotes the statement.
const NOT_PARSED: u32 = 1064;

/// The end of each message about a target whose clone has no end.
const SCHEDULER_IS_OFF: &str = "Its event scheduler is off (SET PERSIST): begin again with --replace, or run RESET PERSIST \
                                event_scheduler on it";

/// How a clone has ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The server starts again by itself, or its connection is lost.
    Restarts,
    /// The server has shut down, and somebody must start it.
    ShutDown,
}

impl Cloned {
    /// Copies the files, and waits until the target has started on them.
    ///
    /// # Errors
    /// A server refuses or is lost, or the user ends it: then [`Self::left`] says what the target is.
    pub fn run(&mut self, servers: &mut Servers, flow: &Flow<'_>, tell: &dyn Fn(&str)) -> Result<Found> {
        let name = servers.target.address.name();
        tell(&format!("{name} copies the files of the source; its own databases and accounts go"));
        // Also after a signal.
        let mut watching = asking(servers)?;
        let earlier = restart::begun(&mut watching)?;
        let donors = watching.query("SELECT @@GLOBAL.clone_valid_donor_list")?.single().unwrap_or_default().to_owned();
        self.scheduler.stop(&mut watching)?;
        let ended = self.allow(&mut watching).and_then(|()| self.copy(servers, &mut watching, flow));
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                self.left = Some(self.after_error(servers, &donors));
                return Err(error);
            }
        };
        tell(&restart::wanted(servers, ended));
        // Until the state is there.
        self.left = Some(format!(
            "{name} has copied the files. When it has started on them, --resume continues. Its event scheduler is off (SET PERSIST)"
        ));
        let own_login = restart::wait(servers, &mut watching, flow)?;
        demand_off(&mut servers.control)
            .inspect_err(|_| self.left = Some(format!("{name} holds a copy of the source")))?;
        restart::found(servers, own_login, &earlier)
    }

    /// The target may clone from this source.
    fn allow(&self, control: &mut Connection) -> Result<()> {
        control.query(&format!("SET GLOBAL clone_valid_donor_list = {}", text(&self.donor.place())))?;
        Ok(())
    }

    /// Runs the statement while `watching` shows how far it is.
    fn copy(&mut self, servers: &Servers, watching: &mut Connection, flow: &Flow<'_>) -> Result<Ended> {
        let lost = Halt::new();
        let mut running = control(&Login { halt: Some(lost.clone()), ..servers.target.clone() })?;
        // A backslash in a text is one.
        running.query("SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES'")?;
        self.id = running.query("SELECT CONNECTION_ID()")?.single().unwrap_or_default().to_owned();
        running.set_silence(SILENCE);
        let statement = statement(&self.donor, &servers.source.credentials);
        let ran = std::thread::scope(|scope| {
            let running = &mut running;
            let statement = &statement;
            let ran = scope.spawn(move || running.run_bytes(statement));
            watch(watching, flow, || ran.is_finished());
            if flow.halt.is_stopped() {
                self.kill(servers);
            }
            let until = Instant::now() + KILLED;
            while !ran.is_finished() && Instant::now() < until {
                std::thread::sleep(LOOK);
            }
            lost.stop(Error::Halted);
            ran.join().unwrap_or(Err(Failure::Fault(Error::Halted)))
        });
        match ran {
            Ok(()) => Ok(Ended::Restarts),
            Err(Failure::Server(error)) if error.code == NOT_MANAGED => Ok(Ended::ShutDown),
            Err(_) if flow.halt.is_stopped() => Err(Error::Halted),
            Err(Failure::Server(error)) => Err(told(&error, servers)),
            // The server may close the connection before its answer is read. It may also still run the statement.
            Err(Failure::Fault(_)) => {
                while self.is_running(servers) {
                    if flow.halt.is_stopped() {
                        self.kill(servers);
                        return Err(Error::Halted);
                    }
                    std::thread::sleep(LOOK);
                }
                Ok(Ended::Restarts)
            }
        }
    }

    fn kill(&self, servers: &Servers) {
        if let Ok(mut control) = asking(servers) {
            let _ = control.query(&format!("KILL QUERY {}", self.id)); // The statement may have ended.
        }
    }

    /// Whether the target still runs the statement. A server that does not answer has ended it.
    fn is_running(&self, servers: &Servers) -> bool {
        let asked = format!("SELECT 1 FROM performance_schema.processlist WHERE id = '{}'", self.id);
        asking(servers).is_ok_and(|mut control| control.query(&asked).is_ok_and(|answer| !answer.rows.is_empty()))
    }

    /// After a statement that has failed: settings are as before, as far as the target takes them. Says what it holds.
    fn after_error(&self, servers: &Servers, donors: &str) -> String {
        let name = servers.target.address.name();
        if self.is_running(servers) {
            let id = &self.id;
            return format!(
                "{name} still copies the files (session {id}), and starts on them at the end: then --resume continues. \
                 {SCHEDULER_IS_OFF}"
            );
        }
        let look = || -> Result<(Vec<String>, bool)> {
            let mut control = asking(servers)?;
            let donors = if donors.is_empty() { "NULL".to_owned() } else { text(donors) };
            control.query(&format!("SET GLOBAL clone_valid_donor_list = {donors}"))?;
            let notes = self.scheduler.give_back(&mut control)?;
            Ok((notes, databases(&mut control)? == self.there))
        };
        match look() {
            Ok((notes, is_same)) => {
                let held = match is_same {
                    true => "still holds its own databases".to_owned(),
                    false => "has dropped databases of its own for the clone".to_owned(),
                };
                let more: String = notes.iter().map(|note| format!("; {note}")).collect();
                format!("{name} {held}; its accounts are as before{more}")
            }
            Err(_) => {
                format!("{name} does not answer: perhaps it restarts on a part of the files. {SCHEDULER_IS_OFF}")
            }
        }
    }
}

/// A connection that asks about the clone, also after a signal.
fn asking(servers: &Servers) -> Result<Connection> {
    let mut control = servers.control_now()?;
    control.set_silence(ANSWER);
    Ok(control)
}

/// Shows how far the clone is until it ends, or the user ends it.
fn watch(watching: &mut Connection, flow: &Flow<'_>, is_finished: impl Fn() -> bool) {
    let asked =
        "SELECT CAST(SUM(estimate) AS UNSIGNED), CAST(SUM(data) AS UNSIGNED) FROM performance_schema.clone_progress";
    let mut answers = true;
    while !is_finished() && !flow.halt.is_stopped() {
        std::thread::sleep(LOOK);
        if !answers {
            continue;
        }
        match watching.query(asked) {
            Ok(answer) => {
                let number = |column| answer.value(0, column).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
                let (all, done) = (number(0), number(1));
                flow.progress.total.fetch_max(all, Ordering::Relaxed);
                flow.progress.done.store(done, Ordering::Relaxed);
            }
            // The account may not look.
            Err(Failure::Server(_)) => {}
            Err(Failure::Fault(_)) => answers = false,
        }
    }
}

/// CLONE INSTANCE, with the password of the source.
fn statement(donor: &Donor, credentials: &Credentials) -> Zeroizing<Vec<u8>> {
    let (user, host) = (text(credentials.user()), text(&donor.host));
    let begin = format!("CLONE INSTANCE FROM {user}@{host}:{} IDENTIFIED BY '", donor.port);
    let password = credentials.password();
    // No buffer grows: it would leave a copy of the password.
    let mut statement = Zeroizing::new(Vec::with_capacity(begin.len() + 2 * password.len() + 32));
    statement.extend_from_slice(begin.as_bytes());
    for byte in password {
        statement.push(*byte);
        if *byte == b'\'' {
            statement.push(b'\'');
        }
    }
    statement.push(b'\'');
    statement.extend_from_slice(donor.require.as_bytes());
    statement
}

/// A text in a session without backslash escapes; here also of names without backslashes in any session.
fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

fn told(error: &ServerError, servers: &Servers) -> Error {
    let why = match error.code {
        // It quotes the statement, and with it the password.
        NOT_PARSED => format!("the server does not understand CLONE INSTANCE (error {NOT_PARSED})"),
        _ => format!("the clone failed: {error}"),
    };
    let hint = format!(
        "the target connects to {} with the user and the password of the source, which must be allowed to come from the host of \
         the target; what else both servers must have in common is in \"Cloning Remote Data\" of MySQL's manual. --method \
         logical needs none of this",
        servers.source.address.name()
    );
    Error::refused(servers.target.address.name(), why, hint)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_password_with_quotes_and_backslashes_is_one_text_of_the_statement() {
        let donor = Donor { host: "db1".into(), port: 3306, require: " REQUIRE SSL" };
        let made = statement(&donor, &Credentials::new("it's", b"a'b\\' OR\xFF").unwrap());
        let expected = b"CLONE INSTANCE FROM 'it''s'@'db1':3306 IDENTIFIED BY 'a''b\\'' OR\xFF' REQUIRE SSL";
        assert_eq!(&made[..], &expected[..]);
    }
}
