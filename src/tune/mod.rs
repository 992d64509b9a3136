//! What a machine can do: foreseen by the throughput model, and measured before.

pub mod calibrate;
pub mod estimate;
pub mod model;
pub mod plan;
pub mod profile;
pub mod statistics;
pub mod verdict;
