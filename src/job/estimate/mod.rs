//! Estimates: the time and resources of a backup and its restore, before any data is moved (`docs/ESTIMATE.md`).

mod advice;
mod candidates;
mod earlier;
mod report;
mod sample;

use std::path::PathBuf;

use fullbore_core::codec::Compression;
use fullbore_core::device::{Destination, Device};
use fullbore_core::plan::Knobs;
use fullbore_core::store::Stores;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::DatabaseUrl;
use fullbore_engines::{GivenOptions, Options};

pub(super) use advice::advise_by;
pub use advice::{Advice, advise};
pub use report::{CutoverReport, EstimateReport, ForeseenReport, GridLine, ProfileReport, WantedReport};

use super::names::check_families;
use candidates::Variant;
use fullbore_core::conduct::Conduct;
use fullbore_core::resources;
use fullbore_core::units::counted;
use fullbore_model::estimate::{By, Candidate, Estimate, Factor, KnownPath, Steps, estimate};
use fullbore_model::profile::{self, Calibrated, PathLocation, Profile};
use fullbore_model::throughput::{Access, Ceiling, Path, Uncertain, Unpredictable};
use sample::{Share, Source};

/// What to estimate.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// As for a backup.
    pub source: DatabaseUrl,
    /// The destinations of the families.
    pub to: Vec<Device>,
    /// The fewest families: as many as the second side of `--copy-to` has places.
    pub least_stripes: usize,
    /// `--stripes`.
    pub stripes: Option<usize>,
    /// `--compression`, if given.
    pub compression: Option<Compression>,
    /// Blocks would be encrypted.
    pub encrypted: bool,
    /// It is a differential, or may become one: it needs more buffers than a full; the estimate assumes as many bytes.
    pub differential: bool,
    /// As for a backup.
    pub knobs: Knobs,
    /// As for a restore.
    pub restore_knobs: Knobs,
    /// `--profile`.
    pub profile: String,
    /// `--size`: plain bytes instead of those of the source.
    pub size: Option<u64>,
    /// `--data-path`: the directory with the files of a server.
    pub data_path: Option<PathBuf>,
    /// `--grid`.
    pub grid: bool,
    /// `--plan` and `--change-rate` in bytes per second.
    pub cutover: Option<(Steps, f64)>,
    /// `--deadline` in seconds, and the direction that has to keep it.
    pub deadline: Option<(f64, By)>,
    /// `--price`, for an hour.
    pub price: Option<f64>,
    /// The options of its engine that estimates take.
    pub engine_options: GivenOptions,
    /// The path of the catalog.
    pub catalog: PathBuf,
}

/// The facts that are the same for all configurations.
struct Inputs {
    source: Source,
    stores: Stores,
    /// Bytes of available memory, if known.
    memory: Option<u64>,
    profile: Profile,
    known: KnownPath,
    notes: Vec<String>,
    warnings: Vec<String>,
}

impl Inputs {
    /// True if there is enough memory: otherwise the job would be refused.
    fn has_memory(&self, candidate: &Candidate) -> bool {
        self.memory.is_none_or(|bytes| candidate.memory_bytes <= bytes)
    }
}

/// Makes the estimate.
///
/// # Errors
/// The database cannot be opened; no profile, a profile of another machine, or a profile without these places; a codec
/// that it does not know.
pub fn run(request: &Request, conduct: &Conduct) -> Result<EstimateReport> {
    let ground = ground(request, profile::of_this_machine(&request.profile)?, conduct)?;
    let asked = of(&candidates::asked(request), request, &ground)?;
    let mut grid: Vec<Estimate> = Vec::new();
    let compared = request.grid || request.deadline.is_some();
    if compared {
        for shape in candidates::grid(request, &ground.known) {
            conduct.check()?;
            // Leaves out configurations that a plan refuses, or that need more memory than there is.
            grid.extend(of(&shape, request, &ground).ok().filter(|one| ground.has_memory(&one.candidate)));
        }
    }
    // The given configuration is compared too, even if it is not in the grid.
    if compared && !grid.iter().any(|one| one.candidate == asked.candidate) {
        grid.push(asked.clone());
    }
    fullbore_model::estimate::by_backup(&mut grid);
    report::make(request, &ground, &asked, &grid)
}

