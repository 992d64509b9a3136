//! Files that can be locked (flock), whose lock ends with their owner.
//!
//! A flock belongs to what `open` made, not to a descriptor. All copies of the descriptor share it, and it ends when
//! the last copy is closed, or when one of them asks for that. When any thread starts a program, the child has copies
//! of all descriptors of this process until its exec. So closing alone does not end a lock: for a moment the child
//! still holds it. The next process that asks is told that the file is in use, and so is this process. [`LockableFile`]
//! asks when it is dropped. `clippy.toml` bans the locks of [`File`] everywhere else.
//!
//! A killed process asks for nothing. Its locks end when the kernel has closed its files, and those of the children
//! that it was starting.
#![allow(clippy::disallowed_methods)]

use std::fs::{File, TryLockError};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// A file or directory whose lock ends when this is dropped, whatever copies of its descriptor there are. It can do all
/// that a [`File`] can.
#[derive(Debug)]
pub struct LockableFile {
    file: File,
    /// It has a lock to release: another owner of a copy may have a lock that is not ours.
    locked: AtomicBool,
}

impl LockableFile {
    /// Locks it for this owner alone.
    ///
    /// # Errors
    /// Another owner holds it, or the file system has no such locks.
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        self.noted(self.file.try_lock())
    }

    /// Locks it against [`try_lock`](Self::try_lock), beside others who do the same.
    ///
    /// # Errors
    /// As [`try_lock`](Self::try_lock).
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        self.noted(self.file.try_lock_shared())
    }

    /// Closes it as the end of a killed process does: copies of the descriptor keep the lock.
    #[cfg(any(test, feature = "testkit"))]
    pub fn die(self) {
        self.locked.store(false, Ordering::Relaxed);
    }

    fn noted(&self, result: Result<(), TryLockError>) -> Result<(), TryLockError> {
        result.inspect(|()| self.locked.store(true, Ordering::Relaxed))
    }
}

impl Drop for LockableFile {
    fn drop(&mut self) {
        if self.locked.load(Ordering::Relaxed) {
            let _ = self.file.unlock(); // Closing it is all that is left to try.
        }
    }
}

impl From<File> for LockableFile {
    fn from(file: File) -> Self {
        Self { file, locked: AtomicBool::new(false) }
    }
}

impl Deref for LockableFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl AsFd for LockableFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Starts one short program after the other in threads of this process, for as long as `work` runs. Their copies hold
/// what closing alone releases.
#[cfg(any(test, feature = "testkit"))]
pub fn while_children_start<T>(work: impl FnOnce() -> T) -> T {
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed); // Also where `work` panics: the threads would be waited for.
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let mut child = std::process::Command::new("true");
                    super::end_with_this_thread(&mut child); // By fork, not by vfork: it takes longer to its exec.
                    child.status().expect("a child that does nothing");
                }
            });
        }
        let _done = Done(&done);
        work()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;
    use std::process::{Command, Stdio};

    use rustix::io::{FdFlags, fcntl_setfd};

    use super::*;

    fn opened(path: &Path) -> LockableFile {
        File::options().create(true).append(true).open(path).unwrap().into()
    }

    #[test]
    fn a_lock_ends_with_its_owner_although_a_child_has_a_copy_of_the_descriptor() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let owner = opened(&path);
        owner.try_lock().unwrap();
        fcntl_setfd(&owner, FdFlags::empty()).unwrap(); // The child keeps it after its exec too.
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        assert!(matches!(opened(&path).try_lock(), Err(TryLockError::WouldBlock)), "its owner is there");
        drop(owner);
        let locked_again = opened(&path).try_lock();
        child.kill().unwrap();
        child.wait().unwrap();
        locked_again.unwrap();
    }

    #[test]
    fn a_lock_can_be_had_again_at_once_while_other_threads_start_children() {
        let directory = tempfile::tempdir().unwrap();
        while_children_start(|| {
            for round in 0..2000 {
                let shared = round % 2 == 0;
                let file = opened(&directory.path().join("a"));
                let locked = if shared { file.try_lock_shared() } else { file.try_lock() };
                locked.unwrap_or_else(|error| panic!("round {round}: {error}"));
            }
        });
    }

    #[test]
    fn an_owner_without_a_lock_lets_go_of_nobody_elses() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let owner = opened(&path);
        owner.try_lock().unwrap();
        drop(LockableFile::from(owner.try_clone().unwrap()));
        let other = opened(&path);
        assert!(other.try_lock().is_err());
        drop(other);
        assert!(opened(&path).try_lock().is_err(), "it was refused, and had nothing to let go");
    }
}
