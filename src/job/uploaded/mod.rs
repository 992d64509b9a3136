//! Objects that were uploaded through the gateway, for jobs that read them without it: `--from uploaded:REPOSITORY/KEY`.

pub(in crate::job) mod bytes;
pub(in crate::job) mod reader;

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use fullbore_core::cipher::SecretKey;
use fullbore_core::conduct::Conduct;
use fullbore_core::{Error, Result};
use fullbore_engines::{FOREIGN_HEAD, ObjectFacts, holds_object};
use fullbore_repository::Repository;
use fullbore_repository::config::Config;
use fullbore_repository::discovery;
use fullbore_repository::inventory::StoredSet;
use glob::{MatchOptions, Pattern};

use crate::job::foreign::{ForeignDevices, ForeignObject};
use crate::job::repository::Setting;
use bytes::ObjectBytes;

/// The word before the colon.
const SCHEME: &str = "uploaded:";

/// An object, and the set that holds it.
#[derive(Clone)]
pub(in crate::job) struct Version {
    pub facts: ObjectFacts,
    pub set: StoredSet,
}

impl Version {
    /// From a set that holds an object and can be read.
    pub fn of(set: StoredSet) -> Option<Self> {
        let is_there = holds_object(&set.record.engine) && set.incomplete.is_none() && !set.tombstone;
        let facts = is_there.then(|| ObjectFacts::of(&set.record.position.last.value())).flatten()?;
        Some(Self { facts, set })
    }

    /// Of two versions, the later upload counts.
    pub fn order(&self) -> (i64, uuid::Uuid) {
        (self.facts.completed_at, self.set.record.backup_set_id)
    }
}

/// The uploaded media of another program that `from` names. `None` if `from` names no uploaded object.
///
/// # Errors
/// `from` names other places as well, a repository that does not exist, no object, or an object that is not such media.
pub fn find(
    from: &[String],
    config: &Config,
    key: Option<&std::path::Path>,
    conduct: &Conduct,
) -> Result<Option<ForeignDevices>> {
    let named: Vec<&str> = from.iter().filter_map(|text| text.strip_prefix(SCHEME)).collect();
    if named.is_empty() {
        return Ok(None);
    }
    if named.len() < from.len() {
        let why = "names uploaded objects, and other places too";
        return Err(Error::usage("--from", why, "name them in two commands"));
    }
    let mut objects = Vec::new();
    for name in named {
        let of = Place::parse(name, config)?;
        objects.extend(of.objects(config, key, conduct)?);
    }
    ForeignDevices::of_objects(objects).map(Some)
}

/// `REPOSITORY/KEY`.
struct Place {
    /// As it was written, for messages.
    text: String,
    repository: String,
    keys: Pattern,
    has_wildcards: bool,
}

impl Place {
    fn parse(text: &str, config: &Config) -> Result<Self> {
        let shown = format!("--from {SCHEME}{text}");
        let hint = "write uploaded:REPOSITORY/KEY; a KEY may have * and ?";
        let (repository, key) = text.split_once('/').filter(|(_, key)| !key.is_empty()).unwrap_or((text, ""));
        if key.is_empty() {
            return Err(Error::usage(shown, "names no key of an object", hint));
        }
        if !config.repository.contains_key(repository) {
            let why = format!("the configuration has no repository `{repository}`");
            return Err(Error::usage(shown, why, "name the repository in the configuration"));
        }
        let keys = Pattern::new(key).map_err(|e| Error::usage(&shown, e.msg, hint))?;
        let has_wildcards = key.contains(['*', '?', '[']);
        Ok(Self { text: text.to_owned(), repository: repository.to_owned(), keys, has_wildcards })
    }

    /// The newest object of each key that fits, in the order of the keys. Of several, those of another kind are left out.
    fn objects(&self, config: &Config, key: Option<&std::path::Path>, conduct: &Conduct) -> Result<Vec<ForeignObject>> {
        let config = config.of_repository(&self.repository);
        let setting = Setting { name: &self.repository, config: &config };
        let repository = Arc::new(setting.open(conduct)?);
        let secret = discovery::read_key(key.or(config.key.as_deref()))?.map(Arc::new);
        let inventory = setting.inventory(&repository, conduct, &mut Vec::new())?;
        let mut newest: BTreeMap<String, Version> = BTreeMap::new();
        // A `*` of a key stays within a folder, as in the names of files.
        let within = MatchOptions { require_literal_separator: true, ..MatchOptions::new() };
        for version in inventory.sets.into_iter().filter_map(Version::of) {
            let key = version.facts.key.clone();
            let is_newer = newest.get(&key).is_none_or(|other| other.order() < version.order());
            if self.keys.matches_with(&key, within) && is_newer {
                newest.insert(key, version);
            }
        }
        let thing = || format!("--from {SCHEME}{}", self.text);
        if newest.is_empty() {
            let hint = format!("`fullbore list --repo {}` shows the objects", self.repository);
            return Err(Error::usage(thing(), "the repository has no such object", hint));
        }
        let all = newest.into_values().map(|version| object(&self.repository, version, &repository, secret.as_ref()));
        let (mut media, mut others) = (Vec::new(), 0_usize);
        for object in all {
            let mut head = Vec::new();
            let read = object.open(&Conduct::default())?.take(FOREIGN_HEAD as u64).read_to_end(&mut head);
            read.map_err(|e| Error::io("read", &object.name, e))?;
            match fullbore_engines::foreign(&head) {
                Some(_) => media.push(object.with_head(head)),
                None => others += 1,
            }
        }
        if media.is_empty() || others > 0 && !self.has_wildcards {
            let why = "is not a backup file of another program";
            return Err(Error::incomplete(thing(), why, "`restore --into object:DIRECTORY` gives any object back"));
        }
        Ok(media)
    }
}

fn object(
    name: &str,
    Version { facts, set }: Version,
    repository: &Arc<Repository>,
    key: Option<&Arc<SecretKey>>,
) -> ForeignObject {
    let (repository, key, bytes) = (Arc::clone(repository), key.cloned(), facts.bytes);
    let open = move |conduct: &Conduct| -> Result<Box<dyn fullbore_engines::FamilyBytes>> {
        let reader = reader::open(&set, &repository, key.as_deref())?;
        Ok(Box::new(ObjectBytes::new(reader, bytes, conduct)))
    };
    ForeignObject::new(format!("{SCHEME}{name}/{}", facts.key), bytes, Arc::new(open))
}
