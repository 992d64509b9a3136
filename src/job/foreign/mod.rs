//! Media that other programs have written: which of `--from` are such media, their descriptions, their
//! verification and their restore.

mod bytes;
mod copies;
mod places;
mod restore;
pub(in crate::job) mod stored;
mod take_in;
mod verify;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fullbore_core::conduct::Conduct;
use fullbore_core::device::Device;
use fullbore_core::media::FAMILY_MAGIC;
use fullbore_core::pool::Pool;
use fullbore_core::store::Stores;
use fullbore_core::supply::Supply;
use fullbore_core::{Error, Result, io, supply};
use fullbore_engines::{
    FOREIGN_HEAD, FamilyBytes, ForeignCopy, ForeignDescription, ForeignFamily, ForeignMedia, ForeignTables, InOrder,
};
use fullbore_repository::discovery::{self, Head};

use bytes::{AllBytes, SparseBytes};
use fullbore_engines::foreign_set::layout::CELL;
use fullbore_engines::foreign_set::tap::SHARED;
pub(in crate::job) use places::ForeignObject;
use places::Place;
pub use restore::restore;
pub use take_in::take_in;
pub(in crate::job) use take_in::{backup_of, each, is_there, plan, write};
pub use verify::verify;

/// Bytes of a buffer, and how many buffers are read ahead.
const READ: usize = 1 << 20;
const AHEAD: usize = 8;
/// Bytes of a pipe that have the first description of a family.
const PIPE_HEAD: usize = 1 << 20;

/// The buffers of a device that is read from its first byte to its last.
fn all_bytes_pool() -> Result<Arc<Pool>> {
    Pool::new(AHEAD + 1, READ)
}

/// The same for a device whose bytes wait for a backup too. If they are packed where they are, a buffer has whole cells,
/// and fits into one block of the set.
fn shared_bytes_pool(is_packed_there: bool) -> Result<Arc<Pool>> {
    Pool::new(AHEAD + 1 + SHARED, if is_packed_there { READ - CELL as usize } else { READ })
}

/// Devices with media of another program.
#[derive(Clone)]
pub struct ForeignDevices {
    /// The kind of media.
    pub media: &'static dyn ForeignMedia,
    places: Vec<Place>,
    /// Where its objects are.
    stores: Stores,
}

/// The media of another program that `from` names. `None` if there are none: then `from` names fullbore's own media, or
/// nothing that exists, and its reader says so.
///
/// # Errors
/// `from` names media of both kinds, or a file of neither kind beside them; or a device cannot be read, or is a pipe.
pub fn find(from: &[String], conduct: &Conduct) -> Result<Option<ForeignDevices>> {
    match find_or_pipe(from, conduct)? {
        Some(found) if found.is_pipe() => {
            let why = format!("a {} is read more than once here, and a pipe can be read once", found.media.title());
            Err(Error::usage("--from -", why, "store it in a file, and name the file with --from"))
        }
        found => Ok(found),
    }
}

/// The same for a job that reads once: `from` may be `-`.
///
/// # Errors
/// As of [`find`].
pub fn find_or_pipe(from: &[String], conduct: &Conduct) -> Result<Option<ForeignDevices>> {
    if from.iter().any(|text| text == "-") {
        // The reader of fullbore's own media refuses other devices beside a pipe.
        return if from.len() == 1 { on_pipe(conduct) } else { Ok(None) };
    }
    // The reader of fullbore's own media reports what is wrong with `from`.
    let Ok(heads) = discovery::heads(from, &conduct.stores, FOREIGN_HEAD) else { return Ok(None) };
    let Some(media) = heads.iter().find_map(|head| fullbore_engines::foreign(&head.bytes)) else { return Ok(None) };
    let (theirs, others): (Vec<Head>, Vec<Head>) = heads.into_iter().partition(|head| media.recognises(&head.bytes));
    let is_named = |head: &Head| from.contains(&head.device.to_string());
    if others.iter().any(|head| head.bytes.starts_with(&FAMILY_MAGIC)) {
        return match theirs.iter().find(|head| is_named(head)) {
            // In a directory of fullbore's own media, other files do not count.
            None => Ok(None),
            Some(head) => {
                let why = format!("is a {}, and other media there are of fullbore", media.title());
                Err(Error::usage(format!("`{}`", head.device), why, "name them in two commands"))
            }
        };
    }
    if let Some(head) = others.iter().find(|head| is_named(head)) {
        let why = format!("is not a {}, as the other files are", media.title());
        return Err(Error::incomplete(format!("`{}`", head.device), why, "leave it out"));
    }
    let places = theirs.into_iter().map(|head| Place::Device(head.device)).collect();
    Ok(Some(ForeignDevices { media, places, stores: conduct.stores.clone() }))
}

