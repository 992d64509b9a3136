//! Zero pages of a copy that comes in pieces, in any order, with single pages again, and without a readable redo log.
//!
//! So only pages are used that have not changed since the server's last checkpoint before the copy: a page of extents,
//! or a first page, with an LSN below the checkpoint. Its facts about other pages were already true in the files at the
//! checkpoint, and do not depend on the log. A server allocates pages for a new index before it fills them, without a
//! log record: no next page refers to such a page. So a zero page counts as lost if a page of an index names it as its
//! previous page, and with it the zero pages beside.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fullbore_core::checksum::is_zero;

use super::bytes::{u32_at, u64_at};
use super::extents::{Extents, Layout};
use super::filter::Filter;
use super::page::{Fault, LSN_AT, PageFormat};
use super::suspects::Suspect;
use super::tablespace::{Head, page_type};

/// Most runs of pages: some 8 MiB, a part of `plan::FIXED_MEMORY`. Further runs are not judged.
const RUNS_MAX: usize = 1 << 17;

/// Most pages of indexes whose neighbours are kept. In a larger database no zero page is judged.
const NEIGHBOURS_MAX: u64 = 20_000_000;
/// Most pages to name of one file.
const NAMED_MAX: usize = 1000;
/// Where a page of an index names the previous page, and the types of such pages.
const BEFORE_AT: usize = 8;
const INDEX_TYPES: std::ops::RangeInclusive<u16> = 17_854..=17_855;

/// Runs of pages: from the first page of each to the page after its last.
type Runs = BTreeMap<u64, u64>;

/// The state so far. All methods may be called by several threads at once.
pub struct Zeros {
    /// LSN of the checkpoint.
    checkpoint: u64,
    state: Mutex<State>,
    /// Pages that another page names as its previous page, by stream and number.
    before: Filter,
    neighbours: AtomicU64,
}

#[derive(Default)]
struct State {
    files: BTreeMap<u32, File>,
    /// Runs in all files.
    runs: usize,
}

/// The facts about one file.
#[derive(Default)]
struct File {
    /// The head from page 0, if it is older than the checkpoint.
    head: Option<Head>,
    /// The end of the received bytes, in pages.
    end: u64,
    /// Zero pages that may be in use.
    zero: Runs,
    /// Pages with tables, and the free pages in each; `None` if a table is newer than the checkpoint or not readable.
    tables: BTreeMap<u32, Option<Runs>>,
}

