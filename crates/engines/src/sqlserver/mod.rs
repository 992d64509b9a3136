//! SQL Server's backup files (`.bak`, `.trn`), read without a server (`docs/BAK_FORMAT.md` has the format); and servers
//! that run their backups themselves.
//!
//! | to understand | read |
//! |---|---|
//! | the stream from its first byte to its last | [`walk`], which gives [`walk::Event`]s |
//! | bytes that come from a device | [`opened`], [`input`]; [`compressed`] unpacks families of WITH COMPRESSION |
//! | blocks and streams of MTF | [`block`], [`stream`], [`fields`] |
//! | the content of blocks | [`label`] (TAPE, RAID), [`set`] (SSET, VOLB), [`configuration`] (MQCI), [`log_range`] (MSTL) |
//! | checksums | [`backup_checksum`] (CSUM), [`page`] (pages of a database) |
//! | families of one media set | [`media`] |
//! | which points in time can be restored | [`points`] |
//! | HEADERONLY, FILELISTONLY, LABELONLY | [`tables`] |
//! | `verify` | [`verify`], [`page_judge`] (which pages are damage), [`allocation`] (which are in use), [`allocation_maps`] (GAM, SGAM and IAM), [`missing_extents`] and [`extent_set`] (which extents are there), [`unchecked_pages`], [`coverage`] |
//! | sets that hold backup files | [`survey`] (the place of each extent), [`position`] (their names), [`stored_chain`] (which others a restore needs), [`engine`] |
//! | `restore` | [`restore`], [`chain`] (which sets), [`room`] (sizes that can be), [`database_files`] (pages and log at their places) |
//! | `export` | [`tables_out`] (pages, records, values) |
//! | a server that runs its backups itself (`mssql://`) | [`server`] |
//! | the seam to the rest of the program | [`foreign`] |
//!
//! All of it is written from the public MTF 1.00a specification and from what genuine files show.

pub mod allocation;
pub mod allocation_maps;
pub mod backup_checksum;
mod chain;
pub mod block;
pub mod compressed;
pub mod configuration;
pub mod coverage;
pub mod database_files;
pub mod engine;
mod extent_set;
pub mod fields;
pub mod foreign;
pub mod input;
pub mod label;
#[cfg(any(test, feature = "testkit"))]
pub mod large_backup;
pub mod log_range;
pub mod lsn;
pub mod media;
mod missing_extents;
pub mod opened;
pub mod page;
pub mod page_judge;
mod points;
pub mod position;
pub mod restore;
mod room;
pub mod server;
pub mod set;
mod stored_chain;
pub mod stream;
pub mod survey;
pub mod tables;
pub mod tables_out;
mod unchecked_pages;
pub mod verify;
pub mod walk;
#[cfg(any(test, feature = "testkit"))]
pub mod writer;

#[cfg(test)]
mod tests;
