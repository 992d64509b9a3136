//! How many files of a server one backup set can hold: each is a stream, and its number on the media has 16 bits.

use fullbore_core::{Error, Result};

/// Numbers of streams begin at 1.
const FILES_MAX: u64 = u16::MAX as u64;

/// The number of the stream of a file; `index` begins at 0.
///
/// # Errors
/// There is no number left. Files that came while the copy ran, and those that were copied twice, have numbers too.
pub(crate) fn number(index: u64) -> Result<u16> {
    u16::try_from(index.saturating_add(1)).map_err(|_| {
        let why = format!(
            "it has more than {FILES_MAX} files, those included that came or changed while they were copied: one backup set holds no more"
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
    Err(Error::refused(server, format!("it has {files} files, and one backup set holds {FILES_MAX} at the most"), HINT))
}

const HINT: &str =
    "drop tables or partitions that nobody needs, each of which is a file at least; or back it up with another program";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_as_there_are_numbers_will_do_and_not_one_more() {
        assert_eq!((number(0).unwrap(), number(65_534).unwrap()), (1, 65_535));
        demand("mariadb://h", 65_535).unwrap();
        for error in [number(65_535).unwrap_err(), number(u64::MAX).unwrap_err()] {
            assert!(error.to_string().contains("more than 65535 files"), "{error}");
        }
        let error = demand("mariadb://h", 65_536).unwrap_err().to_string();
        assert!(
            error.contains("mariadb://h") && error.contains("has 65536 files") && error.contains("hint:"),
            "{error}"
        );
    }
}
