//! The file with the name of a database that is being restored in steps: a text with the state of the restore, not a
//! database.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fullbore_core::io::{LockableFile, sync_directory};
use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::SetEnd;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::report::{PointReport, Report};
use fullbore_repository::chain::{moment, steps::RestoredState};
use fullbore_repository::discovery::Found;

/// The beginning of the text: SQLite says that the file is not a database.
const MARK: &str = "fullbore: this database is being restored in steps; `fullbore restore --recovery` ends that\n";
/// The version of the JSON that follows.
const FORMAT: u32 = 1;
/// The most bytes of the JSON.
const MOST: u64 = 1 << 20;
/// Follows the name of the target in the working name of the database.
const WORKING: &str = ".norecovery-";

/// The state of a target.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct State {
    /// The target, with its links resolved.
    pub target: PathBuf,
    /// The content of the text.
    pub written: Written,
}

/// The text behind the mark: JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Written {
    pub format: u32,
    /// The file's name beside the target.
    pub working: String,
    /// The name of the engine. Texts of earlier versions do not have it: then it was the only engine with this feature.
    #[serde(default = "first_engine")]
    pub engine: String,
    pub database: String,
    pub full: Uuid,
    pub differential: Option<Uuid>,
    /// One of the applied sets was encrypted. Texts of earlier versions do not have it.
    #[serde(default)]
    pub encrypted: bool,
    pub last: Applied,
    /// The number of applied log sets.
    pub logs: u64,
    /// The database has everything that was committed until this time, in microseconds since 1970.
    pub until: i64,
    /// The position of the database: `position` of a set (MEDIA_FORMAT §11).
    pub stands: Value,
    /// A step that has begun and not ended: the file is in a state in between.
    pub doing: Option<Doing>,
}

fn first_engine() -> String {
    let in_steps = fullbore_engines::ENGINES.iter().find(|engine| engine.file().is_some() && engine.log().is_some());
    in_steps.map(|engine| engine.name().to_owned()).unwrap_or_default()
}

/// A set that was applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Applied {
    pub id: Uuid,
    pub title: String,
    pub started_at: i64,
}

impl Applied {
    pub fn of(found: &Found) -> Self {
        let (id, started_at) = (found.set.backup_set_id, found.set.started_at);
        Self { id, title: fullbore_repository::chain::title(&found.set), started_at }
    }
}

/// A step. After an interruption, doing it again to its end or farther has the same result as without interruption.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Doing {
    pub differential: Option<Uuid>,
    pub last: Applied,
    pub stop_at: Option<i64>,
}

impl State {
    /// The state of the target at `path`; `None` if that is another file, or missing.
    ///
    /// # Errors
    /// It cannot be read, or was written by a newer fullbore.
    pub fn at(path: &Path) -> Result<Option<Self>> {
        let failed = |error| Error::io("read", path.display().to_string(), error);
        let mut bytes = Vec::new();
        match File::open(path) {
            Ok(file) if file.metadata().is_ok_and(|metadata| metadata.is_file()) => {
                let mut start = file.take(MARK.len() as u64);
                start.read_to_end(&mut bytes).map_err(failed)?;
                if bytes != MARK.as_bytes() {
                    return Ok(None);
                }
                bytes.clear();
                start.set_limit(MOST);
                start.read_to_end(&mut bytes).map_err(failed)?;
            }
            // The caller reports anything else.
            _ => return Ok(None),
        }
        let target = fs::canonicalize(path).map_err(failed)?;
        let written: Result<Written, _> = serde_json::from_slice(&bytes);
        let good = |written: &Written| written.format <= FORMAT && is_file_name(&written.working, &target);
        match written {
            Ok(written) if good(&written) => Ok(Some(Self { target, written })),
            _ => {
                let why =
                    "is being restored in steps, but its state is unreadable: it is damaged, or of a newer fullbore";
                Err(Error::incomplete(
                    path.display().to_string(),
                    why,
                    "begin anew: remove it, and the file beside it with .norecovery- in its name",
                ))
            }
        }
    }

    /// A working name for the database of `target`.
    pub fn working_name(target: &Path) -> String {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        format!("{name}{WORKING}{}", Uuid::new_v4())
    }

