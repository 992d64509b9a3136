//! SQLite: a consistent physical snapshot of a live database file, and its safe restore.
//!
//! [`source`] holds a read transaction. Several threads read what it sees: the database file, overlaid with the frames
//! of the write-ahead log ([`wal`]). [`position`] identifies this state. [`restore`] puts a restored file under its
//! name. [`log`] backs up the log between two states. [`digest`] proves that two databases hold the same rows.
//! [`outgoing`] gives its tables to a server of another engine.
//! `docs/engines/sqlite.md` lists the locks and how long they are held. The parsers ([`header`], [`wal`],
//! [`wal_index`], [`freelist`], [`btree`]) do not trust their bytes.

pub mod btree;
pub mod digest;
pub mod engine;
pub mod frame_map;
pub mod freelist;
pub mod header;
pub mod integrity;
pub mod log;
pub mod outgoing;
pub mod position;
pub mod restore;
pub mod source;
mod tables_out;
pub mod wal;
pub mod wal_index;

mod connection;
mod database_file;
mod foreign_writes;
mod geometry;
mod image;
mod leftover;
mod open_files;
mod overlay;
mod probe;

pub use digest::{Digest, content_digest};
pub use position::Position;
pub use source::Snapshot;
