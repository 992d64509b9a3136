//! Page sizes, journal modes, auto-vacuum and free pages.

use std::os::unix::fs::FileExt;

use fullbore_core::source::Source;
use fullbore_engines::sqlite::position::JournalMode;
use fullbore_engines::{Options, Session, sqlite::Snapshot};

use crate::copy::{Live, assert_whole, copy};

const PAGE_SIZES: [u32; 8] = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536];

/// Rows, some of them deleted again, then a snapshot while the writer's connection stays open.
fn comes_out_whole(page_size: u32, journal_mode: &str, auto_vacuum: &str) {
    let pragmas = format!(
        "PRAGMA page_size = {page_size}; PRAGMA auto_vacuum = {auto_vacuum}; PRAGMA journal_mode = {journal_mode}; \
         PRAGMA wal_autocheckpoint = 300"
    );
    let mut live = Live::new(&pragmas);
    live.fill(300, 4000);
    live.sql(
        "DELETE FROM t WHERE id % 3 = 0; DELETE FROM w WHERE k < 'key2'; UPDATE t SET b = zeroblob(9) WHERE id % 7 = 0",
    );
    let snapshot = live.snapshot();
    let position = snapshot.position();
    assert_eq!(position.page_size, page_size);
    assert_eq!(position.journal_mode == JournalMode::Wal, journal_mode == "wal");
    assert_eq!(snapshot.streams()[0].unit, page_size.max(4096));
    let expected = snapshot.digest().unwrap().unwrap();
    assert_eq!(expected.tables["t"].rows, 200);
    copy(&snapshot, &live.copy_path(), 3, 128 << 10);
    assert_eq!(snapshot.facts().warnings, Vec::<String>::new());
    assert!(
        snapshot.facts().free_bytes > 0 || auto_vacuum == "full" || page_size != 4096,
        "deleted rows leave free pages"
    );
    drop(snapshot);
    assert_whole(&live.copy_path(), &expected);
}

#[test]
fn every_page_size_comes_out_whole_in_wal_mode() {
    for (page_size, auto_vacuum) in PAGE_SIZES.iter().zip(["none", "full", "incremental"].iter().cycle()) {
        comes_out_whole(*page_size, "wal", auto_vacuum);
    }
}

#[test]
fn every_page_size_comes_out_whole_in_rollback_mode() {
    for (number, page_size) in PAGE_SIZES.into_iter().enumerate() {
        comes_out_whole(page_size, ["delete", "truncate", "persist"][number % 3], ["incremental", "none"][number % 2]);
    }
}

#[test]
fn a_utf_16_database_whose_size_is_no_multiple_of_a_unit_comes_out_whole() {
    let mut live = Live::new("PRAGMA page_size = 512; PRAGMA encoding = 'UTF-16le'; PRAGMA journal_mode = wal");
    for pages in 0..9 {
        live.sql(&format!("INSERT INTO t(k, b) VALUES ('x', zeroblob({}))", 480 + pages));
        let snapshot = live.snapshot();
        let expected = snapshot.digest().unwrap().unwrap();
        copy(&snapshot, &live.copy_path(), 2, 4096);
        drop(snapshot);
        assert_whole(&live.copy_path(), &expected);
    }
}

#[test]
fn free_pages_are_known_counted_and_come_back_as_zeros() {
    let mut live = Live::new("PRAGMA journal_mode = delete");
    live.sql("PRAGMA secure_delete = off; INSERT INTO t(b) VALUES (randomblob(8000000)); DELETE FROM t");
    let snapshot = live.snapshot();
    let free = snapshot.facts().free_bytes;
    assert!(free > 7_900_000, "{free} bytes");
    let counted = (0..snapshot.streams()[0].size).step_by(4096).filter(|&offset| snapshot.is_free(1, offset)).count();
    assert_eq!(counted as u64 * 4096, free);
    assert!(!snapshot.is_free(1, 0) && !snapshot.is_free(1, 1 << 40) && !snapshot.is_free(2, 8 << 20));
    let expected = snapshot.digest().unwrap().unwrap();
    copy(&snapshot, &live.copy_path(), 1, 1 << 20);
    drop(snapshot);
    assert_whole(&live.copy_path(), &expected);
}