/// The facts for this request; `remark` says what has changed on the machine since the profile was made.
fn ground(request: &Request, (profile, remark): (Profile, Option<String>), conduct: &Conduct) -> Result<Inputs> {
    let source = open(request, &profile, conduct)?;
    let made = path(request, &profile, &source)?;
    let warnings = profile.says_its_age().into_iter().chain(made.doubts).collect();
    let mut notes: Vec<String> = remark.into_iter().chain(made.unknown).collect();
    let factor = earlier::learned(request, &made.path, &source, &conduct.stores).unwrap_or_else(|error| {
        notes.push(format!("earlier runs were not used: {error}"));
        Factor::untried()
    });
    let known = KnownPath::new(made.path, &made.uncertain, factor).map_err(|error| unpredictable(&error, request))?;
    let (stores, memory) = (conduct.stores.clone(), resources::available_memory().map(|(bytes, _)| bytes));
    Ok(Inputs { source, stores, memory, profile, known, notes, warnings })
}

/// The size of the database, and the ratios of codecs for it.
fn open(request: &Request, profile: &Profile, conduct: &Conduct) -> Result<Source> {
    if request.size == Some(0) {
        return Err(Error::usage("--size", "0 bytes take no time", "give the size of the database, e.g. 4TB"));
    }
    let halt = conduct.halt();
    let options = Options { halt: Some(halt.clone()), given: request.engine_options.clone(), ..Options::default() };
    let of_profile = profile.codecs.iter().filter_map(|cell| cell.codec.parse().ok());
    let codecs: Vec<Compression> = std::iter::once(Compression::None).chain(of_profile).collect();
    let transfer_bytes = request.knobs.transfer_size.bytes();
    let mut source = conduct.until_signalled(&halt, || {
        let session = request.source.open(&options)?;
        sample::look(&*session, &codecs, transfer_bytes)
    })?;
    source.plain_bytes = request.size.unwrap_or(source.plain_bytes);
    if source.plain_bytes == 0 {
        let hint = "give the size that it will have with --size";
        return Err(Error::usage(request.source.name().to_owned(), "is empty: there is nothing to estimate", hint));
    }
    Ok(source)
}

/// The calibration of this job from the profile, with the ratios of this database.
fn path(request: &Request, profile: &Profile, source: &Source) -> Result<Calibrated> {
    let at = request.data_path.as_ref().map_or_else(|| source.at.clone(), |path| Ok(path.clone()));
    let unknown = |why: String| {
        let why = format!("the disk of its files is not known: {why}");
        let hint = "name the directory of its files, or a place that is as fast: --data-path PATH";
        Error::usage(request.source.shown(), why, hint)
    };
    let database = at.map_err(unknown)?.display().to_string();
    let media: Vec<PathLocation> = request.to.iter().map(PathLocation::of).collect();
    let transfer_bytes = u64::from(request.knobs.transfer_size.bytes());
    let mut made = profile.path_between(&[PathLocation::At(database)], &media, transfer_bytes);
    write_no_zeros(&mut made.path, source.written_share);
    if source.extra.files > 0 && is_known(&made.path.database.write) && made.path.fixed.write_file == 0.0 {
        let files = source.extra.files;
        let why = format!("the cost of a small file was not measured; a restore makes {files}, so it takes longer");
        made.unknown.push(format!("{why}; fullbore calibrate --name {} measures it", profile.name));
    }
    for codec in &mut made.path.codecs {
        if let Some(Share { stored, error, .. }) = source.shares.iter().find(|share| share.codec == codec.name) {
            codec.stored_share = *stored;
            let parameter = fullbore_model::throughput::Parameter::StoredShare(codec.name.clone());
            made.uncertain.retain(|known| known.parameter != parameter);
            made.uncertain.push(Uncertain { parameter, deviation: *error });
        }
    }
    if !is_known(&made.path.database.read) && !is_known(&made.path.database.write) {
        let hint = made.unknown.first().cloned().unwrap_or_else(|| "run fullbore calibrate".into());
        return Err(Error::usage(
            format!("profile `{}`", profile.name),
            "has no measurement of the disk of the database",
            hint,
        ));
    }
    Ok(made)
}

