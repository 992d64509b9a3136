//! The columns of a table: how each is queried and written, so that its value is restored exactly.

use fullbore_core::{Error, Result};

use super::super::connection::Connection;
use super::names::{literal, quoted};
use super::tables::Table;

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Digits as they come: integers and DECIMAL.
    Number,
    /// FLOAT and DOUBLE: never written like an integer, which has no negative zero.
    Real,
    /// Dates and times: digits between quotes.
    Quoted,
    /// Characters, in the column's own character set.
    Text,
    /// Bytes.
    Binary,
    /// Text in UTF-8, with that character set named.
    Json,
    /// The number of an ENUM's member, because the empty string is ambiguous; the bits of a SET.
    Members,
    /// A type of MariaDB with a text form of its own: INET4, INET6, UUID.
    Word,
    /// The time from which a row of a system-versioned table is valid. MariaDB's `ROW START`.
    RowStart,
    /// The time until which it is valid, and NULL for a current row: each version of MariaDB has another time there.
    RowEnd,
}

/// The `data_type` of such columns in a set. No server has a type of this name.
pub const ROW_START: &str = "row_start";
/// The same.
pub const ROW_END: &str = "row_end";
/// The end of a current row in this server, for a session in UTC: the last time of a TIMESTAMP. From 11.5 on it is in 2106; an
/// earlier server does not know that year.
pub const CURRENT_END: &str =
    "FROM_UNIXTIME(IF(UNIX_TIMESTAMP('2106-02-07 06:28:15') > 0, 4294967295.999999, 2147483647.999999))";

impl Form {
    fn of(data_type: &str) -> Option<Self> {
        Some(match data_type {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "decimal" => Form::Number,
            "float" | "double" => Form::Real,
            "year" | "date" | "time" | "datetime" | "timestamp" => Form::Quoted,
            "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => Form::Text,
            "bit" | "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "vector" => Form::Binary,
            "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring" | "multipolygon"
            | "geomcollection" | "geometrycollection" => Form::Binary,
            "json" => Form::Json,
            "enum" | "set" => Form::Members,
            "inet4" | "inet6" | "uuid" => Form::Word,
            ROW_START => Form::RowStart,
            ROW_END => Form::RowEnd,
            _ => return None,
        })
    }
}

/// A column that is stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// How its values are written.
    pub form: Form,
    /// A FLOAT: the text protocol gives only six digits of it, but all significant digits of a DOUBLE.
    single: bool,
    /// Its values are at most as long as a row.
    short: bool,
}

/// Whether rows with these columns cost the server less in the binary protocol: it needs long for the digits of a DOUBLE.
pub fn are_numbers(columns: &[Column]) -> bool {
    columns.iter().any(|column| column.form == Form::Real) && columns.iter().all(|column| column.short)
}

impl Column {
    /// The column with this type, as `information_schema.columns.data_type` has it. None for an unknown type.
    pub fn of(name: &str, data_type: &str) -> Option<Self> {
        let data_type = data_type.to_ascii_lowercase();
        let form = Form::of(&data_type)?;
        let short = match form {
            Form::Text | Form::Binary => ["char", "varchar", "binary", "varbinary", "bit"].contains(&&data_type[..]),
            Form::Json | Form::Word => false,
            _ => true,
        };
        Some(Self { name: name.to_owned(), form, single: data_type == "float", short })
    }

    /// Whether its values are part of the row, which the server limits to 64 KiB.
    pub fn is_short(&self) -> bool {
        self.short
    }

    /// The expression to query.
    pub fn expression(&self) -> String {
        let name = quoted(&self.name);
        match self.form {
            Form::Members => format!("CAST({name} AS UNSIGNED)"),
            // A FLOAT has six digits otherwise. MySQL before 8.0.17 has no CAST for it.
            Form::Real if self.single => format!("{name} * 1e0"),
            Form::RowEnd => format!("NULLIF({name}, {CURRENT_END})"),
            _ => name,
        }
    }
}

/// Whether rows with these columns are those of a table with its history.
pub fn have_history(columns: &[Column]) -> bool {
    columns.iter().any(|column| column.form == Form::RowEnd)
}

/// The table for FROM, with its history if these columns have it.
pub fn from(quoted_table: &str, columns: &[Column]) -> String {
    format!("{quoted_table}{}", if have_history(columns) { " FOR SYSTEM_TIME ALL" } else { "" })
}

/// The condition for these rows, if they have a history. A row that was deleted at the time of its beginning, or before because
/// the clock was set back, was never valid: no server takes such a row.
pub fn validity(columns: &[Column]) -> Option<String> {
    let named = |form| columns.iter().find(|column| column.form == form).map(|column| quoted(&column.name));
    Some(format!("{} < {}", named(Form::RowStart)?, named(Form::RowEnd)?))
}

/// Whether `information_schema.columns.extra` says that the server computes the column.
pub fn is_generated(extra: &str) -> bool {
    extra.contains("VIRTUAL GENERATED") || extra.contains("STORED GENERATED")
}

/// The stored columns of a row, in their order: also invisible columns, without generated columns.
///
/// # Errors
/// A column has an unknown type.
pub fn stored(connection: &mut Connection, table: &Table) -> Result<Vec<Column>> {
    let asked = format!(
        "SELECT column_name, data_type, extra FROM information_schema.columns WHERE table_schema = {} AND table_name = \
         {} ORDER BY ordinal_position",
        literal(&table.schema),
        literal(&table.name)
    );
    let mut columns = Vec::new();
    for row in connection.query(&asked)?.rows {
        let [Some(name), Some(data_type), extra] = &row[..] else { continue };
        let extra = extra.as_deref().unwrap_or_default();
        if is_generated(extra) {
            continue;
        }
        columns.push(Column::of(name, data_type).ok_or_else(|| {
            Error::refused(
                format!("table {}", table.shown()),
                format!("its column {name:?} has the type `{data_type}`, which this version does not know"),
                "leave --include-other-engines out, or use a newer fullbore",
            )
        })?);
    }
    Ok(columns)
}
