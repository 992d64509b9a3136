//! Which ways to use a store are measured: puts by the size of their parts, gets by that of their ranges, each by how many are under way and of how
//! many objects; a coarse set, and then what lies around the fastest.

use fullbore_core::sink::{LARGEST_PART, LEAST_PART, SMALLEST_PART};
use fullbore_core::supply::RANGE_MAX;

use super::shapes::{Bounds, MEMORY, around_the_fastest};
use crate::tune::profile::{Cell, Order, Shape, Use, Way};

const MIB: u64 = 1 << 20;
/// The longest range of a job.
const RANGE: u64 = RANGE_MAX as u64;
/// Ranges that are shorter are asked for by jobs with few buffers, no more than so many at once.
const SHORT_AT_ONCE: u64 = 2;
/// Where refinement ends.
const PUT_BOUNDS: Bounds =
    Bounds { blocks: SMALLEST_PART..=LARGEST_PART, depths: 1..=16, streams: 1..=4, fits: has_memory };
const GET_BOUNDS: Bounds = Bounds { blocks: MIB..=RANGE, depths: 1..=16, streams: 1..=4, fits: is_a_get };

/// Bytes of a part, parts under way and objects at once. Those that tell most come first: time may not suffice for all. A backup uses parts of 8
/// to 16 MiB and has four of them under way, or two in each of several objects.
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
/// The same of ranges. A restore has four of 8 MiB under way, or two of each of several objects.
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

/// What is measured of every store first, in rounds that put no more than `most` bytes.
pub(super) fn coarse(used: Use, most: u64) -> Vec<Shape> {
    let of = |way, sizes: &[(u64, u64, u64)]| {
        let shape = move |&(block_bytes, queue_depth, streams): &(u64, u64, u64)| Shape {
            way,
            order: Order::Sequential,
            block_bytes,
            queue_depth,
            streams,
            direct: false,
        };
        sizes.iter().map(shape).collect::<Vec<_>>()
    };
    let puts = if used == Use::Write { of(Way::Write, &PUTS) } else { Vec::new() };
    let mut puts = puts.into_iter().filter(|shape| has_memory(shape) && at_once(shape) <= most);
    let mut gets = of(Way::Read, &GETS).into_iter();
    // In turn: time may not suffice for all. A put comes first, for there is nothing to get before.
    let mut shapes = Vec::new();
    loop {
        let pair = [puts.next(), gets.next()];
        if pair == [None, None] {
            return shapes;
        }
        shapes.extend(pair.into_iter().flatten());
    }
}

/// What lies around the fastest puts and gets.
pub(super) fn around(cells: &[Cell], most: u64) -> Vec<Shape> {
    let puts = around_the_fastest(cells, Way::Write, false, &PUT_BOUNDS);
    let puts = puts.into_iter().filter(|shape| at_once(shape) <= most);
    puts.chain(around_the_fastest(cells, Way::Read, false, &GET_BOUNDS)).collect()
}

/// Bytes of all requests that are under way at once: a round moves no less, or it would not show how many at once go.
pub(super) fn at_once(shape: &Shape) -> u64 {
    shape.block_bytes * shape.queue_depth * shape.streams
}

/// In memory are the requests under way, and one of each object that is filling.
fn has_memory(shape: &Shape) -> bool {
    shape.block_bytes * (shape.queue_depth + 1) * shape.streams <= MEMORY
}

fn is_a_get(shape: &Shape) -> bool {
    has_memory(shape) && (shape.block_bytes == RANGE || shape.queue_depth <= SHORT_AT_ONCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::profile::Round;

    fn cell(shape: Shape, rate: u64) -> Cell {
        Cell { shape, rounds: vec![Round::of(rate, 1.0)] }
    }

    #[test]
    fn what_backups_and_restores_use_comes_first_and_everything_has_room() {
        let shapes = coarse(Use::Write, u64::MAX);
        assert_eq!((shapes[0].way, shapes[0].block_bytes, shapes[0].queue_depth), (Way::Write, 8 * MIB, 4));
        let gets: Vec<&Shape> = shapes.iter().filter(|shape| shape.way == Way::Read).collect();
        assert_eq!((gets[0].block_bytes, gets[0].queue_depth), (8 * MIB, 4));
        assert!(shapes.iter().all(has_memory) && gets.iter().all(|shape| is_a_get(shape)));
        assert!(coarse(Use::Read, u64::MAX).iter().all(|shape| shape.way == Way::Read));
        let small = coarse(Use::Write, 8 * MIB);
        let puts: Vec<&Shape> = small.iter().filter(|shape| shape.way == Way::Write).collect();
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
                    Way::Write => assert!((5 * MIB..=64 * MIB).contains(&shape.block_bytes), "{shape:?}"),
                    Way::Read => assert!(is_a_get(&shape), "{shape:?}"),
                }
            }
        }
        let usual = around(&[cell(shapes[0], 1)], u64::MAX);
        assert!(usual.iter().any(|shape| shape.block_bytes == 5 * MIB), "half of 8 MiB is no part: {usual:?}");
    }
}
