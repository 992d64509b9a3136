//! Which points in time can be restored from a heap of files.

use jiff::civil::DateTime;
use uuid::Uuid;

use super::super::configuration::BackupKind;
use super::super::foreign::SqlServerBackup;
use super::super::lsn::Lsn;
use super::super::writer::{FamilyWriter, WrittenSet, sample_extents, sample_label, sample_log, sample_set};
use super::family;
use super::genuine_files;
use crate::engine::{ForeignFamily, ForeignMedia, Restorable};

/// A set of `shop` from minute `first` to minute `last` of its log.
fn set(kind: BackupKind, number: u128, first: u32, last: u32) -> WrittenSet {
    let mut set = sample_set(kind, 1);
    set.header.guid = Uuid::from_u128(number);
    let at = |minute: u32| Some(DateTime::constant(2026, 11, 26, 4, minute as i8, 0, 0));
    let database = &mut set.configuration.database;
    (database.first, database.last) = (Lsn { file: 1, block: first, slot: 1 }, Lsn { file: 1, block: last, slot: 1 });
    (database.started, database.finished) = (at(last), at(last + 1));
    match kind {
        BackupKind::Log => set.logs = vec![sample_log(512)],
        _ => set.copies = vec![sample_extents(&[0], 1)],
    }
    set
}

fn differential(number: u128, of: u128, last: u32) -> WrittenSet {
    let mut set = set(BackupKind::Differential, number, last - 1, last);
    set.configuration.database.base = Uuid::from_u128(of);
    set
}

fn bytes(set: &WrittenSet) -> Vec<u8> {
    let mut label = sample_label(1, 1);
    label.stripe.media_set = set.header.guid;
    FamilyWriter::new(&label, 512).set(set).finish()
}

fn restorable(sets: &[WrittenSet]) -> Vec<Restorable> {
    let families = sets.iter().map(|set| family(&format!("{}.bak", set.header.guid), &bytes(set))).collect();
    SqlServerBackup.describe(families).unwrap().restorable
}

/// The minutes of each range, with its log backups.
fn ranges(found: &Restorable) -> Vec<(String, String, u64)> {
    let minute = |time: &Option<String>| time.as_ref().unwrap()["2026-11-26T04:".len()..][..2].to_owned();
    let range =
        |range: &crate::engine::RestorableRange| (minute(&range.from.time), minute(&range.to.time), range.log_backups);
    found.ranges.iter().map(range).collect()
}

fn expect(from: &str, to: &str, logs: u64) -> (String, String, u64) {
    (from.to_owned(), to.to_owned(), logs)
}

#[test]
fn a_full_and_logs_without_a_gap_are_one_range_and_later_sets_inside_it_add_nothing() {
    let log = |number, first, last| set(BackupKind::Log, number, first, last);
    let full = set(BackupKind::Full, 1, 8, 10);
    let sets = [
        full,
        log(2, 5, 15),
        log(3, 15, 20),
        differential(4, 1, 18),
        log(5, 20, 30),
        set(BackupKind::Full, 6, 21, 25),
        log(7, 20, 20),
    ];
    let found = restorable(&sets);
    assert_eq!((found.len(), ranges(&found[0])), (1, vec![expect("11", "30", 4)]));
    assert!(found[0].missing.is_empty(), "{:?}", found[0].missing);
    assert_eq!(found[0].ranges[0].to.lsn, "1000000003000001");
}

#[test]
fn a_gap_in_the_log_is_named_with_its_lsns_and_times_and_a_differential_bridges_it() {
    let log = |number, first, last| set(BackupKind::Log, number, first, last);
    let sets = [set(BackupKind::Full, 1, 8, 10), log(2, 10, 15), log(4, 20, 30), log(5, 30, 40)];
    let found = restorable(&sets);
    assert_eq!(ranges(&found[0]), [expect("11", "15", 1)]);
    let [gap] = &found[0].missing[..] else { panic!("{:?}", found[0].missing) };
    for words in ["from LSN 1000000001500001 to LSN 1000000002000001", "04:15", "04:30", "2 log backups from"] {
        assert!(gap.contains(words), "{words}: {gap}");
    }
    let mut bridged = sets.to_vec();
    bridged.push(differential(6, 1, 22));
    let found = restorable(&bridged);
    assert_eq!(ranges(&found[0]), [expect("11", "15", 1), expect("23", "40", 2)]);
    assert!(found[0].missing.is_empty() && found[0].ranges[1].differential.is_some(), "{found:?}");
}

