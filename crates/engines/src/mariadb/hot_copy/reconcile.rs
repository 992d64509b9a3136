//! What DDL has done to the tablespaces since they were copied: decided by their numbers, because names change and numbers do not.

use std::collections::{HashMap, HashSet};

/// A tablespace file that was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// The tablespace's number; none if page 0 was still zero.
    pub space: Option<u32>,
    /// Its name in the copy.
    pub name: String,
    /// Bytes when its copy began.
    pub size: u64,
}

/// A tablespace file that is there now, while DDL is blocked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// The tablespace's number; none if page 0 is still zero.
    pub space: Option<u32>,
    /// Its name in the copy.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Whether it has to be copied again if it is shorter than it was.
    pub undo: bool,
}

/// What to do; every index is into one of the two lists that it was made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reconciled {
    /// Copied and present: the copy is kept under the present name.
    pub keep: Vec<(usize, usize)>,
    /// Copied, and not part of the copy any more.
    pub discard: Vec<usize>,
    /// Present, and to be copied now.
    pub copy: Vec<usize>,
}

/// Compares what was copied with what is there.
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
            Some(copy) if !(file.undo && file.size < copied[copy].size) => {
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

    fn copied(space: impl Into<Option<u32>>, name: &str, size: u64) -> Copied {
        Copied { space: space.into(), name: name.into(), size }
    }

    fn present(space: impl Into<Option<u32>>, name: &str, size: u64) -> Present {
        Present { space: space.into(), name: name.into(), size, undo: name.starts_with("undo") }
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
            before in prop::collection::vec((prop::option::of(0_u32..8), 0_u64..3), 0..12),
            now in prop::collection::vec((prop::option::of(0_u32..8), 0_u64..3, any::<bool>()), 0..12),
        ) {
            let before: Vec<Copied> = before.iter().enumerate()
                .map(|(index, (space, size))| copied(*space, &index.to_string(), *size)).collect();
            let now: Vec<Present> = now.iter().enumerate().map(|(index, (space, size, undo))| {
                Present { space: *space, name: index.to_string(), size: *size, undo: *undo }
            }).collect();
            let plan = reconcile(&before, &now);
            let mut places: Vec<usize> = plan.keep.iter().map(|(_, present)| *present).chain(plan.copy.iter().copied()).collect();
            places.sort_unstable();
            prop_assert_eq!(places, (0..now.len()).collect::<Vec<_>>());
            let mut used: Vec<usize> = plan.keep.iter().map(|(copy, _)| *copy).chain(plan.discard.iter().copied()).collect();
            used.sort_unstable();
            prop_assert_eq!(used, (0..before.len()).collect::<Vec<_>>());
            for (copy, present) in &plan.keep {
                prop_assert!(before[*copy].space.is_some() && before[*copy].space == now[*present].space);
            }
        }
    }
}
