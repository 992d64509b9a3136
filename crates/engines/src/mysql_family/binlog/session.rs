//! One log set: pulls it from the server and describes it for the manifest.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fullbore_core::error::counted;
use fullbore_core::source::{Extent, Reader, Source, Stream};
use fullbore_core::{Error, Result};

use super::dump::Pull;
use super::end::{End, LogEnd, Piece, Place, show_time};
use super::event::MAGIC;
use super::fail_over;
use super::gtid::Gtids;
use super::join::{Joined, join};
use super::preflight::{Clock, Server, is_beyond, status};
use crate::engine::{LogSession, SetEnd};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::server_defaults::ServerDefaults;
use crate::mysql_family::system_zone::SystemZone;
use crate::{Facts, Options, Session};

/// The stream of events.
pub const STREAMS: [(u32, &str); 1] = [(1, "binlog")];
const UNIT: u32 = 4096;
/// The log holds every commit of before this time, in microseconds: a commit has its time a moment before the log has
/// it, and MariaDB counts whole seconds.
const SURELY: i64 = 1_000_000;

/// The events from one place to the end of the log: the session of one log set.
pub struct BinlogSession {
    pull: Mutex<State>,
    first: End,
    /// How much is expected, for progress.
    expected: [Stream; 1],
    dialect: Dialect,
    version: String,
    /// Whose log it is.
    identity: String,
    warnings: Vec<String>,
    system_zone: Option<SystemZone>,
    defaults: ServerDefaults,
    /// Why the server's files are not known to be here.
    server: String,
    /// The clock of the server before the end of the log was asked for, in microseconds since 1970.
    asked: i64,
    /// The end, once it is known.
    end: std::sync::OnceLock<(LogEnd, SetEnd)>,
}

/// What is pulled.
struct State {
    pull: Pull,
    /// Bytes that come before the events: the first events of the file.
    head: Vec<u8>,
    /// How many bytes were given.
    given: u64,
    at_end: bool,
}

impl BinlogSession {
    /// Connects to the server, and joins its log to the first of `bases` that it continues. Returns the index of this
    /// base and the session; `None` if nothing was logged since.
    ///
    /// # Errors
    /// The log continues none of them; the error has the reason for the first.
    pub fn open(dialect: Dialect, url: &str, bases: &[End], options: &Options) -> Result<(usize, Option<Self>)> {
        let (server, mut connection) = Server::open(dialect, url, options)?;
        let (at, joined) = join_first(&server, &mut connection, bases)?;
        Ok((at, Self::new(&server, &mut connection, joined)?))
    }