fn on_pipe(conduct: &Conduct) -> Result<Option<ForeignDevices>> {
    let head = supply::head_of_stdin(FOREIGN_HEAD, &|| conduct.check())?;
    let Some(media) = fullbore_engines::foreign(&head) else { return Ok(None) };
    Ok(Some(ForeignDevices { media, places: vec![Place::Device(Device::parse("-")?)], stores: conduct.stores.clone() }))
}

impl ForeignDevices {
    /// Objects that are read without a device.
    ///
    /// # Errors
    /// There are none, or they are not media of another program, or of several kinds.
    pub(in crate::job) fn of_objects(objects: Vec<ForeignObject>) -> Result<Self> {
        let none = || Error::incomplete("media set", "has no family", "use another set");
        let media = objects.first().ok_or_else(none)?.media()?;
        let mut devices = Self { media, places: Vec::new(), stores: Stores::default() };
        objects.into_iter().try_for_each(|object| devices.add(object))?;
        Ok(devices)
    }

    /// Adds an object of the same kind of media.
    ///
    /// # Errors
    /// It is of another kind.
    pub(in crate::job) fn add(&mut self, object: ForeignObject) -> Result<()> {
        if !self.media.recognises(&object.head) {
            let why = format!("is not a {}, as the other objects are", self.media.title());
            return Err(Error::incomplete(format!("`{}`", object.name), why, "leave it out"));
        }
        if self.places.iter().all(|place| place.name() != object.name) {
            self.places.push(Place::Object(object));
        }
        Ok(())
    }

    /// The descriptions on these media. Pages and log are not read, except from a pipe. Devices that are not read, because
    /// others have the same families, are among the warnings.
    ///
    /// # Errors
    /// A device cannot be read, or holds nothing that can be described.
    pub fn describe(&self) -> Result<ForeignDescription> {
        let mut description = self.describe_media()?;
        let copies = description.media_sets.iter().flat_map(|set| &set.copies);
        description.warnings.extend(copies.map(ForeignCopy::not_read));
        Ok(description)
    }

    /// The same without these warnings.
    fn describe_media(&self) -> Result<ForeignDescription> {
        if self.is_pipe() {
            let (pool, names) = (all_bytes_pool()?, self.names());
            let families = names.iter().map(|name| self.open(name, &pool, &Conduct::default()));
            return self.media.describe(families.collect::<Result<_>>()?);
        }
        self.describe_these(&self.names())
    }

    /// What can be said before the pages are read: a pipe is not read by this.
    ///
    /// # Errors
    /// As of [`describe`](Self::describe).
    fn describe_first(&self, conduct: &Conduct) -> Result<ForeignDescription> {
        if !self.is_pipe() {
            return self.describe_media();
        }
        let head = supply::head_of_stdin(PIPE_HEAD, &|| conduct.check())?;
        let family = ForeignFamily { device: "-".into(), bytes: Box::new(InOrder(std::io::Cursor::new(head))) };
        let mut description = self.media.describe(vec![family])?;
        // The head alone looks as if it were cut off.
        description.warnings.clear();
        Ok(description)
    }

    /// True for standard input, which is read once.
    fn is_pipe(&self) -> bool {
        self.places.iter().any(Place::is_pipe)
    }

