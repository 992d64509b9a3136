//! The families of foreign media as a source: streams of files with the cells at their places, and a stream for each family
//! with the bytes that have no place. The families are read once, from their first byte to their last, by a thread that
//! judges them meanwhile. So the streams are known at the end only.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fullbore_core::source::{Extent, Reader, Source, Stream};
use fullbore_core::{Error, Result, threads};
use serde_json::json;

use super::layout::{CELL, Run};
use super::places::LaidOut;
use super::tap::{Inlet, Outlet, Passed, PassedBytes, way};
use crate::{ForeignVerification, Surveyed};

/// The unit of streams without a page map, in bytes.
const UNIT: u32 = 4096;
/// Buffers are filled with a multiple of this, in bytes.
const FILLED: usize = 8 << 10;

/// A family to store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredFamily {
    /// Its name, length and layout.
    pub laid: LaidOut,
    /// The BLAKE3 digest of its bytes.
    pub digest: [u8; 32],
}

/// A file of a database that has bytes in the families.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// The same for this file in all backups of its database.
    pub identity: String,
    /// Bytes of a page: a later full stores the pages that differ.
    pub unit: u32,
}

/// Reads all families: in a thread of its own, so it waits where its [`Inlet`] waits.
pub type ReadFamilies = Box<dyn FnOnce(&Inlet) -> Result<Surveyed> + Send>;
/// Copies bytes of a family (from 0) from an offset on; gives their number. For samples.
pub type SampleFamily = Box<dyn Fn(u16, u64, &mut [u8]) -> Result<usize> + Send + Sync>;
/// The judgement when all was read.
pub type Accepts = Box<dyn Fn(&Surveyed) -> Result<()> + Send + Sync>;

/// What a source of families needs.
pub struct Families {
    /// Their names, and their lengths as far as they are known. Names of files that a restore can make.
    pub names: Vec<(String, u64)>,
    /// Reads them.
    pub read: ReadFamilies,
    /// Looks at parts of them.
    pub sample: SampleFamily,
    /// Refuses what was read: it is damaged, or it is not what it was.
    pub accepts: Accepts,
}

/// The source. Streams have these numbers, from 1: the layouts of the families, their kept bytes, the files.
pub struct ForeignSource {
    names: Vec<String>,
    at_start: Vec<Stream>,
    read: Mutex<Option<ReadFamilies>>,
    sample: SampleFamily,
    accepts: Accepts,
    known: Mutex<ReadSoFar>,
}

/// What was read so far.
#[derive(Default)]
struct ReadSoFar {
    families: Vec<FamilySoFar>,
    files: Vec<FileSoFar>,
    /// The result of the thread that reads.
    surveyed: Option<Surveyed>,
}

#[derive(Default)]
struct FamilySoFar {
    length: u64,
    kept: u64,
    layout: u64,
    digest: [u8; 32],
}

struct FileSoFar {
    stored: StoredFile,
    size: u64,
    placed: u64,
}

/// What a stream holds. The numbers are those of families and files, from 0.
enum Content {
    Layout(usize),
    Kept(usize),
    File(usize),
}

impl ForeignSource {
    /// Nothing is read before the first reader is there.
    pub fn new(families: Families) -> Self {
        let Families { names, read, sample, accepts } = families;
        let count = names.len() as u32;
        let stream = |(id, number, size): (u32, u32, u64)| Stream { id, name: kept_name(number), unit: UNIT, size };
        let at_start = names.iter().zip(1..).map(|((_, length), number)| stream((count + number, number, *length)));
        let at_start = at_start.collect();
        let known =
            ReadSoFar { families: names.iter().map(|_| FamilySoFar::default()).collect(), ..ReadSoFar::default() };
        let names = names.into_iter().map(|(name, _)| name).collect();
        Self { names, at_start, read: Mutex::new(Some(read)), sample, accepts, known: Mutex::new(known) }
    }

    fn known(&self) -> MutexGuard<'_, ReadSoFar> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of all families that were read.
    pub fn bytes(&self) -> u64 {
        self.known().families.iter().map(|family| family.length).sum()
    }

