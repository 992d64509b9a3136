//! Backup files that are stored: read into streams, and given back byte for byte.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _};
use std::path::Path;

use fullbore_core::media::ManifestStream;
use fullbore_core::pool::Pool;
use fullbore_core::source::Source;
use fullbore_core::unpack::Target;
use fullbore_core::{Error, Result};

use super::super::configuration::BackupKind;
use super::super::page::EXTENT;
use super::super::survey::survey;
use super::super::writer::{
    FamilyWriter, sample_extents, sample_extents_of, sample_full, sample_label, sample_log, sample_set,
};
use super::genuine_files;
use crate::compressed::Writer;
use crate::engine::{ForeignFamily, Surveyed};
use crate::foreign_set::bytes::InOrder;
use crate::foreign_set::source::{Families, ForeignSource};
use crate::foreign_set::tap::SHARED;
use crate::foreign_set::tap::tests::Pieces;
use crate::foreign_set::target::{FamilyFiles, StoredMedia};

type Media = Vec<(String, Vec<u8>)>;

/// The media as a source.
fn source(media: &Media) -> ForeignSource {
    source_that(media, true, |_| Ok(()))
}

/// The same. `accepts` judges what was read.
fn source_that(
    media: &Media,
    lends: bool,
    accepts: impl Fn(&Surveyed) -> Result<()> + Send + Sync + 'static,
) -> ForeignSource {
    // Buffers of 3 cells.
    let pool = Pool::new(SHARED + 1, 3 * EXTENT).unwrap();
    let family = move |(device, bytes): (String, Vec<u8>)| ForeignFamily {
        device,
        bytes: Box::new(Pieces::new(bytes, pool.clone())),
    };
    let read = media.clone();
    ForeignSource::new(Families {
        names: media.iter().map(|(name, bytes)| (name.clone(), bytes.len() as u64)).collect(),
        read: Box::new(move |to| survey(read.into_iter().map(family).collect(), to)),
        sample: Box::new(|_, _, _| Ok(0)),
        accepts: Box::new(accepts),
        lends,
    })
}

/// What a backup stores: streams with their bytes.
#[derive(Clone)]
struct Stored {
    streams: Vec<ManifestStream>,
    bytes: BTreeMap<u32, Vec<u8>>,
    /// Extents that were not copied.
    lends: u64,
}

