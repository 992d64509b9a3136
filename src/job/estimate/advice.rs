//! Advice: the best values for a goal, for all settings that were not given, by the same model as an estimate.

use fullbore_core::{Error, Result};
use serde::Serialize;

use super::candidates::{self, Variant};
use super::report::{GridLine, ProfileReport, line};
use super::{Inputs, Request, ground, of, unpredictable};
use fullbore_core::conduct::Conduct;
use fullbore_core::units::show_bytes;
use fullbore_model::estimate::{Best, Estimate, Glance, Goal, glance, rank_by_estimate, smaller_first, throttle};
use fullbore_model::profile::{self, Profile};

const SCHEMA_VERSION: u32 = 1;
/// An advised throttle is a multiple of so many bytes per second.
const THROTTLE_STEP: f64 = 1_048_576.0;

/// The advised configuration, with its estimate.
#[derive(Debug, Clone, Serialize)]
pub struct Advice {
    /// Version of this object; fields are added, never changed.
    pub schema_version: u32,
    /// The source as given, without a password.
    pub source: String,
    /// Bytes to move.
    pub plain_bytes: u64,
    /// The best configuration for the goal.
    pub advised: GridLine,
    /// `--throttle` in bytes per second.
    pub throttle: Option<u64>,
    /// The configuration of the flags alone.
    pub as_asked: GridLine,
    /// False if no configuration keeps the deadline: then `advised` is the nearest one.
    pub keeps_deadline: bool,
    /// The number of compared configurations.
    pub compared: usize,
    /// The profile that was used.
    pub profile: ProfileReport,
    /// What may be wrong with it.
    pub warnings: Vec<String>,
    /// What is worth knowing.
    pub notes: Vec<String>,
}

/// Chooses codec, stripes, buffers and workers for `goal`; the values that `request` gives stay.
///
/// # Errors
/// Those of an estimate; a limit of the processors that no throttle keeps.
pub fn advise(request: &Request, goal: &Goal, conduct: &Conduct) -> Result<Advice> {
    advise_by(profile::of_this_machine(&request.profile)?, request, goal, conduct)
}

/// The same with a profile that was already read, and the changes of the machine since it was made.
pub(in crate::job) fn advise_by(
    profile: (Profile, Option<String>),
    request: &Request,
    goal: &Goal,
    conduct: &Conduct,
) -> Result<Advice> {
    let ground = ground(request, profile, conduct)?;
    let as_asked = of(&candidates::asked(request), request, &ground)?;
    let shapes = candidates::open(request, &ground.known);
    let mut glances = Vec::new();
    for shape in &shapes {
        conduct.check()?;
        glances.extend(glanced(shape, request, goal, &ground)?);
    }
    let least = glances.iter().map(|glance| glance.candidate.memory_bytes).min();
    glances.retain(|glance| ground.has_memory(&glance.candidate));
    if let (Some(least), Some(memory), true) = (least, ground.memory, glances.is_empty()) {
        let why = format!(
            "every configuration needs at least {}, but {} are available",
            show_bytes(least),
            show_bytes(memory)
        );
        return Err(Error::usage("memory", why, "lower --buffer-count or --max-transfer-size, or leave them out"));
    }
    rank_by_estimate(&ground.known, &mut glances, &as_asked.candidate, goal)
        .map_err(|error| unpredictable(&error, request))?;
    if let (Best::Balanced, Some(fastest)) = (goal.best, glances.first()) {
        let as_fast = whole(fastest, request, &ground)?.p90(goal.by);
        as_fast.into_iter().for_each(|seconds| smaller_first(&mut glances, seconds));
    }
    let (advised, keeps_deadline) = chosen(glances, request, goal, &ground)?;
    let plain = ground.source.plain_bytes;
    let mut warnings = ground.warnings;
    if !keeps_deadline {
        warnings.push("no configuration keeps the deadline; this one is the nearest".into());
    }
    Ok(Advice {
        schema_version: SCHEMA_VERSION,
        source: request.source.shown().to_owned(),
        plain_bytes: plain,
        throttle: advised.candidate.throttle,
        advised: line(&advised, plain, request.price),
        as_asked: line(&as_asked, plain, request.price),
        keeps_deadline,
        compared: shapes.len(),
        profile: ProfileReport::of(&ground.profile),
        warnings,
        notes: ground.notes,
    })
}

/// A quick estimate of `shape`, throttled if it would use too much of the processors; `None` if a plan refuses it or
/// the profile does not know it.
fn glanced(shape: &Variant, request: &Request, goal: &Goal, ground: &Inputs) -> Result<Option<Glance>> {
    let look = |shape: &Variant| -> Result<Option<Glance>> {
        let Ok(candidate) = super::known_ways(shape, request, ground) else { return Ok(None) };
        glance(&ground.known, candidate, goal.by).map_err(|error| unpredictable(&error, request))
    };
    let free = look(shape)?;
    let over = |limit: f64| free.as_ref().filter(|free| free.cpu_share > limit).map(|free| (free, limit));
    let Some((free, limit)) = goal.cpu_limit.and_then(over) else { return Ok(free) };
    let rate = throttle(free, &ground.known, limit).map_or(0.0, |rate| (rate / THROTTLE_STEP).floor());
    if rate < 1.0 {
        return Ok(None);
    }
    look(&Variant { throttle: Some((rate * THROTTLE_STEP) as u64), ..*shape })
}

/// The full estimate for `glance`, with its interval.
fn whole(glance: &Glance, request: &Request, ground: &Inputs) -> Result<Estimate> {
    let made = fullbore_model::estimate::estimate(&ground.known, &glance.candidate);
    made.map_err(|error| unpredictable(&error, request))
}

/// The first one that keeps the deadline, or else the nearest one.
fn chosen(ranked: Vec<Glance>, request: &Request, goal: &Goal, ground: &Inputs) -> Result<(Estimate, bool)> {
    let whole = |glance: &Glance| whole(glance, request, ground);
    let Some(first) = ranked.first() else {
        if goal.cpu_limit.is_none() {
            let hint = "fullbore calibrate --read DATABASE --write DESTINATION";
            return Err(Error::usage("--direction", "the profile has no measurements for this direction", hint));
        }
        let why = "no configuration that the profile knows keeps it";
        let hint = "raise the limit, or measure lighter codecs: fullbore calibrate --thorough";
        return Err(Error::usage("--cpu-limit", why, hint));
    };
    let Some(deadline) = goal.deadline else { return Ok((whole(first)?, true)) };
    // P90 is above the median: if the median misses the deadline, P90 does too.
    for glance in ranked.iter().filter(|glance| glance.seconds <= deadline) {
        let estimate = whole(glance)?;
        if estimate.p90(goal.by).is_some_and(|seconds| seconds <= deadline) {
            return Ok((estimate, true));
        }
    }
    let nearest = ranked.iter().min_by(|one, other| one.seconds.total_cmp(&other.seconds)).unwrap_or(first);
    Ok((whole(nearest)?, false))
}
