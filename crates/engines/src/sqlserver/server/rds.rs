//! Amazon RDS for SQL Server: its procedures start a task, and fullbore follows it to its end.

use std::thread::sleep;
use std::time::{Duration, Instant};

use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};

use super::answer::{Lifecycle, Row};
use super::failure::{Failure, unfinished};
use super::place::arn;
use super::restoring::refuse_without_files;
use super::session::Session;
use super::{questions, words};
use crate::engine::{BackupOrder, Look, RestoreOrder, RestoreStep, Seen, ServerFile, ServerOutcome, ServerSet};

/// The time between two looks at a task: short at first, for short tasks. RDS itself renews the state every 2 minutes.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// The time between two looks at the halt.
const TICK: Duration = Duration::from_millis(100);
/// How long a task may take to end after it was asked to.
const ENDS: Duration = Duration::from_secs(300);
/// How long the server may be out of reach. The task continues.
const UNREACHABLE: Duration = Duration::from_secs(600);

/// A call after all checks.
struct Call {
    statement: String,
    place: String,
    stop_note: Option<String>,
}

impl Session {
    pub(super) fn plan_rds_backup(&mut self, order: &BackupOrder) -> Result<ServerOutcome> {
        let call = self.backup_call(order)?;
        Ok(self.outcome_of(&call, None))
    }

    pub(super) fn rds_backup(&mut self, order: &BackupOrder, look: Look<'_>) -> Result<ServerOutcome> {
        let call = self.backup_call(order)?;
        let total_bytes = self.database_row()?.and_then(|row| row.bytes("bytes")).unwrap_or(0);
        let before = self.link.ask(questions::NEWEST_SET).ok();
        let before = before.and_then(|rows| rows.first().and_then(|row| row.integer("newest")));
        let task = self.task(&call, "BACKUP", look)?;
        self.follow(task, total_bytes, look)?;
        let mut outcome = self.outcome_of(&call, Some(task));
        let question = |before| questions::set_after(before, &self.address.database, order.kind, None);
        let question = before.map(question);
        let written = question.map(|question| self.link.ask(&question));
        self.describe(written, order.kind, &mut outcome);
        Ok(outcome)
    }

    pub(super) fn plan_rds_restore(&mut self, order: &RestoreOrder) -> Result<ServerOutcome> {
        let call = self.restore_call(order)?;
        Ok(self.outcome_of(&call, None))
    }

    pub(super) fn rds_restore(&mut self, order: &RestoreOrder, look: Look<'_>) -> Result<ServerOutcome> {
        let call = self.restore_call(order)?;
        let task = self.task(&call, "RESTORE", look)?;
        self.follow(task, 0, look)?;
        self.check_state(order)?;
        let mut outcome = self.outcome_of(&call, Some(task));
        outcome.set = ServerSet { kind: order.kind.or(Some(SetKind::Full)), ..ServerSet::default() };
        Ok(outcome)
    }

    fn outcome_of(&self, call: &Call, task: Option<i64>) -> ServerOutcome {
        let file = ServerFile { place: call.place.clone(), bytes: None };
        ServerOutcome {
            files: if call.place.is_empty() { Vec::new() } else { vec![file] },
            run: task.map(|task| format!("rds task {task}")),
            notes: call.stop_note.iter().cloned().collect(),
            ..self.outcome(&[], vec![call.statement.clone()])
        }
    }

    fn backup_call(&mut self, order: &BackupOrder) -> Result<Call> {
        let refused = [
            ("--kind log", order.kind == SetKind::Log, "RDS makes log backups itself"),
            ("--copy-only", order.copy_only, "the procedure has no such parameter"),
            (
                "--compression",
                order.compression.is_some(),
                "it is set by rds_set_configuration 'S3 backup compression'",
            ),
            ("--continue-after-error", order.continue_after_error, "the procedure has no such parameter"),
            ("--name", !order.name.is_empty(), "the procedure has no such parameter"),
            ("--description", !order.description.is_empty(), "the procedure has no such parameter"),
            ("--media-name", !order.media_name.is_empty(), "the procedure has no such parameter"),
        ];
        refuse(&refused)?;
        if let Some(bytes) = order.block_size {
            words::block_size(bytes)?;
        }
        if let Some(task) = self.address.rds_task {
            return Ok(self.following(task, &order.to));
        }
        let (arn, files) = arn(&order.to, order.stripes)?;
        if self.state()?.is_none() {
            return Err(self.no_such_database());
        }
        let kms_key = self.address.kms_key.as_deref();
        let statement = questions::rds_backup(&self.address.database, &arn, files, order, kms_key);
        Ok(Call { statement, place: order.to.first().cloned().unwrap_or_default(), stop_note: None })
    }

