//! Families that belong together: their media set, its backup sets, and what is missing.

use std::collections::BTreeMap;

use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::configuration::Configuration;
use super::label::MediaLabel;
use super::opened;
use super::set::SetHeader;
use super::walk::{Depth, Event, walk};
use crate::engine::{ForeignCopy, ForeignFamily};

/// One family, without its pages and log.
#[derive(Debug)]
pub struct Family {
    /// Its device.
    pub device: String,
    /// Bytes of its stream, up to its end or to the damage.
    pub length: u64,
    /// True if it is compressed.
    pub is_packed: bool,
    /// Its media header.
    pub label: MediaLabel,
    /// The backup sets on it.
    pub sets: Vec<BackupSet>,
    /// The error that ended the walk: the family is cut off or damaged behind its first description.
    pub broken: Option<Error>,
}

/// One backup set, as one family describes it.
#[derive(Debug)]
pub struct BackupSet {
    /// Its header.
    pub header: SetHeader,
    /// The machine that made it.
    pub machine: String,
    /// The database: the final description, or the first one of a family that is cut off.
    pub configuration: Configuration,
    /// True if this is the final description.
    pub is_final: bool,
}

/// What was seen of a family.
#[derive(Default)]
pub struct Looked {
    label: Option<MediaLabel>,
    /// The set whose description has not come yet.
    begun: Option<Begun>,
    sets: Vec<BackupSet>,
}

struct Begun {
    header: SetHeader,
    machine: String,
}

impl Looked {
    /// Takes the next event.
    pub fn see(&mut self, event: &Event<'_>) {
        match event {
            Event::Label(found) => self.label = Some(found.clone()),
            Event::SetBegins(header) => self.begun = Some(Begun { header: header.clone(), machine: String::new() }),
            Event::Machine(name) => {
                if let Some(begun) = &mut self.begun {
                    begun.machine.clone_from(name);
                }
            }
            Event::Configuration { at_end, configuration } => {
                let configuration = (**configuration).clone();
                match (self.begun.take(), self.sets.last_mut()) {
                    (Some(Begun { header, machine }), _) => {
                        self.sets.push(BackupSet { header, machine, configuration, is_final: *at_end });
                    }
                    (None, Some(set)) => (set.configuration, set.is_final) = (configuration, *at_end),
                    (None, None) => {}
                }
            }
            _ => {}
        }
    }

    /// The family, if its media header was seen. `length` are the bytes of its stream.
    pub fn family(self, device: String, length: u64, is_packed: bool) -> Option<Family> {
        let Self { label, sets, .. } = self;
        label.map(|label| Family { device, length, is_packed, label, sets, broken: None })
    }
}

/// Reads the descriptions on a family.
///
/// # Errors
/// There is no media header, or no description of a database before the damage.
pub fn look(family: ForeignFamily) -> Result<Family> {
    let device = family.device.clone();
    let mut input = opened::open(family)?;
    let mut looked = Looked::default();
    let walked = walk(&mut input, Depth::Descriptions, &mut |event| {
        looked.see(&event);
        Ok(())
    });
    match (looked.family(device, input.at(), input.is_packed()), walked) {
        (Some(family), Ok(_)) => Ok(family),
        (Some(mut family), Err(error @ (Error::Damaged { .. } | Error::Incomplete { .. })))
            if !family.sets.is_empty() =>
        {
            family.broken = Some(error);
            Ok(family)
        }
        (_, Err(error)) => Err(error),
        (None, Ok(_)) => Err(input.damaged(0, "the media have no header")),
    }
}

/// A media set, as far as its families are there.
#[derive(Debug)]
pub struct MediaSet {
    /// Its identity.
    pub id: Uuid,
    /// Its families, in order, each once.
    pub families: Vec<Family>,
    /// Devices with a family that another device has too.
    pub copies: Vec<ForeignCopy>,
    /// Two devices with one family in two forms, although both are whole.
    unlike: Option<(String, String)>,
}

/// Puts families together by their media sets. A file that is overwritten (`INIT`) or appended to keeps the identity of its
/// media set. So if a family is there twice with other backup sets, these are media of their own.
pub fn group(families: Vec<Family>) -> Vec<MediaSet> {
    let mut media: BTreeMap<Uuid, Vec<Family>> = BTreeMap::new();
    for family in families {
        media.entry(family.label.stripe.media_set).or_default().push(family);
    }
    let mut found = Vec::new();
    for (id, families) in media {
        let is_other = |one: &Family, two: &Family| {
            one.label.stripe.family == two.label.stripe.family && one.set_ids() != two.set_ids()
        };
        if !families.iter().any(|one| families.iter().any(|two| is_other(one, two))) {
            found.push(MediaSet::of(id, families));
            continue;
        }
        let mut states: BTreeMap<Vec<Uuid>, Vec<Family>> = BTreeMap::new();
        for family in families {
            states.entry(family.set_ids()).or_default().push(family);
        }
        found.extend(states.into_values().map(|families| MediaSet::of(id, families)));
    }
    found
}

