//! A Parquet file: rows are collected to a group, and a thread writes the group column by column while the next one is
//! collected.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;
use fullbore_core::{Error, Result, threads};
use fullbore_engines::{Cell, ColumnKind, Day, TimeOfDay};
use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;

use super::parquet_schema::{Form, Unit, decimal_bytes, schema};
use super::{Columns, cell_text, shown};

/// Most rows of a group, and most bytes of their values. Two groups are in memory: one is collected, one is written.
const GROUP_ROWS: usize = 100_000;
const GROUP_BYTES: usize = 16 << 20;
/// Units of 100 nanoseconds in a second.
const TICKS_PER_SECOND: i64 = 10_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// A column needs another form: the table is to be read again.
#[derive(Debug, Clone, Copy)]
pub struct Again {
    /// The place of the column.
    pub column: usize,
}

/// A file that is being written.
pub struct ParquetFile {
    columns: Vec<Collected>,
    rows: usize,
    bytes: usize,
    thread: WriterThread,
}

/// The thread that writes groups. A drop waits for its end: then nobody writes to the file any more.
struct WriterThread {
    groups: Option<SyncSender<Vec<Collected>>>,
    handle: Option<JoinHandle<Result<()>>>,
}

/// The cells of one column in a group.
struct Collected {
    form: Form,
    kind: ColumnKind,
    nullable: bool,
    /// 1 for a value, 0 for NULL.
    levels: Vec<i16>,
    values: Values,
    /// The offsets of zones.
    offsets: Vec<i32>,
}

enum Values {
    Bool(Vec<bool>),
    Int(Vec<i32>),
    Long(Vec<i64>),
    Real(Vec<f32>),
    Float(Vec<f64>),
    Bytes(Joined),
    Fixed(Joined),
}

/// Values of several bytes, one behind the other: many small values need no memory of their own.
#[derive(Default)]
struct Joined {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Joined {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
    }

    /// Pushes what `write` appends; gives its bytes.
    fn push_text(&mut self, cell: &Cell, kind: ColumnKind) -> usize {
        if let Cell::Text(text) = cell {
            self.push(text.as_bytes());
            return text.len();
        }
        let text = cell_text::text(cell, kind);
        self.push(text.as_bytes());
        text.len()
    }

    fn into_arrays(self) -> Vec<ByteArray> {
        let (all, mut begin) = (Bytes::from(self.bytes), 0);
        let array = |end: usize| ByteArray::from(all.slice(std::mem::replace(&mut begin, end)..end));
        self.ends.into_iter().map(array).collect()
    }
}

impl ParquetFile {
    /// Makes the file. `forms` has one form for each column.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(path: &Path, columns: &Columns<'_>, forms: &[Form]) -> Result<Self> {
        let name = shown(path);
        let file = File::create(path).map_err(|e| Error::io("make", name.as_str(), e))?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = schema(columns, forms)
            .and_then(|schema| SerializedFileWriter::new(file, schema, Arc::new(properties)))
            .map_err(|e| failed(&name, &e))?;
        let collected = |(column, form): (&&fullbore_engines::TableColumn, &Form)| Collected {
            form: *form,
            kind: column.kind,
            nullable: column.nullable,
            levels: Vec::new(),
            values: Values::of(*form),
            offsets: Vec::new(),
        };
        let columns = columns.iter().zip(forms).map(collected).collect();
        Ok(Self { columns, rows: 0, bytes: 0, thread: WriterThread::start(writer, name)? })
    }

    /// Takes one row. If a value does not fit into the form of its column, the result names the column.
    ///
    /// # Errors
    /// NULL is in a column without NULLs; the file cannot be written.
    pub fn row(&mut self, cells: &[Cell]) -> Result<Option<Again>> {
        for (place, (cell, column)) in cells.iter().zip(&mut self.columns).enumerate() {
            if matches!(cell, Cell::Null) {
                if !column.nullable {
                    let why = "NULL is in a column that is NOT NULL";
                    return Err(Error::refused("a table", why, "use --format csv"));
                }
                column.levels.push(0);
                continue;
            }
            match column.push(cell) {
                Some(bytes) => self.bytes += bytes,
                None => return Ok(Some(Again { column: place })),
            }
            if column.nullable {
                column.levels.push(1);
            }
        }
        self.rows += 1;
        if self.rows >= GROUP_ROWS || self.bytes >= GROUP_BYTES {
            self.write_group()?;
        }
        Ok(None)
    }

    fn write_group(&mut self) -> Result<()> {
        (self.rows, self.bytes) = (0, 0);
        let next = self.columns.iter().map(Collected::next).collect();
        self.thread.write(std::mem::replace(&mut self.columns, next))
    }

    /// Writes the last group and the footer.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(mut self) -> Result<()> {
        if self.rows > 0 {
            self.write_group()?;
        }
        self.thread.end()
    }
}

