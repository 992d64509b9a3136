//! Keys: makes them, and wraps the data keys of existing sets for new recipients.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fullbore_core::cipher::{KeyFile, PublicKey, Sidecar, WrappedKey, wrap_for};
use fullbore_core::device::Device;
use fullbore_core::pool::Pool;
use fullbore_core::store::Stores;
use fullbore_core::{Error, Result};
use uuid::Uuid;

use fullbore_repository::discovery;

/// Makes a key file with a secret, and beside it `PATH.pub` with the public part only. Returns the id of the key.
///
/// # Errors
/// One of the files exists already, or cannot be written.
pub fn new(path: &Path) -> Result<String> {
    let public = public_path(path);
    if public.exists() {
        return Err(Error::refused(
            public.display().to_string(),
            "exists already",
            "nothing is overwritten: choose another name",
        ));
    }
    let key = KeyFile::generate()?;
    key.write_new(path)?;
    key.write_public_new(&public)?;
    Ok(key.id().to_string())
}

/// The path of the public part of a key.
pub fn public_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// Wraps the data key of every set in `from` for new recipients. Media do not change: a sidecar is written beside the
/// first family. Returns the sidecars.
///
/// # Errors
/// The key opens none of the sets, or a sidecar cannot be written.
pub fn rewrap(from: &[String], key: &Path, encrypt_to: &[PathBuf], stores: &Stores) -> Result<Vec<PathBuf>> {
    let secret = discovery::read_key(Some(key))?;
    let recipients: Vec<PublicKey> =
        encrypt_to.iter().map(|path| KeyFile::read(path).map(|file| file.public().clone())).collect::<Result<_>>()?;
    let written = discovery::settled(from, stores, |discovered| {
        let nothing = Pool::new(0, 4096)?;
        let mut written = Vec::new();
        for found in discovered.sets.iter().filter(|found| !found.header.keys.is_empty()) {
            let mut set = discovery::open_set(found, &nothing, 1, secret.as_ref())?;
            let (_, data_key) = set.parts_mut();
            let Some(data_key) = data_key else { continue };
            let records = wrap_for(&recipients, data_key, found.media_set_id.as_bytes())?;
            written.extend(write_sidecars(&found.devices, found.media_set_id, &records)?);
        }
        Ok(written)
    })?;
    if written.is_empty() {
        return Err(Error::usage(
            "--from",
            "no encrypted backup set was found there",
            "name the families of an encrypted backup",
        ));
    }
    Ok(written)
}

/// Writes the rotated keys of a set into every directory that has a family of it.
pub(super) fn write_sidecars(devices: &[Device], media_set_id: Uuid, records: &[WrappedKey]) -> Result<Vec<PathBuf>> {
    if let Some(object) = devices.iter().find(|device| device.path().is_none()) {
        let why = "is in an object store, but this version writes rotated keys only beside files";
        return Err(Error::refused(object.to_string(), why, "copy the families to files, and name the copies"));
    }
    let directories: BTreeSet<&Path> = devices.iter().filter_map(|device| device.path()?.parent()).collect();
    let mut written = Vec::new();
    for directory in directories {
        let path = directory.join(discovery::sidecar_name(media_set_id));
        let mut all = records.to_vec();
        if path.is_file() {
            // Recipients of an earlier rewrap stay.
            let hint = "rename the damaged sidecar, and name all recipients of the set with --encrypt-to";
            let before = Sidecar::read(&path).map_err(|error| error.noting(hint))?.records;
            all.extend(before.into_iter().filter(|old| records.iter().all(|new| new.key_id != old.key_id)));
        }
        Sidecar { media_set_id: *media_set_id.as_bytes(), records: all }.write(&path)?;
        written.push(path);
    }
    Ok(written)
}

/// The id of the key in a file.
///
/// # Errors
/// It is not a key file.
pub fn id_of(path: &Path) -> Result<String> {
    Ok(KeyFile::read(path)?.id().to_string())
}
