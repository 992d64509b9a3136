//! The families of foreign media as a source: streams of files with the cells in their order, and a stream for each family
//! with the bytes that have no place.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use fullbore_core::source::{Extent, Reader, Source, Stream};
use fullbore_core::{Error, Result};
use serde_json::json;

use super::delivered::{Delivered, PART};
use super::layout::CELL;
use super::places::{LaidOut, Piece, Places, size, within};

/// Bytes that a reader takes at once, as far as they are next to each other in their stream.
const SHARE: u64 = 64 << 20;
/// A longer gap between two cells of a file is not read as zeros: the second begins an extent of its own.
const GAP: u64 = CELL;
/// The unit of streams without a page map, in bytes.
const UNIT: u32 = 4096;

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

/// Reads a family at any place.
pub trait FamilyPlaces: Send {
    /// Fills all of `into` from `offset` on.
    ///
    /// # Errors
    /// The device cannot be read, or is shorter.
    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<()>;
}

/// Opens family `number`, from 0.
pub type OpenPlaces = Box<dyn Fn(u16) -> Result<Box<dyn FamilyPlaces>> + Send + Sync>;

/// What a stream holds. The numbers are those of families and files, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Layout(u16),
    Kept(u16),
    File(u16),
}

/// A part of a stream. One reader takes it.
#[derive(Debug, Clone, Copy)]
struct Share {
    stream: u32,
    content: Content,
    at: u64,
    end: u64,
}

/// The source. Each stream has the number of its place in `contents`, from 1.
pub struct ForeignSource {
    families: Vec<StoredFamily>,
    files: Vec<StoredFile>,
    places: Places,
    open: OpenPlaces,
    streams: Vec<Stream>,
    contents: Vec<Content>,
    shares: Vec<Share>,
    next: AtomicUsize,
    delivered: Mutex<Delivered>,
    wanted: Delivered,
}

impl ForeignSource {
    /// Of families that were read before, and gave `wanted`.
    ///
    /// # Errors
    /// The layouts do not fit.
    pub fn new(
        families: Vec<StoredFamily>,
        files: Vec<StoredFile>,
        wanted: Delivered,
        open: OpenPlaces,
    ) -> Result<Self> {
        let laid: Vec<LaidOut> = families.iter().map(|family| family.laid.clone()).collect();
        let places = Places::of(&laid, files.len())?;
        let numbers = || (0..).take(families.len());
        let contents: Vec<Content> = (numbers().map(Content::Layout))
            .chain(numbers().map(Content::Kept))
            .chain((0..).take(files.len()).map(Content::File))
            .collect();
        let (next, delivered) = (AtomicUsize::new(0), Mutex::default());
        let mut source = Self {
            families,
            files,
            places,
            open,
            streams: Vec::new(),
            contents,
            shares: Vec::new(),
            next,
            delivered,
            wanted,
        };
        for (content, id) in source.contents.iter().zip(1..) {
            let stream = source.described(id, *content);
            source.shares.extend(source.shares_of(&stream, *content));
            source.streams.push(stream);
        }
        Ok(source)
    }

    fn described(&self, id: u32, content: Content) -> Stream {
        let (name, unit, size) = match content {
            Content::Layout(family) => (format!("layout/{}", family + 1), UNIT, self.layout(family).len() as u64),
            Content::Kept(family) => (format!("kept/{}", family + 1), UNIT, size(self.pieces(content))),
            Content::File(file) => {
                let unit = self.files.get(usize::from(file)).map_or(UNIT, |file| file.unit);
                (format!("file/{}", file + 1), unit, size(self.pieces(content)))
            }
        };
        Stream { id, name, unit, size }
    }

    fn layout(&self, family: u16) -> &[u8] {
        self.families.get(usize::from(family)).map_or(&[], |family| &family.laid.layout)
    }

    fn pieces(&self, content: Content) -> &[Piece] {
        let list = match content {
            Content::Layout(_) => None,
            Content::Kept(family) => self.places.kept.get(usize::from(family)),
            Content::File(file) => self.places.files.get(usize::from(file)),
        };
        list.map_or(&[], Vec::as_slice)
    }

    /// A stream in shares, without the gaps between cells.
    fn shares_of(&self, stream: &Stream, content: Content) -> Vec<Share> {
        let share = |at, end| Share { stream: stream.id, content, at, end };
        if let Content::Layout(_) = content {
            return vec![share(0, stream.size)];
        }
        let (mut shares, mut begin, mut end) = (Vec::new(), 0, 0);
        for piece in self.pieces(content) {
            let mut left = *piece;
            while left.length > 0 {
                if left.at - end > GAP || end - begin >= SHARE {
                    shares.push(share(begin, end));
                    begin = left.at;
                }
                let taken = left.length.min(SHARE);
                (left.at, left.length) = (left.at + taken, left.length - taken);
                end = left.at;
            }
        }
        shares.push(share(begin, end));
        shares.retain(|share| share.at < share.end);
        shares
    }

    /// Bytes of all families.
    pub fn bytes(&self) -> u64 {
        self.families.iter().map(|family| family.laid.length).sum()
    }

    /// Bytes of files that no family has.
    pub fn gaps(&self) -> u64 {
        let all = |pieces: &Vec<Piece>| size(pieces) - pieces.iter().map(|piece| piece.length).sum::<u64>();
        self.places.files.iter().map(all).sum()
    }

    /// True if there are cells with a place: a later full can store what differs from them.
    pub fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    fn content(&self, id: u32) -> Option<Content> {
        self.contents.get(usize::try_from(id).ok()?.checked_sub(1)?).copied()
    }
}

