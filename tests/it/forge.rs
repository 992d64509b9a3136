//! A forger: takes a set apart, lets a test change what it says, and puts it together again with every checksum, index
//! entry, digest and commit record right. What is refused then is refused for what it says.

use fullbore_core::checksum::{crc32c, xxh3_128_le};
use fullbore_core::cipher::{DataKey, FooterKey, Opener, Sealer};
use fullbore_core::codec::{CodecId, Decoder};
use fullbore_core::media::{
    BLOCK_HEADER, BlockBody, BlockHeader, BlockKind, BlockReference, DIGEST, FOOTER, FamilyDigest, FamilyHeader,
    Footer, IndexEntry, RUN, Run, TAG, Trailer, family_length,
};

use crate::world::World;

/// Where a footer has the number of blocks in the set.
const SET_BLOCK_COUNT: usize = 80;

/// A block, opened. What INDEX blocks and the TRAILER hold is made anew.
#[derive(Clone)]
pub struct ForgedBlock {
    pub header: BlockHeader,
    pub runs: Vec<Run>,
    pub plain: Vec<u8>,
}

/// One family, taken apart.
pub struct ForgedFamily {
    pub header: FamilyHeader,
    /// The header's bytes, where they shall be others than those that [`FamilyHeader::encode`] makes of `header`.
    pub header_bytes: Option<Vec<u8>>,
    pub blocks: Vec<ForgedBlock>,
    pub footer: Footer,
    /// What the trailer shall say instead of the truth.
    pub trailer: fn(&mut Trailer),
    /// What each index entry shall say.
    pub entry: fn(&mut IndexEntry),
    /// What the footer of a family without the commit record says of the set.
    pub set_block_count: u64,
    /// Moves the reference to the trailer, its end being the same.
    pub trailer_shift: u64,
}

impl ForgedFamily {
    /// The blocks of one kind.
    pub fn of(&mut self, kind: BlockKind) -> impl Iterator<Item = &mut ForgedBlock> {
        self.blocks.iter_mut().filter(move |block| block.header.kind == kind)
    }

    /// Replaces text in the manifest.
    pub fn manifest(&mut self, old: &str, new: &str) {
        for block in self.of(BlockKind::Manifest) {
            let text = String::from_utf8(block.plain.clone()).unwrap();
            assert!(text.contains(old), "{old} is not in {text}");
            block.plain = text.replace(old, new).into_bytes();
        }
    }
}

/// The manifest of a set.
pub fn manifest_of(families: &mut [ForgedFamily]) -> serde_json::Value {
    let parts: Vec<u8> = families[0].of(BlockKind::Manifest).flat_map(|block| block.plain.clone()).collect();
    serde_json::from_slice(&parts).unwrap()
}

/// Puts another manifest into all families, in as many parts as it needs, and numbers all blocks anew.
pub fn set_manifest(families: &mut [ForgedFamily], json: &str) {
    for family in families.iter_mut() {
        let is_part = |block: &ForgedBlock| block.header.kind == BlockKind::Manifest;
        let at = family.blocks.iter().position(is_part).expect("a manifest");
        let like = family.blocks[at].clone();
        family.blocks.retain(|block| !is_part(block));
        let most = family.header.set.transfer_size as usize - 8192;
        let parts = json.as_bytes().chunks(most).map(|part| ForgedBlock { plain: part.to_vec(), ..like.clone() });
        family.blocks.splice(at..at, parts);
    }
    for (block, number) in families.iter_mut().flat_map(|family| &mut family.blocks).zip(0..) {
        block.header.sequence = number;
    }
}

/// Takes `families` apart, lets `edit` change them, and writes them back.
pub fn forge(world: &World, families: &[&str], key: Option<&DataKey>, edit: impl FnOnce(&mut [ForgedFamily])) {
    let mut forged: Vec<ForgedFamily> = families.iter().map(|name| take_apart(&world.read(name), key)).collect();
    edit(&mut forged);
    let mut sealed: Vec<(Vec<u8>, Footer)> = forged.iter().map(|family| put_together(family, key)).collect();
    let digests: Vec<_> = sealed.iter().map(|(_, footer)| footer.family_digest).collect();
    let blocks = sealed.iter().map(|(_, footer)| footer.block_count).sum();
    for ((name, family), (bytes, footer)) in families.iter().zip(&forged).zip(&mut sealed) {
        if let Some(commit) = &mut footer.commit {
            (commit.set_block_count, commit.digests) = (blocks, digests.clone());
        }
        let mut end = footer.encode(|bytes| key.map_or([0; 32], |key| FooterKey::new(key).mac(bytes)));
        if family.set_block_count > 0 {
            end[SET_BLOCK_COUNT..SET_BLOCK_COUNT + 8].copy_from_slice(&family.set_block_count.to_le_bytes());
            let crc = crc32c(&end[..FOOTER - 4]);
            end[FOOTER - 4..].copy_from_slice(&crc.to_le_bytes());
        }
        bytes.resize(footer.family_length as usize - FOOTER, 0);
        bytes.extend_from_slice(&end);
        world.write(name, bytes);
    }
}

