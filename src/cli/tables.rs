//! Tables of sets, runs and databases, newest first; [`show`](super::show) prints them.

use fullbore::job::inspect::SetSummary;
use fullbore::job::repository::check::DatabaseHealth;
use fullbore::job::repository::list::ListedSet;
use fullbore::job::repository::prune::{Pruned, SetDecision};
use fullbore::job::repository::tasks::ListedTask;
use fullbore::units::{counted, show_bytes};

use super::grid::{Column, Text, render};
use super::listing::View;
use super::show::{Colour, value};

/// The sets in directories.
pub fn found_sets(sets: &[SetSummary], view: View) -> String {
    let columns = [
        Column::always("backup set"),
        Column::spared(2, "kind"),
        Column::spared(1, "started"),
        Column::wrapping("database"),
        Column::rank(7, "engine"),
        Column::rank(6, "host"),
        Column::spared(3, "size"),
        Column::rank(8, "families"),
        Column::rank(9, "codec"),
        Column::rank(10, "encrypted"),
        Column::rank(4, "based on"),
        Column::rank(11, "commits after"),
        Column::rank(5, "up to"),
        Column::always("state"),
        Column::wrapping("why"),
    ];
    let time = |time: &Option<String>| time.as_deref().map_or_else(String::new, |time| view.time(time));
    let row = |set: &SetSummary| {
        let is_log = set.kind == "log";
        [
            view.id(&set.backup_set_id).into(),
            set.kind.clone().into(),
            view.time(&set.started_at).into(),
            set.database.as_deref().map_or_else(|| "(encrypted)".to_owned(), value).into(),
            value(&set.engine).into(),
            set.host.as_deref().map_or_else(String::new, value).into(),
            show_bytes(set.stored_bytes).into(),
            format!("{}/{}", set.devices.len(), set.families).into(),
            set.codec.clone().into(),
            yes(set.encrypted).into(),
            set.base_backup_set_id.as_deref().map_or_else(String::new, |id| view.id(id)).into(),
            if is_log { time(&set.log_from) } else { String::new() }.into(),
            if is_log { time(&set.log_at) } else { String::new() }.into(),
            wholeness(set.complete),
            set.why_incomplete.as_deref().map_or_else(String::new, value).into(),
        ]
    };
    without_last_if_empty(columns, sets.iter().rev().map(row).collect(), view)
}

/// The sets of a repository.
pub fn sets(sets: &[ListedSet], view: View) -> String {
    let columns = [
        Column::always("backup set"),
        Column::spared(2, "kind"),
        Column::spared(1, "started"),
        Column::wrapping("database"),
        Column::rank(8, "engine"),
        Column::rank(7, "host"),
        Column::spared(3, "size"),
        Column::rank(9, "codec"),
        Column::rank(10, "encrypted"),
        Column::rank(6, "based on"),
        Column::always("state"),
        Column::rank(5, "verified"),
        Column::rank(4, "restore tested"),
        Column::wrapping("why"),
    ];
    let row = |set: &ListedSet| {
        let state = if set.tombstone { "being removed".into() } else { wholeness(set.why_incomplete.is_none()) };
        let kind = if set.copy_only { format!("{} (copy-only)", set.kind) } else { set.kind.clone() };
        // The kind of its program. Ours only says how it is stored.
        let kind = match set.holds.as_deref().map(value) {
            None => kind,
            Some(holds) if set.kind == "differential" => format!("{holds}, as changed pages"),
            Some(holds) => holds,
        };
        [
            view.id(&set.backup_set_id).into(),
            kind.into(),
            view.time(&set.started_at).into(),
            name(&set.database).into(),
            value(&set.engine).into(),
            value(&set.host).into(),
            show_bytes(set.stored_bytes).into(),
            value(&set.codec).into(),
            yes(set.encrypted).into(),
            set.base_backup_set_id.as_deref().map_or_else(String::new, |id| view.id(id)).into(),
            state,
            verified(set, view),
            set.proven_at.as_deref().map_or_else(|| "never".to_owned(), |time| view.time(time)).into(),
            set.why_incomplete.as_deref().filter(|_| !set.tombstone).map_or_else(String::new, value).into(),
        ]
    };
    without_last_if_empty(columns, sets.iter().rev().map(row).collect(), view)
}

