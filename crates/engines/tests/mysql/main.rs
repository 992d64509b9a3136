//! MySQL and MariaDB against real servers: they must be installed (`tests/servers/install`).
#![allow(clippy::unwrap_used, clippy::print_stderr, missing_docs)]

mod clone_target;
mod conformance;
mod copies;
mod directory;
mod interrupted;
mod load;
mod login;
mod refusals;
#[path = "../suites/restorer.rs"]
mod restorer;
#[path = "../suites/server_restorer.rs"]
mod server_restorer;

use fullbore_core::Result;
use fullbore_core::halt::Halt;
use fullbore_engines::mysql::clone::donor::{Donor, DonorOptions};
use fullbore_engines::mysql::clone::message::Ddl;
use fullbore_engines::mysql_family::credentials::Credentials;
use fullbore_engines::mysql_family::url::ServerAddress;
use fullbore_test_servers::{Server, wait_until};

/// The server's address over TCP, with options such as `ssl-mode=required`.
fn address(server: &Server, options: &str) -> ServerAddress {
    ServerAddress::parse(&format!("mysql://{}:{}/?{options}", server.host(), server.port())).unwrap()
}

/// The account that may do everything.
fn root(server: &Server) -> Credentials {
    Credentials::new(server.user(), server.password().as_bytes()).unwrap()
}

fn begin(server: &Server, options: &str, tasks: usize, halt: &Halt) -> Result<Donor> {
    let how = DonorOptions { tasks, ddl: Ddl::Runs, halt: halt.clone() };
    Donor::begin(&address(server, options), &root(server), &how)
}

/// The donor is clean: within some seconds no session of a clone is left, and another clone can begin and is given up
/// again.
fn assert_clean(server: &Server) {
    drop(begin(server, "", 2, &Halt::new()).unwrap());
    wait_until("no session of a clone is left", || !server.sql("SHOW PROCESSLIST").to_lowercase().contains("clone"));
}
