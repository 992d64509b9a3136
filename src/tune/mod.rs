//! What a machine can do, foreseen: the throughput model.

pub mod model;
