//! Calibration: the speed of the path between database and media, measured with fullbore's own I/O, codecs and
//! checksums. `docs/CALIBRATION.md` explains the measurements.

pub mod chart;
pub mod conclusion;
mod disk;
mod in_memory;
mod pace;
mod places;
mod probe;
mod probe_file;
mod sample;
mod schedule;
mod shapes;
mod small_files;
mod store;
mod store_shapes;
mod stream;
mod tiny_jobs;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fullbore_core::units::show_bytes;
use fullbore_core::{Error, Result};

use fullbore_core::conduct::Conduct;
use fullbore_model::profile::{Profile, Settings, check_name};
use schedule::Run;

/// Seconds of a run.
pub const SECONDS: u64 = 30;
/// Seconds of a thorough run.
pub const THOROUGH: u64 = 300;

/// The request for a calibration.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The profile's name.
    pub name: String,
    /// Files, directories, objects and prefixes that are only read.
    pub read: Vec<String>,
    /// Directories and prefixes that files are made in.
    pub write: Vec<String>,
    /// How long it may take, about.
    pub time: Duration,
    /// More codecs and a larger sample.
    pub thorough: bool,
    /// Bytes in each file system and each store, at most.
    pub space: Option<u64>,
    /// Bytes per second of all reads and writes, at most.
    pub throttle: Option<u64>,
    /// The named configuration file: tiny jobs, which are separate processes, read it too.
    pub config: Option<PathBuf>,
    /// It locks objects of jobs in stores. Then stores get no tiny jobs: their objects could not be removed.
    pub locks: bool,
}

/// Measures, and reports progress through `tell`. No file of it stays, however it ends.
///
/// # Errors
/// A place cannot be read or written, there is not enough space, the request contradicts itself, or a signal came.
pub fn run(request: &Request, conduct: &Conduct, tell: &dyn Fn(&str)) -> Result<Profile> {
    check_name(&request.name)?;
    if request.read.is_empty() && request.write.is_empty() {
        let hint = "fullbore calibrate --read /data/app.db --write /mnt/backup";
        return Err(Error::usage("calibrate", "no place was given", hint));
    }
    if request.space.is_some_and(|space| space < places::LEAST_SPACE) {
        return Err(Error::usage("--space", "is less than 16 MiB", "give more, or leave it out"));
    }
    let settings = Settings {
        seconds: request.time.as_secs_f64(),
        space_bytes: request.space,
        throttle_bytes_per_s: request.throttle,
    };
    let begun = Instant::now();
    let measured = Run::open(request, Profile::begin(&request.name, settings), conduct, begun)
        .and_then(|run| run.measure(tell))
        // A store knows only that it had to end, not the reason.
        .map_err(|error| match (error, conduct.check()) {
            (Error::Halted, Err(cancelled)) => cancelled,
            (error, _) => error,
        });
    let mut profile = measured?;
    profile.made_at = jiff::Timestamp::now().to_string();
    Ok(profile)
}

/// Removes cells without rounds: there was no time for them, or nothing to read.
fn drop_empty(profile: &mut Profile) {
    profile.places.iter_mut().for_each(|place| place.cells.retain(|cell| !cell.rounds.is_empty()));
    profile.together.retain(|pair| !pair.rounds.is_empty());
    profile.codecs.retain(|cell| !cell.pack.is_empty() && !cell.unpack.is_empty());
    profile.checksums.retain(|cell| !cell.rounds.is_empty());
    profile.ciphers.retain(|cell| !cell.rounds.is_empty());
    profile.job_costs.retain(|cost| !cost.backup_s.is_empty());
}

/// Refuses a profile without measurements of a place: it must not replace a good one.
///
/// # Errors
/// Names the place, and how to measure it.
fn refuse_nothing(profile: &Profile, request: &Request) -> Result<()> {
    let Some(place) = profile.places.iter().find(|place| place.cells.is_empty()) else { return Ok(()) };
    let seconds = request.time.as_secs();
    let (why, hint) = match request.throttle {
        Some(rate) => (
            format!("was not measured: --throttle {}/s let no operation through in {seconds} s", show_bytes(rate)),
            "give a --throttle of some MiB/s, or more --seconds; no profile was written or replaced",
        ),
        None => (
            format!("was not measured in {seconds} s"),
            "give more --seconds, or name larger files; no profile was written or replaced",
        ),
    };
    Err(Error::refused(&place.path, why, hint))
}
