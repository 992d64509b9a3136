//! Chains: backup sets in, restore sequence out. Pure: no I/O.

mod copies;
mod forks;
mod foundation;
pub mod log;
#[cfg(any(test, feature = "testkit"))]
pub mod log_terms;
pub mod moment;
mod protection;
pub mod retention;
pub mod steps;
#[cfg(test)]
mod tests;

use fullbore_core::media::{LogRange, SetKind};
use fullbore_core::{Error, Result};
use uuid::Uuid;

pub use foundation::foundations;
use log::{Logs, Path};
pub use protection::check_against;

use crate::ids;
use fullbore_core::units::on_its_line;

/// What is known of a backup set that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSet {
    /// Identity of the backup.
    pub backup_set_id: Uuid,
    /// Identity of the media.
    pub media_set_id: Uuid,
    /// What it contains.
    pub kind: SetKind,
    /// The full of a differential, the predecessor of a log set.
    pub base: Option<Uuid>,
    /// Microseconds since 1970.
    pub started_at: i64,
    /// Why it cannot be used, if it cannot.
    pub incomplete: Option<String>,
    /// One of its families has a working name: a backup with `--init` was killed.
    pub interrupted: bool,
    /// The database, where the label tells it.
    pub database: Option<String>,
    /// Names of its families, without the suffix of working names.
    pub names: Vec<String>,
    /// Where it begins and ends in the log, once its manifest was read.
    pub log_range: Option<LogRange>,
    /// The end of that range by the store's clock, if the clock of its host was wrong; microseconds since 1970.
    pub until_by_store: Option<i64>,
    /// A key is needed to read it.
    pub encrypted: bool,
}

impl FoundSet {
    /// True for the files of a killed or running backup under working names: they were never a backup.
    pub fn is_unfinished(&self) -> bool {
        self.interrupted && self.incomplete.is_some()
    }
}

/// Which set the user asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// `--set`: any part of the backup-set or media-set id.
    pub set: Option<String>,
    /// `--latest`.
    pub latest: bool,
    /// `--stop-at`, in microseconds since 1970.
    pub stop_at: Option<i64>,
    /// The named log set is applied from its first record on: a full that was taken later is no base for it.
    pub whole_log: bool,
    /// `--before`, in microseconds since 1970: the newest full or differential at or before this time, without log sets.
    pub before: Option<i64>,
}

/// The sets to restore, in order, as places in the list that was given, and what the user should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// A full, then perhaps its differential, then log sets.
    pub sets: Vec<usize>,
    /// Sets that were not used although they are newer, and why.
    pub warnings: Vec<String>,
    /// Newer sets that were never finished.
    pub notes: Vec<String>,
}

/// Chooses what to restore.
///
/// # Errors
/// No usable set, more than one chain and no choice between them, or a differential without its full.
pub fn choose(found: &[FoundSet], choice: &Choice) -> Result<Sequence> {
    let (places, notes) = copies::one_of_each(found, choice);
    let sequence = if places.len() == found.len() {
        choose_distinct(found, choice)?
    } else {
        let distinct: Vec<FoundSet> = places.iter().map(|&at| found[at].clone()).collect();
        let mut sequence = choose_distinct(&distinct, choice)?;
        sequence.sets.iter_mut().for_each(|at| *at = places[*at]);
        sequence.notes.extend(notes);
        sequence
    };
    let of_chain: Vec<&FoundSet> = sequence.sets.iter().map(|&at| &found[at]).collect();
    protection::check(&of_chain)?;
    Ok(sequence)
}

/// Chooses one set, without the sets below it.
///
/// # Errors
/// No set fits, or several; or it is not whole.
pub fn choose_one(found: &[FoundSet], choice: &Choice) -> Result<Sequence> {
    let (places, notes) = copies::one_of_each(found, choice);
    let distinct: Vec<FoundSet> = places.iter().map(|&at| found[at].clone()).collect();
    let Some(prefix) = &choice.set else {
        let mut sequence = choose(found, choice)?;
        let beneath = sequence.sets.len().saturating_sub(1);
        sequence.sets.drain(..beneath);
        return Ok(sequence);
    };
    let end = named(&distinct, prefix)?;
    match &distinct[end].incomplete {
        Some(why) => Err(not_whole(&distinct[end], why)),
        None => {
            protection::check_against(found, &distinct[end])?;
            Ok(Sequence { sets: vec![places[end]], warnings: Vec::new(), notes })
        }
    }
}

