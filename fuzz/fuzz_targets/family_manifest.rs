//! The manifest: JSON from outside.
#![no_main]

use fullbore_core::media::{pack_manifest, unpack_manifest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(manifest) = unpack_manifest(input) else { return };
    let _ = manifest.map.as_ref().map(fullbore_core::media::ManifestMap::seed);
    let parts = pack_manifest(&manifest, 1000).expect("what was read can be written");
    assert!(parts.iter().all(|(_, plain)| *plain <= 1000));
});
