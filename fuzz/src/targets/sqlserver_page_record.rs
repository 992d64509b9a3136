//! Tables out of pages of SQL Server: a small database with changed bytes, whose checksums are put right, is read to its
//! end or refused. Chains of pages and trees of values may be rings.

use std::sync::OnceLock;

use fullbore_core::Error;
use fullbore_engines::ForeignTables;
use fullbore_engines::sqlserver::page::{PAGE, PageId, seal};
use fullbore_engines::sqlserver::tables_out::data_files::DataFiles;
use fullbore_engines::sqlserver::tables_out::sample_database::sample_database;
use fullbore_engines::sqlserver::tables_out::tables::{About, DatabaseTables};

/// Rows of a table that are read: a ring of parts would only repeat.
const ROWS: usize = 2_000;

/// One input.
pub fn run(input: &[u8]) {
    static GOOD: OnceLock<Vec<u8>> = OnceLock::new();
    let mut file = GOOD.get_or_init(|| sample_database(&[])).clone();
    let pages = file.len() / PAGE;
    // A change: the page, the offset in it (2 bytes), the number of bytes (up to 63), the bytes.
    let mut rest = input;
    while let [page, low, high, length, bytes @ ..] = rest {
        let (bytes, after) = bytes.split_at(bytes.len().min(usize::from(length % 64)));
        let at = usize::from(*page) % pages * PAGE + usize::from(u16::from_le_bytes([*low, *high])) % PAGE;
        let room = bytes.len().min(file.len() - at);
        file[at..at + room].copy_from_slice(&bytes[..room]);
        rest = after;
    }
    for (page, number) in file.as_chunks_mut::<PAGE>().0.iter_mut().zip(0..) {
        if page.iter().any(|byte| *byte != 0) {
            let kind = page[1];
            seal(page, PageId { file: 1, page: number }, kind);
        }
    }
    let mut files = DataFiles::default();
    files.add_bytes(1, file);
    let Ok(tables) = DatabaseTables::open(files, 1033, About::default()) else { return };
    for (place, table) in tables.tables().iter().enumerate() {
        let columns: Vec<usize> = (0..table.columns.len()).collect();
        let mut rows = 0;
        let _ = tables.read(place, &columns, &mut |cells| {
            assert_eq!(cells.len(), columns.len(), "a row has a cell for each column");
            rows += 1;
            if rows < ROWS { Ok(()) } else { Err(Error::Halted) }
        });
    }
}
