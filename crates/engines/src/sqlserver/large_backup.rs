//! Writes a full backup of any size, for measurements: one table with ordinary columns, whose pages are a function of a seed
//! and of their number. A later full of the same database has other values in some of its pages.

use std::io::{self, Write};

use uuid::Uuid;

use super::allocation::{self, INTERVAL, PFS};
use super::configuration::BackupKind;
use super::page::{EXTENT, PAGE, PAGES_PER_EXTENT, PageId, seal};
use super::tables_out::data_page::kind;
use super::tables_out::types::xtype;
use super::tables_out::writer::{
    DatabaseWriter, FIRST_OBJECT, WrittenColumn, WrittenPage, WrittenPartition, WrittenTable, record, utf16,
    written_page,
};
use super::writer::{FamilyWriter, sample_label, sample_log, sample_set};

/// Rows of a page: each has at most 131 bytes, and two for its slot.
const ROWS: u64 = 60;
/// Pages that the system tables have, at most. The rows begin behind them.
const SYSTEM_PAGES: u32 = 64;
/// Bytes of log.
const LOG: usize = 256 << 10;
/// The first order was placed on this day, counted from 1 January of year 1: 1 January 2020.
const FIRST_DAY: u64 = 737_424;

/// A backup to write.
#[derive(Debug, Clone, Copy)]
pub struct LargeBackup {
    /// Bytes of its pages, at least 1 MiB. They are rounded up to whole extents.
    pub size: u64,
    /// The rows are a function of it.
    pub seed: u64,
    /// Pages of rows that differ from those of the first full, in 10,000.
    pub changed: u64,
    /// WITH CHECKSUM.
    pub has_checksums: bool,
}

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LargeWritten {
    /// Pages in all.
    pub pages: u64,
    /// Pages of rows.
    pub row_pages: u64,
    /// Pages of rows that differ from those of the first full.
    pub changed_pages: u64,
    /// Rows.
    pub rows: u64,
}

impl LargeBackup {
    /// Writes the family.
    ///
    /// # Errors
    /// As of `out`.
    ///
    /// # Panics
    /// The size is below 1 MiB, or above that of a file of SQL Server.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<LargeWritten> {
        let extents = self.size.div_ceil(EXTENT as u64);
        let pages = u32::try_from(extents).ok().and_then(|extents| extents.checked_mul(PAGES_PER_EXTENT));
        let pages = pages.filter(|pages| *pages >= 2 * SYSTEM_PAGES).expect("a file has 1 MiB to 32 TiB");
        let row_pages = (SYSTEM_PAGES..pages).filter(|page| !page.is_multiple_of(INTERVAL)).count() as u64;
        let image = self.system_pages(pages, row_pages);
        let mut written = LargeWritten { pages: pages.into(), row_pages, rows: row_pages * ROWS, changed_pages: 0 };
        let mut set = sample_set(BackupKind::Full, if self.changed > 0 { 2 } else { 1 });
        set.header.position = 1;
        set.header.guid = Uuid::from_u64_pair(self.seed, self.changed);
        set.configuration.database.has_checksums = self.has_checksums;
        set.configuration.database.size = extents * EXTENT as u64;
        if let Some(file) = set.configuration.files.first_mut() {
            (file.size, file.backup_bytes) = (extents * EXTENT as u64, extents * EXTENT as u64);
        }
        set.logs = vec![sample_log(LOG)];
        let mut label = sample_label(1, 1);
        label.stripe.media_set = Uuid::from_u64_pair(!self.seed, self.changed);
        let mut number = 0;
        let mut next = |extent: &mut [u8; EXTENT]| {
            for into in extent.as_chunks_mut::<PAGE>().0 {
                match image.as_chunks::<PAGE>().0.get(number as usize) {
                    Some(page) => *into = *page,
                    None => {
                        written.changed_pages += u64::from(self.is_changed(number));
                        *into = *self.page(number, pages);
                    }
                }
                number += 1;
            }
        };
        let family = FamilyWriter::new(&label, 512).long_set(&set, extents, &mut next, out)?;
        out.write_all(&family.finish())?;
        Ok(written)
    }

    /// The pages before the rows.
    fn system_pages(&self, pages: u32, row_pages: u64) -> Vec<u8> {
        let partition = WrittenPartition {
            stored_rows: (row_pages * ROWS).cast_signed(),
            elsewhere: Some(SYSTEM_PAGES),
            ..WrittenPartition::default()
        };
        let table =
            WrittenTable { name: "Orders".into(), columns: columns(), partitions: vec![partition], is_heap: false };
        let mut image = DatabaseWriter::default().table(&table).finish_before(pages.min(INTERVAL));
        assert!(image.len() <= SYSTEM_PAGES as usize * PAGE, "the system tables are before the rows");
        // Pages in use have headers.
        for number in (image.len() / PAGE) as u32..SYSTEM_PAGES {
            image.extend_from_slice(&written_page(number, kind::DATA, (1, 1), 0, &WrittenPage::default())[..]);
        }
        image
    }

    fn is_changed(&self, page: u32) -> bool {
        !page.is_multiple_of(INTERVAL) && mixed(self.seed ^ 0xC4A6 ^ u64::from(page) << 20) % 10_000 < self.changed
    }

    /// A page behind the system tables: rows, or the PFS page of its interval.
    fn page(&self, number: u32, pages: u32) -> Box<[u8; PAGE]> {
        if number.is_multiple_of(INTERVAL) {
            let mut page = Box::new([0; PAGE]);
            let in_use: Vec<u32> = (0..(pages - number).min(INTERVAL)).collect();
            allocation::mark(&mut page, &in_use);
            seal(&mut page, PageId { file: 1, page: number }, PFS);
            return page;
        }
        let next = if (number + 1).is_multiple_of(INTERVAL) { number + 2 } else { number + 1 };
        let next = if next < pages { next } else { 0 };
        // As many PFS pages are before it.
        let place = u64::from(number - SYSTEM_PAGES - number / INTERVAL);
        let first = place * ROWS;
        let change = if self.is_changed(number) { self.changed } else { 0 };
        let rows = (first..first + ROWS).map(|id| row(id, self.seed, change)).collect();
        written_page(number, kind::DATA, (FIRST_OBJECT, 1), next, &WrittenPage::of(rows))
    }
}

