//! Stamps: detect another file under the same name, and writes to a file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A file that was changed less long ago can change again without a sign: the clocks of file systems tick in
/// milliseconds, some in seconds.
const SETTLED: Duration = Duration::from_secs(2);

/// The evidence that a file is still the copied file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    /// Numbers of inodes are given again. Some file systems do not keep this.
    born: Option<SystemTime>,
    /// Bytes.
    pub size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of a file now.
    pub fn of(stat: &Metadata) -> Self {
        Self {
            device: stat.dev(),
            inode: stat.ino(),
            born: stat.created().ok(),
            size: stat.len(),
            modified: (stat.mtime(), stat.mtime_nsec()),
            changed: (stat.ctime(), stat.ctime_nsec()),
        }
    }

    /// Whether a later change of the file is sure to change the stamp.
    pub fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
        let newest = self.modified.0.max(self.changed.0);
        now - newest > SETTLED.as_secs() as i64
    }

    /// Whether both are of the same file, also after writes in between.
    pub fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode, self.born) == (other.device, other.inode, other.born)
    }

    /// The stamp of no file, for tests.
    #[cfg(test)]
    pub fn made(inode: u64, size: u64, modified: i64) -> Self {
        Self { device: 1, inode, born: None, size, modified: (modified, 0), changed: (modified, 0) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_same_after_a_write_and_another_one_under_its_name_is_not() {
        let root = tempfile::tempdir().unwrap();
        let (path, other) = (root.path().join("a"), root.path().join("b"));
        let stamp = |path: &std::path::Path| Stamp::of(&std::fs::metadata(path).unwrap());
        std::fs::write(&path, "one").unwrap();
        std::fs::write(&other, "one").unwrap();
        let before = stamp(&path);
        assert!(!before.is_settled() && before.is_same_file(&before));
        std::fs::write(&path, "longer").unwrap();
        assert!(before.is_same_file(&stamp(&path)) && before != stamp(&path));
        std::fs::rename(&other, &path).unwrap();
        assert!(!before.is_same_file(&stamp(&path)));
        assert!(Stamp::made(1, 0, 0).is_settled());
    }
}
