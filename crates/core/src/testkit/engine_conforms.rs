//! The suite for engines: what a session promises to the pipeline and to the threads that wait for it, for every
//! database.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::io::Memory;
use crate::source::{Extent, Reader, Source, Stream};

/// Longer than any engine may take to notice that its job has ended.
const PATIENCE: Duration = Duration::from_secs(5);

/// A snapshot's bytes, free units as zeros.
pub type Streams = Vec<(Stream, Vec<u8>)>;

/// A database with at least some hundred KiB that no other program uses; and what the suite cannot do by itself.
pub trait EngineUnderTest {
    /// What the engine opens; dropping it closes it.
    type Session: Send + Sync;

    /// Opens a session; its waits end with the job of `halt`.
    ///
    /// # Errors
    /// What the engine says.
    fn open(&self, halt: Option<Halt>) -> Result<Self::Session>;

    /// The source of a session.
    fn source<'s>(&self, session: &'s Self::Session) -> &'s dyn Source;

    /// What identifies the snapshot.
    ///
    /// # Errors
    /// What the engine says.
    fn position(&self, session: &Self::Session) -> Result<serde_json::Value>;

    /// True when a snapshot at `earlier` was taken before one at `later`, and something was committed between them.
    fn is_before(&self, earlier: &serde_json::Value, later: &serde_json::Value) -> bool;

    /// Commits something that changes the bytes of a snapshot; false when an open session makes writers wait.
    fn commit(&self) -> bool;

    /// Runs `during` while another client keeps every new session waiting; false when nothing can.
    fn while_locked(&self, during: &mut dyn FnMut()) -> bool;

    /// True when nothing of a session is left: no lock, nothing that would keep a writer, a checkpoint or a purge from
    /// its work.
    fn is_released(&self) -> bool;

    /// Restores these bytes and compares them with what the database holds now, row for row.
    ///
    /// # Panics
    /// When it is not the same.
    fn assert_restores(&self, streams: &Streams);
}

/// Tries an engine on one database.
///
/// # Panics
/// When the engine does not conform.
pub fn engine_conforms<E: EngineUnderTest + Sync>(engine: &E) {
    let open = || engine.open(None).expect("a session");
    let first = open();
    let whole = {
        let source = engine.source(&first);
        streams_are_announced(source);
        free_units_are_whole(source);
        source.check().expect("a fresh session is sound");
        read(source, 1, 1 << 20)
    };
    drop(first);
    assert!(engine.is_released(), "a session that was read and closed leaves nothing behind");
    engine.assert_restores(&whole);
    for (readers, units) in [(1, 1), (2, 3), (5, 16)] {
        let session = open();
        let source = engine.source(&session);
        let unit = source.streams().iter().map(|stream| stream.unit).max().unwrap_or(4096);
        assert!(read(source, readers, unit as usize * units) == whole, "{readers} readers give the same bytes");
    }
    reads_in_places_are_repeatable(engine, &whole);
    a_buffer_for_no_unit_is_an_error(engine);
    a_snapshot_stays_what_it_was(engine, &whole);
    a_session_left_half_way_is_released(engine);
    waiting_ends_with_the_job(engine);
}

fn streams_are_announced(source: &dyn Source) {
    let streams = source.streams();
    assert!(!streams.is_empty(), "a snapshot has streams");
    for (at, stream) in streams.iter().enumerate() {
        let name = &stream.name;
        assert!(stream.id != 0 && streams[..at].iter().all(|other| other.id != stream.id), "{name}: an id of its own");
        assert!(stream.unit.is_power_of_two() && (4096..=65536).contains(&stream.unit), "{name}: unit {}", stream.unit);
        assert!(stream.size <= 1 << 62, "{name}: size {}", stream.size);
        let leads_out = name.is_empty() || name.starts_with('/') || name.split('/').any(|part| part == "..");
        assert!(!leads_out, "`{name}`: a relative name");
    }
}