    fn restore_call(&mut self, order: &RestoreOrder) -> Result<Call> {
        let refused = [
            ("--set", order.set.is_some(), "an object of RDS has one set"),
            ("--latest", order.latest, "an object of RDS has one set"),
            ("--file", order.position.is_some(), "an object of RDS has one set"),
            ("--replace", order.replace, "RDS never replaces a database: drop it with rds_drop_database"),
            ("--move", !order.moves.is_empty(), "RDS chooses the places of files"),
            ("--continue-after-error", order.continue_after_error, "the procedure has no such parameter"),
            ("--stop-at-mark, --stop-before-mark", order.stop_mark.is_some(), "the procedure has no such parameter"),
            ("--standby", order.standby.is_some(), "the procedure has no such parameter"),
        ];
        refuse(&refused)?;
        if let Some(task) = self.address.rds_task {
            return Ok(self.following(task, &order.from));
        }
        if order.from.is_empty() {
            refuse_without_files(order)?;
        }
        let state = self.state()?;
        if order.from.is_empty() {
            if state.as_deref() != Some("RESTORING") {
                return Err(Error::refused(self.thing(), "is not restoring", "name the file with --from"));
            }
            let statement = questions::rds_finish(&self.address.database);
            return Ok(Call { statement, place: String::new(), stop_note: None });
        }
        let kind = order.kind.unwrap_or(SetKind::Full);
        match (kind, state.as_deref()) {
            (SetKind::Full, Some(state)) => {
                let why = format!("the database exists (state {state}), and RDS never replaces one");
                return Err(Error::refused(self.thing(), why, "restore under another name, or drop it first"));
            }
            (SetKind::Full, None) | (_, Some("RESTORING")) => {}
            (kind, _) => {
                let why = format!("is not restoring: a {kind} continues a restore");
                return Err(Error::refused(self.thing(), why, "restore its full first, with --no-recovery"));
            }
        }
        let several = order.from.iter().any(|place| place.contains('*'));
        let (arn, _) = arn(&order.from, several.then_some(2))?;
        let stop_at = order.stop_at.map(|moment| self.time_of_server(moment)).transpose()?;
        if stop_at.is_some() && kind != SetKind::Log {
            return Err(Error::usage("--stop-at", "is for --kind log", "leave it out"));
        }
        let statement = questions::rds_restore(
            &self.address.database,
            &arn,
            kind,
            (order.step == RestoreStep::NoRecovery, stop_at.as_deref()),
            (order.buffer_count, self.address.kms_key.as_deref()),
        );
        let stop_note = stop_at.map(|time| format!("the stop is {time} by the clock of the server"));
        Ok(Call { statement, place: order.from.first().cloned().unwrap_or_default(), stop_note })
    }

    /// The call for a task that runs already.
    fn following(&self, task: i64, places: &[String]) -> Call {
        let statement = questions::rds_status(&self.address.database, task);
        Call { statement, place: places.first().cloned().unwrap_or_default(), stop_note: None }
    }

    /// The task to follow: that of the URL, or a new one. `verb` begins the type of the task.
    fn task(&mut self, call: &Call, verb: &str, look: Look<'_>) -> Result<i64> {
        let Some(task) = self.address.rds_task else { return self.start(call, look) };
        let row = self.status(task).map_err(|failure| failure.on(&self.thing()))?;
        let (kind, database) = (row.text("task_type"), row.text("database_name"));
        let is_it = kind.as_ref().is_some_and(|kind| kind.starts_with(verb))
            && database.as_ref().is_none_or(|name| *name == self.address.database);
        if is_it {
            return Ok(task);
        }
        let [kind, database] = [kind, database].map(|text| text.unwrap_or_else(|| "unknown".into()));
        let why = format!("task {task} of RDS is a {kind} of `{database}`");
        let hint = "EXEC msdb.dbo.rds_task_status shows all tasks";
        Err(Error::refused(self.thing(), why, hint))
    }

    /// Starts a task; returns its number. The call is never halted: the task may have started already.
    fn start(&mut self, call: &Call, look: Look<'_>) -> Result<i64> {
        look(&Seen::default())?;
        let rows = match self.link.ask_to_the_end(&call.statement) {
            Ok(rows) => rows,
            Err(refused @ Failure::Server(..)) => return Err(refused.on(&self.thing())),
            Err(failure) => {
                let cause = failure.on(&self.thing()).without_hint();
                let why = format!("the call that starts a task of RDS has no answer, and the task may run: {cause}");
                let database = words::text(&self.address.database);
                let hint = format!(
                    "EXEC msdb.dbo.rds_task_status @db_name = {database} shows it, and rds_cancel_task ends it"
                );
                return Err(Error::refused(self.thing(), why, hint));
            }
        };
        rows.iter().find_map(|row| row.integer("task_id")).filter(|task| *task > 0).ok_or_else(|| {
            let hint = "EXEC msdb.dbo.rds_task_status shows whether it runs";
            Error::refused(self.thing(), "RDS does not say the number of the task", hint)
        })
    }

