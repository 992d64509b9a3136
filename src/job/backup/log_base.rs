//! The set that a log set continues: the newest of the sets that `--base` names.

use std::collections::HashSet;

use fullbore_core::media::{Manifest, SetKind};
use fullbore_core::pool::Pool;
use fullbore_core::store::Stores;
use fullbore_core::{Error, Result};
use fullbore_engines::LogEngine;
use fullbore_engines::engine::SetEnd;
use uuid::Uuid;

use super::{Request, about_base};
use crate::report::Report;
use fullbore_repository::chain;
use fullbore_repository::discovery;

/// The most sets of each kind that the log may continue.
const TIPS: usize = 4;
/// The most sets that are opened to find them: a directory may hold sets of many databases.
const LOOKED_AT: usize = 256;

/// A set that the log may continue.
pub struct LogBase {
    /// Its backup-set id.
    pub id: Uuid,
    /// Its end.
    pub end: SetEnd,
    /// Its name in messages.
    pub title: String,
    /// True if it is encrypted.
    pub encrypted: bool,
}

/// The sets that the log may continue, likeliest first: the newest log set without a successor, then the newest fulls
/// and differentials.
///
/// # Errors
/// None of them is a backup of this database.
pub fn tips(request: &Request, engine: &dyn LogEngine, stores: &Stores) -> Result<Vec<LogBase>> {
    let key = discovery::read_key(request.key.as_deref())?;
    let found = discovery::settled(&request.base, stores, |discovered| {
        let nothing = Pool::new(0, 4096)?;
        let whole = || discovered.sets.iter().rev().filter(|found| found.set.incomplete.is_none());
        let continued: HashSet<Uuid> =
            whole().filter(|found| found.set.kind == SetKind::Log).filter_map(|found| found.set.base).collect();
        let (mut tips, mut passed_over) = (Vec::new(), String::new());
        for logs in [true, false] {
            let of_kind = |found: &&discovery::Found| {
                (found.set.kind == SetKind::Log) == logs && !(logs && continued.contains(&found.set.backup_set_id))
            };
            let most = tips.len() + TIPS;
            for found in whole().filter(of_kind).take(LOOKED_AT) {
                if tips.len() == most {
                    break;
                }
                let set = discovery::open_set(found, &nothing, 1, key.as_ref())?;
                let Some(manifest) = set.manifest() else { continue };
                let title = chain::title(&found.set);
                match end_of(manifest, request, engine) {
                    Ok(end) => tips.push(LogBase {
                        id: manifest.backup_set_id,
                        end,
                        title,
                        encrypted: !found.header.keys.is_empty(),
                    }),
                    Err(why) => passed_over.push_str(&format!("\n    {title}: {why}")),
                }
            }
        }
        match (tips.is_empty(), passed_over.is_empty()) {
            (false, _) => Ok(tips),
            (true, true) => Err(none("no complete set was found there".into())),
            (true, false) => Err(none(format!("no set there can be the base:{passed_over}"))),
        }
    });
    found.map_err(about_base)
}

/// Says if the log continues another set than the likeliest one: the commits between are in no log set. If the
/// likeliest set is newer than this one, its commits are not in the database any more.
pub fn passed_over(engine: &dyn LogEngine, tips: &[LogBase], taken: usize, report: &mut Report) {
    let Some(likeliest) = tips.first().filter(|_| taken > 0) else { return };
    let taken = &tips[taken];
    let said = format!("the log does not continue {}, but {}", likeliest.title, taken.title);
    if taken.end.time >= likeliest.end.time {
        match engine.outlives_fulls() {
            true => report.warnings.push(format!(
                "{said}: the server does not have the log between them any more, so no restore reaches a time between the \
                 two. Take log backups more often, or keep the log longer"
            )),
            false => report.notes.push(said),
        }
        return;
    }
    report.warnings.push(format!(
        "{said}, which is older: was an older copy of the database restored? Only --stop-at or --set restores the \
         commits between the two"
    ));
}

fn none(why: String) -> Error {
    Error::incomplete("--base", why, "take a full first, into the same repository or named with --base")
}

/// The position where the log continues a set; or why it cannot.
fn end_of(manifest: &Manifest, request: &Request, engine: &dyn LogEngine) -> Result<SetEnd, String> {
    if request.source.engine().is_none_or(|engine| engine.name() != manifest.engine) {
        return Err(format!("of another engine, {}", manifest.engine));
    }
    let database = request.source.name();
    if manifest.database != database {
        return Err(format!("of `{}`, and this backup is of `{database}`", manifest.database));
    }
    if manifest.copy_only {
        return Err("taken with --copy-only".into());
    }
    let end = engine.end(&manifest.position.last.value())?;
    let finished = manifest.finished_at.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_microsecond);
    Ok(SetEnd { time: end.time.or(finished), ..end })
}
