//! The tables of users, and how their rows are stored.

use super::super::super::engine::{ColumnKind, ForeignTable, TableColumn};
use super::column::{Column, stored_status};
use super::system_tables::{Catalog, ColumnRow, Object, Rowset, RowsetColumn, Unit};
use super::types::{StoredType, declared, xtype};
use super::{Trouble, unknown};

/// The type of tables of users in `sysschobjs`.
const USER_TABLE: [u8; 2] = *b"U ";
/// Stored columns that were dropped, or that make keys unique.
const NOT_OF_TABLE: i32 = stored_status::DROPPED | stored_status::UNIQUIFIER;
/// The schema `sys`: tables of the server itself.
const SCHEMA_SYS: i32 = 4;

/// Status bits of [`ColumnRow`].
mod status {
    pub const NOT_NULL: i32 = 0x1;
    pub const COMPUTED: i32 = 0x10;
    pub const FILESTREAM: i32 = 0x20;
    pub const SPARSE: i32 = 0x0100_0000;
    pub const COLUMN_SET: i32 = 0x0200_0000;
}

/// A table.
pub struct TableDefinition {
    /// What the rest of the program sees.
    pub table: ForeignTable,
    /// Its rows.
    pub partitions: Vec<Partition>,
}

/// A partition: a heap, or a clustered index.
pub struct Partition {
    /// Its unit of rows. Without one, it has no rows.
    pub unit: Option<Unit>,
    /// True for a heap.
    pub is_heap: bool,
    /// 0 none, 1 ROW, 2 PAGE.
    pub compression: u8,
    /// How many columns a compressed row has.
    pub stored_columns: usize,
    /// How it stores each column of the table, in their order.
    pub columns: Vec<Option<Column>>,
}

/// All tables of users, by schema and name.
pub fn tables(catalog: &Catalog) -> Vec<TableDefinition> {
    of_objects(catalog, |object| object.kind == USER_TABLE && object.schema != SCHEMA_SYS)
}

/// The tables among these objects, by schema and name.
pub fn of_objects(catalog: &Catalog, is_wanted: impl Fn(&Object) -> bool) -> Vec<TableDefinition> {
    let mut tables: Vec<TableDefinition> =
        catalog.objects.iter().filter(|object| is_wanted(object)).map(|object| table(object, catalog)).collect();
    tables.sort_by(|one, other| (&one.table.schema, &one.table.name).cmp(&(&other.table.schema, &other.table.name)));
    tables
}

fn table(object: &Object, catalog: &Catalog) -> TableDefinition {
    let mut rowsets: Vec<&Rowset> =
        catalog.rowsets.iter().filter(|rowset| rowset.object == object.id && (0..=1).contains(&rowset.index)).collect();
    rowsets.sort_by_key(|rowset| rowset.partition);
    let stored = |rowset: &Rowset| catalog.stored_columns.get(&rowset.id).map_or(&[][..], Vec::as_slice);
    let of_first = rowsets.first().map_or(&[][..], |rowset| stored(rowset));
    let mut notes = Vec::new();
    let mut rows: Vec<(&ColumnRow, TableColumn)> = Vec::new();
    let described = catalog.columns.get(&object.id).map_or(&[][..], Vec::as_slice);
    for row in described {
        let is_stored = find(of_first, row.id).is_some();
        if row.status & status::COLUMN_SET != 0 {
            notes.push(format!("column {} is a set of sparse columns: they are columns of their own", row.name));
        } else if row.status & status::COMPUTED != 0 && !is_stored {
            notes.push(format!("column {} is computed and not stored: it is left out", row.name));
        } else {
            rows.push((row, column(row, of_first)));
        }
    }
    let schema = catalog.schemas.get(&object.schema).cloned();
    let mut refused = refused(&rowsets, &rows).or_else(|| undescribed(object, described, of_first));
    let mut partitions = Vec::new();
    for rowset in &rowsets {
        match partition(rowset, stored(rowset), &mut rows, catalog) {
            Ok(partition) => partitions.push(partition),
            Err(Trouble::Unknown(why)) => refused = refused.or(Some(why)),
            Err(Trouble::Failed(error)) => refused = refused.or(Some(error.one_line())),
        }
    }
    let table = ForeignTable {
        schema: schema.unwrap_or_else(|| format!("schema{}", object.schema)),
        name: object.name.clone(),
        columns: rows.into_iter().map(|(_, column)| column).collect(),
        stored_rows: (!rowsets.is_empty())
            .then(|| rowsets.iter().map(|rowset| u64::try_from(rowset.rows).unwrap_or(0)).sum()),
        refused,
        notes,
    };
    TableDefinition { table, partitions }
}

