//! The measured ways to use a store: puts by the size of their parts, gets by the size of their ranges, each by the
//! number in flight and the number of objects. First a coarse set, then the ways around the fastest.

use fullbore_core::sink::{LARGEST_PART, LEAST_PART, SMALLEST_PART};
use fullbore_core::supply::RANGE_MAX;

use super::shapes::{Bounds, MEMORY, around_the_fastest};
use fullbore_model::profile::{Access, AccessPattern, Cell, Order, Use};

const MIB: u64 = 1 << 20;
/// The longest range of a job.
const RANGE: u64 = RANGE_MAX as u64;
/// Jobs with few buffers ask for shorter ranges, at most this many at once.
const SHORT_AT_ONCE: u64 = 2;
/// The bounds of refinement.
const PUT_BOUNDS: Bounds =
    Bounds { blocks: SMALLEST_PART..=LARGEST_PART, depths: 1..=16, streams: 1..=4, fits: has_memory };
const GET_BOUNDS: Bounds = Bounds { blocks: MIB..=RANGE, depths: 1..=16, streams: 1..=4, fits: is_a_get };

/// Bytes of a part, parts in flight and objects at once. The most informative ones come first: there may not be time
/// for all. A backup uses parts of 8 to 16 MiB and has four of them in flight, or two in each of several objects.
const PUTS: [(u64, u64, u64); 11] = [
    (LEAST_PART, 4, 1),
    (LEAST_PART, 1, 1),
    (2 * LEAST_PART, 4, 1),
    (LEAST_PART, 2, 4),
    (2 * LEAST_PART, 8, 1),
    (LEAST_PART, 16, 1),
    (4 * LEAST_PART, 4, 1),
    (LEAST_PART, 4, 2),
    (2 * LEAST_PART, 1, 1),
    (LARGEST_PART, 2, 1),
    (4 * LEAST_PART, 1, 1),
];
/// The same for ranges. A restore has four of 8 MiB in flight, or two of each of several objects.
const GETS: [(u64, u64, u64); 8] = [
    (RANGE, 4, 1),
    (RANGE, 1, 1),
    (RANGE, 2, 4),
    (RANGE, 8, 1),
    (RANGE, 2, 1),
    (RANGE / 2, 2, 1),
    (RANGE, 16, 1),
    (MIB, 2, 1),
];

/// The first measurements of every store, in rounds that put at most `most` bytes.
pub(super) fn coarse(used: Use, most: u64) -> Vec<AccessPattern> {
    let of = |way, sizes: &[(u64, u64, u64)]| {
        let shape = move |&(block_bytes, queue_depth, streams): &(u64, u64, u64)| AccessPattern {
            way,
            order: Order::Sequential,
            block_bytes,
            queue_depth,
            streams,
            direct: false,
        };
        sizes.iter().map(shape).collect::<Vec<_>>()
    };
    let puts = if used == Use::Write { of(Access::Write, &PUTS) } else { Vec::new() };
    let mut puts = puts.into_iter().filter(|shape| has_memory(shape) && at_once(shape) <= most);
    let mut gets = of(Access::Read, &GETS).into_iter();
    // In turn: there may not be time for all. A put comes first: before it, there is no object to get.
    let mut shapes = Vec::new();
    loop {
        let pair = [puts.next(), gets.next()];
        if pair == [None, None] {
            return shapes;
        }
        shapes.extend(pair.into_iter().flatten());
    }
}

/// The ways around the fastest puts and gets.
pub(super) fn around(cells: &[Cell], most: u64) -> Vec<AccessPattern> {
    let puts = around_the_fastest(cells, Access::Write, false, &PUT_BOUNDS);
    let puts = puts.into_iter().filter(|shape| at_once(shape) <= most);
    puts.chain(around_the_fastest(cells, Access::Read, false, &GET_BOUNDS)).collect()
}

/// Bytes of all requests in flight at once. A round moves at least this much, so that all of them are in flight.
pub(super) fn at_once(shape: &AccessPattern) -> u64 {
    shape.block_bytes * shape.queue_depth * shape.streams
}

/// The memory holds the requests in flight, and one part of each object that is being filled.
fn has_memory(shape: &AccessPattern) -> bool {
    shape.block_bytes * (shape.queue_depth + 1) * shape.streams <= MEMORY
}

fn is_a_get(shape: &AccessPattern) -> bool {
    has_memory(shape) && (shape.block_bytes == RANGE || shape.queue_depth <= SHORT_AT_ONCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_model::profile::Round;

    fn cell(shape: AccessPattern, rate: u64) -> Cell {
        Cell { shape, rounds: vec![Round::of(rate, 1.0)] }
    }

    #[test]
    fn the_ways_that_jobs_use_come_first_and_everything_fits() {
        let shapes = coarse(Use::Write, u64::MAX);
        assert_eq!((shapes[0].way, shapes[0].block_bytes, shapes[0].queue_depth), (Access::Write, 8 * MIB, 4));
        let gets: Vec<&AccessPattern> = shapes.iter().filter(|shape| shape.way == Access::Read).collect();
        assert_eq!((gets[0].block_bytes, gets[0].queue_depth), (8 * MIB, 4));
        assert!(shapes.iter().all(has_memory) && gets.iter().all(|shape| is_a_get(shape)));
        assert!(coarse(Use::Read, u64::MAX).iter().all(|shape| shape.way == Access::Read));
        let small = coarse(Use::Write, 8 * MIB);
        let puts: Vec<&AccessPattern> = small.iter().filter(|shape| shape.way == Access::Write).collect();
        assert!(!puts.is_empty() && puts.iter().all(|shape| at_once(shape) <= 8 * MIB), "{puts:?}");
    }

    #[test]
    fn around_the_fastest_are_parts_that_stores_take_and_ranges_that_jobs_ask_for() {
        let shapes = coarse(Use::Write, u64::MAX);
        for fastest in 0..shapes.len() {
            let rate = |at| if at == fastest { 9 } else { 1 };
            let cells: Vec<Cell> = shapes.iter().enumerate().map(|(at, shape)| cell(*shape, rate(at))).collect();
            for shape in around(&cells, u64::MAX) {
                assert!(!shapes.contains(&shape) && has_memory(&shape), "{shape:?}");
                match shape.way {
                    Access::Write => assert!((5 * MIB..=64 * MIB).contains(&shape.block_bytes), "{shape:?}"),
                    Access::Read => assert!(is_a_get(&shape), "{shape:?}"),
                }
            }
        }
        let usual = around(&[cell(shapes[0], 1)], u64::MAX);
        assert!(
            usual.iter().any(|shape| shape.block_bytes == 5 * MIB),
            "half of 8 MiB is below the least part: {usual:?}"
        );
    }
}