/// Only existing units are free, and the answer stays.
fn free_units_are_whole(source: &dyn Source) {
    for stream in source.streams() {
        let unit = u64::from(stream.unit);
        let free = |number| source.is_free(stream.id, number * unit);
        let units = stream.size.div_ceil(unit);
        assert!((0..units).all(|number| free(number) == free(number)));
        assert!(!free(units) && !free(units + 1_000_000), "{}: nothing is free behind the end", stream.name);
    }
    let unknown = (1..=u32::MAX).find(|id| source.streams().iter().all(|stream| stream.id != *id));
    assert!(unknown.is_none_or(|id| !source.is_free(id, 0)), "nothing is free in a stream that was not announced");
}

/// Reads everything; every byte of every stream comes exactly once, in extents that a block can hold.
fn read(source: &dyn Source, readers: usize, buffer_size: usize) -> Streams {
    let mut streams: Streams =
        source.streams().iter().map(|stream| (stream.clone(), vec![0; stream.size as usize])).collect();
    let extents = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for index in 0..readers {
            let extents = &extents;
            scope.spawn(move || {
                let mut reader = source.reader(index, readers).expect("a reader");
                let mut buffer = Memory::new(buffer_size).expect("memory for the test");
                while let Some(extent) = next(&mut *reader, &mut buffer) {
                    let bytes = buffer[..extent.length as usize].to_vec();
                    extents.lock().expect("no panic holds it").push((extent, bytes));
                }
                assert!(next(&mut *reader, &mut buffer).is_none(), "the end stays the end");
            });
        }
    });
    let mut extents = extents.into_inner().expect("no panic holds it");
    extents.sort_by_key(|(extent, _)| (extent.stream, extent.offset));
    for (stream, whole) in &mut streams {
        let mut end = 0;
        for (extent, bytes) in extents.iter().filter(|(extent, _)| extent.stream == stream.id) {
            assert_eq!(extent.offset, end, "{}: a gap, or a part given twice", stream.name);
            check(stream, extent);
            end += u64::from(extent.length);
            put(source, stream, extent.offset, bytes, whole);
        }
        assert_eq!(end, stream.size, "{}: its end is missing", stream.name);
    }
    let known = |extent: &Extent| source.streams().iter().any(|stream| stream.id == extent.stream);
    assert!(extents.iter().all(|(extent, _)| known(extent)), "an extent of a stream that was not announced");
    streams
}

fn next(reader: &mut dyn Reader, buffer: &mut [u8]) -> Option<Extent> {
    let extent = reader.next(buffer).expect("an extent or the end");
    assert!(extent.is_none_or(|extent| (1..=buffer.len()).contains(&(extent.length as usize))), "it fits the buffer");
    extent
}

fn check(stream: &Stream, extent: &Extent) {
    let (unit, end) = (u64::from(stream.unit), extent.offset + u64::from(extent.length));
    assert_eq!(extent.layer, 0, "version 0 of the format has one layer");
    assert!(extent.offset.is_multiple_of(unit), "an extent begins with a unit");
    assert!(end.is_multiple_of(unit) || end == stream.size, "an extent ends with a unit, or with its stream");
}

