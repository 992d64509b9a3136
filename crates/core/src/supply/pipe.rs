//! `-`: a family from standard input, or from any file that is read from its start to its end.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};

use super::Supply;
use crate::error::{Error, Result};
use crate::io::Statistics;
use crate::pool::{Piece, Pool};
use crate::sink::DeviceAccount;

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

    /// Fills `buffer`; short only at the end. A pipe gives 64 KiB at a time, and blocks want whole transfers.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut got = 0;
        while got < buffer.len() {
            match self.file.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_for_bytes(&self.file)?,
                Err(error) => return Err(error),
            }
        }
        Ok(got)
    }
}

fn wait_for_bytes(file: &File) -> io::Result<()> {
    match poll(&mut [PollFd::new(file, PollFlags::IN)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
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
        let why = format!("byte {offset} was asked for, and a pipe is only read from its start to its end");
        Err(Error::usage(&self.device, why, "store the family in a file, and name that with --from"))
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
        let got = filled.map_err(|error| {
            self.failed = true;
            Error::io(format!("read at byte {} of", self.position), &self.device, error)
        })?;
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
