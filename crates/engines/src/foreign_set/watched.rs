//! The bytes of a family while another reader reads them: their number, their digest and their sum.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bytes::FamilyBytes;
use super::delivered::{Delivered, PART};

/// Bytes of a read of what the reader leaves out.
const READ: usize = 64 << 10;

/// A family that is read once, from its first byte on. A clone is the same reading.
#[derive(Clone)]
pub struct Watched(Arc<Mutex<Reading>>);

struct Reading {
    bytes: Box<dyn FamilyBytes>,
    number: u16,
    length: u64,
    digest: blake3::Hasher,
    delivered: Delivered,
    /// The beginning of a part that is not complete.
    open: Vec<u8>,
    /// The first bytes of the family.
    head: Vec<u8>,
}

/// Bytes of a family that [`Watched::head`] gives.
const HEAD: usize = 8;

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Bytes of the family.
    pub length: u64,
    /// Their BLAKE3 digest.
    pub digest: [u8; 32],
    /// Their sum.
    pub delivered: Delivered,
}

impl Watched {
    /// Family `number` of its media, from 0.
    pub fn new(bytes: Box<dyn FamilyBytes>, number: u16) -> Self {
        let (digest, delivered) = (blake3::Hasher::new(), Delivered::default());
        let open = Vec::with_capacity(PART);
        Self(Arc::new(Mutex::new(Reading { bytes, number, length: 0, digest, delivered, open, head: Vec::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its first bytes, as far as they were read.
    pub fn head(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head.iter_mut().zip(&self.lock().head).for_each(|(into, byte)| *into = *byte);
        head
    }

    /// Reads what is left, and gives the account of all bytes.
    ///
    /// # Errors
    /// As of [`Read::read`].
    pub fn finish(&self) -> io::Result<Seen> {
        let mut reading = self.lock();
        reading.pass(u64::MAX)?;
        let offset = reading.length - reading.open.len() as u64;
        let (number, rest) = (reading.number, std::mem::take(&mut reading.open));
        reading.delivered.add(number, offset, &rest);
        let digest = *reading.digest.finalize().as_bytes();
        Ok(Seen { length: reading.length, digest, delivered: reading.delivered })
    }
}

impl Reading {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(into)?;
        let mut bytes = into.get(..count).unwrap_or_default();
        self.digest.update(bytes);
        let missing = HEAD.saturating_sub(self.head.len()).min(count);
        self.head.extend_from_slice(bytes.get(..missing).unwrap_or_default());
        let mut offset = self.length - self.open.len() as u64;
        self.length += count as u64;
        if !self.open.is_empty() {
            let (first, rest) = bytes.split_at(bytes.len().min(PART - self.open.len()));
            self.open.extend_from_slice(first);
            bytes = rest;
            if self.open.len() < PART {
                return Ok(count);
            }
            self.delivered.add(self.number, offset, &self.open);
            offset += PART as u64;
            self.open.clear();
        }
        let (whole, rest) = bytes.split_at(bytes.len() - bytes.len() % PART);
        self.delivered.add(self.number, offset, whole);
        self.open.extend_from_slice(rest);
        Ok(count)
    }

    fn pass(&mut self, mut left: u64) -> io::Result<()> {
        let mut buffer = vec![0; READ];
        while left > 0 {
            let most = usize::try_from(left).map_or(READ, |left| left.min(READ));
            match self.read(buffer.get_mut(..most).unwrap_or_default()) {
                Ok(0) => break,
                Ok(count) => left -= count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Read for Watched {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.lock().read(into)
    }
}

impl FamilyBytes for Watched {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.lock().pass(bytes)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Cursor;

    use super::super::bytes::InOrder;
    use super::*;

    #[test]
    fn a_reading_in_odd_pieces_sees_what_a_reading_at_once_sees() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at.wrapping_mul(at) >> 3) as u8).collect();
        let watched = || Watched::new(Box::new(InOrder(Cursor::new(bytes.clone()))), 3);
        let whole = watched().finish().unwrap();
        let mut pieces = watched();
        let mut buffer = vec![0; 70_000];
        for step in [1, 511, 52, 1024, 70_000, 7] {
            pieces.read_exact(&mut buffer[..step]).unwrap();
            pieces.skip(step as u64 * 3 / 10).unwrap();
        }
        assert_eq!(pieces.finish().unwrap(), whole);
        assert_eq!(whole.digest, *blake3::hash(&bytes).as_bytes());
        let mut delivered = Delivered::default();
        delivered.add(3, 0, &bytes);
        assert_eq!((whole.length, whole.delivered), (200_000, delivered));
    }
}
