//! The index of a family, read from start to end. It proves itself: the digest of a family covers its header and the index
//! entries of all its blocks.

use super::balance::{Balance, Weights};
use super::family::{Family, damage};
use crate::cipher::DataKey;
use crate::error::{Error, Result};
use crate::media::{
    BLOCK_HEADER, BlockKind, BlockReference, FamilyDigest, Flaw, Footer, IndexEntry, Trailer, broken, family_length,
    require, total,
};

/// A family whose index was read.
pub(super) struct WalkedIndex {
    pub footer: Footer,
    pub trailer: Trailer,
    sequences: Balance,
}

/// Reads the index of a family; `each` gets the entries of one INDEX block after the other.
///
/// # Errors
/// The index is damaged, or is not that of footer and trailer. Errors of `each`.
pub(super) fn walk_index(
    family: &mut Family,
    weights: Weights,
    data_key: Option<&DataKey>,
    mut each: impl FnMut(&mut Family, &[IndexEntry]) -> Result<()>,
) -> Result<WalkedIndex> {
    let (trailer, trailer_entry) = family.trailer_and_entry(data_key)?;
    let mut walk = Walk::new(family, weights);
    for reference in &trailer.index {
        let (entries, own) = family.index(*reference, data_key)?;
        let entries = IndexEntry::decode_all(&entries)
            .and_then(|entries| walk.pass(entries).and_then(|()| walk.pass(&[own])).map(|()| entries))
            .map_err(|flaw| damage(family.device(), reference.offset, flaw))?;
        each(family, entries)?;
    }
    let footer = family.footer().cloned().ok_or(Error::Halted)?;
    let walked = walk.pass(&[trailer_entry]).and_then(|()| walk.finish(&footer, &trailer));
    let sequences = walked.map_err(|flaw| damage(family.device(), footer.trailer_offset, flaw))?;
    Ok(WalkedIndex { footer, trailer, sequences })
}

/// True if the blocks of all families together are numbered from 0 on, each number once.
pub(super) fn are_numbered<'a>(families: impl Iterator<Item = &'a WalkedIndex> + Clone, weights: Weights) -> bool {
    let mut sequences = Balance::default();
    families.clone().for_each(|family| sequences.join(family.sequences));
    let blocks = total(families.map(|family| family.footer.block_count));
    (0..blocks).for_each(|number| sequences.take(weights, [number, 0, 0]));
    sequences.is_even()
}

/// A walk through the entries of a family, in the order of its blocks.
struct Walk {
    position: u64,
    transfer_size: u32,
    block_size: u32,
    digest: FamilyDigest,
    blocks: u64,
    manifest: Vec<BlockReference>,
    weights: Weights,
    sequences: Balance,
}

impl Walk {
    fn new(family: &Family, weights: Weights) -> Self {
        let header = family.header_bytes();
        Self {
            position: header.len() as u64,
            transfer_size: family.header().set.transfer_size,
            block_size: family.header().set.block_size,
            digest: FamilyDigest::new(header),
            blocks: 0,
            manifest: Vec::new(),
            weights,
            sequences: Balance::default(),
        }
    }

    /// Passes blocks with these entries: they follow each other without gaps.
    fn pass(&mut self, entries: &[IndexEntry]) -> Result<(), Flaw> {
        for entry in entries {
            let (offset, length) = (entry.offset.get(), entry.length.get());
            require(offset == self.position, "the index has a gap")?;
            let bounds = BLOCK_HEADER as u32..=self.transfer_size;
            require(bounds.contains(&length), "the index names a block with an impossible length")?;
            self.position =
                offset.checked_add(length.into()).ok_or_else(|| broken("the index names an impossible place"))?;
            self.digest.add(entry);
            self.blocks += 1;
            self.sequences.add(self.weights, [entry.sequence(), 0, 0]);
            if entry.kind == BlockKind::Manifest as u8 {
                self.manifest.push(BlockReference { offset, length });
            }
        }
        Ok(())
    }

    /// At the end of the trailer: checks all of it against footer and trailer.
    fn finish(self, footer: &Footer, trailer: &Trailer) -> Result<Balance, Flaw> {
        let same = footer.family_length == family_length(self.position, self.block_size)
            && (footer.block_count, trailer.block_count) == (self.blocks, self.blocks)
            && trailer.manifest == self.manifest
            && footer.family_digest == self.digest.value();
        require(same, "index and trailer do not describe this family (digest, length or number of blocks)")?;
        Ok(self.sequences)
    }
}
