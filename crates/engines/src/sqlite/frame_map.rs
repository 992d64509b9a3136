//! Which frame of the log holds the newest version of a page: sorted pairs, in bounded memory.

/// Memory for the map, in bytes: it holds at least 3.6 million pages (14 GiB of 4 KiB pages).
pub const MAP_LIMIT: usize = 32 << 20;
const PAIRS: usize = MAP_LIMIT / size_of::<(u32, u32)>();

/// The log holds more different pages than [`MAP_LIMIT`] allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooMany {
    /// Different pages met so far.
    pub pages: usize,
}

/// Pairs of page and newest frame, sorted by page.
#[derive(Debug, Default)]
pub struct FrameMap {
    pairs: Vec<(u32, u32)>,
    capacity: usize,
}

impl FrameMap {
    /// A map for a log of `frames` frames.
    pub fn new(frames: u32) -> Self {
        Self::with_capacity((frames as usize).min(PAIRS))
    }

    fn with_capacity(capacity: usize) -> Self {
        Self { pairs: Vec::with_capacity(capacity), capacity }
    }

    /// Notes that `frame`, newer than all before, holds `page`.
    pub fn insert(&mut self, page: u32, frame: u32) -> Result<(), TooMany> {
        if self.pairs.len() == self.capacity {
            self.keep_newest();
            // At least an eighth must come free each time: otherwise the log would be sorted over and over.
            if self.pairs.len() > self.capacity / 8 * 7 {
                return Err(TooMany { pages: self.pairs.len() });
            }
        }
        self.pairs.push((page, frame));
        Ok(())
    }

    /// Ends the building: a snapshot of `pages` pages.
    pub fn finish(&mut self, pages: u32) {
        self.keep_newest();
        let end = self.pairs.partition_point(|pair| pair.0 <= pages);
        self.pairs.truncate(end);
        self.pairs.shrink_to_fit();
    }

    fn keep_newest(&mut self) {
        self.pairs.sort_unstable();
        self.pairs.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = next.1;
            }
            same
        });
    }

    /// The pairs of pages `first` to `last`, both included.
    pub fn range(&self, first: u32, last: u32) -> &[(u32, u32)] {
        let start = self.pairs.partition_point(|pair| pair.0 < first);
        let rest = &self.pairs[start..];
        &rest[..rest.partition_point(|pair| pair.0 <= last)]
    }

    /// How many pages have a frame.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// True when no page has a frame.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_map_equals_a_plain_one_also_when_it_has_to_compact() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut plain = std::collections::BTreeMap::new();
        let mut map = FrameMap::with_capacity(64);
        for frame in 1..5000 {
            let page = random.u32(1..50);
            plain.insert(page, frame);
            map.insert(page, frame).unwrap();
        }
        map.finish(40);
        let expected: Vec<(u32, u32)> = plain.range(5..=40).map(|(&page, &frame)| (page, frame)).collect();
        assert_eq!(map.range(5, 60), expected);
    }

    #[test]
    fn more_pages_than_the_limit_are_refused_and_memory_does_not_grow() {
        let mut map = FrameMap::with_capacity(64);
        let refused = (1..100).find_map(|frame| map.insert(frame, frame).err());
        assert_eq!(refused, Some(TooMany { pages: 64 }));
        assert_eq!(map.pairs.capacity(), 64);
    }
}
