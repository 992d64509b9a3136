//! "Is last night good?": whether each database has a backup that is new enough and was proven recently enough; for a
//! monitor, as an exit code and as metrics.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;
use std::time::Duration;

use fullbore_core::Result;
use serde::Serialize;
use uuid::Uuid;

use super::Setting;
use super::databases::{Names, is_known, meant, of_database};
use super::hints::without_sets;
use fullbore_core::conduct::Conduct;
use fullbore_core::units::show_duration;
use fullbore_repository::chain::{self, CLOCK_TOLERANCE, Choice, show_time};
use fullbore_repository::inventory::StoredSet;

/// What the user asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// `--database`; `None`: each of them.
    pub database: Option<String>,
    /// `--retired`, and those of the configuration: no new backups of these are expected, but their existing backups
    /// must be good.
    pub retired: Vec<String>,
    /// `--max-age`: the highest age of the newest complete chain.
    pub max_age: Option<Duration>,
    /// `--max-unproven`: the longest time since a chain was verified or restored.
    pub max_unproven: Option<Duration>,
}

/// fullbore has no older backups: the first of January 2026, in microseconds since 1970.
const EARLIEST: i64 = 1_767_225_600 * 1_000_000;

/// The state of one database. Ages are in seconds, by the store's clock.
#[derive(Debug, Clone, Serialize)]
pub struct DatabaseHealth {
    /// Name of the engine.
    pub engine: String,
    /// The database; with its machine if several have one of that name.
    pub database: String,
    /// The newest set of the newest complete chain.
    pub backup_set_id: Option<String>,
    /// When that was stored, RFC 3339.
    pub stored_at: Option<String>,
    /// How long ago.
    pub age_s: Option<u64>,
    /// When a complete chain was last verified or restored and found good, RFC 3339.
    pub proven_at: Option<String>,
    /// How long ago.
    pub unproven_s: Option<u64>,
    /// It is not backed up any more: neither age counts.
    pub retired: bool,
    /// Whole sets.
    pub sets: usize,
    /// Bytes of all its sets.
    pub stored_bytes: u64,
    /// What is wrong, a sentence each.
    pub problems: Vec<String>,
}

/// The state of every database. A set without a readable record or media belongs to no database: it is in `warnings`.
///
/// # Errors
/// The repository cannot be reached, or has no sets.
pub fn run(
    request: &Request,
    setting: Setting<'_>,
    conduct: &Conduct,
    warnings: &mut Vec<String>,
) -> Result<Vec<DatabaseHealth>> {
    let repository = setting.open(conduct)?;
    let now = repository.about_now().map_err(|error| conduct.why_halted(error))?;
    // Warnings of the catalog of this host say nothing about the backups.
    let inventory = setting.inventory(&repository, conduct, &mut Vec::new())?;
    warnings.extend(inventory.warnings.iter().cloned());
    let meant = |wanted: Option<&str>| meant(&repository, &inventory.sets, wanted);
    let database = meant(request.database.as_deref());
    let sets: Vec<&StoredSet> = match &database {
        Some(_) => of_database(&inventory.sets, database.as_deref(), setting.name)?,
        None => inventory.sets.iter().collect(),
    };
    if sets.is_empty() {
        return Err(without_sets(setting.name));
    }
    let names = Names::of(&inventory.sets);
    let name = |set: &StoredSet| (set.record.engine.clone(), names.name(&set.record));
    let known: BTreeSet<_> = sets.iter().map(|set| name(set)).collect();
    let mut retired = BTreeSet::new();
    // A name without sets is fine: if it is mistyped, the check still complains about the database that was meant.
    let wanted = request.retired.iter().filter_map(|wanted| meant(Some(wanted)));
    for wanted in wanted.filter(|wanted| is_known(&inventory.sets, wanted)) {
        let of_it = of_database(&inventory.sets, Some(&wanted), setting.name)
            .map_err(|error| error.noting("--retired or `retired` names it"))?;
        retired.extend(of_it.first().map(|set| name(set)));
    }
    let of = |named: (String, String)| {
        let ours = sets.iter().copied().filter(|set| name(set) == named);
        standing(&named, &ours.collect::<Vec<_>>(), request, retired.contains(&named), now)
    };
    Ok(known.into_iter().map(of).collect())
}

