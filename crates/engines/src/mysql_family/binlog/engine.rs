//! Log backups of MySQL and MariaDB in the terms that all engines share.

use fullbore_core::media::{LogRange, Position, SetKind};
use fullbore_core::{Error, Result};

use super::cut;
use super::end::End;
use super::follow::Follower;
use super::range;
use super::replay::Replay;
use super::replay_into::ReplayByStatements;
use super::session::{BinlogSession, STREAMS, set_end};
use super::stage::{Stage, Way};
use crate::Options;
use crate::engine::{
    AppliedLog, LogEngine, LogFollower, LogReplay, LogSession, LogStop, ReplayInto, ReplayOn, SetEnd, UnpackedLog,
};
use crate::mysql_family::Dialect;

/// The log backups of one of the two.
pub struct Binlog(pub Dialect);

impl LogEngine for Binlog {
    fn range(&self, kind: SetKind, position: &Position, finished_at: Option<i64>) -> Option<LogRange> {
        range::log_range(self.0, kind, position, finished_at)
    }

    fn range_up_to(&self, end: &SetEnd, until: i64) -> Option<LogRange> {
        End::read(self.0, &end.position).ok().map(|end| range::range_up_to(&end, until))
    }

    fn end(&self, position: &serde_json::Value) -> Result<SetEnd, String> {
        let end = End::read(self.0, position)?;
        let normal = serde_json::to_value(&end).map_err(|error| error.to_string())?;
        Ok(set_end(&end, normal))
    }

    fn outlives_fulls(&self) -> bool {
        true
    }

    fn streams(&self) -> &'static [(u32, &'static str)] {
        &STREAMS
    }

    fn open(&self, url: &str, bases: &[SetEnd], options: &Options) -> Result<(usize, Option<Box<dyn LogSession>>)> {
        let (at, session) = BinlogSession::open(self.0, url, &ends(self.0, bases)?, options)?;
        Ok((at, session.map(|session| Box::new(session) as Box<dyn LogSession>)))
    }

    fn follow(&self, url: &str, options: &Options) -> Result<Box<dyn LogFollower>> {
        Ok(Box::new(Follower::open(self.0, url, options)?))
    }

    fn apply(&self, set: &UnpackedLog<'_>, _: Option<&LogStop>) -> Result<AppliedLog> {
        Err(Error::refused(set.name, "a server applies it, with all other sets", "restore into a directory: dir:PATH"))
    }

    fn demand_name(&self, stop: &LogStop) -> Result<()> {
        cut::demand_name(self.0, stop)
    }

    fn holds(&self, position: &Position, stop: &LogStop) -> bool {
        cut::holds(self.0, position, stop)
    }

    fn begins_at(&self, position: &Position, stop: &LogStop) -> bool {
        cut::begins_at(self.0, position, stop)
    }

    fn demand_stop(&self, set: &UnpackedLog<'_>, stop: &LogStop) -> Result<()> {
        let first = End::read(self.0, &set.position.first.value());
        let first = first.map_err(|why| Error::incomplete(set.name, why, "use another copy of the set"))?;
        let mut stage = Stage::by(Way::Nowhere, self.0, &first);
        stage.add(set, Some(stop))?;
        stage.demand(Some(stop))
    }

    fn replay_into(&self, on: ReplayInto<'_>) -> Result<Option<Box<dyn LogReplay>>> {
        Ok(Some(Box::new(ReplayByStatements::begin(self.0, &on)?)))
    }

    fn replay<'a>(&self, on: ReplayOn<'a>) -> Result<Option<Box<dyn LogReplay + 'a>>> {
        Ok(Some(Box::new(Replay::new(self.0, on)?)))
    }
}

pub(super) fn ends(dialect: Dialect, bases: &[SetEnd]) -> Result<Vec<End>> {
    let end = |base: &SetEnd| Ok(End { finished: base.time, ..end_of(dialect, &base.position)? });
    bases.iter().map(end).collect()
}

pub(super) fn end_of(dialect: Dialect, position: &serde_json::Value) -> Result<End> {
    End::read(dialect, position).map_err(|why| Error::incomplete("backup set", why, "take a new full"))
}
