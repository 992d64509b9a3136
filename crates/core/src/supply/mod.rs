//! Supplies: where the bytes of one media family come from when it is read again. A new one is a file here
//! and a line in [`open`].

mod ranges;
mod file;
#[cfg(feature = "s3")]
mod object;
mod pipe;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use crate::device::{Destination, Device};
use crate::error::{Error, Result};
use crate::io::DeviceAccount;
use crate::io::Mode;
use crate::pool::{Piece, Pool};
use crate::store::Stores;

pub use file::FileSupply;
#[cfg(feature = "s3")]
pub use object::ObjectSupply;
pub use pipe::{PipeSupply, head_of_stdin};
#[cfg(any(test, feature = "testkit"))]
pub(crate) use ranges::Ranges;

/// One family, read from its start to its end, with read-ahead.
pub trait Supply: Send {
    /// The device as the user named it, for messages.
    fn device(&self) -> &str;

    /// The family's size in bytes; `None` for a pipe.
    fn size(&self) -> Option<u64>;

    /// Fills `buffer` from `offset` (random access, not part of the sequential stream); short only at the end.
    /// Only for supplies with a size.
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize>;

    /// The next bytes in sequence, up to one transfer; `None` at the end. After an error there is no more.
    fn next(&mut self) -> Result<Option<Piece>>;

    /// From now on [`next`](Self::next) gives these ranges of the family, one after the other, and then its end; no
    /// piece spans two of them. Before the first piece, or at the end. Only for supplies with a size.
    ///
    /// # Errors
    /// A pipe, or pieces that are still to come.
    fn aim(&mut self, ranges: Vec<Range<u64>>) -> Result<()>;

    /// A hint: a block of the length of a transfer begins at `offset`, and so does the next. Transfers that are not
    /// under way yet begin a whole number of transfers from there, if that is no more work.
    fn begin_at(&mut self, _offset: u64) {}

    /// What the device did.
    fn account(&self) -> DeviceAccount;
}

/// The longest range of one request to an object store, in bytes: the stores' guidance is 8 to 16 MiB.
pub const RANGE_MAX: usize = 8 << 20;

/// How an object is read with up to `depth` buffers of `transfer` bytes read ahead: buffers of a range, and ranges
/// under way. A range takes at most half of the buffers, so that a second request is under way while the first is given
/// out.
pub fn ranges(transfer: usize, depth: usize) -> (usize, usize) {
    let buffers = RANGE_MAX.div_ceil(transfer.max(1)).clamp(1, (depth / 2).max(1));
    (buffers, (depth / buffers).max(1))
}

/// A supply can be aimed elsewhere only at rest.
pub(crate) fn under_way(device: &str) -> Error {
    Error::refused(device, "a new read began before the last one ended", "")
}

/// Opens the supply of a device. One transfer is one buffer of `pool`. Up to `queue_depth` of them are read ahead,
/// while there are free ones: a supply waits for a buffer only when it holds none. The pool has `queue_depth` buffers
/// for each supply, and as many as are held elsewhere, so that supplies that share it never wait for each other for
/// ever.
///
/// # Errors
/// A usage error for `nul:`, which holds nothing, and for a directory.
pub fn open(
    device: &Device,
    pool: &Arc<Pool>,
    queue_depth: usize,
    mode: Mode,
    stores: &Stores,
) -> Result<Box<dyn Supply>> {
    let shown = device.to_string();
    match device.place() {
        Destination::File(path) => Ok(Box::new(FileSupply::open(&shown, path, pool, queue_depth, mode)?)),
        #[cfg(not(feature = "s3"))]
        Destination::Object { .. } => Err(stores.refuse(&shown)),
        #[cfg(feature = "s3")]
        Destination::Object { bucket, key } => {
            Ok(Box::new(ObjectSupply::open(&shown, bucket, key, pool, queue_depth, stores)?))
        }
        Destination::Pipe => Ok(Box::new(PipeSupply::stdin(pool)?)),
        Destination::Null => Err(Error::usage(shown, "holds nothing to read", "name the families of a backup")),
        Destination::Directory(_) | Destination::Prefix { .. } => {
            Err(Error::usage(shown, "is a directory, but a file is needed", "name the file in it"))
        }
    }
}
