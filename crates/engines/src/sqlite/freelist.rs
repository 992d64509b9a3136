//! The free-list (sqlite.org, "Database File Format", §1.5): the pages without content.
//!
//! A trunk page lists leaf pages. SQLite never reads the content of a leaf again, but it reads trunk pages.

use super::btree::{TELLING_PAGES, references};
use super::header::{AutoVacuum, DatabaseHeader, Malformed, u32_at};

/// Memory for the bitmap of free pages, in bytes: enough for 134 million pages, 512 GiB of 4 KiB pages. Free pages
/// beyond are stored like any other.
pub const BITMAP_LIMIT: usize = 16 << 20;
/// How many pages of a pointer map are read before the backup begins. The others are checked when the backup reads
/// them.
const MAPS_LIMIT: usize = 4096;
/// The entry of a page in the free-list in a pointer map.
const MAPPED_AS_FREE: u8 = 2;

/// One trunk page.
#[derive(Debug)]
pub struct Trunk<'a> {
    /// The next trunk page; 0 at the end.
    pub next: u32,
    leaves: &'a [u8],
}

impl<'a> Trunk<'a> {
    /// Reads the trunk page `page`, of which SQLite uses `usable` bytes.
    pub fn parse(page: &'a [u8], usable: usize) -> Result<Self, Malformed> {
        if usable < 8 || page.len() < usable {
            return Err(Malformed(format!("{} bytes are too few for a trunk page", page.len())));
        }
        let count = u32_at(page, 4) as usize;
        if count > usable / 4 - 2 {
            return Err(Malformed(format!("a trunk page of the free-list claims {count} leaves")));
        }
        Ok(Self { next: u32_at(page, 0), leaves: &page[8..8 + count * 4] })
    }

    /// The page numbers of the leaves.
    pub fn leaves(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.leaves.as_chunks::<4>().0.iter().map(|&four| u32::from_be_bytes(four))
    }
}

/// The free pages, as a bitmap of at most [`BITMAP_LIMIT`] bytes.
#[derive(Debug, Default)]
pub struct FreePages {
    bits: Vec<u64>,
    pages: u32,
    /// Whether the list names any page.
    names_pages: bool,
}

/// Why a free-list is not usable.
#[derive(Debug)]
pub enum WalkError<E> {
    /// The list breaks the format: no page is known to be free.
    Corrupt(Malformed),
    /// A page could not be read.
    Read(E),
}

impl FreePages {
    /// No page is known to be free.
    pub fn none() -> Self {
        Self::default()
    }

    /// Follows the free-list of a database of `pages` pages; `read` gives page n (counted from 1). The header's count
    /// bounds the number of steps, so a list with a loop is corrupt. A list is also corrupt if it has one of the sorted
    /// `roots`, which are in use, or a page that is not free in the pointer map.
    pub fn walk<E>(
        header: &DatabaseHeader,
        pages: u32,
        roots: &[u32],
        mut read: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
    ) -> Result<Self, WalkError<E>> {
        let words = (pages as usize / 64 + 1).min(BITMAP_LIMIT / 8);
        let mut free = Self { bits: vec![0; words], pages, names_pages: false };
        free.follow(header, roots, &mut read)?;
        free.no_page_is_mapped_as_used(header, read)?;
        free.names_pages = free.count() > 0;
        free.mark(header.lock_page());
        Ok(free)
    }

    /// Whether the list names any free page.
    pub fn names_pages(&self) -> bool {
        self.names_pages
    }

    /// The first page that is free by this list but in use by page `number`: the page refers to it, or is a pointer map
    /// that says so. Only pages with a true `counts` are returned.
    pub fn contradicted_by(
        &self,
        header: &DatabaseHeader,
        number: u32,
        page: &[u8],
        counts: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let wrong = |page: u32| self.contains(page) && page != header.lock_page() && counts(page);
        if header.is_pointer_map(number) {
            let entries = page.get(..header.usable() as usize)?.as_chunks::<5>().0;
            let mut pages = (number + 1..=self.pages).zip(entries);
            return pages.find(|(page, entry)| entry[0] != MAPPED_AS_FREE && wrong(*page)).map(|(page, _)| page);
        }
        if self.pages >= TELLING_PAGES {
            return None;
        }
        let mut first = None;
        references(number, page, header.usable() as usize, |page| {
            if first.is_none() && wrong(page) {
                first = Some(page);
            }
        });
        first
    }

