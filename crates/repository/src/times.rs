//! When a set was stored, and when its verdicts were given: by the store's clock, if known.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;

use fullbore_core::device::Destination;
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::Repository;
use super::format::{FamilyRecord, SetRecord};
use super::records::{Entry, modified};
use crate::chain::show_time;

/// In microseconds.
const SECOND: i64 = 1_000_000;
pub(super) const DAY: i64 = 86_400 * SECOND;

/// The times of the newest verdicts on a set, by the store's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Verdicts {
    pub passed: Option<i64>,
    pub failed: Option<i64>,
    pub proven: Option<i64>,
}

/// The verdicts on each set. The names of the records are enough.
pub(super) fn verdicts(repository: &Repository, copied_at: Option<i64>) -> Result<HashMap<Uuid, Verdicts>> {
    let mut found: HashMap<Uuid, Verdicts> = HashMap::new();
    for entry in repository.records.list("verdicts/")? {
        let mut parts = entry.name.split('.');
        let Some(id) = parts.next().and_then(|id| Uuid::try_parse(id).ok()) else { continue };
        let verdicts = found.entry(id).or_default();
        let mut number = || parts.next().map(|part| (part, part.parse::<i64>().ok()));
        let named = number().and_then(|(_, time)| time);
        let of = match number() {
            Some(("passed", _)) => &mut verdicts.passed,
            Some(("failed", _)) => &mut verdicts.failed,
            Some(("proven", _)) => &mut verdicts.proven,
            _ => continue,
        };
        // A write during the reading may have been missed, so the beginning counts. Earlier versions do not record it.
        let began = number().and_then(|(_, began)| began).map(|began| began.min(entry.modified));
        let before = named.filter(|&time| copied_at.is_some_and(|copied| time < copied));
        *of = (*of).max(Some(began.or(before).unwrap_or(entry.modified)));
    }
    Ok(found)
}

impl Verdicts {
    /// Removes good verdicts that are older than the last write to the set, at `modified`. If the whole repository was
    /// copied here, its files are younger than their verdicts, and the verdicts stay.
    pub fn forget_before(&mut self, modified: Option<i64>, copied_at: Option<i64>) {
        // To copy a large repository takes long.
        let of_copying = copied_at.map_or(i64::MIN, |at| at.saturating_add(DAY));
        let Some(modified) = modified.filter(|modified| *modified > of_copying) else { return };
        for found_good in [&mut self.passed, &mut self.proven] {
            *found_good = found_good.filter(|at| !is_later(modified, *at));
        }
    }
}

/// True if `modified` is after `at`.
fn is_later(modified: i64, at: i64) -> bool {
    // Many stores give whole seconds only.
    let grace = if modified % SECOND == 0 { SECOND } else { 0 };
    at.saturating_add(grace) < modified
}

/// The identity of a family's content: another file, length, time or tag means another content.
#[derive(PartialEq, Eq)]
struct FamilyIdentity {
    size: u64,
    modified: i64,
    /// Device and number of a file.
    file: Option<(u64, u64)>,
    /// The ETag of an object.
    tag: Option<String>,
}

/// The reading of sets for a verdict. The families must not change from its beginning to its end.
pub struct JudgedReading {
    families: Vec<(FamilyRecord, Option<FamilyIdentity>)>,
    began: Result<i64>,
}

impl JudgedReading {
    /// Begins it, before any family of these sets is opened.
    ///
    /// # Errors
    /// A family cannot be looked at.
    pub fn begin<'a>(repository: &Repository, sets: impl IntoIterator<Item = &'a SetRecord>) -> Result<Self> {
        let began = match repository.now() {
            Err(error @ (Error::Cancelled { .. } | Error::Halted)) => return Err(error),
            // If nothing can be written, no verdict can be written either.
            now => now,
        };
        let families = sets.into_iter().flat_map(|set| &set.families);
        let noted = families.map(|family| Ok((family.clone(), repository.standing(family)?)));
        Ok(Self { families: noted.collect::<Result<_>>()?, began })
    }

    /// When it began, in microseconds since 1970 by the store's clock.
    ///
    /// # Errors
    /// The repository could not be written to.
    pub fn began(self) -> Result<i64> {
        self.began
    }

    /// Ends it, and checks that no family has changed. Returns a warning for each family that is dated after the
    /// reading: a good verdict on it does not count.
    ///
    /// # Errors
    /// A family was written to or replaced meanwhile, or cannot be looked at.
    pub fn end(&self, repository: &Repository) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        for (family, before) in &self.families {
            let device = family.device(&repository.places)?;
            if repository.standing(family)? != *before {
                let why = "was changed while it was read: its present content is not verified";
                let hint = "find the program that writes there, for no program may change a family; then verify again";
                return Err(Error::incomplete(device.to_string(), why, hint));
            }
            let modified = before.as_ref().map_or(i64::MIN, |before| before.modified);
            if self.began.as_ref().is_ok_and(|began| is_later(modified, *began)) {
                warnings.push(format!(
                    "`{device}` is dated {}, after this verification began: `check` and `prune` do not count the \
                     result. Correct the time of the file or the clock, and verify again",
                    show_time(modified)
                ));
            }
        }
        Ok(warnings)
    }
}

impl Repository {
    /// The identity of a family's content; `None` if it is not there.
    fn standing(&self, family: &FamilyRecord) -> Result<Option<FamilyIdentity>> {
        let device = family.device(&self.places)?;
        if let Destination::Object { bucket, key } = device.place() {
            let head = self.stores.bucket(bucket)?.head(key)?;
            return Ok(head.map(|head| FamilyIdentity {
                size: head.size,
                modified: head.modified,
                file: None,
                tag: head.tag,
            }));
        }
        let Some(path) = device.path() else { return Ok(None) };
        match std::fs::metadata(path) {
            Ok(found) => Ok(Some(FamilyIdentity {
                size: found.len(),
                modified: modified(&found),
                file: Some((found.dev(), found.ino())),
                tag: None,
            })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io("look at", device.to_string(), error)),
        }
    }
}

/// When a set was stored, by the store's clock. Many stores give whole seconds only: within the second, the writer's
/// clock counts. It also counts if the whole repository was copied here: the store knows only the time of the copy.
pub(super) fn stored_at(first: &Entry, record: &SetRecord, copied_at: Option<i64>) -> i64 {
    if let Some(before) = record.stored_at {
        return before.min(first.modified);
    }
    if copied_at.is_some_and(|copied| record.finished_at < copied) {
        return record.finished_at;
    }
    let within = first.modified % SECOND == 0 && record.finished_at.div_euclid(SECOND) == first.modified / SECOND;
    if within { record.finished_at } else { first.modified }
}
