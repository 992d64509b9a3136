//! All pages of real servers of every kind: each file of a server that was shut down has only whole pages.

use std::fs;
use std::path::Path;

use fullbore_engines::mysql_family::Dialect;
use fullbore_engines::mysql_family::innodb::page::PageState;
use fullbore_engines::mysql_family::innodb::tablespace::{Doublewrite, Head};
use fullbore_test_servers::{Kind, Options as ServerOptions, Server};

use crate::workload;

/// Checks every page of a file: how many were valid, empty, and without a checksum to check.
fn check(path: &Path, dialect: Dialect) -> [u64; 3] {
    let bytes = fs::read(path).unwrap();
    let Some(head) = Head::parse(&bytes, dialect).unwrap_or_else(|bad| panic!("{}: {bad}", path.display())) else {
        return [0; 3];
    };
    let size = head.format.physical_size() as usize;
    let copies = (head.space == 0 && dialect == Dialect::MariaDb)
        .then(|| Doublewrite::parse(&bytes[5 * size..6 * size]))
        .flatten();
    let mut counts = [0; 3];
    for (number, page) in bytes.chunks_exact(size).enumerate() {
        let number = number as u32;
        if copies.as_ref().is_some_and(|copies| copies.holds(number)) {
            continue;
        }
        match head.format.check(page, number) {
            PageState::Valid => counts[0] += 1,
            PageState::Empty => counts[1] += 1,
            PageState::Unchecked(_) => counts[2] += 1,
            PageState::Corrupt(fault) => panic!("{} page {number}: {fault}", path.display()),
        }
    }
    counts
}

fn check_all(folder: &Path, dialect: Dialect, counts: &mut [u64; 3]) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !name.starts_with('#') {
            check_all(&path, dialect, counts);
        } else if name.ends_with(".ibd") || name == "ibdata1" || name.starts_with("undo") {
            for (sum, more) in counts.iter_mut().zip(check(&path, dialect)) {
                *sum += more;
            }
        }
    }
}

#[test]
fn every_page_of_a_server_that_was_shut_down_is_whole() {
    for kind in Kind::MARIADB {
        for (options, tables, unchecked) in [
            (ServerOptions::new(), "", false),
            (ServerOptions::new().page_size("4k").encrypt().option("innodb_encrypt_tables=ON"), "", false),
            (ServerOptions::new().page_size("64k"), "PAGE_COMPRESSED=1", false),
            (
                ServerOptions::new().option("innodb_checksum_algorithm=crc32").encrypt(),
                "ENCRYPTED=YES PAGE_COMPRESSED=1",
                false,
            ),
            (ServerOptions::new().option("innodb_checksum_algorithm=crc32"), "PAGE_COMPRESSED=1", true),
            (
                ServerOptions::new().page_size("8k").encrypt(),
                "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=1 ENCRYPTED=YES",
                false,
            ),
        ] {
            let mut server = Server::start(kind, &options);
            workload::prepare(&server, tables);
            let datadir = server.datadir().to_owned();
            server.stop();
            let mut counts = [0; 3];
            check_all(&datadir, Dialect::MariaDb, &mut counts);
            assert!(counts[0] > 100 && (counts[2] > 0) == unchecked, "{} {tables}: {counts:?}", kind.name());
        }
    }
}
