//! A free-list that names pages in use: no row is lost without a word.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fullbore_core::source::Source;
use fullbore_engines::engine::GivenOptions;
use fullbore_engines::sqlite::engine::KEEP_FREE_PAGES;
use fullbore_engines::sqlite::{Snapshot, content_digest};
use fullbore_engines::{Options, Session};
use rusqlite::Connection;

use crate::copy::copy;

const PAGE: u64 = 4096;

/// A closed database of several tables whose free-list has some hundred pages.
fn with_free_pages(folder: &Path, auto_vacuum: &str) -> PathBuf {
    let path = folder.join("free.db");
    let connection = Connection::open(&path).unwrap();
    let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)";
    let sql = format!(
        "PRAGMA page_size = 4096; PRAGMA auto_vacuum = {auto_vacuum};
         CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE TABLE other(b);
         CREATE INDEX tb ON t(b); CREATE TABLE w(k PRIMARY KEY, v) WITHOUT ROWID;
         {numbers} INSERT INTO t(b) SELECT 'row ' || i || hex(zeroblob(200)) FROM n;
         INSERT INTO w SELECT b, zeroblob(20000) FROM t WHERE a < 20;
         INSERT INTO other VALUES (zeroblob(50000)), (zeroblob(900000));
         DELETE FROM other WHERE rowid = 2; DELETE FROM t WHERE a > 2000;"
    );
    connection.execute_batch(&sql).unwrap();
    path
}

/// The b-tree, or other structure, of each page, according to SQLite.
fn pages(path: &Path) -> Vec<(u32, String, String)> {
    let connection = Connection::open(path).unwrap();
    let mut used = connection.prepare("SELECT pageno, name, pagetype FROM dbstat").unwrap();
    let used = used.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    used.map(Result::unwrap).collect()
}

/// Writes `page` over the first leaf that the first trunk page of the free-list names.
fn list_as_free(path: &Path, page: u32) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut trunk = [0; 4];
    file.read_exact_at(&mut trunk, 32).unwrap();
    let trunk = u64::from(u32::from_be_bytes(trunk));
    file.write_all_at(&page.to_be_bytes(), (trunk - 1) * PAGE + 8).unwrap();
}

/// The result for a database whose free-list names `page`.
enum Outcome {
    /// Everything was stored, with this warning.
    Stored(String),
    Refused(String),
}

fn outcome(path: &Path, page: u32) -> Outcome {
    list_as_free(path, page);
    let before = content_digest(path).unwrap();
    let to = path.with_extension("copy");
    let snapshot = Snapshot::open(path, &Options::default()).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut reader = snapshot.reader(0, 1).unwrap();
    let refused = loop {
        match reader.next(&mut buffer) {
            Ok(Some(_)) => {}
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    drop(reader);
    drop(snapshot);
    if let Some(refused) = refused {
        // The hint of the refusal.
        let options = Options { given: GivenOptions::default().with(&KEEP_FREE_PAGES), ..Options::default() };
        let snapshot = Snapshot::open(path, &options).unwrap();
        assert_eq!(snapshot.facts().free_bytes, 0);
        copy(&snapshot, &to, 2, 1 << 20);
        assert!(std::fs::read(&to).unwrap() == std::fs::read(path).unwrap(), "every page is stored");
        return Outcome::Refused(refused);
    }
    let snapshot = Snapshot::open(path, &Options::default()).unwrap();
    copy(&snapshot, &to, 2, 1 << 20);
    let warnings = snapshot.facts().warnings;
    drop(snapshot);
    assert_eq!(content_digest(&to).unwrap(), before, "page {page}");
    Outcome::Stored(warnings.join("\n"))
}

#[test]
fn a_root_page_in_the_free_list_is_a_warning_and_every_row_is_stored() {
    for auto_vacuum in ["none", "incremental"] {
        for table in ["t", "tb", "w"] {
            let folder = tempfile::tempdir().unwrap();
            let path = with_free_pages(folder.path(), auto_vacuum);
            let root = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
            let root = Connection::open(&path).unwrap().query_row(root, [table], |row| row.get(0)).unwrap();
            let Outcome::Stored(warning) = outcome(&path, root) else { panic!("{table}") };
            assert!(
                warning.contains(&format!("page {root} ")) && warning.contains("every page is stored"),
                "{warning}"
            );
        }
    }
}

#[test]
fn a_page_that_the_pointer_map_calls_used_is_a_warning_and_every_row_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let path = with_free_pages(folder.path(), "incremental");
    let good = std::fs::read(&path).unwrap();
    for kind in ["leaf", "overflow"] {
        let (page, ..) = *pages(&path).iter().rev().find(|page| page.2 == kind).unwrap();
        let Outcome::Stored(warning) = outcome(&path, page) else { panic!("{kind}") };
        assert!(warning.contains(&format!("page {page} ")) && warning.contains("pointer map"), "{warning}");
        std::fs::write(&path, &good).unwrap();
    }
}

#[test]
fn a_page_that_another_page_refers_to_is_never_left_out_as_free() {
    let folder = tempfile::tempdir().unwrap();
    let path = with_free_pages(folder.path(), "none");
    let good = std::fs::read(&path).unwrap();
    let roots = [1, 2, 3, 4, 5];
    let used: Vec<(u32, String, String)> = pages(&path).into_iter().filter(|page| !roots.contains(&page.0)).collect();
    for (name, kind) in [("t", "leaf"), ("tb", "leaf"), ("w", "overflow"), ("other", "overflow")] {
        let of_kind: Vec<u32> =
            used.iter().filter(|page| (&*page.1, &*page.2) == (name, kind)).map(|page| page.0).collect();
        for page in [of_kind[0], of_kind[of_kind.len() / 2], of_kind[of_kind.len() - 1]] {
            let Outcome::Refused(why) = outcome(&path, page) else { panic!("page {page} of {name} was left out") };
            let says = [&format!("page {page} is in the free-list"), "--keep-free-pages", "integrity_check"];
            assert!(says.iter().all(|words| why.contains(*words)), "{why}");
            std::fs::write(&path, &good).unwrap();
        }
    }
}

#[test]
fn a_sound_free_list_is_believed_whatever_the_page_size() {
    for (number, page_size) in [512, 1024, 4096, 65536].into_iter().enumerate() {
        let folder = tempfile::tempdir().unwrap();
        let path = with_free_pages(folder.path(), ["none", "incremental"][number % 2]);
        Connection::open(&path)
            .unwrap()
            .execute_batch(&format!(
                "PRAGMA page_size = {page_size}; VACUUM; DELETE FROM w; DELETE FROM t WHERE a % 3 > 0"
            ))
            .unwrap();
        let before = content_digest(&path).unwrap();
        let snapshot = Snapshot::open(&path, &Options::default()).unwrap();
        assert!(snapshot.facts().free_bytes > 0 && snapshot.facts().warnings.is_empty(), "{:?}", snapshot.facts());
        copy(&snapshot, &path.with_extension("copy"), 2, 1 << 20);
        drop(snapshot);
        assert_eq!(content_digest(&path.with_extension("copy")).unwrap(), before);
    }
}
