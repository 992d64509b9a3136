#![allow(clippy::unwrap_used)]
use std::io::Read;

use fullbore_core::{Error, Result};
use proptest::prelude::*;

use super::record::{HEADER, INDEX};
use super::*;

fn unpacked(container: &[u8], workers: usize) -> Result<Vec<u8>> {
    let mut stream = PlainStream::open(container, "x.bak", workers)?;
    let mut plain = Vec::new();
    while let Some(bytes) = stream.next_block()? {
        plain.extend(bytes);
    }
    Ok(plain)
}

fn refusal(container: &[u8]) -> String {
    unpacked(container, 2).unwrap_err().to_string()
}

fn text(length: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|row: u32| format!("row {row}, {}; ", row.wrapping_mul(2_654_435_761)).into_bytes());
    lines.take(length).collect()
}

#[test]
fn a_container_unpacks_to_its_plain_stream_with_any_number_of_workers() {
    let made = Writer::one_set(&text(1_000_000));
    for workers in [0, 1, 2, 3, 16] {
        assert!(unpacked(&made.container, workers).unwrap() == made.plain, "{workers} workers");
    }
}

#[test]
fn the_stream_is_the_same_in_small_reads() {
    let made = Writer::one_set(&text(200_000));
    let mut stream = PlainStream::open(&made.container[..], "x.bak", 2).unwrap();
    let mut plain: Vec<u8> = Vec::new();
    let mut buffer = [0; 777];
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            got => plain.extend(&buffer[..got]),
        }
    }
    assert!(plain == made.plain);
    assert_eq!(stream.read(&mut buffer).unwrap(), 0, "the end stays the end");
}

#[test]
fn a_genuine_backup_unpacks_to_a_stream_whose_mtf_headers_are_all_right() {
    let Some(directory) = super::super::tests::genuine_files::files() else { return };
    let container = std::fs::read(directory.join("ExpiredLink_compressed.bak")).unwrap();
    let plain = unpacked(&container, 2).unwrap();
    let kinds = ["TAPE", "SFMB", "SSET", "VOLB", "MSCI", "MSDA", "MSTL", "MSLS", "ESET"];
    let mut found = Vec::new();
    // Blocks begin at multiples of the smallest unit; pages of the database may have the same letters by chance.
    for block in plain.chunks(512) {
        let sum = block.get(50..52).map(|sum| u16::from_le_bytes([sum[0], sum[1]]));
        if let Some(kind) = kinds.iter().find(|kind| block.starts_with(kind.as_bytes())) {
            assert_eq!(header_checksum(block), sum, "{kind}");
            found.push(*kind);
        }
    }
    let (head, tail) =
        (["TAPE", "SFMB", "SSET", "VOLB", "MSCI", "MSDA", "MSDA"], ["MSLS", "SFMB", "ESET", "ESET", "SFMB"]);
    assert_eq!(found, [&head[..], &["MSTL"; 4], &tail].concat());
    assert_eq!(plain.len(), 3_367_424);
}

#[test]
fn a_changed_payload_is_damage_at_its_place_and_the_blocks_before_it_come_first() {
    let mut made = Writer::one_set(&text(500_000));
    let at = made.container.len() / 2;
    made.container[at] ^= 1;
    let mut stream = PlainStream::open(&made.container[..], "x.bak", 2).unwrap();
    let mut plain: Vec<u8> = Vec::new();
    let error = loop {
        match stream.next_block() {
            Ok(Some(bytes)) => plain.extend(bytes),
            Ok(None) => panic!("the damage was not found"),
            Err(error) => break error,
        }
    };
    let Error::Damaged { device, offset, what, .. } = &error else { panic!("{error}") };
    assert!(device == "x.bak" && what.contains("checksum"), "{error}");
    assert!((*offset..*offset + 65_536).contains(&(at as u64)), "{error}");
    assert!(!plain.is_empty() && made.plain.starts_with(&plain));
    assert!(matches!(stream.next_block(), Err(Error::Halted)), "after an error there is no end that looks good");
}

