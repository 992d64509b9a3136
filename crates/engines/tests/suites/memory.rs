//! An engine in memory: each commit is a number at an LSN of a timeline. Unlike SQLite's, its log has LSNs and
//! fail-overs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use fullbore_core::media::{LogPosition, LogRange, LogSpan, Position, SetKind};
use fullbore_core::source::{Extent, Reader, Source, Stream};
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{AppliedLog, LogFollower, LogSession, LogStop, SetEnd, UnpackedLog};
use fullbore_engines::{Facts, LogEngine, Options, Session};
use serde::{Deserialize, Serialize};

use crate::log_engine::LogEngineUnderTest;

/// Bytes between the LSNs of two commits.
const RECORD: u64 = 100;

/// A commit. `lsn` is where its record ends.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Record {
    timeline: u32,
    lsn: u64,
    /// Microseconds since 1970.
    time: i64,
    value: u64,
}

/// Where a set ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct End {
    timeline: u32,
    lsn: u64,
    /// Microseconds since 1970.
    at: i64,
}

/// Where a log set begins and ends.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SetPosition {
    #[serde(flatten)]
    end: End,
    /// When its first commit was made.
    from: i64,
    /// Of each timeline in it: the number, and where its records begin and end.
    spans: Vec<(u32, u64, u64)>,
}

/// The content of a copy, in a file.
#[derive(Debug, Serialize, Deserialize)]
pub struct MemoryFile {
    pub values: Vec<u64>,
    /// The sum of all values: a thorough check compares it.
    pub sum: u64,
}

impl MemoryFile {
    fn new(values: Vec<u64>) -> Self {
        let sum = sum(&values);
        Self { values, sum }
    }

    pub fn read(file: &Path) -> std::io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(file)?)?)
    }

    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap()
    }

    pub fn is_sound(&self) -> bool {
        self.sum == sum(&self.values)
    }
}

fn sum(values: &[u64]) -> u64 {
    values.iter().fold(0, |sum, value| sum.wrapping_add(*value))
}

#[derive(Debug)]
struct State {
    end: End,
    /// Everything that was committed and not taken back.
    records: Vec<Record>,
    /// The log before this LSN was removed.
    log_from: u64,
    /// Where each timeline but the first began.
    forks: Vec<u64>,
}

impl State {
    /// True when this database has been at `end`.
    fn was_at(&self, end: &End) -> bool {
        let until = self.forks.get(end.timeline as usize - 1).copied().unwrap_or(self.end.lsn);
        (1..=self.end.timeline).contains(&end.timeline) && end.lsn <= until
    }

    /// The commits after `base`.
    fn behind(&self, base: &End) -> Result<Vec<Record>> {
        if base.timeline == 0 || !self.was_at(base) || base.lsn < self.log_from {
            return Err(Error::refused("memory", format!("its log does not continue {base:?}"), "take a new full"));
        }
        Ok(self.records.iter().filter(|record| record.lsn > base.lsn).copied().collect())
    }
}

