//! The configurations to compare: each is the plan that `backup` and `restore` would make.

use fullbore_core::Result;
use fullbore_core::codec::Compression;
use fullbore_core::device::Device;
use fullbore_core::media::MAX_FAMILIES;
use fullbore_core::plan::{FIXED_MEMORY, Knobs, Plan};
use fullbore_core::store::Stores;

use super::sample::Source;
use super::{Request, Share};
use crate::job::reading::unpack_plan;
use crate::job::stripes::{part_bytes, part_size};
use fullbore_model::estimate::{BUFFER_FACTORS, Candidate, KnownPath, MOST, STRIPES_PER_PLACE};
use fullbore_model::plan::{Amount, in_ranges, of_backup, of_restore};
use fullbore_model::throughput::ExtraCost;

/// The settings that differ between candidates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Variant {
    /// The codec.
    pub compression: Compression,
    /// Families.
    pub stripes: usize,
    /// Factor on the default BUFFERCOUNT of the plan.
    pub buffer_factor: f64,
    /// Transform threads; `None` as planned.
    pub workers: Option<usize>,
    /// Plain bytes per second; `None` as given.
    pub throttle: Option<u64>,
}

impl Variant {
    /// As planned.
    pub(super) fn new(compression: Compression, stripes: usize) -> Self {
        Self { compression, stripes, buffer_factor: 1.0, workers: None, throttle: None }
    }
}

/// The configuration of the flags.
pub(super) fn asked(request: &Request) -> Variant {
    let places = request.to.len().max(request.least_stripes);
    Variant::new(request.compression.unwrap_or_default(), request.stripes.unwrap_or(places))
}

/// All combinations of codec, stripes and buffers, for the codecs that the path knows.
pub(super) fn grid(request: &Request, known: &KnownPath) -> Vec<Variant> {
    let stripes = STRIPES_PER_PLACE.map(|of_each| of_each * request.to.len());
    let mut shapes = product(&codecs(known), &stripes, &[None], &BUFFER_FACTORS);
    shapes.truncate(MOST);
    shapes
}

/// All combinations of the settings that were not given, including workers.
pub(super) fn open(request: &Request, known: &KnownPath) -> Vec<Variant> {
    let codecs = request.compression.map_or_else(|| codecs(known), |codec| vec![codec]);
    let of_places = STRIPES_PER_PLACE.map(|of_each| of_each * request.to.len());
    let stripes = request.stripes.map_or_else(|| of_places.to_vec(), |stripes| vec![stripes]);
    let cores = known.path.machine.cores as usize;
    let doubled = std::iter::successors(Some(1), |workers| Some(workers * 2)).take_while(|workers| *workers < cores);
    let workers = match request.knobs.workers {
        Some(_) => vec![None],
        None => doubled.chain([cores]).map(Some).collect(),
    };
    let buffers = if request.knobs.buffer_count.is_some() { &[1.0][..] } else { &BUFFER_FACTORS };
    product(&codecs, &stripes, &workers, buffers)
}

fn codecs(known: &KnownPath) -> Vec<Compression> {
    known.path.codecs.iter().filter_map(|codec| codec.name.parse().ok()).collect()
}

fn product(codecs: &[Compression], stripes: &[usize], workers: &[Option<usize>], buffers: &[f64]) -> Vec<Variant> {
    let mut shapes = Vec::new();
    for &compression in codecs {
        for &stripes in stripes.iter().filter(|stripes| **stripes <= usize::from(MAX_FAMILIES)) {
            for &workers in workers {
                let of = |&buffer_factor| Variant { workers, buffer_factor, ..Variant::new(compression, stripes) };
                shapes.extend(buffers.iter().map(of));
            }
        }
    }
    shapes
}

