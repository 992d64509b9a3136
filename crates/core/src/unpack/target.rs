//! Targets: where unpacked bytes go.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::IoSlice;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags};

use super::reservation::Reservation;
use crate::error::{Error, Result};
use crate::io::{directory_of, free_space};
use crate::media::{BlockHeader, DIGEST, Run, RunKind};
use crate::meter::Clock;

/// A DATA or MAP block that was read, checked and unpacked.
pub struct CheckedBlock<'a> {
    /// As it was on the media.
    pub header: &'a BlockHeader,
    /// Its runs.
    pub runs: &'a [Run],
    /// The digest of its plain bytes.
    pub digest: [u8; DIGEST],
    /// Its payload as its codec packed it; without a codec, the plain bytes.
    pub packed: &'a [u8],
    /// Its payload, unpacked.
    pub plain: &'a [u8],
}

/// Takes whole blocks: each worker has its own.
pub trait BlockTaker {
    /// Takes a block. When this returns, a block of a higher layer may come.
    fn take(&mut self, block: &CheckedBlock<'_>, clock: &mut Clock) -> Result<()>;
}

/// Takes the bytes of streams, from several threads and in any order, except for ordered streams.
pub trait Target: Sync {
    /// True when nothing is kept: a verification. Then nothing is sent to it.
    fn discards(&self) -> bool;

    /// True in a verification: the page map is compared with the data.
    fn checks_maps(&self) -> bool {
        self.discards()
    }

    /// Takes whole blocks instead of their bytes, for one worker: for a copy, which discards the bytes.
    fn blocks(&self) -> Result<Option<Box<dyn BlockTaker + '_>>> {
        Ok(None)
    }

    /// Puts `bytes` at `offset` of a stream. An ordered stream comes in order, without gaps, and one call at a time. A
    /// target that waits holds up the restore, and must not wait for bytes of another stream.
    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes a range of a stream zero.
    fn zero(&self, stream: u32, offset: u64, length: u64) -> Result<()>;

    /// Takes runs that have no gap between them; `bytes` are those of the DATA runs, in order. Not for ordered streams.
    fn write_runs(&self, stream: u32, runs: &[Run], bytes: &[u8]) -> Result<()> {
        write_each(self, stream, runs, bytes)
    }
}

/// Writes each DATA run, and makes each ZERO run zero.
fn write_each(target: &(impl Target + ?Sized), stream: u32, runs: &[Run], mut bytes: &[u8]) -> Result<()> {
    for run in runs {
        match run.kind {
            RunKind::Data => {
                let (data, rest) = bytes.split_at(run.length as usize);
                target.write(stream, run.offset, data)?;
                bytes = rest;
            }
            RunKind::Zero => target.zero(stream, run.offset, u64::from(run.length))?,
            RunKind::Mapped => {}
        }
    }
    Ok(())
}

/// A target for verification: everything is checked, nothing is written.
pub struct NullTarget;

impl Target for NullTarget {
    fn discards(&self) -> bool {
        true
    }

