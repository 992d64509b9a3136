//! The places of the bytes of all streams in the families, from the layouts of a set.

use fullbore_core::{Error, Result};

use super::layout::{self, CELL, Run};

/// A family of a set, and its layout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaidOut {
    /// Its name, for messages.
    pub name: String,
    /// Its bytes.
    pub length: u64,
    /// Where each of them is.
    pub layout: Vec<u8>,
}

/// Bytes of a stream that are next to each other in a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The offset in the stream.
    pub at: u64,
    /// The offset in the family.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// The family, from 0.
    pub family: u16,
}

impl Piece {
    fn end(&self) -> u64 {
        self.at + self.length
    }
}

/// The pieces of all streams, each in the order of its stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Those that are kept as they are: one list for each family.
    pub kept: Vec<Vec<Piece>>,
    /// Those that have a place: one list for each file.
    pub files: Vec<Vec<Piece>>,
}

impl Places {
    /// From the layouts of all families, in a set with `files` files.
    ///
    /// # Errors
    /// A layout is wrong, or two places have the same cell of a file.
    pub fn of(families: &[LaidOut], files: usize) -> Result<Self> {
        let mut places = Self { kept: vec![Vec::new(); families.len()], files: vec![Vec::new(); files] };
        let mut all = 0;
        for (laid, number) in families.iter().zip(0_u16..) {
            let (mut offset, mut kept) = (0, 0);
            let runs = layout::runs(&laid.name, &laid.layout, laid.length, files)?;
            all += runs.len();
            if all > layout::RUNS_MAX {
                return Err(wrong(&laid.name, "the layouts of the set have too many runs"));
            }
            for run in runs {
                let (at, list) = match run {
                    Run::Kept(_) => (kept, places.kept.get_mut(usize::from(number))),
                    Run::Placed { file, cell, .. } => (cell * CELL, places.files.get_mut(usize::from(file))),
                };
                if let Some(list) = list {
                    list.push(Piece { at, offset, length: run.bytes(), family: number });
                }
                if let Run::Kept(bytes) = run {
                    kept += bytes;
                }
                offset += run.bytes();
            }
        }
        for pieces in &mut places.files {
            pieces.sort_unstable_by_key(|piece| piece.at);
            if let Some([first, _]) = pieces.array_windows().find(|[first, second]| first.end() > second.at) {
                let name = families.get(usize::from(first.family)).map_or("", |laid| laid.name.as_str());
                return Err(wrong(name, "a cell of a file has two places"));
            }
        }
        Ok(places)
    }
}

fn wrong(name: &str, why: &str) -> Error {
    Error::incomplete("media set", format!("the layout of `{name}` is wrong: {why}"), "use another set")
}

/// The parts of `pieces` that are in `length` bytes of their stream from `at` on, in order.
pub fn within(pieces: &[Piece], at: u64, length: u64) -> impl Iterator<Item = Piece> {
    let end = at.saturating_add(length);
    let first = pieces.partition_point(|piece| piece.end() <= at);
    let found = pieces.get(first..).unwrap_or_default().iter().take_while(move |piece| piece.at < end);
    found.map(move |piece| {
        let begin = piece.at.max(at);
        Piece {
            at: begin,
            offset: piece.offset + (begin - piece.at),
            length: piece.end().min(end) - begin,
            family: piece.family,
        }
    })
}

/// Bytes of a stream up to the last one that has a place.
pub fn size(pieces: &[Piece]) -> u64 {
    pieces.last().map_or(0, Piece::end)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::layout::LayoutWriter;
    use super::*;

    fn laid(name: &str, runs: &[Run]) -> LaidOut {
        let mut writer = LayoutWriter::default();
        runs.iter().for_each(|run| writer.push(*run));
        LaidOut { name: name.into(), length: runs.iter().map(Run::bytes).sum(), layout: writer.finish() }
    }

    #[test]
    fn the_cells_of_a_file_are_found_in_all_families_in_the_order_of_the_file() {
        let placed = |cell, count| Run::Placed { file: 0, cell, count };
        let families = [
            laid("1.bak", &[Run::Kept(10), placed(4, 1), Run::Kept(3)]),
            laid("2.bak", &[Run::Kept(7), placed(0, 2), placed(5, 1)]),
        ];
        let places = Places::of(&families, 1).unwrap();
        let found: Vec<_> = within(&places.files[0], CELL + 1, 4 * CELL).collect();
        let piece = |at, offset, length, family| Piece { at, offset, length, family };
        assert_eq!(
            found,
            [
                piece(CELL + 1, 7 + CELL + 1, CELL - 1, 1),
                piece(4 * CELL, 10, CELL, 0),
                piece(5 * CELL, 7 + 2 * CELL, 1, 1)
            ]
        );
        assert_eq!((size(&places.files[0]), size(&places.kept[0])), (6 * CELL, 13));
        assert_eq!(within(&places.kept[0], 8, 4).collect::<Vec<_>>(), [piece(8, 8, 2, 0), piece(10, 10 + CELL, 2, 0)]);
        let twice = [laid("1.bak", &[placed(1, 2)]), laid("2.bak", &[placed(2, 1)])];
        assert!(Places::of(&twice, 1).unwrap_err().to_string().contains("two places"));
    }
}
