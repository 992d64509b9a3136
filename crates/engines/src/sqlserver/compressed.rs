//! Compressed families (WITH COMPRESSION): a container around the stream of MTF. **The place for its reader.**

use std::io::{self, Cursor, Read};

use fullbore_core::{Error, Result};

use super::input::{Input, cannot_read};
use crate::engine::{FamilyBytes, ForeignFamily};

/// The first bytes of a compressed family.
pub const COMPRESSED_MAGIC: &[u8; 8] = b"MSSQLBAK";

/// Opens a family at the first byte of its MTF stream, whether it is compressed or not.
///
/// # Errors
/// The device cannot be read, or the family is compressed.
pub fn open(family: ForeignFamily) -> Result<Input> {
    let ForeignFamily { device, mut bytes } = family;
    let mut head = Vec::new();
    let read = (&mut bytes).take(COMPRESSED_MAGIC.len() as u64).read_to_end(&mut head);
    read.map_err(|error| cannot_read(&device, error))?;
    if head == COMPRESSED_MAGIC {
        return Err(not_yet(&device));
    }
    let bytes = Box::new(Rejoined { head: Cursor::new(head), rest: bytes });
    Ok(Input::new(ForeignFamily { device, bytes }))
}

/// The reader of the container takes this place: `bytes` in, an [`InOrder`](crate::engine::InOrder) of the plain stream
/// out.
fn not_yet(device: &str) -> Error {
    let why = "is a compressed SQL Server backup, which this version cannot read";
    Error::refused(format!("`{device}`"), why, "use a newer fullbore, or a backup WITH NO_COMPRESSION")
}

/// Bytes that were read already, and the rest.
struct Rejoined {
    head: Cursor<Vec<u8>>,
    rest: Box<dyn FamilyBytes>,
}

impl Read for Rejoined {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.head.read(into)? {
            0 => self.rest.read(into),
            count => Ok(count),
        }
    }
}

impl FamilyBytes for Rejoined {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let left = io::copy(&mut (&mut self.head).take(bytes), &mut io::sink())?;
        self.rest.skip(bytes - left)
    }
}
