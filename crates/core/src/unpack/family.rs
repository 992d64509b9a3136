//! One family, opened for random access: header, footer, trailer, single blocks.

use super::block::{BlockOpener, open_alone};
use crate::cipher::{DataKey, FooterKey};
use crate::error::{Error, Result};
use crate::media::{
    BLOCK_HEADER, BlockHeader, BlockKind, BlockReference, FOOTER, FamilyHeader, Flaw, Footer, HEADER_MIN, IndexEntry,
    Manifest, Run, Trailer, broken, join_manifest, unpack_manifest,
};
use crate::sink::DeviceAccount;
use crate::supply::Supply;

/// A family whose header and footer have been read and checked; for a pipe, only the header is known yet.
pub struct Family {
    pub(super) supply: Box<dyn Supply>,
    header: FamilyHeader,
    header_bytes: Vec<u8>,
    footer: Option<(Footer, Vec<u8>)>,
}

/// A block that was read in its place, checked and unpacked.
pub(super) struct OpenedBlock {
    /// Its header.
    pub header: BlockHeader,
    /// Its runs.
    pub runs: Vec<Run>,
    /// Its plain bytes.
    pub payload: Vec<u8>,
    /// The entry that it would have in an index, without its span.
    pub entry: IndexEntry,
}

/// An error from a flaw found in `device` at `offset`.
pub(super) fn damage(device: &str, offset: u64, flaw: Flaw) -> Error {
    match flaw {
        Flaw::Newer(_) => Error::refused(device, flaw.to_string(), "use a newer fullbore to read it"),
        Flaw::NotMedia => Error::incomplete(
            device,
            flaw.to_string(),
            "name files that a backup has written, whole and not packed by another program",
        ),
        Flaw::Broken(what) => Error::damaged(device, offset, what),
    }
}

impl Family {
    /// Reads and checks header and footer. A pipe gives its header when it is parsed: use [`Family::piped`].
    pub fn open(mut supply: Box<dyn Supply>) -> Result<Self> {
        let device = supply.device().to_owned();
        let size = supply.size().unwrap_or(0);
        let start = read_exactly(&mut *supply, 0, HEADER_MIN.min(size as usize))?;
        let length = FamilyHeader::length(&start).map_err(|flaw| damage(&device, 0, flaw))?;
        if (size as usize) < length + FOOTER {
            return Err(Error::damaged(device, size, "the family ends before its footer"));
        }
        let header_bytes = read_exactly(&mut *supply, 0, length)?;
        let header = FamilyHeader::decode(&header_bytes).map_err(|flaw| damage(&device, 0, flaw))?;
        let footer_at = size - FOOTER as u64;
        let footer_bytes = read_exactly(&mut *supply, footer_at, FOOTER)?;
        let footer = Footer::decode(&footer_bytes).map_err(|flaw| damage(&device, footer_at, flaw))?;
        if footer.family_length != size {
            let what = format!("the family has {size} bytes, but its footer says {}", footer.family_length);
            return Err(Error::damaged(device, footer_at, what));
        }
        check_footer(&device, footer_at, &header, &footer)?;
        Ok(Self { supply, header, header_bytes, footer: Some((footer, footer_bytes)) })
    }

    /// A family that can only be read from start to end; its header has been taken from the stream already.
    pub(super) fn piped(supply: Box<dyn Supply>, header: FamilyHeader, header_bytes: Vec<u8>) -> Self {
        Self { supply, header, header_bytes, footer: None }
    }

    pub(super) fn listened_by(self, tap: &mut impl FnMut(Box<dyn Supply>) -> Box<dyn Supply>) -> Self {
        let Self { supply, header, header_bytes, footer } = self;
        Self { supply: tap(supply), header, header_bytes, footer }
    }

    /// Where it was read from.
    pub fn device(&self) -> &str {
        self.supply.device()
    }

    /// Bytes; `None` for a pipe.
    pub fn size(&self) -> Option<u64> {
        self.supply.size()
    }

    /// What its device did.
    pub fn account(&self) -> DeviceAccount {
        self.supply.account()
    }

    /// The header.
    pub fn header(&self) -> &FamilyHeader {
        &self.header
    }

    pub(super) fn header_bytes(&self) -> &[u8] {
        &self.header_bytes
    }

    /// The supply for reading in order, and the header.
    pub(super) fn split(&mut self) -> (&mut dyn Supply, &FamilyHeader) {
        (&mut *self.supply, &self.header)
    }

    /// The footer; `None` for a pipe.
    pub fn footer(&self) -> Option<&Footer> {
        self.footer.as_ref().map(|(footer, _)| footer)
    }

    /// Checks the footer's MAC.
    pub(super) fn authenticate(&self, data_key: Option<&DataKey>) -> Result<()> {
        let Some((footer, bytes)) = &self.footer else { return Ok(()) };
        authenticate_footer(self.device(), footer, bytes, data_key)
    }

    /// The trailer: where index and manifest are.
    pub fn trailer(&mut self, data_key: Option<&DataKey>) -> Result<Trailer> {
        self.trailer_and_entry(data_key).map(|(trailer, _)| trailer)
    }

    /// The same, with its part of the family digest.
    pub(super) fn trailer_and_entry(&mut self, data_key: Option<&DataKey>) -> Result<(Trailer, IndexEntry)> {
        let Some((footer, _)) = &self.footer else {
            return Err(Error::refused(
                self.device(),
                "a pipe can be read only from its start to its end",
                "copy it to a file first",
            ));
        };
        let reference = BlockReference { offset: footer.trailer_offset, length: footer.trailer_length };
        let block = self.block(reference, BlockKind::Trailer, data_key)?;
        let trailer = Trailer::decode(&block.payload);
        trailer
            .map(|trailer| (trailer, block.entry))
            .map_err(|flaw| damage(self.supply.device(), reference.offset, flaw))
    }

