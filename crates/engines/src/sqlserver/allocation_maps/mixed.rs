//! What SGAM pages (Shared Global Allocation Map) say, compared with the other maps. A set bit is a mixed extent, whose
//! pages belong to several objects, and of which a page is free.

use super::compare::shown;
use super::{AllocationMaps, Compared, Contradictions, Extents, INTERVAL, gam_of, is_set};
use crate::sqlserver::page::PageId;

/// The type of an SGAM page.
pub const SGAM: u8 = 9;

/// The SGAM page that describes an extent: it is behind the GAM page.
pub(super) fn sgam_of(file: u16, extent: u32) -> PageId {
    let gam = gam_of(file, extent);
    PageId { page: gam.page.saturating_add(1), ..gam }
}

impl AllocationMaps {
    /// SGAM against GAM and PFS. A bit says nothing where a page in use may be free space again, so only contradictions
    /// count that no order of changes makes.
    pub(super) fn compare_mixed(&self, with: &Compared<'_>, found: &mut Contradictions) {
        for (&(file, number), map) in &self.mixed {
            let Some(first) = number.checked_mul(INTERVAL) else { continue };
            let size = with.sizes.get(&file).copied().unwrap_or_default();
            let extents = (first..size).zip(0..INTERVAL).filter(|(_, at)| is_set(&map.bits, *at));
            for (extent, _) in extents {
                self.compare_one_mixed(file, extent, map, with, found);
            }
        }
    }

    fn compare_one_mixed(
        &self,
        file: u16,
        extent: u32,
        map: &Extents,
        with: &Compared<'_>,
        found: &mut Contradictions,
    ) {
        let is_unchanged = map.lsn < with.unchanged_before;
        let (of, sgam) = (|| shown(file, extent), sgam_of(file, extent).page);
        if let Some((true, free)) = self.is_free(file, extent) {
            found.add(is_unchanged && free.lsn < with.unchanged_before, || {
                format!("{}: SGAM page {file}:{sgam} calls it mixed, and GAM calls it free", of())
            });
            return;
        }
        let used = with.in_use.pages_in_use(file, extent).unwrap_or_default();
        if used == 0 || with.in_use.mixed_pages(file, extent) != Some(0) {
            return;
        }
        let id = PageId { file, page: extent.saturating_mul(crate::sqlserver::page::PAGES_PER_EXTENT) };
        let pfs = with.in_use.changed_at(id).is_some_and(|lsn| lsn < with.unchanged_before);
        found.add(is_unchanged && pfs, || {
            format!("{}: SGAM page {file}:{sgam} calls it mixed, and PFS says that one object owns all its pages", of())
        });
    }

    /// Whether an SGAM page of the backup calls the extent mixed.
    pub(super) fn is_mixed(&self, file: u16, extent: u32) -> Option<(bool, &Extents)> {
        let map = self.mixed.get(&(file, extent / INTERVAL))?;
        Some((is_set(&map.bits, extent % INTERVAL), map))
    }
}
