//! The places of `--read` and `--write`, checked before the measurements.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::device::Device;
use fullbore_core::io::free_space;
use fullbore_core::{Error, Result};

use super::Request;
use super::disk::Disk;
use super::probe_file::{PROBE_NAME, ProbeFile};
use super::store::Store;
use fullbore_core::conduct::Conduct;
use fullbore_core::units::show_bytes;
use fullbore_model::profile::{AccessPattern, MeasuredPath, Use};

/// The default space in bytes: this, or a tenth of the free space.
const SPACE: u64 = 4 << 30;
const SHARE_OF_FREE: u64 = 10;
/// The least space: less does not show the speed of a device.
pub(super) const LEAST_SPACE: u64 = 16 << 20;
/// The number of files that are read from a directory, the largest; and the number of names that are looked at.
const FILES: usize = 8;
const NAMES: usize = 100_000;

/// A place that is measured.
pub(super) enum Medium {
    Disk(Disk),
    Store(Box<Store>),
}

impl Medium {
    pub fn coarse(&self, used: Use) -> Vec<AccessPattern> {
        match self {
            Self::Disk(disk) => super::shapes::coarse(used, disk.is_direct()),
            Self::Store(store) => store.coarse(),
        }
    }
}

/// All places, each with its entry in the profile. Adds notes about files that could not be read.
pub(super) fn open(
    request: &Request,
    conduct: &Conduct,
    notes: &mut Vec<String>,
) -> Result<Vec<(MeasuredPath, Medium)>> {
    let mut opened: Vec<(MeasuredPath, Medium)> = Vec::new();
    for (used, texts) in [(Use::Read, &request.read), (Use::Write, &request.write)] {
        for text in texts {
            let (place, medium) = open_one(text, used, (request.space, conduct), notes)?;
            if opened.iter().any(|(other, _)| other.used == used && other.path == place.path) {
                let flag = if used == Use::Read { "--read" } else { "--write" };
                return Err(Error::usage(format!("{flag} {text}"), "is named twice", "name each place once"));
            }
            opened.push((place, medium));
        }
    }
    share_space(&mut opened, request.space)?;
    Ok(opened)
}

fn open_one(
    text: &str,
    used: Use,
    (space, conduct): (Option<u64>, &Conduct),
    notes: &mut Vec<String>,
) -> Result<(MeasuredPath, Medium)> {
    if text.contains("://") {
        let device = Device::parse(text)?;
        if device.is_in_store() {
            let (path, store) = (text.to_owned(), Store::open(device, used, space, conduct)?);
            let place = MeasuredPath { path, used, device: None, bytes: store.space, cells: Vec::new() };
            return Ok((place, Medium::Store(Box::new(store))));
        }
        let path = device.path().map(|path| path.display().to_string()).unwrap_or_default();
        return open_path(&path, used, notes);
    }
    open_path(text, used, notes)
}

fn open_path(text: &str, used: Use, notes: &mut Vec<String>) -> Result<(MeasuredPath, Medium)> {
    let real = Path::new(text).canonicalize().map_err(|e| Error::io("look at", text, e))?;
    let metadata = fs::metadata(&real).map_err(|e| Error::io("look at", text, e))?;
    let disk = match used {
        Use::Read => Disk::new(real.clone(), files(&real, &metadata, notes)?, 0),
        Use::Write if metadata.is_dir() => {
            // Before the measurements: can it be written to, and does it have direct I/O?
            let file = ProbeFile::create(&real).map_err(|error| error.noting("calibration makes its files there"))?;
            Disk::new(real.clone(), vec![file], 0)
        }
        Use::Write => {
            let why = "is not a directory, and calibration makes its own files";
            return Err(Error::usage(format!("--write {text}"), why, "name the directory that backups go to"));
        }
    };
    let (path, device) = (real.display().to_string(), Some(metadata.dev()));
    if used == Use::Read && disk.length() < disk.size() {
        let (read, size) = (show_bytes(disk.length()), show_bytes(disk.size()));
        notes.push(format!("`{path}`: {read} of {size} are read; the rest was never written, and takes no space"));
    }
    let place = MeasuredPath { path, used, device, bytes: disk.length(), cells: Vec::new() };
    Ok((place, Medium::Disk(disk)))
}