/// The columns of `Orders`.
fn columns() -> Vec<WrittenColumn> {
    let always = |column: WrittenColumn| WrittenColumn { status: 1, stored_status: 0x80, ..column };
    vec![
        always(WrittenColumn::new("OrderID", xtype::INT, 4, 4)),
        always(WrittenColumn::new("CustomerID", xtype::BIGINT, 8, 8)),
        always(WrittenColumn::new("Placed", xtype::DATETIME2, 8, 16).digits(0, 7)),
        WrittenColumn::new("Amount", xtype::DECIMAL, 9, 24).digits(18, 2),
        WrittenColumn::new("Weight", xtype::FLOAT, 8, 33),
        WrittenColumn::new("Shipped", xtype::DATE, 3, 41),
        WrittenColumn::new("Reference", xtype::UNIQUEIDENTIFIER, 16, 44),
        WrittenColumn::new("Status", xtype::TINYINT, 1, 60),
        WrittenColumn::new("Customer", xtype::NVARCHAR, 80, -1),
        WrittenColumn::new("Note", xtype::VARCHAR, 100, -2),
    ]
}

/// A row: each tenth has no date of shipping and no note.
fn row(id: u64, seed: u64, change: u64) -> Vec<u8> {
    let random = mixed(seed ^ id.wrapping_mul(0x9E37));
    let other = mixed(random);
    let amount = (mixed(random ^ change) % 10_000_000).to_le_bytes();
    let ticks = (random >> 8) % (86_400 * 10_000_000);
    let day = (FIRST_DAY + id / 10_000 % 2_000).to_le_bytes();
    let is_open = id.is_multiple_of(10);
    let mut fixed = Vec::with_capacity(60);
    fixed.extend_from_slice(&(id as u32).to_le_bytes());
    fixed.extend_from_slice(&(other % 1_000_000).to_le_bytes());
    fixed.extend_from_slice(&ticks.to_le_bytes()[..5]);
    fixed.extend_from_slice(&day[..3]);
    fixed.push(1);
    fixed.extend_from_slice(&amount);
    fixed.extend_from_slice(&((random >> 40) as f64 / 16.0).to_le_bytes());
    fixed.extend_from_slice(&day[..3]);
    fixed.extend_from_slice(&random.to_le_bytes());
    fixed.extend_from_slice(&other.to_le_bytes());
    fixed.push((random % 5) as u8);
    let customer = utf16(&format!("{} {}", word(other), word(other >> 16)));
    let note = format!("{} {} {}", word(random), word(random >> 16), word(random >> 32));
    match is_open {
        true => record(&fixed, 10, &[5, 9], &[(false, &customer)]),
        false => record(&fixed, 10, &[], &[(false, &customer), (false, note.as_bytes())]),
    }
}

