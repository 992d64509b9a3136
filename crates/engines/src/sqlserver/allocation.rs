//! Which pages are in use, from the PFS pages (Page Free Space) among those of a backup. Microsoft documents them under
//! "Pages and extents architecture".

use std::collections::BTreeMap;

use super::allocation_maps::lsn_of;
use super::lsn::Lsn;
use super::page::{PAGE, PAGES_PER_EXTENT, PageId};

/// The type of a PFS page.
pub const PFS: u8 = 11;
/// Pages in the interval of a PFS page. The PFS page has one byte for each of them.
pub const INTERVAL: u32 = 8088;
/// Where these bytes begin: behind the header of the page and the head of its record.
const FIRST: usize = 100;
/// The bit of a page in use.
const IN_USE: u8 = 0x40;
/// The bit of a page in a mixed extent, whose pages belong to several objects.
const MIXED: u8 = 0x20;
/// The PFS page of the first interval; those of the others are their first pages.
const FIRST_PFS: u32 = 1;
const _: () = assert!(INTERVAL.is_multiple_of(PAGES_PER_EXTENT));

/// The PFS page that says whether a page is in use.
pub fn pfs_of(id: PageId) -> PageId {
    PageId { page: (id.page / INTERVAL * INTERVAL).max(FIRST_PFS), ..id }
}

/// True for the place of a PFS page: such a page is always in use.
pub fn is_of_pfs(id: PageId) -> bool {
    pfs_of(id) == id
}

/// The interval of a page: its file, and its number from 0.
fn interval_of(id: PageId) -> (u16, u32) {
    (id.file, id.page / INTERVAL)
}

/// The pages in use and those in mixed extents, one bit for each page: 32 KiB for each GiB of a database.
#[derive(Debug, Default)]
pub struct Allocation {
    intervals: BTreeMap<(u16, u32), Interval>,
}

#[derive(Debug)]
struct Interval {
    /// The copy that it comes from: the last one counts.
    round: u32,
    /// The last change of the PFS page.
    lsn: Lsn,
    bits: Box<[u8]>,
    mixed: Box<[u8]>,
}

impl Allocation {
    /// Learns from a PFS page whose check was good. `round` is the number of the copy.
    pub fn learn(&mut self, id: PageId, page: &[u8; PAGE], round: u32) {
        let key = interval_of(id);
        if id != pfs_of(id) || self.intervals.get(&key).is_some_and(|known| known.round > round) {
            return;
        }
        let used = page.get(FIRST..FIRST + INTERVAL as usize).unwrap_or_default();
        let bits = |of: u8| {
            let bit = move |(at, byte): (usize, &u8)| u8::from(byte & of == of) << at;
            used.chunks(8).map(|pages| pages.iter().enumerate().map(bit).sum()).collect()
        };
        let interval = Interval { round, lsn: lsn_of(page), bits: bits(IN_USE), mixed: bits(IN_USE | MIXED) };
        self.intervals.insert(key, interval);
    }

    /// Learns what another family holds.
    pub fn join(&mut self, other: Self) {
        for (key, interval) in other.intervals {
            if self.intervals.get(&key).is_none_or(|known| known.round <= interval.round) {
                self.intervals.insert(key, interval);
            }
        }
    }

    /// The extents that PFS pages describe: file, number, and how many of the pages are in use.
    pub fn extents(&self) -> impl Iterator<Item = (u16, u32, u32)> {
        self.intervals.iter().flat_map(|(&(file, number), interval)| {
            let first = number * (INTERVAL / PAGES_PER_EXTENT);
            let extents = (first..).zip(interval.bits.iter());
            // Pages behind these have no number.
            let extents = extents.take_while(|(extent, _)| *extent < u32::MAX / PAGES_PER_EXTENT);
            extents.map(move |(extent, pages)| (file, extent, pages.count_ones()))
        })
    }

    /// How many pages of an extent are in use; `None` without their PFS page.
    pub fn pages_in_use(&self, file: u16, extent: u32) -> Option<u32> {
        let per_interval = INTERVAL / PAGES_PER_EXTENT;
        let interval = self.intervals.get(&(file, extent / per_interval))?;
        interval.bits.get((extent % per_interval) as usize).map(|pages| pages.count_ones())
    }

    /// How many pages of an extent are in use and belong to a mixed extent; `None` without their PFS page.
    pub fn mixed_pages(&self, file: u16, extent: u32) -> Option<u32> {
        let per_interval = INTERVAL / PAGES_PER_EXTENT;
        let interval = self.intervals.get(&(file, extent / per_interval))?;
        interval.mixed.get((extent % per_interval) as usize).map(|pages| pages.count_ones())
    }

    /// True if the backup has a readable PFS page for this page.
    pub fn describes(&self, id: PageId) -> bool {
        self.intervals.contains_key(&interval_of(id))
    }

    /// The last change of the PFS page that describes a page.
    pub fn changed_at(&self, id: PageId) -> Option<Lsn> {
        self.intervals.get(&interval_of(id)).map(|interval| interval.lsn)
    }

    /// Whether a page is in use; `None` if the PFS page that says so is not in the backup.
    pub fn is_in_use(&self, id: PageId) -> Option<bool> {
        let interval = self.intervals.get(&interval_of(id))?;
        let at = id.page % INTERVAL;
        let byte = interval.bits.get(at as usize / 8)?;
        Some(byte >> (at % 8) & 1 == 1)
    }
}

/// The content of a PFS page that has these pages of its interval in use.
#[cfg(any(test, feature = "testkit"))]
pub fn mark(page: &mut [u8; PAGE], in_use: &[u32]) {
    for at in in_use {
        page[FIRST + (at % INTERVAL) as usize] |= IN_USE;
    }
}

/// Makes these pages of the interval pages in use of mixed extents.
#[cfg(test)]
pub fn mark_mixed(page: &mut [u8; PAGE], mixed: &[u32]) {
    for at in mixed {
        page[FIRST + (at % INTERVAL) as usize] |= IN_USE | MIXED;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pfs(in_use: &[u32]) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        mark(&mut page, in_use);
        page
    }

    #[test]
    fn a_page_is_in_use_as_the_last_copy_of_its_pfs_page_says() {
        let id = |page| PageId { file: 1, page };
        let mut known = Allocation::default();
        assert_eq!(known.is_in_use(id(9)), None);
        known.learn(id(1), &pfs(&[0, 9, 8087]), 2);
        known.learn(id(8088), &pfs(&[3]), 1);
        known.learn(id(1), &pfs(&[]), 1);
        known.learn(id(7), &pfs(&[]), 3);
        let in_use = |page| known.is_in_use(id(page));
        assert_eq!([0, 9, 10, 8087, 8091, 8092].map(in_use), [true, true, false, true, true, false].map(Some));
        assert_eq!((known.is_in_use(PageId { file: 3, page: 9 }), in_use(16176)), (None, None));
    }
}
