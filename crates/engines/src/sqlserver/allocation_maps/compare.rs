//! What GAM, SGAM and IAM pages contradict: each other, the PFS pages, and the pages themselves.

use std::collections::{BTreeMap, HashMap};

use fullbore_core::Result;

use super::super::allocation::Allocation;
use super::super::lsn::Lsn;
use super::super::page::{PAGES_PER_EXTENT, PageId};
use super::{AllocationMaps, Claims, gam_of};

/// Extents that are compared, at most: 4 TiB of data, if each has one owner. A database that is damaged, or forged, may
/// give each of its extents to thousands.
const COMPARED_MAX: u64 = 1 << 26;
/// After so many extents, there is a look at signals.
const WATCHED: u64 = 4096;
/// So many contradictions are named; the others are counted.
const NAMED_MAX: usize = 20;

/// What is compared.
pub struct Compared<'a> {
    /// Which pages are in use.
    pub in_use: &'a Allocation,
    /// Extents with a later copy in the backup.
    pub later: &'a BTreeMap<(u16, u32), u32>,
    /// The first LSN of the backup at its start: pages that changed later are not compared.
    pub unchanged_before: Lsn,
    /// The extents of each file.
    pub sizes: &'a HashMap<u16, u32>,
    /// An error once the job ends.
    pub watch: &'a dyn Fn() -> Result<()>,
}

/// The extents that may still be compared.
struct Work<'a> {
    left: u64,
    watch: &'a dyn Fn() -> Result<()>,
}

impl Work<'_> {
    /// True if there is one more.
    fn one_more(&mut self) -> Result<bool> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(false) };
        self.left = left;
        if left.is_multiple_of(WATCHED) {
            (self.watch)()?;
        }
        Ok(true)
    }
}

/// The result.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Contradictions {
    /// Some of them, in words.
    pub named: Vec<String>,
    /// The others.
    pub more: u64,
    /// Those in pages that changed while the backup was made.
    pub settled_by_log: u64,
    /// Extents that are allocated and have no page in use: objects keep such space.
    pub kept_empty: u64,
    /// True if the database is too large to compare all of it.
    pub in_part: bool,
}

impl Contradictions {
    pub(super) fn add(&mut self, is_unchanged: bool, words: impl FnOnce() -> String) {
        match is_unchanged {
            false => self.settled_by_log += 1,
            true if self.named.len() < NAMED_MAX => self.named.push(words()),
            true => self.more += 1,
        }
    }
}

impl AllocationMaps {
    /// Compares all of it.
    ///
    /// # Errors
    /// The job ends.
    pub fn compare(self, with: &Compared<'_>) -> Result<Contradictions> {
        self.compare_up_to(COMPARED_MAX, with)
    }

    /// The same for so many extents at most: then the result is in part.
    pub(in crate::sqlserver) fn compare_up_to(mut self, most: u64, with: &Compared<'_>) -> Result<Contradictions> {
        (with.watch)()?;
        let mut work = Work { left: most, watch: with.watch };
        let mut found = Contradictions { in_part: self.is_full, ..Contradictions::default() };
        self.owned.sort_by_key(|run| (run.file, run.first));
        self.compare_free(with, &mut found);
        self.compare_mixed(with, &mut found);
        found.in_part |= !self.compare_claims(with, &mut found, &mut work)?;
        Ok(found)
    }

    /// GAM against PFS.
    fn compare_free(&self, with: &Compared<'_>, found: &mut Contradictions) {
        for (file, extent, used) in with.in_use.extents() {
            let Some((free, map)) = self.is_free(file, extent) else { continue };
            let is_in_file = with.sizes.get(&file).is_some_and(|size| extent < *size);
            found.kept_empty += u64::from(!free && used == 0 && is_in_file);
            if !free || used == 0 {
                continue;
            }
            let first = PageId { file, page: extent.saturating_mul(PAGES_PER_EXTENT) };
            let pfs = with.in_use.changed_at(first);
            let is_unchanged = map.lsn < with.unchanged_before && pfs.is_some_and(|lsn| lsn < with.unchanged_before);
            found.add(is_unchanged, || {
                let gam = gam_of(file, extent).page;
                format!(
                    "{}: GAM page {file}:{gam} calls it free, and {used} of its pages are in use",
                    shown(file, extent)
                )
            });
        }
    }

