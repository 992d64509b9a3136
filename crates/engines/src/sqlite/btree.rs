//! B-tree pages (sqlite.org, "Database File Format", §1.6): the other pages that a page refers to, and the root pages
//! in the schema.

use super::header::{DatabaseHeader, HEADER_SIZE, Malformed, u32_at};

/// Most pages of the schema to read, with overflow pages: 256 MiB of 4 KiB pages.
const SCHEMA_PAGES_LIMIT: usize = 1 << 16;
/// Most bytes to read at the start of a row of the schema: type, two names and the root page.
const SCHEMA_ROW_LIMIT: usize = 1 << 20;
/// Databases with this many pages are too large for [`references`]: an overflow page begins with a page number, and its
/// first byte could be the type of a b-tree page.
pub const TELLING_PAGES: u32 = 0x0200_0000;

const INDEX_INTERIOR: u8 = 2;
const TABLE_INTERIOR: u8 = 5;
const INDEX_LEAF: u8 = 10;
const TABLE_LEAF: u8 = 13;

/// A page of a b-tree.
struct Page<'a> {
    /// The part of the page that SQLite uses.
    bytes: &'a [u8],
    kind: u8,
    /// Where the numbers of the cells begin.
    array: usize,
    cells: usize,
    /// The last child of an interior page.
    right: Option<u32>,
}

/// A cell of a b-tree page.
struct Cell<'a> {
    /// The child to its left, in an interior page.
    child: Option<u32>,
    /// Bytes of its row or key, here and in overflow pages.
    payload: u64,
    /// The part of it in this page.
    local: &'a [u8],
    /// Its first overflow page.
    overflow: Option<u32>,
}

impl<'a> Page<'a> {
    /// Reads page `number`, of which SQLite uses `usable` bytes; `None` if it is not a b-tree page.
    fn parse(number: u32, page: &'a [u8], usable: usize) -> Option<Self> {
        let bytes = page.get(..usable)?;
        let start = if number == 1 { HEADER_SIZE } else { 0 };
        let kind = *bytes.get(start)?;
        let interior = match kind {
            INDEX_INTERIOR | TABLE_INTERIOR => true,
            INDEX_LEAF | TABLE_LEAF => false,
            _ => return None,
        };
        let array = start + if interior { 12 } else { 8 };
        let cells = usize::from(u16::from_be_bytes([*bytes.get(start + 3)?, *bytes.get(start + 4)?]));
        bytes.get(array..array + cells * 2)?;
        let right = interior.then(|| u32_at(bytes, start + 8));
        Some(Self { bytes, kind, array, cells, right })
    }

    /// The valid cells.
    fn cells(&self) -> impl Iterator<Item = Cell<'a>> {
        let (bytes, kind) = (self.bytes, self.kind);
        let array = &bytes[self.array..self.array + self.cells * 2];
        let offsets = array.as_chunks::<2>().0.iter().map(|&two| usize::from(u16::from_be_bytes(two)));
        offsets.filter_map(move |offset| Cell::parse(kind, bytes, offset))
    }
}

impl<'a> Cell<'a> {
    fn parse(kind: u8, bytes: &'a [u8], offset: usize) -> Option<Self> {
        let usable = bytes.len();
        let mut rest = bytes.get(offset..)?;
        let mut child = None;
        if kind == INDEX_INTERIOR || kind == TABLE_INTERIOR {
            child = Some(u32::from_be_bytes(*rest.first_chunk()?));
            rest = &rest[4..];
        }
        if kind == TABLE_INTERIOR {
            return Some(Self { child, payload: 0, local: &[], overflow: None });
        }
        let (payload, length) = varint(rest)?;
        rest = &rest[length..];
        if kind == TABLE_LEAF {
            rest = &rest[varint(rest)?.1..];
        }
        let local = local_bytes(kind, payload, usable);
        let overflow = match local as u64 == payload {
            true => None,
            false => Some(u32::from_be_bytes(*rest.get(local..)?.first_chunk()?)),
        };
        Some(Self { child, payload, local: rest.get(..local)?, overflow })
    }
}

/// How many bytes of a payload are in the cell itself.
fn local_bytes(kind: u8, payload: u64, usable: usize) -> usize {
    let most = if kind == TABLE_LEAF { usable - 35 } else { (usable - 12) * 64 / 255 - 23 };
    if payload <= most as u64 {
        return payload as usize;
    }
    let least = (usable - 12) * 32 / 255 - 23;
    let even = least + ((payload - least as u64) % (usable as u64 - 4)) as usize;
    if even <= most { even } else { least }
}

