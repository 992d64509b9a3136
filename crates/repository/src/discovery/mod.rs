//! Finds media: from the values of `--from` to whole sets.

mod candidates;
mod heads;
mod keys;
mod look;
mod log_ranges;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fullbore_core::cipher::{SecretKey, WrappedKey};
use fullbore_core::device::{Destination, Device};
use fullbore_core::io::LockableFile;
use fullbore_core::media::{FamilyHeader, SetHeader, total};
use fullbore_core::pool::Pool;
use fullbore_core::store::Stores;
use fullbore_core::unpack::{Family, MediaSet, group};
use fullbore_core::{Error, Result, threads};
use uuid::Uuid;

pub use candidates::{PROBE_NAME, has_working_name, is_pattern_without_match};
pub use heads::{Head, heads};
pub use keys::{read_key, sidecar_name};
pub use look::{FamilyLook, begins_like_a_family, family_at, header_on, look, whole_set_on};

use crate::chain::FoundSet;
use candidates::{Candidate, candidates, final_name, identity, is_probe, is_under_working_name, set_in_working_name};
use keys::rotated_keys;
use look::{is_hidden_family, open};

/// How often media are listed again while running backups rename files, and the pause before each listing.
const LOOKS: usize = 25;
const PAUSE: Duration = Duration::from_millis(10);

/// One media set among those that were found.
#[derive(Clone)]
pub struct Found {
    /// The set, for choosing.
    pub set: FoundSet,
    /// Its existing families, first to last.
    pub devices: Vec<Device>,
    /// Copies of them, each with the device that is read instead.
    pub copies: Vec<(Device, Device)>,
    /// Access to the objects among them.
    pub stores: Stores,
    /// Its name and how many families it should have.
    pub families: u16,
    /// Bytes of the existing families.
    pub stored_bytes: u64,
    /// Its media-set id.
    pub media_set_id: Uuid,
    /// The part of the header that all its families share.
    pub header: SetHeader,
    /// Bytes of the restored database. `None` if the manifest, which has it, is encrypted or missing.
    pub database_bytes: Option<u64>,
    /// The host that made it, once its manifest was read.
    pub host: Option<String>,
}

/// Everything that `--from` names.
pub struct DiscoveredSets {
    /// The sets, oldest first.
    pub sets: Vec<Found>,
    /// Files that look like families but cannot be read, and why: leftovers of a killed run are not damage.
    pub unreadable: Vec<Unreadable>,
    /// Notes about skipped files that do not matter.
    pub notes: Vec<String>,
    /// The files and objects that were found.
    candidates: Vec<Candidate>,
    stores: Stores,
}

impl DiscoveredSets {
    /// True if `from` names other files now, because a running backup has renamed its families.
    pub fn has_changed(&self, from: &[String]) -> bool {
        candidates(from, &self.stores).ok().as_ref() != Some(&self.candidates)
    }

    /// Its notes, and those about leftovers.
    pub fn all_notes(&self) -> Vec<String> {
        self.notes.iter().cloned().chain(self.leftover_notes()).collect()
    }

    /// The sets, for choosing.
    pub fn known(&self) -> Vec<FoundSet> {
        self.sets.iter().map(|found| found.set.clone()).collect()
    }

    /// Checks that something was found.
    ///
    /// # Errors
    /// No set and no family was found.
    pub fn must_hold_something(&self) -> Result<()> {
        if self.sets.is_empty() && self.unreadable.is_empty() { Err(nothing_found()) } else { Ok(()) }
    }

    /// True if a backup set is on several media sets.
    pub fn holds_copies(&self) -> bool {
        let ids: std::collections::BTreeSet<Uuid> = self.sets.iter().map(|found| found.set.backup_set_id).collect();
        ids.len() < self.sets.len()
    }

    /// Reads the names of databases from encrypted manifests that `key` opens.
    pub fn learn_databases(&mut self, key: Option<&SecretKey>) -> Result<()> {
        let nothing = Pool::new(0, 4096)?;
        let can_open = |found: &Found| found.header.keys.is_empty() || key.is_some();
        let secret =
            |found: &&mut Found| found.set.database.is_none() && found.set.incomplete.is_none() && can_open(found);
        for found in self.sets.iter_mut().filter(secret) {
            let opened = open_set(found, &nothing, 1, key);
            if let Some(manifest) = opened.ok().as_ref().and_then(MediaSet::manifest) {
                found.set.database = Some(manifest.database.clone()).filter(|name| !name.is_empty());
            }
        }
        Ok(())
    }

