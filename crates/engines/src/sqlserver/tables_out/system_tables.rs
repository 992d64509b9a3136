//! The system tables that describe all others. Their columns are documented as `sys.system_internals_*` and in the
//! catalog views; the offsets are those of genuine files of 2005 to 2019, where `syscolpars` describes these tables too.

use std::collections::BTreeMap;

use fullbore_core::units::counted;

use super::super::fields::Fields;
use super::super::page::PageId;
use super::chain::{self, first_of_units, leaf_pages};
use super::data_files::DataFiles;
use super::data_page::page_pointer;
use super::record::{Record, RecordKind, record_kind};
use super::types::StoredType;
use super::{Decoded, field, unknown};

/// Object ids.
mod object {
    pub const ROWSET_COLUMNS: i64 = 3;
    pub const ROWSET_COLUMNS_2005: i64 = 4;
    pub const ROWSETS: i64 = 5;
    pub const DEFAULTS: i64 = 9;
    pub const HOBT_COLUMNS_2005: i64 = 13;
    pub const OBJECTS: i64 = 34;
    pub const COLUMNS: i64 = 41;
    pub const CLASSES: i64 = 64;
}

/// The versions below this one have the layout of columns in two tables.
const VERSION_2008: u16 = 655;
/// The class of schemas in `sysclsobjs`.
const CLASS_SCHEMA: u8 = 50;
/// The kind of allocation unit that holds rows.
const UNIT_OF_ROWS: u8 = 1;

/// An allocation unit (`sysallocunits`).
#[derive(Debug, Clone)]
pub struct Unit {
    /// Its id: the pages name it.
    pub id: i64,
    /// The first page of the leaf level.
    pub first: Option<PageId>,
    /// The first IAM page.
    pub first_iam: Option<PageId>,
    /// The object, which pages of databases from SQL Server 2000 name instead. 0 if there is none.
    pub object: i32,
}

/// A partition of a heap or an index (`sysrowsets`).
#[derive(Debug, Clone)]
pub struct Rowset {
    /// Its id.
    pub id: i64,
    /// The object.
    pub object: i32,
    /// The index: 0 is the heap, 1 the clustered index.
    pub index: i32,
    /// The number of the partition, from 1.
    pub partition: i32,
    /// The number of rows.
    pub rows: i64,
    /// 0 none, 1 ROW, 2 PAGE, 3 and 4 columnstore.
    pub compression: u8,
}

/// A column as a rowset stores it (`sysrscols`).
#[derive(Debug, Clone)]
pub struct RowsetColumn {
    /// The id of the column in its table. Columns that were dropped have others.
    pub id: i32,
    /// Its place in compressed records, from 1.
    pub ordinal: i32,
    /// Status bits: 2 dropped, 16 uniquifier, 32 FILESTREAM, 128 NOT NULL, 256 sparse.
    pub status: i32,
    /// Its type.
    pub stored: StoredType,
    /// Above zero, the offset in the record; below zero, the place among columns of variable length.
    pub offset: i16,
    /// Its bit among the NULLs, from 1.
    pub null_bit: u16,
    /// Its bit in a byte of `bit` columns.
    pub bit: u8,
}

/// An object (`sysschobjs`).
#[derive(Debug, Clone)]
pub struct Object {
    /// Its id.
    pub id: i32,
    /// The id of its schema.
    pub schema: i32,
    /// Its type, such as `U `.
    pub kind: [u8; 2],
    /// Its name.
    pub name: String,
}

/// A column of a table (`syscolpars`).
#[derive(Debug, Clone)]
pub struct ColumnRow {
    /// The object.
    pub object: i32,
    /// Its id.
    pub id: i32,
    /// Its name.
    pub name: String,
    /// Its system type.
    pub xtype: u8,
    /// The length in bytes; -1 for `max`.
    pub length: i16,
    /// Digits in all.
    pub precision: u8,
    /// Digits behind the point.
    pub scale: u8,
    /// The collation; 0 for types without one.
    pub collation: u32,
    /// Status bits: 1 NOT NULL, 16 computed, 32 FILESTREAM, 0x1000000 sparse, 0x2000000 column set.
    pub status: i32,
}