fn standing(
    (engine, database): &(String, String),
    sets: &[&StoredSet],
    request: &Request,
    retired: bool,
    now: i64,
) -> DatabaseHealth {
    let expected = |most: Option<Duration>| most.filter(|_| !retired);
    let known: Vec<_> = sets.iter().map(|set| set.found()).collect();
    let newest = chain::choose(&known, &Choice { latest: true, ..Choice::default() });
    let ago = |time: i64| Duration::from_micros(now.saturating_sub(time).max(0).cast_unsigned());
    let mut problems = Vec::new();
    let last = match &newest {
        Ok(sequence) => sequence.sets.last().map(|&at| sets[at]),
        Err(error) => {
            // With a gap between log sets, the newest full or differential is restored without them.
            let alone = chain::choose(&known, &Choice { before: Some(i64::MAX), ..Choice::default() });
            let what = if alone.is_ok() { "its newest state cannot" } else { "none of its backups can" };
            problems.push(format!("{what} be restored: {}", error.one_line()));
            alone.ok().and_then(|sequence| sequence.sets.last().map(|&at| sets[at]))
        }
    };
    problems.extend(last.and_then(|last| too_old(last.stored_at, ago(last.stored_at), expected(request.max_age))));
    let proven_at = proven(sets, &known);
    match (expected(request.max_unproven), proven_at) {
        (Some(most), Some(at)) if ago(at) > most => problems.push(format!(
            "last proven {} ({} ago); --max-unproven is {}",
            show_time(at),
            shown(ago(at)),
            show_duration(most)
        )),
        (Some(_), None) => {
            problems.push("never proven: none of its complete chains was verified or restored".to_owned())
        }
        _ => {}
    }
    if let Some(ahead) = last.filter(|last| last.stored_at > now.saturating_add(CLOCK_TOLERANCE)) {
        let when = show_time(ahead.stored_at);
        problems.push(format!(
            "its newest backup is dated in the future, {when}: a clock is or was wrong, so its age is unknown"
        ));
    }
    let unusable = sets.iter().filter(|set| set.recorded && !set.tombstone);
    problems.extend(unusable.filter_map(|set| {
        let why = set.incomplete.as_ref()?;
        Some(format!("{} cannot be used: {why}", super::title(&set.record)))
    }));
    problems.extend(sets.iter().zip(&known).filter(|(set, _)| !set.tombstone).filter_map(|(set, found)| {
        let full = chain::lost_full(found, &known)?;
        Some(format!("{} cannot be used: its full {full} is missing", super::title(&set.record)))
    }));
    let damaged = sets.iter().filter(|set| set.failed_at.is_some() && !set.is_verified() && !set.tombstone);
    problems.extend(damaged.map(|set| format!("{} was found damaged", super::title(&set.record))));
    DatabaseHealth {
        engine: engine.clone(),
        database: database.clone(),
        backup_set_id: last.map(|set| set.record.backup_set_id.to_string()),
        stored_at: last.map(|set| show_time(set.stored_at)),
        age_s: last.map(|set| ago(set.stored_at).as_secs()),
        proven_at: proven_at.map(show_time),
        unproven_s: proven_at.map(|at| ago(at).as_secs()),
        retired,
        sets: sets.iter().filter(|set| set.incomplete.is_none()).count(),
        stored_bytes: sets.iter().fold(0, |sum, set| sum.saturating_add(set.stored_bytes())),
        problems,
    }
}

/// What is wrong with the time and age of the newest backup.
fn too_old(stored_at: i64, age: Duration, most: Option<Duration>) -> Option<String> {
    let when = show_time(stored_at);
    if stored_at < EARLIEST {
        return Some(format!(
            "its newest backup is dated {when}, before the first version of fullbore: a clock was wrong, or it was \
             copied without its times; its age is unknown"
        ));
    }
    let most = most.filter(|most| age > *most)?;
    Some(format!("its newest backup is {} old, from {when}; --max-age is {}", shown(age), show_duration(most)))
}