/// Puts what is not free where it belongs.
fn put(source: &dyn Source, stream: &Stream, offset: u64, bytes: &[u8], whole: &mut [u8]) {
    for (number, bytes) in bytes.chunks(stream.unit as usize).enumerate() {
        let at = offset + number as u64 * u64::from(stream.unit);
        if !source.is_free(stream.id, at) {
            whole[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// A sample has the bytes that the readers deliver, twice, before and after other samples; and the readers still
/// deliver everything.
fn reads_in_places_are_repeatable<E: EngineUnderTest + Sync>(engine: &E, whole: &Streams) {
    let session = engine.open(None).expect("a session");
    let source = engine.source(&session);
    for (stream, bytes) in whole {
        let units = stream.size.div_ceil(u64::from(stream.unit));
        for number in [units / 2, 0, units.saturating_sub(1), units / 2] {
            let offset = number * u64::from(stream.unit);
            let mut buffer = Memory::new(2 * stream.unit as usize).expect("memory for the test");
            let count = source.sample(stream.id, offset, &mut buffer).expect("a sample");
            let mut found = bytes.clone();
            put(source, stream, offset, &buffer[..count], &mut found);
            assert!(found == *bytes, "{}: another content at {offset}", stream.name);
        }
    }
    assert!(read(source, 2, 1 << 20) == *whole, "samples take nothing from the readers");
}

fn a_buffer_for_no_unit_is_an_error<E: EngineUnderTest + Sync>(engine: &E) {
    let session = engine.open(None).expect("a session");
    let source = engine.source(&session);
    if source.streams().iter().all(|stream| stream.unit > 4096) {
        let mut buffer = Memory::new(4096).expect("memory for the test");
        assert!(source.reader(0, 1).and_then(|mut reader| reader.next(&mut buffer)).is_err(), "no unit fits");
    }
}

/// A commit while a session is read changes nothing in it, and is in the next session.
fn a_snapshot_stays_what_it_was<E: EngineUnderTest + Sync>(engine: &E, whole: &Streams) {
    let session = engine.open(None).expect("a session");
    let before = engine.position(&session).expect("a position");
    assert!(!before.is_null(), "a snapshot has a position");
    let committed = engine.commit();
    let source = engine.source(&session);
    source.check().expect("a commit does not end a session");
    assert!(read(source, 2, 64 << 10) == *whole, "a commit is not seen by a session that was open");
    drop(session);
    assert!(committed || engine.commit(), "nothing keeps writers waiting behind a session");
    let session = engine.open(None).expect("a session");
    let after = engine.position(&session).expect("a position");
    assert!(engine.is_before(&before, &after), "{before} is before {after}");
    assert!(!engine.is_before(&after, &before) && !engine.is_before(&after, &after), "{after} is not before {before}");
    let changed = read(engine.source(&session), 1, 1 << 20);
    drop(session);
    assert!(changed != *whole, "a commit is seen by the next session");
    engine.assert_restores(&changed);
}

fn a_session_left_half_way_is_released<E: EngineUnderTest + Sync>(engine: &E) {
    let session = engine.open(None).expect("a session");
    {
        let mut reader = engine.source(&session).reader(0, 1).expect("a reader");
        let mut buffer = Memory::new(64 << 10).expect("memory for the test");
        assert!(next(&mut *reader, &mut buffer).is_some());
    }
    drop(session);
    assert!(engine.is_released(), "a session that was left half-way leaves nothing behind");
}

fn waiting_ends_with_the_job<E: EngineUnderTest + Sync>(engine: &E) {
    let locked = engine.while_locked(&mut || {
        let halt = Halt::new();
        let begun = Instant::now();
        let opened = std::thread::scope(|scope| {
            let stopper = halt.clone();
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(200));
                stopper.stop(Error::Halted);
            });
            engine.open(Some(halt)).err()
        });
        assert!(opened.is_some(), "no session while somebody else has it all");
        assert!(begun.elapsed() < PATIENCE, "waited for {:?} behind the end of the job", begun.elapsed());
    });
    if locked {
        assert!(engine.is_released(), "a session that was never opened leaves nothing behind");
        drop(engine.open(None).expect("a session once the lock is gone"));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use super::*;

    const SIZE: usize = 300_000;

    /// What is wrong with an engine.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Defect {
        None,
        LeavesAPartOut,
        GivesAPartTwice,
        BreaksUnits,
        SeesCommits,
        HasOnePosition,
        KeepsItsLock,
        CallsWhatIsNotThereFree,
        SamplesSomethingElse,
        LocksWritersOutForEver,
    }

    /// The smallest engine there is: a database in memory.
    struct Table {
        defect: Defect,
        bytes: Arc<Mutex<Vec<u8>>>,
        commits: AtomicU64,
        sessions: Arc<AtomicUsize>,
    }

    struct Open {
        defect: Defect,
        bytes: Mutex<Vec<u8>>,
        now: Arc<Mutex<Vec<u8>>>,
        position: u64,
        streams: [Stream; 1],
        cursor: AtomicUsize,
        sessions: Arc<AtomicUsize>,
    }

    impl Drop for Open {
        fn drop(&mut self) {
            if self.defect != Defect::KeepsItsLock {
                self.sessions.fetch_sub(1, Ordering::SeqCst);
            }
        }
    }

    impl Source for Open {
        fn streams(&self) -> &[Stream] {
            &self.streams
        }

        fn reader(&self, _: usize, _: usize) -> Result<Box<dyn Reader + '_>> {
            Ok(Box::new(OpenReader(self)))
        }

        fn is_free(&self, _: u32, offset: u64) -> bool {
            offset >= SIZE as u64 && self.defect == Defect::CallsWhatIsNotThereFree
        }

        fn sample(&self, _: u32, offset: u64, buffer: &mut [u8]) -> Result<usize> {
            let bytes = self.bytes.lock().unwrap();
            let from = &bytes[offset as usize..(offset as usize + buffer.len()).min(SIZE)];
            buffer[..from.len()].copy_from_slice(from);
            buffer[0] ^= u8::from(self.defect == Defect::SamplesSomethingElse);
            Ok(from.len())
        }

        fn check(&self) -> Result<()> {
            Ok(())
        }
    }

    struct OpenReader<'a>(&'a Open);

    impl Reader for OpenReader<'_> {
        fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
            let Open { defect, cursor, bytes, now, .. } = self.0;
            let step = match defect {
                Defect::BreaksUnits => 5000.min(buffer.len()),
                _ => buffer.len() / 4096 * 4096,
            };
            let offset = cursor.fetch_add(step, Ordering::SeqCst);
            let again = *defect == Defect::GivesAPartTwice && (SIZE..SIZE + step).contains(&offset);
            let offset = if again { 0 } else { offset };
            let left_out = if *defect == Defect::LeavesAPartOut { 4096 } else { 0 };
            if offset + left_out >= SIZE {
                return Ok(None);
            }
            let length = step.min(SIZE - left_out - offset);
            let bytes = if *defect == Defect::SeesCommits { now.lock() } else { bytes.lock() }.unwrap();
            buffer[..length].copy_from_slice(&bytes[offset..offset + length]);
            Ok(Some(Extent { stream: 1, layer: 0, offset: offset as u64, length: length as u32 }))
        }
    }

    impl EngineUnderTest for Table {
        type Session = Open;

        fn open(&self, _: Option<Halt>) -> Result<Open> {
            self.sessions.fetch_add(1, Ordering::SeqCst);
            Ok(Open {
                defect: self.defect,
                bytes: Mutex::new(self.bytes.lock().unwrap().clone()),
                now: Arc::clone(&self.bytes),
                position: self.commits.load(Ordering::SeqCst),
                streams: [Stream { id: 1, name: "table".into(), unit: 4096, size: SIZE as u64 }],
                cursor: AtomicUsize::new(0),
                sessions: Arc::clone(&self.sessions),
            })
        }

        fn source<'s>(&self, session: &'s Open) -> &'s dyn Source {
            session
        }

        fn position(&self, session: &Open) -> Result<serde_json::Value> {
            Ok(if self.defect == Defect::HasOnePosition { 1.into() } else { session.position.into() })
        }

        fn is_before(&self, earlier: &serde_json::Value, later: &serde_json::Value) -> bool {
            earlier.as_u64() < later.as_u64()
        }

        fn commit(&self) -> bool {
            if self.defect == Defect::LocksWritersOutForEver {
                return false;
            }
            let commits = self.commits.fetch_add(1, Ordering::SeqCst);
            self.bytes.lock().unwrap()[99] = commits as u8 + 1;
            true
        }

        fn while_locked(&self, _: &mut dyn FnMut()) -> bool {
            false
        }

        fn is_released(&self) -> bool {
            self.sessions.load(Ordering::SeqCst) == 0
        }

        fn assert_restores(&self, streams: &Streams) {
            assert!(streams[0].1 == *self.bytes.lock().unwrap());
        }
    }

    fn try_one(defect: Defect) {
        let bytes = Arc::new(Mutex::new(super::super::conform::pattern(SIZE)));
        engine_conforms(&Table { defect, bytes, commits: AtomicU64::new(0), sessions: Arc::default() });
    }

    #[test]
    fn an_engine_without_defect_passes_and_each_defect_is_found() {
        try_one(Defect::None);
        for defect in [
            Defect::LeavesAPartOut,
            Defect::GivesAPartTwice,
            Defect::BreaksUnits,
            Defect::SeesCommits,
            Defect::HasOnePosition,
            Defect::KeepsItsLock,
            Defect::CallsWhatIsNotThereFree,
            Defect::SamplesSomethingElse,
            Defect::LocksWritersOutForEver,
        ] {
            assert!(catch_unwind(AssertUnwindSafe(|| try_one(defect))).is_err(), "{defect:?} went unnoticed");
        }
    }
}
