//! The manifest: JSON from outside.

use fullbore_core::media::{pack_manifest, unpack_manifest};

/// One input.
pub fn run(input: &[u8]) {
    let Ok(manifest) = unpack_manifest(input) else { return };
    let _ = manifest.map.as_ref().map(fullbore_core::media::ManifestMap::seed);
    let parts = pack_manifest(&manifest, 1000).expect("what was read can be written");
    assert!(parts.iter().all(|(_, plain)| *plain <= 1000));
}
