//! What GAM, SGAM and IAM pages (Global, Shared Global and Index Allocation Map) say about extents, compared with PFS pages and with the pages
//! themselves. Microsoft documents them under "Pages and extents architecture".
//!
//! A backup is copied while the database is in use, and its log settles what disagrees because of that. So pages that
//! changed after the first LSN of the backup prove nothing. What disagrees although it did not change is a contradiction
//! of the database itself: the backup is a true copy of it.

use std::collections::BTreeMap;

use super::fields::Fields;
use super::lsn::Lsn;
use super::page::{self, PAGE, PAGES_PER_EXTENT, PageId};

mod compare;
mod mixed;

pub use compare::{Compared, Contradictions};
pub use mixed::SGAM;
use mixed::sgam_of;

/// The type of a GAM page: one bit for each extent, set if it is free.
pub const GAM: u8 = 8;
/// The type of an IAM page: one bit for each extent, set if it belongs to one allocation unit.
pub const IAM: u8 = 10;
/// Types of pages that belong to an allocation unit: data, index, and text of two kinds.
pub const OWNED: std::ops::RangeInclusive<u8> = 1..=4;
/// Extents in the interval of a GAM, SGAM or IAM page. The page has one bit for each of them.
const INTERVAL: u32 = 63_904;
/// The GAM page of the first interval; those of the others are their first pages.
const FIRST_GAM: u32 = 2;
/// Where the offset of the second record is: it holds the bits, behind a head of 4 bytes.
const SECOND_SLOT: usize = PAGE - 4;
const RECORD_HEAD: usize = 4;
/// Where an IAM page has the first page of its interval.
const FIRST_PAGE: usize = 136;
/// Runs of pages and of extents that are remembered: each has up to 24 bytes.
const RUNS_MAX: usize = 1 << 20;
/// An allocation unit, as the headers of its pages have it.
type Owner = u64;

/// The bits of a GAM or SGAM page.
#[derive(Debug)]
struct Extents {
    round: u32,
    lsn: Lsn,
    bits: Box<[u8]>,
}

/// The extents that an IAM page claims.
#[derive(Debug)]
struct Claims {
    round: u32,
    lsn: Lsn,
    owner: Owner,
    file: u16,
    /// The first extents, and how many follow each other.
    runs: Vec<(u32, u32)>,
}

/// Pages that follow each other, of one owner.
#[derive(Debug)]
struct OwnedPages {
    file: u16,
    first: u32,
    count: u32,
    owner: Owner,
}

impl OwnedPages {
    /// The page behind the last one.
    fn behind(&self) -> u32 {
        self.first.saturating_add(self.count)
    }
}

/// The maps and the owners of pages in one backup set.
#[derive(Debug, Default)]
pub struct AllocationMaps {
    /// GAM: extents that are free.
    free: BTreeMap<(u16, u32), Extents>,
    /// SGAM: mixed extents that have a free page.
    mixed: BTreeMap<(u16, u32), Extents>,
    claims: BTreeMap<PageId, Claims>,
    owned: Vec<OwnedPages>,
    claimed_runs: usize,
    /// True if there were too many to remember.
    is_full: bool,
}

impl AllocationMaps {
    /// Learns from a page at its place, whose check was good. `round` is the number of the copy. A page that has changed
    /// from `first` on, the first LSN of the backup, tells no owner.
    pub fn learn(&mut self, id: PageId, page: &[u8; PAGE], round: u32, first: Lsn) {
        match page::kind(page) {
            GAM if id == gam_of(id.file, id.page / PAGES_PER_EXTENT) => learn_extents(&mut self.free, id, page, round),
            SGAM if id == sgam_of(id.file, id.page / PAGES_PER_EXTENT) => {
                learn_extents(&mut self.mixed, id, page, round);
            }
            IAM => self.learn_claims(id, page, round),
            // Pages of later copies have changed too.
            kind if OWNED.contains(&kind) && round == 1 && lsn_of(page) < first => self.learn_owner(id, page),
            _ => {}
        }
    }

    /// Learns what another family holds.
    pub fn join(&mut self, other: Self) {
        join_extents(&mut self.free, other.free);
        join_extents(&mut self.mixed, other.mixed);
        for (id, claims) in other.claims {
            if self.claims.get(&id).is_none_or(|known| known.round <= claims.round) {
                self.claims.insert(id, claims);
            }
        }
        self.claimed_runs += other.claimed_runs;
        let room = RUNS_MAX.saturating_sub(self.owned.len());
        self.is_full |= other.is_full || other.owned.len() > room || self.claimed_runs > RUNS_MAX;
        self.owned.extend(other.owned.into_iter().take(room));
    }

    fn learn_claims(&mut self, id: PageId, page: &[u8; PAGE], round: u32) {
        let fields = Fields(page);
        let first = (fields.u32(FIRST_PAGE), fields.u16(FIRST_PAGE + 4));
        let (Ok(first), Ok(file)) = first else { return };
        let is_older = self.claims.get(&id).is_some_and(|known| known.round > round);
        let (Some(bits), Some(owner), false) = (bits_of(page), owner_of(page), is_older) else { return };
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (extent, _) in (first / PAGES_PER_EXTENT..).zip(0..INTERVAL).filter(|(_, at)| is_set(bits, *at)) {
            match runs.last_mut() {
                Some((begin, count)) if *begin + *count == extent => *count += 1,
                _ => runs.push((extent, 1)),
            }
        }
        if self.claimed_runs + runs.len() + 1 > RUNS_MAX {
            self.is_full = true;
            return;
        }
        self.claimed_runs += runs.len() + 1;
        self.claims.insert(id, Claims { round, lsn: lsn_of(page), owner, file, runs });
    }