/// The plans of `shape` for this source.
///
/// # Errors
/// Settings that a plan refuses.
pub(super) fn candidate(shape: &Variant, request: &Request, source: &Source, stores: &Stores) -> Result<Candidate> {
    let compression = shape.compression;
    let extra = ExtraCost { files: source.extra.files as f64, ..ExtraCost::default() };
    let amount = Amount { plain_bytes: source.plain_bytes, extra };
    let name = compression.to_string();
    let stored = source.shares.iter().find(|share| share.codec == name).map_or(1.0, |Share { stored, .. }| *stored);
    let per_family = (source.plain_bytes as f64 * stored) as u64 / shape.stripes.max(1) as u64;
    let part_size = part_size(&request.to, shape.stripes, per_family);
    let differential = request.differential;
    let plan = |knobs: &Knobs| Plan::backup_in_parts(knobs, shape.stripes, compression, differential, part_size);
    let knobs = Knobs {
        workers: shape.workers.or(request.knobs.workers),
        throttle: shape.throttle.or(request.knobs.throttle),
        ..request.knobs.clone()
    };
    let mut planned = plan(&knobs)?;
    if shape.buffer_factor != 1.0 {
        let count = (planned.buffer_count() as f64 * shape.buffer_factor).round() as usize;
        planned = plan(&Knobs { buffer_count: Some(count), ..knobs })?;
    }
    let unpacked = unpack_plan(&request.restore_knobs, &request.to, shape.stripes, (planned.transfer_size, 0))?;
    // If a store cannot be asked for its limits, assumes the usual number of parts.
    let parts = part_bytes(&request.to, shape.stripes, per_family, part_size, stores)
        .unwrap_or(part_size * shape.stripes as u64);
    let families = shape.stripes as u64;
    let restore = of_restore(&unpacked, families, compression, request.encrypted, amount);
    let in_store = request.to.iter().any(Device::is_in_store);
    Ok(Candidate {
        compression,
        stripes: families,
        buffer_count: planned.buffer_count() as u64,
        workers: planned.workers as u64,
        throttle: planned.throttle,
        memory_bytes: planned.pool_bytes() + planned.codec_bytes + parts + FIXED_MEMORY,
        backup: Some(of_backup(&planned, compression, request.encrypted, amount)),
        restore: Some(if in_store { in_ranges(restore, &unpacked) } else { restore }),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fullbore_model::throughput::{CodecCost, Path};

    #[test]
    fn a_chosen_plan_is_enough_for_a_differential() {
        let mut path = Path::unlimited(4.0);
        path.codecs.push(CodecCost { name: "lz4".into(), ..CodecCost::none() });
        let known = KnownPath::new(path, &[], fullbore_model::estimate::Factor::untried()).unwrap();
        let source = Source {
            plain_bytes: 1 << 30,
            used_bytes: 1 << 30,
            passing_share: 1.0,
            written_share: 1.0,
            shares: Vec::new(),
            extra: fullbore_engines::ExtraWork::default(),
            at: Err(String::new()),
        };
        let to = vec![Device::parse("/mnt/a/").unwrap()];
        let of_full = Request { to, ..Request::default() };
        let request = Request { differential: true, ..of_full.clone() };
        let mut refused_as_full = 0;
        for shape in open(&request, &known) {
            let plan = |made: &Candidate, differential| {
                let (buffers, workers) = (made.buffer_count as usize, made.workers as usize);
                let knobs = Knobs { buffer_count: Some(buffers), workers: Some(workers), ..Knobs::default() };
                Plan::backup(&knobs, made.stripes as usize, made.compression, differential)
            };
            if let Ok(made) = candidate(&shape, &request, &source, &Stores::default()) {
                assert!(plan(&made, true).is_ok() && plan(&made, false).is_ok(), "{shape:?}: {made:?}");
            }
            let made = candidate(&shape, &of_full, &source, &Stores::default());
            refused_as_full += usize::from(made.is_ok_and(|made| plan(&made, true).is_err()));
        }
        assert!(refused_as_full > 0, "half the buffers of a full are too few for a differential");
    }
}
