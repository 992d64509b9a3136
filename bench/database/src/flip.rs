//! Flips one bit of a file: the smallest damage there is.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, ensure};

/// Flips the lowest bit of the byte at `offset`, or in the middle of the file, and says where.
pub fn run(file: &Path, offset: Option<u64>) -> anyhow::Result<String> {
    let open = OpenOptions::new().read(true).write(true).open(file);
    let open = open.with_context(|| format!("cannot open `{}`", file.display()))?;
    let length = open.metadata()?.len();
    let offset = offset.unwrap_or(length / 2);
    ensure!(offset < length, "`{}` has {length} bytes: there is none at {offset}", file.display());
    let mut byte = [0];
    open.read_exact_at(&mut byte, offset)?;
    open.write_all_at(&[byte[0] ^ 1], offset)?;
    open.sync_all()?;
    Ok(format!("flipped bit 0 of byte {offset} of {length} in {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_is_flipped_and_flipping_it_again_mends_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [7, 7, 7]).unwrap();
        run(file.path(), None).unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap(), [7, 6, 7]);
        run(file.path(), Some(1)).unwrap();
        assert_eq!(std::fs::read(file.path()).unwrap(), [7, 7, 7]);
        assert!(run(file.path(), Some(3)).is_err());
    }
}
