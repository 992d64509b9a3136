//! The log of the source, applied to the target as it grows.
//!
//! The log is read to its end again and again. Everything that was read becomes one transaction of the target, or several
//! if it is much. The place in the log is written in the same transaction.

use std::time::{Duration, Instant};

use fullbore_core::{Error, Result};

use super::landing::{Incoming, Landing};
use super::servers::Servers;
use crate::engine::Standing;
use crate::mysql_family::binlog::dump::Pull;
use crate::mysql_family::binlog::end::End;
use crate::mysql_family::binlog::event::{HEADER, Header, MAGIC};
use crate::mysql_family::binlog::join::join;
use crate::mysql_family::binlog::preflight::{Clock, Server, Status, is_beyond, status};
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical_set::selection::Selection;

/// Proves that the log of the source continues the place of the snapshot, and that the account may read it.
///
/// # Errors
/// It may not, or the log is gone.
pub fn demand_joined(servers: &Servers, place: &End) -> Result<()> {
    let (server, mut connection) = Server::of(&servers.source)?;
    join(&server, place, Clock::ask(&mut connection)?).map(drop)
}

/// The log on its way.
pub struct Onto {
    server: Server,
    landing: Landing,
    /// The events that come in, and whether the first one is there already.
    pull: Option<(Pull, bool)>,
    /// The server's clock is ahead of this host's by so much, in microseconds.
    ahead: i64,
    event: Vec<u8>,
}

impl Onto {
    /// Continues at the place that the target holds.
    ///
    /// # Errors
    /// A server refuses, another migration runs, or the target holds no place.
    pub fn begin(servers: &Servers, selection: &Selection) -> Result<Self> {
        let (server, mut asking) = Server::of(&servers.source)?;
        let ahead = Clock::ask(&mut asking)?.ahead;
        let from = Incoming {
            dialect: servers.source.address.dialect,
            name: format!("the log of {}", server.name()),
            source: Some(asking),
            selection: Some(selection.clone()),
        };
        let mut landing = Landing::begin(&servers.target, from)?;
        landing.enter_source(server.system_zone.as_ref(), &server.defaults);
        Ok(Self { server, landing, pull: None, ahead, event: Vec::new() })
    }

    fn asking(&mut self) -> Result<&mut Connection> {
        self.landing.source.as_mut().ok_or(Error::Halted)
    }

    /// Applies what the source has logged, for at most this time.
    ///
    /// # Errors
    /// The log cannot be read, or the target does not take a change.
    pub fn step(&mut self, most: Duration) -> Result<Standing> {
        let until = Instant::now() + most;
        if self.pull.is_none() && !self.open()? {
            return self.standing(None);
        }
        loop {
            if !self.next()? {
                return self.reached_end();
            }
            let is_late = Instant::now() >= until;
            if let Some((pull, _)) = &self.pull {
                match is_late && !self.landing.is_inside() {
                    true => self.landing.keep(&pull.walk)?,
                    false => self.landing.keep_if_long(&pull.walk)?,
                }
            }
            if is_late {
                let now = status(self.asking()?)?;
                return self.standing(now.as_ref());
            }
        }
    }

    /// Asks for the events behind the place. False if there are none.
    fn open(&mut self) -> Result<bool> {
        let now = status(self.asking()?)?;
        if now.as_ref().is_some_and(|now| !is_beyond(now, &self.landing.stands.binlog)) {
            return Ok(false);
        }
        let clock = Clock::ask(self.asking()?)?;
        self.ahead = clock.ahead;
        let joined = join(&self.server, &self.landing.stands, clock)?;
        if !joined.has_more {
            return Ok(false);
        }
        // A file that is begun in the middle: its first event describes the format of all others.
        if joined.base.binlog.offset > MAGIC.len() as u64 {
            let size = joined.head.first_chunk::<HEADER>().and_then(Header::parse).map_or(0, |header| header.size);
            self.landing.describe(joined.head.get(..size as usize).unwrap_or_default())?;
        }
        self.landing.jump();
        self.pull = Some((joined.pull, true));
        Ok(true)
    }

    /// Applies the next event. False at the end of the log.
    fn next(&mut self) -> Result<bool> {
        let Some((pull, is_ready)) = &mut self.pull else { return Ok(false) };
        if !std::mem::take(is_ready) && !pull.next()? {
            return Ok(false);
        }
        self.event.clear();
        let longest = self.landing.longest();
        if pull.size() > longest {
            let why = format!("a change is longer than a packet of the target ({longest} bytes)");
            let hint = "raise max_allowed_packet on the target, then continue with --resume";
            return Err(Error::refused(format!("the log of {}", self.server.name()), why, hint));
        }
        pull.whole(&mut self.event)?;
        self.landing.take(&self.event, &pull.walk)?;
        Ok(true)
    }

    /// How far the target is.
    pub fn standing_now(&self) -> Standing {
        self.landing.totals
    }

    fn reached_end(&mut self) -> Result<Standing> {
        if self.landing.is_inside() {
            // The server has sent a part of a group. It comes again.
            self.landing.forget_group()?;
            self.pull = None;
            return Ok(Standing { at_end: false, ..self.standing(None)? });
        }
        if let Some((pull, _)) = &self.pull {
            self.landing.keep(&pull.walk)?;
        }
        self.pull = None;
        self.standing(None)
    }

    fn standing(&mut self, now: Option<&Status>) -> Result<Standing> {
        let at_end = self.pull.is_none();
        let walk = self.pull.as_ref().map(|(pull, _)| &pull.walk);
        let newest = walk.and_then(|walk| walk.newest);
        let clock = jiff::Timestamp::now().as_microsecond().saturating_add(self.ahead);
        let age = |newest: i64| Duration::from_micros(u64::try_from(clock.saturating_sub(newest)).unwrap_or(0));
        let lag = if at_end { Some(Duration::ZERO) } else { newest.map(age) };
        let behind_bytes = match (walk, now, &mut self.landing.source) {
            (Some(walk), Some(now), Some(asking)) => log_bytes(asking, &walk.file, walk.offset, now),
            _ => 0,
        };
        let is_inside = !at_end && self.landing.is_inside();
        Ok(Standing { at_end, lag, is_inside, behind_bytes, ..self.landing.totals })
    }
}

/// Bytes of the log from a place on. Without the privilege to list files, those of the last file.
pub fn log_bytes(asking: &mut Connection, file: &str, offset: u64, now: &Status) -> u64 {
    if file == now.file {
        return now.offset.saturating_sub(offset);
    }
    let listed = asking.query("SHOW BINARY LOGS").map(|answer| answer.rows).unwrap_or_default();
    let sizes = listed.iter().filter_map(|row| {
        let (name, size) = (row.first()?.as_deref()?, row.get(1)?.as_deref()?.parse::<u64>().ok()?);
        match name.cmp(file) {
            std::cmp::Ordering::Less => None,
            std::cmp::Ordering::Equal => Some(size.saturating_sub(offset)),
            std::cmp::Ordering::Greater => Some(size),
        }
    });
    sizes.reduce(u64::saturating_add).unwrap_or(now.offset)
}
