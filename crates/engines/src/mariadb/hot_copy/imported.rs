//! Tables that are imported while a backup runs, or shortly before (`ALTER TABLE … DISCARD TABLESPACE`, `IMPORT
//! TABLESPACE`).
//!
//! An import puts another file under the number of the table, and writes it without the redo log. So a copy of the
//! former file, or a copy that was made during the import, is useless. If the log has the removal of the former file,
//! recovery drops the changes after the import: no copy of the file can repair that.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use fullbore_core::{Error, Result};

use super::data_file::identify;
use super::listing::{ListedFile, Role};
use super::statements::Statements;
use crate::mariadb::redo::lives::{Lives, Removal};
use crate::mysql_family::innodb::tablespace::SPACE_MAX;

/// A tablespace of a table, as it is in the copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The tablespace's number.
    pub space: u32,
    /// Its name in the copy.
    pub name: String,
    /// Its file was copied while DDL was blocked, or did not change between its copy and that moment.
    pub is_present: bool,
    /// Its number was known before, with another file or no file.
    pub came_back: bool,
}

/// The numbers of the tablespaces that the server has open; `None` without the privilege PROCESS.
pub fn open_numbers(server: &mut dyn Statements) -> Option<HashSet<u32>> {
    // Not allowed, or the connection is lost: then the next statement fails.
    let rows = server.execute("SELECT SPACE FROM information_schema.INNODB_SYS_TABLESPACES").ok()?;
    let numbers = rows.iter().filter_map(|row| u32::try_from(row.number(0)?).ok());
    Some(numbers.filter(|space| *space <= SPACE_MAX).collect())
}

/// Refuses a copy whose log makes recovery drop data in its files; `lives` is of the whole log.
///
/// # Errors
/// The first such table, by name.
pub fn demand_recoverable(kept: &[Kept], lives: &Lives) -> Result<()> {
    for file in kept {
        match lives.removal(file.space) {
            Some(removal) if removal.used_again => return Err(used_again(&file.name, removal)),
            Some(_) if !file.is_present => return Err(replaced(&file.name)),
            _ => {}
        }
        if let Some(lsn) = lives.unnamed_removal().filter(|_| file.came_back) {
            return Err(refused(
                &file.name,
                "the table was imported (ALTER TABLE … IMPORT TABLESPACE) during the backup, and the encrypted redo \
                 log does not show whether it has the removal of the former file: recovery could drop the changes \
                 after the import"
                    .into(),
                lsn,
            ));
        }
    }
    Ok(())
}

/// The same as soon as the log shows it, so that such a copy ends early.
///
/// # Errors
/// The first such table, by the name that it had in the log.
pub fn demand_recoverable_early(lives: &Mutex<Lives>, datadir: &Path) -> Result<()> {
    let lives = lives.lock().unwrap_or_else(PoisonError::into_inner);
    let removals: Vec<(u32, Removal)> = lives.used_again().map(|(space, removal)| (space, removal.clone())).collect();
    drop(lives); // The log's thread must not wait for files.
    for (space, removal) in removals {
        let name = removal.name.trim_start_matches("./").to_owned();
        let path = datadir.join(&removal.name);
        let file = ListedFile { name, path, elsewhere: false, ambiguous: false, role: Role::Table };
        // A file that cannot be read now is checked at the end, or was removed.
        if identify(&file).ok().flatten().is_some_and(|found| found.space == Some(space)) {
            return Err(used_again(&file.name, &removal));
        }
    }
    Ok(())
}

fn used_again(name: &str, removal: &Removal) -> Error {
    let why = "the table was imported (ALTER TABLE … IMPORT TABLESPACE) and then written to, and the redo log still \
               has the removal of its former file: recovery drops the changes after the import, also after a crash of \
               this server";
    refused(name, why.into(), removal.lsn)
}

fn replaced(name: &str) -> Error {
    Error::refused(
        name,
        "the table's file was replaced (ALTER TABLE … IMPORT TABLESPACE) during the copy",
        "start the backup again after the import",
    )
}

fn refused(name: &str, why: String, lsn: u64) -> Error {
    let hint = format!(
        "start the backup again when the server's Innodb_lsn_last_checkpoint is above {lsn}: SET GLOBAL \
         innodb_max_dirty_pages_pct = 0 makes the server write its pages and then a checkpoint; set it back afterwards"
    );
    Error::refused(name, why, hint)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::mariadb::redo::record::{put_record, put_varint};

    fn about(kind: u8, space: u32) -> Vec<u8> {
        let (mut body, mut bytes) = (Vec::new(), Vec::new());
        put_varint(space, &mut body);
        body.extend_from_slice(b"\0./shop/a.ibd");
        put_record(kind, &body, &mut bytes);
        bytes
    }

    fn kept(is_present: bool, came_back: bool) -> [Kept; 2] {
        let one = |space, name: &str| Kept { space, name: name.into(), is_present, came_back };
        [one(4, "shop/other.ibd"), one(5, "shop/a.ibd")]
    }

    #[test]
    fn a_table_that_was_written_to_after_its_import_is_refused_by_name_and_others_are_not() {
        let mut lives = Lives::default();
        demand_recoverable(&kept(false, true), &lives).unwrap();
        lives.note(&about(0x90, 5), 1000, false);
        demand_recoverable(&kept(true, true), &lives).unwrap();
        let error = demand_recoverable(&kept(false, true), &lives).unwrap_err().to_string();
        assert!(error.contains("shop/a.ibd") && error.contains("replaced"), "{error}");
        lives.note(&about(0xB0, 5), 1100, false);
        let error = demand_recoverable(&kept(true, true), &lives).unwrap_err().to_string();
        assert!(error.contains("shop/a.ibd") && error.contains("above 1000"), "{error}");
        demand_recoverable(&kept(true, true)[..1], &lives).unwrap();
    }

    #[test]
    fn with_an_encrypted_log_a_number_that_came_back_is_refused_if_any_file_was_removed() {
        let mut lives = Lives::default();
        lives.note(&about(0x80, 9), 900, true);
        demand_recoverable(&kept(true, true), &lives).unwrap();
        lives.note(&about(0x90, 9), 1000, true);
        demand_recoverable(&kept(true, false), &lives).unwrap();
        let error = demand_recoverable(&kept(true, true), &lives).unwrap_err().to_string();
        assert!(error.contains("shop/other.ibd") && error.contains("encrypted"), "{error}");
    }
}
