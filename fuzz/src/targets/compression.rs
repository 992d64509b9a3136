//! `--compression`, as a user writes it.

use fullbore_core::codec::Compression;

/// One input.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(compression) = text.parse::<Compression>() {
        let shown = compression.to_string();
        assert_eq!(shown.parse::<Compression>().expect("what is shown can be written"), compression);
        assert_eq!(i32::from(compression.level()) == 0, !shown.contains(':'));
    }
}
