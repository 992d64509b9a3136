//! The changes by DDL to the tablespaces since they were copied. They are found by numbers, because names change and
//! numbers do not, and by files, because IMPORT TABLESPACE puts another file under the same number.

use std::collections::{HashMap, HashSet};

use super::stamp::Stamp;

/// A tablespace file that was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The tablespace's number; `None` if page 0 was still zero.
    pub space: Option<u32>,
    /// Its name in the copy.
    pub name: String,
    /// The file when its copy began; its size among it.
    pub stamp: Stamp,
    /// The redo log may lack later writes to the file: then the copy is kept only if there were no writes.
    pub doubtful: bool,
    /// Whether any write since its copy began changes the stamp.
    pub settled: bool,
}

impl Copied {
    /// Whether nothing was written to the file since its copy began.
    pub fn is_untouched(&self, now: &Stamp) -> bool {
        self.settled && self.stamp == *now
    }

    /// Whether the copy and the redo log together make the current file.
    fn serves(&self, now: &Present) -> bool {
        let shorter = now.undo && now.stamp.size < self.stamp.size;
        // Another file with the same number was imported.
        !shorter && self.stamp.is_same_file(&now.stamp) && (!self.doubtful || self.is_untouched(&now.stamp))
    }
}

/// A tablespace file that is there now, while DDL is blocked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// The tablespace's number; `None` if page 0 is still zero.
    pub space: Option<u32>,
    /// Its name in the copy.
    pub name: String,
    /// The current file.
    pub stamp: Stamp,
    /// Whether it has to be copied again if it is shorter than it was.
    pub undo: bool,
}

/// The steps; every index is into one of the two input lists.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Copied and present: the copy is kept under the present name.
    pub keep: Vec<(usize, usize)>,
    /// Copied, and not part of the copy any more.
    pub discard: Vec<usize>,
    /// Present, and to be copied now.
    pub copy: Vec<usize>,
}