/// Leaves the last column out if all its texts are empty.
fn without_last_if_empty<const N: usize>(columns: [Column; N], rows: Vec<[Text; N]>, view: View) -> String {
    let mut columns = columns;
    if let Some(last) = columns.last_mut().filter(|_| rows.iter().all(|row| row[N - 1].is_empty())) {
        *last = Column::rank(1, "");
    }
    render(&columns, &rows, view.width, view.colours)
}

fn name(database: &str) -> String {
    if database.is_empty() { "(encrypted)".to_owned() } else { value(database) }
}

fn yes(is_so: bool) -> &'static str {
    if is_so { "yes" } else { "" }
}

fn wholeness(complete: bool) -> Text {
    match complete {
        true => Text::coloured("complete", Some(Colour::Green)),
        false => Text::coloured("incomplete", Some(Colour::Red)),
    }
}

fn verified(set: &ListedSet, view: View) -> Text {
    match (failed_at(set), &set.verified_at) {
        (Some(failed), _) => Text::coloured(format!("failed {}", view.time(failed)), Some(Colour::Red)),
        (None, Some(passed)) => view.time(passed).into(),
        (None, None) => "never".into(),
    }
}

/// When the last verification found damage; `None` if it was good, or if there was none.
fn failed_at(set: &ListedSet) -> Option<&str> {
    let failed = set.failed_at.as_deref()?;
    set.verified_at.as_deref().is_none_or(|passed| failed > passed).then_some(failed)
}

/// True if a set is whole and its last verification was good.
pub fn is_good(set: &ListedSet) -> bool {
    set.tombstone || set.why_incomplete.is_none() && failed_at(set).is_none()
}

/// The runs of a repository.
pub fn tasks(tasks: &[ListedTask], view: View) -> String {
    let columns = [
        Column::always("task"),
        Column::spared(1, "verb"),
        Column::wrapping("database"),
        Column::rank(8, "engine"),
        Column::always("state"),
        Column::rank(7, "done"),
        Column::rank(4, "speed"),
        Column::rank(5, "left"),
        Column::rank(6, "host"),
        Column::spared(2, "started"),
        Column::rank(3, "took"),
        Column::wrapping("why"),
    ];
    let row = |task: &ListedTask| {
        let state = state(task);
        [
            view.id(&task.task).into(),
            value(&task.verb).into(),
            task.database.as_deref().map_or_else(String::new, value).into(),
            task.engine.as_deref().map_or_else(String::new, value).into(),
            Text::coloured(silence(task, state), state_colour(state)),
            task.percent.map_or_else(String::new, |percent| format!("{percent:.0} %")).into(),
            format!("{:.1} MiB/s", task.mib_per_s).into(),
            task.eta_s.map_or_else(String::new, |seconds| format!("{seconds:.0} s")).into(),
            value(&task.host).into(),
            view.time(&task.started_at).into(),
            took(task).into(),
            task.error.as_deref().and_then(|error| error.lines().next()).map_or_else(String::new, value).into(),
        ]
    };
    without_last_if_empty(columns, tasks.iter().rev().map(row).collect(), view)
}

/// How long a run took.
fn took(task: &ListedTask) -> String {
    let time = |text: &str| text.parse::<jiff::Timestamp>().ok();
    let ended = task.ended_at.as_deref().and_then(time);
    let seconds = ended.zip(time(&task.started_at)).map(|(ended, started)| ended.as_second() - started.as_second());
    seconds.map_or_else(String::new, |seconds| format!("{} s", seconds.max(0)))
}

/// The state of a run, in one of the words that people see: running, done, failed, cancelled, dead.
pub fn state(task: &ListedTask) -> &'static str {
    match task.state.as_str() {
        _ if task.dead => "dead",
        "SUCCESS" => "done",
        "ERROR" => "failed",
        "CANCELLED" => "cancelled",
        _ => "running",
    }
}

fn silence(task: &ListedTask, state: &str) -> String {
    if task.dead { format!("{state}, silent for {} s", task.silent_s) } else { state.to_owned() }
}

fn state_colour(state: &str) -> Option<Colour> {
    match state {
        "dead" | "failed" => Some(Colour::Red),
        "cancelled" => Some(Colour::Yellow),
        "done" => Some(Colour::Green),
        _ => None,
    }
}

