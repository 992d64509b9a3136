//! MariaDB, 10.11 and 11.x: physically, from the files of a running server. `docs/engines/mariadb-hot-copy.md` has the
//! formats and the rules.
//!
//! The way in: [`session::MariadbSession`] asks the server ([`preflight`]), and begins a [`hot_copy`] with its first
//! reader.

pub mod engine;
pub mod hot_copy;
mod redo_follower;
pub mod position;
pub mod preflight;
pub mod redo;
pub mod restore;
pub mod session;
mod source;
pub(crate) mod undo_length;
