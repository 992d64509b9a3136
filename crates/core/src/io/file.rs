//! Files opened for direct I/O where the file system allows it, and through the page cache where it does not.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags, fallocate, fcntl_getfl, fcntl_setfl, fstatfs, statx};

use super::{ALIGNMENT, LockableFile, Memory, Mode};
use crate::error::{Error, Result};

/// Alignment that is tried where the kernel does not tell: right for every disk in use.
const USUAL_ALIGNMENT: u32 = 4096;
/// The largest `--block-size`: a device that wants more is written through the page cache.
const ALIGNMENT_MAX: u32 = 65536;
/// tmpfs accepts `O_DIRECT` since Linux 6.6, but its pages are the page cache.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// An open file and how it wants to be used.
///
/// A direct file takes only offsets, lengths and memory that are multiples of `alignment` (see
/// [`is_aligned`](Self::is_aligned)). The unaligned tail of a file is written after
/// [`leave_direct`](Self::leave_direct), which clears `O_DIRECT` on this descriptor. That was chosen over padding the
/// tail and cutting the file (a kill in between would leave a file that is too long) and over a second descriptor (64
/// stripes would hold 128).
#[derive(Debug)]
pub struct OpenedFile {
    /// The descriptor; always readable, and writable when the file was created here.
    pub file: LockableFile,
    /// The name it was opened under.
    pub path: PathBuf,
    /// Past the page cache.
    pub direct: bool,
    /// Unit of offsets and lengths in bytes while `direct`; 1 otherwise.
    pub alignment: u32,
}

