//! Small files that a user names: keys, passwords. They may be pipes, `<(pass show db)`, and must not hold a job up for
//! ever.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

/// How long a pipe may stay silent.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a silent pipe is checked.
const PAUSE: Duration = Duration::from_millis(20);

/// Reads at most `limit` bytes of a file or a pipe, and what the system says of it.
///
/// # Errors
/// It cannot be opened or read, or is a pipe without a writer.
pub fn read_small(path: &Path, limit: usize) -> io::Result<(Zeroizing<Vec<u8>>, Metadata)> {
    // Opening a pipe without a writer would wait for one.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    // No more memory than it needs: all of it is touched, and wiped at the end. Files that the kernel makes up (/proc)
    // have the length 0.
    let said = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    let expected = if metadata.is_file() && said > 0 { said.saturating_add(1).min(limit) } else { limit };
    let mut bytes = read_all(&mut file, expected, &metadata)?;
    if bytes.len() == expected && expected < limit {
        // It has grown since.
        file.rewind()?;
        bytes = read_all(&mut file, limit, &metadata)?;
    }
    Ok((bytes, metadata))
}

/// The whole of a file or a pipe of at most `most` bytes; `None` if it has more. Its length is not asked for: a device
/// has none, and has no end.
///
/// # Errors
/// As [`read_small`].
pub fn read_whole(path: &Path, most: usize) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let (bytes, _) = read_small(path, most.saturating_add(1))?;
    Ok(Some(bytes).filter(|bytes| bytes.len() <= most))
}

/// Writes a text. A file gets it whole or not at all: a reader may come at any time. A device, a pipe or a symbolic
/// link stays, and is written through.
///
/// # Errors
/// The text cannot be written. A file of that name is unchanged then.
pub fn replace_whole(path: &Path, text: &str) -> io::Result<()> {
    if std::fs::symlink_metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        let mut options = std::fs::OpenOptions::new();
        let mut file = open_without_wait(options.write(true).create(true).truncate(true), path)?;
        return std::io::Write::write_all(&mut file, text.as_bytes());
    }
    let working = working_name(path);
    std::fs::write(&working, text).and_then(|()| std::fs::rename(&working, path)).inspect_err(|_| {
        let _ = std::fs::remove_file(&working); // The first error counts.
    })
}

/// Opens a file for writing. A named pipe without a reader is an error, and not a wait.
///
/// # Errors
/// The file cannot be opened.
pub fn open_without_wait(options: &mut std::fs::OpenOptions, path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let at_once = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = options.custom_flags(at_once).open(path)?;
    // From now on, a write waits for a slow reader.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - rustix::fs::OFlags::NONBLOCK)?;
    Ok(file)
}

/// The name of a file until it is whole. It has no process number: two containers may both be number 1.
pub fn working_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".new-{}", uuid::Uuid::new_v4()));
    name.into()
}

fn read_all(file: &mut File, limit: usize, metadata: &Metadata) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut bytes = Zeroizing::new(vec![0; limit]);
    let mut length = 0;
    let mut deadline = Instant::now() + PATIENCE;
    while length < limit {
        match file.read(&mut bytes[length..]) {
            // For a pipe this is the end only after some bytes: its writer may not have opened it yet.
            Ok(0) if length > 0 || metadata.is_file() => break,
            Ok(0) => wait(deadline)?,
            Ok(more) => {
                length += more;
                deadline = Instant::now() + PATIENCE;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(deadline)?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

fn wait(deadline: Instant) -> io::Result<()> {
    if Instant::now() >= deadline {
        return Err(io::Error::new(ErrorKind::TimedOut, "it is a pipe, and no data comes from it"));
    }
    thread::sleep(PAUSE);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_file_is_read_to_its_end_or_to_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, b"secret").unwrap();
        assert_eq!(read_small(&path, 100).unwrap().0.as_slice(), b"secret");
        assert_eq!(read_small(&path, 3).unwrap().0.as_slice(), b"sec");
        assert!(read_small(&path, 100).unwrap().0.capacity() < 10, "memory that it does not need");
        assert_eq!(read_whole(&path, 6).unwrap().unwrap().as_slice(), b"secret");
        assert_eq!(read_whole(&path, 5).unwrap(), None);
        assert_eq!(read_whole(Path::new("/dev/zero"), 4096).unwrap(), None);
        assert!(!read_small(Path::new("/proc/self/stat"), 4096).unwrap().0.is_empty(), "it says that it has no bytes");
        std::fs::write(&path, b"").unwrap();
        assert!(read_small(&path, 3).unwrap().0.is_empty());
    }

    #[test]
    fn a_pipe_is_read_whenever_its_writer_comes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                thread::sleep(Duration::from_millis(60));
                let mut pipe = OpenOptions::new().write(true).open(&path).unwrap();
                pipe.write_all(b"sec").unwrap();
                thread::sleep(Duration::from_millis(60));
                pipe.write_all(b"ret").unwrap();
            });
            assert_eq!(read_small(&path, 100).unwrap().0.as_slice(), b"secret");
            writer.join().unwrap();
        });
    }
}
