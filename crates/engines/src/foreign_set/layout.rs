//! The layout of a family: which of its bytes are in which stream of the set. `docs/engines/sqlserver-sets.md` specifies
//! the bytes. A layout only says where bytes are: a digest of the family proves what they are.

use fullbore_core::{Error, Result};

/// Bytes of a cell, the unit of bytes that have a place in a file. SQL Server calls it an extent.
pub const CELL: u64 = 64 << 10;
/// Cells of a file, at most: 32 TiB.
pub const CELLS_MAX: u64 = 1 << 29;
/// Runs in the layouts of a set, at most: they are in memory. Bytes behind the last of them are kept as they are.
pub const RUNS_MAX: usize = 2 << 20;
/// Bytes of all layouts of a set, at most. No run takes more.
pub const LAYOUTS_MAX: u64 = 32 * RUNS_MAX as u64;
/// Files of a set, at most: as many as SQL Server allows.
pub const FILES_MAX: u16 = i16::MAX as u16;

/// The first byte of every layout.
const VERSION: u8 = 1;
/// Bytes of a number, at most.
const NUMBER: usize = 10;

/// The next bytes of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// So many bytes of its own stream, which go on where the last ones ended.
    Kept(u64),
    /// Cells of a file.
    Placed {
        /// The file, from 0.
        file: u16,
        /// Its first cell.
        cell: u64,
        /// How many.
        count: u64,
    },
}

impl Run {
    /// Its bytes. A run from a layout has no more than a family can have.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Kept(bytes) => *bytes,
            Self::Placed { count, .. } => count * CELL,
        }
    }
}

/// Makes a layout from pieces of a family, in their order. Neighbours become one run.
pub struct LayoutWriter {
    bytes: Vec<u8>,
    open: Option<Run>,
    runs: usize,
    /// The cell behind the last one, for each file.
    next: Vec<u64>,
}

impl Default for LayoutWriter {
    fn default() -> Self {
        Self { bytes: vec![VERSION], open: None, runs: 0, next: Vec::new() }
    }
}

impl LayoutWriter {
    /// Runs so far.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// The next piece.
    pub fn push(&mut self, run: Run) {
        if run.bytes() == 0 {
            return;
        }
        let joined = match (self.open, run) {
            (Some(Run::Kept(before)), Run::Kept(more)) => Some(Run::Kept(before + more)),
            (Some(Run::Placed { file, cell, count }), Run::Placed { file: same, cell: next, count: more })
                if file == same && cell + count == next =>
            {
                Some(Run::Placed { file, cell, count: count + more })
            }
            _ => None,
        };
        if joined.is_none() {
            self.close();
            self.runs += 1;
        }
        self.open = Some(joined.unwrap_or(run));
    }

    fn close(&mut self) {
        match self.open.take() {
            None => {}
            Some(Run::Kept(bytes)) => self.number(bytes << 1),
            Some(Run::Placed { file, cell, count }) => {
                self.number(count << 1 | 1);
                self.number(file.into());
                let place = usize::from(file);
                if self.next.len() <= place {
                    self.next.resize(place + 1, 0);
                }
                let expected = self.next.get(place).copied().unwrap_or_default();
                self.number(zigzag(cell.cast_signed() - expected.cast_signed()));
                if let Some(next) = self.next.get_mut(place) {
                    *next = cell + count;
                }
            }
        }
    }

    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// The layout.
    pub fn finish(mut self) -> Vec<u8> {
        self.close();
        self.bytes
    }
}

/// Reads a layout of a family of `length` bytes, in a set with `files` files.
///
/// # Errors
/// It is not a layout of such a family. `name` is its name in messages.
pub fn runs(name: &str, bytes: &[u8], length: u64, files: usize) -> Result<Vec<Run>> {
    let mut reader = LayoutReader { name, bytes, at: 0 };
    if reader.byte()? != VERSION {
        return Err(reader.wrong("it is of a version that this program does not know"));
    }
    let (mut runs, mut next, mut left) = (Vec::new(), vec![0_u64; files], length);
    while reader.at < bytes.len() {
        if runs.len() >= RUNS_MAX {
            return Err(reader.wrong("it has too many runs"));
        }
        let head = reader.number()?;
        let run = if head & 1 == 0 { Run::Kept(head >> 1) } else { reader.placed(head >> 1, &mut next)? };
        let rest = left.checked_sub(run.bytes()).filter(|_| run.bytes() > 0);
        left = rest.ok_or_else(|| reader.wrong("its runs have other bytes than the family"))?;
        runs.push(run);
    }
    if left > 0 {
        return Err(reader.wrong("its runs have fewer bytes than the family"));
    }
    Ok(runs)
}

