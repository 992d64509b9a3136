//! Rows with ROW and PAGE compression, as published descriptions lay them out.
#![allow(clippy::unwrap_used)]

use super::super::super::engine::{Cell, TimeOfDay};
use super::collation::CodePages;
use super::compressed_record::{CompressedRecord, Packed};
use super::compressed_value::{in_row, vardecimal};
use super::page_dictionary::{PageDictionary, Unpacked, unpack};
use super::types::{StoredType, xtype};

fn stored(number: u8, length: u16, precision: u8, scale: u8) -> StoredType {
    StoredType { xtype: number, length, precision, scale, collation: 0x3400_D008 }
}

fn cell(number: u8, bytes: &[u8]) -> Cell {
    in_row(&stored(number, 8, 9, 2), bytes, &CodePages::new(0, 0)).unwrap()
}

#[test]
fn integers_have_their_most_significant_byte_first_and_the_middle_of_the_range_is_zero() {
    for (number, bytes, value) in [
        (xtype::SMALLINT, &[0x7E][..], -2),
        (xtype::SMALLINT, &[0x81], 1),
        (xtype::INT, &[], 0),
        (xtype::INT, &[0x83, 0xE8], 1000),
        (xtype::INT, &[0xFF, 0xFF, 0xFF, 0xFF], i64::from(i32::MAX)),
        (xtype::BIGINT, &[0; 8], i64::MIN),
        (xtype::BIGINT, &[0xFF; 8], i64::MAX),
        (xtype::TINYINT, &[200], 200),
        (xtype::TINYINT, &[], 0),
    ] {
        assert_eq!(cell(number, bytes), Cell::Int(value), "{bytes:?}");
    }
    assert_eq!(cell(xtype::MONEY, &[0x84, 0xF0, 0xD8]), Cell::Decimal { digits: 323_800, scale: 4 });
    assert!(in_row(&stored(xtype::INT, 4, 0, 0), &[0; 5], &CodePages::new(0, 0)).is_err());
}

