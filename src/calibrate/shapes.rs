//! The measured ways to use a place: first a coarse set, then the ways around the fastest.

use std::ops::RangeInclusive;

use super::small_files;
use fullbore_model::profile::{Access, AccessPattern, Cell, Order, Use};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The defaults of a job: MAXTRANSFERSIZE and the queue depth of a family.
pub(super) const USUAL_BLOCK: u64 = MIB;
pub(super) const USUAL_DEPTH: u64 = 4;
/// Bytes of buffers at a time.
pub(super) const MEMORY: u64 = 256 * MIB;
/// The smallest operations of a job: their measurements show the fixed costs of an operation.
pub(super) const SMALL_BLOCK: u64 = 64 * KIB;
/// The bounds of refinement for files.
const FILES: Bounds =
    Bounds { blocks: 64 * KIB..=4 * MIB, depths: 1..=64, streams: 1..=16, fits: |shape| memory(shape) <= MEMORY };

/// The bounds of refinement.
pub(super) struct Bounds {
    pub blocks: RangeInclusive<u64>,
    pub depths: RangeInclusive<u64>,
    pub streams: RangeInclusive<u64>,
    /// Whether there is memory for all operations in flight, and a job could do it.
    pub fits: fn(&AccessPattern) -> bool,
}

/// Block, queue depth and streams of sequential cells: small, usual and large blocks, queues shallow and deep, one to
/// four files. The most informative ones come first: there may not be time for all.
const READS: [(u64, u64, u64); 9] = [
    (MIB, 4, 1),
    (MIB, 1, 1),
    (64 * KIB, 1, 1),
    (64 * KIB, 32, 1),
    (MIB, 4, 4),
    (4 * MIB, 4, 1),
    (MIB, 4, 2),
    (MIB, 32, 1),
    (4 * MIB, 1, 1),
];
const WRITES: [(u64, u64, u64); 9] = [
    (MIB, 4, 1),
    (MIB, 1, 1),
    (64 * KIB, 4, 1),
    (256 * KIB, 4, 1),
    (64 * KIB, 1, 1),
    (MIB, 4, 4),
    (4 * MIB, 4, 1),
    (MIB, 4, 2),
    (MIB, 32, 1),
];
const READS_BACK: [(u64, u64, u64); 6] =
    [(MIB, 4, 1), (MIB, 1, 1), (64 * KIB, 1, 1), (64 * KIB, 32, 1), (MIB, 4, 4), (4 * MIB, 4, 1)];
const RANDOM_READS: [(u64, u64, u64); 3] = [(64 * KIB, 1, 1), (64 * KIB, 32, 1), (MIB, 4, 1)];
const RANDOM_WRITES: [(u64, u64, u64); 1] = [(64 * KIB, 4, 1)];
const BUFFERED: [(u64, u64, u64); 1] = [(MIB, 4, 1)];

/// One stream with operations of `block_bytes`, as deep as the queue of a family.
pub(super) fn usual(way: Access, direct: bool, block_bytes: u64) -> AccessPattern {
    AccessPattern { way, order: Order::Sequential, block_bytes, queue_depth: USUAL_DEPTH, streams: 1, direct }
}

/// The first measurements of every place. A written place begins with writes: before them, there is nothing to read.
pub(super) fn coarse(used: Use, direct: bool) -> Vec<AccessPattern> {
    let of = |way, order, sizes: &[(u64, u64, u64)], direct| {
        let shape = move |&(block_bytes, queue_depth, streams): &(u64, u64, u64)| AccessPattern {
            way,
            order,
            block_bytes,
            queue_depth,
            streams,
            direct,
        };
        sizes.iter().map(shape).collect::<Vec<_>>()
    };
    let mut shapes = match used {
        Use::Read => of(Access::Read, Order::Sequential, &READS, direct),
        Use::Write => of(Access::Write, Order::Sequential, &WRITES, direct),
    };
    if used == Use::Write {
        // In turns with writes: the most informative ways of each direction come first.
        for (at, shape) in of(Access::Read, Order::Sequential, &READS_BACK, direct).into_iter().enumerate() {
            shapes.insert(2 * at + 1, shape);
        }
        // Early: only this shows the costs of a database with many files.
        shapes.insert(2, small_files::shape());
        // Restores with small buffers write so.
        shapes.splice(5..5, of(Access::Write, Order::Sequential, if direct { &BUFFERED } else { &[] }, false));
        shapes.extend(of(Access::Write, Order::Random, &RANDOM_WRITES, direct));
    } else {
        shapes.extend(of(Access::Read, Order::Random, &RANDOM_READS, direct));
        shapes.extend(of(Access::Read, Order::Sequential, if direct { &BUFFERED } else { &[] }, false));
    }
    shapes
}

