//! Rows out of the pages of a SQL Server database, without a server.
//!
//! ```text
//! data_files ─► data_page ─► record, compressed_record ─► raw ─► value ─► Cell
//!                   ▲                                      ▲
//!   chain (IAM pages, leaf pages)                 lob (values outside of the row)
//! ```
//!
//! | to understand | read |
//! |---|---|
//! | pages by their place | [`data_files`], [`data_page`] |
//! | which pages a table has | [`system_tables`] (the catalog), [`chain`] (heaps and leaf levels) |
//! | tables and columns | [`definitions`], [`column`], [`types`] |
//! | bytes of one row | [`record`]; [`compressed_record`], [`page_dictionary`] for ROW and PAGE compression; [`sparse`] |
//! | values | [`value`], [`compressed_value`], [`date_time`], [`variant`], [`binary_xml`], [`collation`], [`scsu`], [`lob`] |
//! | the seam to the rest of the program | [`tables`] |
//!
//! `docs/BAK_FORMAT.md` says what is verified and what is published. Anything else is [`Trouble::Unknown`]: the table is
//! refused, and no value is guessed.

mod binary_xml;
pub mod chain;
pub mod collation;
pub mod column;
pub mod compressed_record;
pub mod compressed_value;
pub mod data_files;
pub mod data_page;
pub mod date_time;
pub mod definitions;
pub mod lob;
mod oem_pages;
pub mod page_dictionary;
pub mod record;
pub mod rows;
pub mod scsu;
pub mod sparse;
pub mod system_tables;
pub mod tables;
pub mod types;
pub mod value;
pub mod variant;
#[cfg(any(test, feature = "testkit"))]
pub mod sample_database;
#[cfg(any(test, feature = "testkit"))]
pub mod writer;

#[cfg(test)]
mod compressed_tests;
#[cfg(test)]
mod tests;

use fullbore_core::Error;

/// Why bytes did not become values.
#[derive(Debug)]
pub enum Trouble {
    /// They have a form that is not known here: the table is refused.
    Unknown(String),
    /// Damage, or a file that cannot be read: the job ends.
    // In a box: a result is moved with every value, and should be small.
    Failed(Box<Error>),
}

/// The result of decoding.
pub type Decoded<T> = Result<T, Trouble>;

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// A form that is not known.
pub fn unknown<T>(what: impl Into<String>) -> Decoded<T> {
    Err(Trouble::Unknown(what.into()))
}

impl Trouble {
    /// The same trouble, with the place where it was found.
    #[must_use]
    pub fn at(self, place: impl std::fmt::Display) -> Self {
        match self {
            Self::Unknown(what) => Self::Unknown(format!("{place}: {what}")),
            failed @ Self::Failed(_) => failed,
        }
    }
}

/// A field of bytes that may be too short.
fn field<T>(read: super::fields::Parsed<T>) -> Decoded<T> {
    read.map_err(|_| Trouble::Unknown("it is shorter than its fields".to_owned()))
}
