//! Undo tablespaces of a restored directory: each is as long as the redo log needs it.
//!
//! If an undo tablespace grows after it was copied, the log has pages after the end of its copy. MariaDB 10.11.18 makes
//! such pages in memory before its recovery extends the file. If it flushes them in between, it aborts: "Trying to
//! write … outside the bounds of the file". Whether that happens depends on disk, load and buffer pool. The server
//! extends its own files before it writes the log, so its own recovery does not have this problem. A longer file does
//! no harm: the bytes after the end are zero and not in use.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fullbore_core::{Error, Result};
use serde_json::Value;

use super::hot_copy::is_undo_tablespace;
use super::redo::framing::{self, LENGTH_MAX};
use super::redo::header::{Checkpoint, HEAD, Header};
use super::redo::record::records;
use crate::mysql_family::innodb::page::SPACE_AT;

/// The server counts the size of a file in extents: 1 MiB each, and 4 MiB with pages of 64 KiB.
const EXTENT: u64 = 4 << 20;
/// How much of the log is read at once.
const PIECE: usize = 4 << 20;
/// The most bytes that a file is made long.
const LENGTH_LIMIT: u64 = 1 << 40;

/// Makes the undo tablespaces below `root` as long as its redo log needs them. `position` is from the set. It has the
/// lengths of the server's own files (`undo_bytes`), unless an earlier version wrote it. The log has the lengths too,
/// unless it is encrypted.
///
/// # Errors
/// A file cannot be read or made longer.
pub fn make_long_enough(root: &Path, position: &Value) -> Result<()> {
    let undo = undo_tablespaces(root)?;
    let log = root.join("ib_logfile0");
    let numbers = position["end_lsn"].as_u64().zip(position["innodb_page_size"].as_u64());
    let (Some((end_lsn, page_size)), false, true) = (numbers, undo.is_empty(), log.exists()) else { return Ok(()) };
    let last_pages = last_pages(&log, end_lsn).map_err(|error| failed("read", &log, error))?;
    for (space, path) in undo {
        let logged = last_pages.get(&space).map_or(0, |last| (u64::from(*last) + 1).saturating_mul(page_size));
        let noted = position["undo_bytes"][space.to_string()].as_u64().unwrap_or(0);
        // Media may be forged: the sum stays where it cannot overflow.
        let wanted = logged.min(LENGTH_LIMIT + 1).next_multiple_of(EXTENT).max(noted);
        let lengthen = || {
            let file = OpenOptions::new().write(true).open(&path)?;
            if (file.metadata()?.len()..=LENGTH_LIMIT).contains(&wanted) {
                file.set_len(wanted).and_then(|()| file.sync_all())?;
            }
            Ok(())
        };
        lengthen().map_err(|error| failed("make longer", &path, error))?;
    }
    Ok(())
}

fn failed(action: &str, path: &Path, error: std::io::Error) -> Error {
    Error::io(action, path.display().to_string(), error)
}

/// The files `undo001`, `undo002` … with the numbers of their tablespaces.
fn undo_tablespaces(root: &Path) -> Result<BTreeMap<u32, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root).map_err(|error| failed("list", root, error))? {
        let entry = entry.map_err(|error| failed("list", root, error))?;
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_str().is_some_and(is_undo_tablespace) {
            let (path, mut space) = (entry.path(), [0; 4]);
            let read = File::open(&path).and_then(|file| file.read_exact_at(&mut space, SPACE_AT as u64));
            if read.is_ok() {
                found.insert(u32::from_be_bytes(space), path);
            }
        }
    }
    found.remove(&0);
    Ok(found)
}

/// The last page of each tablespace in the records of the restored log, up to `end_lsn`. Empty for a log that is
/// encrypted or not understood: the server reports what is wrong with it.
fn last_pages(log: &Path, end_lsn: u64) -> std::io::Result<BTreeMap<u32, u32>> {
    let mut file = File::open(log)?;
    let mut head = Vec::new();
    (&mut file).take(HEAD as u64).read_to_end(&mut head)?;
    let mut found = BTreeMap::new();
    let Ok(header) = Header::parse(&head) else { return Ok(found) };
    let Ok(checkpoint) = Checkpoint::newest(&head, header.first_lsn) else { return Ok(found) };
    if header.encrypted || checkpoint.lsn != header.first_lsn {
        return Ok(found);
    }
    let mut rest = (&mut file).take(end_lsn.saturating_sub(checkpoint.lsn));
    let mut bytes = Vec::with_capacity(PIECE + LENGTH_MAX);
    loop {
        let got = (&mut rest).take(PIECE as u64).read_to_end(&mut bytes)?;
        let used = note(&bytes, &mut found);
        bytes.drain(..used);
        if got == 0 || bytes.len() > LENGTH_MAX {
            return Ok(found);
        }
    }
}

