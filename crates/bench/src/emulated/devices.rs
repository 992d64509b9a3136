//! Devices on an emulated volume: each transfer passes the volume first.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::Volume;
use fullbore_core::Result;
use fullbore_core::halt::Halt;
use fullbore_core::meter::Clock;
use fullbore_core::pool::Piece;
use fullbore_core::sink::{DeviceAccount, Sink};
use fullbore_core::supply::Supply;
use fullbore_core::unpack::{BlockTaker, CheckedBlock, Target};

/// A sink on a volume: the sink gets a write when the volume would have done it. The write holds its buffer until then,
/// as on a device.
pub struct PacedSink {
    sink: Box<dyn Sink>,
    volume: Arc<Volume>,
    queue_depth: usize,
    /// Writes that the volume has not done yet: when it will, and the write for the sink.
    under_way: VecDeque<(Duration, u64, Piece)>,
    /// Sum over writes of the number under way when each was begun: the queue of the volume, not of the device below.
    queue_depth_sum: u64,
    halt: Halt,
}

impl PacedSink {
    /// `sink` on `volume`, with up to `queue_depth` writes under way, until `halt` stops the job.
    pub fn new(sink: Box<dyn Sink>, volume: Arc<Volume>, queue_depth: usize, halt: Halt) -> Self {
        let under_way = VecDeque::with_capacity(queue_depth);
        Self { sink, volume, queue_depth: queue_depth.max(1), under_way, queue_depth_sum: 0, halt }
    }

    /// Hands on writes, in order, until at most so many are under way.
    fn wait_until(&mut self, left: usize) -> Result<()> {
        while self.under_way.len() > left {
            let Some((over, offset, piece)) = self.under_way.pop_front() else { return Ok(()) };
            self.volume.wait(over, &self.halt)?;
            self.sink.write(offset, piece)?;
        }
        Ok(())
    }
}

impl Sink for PacedSink {
    fn device(&self) -> &str {
        self.sink.device()
    }

    fn write(&mut self, offset: u64, piece: Piece) -> Result<()> {
        self.wait_until(self.queue_depth - 1)?;
        let over = self.volume.begin(piece.len() as u64, self.volume.promise.latency);
        self.under_way.push_back((over, offset, piece));
        self.queue_depth_sum += self.under_way.len() as u64;
        Ok(())
    }

    fn settle(&mut self, in_flight: usize) -> Result<()> {
        self.wait_until(in_flight)?;
        self.sink.settle(in_flight - self.under_way.len())
    }

    fn in_flight(&self) -> usize {
        self.under_way.len() + self.sink.in_flight()
    }

    fn leisure(&self) -> Duration {
        self.sink.leisure()
    }

    fn in_a_row(&self) -> u64 {
        self.sink.in_a_row()
    }

    fn ease(&mut self) -> Result<()> {
        if self.under_way.is_empty() {
            return self.sink.ease();
        }
        self.wait_until(self.under_way.len() - 1)?;
        self.sink.settle(0)
    }

    fn secure(&mut self) -> Result<()> {
        self.wait_until(0)?;
        self.sink.secure()
    }

    fn sync(&mut self) -> Result<()> {
        self.wait_until(0)?;
        self.sink.sync()
    }

    fn publish(&mut self) -> Result<()> {
        self.sink.publish()
    }

    fn retire(&mut self) -> Result<()> {
        self.sink.retire()
    }

    fn abandon(&mut self) {
        self.under_way.clear();
        self.sink.abandon();
    }

    fn account(&self) -> DeviceAccount {
        DeviceAccount { queue_depth_sum: self.queue_depth_sum, ..self.sink.account() }
    }

    fn mirrors(&self) -> Vec<(&str, DeviceAccount)> {
        self.sink.mirrors()
    }
}

/// A supply on a volume.
pub struct PacedSupply {
    supply: Box<dyn Supply>,
    volume: Arc<Volume>,
    queue_depth: usize,
    halt: Halt,
}

impl PacedSupply {
    /// `supply` on `volume`, with up to `queue_depth` reads ahead, until `halt` stops the job.
    pub fn new(supply: Box<dyn Supply>, volume: Arc<Volume>, queue_depth: usize, halt: Halt) -> Self {
        Self { supply, volume, queue_depth, halt }
    }
}

impl Supply for PacedSupply {
    fn device(&self) -> &str {
        self.supply.device()
    }

    fn size(&self) -> Option<u64> {
        self.supply.size()
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let read = self.supply.read_at(offset, buffer)?;
        self.volume.pass(read as u64, 1, &self.halt)?;
        Ok(read)
    }

    fn next(&mut self) -> Result<Option<Piece>> {
        let piece = self.supply.next()?;
        if let Some(piece) = &piece {
            self.volume.pass(piece.len() as u64, self.queue_depth, &self.halt)?;
        }
        Ok(piece)
    }

    fn aim(&mut self, ranges: Vec<Range<u64>>) -> Result<()> {
        self.supply.aim(ranges)
    }

    fn begin_at(&mut self, offset: u64) {
        self.supply.begin_at(offset);
    }

    fn account(&self) -> DeviceAccount {
        self.supply.account()
    }
}

/// A target whose writers share a volume.
pub struct PacedTarget<'a> {
    target: &'a dyn Target,
    volume: Arc<Volume>,
    halt: Halt,
}

impl<'a> PacedTarget<'a> {
    /// `target` on `volume`, until `halt` stops the job.
    pub fn new(target: &'a dyn Target, volume: Arc<Volume>, halt: Halt) -> Self {
        Self { target, volume, halt }
    }
}

impl Target for PacedTarget<'_> {
    fn discards(&self) -> bool {
        self.target.discards()
    }

    fn checks_maps(&self) -> bool {
        self.target.checks_maps()
    }

    fn blocks(&self) -> Result<Option<Box<dyn BlockTaker + '_>>> {
        let Some(taker) = self.target.blocks()? else { return Ok(None) };
        Ok(Some(Box::new(PacedTaker { taker, volume: &self.volume, halt: &self.halt })))
    }

    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        self.volume.pass(bytes.len() as u64, 1, &self.halt)?;
        self.target.write(stream, offset, bytes)
    }

    fn zero(&self, stream: u32, offset: u64, length: u64) -> Result<()> {
        self.target.zero(stream, offset, length) // A hole costs a volume nothing.
    }
}

struct PacedTaker<'a> {
    taker: Box<dyn BlockTaker + 'a>,
    volume: &'a Volume,
    halt: &'a Halt,
}

impl BlockTaker for PacedTaker<'_> {
    fn take(&mut self, block: &CheckedBlock<'_>, clock: &mut Clock) -> Result<()> {
        self.volume.pass(block.plain.len() as u64, 1, self.halt)?;
        self.taker.take(block, clock)
    }
}
