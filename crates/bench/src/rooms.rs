//! The directories of a run, some of them volumes. They are removed when they are dropped.

use std::fs;
use std::path::{Path, PathBuf};

use crate::emulated::Promise;
use fullbore_core::io::free_space;
use fullbore_core::{Error, Result};

use super::cells::Cell;
use super::matrix::{Axis, Matrix};
use super::plan::bytes_of;
use super::volume::How;
use super::volume::block::{self, BlockVolume};
use fullbore_core::child;

/// The directory of a run, in the work directory and in each media directory. The name is reserved: it is emptied.
const RUN: &str = "fullbore-bench-run";
/// A volume is this many times as large as the database. A run writes at most media, the base of a differential, or a
/// restored database. An image takes disk space only for written data.
const VOLUME_FACTOR: u64 = 4;
/// Additional bytes of a volume.
const VOLUME_REST: u64 = 1 << 30;
/// Bytes written to a volume for each byte of its share of the database: media and databases have more than the data.
const WRITTEN: f64 = 1.1;

/// The directories of a run.
pub struct Rooms {
    /// For reports and bases.
    pub run: PathBuf,
    /// For a copied database, and for restored databases.
    pub database: PathBuf,
    /// For media.
    pub media: Vec<PathBuf>,
    /// Directories that are emptied.
    emptied: Vec<PathBuf>,
    volumes: Vec<BlockVolume>,
}

impl Drop for Rooms {
    fn drop(&mut self) {
        self.volumes.clear(); // First: they are mounted inside.
        remove(&self.emptied);
    }
}

fn remove(directories: &[PathBuf]) {
    for directory in directories {
        let _ = fs::remove_dir_all(directory); // If this fails, the next run reports it.
    }
}

/// Removes the leftovers of a killed bench: its volumes and control groups, and the files of runs in these directories.
///
/// # Errors
/// A volume cannot be removed.
pub fn sweep(work: &Path, media_directories: &[PathBuf]) -> Result<()> {
    block::sweep()?;
    child::sweep();
    remove(&[work.join(RUN)]);
    remove(&media_directories.iter().map(|directory| directory.join(RUN)).collect::<Vec<_>>());
    Ok(())
}

/// The directory for the trial volume.
pub fn trial_of(work: &Path) -> PathBuf {
    work.join(RUN)
}

impl Rooms {
    /// Makes the empty directories of a run, and its volumes, which are not slow yet.
    ///
    /// # Errors
    /// There are fewer media directories than devices, not enough space, or a directory or volume cannot be made.
    pub fn make(matrix: &Matrix, work: &Path, cell: &Cell) -> Result<Self> {
        let run = work.join(RUN);
        let count = cell.number(Axis::Devices).unwrap_or(1);
        let media = if matrix.media_directories.is_empty() {
            (1..=count).map(|number| run.join(format!("media-{number}"))).collect()
        } else if matrix.media_directories.len() < count {
            let there = matrix.media_directories.len();
            let why = format!("names {there} directories, but a cell has {count} devices");
            return Err(Error::usage("media-directories", why, "name more of them, or leave it out"));
        } else {
            matrix.media_directories.iter().take(count).map(|one| one.join(RUN)).collect::<Vec<_>>()
        };
        let emptied: Vec<PathBuf> = [run.clone()].into_iter().chain(media.iter().cloned()).collect();
        let mut rooms = Self { database: run.clone(), run, media, emptied, volumes: Vec::new() };
        for directory in &rooms.emptied {
            let _ = fs::remove_dir_all(directory); // From a killed run.
            make_directory(directory)?;
        }
        fs::write(rooms.run.join("empty.toml"), "")
            .map_err(|e| Error::io("write in", rooms.run.display().to_string(), e))?;
        rooms.make_volumes(matrix, cell)?;
        Ok(rooms)
    }

    fn make_volumes(&mut self, matrix: &Matrix, cell: &Cell) -> Result<()> {
        let data = cell.get(Axis::Data).and_then(|name| matrix.data.get(name));
        let bytes = data.and_then(bytes_of);
        if let Some(promise) = block_promise(matrix, cell, Axis::Volume) {
            let folder = self.run.join("database");
            make_directory(&folder)?;
            self.database = self.make_volume(&folder, bytes, 1, promise)?;
        }
        if let Some(promise) = block_promise(matrix, cell, Axis::MediaVolume) {
            for at in 0..self.media.len() {
                let folder = self.media[at].clone();
                self.media[at] = self.make_volume(&folder, bytes, self.media.len() as u64, promise)?;
            }
        }
        Ok(())
    }

    /// Makes one of `count` volumes that share a database's bytes; returns its directory.
    fn make_volume(&mut self, folder: &Path, bytes: Option<u64>, count: u64, promise: Promise) -> Result<PathBuf> {
        let (size, used) = match bytes {
            Some(bytes) => (bytes.saturating_mul(VOLUME_FACTOR) + VOLUME_REST, (bytes as f64 * WRITTEN) as u64 / count),
            // The size of a server's database is unknown: take all space.
            None => (free_space(folder)?, 0),
        };
        let volume = BlockVolume::make(folder, size, used, promise)?;
        let directory = volume.directory();
        self.volumes.push(volume);
        Ok(directory)
    }

    /// Makes the volumes slow.
    ///
    /// # Errors
    /// The kernel does not take the rates.
    pub fn slow_down(&self) -> Result<()> {
        self.volumes.iter().try_for_each(|volume| volume.throttle()?.begin())
    }

    /// Makes them fast again, for good: waiting threads continue at once.
    pub fn speed_up(&self) {
        for volume in &self.volumes {
            if let Ok(throttle) = volume.throttle() {
                throttle.lift();
            }
        }
    }
}

/// The promise of the block device of this axis, if there is one.
fn block_promise(matrix: &Matrix, cell: &Cell, axis: Axis) -> Option<Promise> {
    if cell.how(matrix, axis) != Some(How::Block) {
        return None;
    }
    cell.named(axis).and_then(|name| matrix.volumes.get(name)).map(|profile| profile.scaled(matrix.scale))
}

/// Makes a directory in an existing one. So a disk that was unmounted meanwhile is an error.
fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir(path).map_err(|e| Error::io("make", path.display().to_string(), e))
}
