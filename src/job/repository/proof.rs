//! Before a proven chain lets prune remove other sets, this looks at header and footer of each of its families. A
//! verdict is only as new as its reading, and a family that was since lost, zeroed or exchanged may have the same time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use fullbore_core::{Error, Result, threads};
use uuid::Uuid;

use super::title;
use fullbore_repository::Repository;
use fullbore_repository::chain::retention::KeptSet;
use fullbore_repository::discovery;
use fullbore_repository::inventory::StoredSet;

/// The number of sets that are looked at in parallel.
const AT_ONCE: usize = 16;

/// The sets that were looked at so far.
pub(super) struct Proof<'a> {
    repository: &'a Repository,
    /// For each set, why it is not usable.
    looked: HashMap<Uuid, Option<String>>,
}

impl<'a> Proof<'a> {
    pub(super) fn of(repository: &'a Repository) -> Self {
        Self { repository, looked: HashMap::new() }
    }

    /// Looks at these sets, each once. A set that has changed since its verdict counts as incomplete. True when there
    /// is such a set.
    ///
    /// # Errors
    /// The job was stopped.
    pub(super) fn look<'s>(
        &mut self,
        sets: impl Iterator<Item = (usize, &'s StoredSet)>,
        kept: &mut [KeptSet],
        warnings: &mut Vec<String>,
    ) -> Result<bool> {
        let sets: Vec<(usize, &StoredSet)> = sets.collect();
        let new: Vec<&StoredSet> =
            sets.iter().map(|(_, set)| *set).filter(|set| !self.looked.contains_key(&id(set))).collect();
        let found = Mutex::new(Vec::new());
        threads::in_turns("look", AT_ONCE, new, |set| {
            let against = self.against(set)?;
            found.lock().unwrap_or_else(PoisonError::into_inner).push((id(set), against));
            Ok(())
        })?;
        self.looked.extend(found.into_inner().unwrap_or_else(PoisonError::into_inner));
        let mut learnt = false;
        for (at, set) in sets {
            if let Some(Some(why)) = self.looked.get(&id(set)).filter(|_| kept[at].complete) {
                warnings.push(format!("{} was verified, but cannot be used now: {why}", title(&set.record)));
                (kept[at].complete, learnt) = (false, true);
            }
        }
        Ok(learnt)
    }

    /// Why a set is not usable, by header and footer of each of its families.
    fn against(&self, set: &StoredSet) -> Result<Option<String>> {
        let header =
            set.devices(self.repository).and_then(|devices| discovery::whole_set_on(&devices, &self.repository.stores));
        match header {
            Ok(header) if (header.backup_set_id, header.media_set_id) == (id(set), set.record.media_set_id) => Ok(None),
            Ok(header) => Ok(Some(format!("its families now contain backup set {}", header.backup_set_id))),
            Err(error @ (Error::Cancelled { .. } | Error::Halted)) => Err(error),
            Err(error) if error.is_exhaustion() => Err(error),
            Err(error) => Ok(Some(error.one_line())),
        }
    }
}

fn id(set: &StoredSet) -> Uuid {
    set.record.backup_set_id
}
