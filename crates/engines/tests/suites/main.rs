//! The suites of seams that several engines have, and an engine in memory that passes them.
#![allow(clippy::unwrap_used, missing_docs)]

mod log_engine;
mod memory;

#[test]
fn an_engine_with_lsns_and_timelines_conforms() {
    log_engine::log_engine_conforms(memory::Memory::new);
}
