//! Opening a block: checksum, decryption, runs, unpacking, digest. Trusts nothing.

use std::ops::Range;

use crate::checksum::{crc32c, xxh3_128_le};
use crate::cipher::{DataKey, Opener};
use crate::codec::{CodecId, Decoder};
use crate::error::Result;
use crate::media::{BLOCK_HEADER, BlockBody, BlockHeader, DIGEST, Flaw, PADDED_HEAD, Run, TAG, broken};

/// Opens blocks in one thread.
pub(super) struct BlockOpener {
    opener: Option<Opener>,
    decoder: Decoder,
}

/// Where the unpacked bytes of a block are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plain {
    /// In the block's own bytes, as it was stored.
    Stored(Range<usize>),
    /// In the buffer that was given.
    Unpacked(Range<usize>),
}

/// Where the packed bytes of a block are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Packed {
    /// They are the plain bytes: no codec.
    AsPlain,
    /// In the block's own bytes.
    InBlock(Range<usize>),
    /// In the buffer for decrypted bytes.
    Decrypted(Range<usize>),
}

/// A block that was checked and unpacked.
#[derive(Debug)]
pub(super) struct Opened {
    /// Its runs.
    pub runs: Vec<Run>,
    /// The digest of its plain bytes.
    pub digest: [u8; DIGEST],
    /// These.
    pub plain: Plain,
    /// What they were unpacked from.
    pub packed: Packed,
}

/// Checks the stored bytes of a block: all that can be done without its key.
pub(super) fn check_stored(header: &BlockHeader, block: &[u8]) -> Result<(), Flaw> {
    if block.len() != header.block_length() {
        return Err(broken("block cut off"));
    }
    if crc32c(&block[BLOCK_HEADER..]) != header.body_crc {
        return Err(broken("block checksum does not match"));
    }
    Ok(())
}

impl BlockOpener {
    /// For blocks of a set with this data key, or of a set without a cipher.
    pub fn new(data_key: Option<&DataKey>) -> Result<Self> {
        Ok(Self { opener: data_key.map(Opener::new), decoder: Decoder::new()? })
    }

    /// Checks `block` (header and body) and unpacks it. `decrypted` and `out` are as long as the longest block; the
    /// result says where the plain bytes are, and the runs.
    pub fn open(
        &mut self,
        header: &BlockHeader,
        block: &[u8],
        decrypted: &mut [u8],
        out: &mut [u8],
    ) -> Result<Opened, Flaw> {
        check_stored(header, block)?;
        let codec =
            CodecId::from_number(header.codec).ok_or_else(|| broken(format!("unknown codec {}", header.codec)))?;
        let plain_length = header.plain_length as usize;
        let prefix = header.prefix_length as usize;
        if codec != CodecId::None {
            let (opened, packed) = match &self.opener {
                None => (&block[BLOCK_HEADER..], Packed::InBlock(BLOCK_HEADER + prefix..block.len())),
                Some(opener) => {
                    let range = decrypt(opener, header, block, decrypted)?;
                    (&decrypted[range.clone()], Packed::Decrypted(range.start + prefix..range.end))
                }
            };
            let body = BlockBody::decode(header, opened)?;
            let plain = out.get_mut(..plain_length).ok_or_else(|| broken("block unpacks to more than a transfer"))?;
            self.decoder
                .decode(codec, body.payload, plain)
                .map_err(|e| broken(format!("block does not unpack: {e}")))?;
            check_digest(plain, body.digest)?;
            return Ok(Opened {
                runs: body.runs,
                digest: body.digest,
                plain: Plain::Unpacked(0..plain_length),
                packed,
            });
        }
        match &self.opener {
            None => {
                let body = BlockBody::decode(header, &block[BLOCK_HEADER..])?;
                check_digest(body.payload, body.digest)?;
                let plain = Plain::Stored(BLOCK_HEADER + prefix..block.len());
                Ok(Opened { runs: body.runs, digest: body.digest, plain, packed: Packed::AsPlain })
            }
            Some(opener) => {
                let range = decrypt(opener, header, block, out)?;
                let body = BlockBody::decode(header, &out[range.clone()])?;
                check_digest(body.payload, body.digest)?;
                let plain = Plain::Unpacked(range.start + prefix..range.end);
                Ok(Opened { runs: body.runs, digest: body.digest, plain, packed: Packed::AsPlain })
            }
        }
    }
}

/// Opens a block outside of a worker: into its own memory, as much as this block needs.
pub(super) fn open_alone(
    opener: &mut BlockOpener,
    header: &BlockHeader,
    block: &[u8],
) -> Result<(Vec<Run>, Vec<u8>), Flaw> {
    let mut decrypted = vec![0; if opener.opener.is_some() { header.body_length() } else { 0 }];
    let mut out = vec![0; decrypted.len().max(header.plain_length as usize)];
    let Opened { runs, plain, .. } = opener.open(header, block, &mut decrypted, &mut out)?;
    let payload = match plain {
        Plain::Stored(range) => block[range].to_vec(),
        Plain::Unpacked(range) => {
            out.truncate(range.end);
            out.split_off(range.start)
        }
    };
    Ok((runs, payload))
}

/// Decrypts the body into `out`, the payload at [`PADDED_HEAD`] where there is room, so that it is aligned.
fn decrypt(opener: &Opener, header: &BlockHeader, block: &[u8], out: &mut [u8]) -> Result<Range<usize>, Flaw> {
    let body = &block[BLOCK_HEADER + TAG..];
    let prefix = header.prefix_length as usize;
    let aligned = PADDED_HEAD.checked_sub(prefix).filter(|start| start + body.len() <= out.len());
    let start = aligned.unwrap_or(0);
    let range = start..start + body.len();
    let place = out.get_mut(range.clone()).ok_or_else(|| broken("block longer than a transfer"))?;
    let mut tag = [0; TAG];
    tag.copy_from_slice(&block[BLOCK_HEADER..BLOCK_HEADER + TAG]);
    opener
        .open(header.sequence, &header.associated_data(), &tag, body, place)
        .map_err(|_| broken("block does not decrypt: wrong key, or changed"))?;
    Ok(range)
}

fn check_digest(plain: &[u8], digest: [u8; 16]) -> Result<(), Flaw> {
    if xxh3_128_le(0, plain) == digest { Ok(()) } else { Err(broken("digest of the unpacked block does not match")) }
}
