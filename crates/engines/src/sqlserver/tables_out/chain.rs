//! The pages of an allocation unit: the leaf level of an index by its links, a heap by its IAM pages.

use super::super::allocation::{Allocation, pfs_of};
use super::super::fields::Fields;
use super::super::page::{PAGE, PAGES_PER_EXTENT, PageId};
use super::data_files::DataFiles;
use super::data_page::{DataPage, kind, page_pointer};
use super::system_tables::Unit;
use super::{Decoded, field, unknown};

/// An IAM page: its first slot has the first extent that it describes and eight single pages; its second slot has one bit
/// for each extent.
const IAM_START: usize = 40;
const IAM_SINGLES: usize = 46;
const SINGLES: usize = 8;
const POINTER: usize = 6;
/// Bytes of a bitmap: 63,904 extents.
const BITMAP: usize = 7988;

/// True if the page is of this unit. Pages that SQL Server 2000 has written name the object.
fn belongs(page: &DataPage, unit: &Unit) -> Decoded<bool> {
    let old = i64::from(unit.object) << 16;
    let named = page.unit()?;
    Ok(named == unit.id || unit.object > 0 && named == old)
}

/// Gives each page of the leaf level, in the order of the key. In some upgraded databases, the first page of a unit is now
/// a page of another one: then the IAM pages name the leaves.
///
/// # Errors
/// A page is not of this unit, or the chain is a ring; the error of `each`.
pub fn leaf_pages(files: &DataFiles, unit: &Unit, each: &mut dyn FnMut(&DataPage) -> Decoded<()>) -> Decoded<()> {
    let (mut next, mut left) = (unit.first, files.pages());
    while let Some(id) = next {
        if left == 0 {
            return unknown("the chain of its pages is a ring");
        }
        left -= 1;
        let page = files.page(id)?;
        if Some(id) == unit.first && !belongs(&page, unit)? {
            return heap_pages(files, unit, each);
        }
        if !belongs(&page, unit)? || page.kind() != kind::DATA || page.level() != 0 {
            return unknown(format!("page {}:{} is in its chain and not one of its leaves", id.file, id.page));
        }
        each(&page)?;
        next = page.next()?;
    }
    Ok(())
}

/// Gives each page of a heap, in the order of the IAM pages.
///
/// # Errors
/// As of [`leaf_pages`].
pub fn heap_pages(files: &DataFiles, unit: &Unit, each: &mut dyn FnMut(&DataPage) -> Decoded<()>) -> Decoded<()> {
    let (mut next, mut left) = (unit.first_iam, files.pages());
    let mut in_use = InUse::default();
    while let Some(id) = next {
        if left == 0 {
            return unknown("the chain of its IAM pages is a ring");
        }
        left -= 1;
        let iam = files.page(id)?;
        if iam.kind() != kind::IAM || !belongs(&iam, unit)? {
            return unknown(format!("page {}:{} is not one of its IAM pages", id.file, id.page));
        }
        let mut visit = |id: PageId| {
            if !in_use.contains(files, id)? {
                return Ok(());
            }
            let page = files.page(id)?;
            let is_row_page = page.kind() == kind::DATA && page.level() == 0 && belongs(&page, unit)?;
            if is_row_page { each(&page) } else { Ok(()) }
        };
        pages_of_map(&iam, &mut visit)?;
        next = iam.next()?;
    }
    Ok(())
}

/// The pages that an IAM page names.
fn pages_of_map(iam: &DataPage, visit: &mut dyn FnMut(PageId) -> Decoded<()>) -> Decoded<()> {
    let head = Fields(iam.first_record());
    for single in 0..SINGLES {
        if let Some(id) = page_pointer(head, IAM_SINGLES + single * POINTER)? {
            visit(id)?;
        }
    }
    let Some(start) = page_pointer(head, IAM_START)? else {
        return unknown("an IAM page does not say which extents it describes");
    };
    let Some(map) = iam.record(1)?.and_then(|record| record.get(4..)) else {
        return unknown("an IAM page has no bitmap");
    };
    for (at, byte) in map.iter().take(BITMAP).enumerate().filter(|(_, byte)| **byte != 0) {
        for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
            let extent = (at * 8 + bit) as u32;
            let first = extent.checked_mul(PAGES_PER_EXTENT).and_then(|pages| pages.checked_add(start.page));
            let Some(first) = first.filter(|first| first.checked_add(PAGES_PER_EXTENT).is_some()) else {
                return unknown("an IAM page names an extent that cannot exist");
            };
            for page in first..first + PAGES_PER_EXTENT {
                visit(PageId { file: start.file, page })?;
            }
        }
    }
    Ok(())
}

/// Which pages are in use, from the PFS pages as far as they were asked for.
#[derive(Default)]
struct InUse {
    known: Allocation,
}

impl InUse {
    fn contains(&mut self, files: &DataFiles, id: PageId) -> Decoded<bool> {
        if let Some(known) = self.known.is_in_use(id) {
            return Ok(known);
        }
        let map = pfs_of(id);
        let page = files.page(map)?;
        let bytes: Option<&[u8; PAGE]> = page.bytes().try_into().ok();
        if let Some(bytes) = bytes.filter(|_| page.kind() == super::super::allocation::PFS) {
            self.known.learn(map, bytes, 1);
        }
        match self.known.is_in_use(id) {
            Some(known) => Ok(known),
            None => unknown(format!("page {}:{} does not say which pages are in use", map.file, map.page)),
        }
    }
}

/// The first page of `sysallocunits`, from the boot page.
///
/// # Errors
/// The boot page is missing, or names none.
pub fn first_of_units(files: &DataFiles) -> Decoded<PageId> {
    const BOOT: PageId = PageId { file: 1, page: 9 };
    const UNITS: usize = 516;
    let boot = files.page(BOOT)?;
    let first = page_pointer(Fields(boot.first_record()), UNITS)?;
    match first.filter(|_| boot.kind() == kind::BOOT) {
        Some(first) => Ok(first),
        None => unknown("the boot page does not name the system tables"),
    }
}

/// The version of the database, from the boot page.
///
/// # Errors
/// The boot page is missing.
pub fn version(files: &DataFiles) -> Decoded<u16> {
    field(Fields(files.page(PageId { file: 1, page: 9 })?.first_record()).u16(4))
}

/// The collation of the database, from the boot page.
///
/// # Errors
/// The boot page is missing.
pub fn collation(files: &DataFiles) -> Decoded<u32> {
    const COLLATION: usize = 392;
    field(Fields(files.page(PageId { file: 1, page: 9 })?.first_record()).u32(COLLATION))
}
