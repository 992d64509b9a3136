//! A full that was taken while a log was backed up lies within the log sets: those behind it need no older full. Pure.

use std::collections::HashMap;

use fullbore_core::media::{LogPosition, SetKind};

use super::FoundSet;
use super::log::Logs;

/// For each log set, the newest full or differential that lies on its part of the log, if there is one: a restore begins
/// there, whatever set the log set names as its predecessor. Only sets that `may_be` accepts are taken. By places in the
/// list; empty if the place of a log set is not known.
pub fn foundations(found: &[FoundSet], may_be: impl Fn(usize) -> bool) -> HashMap<usize, usize> {
    let Ok(logs) = Logs::new(found) else { return HashMap::new() };
    let end = |at: usize| found[at].log_range.as_ref().and_then(|range| range.last.as_ref());
    let mut ends: HashMap<&[u8], Vec<(u128, usize)>> = HashMap::new();
    let is_base = |at: &usize| found[*at].kind != SetKind::Log && found[*at].incomplete.is_none() && may_be(*at);
    for at in (0..found.len()).filter(is_base) {
        if let Some(LogPosition { history, at: place, .. }) = end(at).filter(|end| !end.history.is_empty()) {
            ends.entry(history).or_default().push((*place, at));
        }
    }
    ends.values_mut().for_each(|ends| ends.sort_unstable());
    let of_log = |log: usize| {
        let range = found[log].log_range.as_ref()?;
        let within = range.spans.iter().flat_map(|span| {
            let ends = ends.get(&span.history[..]).map(Vec::as_slice).unwrap_or_default();
            let from = ends.partition_point(|end| end.0 < span.from);
            ends[from..].iter().take_while(move |end| end.0 <= span.to)
        });
        let bases = within.map(|end| end.1).filter(|&base| logs.may_begin_at(base, log));
        bases.max_by_key(|&base| (found[base].log_range.as_ref().map(|range| range.at), base))
    };
    let all = (0..found.len()).filter(|&at| found[at].kind == SetKind::Log && found[at].incomplete.is_none());
    all.filter_map(|log| Some((log, of_log(log)?))).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fullbore_core::media::{LogRange, LogSpan};
    use uuid::Uuid;

    use super::super::log_terms::LogTerms;
    use super::*;

    fn set(terms: LogTerms, id: u128, kind: SetKind, (from, to): (u64, u64)) -> FoundSet {
        let time = |commit: u64| commit as i64 * 10_000_000;
        let is_log = kind == SetKind::Log;
        let range = LogRange {
            first: is_log.then(|| terms.place(from)),
            last: Some(terms.place(to)),
            from: time(if is_log { from } else { to }),
            at: time(to),
            until: time(to),
            earliest: None,
            spans: if is_log { terms.spans(from, to) } else { Vec::<LogSpan>::new() },
        };
        FoundSet {
            backup_set_id: Uuid::from_u128(id),
            media_set_id: Uuid::from_u128(id),
            kind,
            base: is_log.then(|| Uuid::from_u128(id - 1)),
            started_at: time(to),
            incomplete: None,
            interrupted: false,
            database: Some("/app.db".into()),
            names: Vec::new(),
            log_range: Some(range),
            until_by_store: None,
            encrypted: false,
        }
    }

    #[test]
    fn a_log_set_that_holds_the_end_of_a_full_is_restored_on_the_newest_of_these() {
        for terms in LogTerms::ALL {
            let found = [
                set(terms, 1, SetKind::Full, (0, 5)),
                set(terms, 2, SetKind::Log, (5, 9)),
                set(terms, 3, SetKind::Log, (9, 20)),
                set(terms, 4, SetKind::Full, (0, 12)),
                set(terms, 5, SetKind::Full, (0, 15)),
                set(terms, 6, SetKind::Log, (20, 30)),
                set(terms, 7, SetKind::Full, (0, 30)),
            ];
            let founded = foundations(&found, |_| true);
            assert_eq!(founded, HashMap::from([(1, 0), (2, 4)]), "{terms:?}");
            // A copy-only full is no base: retention may remove it.
            assert_eq!(foundations(&found, |at| at != 4)[&2], 3, "{terms:?}");
            let mut broken = found.to_vec();
            broken[4].incomplete = Some("a family is missing".into());
            broken[2].log_range.as_mut().unwrap().from = 400_000_000;
            assert_eq!(foundations(&broken, |_| true).get(&2), None, "{terms:?}: of another history of the log");
        }
    }
}
