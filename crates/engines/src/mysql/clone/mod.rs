//! MySQL's CLONE protocol, from the recipient's side: the server sends its InnoDB files over several connections.
//!
//! [`donor::Donor`] is a clone that has begun; its [`task::Task`]s give events and bytes, each in a thread of its own.
//! [`super::source`] runs them into something that stores. The protocol is specified in `docs/engines/mysql-clone.md`.

pub mod descriptor;
pub mod donor;
pub mod encryption;
pub mod files;
pub mod message;
pub mod names;
pub mod page_zero;
mod progress;
pub mod task;