impl WriterThread {
    fn start(mut writer: SerializedFileWriter<File>, name: String) -> Result<Self> {
        let (groups, next) = sync_channel::<Vec<Collected>>(0);
        let handle = threads::start("Parquet writer", move || {
            let write = || {
                next.iter().try_for_each(|columns| write_group(&mut writer, columns))?;
                writer.close().map(|_| ())
            };
            write().map_err(|e: ParquetError| failed(&name, &e))
        })?;
        Ok(Self { groups: Some(groups), handle: Some(handle) })
    }

    /// Waits until the group before is written.
    fn write(&mut self, columns: Vec<Collected>) -> Result<()> {
        match self.groups.as_ref().map(|groups| groups.send(columns)) {
            Some(Ok(())) => Ok(()),
            // It ends early with an error only.
            _ => self.end().and(Err(Error::Halted)),
        }
    }

    fn end(&mut self) -> Result<()> {
        self.groups = None;
        match self.handle.take().map(JoinHandle::join) {
            Some(Ok(done)) => done,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        self.groups = None;
        let _ = self.handle.take().map(JoinHandle::join); // The file is given up: its error does not matter.
    }
}

fn failed(name: &str, error: &ParquetError) -> Error {
    Error::io("write", name, std::io::Error::other(error.to_string()))
}

fn write_group(writer: &mut SerializedFileWriter<File>, columns: Vec<Collected>) -> Result<(), ParquetError> {
    let mut group = writer.next_row_group()?;
    for column in columns {
        let levels = column.nullable.then_some(&column.levels[..]);
        let mut next = group.next_column()?.ok_or_else(|| ParquetError::General("a column is missing".into()))?;
        column.values.write(next.untyped(), levels)?;
        next.close()?;
        if let Form::Zoned(_) = column.form {
            let mut next = group.next_column()?.ok_or_else(|| ParquetError::General("a column is missing".into()))?;
            Values::Int(column.offsets).write(next.untyped(), levels)?;
            next.close()?;
        }
    }
    group.close().map(|_| ())
}

impl Collected {
    /// The same column, for the next group, with room for as many values.
    fn next(&self) -> Self {
        let levels = Vec::with_capacity(self.levels.len());
        Self { levels, values: Values::of(self.form), offsets: Vec::new(), ..*self }
    }

