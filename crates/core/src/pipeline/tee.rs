//! Between a family that is copied and its reader: it sees the bytes pass, in order.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crossbeam_channel::Sender;

use super::read::Throttle;
use super::stripe::{DeviceWork, secured};
use super::writing::Ways;
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::meter::Progress;
use crate::pool::{self, Piece};
use crate::sink::DeviceAccount;
use crate::supply::Supply;
use crate::unpack::MediaSet;

/// The way of a family's bytes to the device of its copy. Bytes from `held_from` on, the footer, are held back.
pub(super) struct ToWriter {
    queue: Mutex<Option<Sender<DeviceWork>>>,
    load: Arc<AtomicU64>,
    held_from: u64,
    held: Mutex<Vec<(u64, Piece)>>,
}

impl ToWriter {
    /// To the reader of `queue`; `load` counts what it has not taken yet.
    pub fn new(queue: Sender<DeviceWork>, load: Arc<AtomicU64>, held_from: u64) -> Self {
        Self { queue: Mutex::new(Some(queue)), load, held_from, held: Mutex::default() }
    }

    fn pass(&self, offset: u64, piece: &Piece) -> Result<()> {
        let now = self.held_from.saturating_sub(offset).min(piece.len() as u64) as usize;
        if now > 0 {
            self.send(offset, piece.slice(0..now))?;
        }
        if now < piece.len() {
            lock(&self.held).push((offset + now as u64, piece.slice(now..piece.len())));
        }
        Ok(())
    }

    /// Sends what was held back.
    pub fn send_held(&self) -> Result<()> {
        let held = std::mem::take(&mut *lock(&self.held));
        held.into_iter().try_for_each(|(offset, piece)| self.send(offset, piece))
    }

    fn send(&self, offset: u64, piece: Piece) -> Result<()> {
        self.load.fetch_add(piece.len() as u64, Ordering::Relaxed);
        let queue = lock(&self.queue);
        queue.as_ref().and_then(|queue| queue.send(DeviceWork::Write { offset, piece }).ok()).ok_or(Error::Halted)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ways for Vec<Arc<ToWriter>> {
    fn secure(&self, family: u16) -> Result<()> {
        let queue = lock(&self[usize::from(family) - 1].queue).clone();
        secured(queue.as_ref())
    }

    fn close_family(&self, family: u16) {
        *lock(&self[usize::from(family) - 1].queue) = None;
    }

    fn close(&self) {
        for way in self {
            *lock(&way.queue) = None;
            lock(&way.held).clear();
        }
    }
}

/// Reads the families of `set` with at most this many bytes per second, all of them together.
pub fn throttle(set: &mut MediaSet, bytes_per_second: u64, halt: &Halt) {
    let throttle = Arc::new(Throttle::new(bytes_per_second));
    set.listen(|supply| {
        let (throttle, halt) = (Some(Arc::clone(&throttle)), halt.clone());
        Box::new(Tee { supply, way: None, throttle, progress: None, halt, position: 0 })
    });
}

/// A supply that is copied from.
pub(super) struct Tee {
    pub supply: Box<dyn Supply>,
    /// Where its bytes go as they are; nowhere for a copy on new media.
    pub way: Option<Arc<ToWriter>>,
    pub throttle: Option<Arc<Throttle>>,
    /// Counts what passes.
    pub progress: Option<Arc<Progress>>,
    pub halt: Halt,
    pub position: u64,
}

impl Supply for Tee {
    fn device(&self) -> &str {
        self.supply.device()
    }

    fn size(&self) -> Option<u64> {
        self.supply.size()
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.supply.read_at(offset, buffer)
    }

    fn next(&mut self) -> Result<Option<Piece>> {
        if let Some(throttle) = &self.throttle {
            let begun = Instant::now();
            throttle.wait(&self.halt)?;
            // The reader of this family keeps the account of its device, and this was not its work.
            pool::waited_besides(begun.elapsed());
        }
        let Some(piece) = self.supply.next()? else { return Ok(None) };
        let length = piece.len() as u64;
        if let Some(throttle) = &self.throttle {
            throttle.pass(length);
        }
        if let Some(way) = &self.way {
            way.pass(self.position, &piece)?;
        }
        if let Some(progress) = &self.progress {
            progress.advance(length);
        }
        self.position += length;
        Ok(Some(piece))
    }

    fn aim(&mut self, ranges: Vec<Range<u64>>) -> Result<()> {
        match self.way {
            None => self.supply.aim(ranges),
            Some(_) => Err(Error::refused(self.supply.device(), "a copy reads all of a family, in order", "")),
        }
    }

    fn begin_at(&mut self, offset: u64) {
        self.supply.begin_at(offset);
    }

    fn account(&self) -> DeviceAccount {
        self.supply.account()
    }
}
