//! Checks that the places of this host are the places that sets were written into. A disk that is not mounted leaves an
//! empty directory, another account shows an empty prefix, and another host may name more places. The records show
//! this.

use std::collections::{BTreeMap, HashSet};

use fullbore_core::device::{Destination, Device};
use fullbore_core::{Error, Result};

use super::format::{self, FamilyRecord, RepositoryRecord, SetRecord};
use super::records::Records;
use super::{IDENTITY, Repository};
use fullbore_core::units::counted;

/// Before a write, this many of the newest sets are looked up. A place without any of their families is not their
/// place.
const ASKED: usize = 16;

/// A place that is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strange {
    /// The place, or the repository.
    pub thing: String,
    /// Why it is not a place that sets were written into.
    pub why: String,
    /// The next step, with NAME for the name of the repository.
    pub hint: &'static str,
}

impl Strange {
    /// As one line.
    pub fn line(&self) -> String {
        format!("`{}` {}", self.thing, self.why)
    }

    /// As an error, for the repository with this name.
    pub fn refusal(&self, name: &str) -> Error {
        Error::refused(
            format!("--repo {name}: {}", self.thing),
            &self.why,
            self.hint.replace("--repo NAME", &format!("--repo {name}")),
        )
    }
}

/// The refused places among `places`, by these records. `holds` is true if a family is there. The first place is right:
/// it holds the records.
///
/// # Errors
/// Those of `holds`.
pub fn strange<'a>(
    places: &[Device],
    records: impl IntoIterator<Item = &'a SetRecord>,
    mut holds: impl FnMut(&FamilyRecord) -> Result<bool>,
) -> Result<Vec<Strange>> {
    let mut recorded: BTreeMap<usize, Vec<&FamilyRecord>> = BTreeMap::new();
    for family in records.into_iter().flat_map(|record| &record.families).filter(|family| family.place > 0) {
        recorded.entry(family.place).or_default().push(family);
    }
    let mut found = Vec::new();
    for (&at, families) in &recorded {
        let Some(place) = places.get(at) else {
            let hint = "list all places of the repository in fullbore.toml, in the same order as on the other hosts";
            let why = format!(
                "is one of {} in the configuration, but records name families in place {}",
                counted(places.len() as u64, "place"),
                at.saturating_add(1)
            );
            found.push(Strange { thing: places[0].to_string(), why, hint });
            break;
        };
        let mut there = false;
        for family in families {
            there = there || holds(family)?;
        }
        if !there {
            let (asks, hint) = match place.place() {
                Destination::Prefix { .. } => (
                    "is it the right bucket and prefix, and the right account?",
                    "name the places in the same order on every host; if this place was emptied, begin a new \
                     repository, or remove the records of the sets that were there (.fullbore/sets/ID.json; \
                     `fullbore list --repo NAME` shows the ids). Complete sets can still be restored",
                ),
                _ => (
                    "is its disk not mounted?",
                    "mount it, and name the places in the same order on every host; if the disk is lost, begin a new \
                     repository in other directories, or remove the records of the sets that were on it \
                     (.fullbore/sets/ID.json; `fullbore list --repo NAME` shows the ids). Complete sets can still be restored",
                ),
            };
            let lacks = match families.len() {
                1 => "does not hold the family that is",
                _ => "holds none of the families that are",
            };
            found.push(Strange { thing: place.to_string(), why: format!("{lacks} recorded there: {asks}"), hint });
        }
    }
    Ok(found)
}

impl Repository {
    /// The places after the first in which another repository has its records. Each of the two repositories would take
    /// the sets there for its own, ignore the leases and rules of the other, and remove sets that the other keeps.
    ///
    /// # Errors
    /// A place cannot be reached.
    pub fn shared_places(&self) -> Result<Vec<Strange>> {
        let mut shared = Vec::new();
        for place in self.places.iter().skip(1) {
            let Some(bytes) = Records::of(place, &self.stores)?.read(IDENTITY)? else { continue };
            let whose = format::decode::<RepositoryRecord>(IDENTITY, &bytes).ok().map(|record| record.repository_id);
            let why = match whose {
                Some(id) if id == self.id => {
                    "holds the records, as the first place does: both are the same place".to_owned()
                }
                Some(id) => format!("holds the records of another repository, {id}"),
                None => format!("holds a `{IDENTITY}` that is not from fullbore"),
            };
            let hint = "give each repository its own places: otherwise each one prunes sets of the other";
            shared.push(Strange { thing: place.to_string(), why, hint });
        }
        Ok(shared)
    }

    /// Refuses to write if this host's places are not the places of the newest sets, or belong to another repository
    /// too.
    ///
    /// # Errors
    /// They are not, or the repository cannot be reached.
    pub fn refuse_strange_places(&self) -> Result<()> {
        self.shared_places()?.first().map_or(Ok(()), |shared| Err(shared.refusal(&self.name)))?;
        let going: HashSet<String> = self.records.ids("tombstones/")?.iter().map(|id| format!("{id}.json")).collect();
        let mut listed = self.records.list("sets/")?;
        listed.retain(|entry| !going.contains(&entry.name));
        listed.sort_by_key(|entry| std::cmp::Reverse(entry.modified));
        let names: Vec<String> = listed.iter().take(ASKED).map(|entry| format!("sets/{}", entry.name)).collect();
        let mut records = Vec::new();
        for (name, bytes) in names.iter().zip(self.records.read_many(&names)?) {
            // Another check reports a record that cannot be read or was removed.
            let Ok(Some(bytes)) = bytes else { continue };
            records.extend(format::decode::<SetRecord>(&self.records.shown(name), &bytes).ok());
        }
        // A forged name counts as missing.
        let holds = |family: &FamilyRecord| family.device(&self.places).map_or(Ok(false), |_| self.holds(family));
        let strange = strange(&self.places, &records, holds)?;
        strange.first().map_or(Ok(()), |strange| Err(strange.refusal(&self.name)))
    }
}