    /// Reads the hosts from the manifests that are not encrypted.
    pub fn learn_hosts(&mut self) -> Result<()> {
        let nothing = Pool::new(0, 4096)?;
        let in_clear = |found: &&mut Found| found.set.incomplete.is_none() && found.header.keys.is_empty();
        for found in self.sets.iter_mut().filter(in_clear).filter(|found| found.host.is_none()) {
            let opened = open_set(found, &nothing, 1, None);
            let manifest = opened.ok().and_then(|set| set.manifest().cloned());
            found.host = manifest.map(|manifest| manifest.host).filter(|host| !host.is_empty());
        }
        Ok(())
    }

    /// Notes about files of killed and running backups: these are not damage.
    pub fn leftover_notes(&self) -> Vec<String> {
        let leftovers = self.unreadable.iter().filter(|unreadable| unreadable.leftover);
        leftovers.map(Unreadable::as_leftover).collect()
    }
}

/// The error when nothing was found.
pub fn nothing_found() -> Error {
    let hint = "name the directory or the families of a backup";
    Error::usage("--from", "no backup set was found there", hint)
}

/// A file that begins like a family, but is not a valid one.
pub struct Unreadable {
    /// The file or object.
    pub device: Device,
    /// Why it cannot be used.
    pub error: Error,
    /// True if it has a working name: a run was killed, or is still running.
    pub leftover: bool,
    /// The media set that it belongs to, if its header can be read.
    pub set: Option<Uuid>,
}

impl Unreadable {
    fn as_leftover(&self) -> String {
        let device = &self.device;
        let file = device.path().and_then(|path| fs::File::open(path).ok()).map(LockableFile::from);
        if file.is_some_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock))) {
            return format!("`{device}` is being written by a running backup");
        }
        format!(
            "`{device}` is the leftover of a killed backup; the next backup of the database into this directory \
             removes it"
        )
    }
}

/// True if standard input is the only device.
pub fn is_pipe(from: &[String]) -> Result<bool> {
    let pipes = from.iter().filter(|text| *text == "-").count();
    if pipes > 0 && from.len() > 1 {
        return Err(Error::usage("--from -", "a pipe holds a complete set of one family", "give --from - alone"));
    }
    Ok(pipes == 1)
}

/// Looks at everything that `from` names: files and objects, directories and prefixes, patterns.
///
/// # Errors
/// Nothing was named, a pattern matches nothing, a named file is not a family, or a store does not answer.
pub fn find(from: &[String], stores: &Stores) -> Result<DiscoveredSets> {
    if from.is_empty() {
        return Err(Error::usage(
            "--from",
            "no media were named",
            "name the directory or the families of a backup: --from /mnt/a/",
        ));
    }
    for _ in 1..LOOKS {
        let before = candidates(from, stores);
        let names = before.as_ref().ok().cloned();
        let discovered = before.and_then(|candidates| look_at(candidates, stores));
        if discovered.is_err() {
            thread::sleep(PAUSE);
        }
        // While names change, a file may be found twice, or not at all.
        if candidates(from, stores).ok() == names {
            return discovered;
        }
        thread::sleep(PAUSE);
    }
    candidates(from, stores).and_then(|candidates| look_at(candidates, stores))
}

/// Looks at these files and objects; some of them may not be families.
///
/// # Errors
/// A store does not answer.
pub fn find_among(devices: Vec<Device>, stores: &Stores) -> Result<DiscoveredSets> {
    look_at(devices.into_iter().map(candidates::unnamed).collect(), stores)
}

/// Does `job` with the media that `from` names; again if it failed while a running backup renamed files.
///
/// # Errors
/// Those of [`find`] and of the job.
pub fn settled<T>(from: &[String], stores: &Stores, mut job: impl FnMut(&DiscoveredSets) -> Result<T>) -> Result<T> {
    for _ in 1..LOOKS {
        let discovered = find(from, stores)?;
        match job(&discovered) {
            Err(_) if discovered.has_changed(from) => {}
            done => return done,
        }
    }
    job(&find(from, stores)?)
}

