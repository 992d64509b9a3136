//! Devices in memory, for simulation and fuzzing: fast, and with the commit rule of real ones.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::pool::{Piece, Pool};
use crate::sink::{DeviceAccount, Sink, out_of_order};
use crate::supply::{Ranges, Supply};

/// Where a published family is, and stays after a kill. Empty: no family is there.
pub type Shelf = Arc<Mutex<Vec<u8>>>;

/// A family in memory: on the shelf once it is published.
pub struct MemorySink {
    device: String,
    shelf: Shelf,
    written: Vec<u8>,
    operations: u64,
    bytes: u64,
    init: bool,
    replaced: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Written,
    Synced,
    Published,
    Ended,
}

impl MemorySink {
    /// A sink that will put its family on `shelf`; with `init` also over another one.
    pub fn new(device: impl Into<String>, shelf: &Shelf, init: bool) -> Self {
        Self {
            device: device.into(),
            shelf: Arc::clone(shelf),
            written: Vec::new(),
            operations: 0,
            bytes: 0,
            init,
            replaced: Vec::new(),
            state: State::Written,
        }
    }

    fn shelf(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expect(&self, state: State, action: &str) -> Result<()> {
        if self.state == state {
            Ok(())
        } else {
            Err(out_of_order(&self.device, format_args!("{action} out of order")))
        }
    }
}

impl Sink for MemorySink {
    fn device(&self) -> &str {
        &self.device
    }

    fn write(&mut self, offset: u64, piece: Piece) -> Result<()> {
        self.expect(State::Written, "a write")?;
        if offset != self.bytes {
            self.state = State::Ended;
            return Err(out_of_order(&self.device, "a write does not follow the one before"));
        }
        self.written.extend_from_slice(&piece);
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
        self.expect(State::Written, "a sync")?;
        self.state = State::Synced;
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        self.expect(State::Synced, "a publication")?;
        let written = std::mem::take(&mut self.written);
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        if !shelf.is_empty() && !self.init {
            return Err(Error::refused(&self.device, "exists already", "give --init to replace it"));
        }
        self.replaced = std::mem::replace(&mut *shelf, written);
        drop(shelf);
        self.state = State::Published;
        Ok(())
    }

    fn retire(&mut self) -> Result<()> {
        self.expect(State::Published, "a retirement")?;
        self.replaced = Vec::new();
        self.state = State::Ended;
        Ok(())
    }

    fn abandon(&mut self) {
        if self.state == State::Published {
            let replaced = std::mem::take(&mut self.replaced);
            *self.shelf() = replaced;
        }
        self.state = State::Ended;
    }

    fn account(&self) -> DeviceAccount {
        let (operations, bytes) = (self.operations, self.bytes);
        DeviceAccount {
            directory: "memory".into(),
            operations,
            bytes,
            queue_depth_sum: operations,
            ..DeviceAccount::default()
        }
    }

    fn die(&mut self) {
        self.state = State::Ended;
    }
}

/// The content of a shelf when it is opened.
pub struct MemorySupply {
    device: String,
    bytes: Vec<u8>,
    pool: Arc<Pool>,
    course: Ranges,
    given: u64,
    operations: u64,
}

impl MemorySupply {
    /// A supply of the bytes on `shelf` now, in buffers of `pool`.
    pub fn new(device: impl Into<String>, shelf: &Shelf, pool: &Arc<Pool>) -> Self {
        let bytes = shelf.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let course = Ranges::whole(bytes.len() as u64);
        Self { device: device.into(), bytes, pool: Arc::clone(pool), course, given: 0, operations: 0 }
    }
}

impl Supply for MemorySupply {
    fn device(&self) -> &str {
        &self.device
    }

    fn size(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.bytes.len());
        let got = buffer.len().min(self.bytes.len() - start);
        buffer[..got].copy_from_slice(&self.bytes[start..start + got]);
        Ok(got)
    }

    fn next(&mut self) -> Result<Option<Piece>> {
        let Some(range) = self.course.now() else { return Ok(None) };
        let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.bytes.len());
        let rest = &self.bytes[within(range.start)..within(range.end)];
        if rest.is_empty() {
            return Ok(None);
        }
        let mut buffer = self.pool.take()?;
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.course.pass(length as u64);
        self.given += length as u64;
        self.operations += 1;
        Ok(Some(Piece::new(buffer, 0..length)))
    }

    fn aim(&mut self, ranges: Vec<Range<u64>>) -> Result<()> {
        self.course = Ranges::of(ranges);
        Ok(())
    }

    fn account(&self) -> DeviceAccount {
        let (operations, bytes) = (self.operations, self.given);
        DeviceAccount {
            directory: "memory".into(),
            operations,
            bytes,
            queue_depth_sum: operations,
            ..DeviceAccount::default()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testkit::{sink_conforms, supply_conforms};
    use std::cell::RefCell;
    use std::collections::HashMap;

    #[test]
    fn devices_in_memory_conform() {
        let shelves: RefCell<HashMap<String, Shelf>> = RefCell::default();
        let shelf = |name: &str| Arc::clone(shelves.borrow_mut().entry(name.to_owned()).or_default());
        sink_conforms(
            |name| Ok(Box::new(MemorySink::new(name, &shelf(name), false))),
            Some(|name: &str| shelf(name).lock().unwrap().clone()),
        );
        supply_conforms(|bytes, pool| {
            Box::new(MemorySupply::new("memory", &Arc::new(Mutex::new(bytes.to_vec())), pool))
        });
    }
}
