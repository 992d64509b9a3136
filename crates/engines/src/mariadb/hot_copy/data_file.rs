//! A file of the copy, opened; of a tablespace: how its pages look, and its pages read until they are whole.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::io::{Memory, Mode, OpenedFile};
use fullbore_core::{Error, Result};

use super::listing::{ListedFile, Role};
use super::lost::Owner;
use super::stamp::Stamp;
use super::work::{FileNumber, PIECE_UNIT};
use crate::mariadb::redo::tail::read_full;
use crate::mysql_family::Dialect;
use crate::mysql_family::innodb::damage::DamagedPage;
use crate::mysql_family::innodb::extents::{Extents, Layout};
use crate::mysql_family::innodb::page::{PAGE_SIZE_MAX, PAGE_SIZE_MIN, PageFormat, PageState};
use crate::mysql_family::innodb::tablespace::{BadHead, Doublewrite, Encryption, Head, TRANSACTION_SYSTEM_PAGE};

/// Unit of direct reads, in bytes.
const BLOCK: usize = 4096;
/// How long a page may look torn before it is damaged.
// Tests allow for a thread that comes late with its page because the machine is busy.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 5 } else { 1 });
/// Smaller files of other engines are read through the page cache.
const DIRECT_FROM: u64 = 1 << 20;
/// How often to read a table of extents that the server may be writing.
const TABLE_ATTEMPTS: usize = 5;
/// How long to wait before it is read again.
const PAUSE: Duration = Duration::from_millis(2);

/// A file that is in the copy, or will be.
#[derive(Debug)]
pub struct Entry {
    /// Its number in the copy.
    pub number: FileNumber,
    /// The file in the listing.
    pub file: ListedFile,
    /// The tablespace's number; `None` if page 0 was still zero, or in a further file of the system tablespace.
    pub space: Option<u32>,
    /// The flags of the tablespace; `None` as for its number.
    pub flags: Option<u32>,
    /// Bytes of a page; `None` if page 0 was still zero, or in a file that is not a tablespace: it is copied unchanged.
    pub page: Option<u32>,
    /// Its pages are compressed, and have holes.
    pub holes: bool,
    /// Its pages are encrypted.
    pub encrypted: bool,
    /// Bytes when it was opened, after its first page was read.
    pub size: u64,
    /// Pages of the whole tablespace by its first page; `None` if that is zero, or in a file that is not a tablespace.
    pub counted: Option<u32>,
    /// The stamp of the file at its opening.
    pub stamp: Stamp,
    /// Whether any write since then changes that stamp.
    pub settled: bool,
    /// The first page has no LSN: IMPORT TABLESPACE writes pages so, past the redo log.
    pub without_lsn: bool,
    /// The end of the bytes that were read.
    pub end: AtomicU64,
}

impl Entry {
    /// The whole content of a file of another engine that was read at once: `size` bytes.
    pub fn of_other(number: FileNumber, file: ListedFile, size: u64, stamp: Stamp) -> Self {
        Self {
            number,
            file,
            space: None,
            flags: None,
            page: None,
            holes: false,
            encrypted: false,
            size,
            counted: None,
            stamp,
            settled: false,
            without_lsn: false,
            end: AtomicU64::new(size),
        }
    }

    /// Its identity among all files of this server, also in the next backup and under another name: the number of the
    /// tablespace, which is never used again. Further files of the system tablespace keep their names.
    pub fn identity(&self) -> Option<String> {
        match (self.file.role, self.space) {
            (Role::System { .. }, _) => Some(format!("space:0:{}", self.file.name)),
            (_, Some(space)) if !self.file.ambiguous => Some(format!("space:{space}")),
            // It has no number, or another file has that number too.
            _ => None,
        }
    }

    /// Reads begin at a multiple of this many bytes and have a multiple as length: a page, at least [`PIECE_UNIT`].
    pub fn unit(&self) -> usize {
        self.page.map_or(PIECE_UNIT, |page| PIECE_UNIT.max(page as usize))
    }

