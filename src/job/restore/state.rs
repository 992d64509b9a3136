//! What stands under the name of a database that is being restored in steps: a text that is no database, and says how far it is.

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

use crate::chain::{moment, steps::Standing};
use crate::job::media::Found;

/// What it begins with: SQLite says of it that it is not a database.
const MARK: &str = "fullbore: this database is being restored in steps; `fullbore restore --recovery` ends that\n";
/// The version of what follows.
const FORMAT: u32 = 1;
/// Most bytes of it.
const MOST: u64 = 1 << 20;
/// What the name of the database so far has behind that of the target.
const WORKING: &str = ".norecovery-";

/// How far a target is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct State {
    /// The target, with its links resolved.
    pub target: PathBuf,
    /// What the text says.
    pub written: Written,
}

/// The text behind the mark: JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Written {
    pub format: u32,
    /// The file's name beside the target.
    pub working: String,
    /// The engine's name. Texts of earlier versions do not say it: then it was the only engine with restores in steps.
    #[serde(default = "first_engine")]
    pub engine: String,
    pub database: String,
    pub full: Uuid,
    pub differential: Option<Uuid>,
    /// A set was encrypted that was applied; earlier programs do not say it.
    #[serde(default)]
    pub encrypted: bool,
    pub last: Applied,
    /// Log sets that were applied.
    pub logs: u64,
    /// Everything that was committed until then is in it, in microseconds since 1970.
    pub until: i64,
    /// Where the database stands: `position` of a set (MEDIA_FORMAT §11).
    pub stands: Value,
    /// What a step has begun to do: the file is neither before it nor behind it.
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
        Self { id, title: crate::chain::title(&found.set), started_at }
    }
}

/// A step: done again to its end, or farther, it comes to the same as if it had never been broken off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Doing {
    pub differential: Option<Uuid>,
    pub last: Applied,
    pub stop_at: Option<i64>,
}

impl State {
    /// The state of the target at `path`; `None` when that is something else, or nothing.
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
            // What it is instead is for others to say.
            _ => return Ok(None),
        }
        let target = fs::canonicalize(path).map_err(failed)?;
        let written: Result<Written, _> = serde_json::from_slice(&bytes);
        let good = |written: &Written| written.format <= FORMAT && is_file_name(&written.working, &target);
        match written {
            Ok(written) if good(&written) => Ok(Some(Self { target, written })),
            _ => {
                let why =
                    "says that it is being restored in steps, and not how far: it is damaged, or of a newer fullbore";
                Err(Error::incomplete(
                    path.display().to_string(),
                    why,
                    "begin anew: remove it, and what is beside it with .norecovery- in its name",
                ))
            }
        }
    }

    /// A name for the database that is put together for `target`.
    pub fn working_name(target: &Path) -> String {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        format!("{name}{WORKING}{}", Uuid::new_v4())
    }

    /// The database so far.
    pub fn working(&self) -> PathBuf {
        self.target.with_file_name(&self.written.working)
    }

    /// These sets were applied: it stands behind them now.
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

    /// Where it stands.
    pub fn end(&self) -> Result<SetEnd> {
        super::log::engine_of(&self.written.engine)?
            .end(&self.written.stands)
            .map_err(|why| Error::incomplete(self.target.display().to_string(), why, "begin anew, with --replace"))
    }

    /// For choosing what comes next.
    pub fn standing(&self) -> Standing {
        let written = &self.written;
        let log = fullbore_engines::log(&written.engine);
        Standing {
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

    /// What a user should know of it.
    pub fn note(&self) -> String {
        let written = &self.written;
        format!(
            "`{}` is left restoring: it stands at {}, {}; the next step names more sets with --from, and --recovery ends it",
            self.target.display(),
            written.last.title,
            moment::show_with_local(written.until)
        )
    }

    /// The error of whoever wants the target for something else.
    pub fn refusal(&self) -> Error {
        let why = format!("is being restored in steps: it stands at {}", self.written.last.title);
        let hint = "go on with --no-recovery or --recovery; or give that up, with --replace";
        Error::refused(self.target.display().to_string(), why, hint)
    }

    /// The text.
    pub fn text(&self) -> Result<Vec<u8>> {
        let json = serde_json::to_vec_pretty(&self.written);
        let json = json.map_err(|e| Error::io("write", self.target.display().to_string(), e.into()))?;
        Ok([MARK.as_bytes(), &json, b"\n"].concat())
    }

    /// Writes it down in the place of what it was, durably.
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
            let _ = fs::remove_file(&working); // What the write said counts.
            return Err(failed(error));
        }
        self.sync_name()
    }

    /// Gives the database its name, durably: what was restored takes the place of this text.
    pub fn finish(&self, database: &File) -> Result<()> {
        let failed = |error| Error::io("give its name to", self.target.display().to_string(), error);
        self.give_owner(database).and_then(|()| database.sync_all()).map_err(failed)?;
        fs::rename(self.working(), &self.target).map_err(failed)?;
        self.sync_name()
    }

    /// Whoever had the database that was replaced has this file too.
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

    /// Gives up what was restored so far: first the text, so that nothing leads to half of it.
    ///
    /// # Errors
    /// A step works on it just now, or it cannot be removed.
    pub fn give_up(&self) -> Result<()> {
        let locked = |file: LockableFile| matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if File::open(self.working()).map(LockableFile::from).is_ok_and(locked) {
            let why = "another restore works on it just now";
            return Err(Error::refused(self.target.display().to_string(), why, "wait until that has ended"));
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

/// A name beside the target, whatever the text says.
fn is_file_name(name: &str, target: &Path) -> bool {
    let start = target.file_name().unwrap_or_default().to_string_lossy();
    !name.contains(['/', '\0']) && name.strip_prefix(&*start).is_some_and(|rest| rest.starts_with(WORKING))
}
