//! A profile's measurements of a job's path, and the limit of that path.

use fullbore_core::meter::Stage;

use super::{Copying, Direction, Evidence, Setup};
use crate::throughput::{Ceiling, Configuration, Headroom, Limit, Path, Side, roofline};

/// A machine profile's measurements of a job's path.
#[derive(Debug, Clone, PartialEq)]
pub struct CalibratedLimits {
    /// The profile's name.
    pub profile: String,
    /// The path, with the places of this job.
    pub path: Path,
    /// Each place of the job was measured in the direction of its use. Only then is a limit of the whole path known.
    pub whole: bool,
    /// The gain of more streams at the database.
    pub database: Headroom,
    /// The gain of more families.
    pub media: Headroom,
    /// Directories of the families, each once.
    pub directories: Vec<String>,
    /// Other directories that were measured.
    pub elsewhere: Vec<Elsewhere>,
    /// Reasons why a part may be from another disk: one line each.
    pub doubts: Vec<String>,
}

/// A directory for families that the job did not use: on its own device, with free space for them.
#[derive(Debug, Clone, PartialEq)]
pub struct Elsewhere {
    /// Its name.
    pub directory: String,
    /// Its write ceiling.
    pub write: Ceiling,
}

/// The greatest speed of a job's path, by a profile.
#[derive(Debug, Clone, PartialEq)]
pub struct CalibratedLimit {
    /// The profile's name.
    pub profile: String,
    /// The name of the limit, as in the model.
    pub name: &'static str,
    /// Plain bytes per second.
    pub rate: f64,
    /// The job's speed as a share of it.
    pub share: f64,
}

impl CalibratedLimits {
    /// The gain of more streams at a side.
    pub fn headroom(&self, side: Side) -> &Headroom {
        match side {
            Side::Database => &self.database,
            Side::Media => &self.media,
        }
    }
}

/// The threads of both sides: those of the media, and those of the database.
pub fn sides<'a>(evidence: &Evidence<'a>) -> (&'a Stage, &'a Stage) {
    match evidence.direction {
        Direction::Backup => (&evidence.stages[2], &evidence.stages[0]),
        Direction::Restore => (&evidence.stages[0], &evidence.stages[2]),
    }
}

/// The profile's path for a plain byte of this job: with its ratio, and without bytes that its codec or its database's
/// device never saw.
pub fn path_of_job(evidence: &Evidence<'_>, setup: &Setup, known: &CalibratedLimits) -> Path {
    let mut path = known.path.clone();
    let (media, database) = sides(evidence);
    let crossed = database.account.bytes as f64 / evidence.plain_bytes;
    let ceiling = path.database.ceiling_mut(evidence.direction.way(Side::Database));
    if crossed > 0.0 {
        ceiling.total_rate /= crossed.min(1.0);
        ceiling.stream_rate /= crossed.min(1.0);
    } else {
        // A verification, or a restore into nothing: that device is not used.
        *ceiling = Ceiling::NONE;
        path.simultaneous = None;
    }
    if let Some(copying) = &setup.copying {
        work_of_copy(&mut path, copying);
    }
    let stored_share = media.account.bytes as f64 / evidence.plain_bytes;
    let factor = path.codec(&setup.codec).map_or(1.0, |measured| stored_share / measured.stored_share);
    for codec in &mut path.codecs {
        codec.pack *= evidence.data_share;
        codec.unpack *= evidence.data_share;
        codec.stored_share = (codec.stored_share * factor).max(f64::MIN_POSITIVE);
    }
    if evidence.direction == Direction::Restore {
        path.machine.checksum *= evidence.data_share;
    }
    path
}

/// Books all of a copy's work on a byte of data as work of the codecs.
fn work_of_copy(path: &mut Path, copying: &Copying) {
    let opened = match &copying.unpacks {
        None => Some(0.0),
        Some(codec) => path.codec(codec).map(|codec| codec.unpack + path.machine.checksum),
    };
    match opened {
        Some(opened) => {
            for codec in &mut path.codecs {
                codec.pack = opened + if copying.packs { codec.pack } else { 0.0 };
            }
        }
        // The codec of the source was not measured, so no cost is known.
        None => path.codecs.clear(),
    }
    path.machine.checksum = 0.0;
    if copying.decrypts {
        // For each byte that is read, independent of the database's bytes.
        path.machine.checksum = path.machine.cipher;
    }
}

/// The name of the limit in a report.
fn name(limit: Limit, evidence: &Evidence<'_>) -> &'static str {
    match (limit, &evidence.read_from) {
        (Limit::Database, Some(_)) => "source media",
        (Limit::Media, Some(_)) => "target media",
        (limit, _) => limit.name(),
    }
}

/// The calibrated limit: no configuration is faster on these places with this codec (`docs/VERDICT.md`).
pub fn limit(evidence: &Evidence<'_>, configuration: &Configuration, job_rate: f64) -> Option<CalibratedLimit> {
    let (setup, known) = (evidence.setup.as_ref()?, evidence.profile.filter(|known| known.whole)?);
    let path = path_of_job(evidence, setup, known);
    let asked = Configuration { encrypted: setup.encrypted, ..configuration.clone() };
    let highest = roofline(&path, &asked).ok()?;
    Some(CalibratedLimit {
        profile: known.profile.clone(),
        name: name(highest.limit, evidence),
        rate: highest.rate,
        share: job_rate / highest.rate,
    })
}
