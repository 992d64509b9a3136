//! MySQL and MariaDB: the connection to a server, what is asked before a backup, and MySQL's CLONE protocol.
//!
//! The way in: a [`url::ServerAddress`] and [`credentials::Credentials`] give a [`connection::Connection`]; [`preflight`]
//! asks whether a backup can work; [`clone::donor::Donor`] begins a clone, and [`source::run`] stores it.

pub mod clone;
pub mod connection;
pub mod credentials;
pub mod left_out;
pub mod log;
pub mod position;
pub mod preflight;
pub mod redo_copy;
pub mod restore;
pub mod session;
pub mod source;
pub mod url;
