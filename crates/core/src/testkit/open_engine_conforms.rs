//! The suite for engines whose files come and go while they are read: what an open source promises to the pipeline.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::io::Memory;
use crate::source::{Extent, Source, Stream};

/// Longer than any engine may take to notice that its job has ended.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 10_000 });

/// The files of a copy, by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// A server with files that are small enough for memory, and what the suite cannot do by itself.
pub trait OpenEngineUnderTest {
    /// What the engine opens; dropping it closes it.
    type Session: Send + Sync;

    /// Opens a session for so many readers; their reading ends with the job of `halt`.
    ///
    /// # Errors
    /// What the engine says.
    fn open(&self, readers: usize, halt: Option<Halt>) -> Result<Self::Session>;

    /// The source of a session.
    fn source<'s>(&self, session: &'s Self::Session) -> &'s dyn Source;

    /// What identifies the copy, once everything was read.
    ///
    /// # Errors
    /// What the engine says.
    fn position(&self, session: &Self::Session) -> Result<serde_json::Value>;

    /// # Panics
    /// When anything of a session is left at the server: a lock, a running copy, a connection.
    fn assert_released(&self);

    /// Makes these files into what the engine restores, and compares it with what the server holds.
    ///
    /// # Panics
    /// When it is not the same.
    fn assert_restores(&self, files: &Files);
}

/// Tries an engine on one server without other clients that write.
///
/// # Panics
/// When the engine does not conform.
pub fn open_engine_conforms<E: OpenEngineUnderTest>(engine: &E) {
    for (readers, buffer) in [(1, 1 << 20), (3, (1 << 20) - 4096), (2, 128 << 10)] {
        let session = engine.open(readers, None).expect("a session");
        let source = engine.source(&session);
        assert!(source.is_open() && !source.streams().is_empty(), "an open source, with an estimate of its size");
        source.check().expect("a fresh session is sound");
        let extents = read(source, readers, buffer);
        let found = source.found().expect("all streams, once everything was read");
        described(source, &found);
        let files = put_together(&extents, &found);
        assert!(engine.position(&session).expect("a position").is_object(), "a copy has a position");
        assert_eq!(source.found().expect("the same again"), found, "what was found stays");
        drop(session);
        engine.assert_released();
        engine.assert_restores(&files);
    }
    left_half_way(engine);
    ended_with_its_job(engine);
}

/// Reads an open source with one reader. Gives its streams, with their final sizes, and their files.
///
/// # Panics
/// When the source fails.
pub fn read_files(source: &dyn Source) -> (Vec<Stream>, Files) {
    let extents = read(source, 1, 1 << 20);
    let found = source.found().expect("all streams, once everything was read");
    let files = put_together(&extents, &found);
    (found, files)
}

/// Layer of the extent that each reader works at; `None` while it asks for its next.
type AtWork = Mutex<Vec<Option<u16>>>;

fn read(source: &dyn Source, readers: usize, buffer: usize) -> Vec<(Extent, Vec<u8>)> {
    let (extents, at_work) = (Mutex::new(Vec::new()), Mutex::new(vec![None; readers]));
    std::thread::scope(|scope| {
        for index in 0..readers {
            let (extents, at_work) = (&extents, &at_work);
            scope.spawn(move || read_one(source, index, readers, buffer, at_work, extents));
        }
    });
    extents.into_inner().expect("no panic holds it")
}

fn read_one(
    source: &dyn Source,
    index: usize,
    readers: usize,
    buffer: usize,
    at_work: &AtWork,
    extents: &Mutex<Vec<(Extent, Vec<u8>)>>,
) {
    let mut reader = source.reader(index, readers).expect("a reader");
    let mut buffer = Memory::new(buffer).expect("memory for the test");
    while let Some(extent) = reader.next(&mut buffer).expect("an extent or the end") {
        let begin_work = |work: Option<u16>| {
            let mut layers = at_work.lock().expect("no panic holds it");
            layers[index] = work;
            layers.iter().flatten().min().copied()
        };
        let least = begin_work(Some(extent.layer)).unwrap_or(extent.layer);
        assert!(least >= extent.layer, "layer {} while a reader is at layer {least}", extent.layer);
        assert!((1..=buffer.len()).contains(&(extent.length as usize)), "it fits the buffer: {extent:?}");
        let stream = source.stream(extent.stream).expect("the stream of an extent is known");
        assert!(extent.stream != 0 && stream.id == extent.stream, "{stream:?}");
        assert!(extent.offset.checked_add(extent.length.into()).is_some_and(|end| end <= 1 << 62), "{extent:?}");
        extents.lock().expect("no panic holds it").push((extent, buffer[..extent.length as usize].to_vec()));
        begin_work(None);
    }
    assert!(reader.next(&mut buffer).expect("the end stays the end").is_none());
}

