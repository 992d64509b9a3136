//! The reader over genuine backups of SQL Server 2005 to 2019. They are not in this repository: the tests print a line
//! and pass where there are none. `FULLBORE_BAK_FILES` names their directory; without it `../shared/data/bak` is tried.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::super::compressed::MAGIC;
use super::super::foreign::SqlServerBackup;
use super::super::media::{self, BackupSet, Family};
use super::super::page::{PAGE, PageCheck, check, place};
use crate::engine::{FilePlaces, ForeignFamily, ForeignMedia};
use crate::foreign_set::bytes::InOrder;

/// The directory with the files, if it is there.
pub(in super::super) fn files() -> Option<PathBuf> {
    let beside = [
        std::env::var_os("FULLBORE_BAK_FILES").map(PathBuf::from),
        Some(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/bak")),
    ];
    let found = beside.into_iter().flatten().find(|place| place.is_dir());
    if found.is_none() {
        eprintln!("no genuine files of SQL Server here: nothing was tested");
    }
    found
}

fn open(path: &Path) -> ForeignFamily {
    let file = File::open(path).unwrap();
    ForeignFamily { device: path.file_name().unwrap().to_string_lossy().into_owned(), bytes: Box::new(InOrder(file)) }
}

fn look(directory: &Path, name: &str) -> Family {
    let family = media::look(open(&directory.join(name))).unwrap();
    assert!(family.broken.is_none() && family.sets.len() == 1, "{name}");
    family
}

fn only(directory: &Path, name: &str) -> BackupSet {
    look(directory, name).sets.into_iter().next().unwrap()
}

#[test]
fn genuine_headers_have_the_names_and_versions_that_are_known_of_them() {
    let Some(directory) = files() else { return };
    for (name, database, server, version, build) in [
        ("Northwind_xan.bak", "Northwind", "I208789\\SQLEXPRESS", 611, (9, 0)),
        ("Northwind_salih2019.bak", "Northwind", "DESKTOP-8G1N3T8", 904, (15, 0)),
        ("pubs_dwip.bak", "pubs", "DESKTOP-7LEAC57", 706, (11, 0)),
        ("passwd.bak", "stripetest", "JUMPBOX\\SQL2008R2", 661, (10, 50)),
    ] {
        let set = only(&directory, name);
        let found = &set.configuration.database;
        assert_eq!((found.database.as_str(), found.server.as_str()), (database, server), "{name}");
        assert_eq!((found.database_version, (found.software.0, found.software.1)), (version, build), "{name}");
        assert!(set.is_final && found.finished >= found.started && found.started.is_some(), "{name}");
        let files: Vec<_> = set.configuration.files.iter().map(|file| set.configuration.filegroup_of(file)).collect();
        assert_eq!(files, ["PRIMARY", ""], "{name}");
    }
    let set = only(&directory, "Northwind_salih2019.bak");
    assert_eq!(set.configuration.files[0].logical_name, "Northwind");
    assert_eq!(set.configuration.files[0].size, 0x49_0000);
    assert_eq!(set.header.name, "Northwind-Full Database Backup");
}

#[test]
fn a_genuine_differential_names_its_full() {
    let Some(directory) = files() else { return };
    for (full, differential) in [
        ("dbareports_FULL.bak", "dbareports_DIFF.bak"),
        ("difftest-full.bak", "difftest-diff1.bak"),
        ("chain/test_FULL_20160629_141300.bak", "chain/test_DIFF_20160629_141600.bak"),
    ] {
        let (full, differential) = (only(&directory, full), only(&directory, differential));
        assert_eq!(differential.configuration.database.base, full.header.guid);
        assert_eq!(differential.configuration.database.base_lsn, full.configuration.database.checkpoint);
    }
}

#[test]
fn each_genuine_log_backup_begins_where_the_one_before_it_ends() {
    let Some(directory) = files() else { return };
    let mut names: Vec<_> =
        std::fs::read_dir(directory.join("chain")).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|extension| extension == "trn"));
    names.sort();
    let logs: Vec<_> = names.iter().map(|path| media::look(open(path)).unwrap().sets.remove(0)).collect();
    assert_eq!(logs.len(), 12);
    for (before, after) in logs.iter().zip(&logs[1..]) {
        assert_eq!(after.configuration.database.first, before.configuration.database.last);
    }
}

