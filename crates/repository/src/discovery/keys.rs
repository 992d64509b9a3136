//! Key files, and the sidecars with rotated keys beside the families.

use std::collections::HashSet;
use std::path::Path;

use fullbore_core::cipher::{KeyFile, SecretKey, Sidecar, WrappedKey};
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::Found;

/// The end of the name of a sidecar with rotated keys.
pub const SIDECAR_SUFFIX: &str = ".borekeys";

/// Wrapped keys from sidecars beside the families, and the errors of others: the keys in the header may be enough.
pub(super) fn rotated_keys(found: &Found) -> (Vec<WrappedKey>, Vec<Error>) {
    let name = sidecar_name(found.media_set_id);
    let (mut records, mut unreadable) = (Vec::new(), Vec::new());
    let mut seen = HashSet::new();
    for directory in found.devices.iter().filter_map(|device| device.path()?.parent()) {
        let path = directory.join(&name);
        if !seen.insert(path.clone()) || !path.is_file() {
            continue;
        }
        match Sidecar::read(&path) {
            Ok(sidecar) if sidecar.media_set_id == *found.media_set_id.as_bytes() => records.extend(sidecar.records),
            Ok(_) => {}
            Err(error) => unreadable.push(error),
        }
    }
    (records, unreadable)
}

/// The file name of the rotated keys of a set.
pub fn sidecar_name(media_set_id: Uuid) -> String {
    format!("{media_set_id}{SIDECAR_SUFFIX}")
}

/// The secret in a key file.
///
/// # Errors
/// The file cannot be read, or has no secret.
pub fn read_key(path: Option<&Path>) -> Result<Option<SecretKey>> {
    path.map(|path| KeyFile::read(path)?.into_secret()).transpose()
}
