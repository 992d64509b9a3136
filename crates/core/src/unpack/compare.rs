//! Existing files, compared with the page map of the full that is restored into them.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rustix::fs::SeekFrom;

use super::base_map::BaseMap;
use super::marks::{Chunk, Marks};
use super::restore::Unpack;
use crate::checksum::{MAP_ENTRY, UNKNOWN_UNIT, UnitHasher, ZERO_UNIT, is_zero};
use crate::error::{Error, Result};
use crate::io::OpenedFile;
use crate::media::ManifestStream;
use crate::threads;

/// Opens the file of a stream; `None` if it is not restored.
pub type OpenStream<'a> = &'a (dyn Fn(u32) -> Result<Option<OpenedFile>> + Sync);

/// What a comparison found.
pub struct Compared {
    /// Chunks with a unit that differs from the page map, or that the map does not know.
    pub differ: Marks,
    /// Bytes in the chunks that agree.
    pub kept: u64,
    /// The first such unit, by stream and offset; `None` if all agree.
    pub first: Option<(u32, u64)>,
}

/// What the threads share.
struct Shared<'a> {
    map: &'a BaseMap,
    hasher: UnitHasher,
    /// In an open set, an entry may be unknown.
    open: bool,
    unknown_agrees: bool,
    differ: &'a Marks,
    first: Mutex<Option<(u32, u64)>>,
    kept: AtomicU64,
}

/// Hands out chunks in order, with the file that they are in.
struct Cursor<'a, I> {
    chunks: I,
    open: OpenStream<'a>,
    file: Option<(u32, Option<Arc<OpenedFile>>)>,
}

impl Unpack<'_> {
    /// Compares each unit with the map. After its end a file counts as zero. Units that the map does not know differ.
    /// But chunks in `among` differed before and have been fetched since: there they count as equal. It only reads,
    /// with as many threads as the plan has writers.
    ///
    /// # Errors
    /// A file or the map cannot be read, or is damaged.
    pub fn compare(&self, map: &BaseMap, open: OpenStream<'_>, among: Option<&Marks>) -> Result<Compared> {
        let pool = Arc::clone(self.input);
        self.halt.on_stop(move || pool.close());
        let differ = Marks::new(map.streams().iter().map(|stream| (stream.id, stream.size)));
        let streams: Vec<&ManifestStream> = map.streams().iter().collect();
        let shared = Shared {
            map,
            hasher: UnitHasher::new(map.seed()),
            open: map.is_open(),
            unknown_agrees: among.is_some(),
            differ: &differ,
            first: Mutex::default(),
            kept: AtomicU64::new(0),
        };
        let wanted = |chunk: &Chunk| among.is_none_or(|among| among.touches(differ.id(chunk), chunk.range.clone()));
        let cursor = Mutex::new(Cursor { chunks: differ.chunks().filter(wanted), open, file: None });
        self.watched(|| {
            thread::scope(|scope| {
                for number in 1..=self.plan.writers {
                    let (shared, cursor, streams) = (&shared, &cursor, &streams);
                    let work = move || {
                        self.halt.watch(self.compare_chunks(shared, streams, among.is_none(), || {
                            cursor.lock().unwrap_or_else(PoisonError::into_inner).next(shared.differ)
                        }))
                    };
                    if self.halt.watch(threads::start_in(scope, &format!("comparer {number}"), work)).is_none() {
                        return;
                    }
                }
            });
        });
        self.halt.finish()?;
        drop(cursor);
        let first = shared.first.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Compared { first, kept: shared.kept.into_inner(), differ })
    }

    fn compare_chunks(
        &self,
        shared: &Shared<'_>,
        streams: &[&ManifestStream],
        counts: bool,
        next: impl Fn() -> Result<Option<(Chunk, Arc<OpenedFile>)>>,
    ) -> Result<()> {
        let mut buffer = self.input.take()?;
        let mut entries = Vec::new();
        while let Some((chunk, file)) = next()? {
            self.halt.check()?;
            match shared.first_difference(streams[chunk.stream], &chunk.range, &file, &mut buffer, &mut entries)? {
                Some(offset) => {
                    shared.differ.mark(streams[chunk.stream].id, offset);
                    let mut first = shared.first.lock().unwrap_or_else(PoisonError::into_inner);
                    let found = (streams[chunk.stream].id, offset);
                    *first = Some(first.map_or(found, |first| first.min(found)));
                }
                None => {
                    let bytes = chunk.range.end - chunk.range.start;
                    shared.kept.fetch_add(bytes, Ordering::Relaxed);
                    self.progress.advance(if counts { bytes } else { 0 });
                }
            }
        }
        Ok(())
    }
}

