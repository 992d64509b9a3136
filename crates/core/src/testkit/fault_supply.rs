//! A supply that fails as planned, around any other.

use std::io;
use std::ops::Range;
use std::thread::sleep;

use super::{Fault, FaultPlan};
use crate::error::{Error, Result};
use crate::pool::Piece;
use crate::sink::DeviceAccount;
use crate::supply::{Ranges, Supply};

/// A supply with the faults that the plan has for its family: errors, delays, flipped bits, an early end, death.
pub struct FaultSupply {
    inner: Box<dyn Supply>,
    plan: FaultPlan,
    family: usize,
    course: Ranges,
}

impl FaultSupply {
    /// `inner`, as family `family` of the plan.
    pub fn new(inner: Box<dyn Supply>, plan: &FaultPlan, family: usize) -> Self {
        let course = Ranges::whole(inner.size().unwrap_or(u64::MAX));
        Self { inner, plan: plan.clone(), family, course }
    }

    fn error(&self, source: io::Error) -> Error {
        Error::io("read from", self.inner.device(), source)
    }

    fn begin(&self) -> Result<()> {
        let now = self.plan.count(self.family);
        if let Some(Fault::Delay(_, time)) =
            self.plan.fire(self.family, |fault| matches!(fault, Fault::Delay(at, _) if *at == now))
        {
            sleep(time);
        }
        let hits = |fault: &Fault| matches!(fault, Fault::Kill(at) | Fault::ErrorAtOperation(at, _) if *at == now);
        match self.plan.fire(self.family, hits) {
            Some(Fault::ErrorAtOperation(_, number)) => return Err(self.error(io::Error::from_raw_os_error(number))),
            Some(_) => self.plan.kill(),
            None => {}
        }
        if self.plan.is_dead() { Err(self.error(io::Error::other("killed by the fault plan"))) } else { Ok(()) }
    }

    fn check_bytes(&self, offset: u64, length: usize) -> Result<()> {
        let inside = |byte: u64| byte >= offset && byte - offset < length as u64;
        match self.plan.fire(self.family, |fault| matches!(fault, Fault::ErrorAtByte(byte, _) if inside(*byte))) {
            Some(Fault::ErrorAtByte(_, number)) => Err(self.error(io::Error::from_raw_os_error(number))),
            _ => Ok(()),
        }
    }

    /// How many of `length` bytes from `offset` there are before the planned end.
    fn before_end(&self, offset: u64, length: usize) -> usize {
        let reaches = |fault: &Fault| matches!(fault, Fault::EndsAt(end) if offset + length as u64 > *end);
        match self.plan.fire(self.family, reaches) {
            Some(Fault::EndsAt(end)) => usize::try_from(end.saturating_sub(offset)).unwrap_or(usize::MAX).min(length),
            _ => length,
        }
    }

    fn flip(&self, offset: u64, bytes: &mut [u8]) {
        for (byte, bit) in self.plan.flips(self.family, offset, bytes.len() as u64) {
            bytes[byte as usize] ^= 1 << bit;
        }
    }
}

impl Supply for FaultSupply {
    fn device(&self) -> &str {
        self.inner.device()
    }

    fn size(&self) -> Option<u64> {
        let size = self.inner.size()?;
        match self.plan.fire(self.family, |fault| matches!(fault, Fault::EndsAt(end) if *end < size)) {
            Some(Fault::EndsAt(end)) => Some(end),
            _ => Some(size),
        }
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.begin()?;
        let got = self.inner.read_at(offset, buffer)?;
        self.check_bytes(offset, got)?;
        let got = self.before_end(offset, got);
        self.flip(offset, &mut buffer[..got]);
        Ok(got)
    }

    fn next(&mut self) -> Result<Option<Piece>> {
        self.begin()?;
        let Some(piece) = self.inner.next()? else { return Ok(None) };
        let offset = self.course.now().map_or(0, |range| range.start);
        self.check_bytes(offset, piece.len())?;
        let length = self.before_end(offset, piece.len());
        if length == 0 {
            return Ok(None);
        }
        self.course.pass(length as u64);
        let whole = piece;
        let piece = whole.slice(0..length);
        drop(whole);
        if self.plan.flips(self.family, offset, length as u64).is_empty() {
            return Ok(Some(piece));
        }
        // A supply gives pieces that begin their buffer; whole ones can be changed in place.
        let mut buffer =
            piece.into_buffer().ok_or_else(|| self.error(io::Error::other("the supply kept a piece it gave out")))?;
        self.flip(offset, &mut buffer[..length]);
        Ok(Some(Piece::new(buffer, 0..length)))
    }

    fn aim(&mut self, ranges: Vec<Range<u64>>) -> Result<()> {
        self.inner.aim(ranges.clone())?;
        self.course = Ranges::of(ranges);
        Ok(())
    }

    fn account(&self) -> DeviceAccount {
        self.inner.account()
    }
}
