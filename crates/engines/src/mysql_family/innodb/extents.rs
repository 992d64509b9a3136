//! Extents: finds the pages in use of a tablespace, from the pages that describe them.
//!
//! Page 0, and every page whose number is a multiple of the page size in bytes, describes as many pages as it has
//! bytes. A zero page is healthy if it is free. A zero page in use has lost its content.

use super::bytes::{u16_at, u32_at};
use super::page::{NUMBER_AT, PageFormat, PageState, TYPE_AT};

/// Where the table of extents begins, in bytes from the start of its page.
pub const TABLE_AT: usize = 150;
/// In an entry: the state of the extent, and the bits of its pages.
const STATE_AT: usize = 20;
const BITS_AT: usize = 24;
/// The types of page 0 and of the other pages with a table.
const TYPES: [u16; 2] = [8, 9];
/// The state of an extent that was never taken into use.
const NO_STATE: u32 = 0;

/// Where a tablespace describes its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a page in the file; a table describes as many pages.
    physical: u32,
    /// Pages of an extent.
    extent: u32,
}

impl Layout {
    /// Of a tablespace with such pages.
    pub fn of(format: &PageFormat) -> Self {
        // An extent is 1 MiB, but at least 64 pages: 2 or 4 MiB with pages of 32 and 64 KiB.
        let extent = ((1 << 20) / format.logical_size()).max(64);
        Self { physical: format.physical_size(), extent }
    }

    /// The page whose table describes page `number`.
    pub fn table_of(&self, number: u32) -> u32 {
        number - number % self.physical
    }

    /// Where the table ends, in bytes from the start of its page.
    pub fn table_end(&self) -> usize {
        TABLE_AT + self.entry() * (self.physical / self.extent) as usize
    }

    /// The byte of the table's page with the bits of page `number`.
    pub fn byte_of(&self, number: u32) -> u16 {
        // At most 150 + 1024 × 40, with pages of 64 KiB.
        (self.entry_of(number) + BITS_AT + (number % self.extent) as usize / 4) as u16
    }

    /// Where the entry of the extent of page `number` begins.
    fn entry_of(&self, number: u32) -> usize {
        TABLE_AT + self.entry() * (number % self.physical / self.extent) as usize
    }

    /// Bytes of an entry: after its head, two bits for each page.
    fn entry(&self) -> usize {
        BITS_AT + self.extent as usize / 4
    }
}

/// The table of one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extents {
    layout: Layout,
    /// The page that contains it.
    number: u32,
    /// That page, up to the table's end.
    bytes: Vec<u8>,
}

impl Extents {
    /// The table in page `number`. `None` if it is not readable: the page is encrypted, damaged, zero or of another
    /// type.
    pub fn parse(format: &PageFormat, page: &[u8], number: u32) -> Option<Self> {
        let layout = Layout::of(format);
        let readable = format.check(page, number) == PageState::Valid && format.is_clear(page);
        if !readable || !TYPES.contains(&u16_at(page, TYPE_AT)) || layout.table_of(number) != u32_at(page, NUMBER_AT) {
            return None;
        }
        Some(Self { layout, number, bytes: page.get(..layout.table_end())?.to_vec() })
    }

    /// Whether page `number` is in use: a table, a page of an index, anything that the server reads. False for a page
    /// that another table describes. `limit` is the tablespace's first page that was never taken into use.
    pub fn uses(&self, number: u32, limit: u32) -> bool {
        if self.layout.table_of(number) != self.number || number >= limit {
            return false;
        }
        let state = u32_at(&self.bytes, self.layout.entry_of(number) + STATE_AT);
        let bits = self.bytes.get(usize::from(self.layout.byte_of(number))).copied().unwrap_or(u8::MAX);
        // The first of a page's two bits is set if it is free; bits count from the least.
        state != NO_STATE && bits >> (number % 4 * 2) & 1 == 0
    }

    /// The page that contains the table.
    pub fn number(&self) -> u32 {
        self.number
    }
}

