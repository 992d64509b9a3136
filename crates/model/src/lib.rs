//! What a machine can do: the throughput model, profiles of measured machines, estimates before a job and verdicts after
//! it. No job, no repository, no terminal.

pub mod estimate;
pub mod plan;
pub mod profile;
pub mod statistics;
pub mod svg;
pub mod throughput;
pub mod verdict;

pub use fullbore_core::{Error, Result};
