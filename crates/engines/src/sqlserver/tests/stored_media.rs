//! Backup files that are stored: read into streams, and given back byte for byte.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use fullbore_core::media::ManifestStream;
use fullbore_core::source::Source;
use fullbore_core::unpack::Target;
use fullbore_core::{Error, Result};

use super::super::configuration::BackupKind;
use super::super::page::EXTENT;
use super::super::survey::survey;
use super::super::writer::{FamilyWriter, sample_extents, sample_full, sample_label, sample_log, sample_set};
use super::genuine_files;
use crate::compressed::Writer;
use crate::engine::{ForeignFamily, Surveyed};
use crate::foreign_set::bytes::InOrder;
use crate::foreign_set::source::{FamilyPlaces, ForeignSource};
use crate::foreign_set::target::{FamilyFiles, StoredMedia};

type Media = Vec<(String, Vec<u8>)>;

struct InMemory(Vec<u8>);

impl FamilyPlaces for InMemory {
    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<()> {
        let offset = usize::try_from(offset).unwrap();
        let bytes = self.0.get(offset..offset + into.len());
        into.copy_from_slice(bytes.ok_or_else(|| Error::refused("family", "is shorter", ""))?);
        Ok(())
    }
}

/// The media as a source; `later` are the families when they are read a second time.
fn source(media: &Media, later: &Media) -> ForeignSource {
    let family = |(name, bytes): &(String, Vec<u8>)| ForeignFamily {
        device: name.clone(),
        bytes: Box::new(InOrder(Cursor::new(bytes.clone()))),
    };
    let Surveyed { verification, families, files, delivered } = survey(media.iter().map(family).collect()).unwrap();
    assert!(verification.damage.is_empty(), "{:?}", verification.damage);
    let later = later.clone();
    let open = move |number: u16| -> Result<Box<dyn FamilyPlaces>> {
        Ok(Box::new(InMemory(later[usize::from(number)].1.clone())))
    };
    ForeignSource::new(families, files, delivered, Box::new(open)).unwrap()
}

/// What a backup stores: streams with their bytes.
#[derive(Clone)]
struct Stored {
    streams: Vec<ManifestStream>,
    bytes: BTreeMap<u32, Vec<u8>>,
}

fn stored(source: &ForeignSource, readers: usize) -> Result<Stored> {
    let mut bytes: BTreeMap<u32, Vec<u8>> =
        source.streams().iter().map(|stream| (stream.id, vec![0xee; stream.size as usize])).collect();
    let mut given: BTreeMap<u32, u64> = BTreeMap::new();
    for number in 0..readers {
        let mut reader = source.reader(number, readers).unwrap();
        let mut buffer = vec![0; 60 << 10];
        while let Some(extent) = reader.next(&mut buffer).unwrap() {
            assert!(extent.length > 0);
            let at = extent.offset as usize;
            bytes.get_mut(&extent.stream).unwrap()[at..at + extent.length as usize]
                .copy_from_slice(&buffer[..extent.length as usize]);
            *given.entry(extent.stream).or_default() += u64::from(extent.length) - reader.unread();
        }
    }
    let streams = source.found()?.into_iter().map(|stream| ManifestStream {
        id: stream.id,
        name: stream.name,
        layer: 0,
        unit: stream.unit,
        map_window: 0,
        size: stream.size,
        ordered: false,
        identity: source.identity(stream.id).unwrap_or_default(),
        base: None,
        detail: source.detail(stream.id).map(Into::into),
    });
    Ok(Stored { streams: streams.collect(), bytes })
}

fn given_back(stored: &Stored, into: &Path) -> Result<()> {
    let media = StoredMedia::of(&stored.streams)?;
    let layouts = media.layouts.iter().map(|stream| stored.bytes[&stream.id].clone()).collect();
    let files = FamilyFiles::create(into, media, layouts, false, false)?;
    for stream in stored.streams.iter().rev() {
        // In pieces that do not end where extents end.
        let bytes = &stored.bytes[&stream.id];
        for (piece, number) in bytes.chunks(100_000).zip(0..) {
            // Bytes that no reader gave are not in a set.
            if !piece.iter().all(|byte| *byte == 0xee) {
                files.write(stream.id, number * 100_000, piece)?;
            }
        }
    }
    files.publish().map(drop)
}