/// Takes note of whole mini-transactions; gives how many bytes they had.
fn note(bytes: &[u8], found: &mut BTreeMap<u32, u32>) -> usize {
    let mut left = bytes;
    while let Some((transaction, rest)) = framing::split(left) {
        // A record with the flag is of the same page as the one before. File records come first, and have a kind of
        // their own.
        for record in records(transaction).filter(|record| record.kind & 0x80 == 0) {
            if let Some((space, page, _)) = record.page() {
                let last = found.entry(space).or_insert(0);
                *last = page.max(*last);
            }
        }
        left = rest;
    }
    bytes.len() - left.len()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::redo::record::{put_record, put_varint};
    use super::super::redo::ring::{PAYLOAD_AT, Ring};
    use super::super::redo::write::LinearLog;
    use super::*;

    /// A log of these mini-transactions, each a list of pages, in a directory with two undo tablespaces of 10 MiB.
    fn restored(transactions: &[&[(u32, u32)]], encrypted: bool) -> (tempfile::TempDir, Value) {
        let root = tempfile::tempdir().unwrap();
        for (name, space) in [("undo001", 7_u32), ("undo002", 8)] {
            let file = File::create(root.path().join(name)).unwrap();
            file.set_len(10 << 20).unwrap();
            file.write_all_at(&space.to_be_bytes(), SPACE_AT as u64).unwrap();
        }
        let start = 1_000_000;
        let header = Header::parse(&Header::made(PAYLOAD_AT, encrypted)).unwrap();
        let log = LinearLog::new(&header, Checkpoint { lsn: start, end_lsn: start }, "10.11.18");
        let ring = Ring::new(start, 1 << 30).unwrap();
        let mut bytes = log.head().to_vec();
        for pages in transactions {
            let mut made = Vec::new();
            for (space, page) in *pages {
                let mut body = Vec::new();
                put_varint(*space, &mut body);
                put_varint(*page, &mut body);
                put_varint(60, &mut body);
                body.extend([1, 2, 3]);
                put_record(0x30, &body, &mut made);
            }
            let lsn = start + bytes.len() as u64 - PAYLOAD_AT;
            bytes.extend(framing::seal(&made, lsn, &ring, None));
        }
        let end = start + bytes.len() as u64 - PAYLOAD_AT;
        bytes.resize(bytes.len() + 4096, 0);
        fs::write(root.path().join("ib_logfile0"), bytes).unwrap();
        let position = serde_json::json!({ "end_lsn": end, "innodb_page_size": 16384 });
        (root, position)
    }

    fn lengths(root: &Path) -> [u64; 2] {
        ["undo001", "undo002"].map(|name| fs::metadata(root.join(name)).unwrap().len() >> 20)
    }

    #[test]
    fn an_undo_tablespace_becomes_as_long_as_the_last_page_in_the_log() {
        // Page 2067 ends after 32 MiB. Page 5 of the other tablespace is in its file.
        let (root, position) = restored(&[&[(7, 2067), (9, 70_000)], &[(8, 5), (7, 3)]], false);
        make_long_enough(root.path(), &position).unwrap();
        assert_eq!(lengths(root.path()), [36, 10]);
        make_long_enough(root.path(), &position).unwrap();
        assert_eq!(lengths(root.path()), [36, 10], "again it changes nothing");
    }

    #[test]
    fn with_an_encrypted_log_an_undo_tablespace_becomes_as_long_as_the_servers_own() {
        let (root, mut position) = restored(&[&[(7, 2067)]], true);
        make_long_enough(root.path(), &position).unwrap();
        assert_eq!(lengths(root.path()), [10, 10], "an earlier version noted nothing");
        position["undo_bytes"] = serde_json::json!({ "7": 36 << 20, "8": 10 << 20, "9": 90 << 20 });
        make_long_enough(root.path(), &position).unwrap();
        assert_eq!(lengths(root.path()), [36, 10]);
    }

    #[test]
    fn with_forged_numbers_nothing_becomes_longer() {
        let (root, _) = restored(&[&[(7, u32::MAX)]], false);
        for position in [
            serde_json::json!({ "end_lsn": u64::MAX, "innodb_page_size": u64::MAX }),
            serde_json::json!({ "end_lsn": 5, "innodb_page_size": 16384 }),
            serde_json::json!({}),
            serde_json::json!({ "end_lsn": 5, "innodb_page_size": 16384, "undo_bytes": { "7": u64::MAX } }),
            serde_json::json!({ "end_lsn": 5, "innodb_page_size": 16384, "undo_bytes": [7] }),
        ] {
            make_long_enough(root.path(), &position).unwrap();
            assert_eq!(lengths(root.path()), [10, 10], "{position}");
        }
        fs::write(root.path().join("ib_logfile0"), [7; 100_000]).unwrap();
        let position = serde_json::json!({ "end_lsn": 1_u64 << 40, "innodb_page_size": 16384 });
        make_long_enough(root.path(), &position).unwrap();
        assert_eq!(lengths(root.path()), [10, 10]);
    }
}