/// Names, numbers and identities fit into a manifest, and a differential can rely on them.
fn described(source: &dyn Source, found: &[Stream]) {
    let (mut numbers, mut names, mut identities) = (HashSet::new(), HashSet::new(), HashSet::new());
    for stream in found {
        let name = &stream.name;
        assert!(stream.id != 0 && numbers.insert(stream.id), "{name}: a number of its own");
        assert!(stream.unit.is_power_of_two() && (4096..=65536).contains(&stream.unit), "{name}: unit {}", stream.unit);
        if name.is_empty() {
            assert_eq!(stream.size, 0, "a file that went has no size");
            continue;
        }
        assert!(names.insert(name), "{name}: a name of its own");
        let leads_out = name.starts_with('/') || name.split('/').any(|part| matches!(part, "" | "." | ".."));
        assert!(!leads_out && !name.contains('\0'), "`{name}`: a relative name");
        if let Some(identity) = source.identity(stream.id) {
            assert!((1..=256).contains(&identity.len()), "{name}: `{identity}`");
            assert!(identities.insert(identity.clone()), "{name}: `{identity}` is another's too");
        }
        assert!(source.detail(stream.id).is_none_or(|detail| detail.is_object()), "{name}: an object");
    }
    assert!(!names.is_empty(), "there are files");
}

/// The result of a restore of the extents: layer by layer; bytes that never came are zero.
fn put_together(extents: &[(Extent, Vec<u8>)], found: &[Stream]) -> Files {
    let by_number: HashMap<u32, &Stream> = found.iter().map(|stream| (stream.id, stream)).collect();
    let mut ordered: Vec<&(Extent, Vec<u8>)> = extents.iter().collect();
    ordered.sort_by_key(|(extent, _)| (extent.stream, extent.layer, extent.offset));
    let mut files: Files = found
        .iter()
        .filter(|stream| !stream.name.is_empty())
        .map(|stream| (stream.name.clone(), vec![0; stream.size as usize]))
        .collect();
    let mut before: Option<(u32, u16, u64)> = None;
    for (extent, bytes) in ordered {
        let stream = by_number.get(&extent.stream).expect("every extent's stream is found in the end");
        let end = extent.offset + u64::from(extent.length);
        if let Some((number, layer, until)) = before
            && (number, layer) == (extent.stream, extent.layer)
        {
            assert!(until <= extent.offset, "{}: a byte of layer {layer} came twice", stream.name);
        }
        before = Some((extent.stream, extent.layer, end));
        if let Some(file) = files.get_mut(&stream.name) {
            // Bytes after the end are cut off.
            let (at, end) = (extent.offset.min(stream.size) as usize, end.min(stream.size) as usize);
            file[at..end].copy_from_slice(&bytes[..end - at]);
        }
    }
    files
}

fn left_half_way<E: OpenEngineUnderTest>(engine: &E) {
    let session = engine.open(2, None).expect("a session");
    {
        let mut reader = engine.source(&session).reader(0, 2).expect("a reader");
        let mut buffer = Memory::new(64 << 10).expect("memory for the test");
        assert!(reader.next(&mut buffer).expect("an extent").is_some());
    }
    drop(session);
    engine.assert_released();
}