#[test]
fn a_reader_tells_how_much_of_an_extent_was_free_and_not_read() {
    let mut live = Live::new("PRAGMA journal_mode = delete");
    live.sql("PRAGMA secure_delete = off; INSERT INTO t(b) VALUES (randomblob(8000000)); DELETE FROM t");
    let snapshot = live.snapshot();
    let (size, free) = (snapshot.streams()[0].size, snapshot.facts().free_bytes);
    let mut reader = snapshot.reader(0, 1).unwrap();
    let mut buffer = vec![0; 64 << 10];
    let (mut passed, mut unread) = (0, 0);
    while let Some(extent) = reader.next(&mut buffer).unwrap() {
        assert!(reader.unread() <= u64::from(extent.length));
        passed += u64::from(extent.length);
        unread += reader.unread();
    }
    assert_eq!(passed, size);
    // Free pages between used pages are read with them: here in the first and the last extent.
    assert!(unread <= free && unread + (256 << 10) >= free, "{unread} of {free} bytes were not read");
}

#[test]
fn a_corrupt_free_list_is_a_warning_and_everything_is_stored() {
    let mut live = Live::new("PRAGMA journal_mode = delete");
    live.sql("INSERT INTO t(b) VALUES (randomblob(900000)); DELETE FROM t");
    live.child.ask("close 0").unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&live.path).unwrap();
    file.write_all_at(&3u32.to_be_bytes(), 36).unwrap();
    drop(file);
    let snapshot = live.snapshot();
    let facts = snapshot.facts();
    assert!(facts.warnings[0].contains("free-list"), "{:?}", facts.warnings);
    assert_eq!(facts.free_bytes, 0);
    copy(&snapshot, &live.copy_path(), 1, 1 << 20);
    drop(snapshot);
    assert!(std::fs::read(live.copy_path()).unwrap() == std::fs::read(&live.path).unwrap(), "a copy byte for byte");
}

#[test]
fn with_reserved_bytes_nothing_counts_as_free() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reserved.db");
    let create = |sql: &str| rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    create("PRAGMA user_version = 1");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[8], 20).unwrap();
    file.write_all_at(&4088u16.to_be_bytes(), 105).unwrap(); // Where the cells of page 1 end.
    drop(file);
    create("CREATE TABLE t(b); INSERT INTO t VALUES (randomblob(900000)); DELETE FROM t; INSERT INTO t VALUES (1)");
    let snapshot = Snapshot::open(&path, &Options::default()).unwrap();
    assert_eq!((snapshot.position().reserved, snapshot.facts().free_bytes), (8, 0));
    assert!(snapshot.position().freelist_pages > 200);
    let expected = snapshot.digest().unwrap().unwrap();
    copy(&snapshot, &folder.path().join("copy.db"), 2, 1 << 20);
    assert_whole(&folder.path().join("copy.db"), &expected);
}

#[test]
fn a_session_opened_by_url_tells_its_position_for_the_manifest() {
    let mut live = Live::new("PRAGMA journal_mode = wal; PRAGMA user_version = 42; PRAGMA application_id = 7");
    live.fill(10, 100);
    let session = fullbore_engines::open(&format!("sqlite:{}", live.path.display()), &Options::default()).unwrap();
    let position = session.position().unwrap();
    assert_eq!((position["journal_mode"].as_str(), position["user_version"].as_u64()), (Some("wal"), Some(42)));
    assert!(position["log"]["max_frame"].as_u64() > Some(0));
    let back: fullbore_engines::sqlite::Position = serde_json::from_value(position).unwrap();
    assert_eq!(back.application_id, 7);
    assert_eq!((session.engine(), session.source().streams()[0].name.as_str()), ("sqlite", "live.db"));
}