    fn follow<E>(
        &mut self,
        header: &DatabaseHeader,
        roots: &[u32],
        mut read: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), WalkError<E>> {
        let corrupt = |why: String| WalkError::Corrupt(Malformed(why));
        if header.freelist_pages >= self.pages.max(1) {
            return Err(corrupt(format!("{} free pages in a database of {}", header.freelist_pages, self.pages)));
        }
        let mut page = vec![0; header.page_size as usize];
        let mut left = header.freelist_pages;
        let mut next = header.freelist_trunk;
        while next != 0 {
            self.usable_number(header, next, roots).map_err(WalkError::Corrupt)?;
            read(next, &mut page).map_err(WalkError::Read)?;
            let trunk = Trunk::parse(&page, header.usable() as usize).map_err(WalkError::Corrupt)?;
            let listed = u32::try_from(trunk.leaves().len()).unwrap_or(u32::MAX).saturating_add(1);
            left = left
                .checked_sub(listed)
                .ok_or_else(|| corrupt(format!("more pages than the header's {}", header.freelist_pages)))?;
            for leaf in trunk.leaves() {
                self.usable_number(header, leaf, roots).map_err(WalkError::Corrupt)?;
                self.mark(leaf);
            }
            next = trunk.next;
        }
        if left != 0 {
            return Err(corrupt(format!("{left} pages fewer than the header's {}", header.freelist_pages)));
        }
        self.no_trunk_is_a_leaf(header, &mut page, read)
    }

    /// A second pass finds a trunk that a later trunk lists as its leaf: it would be lost.
    fn no_trunk_is_a_leaf<E>(
        &self,
        header: &DatabaseHeader,
        page: &mut [u8],
        mut read: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), WalkError<E>> {
        let mut next = header.freelist_trunk;
        for _ in 0..header.freelist_pages {
            if next == 0 {
                break;
            }
            if self.contains(next) {
                return Err(WalkError::Corrupt(Malformed(format!("page {next} is both trunk and leaf"))));
            }
            read(next, page).map_err(WalkError::Read)?;
            next = u32_at(page, 0);
        }
        Ok(())
    }

