//! The rows of the tables of a set, read by the places of its blocks: no file is written, and blocks of other tables are not
//! read.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use fullbore_core::media::ManifestStream;
use fullbore_core::unpack::{BlockPlaces, MediaSet};
use fullbore_core::{Error, Result};

use crate::mysql_family::logical_set::set::Detail;
use crate::mysql_family::logical_set::small;
use crate::mysql_family::logical_set::tsv::Tally;

/// The longest row, in bytes of text: a server sends 1 GiB at most, and a backslash may stand before each byte.
const ROW_MAX: usize = (2 << 30) + (1 << 20);
/// The longest stream with small tables, in bytes. A reader ends it when it has 8 MiB and a table more.
const SMALL_STREAM_MAX: u64 = 64 << 20;
/// Streams with small tables that are kept in memory, at most.
const KEPT: usize = 4;

/// Rows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    stream: u32,
    place: Place,
    tally: Tally,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A stream of their own, of so many bytes.
    Chunk(u64),
    /// In a stream of so many bytes, which many tables share: where they begin, and their length.
    Small(u64, usize, usize),
}

/// The pieces of each table, by its database and name.
pub type Pieces = HashMap<(String, String), Vec<Piece>>;

/// The rows that pieces have.
pub fn rows_of(pieces: &[Piece]) -> u64 {
    pieces.iter().fold(0, |rows, piece| rows.saturating_add(piece.tally.rows))
}

/// A set that is read.
pub struct Source {
    set: MediaSet,
    places: BlockPlaces,
    small: VecDeque<(u32, Arc<Vec<u8>>)>,
}

impl Source {
    /// Reads the index.
    ///
    /// # Errors
    /// It is damaged, or has too many blocks.
    pub fn open(mut set: MediaSet, streams: &[ManifestStream]) -> Result<Self> {
        /// Blocks are longer, except the last ones of streams.
        const BLOCK_MIN: u64 = 32 << 10;
        let bytes = streams.iter().fold(0, |bytes: u64, stream| bytes.saturating_add(stream.size));
        let most = (bytes / BLOCK_MIN).saturating_add(2 * streams.len() as u64).saturating_add(40_000);
        let places = set.block_places(usize::try_from(most).unwrap_or(usize::MAX))?;
        Ok(Self { set, places, small: VecDeque::new() })
    }

    /// The bytes of a stream that has at most `most`.
    ///
    /// # Errors
    /// It is longer, or a block is missing or damaged.
    pub fn whole(&mut self, stream: u32, size: u64, most: u64) -> Result<Vec<u8>> {
        if size > most {
            let why = format!("its stream {stream} is larger than it can be");
            return Err(Error::incomplete("media set", why, "use another set"));
        }
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < size {
            bytes.extend(self.set.bytes_at(&self.places, stream, bytes.len() as u64)?);
        }
        Ok(bytes)
    }

    /// Where the rows of all tables are. Streams with small tables are read for it.
    ///
    /// # Errors
    /// A stream cannot be read, or is not made of tables.
    pub fn pieces(&mut self, streams: &[ManifestStream]) -> Result<Pieces> {
        let mut pieces = Pieces::new();
        for stream in streams {
            match Detail::of(stream) {
                Some(Detail::Chunk { schema, table, tally }) => {
                    let piece = Piece { stream: stream.id, place: Place::Chunk(stream.size), tally };
                    pieces.entry((schema, table)).or_default().push(piece);
                }
                Some(Detail::Small { .. }) => {
                    let text = self.whole(stream.id, stream.size, SMALL_STREAM_MAX)?;
                    let mut at = 0;
                    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
                        let bad = |why| Error::incomplete(format!("stream `{}`", stream.name), why, "use another set");
                        let (section, head) = small::first(rest).map_err(bad)?;
                        let length = usize::try_from(section.bytes).unwrap_or(usize::MAX);
                        let end = (at + head).checked_add(length).filter(|end| *end <= text.len());
                        let end = end.ok_or_else(|| bad("it ends inside the rows of a table"))?;
                        let place = Place::Small(stream.size, at + head, length);
                        let piece = Piece { stream: stream.id, place, tally: section.tally };
                        pieces.entry((section.schema, section.table)).or_default().push(piece);
                        at = end;
                    }
                }
                _ => {}
            }
        }
        Ok(pieces)
    }

    fn small(&mut self, stream: u32, size: u64) -> Result<Arc<Vec<u8>>> {
        if let Some((_, text)) = self.small.iter().find(|(kept, _)| *kept == stream) {
            return Ok(Arc::clone(text));
        }
        self.small.truncate(KEPT - 1);
        let text = Arc::new(self.whole(stream, size, SMALL_STREAM_MAX)?);
        self.small.push_front((stream, Arc::clone(&text)));
        Ok(text)
    }

    /// Gives each row of these pieces to `each`, without its line end. `table` is for messages.
    ///
    /// # Errors
    /// The error of `each`, damage, or other rows than the set has counted.
    pub fn rows(&mut self, table: &str, pieces: &[Piece], each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for piece in pieces {
            let mut tally = Tally::default();
            let mut all = |rows: &[u8]| {
                rows.split_inclusive(|byte| *byte == b'\n').try_for_each(|row| {
                    tally.add(row);
                    each(row.strip_suffix(b"\n").unwrap_or(row))
                })
            };
            match piece.place {
                Place::Chunk(size) => self.chunk(table, piece.stream, size, &mut all)?,
                Place::Small(size, begin, length) => {
                    let text = self.small(piece.stream, size)?;
                    all(text.get(begin..begin + length).unwrap_or_default())?;
                }
            }
            if tally != piece.tally {
                let why = format!("the rows of table {table} are not those that it has counted");
                return Err(Error::incomplete("media set", why, "use another set"));
            }
        }
        Ok(())
    }

    /// The rows of a chunk, as they come in blocks.
    fn chunk(&mut self, table: &str, stream: u32, size: u64, all: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (mut at, mut carry) = (0, Vec::new());
        while at < size {
            let bytes = self.set.bytes_at(&self.places, stream, at)?;
            at += bytes.len() as u64;
            let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let (rows, rest) = bytes.split_at(end);
            match (carry.is_empty(), end) {
                (true, _) => all(rows)?,
                (false, 0) => {}
                (false, _) => {
                    carry.extend_from_slice(rows);
                    all(&carry)?;
                    carry.clear();
                }
            }
            carry.extend_from_slice(rest);
            if carry.len() > ROW_MAX {
                let why = "a row in the set is longer than a row of a server can be";
                return Err(Error::incomplete(format!("table {table}"), why, "use another set"));
            }
        }
        match carry.is_empty() {
            true => Ok(()),
            false => Err(Error::incomplete(format!("table {table}"), "its rows end inside a row", "use another set")),
        }
    }
}
