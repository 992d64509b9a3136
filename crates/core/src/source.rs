//! Sources: what an engine offers to be read. Several readers work at once, each filling its own buffers.

use crate::error::Result;
use crate::pool::Piece;

/// A stream of a database: one file, the log, a table's dump. Restored under its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// The number that blocks carry, from 1 on.
    pub id: u32,
    /// What the manifest calls it, e.g. the file's name relative to the database.
    pub name: String,
    /// Size of the unit of a differential in bytes: the page, at least 4 KiB.
    pub unit: u32,
    /// Bytes in the snapshot; the restored file has exactly this size.
    pub size: u64,
}

/// A piece of a stream that a reader has put into a buffer: `bytes` of it, from the buffer's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Which stream.
    pub stream: u32,
    /// Phase of the restore: a higher layer is applied after every lower one. Only an open source has layers other than
    /// 0. It gives a higher layer only after the readers of all lower extents have been asked for their next extent.
    pub layer: u16,
    /// Where in the stream, in bytes; a multiple of the stream's unit. (An open source may give other offsets, but then
    /// nothing can later say whether a unit that is not in one piece has changed.)
    pub offset: u64,
    /// How many bytes: a multiple of the unit, except at the end of the stream or of an open source.
    pub length: u32,
}

/// An open snapshot of a database. It stays consistent until it is dropped.
pub trait Source: Sync {
    /// All streams with their final sizes. For an open source, the streams at the start: for estimates and progress.
    fn streams(&self) -> &[Stream];

    /// True when streams may appear, grow, get other names or vanish while the source is read. Then
    /// [`stream`](Self::stream) and [`found`](Self::found) give the streams.
    fn is_open(&self) -> bool {
        false
    }

    /// For a differential of a database that reports what has changed since the full: the bytes that the readers give,
    /// of all streams together. They give only these units. `None`: the readers give every byte, and the pipeline finds
    /// the changes.
    fn reported_bytes(&self) -> Option<u64> {
        None
    }

    /// True for a stream that a restore gets in order. One reader gives it, from start to end, in layer 0; it has no
    /// [`identity`](Self::identity), and its extents need not be whole units.
    fn is_ordered(&self, stream: u32) -> bool {
        let _ = stream;
        false
    }

    /// True when there are ordered streams, or may be in an open source.
    fn has_ordered(&self) -> bool {
        self.streams().iter().any(|stream| self.is_ordered(stream.id))
    }

    /// The stream with this number, as it is known now.
    fn stream(&self, id: u32) -> Option<Stream> {
        self.streams().iter().find(|stream| stream.id == id).cloned()
    }

    /// Tells a stream of an open source from all others of the same backup. It is the same in the next backup of this
    /// database for as long as it is the same file, whatever its name then: the id of a tablespace. At most 256 bytes,
    /// not empty, and of only one stream among those [`found`](Self::found). `None`: the stream is always stored whole,
    /// and has no page map.
    ///
    /// This is all that an engine gives for differentials; it need not know whether one is made. The rule is about the
    /// *stored* bytes: in layer 0, units with the bytes of the full are left out; in higher layers, none is. So:
    /// - A torn page is read again *before* it is handed on.
    /// - Bytes that replace those of layer 0 are in a higher layer (a second reading of the same page, the log).
    /// - A log has no identity.
    /// - Bytes that are not sent at all are zero, as in a full.
    /// - A unit that is sent in part keeps its other bytes from the full.
    fn identity(&self, id: u32) -> Option<String> {
        let _ = id;
        None
    }

    /// The engine's own account of a stream of an open source, for the manifest: what it needs to know of the file
    /// later. The pipeline asks for it once everything has been read.
    fn detail(&self, id: u32) -> Option<serde_json::Value> {
        let _ = id;
        None
    }

    /// All streams, with their final names and sizes, once everything has been read.
    ///
    /// # Errors
    /// A stream cannot be described: it would be missing.
    fn found(&self) -> Result<Vec<Stream>> {
        Ok(self.streams().to_vec())
    }

    /// Reader number `index` of `count`; each is used by one thread until it is exhausted.
    /// The readers together deliver every byte of every stream exactly once.
    fn reader(&self, index: usize, count: usize) -> Result<Box<dyn Reader + '_>>;

    /// True when the unit at `offset` of `stream` is known to hold nothing that matters: it is not stored and
    /// comes back as zeros. May always answer false.
    fn is_free(&self, stream: u32, offset: u64) -> bool;

    /// Copies bytes of the snapshot from `offset` (a multiple of the unit) into the start of `buffer`, without a change
    /// in what the readers deliver; returns how many. For estimates; an engine that cannot do it answers 0.
    fn sample(&self, stream: u32, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let _ = (stream, offset, buffer);
        Ok(0)
    }

    /// Asked every 100 ms or so: an error ends the backup (the log grows past a limit, the server is gone).
    fn check(&self) -> Result<()>;
}

/// One reader's share of the source.
pub trait Reader: Send {
    /// Fills the start of `buffer` (aligned to 4096 bytes) with the next extent; `None` when there is no more. A reader
    /// that has the bytes in memory already may leave the buffer as it is, and [lend](Self::lent) them.
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>>;

    /// The bytes of the last extent, if they are not in the buffer. The pipeline keeps them until they are packed.
    fn lent(&mut self) -> Option<Piece> {
        None
    }

    /// How many of the bytes of the last [`next`](Self::next) needed no reading: free units, which it has made zero.
    /// They are part of the extent, but no throttle counts them.
    fn unread(&self) -> u64 {
        0
    }
}
