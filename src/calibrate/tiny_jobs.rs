//! The fixed costs of a job besides moving its bytes: a backup and a restore of a tiny database, each in a separate
//! process of this program.

use std::fs::{self, DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fullbore_core::device::{Destination, Device};
use fullbore_core::io::LockableFile;
use fullbore_core::{Error, Result};
use rusqlite::Connection;
use rustix::fs::OFlags;

use super::pace::Pace;
use super::probe_file::PROBE_NAME;
use fullbore_core::child::{self, Surroundings};
use fullbore_core::conduct::Conduct;
use fullbore_model::profile::JobCost;

/// Bytes that a round writes, about: the database, its backup, and the restored one.
const WRITTEN: u64 = 1 << 20;
/// How long a round may wait for its turn under `--throttle`.
const PATIENCE: Duration = Duration::from_secs(5);
/// This many rounds are made at a time, if one takes no longer than the next constant.
const AT_A_TIME: u32 = 3;
const QUICK: Duration = Duration::from_millis(250);
/// Longer than any tiny job takes.
const TIMEOUT: Duration = Duration::from_secs(120);
/// The exit codes of a job that is done, or done with warnings.
const DONE: [i32; 2] = [0, 4];
/// Longer than a clock tick (`CLOCK_TICK` of the source). A backup waits for the clock if the database was changed
/// within its last tick, which a usual database was not.
const AGE: Duration = Duration::from_millis(60);
/// About 150 KiB that pack to half, with a write-ahead log as most databases have.
const ROWS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
    CREATE TABLE entry (id INTEGER PRIMARY KEY, word TEXT, noise BLOB);
    WITH RECURSIVE number(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM number WHERE id < 1000)
    INSERT INTO entry SELECT id, printf('entry %d of a tiny database, that a job costs little for', id),
        randomblob(60) FROM number;";

/// Tiny jobs between a directory and a place for media.
pub(super) struct TinyJobs {
    /// The number of the place of the media in the profile.
    pub media: usize,
    /// The directory of the database.
    pub folder: PathBuf,
    /// The object of the family; `None` if the family is a file beside the database.
    pub object: Option<Device>,
    /// `--config`, for the children.
    pub config: Option<PathBuf>,
    /// The time of one round, if known.
    pub took: Duration,
    /// They failed, and have no rounds.
    pub failed: bool,
}

/// One round.
struct Cost {
    plain_bytes: u64,
    backup_s: f64,
    restore_s: f64,
}

impl TinyJobs {
    /// One round, or several if jobs are quick: quick jobs differ more.
    pub fn measure(&mut self, known: &mut JobCost, pace: &Pace<'_>) -> Result<()> {
        for _ in 0..AT_A_TIME {
            match self.round(pace)? {
                Some(cost) => known.add(cost.plain_bytes, cost.backup_s, cost.restore_s),
                None => break,
            }
            if self.took > QUICK {
                break;
            }
        }
        Ok(())
    }

    /// One backup and one restore; `None` if a cap leaves no time for them.
    fn round(&mut self, pace: &Pace<'_>) -> Result<Option<Cost>> {
        if self.failed || !pace.admits(WRITTEN, Instant::now() + PATIENCE)? {
            return Ok(None);
        }
        let begun = Instant::now();
        let made = self.make(pace.conduct);
        self.took = begun.elapsed();
        self.failed = made.is_err();
        made.map(Some)
    }

    fn make(&self, conduct: &Conduct) -> Result<Cost> {
        let room = Room::open(&self.folder)?;
        let database = room.path.join("tiny.db");
        let plain_bytes = make_database(&database)?;
        std::thread::sleep(AGE);
        let family = match &self.object {
            Some(object) => object.to_string(),
            None => room.path.join("tiny.bore").display().to_string(),
        };
        let _removed = self.object.as_ref().map(|object| Kept { object, conduct });
        let restored = room.path.join("restored.db");
        let of = |path: &Path| format!("sqlite:{}", path.display());
        let backup_s = self.child(&["backup", &of(&database), "--to", &family], conduct)?;
        let restore_s = self.child(&["restore", "--from", &family, "--into", &of(&restored)], conduct)?;
        Ok(Cost { plain_bytes, backup_s, restore_s })
    }

    /// Runs a child; returns the seconds from its start to its end.
    fn child(&self, words: &[&str], conduct: &Conduct) -> Result<f64> {
        let mut arguments: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        arguments.extend(["--quiet", "--progress", "none"].map(str::to_owned));
        if let Some(config) = &self.config {
            arguments.extend(["--config".to_owned(), config.display().to_string()]);
        }
        let surroundings = Surroundings { limits: None, variable: None, timeout: TIMEOUT, relief: &|| () };
        let ended = child::run(&arguments, &surroundings, conduct)?;
        if ended.status.code().is_some_and(|code| DONE.contains(&code)) {
            return Ok(ended.seconds);
        }
        let why = ended.said.lines().find(|line| line.starts_with("error: ")).unwrap_or("a signal ended it");
        Err(Error::refused(format!("fullbore {}", words[0]), why.trim_start_matches("error: "), ""))
    }
}

fn make_database(path: &Path) -> Result<u64> {
    let failed =
        |e: &dyn std::fmt::Display| Error::io("make", path.display().to_string(), std::io::Error::other(e.to_string()));
    let made = Connection::open(path).and_then(|database| database.execute_batch(ROWS));
    made.map_err(|e| failed(&e))?;
    fs::metadata(path).map(|metadata| metadata.len()).map_err(|e| failed(&e))
}

/// An object that is removed with the round, if it exists.
struct Kept<'a> {
    object: &'a Device,
    conduct: &'a Conduct,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Destination::Object { bucket, key } = self.object.place() {
            let removed = self.conduct.stores.bucket(bucket).and_then(|bucket| bucket.remove(key));
            let _ = removed; // Nothing more can be done; its name shows its origin.
        }
    }
}