fn word(number: u64) -> &'static str {
    const WORDS: [&str; 16] = [
        "delivery", "Anderson", "blue", "express", "Miller", "parcel", "north", "window", "Tanaka", "return", "gift",
        "harbour", "Weber", "paper", "quick", "silver",
    ];
    WORDS.get((number % 16) as usize).copied().unwrap_or_default()
}

/// The number, with all its bits mixed (SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Cursor;

    use super::super::super::engine::{ForeignFamily, ForeignTables};
    use super::super::compressed::Writer;
    use super::super::tables_out::data_files::DataFiles;
    use super::super::tables_out::tables::{About, DatabaseTables};
    use super::super::walk::{Content, Depth, Event, walk};
    use super::super::{opened, verify};
    use super::*;
    use crate::foreign_set::bytes::InOrder;

    const SMALL: LargeBackup = LargeBackup { size: 70 << 20, seed: 7, changed: 0, has_checksums: true };

    fn family(bytes: &[u8]) -> ForeignFamily {
        ForeignFamily { device: "large.bak".into(), bytes: Box::new(InOrder(Cursor::new(bytes.to_vec()))) }
    }

    fn pages(bytes: &[u8]) -> Vec<u8> {
        let mut pages = Vec::new();
        let mut input = opened::open(family(bytes)).unwrap();
        walk(&mut input, Depth::Everything, &mut |event| {
            if let Event::Piece { content: Content::Pages, bytes, .. } = event {
                pages.extend_from_slice(bytes);
            }
            Ok(())
        })
        .unwrap();
        pages
    }

    #[test]
    fn a_large_backup_is_right_and_has_as_many_rows_as_it_says() {
        let mut bytes = Vec::new();
        let written = SMALL.write(&mut bytes).unwrap();
        // More than one interval of PFS pages.
        assert_eq!((written.pages, written.row_pages), (70 * 128, 70 * 128 - 64 - 1));
        let found = verify::verify(vec![family(&bytes)], None).unwrap();
        assert!(found.damage.is_empty() && found.warnings.is_empty(), "{found:?}");
        let mut files = DataFiles::default();
        files.add_bytes(1, pages(&bytes));
        let tables = DatabaseTables::open(files, 1033, About::default()).unwrap();
        let (mut rows, mut nulls) = (0, 0);
        let all: Vec<usize> = (0..10).collect();
        tables
            .read(0, &all, &mut |cells| {
                assert_eq!(cells.first(), Some(&crate::Cell::Int(rows)));
                rows += 1;
                nulls += cells.iter().filter(|cell| **cell == crate::Cell::Null).count();
                Ok(())
            })
            .unwrap();
        assert_eq!((rows.cast_unsigned(), nulls as u64), (written.rows, written.rows / 10 * 2));
        assert_eq!(tables.tables()[0].stored_rows, Some(written.rows));
    }

    #[test]
    fn a_later_full_differs_in_as_many_pages_as_it_says_and_a_packed_one_is_the_same_stream() {
        let (mut first, mut second, mut packed) = (Vec::new(), Vec::new(), Vec::new());
        let backup = LargeBackup { size: 8 << 20, ..SMALL };
        backup.write(&mut first).unwrap();
        let written = LargeBackup { changed: 500, ..backup }.write(&mut second).unwrap();
        let (before, after) = (pages(&first), pages(&second));
        let differ = before.chunks(PAGE).zip(after.chunks(PAGE)).filter(|(before, after)| before != after).count();
        assert_eq!(differ as u64, written.changed_pages);
        assert!((30..70).contains(&differ), "{differ}");
        let start = &first[..1 << 20];
        Writer::pack(&mut &start[..], &mut packed).unwrap();
        assert!(packed == Writer::of_stream(start).container);
    }
}
