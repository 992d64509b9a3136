//! What stores do not let go of the sets that would go: asked of every family, for one that is locked keeps its whole set.

use std::collections::{BTreeMap, BTreeSet};

use fullbore_core::Result;
use fullbore_core::device::Place;
use fullbore_core::store::{Lock, PERMISSIONS};

use super::prune::Pruned;
use crate::chain::retention::KeptSet;
use crate::repository::Repository;
use crate::repository::inventory::StoredSet;
use crate::units::counted;

/// What was asked so far.
pub(super) struct Locks<'a> {
    repository: &'a Repository,
    /// Of each set that was asked about, by its place in the plan: the buckets in which it would leave old versions behind.
    asked: BTreeMap<usize, BTreeSet<String>>,
    /// Families of which the account may not know whether they are locked: the first, and of how many sets.
    unknown: Option<(String, u64)>,
}

impl<'a> Locks<'a> {
    pub(super) fn of(repository: &'a Repository) -> Self {
        Self { repository, asked: BTreeMap::new(), unknown: None }
    }

    /// Asks of the sets that would go, each once, until when they are locked; true when one of them is.
    pub(super) fn learn<'s>(
        &mut self,
        sets: impl Iterator<Item = (usize, &'s StoredSet)>,
        kept: &mut [KeptSet],
    ) -> Result<bool> {
        let mut learnt = false;
        for (at, set) in sets {
            if !self.asked.contains_key(&at) {
                let until = self.ask(at, set)?;
                learnt |= until.is_some();
                kept[at].locked_until = until;
            }
        }
        Ok(learnt)
    }

    /// Until when a set is locked, in microseconds since 1970; what has no end that is known, to the end of time.
    fn ask(&mut self, at: usize, set: &StoredSet) -> Result<Option<i64>> {
        let (mut until, mut versions, mut unknown) = (None, BTreeSet::new(), None);
        for device in set.devices(self.repository)? {
            let Place::Object { bucket, key } = device.place() else { continue };
            let bucket = self.repository.stores.bucket(bucket)?;
            let locked = bucket.locked(key)?;
            if locked.leaves_version {
                versions.insert(bucket.shown());
            }
            if let Some(lock) = locked.by {
                until = until.max(Some(lock.until().unwrap_or(jiff::Timestamp::MAX).as_microsecond()));
                if lock == Lock::Unknown {
                    unknown.get_or_insert(bucket.url(key));
                }
            }
        }
        if let Some(first) = unknown {
            self.unknown.get_or_insert((first, 0)).1 += 1;
        }
        self.asked.insert(at, versions);
        Ok(until)
    }

    /// What is to be said of those that go, and of those that nobody knows of.
    pub(super) fn say(&self, go: &[usize], pruned: &mut Pruned) {
        pruned.warnings.extend(self.unknown.as_ref().map(|(first, sets)| {
            let sets = counted(*sets, "set");
            format!(
                "{sets} may be locked, and stay, for the account may not ask for that (`{first}` first): {PERMISSIONS}"
            )
        }));
        let buckets: BTreeSet<&String> = go.iter().filter_map(|at| self.asked.get(at)).flatten().collect();
        pruned.notes.extend(buckets.into_iter().map(|bucket| {
            format!(
                "{bucket} has versions: what is removed there stays behind delete markers, and frees nothing, until a lifecycle rule of the \
                 bucket ends it (NoncurrentVersionExpiration)"
            )
        }));
    }
}
