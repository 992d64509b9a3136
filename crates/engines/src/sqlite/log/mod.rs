//! Log backups: the frames of the write-ahead log between two commits, in order, and their way back.
//!
//! [`session`] makes a log set from where its predecessor ended ([`end`]) to now, [`follow`] keeps the log from losing frames
//! between one set and the next, [`apply`] puts the frames of a set ([`group`]) over the pages of a restored database. How nothing is lost
//! stands in `docs/engines/sqlite-log.md`, what a set holds in MEDIA_FORMAT §11.

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
