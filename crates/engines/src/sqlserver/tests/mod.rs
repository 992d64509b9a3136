//! Examples of the reader: round trips through the writer, and hostile media.
#![allow(clippy::unwrap_used)]

mod allocation;
pub(super) mod genuine_files;
mod genuine_tables;
mod points;
mod restored_files;
mod stored_media;

use std::io::Cursor;

use fullbore_core::{Error, Result};
use jiff::civil::DateTime;
use proptest::prelude::*;
use uuid::Uuid;

use super::configuration::{BackupKind, Configuration};
use super::foreign::SqlServerBackup;
use super::input::Input;
use super::label::MediaLabel;
use super::log_range::LogRange;
use super::lsn::Lsn;
use super::page::PAGE;
use super::set::SetHeader;
use super::walk::{Checksum, Content, Depth, Event, walk};
use super::writer::{
    FamilyWriter, configuration_stream, sample_extents, sample_extents_of, sample_full, sample_label, sample_log,
    sample_media_set, sample_set, seal,
};
use crate::engine::{ForeignFamily, ForeignMedia, ForeignVerification};
use crate::foreign_set::bytes::InOrder;

fn family(device: &str, bytes: &[u8]) -> ForeignFamily {
    ForeignFamily { device: device.to_owned(), bytes: Box::new(InOrder(Cursor::new(bytes.to_vec()))) }
}

/// Everything that a walk has seen.
#[derive(Default)]
struct Seen {
    label: Option<MediaLabel>,
    sets: Vec<SetHeader>,
    machines: Vec<String>,
    configurations: Vec<(bool, Configuration)>,
    ranges: Vec<LogRange>,
    pages: Vec<u8>,
    log: Vec<u8>,
    checksums: Vec<Option<Checksum>>,
    ended: usize,
}

fn seen(bytes: &[u8], depth: Depth) -> Result<Seen> {
    let mut seen = Seen::default();
    walk(&mut Input::new(family("x.bak", bytes), false), depth, &mut |event| {
        match event {
            Event::Label(label) => seen.label = Some(label),
            Event::SetBegins(header) => seen.sets.push(header),
            Event::Machine(name) => seen.machines.push(name),
            Event::Configuration { at_end, configuration } => seen.configurations.push((at_end, *configuration)),
            Event::LogRange(range) => seen.ranges.push(range),
            Event::ContentBegins(_) => {}
            Event::Piece { content: Content::Pages, bytes, .. } => seen.pages.extend_from_slice(bytes),
            Event::Piece { content: Content::Log, bytes, .. } => seen.log.extend_from_slice(bytes),
            Event::ContentEnds { checksum, .. } => seen.checksums.push(checksum),
            Event::SetEnds => seen.ended += 1,
        }
        Ok(())
    })?;
    Ok(seen)
}

fn verified(bytes: &[u8]) -> ForeignVerification {
    SqlServerBackup.verify(vec![family("x.bak", bytes)], None).unwrap()
}

/// The offset of page `number` of a sample in its family.
fn page_at(bytes: &[u8], file: u16, number: u32) -> usize {
    let wanted = [&number.to_le_bytes()[..], &file.to_le_bytes()].concat();
    let is_page = |at: &usize| bytes[*at] == 1 && bytes[at + 32..at + 38] == wanted;
    (0..bytes.len() - PAGE).step_by(512).find(is_page).unwrap()
}

#[test]
fn a_full_with_two_copies_of_pages_and_a_log_is_read_as_it_was_written() {
    for block in [512, 4096, 65536] {
        let mut label = sample_label(3, 2);
        label.tape.file_mark = (block / 512) as u16;
        let mut set = sample_set(BackupKind::Full, 1);
        set.configuration.database.has_checksums = true;
        set.copies = vec![sample_extents(&[0, 1, 4], 8), sample_extents(&[0], 8)];
        set.logs = vec![sample_log(70_000), sample_log(0)];
        let bytes = FamilyWriter::new(&label, block).set(&set).finish();
        let seen = seen(&bytes, Depth::Everything).unwrap();
        assert_eq!(seen.label, Some(label));
        assert_eq!((seen.sets, seen.machines, seen.ended), (vec![set.header], vec!["DB1".to_owned()], 1));
        assert_eq!(seen.configurations[1], (true, set.configuration));
        assert_eq!(seen.configurations[0].1.database.finished, None);
        assert_eq!(seen.pages, set.copies.concat());
        assert_eq!(seen.log, set.logs[0].1);
        assert_eq!(seen.ranges, set.logs.iter().map(|(range, _)| *range).collect::<Vec<_>>());
        let sums: Vec<_> = seen.checksums.into_iter().map(Option::unwrap).collect();
        assert!(sums.len() == 3 && sums.iter().all(|sum| sum.stored == sum.computed), "{sums:?}");
    }
}

