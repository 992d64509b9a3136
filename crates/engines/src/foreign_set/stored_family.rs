//! A family of stored media in order, read out of its set by the places of its blocks: no file is written.
//!
//! The digest of a family proves a family that is given back. Here, each block proves itself, and the reader of the family
//! checks what it reads.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use fullbore_core::conduct::Conduct;
use fullbore_core::unpack::{BlockRanges, MediaSet, ReadBlocks};
use fullbore_core::{Error, Result};

use super::bytes::{FamilyBytes, Watch};
use super::layout::{self, CELL, LAYOUTS_MAX, RUNS_MAX, Run};
use super::target::StoredMedia;

/// Blocks of a set, at most: two for each extent of its media, and those that are not full. Each takes 40 bytes of memory.
fn most_blocks(bytes: u64) -> usize {
    usize::try_from((bytes / (CELL / 2)).saturating_add(40_000)).unwrap_or(usize::MAX)
}

/// Where the bytes of all families of a set are.
pub struct StoredFamilies {
    media: StoredMedia,
    /// The layout of each family.
    runs: Vec<Vec<Run>>,
    ranges: BlockRanges,
    /// The blocks of the full below the set, and the streams that the streams of the set begin with.
    below: Option<(BlockRanges, BTreeMap<u32, u32>)>,
}

impl StoredFamilies {
    /// Reads the layouts and the indexes. `sets` are a full, and the set of the pages that differ if there is one.
    ///
    /// # Errors
    /// A layout or an index is wrong, or the set has too many blocks.
    pub fn of(sets: &mut [MediaSet]) -> Result<Self> {
        let (last, below) = sets.split_last_mut().ok_or(Error::Halted)?;
        let streams = last.manifest().map(|manifest| manifest.streams.clone()).unwrap_or_default();
        let media = StoredMedia::of(&streams)?;
        let (mut runs, mut all) = (Vec::new(), 0);
        for (family, stream) in media.families.iter().zip(&media.layouts) {
            let layout = last.small_stream(stream, LAYOUTS_MAX)?;
            let found = layout::runs(&family.laid.name, &layout, family.laid.length, media.files())?;
            all += found.len();
            if all > RUNS_MAX {
                let why = "the layouts of the set have too many runs";
                return Err(Error::incomplete(format!("`{}`", family.laid.name), why, "use another set"));
            }
            runs.push(found);
        }
        let most = most_blocks(media.bytes());
        let ranges = BlockRanges::new(last.block_places(most)?);
        let bases = streams.iter().filter_map(|stream| Some((stream.id, stream.base?))).collect();
        let below = match below {
            [] => None,
            // The full may be longer.
            [full, ..] => {
                let streams = full.manifest().map(|manifest| manifest.streams.clone()).unwrap_or_default();
                let most = most_blocks(StoredMedia::of(&streams)?.bytes());
                Some((BlockRanges::new(full.block_places(most)?), bases))
            }
        };
        Ok(Self { media, runs, ranges, below })
    }

    /// The name and the length of each family, in their order.
    pub fn names(&self) -> Vec<(String, u64)> {
        self.media.families.iter().map(|family| (family.laid.name.clone(), family.laid.length)).collect()
    }
}

/// A set that is read, and its last blocks.
struct Layer {
    set: MediaSet,
    read: ReadBlocks,
}

/// A family from its first byte to its last.
pub struct StoredFamilyBytes {
    families: Arc<StoredFamilies>,
    family: usize,
    set: Layer,
    below: Option<Layer>,
    /// The run that is being read, how many of its bytes were read, and the kept bytes before it.
    run: usize,
    used: u64,
    kept: u64,
    conduct: Conduct,
}