    /// The payload of an INDEX block, and its part of the family digest.
    pub(super) fn index(&mut self, at: BlockReference, data_key: Option<&DataKey>) -> Result<(Vec<u8>, IndexEntry)> {
        self.block(at, BlockKind::Index, data_key).map(|block| (block.payload, block.entry))
    }

    /// The manifest.
    pub fn manifest(&mut self, data_key: Option<&DataKey>) -> Result<Manifest> {
        let trailer = self.trailer(data_key)?;
        let mut json = Vec::new();
        for reference in &trailer.manifest {
            let part = self.block(*reference, BlockKind::Manifest, data_key)?;
            join_manifest(&mut json, &part.payload)
                .map_err(|flaw| damage(self.supply.device(), reference.offset, flaw))?;
        }
        let manifest = unpack_manifest(&json).map_err(|flaw| damage(self.supply.device(), 0, flaw))?;
        manifest.check_against(&self.header.set).map_err(|flaw| damage(self.supply.device(), 0, flaw))?;
        Ok(manifest)
    }

    /// Calls `visit` with every index entry of the family's DATA, MAP and MANIFEST blocks.
    pub fn for_each_entry(&mut self, data_key: Option<&DataKey>, mut visit: impl FnMut(&IndexEntry)) -> Result<()> {
        for reference in self.trailer(data_key)?.index {
            let index = self.block(reference, BlockKind::Index, data_key)?;
            let entries = IndexEntry::decode_all(&index.payload)
                .map_err(|flaw| damage(self.supply.device(), reference.offset, flaw))?;
            entries.iter().for_each(&mut visit);
        }
        Ok(())
    }

    /// Reads one block, checked and unpacked.
    pub(super) fn block(
        &mut self,
        at: BlockReference,
        kind: BlockKind,
        data_key: Option<&DataKey>,
    ) -> Result<OpenedBlock> {
        let transfer_size = self.header.set.transfer_size;
        let device = self.supply.device().to_owned();
        let flawed = |what: &str| Error::damaged(&device, at.offset, what);
        let fits = (BLOCK_HEADER..=transfer_size as usize).contains(&(at.length as usize))
            && self
                .size()
                .is_some_and(|size| at.offset.checked_add(u64::from(at.length)).is_some_and(|end| end <= size));
        if !fits {
            return Err(flawed("the place of a block is outside the family"));
        }
        let bytes = read_exactly(&mut *self.supply, at.offset, at.length as usize)?;
        let header = BlockHeader::decode(&bytes, transfer_size).map_err(|flaw| damage(&device, at.offset, flaw))?;
        check_place(&header, &self.header).map_err(|flaw| damage(&device, at.offset, flaw))?;
        if header.kind != kind {
            return Err(flawed("the kind of a block differs from the index"));
        }
        let mut opener = BlockOpener::new(data_key)?;
        let (runs, payload) =
            open_alone(&mut opener, &header, &bytes).map_err(|flaw| damage(&device, at.offset, flaw))?;
        let mut head = [0; BLOCK_HEADER];
        head.copy_from_slice(&bytes[..BLOCK_HEADER]);
        let entry = IndexEntry::of(&header, &head, at.offset, (0, 0));
        Ok(OpenedBlock { header, runs, payload, entry })
    }
}

/// A block must belong to this family of this set.
pub(super) fn check_place(block: &BlockHeader, family: &FamilyHeader) -> Result<(), Flaw> {
    if family.set.media_set_id.as_bytes()[..8] != block.set_tag {
        return Err(broken("the block belongs to another media set"));
    }
    if block.family != family.family {
        return Err(broken(format!("the block belongs to family {}", block.family)));
    }
    if block.cipher != family.set.cipher.number() {
        return Err(broken("the block has another cipher than the set"));
    }
    if block.order != 0 && family.set.window == 0 {
        return Err(broken("an order number in a set without ordered streams"));
    }
    if block.layer != 0 && !family.set.open {
        return Err(broken("a layer in a set without layers"));
    }
    Ok(())
}

/// A footer must belong to the header of its family.
pub(super) fn check_footer(device: &str, offset: u64, header: &FamilyHeader, footer: &Footer) -> Result<()> {
    let same = footer.format_version == header.set.format_version
        && footer.family == header.family
        && footer.families == header.set.families
        && footer.media_set_id == header.set.media_set_id
        && footer.backup_set_id == header.set.backup_set_id;
    if same { Ok(()) } else { Err(Error::damaged(device, offset, "header and footer belong to different families")) }
}

pub(super) fn authenticate_footer(
    device: &str,
    footer: &Footer,
    bytes: &[u8],
    data_key: Option<&DataKey>,
) -> Result<()> {
    let authentic = match data_key {
        Some(key) => FooterKey::new(key).verify_mac(&Footer::authenticated(bytes), &footer.mac),
        None => footer.mac == [0; 32],
    };
    if authentic {
        Ok(())
    } else {
        Err(Error::damaged(device, footer.family_length - FOOTER as u64, "the footer is not authentic"))
    }
}

fn read_exactly(supply: &mut dyn Supply, offset: u64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let read = supply.read_at(offset, &mut bytes)?;
    if read == length {
        Ok(bytes)
    } else {
        Err(Error::damaged(supply.device(), offset + read as u64, "the family ends here"))
    }
}