    /// Takes a value; gives its bytes. `None` if it does not fit into the form.
    fn push(&mut self, cell: &Cell) -> Option<usize> {
        match (&mut self.values, self.form, cell) {
            (Values::Bool(all), _, Cell::Bool(value)) => all.push(*value),
            (Values::Int(all), Form::Int(..), Cell::Int(value)) => all.push(i32::try_from(*value).ok()?),
            (Values::Long(all), Form::Long | Form::UnsignedLong, Cell::Int(value)) => all.push(*value),
            (Values::Long(all), Form::UnsignedLong, Cell::Decimal { digits, scale: 0 }) => {
                all.push(u64::try_from(*digits).ok()?.cast_signed());
            }
            (Values::Int(all), Form::Decimal(_, scale), Cell::Decimal { digits, scale: own }) if scale == *own => {
                all.push(i32::try_from(*digits).ok()?);
            }
            (Values::Long(all), Form::Decimal(_, scale), Cell::Decimal { digits, scale: own }) if scale == *own => {
                all.push(i64::try_from(*digits).ok()?);
            }
            (Values::Fixed(all), Form::Decimal(precision, scale), Cell::Decimal { digits, scale: own })
                if scale == *own =>
            {
                let bytes = digits.to_be_bytes();
                let length = usize::try_from(decimal_bytes(precision)).ok()?;
                all.push(bytes.get(bytes.len() - length..)?);
            }
            (Values::Real(all), _, Cell::Real(value)) => all.push(*value),
            (Values::Float(all), _, Cell::Float(value)) => all.push(*value),
            (Values::Int(all), Form::Date, Cell::Date(day)) => all.push(day.since_1970()),
            (Values::Int(all), Form::Time(unit), Cell::Time(time)) => {
                all.push(i32::try_from(of_time(*time, unit)?).ok()?)
            }
            (Values::Long(all), Form::Time(unit), Cell::Time(time)) => all.push(of_time(*time, unit)?),
            (Values::Long(all), Form::Moment(unit), Cell::Moment(day, time)) => all.push(of_moment(*day, *time, unit)?),
            (Values::Long(all), Form::Zoned(unit), Cell::ZonedMoment(day, time, offset)) => {
                all.push(of_moment(*day, *time, unit)?);
                self.offsets.push((*offset).into());
            }
            (Values::Fixed(all), Form::Uuid, Cell::Uuid(id)) => all.push(id.as_bytes()),
            (Values::Bytes(all), Form::Binary, Cell::Binary(bytes)) => {
                all.push(bytes);
                return Some(bytes.len() + size_of::<ByteArray>());
            }
            (Values::Bytes(all), Form::Text, cell) => {
                return Some(all.push_text(cell, self.kind) + size_of::<ByteArray>());
            }
            _ => return None,
        }
        Some(16)
    }
}

impl Values {
    fn of(form: Form) -> Self {
        match form {
            Form::Bool => Self::Bool(Vec::new()),
            Form::Int(..) | Form::Decimal(0..=9, _) | Form::Date | Form::Time(Unit::Millis) => Self::Int(Vec::new()),
            Form::Long
            | Form::UnsignedLong
            | Form::Decimal(10..=18, _)
            | Form::Time(_)
            | Form::Moment(_)
            | Form::Zoned(_) => Self::Long(Vec::new()),
            Form::Real => Self::Real(Vec::new()),
            Form::Float => Self::Float(Vec::new()),
            Form::Decimal(..) | Form::Uuid => Self::Fixed(Joined::default()),
            Form::Text | Form::Binary => Self::Bytes(Joined::default()),
        }
    }

    fn write(self, to: &mut ColumnWriter<'_>, levels: Option<&[i16]>) -> Result<(), ParquetError> {
        let done = match (self, to) {
            (Self::Bool(all), ColumnWriter::BoolColumnWriter(to)) => to.write_batch(&all, levels, None),
            (Self::Int(all), ColumnWriter::Int32ColumnWriter(to)) => to.write_batch(&all, levels, None),
            (Self::Long(all), ColumnWriter::Int64ColumnWriter(to)) => to.write_batch(&all, levels, None),
            (Self::Real(all), ColumnWriter::FloatColumnWriter(to)) => to.write_batch(&all, levels, None),
            (Self::Float(all), ColumnWriter::DoubleColumnWriter(to)) => to.write_batch(&all, levels, None),
            (Self::Bytes(all), ColumnWriter::ByteArrayColumnWriter(to)) => {
                to.write_batch(&all.into_arrays(), levels, None)
            }
            (Self::Fixed(all), ColumnWriter::FixedLenByteArrayColumnWriter(to)) => {
                let all: Vec<FixedLenByteArray> = all.into_arrays().into_iter().map(Into::into).collect();
                to.write_batch(&all, levels, None)
            }
            _ => return Err(ParquetError::General("a column has another type than its values".into())),
        };
        done.map(|_| ())
    }
}

/// A time of day in a unit. `None` if it has more digits.
fn of_time(time: TimeOfDay, unit: Unit) -> Option<i64> {
    in_unit(i64::try_from(time.ticks()).ok()?, unit)
}

/// Units since 1970. `None` if the moment is out of their range, or has more digits.
fn of_moment(day: Day, time: TimeOfDay, unit: Unit) -> Option<i64> {
    // All days of SQL Server fit: 3.7 million days of 8.64e11 units of 100 ns.
    let ticks = i64::from(day.since_1970()) * SECONDS_PER_DAY * TICKS_PER_SECOND + i64::try_from(time.ticks()).ok()?;
    in_unit(ticks, unit)
}

/// Units of 100 nanoseconds in another unit.
fn in_unit(ticks: i64, unit: Unit) -> Option<i64> {
    let per_unit = match unit {
        Unit::Nanos => return ticks.checked_mul(100),
        Unit::Micros => 10,
        Unit::Millis => 10_000,
    };
    (ticks % per_unit == 0).then_some(ticks / per_unit)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use fullbore_engines::TableColumn;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use uuid::Uuid;

    use super::super::parquet_schema::{first_forms, next_form};
    use super::*;

    fn column(name: &str, kind: ColumnKind) -> TableColumn {
        TableColumn { name: name.into(), kind, declared: String::new(), nullable: true, refused: None }
    }

    /// The texts of the first row, after as many attempts as the forms need; and the form of the first column.
    fn written(cells: &[(ColumnKind, Cell)]) -> (BTreeMap<String, String>, Form) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let columns: Vec<TableColumn> =
            cells.iter().zip('a'..).map(|((kind, _), name)| column(&name.to_string(), *kind)).collect();
        let columns: Vec<&TableColumn> = columns.iter().collect();
        let row: Vec<Cell> = cells.iter().map(|(_, cell)| cell.clone()).collect();
        let nulls = vec![Cell::Null; row.len()];
        let mut forms = first_forms(&columns);
        loop {
            let mut file = ParquetFile::create(&path, &columns, &forms).unwrap();
            if let Some(again) = file.row(&row).unwrap() {
                next_form(&mut forms, again.column).unwrap();
                continue;
            }
            assert!(file.row(&nulls).unwrap().is_none());
            file.finish().unwrap();
            break;
        }
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let text = |(name, field): (&String, &parquet::record::Field)| (name.clone(), field.to_string());
        let texts = |row: &parquet::record::Row| row.get_column_iter().map(text).collect::<BTreeMap<_, _>>();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(|row| texts(&row.unwrap())).collect();
        assert!(rows[1].values().all(|text| text == "null"));
        (rows[0].clone(), forms[0])
    }

