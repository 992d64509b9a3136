//! Writes the data file of a small database with system tables, for tests and fuzz targets.

use super::super::allocation::{self, PFS};
use super::super::page::{EXTENT, PAGE, PAGES_PER_EXTENT, PageId, seal};
use super::data_page::kind;
use super::types::xtype;

/// The collation of these databases: SQL_Latin1_General_CP1_CI_AS.
pub const COLLATION: u32 = 0x3400_D008;
/// The first page that a table may have.
const FIRST_PAGE: u32 = 16;
/// Bytes of a page for records and slots.
const ROOM: usize = PAGE - 96;
/// The object id of the first table of a user.
pub const FIRST_OBJECT: i32 = 1000;

/// A column of a written table.
#[derive(Debug, Clone)]
pub struct WrittenColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub xtype: u8,
    /// The type in the rows, if it is another.
    pub stored_xtype: u8,
    /// Its length in bytes; -1 for `max`.
    pub length: i16,
    /// Digits in all.
    pub precision: u8,
    /// Digits behind the point.
    pub scale: u8,
    /// Status in `syscolpars`.
    pub status: i32,
    /// Status in `sysrscols`.
    pub stored_status: i32,
    /// Above zero an offset, below zero a place among the columns of variable length. 0: the rows do not have it.
    pub offset: i16,
    /// The bit of a `bit`.
    pub bit: u8,
}

impl WrittenColumn {
    /// A column that may be NULL.
    pub fn new(name: &str, number: u8, length: i16, offset: i16) -> Self {
        Self {
            name: name.to_owned(),
            xtype: number,
            stored_xtype: number,
            length,
            precision: 0,
            scale: 0,
            status: 0,
            stored_status: 0,
            offset,
            bit: 0,
        }
    }

    /// The same with a precision and a scale.
    #[must_use]
    pub fn digits(self, precision: u8, scale: u8) -> Self {
        Self { precision, scale, ..self }
    }
}

/// A partition of a written table.
#[derive(Debug, Clone, Default)]
pub struct WrittenPartition {
    /// The records of each page, with bytes before them.
    pub pages: Vec<WrittenPage>,
    /// The number of rows that the database has stored.
    pub stored_rows: i64,
    /// 0 none, 1 ROW, 2 PAGE.
    pub compression: u8,
    /// The first of its pages, if they are behind the image: see [`written_page`].
    pub elsewhere: Option<u32>,
}

/// A page of rows.
#[derive(Debug, Clone, Default)]
pub struct WrittenPage {
    /// Bytes between the header and the first record.
    pub head: Vec<u8>,
    /// The records; an empty one is an empty slot.
    pub records: Vec<Vec<u8>>,
}

impl WrittenPage {
    /// A page with these records.
    pub fn of(records: Vec<Vec<u8>>) -> Self {
        Self { head: Vec::new(), records }
    }
}

/// A written table.
#[derive(Debug, Clone, Default)]
pub struct WrittenTable {
    /// Its name. Its schema is `dbo`.
    pub name: String,
    /// Its columns.
    pub columns: Vec<WrittenColumn>,
    /// Its partitions. Without any, its rows are not in pages.
    pub partitions: Vec<WrittenPartition>,
    /// True for a heap.
    pub is_heap: bool,
}

impl WrittenTable {
    /// A clustered index of one partition and one page.
    pub fn of(name: &str, columns: Vec<WrittenColumn>, records: Vec<Vec<u8>>) -> Self {
        let stored_rows = records.len() as i64;
        let pages = vec![WrittenPage::of(records)];
        let partition = WrittenPartition { pages, stored_rows, ..WrittenPartition::default() };
        Self { name: name.to_owned(), columns, partitions: vec![partition], is_heap: false }
    }
}

/// A record of columns of fixed length, of NULLs and of columns of variable length: true is a value of its own form.
pub fn record(fixed: &[u8], columns: u16, nulls: &[u16], variables: &[(bool, &[u8])]) -> Vec<u8> {
    let status = 0x10 | if variables.is_empty() { 0 } else { 0x20 };
    let mut out = vec![status, 0];
    out.extend_from_slice(&(4 + fixed.len() as u16).to_le_bytes());
    out.extend_from_slice(fixed);
    out.extend_from_slice(&columns.to_le_bytes());
    let bit = |byte: u16| nulls.iter().filter(|null| **null / 8 == byte).map(|null| 1_u8 << (null % 8)).sum::<u8>();
    out.extend((0..columns.div_ceil(8)).map(bit));
    if !variables.is_empty() {
        out.extend_from_slice(&(variables.len() as u16).to_le_bytes());
        let mut end = out.len() + 2 * variables.len();
        for (is_complex, bytes) in variables {
            end += bytes.len();
            out.extend_from_slice(&(end as u16 | if *is_complex { 0x8000 } else { 0 }).to_le_bytes());
        }
        variables.iter().for_each(|(_, bytes)| out.extend_from_slice(bytes));
    }
    out
}