impl Zeros {
    /// For a copy that begins after this checkpoint; 0 judges nothing.
    pub fn since(checkpoint: u64) -> Self {
        let before = Filter::new(checkpoint == 0);
        Self { checkpoint, state: Mutex::default(), before, neighbours: AtomicU64::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the whole pages among `bytes`, which are at `offset` of a file. Not for files of the system tablespace.
    pub fn look(&self, stream: u32, format: &PageFormat, offset: u64, bytes: &[u8]) {
        if self.checkpoint == 0 {
            return;
        }
        let size = u64::from(format.physical_size());
        let skipped = (offset.next_multiple_of(size) - offset).min(bytes.len() as u64) as usize;
        let first = offset.div_ceil(size);
        let pages = || (first..).zip(bytes[skipped..].chunks_exact(size as usize));
        let layout = Layout::of(format);
        let tables: Vec<(u32, Option<Table>)> = pages()
            .filter_map(|(number, page)| Some((u32::try_from(number).ok()?, page)))
            .filter(|(number, _)| layout.table_of(*number) == *number)
            .map(|(number, page)| (number, self.table(format, page, number)))
            .collect();
        let zero: Vec<u64> = pages().filter(|(_, page)| is_zero(page)).map(|(number, _)| number).collect();
        let end = pages().map(|(number, _)| number + 1).last().unwrap_or(first);
        for (_, page) in pages().filter(|(_, page)| INDEX_TYPES.contains(&page_type(page))) {
            self.before.put(stream, u32_at(page, BEFORE_AT), 0);
            self.neighbours.fetch_add(1, Ordering::Relaxed);
        }
        let mut state = self.state();
        let state = &mut *state;
        let file = state.files.entry(stream).or_default();
        file.end = file.end.max(offset.saturating_add(bytes.len() as u64) / size);
        let before = file.zero.len();
        remove(&mut file.zero, first, end);
        let room = state.runs < RUNS_MAX;
        for (number, table) in tables {
            if number == 0 {
                file.head = table.as_ref().and_then(|table| table.head);
            }
            let free = table.filter(|_| room).map(|table| table.free);
            state.runs += count(&free);
            state.runs -= file.tables.insert(number, free).map_or(0, |old| count(&old));
        }
        for number in zero.into_iter().filter(|_| room) {
            if file.may_use(&layout, number) {
                add(&mut file.zero, number);
            }
        }
        state.runs = state.runs + file.zero.len() - before;
    }

    /// The table in a page, if it is older than the checkpoint.
    fn table(&self, format: &PageFormat, page: &[u8], number: u32) -> Option<Table> {
        let extents = Extents::parse(format, page, number).filter(|_| u64_at(page, LSN_AT) < self.checkpoint)?;
        let head = (number == 0).then(|| Head::parse(page, format.dialect()).ok().flatten()).flatten();
        let limit = head.map_or(u32::MAX, |head| head.limit);
        let mut free = Runs::new();
        let behind = number.saturating_add(format.physical_size()).min(limit);
        (number..behind).filter(|page| !extents.uses(*page, limit)).for_each(|page| add(&mut free, page.into()));
        Some(Table { head, free })
    }

    /// Zero pages in use, and the first page after the end of each file; `format` is the page format of a stream in the
    /// copy.
    pub fn left(&self, format: impl Fn(u32) -> Option<PageFormat>) -> Vec<Suspect> {
        let state = self.state();
        let mut left = Vec::new();
        let known = self.neighbours.load(Ordering::Relaxed) <= NEIGHBOURS_MAX;
        for (&stream, file) in &state.files {
            let (Some(head), Some(format)) = (file.head, format(stream)) else { continue };
            let suspect = |page: u64, fault: Fault| Suspect { stream, page, why: fault.to_string() };
            let layout = Layout::of(&format);
            let used = |page: &u64| file.uses(&layout, &head, *page);
            let named = |page: u64| u32::try_from(page).is_ok_and(|page| self.before.holds(stream, page, 0));
            let runs = file
                .zero
                .iter()
                .filter(|(first, end)| known && (**first..**end).any(|page| used(&page) && named(page)));
            let zero = runs.flat_map(|(first, end)| (*first..*end).filter(used));
            left.extend(zero.take(NAMED_MAX).map(|page| suspect(page, Fault::Zero)));
            if file.end < u64::from(head.pages) {
                left.push(suspect(file.end, Fault::Missing { counted: head.pages }));
            }
        }
        left
    }
}

/// A table that is older than the checkpoint.
struct Table {
    head: Option<Head>,
    free: Runs,
}

impl File {
    /// False if a page is free according to its table, or if the table is unknown.
    fn may_use(&self, layout: &Layout, page: u64) -> bool {
        let table = u32::try_from(page).ok().and_then(|page| self.tables.get(&layout.table_of(page)));
        table.is_none_or(|free| free.as_ref().is_some_and(|free| !holds(free, page)))
    }

    /// Whether a page is in use according to a table.
    fn uses(&self, layout: &Layout, head: &Head, page: u64) -> bool {
        let Ok(number) = u32::try_from(page) else { return false };
        let table = self.tables.get(&layout.table_of(number)).and_then(Option::as_ref);
        number < head.limit && table.is_some_and(|free| !holds(free, page))
    }
}

/// The share of a table in the runs.
fn count(free: &Option<Runs>) -> usize {
    free.as_ref().map_or(0, |free| free.len() + 1)
}

fn holds(runs: &Runs, page: u64) -> bool {
    runs.range(..=page).next_back().is_some_and(|(_, end)| page < *end)
}

/// Adds a missing page.
fn add(runs: &mut Runs, page: u64) {
    let behind = runs.remove(&(page + 1)).unwrap_or(page + 1);
    match runs.range_mut(..page).next_back() {
        Some((_, end)) if *end == page => *end = behind,
        _ => drop(runs.insert(page, behind)),
    }
}

/// Removes all pages from `first` to before `end`.
fn remove(runs: &mut Runs, first: u64, end: u64) {
    if first >= end {
        return;
    }
    let touched: Vec<(u64, u64)> = runs
        .range(..end)
        .rev()
        .take_while(|(_, behind)| **behind > first)
        .map(|(&start, &behind)| (start, behind))
        .collect();
    for (start, behind) in touched {
        runs.remove(&start);
        if start < first {
            runs.insert(start, first);
        }
        if behind > end {
            runs.insert(end, behind);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::mysql_family::Dialect;
    use crate::mysql_family::innodb::extents::table_for_tests;
    use crate::mysql_family::innodb::page::seal_full_crc32;

    const SIZE: usize = 4096;

    /// Pages of 4 KiB, whose checksum is easily made.
    fn format() -> PageFormat {
        PageFormat::from_flags(0x13, Dialect::MariaDb).unwrap()
    }

    /// A tablespace of 40 pages, 30 of them in use; each page of an index names the previous page. Page 0 has this LSN.
    fn tablespace(lsn: u64) -> Vec<u8> {
        let mut pages = table_for_tests(&format(), 0, 30);
        pages[16..24].copy_from_slice(&lsn.to_be_bytes());
        for (at, value) in [(46, 40_u32), (50, 256), (54, 0x13), (SIZE - 8, lsn as u32)] {
            pages[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        seal_full_crc32(&mut pages);
        for number in 1..30_u32 {
            let mut page = vec![0; SIZE];
            page[4..8].copy_from_slice(&number.to_be_bytes());
            page[BEFORE_AT..BEFORE_AT + 4].copy_from_slice(&(number - 1).to_be_bytes());
            page[24..26].copy_from_slice(&17_855_u16.to_be_bytes());
            seal_full_crc32(&mut page);
            pages.extend(page);
        }
        pages.resize(40 * SIZE, 0);
        pages
    }

    fn left(zeros: &Zeros) -> Vec<u64> {
        zeros.left(|_| Some(format())).iter().map(|suspect| suspect.page).collect()
    }

    #[test]
    fn a_zero_page_that_another_comes_behind_is_lost_unless_it_comes_again_or_its_table_is_new() {
        for (lsn, expected) in [(99, vec![8, 9]), (100, vec![])] {
            let mut pages = tablespace(lsn);
            // The last page in use is zero too, and no page comes after it.
            for zero in [8, 9, 29] {
                pages[zero * SIZE..(zero + 1) * SIZE].fill(0);
            }
            let zeros = Zeros::since(100);
            zeros.look(3, &format(), 20 * SIZE as u64, &pages[20 * SIZE..]);
            assert_eq!(left(&zeros), Vec::<u64>::new(), "its first page is not there yet");
            zeros.look(3, &format(), 0, &pages[..20 * SIZE]);
            assert_eq!(left(&zeros), expected);
            assert!(zeros.left(|_| None).is_empty());
            zeros.look(3, &format(), 8 * SIZE as u64, &tablespace(lsn)[8 * SIZE..10 * SIZE]);
            assert_eq!(left(&zeros), Vec::<u64>::new());
        }
    }

    #[test]
    fn a_file_that_ends_before_its_tablespace_is_short_unless_its_first_page_is_new() {
        let zeros = Zeros::since(100);
        zeros.look(3, &format(), 0, &tablespace(99)[..35 * SIZE]);
        zeros.look(4, &format(), 0, &tablespace(100)[..35 * SIZE]);
        zeros.look(5, &format(), 0, &tablespace(99));
        let found = zeros.left(|_| Some(format()));
        assert!(found.len() == 1 && found[0].stream == 3 && found[0].page == 35, "{found:?}");
        assert!(found[0].why.contains("has 40 pages"), "{found:?}");
        let none = Zeros::since(0);
        none.look(3, &format(), 0, &tablespace(99)[..35 * SIZE]);
        assert_eq!(left(&none), Vec::<u64>::new());
    }

    proptest! {
        // Each case takes the memory of a filter.
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn runs_are_as_sets(steps in prop::collection::vec((any::<bool>(), 0_u64..60, 1_u64..9), 0..120)) {
            let (mut runs, mut set) = (Runs::new(), BTreeSet::new());
            for (adds, page, length) in steps {
                if adds {
                    if set.insert(page) {
                        add(&mut runs, page);
                    }
                } else {
                    remove(&mut runs, page, page + length);
                    set.retain(|known| !(page..page + length).contains(known));
                }
                let listed: BTreeSet<_> = runs.iter().flat_map(|(first, end)| *first..*end).collect();
                prop_assert_eq!(listed, set.clone());
                prop_assert!((0..70).all(|page| holds(&runs, page) == set.contains(&page)));
            }
        }

        #[test]
        fn in_whatever_pieces_a_tablespace_comes_the_same_pages_are_lost(
            zero in prop::collection::btree_set(1_usize..28, 0..6),
            order in Just((0..10_usize).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let mut pages = tablespace(99);
            zero.iter().for_each(|page| pages[page * SIZE..(page + 1) * SIZE].fill(0));
            let zeros = Zeros::since(100);
            for piece in order {
                zeros.look(3, &format(), (piece * 4 * SIZE) as u64, &pages[piece * 4 * SIZE..][..4 * SIZE]);
            }
            prop_assert_eq!(left(&zeros), zero.iter().map(|page| *page as u64).collect::<Vec<_>>());
        }
    }
}
