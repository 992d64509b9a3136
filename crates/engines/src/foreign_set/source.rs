//! The families of foreign media as a source: streams of files with the cells at their places, and a stream for each family
//! with the bytes that have no place. The families are read once, from their first byte to their last, by a thread that
//! judges them meanwhile. So the streams are known at the end only.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fullbore_core::source::{Extent, Reader, Source, Stream};
use fullbore_core::{Error, Result, threads};
use serde_json::json;

use super::digest::FamilyDigest;
use super::places::LaidOut;
use super::reader::ForeignReader;
use super::tap::{Inlet, Passed, way};
use crate::{ForeignVerification, Surveyed};

/// The unit of streams without a page map, in bytes.
const UNIT: u32 = 4096;

/// A family to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFamily {
    /// Its name, length and layout.
    pub laid: LaidOut,
    /// Proves its bytes.
    pub digest: FamilyDigest,
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
    /// Extents are lent where a read has most of one. Otherwise all are copied, and are as long as a block takes.
    pub lends: bool,
}

/// The source. Streams have these numbers, from 1: the layouts of the families, their kept bytes, the files.
pub struct ForeignSource {
    names: Vec<String>,
    at_start: Vec<Stream>,
    read: Mutex<Option<ReadFamilies>>,
    sample: SampleFamily,
    accepts: Accepts,
    pub(super) lends: bool,
    known: Mutex<ReadSoFar>,
}

/// What was read so far.
#[derive(Default)]
pub(super) struct ReadSoFar {
    pub families: Vec<FamilySoFar>,
    pub files: Vec<FileSoFar>,
    /// The result of the thread that reads.
    pub surveyed: Option<Surveyed>,
}

/// What was read of a family, in bytes.
#[derive(Default)]
pub(super) struct FamilySoFar {
    pub length: u64,
    pub kept: u64,
    pub layout: u64,
    digest: Option<FamilyDigest>,
}

/// What was read of a file, in bytes.
pub(super) struct FileSoFar {
    pub stored: StoredFile,
    pub size: u64,
    pub placed: u64,
}

/// What a stream holds. The numbers are those of families and files, from 0.
pub(super) enum Content {
    Layout(usize),
    Kept(usize),
    File(usize),
}

impl ForeignSource {
    /// Nothing is read before the first reader is there.
    pub fn new(families: Families) -> Self {
        let Families { names, read, sample, accepts, lends } = families;
        let count = names.len() as u32;
        let stream = |(id, number, size): (u32, u32, u64)| Stream { id, name: kept_name(number), unit: UNIT, size };
        let at_start = names.iter().zip(1..).map(|((_, length), number)| stream((count + number, number, *length)));
        let at_start = at_start.collect();
        let known =
            ReadSoFar { families: names.iter().map(|_| FamilySoFar::default()).collect(), ..ReadSoFar::default() };
        let names = names.into_iter().map(|(name, _)| name).collect();
        Self { names, at_start, read: Mutex::new(Some(read)), sample, accepts, lends, known: Mutex::new(known) }
    }

    pub(super) fn known(&self) -> MutexGuard<'_, ReadSoFar> {
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

    pub(super) fn end_family(&self, family: usize, digest: FamilyDigest) {
        if let Some(family) = self.known().families.get_mut(family) {
            family.digest = Some(digest);
        }
    }

    pub(super) fn id(&self, content: &Content) -> u32 {
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
        let mut detail = json!({ "family": self.names.get(family)?, "length": length });
        detail.as_object_mut()?.extend([digest.as_ref()?.member()]);
        Some(detail)
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
