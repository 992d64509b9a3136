//! Jobs: the work of commands, callable from anywhere. A job prints nothing: it fills a report and counters.

pub mod backup;
pub mod copy;
pub mod estimate;
pub mod export;
pub mod foreign;
pub mod gateway;
pub mod inspect;
pub mod keys;
pub mod limit;
pub mod migrate;
pub mod follow;
pub mod reading;
pub mod repository;
pub mod restore;
pub mod server;
pub mod unpack;
pub mod uploaded;
pub mod verify;

mod space;
mod exclusive;
mod database_files;
mod into_directory;
mod names;
mod recover;
mod samples;
mod stored_tables;
mod stripes;
