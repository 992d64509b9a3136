//! MySQL and MariaDB: the connection to a server, what is asked before a backup, and MySQL's CLONE protocol.
//!
//! The way in: a [`url::ServerAddress`] and [`credentials::Credentials`] give a [`connection::Connection`]; [`preflight`]
//! asks whether a backup can work; `clone` is the conversation with the server that gives its files.

pub mod connection;
pub mod credentials;
pub mod url;