proptest! {
    #[test]
    fn every_header_is_read_as_it_was_written(
        names in prop::array::uniform5("[^\0]{0,30}"),
        lsns in prop::array::uniform5(any::<(u32, u32, u16)>()),
        ids in prop::array::uniform5(any::<u128>()),
        (year, month, day, hour, minute) in (1_i16..9999, 1_i8..=12, 1_i8..=28, 0_i8..24, 0_i8..60),
        (families, family) in (1_u16..=64).prop_flat_map(|families| (Just(families), 1..=families)),
        kind in prop::sample::select(b"DILFGPQx".to_vec()),
        compressed in any::<Option<u64>>(),
        (has_password, has_checksums) in any::<(bool, bool)>(),
    ) {
        let [a, b, c, d, e] = names;
        let [first, last, checkpoint, full, base] = lsns.map(|(file, block, slot)| Lsn { file, block, slot });
        let mut label = sample_label(families, family);
        (label.tape.name, label.tape.description, label.tape.has_password) = (a.clone(), b.clone(), has_password);
        label.stripe.media_set = Uuid::from_u128(ids[0]);
        let mut set = sample_set(BackupKind::Full, 7);
        (set.header.name, set.header.description, set.header.user) = (c.clone(), d.clone(), e.clone());
        (set.header.guid, set.header.has_password) = (Uuid::from_u128(ids[1]), has_password);
        let date = DateTime::new(year, month, day, hour, minute, 59, 0).unwrap();
        let database = &mut set.configuration.database;
        database.kind = [BackupKind::Full, BackupKind::Differential, BackupKind::Log, BackupKind::Files,
            BackupKind::FilesDifferential, BackupKind::Partial, BackupKind::PartialDifferential,
            BackupKind::Unknown(b'x')].into_iter().find(|known| known.letter() == kind).unwrap();
        (database.first, database.last, database.checkpoint) = (first, last, checkpoint);
        (database.full_backup, database.base_lsn, database.base) = (full, base, Uuid::from_u128(ids[2]));
        (database.started, database.finished, database.has_checksums) = (Some(date), Some(date), has_checksums);
        (database.database, database.server, database.compressed_size) = (e, a, compressed);
        set.configuration.files[0].logical_name = b;
        set.configuration.files[1].unique_id = Uuid::from_u128(ids[3]);
        set.configuration.filegroups[0].name = c;
        set.machine = d;
        let bytes = FamilyWriter::new(&label, 512).set(&set).finish();
        let seen = seen(&bytes, Depth::Descriptions).unwrap();
        prop_assert_eq!(seen.label, Some(label));
        prop_assert_eq!(&seen.sets[0], &set.header);
        prop_assert_eq!(&seen.machines[0], &set.machine);
        prop_assert_eq!(&seen.configurations[1].1, &set.configuration);
    }

    #[test]
    fn media_with_changed_bytes_end_with_a_verdict_and_never_with_a_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        sealed in any::<bool>(),
    ) {
        let mut bytes = sample_full(true);
        for (at, byte) in changes {
            let at = at.index(bytes.len().min(0x3000));
            bytes[at] = byte;
            let start = at / 512 * 512;
            if sealed && b"TAPE SSET VOLB MSCI MSDA".windows(4).any(|name| name == &bytes[start..start + 4]) {
                seal(&mut bytes[start..]);
            }
        }
        let _ = SqlServerBackup.describe(vec![family("x.bak", &bytes)]);
        let _ = SqlServerBackup.verify(vec![family("x.bak", &bytes)], None);
    }
}

#[test]
fn a_family_that_is_cut_off_at_any_512_bytes_is_incomplete() {
    let whole = sample_full(true);
    for length in (0..whole.len()).step_by(512) {
        for depth in [Depth::Descriptions, Depth::Everything] {
            let error = seen(&whole[..length], depth).err().unwrap();
            assert!(matches!(error, Error::Incomplete { .. }), "{length} bytes: {error}");
        }
    }
    assert!(seen(&whole, Depth::Descriptions).is_ok());
}

