//! `-`: a family from standard input, or from any file that is read from its start to its end.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Supply;
use crate::error::{Error, Result};
use crate::io::DeviceAccount;
use crate::io::Statistics;
use crate::pool::{Piece, Pool};

/// A supply without a size, read once.
pub struct PipeSupply {
    device: String,
    file: File,
    pool: Arc<Pool>,
    position: u64,
    ended: bool,
    failed: bool,
    statistics: Statistics,
}

impl PipeSupply {
    /// Standard input.
    ///
    /// # Errors
    /// A usage error when it is a terminal.
    pub fn stdin(pool: &Arc<Pool>) -> Result<Self> {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            return Err(Error::usage(
                "--from -",
                "standard input is a terminal",
                "send a family to it: … | fullbore restore --from -",
            ));
        }
        let owned = stdin.as_fd().try_clone_to_owned().map_err(|error| Error::io("open", "standard input", error))?;
        Ok(Self::new("-", File::from(owned), pool))
    }

    /// Any file; `device` is its name in messages.
    pub fn new(device: impl Into<String>, file: File, pool: &Arc<Pool>) -> Self {
        let (device, pool) = (device.into(), Arc::clone(pool));
        Self { device, file, pool, position: 0, ended: false, failed: false, statistics: Statistics::default() }
    }

    fn in_order_only(&self, offset: u64) -> Error {
        let why = format!("cannot read at byte {offset}: a pipe is read only from its start to its end");
        Error::usage(&self.device, why, "store the family in a file, and name the file with --from")
    }

    /// Fills `buffer`; short only at the end. A pipe gives 64 KiB at a time, and blocks want whole transfers.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut got = 0;
        while got < buffer.len() {
            // The writer may be silent for ever, so no read may block: the job could not be stopped.
            if self.pool.is_closed() {
                return Err(Error::Halted);
            }
            match bytes_wait(&self.file)
                .and_then(|wait| if wait { self.file.read(&mut buffer[got..]).map(Some) } else { Ok(None) })
            {
                Ok(None) => {}
                Ok(Some(0)) => break,
                Ok(Some(more)) => got += more,
                Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => {
                    return Err(Error::io(
                        format!("read at byte {} of", self.position + got as u64),
                        &self.device,
                        error,
                    ));
                }
            }
        }
        Ok(got)
    }
}

/// True once there is something to read, or the end; false when there was nothing for a while.
fn bytes_wait(file: &File) -> io::Result<bool> {
    let patience = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&patience)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl Supply for PipeSupply {
    fn device(&self) -> &str {
        &self.device
    }

    fn size(&self) -> Option<u64> {
        None
    }

    fn read_at(&mut self, offset: u64, _buffer: &mut [u8]) -> Result<usize> {
        Err(self.in_order_only(offset))
    }

    fn aim(&mut self, ranges: Vec<Range<u64>>) -> Result<()> {
        Err(self.in_order_only(ranges.first().map_or(0, |range| range.start)))
    }

    fn next(&mut self) -> Result<Option<Piece>> {
        if self.failed {
            return Err(Error::refused(&self.device, "an earlier read of this family failed", ""));
        }
        if self.ended {
            return Ok(None);
        }
        let mut buffer = self.pool.take()?;
        let started = Instant::now();
        let filled = self.fill(&mut buffer);
        let got = filled.inspect_err(|_| self.failed = true)?;
        self.ended = got < buffer.len();
        if got == 0 {
            return Ok(None);
        }
        self.position += got as u64;
        self.statistics.operations += 1;
        self.statistics.queue_depth_sum += 1;
        self.statistics.bytes += got as u64;
        self.statistics.latency.record(started.elapsed());
        Ok(Some(Piece::new(buffer, 0..got)))
    }

    fn account(&self) -> DeviceAccount {
        DeviceAccount::new(&self.device, &self.statistics, false)
    }
}
