//! Repositories: named places that hold the backups of any number of databases, and describe themselves.
//! `docs/REPOSITORY.md` specifies their content.

pub mod catalog;
pub mod chain;
pub mod config;
pub mod discovery;
pub mod format;
pub mod hidden;
pub mod ids;
pub mod inventory;
pub mod places;
pub mod process;
pub mod records;
pub mod task;
pub mod times;

use std::path::Path;

use fullbore_core::device::{Destination, Device, without_password};
use fullbore_core::io::sync_directory;
use fullbore_core::sink::make_directory;
use fullbore_core::store::Stores;
pub use fullbore_core::{Error, Result};
use uuid::Uuid;

use crate::config::Config;
use format::{FORMAT, FamilyRecord, RepositoryRecord, SetRecord};
use hidden::NameKey;
use inventory::EndedRuns;
use records::Records;

/// The record that makes places a repository.
const IDENTITY: &str = "repository.json";

/// An open repository.
#[derive(Clone)]
pub struct Repository {
    /// As the user named it.
    pub name: String,
    /// The version of its records when it was made.
    format: u32,
    /// Its identity.
    pub id: Uuid,
    /// When it was made, RFC 3339, by the clock of the host that made it.
    pub created_at: String,
    /// The same by the store's clock, in microseconds since 1970; older repositories do not record it.
    pub stored_at: Option<i64>,
    /// Where families go; the first holds the records.
    pub places: Vec<Device>,
    /// Its records.
    pub records: Records,
    /// The stores of its objects.
    pub stores: Stores,
    /// The key that hides names in its records.
    names: Option<NameKey>,
    /// Records of ended runs, which are not read again.
    ended_runs: EndedRuns,
}

/// The places of the repository `name`: from the configuration, or `name` itself as a directory or prefix.
///
/// # Errors
/// There is no such repository, or its places cannot hold one.
pub fn places(name: &str, config: &Config) -> Result<Vec<Device>> {
    let thing = format!("--repo {}", without_password(name));
    let texts: Vec<&str> = match config.repository.get(name) {
        Some(found) if found.to.is_empty() => {
            let why = "has no places";
            return Err(Error::usage(thing, why, format!("write to = [\"/mnt/a/\"] below [repository.{name}]")));
        }
        Some(found) => found.to.iter().map(String::as_str).collect(),
        None => vec![name],
    };
    let places = texts.iter().map(|text| Device::parse(text)).collect::<Result<Vec<_>>>()?;
    let holds_many = |place: &&Device| matches!(place.place(), Destination::Directory(_) | Destination::Prefix { .. });
    match places.iter().find(|place| !holds_many(place)) {
        None => Ok(places),
        Some(_) if config.repository.contains_key(name) => {
            let why = "not all of its places are directories or prefixes";
            Err(Error::usage(thing, why, "end them in /: to = [\"/mnt/a/\", \"s3://bucket/prefix/\"]"))
        }
        Some(_) => {
            let known: Vec<&str> = config.repository.keys().map(String::as_str).collect();
            let why = match known.is_empty() {
                true => "is not a repository: none is configured".to_owned(),
                false => format!("is not a repository; configured are: {}", known.join(", ")),
            };
            Err(Error::usage(thing, why, "write [repository.NAME] in fullbore.toml, or name a place that ends in /"))
        }
    }
}

impl Repository {
    /// The repository in these places, which must be one.
    ///
    /// # Errors
    /// It cannot be reached, is not a repository, or was made by a newer fullbore.
    pub fn open(name: &str, places: Vec<Device>, stores: &Stores) -> Result<Self> {
        match Self::look(name, &places, stores)? {
            Some(found) => Ok(found),
            None => {
                refuse_another_order(name, &places, stores)?;
                let why = "holds no repository";
                let hint = format!(
                    "check the path: a missing directory may be a disk that is not mounted; the first `fullbore backup \
                     --repo {name}` makes a repository; if only its records were lost, `fullbore catalog rebuild --repo \
                     {name}` makes them again"
                );
                Err(Error::usage(format!("--repo {name}: {}", places[0]), why, hint))
            }
        }
    }

