//! The event scheduler of the target: a clone brings the events of the source, and none of them may run there before the
//! cut-over. `mysqld-auto.cnf` is not cloned: what is persisted there holds for the first start on the files.

use fullbore_core::{Error, Result};

use crate::mysql_family::connection::{Connection, Failure};

/// A target that has started on the files of the source runs no events.
///
/// # Errors
/// It runs them: it was started in a way that ignores what is persisted.
pub fn demand_off(control: &mut Connection) -> Result<()> {
    let scheduler = control.query("SELECT @@GLOBAL.event_scheduler")?;
    if scheduler.single() != Some("ON") {
        return Ok(());
    }
    let why = "it has started on the files of the source with event_scheduler = ON, although fullbore persisted OFF: events may \
               have changed rows";
    let hint = "start it without --no-defaults, or with event_scheduler = OFF, and begin again with --replace";
    Err(Error::refused(control.name(), why, hint))
}

/// What it was before.
pub struct Scheduler {
    /// `ON`, `OFF` or `DISABLED`.
    global: String,
    /// In `mysqld-auto.cnf`.
    persisted: Option<String>,
}

impl Scheduler {
    /// Asks the target.
    ///
    /// # Errors
    /// What is persisted there is not read at a start.
    pub fn ask(control: &mut Connection) -> Result<Self> {
        let answer = control.query("SELECT @@GLOBAL.event_scheduler, @@persisted_globals_load")?;
        let global = answer.value(0, 0).unwrap_or_default().to_owned();
        if global != "DISABLED" && answer.value(0, 1) != Some("1") {
            let why =
                "it ignores persisted settings (persisted_globals_load = OFF): events of the source could run on it";
            return Err(Error::refused(control.name(), why, "start it with event_scheduler = DISABLED"));
        }
        let asked =
            "SELECT variable_value FROM performance_schema.persisted_variables WHERE variable_name = 'event_scheduler'";
        let persisted = control.query_if_allowed(asked)?.and_then(|answer| answer.single().map(str::to_owned));
        Ok(Self { global, persisted })
    }

    fn is_disabled(&self) -> bool {
        self.global == "DISABLED"
    }

    /// From now on it is off, also after a start.
    ///
    /// # Errors
    /// The target refuses.
    pub fn stop(&self, control: &mut Connection) -> Result<()> {
        if !self.is_disabled() {
            control.query("SET PERSIST event_scheduler = OFF")?;
        }
        Ok(())
    }

    /// It is again what it was. Gives what the user should know.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn give_back(&self, control: &mut Connection) -> Result<Vec<String>> {
        if self.is_disabled() {
            return Ok(Vec::new());
        }
        let persisted = match &self.persisted {
            Some(value) if value == "ON" || value == "OFF" => format!("SET PERSIST event_scheduler = {value}"),
            _ => "RESET PERSIST IF EXISTS event_scheduler".to_owned(),
        };
        let statements = [persisted, format!("SET GLOBAL event_scheduler = {}", self.global)];
        for statement in &statements {
            match control.query(statement) {
                Ok(_) => {}
                Err(Failure::Server(error)) => {
                    let note = format!(
                        "the event scheduler of {} is still off ({error}): run {}",
                        control.name(),
                        statements.join("; ")
                    );
                    return Ok(vec![note]);
                }
                Err(Failure::Fault(error)) => return Err(error),
            }
        }
        Ok(match self.persisted.as_deref() {
            Some("OFF") => vec![format!(
                "event_scheduler of {} was persisted as OFF before this run, and is so again; if an interrupted run has \
                 left it: RESET PERSIST event_scheduler",
                control.name()
            )],
            _ => Vec::new(),
        })
    }
}