    /// Zeros are found in units of this many bytes: smaller than a page if pages have holes.
    pub fn stored_unit(&self) -> u32 {
        if self.holes { PIECE_UNIT as u32 } else { self.unit() as u32 }
    }
}

/// An opened file.
pub struct DataFile {
    /// The entry of the file in the copy.
    pub entry: Arc<Entry>,
    opened: OpenedFile,
    format: Option<PageFormat>,
    first_page: u32,
    doublewrite: Option<Doublewrite>,
    /// Of a tablespace: its number and where its first unused page is.
    tablespace: Option<(u32, u32)>,
    /// The files of the system tablespace that this one is of, and the numbers of their first pages.
    together: Vec<(PathBuf, u32)>,
    mode: Mode,
    /// The table of extents that was read last, by the number of its page.
    extents: Mutex<Option<(u32, Option<Extents>)>>,
}

/// The facts from the first file of the system tablespace about its further files, which have no head.
#[derive(Debug, Clone, Default)]
pub struct SystemTablespace {
    head: Option<Head>,
    /// Each file, and the number of its first page.
    files: Vec<(PathBuf, u32)>,
    doublewrite: Option<Doublewrite>,
    encrypted: bool,
}

/// The findings of a reading.
#[derive(Debug, Default)]
pub struct Found {
    /// Bytes that were read.
    pub length: usize,
    /// Pages that were torn when they were first read.
    pub torn: u64,
    /// Pages that stayed bad.
    pub damaged: Vec<DamagedPage>,
    /// Pages that are zero, by their numbers in the tablespace.
    pub zero: Vec<u32>,
}

impl SystemTablespace {
    /// Looks at the files of the system tablespace, which come first in a listing.
    pub fn look(files: &[ListedFile], mode: Mode) -> Result<Self> {
        let mut system = Self::default();
        let mut pages = 0_u64;
        for file in files.iter().filter(|file| matches!(file.role, Role::System { .. })) {
            let opened = OpenedFile::read(&file.path, mode)?;
            if system.files.is_empty() {
                let mut memory = Memory::new(PAGE_SIZE_MAX as usize)?;
                let Some(head) = read_head(&opened, &mut memory)? else {
                    return Err(damaged(&opened, "the first page of the system tablespace is zero".into()));
                };
                system.encrypted = is_encrypted(&head, &memory);
                system.head = Some(head);
                system.doublewrite = look_at_doublewrite(&opened, &head, &mut memory)?;
            }
            let size = stamp_of(&opened)?.size;
            let page = system.head.map_or(1, |head| u64::from(head.format.physical_size()));
            let first = u32::try_from(pages)
                .map_err(|_| damaged(&opened, "the system tablespace has too many pages".into()))?;
            system.files.push((file.path.clone(), first));
            pages += size / page;
        }
        Ok(system)
    }
}

