//! The bytes of an uploaded object, in order.

use std::io::{self, Read};
use std::sync::Arc;

use fullbore_core::conduct::Conduct;
use fullbore_engines::{FamilyBytes, Watch};

use super::reader::SetReader;

/// An object from its first byte to its last. It counts what is read as progress, and ends with the job.
pub(in crate::job) struct ObjectBytes {
    reader: SetReader,
    /// The place of the next block that is read.
    at: u64,
    length: u64,
    current: Vec<u8>,
    taken: usize,
    conduct: Conduct,
}

impl ObjectBytes {
    /// Of an object with so many bytes.
    pub fn new(reader: SetReader, length: u64, conduct: &Conduct) -> Self {
        Self { reader, at: 0, length, current: Vec::new(), taken: 0, conduct: conduct.clone() }
    }

    fn left(&self) -> &[u8] {
        self.current.get(self.taken..).unwrap_or_default()
    }
}

impl Read for ObjectBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.left().is_empty() {
            self.conduct.check().map_err(io::Error::other)?;
            if self.at >= self.length {
                return Ok(0);
            }
            self.current = self.reader.read_at(self.at).map_err(io::Error::other)?;
            self.taken = 0;
            self.at += self.current.len() as u64;
            self.conduct.progress.advance(self.current.len() as u64);
        }
        let count = self.left().read(into)?;
        self.taken += count;
        Ok(count)
    }
}

impl FamilyBytes for ObjectBytes {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let here = usize::try_from(bytes).unwrap_or(usize::MAX).min(self.left().len());
        self.taken += here;
        // Blocks that nobody asks for are not read.
        self.at = self.at.saturating_add(bytes - here as u64);
        Ok(())
    }

    fn watch(&self) -> Watch {
        let conduct = self.conduct.clone();
        Arc::new(move || conduct.check())
    }
}
