//! Tables of small databases that the writer makes: each kind of row, and what is refused.
#![allow(clippy::unwrap_used)]

use fullbore_core::Error;
use uuid::Uuid;

use super::super::super::engine::{Cell, Day, ForeignTables, TimeOfDay};
use super::super::page::{PAGE, PageId, seal};
use super::data_files::DataFiles;
use super::sample_database::sample_database;
use super::tables::{About, DatabaseTables};
use super::types::xtype;
use super::writer::{
    COLLATION, DatabaseWriter, WrittenColumn, WrittenPage, WrittenPartition, WrittenTable, fragment, record, utf16,
};

fn open(file: Vec<u8>) -> DatabaseTables {
    let mut files = DataFiles::default();
    files.add_bytes(1, file);
    DatabaseTables::open(files, 1033, About { database: "shop".into(), ..About::default() }).unwrap()
}

fn rows(tables: &DatabaseTables, title: &str) -> Result<Vec<Vec<Cell>>, Error> {
    let place = tables.tables().iter().position(|table| table.title() == title).unwrap();
    let columns: Vec<usize> = (0..tables.tables()[place].columns.len()).collect();
    let mut rows = Vec::new();
    tables.read(place, &columns, &mut |cells| {
        rows.push(cells.to_vec());
        Ok(())
    })?;
    Ok(rows)
}

/// The rows of one table that is alone in its database.
fn alone(table: WrittenTable) -> Result<Vec<Vec<Cell>>, Error> {
    let title = format!("dbo.{}", table.name);
    rows(&open(DatabaseWriter::default().table(&table).finish()), &title)
}

fn refusal(found: Result<Vec<Vec<Cell>>, Error>) -> String {
    let error = found.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    error.to_string()
}

fn int(name: &str, offset: i16) -> WrittenColumn {
    WrittenColumn::new(name, xtype::INT, 4, offset)
}

fn text(value: &str) -> Cell {
    Cell::Text(value.into())
}

fn moment(days: i32, ticks: u64) -> Cell {
    Cell::Moment(Day::since_year_1(days).unwrap(), TimeOfDay::new(ticks).unwrap())
}

/// 4 July 1996, in days since 1 January of year 1.
const JULY: i32 = 728_843;

#[test]
fn a_version_of_a_database_that_was_never_tried_is_noted() {
    let mut file = sample_database(&[]);
    assert_eq!(open(file.clone()).notes(), [""; 0]);
    let boot = file.as_chunks_mut::<PAGE>().0.get_mut(9).unwrap();
    boot[100..102].copy_from_slice(&998_u16.to_le_bytes());
    seal(boot, PageId { file: 1, page: 9 }, 13);
    let tables = open(file);
    assert!(tables.notes()[0].contains("version 998"), "{:?}", tables.notes());
    assert_eq!(tables.tables().len(), open(sample_database(&[])).tables().len());
}

