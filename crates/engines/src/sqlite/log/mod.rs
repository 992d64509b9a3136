//! Log backups: the frames of the write-ahead log between two commits, in order, and their restore.
//!
//! [`session`] makes a log set from the end of its predecessor ([`end`]) to now. [`follow`] prevents the log from
//! losing frames between two sets. [`apply`] writes the frames of a set ([`group`]) over the pages of a restored
//! database. See `docs/engines/sqlite-log.md` for the proof that nothing is lost, and MEDIA_FORMAT §11 for the content
//! of a set.

pub mod end;
pub mod group;

mod apply;
mod engine;
mod follow;
mod join;
mod look;
mod range;
mod session;
mod stretch;

pub use end::{End, LogEnd};
