//! The bytes of a supply, cut at the borders of blocks instead of those of transfers.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::pool::{Piece, Pool};
use crate::supply::Supply;

/// A family on its way from its supply, and the position in it.
pub(super) struct Pieces<'a> {
    supply: &'a mut dyn Supply,
    pool: &'a Arc<Pool>,
    pieces: VecDeque<Piece>,
    /// Where the next byte is in the family.
    pub position: u64,
}

impl<'a> Pieces<'a> {
    /// The next bytes of `supply` are at `position`, after `ahead`, which was read already. Blocks that are in two
    /// transfers are put together in buffers of `pool`.
    pub fn new(supply: &'a mut dyn Supply, pool: &'a Arc<Pool>, ahead: VecDeque<Piece>, position: u64) -> Self {
        Self { supply, pool, pieces: ahead, position }
    }

    /// The supply's device.
    pub fn device(&self) -> &str {
        self.supply.device()
    }

    /// Bytes in one transfer.
    pub fn transfer(&self) -> usize {
        self.pool.size()
    }

    fn damaged(&self, offset: u64, what: &str) -> Error {
        Error::damaged(self.supply.device(), offset, what)
    }

    /// Fills `bytes` with what comes next, without taking it.
    pub fn peek(&mut self, bytes: &mut [u8]) -> Result<()> {
        let mut filled = 0;
        let mut at = 0;
        while filled < bytes.len() {
            while at >= self.pieces.len() {
                let Some(piece) = self.supply.next()? else {
                    return Err(self.damaged(self.position + filled as u64, "the family ends inside a block"));
                };
                self.pieces.push_back(piece);
            }
            let piece = &self.pieces[at];
            let count = piece.len().min(bytes.len() - filled);
            bytes[filled..filled + count].copy_from_slice(&piece[..count]);
            filled += count;
            at += 1;
        }
        Ok(())
    }

    /// The next bytes, as many as there are in one piece.
    pub fn next(&mut self) -> Result<Option<Piece>> {
        match self.pieces.pop_front() {
            Some(piece) => Ok(Some(piece)),
            None => self.supply.next(),
        }
    }

    /// The next `length` bytes in one piece: without a copy when they lie in one transfer.
    pub fn take(&mut self, length: usize) -> Result<Piece> {
        let Some(first) = self.next()? else { return Err(self.damaged(self.position, "the family ends here")) };
        if first.len() >= length {
            let taken = first.slice(0..length);
            if first.len() > length {
                self.pieces.push_front(first.slice(length..first.len()));
            }
            self.position += length as u64;
            return Ok(taken);
        }
        let mut buffer = self.pool.take()?;
        let mut filled = 0;
        let mut piece = Some(first);
        while filled < length {
            let Some(source) = piece.take() else {
                return Err(self.damaged(self.position + filled as u64, "the family ends inside a block"));
            };
            let count = source.len().min(length - filled);
            buffer[filled..filled + count].copy_from_slice(&source[..count]);
            filled += count;
            if count < source.len() {
                self.pieces.push_front(source.slice(count..source.len()));
            }
            drop(source);
            if filled < length {
                piece = self.next()?;
            }
        }
        self.position += length as u64;
        if length == self.transfer() {
            // Blocks that are not packed all have this length: the next ones need no copy if transfers begin with them.
            self.supply.begin_at(self.position);
        }
        Ok(Piece::new(buffer, 0..length))
    }
}
