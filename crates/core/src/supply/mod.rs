//! Supplies: where the bytes of one media family come from when it is read again. A new one is a file here
//! and a line in [`open`].

use crate::error::Result;
use crate::pool::Piece;
use crate::sink::DeviceAccount;

/// One family, read from its start to its end, with read-ahead.
pub trait Supply: Send {
    /// The device as the user named it, for messages.
    fn device(&self) -> &str;

    /// The family's size in bytes; `None` for a pipe.
    fn size(&self) -> Option<u64>;

    /// Fills `buffer` from `offset` (random access, not part of the sequential stream); short only at the end.
    /// Only for supplies with a size.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// The next bytes in sequence, up to one transfer; `None` at the end.
    fn next(&mut self) -> Result<Option<Piece>>;

    /// What the device did.
    fn account(&self) -> DeviceAccount;
}
