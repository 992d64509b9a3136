//! One read or write with the memory it owns, and the rule by which it continues after a partial result. No system
//! calls: both ways of doing I/O share this.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::OpenedFile;
use crate::pool::{Buffer, Piece};

/// Results without progress in a row before an operation is given up.
const FRUITLESS_MAX: u32 = 1000;

/// The memory of an operation, owned by it until it has completed.
pub enum Payload {
    /// Bytes to write.
    Write(Piece),
    /// A buffer whose start is filled.
    Read(Buffer),
}

/// A finished operation; its memory comes back with it.
pub struct Completion {
    /// The caller's number for the operation.
    pub tag: u64,
    /// Where in the file it began, in bytes.
    pub offset: u64,
    /// The memory.
    pub payload: Payload,
    /// Bytes moved: all that were asked for, except for a read that met the end of the file.
    pub result: io::Result<usize>,
}

/// An operation under way. Holding the file keeps its descriptor from being closed and given to another file.
pub(super) struct Operation {
    pub tag: u64,
    pub file: Arc<OpenedFile>,
    pub payload: Payload,
    pub offset: u64,
    pub length: usize,
    pub done: usize,
    pub queued: Instant,
    fruitless: u32,
}

/// What follows a result.
pub(super) enum Next {
    /// The rest is to be submitted.
    Again,
    /// The operation has ended.
    Done(io::Result<usize>),
}

impl Operation {
    pub fn new(tag: u64, file: &Arc<OpenedFile>, offset: u64, payload: Payload, length: usize) -> Self {
        let capacity = match &payload {
            Payload::Write(piece) => piece.len(),
            Payload::Read(buffer) => buffer.len(),
        };
        // The one check that keeps the kernel inside the buffer.
        assert!(length <= capacity, "an operation lies inside its memory");
        Self { tag, file: Arc::clone(file), payload, offset, length, done: 0, queued: Instant::now(), fruitless: 0 }
    }

    /// Where the rest begins in the file.
    pub fn position(&self) -> u64 {
        self.offset.saturating_add(self.done as u64)
    }

    /// The rest of a write.
    pub fn unwritten(piece: &Piece, done: usize, length: usize) -> &[u8] {
        &piece[done..length]
    }

    /// The rest of a read.
    pub fn unread(buffer: &mut Buffer, done: usize, length: usize) -> &mut [u8] {
        &mut buffer[done..length]
    }

    /// Takes in a result of the kernel.
    pub fn advance(&mut self, outcome: io::Result<usize>) -> Next {
        let reads = matches!(self.payload, Payload::Read(_));
        let before = self.done;
        match outcome {
            Err(error) if is_transient(&error) => {}
            Err(error) => return Next::Done(Err(error)),
            Ok(0) if reads => return Next::Done(Ok(self.done)),
            Ok(moved) => self.done = self.length.min(self.done.saturating_add(moved)),
        }
        if self.done == self.length {
            return Next::Done(Ok(self.length));
        }
        if self.file.direct {
            let aligned = self.done - self.done % self.file.alignment as usize;
            if reads && aligned != self.done {
                // Only the end of a file breaks a direct read inside a sector.
                return Next::Done(Ok(self.done));
            }
            // A direct write continues at a sector: the started one is written again.
            self.done = aligned;
        }
        self.fruitless = if self.done > before { 0 } else { self.fruitless + 1 };
        if self.fruitless > FRUITLESS_MAX {
            return Next::Done(Err(io::Error::new(
                io::ErrorKind::WriteZero,
                "the device takes no more bytes, and gives no reason",
            )));
        }
        Next::Again
    }

    pub fn complete(self, result: io::Result<usize>) -> Completion {
        Completion { tag: self.tag, offset: self.offset, payload: self.payload, result }
    }
}

/// EINTR; EAGAIN under memory pressure; ECANCELED when the thread that submitted has ended before its operation.
fn is_transient(error: &io::Error) -> bool {
    const ECANCELED: i32 = 125;
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
        || error.raw_os_error() == Some(ECANCELED)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pool::Pool;

    fn operation(payload: Payload, direct: bool) -> Operation {
        let file = Arc::new(OpenedFile {
            file: tempfile::tempfile().unwrap().into(),
            path: "x".into(),
            direct,
            alignment: if direct { 512 } else { 1 },
        });
        Operation::new(0, &file, 4096, payload, 2000)
    }

    fn write() -> Payload {
        Payload::Write(Piece::new(Pool::new(1, 4096).unwrap().take().unwrap(), 0..2000))
    }

    fn read() -> Payload {
        Payload::Read(Pool::new(1, 4096).unwrap().take().unwrap())
    }

    fn ended(next: Next) -> Option<io::Result<usize>> {
        match next {
            Next::Again => None,
            Next::Done(result) => Some(result),
        }
    }

    #[test]
    fn a_short_write_goes_on_where_it_stopped() {
        let mut operation = operation(write(), false);
        assert!(ended(operation.advance(Ok(700))).is_none());
        assert_eq!(operation.position(), 4796);
        assert!(ended(operation.advance(Err(io::ErrorKind::Interrupted.into()))).is_none());
        assert!(ended(operation.advance(Err(io::Error::from_raw_os_error(125)))).is_none());
        assert_eq!(ended(operation.advance(Ok(1300))).unwrap().unwrap(), 2000);
    }

    #[test]
    fn a_short_direct_write_goes_on_at_a_sector() {
        let mut operation = operation(write(), true);
        assert!(ended(operation.advance(Ok(700))).is_none());
        assert_eq!(operation.position(), 4096 + 512);
    }

    #[test]
    fn a_write_without_progress_ends_with_an_error() {
        for mut operation in [operation(write(), false), operation(write(), true)] {
            let moved = if operation.file.direct { 100 } else { 0 };
            let error = (0..=FRUITLESS_MAX).find_map(|_| ended(operation.advance(Ok(moved)))).unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::WriteZero);
        }
    }

    #[test]
    fn a_read_ends_at_the_end_of_the_file() {
        let mut buffered = operation(read(), false);
        assert!(ended(buffered.advance(Ok(700))).is_none());
        assert_eq!(ended(buffered.advance(Ok(0))).unwrap().unwrap(), 700);
        let mut direct = operation(read(), true);
        assert!(ended(direct.advance(Ok(1024))).is_none());
        assert_eq!(ended(direct.advance(Ok(100))).unwrap().unwrap(), 1124);
    }

    #[test]
    fn a_kernel_that_claims_too_much_is_not_believed() {
        assert_eq!(ended(operation(read(), false).advance(Ok(usize::MAX))).unwrap().unwrap(), 2000);
    }
}