fn not_whole(set: &FoundSet, why: &str) -> Error {
    Error::incomplete(title(set), why, "use another set: `fullbore list` shows all sets")
}

/// As [`choose`], if no backup set is on two media sets.
fn choose_distinct(found: &[FoundSet], choice: &Choice) -> Result<Sequence> {
    if let Some(before) = choice.before {
        return newest_before(found, choice, before);
    }
    if log::concerns(found, choice) {
        return choose_among_logs(found, choice);
    }
    let end = match &choice.set {
        Some(prefix) => named(found, prefix)?,
        None => newest(found, choice.latest)?,
    };
    sequence_to(found, choice, end)
}

/// A full, or a differential with its full, and warnings about other sets.
fn sequence_to(found: &[FoundSet], choice: &Choice, end: usize) -> Result<Sequence> {
    if let Some(why) = &found[end].incomplete {
        return Err(not_whole(&found[end], why));
    }
    let mut sets = vec![end];
    let (mut warnings, mut notes) = (Vec::new(), Vec::new());
    if found[end].kind != SetKind::Full {
        let base = base_of(found, end)?;
        sets.insert(0, base);
        let (of, base_of) = (&found[end].database, &found[base].database);
        if let (Some(of), Some(base_of)) = (of, base_of)
            && of != base_of
        {
            warnings.push(format!(
                "{} is based on a full of `{}`: its database may have moved",
                title(&found[end]),
                on_its_line(base_of)
            ));
        }
    }
    let newest_is_meant = choice.set.is_none() && choice.stop_at.is_none() && choice.before.is_none();
    warnings.extend(orphans(found, end).filter(|_| newest_is_meant));
    for newer in newer_but_incomplete(found, end).filter(|_| newest_is_meant) {
        match &newer.incomplete {
            // The unfinished set of a running or killed backup was never a backup.
            Some(_) if newer.interrupted => notes.push(format!("{} is newer, but not finished", title(newer))),
            Some(why) => warnings.push(format!("{} is newer, but cannot be used: {why}", title(newer))),
            None => {}
        }
    }
    Ok(Sequence { sets, warnings, notes })
}

/// As [`choose`], where there are log sets, or a time to stop at.
fn choose_among_logs(found: &[FoundSet], choice: &Choice) -> Result<Sequence> {
    let logs = Logs::new(found)?;
    let with = |path: Path| -> Result<Sequence> {
        let base = path.sets.iter().rposition(|&at| found[at].kind != SetKind::Log).unwrap_or(0);
        let mut sequence = sequence_to(found, choice, path.sets[base])?;
        sequence.sets = path.sets;
        sequence.warnings.extend(path.doubts);
        Ok(sequence)
    };
    if let Some(prefix) = &choice.set {
        let end = named(found, prefix)?;
        return match (found[end].kind, &found[end].incomplete) {
            (SetKind::Log, None) => with(logs.to(end, &logs.bases_of(end, choice.whole_log))?),
            _ => sequence_to(found, choice, end),
        };
    }
    if let Some(stop) = choice.stop_at {
        let newest = newest(found, true)?;
        let of_it = |base: &&(usize, Option<usize>)| found[base.0].database == found[newest].database;
        let bases: Vec<_> = log::bases(found).iter().filter(of_it).copied().collect();
        return with(logs.up_to(&bases, stop)?);
    }
    let newest = newest(found, choice.latest)?;
    let of_it = log::bases(found).into_iter().filter(|base| found[base.0].database == found[newest].database);
    let paths = of_it.map(|(full, differential)| logs.path(full, differential));
    // The path with the newest set. Among equals: the newest full, then the fewest log sets.
    let started = |at: usize| found[at].started_at;
    let last = |path: &Path| path.sets.iter().map(|&at| started(at)).max();
    let best =
        paths.max_by_key(|path| (last(path), path.until, started(path.sets[0]), std::cmp::Reverse(path.sets.len())));
    let Some(best) = best else { return sequence_to(found, choice, newest) };
    match logs.gap(&best) {
        Some(gap) => Err(gap),
        None => with(best),
    }
}

/// What a set is called in messages.
pub fn title(set: &FoundSet) -> String {
    if set.backup_set_id.is_nil() {
        return "the place of the target".into();
    }
    let database = set.database.as_deref().map_or_else(String::new, |name| format!(" of `{}`", on_its_line(name)));
    format!("{} {}{database} from {}", set.kind, set.backup_set_id, show_time(set.started_at))
}

