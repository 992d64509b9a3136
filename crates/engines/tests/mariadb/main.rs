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
mod tablespaces;
mod workload;