/// A part of a value on a text page: `kind` as in [`lob`](super::lob), and what follows it.
pub fn fragment(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut out = vec![8, 0];
    out.extend_from_slice(&(14 + content.len() as u16).to_le_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(content);
    out
}

/// A data file that is being written.
pub struct DatabaseWriter {
    pages: Vec<Option<Box<[u8; PAGE]>>>,
    units: Vec<Vec<u8>>,
    rowsets: Vec<Vec<u8>>,
    stored_columns: Vec<Vec<u8>>,
    objects: Vec<Vec<u8>>,
    columns: Vec<Vec<u8>>,
    defaults: Vec<Vec<u8>>,
    next_object: i32,
}

/// Where the pages of a unit are.
#[derive(Default, Clone, Copy)]
struct Chain {
    first: u32,
    iam: u32,
}

impl Default for DatabaseWriter {
    fn default() -> Self {
        Self {
            pages: vec![None; FIRST_PAGE as usize],
            units: Vec::new(),
            rowsets: Vec::new(),
            stored_columns: Vec::new(),
            objects: Vec::new(),
            columns: Vec::new(),
            defaults: Vec::new(),
            next_object: FIRST_OBJECT,
        }
    }
}

impl DatabaseWriter {
    /// Writes a page of parts of values; gives its number.
    pub fn text_page(&mut self, records: &[Vec<u8>]) -> u32 {
        let number = self.reserve(1);
        self.put(number, kind::TEXT_MIXED, (0, 0), 0, &WrittenPage::of(records.to_vec()));
        number
    }

    /// The number that the next page will have.
    pub fn next_page(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Writes the value that older rows have in a column, as `sql_variant`. `table` is counted from 0.
    pub fn default_value(&mut self, table: i32, column: i64, value: &[u8]) {
        let mut fixed = vec![1];
        fixed.extend_from_slice(&rowset_id(FIRST_OBJECT + table, 1).to_le_bytes());
        fixed.extend_from_slice(&column.to_le_bytes());
        fixed.extend_from_slice(&0_i32.to_le_bytes());
        self.defaults.push(record(&fixed, 6, &[5], &[(false, value)]));
    }

    /// Adds a table.
    #[must_use]
    pub fn table(mut self, table: &WrittenTable) -> Self {
        let object = self.next_object;
        self.next_object += 1;
        self.object(object, 1, *b"U ", &table.name);
        let index = i32::from(!table.is_heap);
        for (column, number) in table.columns.iter().zip(1_u16..) {
            let mut fixed = object.to_le_bytes().to_vec();
            fixed.extend_from_slice(&[0, 0]);
            fixed.extend_from_slice(&i32::from(number).to_le_bytes());
            fixed.push(column.xtype);
            fixed.extend_from_slice(&i32::from(column.xtype).to_le_bytes());
            fixed.extend_from_slice(&column.length.to_le_bytes());
            fixed.extend_from_slice(&[column.precision, column.scale]);
            fixed.extend_from_slice(&COLLATION.to_le_bytes());
            fixed.extend_from_slice(&column.status.to_le_bytes());
            fixed.extend_from_slice(&[0; 14]);
            self.columns.push(record(&fixed, 16, &[], &[(false, &utf16(&column.name))]));
        }
        for (partition, number) in table.partitions.iter().zip(1..) {
            let id = rowset_id(object, number);
            let unit = (object, index);
            let chain = match partition.elsewhere {
                Some(first) => Chain { first, iam: 0 },
                None => self.chain(&partition.pages, unit, table.is_heap),
            };
            self.unit(unit_id(unit), id, chain);
            self.rowset(id, (object, index, number), partition);
            let stored = table.columns.iter().zip(1..).filter(|(column, _)| column.offset != 0);
            for ((column, number), ordinal) in stored.zip(1..) {
                self.stored_column(id, column, number, ordinal);
            }
        }
        self
    }

    /// The bytes of the file, up to its last extent in use.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.finish_before(0)
    }

    /// The same, with all pages behind these bytes in use up to page `end` of the first PFS interval.
    #[must_use]
    pub fn finish_before(mut self, end: u32) -> Vec<u8> {
        let schema = record(&[&[50][..], &1_i32.to_le_bytes(), &[0; 30]].concat(), 8, &[], &[(false, &utf16("dbo"))]);
        let tables: [(i32, Vec<Vec<u8>>); 5] = [
            (3, std::mem::take(&mut self.stored_columns)),
            (34, std::mem::take(&mut self.objects)),
            (41, std::mem::take(&mut self.columns)),
            (64, vec![schema]),
            (9, std::mem::take(&mut self.defaults)),
        ];
        for (object, records) in tables {
            let stored_rows = records.len() as i64;
            let chain = self.chain(&in_pages(records), (object, 1), false);
            self.unit(unit_id((object, 1)), rowset_id(object, 1), chain);
            let partition = WrittenPartition { stored_rows, ..WrittenPartition::default() };
            self.rowset(rowset_id(object, 1), (object, 1, 1), &partition);
        }
        let rowsets = in_pages(std::mem::take(&mut self.rowsets));
        let chain = self.chain(&rowsets, (5, 0), false);
        self.unit(unit_id((5, 0)), 5 << 16, chain);
        let units = in_pages(std::mem::take(&mut self.units));
        let chain = self.chain(&units, (7, 0), false);
        self.boot(chain.first);
        self.image(end)
    }

    fn image(mut self, end: u32) -> Vec<u8> {
        self.put(0, 15, (0, 0), 0, &WrittenPage::default());
        let extents = (self.pages.len() as u32).div_ceil(PAGES_PER_EXTENT);
        assert!(extents * PAGES_PER_EXTENT < allocation::INTERVAL, "one PFS page says which pages are in use");
        self.pages.resize((extents * PAGES_PER_EXTENT) as usize, None);
        let used = (0..).zip(&self.pages).filter(|(number, page)| *number == 1 || page.is_some());
        let used: Vec<u32> = used.map(|(number, _)| number).chain(self.pages.len() as u32..end).collect();
        let mut map = Box::new([0; PAGE]);
        allocation::mark(&mut map, &used);
        seal(&mut map, PageId { file: 1, page: 1 }, PFS);
        self.pages[1] = Some(map);
        let mut image = Vec::with_capacity(extents as usize * EXTENT);
        self.pages.iter().for_each(|page| image.extend_from_slice(page.as_deref().unwrap_or(&[0; PAGE])));
        image
    }

    fn reserve(&mut self, pages: u32) -> u32 {
        let first = self.pages.len() as u32;
        self.pages.resize((first + pages) as usize, None);
        first
    }

    /// Writes pages that follow each other, and for a heap an IAM page with the first as a single page.
    fn chain(&mut self, pages: &[WrittenPage], unit: (i32, i32), is_heap: bool) -> Chain {
        if pages.is_empty() {
            return Chain::default();
        }
        let first = self.reserve(pages.len() as u32);
        for (page, number) in pages.iter().zip(first..) {
            let is_last = number + 1 == first + pages.len() as u32;
            let next = if is_last || is_heap { 0 } else { number + 1 };
            self.put(number, kind::DATA, unit, next, page);
        }
        let iam = if is_heap { self.iam(unit, first, pages.len() as u32) } else { 0 };
        Chain { first: if is_heap { 0 } else { first }, iam }
    }

    /// The first page is a single one; the others are named by their extents.
    fn iam(&mut self, unit: (i32, i32), first: u32, count: u32) -> u32 {
        let number = self.reserve(1);
        let mut head = vec![0; 94];
        head[40..46].copy_from_slice(&pointer(0));
        head[40 + 4] = 1;
        head[46..52].copy_from_slice(&pointer(first));
        let mut map = vec![0; 4 + 7988];
        for page in first + 1..first + count {
            map[4 + (page / 8 / 8) as usize] |= 1 << (page / 8 % 8);
        }
        // The single page must not be read twice.
        if (first + 1..first + count).any(|page| page / 8 == first / 8) {
            head[46..52].fill(0);
        }
        self.put(number, kind::IAM, unit, 0, &WrittenPage::of(vec![head, map]));
        number
    }

    fn put(&mut self, number: u32, kind: u8, unit: (i32, i32), next: u32, written: &WrittenPage) {
        self.pages[number as usize] = Some(written_page(number, kind, unit, next, written));
    }

    fn boot(&mut self, units: u32) {
        let mut head = vec![0; 600];
        head[4..6].copy_from_slice(&904_u16.to_le_bytes());
        head[392..396].copy_from_slice(&COLLATION.to_le_bytes());
        head[516..522].copy_from_slice(&pointer(units));
        self.put(9, kind::BOOT, (0, 0), 0, &WrittenPage { head, records: Vec::new() });
    }

    fn unit(&mut self, id: i64, rowset: i64, chain: Chain) {
        let mut fixed = id.to_le_bytes().to_vec();
        fixed.push(1);
        fixed.extend_from_slice(&rowset.to_le_bytes());
        fixed.extend_from_slice(&[0; 6]);
        fixed.extend_from_slice(&pointer(chain.first));
        fixed.extend_from_slice(&pointer(chain.first));
        fixed.extend_from_slice(&pointer(chain.iam));
        fixed.extend_from_slice(&[0; 24]);
        self.units.push(record(&fixed, 11, &[], &[]));
    }

    fn rowset(&mut self, id: i64, of: (i32, i32, i32), partition: &WrittenPartition) {
        let mut fixed = id.to_le_bytes().to_vec();
        fixed.push(1);
        fixed.extend_from_slice(&of.0.to_le_bytes());
        fixed.extend_from_slice(&of.1.to_le_bytes());
        fixed.extend_from_slice(&of.2.to_le_bytes());
        fixed.extend_from_slice(&[0; 6]);
        fixed.extend_from_slice(&partition.stored_rows.to_le_bytes());
        fixed.push(partition.compression);
        fixed.extend_from_slice(&[0; 15]);
        self.rowsets.push(record(&fixed, 14, &[], &[]));
    }

    fn stored_column(&mut self, rowset: i64, column: &WrittenColumn, number: i32, ordinal: i32) {
        let (second, third) = match column.stored_xtype {
            xtype::DECIMAL | xtype::NUMERIC => (column.precision, column.scale),
            xtype::TIME | xtype::DATETIME2 | xtype::DATETIMEOFFSET => (column.scale, 0),
            _ => (column.length.to_le_bytes()[0], column.length.to_le_bytes()[1]),
        };
        let mut fixed = rowset.to_le_bytes().to_vec();
        fixed.extend_from_slice(&number.to_le_bytes());
        fixed.extend_from_slice(&ordinal.to_le_bytes());
        fixed.extend_from_slice(&[0; 8]);
        fixed.extend_from_slice(&[column.stored_xtype, second, third, 0]);
        fixed.extend_from_slice(&COLLATION.to_le_bytes());
        fixed.extend_from_slice(&[0; 4]);
        fixed.extend_from_slice(&column.stored_status.to_le_bytes());
        fixed.extend_from_slice(&i32::from(column.offset).to_le_bytes());
        fixed.extend_from_slice(&ordinal.to_le_bytes());
        fixed.extend_from_slice(&u16::from(column.bit).to_le_bytes());
        self.stored_columns.push(record(&fixed, 14, &[], &[]));
    }

    fn object(&mut self, id: i32, schema: i32, kind: [u8; 2], name: &str) {
        let mut fixed = id.to_le_bytes().to_vec();
        fixed.extend_from_slice(&schema.to_le_bytes());
        fixed.extend_from_slice(&[0; 5]);
        fixed.extend_from_slice(&kind);
        fixed.extend_from_slice(&[0; 25]);
        self.objects.push(record(&fixed, 12, &[], &[(false, &utf16(name))]));
    }
}

/// Page `number` of file 1, of the allocation unit `unit` (object and index). `next` is the page behind it, 0 for none.
pub fn written_page(number: u32, kind: u8, unit: (i32, i32), next: u32, written: &WrittenPage) -> Box<[u8; PAGE]> {
    let mut page = Box::new([0; PAGE]);
    page[6..8].copy_from_slice(&(unit.1 as u16).to_le_bytes());
    page[24..28].copy_from_slice(&unit.0.to_le_bytes());
    if next > 0 {
        page[16..22].copy_from_slice(&pointer(next));
    }
    page[22..24].copy_from_slice(&(written.records.len() as u16).to_le_bytes());
    page[96..96 + written.head.len()].copy_from_slice(&written.head);
    let mut at = 96 + written.head.len();
    for (slot, record) in written.records.iter().enumerate() {
        let offset = if record.is_empty() { 0 } else { at as u16 };
        page[at..at + record.len()].copy_from_slice(record);
        at += record.len();
        let slot_at = PAGE - 2 * (slot + 1);
        assert!(at <= slot_at, "the records of a page fit into it");
        page[slot_at..slot_at + 2].copy_from_slice(&offset.to_le_bytes());
    }
    seal(&mut page, PageId { file: 1, page: number }, kind);
    page
}

fn rowset_id(object: i32, partition: i32) -> i64 {
    i64::from(partition) << 48 | i64::from(object) << 16
}

/// The unit that pages name.
fn unit_id(unit: (i32, i32)) -> i64 {
    i64::from(unit.1) << 48 | i64::from(unit.0) << 16
}

/// A pointer to a page of file 1; 0 is no page.
fn pointer(page: u32) -> [u8; 6] {
    let [a, b, c, d] = page.to_le_bytes();
    [a, b, c, d, u8::from(page > 0), 0]
}

/// A name in UTF-16.
pub fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// Records, as many on each page as fit.
fn in_pages(records: Vec<Vec<u8>>) -> Vec<WrittenPage> {
    let (mut pages, mut left) = (Vec::new(), 0);
    for record in records {
        let needed = record.len() + 2;
        if pages.is_empty() || left < needed {
            pages.push(WrittenPage::default());
            left = ROOM;
        }
        left -= needed;
        pages.iter_mut().rev().take(1).for_each(|page: &mut WrittenPage| page.records.push(record.clone()));
    }
    pages
}
