//! Sealing: the last step of a block. Encrypts the body in place and writes header and checksums.

use super::stripe::BlockBytes;
use crate::checksum::Crc32c;
use crate::cipher::Sealer;
use crate::error::{Error, Result};
use crate::media::{BLOCK_HEADER, BlockHeader, TAG};

/// Seals a block, whose prefix and payload are in place after room for header and tag. Afterwards every byte of
/// it is final; returns the header's bytes.
pub(super) fn seal(
    header: &mut BlockHeader,
    block: &mut BlockBytes<'_>,
    sealer: Option<&Sealer>,
) -> Result<[u8; BLOCK_HEADER]> {
    let (head, rest): (&mut [u8], &[u8]) = match block {
        BlockBytes::Kept(bytes) => (bytes, &[]),
        BlockBytes::Given(buffer, length) => (&mut buffer[..*length], &[]),
        BlockBytes::Joined(head, payload) => (head, payload),
    };
    debug_assert_eq!(header.block_length(), head.len() + rest.len(), "header and bytes of a block agree");
    if let Some(sealer) = sealer {
        if !rest.is_empty() {
            let why = "a block was to be encrypted in two pieces";
            return Err(Error::refused("pipeline", why, "this is a defect: please report it"));
        }
        let associated = header.associated_data();
        let tag = sealer.seal_in_place(header.sequence, &associated, &mut head[BLOCK_HEADER + TAG..])?;
        head[BLOCK_HEADER..BLOCK_HEADER + TAG].copy_from_slice(&tag);
    }
    let mut crc = Crc32c::new();
    crc.update(&head[BLOCK_HEADER..]);
    crc.update(rest);
    header.body_crc = crc.finish();
    let bytes = header.encode();
    head[..BLOCK_HEADER].copy_from_slice(&bytes);
    Ok(bytes)
}
