//! The output of `--dry-run` for a backup: where its families would go, how they are packed, and which keys open them.

use std::path::PathBuf;

use fullbore_core::Result;
use fullbore_core::cipher::{KeyFile, WrappedKey};
use fullbore_core::device::{Destination, Device};
use fullbore_core::io::{directory_of, free_space};
use fullbore_core::sink::check_directory;

use super::resolve::Resolved;
use crate::report::{KeyReport, PlannedFamily, PlannedReport};

/// The plan of a backup.
///
/// # Errors
/// A directory does not exist, and `--mkdir` is missing: the backup would refuse it.
pub(super) fn planned(resolved: &Resolved<'_>) -> Result<PlannedReport> {
    let request = resolved.request;
    for device in resolved.devices.iter().chain(&resolved.mirrors) {
        if let Destination::File(path) = device.place() {
            check_directory(directory_of(path), request.mkdir)?;
        }
    }
    let family = |device: &Device| PlannedFamily {
        device: device.to_string(),
        expected_bytes: resolved.expected_per_family,
        free_bytes: free_for(device),
    };
    Ok(PlannedReport {
        compression: request.compression.to_string(),
        readers: resolved.plan.readers as u64,
        workers: resolved.plan.workers as u64,
        queue_depth: resolved.plan.queue_depth as u64,
        families: resolved.devices.iter().map(family).collect(),
        copies: resolved.mirrors.iter().map(family).collect(),
    })
}

/// Free bytes at the place of a family; `None` for a store, and for a directory that does not exist yet.
fn free_for(device: &Device) -> Option<u64> {
    match device.place() {
        Destination::File(path) => free_space(directory_of(path)).ok(),
        _ => None,
    }
}

/// The keys that a set is encrypted to, each with its file among these.
pub(in crate::job) fn encrypted_to(keys: &[WrappedKey], files: &[PathBuf]) -> Vec<KeyReport> {
    let id_in = |path: &PathBuf| KeyFile::read(path).ok().map(|file| file.public().id());
    let read: Vec<_> = files.iter().map(|path| (id_in(path), path)).collect();
    let named = |key: &WrappedKey| {
        let file = read.iter().find(|(id, _)| *id == Some(key.key_id));
        KeyReport { key_id: key.key_id.to_string(), file: file.map(|(_, path)| path.display().to_string()) }
    };
    keys.iter().map(named).collect()
}