/// Adapts the path: only `written_share` of the plain bytes is not zero; zeros are neither packed nor written to a
/// database.
fn write_no_zeros(path: &mut Path, written_share: f64) {
    let ceiling = &mut path.database.write;
    ceiling.stream_rate /= written_share;
    ceiling.total_rate /= written_share;
    ceiling.latency *= written_share;
    for codec in &mut path.codecs {
        codec.pack *= written_share;
        codec.unpack *= written_share;
    }
}

fn is_known(ceiling: &Ceiling) -> bool {
    *ceiling != Ceiling::NONE
}

/// The estimate of one configuration.
fn of(shape: &Variant, request: &Request, ground: &Inputs) -> Result<Estimate> {
    let candidate = known_ways(shape, request, ground)?;
    estimate(&ground.known, &candidate).map_err(|error| unpredictable(&error, request))
}

/// A candidate with the directions that the profile knows.
fn known_ways(shape: &Variant, request: &Request, ground: &Inputs) -> Result<Candidate> {
    check_families(&request.to, shape.stripes)?;
    if shape.stripes < request.least_stripes {
        let families = counted(shape.stripes as u64, "family");
        let why = format!("{families} cannot use the {} places of the copy", request.least_stripes);
        return Err(Error::usage("--stripes", why, "give at least one stripe for each place"));
    }
    let mut candidate = candidates::candidate(shape, request, &ground.source, &ground.stores)?;
    let path = &ground.known.path;
    let to_nowhere = request.to.iter().all(|device| matches!(device.place(), Destination::Null));
    let of_media = |way| to_nowhere || is_known(path.media.ceiling(way));
    candidate.backup = candidate.backup.filter(|_| is_known(&path.database.read) && of_media(Access::Write));
    candidate.restore =
        candidate.restore.filter(|_| !to_nowhere && is_known(&path.database.write) && of_media(Access::Read));
    if candidate.backup.is_none() && candidate.restore.is_none() {
        let hint = ground.notes.last().cloned().unwrap_or_else(|| "run fullbore calibrate".into());
        let what = format!("profile `{}`", ground.profile.name);
        return Err(Error::usage(what, "has no measurements for backup or restore between these places", hint));
    }
    Ok(candidate)
}

fn unpredictable(error: &Unpredictable, request: &Request) -> Error {
    let hint = format!("fullbore calibrate --thorough --name {} measures more codecs", request.profile);
    Error::usage(&error.what, &error.why, hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_model::throughput::CodecCost;

    #[test]
    fn zero_units_are_neither_packed_nor_written_to_a_database() {
        let mut path = Path::unlimited(2.0);
        path.database.write = Ceiling { stream_rate: 50.0, total_rate: 100.0, latency: 0.2, ..Ceiling::NONE };
        path.database.read = Ceiling::total(100.0);
        path.codecs.push(CodecCost { pack: 0.4, unpack: 0.2, ..CodecCost::none() });
        write_no_zeros(&mut path, 0.5);
        let write = path.database.write;
        assert_eq!((write.stream_rate, write.total_rate, write.latency), (100.0, 200.0, 0.1));
        assert_eq!(path.database.read, Ceiling::total(100.0), "they are read");
        assert!(path.codecs.last().is_some_and(|codec| (codec.pack, codec.unpack) == (0.2, 0.1)));
    }
}
