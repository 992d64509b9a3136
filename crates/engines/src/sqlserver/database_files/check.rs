//! The judgement on data files that were written.

use std::ops::Range;

use fullbore_core::{Error, Result};

use super::{DatabaseFiles, Written};
use crate::sqlserver::allocation::{Allocation, INTERVAL, is_of_pfs};
use crate::sqlserver::configuration::FileKind;
use crate::sqlserver::page::{PAGE, PAGES_PER_EXTENT, PageId};

impl DatabaseFiles {
    /// Judges the data files: every page in use is at its place, and matched its check when it was written.
    ///
    /// # Errors
    /// A page in use is damaged, missing, or that of another place; a map of pages in use cannot be read; the job ends.
    pub fn check(&self) -> Result<()> {
        for (&id, written) in self.files.iter().filter(|(_, written)| written.kind == FileKind::Data) {
            let file = u16::try_from(id).unwrap_or(u16::MAX);
            let mut allocation = Allocation::default();
            // The number of a page has 32 bits.
            let pages = u32::try_from(written.restored.size / PAGE as u64).unwrap_or(u32::MAX);
            for begin in (0..pages).step_by(INTERVAL as usize) {
                (self.watch)()?;
                let interval = begin..begin.saturating_add(INTERVAL).min(pages);
                // Without an extent, no PFS page says that a page is in use.
                if begin == 0 || self.has_lost || self.has_extent(file, &interval) {
                    self.check_interval(file, interval, &mut allocation, written)?;
                }
            }
        }
        Ok(())
    }

    /// True if an extent with one of these pages was written.
    fn has_extent(&self, file: u16, pages: &Range<u32>) -> bool {
        let extents = pages.start / PAGES_PER_EXTENT..pages.end.div_ceil(PAGES_PER_EXTENT);
        extents.into_iter().any(|extent| self.there.contains(file, extent.into()))
    }

    fn check_interval(
        &self,
        file: u16,
        pages: Range<u32>,
        allocation: &mut Allocation,
        written: &Written,
    ) -> Result<()> {
        for number in pages {
            let here = PageId { file, page: number };
            let is_right = written.right.contains(number);
            if is_right && is_of_pfs(here) {
                allocation.learn(here, &*written.page(number)?, 1);
            }
            if !is_right && self.is_in_use(here, allocation, written)? {
                let what = format!("page {file}:{number} of the restored database is in use and is not right");
                let offset = u64::from(number) * PAGE as u64;
                return Err(Error::damaged(written.name(), offset, what));
            }
        }
        Ok(())
    }

    /// Whether a page that is not right is in use. Where no PFS page says it, only zeros were never used.
    fn is_in_use(&self, here: PageId, allocation: &Allocation, written: &Written) -> Result<bool> {
        // Page 0 comes before the page that says which are in use, and always is. So is the PFS page itself.
        let is_there = || self.there.contains(here.file, (here.page / PAGES_PER_EXTENT).into());
        match allocation.is_in_use(here) {
            _ if here.page == 0 => Ok(true),
            _ if is_of_pfs(here) => Ok(is_there() || self.has_lost),
            Some(is_in_use) => Ok(is_in_use),
            None if is_there() => Ok(written.page(here.page)?.iter().any(|byte| *byte != 0)),
            None => Ok(false),
        }
    }
}
