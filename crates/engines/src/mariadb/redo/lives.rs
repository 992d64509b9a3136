//! The files of tablespaces in the followed log: created, removed, and used again under the same number.
//!
//! The server never uses a number twice. But `ALTER TABLE … DISCARD TABLESPACE` removes the file of a number, and
//! `IMPORT TABLESPACE` adds another file with that number, without the redo log. If recovery finds the removal, it
//! drops everything that the log has for this number, before and after it.

use std::collections::{HashMap, HashSet};

use super::record::{FileRecord, records};

/// A record with a first byte below this is about a page, and so are all records after it in the mini-transaction.
pub const FILE_RECORDS_FROM: u8 = 0x80;
/// The type of a removal, which can be read in an encrypted log too.
const REMOVED: u8 = 0x90;
/// More of a file's name is not kept.
const NAME_MAX: usize = 1024;

/// The file records of the log so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lives {
    made: HashSet<u32>,
    removed: HashMap<u32, Removal>,
    unnamed_removal: Option<u64>,
}

/// The removal of a tablespace's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The LSN of the mini-transaction that has it; of several, the last.
    pub lsn: u64,
    /// The file's name in the log: `./shop/item.ibd`.
    pub name: String,
    /// Whether the number was written to again after that.
    pub used_again: bool,
}

impl Lives {
    /// Takes the records of one mini-transaction.
    pub fn note(&mut self, bytes: &[u8], lsn: u64, encrypted: bool) {
        for record in records(bytes).take_while(|record| record.kind >= FILE_RECORDS_FROM) {
            if encrypted {
                // Only the types are in clear.
                if record.kind & 0xF0 == REMOVED {
                    self.unnamed_removal = Some(lsn);
                }
                continue;
            }
            match record.file(true) {
                Some(FileRecord::Create(space, _)) => {
                    self.made.insert(space);
                    self.use_again(space);
                }
                Some(FileRecord::Delete(space, name)) => {
                    let name = String::from_utf8_lossy(&name[..name.len().min(NAME_MAX)]).into_owned();
                    self.removed.insert(space, Removal { lsn, name, used_again: false });
                }
                Some(FileRecord::Rename(space, ..) | FileRecord::Modify(space, _)) => self.use_again(space),
                Some(FileRecord::Checkpoint(_)) | None => {}
            }
        }
    }

    /// The server names a file in the log before the first change of a page of it.
    fn use_again(&mut self, space: u32) {
        if let Some(removal) = self.removed.get_mut(&space) {
            removal.used_again = true;
        }
    }

    /// Whether the log has everything of this tablespace from its first page on.
    pub fn was_made(&self, space: u32) -> bool {
        self.made.contains(&space)
    }

    /// The removal of a file of this number, if the log has one that can be read.
    pub fn removal(&self, space: u32) -> Option<&Removal> {
        self.removed.get(&space)
    }

    /// Numbers that were removed and used again, with their removals.
    pub fn used_again(&self) -> impl Iterator<Item = (u32, &Removal)> {
        self.removed.iter().filter(|(_, removal)| removal.used_again).map(|(space, removal)| (*space, removal))
    }

    /// The LSN of the last removal in an encrypted log, which does not show the file.
    pub fn unnamed_removal(&self) -> Option<u64> {
        self.unnamed_removal
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::record::{put_record, put_varint};
    use super::*;

    fn about(kind: u8, space: u32, name: &str) -> Vec<u8> {
        let (mut body, mut bytes) = (Vec::new(), Vec::new());
        put_varint(space, &mut body);
        body.push(0);
        body.extend_from_slice(name.as_bytes());
        put_record(kind, &body, &mut bytes);
        bytes
    }

    #[test]
    fn a_number_that_is_used_after_its_removal_is_told_from_one_that_is_gone() {
        let mut lives = Lives::default();
        lives.note(&about(0x80, 7, "./shop/new.ibd"), 100, false);
        lives.note(&about(0x90, 5, "./shop/a.ibd"), 200, false);
        lives.note(&about(0x90, 300_000, "./shop/b.ibd"), 300, false);
        assert!(lives.was_made(7) && !lives.was_made(5) && lives.removal(7).is_none());
        assert!(lives.removal(5).is_some_and(|removal| !removal.used_again && removal.name == "./shop/a.ibd"));
        lives.note(&[about(0xB0, 9, "./shop/c.ibd"), about(0xB0, 300_000, "./shop/b.ibd")].concat(), 400, false);
        let again: Vec<_> = lives.used_again().map(|(space, removal)| (space, removal.lsn)).collect();
        assert_eq!(again, [(300_000, 300)]);
        lives.note(&about(0xA0, 5, "./shop/a.ibd\0./shop/d.ibd"), 500, false);
        assert_eq!(lives.used_again().count(), 2);
        lives.note(&about(0x90, 5, "./shop/d.ibd"), 600, false);
        assert!(lives.removal(5).is_some_and(|removal| !removal.used_again && removal.lsn == 600));
        assert_eq!(lives.unnamed_removal(), None);
    }

    #[test]
    fn records_after_a_page_record_belong_to_its_page() {
        let mut lives = Lives::default();
        let mut bytes = about(0x30, 5, "page");
        bytes.extend_from_slice(&about(0x90, 5, "./shop/a.ibd"));
        lives.note(&bytes, 100, false);
        assert_eq!(lives, Lives::default());
    }

    #[test]
    fn an_encrypted_log_says_only_that_some_file_was_removed() {
        let mut lives = Lives::default();
        lives.note(&about(0x80, 5, "./shop/a.ibd"), 100, true);
        assert_eq!(lives, Lives::default());
        lives.note(&about(0x90, 5, "./shop/a.ibd"), 200, true);
        assert_eq!(lives.unnamed_removal(), Some(200));
        assert!(lives.removal(5).is_none());
    }
}
