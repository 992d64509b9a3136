//! Extents that a full backup must have and does not have. A full has every extent that is allocated when it begins.
//!
//! PFS and GAM pages say what is allocated. A page that changed after the first LSN of the backup may tell of an extent
//! that was allocated later: then the log of the backup has it, and its absence proves nothing.

use std::collections::BTreeMap;

use fullbore_core::Result;
use fullbore_core::units::counted;

use super::allocation::{Allocation, INTERVAL};
use super::allocation_maps::AllocationMaps;
use super::extent_set::ExtentSet;
use super::lsn::Lsn;
use super::page::{PAGES_PER_EXTENT, PageId};

/// So many ranges are named; the others are counted.
const NAMED_MAX: usize = 20;
/// After so many extents, there is a look at signals.
const WATCHED: u64 = 1 << 16;

/// A data file of the database.
#[derive(Debug, Clone, Default)]
pub struct Described {
    /// Its logical name.
    pub name: String,
    /// Its extents.
    pub extents: u32,
}

/// What a full backup has and says.
pub struct FullBackup<'a> {
    /// Its data files, by their ids.
    pub files: &'a BTreeMap<u16, Described>,
    /// Its extents.
    pub there: &'a ExtentSet,
    /// Which pages are in use.
    pub in_use: &'a Allocation,
    /// Which extents are allocated.
    pub maps: &'a AllocationMaps,
    /// The first LSN.
    pub first: Lsn,
    /// An error once the job ends.
    pub watch: &'a dyn Fn() -> Result<()>,
}

/// Extents that are not there.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MissingExtents {
    /// Ranges of pages, in words.
    named: Vec<String>,
    /// Ranges that are not named.
    more: u64,
    /// The extents in all ranges.
    pub extents: u64,
    /// The range that grows: file, first and last extent.
    open: Option<(u16, u32, u32)>,
}

/// All of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Those that were allocated before the backup began.
    pub sure: MissingExtents,
    /// Those that may have been allocated while it was made.
    pub changed: MissingExtents,
    /// The first interval of a file whose PFS page is not there or not readable, in words.
    pub undescribed: Option<String>,
}

impl MissingExtents {
    fn add(&mut self, files: &BTreeMap<u16, Described>, file: u16, extent: u32) {
        self.extents += 1;
        match &mut self.open {
            Some((known, _, last)) if *known == file && last.checked_add(1) == Some(extent) => *last = extent,
            _ => {
                self.close(files);
                self.open = Some((file, extent, extent));
            }
        }
    }

    fn close(&mut self, files: &BTreeMap<u16, Described>) {
        let Some((file, first, last)) = self.open.take() else { return };
        if self.named.len() >= NAMED_MAX {
            self.more += 1;
            return;
        }
        let name = files.get(&file).map_or("", |described| described.name.as_str()).escape_debug();
        let (begin, end) = (first.saturating_mul(PAGES_PER_EXTENT), last.saturating_mul(PAGES_PER_EXTENT));
        self.named.push(format!("pages {file}:{begin} to {file}:{} of file `{name}`", end.saturating_add(7)));
    }

    /// The ranges, in words. `None` if nothing is missing.
    pub fn shown(&self) -> Option<String> {
        let first = self.named.first()?;
        let mut words = self.named.iter().skip(1).fold(first.clone(), |words, range| format!("{words}, {range}"));
        if self.more > 0 {
            words.push_str(&format!(", and {}", counted(self.more, "more range")));
        }
        Some(words)
    }
}

impl FullBackup<'_> {
    /// Compares what is allocated with what is there.
    ///
    /// # Errors
    /// As of `watch`: the job ends.
    pub fn missing(&self) -> Result<Missing> {
        let mut missing = Missing::default();
        if self.there.is_full() {
            return Ok(missing);
        }
        let (mut looked, files) = (0_u64, self.files);
        for (&file, described) in files {
            if described.extents > 0 && !self.there.contains(file, 0) {
                missing.sure.add(files, file, 0);
            }
            let intervals = (0..described.extents).step_by((INTERVAL / PAGES_PER_EXTENT) as usize);
            let undescribed = intervals.map(|extent| first_page(file, extent)).find(|id| !self.in_use.describes(*id));
            if let (Some(id), None) = (undescribed, &missing.undescribed) {
                missing.undescribed = Some(format!("the PFS page for page {file}:{} is missing", id.page));
            }
        }
        let used = self.in_use.extents().filter(|(_, _, used)| *used > 0).map(|(file, extent, _)| (file, extent));
        let undescribed = |(file, extent): &(u16, u32)| !self.in_use.describes(first_page(*file, *extent));
        for (file, extent) in used.chain(self.maps.allocated().filter(undescribed)) {
            looked += 1;
            if looked.is_multiple_of(WATCHED) {
                (self.watch)()?;
            }
            let is_in_file = files.get(&file).is_some_and(|described| extent < described.extents);
            // The first extent was judged already.
            if extent == 0 || !is_in_file || self.there.contains(file, extent.into()) {
                continue;
            }
            let kind = if self.is_sure(file, extent) { &mut missing.sure } else { &mut missing.changed };
            kind.add(files, file, extent);
        }
        missing.sure.close(files);
        missing.changed.close(files);
        Ok(missing)
    }

    /// True if a map that says that the extent is allocated has not changed since the backup began.
    fn is_sure(&self, file: u16, extent: u32) -> bool {
        let pfs = self.in_use.changed_at(first_page(file, extent));
        let by_gam = self.maps.is_allocated_since(file, extent).is_some_and(|lsn| lsn < self.first);
        by_gam || pfs.is_some_and(|lsn| lsn < self.first)
    }
}

fn first_page(file: u16, extent: u32) -> PageId {
    PageId { file, page: extent.saturating_mul(PAGES_PER_EXTENT) }
}