/// A directory for tiny jobs, which need file names. It always has the same name, and is locked: the next run removes
/// the leftovers of a killed run.
struct Room {
    path: PathBuf,
    _lock: LockableFile,
}

impl Room {
    fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(format!("{PROBE_NAME}jobs"));
        let shown = || path.display().to_string();
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Error::io("make the directory", shown(), e));
            }
            _ => {}
        }
        let failed = |e| Error::io("open", shown(), e);
        let flags = (OFlags::DIRECTORY | OFlags::NOFOLLOW).bits().cast_signed();
        let lock = OpenOptions::new().read(true).custom_flags(flags).open(&path).map_err(failed)?;
        let lock = LockableFile::from(lock);
        let metadata = lock.metadata().map_err(failed)?;
        if metadata.uid() != rustix::process::getuid().as_raw() {
            return Err(Error::refused(shown(), "belongs to another user", "remove it"));
        }
        if lock.try_lock().is_err() {
            return Err(Error::refused(shown(), "another calibration is running there", "wait until it has ended"));
        }
        empty(&path).map_err(failed)?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // Nothing more can be done; its name shows its origin, and the next run tries again.
        let _ = empty(&self.path).and_then(|()| fs::remove_dir(&self.path));
    }
}

/// Removes the files in it.
fn empty(path: &Path) -> std::io::Result<()> {
    fs::read_dir(path)?.try_for_each(|entry| fs::remove_file(entry?.path()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_one_calibrations_own_and_what_a_killed_one_has_left_goes_with_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(".fullbore-calibrate-jobs");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("tiny.db"), "left").unwrap();
        let room = Room::open(folder.path()).unwrap();
        assert_eq!(fs::read_dir(&room.path).unwrap().count(), 0);
        let error = Room::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains("another calibration"), "{error}");
        fs::write(room.path.join("tiny.db"), "mine").unwrap();
        drop(room);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn nothing_is_removed_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let theirs = tempfile::tempdir().unwrap();
        fs::write(theirs.path().join("precious"), "1").unwrap();
        std::os::unix::fs::symlink(theirs.path(), folder.path().join(".fullbore-calibrate-jobs")).unwrap();
        assert!(Room::open(folder.path()).is_err());
        assert_eq!(fs::read(theirs.path().join("precious")).unwrap(), b"1");
    }

    #[test]
    fn the_tiny_database_is_one_and_is_tiny() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = make_database(&folder.path().join("tiny.db")).unwrap();
        assert!((64 << 10..WRITTEN / 3).contains(&bytes), "{bytes}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no journal is left");
    }
}
