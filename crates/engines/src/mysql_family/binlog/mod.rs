//! The binary logs of MySQL and MariaDB: log sets, and their way back into a server. `docs/engines/mysql-log.md` has the
//! rules.
//!
//! The way in: [`session::BinlogSession`] joins the server's log to the end of the predecessor ([`join`]), pulls events
//! over the replication protocol ([`dump`]) and checks each of them ([`walk`]). The way back: [`stage`] writes the sets
//! as relay logs into the restored directory, and [`replay`] lets a private server apply them. Where no file of a server can
//! be reached, [`apply`] applies events through a connection; `mysql_family/migration` does so with the
//! log of another server as it grows.

pub mod end;
pub mod apply;
pub(super) mod dump;
pub mod engine;
pub mod event;
mod follow;
pub mod gtid;
pub(super) mod join;
mod payload;
pub(super) mod preflight;
mod range;
pub mod replay;
pub mod session;
mod stage;
pub mod statement;
#[cfg(test)]
mod stage_tests;
pub mod walk;
