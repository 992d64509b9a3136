//! SQLite: a consistent physical snapshot of a live database file, and its safe return.
//!
//! [`source`] holds a read transaction and lets several threads read what it sees: the database file, overlaid
//! with the frames of the write-ahead [`log`]. [`position`] says which state that was, [`restore`] puts a restored file
//! under its name, [`log_backup`] stores the log between two of them, [`digest`] proves that two databases hold the same rows. What is locked, and for how long, stands in
//! `docs/engines/sqlite.md`. The parsers ([`header`], [`log`], [`wal_index`], [`freelist`], [`btree`]) take bytes and trust
//! none of them.

pub mod btree;
pub mod digest;
pub mod engine;
pub mod frame_map;
pub mod freelist;
pub mod header;
pub mod integrity;
pub mod log;
pub mod log_backup;
pub mod position;
pub mod restore;
pub mod source;
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
