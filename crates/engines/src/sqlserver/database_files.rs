//! Writes the files of a database from its backup sets: pages at their places in MDF and NDF, log at its places in LDF.
//! What no backup holds stays a hole, which reads as zeros.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fullbore_core::io::{rename_noreplace, sync_directory};
use fullbore_core::units::counted;
use fullbore_core::{Error, Result};

use super::configuration::{Configuration, DatabaseFile, FileKind};
use super::log_range::LogRange;
use super::opened;
use super::page::{PAGE, PAGES_PER_EXTENT, PageCheck, check, place};
use super::walk::{Content, Depth, Event, walk};
use crate::engine::{ForeignFamily, RestoredFile};

/// Extents of a second copy that are remembered: SQL Server writes what changed while the first copy was made.
const LATER_MAX: usize = 1 << 22;

/// The files of a database that is being written.
pub struct DatabaseFiles {
    directory: PathBuf,
    files: BTreeMap<u32, Written>,
    /// Pages that were written whose check does not match. They may be out of use.
    pub not_matching: u64,
    /// Extents whose place is not known.
    pub unplaced: u64,
    /// Extents that a second copy of this set has written, with the number of the copy.
    later: HashMap<(u16, u32), u32>,
}

struct Written {
    file: File,
    temporary: PathBuf,
    restored: RestoredFile,
}

impl DatabaseFiles {
    /// Makes a file in `directory` for each file of the database, with its size and a temporary name.
    ///
    /// # Errors
    /// Two files have one name, a name cannot be that of a file, or a file cannot be made.
    pub fn create(configuration: &Configuration, directory: &Path) -> Result<Self> {
        let mut made = Self {
            directory: directory.to_owned(),
            files: BTreeMap::new(),
            not_matching: 0,
            unplaced: 0,
            later: HashMap::new(),
        };
        for described in configuration.files.iter().filter(|file| !matches!(file.kind, FileKind::Other(_))) {
            made.add(described)?;
        }
        Ok(made)
    }