impl<I: Iterator<Item = Chunk>> Cursor<'_, I> {
    fn next(&mut self, marks: &Marks) -> Result<Option<(Chunk, Arc<OpenedFile>)>> {
        for chunk in self.chunks.by_ref() {
            let stream = marks.id(&chunk);
            let file = match self.file.take().filter(|(open, _)| *open == stream) {
                Some((_, file)) => file,
                None => (self.open)(stream)?.map(Arc::new),
            };
            self.file = Some((stream, file.clone()));
            if let Some(file) = file {
                return Ok(Some((chunk, file)));
            }
        }
        Ok(None)
    }
}

impl Shared<'_> {
    /// Where in its stream the first unit of a chunk begins that differs. A buffer holds whole units.
    fn first_difference(
        &self,
        stream: &ManifestStream,
        chunk: &Range<u64>,
        file: &OpenedFile,
        buffer: &mut [u8],
        entries: &mut Vec<u8>,
    ) -> Result<Option<u64>> {
        if stream.map_window == 0 {
            return Ok((!self.unknown_agrees).then_some(chunk.start));
        }
        let unit = stream.unit as usize;
        let zero = is_hole(&file.file, chunk);
        let mut offset = chunk.start;
        while offset < chunk.end {
            let length = usize::try_from(chunk.end - offset).unwrap_or(usize::MAX).min(buffer.len());
            self.map.entries(Some(stream.id), offset, length.div_ceil(unit), entries)?;
            if zero {
                buffer[..length].fill(0);
            } else {
                read_padded(file, offset, buffer, length)?;
            }
            let pairs = buffer[..length].chunks(unit).zip(entries.as_chunks::<MAP_ENTRY>().0);
            let mut differ = pairs.map(|(bytes, entry)| !self.agrees(bytes, entry));
            if let Some(at) = differ.position(|differs| differs) {
                return Ok(Some(offset + (at * unit) as u64));
            }
            offset += length as u64;
        }
        Ok(None)
    }

    fn agrees(&self, bytes: &[u8], entry: &[u8; MAP_ENTRY]) -> bool {
        match *entry {
            ZERO_UNIT => is_zero(bytes),
            UNKNOWN_UNIT if self.open => self.unknown_agrees,
            _ => self.hasher.hash(bytes) == *entry,
        }
    }
}

/// True when nothing was ever written to this range: for most of a restore that was killed early, this is so.
fn is_hole(file: &File, range: &Range<u64>) -> bool {
    match rustix::fs::seek(file, SeekFrom::Data(range.start)) {
        Ok(data) => data >= range.end,
        // There is no data after it, unless the range begins after the end.
        Err(rustix::io::Errno::NXIO) => true,
        Err(_) => false,
    }
}

/// Fills the first `length` bytes of `buffer` from `offset` on, with zeros after the end of the file.
fn read_padded(file: &OpenedFile, offset: u64, buffer: &mut [u8], length: usize) -> Result<()> {
    let alignment = file.alignment as usize;
    let asked = length.next_multiple_of(alignment).min(buffer.len());
    let mut got = 0;
    while got < length {
        match file.file.read_at(&mut buffer[got..asked], offset + got as u64) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let action = format!("read {length} bytes at offset {offset} of");
                return Err(Error::io(action, file.path.display().to_string(), error));
            }
        }
        if !got.is_multiple_of(alignment) {
            break; // A direct read that ends off the alignment has met the end of the file.
        }
    }
    buffer[got.min(length)..length].fill(0);
    Ok(())
}