#[test]
fn a_container_that_is_cut_off_anywhere_is_incomplete() {
    let made = Writer::one_set(&text(3000)).container;
    for length in HEADER..made.len() {
        let error = unpacked(&made[..length], 1).unwrap_err();
        assert!(matches!(error, Error::Incomplete { .. }), "{length} of {}: {error}", made.len());
    }
}

#[test]
fn a_file_that_is_not_a_container_is_refused_by_its_kind() {
    assert!(refusal(b"TAPE and more").contains("without compression"));
    assert!(refusal(b"PK\x03\x04 and more").contains("does not begin with MSSQLBAK"));
    assert!(refusal(b"").contains("is empty"));
    let mut made = Writer::one_set(b"x").container;
    made[12] = 1;
    let text = refusal(&made);
    assert!(text.contains("layout 2.1") && text.contains("2008 to 2012") && text.contains("NO_COMPRESSION"), "{text}");
    made[8] = 9;
    made[12] = 9;
    assert!(refusal(&made).contains("layout 9.9"));
}

#[test]
fn records_that_no_known_backup_has_are_named_and_not_guessed() {
    let start = || Writer::default().container;
    for (head, what) in
        [([0x25, 1, 9, 0], "type 0x25"), ([0x00, 0, 0, 0], "type 0x00"), ([0x21, 129, 9, 0], "66048 plain bytes")]
    {
        let text = refusal(&[&start()[..], &head, &[0; 64]].concat());
        assert!(text.contains(what) && text.contains("byte 480") && text.contains("ZSTD"), "{text}");
    }
    let text = refusal(&[&start()[..], &[0x21, 1, 9, 0], &[1; 64]].concat());
    assert!(text.contains("all known records have 0"), "{text}");
    let frame = [0x28, 0xB5, 0x2F, 0xFD, 1, 2, 3, 4];
    let mut made = Writer::default();
    made.record(&[0; 512], &frame);
    assert!(refusal(&made.container).contains("Zstandard frame"));
}

#[test]
fn an_index_that_contradicts_itself_is_damage() {
    let made = Writer::one_set(&text(3000)).container;
    let head = made.windows(4).position(|bytes| bytes == [INDEX, 0, 0, 0]).unwrap();
    // The number of entries, the length, the checksum, an entry.
    for place in [4, 8, 9, 12, 15, 16, 24].map(|at| head + 24 + at) {
        let mut changed = made.clone();
        changed[place] ^= 0x81;
        let error = unpacked(&changed, 1).unwrap_err();
        assert!(matches!(error, Error::Damaged { .. } | Error::Incomplete { .. }), "{place}: {error}");
    }
    let mut other = made.clone();
    other[head + 24] = 2;
    assert!(refusal(&other).contains("an index of another version"));
}

#[test]
fn a_soft_filemark_with_a_wrong_header_is_damage() {
    let made = Writer::one_set(&text(3000)).container;
    let at = made.windows(4).position(|bytes| bytes == b"SFMB").unwrap();
    for place in [8, 9, 20, 50] {
        let mut changed = made.clone();
        changed[at + place] ^= 0x10;
        assert!(refusal(&changed).contains("soft filemark"), "{place}");
    }
}

#[test]
fn an_error_of_the_source_keeps_its_type() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other(Error::Cancelled { by: "SIGTERM" }))
        }
    }
    let made = Writer::one_set(&text(3000)).container;
    let mut stream = PlainStream::open(made[..1000].chain(Failing), "x.bak", 1).unwrap();
    let error = std::iter::repeat_with(|| stream.next_block().err()).flatten().next().unwrap();
    assert!(matches!(error, Error::Cancelled { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_container_with_changed_bytes_never_unpacks_to_other_data_blocks(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let made = Writer::one_set(&text(70_000));
        let mut container = made.container.clone();
        for (place, byte) in changes {
            let place = place.index(container.len());
            container[place] = byte;
        }
        // Changed bytes without a checksum are pads, index entries and the memory of the server, or in filemarks.
        if let Ok(plain) = unpacked(&container, 2) {
            prop_assert_eq!(plain.len(), made.plain.len());
            let differ = plain.iter().zip(&made.plain).filter(|(a, b)| a != b).count();
            prop_assert!(differ <= 5);
        }
    }
}
