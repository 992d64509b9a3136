//! The judgement on the pages of one backup set. A page that does not match its check is damage only if it is in use,
//! and only if no later copy of it follows in the backup.

use std::collections::BTreeMap;

use super::allocation::{Allocation, PFS, is_of_pfs};
use super::allocation_maps::AllocationMaps;
use super::configuration::{BackupKind, Configuration, DatabaseFile, FileKind};
use super::coverage::StreamBytes;
use super::extent_set::ExtentSet;
use super::lsn::Lsn;
use super::missing_extents::Described;
use super::page::{EXTENT, PAGE, PAGES_PER_EXTENT, PageCheck, PageId, check, is_of_no_file, kind, place};
use super::unchecked_pages::UncheckedPages;

mod judgement;

pub use judgement::Judged;

/// So many pages that do not match are remembered, until it is known whether they are in use.
const SUSPECTS_MAX: usize = 1 << 20;

/// Extents of a file whose pages have numbers.
const EXTENTS_MAX: u32 = u32::MAX / PAGES_PER_EXTENT;

/// A page that does not match.
struct Suspect {
    device: usize,
    offset: u64,
    /// The number of the copy in its family.
    round: u32,
    id: PageId,
    what: &'static str,
}

/// What is wrong with a page of zeros. It was never used, unless a PFS page calls it in use.
const ZERO: &str = "it is in use, but every byte is zero";

/// An extent without a page that says where it is.
struct Unplaced {
    device: usize,
    offset: u64,
    round: u32,
    pages: Vec<(u32, &'static str)>,
}

/// The pages of one backup set, of all its families.
#[derive(Default)]
pub struct PageJudge {
    devices: Vec<String>,
    /// The copy that is being read, from 1. SQL Server writes a second copy of what changed while the first was made.
    round: u32,
    allocation: Allocation,
    maps: AllocationMaps,
    /// From the description of the database.
    kind: Option<BackupKind>,
    first: Option<Lsn>,
    /// The data files.
    files: BTreeMap<u16, Described>,
    /// Extents that the backup has.
    there: ExtentSet,
    /// Extents of later copies.
    later: BTreeMap<(u16, u32), u32>,
    suspects: Vec<Suspect>,
    /// The last extent of this copy whose place is known.
    before: Option<(u16, u32)>,
    /// The extents since then.
    unplaced: Vec<Unplaced>,
    /// Extents whose place stays unknown.
    lost: Vec<Unplaced>,
    unchecked: UncheckedPages,
    forgotten: u64,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    pages: u64,
    with_checksum: u64,
    with_torn_bits: u64,
    without: u64,
    not_matching: u64,
    of_no_file: u64,
}

impl Counts {
    fn join(&mut self, other: &Self) {
        self.pages += other.pages;
        self.with_checksum += other.with_checksum;
        self.with_torn_bits += other.with_torn_bits;
        self.without += other.without;
        self.not_matching += other.not_matching;
        self.of_no_file += other.of_no_file;
    }
}

impl PageJudge {
    /// The next family.
    pub fn begin_family(&mut self, device: String) {
        self.give_up_unplaced();
        self.round = 0;
        if self.devices.last() != Some(&device) {
            self.devices.push(device);
        }
    }

    /// The database, as a family describes it: before the pages, and behind them.
    pub fn describe(&mut self, configuration: &Configuration) {
        self.first.get_or_insert(configuration.database.first);
        self.kind = Some(configuration.database.kind);
        let extents = |file: &DatabaseFile| u32::try_from(file.size.div_ceil(EXTENT as u64)).unwrap_or(u32::MAX);
        let files = configuration.files.iter().filter(|file| file.kind == FileKind::Data);
        self.files.extend(files.filter_map(|file| {
            let described = Described { name: file.logical_name.clone(), extents: extents(file).min(EXTENTS_MAX) };
            Some((u16::try_from(file.id).ok()?, described))
        }));
    }

    /// The next copy of pages in this family.
    pub fn begin_copy(&mut self) {
        self.give_up_unplaced();
        self.round += 1;
        self.before = None;
    }

    /// The stream with this copy ends.
    pub fn end_copy(&mut self, has_backup_checksum: bool) {
        self.unchecked.end_stream(has_backup_checksum);
    }

