//! MySQL: the checks before a backup, and the CLONE protocol.
//!
//! [`preflight`] asks over a connection ([`crate::mysql_family`]) whether a backup can work. [`clone::donor::Donor`]
//! begins a clone, and [`session`] stores it. [`other_engines`] stores the tables that a clone leaves out, as SQL text.

pub mod clone;
pub mod engine;
mod here;
pub mod left_out;
pub mod other_engines;
pub mod position;
pub mod preflight;
pub mod redo_copy;
pub mod redo_position;
pub mod restore;
pub mod session;
pub mod standstill;