fn look_at(candidates: Vec<Candidate>, stores: &Stores) -> Result<DiscoveredSets> {
    let (mut unreadable, mut notes) = (Vec::new(), Vec::new());
    // First only the headers, then the families of one set after the other: a directory may have more families than a
    // process may have open files.
    let mut groups: BTreeMap<(i64, Uuid), Vec<Candidate>> = BTreeMap::new();
    for candidate in &candidates {
        let Candidate { device, named, leftover, .. } = candidate;
        let file_may_be_one = |path: &Path| {
            // A backup that was killed at its beginning has not written its header yet.
            let begun = *leftover && !is_probe(path);
            Ok::<_, Error>(begun || is_hidden_family(path) || begins_like_a_family(path)?)
        };
        if !named && !device.path().map_or(Ok(true), file_may_be_one)? {
            continue;
        }
        let header = header_on(device, stores)?;
        if !named && device.path().is_none() && header.is_none() {
            continue; // An object that is not a family.
        }
        let group = header.map_or((0, Uuid::nil()), |header| (header.set.started_at, header.set.media_set_id));
        groups.entry(group).or_default().push(candidate.clone());
    }
    let mut sets = Vec::new();
    for members in groups.into_values() {
        let mut families = Vec::new();
        for candidate in members {
            families.extend(open_candidate(candidate, stores, &mut unreadable)?);
        }
        sets.extend(group(families).into_iter().map(|(id, members)| describe(id, members, stores, &mut notes)));
    }
    // Published families of a backup whose other families still have working names.
    for found in &mut sets {
        let other = |unreadable: &Unreadable| unreadable.leftover && unreadable.set == Some(found.media_set_id);
        found.set.interrupted |= unreadable.iter().any(other);
    }
    Ok(DiscoveredSets { sets, unreadable, notes, candidates, stores: stores.clone() })
}

/// Opens a candidate; an unreadable one is added to `unreadable`, but is an error if the user named it.
fn open_candidate(candidate: Candidate, stores: &Stores, unreadable: &mut Vec<Unreadable>) -> Result<Option<Family>> {
    let Candidate { device, named, leftover, .. } = candidate;
    match open(&device, &Pool::new(0, 4096)?, 1, stores).and_then(Family::open) {
        Ok(family) => Ok(Some(family)),
        // Without free descriptors the process cannot judge the file.
        Err(error) if error.is_exhaustion() => Err(error),
        Err(error) if named && !leftover => Err(missing_object(&device, stores).unwrap_or(error.on_named_thing())),
        Err(error) => {
            let header = header_on(&device, stores)?;
            let in_name = || device.path().and_then(set_in_working_name);
            let set = header.map(|header| header.set.media_set_id).or_else(in_name);
            unreadable.push(Unreadable { device, error, leftover, set });
            Ok(None)
        }
    }
}

/// The error if the device is an object that does not exist.
fn missing_object(device: &Device, stores: &Stores) -> Option<Error> {
    let Destination::Object { bucket, key } = device.place() else { return None };
    let is_missing = matches!(stores.bucket(bucket).and_then(|bucket| bucket.head(key)), Ok(None));
    let hint = "check the name; `fullbore list` with a prefix that ends in `/` shows the objects there";
    is_missing.then(|| Error::usage(device.to_string(), "cannot open it: it is not there", hint))
}

fn describe(id: Uuid, mut members: Vec<Family>, stores: &Stores, notes: &mut Vec<String>) -> Found {
    // Among copies a final name comes first.
    let place = |family: &Family| {
        let device = Device::shown_as(family.device());
        (family.header().family, is_under_working_name(&device), device.to_string())
    };
    members.sort_by_key(place);
    let mut copies = Vec::new();
    members.dedup_by(|copy, first| {
        // The same header and the same footer, which has the digest of everything between: a copy.
        let same = copy.header() == first.header() && copy.footer() == first.footer();
        if same {
            let (copy, first) = (Device::shown_as(copy.device()), Device::shown_as(first.device()));
            notes.push(same_family(&copy, &first));
            if !is_one_file(&copy, &first) {
                copies.push((copy, first));
            }
        }
        same
    });
    let header = members[0].header().set.clone();
    let devices: Vec<Device> = members.iter().map(|family| Device::shown_as(family.device())).collect();
    let stored_bytes = total(members.iter().filter_map(Family::size));
    let incomplete = MediaSet::check_whole(&members).err().map(|error| error.one_line());
    let in_manifest = header.open && header.keys.is_empty() && incomplete.is_none();
    let manifest = if in_manifest { members[0].manifest(None).ok() } else { None };
    let host = manifest.as_ref().map(|manifest| manifest.host.clone()).filter(|host| !host.is_empty());
    let database_bytes = match header.open {
        false => Some(total(header.streams.iter().map(|stream| stream.size))),
        true => manifest.map(|manifest| manifest.database_bytes()),
    };
    let set = FoundSet {
        backup_set_id: header.backup_set_id,
        media_set_id: id,
        kind: header.kind,
        base: header.base_backup_set_id,
        started_at: header.started_at,
        incomplete,
        interrupted: devices.iter().any(is_under_working_name),
        database: header.label.as_ref().map(|label| label.database.clone()).filter(|name| !name.is_empty()),
        names: devices.iter().map(final_name).collect(),
        log_range: None,
        until_by_store: None,
        encrypted: !header.keys.is_empty(),
    };
    let (families, stores) = (header.families, stores.clone());
    Found { set, families, devices, copies, stores, stored_bytes, media_set_id: id, database_bytes, host, header }
}