#[test]
fn a_family_that_is_cut_off_in_its_pages_shows_its_first_description_with_a_warning() {
    let whole = sample_full(false);
    let cut = &whole[..page_at(&whole, 1, 8)];
    let found = SqlServerBackup.describe(vec![family("x.bak", cut)]).unwrap();
    let set = &found.media_sets[0].sets[0];
    assert_eq!(set.header.get("DatabaseName").unwrap(), "shop");
    assert!(set.header.get("BackupFinishDate").unwrap().is_null());
    // The pages were not read, so only the byte that was looked for is known.
    let stream = "inside a stream: the file was cut off";
    let cut_off = found.warnings[0].contains("ends before byte ") && found.warnings[0].contains(stream);
    assert!(cut_off, "{:?}", found.warnings);
    assert!(found.warnings[1].contains("no final description"), "{:?}", found.warnings);
}

#[test]
fn a_sub_chunk_that_is_shorter_than_its_head_or_longer_than_its_stream_is_damage() {
    let stream = configuration_stream(&sample_set(BackupKind::Full, 1).configuration);
    for size in [0_u32, 1, 7, u32::MAX, stream.len() as u32 + 1] {
        let mut bad = stream.clone();
        bad[4..8].copy_from_slice(&size.to_le_bytes());
        assert!(Configuration::decode(&bad).unwrap_err().what.contains("sub-chunk"), "{size}");
    }
    let mut outside = stream.clone();
    outside[0x6a..0x6c].copy_from_slice(&0xFFF0_u16.to_le_bytes());
    assert!(Configuration::decode(&outside).unwrap_err().what.contains("outside"));
    assert!(Configuration::decode(&stream[..0x100]).is_err());
    assert!(Configuration::decode(&[]).is_err());
}

#[test]
fn a_stream_that_claims_more_bytes_than_there_are_takes_no_memory_for_them() {
    let good = sample_full(false);
    let claims = [b"MQCI", b"SPAD", b"APAD", b"MQDA"].map(|id| [(id, 60_u64 << 20), (id, u64::MAX)]);
    for (id, claimed) in claims.into_iter().flatten() {
        let mut bytes = good.clone();
        let at = bytes.windows(4).rposition(|known| known == id).unwrap();
        bytes[at + 8..at + 16].copy_from_slice(&claimed.to_le_bytes());
        let sum = super::fields::xor_of_words(&bytes[at..at + 20]);
        bytes[at + 20..at + 22].copy_from_slice(&sum.to_le_bytes());
        assert!(seen(&bytes, Depth::Everything).is_err());
    }
}

#[test]
fn a_changed_bit_in_a_header_is_named_with_its_byte() {
    let mut bytes = sample_full(false);
    bytes[0x600 + 62] ^= 0x10; // Not in the checksum of the header: the position.
    assert!(seen(&bytes, Depth::Everything).is_ok());
    bytes[0x600 + 20] ^= 1;
    let error = seen(&bytes, Depth::Everything).err().unwrap().to_string();
    assert!(error.contains(&format!("damaged at byte {}", 0x600 + 50)), "{error}");
}

#[test]
fn another_file_and_a_tape_of_another_program_are_not_backups_of_sql_server() {
    for bytes in [&b""[..], b"TAPE", &[0; 600]] {
        let error = seen(bytes, Depth::Descriptions).err().unwrap();
        assert!(error.to_string().contains("not a backup of SQL Server"), "{error}");
    }
    let compressed = SqlServerBackup.describe(vec![family("c.bak", b"MSSQLBAK\x02\0\0\0")]).unwrap_err();
    assert!(compressed.to_string().contains("c.bak: ends at byte 12"), "{compressed}");
}

#[test]
fn a_missing_family_is_named_with_its_media_set() {
    let of = |number| FamilyWriter::new(&sample_label(3, number), 512).set(&sample_set(BackupKind::Full, 1)).finish();
    let found = SqlServerBackup.describe(vec![family("c.bak", &of(3)), family("a.bak", &of(1))]).unwrap();
    let set = &found.media_sets[0];
    assert_eq!(set.devices, ["a.bak", "c.bak"]);
    let error = set.incomplete.as_ref().unwrap();
    let title = format!("family 2 of 3 of media set {}: missing", sample_media_set());
    assert!(error.to_string().starts_with(&title), "{error}");
    assert_eq!(error.exit_kind().exit_code(), 3);
    let all = [1, 2, 3].map(|number| family(&format!("{number}.bak"), &of(number)));
    assert!(SqlServerBackup.describe(all.into()).unwrap().media_sets[0].incomplete.is_none());
}