#[test]
fn other_types_are_filled_up_on_the_side_where_zeros_were_left_out() {
    assert_eq!(cell(xtype::FLOAT, &[0xF8, 0x3F]), Cell::Float(1.5));
    assert_eq!(cell(xtype::REAL, &[]), Cell::Real(0.0));
    assert_eq!(cell(xtype::BIT, &[]), Cell::Bool(false));
    assert_eq!(cell(xtype::CHAR, b"ab"), Cell::Text("ab      ".into()));
    assert_eq!(cell(xtype::BINARY, &[1]), Cell::Binary(vec![1, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(cell(xtype::NCHAR, b"abc"), Cell::Text("abc ".into()), "an odd length is SCSU");
    assert_eq!(cell(xtype::NVARCHAR, &[0x36, 0x04]), Cell::Text("ж".into()), "an even length is UTF-16");
    let time = in_row(&stored(xtype::TIME, 0, 0, 7), &[0x80, 0x96, 0x98], &CodePages::new(0, 0)).unwrap();
    assert_eq!(time, Cell::Time(TimeOfDay::new(10_000_000).unwrap()));
    assert_eq!(cell(xtype::TIMESTAMP, &[0x87, 0xD1]), Cell::Binary(vec![0, 0, 0, 0, 0, 0, 7, 0xD1]));
    assert_eq!(cell(xtype::TIMESTAMP, &[]), Cell::Binary(vec![0; 8]));
    assert!(in_row(&stored(xtype::TIMESTAMP, 8, 0, 0), &[0x7F], &CodePages::new(0, 0)).is_err(), "below zero");
    let zero = super::date_time::smalldatetime(&[0; 4]).unwrap();
    assert_eq!(cell(xtype::SMALLDATETIME, &[]), zero, "zeros take no bytes in every type");
    for bytes in [&[1][..], &[0x9B, 0x8F], &[0x9B, 0x8F, 1], &[0, 0, 0x8F, 0x9B]] {
        let error = in_row(&stored(xtype::SMALLDATETIME, 4, 0, 0), bytes, &CodePages::new(0, 0)).unwrap_err();
        assert!(format!("{error:?}").contains("ROW or PAGE compression"), "{error:?}");
    }
}

#[test]
fn a_datetime_of_7_bytes_has_the_parts_of_its_binary_form_and_shorter_ones_are_not_guessed() {
    // What CONVERT(binary(8), datetime) gives is published: the days, then the parts of a second.
    for (binary, days, parts) in [
        ([0, 0, 0x9B, 0x8F, 0x01, 0x8B, 0x81, 0xFF], 39_823, 25_919_999), // 2009-01-12 23:59:59.997
        ([0, 0, 0x80, 0x00, 0, 0, 0, 0], 32_768, 0),                      // 1989-09-19
        ([0, 0x2D, 0x24, 0x7F, 0, 0, 0, 1], 2_958_463, 1),                // 9999-12-31
        ([0xFF, 0xFF, 0x2E, 0x46, 0, 0, 0, 0], -53_690, 0),               // 1753-01-01
    ] {
        let mut stored: [u8; 8] = binary;
        stored[1] ^= 0x80;
        let expected = super::date_time::datetime_of(days, parts).unwrap();
        assert_eq!(cell(xtype::DATETIME, &stored[1..]), expected, "{days}");
    }
    assert_eq!(cell(xtype::DATETIME, &[]), super::date_time::datetime_of(0, 0).unwrap(), "1900-01-01 takes no bytes");
    let of = |bytes: &[u8]| in_row(&stored(xtype::DATETIME, 8, 0, 0), bytes, &CodePages::new(0, 0));
    for short in [
        &[0x9B, 0x8F, 0, 0, 0, 1][..],
        &[0x81],
        &[0x80, 0, 0, 1],
        &[0x2D, 0, 0, 0, 0, 0, 0],
        &[0x80, 0x7F, 0, 0, 0, 0, 0],
    ] {
        let error = of(short).unwrap_err();
        assert!(format!("{error:?}").contains("has two readings"), "{short:?}: {error:?}");
    }
    assert!(of(&[0x80, 0x9B, 0x8F, 0x01, 0x8B, 0x82, 0x00]).is_err(), "a time of 24 hours");
    assert!(of(&[0xAD, 0x24, 0x80, 0, 0, 0, 0]).is_err(), "year 10000");
}

#[test]
fn a_decimal_of_variable_length_is_exact() {
    for (bytes, precision, scale, digits) in [
        (&[0xC2, 0x1E, 0xDC, 0x20][..], 5, 2, 12_345),
        (&[0x42, 0x1E, 0xDC, 0x20], 7, 4, -1_234_500),
        (&[0xC0, 0x67], 9, 2, 412),
        (&[0xC2, 0x19], 3, 0, 100),
        (&[], 9, 2, 0),
    ] {
        let found = vardecimal(&stored(xtype::DECIMAL, 0, precision, scale), bytes).unwrap();
        assert_eq!(found, Cell::Decimal { digits, scale }, "{bytes:?}");
    }
    for (bytes, precision, scale) in [
        (&[0xC2, 0x1E, 0xDC, 0x20][..], 5, 1),
        (&[0xC2, 0x1E, 0xDC, 0x20], 4, 2),
        (&[0xC2, 0xFF, 0xFF], 9, 2),
        (&[0xFF, 0x19], 38, 0),
    ] {
        assert!(vardecimal(&stored(xtype::DECIMAL, 0, precision, scale), bytes).is_err(), "{bytes:?}");
    }
}

/// The row of "Pro SQL Server Internals": 0, 2147483647, NULL, 'aaa', 1000 times b, 0, 1, NULL, 1000 times c, 10 times d.
fn published() -> Vec<u8> {
    let codes = [0x51, 0x40, 0x1A, 0x0B, 0xAA];
    let long = [&[1, 3, 0][..], &1000_u16.to_le_bytes(), &2000_u16.to_le_bytes(), &2010_u16.to_le_bytes()].concat();
    let data = [vec![b'b'; 1000], vec![b'c'; 1000], vec![b'd'; 10]].concat();
    [&[0x21, 10][..], &codes, &[0xFF; 4], b"aaa", &long, &data].concat()
}

#[test]
fn a_row_has_codes_short_values_and_long_values() {
    let row = published();
    let record = CompressedRecord::parse(&row).unwrap();
    assert!(record.is_row().unwrap());
    let values: Vec<Packed<'_>> = (0..10).map(|column| record.value(column).unwrap()).collect();
    let (b, c) = (vec![b'b'; 1000], vec![b'c'; 1000]);
    let expected = [
        Packed::Empty,
        Packed::Bytes(&[0xFF; 4]),
        Packed::Null,
        Packed::Bytes(b"aaa"),
        Packed::Bytes(&b),
        Packed::Empty,
        Packed::True,
        Packed::Null,
        Packed::Bytes(&c),
        Packed::Bytes(b"dddddddddd"),
    ];
    assert_eq!(values, expected);
    assert_eq!(record.value(10), None);
    for length in 0..row.len() {
        assert!(CompressedRecord::parse(&row[..length]).is_err(), "{length}");
    }
}

#[test]
fn a_row_of_more_than_30_columns_has_the_sizes_of_its_groups() {
    let codes = [0x22; 16];
    let values: Vec<u8> = (0..31).collect();
    let good = [&[1, 31][..], &codes[..15], &[0x02], &[30], &values].concat();
    let record = CompressedRecord::parse(&good).unwrap();
    assert_eq!(record.value(30), Some(Packed::Bytes(&[30])));
    let mut bad = good.clone();
    bad[18] = 29;
    assert!(CompressedRecord::parse(&bad).is_err());
}

#[test]
fn a_row_of_more_than_127_columns_has_their_number_in_two_bytes_and_its_groups_prove_it() {
    // 200 columns: the last is a long value, the others have one byte each.
    let codes = [vec![0x22; 99], vec![0xA2]].concat();
    let values: Vec<u8> = (0..199).collect();
    let long = [&[1, 1, 0][..], &9_u16.to_le_bytes(), &[0; 6], b"last long"].concat();
    let good = [&[0x21, 0x80, 200][..], &codes, &[30; 6], &values, &long].concat();
    let record = CompressedRecord::parse(&good).unwrap();
    assert_eq!((record.columns(), record.value(198)), (200, Some(Packed::Bytes(&[198]))));
    assert_eq!(record.value(199), Some(Packed::Bytes(b"last long")));
    for length in 0..good.len() {
        assert!(CompressedRecord::parse(&good[..length]).is_err(), "{length}");
    }
    for count in [[0x80, 127], [0x84, 1], [0xFF, 0xFF], [200, 0x80], [0x80, 231]] {
        let bad = [&good[..1], &count, &good[3..]].concat();
        assert!(CompressedRecord::parse(&bad).is_err(), "{count:?}");
    }
}

#[test]
fn values_take_their_beginning_from_the_anchor_and_repeat_by_symbols() {
    // The anchor has "PALETTE" for column 0, NULL for column 1.
    let anchor = [&[1, 2, 0x08][..], b"PALETTE"].concat();
    let entries = [&[3][..], b"M", b"CAN"].concat();
    let dictionary = [&2_u16.to_le_bytes()[..], &2_u16.to_le_bytes(), &5_u16.to_le_bytes(), &entries].concat();
    let at = 7 + anchor.len();
    let total = at + dictionary.len();
    let head = [&[6, 0, 0][..], &(at as u16).to_le_bytes(), &(total as u16).to_le_bytes()].concat();
    let bytes = [head, anchor, dictionary].concat();
    let page = PageDictionary::parse(&bytes).unwrap().unwrap();
    let found = |packed, column| match unpack(packed, column, Some(&page)).unwrap() {
        Unpacked::Bytes(bytes) => String::from_utf8(bytes.into_owned()).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(found(Packed::Empty, 0), "PALETTE");
    assert_eq!(found(Packed::Bytes(b"\x03"), 0), "PAL");
    assert_eq!(found(Packed::Bytes(b"\x01OX"), 0), "POX");
    assert_eq!(found(Packed::Bytes(b"\x00"), 0), "");
    assert_eq!(found(Packed::Symbol(0), 0), "PALM");
    assert_eq!(found(Packed::Symbol(1), 1), "CAN", "without an anchor, an entry is the value");
    assert_eq!(found(Packed::Bytes(b"BALL"), 1), "BALL");
    assert_eq!(found(Packed::Empty, 1), "");
    assert_eq!(unpack(Packed::Null, 0, Some(&page)).unwrap(), Unpacked::Null);
    assert!(unpack(Packed::Symbol(2), 0, Some(&page)).is_err());
    assert!(unpack(Packed::Symbol(0), 0, None).is_err());
    assert!(unpack(Packed::Bytes(b"\x08"), 0, Some(&page)).is_err(), "the anchor has 7 bytes");
    assert!(unpack(Packed::Bytes(b""), 0, Some(&page)).is_err());
}

#[test]
fn a_page_without_an_anchor_has_rows_with_row_compression() {
    assert!(PageDictionary::parse(&[0; 40]).unwrap().is_none());
    assert!(PageDictionary::parse(&[1, 2, 3]).unwrap().is_none(), "a row that was deleted");
    assert!(PageDictionary::parse(&[4, 0, 0, 7, 0, 9, 0]).is_err(), "a dictionary alone");
    assert!(PageDictionary::parse(&[2, 0, 0, 90, 0]).is_err(), "an anchor that is cut off");
}
