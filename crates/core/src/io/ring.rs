//! io_uring: several reads and writes in flight from one thread.
//!
//! Invariant, on which all `unsafe` here rests: from the moment an operation's pointer is pushed into the
//! submission queue until its completion has been taken out of the completion queue, the [`Operation`] stays in
//! `slots`, where nothing touches, moves out or frees its memory. The bytes live on the heap (`Memory`), so that
//! moving the slot does not move them. Closing a ring does not wait for what is in flight, therefore `drop` does;
//! if the kernel refuses even to wait, the operations are leaked, because freed memory could still be written to.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, types};

use super::operation::{Operation, Payload};

/// Refusals in a row, a millisecond apart, before a ring that is dropped leaks its memory.
const REFUSALS_MAX: u32 = 10_000;

pub(super) struct Ring {
    uring: IoUring,
    slots: Box<[Option<Operation>]>,
    vacant: Vec<usize>,
}

impl Ring {
    /// A ring for `depth` operations.
    ///
    /// # Errors
    /// Where the kernel is too old (before 5.6) or forbids it (seccomp, `kernel.io_uring_disabled`, locked memory).
    pub fn new(depth: usize) -> io::Result<Self> {
        let entries =
            u32::try_from(depth.next_power_of_two()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        // Neither SINGLE_ISSUER nor DEFER_TASKRUN: a sink is opened in one thread and used in another.
        let uring = IoUring::builder().dontfork().build(entries)?;
        let mut probe = Probe::new();
        uring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) || !probe.is_supported(opcode::Write::CODE) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self { uring, slots: (0..depth).map(|_| None).collect(), vacant: (0..depth).collect() })
    }

    /// Submits the rest of `operation`.
    ///
    /// # Errors
    /// The ring cannot be used any more; the operation is kept, for the kernel may have it.
    pub fn start(&mut self, operation: Operation) -> io::Result<()> {
        let Some(index) = self.vacant.pop() else {
            return Err(io::Error::other("more operations than the ring has room for"));
        };
        let operation = self.slots[index].insert(operation);
        let descriptor = types::Fd(operation.file.file.as_raw_fd());
        let (position, done, length) = (operation.position(), operation.done, operation.length);
        let entry = match &mut operation.payload {
            Payload::Write(piece) => {
                let rest = Operation::unwritten(piece, done, length);
                opcode::Write::new(descriptor, rest.as_ptr(), in_kernel_units(rest.len())).offset(position).build()
            }
            Payload::Read(buffer) => {
                let rest = Operation::unread(buffer, done, length);
                opcode::Read::new(descriptor, rest.as_mut_ptr(), in_kernel_units(rest.len())).offset(position).build()
            }
        };
        let entry = entry.user_data(index as u64);
        // SAFETY: pointer and length lie inside the payload of `slots[index]`, which is initialised memory that
        // stays put until the completion is reaped (the invariant above); a read's buffer is owned by the
        // operation alone, and a write's piece is only ever read by its other owners. The descriptor stays open
        // because the operation holds the file.
        let pushed = unsafe { self.uring.submission().push(&entry) };
        if pushed.is_err() {
            // Cannot happen: there are as many entries as slots. The kernel has not seen it: its memory may return.
            self.slots[index] = None;
            self.vacant.push(index);
            return Err(io::Error::other("the submission queue is full"));
        }
        match self.uring.submit() {
            // The entry stays in the queue and is submitted by the next call.
            Err(error) if is_busy(&error) => Ok(()),
            other => other.map(drop),
        }
    }

    /// A completed operation and what the kernel says about it. Waits for one if `wait`; `None` when no operation is
    /// complete.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn reap(&mut self, wait: bool) -> io::Result<Option<(Operation, io::Result<usize>)>> {
        loop {
            if let Some(entry) = self.uring.completion().next() {
                let index = usize::try_from(entry.user_data()).unwrap_or(usize::MAX);
                let Some(operation) = self.slots.get_mut(index).and_then(Option::take) else {
                    continue; // Not ours; cannot happen.
                };
                self.vacant.push(index);
                let outcome =
                    usize::try_from(entry.result()).map_err(|_| io::Error::from_raw_os_error(-entry.result()));
                return Ok(Some((operation, outcome)));
            }
            if !wait || self.in_flight() == 0 {
                return Ok(None);
            }
            match self.uring.submit_and_wait(1) {
                Err(error) if is_busy(&error) => std::thread::yield_now(),
                other => drop(other?),
            }
        }
    }

    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut refusals = 0;
        while self.in_flight() > 0 {
            match self.reap(true) {
                Ok(_) => refusals = 0,
                Err(_) if refusals < REFUSALS_MAX => {
                    refusals += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(_) => {
                    self.slots.iter_mut().filter_map(Option::take).for_each(std::mem::forget);
                    return;
                }
            }
        }
    }
}

/// A signal came, or the kernel is short of memory or of completion entries: to be tried again.
fn is_busy(error: &io::Error) -> bool {
    const EBUSY: i32 = 16;
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
        || error.raw_os_error() == Some(EBUSY)
}

/// What is above the limit is left for the next submission, as after any short result.
fn in_kernel_units(length: usize) -> u32 {
    const LIMIT: usize = 1 << 30;
    length.min(LIMIT) as u32
}
