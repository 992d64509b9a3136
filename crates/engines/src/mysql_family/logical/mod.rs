//! Tables as SQL text: read over an ordinary connection, row by row, and written as statements for the `mysql` client
//! that make the same table, bit by bit.
//!
//! [`tables`] lists the tables, [`columns`] has the query for each value, [`literal`] writes a value, [`dump`] puts a
//! table's text into buffers, and [`load`] loads it.

pub mod columns;
pub mod dump;
pub mod literal;
pub mod load;
pub mod names;
pub mod tables;

/// The folder of the texts in a restored directory. Servers ignore it.
pub const FOLDER: &str = "#other-engines";