/// Columns of all types of fixed length, with their bytes and their cells.
fn fixed_types() -> Vec<(WrittenColumn, Vec<u8>, Cell)> {
    use xtype::*;
    let of = |number, length, bytes: &[u8], cell| {
        (WrittenColumn::new(&format!("t{number}"), number, length, 1), bytes.to_vec(), cell)
    };
    let dec = |digits, scale| Cell::Decimal { digits, scale };
    let day = JULY.to_le_bytes();
    let day = [day[0], day[1], day[2]];
    let ticks = 469_234_567_890_u64;
    let ticks_5 = ticks.to_le_bytes()[..5].to_vec();
    let id = Uuid::from_u128(0x0123_4567_89AB_CDEF_0123_4567_89AB_CDEF);
    let datetime = [(300_u32 * 3600 + 1).to_le_bytes(), (JULY - 693_595).to_le_bytes()].concat();
    let small = [60_u16.to_le_bytes(), ((JULY - 693_595) as u16).to_le_bytes()].concat();
    let mut columns = vec![
        of(TINYINT, 1, &[200], Cell::Int(200)),
        of(SMALLINT, 2, &(-2_i16).to_le_bytes(), Cell::Int(-2)),
        of(INT, 4, &i32::MIN.to_le_bytes(), Cell::Int(i32::MIN.into())),
        of(BIGINT, 8, &i64::MIN.to_le_bytes(), Cell::Int(i64::MIN)),
        of(MONEY, 8, &(-323_800_i64).to_le_bytes(), dec(-323_800, 4)),
        of(SMALLMONEY, 4, &7_i32.to_le_bytes(), dec(7, 4)),
        of(REAL, 4, &0.1_f32.to_le_bytes(), Cell::Real(0.1)),
        of(FLOAT, 8, &1e300_f64.to_le_bytes(), Cell::Float(1e300)),
        of(DATE, 3, &day, Cell::Date(Day::since_year_1(JULY).unwrap())),
        of(DATETIME, 8, &datetime, moment(JULY, 3600 * 10_000_000 + 30_000)),
        of(SMALLDATETIME, 4, &small, moment(JULY, 3600 * 10_000_000)),
        of(UNIQUEIDENTIFIER, 16, &id.to_bytes_le(), Cell::Uuid(id)),
        of(CHAR, 6, b"caf\xE9  ", text("café  ")),
        of(NCHAR, 4, &utf16("жa"), text("жa")),
        of(BINARY, 3, &[1, 0, 255], Cell::Binary(vec![1, 0, 255])),
        of(TIMESTAMP, 8, &[0, 0, 0, 0, 0, 0, 7, 209], Cell::Binary(vec![0, 0, 0, 0, 0, 0, 7, 209])),
    ];
    let mut scaled = |number, precision, scale, bytes: Vec<u8>, cell| {
        let column = WrittenColumn::new(&format!("s{number}_{scale}"), number, 0, 1);
        columns.push((column.digits(precision, scale), bytes, cell));
    };
    let nines = 10_i128.pow(38) - 1;
    scaled(DECIMAL, 9, 2, vec![1, 0x39, 0x30, 0, 0], dec(12_345, 2));
    scaled(NUMERIC, 38, 38, [&[0][..], &nines.to_le_bytes()].concat(), dec(-nines, 38));
    scaled(TIME, 0, 7, ticks_5.clone(), Cell::Time(TimeOfDay::new(ticks).unwrap()));
    scaled(TIME, 0, 0, vec![1, 0, 0], Cell::Time(TimeOfDay::new(10_000_000).unwrap()));
    scaled(DATETIME2, 0, 7, [&ticks_5[..], &day].concat(), moment(JULY, ticks));
    scaled(DATETIME2, 0, 3, [&[1, 0, 0, 0][..], &day].concat(), moment(JULY, 10_000));
    let offset = (-90_i16).to_le_bytes();
    let zoned = Cell::ZonedMoment(Day::since_year_1(JULY).unwrap(), TimeOfDay::new(ticks).unwrap(), -90);
    scaled(DATETIMEOFFSET, 0, 7, [&ticks_5[..], &day, &offset].concat(), zoned);
    columns
}

#[test]
fn every_type_of_fixed_length_is_decoded_exactly_and_null_is_null() {
    let mut columns = Vec::new();
    let (mut bytes, mut cells) = (Vec::new(), Vec::new());
    for (column, value, cell) in fixed_types() {
        columns.push(WrittenColumn { offset: 4 + bytes.len() as i16, ..column });
        bytes.extend_from_slice(&value);
        cells.push(cell);
    }
    for (bit, value) in [(0, true), (3, false)] {
        let column = WrittenColumn::new(&format!("bit{bit}"), xtype::BIT, 1, 4 + bytes.len() as i16);
        columns.push(WrittenColumn { bit, ..column });
        cells.push(Cell::Bool(value));
    }
    bytes.push(0b0000_0001);
    let count = columns.len() as u16;
    let all_null: Vec<u16> = (0..count).collect();
    let records = vec![record(&bytes, count, &[], &[]), record(&bytes, count, &all_null, &[])];
    let found = alone(WrittenTable::of("t", columns, records)).unwrap();
    assert_eq!(found[0], cells);
    assert!(found[1].iter().all(|cell| *cell == Cell::Null));
}

