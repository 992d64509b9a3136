//! The only module with `unsafe`: aligned memory, io_uring and what a child does before it begins; and with them
//! everything that touches a file descriptor: opening files for direct I/O, queues of reads and writes, locks, durable
//! names in a directory.

mod child;
mod directory;
mod file;
mod holes;
mod home;
mod latency;
mod lockable;
mod operation;
mod private_directory;
mod queue;
mod ring;
mod scratch;
mod small_file;
mod trust;

use crate::error::{Error, Result};

pub use crate::memory::{ALIGNMENT, Memory};
pub use child::end_with_this_thread;
pub use directory::{directory_of, free_space, real_path, rename_noreplace, rename_together, sync_directory};
pub use file::OpenedFile;
pub use holes::{hole_bytes, written_ranges};
pub use home::{config_home, home, is_credential, state_home};
pub use latency::Latency;
pub use lockable::LockableFile;
#[cfg(any(test, feature = "testkit"))]
pub use lockable::while_children_start;
pub use operation::{Completion, Payload};
pub use private_directory::PrivateDirectory;
pub use queue::{DeviceAccount, Queue, Statistics};
pub use scratch::{ScratchFile, scratch_directory};
pub use small_file::{open_without_wait, read_small, read_whole, replace_whole, working_name};
pub use trust::{refuse_file_with_other_writers, refuse_files_of_others};

/// How files are read and written. [`Mode::Auto`] is for every day; the others force a path, for tests and for
/// machines where the probe is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Direct I/O and io_uring where the probes allow them.
    #[default]
    Auto,
    /// io_uring or an error; direct I/O where the file system allows it.
    Uring,
    /// One `pread` or `pwrite` at a time; direct I/O where the file system allows it.
    Blocking,
    /// Through the page cache; io_uring where the kernel allows it.
    Buffered,
}

impl Mode {
    /// What `FULLBORE_IO` says (`blocking`, `uring`, `buffered`); [`Mode::Auto`] when it is not set.
    ///
    /// # Errors
    /// A usage error for any other value.
    pub fn from_environment() -> Result<Self> {
        match std::env::var_os("FULLBORE_IO") {
            None => Ok(Mode::Auto),
            Some(value) => Self::parse(&value.to_string_lossy()),
        }
    }

    fn parse(value: &str) -> Result<Self> {
        match value {
            "" | "auto" => Ok(Mode::Auto),
            "uring" => Ok(Mode::Uring),
            "blocking" => Ok(Mode::Blocking),
            "buffered" => Ok(Mode::Buffered),
            _ => Err(Error::usage(
                format!("FULLBORE_IO={value}"),
                "unknown mode",
                "use auto, uring, blocking or buffered",
            )),
        }
    }
}

/// A directory for a test that goes with it, beside the compiled tests: the usual one is often in memory, where there
/// is no direct I/O.
#[cfg(test)]
pub(crate) fn directory_on_disk() -> tempfile::TempDir {
    let tests = std::env::current_exe().expect("the path of the tests");
    tempfile::tempdir_in(tests.parent().expect("a directory")).expect("a temporary directory")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_unknown_mode_is_a_usage_error_that_names_the_known_ones() {
        assert_eq!(Mode::parse("blocking").unwrap(), Mode::Blocking);
        let error = Mode::parse("fast").unwrap_err().to_string();
        assert!(error.contains("fast") && error.contains("uring"), "{error}");
    }
}
