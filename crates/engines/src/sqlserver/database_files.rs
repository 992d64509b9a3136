//! Writes the files of a database from its backup sets: pages at their places in MDF and NDF, log at its places in LDF.
//! What no backup holds stays a hole, which reads as zeros.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_core::io::{rename_together, sync_directory};
use fullbore_core::{Error, Result};

use super::allocation::{PFS, is_of_pfs};
use super::configuration::{Configuration, DatabaseFile, FileKind};
use super::extent_set::ExtentSet;
use super::log_range::LogRange;
use super::opened;
use super::page::{EXTENT, PAGE, PAGES_PER_EXTENT, PageCheck, PageId, check, is_of_no_file, kind, place};
use super::walk::{Content, Depth, Event, walk};
use crate::engine::{FilePlaces, ForeignFamily, RestoredFile};
use crate::foreign_set::bytes::Watch;

mod check;

/// Extents of a second copy that are remembered: SQL Server writes what changed while the first copy was made.
const LATER_MAX: usize = 1 << 22;

/// The files of a database that is being written.
pub struct DatabaseFiles {
    places: FilePlaces,
    files: BTreeMap<u32, Written>,
    /// Extents that a second copy of this set has written, with the number of the copy.
    later: HashMap<(u16, u32), u32>,
    /// The last extent of this copy.
    before: Option<(u16, u32)>,
    sets: u32,
    /// The extents that were written.
    there: ExtentSet,
    /// True if an extent of the full says no place.
    has_lost: bool,
    /// False if only the data files are written.
    with_log: bool,
    /// Streams of pages that do not match their backup checksum, if only the data files are written.
    mismatches: Vec<Error>,
    /// Ends the check at the end of the job.
    watch: Watch,
}

struct Written {
    file: File,
    kind: FileKind,
    temporary: PathBuf,
    restored: RestoredFile,
    right: RightPages,
}

/// The pages that were written last are right: each matches its check, and names its place. One byte for each extent.
#[derive(Default)]
struct RightPages(BTreeMap<u32, Box<[u8; Self::GROUP]>>);

impl RightPages {
    /// Extents of a group: 256 MiB of a file.
    const GROUP: usize = 4096;

    fn note(&mut self, extent: u32, right: u8) {
        let group = self.0.entry(extent / Self::GROUP as u32).or_insert_with(|| Box::new([0; Self::GROUP]));
        if let Some(byte) = group.get_mut(extent as usize % Self::GROUP) {
            *byte = right;
        }
    }

    fn contains(&self, page: u32) -> bool {
        let extent = page / PAGES_PER_EXTENT;
        let group = self.0.get(&(extent / Self::GROUP as u32));
        let right = group.and_then(|group| group.get(extent as usize % Self::GROUP));
        right.is_some_and(|right| right >> (page % PAGES_PER_EXTENT) & 1 == 1)
    }
}

impl Written {
    /// A page that was written.
    fn page(&self, number: u32) -> Result<Box<[u8; PAGE]>> {
        let mut page = Box::new([0; PAGE]);
        let failed = |e| Error::io("read", self.temporary.display().to_string(), e);
        self.file.read_exact_at(&mut page[..], u64::from(number) * PAGE as u64).map_err(failed)?;
        Ok(page)
    }

    /// Its name, for messages.
    fn name(&self) -> String {
        self.restored.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Where a family is being read: for messages.
#[derive(Clone, Copy)]
struct At<'a> {
    device: &'a str,
    offset: u64,
}

impl At<'_> {
    fn damaged(self, what: impl Into<String>) -> Error {
        Error::damaged(self.device, self.offset, what)
    }
}

/// The part of the log whose bytes come.
struct LogPart {
    range: LogRange,
    at: u64,
}