    fn write(&self, _: u32, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn zero(&self, _: u32, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
}

/// Alignment that direct writes need, in bytes; buffers have it too.
const ALIGNED: u64 = 4096;

/// Shorter writes, in bytes, go through the page cache, which joins them. Between free pages, and in a differential,
/// each direct write would take as long as a block of a mebibyte, and writers would do little else.
///
/// ext4 lets such a write wait until no direct write of the file is under way. So short runs between a few free pages are
/// written with their neighbours: see [`TargetFile::write_joined`].
const SHORT: usize = 128 << 10;

/// Restores of media with smaller buffers write all DATA runs through the page cache: a block has up to 4096 bytes besides
/// its run.
pub const LEAST_DIRECT_TRANSFER: usize = SHORT + 4096;

/// A longer ZERO run, in bytes, is not joined with the DATA runs around it.
pub(super) const JOINED: u32 = 64 << 10;

#[repr(align(4096))]
struct Zeros([u8; JOINED as usize]);

static ZEROS: Zeros = Zeros([0; JOINED as usize]);

/// Writes all slices, one after the other, at `offset`.
fn write_all_slices(file: &File, mut slices: &mut [IoSlice<'_>], mut offset: u64) -> std::io::Result<()> {
    while !slices.is_empty() {
        match rustix::io::pwritev(file, slices, offset) {
            Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut slices, written);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// One file for each stream.
#[derive(Default)]
pub struct FileTarget {
    files: HashMap<u32, TargetFile>,
}

/// A file that bytes are put into, at any offset and from several threads.
pub(super) struct TargetFile {
    path: PathBuf,
    /// Past the page cache, where the file system allows it.
    direct: Option<File>,
    buffered: File,
    /// A new file is zero wherever nothing was written.
    fresh: bool,
    /// Room for direct writes, in a new file.
    reservation: Option<Reservation>,
}

impl TargetFile {
    /// Opens the file at `path`. `fresh`: it was just created, so that ZERO runs need no writing.
    pub fn open(path: &Path, fresh: bool) -> Result<Self> {
        let opened = OpenOptions::new().write(true).open(path);
        let buffered = opened.map_err(|e| Error::io("open", path.display().to_string(), e))?;
        let direct = OpenOptions::new().write(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path).ok();
        Ok(Self { path: path.to_owned(), direct, buffered, fresh, reservation: None })
    }

    /// Cuts it off, or extends it with zeros.
    pub fn set_size(&self, size: u64) -> Result<()> {
        self.buffered.set_len(size).map_err(|e| Error::io("set the size of", self.path.display().to_string(), e))
    }

    /// Reserves room for these bytes, if the file system has enough.
    fn reserve(&mut self, size: u64) {
        let directory = directory_of(&self.path);
        let free = free_space(directory).unwrap_or(0);
        self.reservation = Reservation::new(size, free);
    }

    /// Returns when it is durable.
    pub fn sync(&self) -> Result<()> {
        self.buffered.sync_all().map_err(|e| Error::io("sync", self.path.display().to_string(), e))
    }

    /// Puts `bytes` at `offset`.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let aligned = (offset | bytes.len() as u64 | bytes.as_ptr().addr() as u64).is_multiple_of(ALIGNED);
        let written = match &self.direct {
            Some(direct) if aligned && bytes.len() >= SHORT => {
                if let Some(reservation) = &self.reservation {
                    reservation.cover(&self.buffered, offset..offset.saturating_add(bytes.len() as u64));
                }
                match direct.write_all_at(bytes, offset) {
                    // Some file systems accept the flag and refuse the write.
                    Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => self.buffered.write_all_at(bytes, offset),
                    other => other,
                }
            }
            _ => self.buffered.write_all_at(bytes, offset),
        };
        written.map_err(|e| self.unwritten(bytes.len() as u64, offset, e))
    }

    /// Writes runs that have no gap between them, with their zeros, by one direct write. False if this file cannot:
    /// nothing was written then.
    fn write_joined(&self, runs: &[Run], mut bytes: &[u8]) -> Result<bool> {
        let (Some(direct), Some(reservation), [first, .., last]) = (&self.direct, &self.reservation, runs) else {
            return Ok(false);
        };
        let range = first.offset..last.end();
        let fits = |run: &Run| match run.kind {
            RunKind::Data => true,
            RunKind::Zero => run.length <= JOINED,
            RunKind::Mapped => false,
        };
        let aligned = |number: u64| number.is_multiple_of(ALIGNED);
        let fit = runs.iter().all(|run| fits(run) && aligned(run.offset | u64::from(run.length)));
        if !fit || !aligned(bytes.as_ptr().addr() as u64) || range.end - range.start < SHORT as u64 {
            return Ok(false);
        }
        let mut slices = Vec::with_capacity(runs.len());
        for run in runs {
            let data = if run.kind == RunKind::Data { run.length as usize } else { 0 };
            let (data, rest) = bytes.split_at(data);
            slices.push(IoSlice::new(if data.is_empty() { &ZEROS.0[..run.length as usize] } else { data }));
            bytes = rest;
        }
        reservation.cover(&self.buffered, range.clone());
        match write_all_slices(direct, &mut slices, range.start) {
            Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => Ok(false),
            other => other.map(|()| true).map_err(|e| self.unwritten(range.end - range.start, range.start, e)),
        }
    }

    fn unwritten(&self, length: u64, offset: u64, error: std::io::Error) -> Error {
        Error::io(format!("write {length} bytes at offset {offset} to"), self.path.display().to_string(), error)
    }

    /// Makes a range zero.
    pub fn zero(&self, offset: u64, length: u64) -> Result<()> {
        if self.fresh || length == 0 {
            return Ok(());
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(&self.buffered, punch, offset, length).is_ok() {
            return Ok(());
        }
        let zeros = vec![0; length.min(1 << 20) as usize];
        let mut done = 0;
        while done < length {
            let count = (length - done).min(zeros.len() as u64) as usize;
            let written = self.buffered.write_all_at(&zeros[..count], offset + done);
            written.map_err(|e| Error::io("write zeros to", self.path.display().to_string(), e))?;
            done += count as u64;
        }
        Ok(())
    }
}

/// Blocks of a stream that the manifest does not name.
pub(super) fn unnamed_stream(stream: u32) -> Error {
    Error::incomplete(
        "media set",
        format!("it has blocks of stream {stream}, which its manifest does not name"),
        "use another set",
    )
}

impl FileTarget {
    /// No files yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes `stream` into the file at `path`, which is set to `size` bytes. `fresh`: the file was just created, so
    /// ZERO runs need no writing.
    pub fn add(&mut self, stream: u32, path: &Path, size: u64, fresh: bool) -> Result<()> {
        let mut file = TargetFile::open(path, fresh)?;
        file.set_size(size)?;
        if fresh {
            file.reserve(size);
        }
        self.files.insert(stream, file);
        Ok(())
    }

    /// Returns when every file is durable.
    pub fn sync(&self) -> Result<()> {
        self.files.values().try_for_each(TargetFile::sync)
    }

    fn file(&self, stream: u32) -> Result<&TargetFile> {
        self.files.get(&stream).ok_or_else(|| unnamed_stream(stream))
    }
}

impl Target for FileTarget {
    fn discards(&self) -> bool {
        false
    }

    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file(stream)?.write(offset, bytes)
    }

    fn zero(&self, stream: u32, offset: u64, length: u64) -> Result<()> {
        self.file(stream)?.zero(offset, length)
    }

    fn write_runs(&self, stream: u32, runs: &[Run], bytes: &[u8]) -> Result<()> {
        if self.file(stream)?.write_joined(runs, bytes)? {
            return Ok(());
        }
        write_each(self, stream, runs, bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::memory::Memory;

    /// A target with one new file of `size` bytes. `/tmp` may be in memory, which has no direct I/O.
    fn target_of(size: u64) -> (tempfile::TempDir, PathBuf, FileTarget) {
        let directory = tempfile::tempdir_in(".").unwrap();
        let path = directory.path().join("data");
        File::create_new(&path).unwrap();
        let mut target = FileTarget::new();
        target.add(1, &path, size, true).unwrap();
        (directory, path, target)
    }

    fn run(offset: u64, length: u32, kind: RunKind) -> Run {
        Run { offset, length, kind }
    }

    #[test]
    fn runs_with_zeros_between_them_are_written_by_one_operation() {
        let (_directory, path, target) = target_of(1 << 20);
        let mut data = Memory::pieces(1, 256 << 10).unwrap().remove(0);
        data[..4096].fill(1);
        data[4096..256 << 10].fill(2);
        let runs = [
            run(8192, 4096, RunKind::Data),
            run(12288, 8192, RunKind::Zero),
            run(20480, (256 << 10) - 4096, RunKind::Data),
        ];
        let joined = target.file(1).unwrap().write_joined(&runs, &data).unwrap();
        assert_eq!(joined, target.file(1).unwrap().direct.is_some(), "a file system with direct I/O joins them");
        target.write_runs(1, &runs, &data).unwrap();
        let mut wanted = vec![0; 1 << 20];
        wanted[8192..12288].fill(1);
        wanted[20480..20480 + (256 << 10) - 4096].fill(2);
        assert!(std::fs::read(path).unwrap() == wanted);
    }

    #[test]
    fn runs_that_no_direct_write_takes_are_written_one_by_one() {
        let (_directory, path, target) = target_of(1 << 20);
        let data = vec![3; 512 << 10];
        let cases = [
            // An odd length, a gap that is too long, runs that are short together, and one run alone.
            vec![run(0, 1000, RunKind::Data), run(1000, 24, RunKind::Zero), run(1024, 300 << 10, RunKind::Data)],
            vec![
                run(0, 4096, RunKind::Data),
                run(4096, JOINED + 4096, RunKind::Zero),
                run(0x1_2000, 4096, RunKind::Data),
            ],
            vec![run(0, 4096, RunKind::Data), run(4096, 4096, RunKind::Zero), run(8192, 4096, RunKind::Data)],
            vec![run(0, 256 << 10, RunKind::Data)],
        ];
        for runs in cases {
            assert!(!target.file(1).unwrap().write_joined(&runs, &data).unwrap(), "{runs:?}");
            target.write_runs(1, &runs, &data).unwrap();
            let file = std::fs::read(&path).unwrap();
            for run in runs.iter().filter(|run| run.kind == RunKind::Data) {
                assert!(file[run.offset as usize..run.end() as usize].iter().all(|byte| *byte == 3), "{run:?}");
            }
        }
    }
}
