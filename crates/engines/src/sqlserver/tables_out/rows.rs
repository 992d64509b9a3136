//! The rows of a table, one after the other.

use super::super::super::engine::Cell;
use super::chain::{heap_pages, leaf_pages};
use super::collation::CodePages;
use super::column::{Column, ValuePlace};
use super::compressed_record::CompressedRecord;
use super::compressed_value;
use super::data_files::DataFiles;
use super::data_page::DataPage;
use super::definitions::Partition;
use super::page_dictionary::PageDictionary;
use super::record::{Record, RecordKind, Variable, record_kind};
use super::{Decoded, Trouble, lob, sparse, unknown, value, variant};

/// Decodes the rows of one database.
pub struct RowReader<'a> {
    /// The pages.
    pub files: &'a DataFiles,
    /// The code pages.
    pub pages: &'a CodePages,
}

impl RowReader<'_> {
    /// Gives each row of a partition: the cells of `columns`, in this order.
    ///
    /// # Errors
    /// A row has a form that is not known; damage; the error of `each`.
    pub fn read(
        &self,
        partition: &Partition,
        columns: &[&Column],
        each: &mut dyn FnMut(&[Cell]) -> Decoded<()>,
    ) -> Decoded<()> {
        let Some(unit) = &partition.unit else { return Ok(()) };
        let mut cells = Vec::with_capacity(columns.len());
        let mut page_rows = |page: &DataPage| {
            let place = format!("page {}:{}", page.id.file, page.id.page);
            self.page(page, partition, columns, &mut cells, each).map_err(|trouble| trouble.at(place))
        };
        match partition.is_heap {
            true => heap_pages(self.files, unit, &mut page_rows),
            false => leaf_pages(self.files, unit, &mut page_rows),
        }
    }

    fn page(
        &self,
        page: &DataPage,
        partition: &Partition,
        columns: &[&Column],
        cells: &mut Vec<Cell>,
        each: &mut dyn FnMut(&[Cell]) -> Decoded<()>,
    ) -> Decoded<()> {
        let dictionary = match partition.compression {
            2 => PageDictionary::of(page)?,
            _ => None,
        };
        for (slot, bytes) in page.records()? {
            for cell in cells.drain(..) {
                if let Cell::Text(text) = cell {
                    self.pages.recycle(text);
                }
            }
            let is_row = match partition.compression {
                0 => self.plain(bytes, columns, cells),
                _ => self.compressed(bytes, partition, dictionary.as_ref(), columns, cells),
            };
            if is_row.map_err(|trouble| trouble.at(format!("row {slot}")))? {
                each(cells)?;
            }
        }
        Ok(())
    }

    /// True if the record is a row; then `cells` has its cells.
    fn plain(&self, bytes: &[u8], columns: &[&Column], cells: &mut Vec<Cell>) -> Decoded<bool> {
        if bytes.first().is_some_and(|status| status & 1 != 0) {
            return unknown("a compressed row is in a table without compression");
        }
        match record_kind(bytes)? {
            // A row that was moved is read where it is now.
            RecordKind::Row | RecordKind::Forwarded => {}
            RecordKind::Stub | RecordKind::Ghost => return Ok(false),
            other => return unknown(format!("a record is a {other:?} and not a row")),
        }
        let record = Record::parse(bytes)?;
        let has_sparse = columns.iter().any(|column| column.place == ValuePlace::Sparse);
        let vector = if has_sparse { sparse::vector(&record)? } else { None };
        for column in columns {
            let cell = self.plain_cell(&record, vector, column);
            cells.push(cell.map_err(|trouble| trouble.at(format!("column {}", column.id)))?);
        }
        Ok(true)
    }

    fn plain_cell(&self, record: &Record<'_>, vector: Option<&[u8]>, column: &Column) -> Decoded<Cell> {
        if column.place == ValuePlace::Sparse {
            let bytes = vector.map(|vector| sparse::value(vector, column.id)).transpose()?.flatten();
            return bytes.map_or(Ok(Cell::Null), |bytes| value::cell(&column.stored, bytes, self.pages));
        }
        match column.null_bit {
            Some(bit) if record.is_missing(bit) => return self.older_than(column),
            Some(bit) if record.is_null(bit) => return Ok(Cell::Null),
            _ => {}
        }
        match column.place {
            ValuePlace::Fixed(offset) => {
                let length = column.stored.fixed_length().unwrap_or(0);
                match record.fixed(offset, length) {
                    Some(bytes) => value::cell(&column.stored, bytes, self.pages),
                    None => unknown("it is behind the columns of fixed length"),
                }
            }
            ValuePlace::Bit(offset, bit) => match record.fixed(offset, 1) {
                Some(byte) => Ok(Cell::Bool(byte.iter().any(|byte| byte >> bit & 1 == 1))),
                None => unknown("it is behind the columns of fixed length"),
            },
            ValuePlace::Variable(index) => self.variable(column, record.variable(index)?),
            ValuePlace::Sparse => Ok(Cell::Null),
        }
    }

    fn variable(&self, column: &Column, found: Option<Variable<'_>>) -> Decoded<Cell> {
        let Some(found) = found else { return value::cell(&column.stored, &[], self.pages) };
        if column.stored.is_text_pointer() && found.bytes.len() == lob::TEXT_POINTER {
            let bytes = lob::of_text_pointer(self.files, found.bytes)?;
            return value::cell(&column.stored, &bytes, self.pages);
        }
        if found.is_complex {
            let bytes = lob::of_inline_root(self.files, found.bytes)?;
            return value::cell(&column.stored, &bytes, self.pages);
        }
        if column.stored.fixed_length().is_some() {
            // The vardecimal storage format of SQL Server 2005 SP2.
            return compressed_value::vardecimal(&column.stored, found.bytes);
        }
        value::cell(&column.stored, found.bytes, self.pages)
    }

    /// The value of a column in a row that is older than the column.
    fn older_than(&self, column: &Column) -> Decoded<Cell> {
        match &column.default {
            Some(default) if default.is_empty() => unknown("its default for older rows is outside of its row"),
            Some(default) => variant::cell(default, self.pages),
            None if column.not_null => unknown("an older row has no value for it, and no default is stored"),
            None => Ok(Cell::Null),
        }
    }

    /// The same for a row with ROW or PAGE compression.
    fn compressed(
        &self,
        bytes: &[u8],
        partition: &Partition,
        dictionary: Option<&PageDictionary<'_>>,
        columns: &[&Column],
        cells: &mut Vec<Cell>,
    ) -> Decoded<bool> {
        let record = CompressedRecord::parse(bytes)?;
        if !record.is_row()? {
            return Ok(false);
        }
        if record.columns() > partition.stored_columns {
            return unknown(format!(
                "it has {} columns, and the table has {}",
                record.columns(),
                partition.stored_columns
            ));
        }
        for column in columns {
            let cell = self.compressed_cell(&record, dictionary, column);
            cells.push(cell.map_err(|trouble: Trouble| trouble.at(format!("column {}", column.id)))?);
        }
        Ok(true)
    }

    fn compressed_cell(
        &self,
        record: &CompressedRecord<'_>,
        dictionary: Option<&PageDictionary<'_>>,
        column: &Column,
    ) -> Decoded<Cell> {
        if column.place == ValuePlace::Sparse {
            return unknown("a sparse column is in a compressed row");
        }
        let Some(packed) = record.value(column.ordinal) else { return self.older_than(column) };
        compressed_value::cell(self.files, self.pages, column, packed, dictionary)
    }
}
