//! The footer, with the commit record or without.

use fullbore_core::media::{FOOTER, Footer};
use crate::with_crc_at_end;

/// One input.
pub fn run(input: &[u8]) {
    let _ = Footer::decode(input);
    let mut bytes = input.to_vec();
    bytes.resize(FOOTER, 0);
    with_crc_at_end(&mut bytes);
    if let Ok(footer) = Footer::decode(&bytes) {
        assert_eq!(Footer::authenticated(&bytes).len(), FOOTER);
        assert_eq!(Footer::decode(&footer.encode(|_| footer.mac)), Ok(footer));
    }
}
