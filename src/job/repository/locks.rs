//! Object locks of the sets that prune would remove. Asks about every family: one locked family keeps its whole set.

use std::collections::{BTreeMap, BTreeSet};

use fullbore_core::Result;
use fullbore_core::device::Destination;
use fullbore_core::store::{Lock, PERMISSIONS};

use super::prune::Pruned;
use fullbore_core::units::counted;
use fullbore_repository::Repository;
use fullbore_repository::chain::retention::KeptSet;
use fullbore_repository::inventory::StoredSet;

/// The answers so far.
pub(super) struct Locks<'a> {
    repository: &'a Repository,
    /// By the number of a set in the plan: the buckets in which its removal leaves old versions behind.
    asked: BTreeMap<usize, BTreeSet<String>>,
    /// Families whose lock state the account may not read: the first of them, and the number of their sets.
    unknown: Option<(String, u64)>,
}

impl<'a> Locks<'a> {
    pub(super) fn of(repository: &'a Repository) -> Self {
        Self { repository, asked: BTreeMap::new(), unknown: None }
    }

    /// Asks until when the sets are locked that would be removed, each once; true when one of them is locked.
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

    /// Until when a set is locked, in microseconds since 1970; without a known end, the last possible time.
    fn ask(&mut self, at: usize, set: &StoredSet) -> Result<Option<i64>> {
        let (mut until, mut versions, mut unknown) = (None, BTreeSet::new(), None);
        for device in set.devices(self.repository)? {
            let Destination::Object { bucket, key } = device.place() else { continue };
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

    /// Adds the warnings and notes about sets that are removed, and about sets whose lock state is unknown.
    pub(super) fn say(&self, go: &[usize], pruned: &mut Pruned) {
        pruned.warnings.extend(self.unknown.as_ref().map(|(first, sets)| {
            let sets = counted(*sets, "set");
            format!(
                "kept: {sets}, whose lock state is unknown: the account may not read it (first: `{first}`): \
                 {PERMISSIONS}"
            )
        }));
        let buckets: BTreeSet<&String> = go.iter().filter_map(|at| self.asked.get(at)).flatten().collect();
        pruned.notes.extend(buckets.into_iter().map(|bucket| {
            format!(
                "{bucket} keeps versions: removed objects stay behind delete markers and free no space until a \
                 lifecycle rule of the bucket expires them (NoncurrentVersionExpiration)"
            )
        }));
    }
}