    fn add(&mut self, described: &DatabaseFile) -> Result<()> {
        let name = file_name(&described.physical_name)?;
        let is_taken = |written: &Written| written.restored.name.eq_ignore_ascii_case(&name);
        if self.files.values().any(is_taken) || self.directory.join(&name).symlink_metadata().is_ok() {
            let why = "two files of the database have this name, or it exists already";
            return Err(Error::refused(format!("`{name}`"), why, "restore into an empty directory"));
        }
        let temporary = self.directory.join(format!(".{name}.unfinished"));
        let io = |e| Error::io("make", temporary.display().to_string(), e);
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary).map_err(io)?;
        file.set_len(described.size).map_err(io)?;
        let restored = RestoredFile { name, logical: described.logical_name.clone(), size: described.size, bytes: 0 };
        self.files.insert(described.id, Written { file, temporary, restored });
        Ok(())
    }

    /// Writes the pages and the log of one set. `families` are all families of its media, and `position` is its place on
    /// them. A later set is written over an earlier one.
    ///
    /// # Errors
    /// A family is damaged or cut off, or a file cannot be written.
    pub fn write_set(&mut self, families: Vec<ForeignFamily>, position: u16) -> Result<()> {
        self.later.clear();
        for family in families {
            let mut input = opened::open(family)?;
            let (mut is_open, mut copy, mut range, mut log_at) = (false, 0, None::<LogRange>, 0);
            walk(&mut input, Depth::Everything, &mut |event| {
                match event {
                    Event::SetBegins(header) => (is_open, copy) = (header.position == position, 0),
                    Event::SetEnds => is_open = false,
                    Event::LogRange(found) => range = Some(found),
                    Event::ContentBegins(Content::Pages) => copy += 1,
                    Event::ContentBegins(Content::Log) => log_at = range.map_or(0, |range| range.begin),
                    Event::Piece { content: Content::Pages, bytes, .. } if is_open => self.extent(bytes, copy)?,
                    Event::Piece { content: Content::Log, bytes, .. } if is_open => {
                        if let Some(range) = range {
                            self.log(&range, log_at, bytes)?;
                            log_at += bytes.len() as u64;
                        }
                    }
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Writes an extent at the place that its pages name. The last copy counts.
    fn extent(&mut self, bytes: &[u8], copy: u32) -> Result<()> {
        let (pages, _) = bytes.as_chunks::<PAGE>();
        let checks: Vec<PageCheck> = pages.iter().map(check).collect();
        let good = |check: &PageCheck| matches!(check, PageCheck::Checksum | PageCheck::TornBits | PageCheck::Without);
        let places = pages.iter().zip(&checks).zip(0..PAGES_PER_EXTENT);
        let named =
            places.filter(|((_, check), _)| good(check)).find_map(|((page, _), slot)| Some((place(page, slot)?, slot)));
        let Some((id, slot)) = named else {
            // An extent of zeros is a hole already.
            self.unplaced += u64::from(checks.iter().any(|check| *check != PageCheck::Zero));
            return Ok(());
        };
        self.not_matching +=
            checks.iter().filter(|check| matches!(check, PageCheck::BadChecksum | PageCheck::Torn)).count() as u64;
        let first = id.page - slot;
        let key = (id.file, first);
        if self.later.get(&key).is_some_and(|later| *later > copy) {
            return Ok(());
        }
        if copy > 1 {
            if self.later.len() >= LATER_MAX {
                let why = "its second copy of pages is larger than any that SQL Server writes";
                return Err(Error::refused("the backup set", why, "use another backup"));
            }
            self.later.insert(key, copy);
        }
        self.put(u32::from(id.file), u64::from(first) * PAGE as u64, bytes)
    }

    fn log(&mut self, range: &LogRange, at: u64, bytes: &[u8]) -> Result<()> {
        // The stream is padded behind the last block of the range.
        let room = usize::try_from(range.end.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes.len());
        self.put(range.file, at, bytes.get(..room).unwrap_or_default())
    }

    fn put(&mut self, file: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        let Some(written) = self.files.get_mut(&file) else {
            let what = format!("it has bytes of file {file}, which its description does not name");
            return Err(Error::incomplete("the backup set", what, "use another backup"));
        };
        let failed = |e| Error::io("write", written.temporary.display().to_string(), e);
        written.file.write_all_at(bytes, offset).map_err(failed)?;
        written.restored.bytes += bytes.len() as u64;
        written.restored.size = written.restored.size.max(offset.saturating_add(bytes.len() as u64));
        Ok(())
    }

    /// What is not right with what was written.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.not_matching > 0 {
            let pages = counted(self.not_matching, "page");
            warnings
                .push(format!("{pages} do not match their checks: `fullbore verify` says which of them are in use"));
        }
        if self.unplaced > 0 {
            let extents = counted(self.unplaced, "extent");
            warnings.push(format!("{extents} name no place in the database, and are left out"));
        }
        warnings
    }

    /// Makes all files durable, and gives them their names.
    ///
    /// # Errors
    /// A file cannot be synced or renamed.
    pub fn publish(mut self) -> Result<Vec<RestoredFile>> {
        for written in self.files.values() {
            let failed = |e| Error::io("sync", written.temporary.display().to_string(), e);
            written.file.sync_all().map_err(failed)?;
        }
        let mut published: Vec<PathBuf> = Vec::new();
        for written in self.files.values() {
            let to = self.directory.join(&written.restored.name);
            if let Err(error) = rename_noreplace(&written.temporary, &to) {
                // Some of the files alone would look like a database.
                for path in &published {
                    let _ = std::fs::remove_file(path);
                }
                return Err(Error::io("rename to", to.display().to_string(), error));
            }
            published.push(to);
        }
        sync_directory(&self.directory)?;
        Ok(std::mem::take(&mut self.files).into_values().map(|written| written.restored).collect())
    }
}

impl Drop for DatabaseFiles {
    /// A restore that fails leaves no file.
    fn drop(&mut self) {
        for written in self.files.values() {
            let _ = std::fs::remove_file(&written.temporary); // The error that ends the restore is the one to tell.
        }
    }
}

/// The last part of a path of Windows or Linux, as the name of a file here.
///
/// # Errors
/// It is empty, `.` or `..`, too long, or has a control character: no genuine backup has such a name.
pub fn file_name(physical: &str) -> Result<String> {
    let name = physical.rsplit(['\\', '/', ':']).next().unwrap_or_default();
    let is_name =
        !name.is_empty() && name != "." && name != ".." && name.len() <= 200 && !name.contains(char::is_control);
    if is_name {
        return Ok(name.to_owned());
    }
    let why = "cannot be the name of a file";
    Err(Error::refused(
        format!("PhysicalName `{}`", physical.escape_debug()),
        why,
        "the media are not genuine: use others",
    ))
}
