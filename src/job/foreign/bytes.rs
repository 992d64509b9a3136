//! The bytes of a device, for readers of other programs' media.

use std::io::{self, Read};
use std::sync::Arc;

use fullbore_core::conduct::Conduct;
use fullbore_core::pool::Piece;
use fullbore_core::supply::Supply;
use fullbore_engines::{FamilyBytes, Watch};

/// Bytes of one read. Descriptions are shorter.
const READ: usize = 64 << 10;

/// The parts of a device that are asked for: what is left out is not read.
pub struct SparseBytes {
    supply: Box<dyn Supply>,
    at: u64,
    /// Bytes of the device from `begin` on.
    buffer: Vec<u8>,
    begin: u64,
}

impl SparseBytes {
    /// At the first byte of a supply with a size.
    pub fn new(supply: Box<dyn Supply>) -> Self {
        Self { supply, at: 0, buffer: Vec::new(), begin: 0 }
    }

    /// The bytes at the present offset that were read already.
    fn ready(&self) -> &[u8] {
        let used = self.at.checked_sub(self.begin).and_then(|used| usize::try_from(used).ok());
        used.and_then(|used| self.buffer.get(used..)).unwrap_or_default()
    }
}

impl Read for SparseBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.ready().is_empty() {
            if self.supply.size().is_some_and(|size| self.at >= size) {
                return Ok(0);
            }
            self.buffer.resize(READ, 0);
            let length = self.supply.read_at(self.at, &mut self.buffer).map_err(io::Error::other)?;
            self.buffer.truncate(length);
            self.begin = self.at;
        }
        let count = self.ready().read(into)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl FamilyBytes for SparseBytes {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.at = self.at.saturating_add(bytes);
        Ok(())
    }
}

/// All bytes of a device, with reads ahead. It counts them as progress, and ends with the job.
pub struct AllBytes {
    supply: Box<dyn Supply>,
    conduct: Conduct,
    piece: Option<Piece>,
    used: usize,
}

impl AllBytes {
    /// At the first byte.
    pub fn new(supply: Box<dyn Supply>, conduct: &Conduct) -> Self {
        Self { supply, conduct: conduct.clone(), piece: None, used: 0 }
    }

    /// The rest of the present piece, or the next one; nothing at the end.
    fn ready(&mut self) -> io::Result<&[u8]> {
        if self.piece.as_ref().is_none_or(|piece| piece.len() <= self.used) {
            self.conduct.check().map_err(io::Error::other)?;
            // The buffer returns to the pool before the supply may wait for it.
            (self.piece, self.used) = (None, 0);
            self.piece = self.supply.next().map_err(io::Error::other)?;
            self.conduct.progress.advance(self.piece.as_ref().map_or(0, |piece| piece.len() as u64));
        }
        Ok(self.piece.as_ref().and_then(|piece| piece.get(self.used..)).unwrap_or_default())
    }
}

impl Read for AllBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.ready()?.read(into)?;
        self.used += count;
        Ok(count)
    }
}

impl FamilyBytes for AllBytes {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let mut left = bytes;
        while left > 0 {
            let ready = self.ready()?.len();
            if ready == 0 {
                break;
            }
            let step = usize::try_from(left).map_or(ready, |left| left.min(ready));
            self.used += step;
            left -= step as u64;
        }
        Ok(())
    }

    fn share(&mut self, length: usize) -> io::Result<Option<Piece>> {
        if self.ready()?.len() < length {
            return Ok(None);
        }
        let begin = self.used;
        self.used += length;
        Ok(self.piece.as_ref().map(|piece| piece.slice(begin..begin + length)))
    }

    fn begin_at(&mut self, offset: u64) {
        self.supply.begin_at(offset);
    }

    fn watch(&self) -> Watch {
        let conduct = self.conduct.clone();
        Arc::new(move || conduct.check())
    }
}