#[test]
fn columns_of_variable_length_may_be_empty_left_out_or_null() {
    let variable = |name: &str, number, place: i16| WrittenColumn::new(name, number, 100, -place);
    let columns = vec![
        int("id", 4),
        variable("a", xtype::VARCHAR, 1),
        variable("b", xtype::NVARCHAR, 2),
        variable("c", xtype::VARBINARY, 3),
    ];
    let id = |value: i32| value.to_le_bytes();
    let records = vec![
        record(&id(1), 4, &[], &[(false, b"x"), (false, &utf16("ж€")), (false, &[0, 1])]),
        record(&id(2), 4, &[2], &[(false, b""), (false, b""), (false, &[9])]),
        record(&id(3), 4, &[], &[(false, b"only")]),
        record(&id(4), 4, &[], &[]),
    ];
    let found = alone(WrittenTable::of("t", columns, records)).unwrap();
    let bytes = |value: &[u8]| Cell::Binary(value.to_vec());
    assert_eq!(found[0][1..], [text("x"), text("ж€"), bytes(&[0, 1])]);
    assert_eq!(found[1][1..], [text(""), Cell::Null, bytes(&[9])]);
    assert_eq!(found[2][1..], [text("only"), text(""), bytes(&[])]);
    assert_eq!(found[3][1..], [text(""), text(""), bytes(&[])]);
}

/// An entry of 12 bytes: an end, and where the part is.
fn entry(end: u32, page: u32, slot: u16) -> Vec<u8> {
    [&end.to_le_bytes()[..], &page.to_le_bytes(), &[1, 0], &slot.to_le_bytes()].concat()
}

fn inline_root(form: u8, entries: &[Vec<u8>]) -> Vec<u8> {
    [vec![form; 1], vec![0; 11], entries.concat()].concat()
}

#[test]
fn values_outside_of_their_row_are_gathered_from_their_tree() {
    let mut writer = DatabaseWriter::default();
    let page = writer.next_page();
    let node_entry =
        |end: u64, slot: u16| [&end.to_le_bytes()[..], &page.to_le_bytes(), &[1, 0], &slot.to_le_bytes()].concat();
    let head = |count: u16| [5_u16.to_le_bytes(), count.to_le_bytes(), [0, 0]].concat();
    writer.text_page(&[
        fragment(3, b"first,"),
        fragment(3, b"second,"),
        fragment(2, &[head(2), node_entry(6, 0), node_entry(13, 1)].concat()),
        fragment(3, b"third"),
        fragment(0, &[&5_u16.to_le_bytes()[..], &[0; 4], b"small-and-more"].concat()),
        fragment(5, &[head(2), vec![0; 4], entry(13, page, 2), entry(18, page, 3)].concat()),
    ]);
    let pointer = |slot: u16| [&[0; 8][..], &page.to_le_bytes(), &[1, 0], &slot.to_le_bytes()].concat();
    let columns = vec![
        int("id", 4),
        WrittenColumn::new("max", xtype::VARCHAR, -1, -1),
        WrittenColumn::new("txt", xtype::TEXT, 16, -2),
        WrittenColumn::new("img", xtype::IMAGE, 16, -3),
    ];
    let max = inline_root(4, &[entry(13, page, 2), entry(18, page, 3)]);
    let overflow = inline_root(2, &[entry(5, page, 3)]);
    let records = vec![
        record(&[1, 0, 0, 0], 4, &[], &[(true, &max), (false, &pointer(4)), (true, &pointer(5))]),
        record(&[2, 0, 0, 0], 4, &[2], &[(true, &overflow), (false, b""), (false, &pointer(3))]),
        record(&[3, 0, 0, 0], 4, &[], &[(false, b"in its row"), (true, &max), (false, &pointer(3))]),
    ];
    let table = WrittenTable::of("t", columns, records);
    let found = rows(&open(writer.table(&table).finish()), "dbo.t").unwrap();
    let whole = "first,second,third";
    assert_eq!(found[0][1..], [text(whole), text("small"), Cell::Binary(whole.into())]);
    assert_eq!(found[1][1..], [text("third"), Cell::Null, Cell::Binary(b"third".to_vec())]);
    assert_eq!(found[2][1..], [text("in its row"), text(whole), Cell::Binary(b"third".to_vec())]);
}

