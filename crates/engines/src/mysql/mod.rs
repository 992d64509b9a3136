//! MySQL and MariaDB: the connection to a server, what is asked before a backup, and MySQL's CLONE protocol.
//!
//! The way in: a [`url::ServerAddress`] and [`credentials::Credentials`] give a [`connection::Connection`]; [`preflight`]
//! asks whether a backup can work; [`clone::donor::Donor`] begins a clone, and [`source::run`] stores it. What a clone leaves out,
//! [`other_engines`] stores beside it, as the text that [`logical`] makes.

pub mod clone;
pub mod connection;
pub mod credentials;
pub mod engine;
mod here;
pub mod left_out;
pub mod log;
pub mod logical;
pub mod other_engines;
pub mod position;
pub mod preflight;
pub mod redo_copy;
pub mod restore;
pub mod session;
pub mod source;
pub mod standstill;
pub mod url;