    /// Bytes of files that no family has.
    pub fn gaps(&self) -> u64 {
        self.known().files.iter().map(|file| file.size.saturating_sub(file.placed)).sum()
    }

    /// True if cells have a place: a later full can store what differs from them. Known when all was read.
    pub fn has_files(&self) -> bool {
        !self.known().files.is_empty()
    }

    /// Shows `look` what the verification has found. `None` before all was read.
    pub fn with_verification<T>(&self, look: impl FnOnce(&ForeignVerification) -> T) -> Option<T> {
        self.known().surveyed.as_ref().map(|surveyed| look(&surveyed.verification))
    }

    /// Takes the verification, which is empty afterwards.
    pub fn take_verification(&self) -> ForeignVerification {
        self.known().surveyed.as_mut().map(|surveyed| std::mem::take(&mut surveyed.verification)).unwrap_or_default()
    }

    fn content(&self, id: u32) -> Option<Content> {
        let (at, families) = (usize::try_from(id).ok()?.checked_sub(1)?, self.names.len());
        Some(match at {
            _ if at < families => Content::Layout(at),
            _ if at < 2 * families => Content::Kept(at - families),
            _ => Content::File(at - 2 * families),
        })
    }

    fn end_family(&self, family: usize, digest: &blake3::Hasher) {
        if let Some(family) = self.known().families.get_mut(family) {
            family.digest = *digest.finalize().as_bytes();
        }
    }

    fn id(&self, content: &Content) -> u32 {
        let at = match *content {
            Content::Layout(family) => family,
            Content::Kept(family) => self.names.len() + family,
            Content::File(file) => 2 * self.names.len() + file,
        };
        u32::try_from(at + 1).unwrap_or(u32::MAX)
    }
}

fn kept_name(number: u32) -> String {
    format!("kept/{number}")
}

impl Source for ForeignSource {
    /// The bytes of families: which of them have a place is not known yet.
    fn streams(&self) -> &[Stream] {
        &self.at_start
    }

    /// Only the streams of files are compared with those of a full.
    fn is_open(&self) -> bool {
        true
    }

    fn stream(&self, id: u32) -> Option<Stream> {
        let known = self.known();
        let (name, unit, size) = match self.content(id)? {
            Content::Layout(family) => (format!("layout/{}", family + 1), UNIT, known.families.get(family)?.layout),
            Content::Kept(family) => (format!("kept/{}", family + 1), UNIT, known.families.get(family)?.kept),
            Content::File(file) => {
                let FileSoFar { stored, size, .. } = known.files.get(file)?;
                (format!("file/{}", file + 1), stored.unit, *size)
            }
        };
        Some(Stream { id, name, unit, size })
    }

    fn identity(&self, id: u32) -> Option<String> {
        match self.content(id)? {
            Content::File(file) => self.known().files.get(file).map(|file| file.stored.identity.clone()),
            Content::Layout(_) | Content::Kept(_) => None,
        }
    }

    /// The name, the length and the digest of a family are with its layout.
    fn detail(&self, id: u32) -> Option<serde_json::Value> {
        let Content::Layout(family) = self.content(id)? else { return None };
        let known = self.known();
        let FamilySoFar { length, digest, .. } = known.families.get(family)?;
        let digest = blake3::Hash::from_bytes(*digest).to_hex().to_string();
        Some(json!({ "family": self.names.get(family)?, "length": length, "blake3": digest }))
    }

    fn found(&self) -> Result<Vec<Stream>> {
        let (surveyed, files) = {
            let mut known = self.known();
            (known.surveyed.take().ok_or(Error::Halted)?, known.files.len())
        };
        // The judgement may look at the devices again.
        let accepted = (self.accepts)(&surveyed);
        self.known().surveyed = Some(surveyed);
        accepted?;
        let count = u32::try_from(2 * self.names.len() + files).unwrap_or(u32::MAX);
        Ok((1..=count).filter_map(|id| self.stream(id)).collect())
    }