/// A database, and the engine that backs it up. It lives as long as the process.
pub struct Memory(&'static Engine);

pub struct Engine {
    state: Mutex<State>,
    /// A follower outlives the call that makes it.
    itself: OnceLock<&'static Engine>,
}

impl Engine {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn session(&self, first: End, records: Vec<Record>) -> Option<LogPart> {
        let (oldest, newest) = (*records.first()?, *records.last()?);
        let end = End { timeline: newest.timeline, lsn: newest.lsn, at: newest.time };
        let mut spans: Vec<(u32, u64, u64)> = Vec::new();
        for record in &records {
            match spans.last_mut().filter(|span| span.0 == record.timeline) {
                Some(span) => span.2 = record.lsn,
                None => spans.push((record.timeline, record.lsn - RECORD, record.lsn)),
            }
        }
        let last = SetPosition { end, from: oldest.time, spans };
        let bytes = serde_json::to_vec(&records).unwrap();
        let streams = [Stream { id: 1, name: "records".into(), unit: 4096, size: bytes.len() as u64 }];
        let end = set_end(&end, serde_json::to_value(&last).unwrap());
        Some(LogPart { first, last, end, bytes, streams, read: Mutex::new(false) })
    }
}

fn set_end(end: &End, position: serde_json::Value) -> SetEnd {
    SetEnd { position, time: Some(end.at), file_bytes: None }
}

fn read_end(position: &serde_json::Value) -> Result<End, String> {
    serde_json::from_value(position.clone()).map_err(|error| error.to_string())
}

fn end_of(base: &SetEnd) -> Result<End> {
    read_end(&base.position).map_err(|why| Error::incomplete("memory", why, ""))
}

fn place(timeline: u32, lsn: u64) -> LogPosition {
    LogPosition { history: timeline.to_be_bytes().to_vec(), at: lsn.into(), proof: None }
}

impl LogEngine for Engine {
    fn range(&self, kind: SetKind, position: &Position, _finished_at: Option<i64>) -> Option<LogRange> {
        let (first, last) = (read_end(&position.first.value()).ok()?, position.last.value());
        let end = read_end(&last).ok()?;
        if kind != SetKind::Log {
            return self.range_up_to(&set_end(&end, last), end.at);
        }
        let SetPosition { from, spans, .. } = serde_json::from_value(last).ok()?;
        let span = |(timeline, from, to): (u32, u64, u64)| LogSpan {
            history: timeline.to_be_bytes().to_vec(),
            from: from.into(),
            to: to.into(),
        };
        Some(LogRange {
            first: Some(place(first.timeline, first.lsn)),
            last: Some(place(end.timeline, end.lsn)),
            from,
            at: end.at,
            until: end.at,
            earliest: None,
            spans: spans.into_iter().map(span).collect(),
        })
    }

    fn range_up_to(&self, end: &SetEnd, until: i64) -> Option<LogRange> {
        let end = read_end(&end.position).ok()?;
        let last = Some(place(end.timeline, end.lsn));
        Some(LogRange { first: None, last, from: end.at, at: end.at, until, earliest: None, spans: Vec::new() })
    }

    fn end(&self, position: &serde_json::Value) -> Result<SetEnd, String> {
        Ok(set_end(&read_end(position)?, position.clone()))
    }

    fn streams(&self) -> &'static [(u32, &'static str)] {
        &[(1, "records")]
    }

    fn open(&self, _url: &str, bases: &[SetEnd], _options: &Options) -> Result<(usize, Option<Box<dyn LogSession>>)> {
        let mut refusal = None;
        for (at, base) in bases.iter().enumerate() {
            let base = end_of(base)?;
            let records = self.state().behind(&base);
            match records {
                Ok(records) => {
                    let session = self.session(base, records).map(|part| Box::new(part) as Box<dyn LogSession>);
                    return Ok((at, session));
                }
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        Err(refusal.unwrap_or_else(|| Error::usage("--base", "no base was given", "name one")))
    }

    fn follow(&self, _url: &str, _options: &Options) -> Result<Box<dyn LogFollower>> {
        let engine = self.itself.get().copied().ok_or(Error::Halted)?;
        Ok(Box::new(Follower { engine, shipped: engine.state().end }))
    }

    fn apply(&self, set: &UnpackedLog<'_>, stop: Option<&LogStop>) -> Result<AppliedLog> {
        let stop_at = LogStop::only_time(stop)?;
        let nonsense = |why: String| Error::incomplete(set.name, why, "use another set");
        let first = read_end(&set.position.first.value()).map_err(nonsense)?;
        let stands = end_of(set.stands)?;
        if (first.timeline, first.lsn) != (stands.timeline, stands.lsn) {
            return Err(nonsense(format!("it continues {first:?}, and the database is at {stands:?}")));
        }
        let mut records: Vec<Record> = serde_json::from_reader(&set.streams[0]).map_err(|e| nonsense(e.to_string()))?;
        let all = records.len();
        records.retain(|record| stop_at.is_none_or(|stop| record.time <= stop));
        let mut values = MemoryFile::read(set.database).map_err(|error| nonsense(error.to_string()))?.values;
        values.extend(records.iter().map(|record| record.value));
        fs::write(set.database, MemoryFile::new(values).bytes()).unwrap();
        let last = records.last().map(|last| End { timeline: last.timeline, lsn: last.lsn, at: last.time });
        let end = last.unwrap_or(stands);
        Ok(AppliedLog { stands: set_end(&end, serde_json::to_value(end).unwrap()), stopped: records.len() < all })
    }
}

/// One log set.
struct LogPart {
    first: End,
    last: SetPosition,
    end: SetEnd,
    bytes: Vec<u8>,
    streams: [Stream; 1],
    read: Mutex<bool>,
}

impl Source for LogPart {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn reader(&self, _index: usize, _count: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(PartReader(self)))
    }

    fn is_free(&self, _stream: u32, _offset: u64) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Gives everything at once.
struct PartReader<'a>(&'a LogPart);

impl Reader for PartReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        if std::mem::replace(&mut *self.0.read.lock().unwrap(), true) {
            return Ok(None);
        }
        let bytes = &self.0.bytes;
        buffer[..bytes.len()].copy_from_slice(bytes);
        Ok(Some(Extent { stream: 1, layer: 0, offset: 0, length: bytes.len() as u32 }))
    }
}

