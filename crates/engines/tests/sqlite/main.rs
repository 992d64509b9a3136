//! The SQLite engine against real databases with real writers in other processes.
#![allow(clippy::unwrap_used, missing_docs)]

mod child;
mod conformance;
mod copy;
mod free_pages;
mod large;
mod live;
mod log;
#[path = "../suites/log_engine.rs"]
mod log_engine;
mod modes;
mod publish;
mod refusals;
#[path = "../suites/restorer.rs"]
mod restorer;
mod restorer_conformance;

#[test]
fn the_bundled_sqlite_has_the_fix_of_the_wal_reset_bug() {
    assert!(rusqlite::version_number() >= 3_051_003, "SQLite {} can corrupt databases", rusqlite::version());
}

/// Not a test: the action of the test binary when [`child::Child`] starts it again.
#[test]
fn child_process() {
    if std::env::var_os(child::ROLE).is_some() {
        child::serve();
    }
}
