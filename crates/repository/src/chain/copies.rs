//! One backup set on several media sets: copies that `fullbore copy` made. They hold the same data; fullbore reads one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use uuid::Uuid;

use super::{Choice, FoundSet, title};
use crate::ids;

/// The places of the chosen copies, one for each backup set, in the given order; and a note for each other copy.
/// `--set` with a media-set id chooses. Otherwise these come first, in this order of importance:
/// - a whole copy
/// - a copy that no running or killed backup has touched
/// - a copy that shows its database and its place in the log (its key is there, or it needs none)
/// - an encrypted copy: anybody could have written a copy in clear
/// - the oldest media set
pub(super) fn one_of_each(found: &[FoundSet], choice: &Choice) -> (Vec<usize>, Vec<String>) {
    let mut best: BTreeMap<Uuid, usize> = BTreeMap::new();
    for (at, set) in found.iter().enumerate() {
        let known = best.entry(set.backup_set_id).or_insert(at);
        if rank(set, choice) > rank(&found[*known], choice) {
            *known = at;
        }
    }
    let counts = |at: &usize| best.get(&found[*at].backup_set_id) == Some(at);
    let (places, others): (Vec<usize>, Vec<usize>) = (0..found.len()).partition(counts);
    let note = |at: &usize| {
        let set = &found[*at];
        let read = best.get(&set.backup_set_id).map_or(set.media_set_id, |&best| found[best].media_set_id);
        format!("{} has several copies: fullbore reads media set {read}, not its copy {}", title(set), set.media_set_id)
    };
    let notes = others.iter().filter(|at| found[**at].incomplete.is_none()).map(note).collect();
    (places, notes)
}

type Rank = (bool, bool, bool, bool, bool, bool, Reverse<Uuid>);

fn rank(set: &FoundSet, choice: &Choice) -> Rank {
    let is_media_set = |part: &String| ids::fits(set.media_set_id, part) && !ids::fits(set.backup_set_id, part);
    let named = choice.set.as_ref().is_some_and(is_media_set);
    let (whole, settled) = (set.incomplete.is_none(), !set.interrupted);
    let told = (set.log_range.is_some(), set.database.is_some());
    (named, whole, settled, told.0, told.1, set.encrypted, Reverse(set.media_set_id))
}

#[cfg(test)]
mod tests {
    use fullbore_core::media::SetKind;

    use super::*;

    fn set(backup: u128, media: u128) -> FoundSet {
        FoundSet {
            backup_set_id: Uuid::from_u128(backup << 100),
            media_set_id: Uuid::from_u128(media << 96),
            kind: SetKind::Full,
            base: None,
            started_at: 1,
            incomplete: None,
            interrupted: false,
            database: Some("/app.db".into()),
            names: vec![format!("{media}.bore")],
            log_range: None,
            until_by_store: None,
            encrypted: false,
        }
    }

    fn chosen(found: &[FoundSet], choice: &Choice) -> (Vec<usize>, usize) {
        let (places, notes) = one_of_each(found, choice);
        (places, notes.len())
    }

    #[test]
    fn a_restore_reads_the_oldest_copy_and_names_the_others() {
        let found = [set(1, 5), set(2, 4), set(1, 3), set(1, 7)];
        assert_eq!(chosen(&found, &Choice::default()), (vec![1, 2], 2));
    }

    #[test]
    fn a_whole_copy_comes_before_a_damaged_original_and_a_readable_one_before_one_that_needs_a_key() {
        let mut original = set(1, 3);
        original.incomplete = Some("a family is missing".into());
        assert_eq!(chosen(&[original, set(1, 5)], &Choice::default()), (vec![1], 0));
        let mut encrypted = set(1, 3);
        encrypted.database = None;
        assert_eq!(chosen(&[encrypted, set(1, 5)], &Choice::default()), (vec![1], 1));
    }

    #[test]
    fn an_encrypted_copy_whose_key_is_there_comes_before_one_in_clear() {
        let mut encrypted = set(1, 5);
        encrypted.encrypted = true;
        assert_eq!(chosen(&[set(1, 3), encrypted.clone()], &Choice::default()), (vec![1], 1));
        encrypted.database = None;
        assert_eq!(chosen(&[set(1, 3), encrypted], &Choice::default()), (vec![0], 1), "there is no key");
    }

    #[test]
    fn a_copy_may_be_named_by_its_media_set() {
        let found = [set(1, 3), set(1, 5)];
        let named = Choice { set: Some(found[1].media_set_id.to_string()), ..Choice::default() };
        assert_eq!(chosen(&found, &named), (vec![1], 1));
    }
}