/// A file, or the largest files of a directory and those below it.
fn files(path: &Path, metadata: &fs::Metadata, notes: &mut Vec<String>) -> Result<Vec<ProbeFile>> {
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    let mut closed: Vec<PathBuf> = Vec::new();
    if metadata.is_dir() {
        let (mut folders, mut names) = (vec![path.to_owned()], 0);
        while let Some(folder) = folders.pop().filter(|_| names < NAMES) {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                // `lost+found` of a file system is its administrator's.
                Err(e) if folder != *path && e.kind() == ErrorKind::PermissionDenied => {
                    closed.push(folder);
                    continue;
                }
                Err(e) => return Err(Error::io("list", folder.display().to_string(), e)),
            };
            for entry in entries.flatten() {
                names += 1;
                match entry.metadata() {
                    Ok(of) if of.is_dir() && !is_ours(&entry.path()) => folders.push(entry.path()),
                    Ok(of) if of.is_file() => found.push((of.len(), entry.path())),
                    _ => {} // A link, a socket; or removed meanwhile.
                }
            }
        }
    } else if metadata.is_file() {
        found.push((metadata.len(), path.to_owned()));
    }
    found.retain(|(length, path)| *length > 0 && !is_ours(path));
    found.sort_by(|one, other| other.cmp(one));
    let opened = largest(&found, &mut closed)?;
    if let (Some(first), others) = (closed.first(), closed.len().saturating_sub(1)) {
        let others =
            if others == 0 { String::new() } else { format!(", and {others} more below `{}`", path.display()) };
        notes.push(format!("this user may not read `{}`{others}: left out", first.display()));
    }
    if opened.is_empty() {
        let why = if closed.is_empty() { "has no bytes to read" } else { "has no bytes that this user may read" };
        return Err(Error::usage(format!("--read {}", path.display()), why, "name a file, or a directory with files"));
    }
    Ok(opened)
}

fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PROBE_NAME))
}

/// The first of these files that may be read; earlier ones are `closed`. A single file must be readable.
fn largest(found: &[(u64, PathBuf)], closed: &mut Vec<PathBuf>) -> Result<Vec<ProbeFile>> {
    let mut opened = Vec::new();
    for (_, path) in found {
        match ProbeFile::read(path) {
            Ok(file) => opened.push(file),
            Err(Error::Io { source, .. }) if found.len() > 1 && source.kind() == ErrorKind::PermissionDenied => {
                closed.push(path.clone());
            }
            Err(error) => return Err(error),
        }
        if opened.len() == FILES {
            break;
        }
    }
    Ok(opened)
}

/// Gives each written place its share of the space in its file system.
fn share_space(opened: &mut [(MeasuredPath, Medium)], asked: Option<u64>) -> Result<()> {
    let mut places: BTreeMap<u64, u64> = BTreeMap::new();
    let written = |place: &MeasuredPath| place.device.filter(|_| place.used == Use::Write);
    opened.iter().filter_map(|(place, _)| written(place)).for_each(|device| *places.entry(device).or_insert(0) += 1);
    for (place, medium) in opened {
        let (Some(device), Medium::Disk(disk)) = (written(place), medium) else { continue };
        let (free, sharing) = (free_space(&disk.path)?, places[&device]);
        let space = asked.unwrap_or((free / SHARE_OF_FREE).min(SPACE)).min(u64::MAX / 2);
        if space > free || space / sharing < LEAST_SPACE {
            let needed = space.max(LEAST_SPACE * sharing);
            return Err(Error::refused(
                &place.path,
                format!("calibration needs {} there, but {} are free", show_bytes(needed), show_bytes(free)),
                "free space there, or give a --space of a tenth of the free space, at least 16MiB for each --write",
            ));
        }
        disk.space = space / sharing;
        place.bytes = disk.space;
    }
    Ok(())
}
