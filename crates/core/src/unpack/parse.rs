//! Parsing a family from start to end: every byte is checked, and the digest of the family is compared with the footer
//! and with the index inside the family.

use std::collections::VecDeque;
use std::sync::Arc;

use super::balance::{Balance, Weights};
use super::block::{BlockOpener, check_stored, open_alone};
use super::family::{Family, authenticate_footer, check_footer, check_place, damage};
use super::pieces::Pieces;
use crate::checksum;
use crate::cipher::DataKey;
use crate::error::{Error, Result};
use crate::media::{
    BLOCK_HEADER, BlockHeader, BlockKind, BlockReference, DIGEST, FOOTER, FamilyDigest, FamilyHeader, Flaw, Footer,
    HEADER_MIN, IndexEntry, MAX_MANIFEST_PARTS, RUN, Trailer, family_length, index_capacity, joined_length,
};
use crate::pool::{Piece, Pool};
use crate::supply::Supply;

/// Bytes of a reference in a trailer. The trailer is one block, which limits the index blocks to remember.
const TRAILER_REFERENCE: usize = 16;

/// A DATA or MAP block as it is on the media; header checked, body not.
pub(super) struct RawBlock {
    /// Where it is in its family.
    pub offset: u64,
    /// The checked header.
    pub header: BlockHeader,
    /// Header and body.
    pub bytes: Piece,
}

/// What a parsed family ended with.
pub(super) struct Parsed {
    /// Its footer, checked against everything before it.
    pub footer: Footer,
    /// The joined MANIFEST parts; only of family 1, because they may be long and are the same in all.
    pub manifest: Option<Vec<u8>>,
    /// The digest of the joined MANIFEST parts.
    pub manifest_digest: [u8; 32],
    /// Bytes of ZERO runs, as the trailer says.
    pub zero_bytes: u64,
    /// The sequence numbers of its blocks.
    pub sequences: Balance,
    /// What the index says of the runs of each block, subtracted; empty without a cipher, when it was compared at once.
    pub spans: Balance,
}

/// A family being read in order.
pub(super) struct Parser<'a> {
    header: &'a FamilyHeader,
    data_key: Option<&'a DataKey>,
    /// The family is encrypted and its key is unknown: only the stored bytes of a block can be checked.
    sealed: bool,
    opener: BlockOpener,
    weights: Weights,
    pieces: Pieces<'a>,
    digest: FamilyDigest,
    pending: Vec<IndexEntry>,
    index: Vec<BlockReference>,
    manifest_at: Vec<BlockReference>,
    /// The length of the manifest so far, the part that is kept, and its digest.
    manifest_length: usize,
    manifest: Option<Vec<u8>>,
    manifest_digest: checksum::FamilyDigest,
    block_count: u64,
    data_bytes: u64,
    zero_bytes: u64,
    trailer_at: u64,
    sequences: Balance,
    spans: Balance,
}

/// Reads the header of a pipe and hands the pipe on, with the bytes that were read beyond it.
pub(super) fn open_pipe(mut supply: Box<dyn Supply>) -> Result<(Family, VecDeque<Piece>)> {
    let mut pieces = VecDeque::new();
    let mut held = 0;
    let mut wanted = HEADER_MIN;
    let header_bytes = loop {
        while held < wanted {
            let Some(piece) = supply.next()? else {
                return Err(Error::incomplete(
                    supply.device(),
                    "the stream ends inside its header",
                    "send a whole family",
                ));
            };
            held += piece.len();
            pieces.push_back(piece);
        }
        let start: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).take(wanted).collect();
        let length = FamilyHeader::length(&start).map_err(|flaw| damage(supply.device(), 0, flaw))?;
        if length <= wanted {
            break start;
        }
        wanted = length;
    };
    let header = FamilyHeader::decode(&header_bytes).map_err(|flaw| damage(supply.device(), 0, flaw))?;
    Ok((Family::piped(supply, header, header_bytes), pieces))
}

impl<'a> Parser<'a> {
    /// Begins at the header; `ahead` are pieces that were read already, `weights` those of the set's tally.
    pub fn new(
        family: &'a mut Family,
        data_key: Option<&'a DataKey>,
        pool: &'a Arc<Pool>,
        ahead: VecDeque<Piece>,
        weights: Weights,
    ) -> Result<Self> {
        let header_bytes = family.header_bytes().to_vec();
        let (supply, header) = family.split();
        let mut parser = Self {
            header,
            data_key,
            sealed: !header.set.keys.is_empty() && data_key.is_none(),
            opener: BlockOpener::new(data_key)?,
            weights,
            pieces: Pieces::new(supply, pool, ahead, 0),
            digest: FamilyDigest::new(&header_bytes),
            pending: Vec::new(),
            index: Vec::new(),
            manifest_at: Vec::new(),
            manifest_length: 0,
            manifest: (header.family == 1).then(Vec::new),
            manifest_digest: checksum::FamilyDigest::new(),
            block_count: 0,
            data_bytes: 0,
            zero_bytes: 0,
            trailer_at: 0,
            sequences: Balance::default(),
            spans: Balance::default(),
        };
        for part in header_bytes.chunks(pool.size()) {
            if *parser.pieces.take(part.len())? != *part {
                return Err(Error::damaged(parser.pieces.device(), 0, "the header changed while the family was read"));
            }
        }
        Ok(parser)
    }

