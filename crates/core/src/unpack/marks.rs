//! Wanted parts of streams: a bit for each chunk, in bounded memory, however large the streams are.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a chunk, at least: a multiple of every unit, and about as long as a block. Tests have small streams.
const CHUNK: u64 = if cfg!(test) { 1 << 16 } else { 1 << 20 };
/// Chunks of all streams together, at most: their bits are 1 MiB.
const MOST: u64 = 1 << 23;

/// Chunks of streams, some of them marked. All threads share it.
pub struct Marks {
    /// Bytes of a chunk.
    chunk: u64,
    streams: Vec<Stream>,
    by_id: HashMap<u32, usize>,
    bits: Vec<AtomicU64>,
}

struct Stream {
    id: u32,
    size: u64,
    /// The number of its first chunk.
    first: u64,
}

/// One chunk of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    /// The place of its stream among all.
    pub stream: usize,
    /// Its bytes.
    pub range: Range<u64>,
}

impl Marks {
    /// For streams with these numbers and sizes; nothing is marked.
    pub fn new(streams: impl Iterator<Item = (u32, u64)>) -> Self {
        let streams: Vec<(u32, u64)> = streams.collect();
        let chunks = |chunk: u64| streams.iter().map(|&(_, size)| size.div_ceil(chunk)).sum::<u64>();
        let mut chunk = CHUNK;
        while chunks(chunk) > MOST && chunk < 1 << 62 {
            chunk *= 2;
        }
        let mut first = 0;
        let placed = streams.iter().map(|&(id, size)| {
            let stream = Stream { id, size, first };
            first += size.div_ceil(chunk);
            stream
        });
        let placed: Vec<Stream> = placed.collect();
        let by_id = placed.iter().enumerate().map(|(at, stream)| (stream.id, at)).collect();
        let bits = (0..first.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Self { chunk, streams: placed, by_id, bits }
    }

    /// All chunks, stream by stream.
    pub(super) fn chunks(&self) -> impl Iterator<Item = Chunk> {
        self.streams.iter().enumerate().flat_map(move |(at, stream)| {
            let range = |number: u64| number * self.chunk..stream.size.min((number + 1) * self.chunk);
            (0..stream.size.div_ceil(self.chunk)).map(move |number| Chunk { stream: at, range: range(number) })
        })
    }

    /// The number of a chunk's stream.
    pub(super) fn id(&self, chunk: &Chunk) -> u32 {
        self.streams[chunk.stream].id
    }

    fn place(&self, stream: &Stream, offset: u64) -> (usize, u64) {
        let number = stream.first + offset / self.chunk;
        ((number / 64) as usize, 1 << (number % 64))
    }

    /// Marks the chunk of `stream` that byte `offset` is in, if there is one.
    pub fn mark(&self, stream: u32, offset: u64) {
        let Some(stream) = self.by_id.get(&stream).map(|&at| &self.streams[at]) else { return };
        if offset < stream.size {
            let (word, bit) = self.place(stream, offset);
            self.bits[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn is_marked(&self, stream: &Stream, offset: u64) -> bool {
        let (word, bit) = self.place(stream, offset);
        self.bits[word].load(Ordering::Relaxed) & bit != 0
    }

    /// The parts of a range of `stream` that are in marked chunks, in order. Bytes after the end of the stream are in
    /// no chunk.
    pub fn parts(&self, stream: u32, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let stream = self.by_id.get(&stream).map(|&at| &self.streams[at]);
        let mut at = range.start;
        std::iter::from_fn(move || {
            let stream = stream?;
            let end = range.end.min(stream.size);
            let next = |at: u64| ((at / self.chunk + 1) * self.chunk).min(end);
            while at < end && !self.is_marked(stream, at) {
                at = next(at);
            }
            let start = at;
            while at < end && self.is_marked(stream, at) {
                at = next(at);
            }
            (start < at).then_some(start..at)
        })
    }

    /// True when a byte of this range is in a marked chunk.
    pub fn touches(&self, stream: u32, range: Range<u64>) -> bool {
        self.parts(stream, range).next().is_some()
    }

    /// The parts of all streams that are marked, by the number of the stream.
    pub fn all_parts(&self) -> impl Iterator<Item = (u32, Range<u64>)> {
        self.streams.iter().flat_map(|stream| self.parts(stream.id, 0..stream.size).map(|part| (stream.id, part)))
    }

    /// Bytes in marked chunks.
    pub fn bytes(&self) -> u64 {
        self.all_parts().map(|(_, part)| part.end - part.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One chunk.
    const ONE: u64 = CHUNK;

    #[test]
    fn a_range_is_cut_into_the_parts_that_are_marked() {
        let marks = Marks::new([(7, 10 * ONE + 5), (9, 3)].into_iter());
        for offset in [0, ONE + 1, 5 * ONE, 10 * ONE + 4, 10 * ONE + 5, 99 * ONE] {
            marks.mark(7, offset);
        }
        marks.mark(8, 0);
        let parts = |range| marks.parts(7, range).collect::<Vec<_>>();
        assert_eq!(parts(100..u64::MAX), [100..2 * ONE, 5 * ONE..6 * ONE, 10 * ONE..10 * ONE + 5]);
        assert_eq!(parts(6 * ONE - 1..7 * ONE), vec![6 * ONE - 1..6 * ONE]);
        assert!(!marks.touches(7, 2 * ONE..5 * ONE) && !marks.touches(9, 0..3) && !marks.touches(1, 0..3));
        assert!(marks.touches(7, 2 * ONE..5 * ONE + 1) && !marks.touches(7, 5..5));
        assert_eq!(marks.bytes(), 3 * ONE + 5);
        assert_eq!(marks.all_parts().map(|(id, _)| id).collect::<Vec<_>>(), [7, 7, 7]);
    }

    #[test]
    fn every_byte_is_in_one_chunk_and_bits_are_bounded() {
        for size in [0, 1, ONE, ONE + 1, 1 << 45, 1 << 62] {
            let marks = Marks::new([(1, size), (2, 17)].into_iter());
            assert!(marks.bits.len() as u64 * 64 <= MOST + 64, "{size}: {} words", marks.bits.len());
            let mut end = 0;
            for chunk in marks.chunks().filter(|chunk| marks.id(chunk) == 1) {
                assert_eq!(chunk.range.start, end);
                assert!(chunk.range.start < chunk.range.end && marks.chunk.is_multiple_of(65536));
                end = chunk.range.end;
            }
            assert_eq!(end, size);
        }
    }
}
