//! The header of a family: no bytes make it panic, and what is accepted is written again as the same.

use fullbore_core::media::{FamilyHeader, HEADER_MIN};
use crate::with_header_crc;

/// One input.
pub fn run(input: &[u8]) {
    let _ = FamilyHeader::length(input);
    let _ = FamilyHeader::decode(input);
    // With a right length and checksum, so that what comes behind them is reached.
    let mut bytes = input.to_vec();
    let length = FamilyHeader::length(&bytes).unwrap_or(HEADER_MIN).min(128 << 10);
    bytes.resize(length, 0);
    with_header_crc(&mut bytes);
    if let Ok(header) = FamilyHeader::decode(&bytes) {
        assert_eq!(FamilyHeader::decode(&header.encode()), Ok(header));
    }
}
