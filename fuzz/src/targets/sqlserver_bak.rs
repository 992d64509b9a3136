//! SQL Server's backup files: whatever the bytes are, description, verification and survey end, and the coverage of a good family has every byte once.

use std::io::Cursor;

use fullbore_engines::foreign_set::places::{LaidOut, Places};
use fullbore_engines::foreign_set::tap::{Passed, way};
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
    let (laid, files) = stored(family());
    assert_eq!(laid[0].length, bytes.len() as u64);
    assert!(Places::of(&laid, files).is_ok(), "the layout is one that can be read");
    if !verified.coverage.is_empty() {
        assert!(described.is_ok(), "a family that is whole can be described");
        let covered: u64 = verified.coverage.iter().map(|line| line.bytes).sum();
        assert_eq!(covered, bytes.len() as u64, "each byte is in one line of the coverage");
    }
}

/// The families as they are stored, and the number of files: what can be verified can be stored.
fn stored(families: Vec<ForeignFamily>) -> (Vec<LaidOut>, usize) {
    let (to, from) = way();
    let count = families.len();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let surveyed = SqlServerBackup.survey(families, &to);
            to.pass(Passed::Ended(Box::new(surveyed))).expect("the other end is there");
        });
        let (mut laid, mut files) = (vec![LaidOut::default(); count], 0);
        loop {
            match from.next().expect("it says that it ends") {
                Passed::File(_) => files += 1,
                Passed::FamilyEnded(..) => {}
                Passed::Bytes(passed) => {
                    laid[usize::from(passed.family)].length += passed.bytes.len() as u64;
                    from.give_back(passed.bytes);
                }
                Passed::Ended(surveyed) => {
                    let surveyed = (*surveyed).expect("what can be verified can be stored");
                    laid.iter_mut().zip(surveyed.layouts).for_each(|(laid, layout)| laid.layout = layout);
                    return (laid, files);
                }
            }
        }
    })
}