impl DataFile {
    /// Opens a file for copying; `None` if it was removed.
    pub fn open(
        file: ListedFile,
        system: &SystemTablespace,
        mode: Mode,
        number: impl FnOnce() -> FileNumber,
    ) -> Result<Option<Self>> {
        // Asking how to read a small file directly would take longer than reading it.
        let small = file.role == Role::Other && fs::metadata(&file.path).is_ok_and(|stat| stat.len() < DIRECT_FROM);
        let opened = match OpenedFile::read(&file.path, if small { Mode::Buffered } else { mode }) {
            Ok(opened) => opened,
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let stamp = stamp_of(&opened)?;
        let (mut head, mut first_page, mut encrypted, mut together) = (None, 0, false, Vec::new());
        let (mut doublewrite, mut further) = (None, false);
        if let Role::System { index } = file.role {
            (head, encrypted) = (system.head, system.encrypted);
            first_page = system.files.get(index).map_or(0, |(_, first)| *first);
            doublewrite = system.doublewrite.clone().filter(|_| index == 0);
            together = system.files.clone();
            further = index > 0;
        } else if file.role != Role::Other {
            let mut memory = Memory::new(PAGE_SIZE_MAX as usize)?;
            head = read_head(&opened, &mut memory)?;
            encrypted = head.is_some_and(|head| is_encrypted(&head, &memory));
        }
        // After the first page was read: a server extends a file before it writes the new size there.
        let size = stamp_of(&opened)?.size;
        let format = head.map(|head| head.format);
        let entry = Entry {
            number: number(),
            space: head.map(|head| head.space).filter(|_| !further),
            // A further file has no page 0 that a verification could look for.
            flags: head.map(|head| head.flags).filter(|_| together.is_empty()),
            page: format.map(|format| format.physical_size()),
            holes: format.is_some_and(|format| format.has_holes()),
            encrypted,
            size,
            counted: head.map(|head| head.pages),
            settled: stamp.is_settled(),
            stamp,
            without_lsn: together.is_empty() && head.is_some_and(|head| head.lsn == 0),
            end: AtomicU64::new(0),
            file,
        };
        let tablespace = head.map(|head| (head.space, head.limit));
        let (entry, extents) = (Arc::new(entry), Mutex::default());
        Ok(Some(Self { entry, opened, format, first_page, doublewrite, tablespace, together, mode, extents }))
    }

    /// Reads `wanted` bytes of pages from `offset` (a multiple of the page) into `buffer`, which is aligned for direct
    /// reads and holds whole pages, until each page is whole. Fewer when the file ends.
    pub fn read(&self, offset: u64, wanted: usize, buffer: &mut [u8], scratch: &mut Memory) -> Result<Found> {
        let length = read_full(&self.opened, buffer, offset)?.min(wanted);
        let mut found = Found { length, ..Found::default() };
        if let Some(format) = self.format {
            let size = format.physical_size() as usize;
            // A page that is cut off was never written: the file is being made longer.
            found.length -= found.length % size;
            for (index, page) in buffer[..found.length].chunks_exact_mut(size).enumerate() {
                let at = offset + (index * size) as u64;
                self.settle(&format, at, page, scratch, &mut found)?;
            }
        }
        self.entry.end.fetch_max(offset + found.length as u64, Ordering::Relaxed);
        Ok(found)
    }

    /// Reads one page again until it is whole, if it is not.
    fn settle(
        &self,
        format: &PageFormat,
        at: u64,
        page: &mut [u8],
        scratch: &mut Memory,
        found: &mut Found,
    ) -> Result<()> {
        let number =
            u32::try_from(at / u64::from(format.physical_size())).ok().and_then(|n| n.checked_add(self.first_page));
        let Some(number) = number else {
            return Err(damaged(&self.opened, "it has more pages than a tablespace can have".into()));
        };
        if self.doublewrite.as_ref().is_some_and(|copies| copies.holds(number)) {
            return Ok(());
        }
        let since = Instant::now();
        let mut verdict = format.check(page, number);
        let mut torn = false;
        loop {
            match verdict {
                PageState::Empty => {
                    found.zero.push(number);
                    break;
                }
                PageState::Valid => {
                    let content = format.content_length(page);
                    page[content..].fill(0); // A hole, where holes can be.
                    break;
                }
                PageState::Unchecked(_) => {
                    // Whether it was torn shows in a second read only.
                    let again = self.read_page(at, page.len(), scratch)?;
                    if again.is_none_or(|again| again == &*page) || since.elapsed() > PATIENCE {
                        break;
                    }
                }
                PageState::Corrupt(fault) if since.elapsed() > PATIENCE => {
                    let file = self.entry.file.name.clone();
                    found.damaged.push(DamagedPage { file, page: number.into(), why: fault.to_string() });
                    break;
                }
                PageState::Corrupt(_) => {
                    torn = true;
                    std::thread::sleep(PAUSE);
                }
            }
            // The file was truncated meanwhile, and the redo log has a record of it.
            let Some(again) = self.read_page(at, page.len(), scratch)? else { break };
            page.copy_from_slice(again);
            verdict = format.check(page, number);
        }
        found.torn += u64::from(torn);
        Ok(())
    }

    /// The zero pages in use, and their owner. The tables are read on demand: a table is true at any moment of the
    /// copy, unless the redo log writes to it.
    pub fn in_use(&self, zero: &[u32], scratch: &mut Memory) -> Result<Option<(Owner, Vec<u32>)>> {
        let (Some(format), Some((space, limit))) = (self.format, self.tablespace) else { return Ok(None) };
        let layout = Layout::of(&format);
        let mut last = self.extents.lock().unwrap_or_else(PoisonError::into_inner);
        let mut used = Vec::new();
        for &number in zero.iter().filter(|number| **number < limit) {
            if self.doublewrite.as_ref().is_some_and(|copies| copies.singles.contains(&number)) {
                continue;
            }
            let table = layout.table_of(number);
            // Below the limit no table is missing.
            let in_use = table == number || {
                if last.as_ref().is_none_or(|(page, _)| *page != table) {
                    *last = Some((table, self.read_extents(&format, table, scratch)?));
                }
                let extents = last.as_ref().and_then(|(_, extents)| extents.as_ref());
                extents.is_some_and(|extents| extents.uses(number, limit))
            };
            used.extend(in_use.then_some(number));
        }
        Ok((!used.is_empty()).then_some((Owner { file: self.entry.number, space, layout }, used)))
    }

    /// The table of extents in page `number`; `None` if it is not readable.
    fn read_extents(&self, format: &PageFormat, number: u32, scratch: &mut Memory) -> Result<Option<Extents>> {
        let size = format.physical_size() as usize;
        // The first page of the file that holds the table, which is another one if that is of an earlier file of the
        // system tablespace.
        let holder =
            self.together.iter().rfind(|(_, first)| *first <= number).filter(|(_, first)| *first != self.first_page);
        let earlier = holder.map(|(path, _)| OpenedFile::read(path, self.mode)).transpose()?;
        let (opened, first) = match (&earlier, holder) {
            (Some(opened), Some((_, first))) => (opened, *first),
            _ => (&self.opened, self.first_page),
        };
        let at = u64::from(number - first.min(number)) * size as u64;
        for _ in 0..TABLE_ATTEMPTS {
            let table = read_page_of(opened, at, size, scratch)?.and_then(|page| Extents::parse(format, page, number));
            if table.is_some() {
                return Ok(table);
            }
            std::thread::sleep(PAUSE); // It was being written.
        }
        Ok(None)
    }

    /// One page, read again into `scratch`; `None` if the file ends before it does.
    fn read_page<'a>(&self, at: u64, length: usize, scratch: &'a mut Memory) -> Result<Option<&'a [u8]>> {
        read_page_of(&self.opened, at, length, scratch)
    }
}