/// A number of variable length, and how many bytes it takes.
fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (at, &byte) in bytes.iter().take(9).enumerate() {
        if at == 8 {
            return Some((value << 8 | u64::from(byte), 9));
        }
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

/// Calls `found` for each page that page `number`, a page in use, refers to: children and overflow pages. If the
/// database has fewer than [`TELLING_PAGES`] pages and the page is not a pointer map, its first byte tells its kind.
pub fn references(number: u32, page: &[u8], usable: usize, mut found: impl FnMut(u32)) {
    if number > 1 && matches!(page.first(), Some(0 | 1)) {
        // An overflow page or a trunk page of the free-list: both begin with the number of the next page, or 0.
        found(u32_at(page, 0));
        return;
    }
    let Some(tree) = Page::parse(number, page, usable) else { return };
    tree.right.into_iter().for_each(&mut found);
    for cell in tree.cells() {
        cell.child.into_iter().for_each(&mut found);
        cell.overflow.into_iter().for_each(&mut found);
    }
}

/// Why the root pages are unknown.
#[derive(Debug)]
pub enum SchemaError<E> {
    /// The schema breaks the format.
    Corrupt(Malformed),
    /// A page could not be read.
    Read(E),
}

/// The root pages of all tables and indexes and the pages of the schema's own b-tree, sorted. The database has `pages`
/// pages; `read` gives page n (counted from 1).
pub fn roots<E>(
    header: &DatabaseHeader,
    pages: u32,
    mut read: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
) -> Result<Vec<u32>, SchemaError<E>> {
    let usable = header.usable() as usize;
    let corrupt = |why: String| SchemaError::Corrupt(Malformed(why));
    let mut page = vec![0; header.page_size as usize];
    let mut overflow = vec![0; header.page_size as usize];
    // A schema whose pages refer to each other in a circle ends here too.
    let mut seen = 0;
    let mut read = |number: u32, buffer: &mut [u8]| {
        seen += 1;
        if number == 0 || number > pages || seen > SCHEMA_PAGES_LIMIT {
            return Err(corrupt(format!("its schema has page {number}, or more than {SCHEMA_PAGES_LIMIT} pages")));
        }
        read(number, buffer).map_err(SchemaError::Read)
    };
    let (mut roots, mut left) = (Vec::new(), vec![1]);
    while let Some(number) = left.pop() {
        read(number, &mut page)?;
        let tree = Page::parse(number, &page, usable);
        let tree = tree.filter(|tree| matches!(tree.kind, TABLE_LEAF | TABLE_INTERIOR));
        let tree = tree.ok_or_else(|| corrupt(format!("page {number} of its schema is not a table page")))?;
        if tree.cells().count() != tree.cells {
            return Err(corrupt(format!("page {number} of its schema has an invalid cell")));
        }
        roots.push(number);
        left.extend(tree.right);
        for cell in tree.cells() {
            match cell.child {
                Some(child) => left.push(child),
                None => {
                    let row = start_of_row(&cell, usable, pages, &mut overflow, &mut read)?;
                    let root = root_of(&row).ok_or_else(|| corrupt("a row of its schema has no root page".into()))?;
                    // Views, triggers and virtual tables have no page: 0.
                    roots.extend(Some(root).filter(|&root| root != 0));
                }
            }
        }
    }
    roots.sort_unstable();
    roots.dedup();
    Ok(roots)
}

/// The start of a row, up to its root page.
fn start_of_row<E>(
    cell: &Cell<'_>,
    usable: usize,
    pages: u32,
    page: &mut [u8],
    mut read: impl FnMut(u32, &mut [u8]) -> Result<(), SchemaError<E>>,
) -> Result<Vec<u8>, SchemaError<E>> {
    let mut row = cell.local.to_vec();
    let mut next = cell.overflow;
    while root_of(&row).is_none()
        && (row.len() as u64) < cell.payload.min(SCHEMA_ROW_LIMIT as u64)
        && let Some(number) = next.filter(|&number| number > 1 && number <= pages)
    {
        read(number, page)?;
        row.extend_from_slice(&page[4..usable]);
        next = Some(u32_at(page, 0));
    }
    Ok(row)
}

/// The fourth column of a row of the schema ("Database File Format", §2.1 and §2.6); `None` if the bytes end before it,
/// or it is not a page number.
fn root_of(row: &[u8]) -> Option<u32> {
    let (header, mut at) = varint(row)?;
    let header = usize::try_from(header).ok()?;
    let mut value = header;
    for column in 0..4 {
        let (kind, length) = varint(row.get(at..header.min(row.len()))?)?;
        at += length;
        let bytes = match kind {
            0 | 8 | 9 => 0,
            1..=4 => kind,
            5 => 6,
            6 | 7 => 8,
            10 | 11 => return None,
            _ => (kind - 12) / 2,
        };
        let bytes = usize::try_from(bytes).ok()?;
        if column == 3 {
            return match kind {
                0 | 8 => Some(0),
                9 => Some(1),
                1..=6 => {
                    let number = row.get(value..value.checked_add(bytes)?)?;
                    let number =
                        number.iter().try_fold(0_u64, |sum, &byte| sum.checked_mul(256)?.checked_add(byte.into()));
                    u32::try_from(number?).ok()
                }
                _ => None,
            };
        }
        value = value.checked_add(bytes)?;
    }
    None
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A database of SQLite's own making, as bytes.
    fn made(sql: &str) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made.db");
        rusqlite::Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        std::fs::read(&path).unwrap()
    }

    fn page_of(bytes: &[u8], size: usize, number: u32) -> &[u8] {
        &bytes[(number as usize - 1) * size..number as usize * size]
    }

    fn roots_of(bytes: &[u8]) -> Result<Vec<u32>, String> {
        let header = DatabaseHeader::parse(bytes).unwrap();
        let size = header.page_size as usize;
        let read = |number: u32, buffer: &mut [u8]| {
            buffer.copy_from_slice(page_of(bytes, size, number));
            Ok::<(), ()>(())
        };
        roots(&header, (bytes.len() / size) as u32, read).map_err(|error| format!("{error:?}"))
    }

    /// Rows long and short, in a table, an index and a table without row numbers.
    const CONTENT: &str = "CREATE TABLE t(a INTEGER PRIMARY KEY, b); CREATE INDEX tb ON t(b);
        CREATE TABLE w(k PRIMARY KEY, v) WITHOUT ROWID;
        CREATE VIEW v AS SELECT * FROM t;
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
        INSERT INTO t(b) SELECT CASE WHEN i % 97 = 0 THEN zeroblob(i * 9) ELSE 'row ' || i END FROM n;
        INSERT INTO w SELECT a || hex(zeroblob(a % 600)), a FROM t;";

    #[test]
    fn every_page_in_use_is_a_root_or_is_referred_to_once() {
        for pragma in
            ["page_size = 512", "page_size = 4096", "page_size = 65536", "page_size = 1024; PRAGMA auto_vacuum = full"]
        {
            let bytes = made(&format!("PRAGMA {pragma}; {CONTENT}"));
            let header = DatabaseHeader::parse(&bytes).unwrap();
            let (size, usable) = (header.page_size as usize, header.usable() as usize);
            let pages = (bytes.len() / size) as u32;
            let mut found = roots_of(&bytes).unwrap();
            // The pages of the schema's own tree are among the roots, and referred to as well.
            let schema: Vec<u32> = found.clone();
            for number in (1..=pages).filter(|&number| !header.is_pointer_map(number)) {
                let page = page_of(&bytes, size, number);
                references(number, page, usable, |next| {
                    found.extend((next != 0 && !schema.contains(&next)).then_some(next))
                });
            }
            found.sort_unstable();
            let expected: Vec<u32> = (1..=pages).filter(|&number| !header.is_pointer_map(number)).collect();
            assert_eq!(found, expected, "{pragma}");
        }
    }

    #[test]
    fn roots_are_found_behind_names_that_fill_overflow_pages_and_in_a_schema_of_many_pages() {
        let long = "x".repeat(3000);
        let many: String = (0..200).map(|number| format!("CREATE TABLE \"{number}{long}\"(a);")).collect();
        let bytes = made(&format!("PRAGMA page_size = 512; {many}"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("asked.db");
        std::fs::write(&path, &bytes).unwrap();
        let asked = rusqlite::Connection::open(&path).unwrap();
        let mut asked = asked.prepare("SELECT rootpage FROM sqlite_schema").unwrap();
        let expected: Vec<u32> = asked.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        let found = roots_of(&bytes).unwrap();
        assert_eq!(expected.len(), 200);
        assert!(expected.iter().all(|root| found.binary_search(root).is_ok()), "{found:?}");
    }

    #[test]
    fn a_schema_that_runs_in_a_circle_ends_as_a_corrupt_one() {
        let many: String = (0..200).map(|number| format!("CREATE TABLE t{number}(a);")).collect();
        let mut bytes = made(&format!("PRAGMA page_size = 512; {many}"));
        assert_eq!(bytes[100], TABLE_INTERIOR);
        bytes[108..112].copy_from_slice(&1_u32.to_be_bytes());
        assert!(roots_of(&bytes).unwrap_err().contains("more than"));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_parsers_panic(
            seed: u64, kind in proptest::sample::select(vec![0_u8, 1, 2, 5, 10, 13, 77]),
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut bytes: Vec<u8> = (0..512 * 8).map(|_| random.u8(..)).collect();
            bytes[0] = kind;
            bytes[3] = 0;
            references(2, &bytes[..512], 512, |_| ());
            bytes[..100].copy_from_slice(&made_header());
            (bytes[100], bytes[103]) = (TABLE_LEAF, 0);
            let _ = roots_of(&bytes);
            let _ = root_of(&bytes[..random.usize(..512)]);
        }
    }

    fn made_header() -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[..16].copy_from_slice(super::super::header::MAGIC);
        bytes[16..18].copy_from_slice(&512u16.to_be_bytes());
        bytes[18..24].copy_from_slice(&[1, 1, 0, 64, 32, 32]);
        bytes
    }
}