fn assert_round_trip(media: &Media) -> ForeignSource {
    let source = source(media, media);
    for readers in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        // The shares of a source are given once.
        let again = self::source(media, media);
        given_back(&stored(&again, readers).unwrap(), folder.path()).unwrap();
        for (name, bytes) in media {
            assert!(std::fs::read(folder.path().join(name)).unwrap() == *bytes, "{name}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), media.len());
    }
    source
}

/// Bytes of the streams with this beginning of their names.
fn bytes_of(source: &ForeignSource, kind: &str) -> u64 {
    source.streams().iter().filter(|stream| stream.name.starts_with(kind)).map(|stream| stream.size).sum()
}

fn striped() -> Media {
    let media = [(1, &[0, 1, 9][..]), (2, &[2, 5])].map(|(family, extents)| {
        let mut set = sample_set(BackupKind::Full, 1);
        set.copies = vec![sample_extents(extents, 8), sample_extents(&extents[..1], 8)];
        set.logs = vec![sample_log(1 << 16)];
        (format!("{family}.bak"), FamilyWriter::new(&sample_label(2, family), 512).set(&set).finish())
    });
    media.into()
}

#[test]
fn families_of_every_kind_come_back_byte_for_byte() {
    for checksums in [false, true] {
        let bytes = sample_full(checksums);
        let length = bytes.len() as u64;
        let source = assert_round_trip(&vec![("a.bak".into(), bytes)]);
        // Extents 0, 1 and 4 have a place; the second copy of extent 0 is kept as it is.
        assert_eq!(bytes_of(&source, "file/"), 5 * EXTENT as u64);
        assert_eq!(source.gaps(), 2 * EXTENT as u64);
        assert_eq!(bytes_of(&source, "kept/"), length - 3 * EXTENT as u64);
    }
    let source = assert_round_trip(&striped());
    assert_eq!(bytes_of(&source, "file/") - source.gaps(), 5 * EXTENT as u64);
    for kind in [BackupKind::Log, BackupKind::Differential] {
        let mut set = sample_set(kind, 1);
        set.logs = vec![sample_log(70_000)];
        if kind == BackupKind::Differential {
            set.copies = vec![sample_extents(&[3, 4], 8)];
        }
        assert_round_trip(&vec![("a".into(), FamilyWriter::new(&sample_label(1, 1), 4096).set(&set).finish())]);
    }
}

#[test]
fn two_sets_on_one_media_and_a_compressed_one_come_back_byte_for_byte() {
    let mut first = sample_set(BackupKind::Full, 1);
    first.copies = vec![sample_extents(&[0, 1], 8)];
    let mut second = first.clone();
    second.header.position = 2;
    second.header.guid = uuid::Uuid::from_u128(5000);
    let both = FamilyWriter::new(&sample_label(1, 1), 512).set(&first).set(&second).finish();
    assert_round_trip(&vec![("two.bak".into(), both)]);
    let packed = Writer::of_stream(&sample_full(true)).container;
    let length = packed.len() as u64;
    let source = assert_round_trip(&vec![("packed.bak".into(), packed)]);
    assert!(!source.has_files());
    assert_eq!(bytes_of(&source, "kept/"), length);
}

#[test]
fn a_family_that_changes_between_its_two_readings_is_refused() {
    let media = striped();
    for at in [100, 30_000, media[1].1.len() - 1] {
        let mut later = media.clone();
        later[1].1[at] ^= 1;
        let error = stored(&source(&media, &later), 2).err().unwrap().to_string();
        assert!(error.contains("changed between"), "{error}");
    }
}

#[test]
fn a_forged_layout_gives_no_file() {
    let good = stored(&source(&striped(), &striped()), 1).unwrap();
    let layout = good.streams.iter().find(|stream| stream.name == "layout/1").unwrap().id;
    let forge = |at: usize, to: u8| {
        let mut forged = good.clone();
        forged.bytes.get_mut(&layout).unwrap()[at] = to;
        forged
    };
    let length = good.bytes[&layout].len();
    let (mut refused, mut found_by_digest) = (0, 0);
    for at in 0..length {
        for bit in 0..8 {
            let forged = forge(at, good.bytes[&layout][at] ^ 1 << bit);
            let folder = tempfile::tempdir().unwrap();
            let error = given_back(&forged, folder.path()).unwrap_err();
            assert_eq!(error.exit_kind().exit_code(), 3, "{error}");
            match error.to_string().contains("digest") {
                true => found_by_digest += 1,
                false => refused += 1,
            }
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "byte {at}, bit {bit}");
        }
    }
    assert!(refused > 10 && found_by_digest > 0, "{refused} {found_by_digest}");
}

#[test]
fn a_manifest_that_leads_out_of_the_directory_or_is_incomplete_is_refused() {
    let good = stored(&source(&striped(), &striped()), 1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for name in ["../x.bak", "", ".", "a/b", "a\\b", "a\nb"] {
        let mut forged = good.clone();
        let mut detail = forged.streams[0].detail.as_ref().unwrap().value();
        detail["family"] = name.into();
        forged.streams[0].detail = Some(detail.into());
        let error = given_back(&forged, folder.path()).unwrap_err().to_string();
        assert!(error.contains("cannot be the name of a file"), "{error}");
    }
    for gone in 0..good.streams.len() - 1 {
        let mut forged = good.clone();
        forged.streams.remove(gone);
        assert!(given_back(&forged, folder.path()).is_err(), "stream {gone}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_existing_file_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("2.bak"), "precious").unwrap();
    let error = given_back(&stored(&source(&striped(), &striped()), 1).unwrap(), folder.path()).unwrap_err();
    assert!(error.to_string().contains("exists") && error.exit_kind().exit_code() == 1, "{error}");
    assert_eq!(std::fs::read(folder.path().join("2.bak")).unwrap(), b"precious");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn the_leftover_of_a_killed_restore_is_removed_and_that_of_a_running_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let [dead, alive] = [1, 2].map(|number| at(&format!(".restoring-{}", uuid::Uuid::from_u128(number))));
    for path in [&dead, &alive, &at(".restoring-mine"), &at("other")] {
        std::fs::write(path, "x").unwrap();
    }
    let held = fullbore_core::io::LockableFile::from(std::fs::File::open(&alive).unwrap());
    held.try_lock().unwrap();
    given_back(&stored(&source(&striped(), &striped()), 1).unwrap(), folder.path()).unwrap();
    assert!(!dead.exists() && alive.exists() && at(".restoring-mine").exists() && at("other").exists());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5);
}

#[test]
fn most_bytes_of_a_genuine_full_have_a_place() {
    let Some(directory) = genuine_files::files() else { return };
    for (name, share) in [("Northwind_salih2019.bak", 0.9), ("pubs_dwip.bak", 0.9), ("dbareports_FULL.bak", 0.5)] {
        let bytes = std::fs::read(directory.join(name)).unwrap();
        let length = bytes.len() as f64;
        let source = assert_round_trip(&vec![(name.into(), bytes)]);
        let placed = (bytes_of(&source, "file/") - source.gaps()) as f64;
        assert!(placed / length > share, "{name}: {placed} of {length}");
    }
}