/// Bytes in flight on files.
fn memory(shape: &AccessPattern) -> u64 {
    shape.block_bytes * shape.queue_depth * shape.streams
}

/// The ways around the fastest way to use files.
pub(super) fn around_the_fastest_file(cells: &[Cell], way: Access, direct: bool) -> Vec<AccessPattern> {
    around_the_fastest(cells, way, direct, &FILES)
}

/// Half and twice the block, the queue depth and the streams of the fastest sequential cell in this direction, without
/// ways that were measured already.
pub(super) fn around_the_fastest(cells: &[Cell], way: Access, direct: bool, bounds: &Bounds) -> Vec<AccessPattern> {
    let counts = |cell: &&Cell| {
        let AccessPattern { way: of, order, direct: how, .. } = cell.shape;
        of == way && order == Order::Sequential && how == direct && !cell.rounds.is_empty()
    };
    let fastest = cells.iter().filter(counts).max_by(|one, other| one.rate().total_cmp(&other.rate()));
    let Some(Cell { shape, .. }) = fastest else { return Vec::new() };
    let near = |value: u64, within: &RangeInclusive<u64>| {
        [value * 2, value / 2].map(|near| near.clamp(*within.start(), *within.end()))
    };
    let blocks = near(shape.block_bytes, &bounds.blocks).map(|block_bytes| AccessPattern { block_bytes, ..*shape });
    let depths = near(shape.queue_depth, &bounds.depths).map(|queue_depth| AccessPattern { queue_depth, ..*shape });
    let streams = near(shape.streams, &bounds.streams).map(|streams| AccessPattern { streams, ..*shape });
    let mut shapes: Vec<AccessPattern> = Vec::new();
    for shape in blocks.into_iter().chain(depths).chain(streams) {
        if (bounds.fits)(&shape) && !shapes.contains(&shape) && !cells.iter().any(|cell| cell.shape == shape) {
            shapes.push(shape);
        }
    }
    shapes
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_model::profile::Round;

    fn cell(shape: AccessPattern, rate: u64) -> Cell {
        Cell { shape, rounds: vec![Round::of(rate, 1.0)] }
    }

    #[test]
    fn neighbours_of_the_fastest_cell_are_new_and_within_bounds() {
        let slow = cell(usual(Access::Read, true, USUAL_BLOCK), 10);
        let fast = cell(AccessPattern { queue_depth: 64, streams: 4, ..usual(Access::Read, true, USUAL_BLOCK) }, 20);
        let around = around_the_fastest_file(&[slow, fast.clone()], Access::Read, true);
        assert!(!around.is_empty());
        for shape in &around {
            assert!(
                FILES.blocks.contains(&shape.block_bytes) && FILES.depths.contains(&shape.queue_depth),
                "{shape:?}"
            );
            assert!(memory(shape) <= MEMORY, "{shape:?}");
            assert_ne!(*shape, fast.shape);
        }
        assert!(around.iter().any(|shape| shape.queue_depth == 32 && shape.streams == 4));
        assert!(around_the_fastest_file(&[], Access::Read, true).is_empty());
    }

    #[test]
    fn a_place_that_is_read_is_never_written() {
        for direct in [true, false] {
            assert!(coarse(Use::Read, direct).iter().all(|shape| shape.way == Access::Read));
            assert_eq!(coarse(Use::Write, direct)[0].way, Access::Write, "there is nothing to read before");
        }
    }
}
