//! SQL Server's backup files: whatever the bytes are, description, verification and survey end, and the coverage of a good family has every byte once.

use std::io::Cursor;

use fullbore_engines::foreign_set::places::Places;
use fullbore_engines::sqlserver::block::BLOCK_HEADER;
use fullbore_engines::sqlserver::configuration::Configuration;
use fullbore_engines::sqlserver::foreign::SqlServerBackup;
use fullbore_engines::sqlserver::writer::seal;
use fullbore_engines::{ForeignFamily, ForeignMedia, InOrder};

/// Blocks whose checksum is put right begin so.
const BLOCKS: [&[u8]; 8] = [b"TAPE", b"SSET", b"VOLB", b"MSCI", b"MSDA", b"MSTL", b"MSLS", b"ESET"];

/// One input.
pub fn run(input: &[u8]) {
    let _ = Configuration::decode(input);
    let mut bytes = input.to_vec();
    // Checksums of blocks are put right, so that the code behind them is reached.
    for start in (0..bytes.len().saturating_sub(BLOCK_HEADER)).step_by(512) {
        if BLOCKS.iter().any(|name| bytes[start..].starts_with(name)) {
            seal(&mut bytes[start..]);
        }
    }
    let family = || {
        let bytes = Box::new(InOrder(Cursor::new(bytes.clone())));
        vec![ForeignFamily { device: "x.bak".into(), bytes }]
    };
    let described = SqlServerBackup.describe(family());
    let Ok(verified) = SqlServerBackup.verify(family(), None) else { return };
    assert!(verified.bytes <= bytes.len() as u64 || !verified.damage.is_empty());
    let Ok(surveyed) = SqlServerBackup.survey(family()) else { panic!("what can be verified can be stored") };
    let laid: Vec<_> = surveyed.families.into_iter().map(|family| family.laid).collect();
    assert_eq!(laid[0].length, bytes.len() as u64);
    assert!(Places::of(&laid, surveyed.files.len()).is_ok(), "the layout is one that can be read");
    if !verified.coverage.is_empty() {
        assert!(described.is_ok(), "a family that is whole can be described");
        let covered: u64 = verified.coverage.iter().map(|line| line.bytes).sum();
        assert_eq!(covered, bytes.len() as u64, "each byte is in one line of the coverage");
    }
}
