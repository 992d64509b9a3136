//! The bytes of a family, in order.

use std::io::{self, Read};
use std::sync::Arc;

use fullbore_core::Result;
use fullbore_core::pool::Piece;

/// The bytes of one family, from its first to its last.
pub trait FamilyBytes: Read + Send {
    /// Leaves out the next `bytes`. Where the device allows it, they are not read. A place behind the end is no error:
    /// the next read gives nothing.
    ///
    /// # Errors
    /// As of [`Read::read`].
    fn skip(&mut self, bytes: u64) -> io::Result<()>;

    /// The next `length` bytes without a copy, if they are at hand in one piece. Otherwise nothing is read.
    ///
    /// # Errors
    /// As of [`Read::read`].
    fn share(&mut self, length: usize) -> io::Result<Option<Piece>> {
        let _ = length;
        Ok(None)
    }

    /// A hint: cells begin at `offset` and follow each other. A device begins its buffers with them, if that is no more work.
    fn begin_at(&mut self, offset: u64) {
        let _ = offset;
    }

    /// Says whether the job goes on: for work with the bytes that goes on when all were read.
    fn watch(&self) -> Watch {
        Arc::new(|| Ok(()))
    }
}

/// An error once the job ends: a signal came.
pub type Watch = Arc<dyn Fn() -> Result<()> + Send + Sync>;

/// Bytes that can only be read in order.
pub struct InOrder<R>(pub R);

impl<R: Read> Read for InOrder<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl<R: Read + Send> FamilyBytes for InOrder<R> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        io::copy(&mut (&mut self.0).take(bytes), &mut io::sink()).map(|_| ())
    }
}
