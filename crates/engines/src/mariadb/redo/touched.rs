//! The pages that the followed log initializes or frees, and the bits of the tables of extents that it writes.
//!
//! Such a page may be zero in the data file: recovery restores it. A page that the log does not touch has had its
//! content in the data files since the checkpoint. The answers come from a filter of fixed size: it never forgets a
//! page, but may report a page that the log does not touch. That is more frequent in a longer log.

use super::framing;
use super::record::{Record, records, varint};
use crate::mysql_family::innodb::extents::TABLE_AT;
use crate::mysql_family::innodb::filter::Filter;
use crate::mysql_family::innodb::page::{PAGE_SIZE_MIN, TYPE_AT};

/// A write of more bytes into a page with a table counts as one of the whole page.
const BYTES_MAX: u32 = 512;
/// The subtype of an extended record that cuts a tablespace.
const TRIM_PAGES: u8 = 10;
/// The number for a tablespace as a whole.
const WHOLE: u32 = u32::MAX;

/// The filter. Written by the thread that follows the log, asked by all others.
pub struct Touched {
    filter: Filter,
    encrypted: bool,
}

/// The current place in the records of a mini-transaction: later records give their offsets relative to the record
/// before.
#[derive(Clone, Copy)]
struct TouchedPlace {
    space: u32,
    page: u32,
    offset: u32,
}

impl Touched {
    /// Of a log. In an encrypted one nothing can be read.
    pub fn new(encrypted: bool) -> Self {
        Self { filter: Filter::new(encrypted), encrypted }
    }

    /// Whether the log can be read: in one that cannot, nothing is known of any page.
    pub fn is_known(&self) -> bool {
        !self.encrypted
    }

    /// Takes note of whole mini-transactions.
    pub fn look(&self, mut bytes: &[u8]) {
        while !self.encrypted
            && let Some((records, rest)) = framing::split(bytes)
        {
            self.look_at_one(records);
            bytes = rest;
        }
    }

    /// Whether the log initializes this page, frees it, or writes the byte `byte` of the page `table`, which has its
    /// bits of use.
    pub fn page(&self, space: u32, number: u32, table: u32, byte: u16) -> bool {
        let asked = [(number, 0), (table, 0), (table, byte), (WHOLE, 0)];
        asked.into_iter().any(|(page, byte)| self.filter.holds(space, page, byte))
    }

    /// Whether the log truncates the file of this tablespace, or initializes its first page.
    pub fn size(&self, space: u32) -> bool {
        self.filter.holds(space, WHOLE, 0) || self.filter.holds(space, 0, 0)
    }

    fn look_at_one(&self, bytes: &[u8]) {
        let mut place: Option<TouchedPlace> = None;
        for record in records(bytes) {
            if place.is_none() && record.kind >= 0x80 {
                continue; // About a file.
            }
            place = self.look_at_record(&record, place);
            if place.is_none() {
                return; // Such a record is invalid for the server too.
            }
        }
    }

    /// Takes note of one record about a page; where the next one counts from.
    fn look_at_record(&self, record: &Record<'_>, before: Option<TouchedPlace>) -> Option<TouchedPlace> {
        let (mut place, mut body) = if record.kind & 0x80 != 0 {
            (before?, record.body)
        } else {
            let (space, page, rest) = record.page()?;
            (TouchedPlace { space, page, offset: 0 }, rest)
        };
        match record.kind & 0x70 {
            0x00 | 0x10 => {
                self.put(place, 0);
                place.offset = TYPE_AT as u32;
            }
            0x20 => {
                if body.first() == Some(&TRIM_PAGES) {
                    self.put(TouchedPlace { page: WHOLE, ..place }, 0);
                }
                place.offset = TYPE_AT as u32;
            }
            kind @ (0x30 | 0x40 | 0x50) => {
                let start = place.offset.checked_add(number(&mut body)?)?;
                let length = if kind == 0x30 { body.len() as u32 } else { number(&mut body)? };
                place.offset = start.checked_add(length)?;
                self.put_bytes(place, start);
            }
            _ => {}
        }
        Some(place)
    }

    /// Bytes from `start` up to the place's offset were written.
    fn put_bytes(&self, place: TouchedPlace, start: u32) {
        // The least page has 1 KiB, and tables are only in pages with a multiple of the page size as number.
        if !place.page.is_multiple_of(PAGE_SIZE_MIN) || place.offset <= TABLE_AT as u32 {
            return;
        }
        let start = start.max(TABLE_AT as u32);
        if place.offset - start > BYTES_MAX {
            self.put(place, 0);
            return;
        }
        // Bytes beyond 64 KiB are in no page.
        (start..place.offset).filter_map(|byte| u16::try_from(byte).ok()).for_each(|byte| self.put(place, byte));
    }

