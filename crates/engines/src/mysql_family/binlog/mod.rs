//! The binary logs of MySQL and MariaDB: log sets, and their way back into a server. `docs/engines/mysql-log.md` has the
//! rules.
//!
//! The way in: [`session::BinlogSession`] joins the server's log to the end of the predecessor ([`join`]), pulls events
//! over the replication protocol ([`dump`]) and checks each of them ([`walk`]). After a fail-over, GTIDs tell where the log of
//! the promoted server continues ([`fail_over`]). The way back: [`stage`] reads the sets
//! ([`events`]) up to the place to stop at ([`cut`]). It writes them as relay logs into a restored directory ([`relays`]), and
//! [`replay`] lets a private server apply them. Where no file of a server can be reached, it gives them to the running server as
//! statements ([`replay_into`]). [`through`] is the way through a connection, also for `mysql_family/migration`.

mod cut;
pub(super) mod dump;
pub mod end;
pub mod engine;
pub mod event;
mod events;
mod fail_over;
mod follow;
mod foreign;
pub mod gtid;
pub(super) mod join;
mod payload;
pub(super) mod preflight;
mod range;
pub(super) mod relays;
pub mod replay;
mod replay_into;
pub mod session;
pub(super) mod stage;
pub mod statement;
#[cfg(test)]
mod stage_tests;
pub mod through;
pub mod walk;