    /// The same; makes the repository if there is none.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and a store without conditional writes.
    pub fn open_or_make(name: &str, places: Vec<Device>, stores: &Stores) -> Result<Self> {
        if let Some(found) = Self::look(name, &places, stores)? {
            return Ok(found);
        }
        let records = Records::of(&places[0], stores)?;
        refuse_missing(&places)?;
        refuse_another_order(name, &places, stores)?;
        prove_conditional(&records)?;
        let stored_at = Some(store_time(&records)?);
        let record = RepositoryRecord {
            format: FORMAT,
            repository_id: Uuid::now_v7(),
            created_at: jiff::Timestamp::now().to_string(),
            stored_at,
            tool_version: env!("CARGO_PKG_VERSION").into(),
        };
        records.create(IDENTITY, &format::encode(&record)?)?;
        // Another host may have been the first.
        Self::open(name, places, stores)
    }

    /// The same for commands that write sets into it.
    ///
    /// # Errors
    /// Those of [`open_or_make`](Self::open_or_make), and places that do not match the recorded sets.
    pub fn open_to_write(name: &str, places: Vec<Device>, stores: &Stores) -> Result<Self> {
        let repository = Self::open_or_make(name, places, stores)?;
        repository.refuse_strange_places()?;
        repository.records.keep_reserve();
        Ok(repository)
    }

    /// The same for a plan, which makes nothing: a repository that does not exist yet is empty and has a nil id.
    ///
    /// # Errors
    /// It cannot be reached, or the places cannot hold one.
    pub fn open_or_plan(name: &str, places: Vec<Device>, stores: &Stores) -> Result<Self> {
        if let Some(found) = Self::look(name, &places, stores)? {
            return Ok(found);
        }
        refuse_another_order(name, &places, stores)?;
        let records = Records::of(&places[0], stores)?;
        let (name, created_at) = (name.to_owned(), jiff::Timestamp::now().to_string());
        Ok(Self {
            name,
            format: FORMAT,
            id: Uuid::nil(),
            created_at,
            stored_at: None,
            places,
            records,
            stores: stores.clone(),
            names: None,
            ended_runs: EndedRuns::default(),
        })
    }

    fn look(name: &str, places: &[Device], stores: &Stores) -> Result<Option<Self>> {
        let records = Records::of(&places[0], stores)?;
        let Some(bytes) = records.read(IDENTITY)? else { return Ok(None) };
        let record: RepositoryRecord = format::decode(&records.shown(IDENTITY), &bytes)?;
        let (name, places) = (name.to_owned(), places.to_vec());
        let RepositoryRecord { format, repository_id: id, created_at, stored_at, .. } = record;
        Ok(Some(Self {
            name,
            format,
            id,
            created_at,
            stored_at,
            places,
            records,
            stores: stores.clone(),
            names: None,
            ended_runs: EndedRuns::default(),
        }))
    }

    /// The record of the decision about a set.
    pub fn decision_name(&self, set: Uuid) -> String {
        format::decision_name(self.format, set)
    }

    /// The time by the clock of the store, in microseconds since 1970. Without permission to write, it is the time of
    /// this host: only for display, never for a decision.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn about_now(&self) -> Result<i64> {
        match self.now() {
            now @ (Ok(_) | Err(Error::Cancelled { .. } | Error::Halted)) => now,
            Err(_) => {
                self.records.list("clock/")?;
                Ok(jiff::Timestamp::now().as_microsecond())
            }
        }
    }

    /// The time by the clock of the store, in microseconds since 1970.
    ///
    /// # Errors
    /// The store does not answer, or nothing may be written to it.
    pub fn now(&self) -> Result<i64> {
        store_time(&self.records)
    }

    /// When the repository was copied here, in microseconds since 1970 by the store's clock; `None` if it was not. Its
    /// first record is written only once, when the repository is made, so a copy of that record has a later time.
    ///
    /// # Errors
    /// The store does not answer.
    pub fn copied_at(&self) -> Result<Option<i64>> {
        /// Longer than any request takes, in microseconds.
        const FIVE_MINUTES: i64 = 300 * 1_000_000;
        const DAY: i64 = 86_400 * 1_000_000;
        let by_host = self.created_at.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_microsecond);
        let written = self.records.modified(IDENTITY)?;
        // A difference between the clocks of a host and a store must not look like a copy.
        let is_late = |written: i64| {
            by_host.is_some_and(|made| written.saturating_sub(made) > DAY)
                || self.stored_at.is_some_and(|made| written.saturating_sub(made) > FIVE_MINUTES)
        };
        Ok(written.filter(|&written| is_late(written)))
    }

    /// Writes the record of a committed set.
    ///
    /// # Errors
    /// The repository cannot be written to; the set is good all the same.
    pub fn describe(&self, set: &SetRecord) -> Result<()> {
        let set = self.hidden(set.clone());
        self.records.write(&format::set_name(set.backup_set_id), &format::encode(&set)?)
    }

    /// True when this family is there under its own name. If that cannot be read, it is an error, not a missing family.
    ///
    /// # Errors
    /// Its place cannot be reached, or this configuration does not name it.
    pub fn holds(&self, family: &FamilyRecord) -> Result<bool> {
        Ok(self.length(family)?.is_some())
    }

    /// The bytes of a family; `None` if it is not there.
    ///
    /// # Errors
    /// Its place cannot be reached, or this configuration does not name it.
    pub fn length(&self, family: &FamilyRecord) -> Result<Option<u64>> {
        let device = family.device(&self.places)?;
        match (device.place(), device.path()) {
            (Destination::Object { bucket, key }, _) => {
                Ok(self.stores.bucket(bucket)?.head(key)?.map(|head| head.size))
            }
            (_, Some(path)) => match std::fs::metadata(path) {
                Ok(found) => Ok(Some(found.len())),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(Error::io("look at", device.to_string(), error)),
            },
            (_, None) => Ok(None),
        }
    }

    /// Reads and decodes a record.
    ///
    /// # Errors
    /// It cannot be read, or is not a record.
    pub fn read<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let bytes = self.records.read(name)?;
        bytes.map(|bytes| format::decode(&self.records.shown(name), &bytes)).transpose()
    }
}