    fn put(&self, place: TouchedPlace, byte: u16) {
        self.filter.put(place.space, place.page, byte);
    }
}

/// The number at the start of `body`, which it is taken off.
fn number(body: &mut &[u8]) -> Option<u32> {
    let (value, length) = varint(body).ok()?;
    *body = body.get(length..)?;
    Some(value)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::super::record::{put_record, put_varint};
    use super::super::ring::Ring;
    use super::*;

    /// A body of numbers, and bytes after them.
    fn body(numbers: &[u32], rest: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        numbers.iter().for_each(|number| put_varint(*number, &mut out));
        out.extend_from_slice(rest);
        out
    }

    fn sealed(records: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        records.iter().for_each(|(kind, body)| put_record(*kind, body, &mut bytes));
        framing::seal(&bytes, 12288, &Ring::new(12288, 4 << 20).unwrap(), None)
    }

    fn touched(transactions: &[Vec<(u8, Vec<u8>)>]) -> Touched {
        let touched = Touched::new(false);
        touched.look(&transactions.iter().flat_map(|records| sealed(records)).collect::<Vec<u8>>());
        touched
    }

    #[test]
    fn pages_that_are_made_anew_or_freed_are_touched_and_their_neighbours_are_not() {
        let touched = touched(&[vec![(0x10, body(&[5, 70], &[]))], vec![(0x00, body(&[6, 71], &[]))]]);
        assert!(touched.page(5, 70, 0, 200) && touched.page(6, 71, 0, 200));
        for (space, page) in [(5, 69), (5, 71), (6, 70), (7, 70)] {
            assert!(!touched.page(space, page, 0, 200), "{space} {page}");
        }
        assert!(!touched.size(5));
    }

    #[test]
    fn writes_into_a_table_are_known_by_their_bytes_also_behind_each_other() {
        let touched = touched(&[vec![
            // A file, then page 0: bytes 200 and 201; 10 bytes on, 4 bytes that are set; then 5 that are moved.
            (0xB0, body(&[5, 0], b"./a.ibd")),
            (0x30, body(&[5, 0, 200], &[1, 2])),
            (0x80 | 0x40, body(&[10, 4], &[7])),
            (0x80 | 0x50, body(&[1, 5, 3], &[])),
            // Another page, and one without a table.
            (0x30, body(&[5, 16384, 300], &[1])),
            (0x30, body(&[5, 16385, 300], &[1])),
        ]]);
        let bytes: Vec<u16> = (150..400).filter(|byte| touched.page(5, 9, 0, *byte)).collect();
        assert_eq!(bytes, [200, 201, 212, 213, 214, 215, 217, 218, 219, 220, 221]);
        assert!(touched.page(5, 16390, 16384, 300) && !touched.page(5, 9, 16385, 300));
        assert!(!touched.page(6, 9, 0, 200) && !touched.size(5));
    }

    #[test]
    fn a_table_that_is_made_anew_touches_all_its_pages_and_a_cut_the_whole_tablespace() {
        let touched = touched(&[
            vec![(0x10, body(&[5, 16384], &[])), (0x80 | 0x30, body(&[1], &[3; 9]))],
            vec![(0x20, body(&[6, 640], &[TRIM_PAGES]))],
            vec![(0x10, body(&[7, 0], &[]))],
            vec![(0x30, body(&[8, 0, 100], &[1; 700]))],
        ]);
        assert!(touched.page(5, 20_000, 16384, 155) && !touched.page(5, 9, 0, 155));
        assert!(touched.page(6, 9, 0, 155) && touched.size(6) && !touched.size(5));
        assert!(touched.page(7, 9, 0, 155) && touched.size(7));
        assert!(touched.page(8, 9, 0, 5000));
    }

    #[test]
    fn an_encrypted_log_has_no_known_records() {
        let touched = Touched::new(true);
        touched.look(&sealed(&[(0x10, body(&[5, 70], &[]))]));
        assert!(!touched.is_known());
    }

    proptest! {
        // Each case takes the memory of a filter.
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn every_page_that_was_touched_is_known(pages in prop::collection::vec((any::<u32>(), any::<u32>()), 1..300)) {
            let touched = touched(&[pages.iter().map(|(space, page)| (0x10, body(&[*space, *page], &[]))).collect()]);
            for (space, page) in pages {
                prop_assert!(touched.page(space, page, 0, 200));
            }
        }

        #[test]
        fn any_bytes_are_looked_at(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            let touched = Touched::new(false);
            touched.look(&bytes);
            touched.look_at_one(&bytes);
        }
    }
}
