//! `--compression`, as a user writes it.
#![no_main]

use fullbore_core::codec::Compression;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(compression) = text.parse::<Compression>() {
        let shown = compression.to_string();
        assert_eq!(shown.parse::<Compression>().expect("what is shown can be written"), compression);
        assert_eq!(i32::from(compression.level()) == 0, !shown.contains(':'));
    }
});