#[test]
fn a_ring_of_parts_a_wrong_length_and_a_missing_part_are_refused() {
    for (slot, end) in [(0, 6), (1, 7), (2, 5), (9, 5)] {
        let mut writer = DatabaseWriter::default();
        let page = writer.next_page();
        let head = [5_u16.to_le_bytes(), 1_u16.to_le_bytes(), [0, 0]].concat();
        let node = [&3_u64.to_le_bytes()[..], &page.to_le_bytes(), &[1, 0, 0, 0]].concat();
        writer.text_page(&[fragment(2, &[&head[..], &node].concat()), fragment(3, b"parts"), fragment(7, b"")]);
        let root = inline_root(4, &[entry(end, page, slot)]);
        let columns = vec![int("id", 4), WrittenColumn::new("max", xtype::VARCHAR, -1, -1)];
        let table = WrittenTable::of("t", columns, vec![record(&[1, 0, 0, 0], 2, &[], &[(true, &root)])]);
        let why = refusal(rows(&open(writer.table(&table).finish()), "dbo.t"));
        assert!(why.contains("dbo.t") && why.contains("value") || why.contains("slot"), "{why}");
    }
}

#[test]
fn a_heap_gives_each_row_once_and_no_deleted_one() {
    let row = |id: i32, status: u8| {
        let mut record = record(&id.to_le_bytes(), 1, &[], &[]);
        record[0] |= status;
        record
    };
    // 2: moved here, 4: moved away, 12: deleted.
    let stub = [&[4][..], &[0; 8]].concat();
    let mut pages = vec![WrittenPage::of(vec![row(1, 0), stub, row(3, 12), Vec::new(), row(4, 0)])];
    pages.extend((1..20).map(|page| WrittenPage::of(vec![row(page * 10, 0), row(page * 10 + 1, 2)])));
    let partition = WrittenPartition { pages, stored_rows: 40, ..WrittenPartition::default() };
    let table =
        WrittenTable { name: "h".into(), columns: vec![int("id", 4)], partitions: vec![partition], is_heap: true };
    let mut found: Vec<i64> = alone(table)
        .unwrap()
        .into_iter()
        .map(|row| match row[0] {
            Cell::Int(value) => value,
            _ => panic!("{row:?}"),
        })
        .collect();
    found.sort_unstable();
    let expected: Vec<i64> = [1, 4].into_iter().chain((1..20).flat_map(|page| [page * 10, page * 10 + 1])).collect();
    assert_eq!(found, expected);
}

#[test]
fn partitions_are_read_one_after_the_other() {
    let page = |ids: &[i32]| WrittenPage::of(ids.iter().map(|id| record(&id.to_le_bytes(), 1, &[], &[])).collect());
    let partition = |pages: Vec<WrittenPage>| WrittenPartition { stored_rows: 2, pages, ..WrittenPartition::default() };
    let partitions = vec![partition(vec![page(&[1, 2])]), partition(vec![]), partition(vec![page(&[3]), page(&[4])])];
    let table = WrittenTable { name: "p".into(), columns: vec![int("id", 4)], partitions, is_heap: false };
    let tables = open(DatabaseWriter::default().table(&table).finish());
    assert_eq!(tables.tables()[0].stored_rows, Some(6));
    let found = rows(&tables, "dbo.p").unwrap();
    assert_eq!(found, [1, 2, 3, 4].map(|id| vec![Cell::Int(id)]));
}

