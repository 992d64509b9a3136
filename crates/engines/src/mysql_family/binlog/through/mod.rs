//! A log through a connection, into a running server: rows as BINLOG statements, everything else as the statements that they
//! were. [`target`] is the session of the server, for both ways: [`statements`] restores log sets, [`apply`] follows the log
//! of another server for `mysql_family/migration`.

pub mod apply;
pub mod batch;
mod groups;
pub mod guard;
pub mod settings;
pub(super) mod statements;
mod target;
mod values;
pub(super) mod xa;
