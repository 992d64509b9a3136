//! The files of a clone: their state so far, and the meaning of each new FILE descriptor.
//!
//! A FILE descriptor of the running stage announces a file. A FILE descriptor of the *next* stage, which comes before
//! that stage begins, announces a change of a file by DDL during the running stage.

use std::collections::BTreeMap;

use super::descriptor::{BadMessage, FileDescriptor, Stage, file_flags};
use super::encryption;
use super::names;
use super::page_zero::{self, PageSize};

/// Which file: redo files have numbers of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileId {
    /// A tablespace or the buffer pool's dump.
    Data(u32),
    /// A redo file.
    Redo(u32),
}

/// A file as it stands now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneFile {
    /// Its number.
    pub id: FileId,
    /// Id of its tablespace: it stays the same through renames, and from one backup to the next.
    pub space: u32,
    /// Path in a copy, relative to its root, without `.` and `..`.
    pub path: String,
    /// The donor's absolute path, for a file outside its data directory.
    pub outside: Option<String>,
    /// Size in bytes so far.
    pub size: u64,
    /// Bytes of one page on disk; of the server's pages where the file has no flags.
    pub page_size: u32,
    /// Flags of the tablespace; all ones for none.
    pub fsp_flags: u32,
    /// See [`file_flags`].
    pub flags: u16,
    /// Whether it was dropped on the donor: it must not be in the copy.
    pub deleted: bool,
}

/// The effect of a FILE descriptor on a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// There is a file.
    Found(CloneFile),
    /// A tablespace was created during the stage that ends: it begins with this page, and its size is set already.
    Born(CloneFile, Vec<u8>),
    /// It has another path now.
    Renamed {
        /// As it stands now.
        file: CloneFile,
        /// Its path before.
        from: String,
    },
    /// It was dropped: nothing more comes for it, and it must not be in the copy.
    Dropped(CloneFile),
    /// Its flags have changed.
    Altered(CloneFile),
}

impl Change {
    /// The file as it stands after the change.
    pub fn file(&self) -> &CloneFile {
        match self {
            Change::Found(file) | Change::Born(file, _) | Change::Dropped(file) | Change::Altered(file) => file,
            Change::Renamed { file, .. } => file,
        }
    }
}

/// More files than this fit into no server.
const FILES_MAX: usize = 4 << 20;
/// Pages of a tablespace that was just created, and of an undo tablespace.
const BORN_PAGES: u64 = 7;
const BORN_UNDO_PAGES: u64 = 1024;
/// Space ids of undo tablespaces: 127 of them, each with 400,000 ids for its truncations.
const UNDO_SPACES: std::ops::RangeInclusive<u32> = 0xFFFF_FFF0 - 127 * 400_000..=0xFFFF_FFEF;

/// All files of a clone.
#[derive(Debug)]
pub struct Files {
    server_page: PageSize,
    server_uuid: String,
    files: BTreeMap<FileId, CloneFile>,
}

impl Files {
    /// No file yet, of a server with this page size and id.
    pub fn new(server_page: PageSize, server_uuid: &str) -> Self {
        Self { server_page, server_uuid: server_uuid.to_owned(), files: BTreeMap::new() }
    }

    /// The effect of `descriptor` while stage `current` runs; `None` if it is known already. Changes nothing here.
    pub fn plan(&self, descriptor: &FileDescriptor, current: Stage) -> Result<Option<Change>, BadMessage> {
        if self.files.len() >= FILES_MAX {
            return Err(BadMessage("more files than a server can have"));
        }
        if descriptor.stage < current {
            return Err(BadMessage("a file of a stage that has ended"));
        }
        if descriptor.is_redo() {
            return Ok(self.redo(descriptor));
        }
        let mut file = self.describe(descriptor)?;
        let Some(known) = self.files.get(&file.id) else {
            return match (descriptor.stage == current, file.deleted) {
                // Created and dropped again: known as dropped, so that data for it is skipped.
                (_, true) => Ok(Some(Change::Dropped(file))),
                (true, false) => Ok(Some(Change::Found(file))),
                (false, false) => self.born(descriptor, file).map(Some),
            };
        };
        if known.space != file.space {
            return Err(BadMessage("another tablespace under a number in use"));
        }
        file.size = file.size.max(known.size);
        if known.deleted {
            let gone = file.deleted.then_some(None);
            return gone.ok_or(BadMessage("a dropped file that exists again"));
        }
        Ok(match file {
            file if file.deleted => Some(Change::Dropped(CloneFile { path: known.path.clone(), ..file })),
            file if descriptor.stage == current => (file.size > known.size).then_some(Change::Altered(file)),
            file if file.path != known.path => Some(Change::Renamed { from: known.path.clone(), file }),
            file if file != *known => Some(Change::Altered(file)),
            _ => None,
        })
    }