    /// A session on a joined log; `None` if the log ends there.
    pub(super) fn new(server: &Server, connection: &mut Connection, joined: Joined) -> Result<Option<Self>> {
        let Joined { base, clock, mut pull, head, has_more } = joined;
        if !has_more {
            return Ok(None);
        }
        let mut ready = Vec::new();
        if let Some(piece) = pull.pieces.first_mut().filter(|piece| piece.from > MAGIC.len() as u64) {
            piece.head = head.len() as u64;
            ready = head;
        }
        let from = Place { file: pull.walk.file.clone(), offset: pull.walk.offset, ..base.binlog.clone() };
        let size = expected(connection, &from)?.unwrap_or(0);
        let stream = Stream { id: STREAMS[0].0, name: STREAMS[0].1.into(), unit: UNIT, size };
        Ok(Some(Self {
            pull: Mutex::new(State { pull, head: ready, given: 0, at_end: false }),
            first: base,
            expected: [stream],
            dialect: server.dialect,
            version: server.version.clone(),
            identity: server.identity.clone(),
            warnings: server.warnings.clone(),
            system_zone: server.system_zone.clone(),
            defaults: server.defaults.clone(),
            server: server.name(),
            asked: clock.now,
            end: std::sync::OnceLock::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.pull.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end, once all events were read.
    fn reached(&self) -> Result<&(LogEnd, SetEnd)> {
        if let Some(end) = self.end.get() {
            return Ok(end);
        }
        let state = self.state();
        if !state.at_end {
            return Err(Error::Halted);
        }
        let walk = &state.pull.walk;
        let before = self.first.time();
        // Times along a chain never go back.
        let at = walk.newest.max(before).unwrap_or(self.asked - SURELY);
        let until = (self.asked - SURELY).max(at);
        let binlog = Place {
            file: walk.file.clone(),
            offset: walk.offset,
            gtid: walk.gtids.as_ref().map(ToString::to_string).unwrap_or_default(),
            servers: walk.gtids.as_ref().map(Gtids::servers).unwrap_or_default(),
            file_crc: walk.file_crc,
            tail: walk.tail,
        };
        let log = LogEnd {
            end: End { binlog, server: self.identity.clone(), at: show_time(at), finished: None, taken: None },
            until: show_time(until),
            earliest: show_time(walk.earliest.unwrap_or(until)),
            transactions: walk.groups,
            anonymous: walk.anonymous,
            pieces: state.pull.pieces.clone(),
            system_zone: self.system_zone.clone(),
            defaults: self.defaults.clone(),
        };
        let end = set_end(&log.end, as_json(&log, &self.server)?);
        Ok(self.end.get_or_init(|| (log, end)))
    }
}

/// Joins the log to the first base that it continues. An error is that of the newest base: the log may have been reset
/// since the others.
pub(super) fn join_first(server: &Server, connection: &mut Connection, bases: &[End]) -> Result<(usize, Joined)> {
    let clock = Clock::ask(connection)?;
    let mut errors = Vec::new();
    // Only the newest set may be of another server. With an older one, the chain would lose the sets between.
    let newest = bases.first().filter(|newest| newest.server != server.identity);
    let is_older = |base: &End| newest.is_some_and(|newest| base.finished <= newest.finished);
    for (at, base) in bases.iter().enumerate().filter(|(at, base)| *at == 0 || !is_older(base)) {
        let fails_over = at == 0 && server.fails_over_from(base);
        match if fails_over { fail_over::join(server, bases, clock) } else { join(server, base, clock) } {
            Ok(joined) => return Ok((at, joined)),
            Err(Error::Halted) => return Err(Error::Halted),
            Err(error) => errors.push((if fails_over { Some(i64::MAX) } else { base.finished }, error)),
        }
    }
    // The first of several that are equally new.
    let newest = errors.into_iter().rev().max_by_key(|(finished, _)| *finished);
    Err(newest.map_or(Error::Halted, |(_, error)| error))
}

/// Bytes of the log behind a place in the same file; of more files it is unknown.
fn expected(connection: &mut Connection, place: &Place) -> Result<Option<u64>> {
    let now = status(connection)?.filter(|now| now.file == place.file && is_beyond(now, place));
    Ok(now.map(|now| now.offset.saturating_sub(place.offset)))
}

/// The end of a set in the terms of all engines.
pub fn set_end(end: &End, position: serde_json::Value) -> SetEnd {
    SetEnd { position, time: end.time(), file_bytes: None }
}

/// A position for a manifest.
///
/// # Errors
/// It cannot be written.
pub fn as_json(position: &impl serde::Serialize, server: &str) -> Result<serde_json::Value> {
    let failed = |error| Error::refused(server, format!("its position cannot be written: {error}"), "");
    serde_json::to_value(position).map_err(failed)
}

impl Source for BinlogSession {
    fn streams(&self) -> &[Stream] {
        &self.expected
    }

    /// Its length is known at the end of the log.
    fn is_open(&self) -> bool {
        true
    }

    fn found(&self) -> Result<Vec<Stream>> {
        let size = self.state().given;
        Ok(vec![Stream { size, ..self.expected[0].clone() }])
    }

    fn reader(&self, index: usize, _count: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(EventReader { session: (index == 0).then_some(self) }))
    }

    fn is_free(&self, _: u32, _: u64) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl Session for BinlogSession {
    fn engine(&self) -> &'static str {
        self.dialect.name()
    }

    fn source(&self) -> &dyn Source {
        self
    }

    fn first_position(&self) -> Result<serde_json::Value> {
        as_json(&self.first, &self.server)
    }

    fn position(&self) -> Result<serde_json::Value> {
        Ok(self.reached()?.1.position.clone())
    }

    fn facts(&self) -> Facts {
        Facts {
            warnings: self.warnings.clone(),
            writers_blocked: Duration::ZERO,
            free_bytes: 0,
            library: format!("{} {}", self.dialect.title(), self.version.trim_end_matches("-MariaDB")),
            direct: false,
        }
    }

    fn database_at(&self) -> Result<PathBuf, String> {
        Err("the server sends its log over a connection".into())
    }
}

impl LogSession for BinlogSession {
    fn end(&self) -> Result<SetEnd> {
        Ok(self.reached()?.1.clone())
    }

    fn amount(&self) -> String {
        counted(self.reached().map_or(0, |(log, _)| log.transactions), "transaction")
    }
}

/// Reads the connection; only the first reader does.
struct EventReader<'a> {
    session: Option<&'a BinlogSession>,
}

impl Reader for EventReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let Some(session) = self.session else { return Ok(None) };
        let window = buffer.len().min(1 << 30) / UNIT as usize * UNIT as usize;
        let Some(buffer) = buffer.get_mut(..window).filter(|buffer| !buffer.is_empty()) else {
            let why = format!("{} bytes cannot hold one unit of {UNIT} bytes", buffer.len());
            return Err(Error::usage("--max-transfer-size", why, "write --max-transfer-size 64KiB or more"));
        };
        let mut state = session.state();
        let begin = state.head.len().min(buffer.len());
        buffer[..begin].copy_from_slice(&state.head[..begin]);
        state.head.drain(..begin);
        let length = begin + state.pull.fill(&mut buffer[begin..])?;
        state.at_end |= length < buffer.len();
        if length == 0 {
            return Ok(None);
        }
        let offset = state.given;
        state.given += length as u64;
        Ok(Some(Extent { stream: STREAMS[0].0, layer: 0, offset, length: length as u32 }))
    }
}

/// Bytes of all pieces.
pub(super) fn bytes_of(pieces: &[Piece]) -> u64 {
    pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.bytes).saturating_add(piece.head))
}