#[test]
fn families_of_two_backups_that_have_one_media_set_are_not_taken_for_one() {
    let first = FamilyWriter::new(&sample_label(2, 1), 512).set(&sample_set(BackupKind::Full, 1)).finish();
    let mut later = sample_set(BackupKind::Full, 1);
    later.header.guid = Uuid::from_u128(9);
    let second = FamilyWriter::new(&sample_label(2, 2), 512).set(&later).finish();
    let found = SqlServerBackup.describe(vec![family("a", &first), family("b", &second)]).unwrap();
    let error = found.media_sets[0].incomplete.as_ref().unwrap().to_string();
    assert!(error.contains("different backup sets"), "{error}");
}

#[test]
fn several_sets_on_one_media_are_shown_in_order_and_passwords_are_named() {
    let mut label = sample_label(1, 1);
    label.tape.has_password = true;
    let mut log = sample_set(BackupKind::Log, 3);
    log.logs = vec![sample_log(1024)];
    log.header.has_password = true;
    let (full, differential) = (sample_set(BackupKind::Full, 1), sample_set(BackupKind::Differential, 2));
    let bytes = FamilyWriter::new(&label, 512).set(&full).set(&differential).set(&log).finish();
    let found = SqlServerBackup.describe(vec![family("x.bak", &bytes)]).unwrap();
    let column = |name: &str| {
        found.media_sets[0].sets.iter().map(|set| set.header.get(name).unwrap().clone()).collect::<Vec<_>>()
    };
    assert_eq!(column("Position"), [1, 2, 3]);
    assert_eq!(column("BackupType"), [1, 5, 2]);
    assert_eq!(column("FirstLSN"), ["34000000010000001", "34000000020000001", "34000000030000001"]);
    assert!(found.warnings[0].contains("MEDIAPASSWORD") && found.warnings[1].contains("file 3 has a password"));
}

#[test]
fn a_good_backup_is_verified_and_its_coverage_has_every_byte_once() {
    for has_checksums in [true, false] {
        let bytes = sample_full(has_checksums);
        let found = verified(&bytes);
        assert!(found.damage.is_empty() && found.warnings.is_empty(), "{:?} {:?}", found.damage, found.warnings);
        assert_eq!(found.bytes, bytes.len() as u64);
        assert_eq!(found.coverage.iter().map(|line| line.bytes).sum::<u64>(), bytes.len() as u64);
        let of = |name: &str| found.coverage.iter().find(|line| line.protection == name).map(|line| line.bytes);
        let (both, alone) = ("page checksum and backup checksum", "page checksum");
        assert_eq!(of(if has_checksums { both } else { alone }), Some(32 * PAGE as u64));
        assert_eq!(of("nothing: log, in a backup without checksum").is_none(), has_checksums);
    }
}

#[test]
fn a_changed_bit_is_damage_in_a_page_in_use_and_not_in_a_page_that_is_not() {
    let good = sample_full(false);
    for (number, is_damage) in [(33, true), (39, false), (9, true), (15, false)] {
        let mut bytes = good.clone();
        let at = page_at(&good, 1, number);
        bytes[at + 4000] ^= 1;
        let found = verified(&bytes);
        assert_eq!(found.damage.len(), usize::from(is_damage), "page {number}: {:?}", found.damage);
        match found.damage.first() {
            Some(error) => assert!(error.to_string().contains(&format!("page 1:{number}: its checksum")), "{error}"),
            None => assert!(found.facts.iter().any(|fact| fact.contains("1 page without a good check: not in use"))),
        }
    }
}

#[test]
fn a_page_that_is_copied_again_counts_as_its_last_copy() {
    let good = sample_full(false);
    let mut first = good.clone();
    let at = page_at(&good, 1, 3);
    first[at + 4000] ^= 1;
    let found = verified(&first);
    assert!(found.damage.is_empty() && found.facts.iter().any(|fact| fact.contains("a good copy follows")));
    let mut second = good.clone();
    let behind = at + PAGE;
    let again = behind + page_at(&good[behind..], 1, 3);
    second[again + 4000] ^= 1;
    assert_eq!(verified(&second).damage.len(), 1);
}

