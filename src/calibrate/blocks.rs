//! The blocks of a file that a stream uses: whole ones in written ranges, without holes.

use std::ops::Range;
use std::sync::Arc;

/// Whole blocks of a file, numbered from 0 in their order.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    runs: Arc<[Run]>,
    block_bytes: u64,
    numbers: Range<u64>,
}

/// A range of the file without a hole.
#[derive(Debug)]
struct Run {
    /// Blocks of the runs before it.
    before: u64,
    /// Where it starts in the file, bytes.
    start: u64,
}

impl Blocks {
    /// The blocks within `ranges`, which are in order; if no range holds a whole block, one at the start of the
    /// longest.
    pub fn of(ranges: &[Range<u64>], block_bytes: u64) -> Self {
        let (mut runs, mut before) = (Vec::new(), 0);
        for range in ranges {
            let blocks = (range.end - range.start) / block_bytes;
            if blocks > 0 {
                runs.push(Run { before, start: range.start });
                before += blocks;
            }
        }
        if runs.is_empty() {
            let longest = ranges.iter().max_by_key(|range| range.end - range.start);
            runs.push(Run { before: 0, start: longest.map_or(0, |range| range.start) });
            before = 1;
        }
        Self { runs: runs.into(), block_bytes, numbers: 0..before }
    }

    /// Part `number` of `parts`; all blocks if there are fewer blocks than parts.
    pub fn part(&self, number: u64, parts: u64) -> Self {
        let blocks = self.count();
        let numbers = match blocks < parts {
            true => self.numbers.clone(),
            false => self.numbers.start + blocks * number / parts..self.numbers.start + blocks * (number + 1) / parts,
        };
        Self { numbers, ..self.clone() }
    }

    /// The number of blocks: at least one.
    pub fn count(&self) -> u64 {
        self.numbers.end - self.numbers.start
    }

    /// The start of block `number` in the file, in bytes.
    pub fn offset(&self, number: u64) -> u64 {
        let number = self.numbers.start + number;
        let after = self.runs.partition_point(|run| run.before <= number);
        let run = &self.runs[after.saturating_sub(1)];
        run.start + (number - run.before) * self.block_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(blocks: &Blocks) -> Vec<u64> {
        (0..blocks.count()).map(|number| blocks.offset(number)).collect()
    }

    #[test]
    fn all_written_ranges_have_blocks_and_holes_have_none() {
        let blocks = Blocks::of(&[0..130, 200..210, 300..500], 64);
        assert_eq!(offsets(&blocks), [0, 64, 300, 364, 428]);
        let parts: Vec<Vec<u64>> = (0..2).map(|number| offsets(&blocks.part(number, 2))).collect();
        assert_eq!(parts, [vec![0, 64], vec![300, 364, 428]]);
    }

    #[test]
    fn parts_are_whole_blocks_and_do_not_overlap() {
        let all = Blocks::of(std::slice::from_ref(&(0..1000)), 64);
        let parts: Vec<(u64, u64)> =
            (0..3).map(|at| all.part(at, 3)).map(|part| (part.offset(0), part.count())).collect();
        assert_eq!(parts, [(0, 5), (320, 5), (640, 5)]);
        let few = Blocks::of(std::slice::from_ref(&(0..100)), 64);
        assert_eq!(offsets(&few.part(1, 2)), [0], "a file that is too short is read by all");
    }

    #[test]
    fn a_file_without_a_whole_block_has_one_at_its_longest_range() {
        assert_eq!(offsets(&Blocks::of(&[0..10, 50..90], 64)), [50]);
        assert_eq!(offsets(&Blocks::of(&[], 64)), [0]);
    }
}