/// One run.
pub fn task(task: &ListedTask) -> String {
    let mut lines = vec![
        format!("task      {}", task.task),
        format!("verb      {} {}", value(&task.verb), task.database.as_deref().map_or_else(String::new, value)),
        format!("state     {}", silence(task, state(task))),
        format!("host      {}, process {}", value(&task.host), task.process),
        format!("started   {}", value(&task.started_at)),
    ];
    lines.extend(task.engine.as_deref().map(|engine| format!("engine    {}", value(engine))));
    lines.extend(task.ended_at.as_deref().map(|time| format!("ended     {}", value(time))));
    let percent = task.percent.map_or_else(String::new, |percent| format!(" ({percent:.0} %)"));
    let done = show_bytes(task.done_bytes);
    let total = match task.total_bytes {
        0 => String::new(),
        total => format!(" of {}", show_bytes(total)),
    };
    lines.push(format!(
        "done      {done}{total}{percent}, {:.1} MiB/s, {} stored",
        task.mib_per_s,
        show_bytes(task.stored_bytes)
    ));
    lines.extend(task.eta_s.map(|seconds| format!("left      {seconds:.0} s")));
    lines.extend(task.writes.as_deref().map(|id| format!("writes    {id}")));
    lines.extend(task.needs.iter().map(|id| format!("needs     {id}")));
    lines.extend(task.error.as_deref().map(|error| format!("error     {}", value(error))));
    lines.join("\n")
}

/// The decisions of prune, and their result.
pub fn pruned(pruned: &Pruned, confirmed: bool, view: View) -> String {
    let columns = [
        Column::always("backup set"),
        Column::spared(2, "kind"),
        Column::spared(1, "started"),
        Column::wrapping("database"),
        Column::rank(5, "engine"),
        Column::rank(4, "host"),
        Column::rank(3, "size"),
        Column::rank(6, "codec"),
        Column::rank(7, "encrypted"),
        Column::always(""),
        Column::wrapping("why"),
    ];
    let row = |set: &SetDecision| {
        [
            view.id(&set.backup_set_id).into(),
            set.kind.clone().into(),
            view.time(&set.started_at).into(),
            name(&set.database).into(),
            value(&set.engine).into(),
            value(&set.host).into(),
            show_bytes(set.stored_bytes).into(),
            value(&set.codec).into(),
            yes(set.encrypted).into(),
            if set.delete { Text::coloured("remove", Some(Colour::Yellow)) } else { "keep".into() },
            value(&set.reasons.join("; ")).into(),
        ]
    };
    let rows: Vec<_> = pruned.sets.iter().rev().map(row).collect();
    let table = render(&columns, &rows, view.width, view.colours);
    let go = pruned.sets.iter().filter(|set| set.delete).count();
    let end = match confirmed {
        true => format!("removed: {}", counted(pruned.deleted.len() as u64, "set")),
        false => format!(
            "{go} of {} can be removed, {}; --confirm removes them",
            counted(pruned.sets.len() as u64, "set"),
            show_bytes(pruned.bytes_freed)
        ),
    };
    format!("{table}\n{end}")
}

/// The state of each database.
pub fn databases(databases: &[&DatabaseHealth], view: View) -> String {
    let columns = [
        Column::rank(3, "engine"),
        Column::wrapping("database"),
        Column::spared(1, "newest backup"),
        Column::rank(2, "last proven"),
        Column::rank(5, "sets"),
        Column::rank(4, "size"),
        Column::always("state"),
    ];
    let row = |of: &&DatabaseHealth| {
        [
            value(&of.engine).into(),
            value(&of.database).into(),
            of.stored_at.as_deref().map_or_else(|| "none".to_owned(), |time| view.time(time)).into(),
            of.proven_at.as_deref().map_or_else(|| "never".to_owned(), |time| view.time(time)).into(),
            of.sets.to_string().into(),
            show_bytes(of.stored_bytes).into(),
            match (of.problems.is_empty(), of.retired) {
                (true, false) => Text::coloured("good", Some(Colour::Green)),
                (true, true) => Text::coloured("good, retired", Some(Colour::Green)),
                (false, _) => Text::coloured("not good", Some(Colour::Red)),
            },
        ]
    };
    let rows: Vec<_> = databases.iter().map(row).collect();
    render(&columns, &rows, view.width, view.colours)
}
