//! One block on its way through the pipeline: what a record holds, and the plain bytes that it becomes.

use fullbore_core::{Error, Result};

use super::record::{self, checksum};
use super::xpress::{BLOCK_MAX, Decoder};

/// The first bytes of a Zstandard frame (RFC 8878, 3.1.1).
const ZSTD_FRAME: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// The payload of a record and its plain bytes. Both buffers are allocated once and used again.
pub struct Block {
    /// Where the payload begins in the container, in bytes.
    pub(super) at: u64,
    /// The checksum that the record has for it.
    pub(super) checksum: u32,
    /// The payload; empty if the container has the plain bytes as they are.
    pub(super) packed: Vec<u8>,
    /// The plain bytes.
    pub(super) plain: Vec<u8>,
}

impl Default for Block {
    fn default() -> Self {
        let (packed, plain) = (Vec::with_capacity(BLOCK_MAX), Vec::with_capacity(BLOCK_MAX));
        Self { at: 0, checksum: 0, packed, plain }
    }
}

impl Block {
    /// The plain bytes, after [`Self::unpack`].
    pub fn plain(&self) -> &[u8] {
        &self.plain
    }

    /// True if there is something to unpack.
    pub fn is_packed(&self) -> bool {
        !self.packed.is_empty()
    }

    /// Checks the payload and unpacks it; `device` is the container's name in messages.
    ///
    /// # Errors
    /// The checksum does not match, or the payload is not XPRESS Huffman.
    pub fn unpack(&mut self, decoder: &mut Decoder, device: &str) -> Result<()> {
        let sum = checksum(&self.packed);
        if sum != self.checksum {
            let what = format!("the checksum of a record is {sum:08x}, but the record says {:08x}", self.checksum);
            return Err(Error::damaged(device, self.at, what));
        }
        decoder.decode(&self.packed, &mut self.plain).map_err(|error| {
            // The bytes are as the server has written them, so the cause is another algorithm or this program.
            let name = if self.packed.starts_with(&ZSTD_FRAME) { " (it is a Zstandard frame)" } else { "" };
            record::unknown(device, self.at, &format!("a block that is not XPRESS Huffman{name}: {error};"))
        })
    }
}