    /// Takes over a change that [`Files::plan`] gave.
    pub fn commit(&mut self, change: &Change) {
        let file = change.file();
        self.files.insert(file.id, file.clone());
    }

    /// The file with this number.
    pub fn get(&self, id: FileId) -> Option<&CloneFile> {
        self.files.get(&id)
    }

    /// The file has at least `size` bytes.
    pub fn grow(&mut self, id: FileId, size: u64) {
        if let Some(file) = self.files.get_mut(&id) {
            file.size = file.size.max(size);
        }
    }

    /// All files, also dropped ones.
    pub fn all(&self) -> impl Iterator<Item = &CloneFile> {
        self.files.values()
    }

    fn redo(&self, descriptor: &FileDescriptor) -> Option<Change> {
        let id = FileId::Redo(descriptor.index);
        if self.files.contains_key(&id) {
            return None;
        }
        Some(Change::Found(CloneFile {
            id,
            space: descriptor.space,
            path: names::redo_path(descriptor.index),
            outside: None,
            size: descriptor.size,
            page_size: 512,
            fsp_flags: descriptor.fsp_flags,
            flags: descriptor.flags,
            deleted: false,
        }))
    }

    fn describe(&self, descriptor: &FileDescriptor) -> Result<CloneFile, BadMessage> {
        let location = names::locate(&descriptor.name)?;
        Ok(CloneFile {
            id: FileId::Data(descriptor.index),
            space: descriptor.space,
            path: location.path,
            outside: location.outside,
            size: descriptor.size,
            page_size: page_zero::physical_size(descriptor.fsp_flags, self.server_page)?,
            fsp_flags: descriptor.fsp_flags,
            flags: descriptor.flags & !(file_flags::RENAMED | file_flags::HAS_KEY | file_flags::DELETED),
            deleted: descriptor.has(file_flags::DELETED),
        })
    }