    #[test]
    fn values_of_all_kinds_are_read_back() {
        let time = TimeOfDay::new(36_000_000_001).unwrap();
        let day = Day::since_year_1(728_843).unwrap();
        let dec = |precision, digits| (ColumnKind::Decimal { precision, scale: 2 }, Cell::Decimal { digits, scale: 2 });
        let (row, _) = written(&[
            (ColumnKind::Bool, Cell::Bool(true)),
            (ColumnKind::Byte, Cell::Int(255)),
            (ColumnKind::Short, Cell::Int(-2)),
            (ColumnKind::Long, Cell::Int(i64::MIN)),
            dec(9, -1234),
            dec(18, 1234),
            dec(38, -1234),
            (ColumnKind::Float, Cell::Float(0.5)),
            (ColumnKind::Text, Cell::Text("ж".into())),
            (ColumnKind::Any, Cell::Int(7)),
            (ColumnKind::Date, Cell::Date(day)),
            (ColumnKind::Uuid, Cell::Uuid(Uuid::from_u128(1))),
            (ColumnKind::ZonedMoment { digits: 3 }, Cell::ZonedMoment(day, TimeOfDay::new(10_000).unwrap(), -90)),
            (ColumnKind::Time { digits: 7 }, Cell::Time(time)),
        ]);
        let text = |name: &str| row[name].as_str();
        let found = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"].map(text);
        assert_eq!(
            found,
            ["true", "255", "-2", "-9223372036854775808", "-12.34", "12.34", "-12.34", "0.5", "\"ж\"", "\"7\""]
        );
        assert_eq!(text("k").split(' ').next().unwrap_or_default(), "1996-07-04");
        assert_eq!(text("m_offset_minutes"), "-90");
    }

    #[test]
    fn moments_that_nanoseconds_cannot_hold_become_microseconds_or_text_and_stay_exact() {
        let kind = ColumnKind::Moment { digits: 7 };
        let at = |days, ticks| Cell::Moment(Day::since_year_1(days).unwrap(), TimeOfDay::new(ticks).unwrap());
        for (cell, form) in [
            (at(728_843, 1), Form::Moment(Unit::Nanos)),
            (at(3_652_058, 10), Form::Moment(Unit::Micros)),
            (at(0, 1), Form::Text),
        ] {
            let (row, found) = written(&[(kind, cell)]);
            assert_eq!(found, form);
            if form == Form::Text {
                assert_eq!(row["a"], "\"0001-01-01 00:00:00.0000001\"");
            }
        }
    }
}
