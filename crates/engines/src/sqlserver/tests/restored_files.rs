//! Restores of backup sets to the files of their database.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::super::allocation;
use super::super::configuration::BackupKind;
use super::super::database_files::file_name;
use super::super::foreign::SqlServerBackup;
use super::super::lsn::Lsn;
use super::super::page::{PAGE, place, seal};
use super::super::writer::{FamilyWriter, WrittenSet, sample_extents, sample_label, sample_log, sample_set};
use super::family;
use crate::engine::{FilePlaces, ForeignFamily, ForeignMedia, ForeignRestore};
use crate::foreign_set::bytes::{FamilyBytes, InOrder, Watch};

type Media = BTreeMap<String, Vec<u8>>;

fn restored(media: &Media, wanted: Option<&str>, into: &Path) -> Result<ForeignRestore> {
    let devices: Vec<String> = media.keys().cloned().collect();
    let places = FilePlaces::in_directory(into);
    SqlServerBackup.restore(&devices, &|device| Ok(family(device, &media[device])), wanted, &places)
}

/// Pages of these extents, each filled with `fill` behind its header.
fn extents(numbers: &[u32], fill: u8) -> Vec<u8> {
    let mut bytes = sample_extents(numbers, 8);
    for page in bytes.as_chunks_mut::<PAGE>().0 {
        let id = place(page, u32::from(page[32]) % 8).unwrap();
        let kind = page[1];
        if kind == allocation::PFS {
            // The last page of each extent is not in use.
            page[96..].fill(0);
            let in_use: Vec<u32> = [0, 1, 2, 5].iter().flat_map(|extent| extent * 8..extent * 8 + 7).collect();
            allocation::mark(page, &in_use);
        } else {
            page[96..].fill(fill);
        }
        seal(page, id, kind);
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
    let names: Vec<_> = done
        .files
        .iter()
        .map(|file| (file.path.file_name().unwrap().to_str().unwrap(), file.logical.as_str()))
        .collect();
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
    let part = tempfile::tempdir().unwrap();
    assert_eq!(restored(&media, Some("0000003e9"), part.path()).unwrap().sets.len(), 1);
    let other = tempfile::tempdir().unwrap();
    let error = restored(&media, Some("FFFF"), other.path()).unwrap_err().to_string();
    assert!(error.contains("--set FFFF") && error.contains("no backup set has this"), "{error}");
    let error = restored(&media, Some("0000"), other.path()).unwrap_err().to_string();
    assert!(error.contains("fits several backup sets:") && error.contains(wanted), "{error}");
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
        (written(&foreign), "name file 2, but the database has no such file"),
        (written(&twice), "SHOP`: two files of the database have this name"),
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

/// The place of a page in media that `written` has made.
fn at(media: &[u8], page: u32) -> usize {
    let is_it = |at: &usize| media[at + 32..at + 36] == page.to_le_bytes() && media[*at] == 1 && media[at + 36] == 1;
    (0..media.len() - PAGE).step_by(2).find(|at| is_it(at) && media[at + 4..at + 6] == [0, 2]).unwrap()
}

fn refused(media: Media, words: &str) {
    let folder = tempfile::tempdir().unwrap();
    let error = restored(&media, None, folder.path()).err().unwrap_or_else(|| panic!("it is restored: {words}"));
    assert!(error.to_string().contains(words), "{words}: {error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{words}");
}

fn one(bytes: Vec<u8>) -> Media {
    [("f.bak".to_owned(), bytes)].into()
}

#[test]
fn a_stale_page_that_is_not_in_use_does_not_move_its_extent() {
    let mut set = sample_set(BackupKind::Full, 1);
    let mut pages = extents(&[0, 1, 2, 5], 1);
    // Page 47, the last one of extent 5, is not in use, and holds an old image of page 15.
    let (old, last) = (PAGE * 15, PAGE * 31);
    pages.copy_within(old..old + PAGE, last);
    // So does the first one of extent 2 with page 40: not in use either.
    set.copies = vec![pages];
    let folder = tempfile::tempdir().unwrap();
    restored(&one(written(&set)), None, folder.path()).unwrap();
    let data = std::fs::read(folder.path().join("shop")).unwrap();
    assert_eq!((middle(&data, 40), middle(&data, 9)), (1, 1));
    assert_eq!(data[40 * PAGE + 32], 40);
}

#[test]
fn damage_in_a_page_that_is_in_use_ends_a_restore_whatever_it_is() {
    let good = written(&full());
    let page = at(&good, 42);
    type Change = fn(&mut [u8]);
    let changes: [(&str, Change); 6] = [
        ("page 1:42", |page| page[500] ^= 1),
        ("page 1:42", |page| page[0] = 0),
        ("page 1:42", |page| page[..PAGE].fill(0)),
        ("page 1:", |page| page[..6 * PAGE].fill(0)),
        ("page 1:1 ", |_| ()),
        ("page 1:1 ", |page| page[500] ^= 1),
    ];
    for (words, change) in changes {
        let mut bad = good.clone();
        change(&mut bad[page..]);
        if words.contains("1:1 ") {
            // The PFS page hides no other damage.
            let pfs = at(&good, 1);
            bad[pfs + 500] ^= 1;
        }
        refused(one(bad), words);
    }
}

#[test]
fn zeros_in_a_differential_never_let_the_full_show_through() {
    let mut set = differential();
    let zeros = set.copies[0].len() / 2;
    set.copies[0][..zeros].fill(0);
    let media = [("d.bak".to_owned(), written_apart(&set)), ("f.bak".to_owned(), written(&full()))].into();
    refused(media, "no page of this extent says where it belongs");
}

#[test]
fn log_that_names_a_data_file_or_another_place_is_damage() {
    let with = |change: fn(&mut super::LogRange)| {
        let mut set = full();
        change(&mut set.logs[0].0);
        one(written(&set))
    };
    refused(with(|range| range.file = 1), "name file 1, but the database has no such file");
    refused(with(|range| range.end = range.begin), "longer than its description");
    refused(with(|range| range.end = range.start + range.length + 512), "outside its virtual log file");
    let mut sums = full();
    sums.configuration.database.has_checksums = true;
    let mut bytes = written(&sums);
    let page = at(&bytes, 15);
    bytes[page + 3000] ^= 1;
    refused(one(bytes), "backup checksum");
}

#[test]
fn a_differential_of_another_full_is_missed_and_logs_are_named() {
    let mut other = differential();
    other.configuration.database.base = Uuid::from_u128(5);
    let media = [("d.bak".to_owned(), written_apart(&other)), ("f.bak".to_owned(), written(&full()))].into();
    refused(media, "the full backup 00000000-0000-0000-0000-000000000005");
    let mut log = sample_set(BackupKind::Log, 1);
    log.header.guid = Uuid::from_u128(3000);
    let media: Media = [("f.bak".to_owned(), written(&full())), ("l.trn".to_owned(), written_apart(&log))].into();
    let folder = tempfile::tempdir().unwrap();
    let done = restored(&media, None, folder.path()).unwrap();
    assert!(done.warnings.iter().any(|warning| warning.contains("1 log backup not applied")), "{done:?}");
    let mut namesake = full();
    namesake.header.guid = Uuid::from_u128(4000);
    namesake.configuration.database.fork = Uuid::from_u128(9);
    let media = [("a.bak".to_owned(), written_apart(&namesake)), ("f.bak".to_owned(), written(&full()))].into();
    refused(media, "several databases or recovery forks: shop, shop");
}

#[test]
fn data_files_that_no_media_of_this_length_can_describe_are_refused_before_they_are_made() {
    let mut forged = full();
    forged.configuration.files[0].size = 32 << 40;
    let media = Media::from([("full.bak".to_owned(), written(&forged))]);
    let folder = tempfile::tempdir().unwrap();
    let error = restored(&media, None, folder.path()).unwrap_err().to_string();
    assert!(error.contains("file `shop`") && error.contains("32.0 TiB"), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_signal_ends_the_check_of_a_large_file() {
    let mut large = full();
    large.configuration.files[0].size = 1 << 30;
    let bytes = written(&large);
    let looks = Arc::new(AtomicU32::new(0));
    let open = |device: &str| {
        let watched = Watched { bytes: InOrder(Cursor::new(bytes.clone())), looks: looks.clone() };
        Ok(ForeignFamily { device: device.to_owned(), bytes: Box::new(watched) })
    };
    let folder = tempfile::tempdir().unwrap();
    let places = FilePlaces::in_directory(folder.path());
    let error = SqlServerBackup.restore(&["full.bak".to_owned()], &open, None, &places).unwrap_err();
    assert_eq!((error.exit_kind().exit_code(), looks.load(Ordering::Relaxed)), (143, 3), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A family whose job ends at the third look.
struct Watched {
    bytes: InOrder<Cursor<Vec<u8>>>,
    looks: Arc<AtomicU32>,
}

impl Read for Watched {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.bytes.read(into)
    }
}

impl FamilyBytes for Watched {
    fn skip(&mut self, bytes: u64) -> std::io::Result<()> {
        self.bytes.skip(bytes)
    }

    fn watch(&self) -> Watch {
        let looks = self.looks.clone();
        Arc::new(move || match looks.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Ok(()),
            _ => Err(Error::Cancelled { by: "SIGTERM" }),
        })
    }
}
