//! The runs of a repository: their progress, and how to end one from any host.

use std::time::Duration;

use fullbore_core::{Error, Result};
use serde::Serialize;
use uuid::Uuid;

use super::Setting;
use super::databases::is_named;
use fullbore_core::conduct::Conduct;
use fullbore_repository::format::TaskState;
use fullbore_repository::ids;
use fullbore_repository::inventory::{KnownTask, readable_tasks};
use fullbore_repository::process::Process;
use fullbore_repository::{Repository, task};

/// How long a task has to react to a cancel request: it looks every two seconds, and may wait for its store.
const HEARS: Duration = Duration::from_secs(60);
/// The time between two looks at its state.
const LOOK: Duration = Duration::from_millis(500);

/// A run, as others see it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListedTask {
    /// Its identity.
    pub task: String,
    /// backup, restore, verify …
    pub verb: String,
    /// The engine of its sets, if it is known.
    pub engine: Option<String>,
    /// The database that it works on.
    pub database: Option<String>,
    /// CREATED, IN_PROGRESS, SUCCESS, ERROR, CANCEL_REQUESTED, CANCELLED.
    pub state: String,
    /// True if it should run, but has been silent for longer than its lease, or was killed on this host.
    pub dead: bool,
    /// Seconds since its last heartbeat, by the store's clock.
    pub silent_s: u64,
    /// The host that it runs on.
    pub host: String,
    /// Its process id on that host.
    pub process: u32,
    /// RFC 3339, by that host's clock.
    pub started_at: String,
    /// The same.
    pub ended_at: Option<String>,
    /// How much of the database is done, in percent; `None` until that is known.
    pub percent: Option<f64>,
    /// Speed in bytes of the database, since it began.
    pub mib_per_s: f64,
    /// The time that it still needs at this speed.
    pub eta_s: Option<f64>,
    /// Bytes of the database that are done.
    pub done_bytes: u64,
    /// Bytes of the database in all.
    pub total_bytes: u64,
    /// Bytes on the media.
    pub stored_bytes: u64,
    /// The set that it writes.
    pub writes: Option<String>,
    /// The sets that prune keeps while it runs.
    pub needs: Vec<String>,
    /// Why it failed.
    pub error: Option<String>,
}

/// The runs on a database, or all, oldest first; an unreadable record is a warning.
///
/// # Errors
/// The repository cannot be reached.
pub fn list(
    setting: Setting<'_>,
    database: Option<&str>,
    conduct: &Conduct,
    warnings: &mut Vec<String>,
) -> Result<Vec<ListedTask>> {
    let repository = setting.open(conduct)?;
    let now = repository.about_now().map_err(|error| conduct.why_halted(error))?;
    let is_wanted = |task: &&KnownTask| match (database, &task.record.database) {
        (None, _) => true,
        (Some(wanted), Some(known)) => is_named(known, wanted) || *known == repository.named(wanted),
        (Some(_), None) => false,
    };
    let known = readable_tasks(&repository, warnings)?;
    Ok(known.iter().filter(is_wanted).map(|task| listed(task, now)).collect())
}

/// The run whose id begins or ends with `part`.
///
/// # Errors
/// No run fits, or more than one.
pub fn one(setting: Setting<'_>, part: &str, conduct: &Conduct) -> Result<ListedTask> {
    let repository = setting.open(conduct)?;
    let now = repository.about_now().map_err(|error| conduct.why_halted(error))?;
    Ok(listed(&find(&repository, part)?, now))
}

