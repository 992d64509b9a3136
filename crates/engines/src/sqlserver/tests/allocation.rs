//! GAM and IAM pages against PFS pages and against the pages themselves.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::io::{Cursor, Read};
use std::sync::Arc;

use fullbore_core::Error;

use super::super::allocation::{self, Allocation};
use super::super::allocation_maps::{AllocationMaps, Compared, GAM, IAM, SGAM, begin_at, mark, own};
use super::super::configuration::BackupKind;
use super::super::lsn::Lsn;
use super::super::page::{PAGE, PageId, seal};
use super::super::verify::verify;
use super::super::writer::{FamilyWriter, sample_extents, sample_full, sample_label, sample_set};
use super::family;
use crate::engine::{ForeignFamily, ForeignVerification};
use crate::foreign_set::bytes::{FamilyBytes, InOrder, Watch};

/// Extents 0 to 3 of file 1. Those of numbers 1 and 2 belong to object 77, as the IAM page 4 says. All are in use, but for
/// the last page of each.
struct Pages(Vec<[u8; PAGE]>);

impl Pages {
    fn healthy() -> Self {
        let mut pages = Self(sample_extents(&[0, 1, 2, 3], 4).as_chunks::<PAGE>().0.to_vec());
        let free: Vec<u32> = (4..128).collect();
        pages.map(2, GAM, |page| mark(page, &free));
        pages.map(4, IAM, |page| {
            mark(page, &[1, 2]);
            own(page, 256, 77);
        });
        for number in (8..24).filter(|number| number % 8 != 7) {
            pages.change(number, |page| own(page, 256, 77));
        }
        pages
    }

    /// Makes an allocation map, without what the page held.
    fn map(&mut self, number: u32, kind: u8, make: impl FnOnce(&mut [u8; PAGE])) {
        let page = &mut self.0[number as usize];
        *page = [0; PAGE];
        page[1] = kind;
        begin_at(page, PageId { file: 1, page: 0 });
        make(page);
        self.change(number, |_| ());
    }

    fn change(&mut self, number: u32, change: impl FnOnce(&mut [u8; PAGE])) {
        let page = &mut self.0[number as usize];
        change(page);
        let kind = page[1];
        seal(page, PageId { file: 1, page: number }, kind);
    }

    fn changed_at(&mut self, number: u32, lsn: Lsn) {
        self.change(number, |page| page[40..50].copy_from_slice(&lsn.to_bytes()));
    }

    fn verified(&self) -> ForeignVerification {
        let mut set = sample_set(BackupKind::Full, 1);
        set.copies = vec![self.0.concat()];
        verify(vec![family("x.bak", &FamilyWriter::new(&sample_label(1, 1), 512).set(&set).finish())], None).unwrap()
    }

    /// The warnings; there is no damage.
    #[track_caller]
    fn warned(&self) -> Vec<String> {
        let found = self.verified();
        assert!(found.damage.is_empty(), "{:?}", found.damage);
        found.warnings
    }
}

#[track_caller]
fn is_one(warnings: &[String], words: &[&str]) {
    let [warning] = warnings else { panic!("{warnings:?}") };
    assert!(words.iter().all(|word| warning.contains(word)), "{warning}");
}

#[test]
fn maps_that_agree_and_stale_pages_that_are_not_in_use_give_no_warning() {
    let mut pages = Pages::healthy();
    assert_eq!(pages.warned(), Vec::<String>::new());
    pages.change(15, |page| own(page, 256, 99));
    // Bits behind the end of the file mean nothing.
    pages.map(5, IAM, |page| {
        mark(page, &[200, 63_900]);
        own(page, 256, 88);
    });
    assert_eq!(pages.warned(), Vec::<String>::new());
}

#[test]
fn an_extent_that_gam_calls_free_and_pfs_in_use_is_named() {
    let mut pages = Pages::healthy();
    let free: Vec<u32> = (3..128).collect();
    pages.map(2, GAM, |page| mark(page, &free));
    let words =
        ["contradicts itself", "pages 1:24 to 1:31", "GAM page 1:2 calls it free, and 7 of its pages", "CHECKDB"];
    is_one(&pages.warned(), &words);
    let allocated: Vec<u32> = (6..128).collect();
    pages.map(2, GAM, |page| mark(page, &allocated));
    let found = pages.verified();
    assert!(found.warnings.is_empty() && found.facts.iter().any(|fact| fact.contains("2 extents allocated without")));
}

#[test]
fn a_page_that_contradicts_its_allocation_is_named_with_both_owners() {
    let mut pages = Pages::healthy();
    pages.change(9, |page| own(page, 256, 78));
    let (theirs, ours) = ((256_u64 << 48 | 78 << 16).to_string(), (256_u64 << 48 | 77 << 16).to_string());
    is_one(&pages.warned(), &["page 1:9", &theirs, "IAM page 1:4", &ours]);
}

#[test]
fn an_extent_that_two_iam_pages_claim_or_that_is_free_is_named() {
    let mut pages = Pages::healthy();
    pages.map(5, IAM, |page| {
        mark(page, &[3, 2]);
        own(page, 256, 77);
    });
    is_one(&pages.warned(), &["pages 1:16 to 1:23", "IAM pages 1:4 and 1:5 claim it"]);
    let mut pages = Pages::healthy();
    let free: Vec<u32> = (4..128).collect();
    pages.map(2, GAM, |page| mark(page, &free));
    pages.map(4, IAM, |page| {
        mark(page, &[1, 2, 9]);
        own(page, 256, 77);
    });
    is_one(&pages.warned(), &["pages 1:72 to 1:79", "IAM page 1:4 claims it, and GAM calls it free"]);
}

