//! MariaDB, on real servers (`tests/servers/install`): hot copies under load, started again and checked.

#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod client;
mod conformance;
mod directory;
mod imported;
mod live;
mod pages;
mod refusals;
mod restored;
#[path = "../suites/restorer.rs"]
mod restorer;
#[path = "../suites/server_restorer.rs"]
mod server_restorer;
mod tablespaces;
mod workload;