struct LayoutReader<'a> {
    name: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl LayoutReader<'_> {
    fn wrong(&self, why: &str) -> Error {
        let why = format!("the layout of `{}` is wrong at byte {}: {why}", self.name, self.at);
        Error::incomplete("media set", why, "use another set")
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = self.bytes.get(self.at).copied().ok_or_else(|| self.wrong("it ends inside a number"))?;
        self.at += 1;
        Ok(byte)
    }

    fn number(&mut self) -> Result<u64> {
        let mut number = 0_u64;
        for place in 0..NUMBER {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part.leading_zeros() < 7 * place as u32 {
                break;
            }
            number |= part << (7 * place);
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(self.wrong("a number is too large"))
    }

    fn placed(&mut self, count: u64, next: &mut [u64]) -> Result<Run> {
        let number = self.number()?;
        let file = u16::try_from(number).ok().filter(|file| usize::from(*file) < next.len());
        let file = file.ok_or_else(|| self.wrong("it names a file that the set does not have"))?;
        let moved = unzigzag(self.number()?);
        let next = next.get_mut(usize::from(file));
        let cell = next.as_ref().and_then(|next| next.checked_add_signed(moved));
        let end = cell.and_then(|cell| cell.checked_add(count)).filter(|end| *end <= CELLS_MAX);
        let (Some(cell), Some(end), Some(next)) = (cell, end, next) else {
            return Err(self.wrong("it names a cell that no file has"));
        };
        *next = end;
        Ok(Run::Placed { file, cell, count })
    }
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(runs: &[Run]) -> Vec<u8> {
        let mut writer = LayoutWriter::default();
        runs.iter().for_each(|run| writer.push(*run));
        writer.finish()
    }

    fn read(bytes: &[u8], length: u64) -> Result<Vec<Run>> {
        runs("x.bak", bytes, length, 2)
    }

    #[test]
    fn neighbours_become_one_run_and_the_layout_is_read_as_it_was_written() {
        let placed = |file, cell, count| Run::Placed { file, cell, count };
        let pieces = [
            Run::Kept(5),
            Run::Kept(6),
            placed(0, 3, 1),
            placed(0, 4, 2),
            placed(0, 1, 1),
            placed(1, 0, 1),
            Run::Kept(0),
        ];
        let bytes = written(&pieces);
        let length = 11 + 5 * CELL;
        let wanted = [Run::Kept(11), placed(0, 3, 3), placed(0, 1, 1), placed(1, 0, 1)];
        assert_eq!(read(&bytes, length).unwrap(), wanted);
        assert_eq!(bytes.len(), 1 + 1 + 3 * 3);
        for wrong in [length - 1, length + 1] {
            assert!(read(&bytes, wrong).is_err());
        }
        assert!(runs("x.bak", &bytes, length, 1).is_err(), "file 1 does not exist");
    }

    #[test]
    fn an_impossible_layout_is_an_error() {
        let huge = [0xff; 9];
        for bytes in
            [&[][..], &[2], &[1, 0x80], &[&[1][..], &huge, &[0x7f]].concat(), &[1, 0], &[1, 3, 0, 1], &[1, 1, 0, 0]]
        {
            assert!(read(bytes, CELL).is_err(), "{bytes:?}");
        }
        let far = written(&[Run::Placed { file: 0, cell: CELLS_MAX, count: 1 }]);
        assert!(read(&far, CELL).is_err());
        assert!(read(&written(&[Run::Placed { file: 0, cell: CELLS_MAX - 1, count: 1 }]), CELL).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_layout_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..64), length: u64) {
            if let Ok(runs) = read(&bytes, length) {
                prop_assert_eq!(runs.iter().map(Run::bytes).sum::<u64>(), length);
            }
        }
    }
}
