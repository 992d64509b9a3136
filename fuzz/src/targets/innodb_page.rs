//! InnoDB's pages and the heads of tablespaces, of both dialects, with checksums put right or not.

use fullbore_engines::mysql_family::Dialect;
use fullbore_engines::mysql_family::innodb::extents::{Extents, Layout};
use fullbore_engines::mysql_family::innodb::page::{
    PAGE_SIZE_MAX, PAGE_SIZE_MIN, PageFormat, PageState, seal_full_crc32,
};
use fullbore_engines::mysql_family::innodb::tablespace::{Doublewrite, Head};

/// One input.
pub fn run(input: &[u8]) {
    let Some((&[choice, a, b, c, d], page)) = input.split_first_chunk::<5>() else { return };
    let dialect = if choice & 1 == 0 { Dialect::MariaDb } else { Dialect::MySql };
    if let Ok(Some(head)) = Head::parse(page, dialect) {
        let _ = head.encryption(page, dialect);
    }
    let _ = Doublewrite::parse(page).map(|copies| copies.holds(a.into()));
    let Ok(format) = PageFormat::from_flags(u32::from_be_bytes([a, b, c, d]), dialect) else { return };
    let size = format.physical_size();
    assert!((PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&size) && size <= format.logical_size());
    let mut page = page.to_vec();
    page.resize(size as usize, 0);
    if choice & 2 != 0 {
        seal_full_crc32(&mut page);
    }
    let number = u32::from_be_bytes([page[4], page[5], page[6], page[7]]);
    let verdict = format.check(&page, number);
    assert!(format.content_length(&page) <= page.len());
    let layout = Layout::of(&format);
    assert!(layout.table_end() <= page.len());
    if let Some(extents) = Extents::parse(&format, &page, number) {
        assert_eq!((extents.number(), layout.table_of(number)), (number, number));
        for other in [number, number.saturating_add(a.into()), number.saturating_add(size - 1), number.wrapping_sub(1)]
        {
            assert!(usize::from(layout.byte_of(other)) < layout.table_end());
            assert!(!extents.uses(other, 0));
            assert!(!extents.uses(other, u32::MAX) || layout.table_of(other) == number);
        }
    }
    if !matches!(verdict, PageState::Empty) {
        assert!(matches!(format.check(&page, number ^ 1), PageState::Corrupt(_)));
    }
}