    /// Databases beside the target that no state names: a restore was killed before it wrote its state.
    pub fn orphans(&self) -> Vec<String> {
        let name = self.target.file_name().unwrap_or_default().to_string_lossy();
        let start = format!("{name}{WORKING}");
        let names = fs::read_dir(self.target.parent().unwrap_or(Path::new("/"))).into_iter().flatten().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&start) && *name != self.written.working).collect()
    }

    /// The path of the unfinished database.
    pub fn working(&self) -> PathBuf {
        self.target.with_file_name(&self.written.working)
    }

    /// Records that these sets were applied, and the new position.
    pub fn applied(&mut self, stands: SetEnd, bases: &[Found], logs: &[Found], stop_at: Option<i64>) {
        let written = &mut self.written;
        let differential = bases.iter().find(|found| found.set.kind == SetKind::Differential);
        written.differential = differential.map(|found| found.set.backup_set_id).or(written.differential);
        written.logs += logs.len() as u64;
        written.encrypted |= bases.iter().chain(logs).any(|found| found.set.encrypted);
        if let Some(last) = logs.last().or(bases.last()) {
            written.last = Applied::of(last);
            let until =
                last.set.log_range.as_ref().map(|range| range.until).or(stands.time).unwrap_or(last.set.started_at);
            written.until = stop_at.map_or(until, |stop| stop.min(until));
        }
        written.doing = None;
        written.stands = stands.position;
    }

    /// The position.
    pub fn end(&self) -> Result<SetEnd> {
        super::log::engine_of(&self.written.engine)?
            .end(&self.written.stands)
            .map_err(|why| Error::incomplete(self.target.display().to_string(), why, "begin anew, with --replace"))
    }

    /// The state, for choosing the next sets.
    pub fn standing(&self) -> RestoredState {
        let written = &self.written;
        let log = fullbore_engines::log(&written.engine);
        RestoredState {
            full: written.full,
            differential: written.differential,
            last: written.last.id,
            title: written.last.title.clone(),
            logs: written.logs > 0,
            database: Some(written.database.clone()).filter(|name| !name.is_empty()),
            started_at: written.last.started_at,
            log_range: log.zip(self.end().ok()).and_then(|(log, end)| log.range_up_to(&end, written.until)),
            encrypted: written.encrypted,
        }
    }

    /// Describes the database in the report of a step that reads no set.
    pub fn describe(&self, report: &mut Report) {
        let written = &self.written;
        let kind = match written.last.id {
            last if last == written.full => SetKind::Full,
            last if Some(last) == written.differential => SetKind::Differential,
            _ => SetKind::Log,
        };
        report.kind = Some(kind.to_string());
        report.backup_set_id = Some(written.last.id.to_string());
        let reached = self.end().ok().and_then(|end| end.time).unwrap_or(written.until);
        report.point = Some(PointReport { at: Some(moment::show(reached)), ..PointReport::default() });
    }

    /// The note for the user. A migration (`refresh`) has other next steps.
    pub fn note(&self, refresh: bool) -> String {
        let written = &self.written;
        let next = if refresh { "" } else { ": name the next sets with --from or --repo, and end with --recovery" };
        format!(
            "`{}` is still restoring, now at {}, {}{next}",
            self.target.display(),
            written.last.title,
            moment::show_with_local(written.until)
        )
    }

    /// The error if another command wants to replace the target.
    pub fn refusal(&self) -> Error {
        let why = format!("is being restored in steps, and is now at {}", self.written.last.title);
        let hint = "continue with --no-recovery or --recovery; or discard it with --replace";
        Error::refused(self.target.display().to_string(), why, hint)
    }

    /// The text as bytes.
    pub fn text(&self) -> Result<Vec<u8>> {
        let json = serde_json::to_vec_pretty(&self.written);
        let json = json.map_err(|e| Error::io("write", self.target.display().to_string(), e.into()))?;
        Ok([MARK.as_bytes(), &json, b"\n"].concat())
    }

    /// Replaces the text of the previous state, durably.
    pub fn write(&self) -> Result<()> {
        let failed = |error| Error::io("write", self.target.display().to_string(), error);
        let name = self.target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let working = self.target.with_file_name(format!("{name}.restoring-{}", Uuid::new_v4()));
        let text = self.text()?;
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&working)?;
            self.give_owner(&file)?;
            file.write_all(&text).and_then(|()| file.sync_all())?;
            fs::rename(&working, &self.target)
        };
        if let Err(error) = write() {
            let _ = fs::remove_file(&working); // The error of the write counts.
            return Err(failed(error));
        }
        self.sync_name()
    }

    /// Gives the restored database its name, durably, in place of this text.
    pub fn finish(&self, database: &File) -> Result<()> {
        let failed = |error| Error::io("give its name to", self.target.display().to_string(), error);
        self.give_owner(database).and_then(|()| database.sync_all()).map_err(failed)?;
        fs::rename(self.working(), &self.target).map_err(failed)?;
        self.sync_name()
    }

    /// Gives the file the owner of the database that was replaced.
    fn give_owner(&self, file: &File) -> std::io::Result<()> {
        let now = fs::metadata(&self.target)?;
        file.set_permissions(Permissions::from_mode(now.mode() & 0o7777))?;
        let own = file.metadata()?;
        match (own.uid(), own.gid()) == (now.uid(), now.gid()) {
            true => Ok(()),
            false => std::os::unix::fs::fchown(file, Some(now.uid()), Some(now.gid())),
        }
    }

    fn sync_name(&self) -> Result<()> {
        sync_directory(self.target.parent().unwrap_or(Path::new("/")))
    }

    /// Removes everything that was restored so far: the text first, so that nothing points to an incomplete database.
    ///
    /// # Errors
    /// A step is running on it, or it cannot be removed.
    pub fn give_up(&self) -> Result<()> {
        let locked = |file: LockableFile| matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if File::open(self.working()).map(LockableFile::from).is_ok_and(locked) {
            let why = "another restore is running on it";
            return Err(Error::refused(self.target.display().to_string(), why, "wait until that restore has ended"));
        }
        super::log::clear(&self.working(), &self.written.engine);
        for path in [&self.target, &self.working()] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::io("remove", path.display().to_string(), error));
                }
                _ => {}
            }
        }
        self.sync_name()
    }
}

/// True for a plain file name beside the target: the text may be forged.
fn is_file_name(name: &str, target: &Path) -> bool {
    let start = target.file_name().unwrap_or_default().to_string_lossy();
    !name.contains(['/', '\0']) && name.strip_prefix(&*start).is_some_and(|rest| rest.starts_with(WORKING))
}
