//! Seeded fault simulation of the data plane: a backup with something going wrong, then the world after it, then a
//! restore. The invariant: *the restore equals the snapshot, or the media set is refused with the reason.*
//!
//! A [`scenario`] is drawn from a seed. Its [`database`] is read by a real [`fullbore_core::pipeline::Backup`] into a
//! [`shelf`] of media in memory or in files, through sinks that fail as planned. Then [`damage`] happens to the media, and
//! [`read_back`] assembles, verifies and restores every set that is there. [`run`] judges what came of it, and the
//! [`statistics`] show what was exercised. A seed fixes what is drawn, not how the threads interleave.

pub mod damage;
pub mod database;
pub mod read_back;
pub mod run;
pub mod scenario;
pub mod shelf;
pub mod statistics;
pub mod watch;
pub mod write_set;