/// Microseconds since 1970 in RFC 3339, to the second.
pub fn show_time(micros: i64) -> String {
    jiff::Timestamp::from_microsecond(micros)
        .map_or_else(|_| "an unknown time".into(), |time| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// The set with this id, or with an id that has this text in it.
fn named(found: &[FoundSet], part: &str) -> Result<usize> {
    let is_it = |at: &usize| ids::fits(found[*at].backup_set_id, part) || ids::fits(found[*at].media_set_id, part);
    let hits: Vec<usize> = (0..found.len()).filter(is_it).collect();
    match hits[..] {
        [one] => Ok(one),
        [] => Err(Error::usage(
            format!("--set {part}"),
            format!("no such set among these:{}", list(found)),
            "give a part of an id from this list",
        )),
        _ => {
            let fitting: Vec<FoundSet> = hits.iter().map(|&at| found[at].clone()).collect();
            Err(Error::usage(
                format!("--set {part}"),
                format!("fits several sets:{}", list(&fitting)),
                "give more digits of the id",
            ))
        }
    }
}

/// The newest point of the only chain, or of the newest chain.
fn newest(found: &[FoundSet], latest: bool) -> Result<usize> {
    let usable: Vec<usize> = (0..found.len()).filter(|&at| found[at].incomplete.is_none()).collect();
    let fulls: Vec<usize> = usable.iter().copied().filter(|&at| found[at].kind == SetKind::Full).collect();
    let Some(&last_full) = fulls.iter().max_by_key(|&&at| found[at].started_at) else {
        return Err(nothing_usable(found, &usable));
    };
    let superseded = fulls.iter().all(|&at| at == last_full || is_replaced(&found[at], &found[last_full]));
    if fulls.len() > 1 && !latest && !superseded {
        return Err(Error::refused(
            "--from",
            format!("more than one chain was found:{}", list(found)),
            "choose one with --set ID, or take the newest with --latest",
        ));
    }
    let doubtful = |at: usize| differ(&found[at], &found[last_full]) && !is_replaced(&found[at], &found[last_full]);
    if let Some(other) = fulls.iter().find(|&&at| doubtful(at)) {
        let names = (shown_database(&found[last_full]), shown_database(&found[*other]));
        return Err(Error::refused(
            "--from",
            format!("fulls of several databases were found, of `{}` and of `{}`:{}", names.0, names.1, list(found)),
            "choose one with --set ID; encrypted media show their database only with --key",
        ));
    }
    let newest = usable.iter().filter_map(|&at| Some((point_of(found, &fulls, at)?, at))).max();
    Ok(newest.map_or(last_full, |(_, at)| at))
}

/// The newest full or differential at or before a time, and its full.
fn newest_before(found: &[FoundSet], choice: &Choice, before: i64) -> Result<Sequence> {
    let time = |at: usize| found[at].log_range.as_ref().map_or(found[at].started_at, |range| range.at);
    let asked = format!("--before '{}'", moment::show(before));
    let newest = newest(found, true)?;
    let bases = log::bases(found).into_iter().filter(|base| found[base.0].database == found[newest].database);
    let bases: Vec<(usize, bool)> = bases.map(|(full, with)| (with.unwrap_or(full), with.is_some())).collect();
    let taken = bases.iter().filter(|base| time(base.0) <= before).max_by_key(|base| (time(base.0), base.1));
    let Some(&(end, _)) = taken else {
        let first = bases.iter().map(|base| time(base.0)).min().unwrap_or(before);
        let why = format!("the first backup here is of {}", moment::show_with_local(first));
        return Err(Error::refused(asked, why, "give a later time; `fullbore list` shows the sets"));
    };
    let mut sequence = sequence_to(found, choice, end)?;
    let taken = moment::show_with_local(time(end));
    sequence.notes.push(format!("{asked}: {} has the state of {taken}", title(&found[end])));
    Ok(sequence)
}

/// The point in time of a full or a differential, to sort by. `None` for a log set, and for a differential without a
/// usable full. The newest full need not be the base of the newest differential: it may be copy-only or damaged.
fn point_of(found: &[FoundSet], fulls: &[usize], at: usize) -> Option<(i64, bool)> {
    let set = &found[at];
    match set.kind {
        SetKind::Full => Some((set.started_at, false)),
        // A differential is later than its full, whatever the clock said.
        SetKind::Differential => {
            let full = fulls.iter().find(|&&full| Some(found[full].backup_set_id) == set.base)?;
            Some((set.started_at.max(found[*full].started_at), true))
        }
        SetKind::Log => None,
    }
}

/// How far a clock may be off before fullbore doubts it, in microseconds.
pub const CLOCK_TOLERANCE: i64 = 5 * 60 * 1_000_000;

/// Warnings about sets whose times cannot be right: the newest set is then uncertain. `now` is in microseconds since
/// 1970.
pub fn clock_doubts(found: &[FoundSet], now: i64) -> Vec<String> {
    let unsure = "a clock was wrong, so the newest set is uncertain: choose with --set";
    let doubt = |set: &FoundSet| {
        let full = found.iter().find(|full| Some(full.backup_set_id) == set.base);
        if let Some(full) = full.filter(|full| full.started_at > set.started_at) {
            return Some(format!("{} is dated before its full, {}: {unsure}", title(set), show_time(full.started_at)));
        }
        let ahead = set.started_at > now.saturating_add(CLOCK_TOLERANCE);
        ahead.then(|| format!("{} is dated in the future: {unsure}", title(set)))
    };
    found.iter().filter_map(doubt).collect()
}

/// True when a killed `--init` gave the names of `old` to `new`.
fn is_replaced(old: &FoundSet, new: &FoundSet) -> bool {
    (old.interrupted || new.interrupted) && old.names.iter().any(|name| new.names.contains(name))
}

/// True unless both sets name the same database. An unknown database may be another one.
fn differ(one: &FoundSet, other: &FoundSet) -> bool {
    one.backup_set_id != other.backup_set_id && (one.database.is_none() || one.database != other.database)
}

fn shown_database(set: &FoundSet) -> String {
    on_its_line(set.database.as_deref().unwrap_or("unknown"))
}

fn nothing_usable(found: &[FoundSet], usable: &[usize]) -> Error {
    if let Some(&orphan) = usable.first() {
        return base_of(found, orphan).err().unwrap_or(Error::Halted);
    }
    match found {
        [] => Error::usage("--from", "no backup set was found there", "name the directory or the families of a backup"),
        [only] => Error::incomplete(
            title(only),
            only.incomplete.clone().unwrap_or_default(),
            "give all families of the set, also the ones on other disks",
        ),
        _ => Error::incomplete(
            "--from",
            format!("none of the sets found is complete:{}", list(found)),
            "give all families of a set, also those on other disks",
        ),
    }
}

fn base_of(found: &[FoundSet], differential: usize) -> Result<usize> {
    let base = found[differential].base;
    let at = found.iter().position(|set| Some(set.backup_set_id) == base && set.kind == SetKind::Full);
    let missing = |why: String| {
        Error::incomplete(title(&found[differential]), why, "name the families of the full too, with --from")
    };
    let id = base.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
    match at {
        Some(at) => match &found[at].incomplete {
            None => Ok(at),
            Some(why) => Err(missing(format!("its full {id} is incomplete: {why}"))),
        },
        None => Err(missing(format!("its full {id} is not there"))),
    }
}

fn newer_but_incomplete(found: &[FoundSet], chosen: usize) -> impl Iterator<Item = &FoundSet> {
    let full = &found[chosen];
    // A differential is later than its full, whatever the clock said.
    let later = |set: &&FoundSet| {
        set.started_at > full.started_at || (full.kind == SetKind::Full && set.base == Some(full.backup_set_id))
    };
    found.iter().filter(move |set| set.incomplete.is_some() && later(set))
}

/// The full of a whole differential, if it is not among these: the differential is useless without it.
pub fn lost_full(set: &FoundSet, found: &[FoundSet]) -> Option<Uuid> {
    let is_one = set.kind == SetKind::Differential && set.incomplete.is_none();
    let full = set.base.filter(|_| is_one)?;
    (!found.iter().any(|other| other.backup_set_id == full)).then_some(full)
}

/// Differentials of the same database that are newer than the chosen set, and whose full is not among these.
fn orphans(found: &[FoundSet], chosen: usize) -> impl Iterator<Item = String> + '_ {
    let end = &found[chosen];
    let newer = |set: &&FoundSet| set.database == end.database && set.started_at > end.started_at;
    found.iter().filter(newer).filter_map(|set| {
        let full = lost_full(set, found)?;
        Some(format!("{} is newer, but cannot be used: its full {full} is not there", title(set)))
    })
}

fn list(found: &[FoundSet]) -> String {
    found
        .iter()
        .map(|set| {
            format!(
                "\n    {}{}",
                title(set),
                set.incomplete.as_ref().map_or_else(String::new, |why| format!(" (incomplete: {why})"))
            )
        })
        .collect()
}