impl DatabaseFiles {
    /// Makes a file in `places` for each file of the database, with its size and a temporary name.
    ///
    /// # Errors
    /// Two files have one name, a name cannot be that of a file, a file that is moved does not exist in the database, or a
    /// file cannot be made.
    pub fn create(configuration: &Configuration, places: &FilePlaces) -> Result<Self> {
        let kinds = [FileKind::Data, FileKind::Log];
        let known = || configuration.files.iter().filter(|file| kinds.contains(&file.kind));
        if let Some((logical, _)) = places.moves.iter().find(|(name, _)| !known().any(|file| is_named(file, name))) {
            let names: Vec<String> = known().map(|file| format!("`{}`", file.logical_name.escape_debug())).collect();
            let hint = format!("its files are {}", names.join(", "));
            return Err(Error::usage(format!("--move {logical}"), "the database has no file of this name", hint));
        }
        Self::of_kinds(configuration, places, &kinds)
    }

    /// The same without the log files.
    ///
    /// # Errors
    /// As of [`create`](Self::create).
    pub fn create_data(configuration: &Configuration, directory: &Path) -> Result<Self> {
        Self::of_kinds(configuration, &FilePlaces::in_directory(directory), &[FileKind::Data])
    }

    fn of_kinds(configuration: &Configuration, places: &FilePlaces, kinds: &[FileKind]) -> Result<Self> {
        let (files, later) = (BTreeMap::new(), HashMap::new());
        let with_log = kinds.contains(&FileKind::Log);
        let (there, mismatches) = (ExtentSet::default(), Vec::new());
        let places = places.clone();
        let watch: Watch = Arc::new(|| Ok(()));
        let mut made =
            Self { places, files, later, before: None, sets: 0, there, has_lost: false, with_log, mismatches, watch };
        for described in configuration.files.iter().filter(|file| kinds.contains(&file.kind)) {
            made.add(described)?;
        }
        Ok(made)
    }

    fn add(&mut self, described: &DatabaseFile) -> Result<()> {
        let path = self.place_for(described)?;
        let is_taken = |written: &Written| is_same_path(&written.restored.path, &path);
        if self.files.values().any(is_taken) || path.symlink_metadata().is_ok() {
            let why = "two files of the database have this name, or it exists already";
            return Err(Error::refused(format!("`{}`", path.display()), why, "restore into an empty directory"));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.unfinished"));
        let io = |e| Error::io("make", temporary.display().to_string(), e).on_named_thing();
        // As SQL Server makes them: for its user and its group. The umask may allow less.
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o660).open(&temporary);
        let file = file.map_err(io)?;
        let restored = RestoredFile { path, logical: described.logical_name.clone(), size: described.size, bytes: 0 };
        let right = RightPages::default();
        let written = Written { file, kind: described.kind, temporary: temporary.clone(), restored, right };
        // From here on, a drop removes it.
        let written = self.files.entry(described.id).insert_entry(written).into_mut();
        written.file.set_len(described.size).map_err(io)
    }

    /// The path of a file: where it is moved, or its name in the directory.
    fn place_for(&self, described: &DatabaseFile) -> Result<PathBuf> {
        let mut moved = self.places.moves.iter().filter(|(name, _)| is_named(described, name)).map(|(_, path)| path);
        match (moved.next(), moved.next()) {
            (None, _) => Ok(self.places.directory.join(file_name(&described.physical_name)?)),
            (Some(path), None) if path.file_name().is_some() => Ok(path.clone()),
            (Some(path), None) => {
                let why = "is not the name of a file";
                Err(Error::usage(
                    format!("--move {}: `{}`", described.logical_name, path.display()),
                    why,
                    "name a file",
                ))
            }
            (Some(_), Some(_)) => {
                let why = "is given twice";
                Err(Error::usage(format!("--move {}", described.logical_name), why, "move each file once"))
            }
        }
    }

