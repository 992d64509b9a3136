//! Log backups of SQLite in the terms that all engines share.

use std::fs::OpenOptions;

use fullbore_core::media::{LogRange, Position, SetKind};
use fullbore_core::{Error, Result};

use super::super::engine::{KEEP_FREE_PAGES, Sqlite, path_of};
use super::apply::Unpacked;
use super::end::{End, LogEnd};
use super::follow::Follower;
use super::range;
use super::session::{LogBackup, STREAMS};
use crate::Options;
use crate::engine::{AppliedLog, LogEngine, LogFollower, LogSession, LogStop, SetEnd, UnpackedLog};

impl LogEngine for Sqlite {
    fn range(&self, kind: SetKind, position: &Position, finished_at: Option<i64>) -> Option<LogRange> {
        range::log_range(kind, position, finished_at)
    }

    fn range_up_to(&self, end: &SetEnd, until: i64) -> Option<LogRange> {
        End::read(&end.position).ok().map(|end| range::range_up_to(&end, until))
    }

    fn end(&self, position: &serde_json::Value) -> Result<SetEnd, String> {
        let end = End::read(position).map_err(|bad| format!("its position is invalid: {bad}"))?;
        Ok(set_end(&end, position.clone()))
    }

    fn streams(&self) -> &'static [(u32, &'static str)] {
        &STREAMS
    }

    fn open(&self, url: &str, bases: &[SetEnd], options: &Options) -> Result<(usize, Option<Box<dyn LogSession>>)> {
        if let Some(asked) = options.given.asked(&KEEP_FREE_PAGES) {
            let why = "a log set has every page that was written, free or not";
            return Err(Error::usage(asked, why, "leave it out"));
        }
        let (at, session) = LogBackup::open(path_of(url)?, &ends(bases)?, options)?;
        Ok((at, session.map(|session| Box::new(session) as Box<dyn LogSession>)))
    }

    fn follow(&self, url: &str, options: &Options) -> Result<Box<dyn LogFollower>> {
        Ok(Box::new(Follower::open(path_of(url)?, options)?))
    }

    fn apply(&self, set: &UnpackedLog<'_>, stop: Option<&LogStop>) -> Result<AppliedLog> {
        let stop_at = LogStop::only_time(stop)?;
        let nonsense = |why: &str| Error::incomplete(set.name, why, "use another set");
        let malformed = |bad| nonsense(&format!("its position is invalid: {bad}"));
        let first = End::read(&set.position.first.value()).map_err(malformed)?;
        let last = LogEnd::read(&set.position.last.value()).map_err(malformed)?;
        let base = End::read(&set.stands.position).map_err(malformed)?;
        let [groups, frames] = set.streams else { return Err(nonsense("it does not have two streams")) };
        let file = OpenOptions::new().write(true).open(set.database);
        let file = file.map_err(|e| Error::io("open", set.database.display().to_string(), e))?;
        let unpacked = Unpacked { name: set.name, groups, frames, first: &first, database: &file, base: &base };
        let applied = unpacked.apply(stop_at)?;
        if !applied.stopped && applied.end.log != last.end.log {
            return Err(nonsense("its end contradicts its manifest"));
        }
        let position = serde_json::to_value(&applied.end).map_err(|e| Error::io("write", set.name, e.into()))?;
        Ok(AppliedLog { stands: set_end(&applied.end, position), stopped: applied.stopped })
    }
}

pub(super) fn set_end(end: &End, position: serde_json::Value) -> SetEnd {
    SetEnd { position, time: end.time(), file_bytes: Some(u64::from(end.pages) * u64::from(end.page_size)) }
}

pub(super) fn ends(bases: &[SetEnd]) -> Result<Vec<End>> {
    bases.iter().map(|base| end_of(&base.position)).collect()
}

pub(super) fn end_of(position: &serde_json::Value) -> Result<End> {
    End::read(position)
        .map_err(|bad| Error::incomplete("backup set", format!("its position is invalid: {bad}"), "take a new full"))
}
