//! Where a run has its files: directories of its own, some of them volumes. All of it is gone when it is dropped.

use std::fs;
use std::path::{Path, PathBuf};

use fullbore_core::emulated::Promise;
use fullbore_core::io::free_space;
use fullbore_core::{Error, Result};

use super::cells::Cell;
use super::child;
use super::matrix::{Axis, Matrix};
use super::plan::bytes_of;
use super::volume::How;
use super::volume::block::{self, BlockVolume};

/// The directory of a run in the work directory and in each media directory: nobody else calls one so, for it is emptied.
const RUN: &str = "fullbore-bench-run";
/// A volume is so many times as large as the database: what a run writes to it at the most is media, a differential's base or what it
/// restores. An image takes only what was written to it.
const VOLUME_FACTOR: u64 = 4;
/// Bytes besides.
const VOLUME_REST: u64 = 1 << 30;
/// Bytes written to a volume for each of the database that falls to it: media and databases have more than the data.
const WRITTEN: f64 = 1.1;

/// Where a run has its files.
pub struct Rooms {
    /// The run's own: reports, bases.
    pub run: PathBuf,
    /// The database's, if that is copied, and what is restored.
    pub database: PathBuf,
    /// The media's.
    pub media: Vec<PathBuf>,
    /// What is emptied.
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
        let _ = fs::remove_dir_all(directory); // The next run says if it cannot.
    }
}

/// Removes what a bench that was killed has left: volumes and control groups wherever they are, and the files of runs in these directories.
///
/// # Errors
/// A volume cannot be taken away.
pub fn sweep(work: &Path, media_directories: &[PathBuf]) -> Result<()> {
    block::sweep()?;
    child::sweep();
    remove(&[work.join(RUN)]);
    remove(&media_directories.iter().map(|directory| directory.join(RUN)).collect::<Vec<_>>());
    Ok(())
}

/// The directory in which it is tried whether volumes can be made.
pub fn trial_of(work: &Path) -> PathBuf {
    work.join(RUN)
}

impl Rooms {
    /// Makes the directories of a run, empty, and its volumes, which are not slow yet.
    ///
    /// # Errors
    /// There are fewer media directories than devices, no room, or something cannot be made.
    pub fn make(matrix: &Matrix, work: &Path, cell: &Cell) -> Result<Self> {
        let run = work.join(RUN);
        let count = cell.number(Axis::Devices).unwrap_or(1);
        let media = if matrix.media_directories.is_empty() {
            (1..=count).map(|number| run.join(format!("media-{number}"))).collect()
        } else if matrix.media_directories.len() < count {
            let there = matrix.media_directories.len();
            let why = format!("names {there} directories, and a cell has {count} devices");
            return Err(Error::usage("media-directories", why, "name more of them, or leave it out"));
        } else {
            matrix.media_directories.iter().take(count).map(|one| one.join(RUN)).collect::<Vec<_>>()
        };
        let emptied: Vec<PathBuf> = [run.clone()].into_iter().chain(media.iter().cloned()).collect();
        let mut rooms = Self { database: run.clone(), run, media, emptied, volumes: Vec::new() };
        for directory in &rooms.emptied {
            let _ = fs::remove_dir_all(directory); // Of a run that was killed.
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

    /// One of `count` that share a database's bytes; gives its directory.
    fn make_volume(&mut self, folder: &Path, bytes: Option<u64>, count: u64, promise: Promise) -> Result<PathBuf> {
        let (size, used) = match bytes {
            Some(bytes) => (bytes.saturating_mul(VOLUME_FACTOR) + VOLUME_REST, (bytes as f64 * WRITTEN) as u64 / count),
            // A server does not say before: all that there is.
            None => (free_space(folder)?, 0),
        };
        let volume = BlockVolume::make(folder, size, used, promise)?;
        let directory = volume.directory();
        self.volumes.push(volume);
        Ok(directory)
    }

    /// Makes the volumes as slow as they are to be.
    ///
    /// # Errors
    /// The kernel does not take the rates.
    pub fn slow_down(&self) -> Result<()> {
        self.volumes.iter().try_for_each(|volume| volume.throttle()?.begin())
    }

    /// Makes them fast again, for good: what waits for them goes on at once.
    pub fn speed_up(&self) {
        for volume in &self.volumes {
            if let Ok(throttle) = volume.throttle() {
                throttle.lift();
            }
        }
    }
}

/// What a block device of that axis has to promise, if it is one.
fn block_promise(matrix: &Matrix, cell: &Cell, axis: Axis) -> Option<Promise> {
    if cell.how(matrix, axis) != Some(How::Block) {
        return None;
    }
    cell.named(axis).and_then(|name| matrix.volumes.get(name)).map(|profile| profile.scaled(matrix.scale))
}

/// Makes a directory in one that is there: a disk that went meanwhile is not written past.
fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir(path).map_err(|e| Error::io("make", path.display().to_string(), e))
}
