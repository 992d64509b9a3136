//! Beyond 4 GiB, and across the lock-byte page at 1 GiB: a sparse file, so that it costs seconds only.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use fullbore_core::source::Source;
use fullbore_engines::{Options, Session, sqlite::Snapshot};

use crate::copy::{assert_whole, copy};

const PAGE: u64 = 65536;
const LOCK_PAGE: u32 = (1 << 30) as u32 / PAGE as u32 + 1;

/// Grows a small closed database to `pages` pages by a free-list that names them all: its leaves stay holes.
fn grow(path: &Path, pages: u32) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut header = [0; 100];
    file.read_exact_at(&mut header, 0).unwrap();
    assert_eq!(header[36..40], [0; 4], "no free pages so far");
    let now = u32::from_be_bytes(header[28..32].try_into().unwrap());
    // SQLite takes pages from the first trunk: the pages around the lock page, and the pages after 4 GiB.
    let (wanted, rest): (Vec<u32>, Vec<u32>) = (now + 1..=pages)
        .filter(|&page| page != LOCK_PAGE)
        .partition(|&page| page.abs_diff(LOCK_PAGE) < 4 || u64::from(page - 1) * PAGE >= 4 << 30);
    let count = (wanted.len() + rest.len()) as u32;
    let trunks: Vec<&[u32]> = std::iter::once(&wanted[..]).chain(rest.chunks(PAGE as usize / 4 - 8)).collect();
    for (number, trunk) in trunks.iter().enumerate() {
        let next = trunks.get(number + 1).map_or(0, |next| next[0]);
        let words = [next, trunk.len() as u32 - 1].into_iter().chain(trunk[1..].iter().copied());
        let bytes: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
        file.write_all_at(&bytes, u64::from(trunk[0] - 1) * PAGE).unwrap();
    }
    file.set_len(u64::from(pages) * PAGE).unwrap();
    file.write_all_at(&pages.to_be_bytes(), 28).unwrap();
    file.write_all_at(&[wanted[0].to_be_bytes(), count.to_be_bytes()].concat(), 32).unwrap();
}

fn holds_data(file: &File, page: u32) -> bool {
    let mut bytes = vec![0; PAGE as usize];
    file.read_exact_at(&mut bytes, u64::from(page - 1) * PAGE).unwrap();
    bytes.iter().any(|&byte| byte != 0)
}

#[test]
fn a_database_beyond_4_gib_and_across_the_lock_byte_comes_out_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.db");
    let create = |sql: &str| rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    create(
        "PRAGMA page_size = 65536; CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB); INSERT INTO t(b) VALUES ('first')",
    );
    let pages = 66_000;
    grow(&path, pages);
    create(
        "PRAGMA synchronous = OFF; WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
            INSERT INTO t(b) SELECT randomblob(250000) FROM n",
    );
    let file = File::open(&path).unwrap();
    let beyond = (65_537..=pages).any(|page| holds_data(&file, page));
    assert!(beyond && holds_data(&file, LOCK_PAGE - 1) && holds_data(&file, LOCK_PAGE + 1), "the case is real");
    drop(file);

    let snapshot = Snapshot::open(&path, &Options::default()).unwrap();
    assert!(snapshot.streams()[0].size > 4 << 30);
    assert!(snapshot.is_free(1, 1 << 30), "the lock-byte page holds nothing");
    assert!(snapshot.facts().free_bytes > 4 << 30);
    let expected = snapshot.digest().unwrap().unwrap();
    assert_eq!(expected.tables["t"].rows, 41);
    let to = folder.path().join("copy.db");
    copy(&snapshot, &to, 2, 8 << 20);
    drop(snapshot);
    assert_whole(&to, &expected);
}