impl Family {
    /// True if both are whole, and cannot be copies of one family.
    fn is_unlike(&self, other: &Self) -> bool {
        let descriptions = |family: &Self| family.sets.iter().map(|set| set.configuration.clone()).collect::<Vec<_>>();
        let is_whole = self.broken.is_none() && other.broken.is_none();
        is_whole && (self.length != other.length || descriptions(self) != descriptions(other))
    }

    /// This device as a copy of the one with the same family.
    fn copy_of(&self, known: &Self) -> ForeignCopy {
        // What tells the families of mirrored media from each other is not known.
        let is_equal = self.broken.is_none() && known.broken.is_none() && self.label.stripe.mirrors <= 1;
        ForeignCopy { device: self.device.clone(), of: known.device.clone(), is_equal }
    }

    /// The identities of its backup sets.
    fn set_ids(&self) -> Vec<Uuid> {
        self.sets.iter().map(|set| set.header.guid).collect()
    }
}

impl MediaSet {
    /// From families in any order. A copy that is whole comes before one that is not. Of equals, the first name counts.
    fn of(id: Uuid, mut families: Vec<Family>) -> Self {
        families.sort_by_key(|family| (family.broken.is_some(), family.device.clone()));
        let mut set = Self { id, families: Vec::new(), copies: Vec::new(), unlike: None };
        for family in families {
            let number = family.label.stripe.family;
            match set.families.binary_search_by_key(&number, |known| known.label.stripe.family) {
                Ok(place) => {
                    let known = set.families.get(place).filter(|known| known.is_unlike(&family));
                    set.unlike = set.unlike.or(known.map(|known| (known.device.clone(), family.device.clone())));
                    set.copies.extend(set.families.get(place).map(|known| family.copy_of(known)));
                }
                Err(place) => set.families.insert(place, family),
            }
        }
        set
    }

    /// Why this media set cannot be restored, if it cannot.
    pub fn incomplete(&self) -> Option<Error> {
        let first = self.families.first()?;
        let count = first.label.stripe.families;
        let title = format!("media set {}", guid(self.id));
        let hint = "name all families of the media set: they were made by one BACKUP … TO DISK = …, DISK = …";
        if let Some(other) = self.families.iter().find(|family| family.label.stripe.families != count) {
            let why = format!("`{}` and `{}` disagree on the number of its families", first.device, other.device);
            return Some(Error::incomplete(title, why, hint));
        }
        let is_there = |number: &u16| self.families.iter().any(|family| family.label.stripe.family == *number);
        let missing: Vec<u16> = (1..=count).filter(|number| !is_there(number)).collect();
        if !missing.is_empty() {
            let names: Vec<String> = missing.iter().map(|number| format!("family {number} of {count}")).collect();
            let why = format!("missing; the families that are there: {}", self.devices().join(", "));
            return Some(Error::incomplete(format!("{} of {title}", names.join(", ")), why, hint));
        }
        if let Some((one, other)) = &self.unlike {
            let why = format!("`{one}` and `{other}` say that they are the same family, and are not the same");
            return Some(Error::incomplete(title, why, "name only the right one; `verify` each of them"));
        }
        let unlike = self.families.iter().find(|family| family.set_ids() != first.set_ids());
        let why = |other: &Family| format!("`{}` and `{}` hold different backup sets", first.device, other.device);
        unlike.map(|other| Error::incomplete(title, why(other), "use families that were written together"))
    }

    /// The devices of its families.
    pub fn devices(&self) -> Vec<String> {
        self.families.iter().map(|family| family.device.clone()).collect()
    }

    /// Its backup sets: each from the first family that has its final description, or else from the first family.
    pub fn backup_sets(&self) -> Vec<&BackupSet> {
        let mut sets: BTreeMap<(u16, Uuid), &BackupSet> = BTreeMap::new();
        for set in self.families.iter().flat_map(|family| &family.sets) {
            let known = sets.entry((set.header.position, set.header.guid)).or_insert(set);
            if set.is_final && !known.is_final {
                *known = set;
            }
        }
        sets.into_values().collect()
    }
}

/// A GUID as SQL Server prints it.
pub fn guid(id: Uuid) -> String {
    id.hyphenated().to_string().to_uppercase()
}
