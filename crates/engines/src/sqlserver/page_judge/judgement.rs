//! The judgement itself, once the families were read: which pages are damage, and which extents are missing.

use std::collections::{BTreeSet, HashMap};

use fullbore_core::units::counted;
use fullbore_core::{Error, Result};

use super::super::allocation::{INTERVAL, is_of_pfs};
use super::super::allocation_maps::{Compared, Contradictions};
use super::super::configuration::BackupKind;
use super::super::missing_extents::{FullBackup, Missing};
use super::super::page::PageId;
use super::{Counts, PageJudge, Suspect, ZERO};

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
            let lacks = match self.devices.len() {
                0 | 1 => "it lacks".to_owned(),
                count => format!("it and the other {} lack", counted(count as u64 - 1, "file")),
            };
            judged.damage.push(Error::incomplete(
                format!("`{device}`"),
                format!("{lacks} {what}: {ranges}"),
                "copy the whole file again from where it was made, or use another full",
            ));
        }
        if let Some(ranges) = missing.changed.shown() {
            let count = counted(missing.changed.extents, "extent");
            judged.warnings.push(format!(
                "the backup lacks {count} in use: {ranges}. Their allocation changed while the backup was made, so \
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