/// The sets of a restore to this minute after 04:00: the number of the base, and those of the logs; or the error.
fn steps(found: &Restorable, minute: i8, second: i8) -> Result<(String, Vec<String>), String> {
    let time = DateTime::constant(2026, 11, 26, 4, minute, second, 0);
    let number = |id: &str| id.trim_start_matches(['0', '-']).to_owned();
    let steps = found.steps_to(time).map_err(|error| error.to_string())?;
    let base = steps.base.differential.as_ref().unwrap_or(&steps.base.full);
    Ok((number(base), steps.logs.iter().map(|log| number(&log.id)).collect()))
}

#[test]
fn a_time_names_the_log_backup_that_holds_it_and_a_time_behind_the_last_log_is_refused() {
    let log = |number, first, last| set(BackupKind::Log, number, first, last);
    let full = set(BackupKind::Full, 1, 8, 10);
    let mut empty = log(8, 30, 30);
    empty.configuration.database.started = Some(DateTime::constant(2026, 11, 26, 4, 35, 0, 0));
    let sets = [full, log(2, 5, 15), log(3, 15, 20), differential(4, 1, 18), log(5, 20, 30), empty];
    let found = &restorable(&sets)[0];
    let of = |base: &str, logs: &[&str]| Ok((base.to_owned(), logs.iter().map(|log| (*log).to_owned()).collect()));
    assert_eq!(steps(found, 11, 0), of("1", &[]), "the end of the full");
    assert_eq!(steps(found, 11, 1), of("1", &["2"]));
    assert_eq!(steps(found, 15, 0), of("1", &["2"]));
    assert_eq!(steps(found, 15, 1), of("1", &["2", "3"]), "the differential ended later");
    assert_eq!(steps(found, 25, 0), of("4", &["3", "5"]), "from the differential on");
    assert_eq!(steps(found, 34, 0), of("4", &["3", "5", "8"]), "a log backup without a record holds it");
    let time = DateTime::constant(2026, 11, 26, 4, 15, 1, 0);
    let third = found.steps_to(time).unwrap();
    assert_eq!(third.held(), Some((Some("2026-11-26T04:15:00"), Some("2026-11-26T04:20:00"))));
    for (minute, words) in [(36, "ends at 2026-11-26T04:35:00"), (10, "the first full of these files ended at")] {
        let error = steps(found, minute, 0).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    let gap = [set(BackupKind::Full, 1, 8, 10), log(2, 10, 15), log(4, 20, 30), differential(6, 1, 22)];
    let found = &restorable(&gap)[0];
    let error = steps(found, 17, 0).unwrap_err();
    assert!(error.contains("no log of these files goes on at 2026-11-26T04:15:00"), "{error}");
    assert_eq!(steps(found, 29, 0), of("6", &["4"]));
    assert!(restorable(&[log(2, 10, 15)])[0].steps_to(time).is_err());
}

#[test]
fn a_missing_full_a_missing_family_and_a_cut_file_are_not_counted_as_restorable() {
    let log = set(BackupKind::Log, 2, 10, 15);
    let found = restorable(&[log.clone(), differential(3, 1, 12)]);
    assert!(found[0].ranges.is_empty());
    let missing = found[0].missing.join("\n");
    assert!(missing.contains("the full backup 00000000-0000-0000-0000-000000000001 is missing"), "{missing}");
    assert!(missing.contains("a full backup is missing that ends between LSN 1000000001000001"), "{missing}");
    let full = bytes(&set(BackupKind::Full, 1, 8, 10));
    let cut = family("cut.bak", &full[..full.len() - 3000]);
    let found = SqlServerBackup.describe(vec![cut, family("l.trn", &bytes(&log))]).unwrap().restorable;
    assert!(found[0].ranges.is_empty() && found[0].missing.len() == 1, "{found:?}");
    let mut label = sample_label(2, 1);
    label.stripe.media_set = Uuid::from_u128(1);
    let half = FamilyWriter::new(&label, 512).set(&set(BackupKind::Full, 1, 8, 10)).finish();
    let found = SqlServerBackup.describe(vec![family("half.bak", &half)]).unwrap().restorable;
    assert!(found.is_empty(), "{found:?}");
}

/// A log that names two forks.
fn forked(number: u128, first: u32, last: u32, begins: u128, ends: u128) -> WrittenSet {
    let mut log = set(BackupKind::Log, number, first, last);
    let database = &mut log.configuration.database;
    (database.fork, database.first_fork) = (Uuid::from_u128(ends), Uuid::from_u128(begins));
    log
}

fn forked_at(minute: u32, mut log: WrittenSet) -> WrittenSet {
    log.configuration.database.fork_point = Lsn { file: 1, block: minute, slot: 1 };
    log
}

#[test]
fn a_log_is_on_its_first_fork_up_to_its_fork_point_and_then_on_the_other() {
    let (full, own) = (set(BackupKind::Full, 1, 8, 10), set(BackupKind::Full, 1, 8, 10).configuration.database.fork);
    let own = own.as_u128();
    let mut over_fork = full.clone();
    over_fork.configuration.database.fork = Uuid::from_u128(99);
    let is_one_range = |base: &WrittenSet, log: WrittenSet| ranges(&restorable(&[base.clone(), log])[0])[0].2 == 1;
    let log = |point| forked_at(point, forked(2, 5, 15, own, 99));
    for (point, before, after) in [(12, true, false), (11, true, false), (10, false, true), (8, false, true)] {
        assert_eq!((is_one_range(&full, log(point)), is_one_range(&over_fork, log(point))), (before, after), "{point}");
    }
    // The database was forked before this log: only its RecoveryForkID counts.
    assert!(is_one_range(&full, forked_at(3, forked(2, 5, 15, 77, own))));
    assert!(!is_one_range(&full, forked_at(3, forked(2, 5, 15, own, 99))));
    for (point, logs) in [(14, 1), (16, 2)] {
        let next = forked_at(point, forked(3, 12, 20, own, 99));
        let found = restorable(&[full.clone(), set(BackupKind::Log, 2, 10, 15), next]);
        assert_eq!(ranges(&found[0])[0].2, logs, "{point}: {found:?}");
        assert_eq!(found[0].missing.len(), 2 - logs as usize, "{found:?}");
    }
}

#[test]
fn a_genuine_full_and_log_of_a_database_that_was_forked_long_before_are_one_range() {
    let Some(directory) = genuine_files::files() else { return };
    let open = |name: &str| ForeignFamily {
        device: name.to_owned(),
        bytes: Box::new(crate::InOrder(std::fs::File::open(directory.join(name)).unwrap())),
    };
    let families = ["RestoreTimeClean2016.bak", "RestoreTimeClean2016_1.trn"].map(open);
    let found = SqlServerBackup.describe(families.into()).unwrap().restorable;
    assert_eq!((found.len(), found[0].ranges.len(), found[0].ranges[0].log_backups), (1, 1, 1), "{found:?}");
    assert!(found[0].missing.is_empty(), "{found:?}");
}

#[test]
fn the_log_of_another_recovery_fork_does_not_continue_and_one_over_the_fork_does() {
    let full = set(BackupKind::Full, 1, 8, 10);
    let own = full.configuration.database.fork.as_u128();
    let found = restorable(&[full.clone(), forked(2, 10, 15, 99, 99)]);
    assert_eq!(ranges(&found[0]), [expect("11", "11", 0)]);
    assert!(found[0].missing[0].contains("on the recovery fork 00000000-0000-0000-0000-000000000063"), "{found:?}");
    let over = forked_at(12, forked(2, 10, 15, own, 99));
    let found = restorable(&[full, over, forked(3, 15, 20, 99, 99), forked(4, 15, 30, own, own)]);
    assert_eq!(ranges(&found[0]), [expect("11", "20", 2)]);
    assert_eq!(found[0].missing.len(), 1, "the log of the fork that was left: {found:?}");
}

#[test]
fn the_genuine_chain_has_one_range_and_a_gap_where_a_log_is_left_out() {
    let Some(directory) = genuine_files::files() else { return };
    let mut paths: Vec<_> =
        std::fs::read_dir(directory.join("chain")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let open = |path: &std::path::PathBuf| ForeignFamily {
        device: path.display().to_string(),
        bytes: Box::new(crate::InOrder(std::fs::File::open(path).unwrap())),
    };
    let found = SqlServerBackup.describe(paths.iter().map(open).collect()).unwrap().restorable;
    assert_eq!((found.len(), found[0].ranges.len(), found[0].ranges[0].log_backups), (1, 1, 12), "{found:?}");
    assert!(found[0].missing.is_empty(), "{found:?}");
    // Without the second full and all differentials, a log that is missing divides the range.
    let left_out = |path: &&std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        !name.contains("DIFF") && !name.contains("FULL_20160629_142200") && !name.contains("LOG_20160629_142000")
    };
    let found = SqlServerBackup.describe(paths.iter().filter(left_out).map(open).collect()).unwrap().restorable;
    assert_eq!((found[0].ranges.len(), found[0].ranges[0].log_backups), (1, 4), "{found:?}");
    assert!(found[0].missing[0].contains("7 log backups from "), "{found:?}");
}
