//! Tables of the sets and runs of a repository; [`show`](super::show) prints them.

use comfy_table::{Table, presets};
use fullbore::ids;
use fullbore::job::repository::check::DatabaseHealth;
use fullbore::job::repository::list::ListedSet;
use fullbore::job::repository::prune::Pruned;
use fullbore::job::repository::tasks::ListedTask;
use fullbore::units::show_bytes;

use super::show::value;

/// The sets of a repository.
pub fn sets(sets: &[ListedSet]) -> String {
    let mut table = Table::new();
    let heads =
        ["backup set", "kind", "started", "database", "size", "based on", "state", "verified", "restore tested"];
    table.load_style(presets::NOTHING).set_header(heads);
    for set in sets {
        let state = match (&set.why_incomplete, set.tombstone) {
            (_, true) => "being removed".to_owned(),
            (Some(why), _) => value(why),
            (None, _) => "complete".to_owned(),
        };
        let kind = if set.copy_only { format!("{} (copy-only)", set.kind) } else { set.kind.clone() };
        table.add_row([
            set.backup_set_id.clone(),
            kind,
            set.started_at.clone(),
            if set.database.is_empty() { "(encrypted)".to_owned() } else { value(&set.database) },
            show_bytes(set.stored_bytes),
            set.base_backup_set_id.as_deref().map_or("", ids::short).to_owned(),
            state,
            verified(set),
            set.proven_at.clone().unwrap_or_else(|| "never".to_owned()),
        ]);
    }
    table.to_string()
}

fn verified(set: &ListedSet) -> String {
    match (&set.verified_at, &set.failed_at) {
        (Some(passed), Some(failed)) if failed > passed => format!("FAILED {failed}"),
        (None, Some(failed)) => format!("FAILED {failed}"),
        (Some(passed), _) => passed.clone(),
        (None, None) => "never".to_owned(),
    }
}

/// The runs of a repository.
pub fn tasks(tasks: &[ListedTask]) -> String {
    let mut table = Table::new();
    let heads = ["task", "verb", "database", "state", "done", "speed", "left", "host", "started"];
    table.load_style(presets::NOTHING).set_header(heads);
    for task in tasks {
        table.add_row([
            task.task.clone(),
            value(&task.verb),
            task.database.as_deref().map_or_else(String::new, value),
            state(task),
            task.percent.map_or_else(String::new, |percent| format!("{percent:.0} %")),
            format!("{:.1} MiB/s", task.mib_per_s),
            task.eta_s.map_or_else(String::new, |seconds| format!("{seconds:.0} s")),
            value(&task.host),
            value(&task.started_at),
        ]);
    }
    table.to_string()
}

fn state(task: &ListedTask) -> String {
    if task.dead { format!("{}, silent for {} s: dead", task.state, task.silent_s) } else { task.state.clone() }
}

/// One run.
pub fn task(task: &ListedTask) -> String {
    let mut lines = vec![
        format!("task      {}", task.task),
        format!("verb      {} {}", value(&task.verb), task.database.as_deref().map_or_else(String::new, value)),
        format!("state     {}", state(task)),
        format!("host      {}, process {}", value(&task.host), task.process),
        format!("started   {}", value(&task.started_at)),
    ];
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
pub fn pruned(pruned: &Pruned, confirmed: bool) -> String {
    let mut table = Table::new();
    let heads = ["backup set", "kind", "started", "database", "size", "", "why"];
    table.load_style(presets::NOTHING).set_header(heads);
    for set in &pruned.sets {
        table.add_row([
            set.backup_set_id.clone(),
            set.kind.clone(),
            set.started_at.clone(),
            if set.database.is_empty() { "(encrypted)".to_owned() } else { value(&set.database) },
            show_bytes(set.stored_bytes),
            if set.delete { "delete" } else { "keep" }.to_owned(),
            value(&set.reasons.join("; ")),
        ]);
    }
    let go = pruned.sets.iter().filter(|set| set.delete).count();
    let end = match confirmed {
        true if pruned.deleted.len() == 1 => "1 set was removed".to_owned(),
        true => format!("{} sets were removed", pruned.deleted.len()),
        false => format!(
            "{go} of {} sets can be removed, {}; --confirm removes them",
            pruned.sets.len(),
            show_bytes(pruned.bytes_freed)
        ),
    };
    format!("{table}\n{end}")
}

/// The state of each database.
pub fn standings(standings: &[DatabaseHealth]) -> String {
    let mut table = Table::new();
    let heads = ["database", "newest backup", "last proven", "sets", "size", "state"];
    table.load_style(presets::NOTHING).set_header(heads);
    for of in standings {
        table.add_row([
            format!("{} {}", value(&of.engine), value(&of.database)),
            of.stored_at.clone().unwrap_or_else(|| "none".to_owned()),
            of.proven_at.clone().unwrap_or_else(|| "never".to_owned()),
            of.sets.to_string(),
            show_bytes(of.stored_bytes),
            match (of.problems.is_empty(), of.retired) {
                (true, false) => "good".to_owned(),
                (true, true) => "good, retired".to_owned(),
                (false, _) => "NOT GOOD".to_owned(),
            },
        ]);
    }
    table.to_string()
}
