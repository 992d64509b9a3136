//! Scratch files: room on disk for data of a job that is too large for memory.
//!
//! They have no name: the kernel removes them with the process, however it ends.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::error::{Error, Result};

/// A sparse file without a name; zero wherever nothing was written.
pub struct ScratchFile {
    file: File,
    directory: PathBuf,
}

/// Where scratch files are: `TMPDIR`, else `/var/tmp` (which is on disk where `/tmp` is in memory), else `/tmp`.
pub fn scratch_directory() -> PathBuf {
    let asked = std::env::var_os("TMPDIR").filter(|text| !text.is_empty()).map(PathBuf::from);
    let large = || Some(PathBuf::from("/var/tmp")).filter(|path| path.is_dir());
    asked.or_else(large).unwrap_or_else(|| PathBuf::from("/tmp"))
}

impl ScratchFile {
    /// In [`scratch_directory`].
    ///
    /// # Errors
    /// Names the directory.
    pub fn new() -> Result<Self> {
        Self::within(&scratch_directory())
    }

    fn within(directory: &Path) -> Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let made = rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR).map(File::from);
        // Not every file system has files without a name.
        let file = made.or_else(|_| named_and_removed(directory));
        let failed = |e| Error::io("make a scratch file in", shown(directory), e);
        Ok(Self { file: file.map_err(failed)?, directory: directory.to_owned() })
    }

    /// Puts `bytes` at `offset`.
    ///
    /// # Errors
    /// Names the directory: it may be full.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = self.file.write_all_at(bytes, offset);
        written.map_err(|e| Error::io("write a scratch file in", shown(&self.directory), e))
    }

    /// Fills `buffer` from `offset` on, with zeros where nothing was written.
    ///
    /// # Errors
    /// Names the directory.
    pub fn read(&self, mut offset: u64, mut buffer: &mut [u8]) -> Result<()> {
        while !buffer.is_empty() {
            match self.file.read_at(buffer, offset) {
                Ok(0) => {
                    buffer.fill(0);
                    break;
                }
                Ok(count) => {
                    offset += count as u64;
                    buffer = &mut buffer[count..];
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("read a scratch file in", shown(&self.directory), e)),
            }
        }
        Ok(())
    }
}

fn shown(directory: &Path) -> String {
    format!("{} (set TMPDIR to a directory with more room)", directory.display())
}

fn named_and_removed(directory: &Path) -> std::io::Result<File> {
    let path = directory.join(format!(".fullbore-scratch-{}", uuid::Uuid::new_v4()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_file_has_no_name_and_is_zero_where_nothing_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let scratch = ScratchFile::within(directory.path()).unwrap();
        scratch.write(1 << 30, &[7; 3]).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let mut bytes = [9; 6];
        scratch.read((1 << 30) - 1, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 7, 7, 7, 0, 0]);
        assert_eq!(named_and_removed(directory.path()).unwrap().metadata().unwrap().len(), 0);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_directory_that_is_missing_or_full_is_named_with_what_to_do() {
        let error = ScratchFile::within(Path::new("/nowhere/at/all")).err().unwrap().to_string();
        assert!(error.contains("/nowhere/at/all") && error.contains("TMPDIR"), "{error}");
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let scratch = ScratchFile { file: full, directory: "/tmp/x".into() };
        let error = scratch.write(0, &[1]).unwrap_err().to_string();
        assert!(error.contains("/tmp/x") && error.contains("TMPDIR") && error.contains("No space"), "{error}");
    }
}
