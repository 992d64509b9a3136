//! Records and values of SQL Server, with and without compression: whatever the bytes are, they are taken apart or refused.

use fullbore_engines::sqlserver::tables_out::collation::CodePages;
use fullbore_engines::sqlserver::tables_out::compressed_record::CompressedRecord;
use fullbore_engines::sqlserver::tables_out::compressed_value::in_row;
use fullbore_engines::sqlserver::tables_out::page_dictionary::{PageDictionary, Unpacked, unpack};
use fullbore_engines::sqlserver::tables_out::record::Record;
use fullbore_engines::sqlserver::tables_out::types::StoredType;
use fullbore_engines::sqlserver::tables_out::{scsu, sparse, value};

/// One input.
pub fn run(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else { return };
    match choice % 4 {
        0 => plain(bytes),
        1 => compressed(bytes, None),
        2 => {
            // The anchor and the dictionary, and behind them a row.
            let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return };
            let (head, row) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes(*length))));
            let Ok(Some(page)) = PageDictionary::parse(head) else { return };
            compressed(row, Some(&page));
        }
        _ => values(bytes),
    }
}

fn plain(bytes: &[u8]) {
    let Ok(record) = Record::parse(bytes) else { return };
    for index in 0..record.variables() {
        let _ = record.variable(index).map(|found| found.map(|found| assert!(found.bytes.len() <= bytes.len())));
    }
    if let Ok(Some(vector)) = sparse::vector(&record) {
        (0..300).for_each(|id| drop(sparse::value(vector, id)));
    }
}

fn compressed(bytes: &[u8], page: Option<&PageDictionary<'_>>) {
    let Ok(record) = CompressedRecord::parse(bytes) else { return };
    let pages = CodePages::new(0xD008, 1033);
    for column in 0..record.columns() {
        let Some(packed) = record.value(column) else { continue };
        let Ok(Unpacked::Bytes(found)) = unpack(packed, column, page) else { continue };
        for xtype in 34..=241 {
            let _ = in_row(&StoredType { xtype, length: 40, precision: 20, scale: 4, collation: 0xD008 }, &found, &pages);
        }
    }
}

fn values(bytes: &[u8]) {
    let [xtype, low, high, precision, scale, bytes @ ..] = bytes else { return };
    let length = u16::from_le_bytes([*low, *high]);
    let stored = StoredType { xtype: *xtype, length, precision: *precision, scale: *scale, collation: 0x3400_D008 };
    let pages = CodePages::new(0xD008, 1033);
    let _ = value::cell(&stored, bytes, &pages);
    // Columns of other precisions and scales are refused before their values are read.
    if stored.kind().is_some() {
        let _ = in_row(&stored, bytes, &pages);
    }
    let _ = scsu::decode(bytes);
}
