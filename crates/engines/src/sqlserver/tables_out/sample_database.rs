//! A small database with one table of each kind, for tests of the program and for fuzz targets.

use super::types::xtype;
use super::writer::{
    DatabaseWriter, WrittenColumn, WrittenPage, WrittenPartition, WrittenTable, fragment, record, utf16,
};

/// Rows of the table `Orders`.
pub const ORDERS: i32 = 500;

fn int(name: &str, offset: i16) -> WrittenColumn {
    WrittenColumn { status: 1, stored_status: 0x80, ..WrittenColumn::new(name, xtype::INT, 4, offset) }
}

/// `OrderID`, `Freight`, `Placed`, `Name`: a clustered index of several pages. Each tenth name is NULL, and order 2 has an
/// empty one.
pub fn orders() -> WrittenTable {
    let columns = vec![
        int("OrderID", 4),
        WrittenColumn::new("Freight", xtype::MONEY, 8, 8),
        WrittenColumn::new("Placed", xtype::DATETIME2, 8, 16).digits(0, 7),
        WrittenColumn::new("Name", xtype::NVARCHAR, 80, -1),
    ];
    let row = |id: i32| {
        let freight = (i64::from(id) * 10_001).to_le_bytes();
        let placed = [&[id as u8, 0, 0, 0, 0][..], &(728_843 + id).to_le_bytes()[..3]].concat();
        let fixed = [&id.to_le_bytes()[..], &freight, &placed].concat();
        let name = utf16(&if id == 2 { String::new() } else { format!("Order \"{id}\", ж") });
        if id % 10 == 0 { record(&fixed, 4, &[3], &[]) } else { record(&fixed, 4, &[], &[(false, &name)]) }
    };
    let rows: Vec<Vec<u8>> = (1..=ORDERS).map(row).collect();
    let pages = rows.chunks(100).map(|rows| WrittenPage::of(rows.to_vec())).collect();
    let partition = WrittenPartition { pages, stored_rows: ORDERS.into(), ..WrittenPartition::default() };
    WrittenTable { name: "Orders".into(), columns, partitions: vec![partition], is_heap: false }
}

/// A heap of rows, one of which was moved.
fn heap() -> WrittenTable {
    let row = |id: i32, status: u8| {
        let mut record = record(&id.to_le_bytes(), 1, &[], &[]);
        record.iter_mut().take(1).for_each(|first| *first |= status);
        record
    };
    let stub = [&[4][..], &[0; 8]].concat();
    let pages = vec![WrittenPage::of(vec![row(1, 0), stub]), WrittenPage::of(vec![row(2, 2), row(3, 0)])];
    let partition = WrittenPartition { pages, stored_rows: 3, ..WrittenPartition::default() };
    WrittenTable { name: "Heap".into(), columns: vec![int("id", 4)], partitions: vec![partition], is_heap: true }
}

/// Values outside of their rows.
fn documents(writer: &mut DatabaseWriter) -> WrittenTable {
    let page = writer.next_page();
    let head = [5_u16.to_le_bytes(), 2_u16.to_le_bytes(), [0, 0]].concat();
    let part =
        |end: u32, slot: u16| [&end.to_le_bytes()[..], &page.to_le_bytes(), &[1, 0], &slot.to_le_bytes()].concat();
    let node =
        |end: u64, slot: u16| [&end.to_le_bytes()[..], &page.to_le_bytes(), &[1, 0], &slot.to_le_bytes()].concat();
    writer.text_page(&[
        fragment(3, &[b'a'; 300]),
        fragment(3, &[b'b'; 200]),
        fragment(2, &[&head[..], &node(300, 0), &node(500, 1)].concat()),
        fragment(0, &[&[3, 0, 0, 0, 0, 0][..], b"abc"].concat()),
    ]);
    let root = [&[4][..], &[0; 11], &part(500, 2)].concat();
    let pointer = [&[0; 8][..], &page.to_le_bytes(), &[1, 0, 3, 0]].concat();
    let columns = vec![
        int("id", 4),
        WrittenColumn::new("body", xtype::VARCHAR, -1, -1),
        WrittenColumn::new("note", xtype::TEXT, 16, -2),
        WrittenColumn::new("any", xtype::SQL_VARIANT, 8016, -3),
    ];
    let variant = [56, 1, 7, 0, 0, 0];
    let row = record(&[1, 0, 0, 0], 4, &[], &[(true, &root), (false, &pointer), (false, &variant)]);
    WrittenTable::of("Documents", columns, vec![row])
}

/// Rows with ROW compression (1) or PAGE compression (2).
fn packed(compression: u8) -> WrittenTable {
    let columns = vec![
        int("id", 4),
        WrittenColumn::new("name", xtype::VARCHAR, 20, -1),
        WrittenColumn::new("amount", xtype::DECIMAL, 5, 8).digits(9, 2),
    ];
    // The codes 2, 5 (or the symbol 0) and 3.
    let plain = |id: u8| [&[1, 3, 0x52, 0x03, 0x80 + id][..], b"PALM", &[0xC0, 0x67]].concat();
    let symbol = |id: u8| [&[1, 3, 0xC2, 0x03, 0x80 + id, 0][..], &[0xC0, 0x67]].concat();
    let anchor = [&[1, 3, 0x80, 0x00][..], b"PALETTE"].concat();
    let dictionary = [1, 0, 2, 0, 3, b'M'];
    let at = 7 + anchor.len() as u16;
    let total = at + dictionary.len() as u16;
    let head = [&[6, 0, 0][..], &at.to_le_bytes(), &total.to_le_bytes(), &anchor, &dictionary].concat();
    let (name, page) = match compression {
        1 => ("RowPacked", WrittenPage::of(vec![plain(1), plain(2)])),
        _ => ("PagePacked", WrittenPage { head, records: vec![symbol(1), symbol(2)] }),
    };
    let partition = WrittenPartition { pages: vec![page], stored_rows: 2, compression, elsewhere: None };
    WrittenTable { name: name.into(), columns, partitions: vec![partition], is_heap: false }
}

/// The data file with these tables behind the sample's own.
pub fn sample_database(more: &[WrittenTable]) -> Vec<u8> {
    let mut writer = DatabaseWriter::default();
    let documents = documents(&mut writer);
    let own = [orders(), heap(), documents, packed(1), packed(2)];
    own.iter().chain(more).fold(writer, DatabaseWriter::table).finish()
}
