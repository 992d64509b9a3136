//! A set of extents of the files of a database: one bit for each extent, in groups.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The extents.
#[derive(Debug, Default)]
pub struct ExtentSet(HashMap<(u16, u64), [u64; 64]>);

impl ExtentSet {
    /// Groups of 4,096 extents, at most: 16 TiB of data.
    const GROUPS_MAX: usize = 1 << 16;

    /// Adds an extent. True if it was not in the set; false too if the set has no room for it.
    pub fn insert(&mut self, file: u16, extent: u64) -> bool {
        let groups = self.0.len();
        let group = match self.0.entry((file, extent / 4096)) {
            Entry::Occupied(group) => group.into_mut(),
            Entry::Vacant(_) if groups >= Self::GROUPS_MAX => return false,
            Entry::Vacant(group) => group.insert([0; 64]),
        };
        let Some((word, bit)) = group.get_mut((extent % 4096 / 64) as usize).zip(Some(1 << (extent % 64))) else {
            return false;
        };
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// True if the extent was added.
    pub fn contains(&self, file: u16, extent: u64) -> bool {
        let group = self.0.get(&(file, extent / 4096));
        let word = group.and_then(|group| group.get((extent % 4096 / 64) as usize));
        word.is_some_and(|word| word >> (extent % 64) & 1 == 1)
    }

    /// True if it has room for no other group: then an extent that is not in it may have been left out.
    pub fn is_full(&self) -> bool {
        self.0.len() >= Self::GROUPS_MAX
    }

    /// Adds those of another set.
    pub fn join(&mut self, other: Self) {
        for (key, words) in other.0 {
            let known = self.0.entry(key).or_insert([0; 64]);
            known.iter_mut().zip(words).for_each(|(known, word)| *known |= word);
        }
    }
}
