//! How large will the backup be? A few samples of the source, packed with the codec that was asked for.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fullbore_core::codec::{Compression, Encoder};
use fullbore_core::device::{Device, Place};
use fullbore_core::io::free_space;
use fullbore_core::source::Source;
use fullbore_core::{Error, Result};

use crate::units::show_bytes;

/// Bytes of one sample, and how many are taken.
const SAMPLE: usize = 256 << 10;
const SAMPLES: u64 = 12;
/// Samples mislead a little; so much more is asked for.
const MARGIN: f64 = 1.03;
/// What a family needs besides its data: header, index, manifest, footer.
const FAMILY_OVERHEAD: u64 = 256 << 10;

/// What a full of `source` will take, all families together, in bytes.
pub(super) fn stored_bytes(source: &dyn Source, allocated: u64, compression: Compression) -> Result<u64> {
    if compression == Compression::None || allocated == 0 {
        // Heads, index and page map: 4 KiB, 48 bytes and 4 KiB for each MiB.
        return Ok(allocated + allocated / 100 + FAMILY_OVERHEAD);
    }
    let mut encoder = Encoder::new(compression)?;
    let (mut plain, mut packed) = (vec![0; SAMPLE], vec![0; SAMPLE]);
    let (mut taken, mut left) = (0_u64, 0_u64);
    for stream in source.streams() {
        let step = (stream.size / SAMPLES).max(SAMPLE as u64) / u64::from(stream.unit) * u64::from(stream.unit);
        let mut offset = 0;
        while offset < stream.size {
            let length = source.sample(stream.id, offset, &mut plain)?;
            taken += length as u64;
            left += encoder.encode(&plain[..length], &mut packed[..length])?.unwrap_or(length) as u64;
            offset += step.max(u64::from(stream.unit));
        }
    }
    let ratio = if taken == 0 { 1.0 } else { left as f64 / taken as f64 };
    Ok((allocated as f64 * ratio * MARGIN) as u64 + allocated / 200 + FAMILY_OVERHEAD)
}

/// Refuses when a file system has less free than the families on it will need. `replaced` families stay until the
/// new ones are whole, so their space does not count.
pub(super) fn check_room(devices: &[Device], per_family: u64) -> Result<()> {
    let mut needed: HashMap<u64, (u64, &Path)> = HashMap::new();
    for device in devices {
        let Place::File(path) = device.place() else { continue };
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Ok(metadata) = std::fs::metadata(directory) else { continue };
        needed.entry(metadata.dev()).or_insert((0, directory)).0 += per_family;
    }
    for (bytes, directory) in needed.into_values() {
        let free = free_space(directory)?;
        if free < bytes {
            return Err(Error::refused(
                directory.display().to_string(),
                format!("the backup needs about {} there, and {} are free", show_bytes(bytes), show_bytes(free)),
                "free space there, add a device with --to, or choose a stronger --compression",
            ));
        }
    }
    Ok(())
}
