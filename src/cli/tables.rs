//! Tables of what a repository holds and does; printed by [`show`](super::show).

use comfy_table::{Table, presets};
use fullbore::job::repository::list::ListedSet;
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
            set.base_backup_set_id.as_deref().map_or_else(String::new, |id| format!("…{}", &id[id.len() - 12..])),
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
