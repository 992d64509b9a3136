//! What the values of a column are, before a type is chosen: one reading of all rows in the snapshot.

use fullbore_core::Result;
use rusqlite::types::ValueRef;

use super::kinds::Wish;
use super::values;
use crate::sqlite::outgoing::schema::Table;
use crate::sqlite::outgoing::{Outgoing, RowName};

/// About a column. A row is the first one with such a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// NULL.
    pub nulls: Option<RowName>,
    /// An integer.
    pub integers: Option<RowName>,
    /// A real number.
    pub reals: Option<RowName>,
    /// A text.
    pub texts: Option<RowName>,
    /// A blob.
    pub blobs: Option<RowName>,
    /// An integer that a DOUBLE does not hold.
    pub beyond_double: Option<RowName>,
    /// Infinity. SQLite stores no NaN.
    pub infinite: Option<RowName>,
    /// A text that is not UTF-8.
    pub not_utf8: Option<RowName>,
    /// A value that the declared type does not hold, and what it is.
    pub misfit: Option<(RowName, &'static str)>,
    /// The most characters of a text, or bytes of a blob.
    pub longest: u64,
    /// The most bytes of a value, and its row.
    pub largest: (u64, RowName),
    /// A time has a fraction of a second.
    pub has_fractions: bool,
    /// A time has a T between day and hour.
    pub has_t: bool,
}

/// About a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableFacts {
    /// Its rows.
    pub rows: u64,
    /// Bytes of its values, about as text.
    pub bytes: u64,
    /// About its columns.
    pub columns: Vec<Facts>,
}

impl TableFacts {
    /// Reads all rows.
    ///
    /// # Errors
    /// The database cannot be read, or the job is stopped.
    pub fn read(source: &Outgoing, table: &Table) -> Result<Self> {
        let wishes: Vec<Wish> = table.columns.iter().map(|column| Wish::of(&column.declared)).collect();
        let mut found = Self { columns: vec![Facts::default(); wishes.len()], ..Self::default() };
        source.rows(table, |row, values| {
            found.rows += 1;
            for ((facts, value), wish) in found.columns.iter_mut().zip(values).zip(&wishes) {
                found.bytes += 1 + facts.see(row, *value, *wish);
            }
            Ok(())
        })?;
        Ok(found)
    }
}

impl Facts {
    /// Looks at a value; gives its length as text.
    fn see(&mut self, row: RowName, value: ValueRef<'_>, wish: Wish) -> u64 {
        let first = |slot: &mut Option<RowName>| {
            slot.get_or_insert(row);
        };
        let length = match value {
            ValueRef::Null => {
                first(&mut self.nulls);
                2
            }
            ValueRef::Integer(value) => {
                first(&mut self.integers);
                if !values::is_exact(value) {
                    first(&mut self.beyond_double);
                }
                u64::from(value.unsigned_abs().checked_ilog10().unwrap_or(0)) + 1
            }
            ValueRef::Real(value) => {
                first(&mut self.reals);
                if !value.is_finite() {
                    first(&mut self.infinite);
                }
                12
            }
            ValueRef::Text(text) => {
                first(&mut self.texts);
                match std::str::from_utf8(text) {
                    Ok(text) => self.longest = self.longest.max(text.chars().count() as u64),
                    Err(_) => first(&mut self.not_utf8),
                }
                if wish == Wish::Moment {
                    self.has_fractions |= text.contains(&b'.');
                    self.has_t |= text.get(10) == Some(&b'T');
                }
                text.len() as u64
            }
            ValueRef::Blob(bytes) => {
                first(&mut self.blobs);
                self.longest = self.longest.max(bytes.len() as u64);
                bytes.len() as u64
            }
        };
        if length > self.largest.0 {
            self.largest = (length, row);
        }
        if self.misfit.is_none() {
            self.misfit = wish.misfit(value).map(|what| (row, what));
        }
        length
    }
}
