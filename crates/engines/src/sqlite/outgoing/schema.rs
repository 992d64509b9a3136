//! The definitions of an SQLite database, as its pragmas tell them.

use std::collections::HashMap;

use rusqlite::Connection;

use super::quoted;

/// What pragmas call the database of the file.
const MAIN: &str = "main";
/// The names of the rowid, of which a column may have one.
const ROWID_NAMES: [&str; 3] = ["_rowid_", "rowid", "oid"];

/// All definitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schema {
    /// The tables with rows of their own.
    pub tables: Vec<Table>,
    /// Objects without rows of their own, with their kind: `view totals`, `trigger t of orders`.
    pub others: Vec<String>,
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// The columns whose values are stored and written by applications.
    pub columns: Vec<Column>,
    /// Generated columns.
    pub generated: Vec<String>,
    /// A name of its rowid that no column has.
    pub rowid: Option<&'static str>,
    /// The columns of the primary key, in its order.
    pub primary: Vec<String>,
    /// The column that is another name of the rowid.
    pub alias: Option<String>,
    /// AUTOINCREMENT: the largest rowid that the table ever had.
    pub last: Option<i64>,
    /// Its indexes, without that of the primary key.
    pub indexes: Vec<Index>,
    /// Its foreign keys.
    pub foreign_keys: Vec<ForeignKey>,
    /// The statement that made it.
    pub statement: String,
}

/// A column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, as the statement has it.
    pub declared: String,
    /// NOT NULL.
    pub not_null: bool,
    /// The text after DEFAULT.
    pub default: Option<String>,
    /// How its texts are compared: BINARY, NOCASE, RTRIM, or a collation of the application.
    pub collation: String,
}

/// An index, or the index of a UNIQUE constraint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Index {
    /// Its name; SQLite's own for that of a constraint.
    pub name: String,
    /// No two rows are equal in it.
    pub unique: bool,
    /// It is of a constraint.
    pub is_constraint: bool,
    /// It has a WHERE clause.
    pub partial: bool,
    /// Its parts.
    pub parts: Vec<Part>,
}

/// A part of an index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// Its column; none for an expression.
    pub column: Option<String>,
    /// DESC.
    pub descending: bool,
    /// How it compares texts.
    pub collation: String,
}

/// A foreign key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForeignKey {
    /// The table that it refers to.
    pub parent: String,
    /// Its columns.
    pub columns: Vec<String>,
    /// Those of the parent; empty for its primary key.
    pub parents: Vec<String>,
    /// CASCADE, SET NULL and so on.
    pub on_update: String,
    /// The same.
    pub on_delete: String,
}

impl Table {
    /// The question for all rows: the rowid or NULL, then the columns. The order is that of the table.
    pub fn query(&self) -> String {
        let mut asked = vec![self.rowid.unwrap_or("NULL").to_owned()];
        asked.extend(self.columns.iter().map(|column| quoted(&column.name)));
        format!("SELECT {} FROM {MAIN}.{} NOT INDEXED", asked.join(", "), quoted(&self.name))
    }

    /// The place of a column.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name))
    }
}