fn stored(source: &ForeignSource, readers: usize) -> Result<Stored> {
    let (mut bytes, mut lends) = (BTreeMap::<u32, Vec<u8>>::new(), 0);
    for number in 0..readers {
        let mut reader = source.reader(number, readers).unwrap();
        let mut buffer = vec![0; 60 << 10];
        while let Some(extent) = reader.next(&mut buffer)? {
            assert!(extent.length > 0);
            let (at, stream) = (extent.offset as usize, bytes.entry(extent.stream).or_default());
            let end = at + extent.length as usize;
            stream.resize(end.max(stream.len()), 0xee);
            assert!(stream[at..end].iter().all(|byte| *byte == 0xee), "bytes are given twice");
            let lent = reader.lent();
            lends += u64::from(lent.is_some());
            stream[at..end].copy_from_slice(&lent.as_deref().unwrap_or(&buffer)[..extent.length as usize]);
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
    let streams: Vec<ManifestStream> = streams.collect();
    for stream in &streams {
        assert_eq!(bytes.entry(stream.id).or_default().len() as u64, stream.size, "{}", stream.name);
    }
    Ok(Stored { streams, bytes, lends })
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

/// Gives the source when all was read.
fn assert_round_trip(media: &Media) -> ForeignSource {
    let mut last = None;
    for (readers, lends) in [(1, true), (3, true), (1, false)] {
        let folder = tempfile::tempdir().unwrap();
        let source = source_that(media, lends, |surveyed| {
            assert!(surveyed.verification.damage.is_empty(), "{:?}", surveyed.verification.damage);
            assert_eq!(surveyed.media_sets.len(), 1);
            Ok(())
        });
        let stored = stored(&source, readers).unwrap();
        assert!(lends || stored.lends == 0);
        given_back(&stored, folder.path()).unwrap();
        for (name, bytes) in media {
            assert!(std::fs::read(folder.path().join(name)).unwrap() == *bytes, "{name}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), media.len());
        assert_eq!(source.bytes(), media.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
        last = Some(source);
    }
    last.unwrap()
}

/// Bytes of the streams with this beginning of their names.
fn bytes_of(source: &ForeignSource, kind: &str) -> u64 {
    let found = source.found().unwrap();
    found.iter().filter(|stream| stream.name.starts_with(kind)).map(|stream| stream.size).sum()
}

fn striped() -> Media {
    let media = [(1, &[0, 1, 9][..]), (2, &[2, 5])].map(|(family, extents)| {
        let mut set = sample_set(BackupKind::Full, 1);
        set.copies = [extents, &extents[..1]].map(|copy| sample_extents_of(copy, &[0, 1, 2, 5, 9])).to_vec();
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
fn large_stripes_come_back_byte_for_byte() {
    // Each is passed on in several pieces.
    let all: Vec<u32> = (0..100).collect();
    let media = [(1, &all[..60]), (2, &all[60..])].map(|(family, extents)| {
        let mut set = sample_set(BackupKind::Full, 1);
        set.copies = vec![sample_extents(extents, 100)];
        let plain = FamilyWriter::new(&sample_label(2, family), 512).set(&set).finish();
        (format!("{family}.bak"), plain)
    });
    let packed = media.clone().map(|(name, plain)| (name, Writer::of_stream(&plain).container));
    assert_round_trip(&media.into());
    assert_round_trip(&packed.into());
}

#[test]
fn cells_that_follow_each_other_are_lent_and_the_others_are_copied() {
    let media = |extents: &[u32]| {
        let mut set = sample_set(BackupKind::Full, 1);
        set.copies = vec![sample_extents_of(extents, extents)];
        set.configuration.files[0].size = 1 << 30;
        vec![("a.bak".to_owned(), FamilyWriter::new(&sample_label(1, 1), 512).set(&set).finish())]
    };
    let all: Vec<u32> = (0..180).collect();
    let lends = stored(&source(&media(&all)), 1).unwrap().lends;
    // Buffers begin with a cell soon. Of two buffers, 384 KiB, one extent of 56 KiB is in both; six are lent.
    assert!((175..=180).contains(&lends), "{lends}");
    let apart: Vec<u32> = (0..180).step_by(2).collect();
    assert_round_trip(&media(&apart));
}

#[test]
fn two_sets_on_one_media_and_a_compressed_one_come_back_byte_for_byte() {
    let mut first = sample_set(BackupKind::Full, 1);
    first.copies = vec![sample_extents(&[0, 1], 2)];
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
fn what_was_read_is_judged_before_a_set_is_complete() {
    let cut = |media: &mut Media| media[1].1.truncate(100_000);
    let flipped = |media: &mut Media| {
        // Page 10, which is in use.
        let page = media[0].1.windows(6).position(|window| window == [10, 0, 0, 0, 1, 0]).unwrap();
        media[0].1[page + 3000] ^= 1;
    };
    for (spoil, what) in [(&cut as &dyn Fn(&mut Media), "cut off"), (&flipped, "checksum")] {
        let mut media = striped();
        spoil(&mut media);
        let source = source_that(&media, true, move |surveyed| {
            let damage: Vec<String> = surveyed.verification.damage.iter().map(Error::one_line).collect();
            assert!(damage.iter().any(|damage| damage.contains(what)), "{what}: {damage:?}");
            Err(Error::refused("media", "damaged", ""))
        });
        assert_eq!(stored(&source, 2).err().unwrap().exit_kind().exit_code(), 1);
        assert!(!source.take_verification().damage.is_empty());
    }
}

/// Bytes of a device that fails once at its end, and then says only that it failed.
struct CutOff {
    rest: Cursor<Vec<u8>>,
    has_failed: bool,
}

impl std::io::Read for CutOff {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match (self.rest.read(into)?, std::mem::replace(&mut self.has_failed, true)) {
            (0, true) => Err(std::io::Error::other(Error::refused("2.bak", "an earlier read failed", ""))),
            (0, false) => Err(std::io::Error::other(Error::damaged("2.bak", 9, "it was cut during the read"))),
            (count, _) => {
                self.has_failed = false;
                Ok(count)
            }
        }
    }
}

impl crate::FamilyBytes for CutOff {
    fn skip(&mut self, bytes: u64) -> std::io::Result<()> {
        std::io::copy(&mut self.take(bytes), &mut std::io::sink()).map(drop)
    }
}

#[test]
fn the_first_error_of_a_device_is_the_one_that_is_told() {
    let source = ForeignSource::new(Families {
        names: vec![("1.bak".into(), 0), ("2.bak".into(), 0)],
        read: Box::new(move |to| {
            let [(one, whole), (two, mut cut)]: [(String, Vec<u8>); 2] = striped().try_into().unwrap();
            cut.truncate(100_000);
            let cut = CutOff { rest: Cursor::new(cut), has_failed: false };
            let families = [
                ForeignFamily { device: one, bytes: Box::new(InOrder(Cursor::new(whole))) },
                ForeignFamily { device: two, bytes: Box::new(cut) },
            ];
            survey(families.into(), to)
        }),
        sample: Box::new(|_, _, _| Ok(0)),
        accepts: Box::new(|_| Ok(())),
        lends: true,
    });
    let error = stored(&source, 1).err().unwrap();
    assert!(error.to_string().contains("it was cut during the read"), "{error}");
    assert_eq!(error.exit_kind().exit_code(), 3);
}

#[test]
fn a_reader_that_is_dropped_ends_the_thread_that_reads() {
    let mut set = sample_set(BackupKind::Full, 1);
    set.configuration.files[0].size = 1 << 30;
    set.copies = vec![sample_extents(&(0..400).collect::<Vec<_>>(), 400)];
    let media = vec![("a.bak".to_owned(), FamilyWriter::new(&sample_label(1, 1), 512).set(&set).finish())];
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (read, ends) = (media.clone(), ended.clone());
    let source = ForeignSource::new(Families {
        names: vec![("a.bak".into(), 0)],
        read: Box::new(move |to| {
            let bytes = Box::new(InOrder(Cursor::new(read[0].1.clone())));
            let surveyed = survey(vec![ForeignFamily { device: "a.bak".into(), bytes }], to);
            ends.store(surveyed.is_err(), std::sync::atomic::Ordering::Relaxed);
            surveyed
        }),
        sample: Box::new(|_, _, _| Ok(0)),
        accepts: Box::new(|_| Ok(())),
        lends: true,
    });
    let mut reader = source.reader(0, 1).unwrap();
    reader.next(&mut vec![0; 60 << 10]).unwrap();
    drop(reader);
    for _ in 0..600 {
        if ended.load(std::sync::atomic::Ordering::Relaxed) {
            assert!(source.found().is_err(), "not everything was read");
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("the thread still runs");
}

#[test]
fn a_forged_layout_gives_no_file() {
    let good = stored(&source(&striped()), 1).unwrap();
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
    let good = stored(&source(&striped()), 1).unwrap();
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
    let error = given_back(&stored(&source(&striped()), 1).unwrap(), folder.path()).unwrap_err();
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
    given_back(&stored(&source(&striped()), 1).unwrap(), folder.path()).unwrap();
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