    fn born(&self, descriptor: &FileDescriptor, mut file: CloneFile) -> Result<Change, BadMessage> {
        let pages = if UNDO_SPACES.contains(&file.space) { BORN_UNDO_PAGES } else { BORN_PAGES };
        file.size = file.size.max(pages * u64::from(file.page_size));
        let mut page = page_zero::make(file.space, file.fsp_flags, self.server_page, file.page_size);
        match &descriptor.key {
            Some(key) if file.page_size == self.server_page.bytes() => {
                encryption::insert(&mut page, self.server_page, key, &self.server_uuid)?;
            }
            Some(_) => return Err(BadMessage("a key for a tablespace with compressed pages")),
            // Also of an encrypted one: the donor then sends page 0 again, with the key in it.
            None => {}
        }
        Ok(Change::Born(file, page))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::descriptor::REDO_SPACE;
    use super::*;

    fn descriptor(stage: Stage, index: u32, name: &str, flags: u16) -> FileDescriptor {
        FileDescriptor {
            stage,
            size: 114_688,
            allocated: 0,
            fsp_flags: 0x4021,
            block_size: 4096,
            flags,
            space: 100 + index,
            index,
            name: name.into(),
            key: None,
        }
    }

    fn files() -> Files {
        Files::new(PageSize::new(16384).unwrap(), "0f1f2f3f-0000-1111-2222-333344445555")
    }

    fn apply(files: &mut Files, descriptor: &FileDescriptor, current: Stage) -> Option<Change> {
        let change = files.plan(descriptor, current).unwrap();
        if let Some(change) = &change {
            files.commit(change);
        }
        change
    }

    #[test]
    fn a_file_is_found_once_however_often_it_is_told() {
        let mut files = files();
        let told = descriptor(Stage::FileCopy, 0, "./shop/a.ibd", 0);
        assert!(matches!(apply(&mut files, &told, Stage::FileCopy), Some(Change::Found(_))));
        assert_eq!(apply(&mut files, &told, Stage::FileCopy), None);
        assert_eq!(files.get(FileId::Data(0)).unwrap().path, "shop/a.ibd");
        let other = FileDescriptor { space: 7, ..told };
        assert!(files.plan(&other, Stage::FileCopy).is_err(), "another tablespace under the same number");
    }

    #[test]
    fn ddl_during_a_stage_is_reconciled_in_the_next() {
        let mut files = files();
        for index in 0..3 {
            apply(&mut files, &descriptor(Stage::FileCopy, index, &format!("./shop/{index}.ibd"), 0), Stage::FileCopy);
        }
        let renamed = descriptor(Stage::PageCopy, 0, "./shop/x.ibd", file_flags::RENAMED);
        let change = apply(&mut files, &renamed, Stage::FileCopy).unwrap();
        assert!(matches!(&change, Change::Renamed { from, file } if from == "shop/0.ibd" && file.path == "shop/x.ibd"));
        let dropped = descriptor(Stage::PageCopy, 1, "./shop/1.ibd", file_flags::DELETED);
        assert!(matches!(apply(&mut files, &dropped, Stage::FileCopy), Some(Change::Dropped(_))));
        assert_eq!(apply(&mut files, &dropped, Stage::FileCopy), None);
        let same = descriptor(Stage::PageCopy, 2, "./shop/2.ibd", 0);
        assert_eq!(apply(&mut files, &same, Stage::FileCopy), None);
        let born = descriptor(Stage::PageCopy, 3, "./shop/new.ibd", 0);
        let Some(Change::Born(file, page)) = apply(&mut files, &born, Stage::FileCopy) else { panic!() };
        assert_eq!((file.size, page.len()), (114_688, 16384));
        let gone = descriptor(Stage::PageCopy, 4, "./shop/gone.ibd", file_flags::DELETED);
        assert!(apply(&mut files, &gone, Stage::FileCopy).unwrap().file().deleted);
        assert_eq!(files.all().filter(|file| !file.deleted).count(), 3);
    }

    #[test]
    fn an_undo_tablespace_is_born_with_1024_pages_and_redo_files_count_by_themselves() {
        let mut files = files();
        let undo = FileDescriptor { space: 0xFFFF_FFED, size: 0, ..descriptor(Stage::RedoCopy, 5, "./undo_003", 0) };
        assert_eq!(apply(&mut files, &undo, Stage::PageCopy).unwrap().file().size, 1024 * 16384);
        let redo = FileDescriptor { space: REDO_SPACE, ..descriptor(Stage::RedoCopy, 5, "", 0) };
        let change = apply(&mut files, &redo, Stage::RedoCopy).unwrap();
        assert_eq!((change.file().id, change.file().path.as_str()), (FileId::Redo(5), "#innodb_redo/#ib_redo5"));
    }

    #[test]
    fn a_late_file_one_that_leads_elsewhere_and_one_of_strange_flags_are_refused() {
        let files = files();
        assert!(files.plan(&descriptor(Stage::FileCopy, 0, "./a.ibd", 0), Stage::PageCopy).is_err());
        assert!(files.plan(&descriptor(Stage::FileCopy, 0, "../a.ibd", 0), Stage::FileCopy).is_err());
        let strange = FileDescriptor { fsp_flags: 0x1E, ..descriptor(Stage::FileCopy, 0, "./a.ibd", 0) };
        assert!(files.plan(&strange, Stage::FileCopy).is_err());
    }
}
