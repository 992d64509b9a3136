//! Log sets in a chain: which set continues which, how far they reach, and where one is missing. Pure.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use fullbore_core::media::{LogPosition, LogRange, SetKind};
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::{Choice, FoundSet, list, moment, title};

/// The log sets among those that were found, and how they join.
pub(super) struct Logs<'a> {
    pub(super) found: &'a [FoundSet],
    /// Log sets by the set that they name as their predecessor.
    pub(super) successors: HashMap<Uuid, Vec<usize>>,
    /// By place in the list: the latest time that the log set and its successors reach.
    pub(super) farthest: HashMap<usize, i64>,
}

/// A path along the log sets, and where it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    /// A full, perhaps its differential, and log sets, in order.
    pub sets: Vec<usize>,
    /// The end of the last of them.
    pub until: i64,
    /// Warnings about uncertain parts.
    pub doubts: Vec<String>,
}

impl<'a> Logs<'a> {
    /// Looks at all of them.
    ///
    /// # Errors
    /// The range of a log set is unknown.
    pub fn new(found: &'a [FoundSet]) -> Result<Self> {
        let whole = |at: &usize| found[*at].kind == SetKind::Log && found[*at].incomplete.is_none();
        let mut logs: Vec<usize> = (0..found.len()).filter(whole).collect();
        if let Some(&silent) = logs.iter().find(|&&at| found[at].log_range.is_none()) {
            return Err(Error::refused(
                title(&found[silent]),
                "its manifest, which has its place in the log chain, cannot be read",
                "encrypted media need --key; if the manifest contradicts itself, use another copy of the set",
            ));
        }
        let mut successors: HashMap<Uuid, Vec<usize>> = HashMap::new();
        for &at in &logs {
            if let Some(base) = found[at].base {
                successors.entry(base).or_default().push(at);
            }
        }
        // A successor reaches farther than its predecessor. So from the end on, each value is known before it is
        // needed.
        let until = |at: usize| found[at].log_range.as_ref().map_or(i64::MIN, |range| range.until);
        logs.sort_by_key(|&at| Reverse((until(at), found[at].started_at)));
        let mut made = Self { found, successors, farthest: HashMap::new() };
        for at in logs {
            let next = made.next(at).map_or(i64::MIN, |next| made.reaches(next));
            made.farthest.insert(at, until(at).max(next));
        }
        Ok(made)
    }

    pub(super) fn reaches(&self, log: usize) -> i64 {
        self.farthest.get(&log).copied().unwrap_or(i64::MIN)
    }