    fn learn_owner(&mut self, id: PageId, page: &[u8; PAGE]) {
        let Some(owner) = owner_of(page) else { return };
        let is_full = self.owned.len() >= RUNS_MAX;
        match self.owned.last_mut() {
            Some(run) if run.file == id.file && run.owner == owner && run.behind() == id.page => run.count += 1,
            _ if is_full => self.is_full = true,
            _ => self.owned.push(OwnedPages { file: id.file, first: id.page, count: 1, owner }),
        }
    }

    /// Whether a GAM page of the backup calls the extent free.
    fn is_free(&self, file: u16, extent: u32) -> Option<(bool, &Extents)> {
        let map = self.free.get(&(file, extent / INTERVAL))?;
        Some((is_set(&map.bits, extent % INTERVAL), map))
    }

    /// The extents that GAM pages of the backup call allocated, up to the last one that such a page can describe.
    pub fn allocated(&self) -> impl Iterator<Item = (u16, u32)> {
        self.free.iter().flat_map(|(&(file, number), map)| {
            let first = number.saturating_mul(INTERVAL);
            let extents = (0..INTERVAL).filter(|at| !is_set(&map.bits, *at));
            extents.filter_map(move |at| Some((file, first.checked_add(at)?)))
        })
    }

    /// The last change of a GAM page that calls the extent allocated.
    pub fn is_allocated_since(&self, file: u16, extent: u32) -> Option<Lsn> {
        self.is_free(file, extent).filter(|(is_free, _)| !is_free).map(|(_, map)| map.lsn)
    }
}

/// Learns the bits of a page, if no later copy of it is known.
fn learn_extents(known: &mut BTreeMap<(u16, u32), Extents>, id: PageId, page: &[u8; PAGE], round: u32) {
    let key = (id.file, id.page / PAGES_PER_EXTENT / INTERVAL);
    let is_older = known.get(&key).is_some_and(|known| known.round > round);
    if let Some(bits) = bits_of(page).filter(|_| !is_older) {
        known.insert(key, Extents { round, lsn: lsn_of(page), bits: bits.into() });
    }
}

fn join_extents(known: &mut BTreeMap<(u16, u32), Extents>, other: BTreeMap<(u16, u32), Extents>) {
    for (key, map) in other {
        if known.get(&key).is_none_or(|known| known.round <= map.round) {
            known.insert(key, map);
        }
    }
}

/// The GAM page that describes an extent.
fn gam_of(file: u16, extent: u32) -> PageId {
    PageId { file, page: (extent / INTERVAL * INTERVAL).saturating_mul(PAGES_PER_EXTENT).max(FIRST_GAM) }
}

/// The bits of a map: the second record.
fn bits_of(page: &[u8; PAGE]) -> Option<&[u8]> {
    let begin = usize::from(Fields(page).u16(SECOND_SLOT).ok()?) + RECORD_HEAD;
    page.get(begin..begin + INTERVAL as usize / 8)
}

fn is_set(bits: &[u8], at: u32) -> bool {
    bits.get(at as usize / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1)
}

/// The LSN of the last change of a page.
pub fn lsn_of(page: &[u8; PAGE]) -> Lsn {
    Fields(page).lsn(40).unwrap_or_default()
}

/// The owner of a page. `None` with index 0: system tables, and pages that SQL Server 2000 wrote, whose headers have
/// other numbers.
fn owner_of(page: &[u8; PAGE]) -> Option<Owner> {
    let fields = Fields(page);
    let (index, object) = (fields.u16(6).ok()?, fields.u32(24).ok()?);
    (index > 0).then_some(u64::from(index) << 48 | u64::from(object) << 16)
}

/// Makes a page a map with these bits; the page gets its header and checksum elsewhere.
#[cfg(any(test, feature = "testkit"))]
pub fn mark(page: &mut [u8; PAGE], set: &[u32]) {
    const AT: usize = 190;
    page[SECOND_SLOT..SECOND_SLOT + 2].copy_from_slice(&(AT as u16).to_le_bytes());
    for bit in set {
        page[AT + RECORD_HEAD + *bit as usize / 8] |= 1 << (bit % 8);
    }
}

/// Gives a page its owner.
#[cfg(any(test, feature = "testkit"))]
pub fn own(page: &mut [u8; PAGE], index: u16, object: u32) {
    page[6..8].copy_from_slice(&index.to_le_bytes());
    page[24..28].copy_from_slice(&object.to_le_bytes());
}

/// The interval of an IAM page begins with this page.
#[cfg(any(test, feature = "testkit"))]
pub fn begin_at(page: &mut [u8; PAGE], id: PageId) {
    page[FIRST_PAGE..FIRST_PAGE + 4].copy_from_slice(&id.page.to_le_bytes());
    page[FIRST_PAGE + 4..FIRST_PAGE + 6].copy_from_slice(&id.file.to_le_bytes());
}