    /// The same of the devices with these names.
    fn describe_these(&self, names: &[String]) -> Result<ForeignDescription> {
        let families =
            names.iter().map(|name| Ok(ForeignFamily { device: name.clone(), bytes: self.open_sparse(name)? }));
        self.media.describe(families.collect::<Result<_>>()?)
    }

    /// The identity of the set at a position of its media.
    ///
    /// # Errors
    /// There is no such set, or several media sets have one; a device cannot be read.
    pub fn identity_of(&self, file: u16) -> Result<String> {
        let media_sets = self.describe()?.media_sets;
        let mut found: Vec<String> = media_sets
            .into_iter()
            .flat_map(|media| media.sets)
            .filter_map(|set| (set.position == file).then_some(set.id))
            .collect();
        found.dedup();
        match (found.pop(), found.len()) {
            (Some(id), 0) => Ok(id),
            (found, _) => {
                let why = if found.is_some() { "several media sets have a set" } else { "the media have no set" };
                let hint = "`fullbore inspect header` shows all sets; --set chooses one by its BackupSetGUID";
                Err(Error::usage(format!("--file {file}"), format!("{why} at this position"), hint))
            }
        }
    }

    /// The tables on these media. `scratch` is an empty directory for their pages.
    ///
    /// # Errors
    /// As of [`ForeignMedia::tables`].
    pub fn tables(&self, wanted: Option<&str>, scratch: &Path, conduct: &Conduct) -> Result<Box<dyn ForeignTables>> {
        // Writing the rows is as much again.
        conduct.progress.total.store(self.bytes().saturating_mul(2), Ordering::Relaxed);
        let pool = all_bytes_pool()?;
        let open = |name: &str| self.open(name, &pool, conduct);
        self.media.tables(&self.names(), &open, wanted, scratch)
    }

    /// The devices, as they are shown.
    fn names(&self) -> Vec<String> {
        self.places.iter().map(Place::name).collect()
    }

    /// The device that is shown as `name`, from its first byte to its last. Devices that are read one after the other share
    /// the buffers of `pool`: see [`all_bytes_pool`].
    fn open(&self, name: &str, pool: &Arc<Pool>, conduct: &Conduct) -> Result<ForeignFamily> {
        let bytes: Box<dyn FamilyBytes> = match self.place(name)? {
            Place::Device(device) => {
                let supply = supply::open(device, pool, AHEAD, io::Mode::from_environment()?, &self.stores)?;
                Box::new(AllBytes::new(supply, conduct))
            }
            Place::Object(object) => object.open(conduct)?,
        };
        Ok(ForeignFamily { device: name.to_owned(), bytes })
    }

    /// The same device, of which only what is asked for is read.
    fn open_sparse(&self, name: &str) -> Result<Box<dyn FamilyBytes>> {
        match self.place(name)? {
            Place::Device(device) => Ok(Box::new(SparseBytes::new(self.supply(device)?))),
            Place::Object(object) => object.open(&Conduct::default()),
        }
    }

    /// Bytes of the device; 0 if they are not known.
    fn length_of(&self, name: &str) -> Result<u64> {
        match self.place(name)? {
            Place::Device(device) => Ok(self.supply(device)?.size().unwrap_or(0)),
            Place::Object(object) => Ok(object.bytes),
        }
    }

    fn supply(&self, device: &Device) -> Result<Box<dyn Supply>> {
        supply::open(device, &Pool::new(0, 4096)?, 1, io::Mode::from_environment()?, &self.stores)
    }

    fn place(&self, name: &str) -> Result<&Place> {
        let gone = || Error::refused(format!("`{name}`"), "is not there any more", "run it again");
        self.places.iter().find(|place| place.name() == name).ok_or_else(gone)
    }

    /// Bytes of these devices that are files.
    fn bytes(&self) -> u64 {
        self.places.iter().map(Place::bytes).sum()
    }

    /// The same of those with these names.
    fn bytes_of(&self, names: &[String]) -> u64 {
        names.iter().filter_map(|name| self.place(name).ok()).map(Place::bytes).sum()
    }
}