fn ended_with_its_job<E: OpenEngineUnderTest>(engine: &E) {
    let halt = Halt::new();
    let session = engine.open(1, Some(halt.clone())).expect("a session");
    let mut ended = None;
    {
        let mut reader = engine.source(&session).reader(0, 1).expect("a reader");
        let mut buffer = Memory::new(64 << 10).expect("memory for the test");
        assert!(reader.next(&mut buffer).expect("an extent").is_some());
        halt.stop(Error::Halted);
        let stopped = Instant::now();
        while stopped.elapsed() < PATIENCE {
            match reader.next(&mut buffer) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => {
                    ended = Some(stopped.elapsed());
                    break;
                }
            }
        }
    }
    drop(session);
    engine.assert_released();
    assert!(ended.is_some(), "a reader of a job that has ended goes on");
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::source::Reader;

    /// What is wrong with an engine.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Defect {
        None,
        GivesAByteTwice,
        ForgetsAFile,
        HasOneNameTwice,
        HasOneIdentityTwice,
        LeadsOut,
        KeepsItsLock,
        GoesOnForEver,
        GivesSomethingElse,
    }

    /// The smallest server there is: two files of 64 KiB; the second layer writes the first file again.
    struct Tiny {
        defect: Defect,
        sessions: Arc<AtomicUsize>,
    }

    struct Open {
        defect: Defect,
        expected: [Stream; 1],
        next: AtomicUsize,
        halt: Halt,
        sessions: Arc<AtomicUsize>,
    }

    const SIZE: u64 = 64 << 10;
    const PIECE: u64 = 16 << 10;

    /// Layer, stream, offset and content of each piece, in order.
    fn pieces() -> Vec<(u16, u32, u64, u8)> {
        let first = (0..8).map(|at| (0, 1 + at / 4, u64::from(at % 4) * PIECE, 7));
        first.chain((0..4).map(|at| (1, 1, at * PIECE, 9))).collect()
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
            &self.expected
        }

        fn is_open(&self) -> bool {
            true
        }

        fn stream(&self, id: u32) -> Option<Stream> {
            Some(Stream { id, name: String::new(), unit: 4096, size: 0 })
        }

        fn identity(&self, id: u32) -> Option<String> {
            Some(if self.defect == Defect::HasOneIdentityTwice { "space".into() } else { format!("space:{id}") })
        }

        fn found(&self) -> Result<Vec<Stream>> {
            let name = |id: u32| match self.defect {
                Defect::HasOneNameTwice => "same.ibd".to_owned(),
                Defect::LeadsOut => format!("../{id}.ibd"),
                _ => format!("{id}.ibd"),
            };
            let count = if self.defect == Defect::ForgetsAFile { 1 } else { 2 };
            Ok((1..=count).map(|id| Stream { id, name: name(id), unit: 4096, size: SIZE }).collect())
        }

        fn reader(&self, index: usize, _: usize) -> Result<Box<dyn Reader + '_>> {
            Ok(Box::new(Cursor(self, index)))
        }

        fn is_free(&self, _: u32, _: u64) -> bool {
            false
        }

        fn check(&self) -> Result<()> {
            Ok(())
        }
    }

    /// The first reader has everything: layers need no waiting then.
    struct Cursor<'a>(&'a Open, usize);

    impl Reader for Cursor<'_> {
        fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
            let open = self.0;
            if open.defect != Defect::GoesOnForEver {
                open.halt.check()?;
            }
            let mut at = if self.1 == 0 { open.next.fetch_add(1, Ordering::SeqCst) } else { usize::MAX };
            if open.defect == Defect::GoesOnForEver && open.halt.check().is_err() {
                std::thread::sleep(PATIENCE);
                at = 0;
            }
            let Some(&(layer, stream, offset, mut content)) = pieces().get(at) else { return Ok(None) };
            if open.defect == Defect::GivesSomethingElse && layer == 1 {
                content = 8;
            }
            let offset = if open.defect == Defect::GivesAByteTwice && at == 1 { 4096 } else { offset };
            buffer[..PIECE as usize].fill(content);
            Ok(Some(Extent { stream, layer, offset, length: PIECE as u32 }))
        }
    }

    impl OpenEngineUnderTest for Tiny {
        type Session = Open;

        fn open(&self, _: usize, halt: Option<Halt>) -> Result<Open> {
            self.sessions.fetch_add(1, Ordering::SeqCst);
            Ok(Open {
                defect: self.defect,
                expected: [Stream { id: 1, name: String::new(), unit: 4096, size: 2 * SIZE }],
                next: AtomicUsize::new(0),
                halt: halt.unwrap_or_default(),
                sessions: Arc::clone(&self.sessions),
            })
        }

        fn source<'s>(&self, session: &'s Open) -> &'s dyn Source {
            session
        }

        fn position(&self, _: &Open) -> Result<serde_json::Value> {
            Ok(serde_json::json!({ "lsn": 1 }))
        }

        fn assert_released(&self) {
            assert_eq!(self.sessions.load(Ordering::SeqCst), 0, "a session is left");
        }

        fn assert_restores(&self, files: &Files) {
            assert!(files["1.ibd"].iter().all(|&byte| byte == 9) && files["2.ibd"].iter().all(|&byte| byte == 7));
        }
    }

    #[test]
    fn an_open_engine_without_defect_passes_and_each_defect_is_found() {
        open_engine_conforms(&Tiny { defect: Defect::None, sessions: Arc::default() });
        for defect in [
            Defect::GivesAByteTwice,
            Defect::ForgetsAFile,
            Defect::HasOneNameTwice,
            Defect::HasOneIdentityTwice,
            Defect::LeadsOut,
            Defect::KeepsItsLock,
            Defect::GoesOnForEver,
            Defect::GivesSomethingElse,
        ] {
            let engine = Tiny { defect, sessions: Arc::default() };
            let tried = catch_unwind(AssertUnwindSafe(|| open_engine_conforms(&engine)));
            assert!(tried.is_err(), "{defect:?} was not found");
        }
    }
}