/// A page of extents for tests: every page below `used` is in use, others are free. Its checksum is `full_crc32`.
#[doc(hidden)]
pub fn table_for_tests(format: &PageFormat, number: u32, used: u32) -> Vec<u8> {
    let layout = Layout::of(format);
    let mut page = vec![0; format.physical_size() as usize];
    page[NUMBER_AT..NUMBER_AT + 4].copy_from_slice(&number.to_be_bytes());
    page[TYPE_AT..TYPE_AT + 2].copy_from_slice(&TYPES[usize::from(number > 0)].to_be_bytes());
    for page_number in number..number + format.physical_size() {
        let entry = layout.entry_of(page_number);
        page[entry + STATE_AT + 3] = 4;
        if page_number >= used {
            page[usize::from(layout.byte_of(page_number))] |= 1 << (page_number % 4 * 2);
        }
    }
    super::page::seal_full_crc32(&mut page);
    page
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mysql_family::Dialect;
    use crate::mysql_family::innodb::fixtures;
    use crate::mysql_family::innodb::tablespace::Head;

    /// A format of `full_crc32` with this page size: 3 is 4 KiB, 7 is 64 KiB.
    fn full(size: u32) -> PageFormat {
        PageFormat::from_flags(0x10 | size, Dialect::MariaDb).unwrap()
    }

    #[test]
    fn tables_of_real_servers_say_that_their_pages_are_in_use() {
        for fixture in fixtures::ALL.iter().filter(|fixture| !fixture.name.contains("none")) {
            let page = &fixture.bytes[..fixture.physical as usize];
            let head = Head::parse(page, fixture.dialect).unwrap().unwrap();
            let table = Extents::parse(&head.format, page, 0).unwrap();
            for number in 0..=fixture.number {
                assert!(table.uses(number, head.limit), "page {number} of {}", fixture.name);
            }
            assert!(!table.uses(head.limit, head.limit) && head.limit >= 64, "{}", fixture.name);
            let free = (0..head.limit).filter(|number| !table.uses(*number, head.limit)).count();
            assert!(free > 0, "{}", fixture.name);
        }
    }

    #[test]
    fn a_page_of_rows_a_damaged_and_an_encrypted_one_have_no_table() {
        for fixture in fixtures::ALL {
            let (head, rows) = fixture.bytes.split_at(fixture.physical as usize);
            let format = Head::parse(head, fixture.dialect).unwrap().unwrap().format;
            assert_eq!(Extents::parse(&format, rows, fixture.number), None, "{}", fixture.name);
            let mut torn = head.to_vec();
            torn[TABLE_AT + 7] ^= 1;
            assert_eq!(Extents::parse(&format, &torn, 0), None, "{}", fixture.name);
        }
        let mut page = table_for_tests(&full(5), 16384, 20_000);
        assert!(Extents::parse(&full(5), &page, 16384).is_some());
        page[3] = 1; // The version of the key.
        crate::mysql_family::innodb::page::seal_full_crc32(&mut page);
        assert_eq!(Extents::parse(&full(5), &page, 16384), None);
    }

    #[test]
    fn a_table_fits_into_its_page_in_every_format() {
        for flags in 0..1 << 12 {
            for dialect in [Dialect::MariaDb, Dialect::MySql] {
                let Ok(format) = PageFormat::from_flags(flags, dialect) else { continue };
                let layout = Layout::of(&format);
                let last = usize::from(layout.byte_of(format.physical_size() - 1));
                assert!(layout.table_end() == last + 1 && last < format.physical_size() as usize, "{flags:#x}");
            }
        }
    }

    proptest! {
        #[test]
        fn pages_below_the_mark_are_used_and_no_others(
            size in 3_u32..=7, table in 0_u32..3, used in 0_u32..70_000, look in 0_u32..70_000, limit in any::<u32>(),
        ) {
            let format = full(size);
            let physical = format.physical_size();
            let number = table * physical;
            let (used, look) = (number + used % (physical + 1), number + look % physical);
            let page = table_for_tests(&format, number, used);
            let extents = Extents::parse(&format, &page, number).unwrap();
            prop_assert_eq!(extents.uses(look, u32::MAX), look < used);
            prop_assert_eq!(extents.uses(look, limit), look < used && look < limit);
            prop_assert!(!extents.uses(number + physical, u32::MAX));
        }

        #[test]
        fn any_bytes_are_a_table_or_none(
            flags in 0_u32..1 << 12,
            mut page in prop::collection::vec(any::<u8>(), 64..70_000),
            number in any::<u32>(),
        ) {
            for dialect in [Dialect::MariaDb, Dialect::MySql] {
                let Ok(format) = PageFormat::from_flags(flags, dialect) else { continue };
                page.resize(format.physical_size() as usize, 7);
                if let Some(extents) = Extents::parse(&format, &page, number) {
                    let _ = extents.uses(number, u32::MAX);
                }
            }
        }
    }
}