fn read_page_of<'a>(opened: &OpenedFile, at: u64, length: usize, scratch: &'a mut Memory) -> Result<Option<&'a [u8]>> {
    let skipped = (at % BLOCK as u64) as usize;
    let whole = (skipped + length).next_multiple_of(BLOCK);
    let got = read_full(opened, &mut scratch[..whole], at - skipped as u64)?;
    Ok((got >= skipped + length).then(|| &scratch[skipped..skipped + length]))
}

/// Bytes that [`DataFile::read`] needs as scratch.
pub const SCRATCH: usize = PAGE_SIZE_MAX as usize;

/// The current state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The tablespace's number; `None` while page 0 is zero.
    pub space: Option<u32>,
    /// Which file it is, and when it was written to.
    pub stamp: Stamp,
}

/// The current state of a file; `None` if it was removed.
pub fn identify(file: &ListedFile) -> Result<Option<Identity>> {
    let opened = match File::open(&file.path) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io("open", file.path.display().to_string(), error)),
    };
    let mut head = [0; PAGE_SIZE_MIN as usize];
    let since = Instant::now();
    loop {
        let read = opened.read_at(&mut head, 0).and_then(|got| Ok((got, Stamp::of(&opened.metadata()?))));
        let (got, stamp) = read.map_err(|error| Error::io("read", file.path.display().to_string(), error))?;
        match Head::parse(&head[..got], Dialect::MariaDb) {
            Ok(parsed) => return Ok(Some(Identity { space: parsed.map(|head| head.space), stamp })),
            // Just made: its first page is still to come.
            Err(BadHead::Short) => return Ok(Some(Identity { space: None, stamp })),
            Err(_) if since.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            Err(bad) => return Err(refused(&file.path.display().to_string(), bad.to_string())),
        }
    }
}