#[test]
fn an_extent_that_sgam_calls_mixed_and_the_other_maps_do_not_is_named() {
    let mut pages = Pages::healthy();
    // Extent 3 is mixed: PFS says so of a page of it.
    pages.map(3, SGAM, |page| mark(page, &[3]));
    pages.change(1, |page| allocation::mark_mixed(page, &[24, 25]));
    assert_eq!(pages.warned(), Vec::<String>::new());
    pages.map(3, SGAM, |page| mark(page, &[0]));
    is_one(&pages.warned(), &["pages 1:0 to 1:7", "SGAM page 1:3 calls it mixed, and PFS says that one object"]);
    pages.map(3, SGAM, |page| mark(page, &[9]));
    is_one(&pages.warned(), &["pages 1:72 to 1:79", "SGAM page 1:3 calls it mixed, and GAM calls it free"]);
    pages.map(3, SGAM, |page| mark(page, &[1]));
    pages.change(1, |page| allocation::mark_mixed(page, &[8]));
    is_one(&pages.warned(), &["pages 1:8 to 1:15", "IAM page 1:4 claims it, and SGAM calls it mixed"]);
}

#[test]
fn extents_that_were_allocated_while_the_backup_was_made_are_a_warning() {
    let first = sample_set(BackupKind::Full, 1).configuration.database.first;
    let mut pages = Pages::healthy();
    pages.0.truncate(24);
    let found = pages.verified();
    assert!(found.damage[0].to_string().contains("pages 1:24 to 1:31"), "{found:?}");
    pages.changed_at(1, first);
    assert_eq!(pages.verified().damage.len(), 1, "GAM has not changed");
    pages.changed_at(2, first);
    is_one(&pages.warned(), &["the backup lacks 1 extent in use: pages 1:24 to 1:31", "its log may have them"]);
}

#[test]
fn pages_that_changed_while_the_backup_was_made_prove_nothing() {
    let first = sample_set(BackupKind::Full, 1).configuration.database.first;
    let mut pages = Pages::healthy();
    pages.change(9, |page| own(page, 256, 78));
    pages.changed_at(4, first);
    let found = pages.verified();
    assert!(found.damage.is_empty() && found.warnings.is_empty(), "{:?}", found.warnings);
    assert!(found.facts.iter().any(|fact| fact.contains("1 difference between")), "{:?}", found.facts);
    let mut pages = Pages::healthy();
    pages.change(9, |page| own(page, 256, 78));
    pages.changed_at(9, first);
    assert!(pages.verified().warnings.is_empty(), "the page itself has changed");
}

#[test]
fn maps_that_claim_too_much_are_compared_in_part_with_looks_at_signals() {
    let (mut maps, mut in_use) = (AllocationMaps::default(), Allocation::default());
    let id = |page| PageId { file: 1, page };
    let mut pfs = [0; PAGE];
    allocation::mark(&mut pfs, &[4, 5]);
    in_use.learn(id(1), &pfs, 1);
    for number in [4, 5] {
        let mut page = [0; PAGE];
        mark(&mut page, &(0..60_000).collect::<Vec<_>>());
        own(&mut page, 256, number);
        begin_at(&mut page, id(0));
        seal(&mut page, id(number), IAM);
        maps.learn(id(number), &page, 1, Lsn::default());
    }
    let looks = Cell::new(0);
    let watch = || {
        looks.set(looks.get() + 1);
        Ok(())
    };
    let (later, sizes) = (BTreeMap::new(), HashMap::from([(1, 63_904)]));
    let unchanged_before = Lsn { file: 1, block: 1, slot: 1 };
    let with = Compared { in_use: &in_use, later: &later, unchanged_before, sizes: &sizes, watch: &watch };
    let found = maps.compare_up_to(170_000, &with).unwrap();
    assert_eq!((found.in_part, found.more), (true, 50_000 - 20), "two maps of 60,000 extents, and their overlap");
    assert!(looks.get() > 40, "{}", looks.get());
}

#[test]
fn a_signal_ends_the_comparison() {
    struct Stopped(InOrder<Cursor<Vec<u8>>>);
    impl Read for Stopped {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(into)
        }
    }
    impl FamilyBytes for Stopped {
        fn skip(&mut self, bytes: u64) -> std::io::Result<()> {
            self.0.skip(bytes)
        }
        fn watch(&self) -> Watch {
            Arc::new(|| Err(Error::Cancelled { by: "SIGTERM" }))
        }
    }
    let bytes = Box::new(Stopped(InOrder(Cursor::new(sample_full(false)))));
    let error = verify(vec![ForeignFamily { device: "x.bak".into(), bytes }], None).unwrap_err();
    assert_eq!(error.exit_kind().exit_code(), 143, "{error}");
}

#[test]
fn zeros_in_the_place_of_a_page_in_use_are_damage() {
    let mut pages = Pages::healthy();
    pages.0[10] = [0; PAGE];
    let found = pages.verified();
    assert!(found.damage[0].to_string().contains("page 1:10: it is in use, but every byte is zero"), "{found:?}");
}