/// Asks a run to end, and waits until it has.
///
/// # Errors
/// It has already ended, is dead, or does not react.
pub fn cancel(setting: Setting<'_>, part: &str, conduct: &Conduct) -> Result<ListedTask> {
    let repository = setting.open(conduct)?;
    let found = find(&repository, part)?;
    let id = found.record.task;
    let shown = listed(&found, repository.about_now()?);
    if !found.record.state.is_open() {
        let why = format!("has already ended: {}", found.record.state.word());
        let hint = format!("`fullbore tasks --repo {} --state running` shows the running ones", repository.name);
        return Err(Error::refused(format!("task {id}"), why, hint));
    }
    if shown.dead {
        let why = match is_gone(&found) {
            true => "runs no more: its process on this host was killed".to_owned(),
            false => {
                format!("has been silent for {} s: its host is dead, or cannot reach the repository", shown.silent_s)
            }
        };
        let prune = format!("`fullbore prune --repo {} --confirm` removes its files", repository.name);
        let hint = format!("{prune} once it is silent for {} s", found.lease().as_secs());
        return Err(Error::refused(format!("task {id}"), why, hint));
    }
    task::ask_to_end(&repository, id)?;
    let begun = std::time::Instant::now();
    while begun.elapsed() < HEARS {
        conduct.check()?;
        std::thread::sleep(LOOK);
        let now = find(&repository, &id.to_string())?;
        if !now.record.state.is_open() {
            return Ok(listed(&now, now.written_at));
        }
    }
    let why = format!("did not end within {} s of the cancel request", HEARS.as_secs());
    let shows = format!("`fullbore task {id} --repo {}` shows its state", repository.name);
    let hint = format!("it ends as soon as it can reach the repository; {shows}");
    Err(Error::refused(format!("task {id}"), why, hint))
}

/// Whether the kernel of this host knows that its process has ended.
fn is_gone(task: &KnownTask) -> bool {
    task.record.runs_as.as_ref().is_some_and(Process::is_gone)
}

fn find(repository: &Repository, part: &str) -> Result<KnownTask> {
    let mut unread = Vec::new();
    let known = readable_tasks(repository, &mut unread)?;
    let hits: Vec<&KnownTask> = known.iter().filter(|task| ids::fits(task.record.task, part)).collect();
    let thing = format!("task {part}");
    match hits[..] {
        [one] => Ok(one.clone()),
        [] => {
            let unread = unread.iter().map(|why| format!("; cannot read: {why}")).collect::<String>();
            let why = format!("is not known in this repository{unread}");
            Err(Error::usage(thing, why, format!("`fullbore tasks --repo {}` lists them", repository.name)))
        }
        _ => {
            let fitting = hits.iter().map(|task| format!("\n    {}", task.title())).collect::<String>();
            Err(Error::usage(thing, format!("fits several tasks:{fitting}"), "give more digits of the id"))
        }
    }
}

fn listed(task: &KnownTask, now: i64) -> ListedTask {
    let record = &task.record;
    let progress = record.progress;
    let silent_s = task.silent(now).as_secs();
    let per_s = if progress.elapsed_s > 0.0 { progress.done_bytes as f64 / progress.elapsed_s } else { 0.0 };
    let left = progress.total_bytes.saturating_sub(progress.done_bytes) as f64;
    // If a run has ended, its state says it all.
    let known = progress.total_bytes > 0 && progress.done_bytes <= progress.total_bytes && record.state.is_open();
    ListedTask {
        task: record.task.to_string(),
        verb: record.verb.clone(),
        engine: record.engine.clone(),
        database: record.database.clone(),
        state: record.state.name().to_owned(),
        dead: task.is_dead(now) || record.state.is_open() && is_gone(task),
        silent_s,
        host: record.host.clone(),
        process: record.process,
        started_at: record.started_at.clone(),
        ended_at: record.ended_at.clone(),
        percent: known.then(|| (progress.done_bytes as f64 * 100.0 / progress.total_bytes as f64).min(100.0)),
        mib_per_s: per_s / f64::from(1 << 20),
        eta_s: (known && per_s > 0.0 && record.state == TaskState::InProgress).then(|| left / per_s),
        done_bytes: progress.done_bytes,
        total_bytes: progress.total_bytes,
        stored_bytes: progress.stored_bytes,
        writes: record.writes.map(|id| id.to_string()),
        needs: record.needs.iter().map(Uuid::to_string).collect(),
        error: record.error.clone(),
    }
}
