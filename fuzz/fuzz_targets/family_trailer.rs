//! The trailer: its counts never size anything that its bytes do not fill.
#![no_main]

use fullbore_core::media::Trailer;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(trailer) = Trailer::decode(input) {
        assert_eq!(trailer.encode(), input);
    }
});