    /// The next DATA or MAP block; `None` after the last one, when [`finish`](Self::finish) is due. Blocks of
    /// other kinds are checked on the way.
    pub fn next(&mut self) -> Result<Option<RawBlock>> {
        loop {
            let offset = self.pieces.position;
            let header = self.peek_header()?;
            let bytes = self.pieces.take(header.block_length())?;
            let entry = self.entry(&header, &bytes, offset)?;
            self.digest.add(&entry);
            self.block_count += 1;
            self.sequences.add(self.weights, [header.sequence, 0, 0]);
            let reference = BlockReference { offset, length: header.block_length() as u32 };
            match header.kind {
                BlockKind::Data | BlockKind::Map => {
                    self.expect_room(offset)?;
                    self.pending.push(entry);
                    self.data_bytes += if header.kind == BlockKind::Data { u64::from(header.plain_length) } else { 0 };
                    return Ok(Some(RawBlock { offset, header, bytes }));
                }
                BlockKind::Index if self.sealed => {
                    self.check_stored(&header, &bytes, offset)?;
                    self.pending.clear();
                }
                BlockKind::Trailer if self.sealed => {
                    self.check_stored(&header, &bytes, offset)?;
                    self.trailer_at = offset;
                    return Ok(None);
                }
                BlockKind::Manifest if self.sealed => {
                    self.expect_room(offset)?;
                    self.pending.push(entry);
                    self.check_stored(&header, &bytes, offset)?;
                }
                BlockKind::Manifest => {
                    self.expect_room(offset)?;
                    self.pending.push(entry);
                    self.take_manifest(&header, &bytes, reference)?;
                }
                BlockKind::Index => self.check_index(&header, &bytes, reference)?,
                BlockKind::Trailer => {
                    self.check_trailer(&header, &bytes, offset)?;
                    return Ok(None);
                }
            }
        }
    }

    /// Checks padding and footer, and that nothing follows.
    pub fn finish(mut self) -> Result<Parsed> {
        let length = family_length(self.pieces.position, self.header.set.block_size);
        let footer_at = length - FOOTER as u64;
        let trailer = (self.trailer_at, self.pieces.position - self.trailer_at);
        while self.pieces.position < footer_at {
            let part = (footer_at - self.pieces.position).min(self.pieces.transfer() as u64) as usize;
            let at = self.pieces.position;
            if !checksum::is_zero(&self.pieces.take(part)?) {
                return Err(self.damaged(at, "padding is not zero"));
            }
        }
        let bytes = self.pieces.take(FOOTER)?.to_vec();
        let footer = Footer::decode(&bytes).map_err(|flaw| damage(self.pieces.device(), footer_at, flaw))?;
        check_footer(self.pieces.device(), footer_at, self.header, &footer)?;
        if !self.sealed {
            authenticate_footer(self.pieces.device(), &footer, &bytes, self.data_key)?;
        }
        let same = footer.family_length == length
            && footer.block_count == self.block_count
            && footer.family_digest == self.digest.value()
            && (footer.trailer_offset, u64::from(footer.trailer_length)) == trailer;
        if !same {
            return Err(self
                .damaged(footer_at, "the footer does not describe this family (digest, length or number of blocks)"));
        }
        while let Some(piece) = self.pieces.next()? {
            if !piece.is_empty() {
                return Err(self.damaged(length, "bytes after the footer"));
            }
        }
        Ok(Parsed {
            footer,
            manifest: self.manifest,
            manifest_digest: self.manifest_digest.finish(),
            zero_bytes: self.zero_bytes,
            sequences: self.sequences,
            spans: self.spans,
        })
    }

    fn damaged(&self, offset: u64, what: &str) -> Error {
        Error::damaged(self.pieces.device(), offset, what)
    }

    fn flawed(&self, offset: u64, flaw: Flaw) -> Error {
        damage(self.pieces.device(), offset, flaw)
    }