#[test]
fn an_extent_of_garbage_between_two_others_is_damage_at_its_place() {
    let mut bytes = sample_full(false);
    let at = page_at(&bytes, 1, 8);
    bytes[at..at + 8 * PAGE].fill(0xA5);
    let found = verified(&bytes);
    // Extents 0, 1 and 4: several places are possible.
    assert!(found.damage.len() == 1 && found.warnings.is_empty(), "{:?}", found.damage);
    assert!(found.damage[0].to_string().contains("pages 1:8 to 1:15 of file `shop` are missing"), "{:?}", found.damage);
    let mut set = sample_set(BackupKind::Full, 1);
    set.copies = vec![sample_extents(&[0, 1, 2], 3)];
    let mut bytes = FamilyWriter::new(&sample_label(1, 1), 512).set(&set).finish();
    let at = page_at(&bytes, 1, 8);
    bytes[at..at + 8 * PAGE].fill(0);
    let found = verified(&bytes);
    assert_eq!(found.damage.len(), 7, "{:?}", found.warnings);
}

/// A full with extents 0, 1 and 2 in one copy. The PFS page describes so many of them.
fn three_extents(described: u32) -> Vec<u8> {
    let mut set = sample_set(BackupKind::Full, 1);
    set.copies = vec![sample_extents(&[0, 1, 2], described)];
    FamilyWriter::new(&sample_label(1, 1), 512).set(&set).finish()
}

#[test]
fn a_damaged_pfs_page_is_damage_and_hides_no_other_page() {
    let good = three_extents(3);
    let mut bytes = good.clone();
    bytes[page_at(&good, 1, 1) + 4000] ^= 1;
    // Page 15 may be in use; zeros were never used.
    bytes[page_at(&good, 1, 10) + 4000] ^= 1;
    bytes[page_at(&good, 1, 15) + 4000] ^= 1;
    let zeros = page_at(&good, 1, 23);
    bytes[zeros..zeros + PAGE].fill(0);
    let damage: Vec<String> = verified(&bytes).damage.iter().map(ToString::to_string).collect();
    assert_eq!(damage.len(), 3, "{damage:?}");
    for (error, page) in damage.iter().zip(["1:1", "1:10", "1:15"]) {
        assert!(error.contains(&format!("page {page}: its checksum")), "{error}");
    }
}

#[test]
fn a_page_in_use_without_a_check_is_a_warning_if_other_pages_have_a_checksum() {
    let good = three_extents(3);
    for (number, is_named) in [(10, true), (15, false)] {
        let mut bytes = good.clone();
        let at = page_at(&good, 1, number);
        bytes[at + 5] ^= 2;
        bytes[at + 2000..at + 2100].fill(b'X');
        let found = verified(&bytes);
        assert!(found.damage.is_empty(), "{:?}", found.damage);
        assert_eq!(found.warnings.len(), usize::from(is_named), "{:?}", found.warnings);
        let words = "1 page (1:10) in use without a check, although other pages have one";
        assert!(found.warnings.iter().all(|warning| warning.contains(words)), "{:?}", found.warnings);
        let line = "nothing: pages in use without a check, where others have one";
        let bytes = found.coverage.iter().find(|line_of| line_of.protection == line).map(|line| line.bytes);
        assert_eq!(bytes, is_named.then_some(PAGE as u64));
        assert_eq!(found.coverage.iter().map(|line| line.bytes).sum::<u64>(), found.bytes);
    }
}

#[test]
fn a_page_in_use_without_a_check_is_named_as_a_fact_where_the_backup_checksum_protects_it() {
    let mut set = sample_set(BackupKind::Full, 1);
    set.configuration.database.has_checksums = true;
    set.copies = vec![sample_extents(&[0, 1, 2], 3)];
    set.copies[0][10 * PAGE + 5] = 0;
    let found = verified(&FamilyWriter::new(&sample_label(1, 1), 512).set(&set).finish());
    assert!(found.damage.is_empty() && found.warnings.is_empty(), "{found:?}");
    assert!(found.facts.iter().any(|fact| fact.starts_with("1 page (1:10) in use without a check of their own")));
    assert!(found.coverage.iter().all(|line| !line.protection.contains("where others have one")));
}

