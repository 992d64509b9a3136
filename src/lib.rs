//! fullbore as a library: jobs, repositories, reports and estimates. `fullbore-core` moves the bytes,
//! `fullbore-engines` knows the databases.
//!
//! The command line, and later a scheduler, calls a [`job`]: [`job::backup`], [`job::restore`], [`job::verify`],
//! [`job::inspect`]. Each fills a [`report::Report`] while it runs, so that a failed job has a report too.

pub mod bench;
pub mod catalog;
pub mod chain;
pub mod config;
pub mod ids;
pub mod job;
pub mod report;
pub mod repository;
pub mod svg;
pub mod tune;
pub mod units;

pub use fullbore_core::{Error, Result};
