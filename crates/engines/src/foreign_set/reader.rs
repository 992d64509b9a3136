//! The reader of foreign media: it makes extents of the bytes that the judging thread passes on.

use std::collections::VecDeque;

use fullbore_core::Result;
use fullbore_core::pool::{Piece, copy_in_steps};
use fullbore_core::source::{Extent, Reader};

use super::layout::{CELL, Run};
use super::source::{Content, FileSoFar, ForeignSource};
use super::tap::{Bytes, Outlet, Passed, PassedBytes};

/// Buffers are filled with a multiple of this, in bytes.
const FILLED: usize = 8 << 10;

/// Makes extents of what was passed on.
pub(super) struct ForeignReader<'a> {
    source: &'a ForeignSource,
    from: Outlet,
    /// The bytes that are being used, how many of them were used, and where the rest belongs.
    bytes: Option<PassedBytes>,
    used: usize,
    left: VecDeque<Part>,
    /// The family whose bytes come, and its bytes that have no place and are in no extent yet.
    family: usize,
    kept: Vec<u8>,
    /// True if no more bytes are to be waited for before the kept ones are given: a family ends.
    family_ends: bool,
    /// The layouts, once all was read, and how much of the first was given.
    layouts: VecDeque<(usize, Vec<u8>)>,
    given: usize,
    is_at_end: bool,
    /// The bytes of the last extent, if they are still in the buffer of their device.
    lent: Option<Piece>,
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

/// True if `bytes` are enough for an extent alone, which has `most` bytes at most.
fn fills(bytes: usize, most: usize) -> bool {
    bytes >= most - most / 4
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
    /// It takes everything that comes through `from`.
    pub fn new(source: &'a ForeignSource, from: Outlet) -> Self {
        Self {
            source,
            from,
            bytes: None,
            used: 0,
            left: VecDeque::new(),
            family: 0,
            kept: Vec::new(),
            family_ends: false,
            layouts: VecDeque::new(),
            given: 0,
            is_at_end: false,
            lent: None,
        }
    }

    /// Kept bytes: as many as the buffer takes, or the last ones of a family.
    fn kept_extent(&mut self, buffer: &mut [u8]) -> Option<Extent> {
        let length = self.kept.len().min(buffer.len());
        if length == 0 || length < buffer.len() && !self.family_ends {
            return None;
        }
        copy_in_steps(buffer, self.kept.get(..length)?);
        self.kept.drain(..length);
        let mut known = self.source.known();
        let family = known.families.get_mut(self.family)?;
        let offset = family.kept;
        family.kept += length as u64;
        let stream = self.source.id(&Content::Kept(self.family));
        Some(Extent { stream, layer: 0, offset, length: length as u32 })
    }

    /// Fills the buffer with bytes of a file that follow each other, or lends them. Bytes without a place are put aside.
    fn placed_extent(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let (mut begun, mut filled) = (None::<(usize, u64)>, 0_usize);
        while filled < buffer.len() {
            if self.left.is_empty() && (self.leaves_the_rest(filled, buffer.len()) || !self.next_bytes()?) {
                break;
            }
            let lent = if filled == 0 && self.source.lends { self.lendable(buffer.len()) } else { None };
            if let Some((place, piece)) = lent {
                self.use_placed(piece.len());
                (begun, filled, self.lent) = (Some(place), piece.len(), Some(piece));
                break;
            }
            match self.left.front().copied() {
                None => {}
                Some(Part::Kept(length)) => {
                    self.left.pop_front();
                    let bytes = self.bytes.as_ref().and_then(|passed| passed.bytes.get(self.used..self.used + length));
                    let bytes = bytes.unwrap_or_default();
                    self.kept.extend_from_slice(bytes);
                    self.used += length;
                    if self.kept.len() >= buffer.len() {
                        break;
                    }
                }
                Some(Part::Placed { file, offset, length }) => {
                    let (first, begin) = begun.unwrap_or((file, offset));
                    if file != first || offset != begin + filled as u64 {
                        break;
                    }
                    let taken = length.min(buffer.len() - filled);
                    let bytes = self.bytes.as_ref().and_then(|passed| passed.bytes.get(self.used..self.used + taken));
                    let bytes = bytes.unwrap_or_default();
                    copy_in_steps(buffer.get_mut(filled..).unwrap_or_default(), bytes);
                    (begun, filled) = (Some((first, begin)), filled + taken);
                    self.use_placed(taken);
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

    /// The first bytes that are left, and their place, if they fill most of an extent of `most` bytes without a copy.
    fn lendable(&self, most: usize) -> Option<((usize, u64), Piece)> {
        let Bytes::Shared(piece) = &self.bytes.as_ref()?.bytes else { return None };
        let Some(&Part::Placed { file: first, offset: begin, .. }) = self.left.front() else { return None };
        let mut together = 0;
        for part in &self.left {
            match *part {
                Part::Placed { file, offset, length } if file == first && offset == begin + together as u64 => {
                    together += length;
                }
                _ => break,
            }
        }
        let lent = self.used..self.used + together.min(most);
        fills(together, most).then(|| ((first, begin), piece.slice(lent)))
    }

    /// True if an extent ends with its piece, although it has room: then the next piece may fill an extent alone.
    fn leaves_the_rest(&self, filled: usize, most: usize) -> bool {
        let is_lendable =
            |passed: &PassedBytes| matches!(&passed.bytes, Bytes::Shared(piece) if fills(piece.len(), most));
        self.source.lends && filled >= most / 2 && self.bytes.as_ref().is_some_and(is_lendable)
    }

    /// The next `count` bytes, which have a place, are in an extent.
    fn use_placed(&mut self, mut count: usize) {
        self.used += count;
        while let Some(Part::Placed { offset, length, .. }) = self.left.front_mut().filter(|_| count > 0) {
            let used = count.min(*length);
            (*offset, *length, count) = (*offset + used as u64, *length - used, count - used);
            if *length == 0 {
                self.left.pop_front();
            }
        }
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
                Passed::FamilyEnded(family, digest) => self.source.end_family(family.into(), digest),
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
            (self.family, self.family_ends) = (family, false);
        }
        self.left = passed.runs.drain(..).map(Part::of).collect();
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
        copy_in_steps(buffer, rest);
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
                return Ok(self.layout_extent(buffer));
            }
        }
    }

    fn lent(&mut self) -> Option<Piece> {
        self.lent.take()
    }
}
