//! `-`: the family goes to standard output, or to any file that is written from its start to its end.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};

use super::{DeviceAccount, Sink, out_of_order};
use crate::error::{Error, Result};
use crate::io::Statistics;
use crate::pool::Piece;

/// A sink without a name: nothing can be taken back. It is complete when the reader has taken its last byte, that of
/// the commit record.
pub struct PipeSink {
    device: String,
    file: File,
    length: u64,
    failed: bool,
    statistics: Statistics,
}

impl PipeSink {
    /// Standard output.
    ///
    /// # Errors
    /// A usage error when it is a terminal.
    pub fn stdout() -> Result<Self> {
        let stdout = io::stdout();
        if stdout.is_terminal() {
            return Err(Error::usage(
                "--to -",
                "standard output is a terminal",
                "send it to a pipe or a file: fullbore … --to - | …",
            ));
        }
        let owned = stdout.as_fd().try_clone_to_owned().map_err(|error| Error::io("open", "standard output", error))?;
        let file = File::from(owned);
        // A closed standard output is /dev/null by now: the backup would be reported as good, and be lost.
        if file.metadata().is_ok_and(|metadata| metadata.file_type().is_char_device()) {
            return Err(Error::usage(
                "--to -",
                "standard output is closed, or a device that keeps nothing",
                "send it to a pipe or a file; to measure only, write --to nul:",
            ));
        }
        Ok(Self::new("-", file))
    }

    /// Any file; `device` is its name in messages.
    pub fn new(device: impl Into<String>, file: File) -> Self {
        Self { device: device.into(), file, length: 0, failed: false, statistics: Statistics::default() }
    }

    fn write_whole(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => rest = &rest[taken..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process that shares the pipe has made it non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait_for_room(&self.file)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn error(&mut self, error: io::Error) -> Error {
        self.failed = true;
        if error.kind() == io::ErrorKind::BrokenPipe {
            let hint =
                "the program behind the pipe has ended: look at its messages; it does not have a complete backup";
            return Error::refused(
                &self.device,
                format!("the reader of the pipe went away after {} bytes", self.length),
                hint,
            );
        }
        Error::io("write to", &self.device, error)
    }

    fn check(&self) -> Result<()> {
        if self.failed { Err(Error::refused(&self.device, "an earlier write failed", "")) } else { Ok(()) }
    }
}

fn wait_for_room(file: &File) -> io::Result<()> {
    match poll(&mut [PollFd::new(file, PollFlags::OUT)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl Sink for PipeSink {
    fn device(&self) -> &str {
        &self.device
    }

    fn write(&mut self, offset: u64, piece: Piece) -> Result<()> {
        self.check()?;
        if offset != self.length {
            return Err(out_of_order(
                &self.device,
                format_args!("a write at {offset} came after one that ended at {}", self.length),
            ));
        }
        let started = Instant::now();
        self.write_whole(&piece).map_err(|error| self.error(error))?;
        self.length += piece.len() as u64;
        self.statistics.operations += 1;
        self.statistics.queue_depth_sum += 1;
        self.statistics.bytes += piece.len() as u64;
        self.statistics.latency.record(started.elapsed());
        Ok(())
    }

    fn settle(&mut self, _in_flight: usize) -> Result<()> {
        self.check()
    }

    fn in_flight(&self) -> usize {
        0
    }

    /// Durable as far as a pipe can be: where standard output is a file, it is synced.
    fn sync(&mut self) -> Result<()> {
        self.check()?;
        let is_file = self.file.metadata().is_ok_and(|metadata| metadata.is_file());
        let synced = if is_file { self.file.sync_all() } else { self.file.flush() };
        synced.map_err(|error| self.error(error))
    }

    fn publish(&mut self) -> Result<()> {
        self.check()
    }

    fn retire(&mut self) -> Result<()> {
        self.check()
    }

    /// The reader keeps the bytes that it has: without the commit record they are not a backup.
    fn abandon(&mut self) {
        self.failed = true;
    }

    fn account(&self) -> DeviceAccount {
        DeviceAccount::new(&self.device, &self.statistics, false)
    }

    #[cfg(any(test, feature = "testkit"))]
    fn die(&mut self) {
        self.failed = true;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pool::Pool;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    fn piece(pool: &Arc<Pool>, fill: u8) -> Piece {
        let mut buffer = pool.take().unwrap();
        buffer.fill(fill);
        let length = buffer.len();
        Piece::new(buffer, 0..length)
    }

    #[test]
    fn the_reader_of_the_pipe_gets_every_byte_even_when_the_pipe_does_not_block() {
        for blocking in [true, false] {
            let (mut reader, writer) = io::pipe().unwrap();
            let file = File::from(OwnedFd::from(writer));
            if !blocking {
                rustix::io::ioctl_fionbio(&file, true).unwrap();
            }
            let got = std::thread::spawn(move || {
                let mut got = Vec::new();
                reader.read_to_end(&mut got).unwrap();
                got
            });
            let pool = Pool::new(1, 1 << 20).unwrap();
            let mut sink = PipeSink::new("-", file);
            for fill in 0..3 {
                sink.write(u64::from(fill) << 20, piece(&pool, fill)).unwrap();
            }
            sink.sync().unwrap();
            sink.publish().unwrap();
            drop(sink);
            let got = got.join().unwrap();
            assert!(
                got.len() == 3 << 20 && (0..3).all(|n| got[n << 20..][..1 << 20].iter().all(|&byte| byte == n as u8))
            );
        }
    }

    #[test]
    fn a_reader_that_went_away_is_named_and_nothing_is_published() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut sink = PipeSink::new("-", File::from(OwnedFd::from(writer)));
        let pool = Pool::new(1, 4096).unwrap();
        let error = sink.write(0, piece(&pool, 0)).unwrap_err().to_string();
        assert!(error.contains("the reader of the pipe went away"), "{error}");
        assert!(sink.sync().is_err() && sink.publish().is_err());
    }
}