    /// Writes the pages and the log of one set. `families` are all families of its media, and `position` is its place on
    /// them. A later set is written over an earlier one.
    ///
    /// # Errors
    /// A family is damaged or cut off, a backup checksum does not match, bytes have no clear place in the database, or a
    /// file cannot be written.
    pub fn write_set(&mut self, families: Vec<ForeignFamily>, position: u16) -> Result<()> {
        self.later.clear();
        self.sets += 1;
        for family in families {
            let device = family.device.clone();
            self.watch = family.bytes.watch();
            let mut input = opened::open(family)?;
            let (mut is_open, mut copy, mut log) = (false, 0, None::<LogPart>);
            walk(&mut input, Depth::Everything, &mut |event| {
                match event {
                    Event::SetBegins(header) => (is_open, copy) = (header.position == position, 0),
                    Event::SetEnds => is_open = false,
                    _ if !is_open => {}
                    Event::LogRange(_) | Event::Piece { content: Content::Log, .. } if !self.with_log => {}
                    Event::LogRange(range) => log = Some(LogPart { range, at: range.begin }),
                    Event::ContentBegins(Content::Pages) => (copy, self.before) = (copy + 1, None),
                    Event::Piece { content: Content::Pages, bytes, offset } => {
                        self.extent(At { device: &device, offset }, bytes, copy)?;
                    }
                    Event::Piece { content: Content::Log, bytes, offset } => {
                        self.log(At { device: &device, offset }, log.as_mut(), bytes)?;
                    }
                    Event::ContentEnds { checksum, content } => {
                        let at = |offset| At { device: &device, offset };
                        if let Some(sum) = checksum.filter(|sum| sum.stored != sum.computed) {
                            let what = "the backup checksum of the stream before it does not match";
                            self.mismatch(at(sum.offset).damaged(what))?;
                        }
                        if content == Content::Log
                            && let Some(part) = log.take().filter(|part| part.at < part.range.end)
                        {
                            return Err(at(0).damaged(format!("the log ends at {} of {}", part.at, part.range.end)));
                        }
                    }
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// A stream does not match its checksum. Where only pages are read, each page is checked once more by its reader.
    fn mismatch(&mut self, damage: Error) -> Result<()> {
        if self.with_log {
            return Err(damage);
        }
        self.mismatches.push(damage);
        Ok(())
    }

    /// The damage of data files that does not end their reading: the first page, and streams.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn damage(&mut self) -> Result<Vec<Error>> {
        let mut found = std::mem::take(&mut self.mismatches);
        match self.check() {
            Err(error @ Error::Damaged { .. }) => found.push(error),
            other => other?,
        }
        Ok(found)
    }

    /// Writes an extent at the place that its pages name. The last copy counts.
    fn extent(&mut self, at: At<'_>, bytes: &[u8], copy: u32) -> Result<()> {
        let (pages, rest) = bytes.as_chunks::<PAGE>();
        if !rest.is_empty() {
            return Err(at.damaged("an extent ends inside a page"));
        }
        if pages.iter().all(is_of_no_file) {
            return Ok(());
        }
        let checks: Vec<PageCheck> = pages.iter().map(check).collect();
        let Some(here) = self.place_of(at, pages, &checks)? else {
            // In a full, `check` finds whether a page in use is missing. Over another set, the pages below would show
            // through.
            self.has_lost = true;
            return match self.sets {
                1 => Ok(()),
                _ => Err(at.damaged("no page of this extent says where it belongs")),
            };
        };
        self.before = Some(here);
        if self.later.get(&here).is_some_and(|later| *later > copy) {
            return Ok(());
        }
        if copy > 1 {
            if self.later.len() >= LATER_MAX {
                return Err(at.damaged("the second copy of pages is larger than any that SQL Server writes"));
            }
            self.later.insert(here, copy);
        }
        let (file, extent) = here;
        self.put(at, u32::from(file), FileKind::Data, u64::from(extent) * EXTENT as u64, bytes)?;
        let is_here = |page: &[u8; PAGE], slot| {
            let id = PageId { file, page: extent * PAGES_PER_EXTENT + slot };
            place(page, slot) == Some(id) && (!is_of_pfs(id) || kind(page) == PFS)
        };
        let judged = pages.iter().zip(checks).zip(0..PAGES_PER_EXTENT);
        let right = judged.map(|((page, check), slot)| u8::from(check.is_good() && is_here(page, slot)) << slot).sum();
        if let Some(written) = self.files.get_mut(&u32::from(file)) {
            written.right.note(extent, right);
            self.there.insert(file, extent.into());
        }
        Ok(())
    }

    /// The place of an extent: its pages with a good check name it. Pages that are not in use may name others. Extents come
    /// in ascending order, so a place before the last one is not meant.
    fn place_of(&self, at: At<'_>, pages: &[[u8; PAGE]], checks: &[PageCheck]) -> Result<Option<(u16, u32)>> {
        let named = |wanted: &[PageCheck]| {
            let pages = pages.iter().zip(checks).zip(0..PAGES_PER_EXTENT);
            let pages = pages.filter(|((_, check), _)| wanted.contains(check));
            let places = pages.filter_map(|((page, _), slot)| place(page, slot));
            places.map(PageId::extent).collect::<BTreeSet<_>>()
        };
        let mut places = named(&[PageCheck::Checksum, PageCheck::TornBits]);
        if places.is_empty() {
            places = named(&[PageCheck::Without]);
        }
        if places.len() > 1 {
            places.retain(|place| self.before.is_none_or(|before| place.0 != before.0 || *place > before));
        }
        match places.len() {
            0 | 1 => Ok(places.pop_first()),
            _ => Err(at.damaged("the pages of this extent name several places")),
        }
    }

    fn log(&mut self, at: At<'_>, part: Option<&mut LogPart>, bytes: &[u8]) -> Result<()> {
        let Some(LogPart { range, at: next }) = part else {
            return Err(at.damaged("log without a description of its place"));
        };
        let virtual_end = range.start.saturating_add(range.length);
        if range.begin < range.start || range.end > virtual_end {
            return Err(at.damaged("the log is outside its virtual log file"));
        }
        // The stream is padded behind the last block of the range.
        let room = usize::try_from(range.end.saturating_sub(*next)).unwrap_or(usize::MAX).min(bytes.len());
        if bytes.len() - room >= EXTENT {
            return Err(at.damaged("the log is longer than its description says"));
        }
        let (file, offset) = (range.file, *next);
        *next += room as u64;
        self.put(at, file, FileKind::Log, offset, bytes.get(..room).unwrap_or_default())
    }

    fn put(&mut self, at: At<'_>, file: u32, kind: FileKind, offset: u64, bytes: &[u8]) -> Result<()> {
        let found = self.files.get_mut(&file).filter(|written| written.kind == kind);
        let Some(written) = found else {
            let what = format!("these bytes name file {file}, but the database has no such file of this kind");
            return Err(at.damaged(what));
        };
        // The last extent of a file may be longer than the file.
        let end = written.restored.size.next_multiple_of(EXTENT as u64);
        if offset.checked_add(bytes.len() as u64).is_none_or(|behind| behind > end) {
            return Err(at.damaged(format!("these bytes belong behind the end of `{}`", written.name())));
        }
        let failed = |e| Error::io("write", written.temporary.display().to_string(), e);
        let room = usize::try_from(written.restored.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let bytes = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        written.file.write_all_at(bytes, offset).map_err(failed)?;
        written.restored.bytes += bytes.len() as u64;
        Ok(())
    }

    /// The files by their ids, with their names for messages. They have no name in the directory any more, so nothing is
    /// left when they are closed.
    pub fn into_open(mut self) -> Vec<(u16, String, File)> {
        let files = std::mem::take(&mut self.files);
        let opened = files.into_iter().map(|(id, written)| {
            let _ = std::fs::remove_file(&written.temporary); // The directory is removed too.
            let name = written.name();
            (u16::try_from(id).unwrap_or(u16::MAX), name, written.file)
        });
        opened.collect()
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
        let renames = self.files.values().map(|written| (written.temporary.clone(), written.restored.path.clone()));
        let renames: Vec<(PathBuf, PathBuf)> = renames.collect();
        rename_together(&renames, false)?;
        let directories: BTreeSet<&Path> = renames.iter().filter_map(|(_, path)| path.parent()).collect();
        for directory in directories {
            sync_directory(directory)?;
        }
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

/// Names of files in a database are compared without case, as SQL Server does in most collations.
fn is_named(file: &DatabaseFile, logical: &str) -> bool {
    file.logical_name.to_lowercase() == logical.to_lowercase()
}

/// True for one path, also on file systems that do not tell capitals from small letters.
fn is_same_path(one: &Path, other: &Path) -> bool {
    let plain = |path: &Path| path.to_string_lossy().to_lowercase();
    plain(one) == plain(other)
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