    /// One reader takes what the thread passes on. The others have nothing to do.
    fn reader(&self, _index: usize, _count: usize) -> Result<Box<dyn Reader + '_>> {
        let Some(read) = self.read.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(Box::new(Nothing));
        };
        let (to, from) = way();
        threads::start("reader of media", move || {
            let surveyed = read(&to);
            let _ = to.pass(Passed::Ended(Box::new(surveyed))); // If nothing is taken any more, the job has ended.
        })?;
        Ok(Box::new(ForeignReader::new(self, from)))
    }

    fn is_free(&self, _stream: u32, _offset: u64) -> bool {
        false
    }

    fn sample(&self, stream: u32, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let Some(Content::Kept(family)) = self.content(stream) else { return Ok(0) };
        (self.sample)(u16::try_from(family).unwrap_or(u16::MAX), offset, buffer)
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// A reader that comes after all bytes.
struct Nothing;

impl Reader for Nothing {
    fn next(&mut self, _buffer: &mut [u8]) -> Result<Option<Extent>> {
        Ok(None)
    }
}

/// Makes extents of what was passed on.
struct ForeignReader<'a> {
    source: &'a ForeignSource,
    from: Outlet,
    /// The bytes that are being used, how many of them were used, and where the rest belongs.
    bytes: Option<PassedBytes>,
    used: usize,
    left: VecDeque<Part>,
    /// The family whose bytes come, its digest, and its bytes that have no place and are in no extent yet.
    family: usize,
    digest: blake3::Hasher,
    kept: Vec<u8>,
    /// True if no more bytes are to be waited for before the kept ones are given: a family ends.
    family_ends: bool,
    /// The layouts, once all was read, and how much of the first was given.
    layouts: VecDeque<(usize, Vec<u8>)>,
    given: usize,
    is_at_end: bool,
}

/// Bytes that belong together.
#[derive(Clone, Copy)]
enum Part {
    Kept(usize),
    /// Bytes of a file, from this offset on.
    Placed {
        file: usize,
        offset: u64,
        length: usize,
    },
}

impl Part {
    fn of(run: Run) -> Self {
        let length = usize::try_from(run.bytes()).unwrap_or(0);
        match run {
            Run::Kept(_) => Self::Kept(length),
            Run::Placed { file, cell, .. } => Self::Placed { file: file.into(), offset: cell * CELL, length },
        }
    }
}

impl<'a> ForeignReader<'a> {
    fn new(source: &'a ForeignSource, from: Outlet) -> Self {
        Self {
            source,
            from,
            bytes: None,
            used: 0,
            left: VecDeque::new(),
            family: 0,
            digest: blake3::Hasher::new(),
            kept: Vec::new(),
            family_ends: false,
            layouts: VecDeque::new(),
            given: 0,
            is_at_end: false,
        }
    }

    /// Kept bytes: as many as the buffer takes, or the last ones of a family.
    fn kept_extent(&mut self, buffer: &mut [u8]) -> Option<Extent> {
        let length = self.kept.len().min(buffer.len());
        if length == 0 || length < buffer.len() && !self.family_ends {
            return None;
        }
        copy(buffer, self.kept.get(..length)?);
        self.kept.drain(..length);
        let mut known = self.source.known();
        let family = known.families.get_mut(self.family)?;
        let offset = family.kept;
        family.kept += length as u64;
        let stream = self.source.id(&Content::Kept(self.family));
        Some(Extent { stream, layer: 0, offset, length: length as u32 })
    }

