//! A restore in steps: which sets continue the state of a target. Pure.

use fullbore_core::media::{LogPosition, LogRange, SetKind};
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::{Choice, FoundSet, Sequence, choose, list};

/// The state of a target between the steps of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredState {
    /// The full that was restored.
    pub full: Uuid,
    /// The differential that was restored over it.
    pub differential: Option<Uuid>,
    /// The set that was applied last.
    pub last: Uuid,
    /// The name of that set in messages.
    pub title: String,
    /// True once log sets were applied.
    pub logs: bool,
    /// The database.
    pub database: Option<String>,
    /// When the last set was begun, in microseconds since 1970.
    pub started_at: i64,
    /// Its range in the log.
    pub log_range: Option<LogRange>,
    /// This set, or a set below it, was encrypted.
    pub encrypted: bool,
}

impl RestoredState {
    /// Only a full was applied, so a differential of it may follow.
    fn is_full(&self) -> bool {
        self.differential.is_none() && !self.logs
    }

    /// What was applied, as if it were one full.
    fn as_found(&self) -> FoundSet {
        let id = if self.is_full() { self.full } else { self.last };
        FoundSet {
            backup_set_id: id,
            media_set_id: id,
            kind: SetKind::Full,
            base: None,
            started_at: self.started_at,
            incomplete: None,
            interrupted: false,
            database: self.database.clone(),
            names: Vec::new(),
            log_range: self.log_range.clone(),
            until_by_store: None,
            encrypted: self.encrypted,
        }
    }
}

/// Chooses the next sets: a differential, if only its full was applied, and the log sets that follow. `found` may
/// contain sets that were applied already.
///
/// # Errors
/// No set continues the state of the target, or only after a gap.
pub fn go_on(found: &[FoundSet], standing: &RestoredState, choice: &Choice) -> Result<Sequence> {
    let sequence = following(found, standing, choice)?;
    match sequence.sets.is_empty() && choice.stop_at.is_none() {
        true => Err(nothing(found, standing)),
        false => Ok(sequence),
    }
}

/// The same. Without a set that follows, the sequence is empty.
///
/// # Errors
/// Sets follow only after a gap.
pub fn following(found: &[FoundSet], standing: &RestoredState, choice: &Choice) -> Result<Sequence> {
    let stands = standing.as_found();
    let may_follow = |set: &FoundSet| match set.kind {
        // It was applied: `choose` would take it for a copy of the target's state.
        _ if set.backup_set_id == stands.backup_set_id => false,
        SetKind::Full => false,
        SetKind::Differential => standing.is_full() && set.base == Some(standing.full),
        SetKind::Log => true,
    };
    let (places, mut known): (Vec<usize>, Vec<FoundSet>) =
        found.iter().enumerate().filter(|(_, set)| may_follow(set)).map(|(at, set)| (at, set.clone())).unzip();
    let here = known.len();
    known.push(stands);
    if choice.set.is_some() && known.len() == 1 {
        return Err(nothing(found, standing));
    }
    let mut sequence = choose(&known, &Choice { latest: choice.set.is_none(), ..choice.clone() })?;
    sequence.sets.retain(|&at| at != here);
    sequence.sets.iter_mut().for_each(|at| *at = places[*at]);
    Ok(sequence)
}

/// The sets that a target does not have yet, as [`following`]. Unlike a restore to the newest point, it never ends before a log
/// set that is incomplete: the target would wait for that set.
///
/// # Errors
/// A log set is missing or incomplete.
pub fn coming(found: &[FoundSet], standing: &RestoredState) -> Result<Sequence> {
    let (places, known): (Vec<usize>, Vec<FoundSet>) = found
        .iter()
        .enumerate()
        .filter(|(_, set)| !is_applied(set, standing.log_range.as_ref()))
        .map(|(at, set)| (at, set.clone()))
        .unzip();
    let mut sequence = following(&known, standing, &Choice { latest: true, ..Choice::default() })?;
    let end = sequence.sets.last().and_then(|&at| end_of(&known[at]));
    let end = end.or(standing.log_range.as_ref().and_then(|range| range.last.as_ref()));
    let since = standing.log_range.as_ref().map_or(i64::MIN, |range| range.at);
    if let Some(beyond) = end.and_then(|end| known.iter().find(|set| is_beyond(set, end, since))) {
        let why = match &beyond.incomplete {
            Some(why) => format!("is incomplete: {why}"),
            None => "continues a log set that is not there, or is incomplete".to_owned(),
        };
        return Err(Error::incomplete(super::title(beyond), why, "bring the missing set back"));
    }
    sequence.sets.iter_mut().for_each(|at| *at = places[*at]);
    Ok(sequence)
}

