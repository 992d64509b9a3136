//! The judgement on the pages of one backup set. A page that does not match its check is damage only if it is in use,
//! and only if no later copy of it follows in the backup.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fullbore_core::units::counted;
use fullbore_core::{Error, Result};

use super::allocation::{Allocation, INTERVAL, PFS, is_of_pfs};
use super::allocation_maps::{AllocationMaps, Compared, Contradictions};
use super::configuration::{BackupKind, Configuration, DatabaseFile, FileKind};
use super::coverage::StreamBytes;
use super::extent_set::ExtentSet;
use super::lsn::Lsn;
use super::missing_extents::{Described, FullBackup, Missing};
use super::page::{EXTENT, PAGE, PAGES_PER_EXTENT, PageCheck, PageId, check, is_of_no_file, kind, place};
use super::unchecked_pages::UncheckedPages;

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

/// The result.
#[derive(Debug, Default)]
pub struct Judged {
    /// What was counted.
    pub facts: Vec<String>,
    /// What to look at.
    pub warnings: Vec<String>,
    /// Damaged and missing pages.
    pub damage: Vec<Error>,
    /// Bytes of pages in use that nothing protects, although other pages of the database have a check.
    pub unprotected: u64,
}

impl Judged {
    fn add_contradictions(&mut self, found: Contradictions) {
        let Contradictions { named, more, settled_by_log, kept_empty, in_part } = found;
        // The bytes are as SQL Server wrote them, so this is no damage of the backup.
        let of_database = |what| format!("the database contradicts itself: {what}; run DBCC CHECKDB on it");
        self.warnings.extend(named.into_iter().map(of_database));
        if more > 0 {
            self.warnings.push(format!("{} of the database are not named", counted(more, "more contradiction")));
        }
        if settled_by_log > 0 {
            let count = counted(settled_by_log, "difference");
            self.facts.push(format!(
                "{count} between GAM, IAM and PFS pages that changed during the backup: the log has more"
            ));
        }
        if kept_empty > 0 {
            let count = counted(kept_empty, "extent");
            self.facts.push(format!("{count} allocated without a page in use: objects keep such space"));
        }
        if in_part {
            self.facts.push(
                "the database has too many objects to compare all GAM and IAM pages: a part was compared".to_owned(),
            );
        }
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

    /// True if a later copy of the page's extent follows in the backup.
    fn is_replaced(&self, id: PageId, round: u32) -> bool {
        self.later.get(&id.extent()).is_some_and(|later| *later > round)
    }

    /// Names pages in use without a check, if other pages have one: a changed bit of their flags may be why.
    fn judge_unchecked(&mut self, judged: &mut Judged) {
        let unchecked = std::mem::take(&mut self.unchecked);
        if self.counts.with_checksum == 0 && self.counts.with_torn_bits == 0 {
            return;
        }
        let found =
            unchecked.judge(&|id, round| !self.is_replaced(id, round) && self.allocation.is_in_use(id) == Some(true));
        judged.unprotected = found.bytes;
        judged.warnings.extend(found.unprotected.map(|pages| {
            format!(
                "{pages} in use without a check, although other pages have one. Nothing proves their bytes: run DBCC \
                 CHECKDB on the database"
            )
        }));
        let covered = |pages| format!("{pages} in use without a check of their own: the backup checksum protects them");
        judged.facts.extend(found.covered.map(covered));
    }

    /// Names extents that a full must have and does not have.
    fn judge_missing(&self, missing: &Missing, judged: &mut Judged) {
        let what = format!("{} in use", counted(missing.sure.extents, "extent"));
        if let Some(ranges) = missing.sure.shown().filter(|_| self.lost.is_empty()) {
            let device = self.devices.first().map_or("", String::as_str);
            let others = match self.devices.len() {
                0 | 1 => String::new(),
                count => format!(", and in the other {}", counted(count as u64 - 1, "file")),
            };
            judged.damage.push(Error::incomplete(
                format!("`{device}`"),
                format!("{what} are missing in it{others}: {ranges}"),
                "copy the whole file again from where it was made, or use another full",
            ));
        }
        if let Some(ranges) = missing.changed.shown() {
            let count = counted(missing.changed.extents, "extent");
            judged.warnings.push(format!(
                "{count} in use are not in the backup: {ranges}. Their allocation changed while the backup was made, so \
                 its log may have them"
            ));
        }
    }

    /// Judges the extents whose place is not known. They are no damage if the backup has all pages in use without them.
    fn judge_lost(&self, missing: &Missing, judged: &mut Judged) {
        let Some(first) = self.lost.first() else { return };
        let pages: u64 = self.lost.iter().map(|extent| extent.pages.len() as u64).sum();
        let device = self.devices.get(first.device).map_or("", String::as_str);
        let lost =
            format!("{} without a good check, in extents that do not say where they belong", counted(pages, "page"));
        let why = match self.kind {
            Some(BackupKind::Full) => {
                let ranges = missing.sure.shown().or_else(|| missing.changed.shown());
                missing.undescribed.clone().or(ranges.map(|ranges| format!("{ranges} are missing")))
            }
            // The pages of the full would take their place.
            Some(BackupKind::Differential) => Some("no page of the full may take their place".to_owned()),
            _ => None,
        };
        match why {
            Some(why) => judged.damage.push(Error::damaged(device, first.offset, format!("{lost}: {why}"))),
            None => judged.warnings.push(format!("{lost}; the first is at byte {} of `{device}`", first.offset)),
        }
    }

    /// What a full does not have.
    fn missing(&self, watch: &dyn Fn() -> Result<()>) -> Result<Missing> {
        if self.kind != Some(BackupKind::Full) {
            return Ok(Missing::default());
        }
        let full = FullBackup {
            files: &self.files,
            there: &self.there,
            in_use: &self.allocation,
            maps: &self.maps,
            first: self.first.unwrap_or_default(),
            watch,
        };
        full.missing()
    }

    /// True if the backup holds every PFS page: a differential has only those that changed.
    fn has_all_pfs(&self) -> bool {
        !matches!(
            self.kind,
            None | Some(BackupKind::Differential | BackupKind::FilesDifferential | BackupKind::PartialDifferential)
        )
    }

    /// The judgement, when the families were read. `has_all` is true if they are all families of their media, and each was
    /// read to its end: only then something can be missing.
    ///
    /// # Errors
    /// As of `watch`: the job ends.
    pub fn finish(mut self, has_all: bool, watch: &dyn Fn() -> Result<()>) -> Result<Judged> {
        self.give_up_unplaced();
        let mut judged = Judged::default();
        let missing = if has_all { self.missing(watch)? } else { Missing::default() };
        self.judge_lost(&missing, &mut judged);
        self.judge_missing(&missing, &mut judged);
        self.judge_unchecked(&mut judged);
        let has_all_pfs = self.has_all_pfs();
        let damaged_pfs = self.suspects.iter().filter(|suspect| is_of_pfs(suspect.id));
        let lost_pfs: BTreeSet<(u16, u32)> =
            damaged_pfs.map(|suspect| (suspect.id.file, suspect.id.page / INTERVAL)).collect();
        let (mut not_in_use, mut replaced, mut unknown) = (0, 0, 0);
        for Suspect { device, offset, round, id, what } in std::mem::take(&mut self.suspects) {
            if self.is_replaced(id, round) {
                replaced += 1;
                continue;
            }
            let device = self.devices.get(device).map_or("", String::as_str);
            let in_use = match self.allocation.is_in_use(id) {
                // This damage must not hide any other.
                _ if is_of_pfs(id) => Some(true),
                None if what == ZERO => Some(false),
                None if has_all_pfs || lost_pfs.contains(&(id.file, id.page / INTERVAL)) => Some(true),
                known => known,
            };
            match in_use {
                Some(true) => {
                    let what = format!("page {}:{}: {what}", id.file, id.page);
                    judged.damage.push(Error::damaged(device, offset, what));
                }
                Some(false) => not_in_use += 1,
                None => unknown += 1,
            }
        }
        let Counts { pages, with_checksum, with_torn_bits, without, not_matching, .. } = self.counts;
        if pages > 0 {
            judged.facts.push(format!(
                "{}: {with_checksum} with a good checksum, {with_torn_bits} with good torn-page bits, \
                 {without} without a check, {not_matching} zero or not matching",
                counted(pages, "page"),
            ));
        }
        let mut count = |number: u64, words: &str| {
            if number > 0 {
                judged.facts.push(format!("{} {words}", counted(number, "page")));
            }
        };
        count(not_in_use, "without a good check: not in use, so this is not damage");
        count(replaced, "without a good check: a good copy follows in the backup");
        count(self.counts.of_no_file, "that belong to no file of the database");
        if unknown > 0 {
            judged.warnings.push(format!(
                "{} without a good check: the backup does not say whether they are in use, since it has no PFS page for them",
                counted(unknown, "page")
            ));
        }
        judged.add_contradictions(self.maps.compare(&Compared {
            in_use: &self.allocation,
            later: &self.later,
            unchanged_before: self.first.unwrap_or_default(),
            sizes: &self.files.iter().map(|(&file, described)| (file, described.extents)).collect::<HashMap<_, _>>(),
            watch,
        })?);
        if self.forgotten > 0 {
            let words = counted(self.forgotten, "page");
            judged.warnings.push(format!("{words} without a good check: too many, so they were not judged"));
        }
        Ok(judged)
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