/// What the system tables say.
pub struct Catalog {
    /// The version of the database.
    pub version: u16,
    /// The rows of each rowset: its unit of rows.
    pub units: BTreeMap<i64, Unit>,
    /// All rowsets.
    pub rowsets: Vec<Rowset>,
    /// The columns of each rowset.
    pub stored_columns: BTreeMap<i64, Vec<RowsetColumn>>,
    /// All objects.
    pub objects: Vec<Object>,
    /// The columns of tables.
    pub columns: BTreeMap<i32, Vec<ColumnRow>>,
    /// The names of schemas.
    pub schemas: BTreeMap<i32, String>,
    /// Values of columns that were added with a default: by rowset and column, as `sql_variant`.
    pub defaults: BTreeMap<(i64, i32), Vec<u8>>,
    /// System tables with another number of rows than the database has counted: tables or columns may be missing.
    pub warnings: Vec<String>,
}

impl Catalog {
    /// Reads the system tables.
    ///
    /// # Errors
    /// They have a form that is not known; a page is damaged.
    pub fn read(files: &DataFiles) -> Decoded<Self> {
        let units = units(files)?;
        let mut rowsets = Vec::new();
        let own = object::ROWSETS << 16;
        for_rows(files, units.get(&own), &mut |row| {
            rowsets.push(rowset(row)?);
            Ok(())
        })?;
        let mut tables = SystemTables { files, units: &units, rowsets: &rowsets, warnings: Vec::new() };
        tables.compare_count(object::ROWSETS, rowsets.len());
        let version = chain::version(files)?;
        let stored_columns = match version {
            before if before < VERSION_2008 => stored_columns_2005(&mut tables)?,
            _ => stored_columns(&mut tables)?,
        };
        let objects = tables.rows(object::OBJECTS, object_row)?;
        let mut columns: BTreeMap<i32, Vec<ColumnRow>> = BTreeMap::new();
        for column in tables.rows(object::COLUMNS, column_row)?.into_iter().flatten() {
            columns.entry(column.object).or_default().push(column);
        }
        columns.values_mut().for_each(|columns| columns.sort_by_key(|column| column.id));
        let schemas = tables.rows(object::CLASSES, schema_row)?.into_iter().flatten().collect();
        let defaults = tables.rows_if_any(object::DEFAULTS, default_row)?.into_iter().flatten().collect();
        let warnings = tables.warnings;
        Ok(Self { version, stored_columns, objects, columns, schemas, defaults, units, rowsets, warnings })
    }
}

/// Gives each row of a table that is not compressed.
fn for_rows(files: &DataFiles, unit: Option<&Unit>, each: &mut dyn FnMut(&Record<'_>) -> Decoded<()>) -> Decoded<()> {
    let Some(unit) = unit else { return unknown("a system table has no pages") };
    leaf_pages(files, unit, &mut |page| {
        for (_, bytes) in page.records()? {
            if record_kind(bytes)? == RecordKind::Row {
                each(&Record::parse(bytes)?)?;
            }
        }
        Ok(())
    })
}

/// `sysallocunits`: the unit of rows of each rowset.
fn units(files: &DataFiles) -> Decoded<BTreeMap<i64, Unit>> {
    const OWN: i64 = 7 << 16;
    let own = Unit { id: OWN, first: Some(first_of_units(files)?), first_iam: None, object: 0 };
    let mut units = BTreeMap::new();
    for_rows(files, Some(&own), &mut |row| {
        let fields = Fixed(row);
        if fields.u8(12)? == UNIT_OF_ROWS {
            let (first, first_iam) = (fields.page(27)?, fields.page(39)?);
            units.insert(fields.i64(13)?, Unit { id: fields.i64(4)?, first, first_iam, object: 0 });
        }
        Ok(())
    })?;
    Ok(units)
}

/// Finds system tables and reads their rows.
struct SystemTables<'a> {
    files: &'a DataFiles,
    units: &'a BTreeMap<i64, Unit>,
    rowsets: &'a [Rowset],
    warnings: Vec<String>,
}