#[test]
fn rows_that_are_older_than_a_column_have_its_default_or_null() {
    let columns = vec![
        int("id", 4),
        int("later", 8),
        int("with_default", 12),
        WrittenColumn { stored_status: 0x80, ..WrittenColumn::new("named", xtype::NVARCHAR, 40, -1) },
    ];
    let old = record(&[1, 0, 0, 0], 1, &[], &[]);
    let table = WrittenTable::of("t", columns, vec![old]);
    let mut writer = DatabaseWriter::default();
    writer.default_value(0, 3, &[56, 1, 42, 0, 0, 0]);
    let name = [&[231, 1, 40, 0][..], &COLLATION.to_le_bytes(), &utf16("new")].concat();
    writer.default_value(0, 4, &name);
    let found = rows(&open(writer.table(&table).finish()), "dbo.t").unwrap();
    assert_eq!(found, [[Cell::Int(1), Cell::Null, Cell::Int(42), text("new")]]);
    let why = refusal(alone(table));
    assert!(why.contains("no default is stored") && why.contains("column 4"), "{why}");
}

#[test]
fn a_sql_variant_has_a_type_of_its_own_in_each_row() {
    let columns = vec![int("id", 4), WrittenColumn::new("v", xtype::SQL_VARIANT, 8016, -1)];
    let text_of = |number: u8, bytes: &[u8]| [&[number, 1, 100, 0][..], &COLLATION.to_le_bytes(), bytes].concat();
    let variants = [
        (vec![56, 1, 7, 0, 0, 0], Cell::Int(7)),
        (vec![108, 1, 9, 2, 0, 5, 0, 0, 0], Cell::Decimal { digits: -5, scale: 2 }),
        (text_of(167, b"caf\xE9"), text("café")),
        (text_of(239, &utf16("ж ")), text("ж ")),
        (vec![165, 1, 10, 0, 1, 2], Cell::Binary(vec![1, 2])),
        (vec![104, 1, 1], Cell::Bool(true)),
        (vec![42, 1, 0, 1, 0, 0, 0, 0, 0], moment(0, 10_000_000)),
    ];
    let records = variants.iter().map(|(bytes, _)| record(&[0; 4], 2, &[], &[(false, bytes)])).collect();
    let found = alone(WrittenTable::of("t", columns.clone(), records)).unwrap();
    for (row, (_, cell)) in found.iter().zip(&variants) {
        assert_eq!(row[1], *cell);
    }
    for bad in [&[56, 2, 0, 0, 0, 0][..], &[98, 1], &[56, 1, 0], &[108, 1, 40, 2, 0], &[241, 1]] {
        let table = WrittenTable::of("t", columns.clone(), vec![record(&[0; 4], 2, &[], &[(false, bad)])]);
        assert!(refusal(alone(table)).contains("column 2"), "{bad:?}");
    }
}

#[test]
fn sparse_columns_come_from_the_vector_at_the_end_of_the_row() {
    let sparse = |name: &str| WrittenColumn { status: 0x0100_0000, ..WrittenColumn::new(name, xtype::INT, 4, -1) };
    let columns = vec![int("id", 4), sparse("a"), sparse("b"), sparse("c")];
    // B (3) is 3; the vector ends at 12.
    let vector = [5, 0, 1, 0, 3, 0, 12, 0, 3, 0, 0, 0];
    let records = vec![record(&[1, 0, 0, 0], 1, &[], &[(true, &vector)]), record(&[2, 0, 0, 0], 1, &[], &[])];
    let found = alone(WrittenTable::of("t", columns, records)).unwrap();
    assert_eq!(found[0], [Cell::Int(1), Cell::Null, Cell::Int(3), Cell::Null]);
    assert_eq!(found[1], [Cell::Int(2), Cell::Null, Cell::Null, Cell::Null]);
}