    /// The next extent, whose first byte is at `offset` of the family. Gives its bytes by their protection.
    pub fn extent(&mut self, offset: u64, bytes: &[u8]) -> StreamBytes {
        let (pages, rest) = bytes.as_chunks::<PAGE>();
        let mut found = StreamBytes { other_pages: rest.len() as u64, ..StreamBytes::default() };
        if !pages.is_empty() && pages.iter().all(is_of_no_file) {
            self.counts.of_no_file += pages.len() as u64;
            return StreamBytes { other_pages: bytes.len() as u64, ..found };
        }
        let checks: Vec<PageCheck> = pages.iter().map(check).collect();
        let here = place_of(pages, &checks);
        let mut suspects = Vec::new();
        for ((page, check), slot) in pages.iter().zip(checks).zip(0..PAGES_PER_EXTENT) {
            self.counts.pages += 1;
            let is_here = here.is_some() && place(page, slot).map(PageId::extent) == here;
            let is_of_another_kind = kind(page) != PFS && place(page, slot).is_some_and(is_of_pfs);
            let what = match check {
                good if good.is_good() && is_here && is_of_another_kind => {
                    Some("it is not a PFS page, although its place is that of one")
                }
                good if good.is_good() && is_here => None,
                PageCheck::Checksum | PageCheck::TornBits | PageCheck::Without => {
                    Some("its header names another place, or none")
                }
                PageCheck::NoHeader => Some("it does not begin as a page does"),
                PageCheck::BadChecksum => Some("its checksum does not match"),
                PageCheck::Torn => Some("its torn-page bits do not match: it was written in part"),
                PageCheck::Zero => Some(ZERO),
            };
            let into = match check {
                PageCheck::Checksum => (&mut found.with_checksum, &mut self.counts.with_checksum),
                PageCheck::TornBits => (&mut found.with_torn_bits, &mut self.counts.with_torn_bits),
                PageCheck::Without => (&mut found.other_pages, &mut self.counts.without),
                PageCheck::Zero | PageCheck::NoHeader | PageCheck::BadChecksum | PageCheck::Torn => {
                    (&mut found.other_pages, &mut self.counts.not_matching)
                }
            };
            *into.0 += PAGE as u64;
            *into.1 += 1;
            suspects.extend(what.map(|what| (slot, what)));
            if let (None, Some((file, extent))) = (what, here) {
                let id = PageId { file, page: extent * PAGES_PER_EXTENT + slot };
                if check == PageCheck::Without {
                    self.unchecked.learn(id, kind(page), self.round);
                }
                match kind(page) {
                    PFS => self.allocation.learn(id, page, self.round),
                    _ => self.maps.learn(id, page, self.round, self.first.unwrap_or_default()),
                }
            }
        }
        let extent =
            Unplaced { device: self.devices.len().saturating_sub(1), offset, round: self.round, pages: suspects };
        match here {
            Some(here) => self.placed(here, extent),
            None if self.unplaced.len() + self.lost.len() < SUSPECTS_MAX => self.unplaced.push(extent),
            None => self.forgotten += u64::from(PAGES_PER_EXTENT),
        }
        found
    }

    /// An extent whose place is known. It tells the places of the extents before it, if there is one for each of them.
    fn placed(&mut self, here: (u16, u32), extent: Unplaced) {
        let unplaced = std::mem::take(&mut self.unplaced);
        let between = match self.before {
            Some((file, before)) if file == here.0 => here.1.checked_sub(before + 1).map(|_| before + 1..here.1),
            _ => None,
        };
        match between.filter(|between| between.len() == unplaced.len()) {
            Some(between) => {
                unplaced.into_iter().zip(between).for_each(|(extent, at)| self.suspect((here.0, at), extent));
            }
            None => self.lost.extend(unplaced),
        }
        self.suspect(here, extent);
        self.before = Some(here);
    }

    fn suspect(&mut self, here: (u16, u32), extent: Unplaced) {
        self.there.insert(here.0, here.1.into());
        if extent.round > 1 {
            self.later.insert(here, extent.round);
        }
        for (slot, what) in extent.pages {
            if self.suspects.len() >= SUSPECTS_MAX {
                self.forgotten += 1;
                continue;
            }
            let id = PageId { file: here.0, page: here.1 * PAGES_PER_EXTENT + slot };
            let offset = extent.offset + u64::from(slot) * PAGE as u64;
            self.suspects.push(Suspect { device: extent.device, offset, round: extent.round, id, what });
        }
    }

    fn give_up_unplaced(&mut self) {
        self.lost.append(&mut self.unplaced);
    }

    /// Takes the pages of another family, which was read to its end.
    pub fn join(&mut self, mut other: Self) {
        self.give_up_unplaced();
        other.give_up_unplaced();
        let devices = self.devices.len();
        self.devices.extend(other.devices);
        self.allocation.join(other.allocation);
        self.maps.join(other.maps);
        self.there.join(other.there);
        self.kind = self.kind.or(other.kind);
        self.first = self.first.or(other.first);
        self.files.extend(other.files);
        for (extent, round) in other.later {
            let known = self.later.entry(extent).or_default();
            *known = round.max(*known);
        }
        for suspect in other.suspects {
            match self.suspects.len() < SUSPECTS_MAX {
                true => self.suspects.push(Suspect { device: suspect.device + devices, ..suspect }),
                false => self.forgotten += 1,
            }
        }
        self.lost.extend(other.lost.into_iter().map(|lost| Unplaced { device: lost.device + devices, ..lost }));
        self.unchecked.join(other.unchecked);
        self.forgotten += other.forgotten;
        self.counts.join(&other.counts);
    }
}

/// The place of an extent: the one that most of its pages name. Pages with a good check count before pages without one,
/// and other pages do not count: unused pages may hold anything.
fn place_of(pages: &[[u8; PAGE]], checks: &[PageCheck]) -> Option<(u16, u32)> {
    let named = |wanted: fn(&PageCheck) -> bool| {
        let mut votes: BTreeMap<(u16, u32), usize> = BTreeMap::new();
        for ((page, _), slot) in
            pages.iter().zip(checks).zip(0..PAGES_PER_EXTENT).filter(|((_, check), _)| wanted(check))
        {
            if let Some(id) = place(page, slot) {
                *votes.entry(id.extent()).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(place, _)| place)
    };
    named(|check| matches!(check, PageCheck::Checksum | PageCheck::TornBits))
        .or_else(|| named(|check| *check == PageCheck::Without))
}