/// The head of an opened file, once its page 0 is whole; `None` while it is zero or missing.
fn read_head(opened: &OpenedFile, memory: &mut Memory) -> Result<Option<Head>> {
    let since = Instant::now();
    loop {
        let got = read_full(opened, &mut memory[..], 0)?;
        let bad = match Head::parse(&memory[..got], Dialect::MariaDb) {
            Ok(None) | Err(BadHead::Short) => return Ok(None),
            Ok(Some(head)) => {
                let page = head.format.physical_size() as usize;
                match head.format.check(&memory[..page.min(got)], 0) {
                    PageState::Corrupt(fault) => fault.to_string(),
                    _ => return Ok(Some(head)),
                }
            }
            Err(bad) => bad.to_string(),
        };
        if since.elapsed() > PATIENCE {
            return Err(damaged(opened, format!("its first page is damaged: {bad}")));
        }
        std::thread::sleep(PAUSE);
    }
}

/// Where the doublewrite buffer is, if there is one.
fn look_at_doublewrite(opened: &OpenedFile, head: &Head, memory: &mut Memory) -> Result<Option<Doublewrite>> {
    let page = head.format.physical_size() as usize;
    let mut read = |number: u32| {
        let got = read_full(opened, &mut memory[..page], u64::from(number) * page as u64)?;
        Ok::<_, Error>(memory[..got].to_vec())
    };
    let mut found = Doublewrite::parse(&read(TRANSACTION_SYSTEM_PAGE)?);
    if let Some(found) = &mut found {
        found.look_at_segment(&read(found.segment.0)?);
    }
    Ok(found)
}

/// Whether some of the pages are encrypted or will be.
fn is_encrypted(head: &Head, page: &[u8]) -> bool {
    match head.encryption(page, Dialect::MariaDb) {
        // Mode 1: encryption is on for the table. Otherwise a key in use shows it.
        Encryption::MariaDb { least_key_version, mode, .. } => mode == 1 || least_key_version > 0,
        Encryption::None | Encryption::MySql { .. } => false,
    }
}

fn stamp_of(opened: &OpenedFile) -> Result<Stamp> {
    let stat =
        opened.file.metadata().map_err(|error| Error::io("look at", opened.path.display().to_string(), error))?;
    Ok(Stamp::of(&stat))
}

fn damaged(opened: &OpenedFile, why: String) -> Error {
    refused(&opened.path.display().to_string(), why)
}