impl Schema {
    /// Reads all definitions.
    ///
    /// # Errors
    /// SQLite's.
    pub fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut schema = Self::default();
        let sql = "SELECT list.name, list.type, list.wr, coalesce(made.sql, '') FROM pragma_table_list AS list \
                   LEFT JOIN sqlite_schema AS made ON made.name = list.name AND made.type IN ('table', 'view') \
                   WHERE list.schema = ?1 AND list.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY list.name";
        let mut statement = connection.prepare(sql)?;
        let named = statement.query_map([MAIN], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        let named = named.collect::<rusqlite::Result<Vec<(String, String, bool, String)>>>()?;
        let last = last_numbers(connection)?;
        for (name, kind, without_rowid, statement) in named {
            match kind.as_str() {
                "table" => {
                    let last = last.get(&name).copied();
                    schema.tables.push(table(connection, name, without_rowid, statement, last)?);
                }
                "shadow" => {}
                "virtual" => schema.others.push(format!("virtual table {name}")),
                kind => schema.others.push(format!("{kind} {name}")),
            }
        }
        let triggers = "SELECT name, tbl_name FROM sqlite_schema WHERE type = 'trigger' ORDER BY name";
        let mut triggers = connection.prepare(triggers)?;
        let named = triggers
            .query_map([], |row| Ok(format!("trigger {} of {}", row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
        for trigger in named {
            schema.others.push(trigger?);
        }
        Ok(schema)
    }
}

/// The largest rowid of each table with AUTOINCREMENT.
fn last_numbers(connection: &Connection) -> rusqlite::Result<HashMap<String, i64>> {
    if !connection.table_exists(Some(MAIN), "sqlite_sequence")? {
        return Ok(HashMap::new());
    }
    // Anybody may write to this table.
    let mut statement = connection.prepare("SELECT name, seq FROM sqlite_sequence WHERE typeof(seq) = 'integer'")?;
    let numbers = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    numbers.collect()
}

fn table(
    connection: &Connection,
    name: String,
    without_rowid: bool,
    statement: String,
    last: Option<i64>,
) -> rusqlite::Result<Table> {
    let mut table = Table { statement, last, ..Table::default() };
    let mut primary: Vec<(i64, String, String)> = Vec::new();
    let sql = "SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo(?1, ?2) ORDER BY cid";
    let mut asked = connection.prepare(sql)?;
    let mut rows = asked.query([&name, MAIN])?;
    while let Some(row) = rows.next()? {
        let (column, declared, hidden): (String, String, i64) = (row.get(0)?, row.get(1)?, row.get(5)?);
        if let place @ 1.. = row.get::<_, i64>(4)? {
            primary.push((place, column.clone(), declared.clone()));
        }
        match hidden {
            0 => table.columns.push(Column {
                collation: collation(connection, &name, &column)?,
                name: column,
                declared,
                not_null: row.get(2)?,
                default: row.get(3)?,
            }),
            _ => table.generated.push(column),
        }
    }
    primary.sort();
    let mut has_index = without_rowid;
    for (index, origin) in indexes(connection, &name)? {
        match origin.as_str() {
            "pk" => has_index = true,
            _ => table.indexes.push(index),
        }
    }
    if let [(_, column, declared)] = &primary[..]
        && !has_index
        && declared.eq_ignore_ascii_case("INTEGER")
    {
        table.alias = Some(column.clone());
    }
    let is_free = |known: &&&str| !table.columns.iter().any(|column| column.name.eq_ignore_ascii_case(known));
    table.rowid = ROWID_NAMES.iter().find(is_free).copied().filter(|_| !without_rowid);
    table.primary = primary.into_iter().map(|(_, column, _)| column).collect();
    table.foreign_keys = foreign_keys(connection, &name)?;
    table.name = name;
    Ok(table)
}

fn collation(connection: &Connection, table: &str, column: &str) -> rusqlite::Result<String> {
    let (_, collation, ..) = connection.column_metadata(Some(MAIN), table, column)?;
    Ok(collation.map_or_else(|| "BINARY".to_owned(), |name| name.to_string_lossy().to_uppercase()))
}

/// With the origin of each: `c`, `u` or `pk`.
fn indexes(connection: &Connection, table: &str) -> rusqlite::Result<Vec<(Index, String)>> {
    let sql = "SELECT name, \"unique\", origin, partial FROM pragma_index_list(?1, ?2) ORDER BY seq DESC";
    let mut statement = connection.prepare(sql)?;
    let mut found = Vec::new();
    let mut rows = statement.query([table, MAIN])?;
    while let Some(row) = rows.next()? {
        let (name, origin): (String, String) = (row.get(0)?, row.get(2)?);
        let parts = "SELECT name, \"desc\", coll FROM pragma_index_xinfo(?1, ?2) WHERE key = 1 ORDER BY seqno";
        let mut parts = connection.prepare(parts)?;
        let parts = parts.query_map([&name, MAIN], |row| {
            let collation: Option<String> = row.get(2)?;
            let collation = collation.unwrap_or_default().to_uppercase();
            Ok(Part { column: row.get(0)?, descending: row.get(1)?, collation })
        })?;
        let parts = parts.collect::<rusqlite::Result<Vec<_>>>()?;
        let is_constraint = origin == "u";
        found.push((Index { name, unique: row.get(1)?, is_constraint, partial: row.get(3)?, parts }, origin));
    }
    Ok(found)
}

fn foreign_keys(connection: &Connection, table: &str) -> rusqlite::Result<Vec<ForeignKey>> {
    let sql = "SELECT id, \"table\", \"from\", \"to\", on_update, on_delete FROM pragma_foreign_key_list(?1, ?2) \
               ORDER BY id DESC, seq";
    let mut statement = connection.prepare(sql)?;
    let (mut found, mut number): (Vec<ForeignKey>, Option<i64>) = (Vec::new(), None);
    let mut rows = statement.query([table, MAIN])?;
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        if number.replace(id) != Some(id) {
            let (parent, on_update, on_delete) = (row.get(1)?, row.get(4)?, row.get(5)?);
            found.push(ForeignKey { parent, on_update, on_delete, ..ForeignKey::default() });
        }
        if let Some(key) = found.last_mut() {
            key.columns.push(row.get(2)?);
            key.parents.extend(row.get::<_, Option<String>>(3)?);
        }
    }
    Ok(found)
}
