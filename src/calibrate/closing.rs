//! The end of a run: is its profile usable?

use fullbore_core::{Error, Result};

use super::Request;
use fullbore_core::units::show_bytes;
use fullbore_model::profile::Profile;

/// Removes cells without rounds: there was no time for them, or nothing to read.
pub(super) fn drop_empty(profile: &mut Profile) {
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
pub(super) fn refuse_nothing(profile: &Profile, request: &Request) -> Result<()> {
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
