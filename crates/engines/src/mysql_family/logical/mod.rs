//! Tables as SQL text: read over an ordinary connection, row by row, and written as statements that the `mysql` client takes and
//! that give the same table, bit by bit.
//!
//! [`tables`] says which tables there are, [`columns`] how each value is asked for, [`literal`] how it is written, and [`dump`]
//! puts a table's text into buffers; [`load`] brings it back.

pub mod columns;
pub mod dump;
pub mod literal;
pub mod load;
pub mod names;
pub mod tables;

/// The folder of the texts in a restored directory. No server looks at it.
pub const FOLDER: &str = "#other-engines";
