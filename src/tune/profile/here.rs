//! The profile that a job on this machine uses, and where a job's bytes are in its words.

use fullbore_core::device::{Device, Place as DevicePlace};
use fullbore_core::io::directory_of;
use fullbore_core::{Error, Result};
use jiff::Timestamp;

use super::path::{Asked, Calibrated, cells_that_count};
use super::whose::resolved;
use super::{Machine, Profile, Way, load, places};

/// What a profile is called that was given no name.
pub const DEFAULT: &str = "default";
/// Days after which a profile is worth a word: disks fill, firmware and kernels change.
const OLD: i64 = 30;
const SECONDS_OF_A_DAY: i64 = 86_400;

/// Where a job's bytes are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whereabouts {
    /// A directory, a file, or a URL: a profile may know it.
    At(String),
    /// Nowhere: `nul:`.
    Nowhere,
    /// Behind a pipe.
    Unknown,
}

impl Whereabouts {
    /// Of a family's device: the directory that it is in.
    pub fn of(device: &Device) -> Self {
        match device.place() {
            DevicePlace::Null => Self::Nowhere,
            DevicePlace::Pipe => Self::Unknown,
            DevicePlace::File(path) => Self::At(directory_of(path).display().to_string()),
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

    /// The file system's device number now; nothing of what is in a store or nowhere.
    pub fn device(&self) -> Option<u64> {
        match self {
            Self::At(name) => resolved(name).1,
            Self::Nowhere | Self::Unknown => None,
        }
    }
}

/// The profile of that name, if it is one of this machine; and what has changed on the machine since, if anything.
///
/// # Errors
/// There is none, it cannot be read, or it is another machine's.
pub fn of_this_machine(name: &str) -> Result<(Profile, Option<String>)> {
    let (profile, here) = (load(&places(), name)?, Machine::this());
    profile.check_machine(&here)?;
    let remark = profile.remark(&here);
    Ok((profile, remark))
}

/// The profile that a job is compared with: the one that was named, or the default one, if there is any; and what is worth a note. A job
/// does not fail because of what is in a file that it can do without.
///
/// # Errors
/// There is no profile of the name that was given.
pub fn for_job(named: Option<&str>) -> Result<(Option<Profile>, Vec<String>)> {
    let name = named.unwrap_or(DEFAULT);
    match of_this_machine(name) {
        Ok((profile, remark)) => {
            let notes = remark.into_iter().chain(profile.says_its_age()).collect();
            Ok((Some(profile), notes))
        }
        // None of that name.
        Err(error @ Error::Usage { .. }) => named.map_or(Ok((None, Vec::new())), |_| Err(error)),
        Err(error) => {
            let why = error.to_string();
            let why = why.lines().next().unwrap_or_default();
            Ok((None, vec![format!("profile `{name}` is not compared with: {why}")]))
        }
    }
}

/// The names of places that have one.
fn names(places: &[Whereabouts]) -> Vec<&str> {
    places.iter().filter_map(Whereabouts::name).collect()
}

impl Profile {
    /// That it is old, if it is.
    pub fn says_its_age(&self) -> Option<String> {
        let days = self.age_days().filter(|days| *days > OLD)?;
        Some(format!("profile `{}` is {days} days old: measure it anew with fullbore calibrate", self.name))
    }

    /// Whole days since it was made.
    pub fn age_days(&self) -> Option<i64> {
        let made: Timestamp = self.made_at.parse().ok()?;
        Some((Timestamp::now().as_second() - made.as_second()) / SECONDS_OF_A_DAY)
    }

    /// The path of a job between these places, with buffers of so many bytes. A copy has media on both sides.
    pub fn path_between(&self, database: &[Whereabouts], media: &[Whereabouts], transfer_bytes: u64) -> Calibrated {
        let (database, media) = (names(database), names(media));
        self.path(&Asked { database: &database, media: &media, transfer_bytes })
    }

    /// True where it was measured how fast such a path is read or written.
    pub fn knows(&self, path: &str, way: Way) -> bool {
        self.place_for(path, way).is_some_and(|at| !cells_that_count(&self.places[at], way).is_empty())
    }
}
