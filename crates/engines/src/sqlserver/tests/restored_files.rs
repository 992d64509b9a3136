//! Restores of backup sets to the files of their database.

use std::collections::BTreeMap;
use std::path::Path;

use fullbore_core::Result;
use uuid::Uuid;

use super::super::configuration::BackupKind;
use super::super::database_files::file_name;
use super::super::foreign::SqlServerBackup;
use super::super::lsn::Lsn;
use super::super::page::PAGE;
use super::super::writer::{FamilyWriter, WrittenSet, sample_extents, sample_label, sample_log, sample_set};
use super::family;
use crate::engine::{ForeignMedia, ForeignRestore};

type Media = BTreeMap<String, Vec<u8>>;

fn restored(media: &Media, wanted: Option<&str>, into: &Path) -> Result<ForeignRestore> {
    let devices: Vec<String> = media.keys().cloned().collect();
    SqlServerBackup.restore(&devices, &|device| Ok(family(device, &media[device])), wanted, into)
}

/// Pages of these extents, each filled with `fill` behind its header.
fn extents(numbers: &[u32], fill: u8) -> Vec<u8> {
    let mut bytes = sample_extents(numbers, 8);
    for page in bytes.as_chunks_mut::<PAGE>().0 {
        let (id, kind) = (super::super::page::place(page, u32::from_le_bytes([page[32], 0, 0, 0]) % 8), page[1]);
        if kind == 1 {
            page[96..].fill(fill);
            super::super::page::seal(page, id.unwrap(), kind);
        }
    }
    bytes
}

fn full() -> WrittenSet {
    let mut set = sample_set(BackupKind::Full, 1);
    // Extent 2 changes while the first copy is made.
    set.copies = vec![extents(&[0, 1, 2, 5], 1), extents(&[2], 2)];
    set.logs = vec![sample_log(1 << 16)];
    set
}

fn differential() -> WrittenSet {
    let mut set = sample_set(BackupKind::Differential, 1);
    set.header.guid = Uuid::from_u128(2000);
    set.configuration.database.base = Uuid::from_u128(1001);
    set.configuration.database.last = Lsn { file: 34, block: 900, slot: 1 };
    set.copies = vec![extents(&[1, 7], 3)];
    set
}

fn written(set: &WrittenSet) -> Vec<u8> {
    FamilyWriter::new(&sample_label(1, 1), 512).set(set).finish()
}

/// Media of another identity: each BACKUP with FORMAT makes one.
fn written_apart(set: &WrittenSet) -> Vec<u8> {
    let mut label = sample_label(1, 1);
    label.stripe.media_set = Uuid::from_u128(78);
    FamilyWriter::new(&label, 512).set(set).finish()
}

/// The byte in the middle of a page.
fn middle(file: &[u8], page: usize) -> u8 {
    file[page * PAGE + 4000]
}

#[test]
fn a_full_and_a_differential_become_files_and_the_last_copy_of_a_page_wins() {
    let folder = tempfile::tempdir().unwrap();
    let media: Media =
        [("d.bak".to_owned(), written_apart(&differential())), ("f.bak".to_owned(), written(&full()))].into();
    let done = restored(&media, None, folder.path()).unwrap();
    assert_eq!((done.sets.len(), done.warnings.len()), (2, 0), "{done:?}");
    let names: Vec<_> = done.files.iter().map(|file| (file.name.as_str(), file.logical.as_str())).collect();
    assert_eq!(names, [("shop", "shop"), ("shop_log", "shop_log")]);
    let data = std::fs::read(folder.path().join("shop")).unwrap();
    assert_eq!(data.len(), 8 << 20);
    let found: Vec<u8> = [8, 16, 24, 40, 56].map(|page| middle(&data, page)).into();
    assert_eq!(found, [3, 2, 0, 1, 3], "the differential, the second copy, a hole, the full, the differential");
    let (range, log) = sample_log(1 << 16);
    let file = std::fs::read(folder.path().join("shop_log")).unwrap();
    let begin = usize::try_from(range.begin).unwrap();
    assert!(file[begin..begin + log.len()] == log[..]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_chosen_full_is_restored_without_the_differential() {
    let folder = tempfile::tempdir().unwrap();
    let media: Media =
        [("d.bak".to_owned(), written_apart(&differential())), ("f.bak".to_owned(), written(&full()))].into();
    let wanted = "00000000-0000-0000-0000-0000000003E9";
    assert_eq!(restored(&media, Some(wanted), folder.path()).unwrap().sets.len(), 1);
    assert_eq!(middle(&std::fs::read(folder.path().join("shop")).unwrap(), 8), 1);
    let other = tempfile::tempdir().unwrap();
    let error = restored(&media, Some("FFFF"), other.path()).unwrap_err().to_string();
    assert!(error.contains("--set FFFF") && error.contains("0 of the backup sets"), "{error}");
}

#[test]
fn a_restore_that_cannot_be_complete_leaves_no_file() {
    let half = FamilyWriter::new(&sample_label(2, 1), 512).set(&full()).finish();
    let mut cut = written(&full());
    cut.truncate(cut.len() * 2 / 3);
    let mut foreign = full();
    foreign.configuration.files.truncate(1);
    let mut twice = full();
    twice.configuration.files[1].physical_name = "D:\\log\\SHOP".into();
    for (bytes, words) in [
        (written_apart(&differential()), "full backup 00000000-0000-0000-0000-0000000003E9"),
        (half, "family 2 of 2"),
        (cut, "the file was cut off"),
        (written(&foreign), "bytes of file 2"),
        (written(&twice), "`SHOP`"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let error = restored(&[("x.bak".to_owned(), bytes)].into(), None, folder.path()).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{words}");
    }
}

#[test]
fn a_name_that_leaves_the_directory_is_refused() {
    for (physical, name) in
        [("C:\\data\\shop.mdf", "shop.mdf"), ("/var/opt/mssql/a.ldf", "a.ldf"), ("C:a.mdf", "a.mdf")]
    {
        assert_eq!(file_name(physical).unwrap(), name);
    }
    for physical in ["", "C:\\data\\", "..", "C:\\..", "/a/.", "a\u{7}b", &"x".repeat(300)] {
        assert!(file_name(physical).is_err(), "{physical}");
    }
}