fn end_of(set: &FoundSet) -> Option<&LogPosition> {
    set.log_range.as_ref().and_then(|range| range.last.as_ref())
}

/// Whether a log set ends at or before the place of the target. After a reset of the log, places come again, at later times.
fn is_applied(set: &FoundSet, standing: Option<&LogRange>) -> bool {
    let (Some(range), Some(standing)) = (&set.log_range, standing) else { return false };
    let (Some(end), Some(stands)) = (&range.last, &standing.last) else { return false };
    let is_before = end.history == stands.history && end.at <= stands.at;
    set.kind == SetKind::Log && is_before && range.at <= standing.at
}

/// Whether a log set reaches beyond `end`: the times of two sets may be the same, but not their places. A set that ends before
/// `since`, the time of the target, is from before a reset of the log.
fn is_beyond(set: &FoundSet, end: &LogPosition, since: i64) -> bool {
    let last = set.log_range.as_ref().filter(|range| range.at >= since).and_then(|range| range.last.as_ref());
    set.kind == SetKind::Log && last.is_some_and(|last| last.history == end.history && last.at > end.at)
}

fn nothing(found: &[FoundSet], standing: &RestoredState) -> Error {
    let late = |set: &&FoundSet| set.kind == SetKind::Differential && set.base == Some(standing.full);
    let why = match found.iter().find(late) {
        Some(_) if !standing.is_full() => {
            "a differential can only follow its own full, but another set is already applied".to_owned()
        }
        _ => format!("none of these continues it:{}", list(found)),
    };
    let wanted = if standing.is_full() {
        "a differential of it, or the log set that continues it"
    } else {
        "the log set that continues it"
    };
    Error::incomplete(
        format!("the target, which is restored up to {}", standing.title),
        why,
        format!("name {wanted}, with --from; or end the restore here with --recovery alone"),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::log_terms::LogTerms;
    use super::*;

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    /// A set that ends at a commit. A log set begins at another one.
    fn set(terms: LogTerms, number: u128, kind: SetKind, base: u128, from: u32, to: u32) -> FoundSet {
        let (at, is_log) = (i64::from(to) * 10, kind == SetKind::Log);
        let spans = if is_log { terms.spans(from.into(), to.into()) } else { Vec::new() };
        let first = is_log.then(|| terms.place(from.into()));
        let last = Some(terms.place(to.into()));
        FoundSet {
            backup_set_id: id(number),
            media_set_id: id(100 + number),
            kind,
            base: (base > 0).then(|| id(base)),
            started_at: at,
            incomplete: None,
            interrupted: false,
            database: Some("app".into()),
            names: Vec::new(),
            log_range: Some(LogRange { first, last, from: at, at, until: at, earliest: None, spans }),
            until_by_store: None,
            encrypted: false,
        }
    }

    fn sets(terms: LogTerms) -> Vec<FoundSet> {
        vec![
            set(terms, 1, SetKind::Full, 0, 0, 5),
            set(terms, 2, SetKind::Log, 1, 5, 8),
            set(terms, 3, SetKind::Differential, 1, 0, 9),
            set(terms, 4, SetKind::Log, 2, 8, 12),
            set(terms, 5, SetKind::Log, 4, 12, 15),
        ]
    }

    fn standing(last: &FoundSet, differential: Option<u128>, logs: bool) -> RestoredState {
        RestoredState {
            full: id(1),
            differential: differential.map(id),
            last: last.backup_set_id,
            title: super::super::title(last),
            logs,
            database: Some("app".into()),
            started_at: last.started_at,
            log_range: last.log_range.clone(),
            encrypted: last.encrypted,
        }
    }

    fn ids(found: &[FoundSet], standing: &RestoredState, choice: &Choice) -> Result<Vec<u128>> {
        let sequence = go_on(found, standing, choice)?;
        Ok(sequence.sets.iter().map(|&at| found[at].backup_set_id.as_u128()).collect())
    }

    #[test]
    fn applied_sets_are_skipped_and_the_others_applied() {
        for terms in LogTerms::ALL {
            let all = sets(terms);
            let latest = Choice::default();
            let next = |found: &[FoundSet], standing: RestoredState, choice: &Choice| {
                ids(found, &standing, choice).unwrap_or_else(|error| panic!("{terms:?}: {error}"))
            };
            assert_eq!(next(&all, standing(&all[0], None, false), &latest), [3, 4, 5], "{terms:?}: the shortest way");
            assert_eq!(next(&all, standing(&all[1], None, true), &latest), [4, 5]);
            assert_eq!(next(&all, standing(&all[2], Some(3), false), &latest), [4, 5], "from within a set");
            assert_eq!(next(&all[..2], standing(&all[0], None, false), &latest), [2]);
            let stop = Choice { stop_at: Some(110), ..Choice::default() };
            assert_eq!(next(&all, standing(&all[1], None, true), &stop), [4]);
            let named = Choice { set: Some(id(4).to_string()), ..Choice::default() };
            assert_eq!(next(&all, standing(&all[1], None, true), &named), [4]);
        }
    }

    #[test]
    fn a_gap_and_what_comes_too_late_are_named() {
        for terms in LogTerms::ALL {
            let all = sets(terms);
            let latest = Choice::default();
            let refused = |found: &[FoundSet], standing: RestoredState, choice: &Choice| {
                ids(found, &standing, choice).unwrap_err().to_string()
            };
            let gap = refused(&all[4..], standing(&all[1], None, true), &latest);
            assert!(gap.contains(&id(5).to_string()) && gap.contains(&id(4).to_string()), "{gap}");
            let late = refused(&all[2..3], standing(&all[1], None, true), &latest);
            assert!(late.contains("can only follow its own full"), "{late}");
            let done = refused(&all, standing(&all[4], None, true), &latest);
            assert!(done.contains("none of these continues it") || done.contains("its own full"), "{done}");
            let other = [set(terms, 9, SetKind::Differential, 8, 0, 20)];
            assert!(ids(&other, &standing(&all[0], None, false), &latest).is_err(), "of another full");
            let early = Choice { stop_at: Some(20), ..Choice::default() };
            let early = refused(&all, standing(&all[1], None, true), &early);
            assert!(early.contains("is before the range that these sets can be restored to"), "{early}");
        }
    }

    #[test]
    fn a_target_never_passes_over_an_incomplete_set() {
        for terms in LogTerms::ALL {
            let mut all = sets(terms);
            let stands = standing(&all[1], None, true);
            let coming = |found: &[FoundSet], stands: &RestoredState| {
                coming(found, stands)
                    .map(|sequence| sequence.sets.iter().map(|&at| found[at].backup_set_id.as_u128()).collect())
            };
            let all_of_them: Result<Vec<u128>> = coming(&all, &stands);
            assert_eq!(all_of_them.unwrap_or_else(|error| panic!("{terms:?}: {error}")), [4, 5]);
            assert_eq!(coming(&all, &standing(&all[4], None, true)).unwrap(), Vec::<u128>::new());
            assert_eq!(coming(&all[..3], &stands).unwrap(), Vec::<u128>::new(), "a differential does not follow");
            // One before the newest, and the newest, where its place can be compared.
            let history = |set: &FoundSet| end_of(set).map(|end| end.history.clone());
            let is_same = history(&all[3]) == history(&all[4]);
            for at in [3, 4].into_iter().filter(|&at| at == 3 || is_same) {
                all = sets(terms);
                all[at].incomplete = Some("a family is missing".into());
                let error = coming(&all, &stands).unwrap_err();
                assert!(
                    error.to_string().contains("incomplete") && error.exit_kind().exit_code() == 3,
                    "{terms:?}: {error}"
                );
            }
        }
    }

    /// The old server is still alive after the fail-over, and its log is backed up too.
    #[test]
    fn a_target_that_is_on_a_timeline_that_was_left_gets_no_set_of_the_new_one() {
        let terms = LogTerms::Timelines(&[10]);
        let mut all = sets(terms);
        all[3] = set(LogTerms::Timelines(&[]), 4, SetKind::Log, 2, 8, 12);
        let on_the_old_one = standing(&all[3], None, true);
        let refused = ids(&all[4..], &on_the_old_one, &Choice::default());
        assert!(refused.is_err(), "{refused:?}");
    }
}
