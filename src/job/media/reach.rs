//! Where the sets of a heap begin and end in the log: what log sets are put in order by. It stands in their manifests.

use std::hash::{DefaultHasher, Hash, Hasher};

use fullbore_core::Result;
use fullbore_core::cipher::SecretKey;
use fullbore_core::media::{Position, SetKind};
use fullbore_core::pool::Pool;
use fullbore_engines::sqlite::log_backup::{End, LogEnd};
use fullbore_engines::sqlite::position::FileState;
use jiff::Timestamp;

use super::{Heap, open_set};
use crate::chain::Reach;
use crate::chain::log::{FrameSpan, LogPoint};

impl Heap {
    /// Asks the manifests of all whole sets where they begin and end, where there are log sets or `always`. What is encrypted and cannot be
    /// opened tells nothing.
    ///
    /// # Errors
    /// No memory for it.
    pub fn learn_reaches(&mut self, key: Option<&SecretKey>, always: bool) -> Result<()> {
        if always || self.sets.iter().any(|found| found.set.kind == SetKind::Log) {
            self.learn(key, |_| true)?;
        }
        Ok(())
    }

    /// The same of log sets alone, for a list.
    ///
    /// # Errors
    /// As [`learn_reaches`](Self::learn_reaches).
    pub fn learn_times(&mut self) -> Result<()> {
        self.learn(None, |kind| kind == SetKind::Log)
    }

    fn learn(&mut self, key: Option<&SecretKey>, which: impl Fn(SetKind) -> bool) -> Result<()> {
        let nothing = Pool::new(0, 4096)?;
        for at in 0..self.sets.len() {
            let found = &self.sets[at];
            let set = &found.set;
            if set.incomplete.is_some() || found.header.engine != "sqlite" || set.reach.is_some() || !which(set.kind) {
                continue;
            }
            let Ok(opened) = open_set(found, &nothing, 1, key) else { continue };
            let Some(manifest) = opened.manifest() else { continue };
            let set = &mut self.sets[at].set;
            set.reach = reach(manifest.kind, &manifest.position, micros(&manifest.finished_at));
            let name = || Some(manifest.database.clone()).filter(|name| !name.is_empty());
            set.database = set.database.take().or_else(name);
        }
        Ok(())
    }
}

/// What a set's position says; `None` where it makes no sense. Sets of older programs tell only when they were finished.
pub fn reach(kind: SetKind, position: &Position, finished_at: Option<i64>) -> Option<Reach> {
    if kind == SetKind::Log {
        let first = End::read(&position.first.value()).ok()?;
        let last = LogEnd::read(&position.last.value()).ok()?;
        let at = last.end.time()?;
        let salts = |one: u32, two: u32| u64::from(one) << 32 | u64::from(two);
        let spans = last
            .runs
            .iter()
            .filter(|run| (1..=run.last_frame).contains(&run.first_frame))
            .map(|run| FrameSpan { log: salts(run.salt_1, run.salt_2), first: run.first_frame, last: run.last_frame });
        return Some(Reach {
            first: point(&first),
            last: point(&last.end),
            from: first.time().unwrap_or(at),
            at,
            until: micros(&last.until)?.max(at),
            spans: spans.collect(),
        });
    }
    let end = End::read(&position.checkpoint.value()).ok()?;
    // When it was finished is not before the moment that it shows.
    let at = end.time().or(finished_at)?;
    Some(Reach { first: None, last: point(&end), from: at, at, until: at, spans: Vec::new() })
}

/// The same of a database that was restored up to `end`, with everything that was committed until `until`.
pub fn reach_of(end: &End, until: i64) -> Reach {
    let at = end.time().unwrap_or(until).min(until);
    Reach { first: None, last: point(end), from: at, at, until, spans: Vec::new() }
}

fn point(end: &End) -> Option<LogPoint> {
    let log = end.log.as_ref()?;
    let digest = |file: FileState| {
        let mut hasher = DefaultHasher::new();
        file.hash(&mut hasher);
        hasher.finish()
    };
    Some(LogPoint {
        log: u64::from_be_bytes(log.salts()),
        frame: log.max_frame,
        checksum: log.sums().map(|(a, b)| u64::from(a) << 32 | u64::from(b)),
        file: end.file.map(digest),
    })
}

fn micros(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_microsecond)
}