#[test]
fn genuine_stripes_are_put_together_and_half_of_them_is_incomplete() {
    let Some(directory) = files() else { return };
    for [one, two] in [
        ["RestoreTimeStripe_s1.bak", "RestoreTimeStripe_s2.bak"],
        ["RestoreTimeStripe_1_s1.trn", "RestoreTimeStripe_1_s2.trn"],
    ] {
        let describe = |names: &[&str]| {
            let families = names.iter().map(|name| open(&directory.join(name))).collect();
            SqlServerBackup.describe(families).unwrap().media_sets.remove(0)
        };
        let whole = describe(&[two, one]);
        assert_eq!((whole.devices.as_slice(), whole.sets.len()), (&[one.to_owned(), two.to_owned()][..], 1));
        assert!(whole.incomplete.is_none(), "{:?}", whole.incomplete);
        for (there, missing) in [(one, "family 2 of 2"), (two, "family 1 of 2")] {
            let error = describe(&[there]).incomplete.unwrap();
            assert!(error.to_string().starts_with(missing), "{error}");
        }
    }
}

#[test]
fn a_genuine_media_password_is_named() {
    let Some(directory) = files() else { return };
    assert!(look(&directory, "passwd.bak").label.tape.has_password);
    assert!(!look(&directory, "difftest-full.bak").label.tape.has_password);
}

#[test]
fn every_genuine_family_is_verified_without_damage_and_its_coverage_has_every_byte_once() {
    let Some(directory) = files() else { return };
    let mut media: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for folder in [directory.clone(), directory.join("chain")] {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file())
        {
            let mut found = SqlServerBackup.describe(vec![open(&path)]).unwrap();
            media.entry(found.media_sets.remove(0).id).or_default().push(path);
        }
    }
    assert!(media.len() > 30, "{} media sets", media.len());
    for paths in media.values() {
        let found = SqlServerBackup.verify(paths.iter().map(|path| open(path)).collect(), None).unwrap();
        assert!(found.damage.is_empty() && found.warnings.is_empty(), "{paths:?}: {found:?}");
        assert_eq!(found.coverage.iter().map(|line| line.bytes).sum::<u64>(), found.bytes, "{paths:?}");
        let length: u64 = paths.iter().map(|path| path.metadata().unwrap().len()).sum();
        let is_compressed = paths.iter().any(|path| std::fs::read(path).unwrap().starts_with(MAGIC));
        // A compressed family has more bytes inside.
        assert!(if is_compressed { found.bytes > length } else { found.bytes == length }, "{paths:?}");
    }
}

#[test]
fn a_genuine_full_and_its_differential_become_files_whose_pages_name_their_own_places() {
    let Some(directory) = files() else { return };
    let names = ["difftest-full.bak", "difftest-diff1.bak"].map(str::to_owned);
    let reopen = |name: &str| Ok(open(&directory.join(Path::new(name).file_name().unwrap())));
    let folder = tempfile::tempdir().unwrap();
    let done = SqlServerBackup.restore(&names, &reopen, None, &FilePlaces::in_directory(folder.path())).unwrap();
    assert_eq!((done.sets.len(), done.files.len()), (2, 2), "{done:?}");
    let data = std::fs::read(&done.files[0].path).unwrap();
    let pages = data.as_chunks::<PAGE>().0;
    let good = pages.iter().enumerate().filter(|(_, page)| check(page) == PageCheck::Checksum);
    let places: Vec<bool> = good.map(|(at, page)| place(page, at as u32 % 8).unwrap().page as usize == at).collect();
    assert!(places.len() > 100 && places.iter().all(|right| *right), "{} pages", places.len());
    // The boot page of the database is page 9, of type 13.
    assert_eq!((pages[9][1], check(&pages[9])), (13, PageCheck::Checksum));
}

#[test]
fn every_genuine_full_becomes_files_whose_pages_in_use_are_right() {
    let Some(directory) = files() else { return };
    let mut media: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for folder in [directory.clone(), directory.join("chain")] {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file())
        {
            let mut found = SqlServerBackup.describe(vec![open(&path)]).unwrap().media_sets.remove(0);
            let is_full = found.sets.iter().any(|set| set.header.get("BackupType") == Some(&1.into()));
            if is_full {
                media.entry(std::mem::take(&mut found.id)).or_default().push(path.display().to_string());
            }
        }
    }
    let mut restored = 0;
    for names in media.values() {
        let reopen = |device: &str| {
            let name = names.iter().find(|name| Path::new(name).file_name() == Path::new(device).file_name()).unwrap();
            Ok(open(Path::new(name)))
        };
        let folder = tempfile::tempdir().unwrap();
        match SqlServerBackup.restore(names, &reopen, None, &FilePlaces::in_directory(folder.path())) {
            Ok(done) => restored += usize::from(!done.files.is_empty()),
            Err(error) => assert!(error.to_string().contains("family 2 of 2"), "{names:?}: {error}"),
        }
    }
    assert!(restored >= 10, "{restored}");
}