impl OpenedFile {
    /// Opens a file for reading.
    pub fn read(path: &Path, mode: Mode) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::io("open", path.display().to_string(), error))?;
        Self::probed(file, path, mode, |file, memory| file.read_at(memory, 0).map(drop))
    }

    /// Creates a file that only its owner can read (a backup holds all the data of a database, whatever the
    /// permissions inside were); an existing name is an error.
    pub fn create_new(path: &Path, mode: Mode) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| Error::io("create", path.display().to_string(), error))?;
        Self::probed(file, path, mode, |file, memory| {
            file.write_at(memory, 0)?;
            file.set_len(0)
        })
    }

    fn probed(
        file: File,
        path: &Path,
        mode: Mode,
        attempt: impl Fn(&File, &mut Memory) -> io::Result<()>,
    ) -> Result<Self> {
        let mut opened = Self { file: file.into(), path: path.to_owned(), direct: false, alignment: 1 };
        if mode == Mode::Buffered || opened.is_in_memory() || opened.set_direct(true).is_err() {
            return Ok(opened);
        }
        let alignment = match opened.stated_alignment() {
            Some(alignment) => alignment,
            None => {
                let mut memory = Memory::new(USUAL_ALIGNMENT as usize)?;
                attempt(&opened.file, &mut memory).ok().map(|()| USUAL_ALIGNMENT)
            }
        };
        match alignment {
            Some(alignment) => (opened.direct, opened.alignment) = (true, alignment),
            None => opened.set_direct(false).map_err(|error| opened.error("leave direct I/O on", error))?,
        }
        Ok(opened)
    }

    /// What the kernel says: `None` when it does not know, `Some(None)` when direct I/O is not possible with the
    /// buffers we have.
    fn stated_alignment(&self) -> Option<Option<u32>> {
        let stat = statx(&self.file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
            return None;
        }
        let (memory, offset) = (stat.stx_dio_mem_align, stat.stx_dio_offset_align);
        let usable = offset > 0 && memory as usize <= ALIGNMENT && offset <= ALIGNMENT_MAX;
        let alignment = offset.max(memory).max(512);
        Some((usable && alignment.is_power_of_two()).then_some(alignment))
    }

    fn is_in_memory(&self) -> bool {
        fstatfs(&self.file).is_ok_and(|stat| stat.f_type as u64 == TMPFS_MAGIC)
    }

    fn set_direct(&self, direct: bool) -> io::Result<()> {
        let mut flags = fcntl_getfl(&self.file)?;
        flags.set(OFlags::DIRECT, direct);
        Ok(fcntl_setfl(&self.file, flags)?)
    }

    /// Continues through the page cache. Only while nothing is in flight on this file: the page that holds the end of
    /// the direct part is read back from the device.
    pub fn leave_direct(&mut self) -> Result<()> {
        if self.direct {
            self.set_direct(false).map_err(|error| self.error("leave direct I/O on", error))?;
            (self.direct, self.alignment) = (false, 1);
        }
        Ok(())
    }

    /// Whether `bytes` can go to or come from `offset` as they are.
    pub fn is_aligned(&self, offset: u64, bytes: &[u8]) -> bool {
        let memory = (self.alignment as usize).min(ALIGNMENT);
        let unit = u64::from(self.alignment);
        offset.is_multiple_of(unit)
            && (bytes.len() as u64).is_multiple_of(unit)
            && bytes.as_ptr().addr().is_multiple_of(memory)
    }

    /// Reserves room for `bytes`, and makes the file so long: ext4 lets only one direct write at a time run after the
    /// end of a file. The user cuts it with [`trim`](Self::trim). A file system that cannot reserve is not an error; a
    /// full one is.
    pub fn preallocate(&self, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let reserved = fallocate(&self.file, FallocateFlags::empty(), 0, bytes).map_err(io::Error::from);
        match reserved {
            Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput) => Ok(()),
            other => other.map_err(|error| self.error(format!("reserve {bytes} bytes for"), error)),
        }
    }

    /// Cuts the file, and its reserved room, to `length`.
    pub fn trim(&self, length: u64) -> Result<()> {
        let cut = || {
            // btrfs does nothing when the length stays the same: the reservation would live as long as the file.
            if self.file.metadata()?.len() == length {
                self.file.set_len(length.saturating_add(1))?;
            }
            self.file.set_len(length)
        };
        cut().map_err(|error| self.error(format!("cut to {length} bytes"), error))
    }

    /// Makes the file's bytes and length durable (not its name: [`super::sync_directory`]).
    pub fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|error| self.error("sync", error))
    }

    /// Device and inode: what the file is, whatever its name.
    pub fn inode(&self) -> Result<(u64, u64)> {
        let metadata = self.file.metadata().map_err(|error| self.error("look at", error))?;
        Ok((metadata.dev(), metadata.ino()))
    }

    fn error(&self, action: impl Into<String>, error: io::Error) -> Error {
        Error::io(action, self.path.display().to_string(), error)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_direct_file_takes_aligned_memory_and_then_an_unaligned_tail() {
        let directory = crate::io::directory_on_disk();
        let mut opened = OpenedFile::create_new(&directory.path().join("a"), Mode::Auto).unwrap();
        let mut memory = Memory::new(8192).unwrap();
        memory.fill(7);
        assert!(opened.is_aligned(8192, &memory));
        assert_eq!(opened.is_aligned(0, &memory[..100]), !opened.direct);
        opened.file.write_all_at(&memory, 0).unwrap();
        opened.leave_direct().unwrap();
        assert!(!opened.direct && opened.is_aligned(1, &memory[..100]));
        opened.file.write_all_at(&memory[..100], 8192).unwrap();
        opened.trim(8292).unwrap();
        opened.sync().unwrap();
        assert_eq!(std::fs::read(&opened.path).unwrap(), vec![7; 8292]);
    }

    #[test]
    fn direct_io_is_used_exactly_where_the_file_system_has_it() {
        let on_disk = crate::io::directory_on_disk();
        let path = on_disk.path().join("a");
        let opened = OpenedFile::create_new(&path, Mode::Auto).unwrap();
        if fstatfs(&opened.file).unwrap().f_type == 0xEF53 {
            assert!(opened.direct && opened.alignment >= 512, "ext4 has direct I/O");
        }
        assert_eq!(opened.file.metadata().unwrap().len(), 0, "the probe leaves nothing in the file");
        assert!(!OpenedFile::read(&path, Mode::Buffered).unwrap().direct);
        if let Ok(in_memory) = tempfile::tempdir_in("/dev/shm") {
            let opened = OpenedFile::create_new(&in_memory.path().join("a"), Mode::Auto).unwrap();
            assert!(!opened.direct && opened.alignment == 1);
        }
    }

    #[test]
    fn trim_releases_reserved_space() {
        let directory = crate::io::directory_on_disk();
        let opened = OpenedFile::create_new(&directory.path().join("a"), Mode::Auto).unwrap();
        opened.preallocate(8 << 20).unwrap();
        assert_eq!(
            opened.file.metadata().unwrap().len(),
            8 << 20,
            "a write within its length is not serialized by ext4"
        );
        opened.trim(0).unwrap();
        assert_eq!(opened.file.metadata().unwrap().blocks(), 0);
        assert!(opened.preallocate(u64::MAX / 4).is_err());
    }

    #[test]
    fn an_existing_name_is_not_overwritten_and_a_missing_one_not_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        assert!(OpenedFile::read(&path, Mode::Auto).unwrap_err().to_string().contains("cannot open"));
        OpenedFile::create_new(&path, Mode::Auto).unwrap();
        assert!(OpenedFile::create_new(&path, Mode::Auto).unwrap_err().to_string().contains("cannot create"));
    }
}