impl Session for LogPart {
    fn engine(&self) -> &'static str {
        "memory"
    }

    fn source(&self) -> &dyn Source {
        self
    }

    fn first_position(&self) -> Result<serde_json::Value> {
        Ok(serde_json::to_value(self.first).unwrap())
    }

    fn position(&self) -> Result<serde_json::Value> {
        Ok(serde_json::to_value(&self.last).unwrap())
    }

    fn facts(&self) -> Facts {
        let library = String::new();
        Facts { warnings: Vec::new(), writers_blocked: Duration::ZERO, free_bytes: 0, library, direct: false }
    }

    fn database_at(&self) -> Result<PathBuf, String> {
        Err("it is in memory".into())
    }
}

impl LogSession for LogPart {
    fn end(&self) -> Result<SetEnd> {
        Ok(self.end.clone())
    }

    fn amount(&self) -> String {
        format!("{} bytes", self.bytes.len())
    }
}

struct Follower {
    engine: &'static Engine,
    shipped: End,
}

impl LogFollower for Follower {
    fn join(&mut self, bases: &[SetEnd]) -> Result<usize> {
        let (at, _) = self.engine.open("", bases, &Options::default())?;
        self.shipped = end_of(&bases[at])?;
        Ok(at)
    }

    fn snapshot(&self) -> Result<Box<dyn Session>> {
        Err(Error::Halted)
    }

    fn join_own(&mut self, position: &serde_json::Value) -> Result<()> {
        self.shipped = read_end(position).map_err(|why| Error::incomplete("memory", why, ""))?;
        Ok(())
    }

    fn has_news(&mut self) -> Result<bool> {
        Ok(!self.engine.state().behind(&self.shipped)?.is_empty())
    }

    fn next_set(&mut self) -> Result<Option<Box<dyn LogSession>>> {
        let records = self.engine.state().behind(&self.shipped)?;
        Ok(self.engine.session(self.shipped, records).map(|part| Box::new(part) as Box<dyn LogSession>))
    }

    fn shipped(&mut self, end: &SetEnd) -> Result<()> {
        self.shipped = end_of(end)?;
        Ok(())
    }

    fn shorten(&mut self, _limit: u64) -> Result<bool> {
        Ok(false)
    }

    fn may_grow(&self) -> bool {
        true
    }

    fn log_file_bytes(&self) -> u64 {
        self.engine.state().records.len() as u64 * RECORD
    }
}

impl Memory {
    pub fn new() -> Self {
        let end = End { timeline: 1, lsn: 1 << 40, at: jiff::Timestamp::now().as_microsecond() };
        let state = State { end, records: Vec::new(), log_from: 0, forks: Vec::new() };
        let engine: &Engine = Box::leak(Box::new(Engine { state: Mutex::new(state), itself: OnceLock::new() }));
        assert!(engine.itself.set(engine).is_ok());
        let memory = Self(engine);
        memory.commit_value();
        memory
    }

    fn commit_value(&self) {
        let mut state = self.0.state();
        let time = jiff::Timestamp::now().as_microsecond().max(state.end.at + 1);
        state.end = End { lsn: state.end.lsn + RECORD, at: time, ..state.end };
        let End { timeline, lsn, .. } = state.end;
        state.records.push(Record { timeline, lsn, time, value: fastrand::u64(..) });
    }
}

impl LogEngineUnderTest for Memory {
    fn engine(&self) -> &'static dyn LogEngine {
        self.0
    }

    fn url(&self) -> String {
        "memory:".into()
    }

    fn commit(&mut self) {
        self.commit_value();
    }

    fn content(&mut self) -> String {
        format!("{:?}", self.0.state().records.iter().map(|record| record.value).collect::<Vec<_>>())
    }

    fn content_of(&self, copy: &Path) -> String {
        format!("{:?}", MemoryFile::read(copy).unwrap().values)
    }

    fn full(&mut self, copy: &Path) -> serde_json::Value {
        let state = self.0.state();
        let values = state.records.iter().map(|record| record.value).collect();
        fs::write(copy, MemoryFile::new(values).bytes()).unwrap();
        serde_json::to_value(state.end).unwrap()
    }

    fn lose_log(&mut self) {
        self.commit_value();
        let mut state = self.0.state();
        state.log_from = state.end.lsn;
    }

    fn fail_over(&mut self, back_to: &SetEnd) -> bool {
        let mut state = self.0.state();
        let back_to = read_end(&back_to.position).unwrap();
        state.records.retain(|record| record.lsn <= back_to.lsn);
        state.forks.push(back_to.lsn);
        state.end = End { timeline: state.end.timeline + 1, lsn: back_to.lsn, at: state.end.at };
        true
    }
}