    /// Fills the buffer with bytes of a file that follow each other. Bytes without a place are put aside.
    fn placed_extent(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let (mut begun, mut filled) = (None::<(usize, u64)>, 0_usize);
        while filled < buffer.len() {
            if self.left.is_empty() && !self.next_bytes()? {
                break;
            }
            match self.left.pop_front() {
                None => {}
                Some(Part::Kept(length)) => {
                    let bytes = self.bytes.as_ref().and_then(|passed| passed.bytes.get(self.used..self.used + length));
                    self.kept.extend_from_slice(bytes.unwrap_or_default());
                    self.used += length;
                    if self.kept.len() >= buffer.len() {
                        break;
                    }
                }
                Some(part @ Part::Placed { file, offset, length }) => {
                    let (first, begin) = begun.unwrap_or((file, offset));
                    if file != first || offset != begin + filled as u64 {
                        self.left.push_front(part);
                        break;
                    }
                    let taken = length.min(buffer.len() - filled);
                    let bytes = self.bytes.as_ref().and_then(|passed| passed.bytes.get(self.used..self.used + taken));
                    copy(buffer.get_mut(filled..).unwrap_or_default(), bytes.unwrap_or_default());
                    (begun, filled, self.used) = (Some((first, begin)), filled + taken, self.used + taken);
                    if taken < length {
                        let (offset, length) = (offset + taken as u64, length - taken);
                        self.left.push_front(Part::Placed { file, offset, length });
                    }
                }
            }
        }
        let Some((file, offset)) = begun else { return Ok(None) };
        if let Some(file) = self.source.known().files.get_mut(file) {
            file.size = file.size.max(offset + filled as u64);
            file.placed += filled as u64;
        }
        let stream = self.source.id(&Content::File(file));
        Ok(Some(Extent { stream, layer: 0, offset, length: filled as u32 }))
    }

    /// Takes what was passed on next. False if a family ends here and has kept bytes, or if everything ends.
    fn next_bytes(&mut self) -> Result<bool> {
        if let Some(used) = self.bytes.take_if(|_| self.used > 0) {
            self.from.give_back(used.bytes);
            self.used = 0;
        }
        while self.bytes.is_none() && !self.is_at_end {
            match self.from.next()? {
                Passed::File(stored) => self.source.known().files.push(FileSoFar { stored, size: 0, placed: 0 }),
                Passed::Bytes(passed) => self.bytes = Some(passed),
                Passed::Ended(surveyed) => {
                    let mut surveyed = (*surveyed)?;
                    self.is_at_end = true;
                    self.layouts = std::mem::take(&mut surveyed.layouts).into_iter().enumerate().collect();
                    self.source.known().surveyed = Some(surveyed);
                }
            }
        }
        let next = self.bytes.as_ref().map(|passed| usize::from(passed.family));
        self.family_ends = next != Some(self.family);
        if self.family_ends && !self.kept.is_empty() {
            return Ok(false);
        }
        let (Some(family), Some(passed)) = (next, &mut self.bytes) else { return Ok(false) };
        if self.family_ends {
            let digest = std::mem::take(&mut self.digest);
            self.source.end_family(self.family, &digest);
            (self.family, self.family_ends) = (family, false);
        }
        self.left = passed.runs.drain(..).map(Part::of).collect();
        self.digest.update(&passed.bytes[..]);
        if let Some(family) = self.source.known().families.get_mut(family) {
            family.length += passed.bytes.len() as u64;
        }
        Ok(true)
    }

    fn layout_extent(&mut self, buffer: &mut [u8]) -> Option<Extent> {
        let (family, layout) = self.layouts.front()?;
        let content = Content::Layout(*family);
        let rest = layout.get(self.given..).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        copy(buffer, rest);
        let offset = self.given as u64;
        self.given += length;
        if let Some(known) = self.source.known().families.get_mut(*family) {
            known.layout = self.given as u64;
        }
        if self.given == layout.len() {
            self.given = 0;
            self.layouts.pop_front();
        }
        Some(Extent { stream: self.source.id(&content), layer: 0, offset, length: length as u32 })
    }
}

impl Reader for ForeignReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        // Whole pages.
        let most = buffer.len() - buffer.len() % FILLED;
        let buffer = buffer.get_mut(..most).unwrap_or_default();
        loop {
            if let Some(extent) = self.kept_extent(buffer) {
                return Ok(Some(extent));
            }
            if let Some(extent) = self.placed_extent(buffer)? {
                return Ok(Some(extent));
            }
            if self.is_at_end && self.kept.is_empty() {
                self.source.end_family(self.family, &self.digest);
                return Ok(self.layout_extent(buffer));
            }
        }
    }
}

/// As many bytes as both have.
fn copy(into: &mut [u8], from: &[u8]) {
    let length = into.len().min(from.len());
    if let (Some(into), Some(from)) = (into.get_mut(..length), from.get(..length)) {
        into.copy_from_slice(from);
    }
}
