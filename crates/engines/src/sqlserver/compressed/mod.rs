//! Compressed backups of SQL Server: from an MSSQLBAK container to the plain MTF stream, byte for byte.
//!
//! ```text
//! container ─► record ─► worker: checksum, XPRESS Huffman ─► plain MTF stream, in order
//!          └► soft filemark, as it is ──────────────────────┘
//! ```
//! [`xpress`] unpacks one block. [`Container`] finds the records. [`PlainStream`] unpacks them on several threads.

mod block;
mod container;
mod plain_stream;
mod record;
#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "testkit"))]
mod writer;
pub mod xpress;

pub use block::Block;
pub use container::{Container, filemark_length, header_checksum};
pub use plain_stream::PlainStream;
pub use record::{MAGIC, checksum};
#[cfg(any(test, feature = "testkit"))]
pub use writer::Writer;