impl StoredFamilyBytes {
    /// Family `family`, from 0. `sets` are those of [`StoredFamilies::of`]. It counts its bytes as progress, and ends with
    /// the job.
    ///
    /// # Errors
    /// There is no set.
    pub fn new(
        families: &Arc<StoredFamilies>,
        family: usize,
        mut sets: Vec<MediaSet>,
        conduct: &Conduct,
    ) -> Result<Self> {
        let layer = |set| Layer { set, read: ReadBlocks::default() };
        let set = layer(sets.pop().ok_or(Error::Halted)?);
        let below = sets.pop().map(layer);
        let families = Arc::clone(families);
        Ok(Self { families, family, set, below, run: 0, used: 0, kept: 0, conduct: conduct.clone() })
    }

    fn run(&self) -> Option<Run> {
        self.families.runs.get(self.family)?.get(self.run).copied()
    }

    /// The stream and the offset of the next byte, and how many bytes follow there.
    fn place(&self) -> Option<(u32, u64, u64)> {
        let run = self.run()?;
        let (stream, at) = match run {
            Run::Kept(_) => (self.families.media.kept_stream(self.family)?, self.kept + self.used),
            Run::Placed { file, cell, .. } => (self.families.media.file_stream(file)?, cell * CELL + self.used),
        };
        Some((stream, at, run.bytes() - self.used))
    }

    /// Goes on by bytes that the present run has.
    fn go_on(&mut self, bytes: u64) {
        let Some(run) = self.run() else { return };
        self.used += bytes;
        if self.used >= run.bytes() {
            if let Run::Kept(bytes) = run {
                self.kept += bytes;
            }
            (self.run, self.used) = (self.run + 1, 0);
        }
    }

    fn fill(&mut self, (stream, at): (u32, u64), into: &mut [u8]) -> Result<()> {
        let families = &*self.families;
        let filled = self.set.set.fill((&families.ranges, &mut self.set.read), (stream, at), into)?;
        for gap in gaps(&filled, into.len()) {
            let at = at + gap.start as u64;
            let (Some(below), Some((ranges, bases))) = (&mut self.below, &families.below) else {
                let why = format!("no block holds byte {at} of its stream {stream}");
                return Err(Error::incomplete("media set", why, "use another copy of the set"));
            };
            // What a set of pages that differ and its full both do not have is zero.
            let part = into.get_mut(gap).unwrap_or_default();
            part.fill(0);
            if let Some(base) = bases.get(&stream) {
                below.set.fill((ranges, &mut below.read), (*base, at), part)?;
            }
        }
        Ok(())
    }
}

/// What is between the parts, which are in order, up to `length`.
fn gaps(filled: &[Range<usize>], length: usize) -> Vec<Range<usize>> {
    let (mut found, mut end) = (Vec::new(), 0);
    for part in filled.iter().chain(std::iter::once(&(length..length))) {
        if part.start > end {
            found.push(end..part.start);
        }
        end = part.end.max(end);
    }
    found
}

impl Read for StoredFamilyBytes {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.conduct.check().map_err(io::Error::other)?;
        let Some((stream, at, left)) = self.place() else { return Ok(0) };
        let most = usize::try_from(left.min(CELL)).unwrap_or(usize::MAX).min(into.len());
        let into = into.get_mut(..most).unwrap_or_default();
        self.fill((stream, at), into).map_err(io::Error::other)?;
        self.go_on(most as u64);
        self.conduct.progress.advance(most as u64);
        Ok(most)
    }
}

impl FamilyBytes for StoredFamilyBytes {
    /// Blocks that nobody asks for are not read.
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let mut left = bytes;
        while let Some((_, _, run)) = self.place().filter(|_| left > 0) {
            let step = run.min(left);
            self.go_on(step);
            left -= step;
        }
        Ok(())
    }

    fn watch(&self) -> Watch {
        let conduct = self.conduct.clone();
        Arc::new(move || conduct.check())
    }
}

#[cfg(test)]
mod tests {
    use super::gaps;

    #[test]
    fn gaps_are_what_no_part_has() {
        let all = std::slice::from_ref(&(0..9));
        assert!(gaps(all, 9).is_empty());
        assert_eq!(gaps(&[], 9), std::slice::from_ref(&(0..9)));
        assert_eq!(gaps(&[2..3, 3..5, 4..7], 9), [0..2, 7..9]);
    }
}
