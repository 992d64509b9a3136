//! `-`: a family from standard input, or from any file that is read from its start to its end.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Supply;
use crate::error::{Error, Result};
use crate::io::DeviceAccount;
use crate::io::Statistics;
use crate::pool::{Piece, Pool};

/// Bytes of standard input that were looked at, and not read yet.
static LOOKED_AT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// The first bytes of standard input: `length` of them, or fewer if it ends before. They stay: the next supply of
/// standard input begins with them. While nothing comes, `go_on` is asked ten times in a second.
///
/// # Errors
/// Standard input is a terminal or cannot be read; or the error of `go_on`.
pub fn head_of_stdin(length: usize, go_on: &dyn Fn() -> Result<()>) -> Result<Vec<u8>> {
    let mut looked_at = LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner);
    let mut file = stdin()?;
    while looked_at.len() < length {
        go_on()?;
        let mut more = vec![0; length - looked_at.len()];
        match bytes_wait(&file).and_then(|wait| if wait { file.read(&mut more).map(Some) } else { Ok(None) }) {
            Ok(None) => {}
            Ok(Some(0)) => break,
            Ok(Some(count)) => looked_at.extend(more.iter().take(count)),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(Error::io("read", "standard input", error)),
        }
    }
    Ok(looked_at.iter().take(length).copied().collect())
}

fn stdin() -> Result<File> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Err(Error::usage(
            "--from -",
            "standard input is a terminal",
            "send a family to it: … | fullbore restore --from -",
        ));
    }
    let owned = stdin.as_fd().try_clone_to_owned().map_err(|error| Error::io("open", "standard input", error))?;
    Ok(File::from(owned))
}

/// A supply without a size, read once.
pub struct PipeSupply {
    device: String,
    /// Bytes that were read from the file already.
    before: io::Cursor<Vec<u8>>,
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
        let mut supply = Self::new("-", stdin()?, pool);
        let mut looked_at = LOOKED_AT.lock().unwrap_or_else(PoisonError::into_inner);
        supply.before = io::Cursor::new(std::mem::take(&mut *looked_at));
        Ok(supply)
    }

    /// Any file; `device` is its name in messages.
    pub fn new(device: impl Into<String>, file: File, pool: &Arc<Pool>) -> Self {
        let (device, pool) = (device.into(), Arc::clone(pool));
        let before = io::Cursor::new(Vec::new());
        Self { device, before, file, pool, position: 0, ended: false, failed: false, statistics: Statistics::default() }
    }

    fn in_order_only(&self, offset: u64) -> Error {
        let why = format!("cannot read at byte {offset}: a pipe is read only from its start to its end");
        Error::usage(&self.device, why, "store the family in a file, and name the file with --from")
    }

    /// Fills `buffer`; short only at the end. A pipe gives 64 KiB at a time, and blocks want whole transfers.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut got = self.before.read(buffer).unwrap_or(0);
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