    /// An INDEX block must come wherever a full one is due.
    fn expect_room(&self, offset: u64) -> Result<()> {
        let capacity = index_capacity(self.header.set.transfer_size);
        if self.pending.len() < capacity { Ok(()) } else { Err(self.damaged(offset, "an index block is missing here")) }
    }

    fn peek_header(&mut self) -> Result<BlockHeader> {
        let mut bytes = [0; BLOCK_HEADER];
        self.pieces.peek(&mut bytes)?;
        let header = BlockHeader::decode(&bytes, self.header.set.transfer_size);
        let header = header.and_then(|header| check_place(&header, self.header).map(|()| header));
        header.map_err(|flaw| self.flawed(self.pieces.position, flaw))
    }

    /// The index entry that this block should have.
    fn entry(&self, header: &BlockHeader, bytes: &[u8], offset: u64) -> Result<IndexEntry> {
        let mut header_bytes = [0; BLOCK_HEADER];
        header_bytes.copy_from_slice(&bytes[..BLOCK_HEADER]);
        let span = self.span(header, bytes, offset)?;
        Ok(IndexEntry::of(header, &header_bytes, offset, span))
    }

    /// First offset and span of the block's runs; zeros where a cipher hides them.
    fn span(&self, header: &BlockHeader, bytes: &[u8], offset: u64) -> Result<(u64, u64)> {
        if header.run_count == 0 || self.data_key.is_some() || self.sealed {
            return Ok((0, 0));
        }
        let runs = &bytes[BLOCK_HEADER + DIGEST..][..header.run_count as usize * RUN];
        let number = |at: usize| runs[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let last = runs.len() - RUN;
        let length = number(last + 8) & u64::from(u32::MAX);
        let span = number(last).checked_add(length).and_then(|end| end.checked_sub(number(0)));
        span.map(|span| (number(0), span)).ok_or_else(|| self.damaged(offset, "runs of a block do not ascend"))
    }

    fn open(&mut self, header: &BlockHeader, bytes: &[u8], offset: u64) -> Result<Vec<u8>> {
        let opened = open_alone(&mut self.opener, header, bytes).map_err(|flaw| self.flawed(offset, flaw))?;
        Ok(opened.1)
    }

    fn check_stored(&self, header: &BlockHeader, bytes: &[u8], offset: u64) -> Result<()> {
        check_stored(header, bytes).map_err(|flaw| self.flawed(offset, flaw))
    }

    fn check_index(&mut self, header: &BlockHeader, bytes: &[u8], at: BlockReference) -> Result<()> {
        let payload = self.open(header, bytes, at.offset)?;
        let entries = IndexEntry::decode_all(&payload).map_err(|flaw| self.flawed(at.offset, flaw))?;
        let encrypted = self.data_key.is_some();
        let seen = |entry: &IndexEntry| if encrypted { entry.without_span() } else { *entry };
        if !entries.iter().map(seen).eq(self.pending.iter().copied()) {
            return Err(self.damaged(at.offset, "the index does not describe the blocks before it"));
        }
        for entry in entries.iter().filter(|entry| encrypted && entry.stream() != 0) {
            self.spans.take(self.weights, [entry.sequence(), entry.first.get(), entry.span.get()]);
        }
        self.pending.clear();
        if self.index.len() == self.header.set.transfer_size as usize / TRAILER_REFERENCE {
            return Err(self.damaged(at.offset, "more index blocks than a trailer can name"));
        }
        self.index.push(at);
        Ok(())
    }

    fn take_manifest(&mut self, header: &BlockHeader, bytes: &[u8], at: BlockReference) -> Result<()> {
        if self.manifest_at.len() == MAX_MANIFEST_PARTS {
            return Err(self.damaged(at.offset, "too many manifest parts"));
        }
        let part = self.open(header, bytes, at.offset)?;
        let length = joined_length(self.manifest_length, &part).map_err(|flaw| self.flawed(at.offset, flaw))?;
        self.manifest_length = length;
        self.manifest_digest.update(&part);
        if let Some(manifest) = &mut self.manifest {
            manifest.extend_from_slice(&part);
        }
        self.manifest_at.push(at);
        Ok(())
    }

    fn check_trailer(&mut self, header: &BlockHeader, bytes: &[u8], offset: u64) -> Result<()> {
        let payload = self.open(header, bytes, offset)?;
        let trailer = Trailer::decode(&payload).map_err(|flaw| self.flawed(offset, flaw))?;
        let same = trailer.block_count == self.block_count
            && trailer.data_bytes == self.data_bytes
            && trailer.index == self.index
            && trailer.manifest == self.manifest_at
            && self.pending.is_empty();
        (self.trailer_at, self.zero_bytes) = (offset, trailer.zero_bytes);
        if same { Ok(()) } else { Err(self.damaged(offset, "the trailer does not describe this family")) }
    }
}
