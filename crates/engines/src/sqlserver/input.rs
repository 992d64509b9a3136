//! The bytes of one family, with a count, and with errors that name the device and the offset.

use std::io::{self, Read};

use fullbore_core::pool::Piece;
use fullbore_core::{Error, Result};

use super::fields::Wrong;
use super::stream::STREAM_ALIGNMENT;
use crate::engine::ForeignFamily;
use crate::foreign_set::bytes::FamilyBytes;

/// A family that is being read.
pub struct Input {
    device: String,
    bytes: Box<dyn FamilyBytes>,
    is_packed: bool,
    at: u64,
}

impl Input {
    /// At the first byte of a plain MTF stream. `is_packed`: it comes out of a compressed family.
    pub fn new(family: ForeignFamily, is_packed: bool) -> Self {
        Self { device: family.device, bytes: family.bytes, is_packed, at: 0 }
    }

    /// True if the family is compressed.
    pub fn is_packed(&self) -> bool {
        self.is_packed
    }

    /// The device, for messages.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// The offset of the next byte.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Fills `into` as far as there are bytes; gives their number.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.bytes.read(rest) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::of_read(&self.device, error)),
            }
        }
        self.at += filled as u64;
        Ok(filled)
    }

    /// The next `length` bytes without a copy, if they are at hand in one piece.
    ///
    /// # Errors
    /// As of [`read`](Self::read).
    pub fn share(&mut self, length: usize) -> Result<Option<Piece>> {
        let shared = self.bytes.share(length).map_err(|error| Error::of_read(&self.device, error))?;
        self.at += shared.as_ref().map_or(0, |piece| piece.len() as u64);
        Ok(shared)
    }

    /// Fills all of `into`.
    ///
    /// # Errors
    /// The family ends before, or the device cannot be read.
    pub fn exact(&mut self, into: &mut [u8], inside: &str) -> Result<()> {
        if self.read(into)? < into.len() { Err(self.ends(inside)) } else { Ok(()) }
    }

    /// The next `length` bytes. Memory grows with the bytes that arrive, never with what the media claim.
    ///
    /// # Errors
    /// As of [`exact`](Self::exact).
    pub fn bytes(&mut self, length: u64, inside: &str) -> Result<Vec<u8>> {
        let mut found = Vec::new();
        let read = (&mut self.bytes).take(length).read_to_end(&mut found);
        read.map_err(|error| Error::of_read(&self.device, error))?;
        self.at += found.len() as u64;
        if (found.len() as u64) < length { Err(self.ends(inside)) } else { Ok(found) }
    }

    /// Leaves out `length` bytes. The last of them is read, so that a family that ends before is noticed.
    ///
    /// # Errors
    /// As of [`exact`](Self::exact), or no file is so long.
    pub fn skip(&mut self, length: u64) -> Result<()> {
        let Some(left_out) = length.checked_sub(1) else { return Ok(()) };
        let last = self.at.checked_add(left_out).filter(|last| *last < i64::MAX as u64);
        let last = last.ok_or_else(|| self.damaged(self.at, "a stream is longer than any file can be"))?;
        self.bytes.skip(left_out).map_err(|error| Error::of_read(&self.device, error))?;
        self.at = last;
        match self.read(&mut [0])? {
            0 => Err(self.cut_off(format!("ends before byte {}, inside a stream", last + 1))),
            _ => Ok(()),
        }
    }

    /// Leaves out the bytes before the next stream; gives their number.
    ///
    /// # Errors
    /// As of [`skip`](Self::skip).
    pub fn align(&mut self) -> Result<u64> {
        let gap = self.at.next_multiple_of(STREAM_ALIGNMENT) - self.at;
        self.skip(gap)?;
        Ok(gap)
    }

    /// Damage at `offset`.
    pub fn damaged(&self, offset: u64, what: impl Into<String>) -> Error {
        Error::damaged(&self.device, offset, what)
    }

    /// Damage in a field of the block or stream that begins at `start`.
    pub fn wrong(&self, start: u64, wrong: Wrong) -> Error {
        self.damaged(start.saturating_add(wrong.at as u64), wrong.what)
    }

    /// The family ends here, but should not.
    pub fn ends(&self, inside: &str) -> Error {
        self.cut_off(format!("ends at byte {} inside {inside}", self.at))
    }

    fn cut_off(&self, what: String) -> Error {
        let why = format!("{what}: the file was cut off");
        Error::incomplete(format!("`{}`", self.device), why, "copy the whole file again from where it was made")
    }
}
