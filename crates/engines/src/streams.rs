//! How many files of a server one backup set can hold: each is a stream, and a line of the manifest.

use fullbore_core::media::STREAMS_MAX;
use fullbore_core::{Error, Result};

/// Most files. Their numbers begin at 1.
pub(crate) const FILES_MAX: u64 = STREAMS_MAX as u64;

/// The number of the stream of a file; `index` begins at 0.
///
/// # Errors
/// No number is left. Files that were created during the copy, or were copied twice, have numbers too.
pub(crate) fn number(index: u64) -> Result<u32> {
    let number = index.saturating_add(1);
    u32::try_from(number).ok().filter(|_| number <= FILES_MAX).ok_or_else(|| {
        let why = format!(
            "it has more than {FILES_MAX} files, with the files that were created or changed during the copy: \
             one backup set cannot hold more"
        );
        Error::refused("the server", why, HINT)
    })
}

/// Refuses a server that has too many files before anything is copied.
///
/// # Errors
/// There are more than a set holds.
pub(crate) fn demand(server: &str, files: u64) -> Result<()> {
    if files <= FILES_MAX {
        return Ok(());
    }
    Err(Error::refused(server, format!("it has {files} files, and one backup set holds {FILES_MAX} at most"), HINT))
}

const HINT: &str =
    "drop unused tables or partitions (each has at least one file), or back up the server with another program";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_stream_number_can_be_used_and_one_more_file_is_refused() {
        assert_eq!((number(0).unwrap(), number(FILES_MAX - 1).unwrap()), (1, FILES_MAX as u32));
        demand("mariadb://h", FILES_MAX).unwrap();
        for error in [number(FILES_MAX).unwrap_err(), number(u64::MAX).unwrap_err()] {
            assert!(error.to_string().contains(&format!("more than {FILES_MAX} files")), "{error}");
        }
        let error = demand("mariadb://h", FILES_MAX + 1).unwrap_err().to_string();
        assert!(
            error.contains("mariadb://h") && error.contains("files, and one") && error.contains("hint:"),
            "{error}"
        );
    }
}