/// Compares the copied files with the current files.
pub fn reconcile(copied: &[Copied], present: &[Present]) -> Reconciled {
    let mut plan = Reconciled::default();
    let (mut once, mut twice) = (HashSet::new(), HashSet::new());
    for space in present.iter().filter_map(|file| file.space) {
        if !once.insert(space) {
            twice.insert(space);
        }
    }
    // A file that was renamed between two looks may have been copied twice: one is enough.
    let mut by_space: HashMap<u32, usize> = HashMap::new();
    for (index, file) in copied.iter().enumerate() {
        if let Some(space) = file.space.filter(|space| !twice.contains(space)) {
            by_space.entry(space).or_insert(index);
        }
    }
    let mut kept = HashSet::new();
    for (index, file) in present.iter().enumerate() {
        let known = file.space.and_then(|space| by_space.get(&space).copied());
        match known {
            Some(copy) if copied[copy].serves(file) => {
                kept.insert(copy);
                plan.keep.push((copy, index));
            }
            _ => plan.copy.push(index),
        }
    }
    plan.discard = (0..copied.len()).filter(|index| !kept.contains(index)).collect();
    plan
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Its inode is its number.
    fn stamp(space: Option<u32>, size: u64) -> Stamp {
        Stamp::made(space.unwrap_or(0).into(), size, 100)
    }

    fn copied(space: impl Into<Option<u32>>, name: &str, size: u64) -> Copied {
        let space = space.into();
        Copied { space, name: name.into(), stamp: stamp(space, size), doubtful: false, settled: true }
    }

    fn present(space: impl Into<Option<u32>>, name: &str, size: u64) -> Present {
        let space = space.into();
        Present { space, name: name.into(), stamp: stamp(space, size), undo: name.starts_with("undo") }
    }

    #[test]
    fn another_file_under_the_same_number_is_copied_again() {
        let imported = Present { stamp: Stamp::made(77, 9, 100), ..present(5, "a", 9) };
        let plan = reconcile(&[copied(5, "a", 9)], &[imported]);
        assert_eq!(plan, Reconciled { keep: vec![], discard: vec![0], copy: vec![0] });
    }

    #[test]
    fn a_doubtful_copy_is_kept_only_if_the_file_was_not_written_to() {
        let kept = |copied: Copied, present: Present| !reconcile(&[copied], &[present]).keep.is_empty();
        let doubtful = Copied { doubtful: true, ..copied(5, "a", 9) };
        let written = Present { stamp: Stamp::made(5, 9, 200), ..present(5, "a", 9) };
        assert!(kept(doubtful.clone(), present(5, "a", 9)) && !kept(doubtful.clone(), written.clone()));
        assert!(!kept(Copied { settled: false, ..doubtful }, present(5, "a", 9)));
        assert!(kept(Copied { settled: false, ..copied(5, "a", 9) }, written));
    }

    #[test]
    fn names_that_were_exchanged_are_exchanged_in_the_copy() {
        let plan = reconcile(&[copied(5, "a", 9), copied(6, "b", 9)], &[present(6, "a", 9), present(5, "b", 9)]);
        assert_eq!(plan, Reconciled { keep: vec![(1, 0), (0, 1)], ..Reconciled::default() });
    }

    #[test]
    fn a_truncated_table_is_a_new_one_and_a_dropped_one_is_gone() {
        let plan = reconcile(&[copied(5, "a", 9), copied(6, "b", 9)], &[present(7, "a", 4)]);
        assert_eq!(plan, Reconciled { keep: vec![], discard: vec![0, 1], copy: vec![0] });
    }

    #[test]
    fn only_an_undo_tablespace_is_copied_again_when_it_is_shorter() {
        let before = [copied(1, "undo001", 9), copied(2, "undo002", 9), copied(5, "a", 9)];
        let plan = reconcile(&before, &[present(1, "undo001", 8), present(2, "undo002", 10), present(5, "a", 8)]);
        assert_eq!(plan, Reconciled { keep: vec![(1, 1), (2, 2)], discard: vec![0], copy: vec![0] });
    }

    #[test]
    fn files_without_a_number_or_with_one_that_is_used_twice_are_copied_as_they_stand() {
        let before = [copied(None, "new", 4), copied(5, "a", 9), copied(5, "b", 9)];
        let plan = reconcile(&before, &[present(None, "new", 4), present(5, "a", 9), present(5, "imported", 9)]);
        assert_eq!(plan, Reconciled { keep: vec![], discard: vec![0, 1, 2], copy: vec![0, 1, 2] });
    }

    #[test]
    fn a_file_that_was_copied_under_two_names_is_kept_once() {
        let plan = reconcile(&[copied(5, "a", 9), copied(5, "b", 9)], &[present(5, "b", 9)]);
        assert_eq!(plan, Reconciled { keep: vec![(0, 0)], discard: vec![1], copy: vec![] });
    }

    proptest! {
        #[test]
        fn every_present_file_is_in_the_copy_once_and_with_the_content_of_its_number(
            before in prop::collection::vec((prop::option::of(0_u32..8), 0_u64..3, 0_u64..2, any::<bool>()), 0..12),
            now in prop::collection::vec((prop::option::of(0_u32..8), 0_u64..3, 0_u64..2, any::<bool>()), 0..12),
        ) {
            let before: Vec<Copied> = before.iter().enumerate()
                .map(|(index, (space, size, inode, doubtful))| Copied {
                    stamp: Stamp::made(*inode, *size, 1), doubtful: *doubtful, ..copied(*space, &index.to_string(), 0)
                }).collect();
            let now: Vec<Present> = now.iter().enumerate().map(|(index, (space, size, inode, undo))| Present {
                stamp: Stamp::made(*inode, *size, 1), undo: *undo, ..present(*space, &index.to_string(), 0)
            }).collect();
            let plan = reconcile(&before, &now);
            let kept = plan.keep.iter().map(|(_, present)| *present);
            let mut places: Vec<usize> = kept.chain(plan.copy.iter().copied()).collect();
            places.sort_unstable();
            prop_assert_eq!(places, (0..now.len()).collect::<Vec<_>>());
            let kept = plan.keep.iter().map(|(copy, _)| *copy);
            let mut used: Vec<usize> = kept.chain(plan.discard.iter().copied()).collect();
            used.sort_unstable();
            prop_assert_eq!(used, (0..before.len()).collect::<Vec<_>>());
            for (copy, present) in &plan.keep {
                let (copy, present) = (&before[*copy], &now[*present]);
                prop_assert!(copy.space.is_some() && copy.space == present.space);
                prop_assert!(copy.stamp.is_same_file(&present.stamp));
                prop_assert!(!copy.doubtful || copy.stamp == present.stamp);
            }
        }
    }
}
