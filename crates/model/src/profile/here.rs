//! The profile that a job on this machine uses, and the places of the job's bytes for it.

use fullbore_core::device::{Destination, Device};
use fullbore_core::io::directory_of;
use fullbore_core::{Error, Result};
use jiff::Timestamp;

use super::path::{Asked, Calibrated, cells_that_count};
use super::whose::resolved;
use super::{Access, Machine, Profile, load, places};

/// The default name of a profile.
pub const DEFAULT: &str = "default";
/// A profile older than this many days gets a note: disks fill, firmware and kernels change.
const OLD: i64 = 30;
const SECONDS_OF_A_DAY: i64 = 86_400;

/// The place of a job's bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathLocation {
    /// A directory, a file, or a URL: a profile may know it.
    At(String),
    /// Nowhere: `nul:`.
    Nowhere,
    /// Behind a pipe.
    Unknown,
}

impl PathLocation {
    /// For a family's device: its directory.
    pub fn of(device: &Device) -> Self {
        match device.place() {
            Destination::Null => Self::Nowhere,
            Destination::Pipe => Self::Unknown,
            Destination::File(path) => Self::At(directory_of(path).display().to_string()),
            _ => Self::At(device.to_string()),
        }
    }

    /// The name by which a profile may know it.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::At(name) => Some(name),
            Self::Nowhere | Self::Unknown => None,
        }
    }

    /// Its name without symbolic links, as far as it exists; a URL as it is.
    pub fn real(&self) -> Option<String> {
        self.name().map(|name| resolved(name).0.display().to_string())
    }

    /// The present device number of its file system; `None` for a store or `nul:`.
    pub fn device(&self) -> Option<u64> {
        match self {
            Self::At(name) => resolved(name).1,
            Self::Nowhere | Self::Unknown => None,
        }
    }
}

/// The profile of that name, if it is from this machine; and a remark if the machine has changed since.
///
/// # Errors
/// There is none, it cannot be read, or it is from another machine.
pub fn of_this_machine(name: &str) -> Result<(Profile, Option<String>)> {
    let (profile, here) = (load(&places(), name)?, Machine::this());
    profile.check_machine(&here)?;
    let remark = profile.remark(&here);
    Ok((profile, remark))
}

/// The profile that a job is compared with: the named one, or the default one if it exists; and notes. A bad profile
/// does not make a job fail.
///
/// # Errors
/// There is no profile with the given name.
pub fn for_job(named: Option<&str>) -> Result<(Option<Profile>, Vec<String>)> {
    let name = named.unwrap_or(DEFAULT);
    match of_this_machine(name) {
        Ok((profile, remark)) => {
            let notes = remark.into_iter().chain(profile.says_its_age()).collect();
            Ok((Some(profile), notes))
        }
        // There is no such profile.
        Err(error @ Error::Usage { .. }) => named.map_or(Ok((None, Vec::new())), |_| Err(error)),
        Err(error) => Ok((None, vec![format!("profile `{name}` is ignored: {}", error.one_line())])),
    }
}

/// The names of places that have one.
fn names(places: &[PathLocation]) -> Vec<&str> {
    places.iter().filter_map(PathLocation::name).collect()
}

impl Profile {
    /// A note if it is old.
    pub fn says_its_age(&self) -> Option<String> {
        let days = self.age_days().filter(|days| *days > OLD)?;
        Some(format!("profile `{}` is {days} days old: measure it again with fullbore calibrate", self.name))
    }

    /// Whole days since it was made.
    pub fn age_days(&self) -> Option<i64> {
        let made: Timestamp = self.made_at.parse().ok()?;
        Some((Timestamp::now().as_second() - made.as_second()) / SECONDS_OF_A_DAY)
    }

    /// The path of a job between these places, with buffers of this size in bytes. A copy has media on both sides.
    pub fn path_between(&self, database: &[PathLocation], media: &[PathLocation], transfer_bytes: u64) -> Calibrated {
        let (database, media) = (names(database), names(media));
        self.path(&Asked { database: &database, media: &media, transfer_bytes })
    }

    /// True if the speed of this path in this direction was measured.
    pub fn knows(&self, path: &str, way: Access) -> bool {
        self.place_for(path, way).is_some_and(|at| !cells_that_count(&self.places[at], way).is_empty())
    }
}
