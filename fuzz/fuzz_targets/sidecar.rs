//! Sidecars with rotated keys.
#![no_main]

use fullbore_core::cipher::Sidecar;
use fullbore_fuzz::with_crc_at_end;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut bytes = input.to_vec();
    for _ in 0..2 {
        if let Ok(sidecar) = Sidecar::parse(&bytes) {
            assert_eq!(sidecar.to_bytes().expect("it was read"), bytes);
        }
        with_crc_at_end(&mut bytes);
    }
});
