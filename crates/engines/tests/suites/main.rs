//! The suites of seams that several engines have, and an engine in memory that passes them.
#![allow(clippy::unwrap_used, missing_docs)]

mod log_engine;
mod memory;
mod memory_restorer;
mod restorer;

#[test]
fn an_engine_with_lsns_and_timelines_conforms() {
    log_engine::log_engine_conforms(memory::Memory::new);
}

#[test]
fn an_engine_in_memory_conforms_as_one_that_restores() {
    restorer::restorer_conforms(memory::Memory::new);
}
