//! Sidecars with rotated keys.

use fullbore_core::cipher::Sidecar;
use crate::with_crc_at_end;

/// One input.
pub fn run(input: &[u8]) {
    let mut bytes = input.to_vec();
    for _ in 0..2 {
        if let Ok(sidecar) = Sidecar::parse(&bytes) {
            assert_eq!(sidecar.to_bytes().expect("it was read"), bytes);
        }
        with_crc_at_end(&mut bytes);
    }
}
