//! Which points in time can be restored from a heap of backup sets: from their LSNs, times and recovery forks. Log records
//! are not read, so a time inside a log backup is possible, but not proven.
//!
//! | set | can be restored |
//! |---|---|
//! | full | its end |
//! | differential | its end, if its full is there |
//! | log backup | up to its end, if what was restored before it has its FirstLSN or a later one, on its fork |

use std::collections::{BTreeMap, BTreeSet};

use fullbore_core::units::counted;
use jiff::civil::DateTime;
use uuid::Uuid;

use super::configuration::{BackupKind, DatabaseHeader};
use super::lsn::Lsn;
use super::media::{BackupSet, MediaSet, guid};
use crate::engine::{PointInTime, Restorable, RestorableBase, RestorableLog, RestorableRange};

/// A set that can be read whole.
#[derive(Clone, Copy)]
struct Usable<'a> {
    id: Uuid,
    database: &'a DatabaseHeader,
}

/// What can be restored of each database on these media.
pub fn restorable(media: &[MediaSet]) -> Vec<Restorable> {
    let mut databases: BTreeMap<(&str, Uuid), Vec<Usable<'_>>> = BTreeMap::new();
    for set in media.iter().flat_map(|media| media.backup_sets().into_iter().filter(|set| is_whole(media, set))) {
        let database = &set.configuration.database;
        let of = (database.database.as_str(), database.family);
        databases.entry(of).or_default().push(Usable { id: set.header.guid, database });
    }
    databases.into_iter().map(|((name, _), sets)| of_database(name, &sets)).collect()
}

/// True if all families of the set are there, and none of them is cut off inside it.
fn is_whole(media: &MediaSet, set: &BackupSet) -> bool {
    let is_final = |known: &&BackupSet| known.header.guid == set.header.guid && known.is_final;
    media.incomplete().is_none() && media.families.iter().all(|family| family.sets.iter().any(|set| is_final(&set)))
}

fn of_database(name: &str, sets: &[Usable<'_>]) -> Restorable {
    let of_kind = |kind| sets.iter().copied().filter(move |set| set.database.kind == kind);
    let fulls: BTreeSet<Uuid> = of_kind(BackupKind::Full).map(|set| set.id).collect();
    let logs = Logs::new(of_kind(BackupKind::Log).collect());
    let mut missing = Vec::new();
    let mut bases: Vec<Usable<'_>> = of_kind(BackupKind::Full).collect();
    for differential in of_kind(BackupKind::Differential) {
        let base = differential.database.base;
        if fulls.contains(&base) {
            bases.push(differential);
        } else {
            missing.push(format!(
                "the full backup {} is missing: the differential of {} cannot be restored without it",
                guid(base),
                shown(differential.database.finished)
            ));
        }
    }
    bases.sort_by_key(|base| base.database.last);
    let mut ranges: Vec<(RestorableRange, BaseWithLogs)> = Vec::new();
    for base in bases {
        let (range, reach) = range_of(base, &logs);
        let is_known = |known: &BaseWithLogs| known.end == reach.end && reach.end.is_some() || known.has(base.database);
        match ranges.iter_mut().find(|(_, known)| is_known(known)) {
            Some((known, _)) => known.bases.extend(range.bases),
            None => ranges.push((range, reach)),
        }
    }
    missing.extend(logs.out_of_reach(&ranges));
    let others = sets
        .iter()
        .filter(|set| !matches!(set.database.kind, BackupKind::Full | BackupKind::Differential | BackupKind::Log));
    let others = others.count() as u64;
    if others > 0 {
        missing.push(format!("{} of single files or filegroups: not counted here", counted(others, "backup set")));
    }
    Restorable { database: name.to_owned(), ranges: ranges.into_iter().map(|(range, _)| range).collect(), missing }
}

/// What a base and the logs behind it give, on the fork of the base.
struct BaseWithLogs {
    fork: Uuid,
    from: Lsn,
    to: Lsn,
    /// The last log.
    end: Option<usize>,
    /// The logs.
    logs: BTreeSet<usize>,
}

impl BaseWithLogs {
    /// True if the end of a set is a point in this range.
    fn has(&self, set: &DatabaseHeader) -> bool {
        self.fork == set.fork && (self.from..=self.to).contains(&set.last)
    }
}

fn range_of(base: Usable<'_>, logs: &Logs<'_>) -> (RestorableRange, BaseWithLogs) {
    let mut used = BTreeSet::new();
    let mut next = logs.after(base.database.fork, base.database.last);
    let mut end = None;
    while let Some(place) = next {
        used.insert(place);
        end = Some(place);
        next = logs.next.get(place).copied().flatten();
    }
    let last = end.and_then(|place| logs.sets.get(place)).map_or(base.database, |log| log.database);
    let from = point(base.database, base.database.finished.or(base.database.started));
    // A log backup has what was committed before it began. An empty one says that nothing was committed.
    let is_here = |log: &&Usable<'_>| {
        log.database.fork == last.fork && (base.database.last..=last.last).contains(&log.database.last)
    };
    let empty: Vec<_> = logs.empty.iter().filter(is_here).collect();
    let at_end = empty.iter().filter(|log| log.database.last == last.last).map(|log| log.database.started);
    let time = at_end.chain(end.map(|_| last.started.or(last.finished))).max().flatten();
    let to = PointInTime { time: time.map(|time| time.to_string()).or_else(|| from.time.clone()), ..point(last, None) };
    let is_differential = base.database.kind == BackupKind::Differential;
    let full = guid(if is_differential { base.database.base } else { base.id });
    let differential = is_differential.then(|| guid(base.id));
    let mut all: Vec<Usable<'_>> = used.iter().filter_map(|place| logs.sets.get(*place)).copied().collect();
    all.extend(empty.iter().copied().copied());
    all.sort_by_key(|log| (log.database.last, log.database.started));
    let range = RestorableRange {
        bases: vec![RestorableBase { full: full.clone(), differential: differential.clone(), end: from.clone() }],
        logs: all.into_iter().map(log_of).collect(),
        from,
        to,
        full,
        differential,
        log_backups: (used.len() + empty.len()) as u64,
        recovery_fork: guid(last.fork),
    };
    let reach = BaseWithLogs { fork: last.fork, from: base.database.last, to: last.last, end, logs: used };
    (range, reach)
}

