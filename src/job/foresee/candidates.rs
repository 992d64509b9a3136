//! The configurations that are looked at: each is the plan that `backup` and `restore` would make.

use fullbore_core::Result;
use fullbore_core::codec::Compression;
use fullbore_core::device::Device;
use fullbore_core::plan::{FIXED_MEMORY, Knobs, Plan, UnpackPlan};
use fullbore_core::sink::usual_part;

use super::sample::Source;
use super::{Request, Share};
use crate::job::names::FAMILIES_MOST;
use crate::tune::estimate::{BUFFER_FACTORS, Candidate, Known, MOST, STRIPES_PER_PLACE};
use crate::tune::plan::{Amount, of_backup, of_restore};

/// What differs between candidates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shape {
    /// The codec.
    pub compression: Compression,
    /// Families.
    pub stripes: usize,
    /// Times the BUFFERCOUNT that the plan would have by itself.
    pub buffer_factor: f64,
}

/// What the flags say.
pub(super) fn asked(request: &Request) -> Shape {
    let stripes = request.stripes.unwrap_or(request.to.len());
    Shape { compression: request.compression, stripes, buffer_factor: 1.0 }
}

/// Every product of codec, stripes and buffers, as far as the path knows the codecs.
pub(super) fn grid(request: &Request, known: &Known) -> Vec<Shape> {
    let codecs = known.path.codecs.iter().filter_map(|codec| codec.name.parse().ok());
    let mut shapes = Vec::new();
    for compression in codecs {
        for stripes in STRIPES_PER_PLACE.map(|of_each| of_each * request.to.len()) {
            for buffer_factor in BUFFER_FACTORS {
                if stripes <= FAMILIES_MOST {
                    shapes.push(Shape { compression, stripes, buffer_factor });
                }
            }
        }
    }
    shapes.truncate(MOST);
    shapes
}

/// The plans of `shape`, for so much.
///
/// # Errors
/// What a plan refuses.
pub(super) fn candidate(shape: &Shape, request: &Request, source: &Source) -> Result<Candidate> {
    let (compression, amount) = (shape.compression, Amount::of(source.plain_bytes));
    let name = compression.to_string();
    let stored = source.shares.iter().find(|share| share.codec == name).map_or(1.0, |Share { stored, .. }| *stored);
    let per_family = (source.plain_bytes as f64 * stored) as u64 / shape.stripes.max(1) as u64;
    let in_store = request.to.iter().any(Device::is_in_store);
    let part_size = if in_store { usual_part(per_family, shape.stripes) } else { 0 };
    let plan = |knobs: &Knobs| Plan::backup_in_parts(knobs, shape.stripes, compression, false, part_size);
    let mut planned = plan(&request.knobs)?;
    if shape.buffer_factor != 1.0 {
        let count = (planned.buffer_count() as f64 * shape.buffer_factor).round() as usize;
        planned = plan(&Knobs { buffer_count: Some(count), ..request.knobs.clone() })?;
    }
    let unpack = if in_store { UnpackPlan::of_objects } else { UnpackPlan::new };
    let unpacked = unpack(&Knobs::default(), shape.stripes, planned.transfer_size)?;
    let families = shape.stripes as u64;
    Ok(Candidate {
        compression,
        stripes: families,
        buffer_count: planned.buffer_count() as u64,
        memory_bytes: planned.pool_bytes() + planned.codec_bytes + FIXED_MEMORY,
        backup: Some(of_backup(&planned, compression, request.encrypted, amount)),
        restore: Some(of_restore(&unpacked, families, compression, request.encrypted, amount)),
    })
}
