//! Header and body of a block: bounded before anything is sized by them, and written again as they were read.

use fullbore_core::media::{BLOCK_HEADER, BlockBody, BlockHeader, Run};
use crate::with_crc_at_end;

const TRANSFER: u32 = 1 << 16;

/// One input.
pub fn run(input: &[u8]) {
    let _ = BlockHeader::decode(input, TRANSFER);
    let Some((header, body)) = input.split_at_checked(BLOCK_HEADER) else { return };
    let mut bytes = header.to_vec();
    with_crc_at_end(&mut bytes);
    let Ok(header) = BlockHeader::decode(&bytes, TRANSFER) else { return };
    assert_eq!(header.encode()[..], bytes[..]);
    assert!(header.block_length() <= TRANSFER as usize);
    let mut body = body.to_vec();
    let _ = BlockBody::decode(&header, &body);
    body.resize(header.prefix_length as usize + header.payload_length as usize, 0);
    if let Ok(decoded) = BlockBody::decode(&header, &body) {
        assert!(decoded.runs.windows(2).all(|pair| pair[0].end() <= pair[1].offset));
        assert!(decoded.runs.iter().all(|run: &Run| run.length > 0));
        let mut prefix = vec![0xA5; header.prefix_length as usize];
        BlockBody::encode_prefix(decoded.digest, &decoded.runs, &mut prefix);
        assert_eq!(prefix[..], body[..prefix.len()]);
    }
}