/// A log backup has what was committed before it began.
fn log_of(log: Usable<'_>) -> RestorableLog {
    let end = point(log.database, log.database.started.or(log.database.finished));
    RestorableLog { id: guid(log.id), first_lsn: log.database.first.to_string(), end }
}

fn point(database: &DatabaseHeader, time: Option<DateTime>) -> PointInTime {
    PointInTime { lsn: database.last.to_string(), time: time.map(|time| time.to_string()) }
}

fn shown(time: Option<DateTime>) -> String {
    time.map_or_else(|| "an unknown time".to_owned(), |time| time.to_string())
}

/// The log backups of a database, by their first LSN.
struct Logs<'a> {
    sets: Vec<Usable<'a>>,
    /// Those without a record: they begin and end at the same LSN.
    empty: Vec<Usable<'a>>,
    /// By RecoveryForkID: the LSN from which a log is on it, and the log with the highest last LSN of those up to it.
    by_fork: BTreeMap<Uuid, Vec<(Lsn, usize)>>,
    /// By FirstRecoveryForkID: the logs over a fork, which are on it up to their ForkPointLSN.
    forking: BTreeMap<Uuid, Vec<usize>>,
    /// The log that follows each log.
    next: Vec<Option<usize>>,
}

impl<'a> Logs<'a> {
    fn new(sets: Vec<Usable<'a>>) -> Self {
        let is_empty = |log: &Usable<'_>| log.database.first >= log.database.last;
        let (empty, mut sets): (Vec<_>, Vec<_>) = sets.into_iter().partition(is_empty);
        sets.sort_by_key(|log| (log.database.first, log.database.last));
        let last = |place: usize| sets.get(place).map(|log| log.database.last);
        let mut by_fork: BTreeMap<Uuid, Vec<(Lsn, usize)>> = BTreeMap::new();
        let mut forking: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
        for (place, log) in sets.iter().enumerate() {
            let point = fork_point(log.database);
            if point.is_some() {
                forking.entry(log.database.first_fork).or_default().push(place);
            }
            by_fork.entry(log.database.fork).or_default().push((point.unwrap_or(log.database.first), place));
        }
        for of_fork in by_fork.values_mut() {
            of_fork.sort_unstable();
            let mut best = None::<usize>;
            for (_, place) in of_fork {
                *place = best.filter(|best| last(*best) > last(*place)).unwrap_or(*place);
                best = Some(*place);
            }
        }
        let mut logs = Self { sets, empty, by_fork, forking, next: Vec::new() };
        logs.next = logs.sets.iter().map(|log| logs.after(log.database.fork, log.database.last)).collect();
        logs
    }

