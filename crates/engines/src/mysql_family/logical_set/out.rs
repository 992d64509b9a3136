//! A stream that a reader fills: its text waits here until a buffer takes it.

use fullbore_core::source::Extent;

use super::session::NewStream;

/// How much text is made at a time.
pub const STEP: usize = 256 << 10;

/// A stream that is being filled.
pub struct Out {
    /// Its name and its rows.
    pub stream: NewStream,
    /// Text that was not given yet, behind what was.
    pub text: Vec<u8>,
    given: usize,
    offset: u64,
    /// No more text comes.
    pub closed: bool,
}

impl Out {
    /// Without text.
    pub fn new(stream: NewStream) -> Self {
        Self { stream, text: Vec::with_capacity(2 * STEP), given: 0, offset: 0, closed: false }
    }

    /// Bytes so far.
    pub fn length(&self) -> u64 {
        self.offset + (self.text.len() - self.given) as u64
    }

    /// Fills the buffer, if there is enough text or the stream ends.
    pub fn give(&mut self, buffer: &mut [u8]) -> Option<Extent> {
        let pending = self.text.get(self.given..).unwrap_or_default();
        if pending.is_empty() || pending.len() < buffer.len() && !self.closed {
            return None;
        }
        let length = pending.len().min(buffer.len());
        buffer.get_mut(..length)?.copy_from_slice(pending.get(..length)?);
        let extent = Extent { stream: self.stream.id, layer: 0, offset: self.offset, length: length as u32 };
        self.given += length;
        self.offset += length as u64;
        if self.given == self.text.len() {
            self.text.clear();
            self.given = 0;
        } else if self.given >= STEP {
            self.text.drain(..self.given);
            self.given = 0;
        }
        Some(extent)
    }

    /// Whether all of it was given.
    pub fn is_done(&self) -> bool {
        self.closed && self.text.is_empty()
    }

    /// Bytes that were given.
    pub fn given(&self) -> u64 {
        self.offset
    }

    /// A stream whose whole text is there.
    pub fn whole(stream: NewStream, text: Vec<u8>) -> Self {
        Self { text, closed: true, ..Self::new(stream) }
    }

    /// A stream that begins with this text.
    pub fn begun(stream: NewStream, text: Vec<u8>) -> Self {
        Self { text, ..Self::new(stream) }
    }
}