/// A duration; a long one is rounded down to minutes, hours or days.
fn shown(time: Duration) -> String {
    let seconds = time.as_secs();
    let whole = match seconds {
        0..=3_600 => 1,
        3_601..=172_800 => 60,
        172_801..=1_209_600 => 3_600,
        _ => 86_400,
    };
    show_duration(Duration::from_secs(seconds - seconds % whole))
}

/// When all sets of a chain were last found good: the oldest of their verdicts counts.
fn proven(sets: &[&StoredSet], known: &[chain::FoundSet]) -> Option<i64> {
    let founded = chain::foundations(known, |at| sets[at].is_verified());
    let id = |at: usize| sets[at].record.backup_set_id;
    let founded: HashMap<Uuid, Uuid> = founded.into_iter().map(|(log, base)| (id(log), id(base))).collect();
    let of_chain = |end: &&StoredSet| {
        let (mut at, mut oldest) = (*end, i64::MAX);
        // A chain has at most as many sets as there are, whatever their records say.
        for _ in 0..sets.len() {
            if !at.is_verified() {
                return None;
            }
            oldest = oldest.min(at.verified_at?);
            match founded.get(&at.record.backup_set_id).copied().or(at.record.base) {
                None => return Some(oldest),
                Some(base) => at = sets.iter().find(|set| set.record.backup_set_id == base)?,
            }
        }
        None
    };
    sets.iter().filter_map(of_chain).max()
}

/// The text format of Prometheus, for a monitor (public source: prometheus.io, "Exposition formats", version 0.0.4).
pub fn metrics(repository: &str, checked: &Result<Vec<DatabaseHealth>>) -> String {
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, values: Vec<(String, f64)>| {
        let _ = writeln!(text, "# HELP fullbore_{name} {help}\n# TYPE fullbore_{name} gauge");
        values.iter().for_each(|(labels, value)| {
            let _ = writeln!(text, "fullbore_{name}{{{labels}}} {value}");
        });
    };
    let repository = format!("repository=\"{}\"", escaped(repository));
    let reached = f64::from(u8::from(checked.is_ok()));
    gauge("repository_reachable", "1 when the repository could be read.", vec![(repository.clone(), reached)]);
    let time = jiff::Timestamp::now().as_second() as f64;
    gauge("check_time_seconds", "When this was measured, by this host's clock.", vec![(repository.clone(), time)]);
    let databases: &[DatabaseHealth] = checked.as_ref().map_or(&[], Vec::as_slice);
    let labels = |of: &DatabaseHealth| {
        format!("{repository},engine=\"{}\",database=\"{}\"", escaped(&of.engine), escaped(&of.database))
    };
    let each = |value: &dyn Fn(&DatabaseHealth) -> Option<f64>| -> Vec<(String, f64)> {
        databases.iter().filter_map(|of| Some((labels(of), value(of)?))).collect()
    };
    let good = |of: &DatabaseHealth| Some(f64::from(u8::from(of.problems.is_empty())));
    gauge("database_good", "1 when nothing is wrong with the backups of this database.", each(&good));
    let age = |of: &DatabaseHealth| of.age_s.map(|seconds| seconds as f64);
    gauge("backup_age_seconds", "Age of the newest complete chain.", each(&age));
    let unproven = |of: &DatabaseHealth| of.unproven_s.map(|seconds| seconds as f64);
    gauge("unproven_seconds", "Time since a complete chain was verified or restored.", each(&unproven));
    gauge("sets", "Complete backup sets.", each(&|of| Some(of.sets as f64)));
    gauge("stored_bytes", "Bytes of all backup sets.", each(&|of| Some(of.stored_bytes as f64)));
    text
}

/// The value of a label, escaped for the format.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