    /// The log that continues from `lsn` on `fork` and brings the database furthest.
    fn after(&self, fork: Uuid, lsn: Lsn) -> Option<usize> {
        let of_fork = self.by_fork.get(&fork).map_or(&[][..], Vec::as_slice);
        let begun = of_fork.partition_point(|(from, _)| *from <= lsn);
        let best = begun.checked_sub(1).and_then(|place| of_fork.get(place)).map(|(_, best)| *best);
        let log = |place: usize| self.sets.get(place).map(|log| log.database);
        let is_before_fork = |place: &usize| {
            log(*place).is_some_and(|log| log.first <= lsn && fork_point(log).is_some_and(|point| lsn < point))
        };
        let over_fork = self.forking.get(&fork).into_iter().flatten().copied().filter(is_before_fork);
        let last = |place: &usize| log(*place).map(|log| log.last);
        over_fork.chain(best).max_by_key(last).filter(|place| last(place) > Some(lsn))
    }

    /// What is missing before the logs that no range reaches.
    fn out_of_reach(&self, ranges: &[(RestorableRange, BaseWithLogs)]) -> Vec<String> {
        let is_reached = |place: usize| {
            let log = self.sets.get(place).map(|log| log.database);
            // A log may be there twice, or may be shorter than another one with the same beginning.
            let is_inside = |reach: &BaseWithLogs| log.is_some_and(|log| reach.from < log.last && reach.has(log));
            ranges.iter().any(|(_, reach)| reach.logs.contains(&place) || is_inside(reach))
        };
        let lost: BTreeSet<usize> = (0..self.sets.len()).filter(|place| !is_reached(*place)).collect();
        let followers: BTreeSet<usize> =
            lost.iter().filter_map(|place| self.next.get(*place).copied().flatten()).collect();
        lost.difference(&followers).filter_map(|place| self.before(*place, ranges)).collect()
    }

    /// What is missing before a log and those behind it.
    fn before(&self, place: usize, ranges: &[(RestorableRange, BaseWithLogs)]) -> Option<String> {
        let log = self.sets.get(place)?.database;
        let chain = std::iter::successors(Some(place), |place| self.next.get(*place).copied().flatten());
        let behind: Vec<&DatabaseHeader> =
            chain.filter_map(|place| self.sets.get(place)).map(|log| log.database).collect();
        let end = behind.last().map_or(log.last, |last| last.last);
        let is_among = |empty: &&Usable<'_>| {
            behind.iter().any(|log| log.fork == empty.database.fork) && (log.first..=end).contains(&empty.database.last)
        };
        let count = behind.len() + self.empty.iter().filter(is_among).count();
        let lost = format!("{} from {} on cannot be used", counted(count as u64, "log backup"), shown(log.started));
        let before = ranges.iter().filter(|(_, reach)| reach.fork == begins_on(log) && reach.to < log.first);
        Some(match before.max_by_key(|(_, reach)| reach.to) {
            Some((range, reach)) => format!(
                "the log from LSN {} to LSN {} is missing, of a log backup between {} and {}: {lost}",
                reach.to,
                log.first,
                range.to.time.as_deref().unwrap_or("an unknown time"),
                shown(log.started)
            ),
            None => format!(
                "a full backup is missing that ends between LSN {} and LSN {}, on the recovery fork {}: {lost}",
                log.first,
                log.last,
                guid(begins_on(log))
            ),
        })
    }
}

/// ForkPointLSN, if it is inside a log: the log is on FirstRecoveryForkID before it, and then on RecoveryForkID. One that is
/// not behind FirstLSN tells of an earlier fork of the database.
fn fork_point(log: &DatabaseHeader) -> Option<Lsn> {
    Some(log.fork_point).filter(|point| *point > log.first && !log.first_fork.is_nil())
}

/// The fork on which a log begins.
fn begins_on(log: &DatabaseHeader) -> Uuid {
    if fork_point(log).is_some() { log.first_fork } else { log.fork }
}