    /// The pointer map of an auto-vacuum database has the kind of each page.
    fn no_page_is_mapped_as_used<E>(
        &self,
        header: &DatabaseHeader,
        mut read: impl FnMut(u32, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), WalkError<E>> {
        if header.auto_vacuum == AutoVacuum::None {
            return Ok(());
        }
        let mut buffer = vec![0; header.page_size as usize];
        let mapped = header.usable() / 5;
        let maps = (2..=self.pages).step_by(mapped as usize + 1);
        let maps = maps.map(|map| if map == header.lock_page() { map + 1 } else { map });
        let needed =
            maps.filter(|&map| (map..=map.saturating_add(mapped).min(self.pages)).any(|page| self.contains(page)));
        for map in needed.take(MAPS_LIMIT) {
            read(map, &mut buffer).map_err(WalkError::Read)?;
            if let Some(page) = self.contradicted_by(header, map, &buffer, |_| true) {
                return Err(WalkError::Corrupt(Malformed(format!(
                    "page {page} in it is in use according to the pointer map"
                ))));
            }
        }
        Ok(())
    }

    /// Checks that a page may be in a free-list, and is in it once.
    fn usable_number(&self, header: &DatabaseHeader, page: u32, roots: &[u32]) -> Result<(), Malformed> {
        if page < 2 || page > self.pages {
            return Err(Malformed(format!("page {page} in the free-list of a database of {} pages", self.pages)));
        }
        if page == header.lock_page() || header.is_pointer_map(page) {
            return Err(Malformed(format!("page {page} in the free-list can never be free")));
        }
        if roots.binary_search(&page).is_ok() {
            return Err(Malformed(format!(
                "page {page} in the free-list is the root of a table or an index, or of the schema"
            )));
        }
        if self.contains(page) {
            return Err(Malformed(format!("page {page} is twice in the free-list")));
        }
        Ok(())
    }

    fn mark(&mut self, page: u32) {
        if page <= self.pages
            && let Some(word) = self.bits.get_mut(page as usize / 64)
        {
            *word |= 1 << (page % 64);
        }
    }

    /// True when page n (counted from 1) is free.
    pub fn contains(&self, page: u32) -> bool {
        self.bits.get(page as usize / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// How many pages are known to be free.
    pub fn count(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::header::{HEADER_SIZE, MAGIC};
    use super::*;

    fn header(trunk: u32, count: u32) -> DatabaseHeader {
        let mut bytes = [0; HEADER_SIZE];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..18].copy_from_slice(&512u16.to_be_bytes());
        bytes[18..24].copy_from_slice(&[1, 1, 0, 64, 32, 32]);
        bytes[32..36].copy_from_slice(&trunk.to_be_bytes());
        bytes[36..40].copy_from_slice(&count.to_be_bytes());
        DatabaseHeader::parse(&bytes).unwrap()
    }

    fn walk(count: u32, trunks: &[(u32, u32, &[u32])]) -> Result<FreePages, String> {
        let read = |page: u32, buffer: &mut [u8]| {
            let (_, next, leaves) = trunks.iter().find(|trunk| trunk.0 == page).ok_or("no such trunk")?;
            buffer.fill(0);
            let numbers = [*next, leaves.len() as u32].into_iter().chain(leaves.iter().copied());
            for (slot, number) in buffer.chunks_mut(4).zip(numbers) {
                slot.copy_from_slice(&number.to_be_bytes());
            }
            Ok::<(), &str>(())
        };
        FreePages::walk(&header(trunks[0].0, count), 100, &[7, 50], read).map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn leaves_are_free_and_trunks_are_not() {
        let free = walk(6, &[(10, 20, &[3, 100]), (20, 0, &[64, 63])]).unwrap();
        let found: Vec<u32> = (0..=101).filter(|&page| free.contains(page)).collect();
        assert_eq!(found, [3, 63, 64, 100]);
        assert_eq!(free.count(), 4);
    }

    #[test]
    fn a_list_that_lies_frees_nothing() {
        assert!(walk(6, &[(10, 10, &[3, 4])]).unwrap_err().contains("twice"), "a loop with leaves");
        assert!(walk(6, &[(10, 10, &[])]).unwrap_err().contains("more pages"), "a loop without leaves");
        assert!(walk(2, &[(10, 0, &[101])]).is_err(), "a page behind the end");
        assert!(walk(2, &[(10, 0, &[1])]).is_err(), "page 1");
        assert!(walk(3, &[(10, 0, &[5, 5])]).is_err(), "a page twice");
        assert!(walk(2, &[(10, 0, &[10])]).unwrap_err().contains("trunk and leaf"));
        assert!(walk(9, &[(10, 0, &[5])]).unwrap_err().contains("fewer"));
        assert!(walk(200, &[(10, 0, &[5])]).unwrap_err().contains("free pages in a database"));
        assert!(walk(2, &[(10, 99, &[5])]).is_err(), "more trunks than the header counts");
        assert!(walk(3, &[(10, 0, &[5, 50])]).unwrap_err().contains("page 50"), "a root among the leaves");
        assert!(walk(2, &[(7, 0, &[5])]).unwrap_err().contains("page 7"), "a root as trunk");
        assert!(Trunk::parse(&[0xff; 512], 512).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_list_makes_the_walk_panic_or_loop(trunk in 0u32..110, count: u8, pages: u8, seed: u64) {
            let mut random = fastrand::Rng::with_seed(seed);
            let _ = FreePages::walk(&header(trunk, count.into()), pages.into(), &[], |_, buffer: &mut [u8]| {
                buffer.fill(0);
                for slot in buffer.chunks_mut(4) { slot[3] = random.u8(..110); }
                buffer[7] = random.u8(..8);
                Ok::<(), ()>(())
            });
        }
    }
}