#[test]
fn a_full_without_extents_in_use_is_damaged_and_names_the_file_and_the_pages() {
    for (numbers, words) in [
        (vec![0, 1, 3], "pages 1:16 to 1:23 of file `shop`"),
        (vec![0, 3], "it lacks 2 extents in use: pages 1:8 to 1:23 of file `shop`"),
        (vec![1, 2, 3], "pages 1:0 to 1:7 of file `shop`"),
    ] {
        let mut set = sample_set(BackupKind::Full, 1);
        set.copies = vec![sample_extents(&numbers, 4)];
        let bytes = FamilyWriter::new(&sample_label(1, 1), 512).set(&set).finish();
        let found = verified(&bytes);
        assert_eq!((found.damage.len(), found.warnings.len()), (1, 0), "{found:?}");
        let error = found.damage[0].to_string();
        assert!(error.starts_with("`x.bak`") && error.contains(words), "{error}");
        assert_eq!(found.damage[0].exit_kind().exit_code(), 3);
        // The other half of a pair may have them, and so may the full of a differential.
        let half = FamilyWriter::new(&sample_label(2, 1), 512).set(&set).finish();
        assert!(verified(&half).damage.is_empty());
        set.configuration.database.kind = BackupKind::Differential;
        let differential = FamilyWriter::new(&sample_label(1, 1), 512).set(&set).finish();
        assert!(verified(&differential).damage.is_empty());
    }
}

#[test]
fn an_extent_without_a_place_is_damage_only_if_pages_in_use_are_missing() {
    for (described, fill, is_damage) in [(3, 0, true), (3, 0xA5, true), (2, 0, false), (2, 0xA5, false)] {
        let mut bytes = three_extents(described);
        let at = page_at(&bytes, 1, 16);
        bytes[at..at + 8 * PAGE].fill(fill);
        let found = verified(&bytes);
        assert_eq!(found.damage.len(), usize::from(is_damage), "{described} {fill}: {:?}", found.damage);
        assert_eq!(found.warnings.is_empty(), is_damage, "{:?}", found.warnings);
        let places = |path| crate::engine::FilePlaces::in_directory(path);
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| Ok(family(name, &bytes));
        let restored = SqlServerBackup.restore(&["x.bak".to_owned()], &open, None, &places(folder.path()));
        assert_eq!(restored.is_err(), is_damage, "{described} {fill}: {restored:?}");
    }
}

#[test]
fn a_page_of_another_place_is_damage_although_its_checksum_matches() {
    let mut bytes = sample_full(false);
    let (from, to) = (page_at(&bytes, 1, 34), page_at(&bytes, 1, 10));
    bytes.copy_within(from..from + PAGE, to);
    let found = verified(&bytes);
    assert!(found.damage[0].to_string().contains("page 1:10: its header names another place"), "{:?}", found.damage);
}

#[test]
fn a_changed_bit_in_the_log_is_found_with_checksum_and_not_without() {
    for has_checksums in [true, false] {
        let mut bytes = sample_full(has_checksums);
        let log = sample_log(1 << 16).1;
        let at = bytes.windows(64).position(|window| window == &log[..64]).unwrap();
        bytes[at + 1000] ^= 1;
        let damage = verified(&bytes).damage;
        assert_eq!(damage.len(), usize::from(has_checksums), "{damage:?}");
        assert!(damage.iter().all(|error| error.to_string().contains("backup checksum")));
    }
}

#[test]
fn stripes_are_judged_together_and_only_the_chosen_file_counts() {
    let of = |number: u16, extents: &[u32]| {
        let mut set = sample_set(BackupKind::Full, 1);
        set.copies = vec![sample_extents_of(extents, &[0, 1, 4, 5])];
        let mut later = sample_set(BackupKind::Full, 2);
        later.copies = set.copies.clone();
        FamilyWriter::new(&sample_label(2, number), 512).set(&set).set(&later).finish()
    };
    // The PFS page is in the second family.
    let (mut one, two) = (of(1, &[1, 4]), of(2, &[0, 5]));
    let at = page_at(&one, 1, 9);
    one[at + 500] ^= 1;
    for (file, damaged) in [(None, 1), (Some(1), 1), (Some(2), 0)] {
        let families = vec![family("1.bak", &one), family("2.bak", &two)];
        let found = SqlServerBackup.verify(families, file).unwrap();
        assert_eq!((found.damage.len(), found.warnings.len()), (damaged, 0), "{file:?}: {:?}", found.warnings);
        assert!(found.damage.iter().all(|error| error.to_string().contains("`1.bak` is damaged at byte")));
    }
    let error = SqlServerBackup.verify(vec![family("2.bak", &two)], Some(3)).unwrap_err();
    assert_eq!(error.exit_kind().exit_code(), 2);
}
