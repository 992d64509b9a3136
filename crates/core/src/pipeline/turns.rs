//! Which family gets the next block.

use std::sync::atomic::{AtomicU64, Ordering};

/// Deals blocks out to families: to each in its turn, as far as its device takes them.
///
/// With object stores, a family gets a whole part before another gets any. So an upload begins early, and few buffers
/// wait in parts that are not full.
pub(super) struct Turns {
    /// Blocks that were dealt out; their bytes where families get several in a row.
    dealt: AtomicU64,
    /// Bytes for one family in a row; 0: block by block.
    in_a_row: u64,
}

impl Turns {
    /// Each family gets so many bytes in a row; 0: one block.
    pub fn new(in_a_row: u64) -> Self {
        Self { dealt: AtomicU64::new(0), in_a_row }
    }

    /// The place of the family for a block of `length` bytes. `load` gives the bytes that a family's device has not
    /// taken yet. If the family whose turn it is has a whole turn of them, the least loaded one gets the block; among
    /// equals, the next one.
    pub fn next(&self, length: usize, families: usize, load: impl Fn(usize) -> u64) -> usize {
        let step = if self.in_a_row == 0 { 1 } else { length as u64 };
        let turn = self.dealt.fetch_add(step, Ordering::Relaxed) / self.in_a_row.max(1);
        let start = (turn % families as u64) as usize;
        if load(start) < self.in_a_row {
            return start;
        }
        (0..families).map(|ahead| (start + ahead) % families).min_by_key(|family| load(*family)).unwrap_or(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whom the next blocks of 5 bytes go to.
    fn dealt(turns: &Turns, blocks: usize, loads: [u64; 3]) -> Vec<usize> {
        (0..blocks).map(|_| turns.next(5, 3, |family| loads[family])).collect()
    }

    #[test]
    fn files_get_a_block_each_in_turn_and_the_least_loaded_one_comes_first() {
        assert_eq!(dealt(&Turns::new(0), 5, [0, 0, 0]), [0, 1, 2, 0, 1]);
        assert_eq!(dealt(&Turns::new(0), 4, [9, 4, 4]), [1, 1, 2, 1]);
    }

    #[test]
    fn an_object_gets_a_whole_part_before_another_gets_any() {
        assert_eq!(dealt(&Turns::new(10), 7, [0, 0, 0]), [0, 0, 1, 1, 2, 2, 0]);
        assert_eq!(dealt(&Turns::new(10), 4, [9, 0, 0]), [0, 0, 1, 1], "a little that waits is no reason to change");
    }

    #[test]
    fn an_object_whose_uploads_are_behind_by_a_part_lets_others_go_first() {
        assert_eq!(dealt(&Turns::new(10), 6, [10, 10, 3]), [2, 2, 2, 2, 2, 2]);
        assert_eq!(dealt(&Turns::new(10), 6, [10, 0, 0]), [1, 1, 1, 1, 2, 2]);
    }
}