    pub(super) fn range(&self, at: usize) -> Option<&'a LogRange> {
        self.found[at].log_range.as_ref()
    }

    /// The log set that continues another log set; if there are several, the one that leads farthest.
    fn next(&self, log: usize) -> Option<usize> {
        self.continuing(log).max_by_key(|&next| self.reaches(next))
    }

    /// The log sets that continue another log set.
    pub(super) fn continuing(&self, log: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.range(log).and_then(|range| range.last.as_ref());
        let named = self.successors.get(&self.found[log].backup_set_id).into_iter().flatten().copied();
        let joins = move |next: &usize| {
            let first = self.range(*next).and_then(|range| range.first.as_ref());
            *next != log && first.zip(end).is_some_and(|(first, end)| first.may_be(end))
        };
        named.filter(joins)
    }

    /// The log set that continues a full or a differential: its successor, or one that was made at the same time.
    fn first(&self, base: usize) -> Option<usize> {
        let later = |log: usize| (self.reaches(log), self.range(log).map_or(i64::MIN, |range| range.until));
        self.behind(base).max_by_key(|&log| (later(log), Reverse(log)))
    }

    /// The log sets that continue a full or a differential.
    pub(super) fn behind(&self, base: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.range(base).and_then(|range| range.last.as_ref());
        let set = &self.found[base];
        let of_it = move |log: &usize| {
            let other = &self.found[*log];
            let may_be = set.database.is_none() || other.database.is_none() || set.database == other.database;
            may_be && end.is_some_and(|end| self.goes_on(base, end, *log))
        };
        self.farthest.keys().copied().filter(of_it)
    }

    /// True when a log set holds frames behind `end`, where the set at `base` ends.
    fn goes_on(&self, base: usize, end: &LogPosition, log: usize) -> bool {
        let names_it = self.found[log].base == Some(self.found[base].backup_set_id);
        let begins_there = |range: &LogRange| range.first.as_ref().is_some_and(|first| first.may_be(end));
        self.range(log).is_some_and(|range| names_it && begins_there(range)) || self.holds_end_of(base, end, log)
    }

    fn holds_end_of(&self, base: usize, end: &LogPosition, log: usize) -> bool {
        self.range(log).is_some_and(|range| range.continues(end)) && !self.is_of_another(base, log)
    }

    /// True when a restore may apply the log set at `log` right after the set at `base`. The predecessor that the log set
    /// names does not matter.
    pub(super) fn may_begin_at(&self, base: usize, log: usize) -> bool {
        let (set, other) = (&self.found[base], &self.found[log]);
        let end = self.range(base).and_then(|range| range.last.as_ref());
        set.database == other.database && end.is_some_and(|end| self.holds_end_of(base, end, log))
    }

    /// The path from a full, or from a differential of it, to the end of its log sets.
    pub fn path(&self, full: usize, differential: Option<usize>) -> Path {
        let base = differential.unwrap_or(full);
        let mut sets: Vec<usize> = [Some(full), differential].into_iter().flatten().collect();
        let mut until = self.range(base).map_or(self.found[base].started_at, |range| range.until);
        let mut next = self.first(base);
        // Forged media may form a circle.
        let mut met = HashSet::new();
        while let Some(log) = next.filter(|&log| met.insert(log)) {
            sets.push(log);
            until = self.range(log).map_or(until, |range| range.until);
            next = self.next(log);
        }
        // If a log set continues the base, there is no doubt.
        let doubts = if met.is_empty() { self.passed_by(base) } else { Vec::new() };
        Path { sets, until, doubts }
    }

    /// The end of a set, by the store's clock if the clock of its host was wrong. Sets that do not continue each other
    /// have no other clock in common.
    fn until(&self, at: usize) -> Option<i64> {
        let range = self.range(at)?;
        Some(self.found[at].until_by_store.unwrap_or(range.until))
    }

    /// The error about a missing set between a path's end and later log sets of the same database.
    pub fn gap(&self, path: &Path) -> Option<Error> {
        let base = &self.found[path.sets[0]];
        let same = |at: usize| base.database.is_none() || self.found[at].database == base.database;
        let taken: HashSet<usize> = path.sets.iter().copied().collect();
        let reached: HashSet<Uuid> = path.sets.iter().map(|&at| self.found[at].backup_set_id).collect();
        let end = path.sets.last().and_then(|&at| self.range(at)?.last.as_ref());
        let path_until = path.sets.last().and_then(|&at| self.until(at)).unwrap_or(path.until);
        // A set that ends at the same position as the path adds nothing, whatever its time is.
        let ends_there = |range: &LogRange| range.last.as_ref().zip(end).is_some_and(|(last, end)| last.is(end));
        // Some servers know only whole seconds.
        let is_farther = |range: &LogRange| {
            let ends = range.last.as_ref().zip(end);
            ends.is_some_and(|(last, end)| last.history == end.history && last.at > end.at)
        };
        let beyond = |at: &usize| {
            let is_later = match self.until(*at) {
                Some(until) if until == path_until => self.range(*at).is_some_and(is_farther),
                until => until.is_some_and(|until| until > path_until),
            };
            is_later && same(*at) && !taken.contains(at) && !self.range(*at).is_some_and(ends_there)
        };
        // The predecessor of the first of them is missing.
        let broken = self
            .farthest
            .keys()
            .copied()
            .filter(beyond)
            .min_by_key(|&at| (self.until(at).unwrap_or(i64::MAX), self.found[at].started_at))?;
        let set = &self.found[broken];
        let wanted = set.base?;
        let why = match self.found.iter().find(|other| other.backup_set_id == wanted) {
            None => format!("continues backup set {wanted}, which is not there"),
            Some(other) => match &other.incomplete {
                Some(why) => format!("continues {}, which is incomplete: {why}", title(other)),
                None if reached.contains(&wanted) => {
                    format!("names {} as its predecessor, but begins elsewhere, not at its end", title(other))
                }
                None => match self.next_base(path) {
                    Some(next) => return Some(self.between(path, next)),
                    None => format!("continues {}, which is not connected to the other sets", title(other)),
                },
            },
        };
        let end = path.sets.last().map_or_else(String::new, |&at| title(&self.found[at]));
        Some(Error::incomplete(
            title(set),
            format!(
                "{why}; without it, the last set that can be restored is {end}, up to {}",
                moment::show_with_local(path.until)
            ),
            format!(
                "name its families too, with --from; or restore up to that time with --stop-at '{}'",
                moment::show(path.until)
            ),
        ))
    }

    /// The first full or differential of the same database that was taken after a path's end, with its time.
    fn next_base(&self, path: &Path) -> Option<(usize, i64)> {
        let database = &self.found[path.sets[0]].database;
        let is_base = |at: &usize| {
            let set = &self.found[*at];
            set.kind != SetKind::Log && set.incomplete.is_none() && set.database == *database
        };
        let bases = (0..self.found.len()).filter(is_base).filter_map(|at| Some((at, self.range(at)?.at)));
        bases.filter(|base| base.1 > path.until).min_by_key(|base| base.1)
    }

    /// The error for a time that no backup of the log covers.
    fn between(&self, path: &Path, (next, time): (usize, i64)) -> Error {
        let end = path.sets.last().map_or_else(String::new, |&at| title(&self.found[at]));
        Error::incomplete(
            end,
            format!(
                "the log chain ends with this set: no backup has the commits between {} and {}, when {} was taken",
                moment::show_with_local(path.until),
                moment::show_with_local(time),
                title(&self.found[next])
            ),
            format!(
                "restore to one of these times: --stop-at '{}' or '{}'",
                moment::show(path.until),
                moment::show(time)
            ),
        )
    }

    /// The shortest way to `stop`: from the newest full or differential before it.
    ///
    /// # Errors
    /// The time is before the first position, after the last one, or in a gap.
    pub fn up_to(&self, bases: &[(usize, Option<usize>)], stop: i64) -> Result<Path> {
        let at = |&(full, differential): &(usize, Option<usize>)| {
            self.range(differential.unwrap_or(full)).map_or(i64::MAX, |range| range.at)
        };
        let mut before: Vec<_> = bases.iter().filter(|base| at(base) <= stop).collect();
        before.sort_by_key(|base| Reverse((at(base), base.1.is_some())));
        let mut farthest: Option<Path> = None;
        for &&(full, differential) in &before {
            let mut path = self.path(full, differential);
            if path.until >= stop {
                // If a set ends exactly at that time, a commit of that moment may be in the next set.
                let beyond = |&set: &usize| {
                    self.found[set].kind == SetKind::Log && self.range(set).is_some_and(|range| range.until > stop)
                };
                let enough = path.sets.iter().position(beyond);
                let behind = path.sets.split_off(enough.map_or(path.sets.len(), |at| at + 1));
                let end = path.sets.last().copied();
                let mut path = self.as_it_was((full, differential), path, stop);
                // Do not ignore what a later base proves.
                if farthest.as_ref().is_none_or(|known| known.until <= self.seen(&path, stop)) {
                    if path.sets.last().copied() == end {
                        let doubtful = self.doubtful(end, &behind, stop);
                        path.sets.extend(behind.into_iter().take(doubtful));
                    }
                    return Ok(path);
                }
                continue;
            }
            if farthest.as_ref().is_none_or(|known| known.until < path.until) {
                farthest = Some(path);
            }
        }
        let asked = format!("--stop-at '{}'", moment::show(stop));
        let first = bases.iter().map(at).min().filter(|&first| first < i64::MAX);
        let (Some(first), last) = (first, farthest) else {
            return Err(Error::refused(
                asked,
                format!("no full has a known time:{}", list(self.found)),
                "choose with --set ID",
            ));
        };
        let Some(path) = last else {
            let last =
                bases.iter().map(|&(full, differential)| self.path(full, differential).until).max().unwrap_or(first);
            return Err(self.out_of_range(&asked, "is before", first, last));
        };
        // A gap is the reason, if the time is after it.
        let later = self.farthest.keys().any(|&log| self.range(log).is_some_and(|range| range.until >= stop));
        match self.gap(&path).filter(|_| later) {
            Some(gap) => Err(gap),
            None => Err(self.out_of_range(&asked, "is after", first, path.until)),
        }
    }

    /// How many of the log sets behind `end` the engine has to look at for a stop before that. One of their commits has a time
    /// before the stop: perhaps a clock was ahead, and the stop is too early.
    fn doubtful(&self, end: Option<usize>, behind: &[usize], stop: i64) -> usize {
        let reached = end.and_then(|at| self.range(at)).map_or(i64::MIN, |range| range.at);
        let earliest = |set: &usize| self.range(*set)?.earliest.filter(|time| *time < reached);
        let has_earlier = behind.iter().filter_map(earliest).any(|time| time <= stop);
        let last = behind.iter().rposition(|set| earliest(set).is_some()).filter(|_| has_earlier);
        // One more set may prove that only that commit has a wrong time.
        last.map_or(0, |last| last + 2)
    }

    fn out_of_range(&self, asked: &str, which: &str, first: i64, last: i64) -> Error {
        Error::refused(
            asked,
            format!(
                "{which} the range that these sets can be restored to: from {} to {}",
                moment::show_with_local(first),
                moment::show_with_local(last)
            ),
            "give a time in this range; without --stop-at, fullbore restores the newest point",
        )
    }

    /// The path to a log set that the user named.
    ///
    /// # Errors
    /// It has a gap.
    pub fn to(&self, log: usize, bases: &[(usize, Option<usize>)]) -> Result<Path> {
        let at = |&(full, differential): &(usize, Option<usize>)| {
            self.range(differential.unwrap_or(full)).map_or(i64::MIN, |range| range.at)
        };
        let mut bases = bases.to_vec();
        bases.sort_by_key(|base| Reverse(at(base)));
        let mut farthest: Option<Path> = None;
        for (full, differential) in bases {
            let mut path = self.path_through(full, differential, log);
            if let Some(place) = path.sets.iter().position(|&set| set == log) {
                path.sets.truncate(place + 1);
                path.until = self.range(log).map_or(path.until, |range| range.until);
                return Ok(path);
            }
            if farthest.as_ref().is_none_or(|known| known.until < path.until) {
                farthest = Some(path);
            }
        }
        let gap = farthest.and_then(|path| self.gap(&path));
        Err(gap.unwrap_or_else(|| {
            let id = self.found[log].base.map_or_else(|| "unknown".to_owned(), |id| id.to_string());
            Error::incomplete(
                title(&self.found[log]),
                format!("its predecessor, backup set {id}, is not there, or no chain leads from a full to it"),
                "name the families of the sets before it too, with --from",
            )
        }))
    }

    /// The fulls and differentials that a log set may be applied to: with `whole`, none that was taken within it.
    pub(super) fn bases_of(&self, log: usize, whole: bool) -> Vec<(usize, Option<usize>)> {
        let mut all = bases(self.found);
        let begins = |range: &LogRange, end: &LogPosition| range.first.as_ref().is_some_and(|first| first.may_be(end));
        all.retain(|&(full, differential)| {
            let end = self.range(differential.unwrap_or(full)).and_then(|range| range.last.as_ref());
            let within = |(range, end): (&LogRange, &LogPosition)| range.holds_more_than(end) && !begins(range, end);
            !whole || !self.range(log).zip(end).is_some_and(within)
        });
        all
    }

    /// The path from a base; where log sets fork, towards `log`.
    pub(super) fn path_through(&self, full: usize, differential: Option<usize>, log: usize) -> Path {
        let base = differential.unwrap_or(full);
        // Backwards from the log set, each time to the named predecessor, to the first set that continues the base.
        let mut back = vec![log];
        while let Some(&last) = back.last() {
            let end = self.range(base).and_then(|range| range.last.as_ref());
            if end.is_some_and(|end| self.goes_on(base, end, last)) {
                let mut sets: Vec<usize> = [Some(full), differential].into_iter().flatten().collect();
                sets.extend(back.iter().rev());
                return Path { sets, until: self.range(log).map_or(0, |range| range.until), doubts: Vec::new() };
            }
            let before = self.farthest.keys().copied().find(|&other| {
                Some(self.found[other].backup_set_id) == self.found[last].base && !back.contains(&other)
            });
            let joined = before.filter(|&other| {
                let ends = self.range(other).and_then(|range| range.last.as_ref());
                ends.zip(self.range(last).and_then(|range| range.first.as_ref()))
                    .is_some_and(|(one, other)| one.may_be(other))
            });
            match joined {
                Some(other) => back.push(other),
                None => break,
            }
        }
        self.path(full, differential)
    }
}

/// Whole fulls, alone and with each of their whole differentials.
pub(super) fn bases(found: &[FoundSet]) -> Vec<(usize, Option<usize>)> {
    let whole = |kind: SetKind| move |at: &usize| found[*at].kind == kind && found[*at].incomplete.is_none();
    let fulls = (0..found.len()).filter(whole(SetKind::Full));
    let with = |full: usize| {
        let of_it = move |at: &usize| found[*at].base == Some(found[full].backup_set_id);
        let differentials = (0..found.len()).filter(whole(SetKind::Differential)).filter(of_it);
        std::iter::once((full, None)).chain(differentials.map(move |at| (full, Some(at))))
    };
    fulls.flat_map(with).collect()
}

/// True when `choice` needs the order of log sets.
pub(super) fn concerns(found: &[FoundSet], choice: &Choice) -> bool {
    choice.stop_at.is_some() || found.iter().any(|set| set.kind == SetKind::Log)
}