impl Source for ForeignSource {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// Only the streams of files are compared with those of a full.
    fn is_open(&self) -> bool {
        true
    }

    fn identity(&self, id: u32) -> Option<String> {
        match self.content(id)? {
            Content::File(file) => self.files.get(usize::from(file)).map(|file| file.identity.clone()),
            Content::Layout(_) | Content::Kept(_) => None,
        }
    }

    /// The name, the length and the digest of a family are with its layout.
    fn detail(&self, id: u32) -> Option<serde_json::Value> {
        let Content::Layout(family) = self.content(id)? else { return None };
        let StoredFamily { laid, digest } = self.families.get(usize::from(family))?;
        let digest = blake3::Hash::from_bytes(*digest).to_hex().to_string();
        Some(json!({ "family": laid.name, "length": laid.length, "blake3": digest }))
    }

    fn found(&self) -> Result<Vec<Stream>> {
        let delivered = *self.delivered.lock().unwrap_or_else(PoisonError::into_inner);
        if delivered != self.wanted {
            let names: Vec<_> = self.families.iter().map(|family| format!("`{}`", family.laid.name)).collect();
            let why = "changed between the two times that they were read: first checked, then stored";
            return Err(Error::incomplete(names.join(", "), why, "copy them when the other program has finished them"));
        }
        Ok(self.streams.clone())
    }

    fn reader(&self, _index: usize, _count: usize) -> Result<Box<dyn Reader + '_>> {
        let families = self.families.iter().map(|_| None).collect();
        Ok(Box::new(ForeignReader { source: self, families, share: None, delivered: Delivered::default(), gaps: 0 }))
    }

    fn is_free(&self, _stream: u32, _offset: u64) -> bool {
        false
    }

    fn sample(&self, stream: u32, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let Some(content) = self.content(stream) else { return Ok(0) };
        let first = within(self.pieces(content), offset, buffer.len() as u64).next();
        let Some(piece) = first.filter(|piece| piece.at == offset) else { return Ok(0) };
        let into = buffer.get_mut(..usize::try_from(piece.length).unwrap_or(0)).unwrap_or_default();
        (self.open)(piece.family)?.read_at(piece.offset, into)?;
        Ok(into.len())
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// Takes one share after the other.
struct ForeignReader<'a> {
    source: &'a ForeignSource,
    families: Vec<Option<Box<dyn FamilyPlaces>>>,
    share: Option<Share>,
    delivered: Delivered,
    /// Zeros in the last extent, between two cells.
    gaps: u64,
}

impl ForeignReader<'_> {
    fn read(&mut self, piece: Piece, into: &mut [u8]) -> Result<()> {
        let Some(family) = self.families.get_mut(usize::from(piece.family)) else { return Ok(()) };
        let places = match family {
            Some(places) => places,
            None => family.insert((self.source.open)(piece.family)?),
        };
        places.read_at(piece.offset, into)?;
        self.delivered.add(piece.family, piece.offset, into);
        Ok(())
    }

    /// Fills the buffer with the beginning of the share; gives the offset in the stream, and the length.
    fn fill(&mut self, share: Share, buffer: &mut [u8]) -> Result<(u64, usize)> {
        let source = self.source;
        if let Content::Layout(family) = share.content {
            let at = usize::try_from(share.at).unwrap_or(usize::MAX);
            let rest = source.layout(family).get(at..).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            let (into, from) = (buffer.get_mut(..count), rest.get(..count));
            into.zip(from).into_iter().for_each(|(into, from)| into.copy_from_slice(from));
            return Ok((share.at, count));
        }
        let (mut begin, mut filled) = (share.at, 0_usize);
        for piece in within(source.pieces(share.content), share.at, share.end - share.at) {
            if filled == 0 {
                begin = piece.at;
            }
            let gap = piece.at - begin - filled as u64;
            let room = (buffer.len() - filled) as u64;
            let taken = room.saturating_sub(gap).min(piece.length);
            if gap > GAP || taken == 0 {
                break;
            }
            let (gap, taken) = (gap as usize, taken as usize);
            buffer.get_mut(filled..filled + gap).unwrap_or_default().fill(0);
            self.gaps += gap as u64;
            filled += gap;
            self.read(piece, buffer.get_mut(filled..filled + taken).unwrap_or_default())?;
            filled += taken;
        }
        Ok((begin, filled))
    }
}

impl Reader for ForeignReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        self.gaps = 0;
        // Whole pages, and whole parts of the sum.
        let most = buffer.len() - buffer.len() % CELL_PART;
        let buffer = buffer.get_mut(..most).unwrap_or_default();
        loop {
            let Some(mut share) = self.share.take() else {
                let next = self.source.next.fetch_add(1, Ordering::Relaxed);
                self.share = self.source.shares.get(next).copied();
                if self.share.is_none() {
                    let mut all = self.source.delivered.lock().unwrap_or_else(PoisonError::into_inner);
                    all.join(std::mem::take(&mut self.delivered));
                    return Ok(None);
                }
                continue;
            };
            let (offset, length) = self.fill(share, buffer)?;
            share.at = offset + length as u64;
            if length == 0 {
                continue;
            }
            self.share = Some(share).filter(|share| share.at < share.end);
            let (stream, length) = (share.stream, u32::try_from(length).unwrap_or(u32::MAX));
            return Ok(Some(Extent { stream, layer: 0, offset, length }));
        }
    }

    fn unread(&self) -> u64 {
        self.gaps
    }
}

/// Buffers are filled with a multiple of this: a page of SQL Server.
const CELL_PART: usize = 8 << 10;
const _: () = assert!(CELL_PART.is_multiple_of(PART) && (CELL as usize).is_multiple_of(CELL_PART));
