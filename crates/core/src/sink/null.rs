//! `nul:`: takes everything and keeps nothing, to measure all that comes before a device.

use super::{DeviceAccount, Sink, out_of_order};
use crate::error::Result;
use crate::pool::Piece;

/// A sink that only counts.
#[derive(Debug, Default)]
pub struct NullSink {
    operations: u64,
    bytes: u64,
}

impl NullSink {
    /// A sink with nothing in it, for ever.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Sink for NullSink {
    fn device(&self) -> &str {
        "nul:"
    }

    fn write(&mut self, offset: u64, piece: Piece) -> Result<()> {
        if offset != self.bytes {
            return Err(out_of_order(
                "nul:",
                format_args!("a write at {offset} came after one that ended at {}", self.bytes),
            ));
        }
        self.operations += 1;
        self.bytes += piece.len() as u64;
        Ok(())
    }

    fn settle(&mut self, _in_flight: usize) -> Result<()> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        Ok(())
    }

    fn retire(&mut self) -> Result<()> {
        Ok(())
    }

    fn abandon(&mut self) {}

    fn account(&self) -> DeviceAccount {
        DeviceAccount {
            directory: "nul:".into(),
            operations: self.operations,
            bytes: self.bytes,
            queue_depth_sum: self.operations,
            ..DeviceAccount::default()
        }
    }

    #[cfg(any(test, feature = "testkit"))]
    fn die(&mut self) {}
}
