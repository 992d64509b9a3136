//! A part of an object that is not full yet: first copied bytes, then pieces in the pool's buffers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use object_store::PutPayload;

use crate::pool::Piece;

/// What comes next after the parts that are under way.
#[derive(Default)]
pub(super) struct Partial {
    staged: Vec<u8>,
    pieces: Vec<Piece>,
    length: u64,
    /// Buffers that had returned to their dry pool at the last call.
    returns: Option<u64>,
    /// The memory for copies, one part long, while no part is made of it.
    home: Arc<Mutex<Option<Vec<u8>>>>,
}

/// Copied bytes on their way: the last reader returns their memory.
struct Staged {
    bytes: Vec<u8>,
    home: Arc<Mutex<Option<Vec<u8>>>>,
}

impl AsRef<[u8]> for Staged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        *lock(&self.home) = Some(bytes);
    }
}

fn lock(home: &Mutex<Option<Vec<u8>>>) -> MutexGuard<'_, Option<Vec<u8>>> {
    home.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Partial {
    /// Bytes that wait.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// True while some of them are in the pool's buffers.
    pub fn holds_buffers(&self) -> bool {
        !self.pieces.is_empty()
    }

    pub fn push(&mut self, piece: Piece) {
        if !piece.is_empty() {
            self.length += piece.len() as u64;
            self.pieces.push(piece);
        }
    }

    /// The first `length` bytes, without a copy; staged bytes are never more than these.
    pub fn take(&mut self, length: usize) -> PutPayload {
        let mut bytes = Vec::with_capacity(self.pieces.len() + 1);
        let mut left = length - self.staged.len();
        if !self.staged.is_empty() {
            let staged = Staged { bytes: std::mem::take(&mut self.staged), home: Arc::clone(&self.home) };
            bytes.push(Bytes::from_owner(staged));
        }
        let mut rest = Vec::new();
        for piece in self.pieces.drain(..) {
            let taken = piece.len().min(left);
            if taken > 0 {
                bytes.push(Bytes::from_owner(piece.slice(0..taken)));
            }
            if taken < piece.len() {
                rest.push(piece.slice(taken..piece.len()));
            }
            left -= taken;
        }
        self.pieces = rest;
        self.length -= length as u64;
        PutPayload::from_iter(bytes)
    }

    /// Copies the bytes in the pool's buffers, and returns the buffers: a thread may wait for them, and the part is not
    /// full. `part` is the greatest length of the part.
    pub fn stage(&mut self, part: usize) {
        if self.staged.is_empty() {
            self.staged = lock(&self.home).take().unwrap_or_default();
        }
        let longer = part.saturating_sub(self.staged.len());
        self.staged.reserve_exact(longer);
        for piece in self.pieces.drain(..) {
            self.staged.extend_from_slice(&piece);
        }
    }

    /// True when a thread waits for the buffers that it holds: their pool has no other, and none has returned since the
    /// last call. A buffer that another upload returns costs no copy.
    pub fn is_waited_for(&mut self) -> bool {
        let returns = self.pieces.iter().find_map(Piece::returns_of_dry_pool);
        let before = std::mem::replace(&mut self.returns, returns);
        returns.is_some() && returns == before
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    fn piece(pool: &Arc<Pool>, fill: u8) -> Piece {
        let mut buffer = pool.take().unwrap();
        buffer.fill(fill);
        Piece::new(buffer, 0..1000)
    }

    #[test]
    fn a_part_is_made_of_staged_bytes_and_pieces_and_leaves_the_rest() {
        let pool = Pool::new(3, 4096).unwrap();
        let mut partial = Partial::default();
        let mut expected = Vec::new();
        for fill in 0..3_u8 {
            expected.extend_from_slice(&[fill; 1000]);
            partial.push(piece(&pool, fill));
            if fill == 0 {
                partial.stage(2500);
                assert_eq!(pool.free(), 3);
            }
        }
        let part: Vec<u8> = partial.take(2500).iter().flat_map(|bytes| bytes.to_vec()).collect();
        assert_eq!((part.as_slice(), partial.length()), (&expected[..2500], 500));
        let rest: Vec<u8> = partial.take(500).iter().flat_map(|bytes| bytes.to_vec()).collect();
        assert_eq!(rest, expected[2500..]);
        assert_eq!(pool.free(), 3);
    }

    #[test]
    fn copies_are_made_in_the_same_memory_again() {
        let pool = Pool::new(3, 4096).unwrap();
        let mut partial = Partial::default();
        partial.push(piece(&pool, 1));
        partial.stage(2000);
        let at = partial.staged.as_ptr();
        drop(partial.take(1000));
        partial.push(piece(&pool, 2));
        partial.stage(2000);
        assert_eq!((partial.staged.as_ptr(), partial.staged.as_slice()), (at, [2; 1000].as_slice()));
    }

    #[test]
    fn buffers_are_waited_for_when_their_pool_has_no_other_and_none_comes_home() {
        let pool = Pool::new(2, 4096).unwrap();
        let mut partial = Partial::default();
        partial.push(piece(&pool, 1));
        assert!(!partial.is_waited_for());
        drop(pool.take().unwrap());
        let last = pool.take().unwrap();
        assert!(!partial.is_waited_for(), "one may come home from another upload");
        drop(last);
        let last = pool.take().unwrap();
        assert!(!partial.is_waited_for(), "one came home meanwhile");
        assert!(partial.is_waited_for());
        partial.stage(2000);
        assert!(!partial.is_waited_for() && pool.free() == 1);
        drop(last);
    }
}
