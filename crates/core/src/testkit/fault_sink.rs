//! A sink that fails as planned, around any other.

use std::io;
use std::thread::sleep;

use super::{Fault, FaultPlan};
use crate::error::{Error, Result};
use crate::pool::{Piece, Pool};
use crate::sink::{DeviceAccount, Sink};

/// A sink with the faults that the plan has for its family. Once the plan is dead, every call fails, and neither
/// `abandon` nor `drop` cleans anything up.
pub struct FaultSink {
    inner: Box<dyn Sink>,
    plan: FaultPlan,
    family: usize,
}

impl FaultSink {
    /// `inner`, as family `family` of the plan. For faults at steps give the inner sink [`FaultPlan::hook`].
    pub fn new(inner: Box<dyn Sink>, plan: &FaultPlan, family: usize) -> Self {
        Self { inner, plan: plan.clone(), family }
    }

    fn dead(&self) -> Error {
        Error::io("reach", self.inner.device(), io::Error::other("killed by the fault plan"))
    }

    fn failed(&self, number: i32) -> Error {
        Error::io("write to", self.inner.device(), io::Error::from_raw_os_error(number))
    }

    fn die(&mut self) -> Error {
        self.plan.kill();
        self.inner.die();
        self.dead()
    }

    /// What happens to the next operation before it begins.
    fn begin(&mut self) -> Result<()> {
        if self.plan.is_dead() {
            return Err(self.die());
        }
        let now = self.plan.count(self.family);
        if let Some(Fault::Delay(_, time)) =
            self.plan.fire(self.family, |fault| matches!(fault, Fault::Delay(at, _) if *at == now))
        {
            sleep(time);
        }
        let hits = |fault: &Fault| matches!(fault, Fault::Kill(at) | Fault::ErrorAtOperation(at, _) if *at == now);
        match self.plan.fire(self.family, hits) {
            Some(Fault::ErrorAtOperation(_, number)) => Err(self.failed(number)),
            Some(_) => Err(self.die()),
            None => Ok(()),
        }
    }

    /// A step inside the inner sink may have killed the process.
    fn end(&mut self, result: Result<()>) -> Result<()> {
        if self.plan.is_dead() { Err(self.die()) } else { result }
    }

    /// Writes the bytes before `end` and says how the rest failed.
    fn partly(&mut self, offset: u64, piece: &Piece, end: u64, fault: Fault) -> Result<()> {
        let length = usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).min(piece.len());
        if length > 0 {
            self.inner.write(offset, piece.slice(0..length))?;
            self.inner.settle(0)?;
        }
        match fault {
            Fault::TornWrite(_) => Err(self.die()),
            Fault::NoSpaceAfter(_) => Err(self.failed(28)),
            _ => Err(self.failed(5)),
        }
    }

    /// The piece with its planned bits flipped: in memory of its own, for others may read the piece too.
    fn flipped(&self, offset: u64, piece: Piece) -> Result<Piece> {
        let flips = self.plan.flips(self.family, offset, piece.len() as u64);
        if flips.is_empty() {
            return Ok(piece);
        }
        let mut buffer = Pool::new(1, piece.len())?.take()?;
        buffer.copy_from_slice(&piece);
        for (byte, bit) in flips {
            buffer[byte as usize] ^= 1 << bit;
        }
        Ok(Piece::new(buffer, 0..piece.len()))
    }
}

impl Sink for FaultSink {
    fn device(&self) -> &str {
        self.inner.device()
    }

    fn write(&mut self, offset: u64, piece: Piece) -> Result<()> {
        self.begin()?;
        let end = offset + piece.len() as u64;
        let inside = |byte: u64| (offset..end).contains(&byte);
        let hits = |fault: &Fault| match *fault {
            Fault::ErrorAtByte(byte, _) | Fault::ShortWrite(byte) | Fault::TornWrite(byte) => inside(byte),
            Fault::NoSpaceAfter(bytes) => end > bytes,
            _ => false,
        };
        let piece = self.flipped(offset, piece)?;
        match self.plan.fire(self.family, hits) {
            None => self.inner.write(offset, piece),
            Some(Fault::ErrorAtByte(_, number)) => Err(self.failed(number)),
            Some(fault @ (Fault::ShortWrite(byte) | Fault::TornWrite(byte) | Fault::NoSpaceAfter(byte))) => {
                self.partly(offset, &piece, byte, fault)
            }
            Some(_) => Err(self.failed(5)),
        }
    }

    fn settle(&mut self, in_flight: usize) -> Result<()> {
        if self.plan.is_dead() {
            return Err(self.die());
        }
        self.inner.settle(in_flight)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn secure(&mut self) -> Result<()> {
        self.begin()?;
        let secured = self.inner.secure();
        self.end(secured)
    }

    fn sync(&mut self) -> Result<()> {
        self.begin()?;
        let synced = self.inner.sync();
        self.end(synced)
    }

    fn publish(&mut self) -> Result<()> {
        self.begin()?;
        let published = self.inner.publish();
        self.end(published)
    }

    fn retire(&mut self) -> Result<()> {
        self.begin()?;
        let retired = self.inner.retire();
        self.end(retired)
    }

    fn abandon(&mut self) {
        if self.plan.is_dead() {
            self.inner.die();
        } else {
            self.inner.abandon();
        }
    }

    fn account(&self) -> DeviceAccount {
        self.inner.account()
    }

    fn die(&mut self) {
        self.inner.die();
    }
}

impl Drop for FaultSink {
    fn drop(&mut self) {
        if self.plan.is_dead() {
            self.inner.die();
        }
    }
}
