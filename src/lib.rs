//! fullbore as a library: what to do, when, and what we know about it. The bytes are moved by `fullbore-core`, the
//! databases are known by `fullbore-engines`.
//!
//! A [`job`] is what the command line, and later a scheduler, calls: [`job::backup`], [`job::restore`],
//! [`job::verify`], [`job::inspect`]. Each fills a [`report::Report`] as it goes, so that a failed job has one too.

pub mod bench;
pub mod catalog;
pub mod chain;
pub mod config;
pub mod ids;
pub mod job;
pub mod report;
pub mod repository;
pub mod tune;
pub mod units;
mod xml;

pub use fullbore_core::{Error, Result};
