//! Opens a family: compressed or not, what comes is the stream of MTF.

use std::io::{self, Cursor, Read};
use std::num::NonZero;

use fullbore_core::pool::Piece;
use fullbore_core::{Error, Result};

use super::compressed::{MAGIC, PlainStream};
use super::input::Input;
use crate::engine::ForeignFamily;
use crate::foreign_set::bytes::{FamilyBytes, InOrder};

/// Opens a family at the first byte of its MTF stream. A compressed one is unpacked on all processors.
///
/// # Errors
/// The device cannot be read, or its container is of a layout that is not known.
pub fn open(family: ForeignFamily) -> Result<Input> {
    let ForeignFamily { device, mut bytes } = family;
    let mut head = Vec::new();
    let read = (&mut bytes).take(MAGIC.len() as u64).read_to_end(&mut head);
    read.map_err(|error| Error::of_read(&device, error))?;
    let is_compressed = head == MAGIC;
    let rejoined = Rejoined { head: Cursor::new(head), rest: bytes };
    let bytes: Box<dyn FamilyBytes> = if is_compressed {
        let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
        Box::new(InOrder(PlainStream::open(rejoined, &device, workers)?))
    } else {
        Box::new(rejoined)
    };
    Ok(Input::new(ForeignFamily { device, bytes }, is_compressed))
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

    fn share(&mut self, length: usize) -> io::Result<Option<Piece>> {
        let is_behind_head = self.head.position() >= self.head.get_ref().len() as u64;
        if is_behind_head { self.rest.share(length) } else { Ok(None) }
    }
}