fn refused(path: &str, why: String) -> Error {
    Error::refused(
        path,
        why,
        "check the file with the server (CHECK TABLE) and with innochecksum; a backup would have the same damage",
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::mysql_family::innodb::fixtures::{self, Fixture};

    /// A tablespace of a real server with its page 0 and the page with rows; the pages between are not used yet.
    fn tablespace(fixture: &Fixture, path: &Path) -> File {
        let file = File::create_new(path).unwrap();
        let (head, rows) = fixture.bytes.split_at(fixture.physical as usize);
        file.write_all_at(head, 0).unwrap();
        file.write_all_at(rows, u64::from(fixture.number * fixture.physical)).unwrap();
        file
    }

    fn open(path: &Path) -> DataFile {
        let file = ListedFile {
            name: "a.ibd".into(),
            path: path.into(),
            elsewhere: false,
            ambiguous: false,
            role: Role::Table,
        };
        DataFile::open(file, &SystemTablespace::default(), Mode::Auto, || FileNumber(7)).unwrap().unwrap()
    }

    #[test]
    fn tablespaces_of_every_format_are_read_as_they_are() {
        let directory = tempfile::tempdir().unwrap();
        for fixture in fixtures::ALL.iter().filter(|fixture| fixture.dialect == Dialect::MariaDb) {
            let path = directory.path().join(fixture.name);
            tablespace(fixture, &path);
            let file = open(&path);
            assert_eq!((file.entry.page, file.entry.number), (Some(fixture.physical), FileNumber(7)));
            assert_eq!(file.entry.holes, fixture.name.contains("pagezip"), "{}", fixture.name);
            assert_eq!(file.entry.encrypted, fixture.name.contains("crypt"), "{}", fixture.name);
            let (mut buffer, mut scratch) = (Memory::new(1 << 16).unwrap(), Memory::new(SCRATCH).unwrap());
            let found = file.read(0, 1 << 16, &mut buffer, &mut scratch).unwrap();
            assert!(found.damaged.is_empty() && found.torn == 0, "{}: {found:?}", fixture.name);
            assert!(buffer[..found.length] == std::fs::read(&path).unwrap()[..], "{}", fixture.name);
            assert_eq!(file.entry.end.load(Ordering::Relaxed), file.entry.size);
        }
    }

    #[test]
    fn a_page_that_is_being_written_is_read_again_until_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let fixture = &fixtures::ALL[0];
        let path = directory.path().join("a.ibd");
        let written = tablespace(fixture, &path);
        let expected = std::fs::read(&path).unwrap();
        written.write_all_at(&[7; 1000], 3 * 4096 + 2000).unwrap();
        let file = open(&path);
        let (mut buffer, mut scratch) = (Memory::new(1 << 16).unwrap(), Memory::new(SCRATCH).unwrap());
        let found = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                written.write_all_at(&expected, 0).unwrap();
            });
            file.read(0, 1 << 16, &mut buffer, &mut scratch).unwrap()
        });
        assert_eq!((found.torn, found.damaged.len(), found.length), (1, 0, expected.len()));
        assert!(buffer[..found.length] == expected[..]);
    }

    #[test]
    fn a_page_that_stays_bad_is_named_after_a_second_and_given_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.ibd");
        let written = tablespace(&fixtures::ALL[0], &path);
        written.write_all_at(&[7; 1000], 3 * 4096 + 2000).unwrap();
        let file = open(&path);
        let (mut buffer, mut scratch) = (Memory::new(1 << 16).unwrap(), Memory::new(SCRATCH).unwrap());
        let since = Instant::now();
        let found = file.read(0, 1 << 16, &mut buffer, &mut scratch).unwrap();
        assert!(since.elapsed() >= PATIENCE);
        assert_eq!((found.damaged.len(), found.damaged[0].page, found.damaged[0].file.as_str()), (1, 3, "a.ibd"));
        assert!(buffer[..found.length] == std::fs::read(&path).unwrap()[..]);
    }

    #[test]
    fn a_file_that_is_gone_is_none_and_one_without_a_page_0_is_copied_as_it_stands() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.ibd");
        let file = ListedFile {
            name: "a.ibd".into(),
            path: path.clone(),
            elsewhere: false,
            ambiguous: false,
            role: Role::Table,
        };
        assert!(
            DataFile::open(file.clone(), &SystemTablespace::default(), Mode::Auto, || FileNumber(1)).unwrap().is_none()
        );
        assert_eq!(identify(&file).unwrap(), None);
        let made = File::create_new(&path).unwrap();
        let identified = || identify(&file).unwrap().map(|found| (found.space, found.stamp.size));
        assert_eq!(identified(), Some((None, 0)));
        made.set_len(65536).unwrap();
        made.write_all_at(&[9; 100], 50_000).unwrap();
        assert_eq!(identified(), Some((None, 65536)));
        let file = open(&path);
        assert_eq!((file.entry.space, file.entry.page), (None, None));
        let (mut buffer, mut scratch) = (Memory::new(1 << 16).unwrap(), Memory::new(SCRATCH).unwrap());
        let found = file.read(0, 1 << 16, &mut buffer, &mut scratch).unwrap();
        assert!(found.length == 65536 && buffer[50_000] == 9);
    }
}