    /// Follows a task to its end. After an error of `look` the task is asked to end, and the error is the result, unless
    /// the task was done before.
    fn follow(&mut self, task: i64, total_bytes: u64, look: Look<'_>) -> Result<()> {
        let mut seen = Seen { percent: 0.0, total_bytes };
        let mut ending: Option<(Error, Instant)> = None;
        let (mut pause, mut lost_since) = (PAUSES.0, None);
        loop {
            if ending.is_none() {
                let why = rest(pause, &mut || look(&seen)).err();
                if let Some(why) = why {
                    let why = why.noting(&format!("it was task {task} of RDS"));
                    if let Err(failure) = self.link.ask_at_last(&questions::rds_cancel(task)) {
                        let more =
                            format!("task {task} of RDS may still run: {}", failure.on(&self.thing()).one_line());
                        return Err(unfinished(why, &self.thing(), &more));
                    }
                    ending = Some((why, Instant::now()));
                    pause = PAUSES.0;
                }
            } else {
                sleep(pause);
            }
            let row = match self.status(task) {
                Ok(row) => row,
                Err(Failure::Lost(..)) if lost_since.get_or_insert_with(Instant::now).elapsed() < UNREACHABLE => {
                    let _ = self.link.renew(); // The next look says whether it worked.
                    continue;
                }
                // The next look tells why.
                Err(Failure::Ours(Error::Halted)) if ending.is_none() => continue,
                Err(failure) => {
                    return Err(failure.on(&self.thing()).noting(&format!("task {task} of RDS may still run")));
                }
            };
            lost_since = None;
            seen.percent = row.percent("% complete").unwrap_or(0.0).max(seen.percent);
            if self.is_done(task, &row, &mut ending)? {
                look(&Seen { percent: 100.0, total_bytes }).ok(); // It is done, whatever is asked now.
                return Ok(());
            }
            if let Some((why, _)) = ending.take_if(|(_, since)| since.elapsed() > ENDS) {
                let more = format!("task {task} of RDS was asked to end, and it has not ended yet");
                return Err(unfinished(why, &self.thing(), &more));
            }
            pause = (pause * 3 / 2).min(PAUSES.1);
        }
    }

    /// Whether the task succeeded; `false` while it runs.
    fn is_done(&self, task: i64, row: &Row, ending: &mut Option<(Error, Instant)>) -> Result<bool> {
        let lifecycle = Lifecycle::parse(&row.text("lifecycle").unwrap_or_default())?;
        let info = row.text("task_info").unwrap_or_else(|| "no reason is given".into());
        match (lifecycle, ending.take()) {
            (Lifecycle::Running, waiting) => {
                *ending = waiting;
                Ok(false)
            }
            (Lifecycle::Success, _) => Ok(true),
            (Lifecycle::Cancelled | Lifecycle::Error, Some((why, _))) => Err(why),
            (Lifecycle::Error, None) => {
                let hint = "check the bucket, the role of the option group SQLSERVER_BACKUP_RESTORE, and the name";
                Err(Error::refused(self.thing(), format!("task {task} of RDS failed: {info}"), hint))
            }
            (Lifecycle::Cancelled, None) => {
                Err(Error::refused(self.thing(), format!("task {task} of RDS was cancelled there"), "run it again"))
            }
        }
    }

    fn status(&mut self, task: i64) -> Result<Row, Failure> {
        let rows = self.link.ask_at_last(&questions::rds_status(&self.address.database, task))?;
        let found = rows.into_iter().find(|row| row.integer("task_id") == Some(task));
        found.ok_or_else(|| Failure::Protocol(format!("rds_task_status does not know task {task}")))
    }
}

/// Sleeps for `pause`, and hears `look` meanwhile.
fn rest(pause: Duration, look: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let until = Instant::now() + pause;
    loop {
        look()?;
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => return Ok(()),
            left => sleep(left.min(TICK)),
        }
    }
}

/// Refuses the first flag that was given.
fn refuse(flags: &[(&str, bool, &str)]) -> Result<()> {
    match flags.iter().find(|(_, given, _)| *given) {
        Some((flag, _, why)) => {
            Err(Error::usage(*flag, format!("is not possible with Amazon RDS: {why}"), "leave it out"))
        }
        None => Ok(()),
    }
}