#[test]
fn what_cannot_be_decoded_is_refused_by_table_and_column_and_other_tables_are_read() {
    let good = || WrittenTable::of("good", vec![int("id", 4)], vec![record(&[1, 0, 0, 0], 1, &[], &[])]);
    let compressed = |kind| {
        let mut table = good();
        table.name = "bad".into();
        table.partitions[0].compression = kind;
        table
    };
    let with = |column: WrittenColumn| {
        let records = vec![record(&[1, 0, 0, 0], 2, &[], &[(false, &[0xDF, 0xFF, 1])])];
        WrittenTable::of("bad", vec![int("id", 4), column], records)
    };
    let in_memory = WrittenTable { name: "bad".into(), columns: vec![int("id", 4)], ..WrittenTable::default() };
    let encrypted = WrittenColumn { stored_xtype: xtype::VARBINARY, ..WrittenColumn::new("ssn", xtype::CHAR, 11, -1) };
    let filestream = WrittenColumn { status: 0x20, ..WrittenColumn::new("file", xtype::VARBINARY, -1, -1) };
    for (table, why) in [
        (compressed(3), "columnstore"),
        (compressed(9), "number 9"),
        (in_memory, "memory-optimized"),
        (with(encrypted), "Always Encrypted"),
        (with(filestream), "FILESTREAM"),
        (with(WrittenColumn::new("doc", xtype::XML, -1, -1)), "MS-BINXML"),
        (with(WrittenColumn::new("new", 244, -1, -1)), "type 244"),
    ] {
        let tables = open(DatabaseWriter::default().table(&table).table(&good()).finish());
        let shown = tables.tables().iter().find(|table| table.name == "bad").unwrap();
        let column = shown.columns.iter().find_map(|column| column.refused.clone());
        let found = shown.refused.clone().or(column).unwrap_or_else(|| refusal(rows(&tables, "dbo.bad")));
        assert!(found.contains(why), "{why}: {found}");
        assert_eq!(rows(&tables, "dbo.good").unwrap(), [[Cell::Int(1)]]);
    }
}

#[test]
fn xml_comes_out_as_text_and_a_value_that_cannot_be_read_refuses_its_table() {
    let document = b"\xDF\xFF\x01\xB0\x04\xF0\x01a\0\xEF\0\0\x01\xF8\x01\x11\x01&\0\xF7";
    let typed = b"\xDF\xFF\x01\xB0\x04\xF0\x01a\0\xEF\0\0\x01\xF8\x01\x86\x01\xF7";
    let with = |bytes: &[u8]| {
        let columns = vec![int("id", 4), WrittenColumn::new("doc", xtype::XML, -1, -1)];
        let records = vec![record(&[1, 0, 0, 0], 2, &[], &[(false, bytes)])];
        open(DatabaseWriter::default().table(&WrittenTable::of("docs", columns, records)).finish())
    };
    assert_eq!(rows(&with(document), "dbo.docs").unwrap(), [[Cell::Int(1), Cell::Text("<a>&amp;</a>".into())]]);
    assert!(refusal(rows(&with(typed), "dbo.docs")).contains("token 0x86"));
}

#[test]
fn a_computed_column_that_is_not_stored_is_left_out_with_a_note() {
    let computed = WrittenColumn { status: 0x10, ..int("sum", 0) };
    let stored = WrittenColumn { status: 0x10, ..int("kept", 8) };
    let record = record(&[1, 0, 0, 0, 2, 0, 0, 0], 2, &[], &[]);
    let tables = open(
        DatabaseWriter::default()
            .table(&WrittenTable::of("t", vec![int("id", 4), computed, stored], vec![record]))
            .finish(),
    );
    let names: Vec<&str> = tables.tables()[0].columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["id", "kept"]);
    assert!(tables.tables()[0].notes[0].contains("sum"));
    assert_eq!(rows(&tables, "dbo.t").unwrap(), [[Cell::Int(1), Cell::Int(2)]]);
}