/// Why no row of a table can be read.
fn refused(rowsets: &[&Rowset], rows: &[(&ColumnRow, TableColumn)]) -> Option<String> {
    if rowsets.is_empty() {
        return Some("its rows are not in pages: it is memory-optimized, or an external table".to_owned());
    }
    if rows.is_empty() {
        return Some("it has no stored column".to_owned());
    }
    rowsets.iter().find_map(|rowset| match rowset.compression {
        0..=2 => None,
        3 | 4 => Some("its rows are in a columnstore".to_owned()),
        other => Some(format!("its compression has the number {other}, which is not known")),
    })
}

/// Why the description of a table is not whole: exported without a word, a column would be missing.
fn undescribed(object: &Object, described: &[ColumnRow], stored: &[RowsetColumn]) -> Option<String> {
    if object.name.is_empty() || described.iter().any(|column| column.name.is_empty()) {
        return Some("it or one of its columns has no name".to_owned());
    }
    let is_described = |stored: &&RowsetColumn| described.iter().any(|column| column.id == stored.id);
    let lost = stored.iter().filter(|column| column.status & NOT_OF_TABLE == 0).find(|stored| !is_described(stored))?;
    Some(format!("its rows have a column {} that is not described", lost.id))
}

/// A column as the rest of the program sees it.
fn column(row: &ColumnRow, stored: &[RowsetColumn]) -> TableColumn {
    let logical = StoredType {
        xtype: row.xtype,
        precision: row.precision,
        scale: row.scale,
        length: 0,
        collation: row.collation,
    };
    let physical = find(stored, row.id);
    let kind = logical.kind();
    let is_filestream =
        row.status & status::FILESTREAM != 0 || physical.is_some_and(|c| c.status & stored_status::FILESTREAM != 0);
    let refused = match physical {
        _ if kind.is_none() => Some(format!("type {} is not known", row.xtype)),
        _ if is_filestream => Some("its values are in files (FILESTREAM)".to_owned()),
        Some(column) if column.stored.xtype != row.xtype => Some(format!(
            "it is stored as {} bytes of another type: it is encrypted (Always Encrypted), or was changed without a \
             rewrite",
            declared(column.stored.xtype, -1, 0, 0)
        )),
        _ => None,
    };
    TableColumn {
        name: row.name.clone(),
        kind: kind.unwrap_or(ColumnKind::Binary),
        declared: declared(row.xtype, row.length, row.precision, row.scale),
        nullable: row.status & status::NOT_NULL == 0,
        refused,
    }
}

/// How a partition stores the columns. A column that it cannot give is refused.
fn partition(
    rowset: &Rowset,
    stored: &[RowsetColumn],
    rows: &mut [(&ColumnRow, TableColumn)],
    catalog: &Catalog,
) -> Result<Partition, Trouble> {
    let mut columns = Vec::new();
    for (row, shown) in rows.iter_mut() {
        let Some(found) = find(stored, row.id) else {
            shown.refused.get_or_insert_with(|| "the rows do not describe how they store it".to_owned());
            columns.push(None);
            continue;
        };
        let is_sparse = row.status & status::SPARSE != 0 || found.status & stored_status::SPARSE != 0;
        let default = catalog.defaults.get(&(rowset.id, row.id)).cloned();
        // Types whose kind depends on precision and scale may contradict `syscolpars`.
        let same_kind = found.stored.kind() == StoredType { xtype: row.xtype, ..found.stored }.kind();
        match Column::new(found, is_sparse, default) {
            Ok(column) if same_kind && kind_fits(&column.stored, shown.kind) => columns.push(Some(column)),
            Ok(_) => {
                shown.refused.get_or_insert_with(|| "its type differs between the table and its rows".to_owned());
                columns.push(None);
            }
            Err(Trouble::Unknown(why)) => {
                shown.refused.get_or_insert(why);
                columns.push(None);
            }
            Err(failed) => return Err(failed),
        }
    }
    let unit = catalog.units.get(&rowset.id).map(|unit| Unit { object: rowset.object, ..unit.clone() });
    if unit.is_none() && rowset.rows > 0 {
        return unknown("its allocation unit is missing");
    }
    Ok(Partition {
        unit,
        is_heap: rowset.index == 0,
        compression: rowset.compression,
        stored_columns: stored.len(),
        columns,
    })
}

/// The stored column with this id that is a column of the table: not one that was dropped, or makes keys unique.
fn find(stored: &[RowsetColumn], id: i32) -> Option<&RowsetColumn> {
    stored.iter().find(|column| column.id == id && column.status & NOT_OF_TABLE == 0)
}

/// True if cells of the stored type are cells of the column.
fn kind_fits(stored: &StoredType, kind: ColumnKind) -> bool {
    let is_decimal = matches!(stored.xtype, xtype::DECIMAL | xtype::NUMERIC);
    match (stored.kind(), kind) {
        // A column of more digits may have been made of one with fewer, without a rewrite.
        (Some(ColumnKind::Decimal { scale: stored, .. }), ColumnKind::Decimal { scale, .. }) if is_decimal => {
            stored == scale
        }
        (found, kind) => found == Some(kind),
    }
}
