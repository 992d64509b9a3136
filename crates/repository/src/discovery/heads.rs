//! The first bytes of the files and objects that `--from` names: they tell whose media these are.

use std::fs::File;
use std::io::Read;

use fullbore_core::Result;
use fullbore_core::device::{Destination, Device};
use fullbore_core::store::Stores;

use super::candidates::candidates;

/// The names of fullbore's own families end so. Their objects are not read a second time.
const OWN_NAMES: &str = ".bore";

/// A file or an object.
pub struct Head {
    /// The device.
    pub device: Device,
    /// Its first bytes; fewer than asked for if it is shorter, none if it cannot be read.
    pub bytes: Vec<u8>,
}

/// The first `length` bytes of everything that `from` names, but of files with working names, which backups of this
/// program have.
///
/// # Errors
/// A pattern matches nothing, or a directory, a prefix or an object cannot be read.
pub fn heads(from: &[String], stores: &Stores, length: usize) -> Result<Vec<Head>> {
    let mut heads = Vec::new();
    for candidate in candidates(from, stores)?.into_iter().filter(|candidate| !candidate.leftover) {
        let device = candidate.device;
        let bytes = match device.place() {
            Destination::Object { key, .. } if key.ends_with(OWN_NAMES) => continue,
            Destination::Object { bucket, key } => {
                stores.bucket(bucket)?.read_start(key, length)?.map(|bytes| bytes.to_vec()).unwrap_or_default()
            }
            Destination::File(path) => {
                let mut bytes = Vec::new();
                // A file that cannot be read is not recognised; its reader reports the reason.
                let _ = File::open(path).and_then(|file| file.take(length as u64).read_to_end(&mut bytes));
                bytes
            }
            Destination::Directory(_) | Destination::Prefix { .. } | Destination::Null | Destination::Pipe => continue,
        };
        heads.push(Head { device, bytes });
    }
    Ok(heads)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_a_directory_has_its_first_bytes_and_an_empty_file_has_none() {
        let place = tempfile::tempdir().unwrap();
        for (name, text) in [("a.bak", "TAPE and more"), ("b.txt", ""), ("c", "TA")] {
            std::fs::write(place.path().join(name), text).unwrap();
        }
        let found = heads(&[place.path().display().to_string()], &Stores::default(), 4).unwrap();
        let bytes: Vec<_> = found.iter().map(|head| String::from_utf8_lossy(&head.bytes).into_owned()).collect();
        assert_eq!(bytes, ["TAPE", "", "TA"]);
        assert!(heads(&[format!("{}/*.none", place.path().display())], &Stores::default(), 4).is_err());
    }
}