    /// IAM against GAM, against other IAM pages, and against the pages. False if there are too many.
    fn compare_claims(&self, with: &Compared<'_>, found: &mut Contradictions, work: &mut Work<'_>) -> Result<bool> {
        let mut runs = Vec::new();
        for (&id, claims) in self.claims.iter().filter(|(id, _)| with.in_use.is_in_use(**id) == Some(true)) {
            let size = with.sizes.get(&claims.file).copied().unwrap_or_default();
            let is_unchanged = claims.lsn < with.unchanged_before;
            // Bits behind the end of a file mean nothing: SQL Server 2000 has left some.
            let in_file = claims.runs.iter().map(|(begin, count)| (*begin, begin.saturating_add(*count).min(size)));
            for (begin, end) in in_file.filter(|(begin, end)| begin < end) {
                runs.push(Claimed { file: claims.file, begin, end, by: id, is_unchanged });
                for extent in begin..end {
                    if !work.one_more()? {
                        return Ok(false);
                    }
                    if let Some((true, map)) = self.is_free(claims.file, extent) {
                        found.add(is_unchanged && map.lsn < with.unchanged_before, || {
                            let of = shown(claims.file, extent);
                            format!("{of}: IAM page {}:{} claims it, and GAM calls it free", id.file, id.page)
                        });
                    }
                    if let Some((true, map)) = self.is_mixed(claims.file, extent) {
                        found.add(is_unchanged && map.lsn < with.unchanged_before, || {
                            let of = shown(claims.file, extent);
                            format!("{of}: IAM page {}:{} claims it, and SGAM calls it mixed", id.file, id.page)
                        });
                    }
                    self.compare_owners(id, claims, extent, with, found);
                }
            }
        }
        compare_runs(runs, found, work)
    }

    /// The pages of an extent against the IAM page that claims it.
    fn compare_owners(
        &self,
        id: PageId,
        claims: &Claims,
        extent: u32,
        with: &Compared<'_>,
        found: &mut Contradictions,
    ) {
        if with.later.contains_key(&(claims.file, extent)) {
            return;
        }
        let begin = extent.saturating_mul(PAGES_PER_EXTENT);
        let end = begin.saturating_add(PAGES_PER_EXTENT);
        let behind = self.owned.partition_point(|run| (run.file, run.behind()) <= (claims.file, begin));
        let runs = self.owned.iter().skip(behind).take_while(|run| run.file == claims.file && run.first < end);
        for run in runs.filter(|run| run.owner != claims.owner) {
            for page in run.first.max(begin)..run.behind().min(end) {
                if with.in_use.is_in_use(PageId { file: claims.file, page }) != Some(true) {
                    continue;
                }
                found.add(claims.lsn < with.unchanged_before, || {
                    format!(
                        "page {}:{page}: it belongs to allocation unit {}, and IAM page {}:{} gives its extent to {}",
                        claims.file, run.owner, id.file, id.page, claims.owner
                    )
                });
            }
        }
    }
}

/// Extents of a file that an IAM page claims, up to `end`.
struct Claimed {
    file: u16,
    begin: u32,
    end: u32,
    by: PageId,
    is_unchanged: bool,
}

/// Names extents that two IAM pages claim. False if there are too many.
fn compare_runs(mut runs: Vec<Claimed>, found: &mut Contradictions, work: &mut Work<'_>) -> Result<bool> {
    runs.sort_by_key(|run| (run.file, run.begin, run.by));
    let mut furthest: Option<Claimed> = None;
    for run in runs {
        let before = furthest.as_ref().filter(|before| before.file == run.file && run.begin < before.end);
        if let Some(before) = before {
            for extent in run.begin..run.end.min(before.end) {
                if !work.one_more()? {
                    return Ok(false);
                }
                found.add(before.is_unchanged && run.is_unchanged, || {
                    let (of, one, two) = (shown(run.file, extent), before.by, run.by);
                    format!("{of}: IAM pages {}:{} and {}:{} claim it", one.file, one.page, two.file, two.page)
                });
            }
        }
        if before.is_none_or(|before| run.end > before.end) {
            furthest = Some(run);
        }
    }
    Ok(true)
}

/// An extent by its pages.
pub(super) fn shown(file: u16, extent: u32) -> String {
    let first = extent.saturating_mul(PAGES_PER_EXTENT);
    format!("the extent of pages {file}:{first} to {file}:{}", first.saturating_add(PAGES_PER_EXTENT - 1))
}
