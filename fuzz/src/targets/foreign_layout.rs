//! Layouts of stored media: hostile bytes end in an error, or every byte of the two families has one place.

use fullbore_engines::foreign_set::layout::CELL;
use fullbore_engines::foreign_set::places::{LaidOut, Places, within};

const FILES: usize = 3;

/// One input.
pub fn run(input: &[u8]) {
    let Some((&[first, second, split], rest)) = input.split_first_chunk::<3>() else { return };
    let (one, two) = rest.split_at(usize::from(split).min(rest.len()));
    let family = |name: &str, cells: u8, layout: &[u8]| LaidOut {
        name: name.into(),
        length: u64::from(cells) * CELL / 4,
        layout: layout.to_vec(),
    };
    let families = [family("1.bak", first, one), family("2.bak", second, two)];
    let Ok(places) = Places::of(&families, FILES) else { return };
    let mut bytes = [0; 2];
    for pieces in places.kept.iter().chain(&places.files) {
        for piece in pieces {
            bytes[usize::from(piece.family)] += piece.length;
            let found: Vec<_> = within(pieces, piece.at, piece.length).collect();
            assert_eq!(found, [*piece], "a piece is found at its place");
        }
    }
    assert_eq!(bytes, families.each_ref().map(|family| family.length), "each byte has one place");
}
