//! fullbore as a library: jobs, reports and calibration. `fullbore-core` moves the bytes, `fullbore-engines` knows the
//! databases, `fullbore-repository` knows which sets there are, `fullbore-model` estimates and judges.
//!
//! The command line, and later a scheduler, calls a [`job`]: [`job::backup`], [`job::restore`], [`job::verify`],
//! [`job::inspect`]. Each fills a [`report::Report`] while it runs, so that a failed job has a report too.

pub mod calibrate;
pub mod job;
pub mod report;

pub use fullbore_core::{Error, Result, units};
pub use fullbore_repository::{catalog, chain, config, ids};