fn take_apart(bytes: &[u8], key: Option<&DataKey>) -> ForgedFamily {
    let length = FamilyHeader::length(bytes).unwrap();
    let header = FamilyHeader::decode(&bytes[..length]).unwrap();
    let opener = key.map(Opener::new);
    let (mut blocks, mut at) = (Vec::new(), length);
    while blocks.last().is_none_or(|block: &ForgedBlock| block.header.kind != BlockKind::Trailer) {
        let header = BlockHeader::decode(&bytes[at..], header.set.transfer_size).unwrap();
        let mut body = bytes[at + BLOCK_HEADER..at + header.block_length()].to_vec();
        if let Some(opener) = &opener {
            let tag = *body.first_chunk().unwrap();
            body.drain(..TAG);
            opener.open_in_place(header.sequence, &header.associated_data(), &tag, &mut body).unwrap();
        }
        let opened = BlockBody::decode(&header, &body).unwrap();
        let mut plain = vec![0; header.plain_length as usize];
        let codec = CodecId::from_number(header.codec).unwrap();
        Decoder::new().unwrap().decode(codec, opened.payload, &mut plain).unwrap();
        at += header.block_length();
        blocks.push(ForgedBlock { header, runs: opened.runs.clone(), plain });
    }
    let footer = Footer::decode(&bytes[bytes.len() - FOOTER..]).unwrap();
    ForgedFamily {
        header,
        header_bytes: None,
        blocks,
        footer,
        trailer: |_| {},
        entry: |_| {},
        set_block_count: 0,
        trailer_shift: 0,
    }
}

/// Everything but padding and footer, and the footer without the commit record's digests.
fn put_together(family: &ForgedFamily, key: Option<&DataKey>) -> (Vec<u8>, Footer) {
    let mut bytes = family.header_bytes.clone().unwrap_or_else(|| family.header.encode());
    let mut digest = FamilyDigest::new(&bytes);
    let (mut pending, mut trailer) = (Vec::new(), Trailer::default());
    let mut last = BlockReference { offset: 0, length: 0 };
    for block in &family.blocks {
        let mut block = block.clone();
        trailer.block_count += 1;
        match block.header.kind {
            BlockKind::Data => {
                trailer.data_bytes += block.plain.len() as u64;
                let zero = block.runs.iter().filter(|run| run.kind == fullbore_core::media::RunKind::Zero);
                trailer.zero_bytes += zero.map(|run| u64::from(run.length)).sum::<u64>();
            }
            BlockKind::Index => block.plain = std::mem::take(&mut pending),
            BlockKind::Trailer => {
                (family.trailer)(&mut trailer);
                block.plain = trailer.encode();
            }
            BlockKind::Map | BlockKind::Manifest => {}
        }
        let (header, stored) = seal(&block, key);
        last = BlockReference { offset: bytes.len() as u64, length: stored.len() as u32 };
        let entry =
            IndexEntry::of(&header, stored.first_chunk().unwrap(), last.offset, IndexEntry::span_of(&block.runs));
        digest.add(&entry);
        match header.kind {
            BlockKind::Index => trailer.index.push(last),
            BlockKind::Trailer => {}
            kind => {
                if kind == BlockKind::Manifest {
                    trailer.manifest.push(last);
                }
                let mut entry = entry;
                (family.entry)(&mut entry);
                pending.extend(entry_bytes(&entry));
            }
        }
        bytes.extend_from_slice(&stored);
    }
    let footer = Footer {
        family_length: family_length(bytes.len() as u64, family.header.set.block_size),
        trailer_offset: last.offset + family.trailer_shift,
        trailer_length: last.length - family.trailer_shift as u32,
        block_count: trailer.block_count,
        family_digest: digest.value(),
        ..family.footer.clone()
    };
    (bytes, footer)
}

/// An index entry as it is stored.
fn entry_bytes(entry: &IndexEntry) -> Vec<u8> {
    let mut bytes = entry.offset.get().to_le_bytes().to_vec();
    bytes.extend(entry.length.get().to_le_bytes());
    bytes.extend([entry.kind, entry.codec]);
    bytes.extend((entry.stream() as u16).to_le_bytes());
    bytes.extend(&entry.sequence().to_le_bytes()[..6]);
    bytes.extend(((entry.stream() >> 16) as u16).to_le_bytes());
    bytes.extend([entry.first, entry.span].iter().flat_map(|number| number.get().to_le_bytes()));
    bytes.extend([entry.header_crc, entry.body_crc].iter().flat_map(|number| number.get().to_le_bytes()));
    bytes
}

/// A block as it is stored, uncompressed.
fn seal(block: &ForgedBlock, key: Option<&DataKey>) -> (BlockHeader, Vec<u8>) {
    let prefix = (DIGEST + block.runs.len() * RUN).max(block.header.prefix_length as usize);
    let mut header = BlockHeader {
        codec: 0,
        run_count: block.runs.len() as u32,
        prefix_length: prefix as u32,
        payload_length: block.plain.len() as u32,
        plain_length: block.plain.len() as u32,
        ..block.header
    };
    let mut body = vec![0; prefix];
    BlockBody::encode_prefix(xxh3_128_le(0, &block.plain), &block.runs, &mut body);
    body.extend_from_slice(&block.plain);
    if let Some(key) = key {
        let tag = Sealer::new(key).seal_in_place(header.sequence, &header.associated_data(), &mut body).unwrap();
        body.splice(..0, tag);
    }
    header.body_crc = crc32c(&body);
    let mut stored = header.encode().to_vec();
    stored.extend_from_slice(&body);
    (header, stored)
}
