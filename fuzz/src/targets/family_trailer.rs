//! The trailer: its counts never size anything that its bytes do not fill.

use fullbore_core::media::Trailer;

/// One input.
pub fn run(input: &[u8]) {
    if let Ok(trailer) = Trailer::decode(input) {
        assert_eq!(trailer.encode(), input);
    }
}