impl<'a> SystemTables<'a> {
    /// The rows of a system table: its heap or its clustered index.
    fn rowset(&self, object: i64) -> Option<&'a Rowset> {
        self.rowsets.iter().find(|rowset| i64::from(rowset.object) == object && rowset.index <= 1)
    }

    /// Warns if the database has counted another number of rows in this system table.
    fn compare_count(&mut self, object: i64, found: usize) {
        let Some(stored) = self.rowset(object).map(|rowset| rowset.rows) else { return };
        if u64::try_from(stored).ok() != Some(found as u64) {
            self.warnings.push(format!(
                "the system table {object} has {}, and the database has counted {stored}: tables or columns may be \
                 missing",
                counted(found as u64, "row")
            ));
        }
    }

    fn rows<T>(&mut self, object: i64, row: impl Fn(&Record<'_>) -> Decoded<T>) -> Decoded<Vec<T>> {
        let Some(rowset) = self.rowset(object) else {
            return unknown(format!("the system table {object} is missing"));
        };
        if rowset.compression != 0 {
            return unknown(format!("the system table {object} is compressed"));
        }
        let mut rows = Vec::new();
        let read = for_rows(self.files, self.units.get(&rowset.id), &mut |record| {
            rows.push(row(record)?);
            Ok(())
        });
        read.map_err(|trouble| trouble.at(format!("the system table {object}")))?;
        self.compare_count(object, rows.len());
        Ok(rows)
    }

    /// The same for a table that not every version has.
    fn rows_if_any<T>(&mut self, object: i64, row: impl Fn(&Record<'_>) -> Decoded<T>) -> Decoded<Vec<T>> {
        if self.rowset(object).is_some() { self.rows(object, row) } else { Ok(Vec::new()) }
    }
}

fn rowset(row: &Record<'_>) -> Decoded<Rowset> {
    let fields = Fixed(row);
    Ok(Rowset {
        id: fields.i64(4)?,
        object: fields.i32(13)?,
        index: fields.i32(17)?,
        partition: fields.i32(21)?,
        rows: fields.i64(31)?,
        // SQL Server 2005 has no compression.
        compression: if row.fixed(39, 1).is_some() { fields.u8(39)? } else { 0 },
    })
}

/// `sysrscols`.
fn stored_columns(tables: &mut SystemTables<'_>) -> Decoded<BTreeMap<i64, Vec<RowsetColumn>>> {
    let rows = tables.rows(object::ROWSET_COLUMNS, |row| {
        let fields = Fixed(row);
        let column = RowsetColumn {
            id: fields.i32(12)?,
            ordinal: fields.i32(16)?,
            status: fields.i32(40)?,
            stored: StoredType::from_type_info(fields.i32(28)?.cast_unsigned(), fields.i32(32)?.cast_unsigned()),
            offset: fields.u16(44)?.cast_signed(),
            null_bit: fields.u16(48)?,
            bit: fields.u16(52)? as u8 & 7,
        };
        Ok((fields.i64(4)?, column))
    })?;
    let mut columns: BTreeMap<i64, Vec<RowsetColumn>> = BTreeMap::new();
    for (rowset, column) in rows {
        columns.entry(rowset).or_default().push(column);
    }
    Ok(columns)
}

/// SQL Server 2005: `sysrowsetcolumns` and `syshobtcolumns`. A rowset has the id of its heap or tree.
fn stored_columns_2005(tables: &mut SystemTables<'_>) -> Decoded<BTreeMap<i64, Vec<RowsetColumn>>> {
    let laid_out = tables.rows(object::HOBT_COLUMNS_2005, |row| {
        let fields = Fixed(row);
        let stored = StoredType {
            xtype: fields.u8(22)?,
            length: fields.u16(23)?,
            precision: fields.u8(25)?,
            scale: fields.u8(26)?,
            collation: fields.i32(27)?.cast_unsigned(),
        };
        let column = RowsetColumn {
            id: 0,
            ordinal: fields.i32(12)?,
            status: fields.i32(16)?,
            stored,
            offset: fields.u16(31)?.cast_signed(),
            null_bit: fields.u16(37)?,
            bit: fields.u8(35)? & 7,
        };
        Ok(((fields.i64(4)?, column.ordinal), column))
    })?;
    let laid_out: BTreeMap<(i64, i32), RowsetColumn> = laid_out.into_iter().collect();
    let named = tables.rows(object::ROWSET_COLUMNS_2005, |row| {
        let fields = Fixed(row);
        Ok((fields.i64(4)?, fields.i32(12)?, fields.i32(16)?, fields.i32(20)?))
    })?;
    let mut columns: BTreeMap<i64, Vec<RowsetColumn>> = BTreeMap::new();
    for (rowset, id, ordinal, status) in named {
        if let Some(column) = laid_out.get(&(rowset, ordinal)) {
            columns.entry(rowset).or_default().push(RowsetColumn { id, status, ..column.clone() });
        }
    }
    Ok(columns)
}

fn object_row(row: &Record<'_>) -> Decoded<Object> {
    let fields = Fixed(row);
    let kind = [fields.u8(17)?, fields.u8(18)?];
    Ok(Object { id: fields.i32(4)?, schema: fields.i32(8)?, kind, name: name(row, 0)? })
}

/// `None` for a parameter of a procedure.
fn column_row(row: &Record<'_>) -> Decoded<Option<ColumnRow>> {
    let fields = Fixed(row);
    if fields.u16(8)? != 0 {
        return Ok(None);
    }
    Ok(Some(ColumnRow {
        object: fields.i32(4)?,
        id: fields.i32(10)?,
        name: name(row, 0)?,
        xtype: fields.u8(14)?,
        length: fields.u16(19)?.cast_signed(),
        precision: fields.u8(21)?,
        scale: fields.u8(22)?,
        collation: fields.i32(23)?.cast_unsigned(),
        status: fields.i32(27)?,
    }))
}

/// `sysclsobjs`: the name of a schema.
fn schema_row(row: &Record<'_>) -> Decoded<Option<(i32, String)>> {
    let fields = Fixed(row);
    if fields.u8(4)? != CLASS_SCHEMA {
        return Ok(None);
    }
    Ok(Some((fields.i32(5)?, name(row, 0)?)))
}

/// A rowset and a column, and the value of its older rows as `sql_variant`.
type DefaultValue = ((i64, i32), Vec<u8>);

/// `sysseobjvalues`: the value that rows have which are older than their column. A value that is not in the record is
/// kept as empty: it is then refused where it is needed.
fn default_row(row: &Record<'_>) -> Decoded<Option<DefaultValue>> {
    const CLASS_DEFAULT: u8 = 1;
    let fields = Fixed(row);
    if fields.u8(4)? != CLASS_DEFAULT {
        return Ok(None);
    }
    let value = row.variable(0)?.filter(|value| !value.is_complex);
    let bytes = value.map_or_else(Vec::new, |value| value.bytes.to_vec());
    let column = i32::try_from(fields.i64(13)?).unwrap_or(i32::MAX);
    Ok(Some(((fields.i64(5)?, column), bytes)))
}

/// A name in UTF-16.
fn name(row: &Record<'_>, index: usize) -> Decoded<String> {
    let bytes = row.variable(index)?.map_or(&[][..], |name| name.bytes);
    let (units, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return unknown("a name has an odd length");
    }
    let units: Vec<u16> = units.iter().map(|unit| u16::from_le_bytes(*unit)).collect();
    Ok(String::from_utf16_lossy(&units))
}

/// The columns of fixed length of a record.
struct Fixed<'a, 'b>(&'a Record<'b>);

impl Fixed<'_, '_> {
    fn bytes(&self, at: usize, length: usize) -> Decoded<&[u8]> {
        self.0.fixed(at, length).map_or_else(|| unknown("a row of a system table is too short"), Ok)
    }

    fn u8(&self, at: usize) -> Decoded<u8> {
        field(Fields(self.bytes(at, 1)?).u8(0))
    }

    fn u16(&self, at: usize) -> Decoded<u16> {
        field(Fields(self.bytes(at, 2)?).u16(0))
    }

    fn i32(&self, at: usize) -> Decoded<i32> {
        Ok(field(Fields(self.bytes(at, 4)?).u32(0))?.cast_signed())
    }

    fn i64(&self, at: usize) -> Decoded<i64> {
        Ok(field(Fields(self.bytes(at, 8)?).u64(0))?.cast_signed())
    }

    fn page(&self, at: usize) -> Decoded<Option<PageId>> {
        page_pointer(Fields(self.bytes(at, 6)?), 0)
    }
}