/// The time by the store's clock, in microseconds since 1970: the time of a record that is written for this.
fn store_time(records: &Records) -> Result<i64> {
    let name = format!("{}.json", Uuid::new_v4());
    records.write(&format!("clock/{name}"), b"{}")?;
    let listed = records.list("clock/");
    let _ = records.remove(&format!("clock/{name}")); // If it stays, the next prune removes it.
    let ours = listed?.into_iter().find(|entry| entry.name == name);
    ours.map(|entry| entry.modified).ok_or_else(|| {
        let why = "does not list a record that was just written: its listings are late";
        Error::refused(records.shown("clock/"), why, "use a store whose listings are consistent")
    })
}

/// A directory that is not there may be a disk that is not mounted: a repository is not made in its place.
fn refuse_missing(places: &[Device]) -> Result<()> {
    let missing = places.iter().find(|place| matches!(place.place(), Destination::Directory(path) if !path.is_dir()));
    missing.map_or(Ok(()), |place| {
        let hint = "a missing directory may be a disk that is not mounted; for a new repository, make its directories";
        Err(Error::usage(place.to_string(), "this directory does not exist", hint))
    })
}

/// `--mkdir`: makes the directories of a new repository. If one of them exists, a missing one may be a disk that is not
/// mounted, and nothing is made.
///
/// # Errors
/// The system refuses.
pub fn make_directories(places: &[Device], mkdir: bool) -> Result<()> {
    let paths = || places.iter().filter_map(Device::path);
    if !mkdir || paths().any(Path::exists) {
        return Ok(());
    }
    paths().try_for_each(|path| {
        let made = make_directory(path, true)?;
        made.iter().filter_map(|made| made.parent()).try_for_each(sync_directory)
    })
}

/// Refuses places whose records are not in the first one. A second repository in the first place would take the same
/// families for its own, without the leases on them.
fn refuse_another_order(name: &str, places: &[Device], stores: &Stores) -> Result<()> {
    for other in places.iter().skip(1) {
        if Records::of(other, stores)?.read(IDENTITY)?.is_some() {
            let why = format!("holds no repository, but the records of a repository are in {other}");
            let hint = "name the places of a repository in the same order on every host: the first holds the records \
                        (or were two disks swapped?)";
            return Err(Error::refused(format!("--repo {name}: {}", places[0]), why, hint));
        }
    }
    Ok(())
}

/// Proves that the store refuses a second writer: every decision between two hosts depends on it.
fn prove_conditional(records: &Records) -> Result<()> {
    let probe = format!("probe-{}", Uuid::new_v4());
    let tried = records.create(&probe, b"first").and_then(|first| Ok((first, records.create(&probe, b"second")?)));
    let removed = records.remove(&probe);
    match tried? {
        (true, false) => removed,
        _ => {
            let why = "was replaced by a second writer: the store ignores `If-None-Match`";
            let hint = "here, two hosts could not agree which backup is committed: use a store with conditional \
                        writes, or plain --to and --from";
            Err(Error::refused(records.shown(&probe), why, hint))
        }
    }
}