/// True for two names of one file. Two objects are never the same.
fn is_one_file(one: &Device, other: &Device) -> bool {
    matches!((one.path(), other.path()), (Some(one), Some(other)) if identity(one) == identity(other))
}

fn same_family(copy: &Device, first: &Device) -> String {
    let what = if is_one_file(copy, first) { "is the same file as" } else { "is a copy of" };
    format!("`{copy}` {what} `{first}` and is not read")
}

/// Opens all families of a set for reading through `pool`.
///
/// # Errors
/// The set is not whole, another set has its names now, or the key does not open it.
pub fn open_set(found: &Found, pool: &Arc<Pool>, queue_depth: usize, key: Option<&SecretKey>) -> Result<MediaSet> {
    let families = open_families(found, pool, queue_depth)?;
    let (records, mut unreadable) = rotated_keys(found);
    let set = MediaSet::assemble(families, key, &records);
    // The keys in the header may open the set without the unreadable sidecar; if not, the sidecar is the error.
    set.map_err(|error| if key.is_some() { unreadable.pop().unwrap_or(error) } else { error })
}

/// The same for an encrypted set without its key: its bytes can be read as they are.
///
/// # Errors
/// As [`open_set`].
pub fn open_sealed(found: &Found, pool: &Arc<Pool>, queue_depth: usize) -> Result<MediaSet> {
    MediaSet::assemble_sealed(open_families(found, pool, queue_depth)?)
}

fn open_families(found: &Found, pool: &Arc<Pool>, queue_depth: usize) -> Result<Vec<Family>> {
    let open_one = |device: &Device| open(device, pool, queue_depth, &found.stores).and_then(Family::open);
    let families = match found.devices.iter().all(Device::is_in_store) {
        true => threads::side_by_side("opening", &found.devices, |_, device| open_one(device))?,
        false => found.devices.iter().map(open_one).collect::<Result<Vec<_>>>()?,
    };
    if let Some(other) = families.iter().find(|family| family.header().set.media_set_id != found.media_set_id) {
        return Err(Error::refused(
            other.device(),
            "another backup replaced this family before it could be read",
            "run it again",
        ));
    }
    Ok(families)
}

impl Found {
    /// Sidecars with rotated keys that cannot be read, one line each.
    pub fn unreadable_sidecars(&self) -> Vec<String> {
        rotated_keys(self).1.iter().map(Error::one_line).collect()
    }

    /// Keys that were wrapped later, beside its families.
    pub fn rotated_keys(&self) -> Vec<WrappedKey> {
        rotated_keys(self).0
    }

    /// False if another backup has since taken the names of its families.
    pub fn is_in_place(&self) -> bool {
        self.devices.iter().all(|device| {
            let is_gone =
                |path: &Path| matches!(fs::metadata(path), Err(error) if error.kind() == std::io::ErrorKind::NotFound);
            // A damaged header does not name its set.
            let is_ours = |header: FamilyHeader| header.set.media_set_id == self.media_set_id;
            !device.path().is_some_and(is_gone) && header_on(device, &self.stores).ok().flatten().is_none_or(is_ours)
        })
    }

    /// The error of a damaged family, with the place of a copy.
    pub fn naming_copies(&self, error: Error) -> Error {
        let Error::Damaged { device, .. } = &error else { return error };
        match self.copies.iter().find(|(_, read)| read.to_string() == *device) {
            Some((copy, _)) => {
                let more = format!("a copy of it exists: name `{copy}` instead");
                error.noting(&more)
            }
            None => error,
        }
    }
}
