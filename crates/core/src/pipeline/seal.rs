//! Sealing: the last step of a block. Encrypts the body in place and writes header and checksums.

use crate::checksum::crc32c;
use crate::cipher::Sealer;
use crate::error::Result;
use crate::media::{BLOCK_HEADER, BlockHeader, TAG};

/// Seals `block`, whose prefix and payload are in place after room for header and tag. Afterwards every byte of
/// it is final; returns the header's bytes.
pub(super) fn seal(header: &mut BlockHeader, block: &mut [u8], sealer: Option<&Sealer>) -> Result<[u8; BLOCK_HEADER]> {
    debug_assert_eq!(header.block_length(), block.len(), "header and bytes of a block agree");
    if let Some(sealer) = sealer {
        let associated = header.associated_data();
        let tag = sealer.seal_in_place(header.sequence, &associated, &mut block[BLOCK_HEADER + TAG..])?;
        block[BLOCK_HEADER..BLOCK_HEADER + TAG].copy_from_slice(&tag);
    }
    header.body_crc = crc32c(&block[BLOCK_HEADER..]);
    let bytes = header.encode();
    block[..BLOCK_HEADER].copy_from_slice(&bytes);
    Ok(bytes)
}
