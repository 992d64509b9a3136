//! Sources: what an engine offers to be read. Several readers work at once, each filling its own buffers.

use crate::error::Result;

/// A stream of a database: one file, the log, a table's dump. Restored under its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// The number that blocks carry, 1…65535.
    pub id: u16,
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
    pub stream: u16,
    /// Phase of the restore: a higher layer is applied after every lower one. Only an open source has others than 0, and
    /// gives a higher one only when the readers of all lower extents have been asked for their next.
    pub layer: u16,
    /// Where in the stream, in bytes; a multiple of the stream's unit.
    pub offset: u64,
    /// How many bytes: a multiple of the unit, except at the end of the stream.
    pub length: u32,
}

/// An open snapshot of a database. It stays consistent until it is dropped.
pub trait Source: Sync {
    /// All streams with their final sizes. Of an open source, what there was at the start: for estimates and progress.
    fn streams(&self) -> &[Stream];

    /// True when streams may appear, grow, get other names or vanish while the source is read. Then [`stream`](Self::stream)
    /// and [`found`](Self::found) say what there is.
    fn is_open(&self) -> bool {
        false
    }

    /// The stream with this number, as it is known now.
    fn stream(&self, id: u16) -> Option<Stream> {
        self.streams().iter().find(|stream| stream.id == id).cloned()
    }

    /// All streams, with their final names and sizes, once everything has been read.
    fn found(&self) -> Vec<Stream> {
        self.streams().to_vec()
    }

    /// Reader number `index` of `count`; each is used by one thread until it is exhausted.
    /// The readers together deliver every byte of every stream exactly once.
    fn reader(&self, index: usize, count: usize) -> Result<Box<dyn Reader + '_>>;

    /// True when the unit at `offset` of `stream` is known to hold nothing that matters: it is not stored and
    /// comes back as zeros. May always answer false.
    fn is_free(&self, stream: u16, offset: u64) -> bool;

    /// Copies bytes of the snapshot from `offset` (a multiple of the unit) into the start of `buffer`, without touching what the
    /// readers deliver; returns how many. For estimates; an engine that cannot do it answers 0.
    fn sample(&self, stream: u16, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let _ = (stream, offset, buffer);
        Ok(0)
    }

    /// Asked every 100 ms or so: an error ends the backup (the log grows past a limit, the server is gone).
    fn check(&self) -> Result<()>;
}

/// One reader's share of the source.
pub trait Reader: Send {
    /// Fills the start of `buffer` (aligned to 4096 bytes) with the next extent; `None` when there is no more.
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>>;
}