#[test]
fn a_page_that_does_not_match_its_checksum_is_damage_and_not_a_refusal() {
    let table = WrittenTable::of("t", vec![int("id", 4)], vec![record(&[1, 0, 0, 0], 1, &[], &[])]);
    let mut file = DatabaseWriter::default().table(&table).finish();
    file[16 * 8192 + 4000] ^= 1;
    let error = rows(&open(file), "dbo.t").unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

#[test]
fn the_sample_database_has_rows_of_each_kind() {
    let tables = open(super::sample_database::sample_database(&[]));
    let count = |title: &str| rows(&tables, title).unwrap().len() as u64;
    for table in tables.tables() {
        assert_eq!(Some(count(&table.title())), table.stored_rows, "{}", table.title());
    }
    let amount = Cell::Decimal { digits: 412, scale: 2 };
    for packed in ["dbo.RowPacked", "dbo.PagePacked"] {
        assert_eq!(rows(&tables, packed).unwrap()[1], [Cell::Int(2), text("PALM"), amount.clone()]);
    }
}

/// The page of the file that has these bytes.
fn page_with(file: &[u8], bytes: &[u8]) -> usize {
    let at = file.windows(bytes.len()).position(|window| window == bytes).unwrap();
    at / PAGE * PAGE
}

/// Changes a page, and puts its checksum right.
fn change(file: &mut [u8], page: usize, change: impl FnOnce(&mut [u8; PAGE])) {
    let bytes: &mut [u8; PAGE] = (&mut file[page..page + PAGE]).try_into().unwrap();
    change(bytes);
    let (kind, id) = (bytes[1], PageId { file: 1, page: (page / PAGE) as u32 });
    seal(bytes, id, kind);
}

#[test]
fn a_system_table_that_has_lost_a_row_is_a_warning() {
    let mut file = sample_database(&[]);
    assert_eq!(open(file.clone()).warnings(), [""; 0]);
    let page = page_with(&file, &utf16("Orders"));
    change(&mut file, page, |page| page[22] -= 1);
    let tables = open(file);
    assert!(tables.warnings().iter().any(|warning| warning.contains("tables or columns may be missing")));
    assert!(tables.tables().len() < 5 || tables.tables().iter().any(|table| table.refused.is_some()));
}

#[test]
fn two_slots_with_one_record_and_a_record_that_reaches_into_the_next_one_are_refused() {
    let row = |id: i32| record(&id.to_le_bytes(), 1, &[], &[]);
    let table = WrittenTable::of("Slots", vec![int("id", 4)], vec![row(0x0103_0507), row(2)]);
    let file = DatabaseWriter::default().table(&table).finish();
    let page = page_with(&file, &row(0x0103_0507));
    let (first, second) = (PAGE - 2, PAGE - 4);
    let mut twice = file.clone();
    change(&mut twice, page, |page| page.copy_within(first..first + 2, second));
    assert!(refusal(rows(&open(twice), "dbo.Slots")).contains("have one record"));
    let mut inside = file;
    change(&mut inside, page, |page| page[second] = page[first] + 3);
    refusal(rows(&open(inside), "dbo.Slots"));
}

#[test]
fn a_part_of_another_value_is_refused() {
    let mut writer = DatabaseWriter::default();
    let page = writer.next_page();
    writer.text_page(&[fragment(0, &[&[3, 0, 0, 0, 0, 0][..], b"abc"].concat())]);
    let pointer = [&7_u64.to_le_bytes()[..], &page.to_le_bytes(), &[1, 0, 0, 0]].concat();
    let columns = vec![int("id", 4), WrittenColumn::new("note", xtype::TEXT, 16, -1)];
    let table = WrittenTable::of("T", columns, vec![record(&[1, 0, 0, 0], 2, &[], &[(false, &pointer)])]);
    let found = rows(&open(writer.table(&table).finish()), "dbo.T");
    assert!(refusal(found).contains("belongs to another value"));
}
