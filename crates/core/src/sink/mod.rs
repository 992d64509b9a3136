//! Sinks: where one media family goes. A new one is a file here and a line in [`open`].

use crate::error::Result;
use crate::pool::Piece;

/// An append-only home for one family.
///
/// Order of calls: `write`* → `sync` → `publish` → `retire`; or `abandon` at any time before `publish`.
pub trait Sink: Send {
    /// The device as the user named it, for messages.
    fn device(&self) -> &str;

    /// Queues `piece` at `offset` (bytes from the start of the family; each call follows the one before). May
    /// return before the bytes are on the device; an error may belong to an earlier piece.
    fn write(&mut self, offset: u64, piece: Piece) -> Result<()>;

    /// Waits until at most `in_flight` writes are under way: 0 waits for all. Gives their buffers home.
    fn settle(&mut self, in_flight: usize) -> Result<()>;

    /// Writes under way now.
    fn in_flight(&self) -> usize;

    /// Returns when every byte is durable, under whatever name the device has so far.
    fn sync(&mut self) -> Result<()>;

    /// Gives the family its final name, durably. What stood there before is kept until [`retire`](Sink::retire).
    fn publish(&mut self) -> Result<()>;

    /// Removes what the family replaced (`--init`); the whole set has been published by now.
    fn retire(&mut self) -> Result<()>;

    /// Removes everything this sink has made, as far as it can.
    fn abandon(&mut self);

    /// What the device did.
    fn account(&self) -> DeviceAccount;
}

/// What one device did, for the report.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceAccount {
    /// Directory or store.
    pub directory: String,
    /// Operations done.
    pub operations: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Sum over operations of the number in flight when each was queued.
    pub queue_depth_sum: u64,
    /// 99th percentile of the time from queueing to completion, in microseconds.
    pub p99_us: u64,
    /// Direct I/O (past the page cache).
    pub direct: bool,
}
