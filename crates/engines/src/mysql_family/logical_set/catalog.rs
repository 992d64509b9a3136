//! The catalog of a logical set: one line of JSON for each object of a database, with the statement that creates it.

use std::borrow::Borrow;
use std::sync::Arc;

use fullbore_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::super::logical::columns::{Column, ROW_END};
use super::super::logical::names::quoted;
use super::super::logical::tables::has_rows;

/// A column whose values are stored.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredColumn {
    /// Its name.
    pub name: String,
    /// Its type, as `information_schema.columns.data_type` has it.
    pub data_type: String,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TableObject {
    /// Its database.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Its storage engine.
    pub engine: String,
    /// As SHOW CREATE TABLE has it.
    pub create: String,
    /// The columns of the stored rows, in their order.
    pub columns: Arc<[StoredColumn]>,
    /// The names of the columns of the primary key, in their order; empty without one.
    #[serde(default, skip_serializing_if = "has_none")]
    pub primary: Arc<[String]>,
    /// Only the rows that fulfil this condition are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
}

fn has_none(names: &Arc<[String]>) -> bool {
    names.is_empty()
}

impl TableObject {
    /// For statements.
    pub fn quoted(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.name))
    }

    /// For messages.
    pub fn shown(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    /// Whether it has its own rows: those of a MERGE or FEDERATED table are rows of other tables.
    pub fn has_rows(&self) -> bool {
        has_rows(&self.engine)
    }

    /// The column with the end of a row, if the set has the history of its rows.
    pub fn row_end(&self) -> Option<&str> {
        Some(&self.columns.iter().find(|column| column.data_type == ROW_END)?.name)
    }

    /// Whether no row is longer than 1 MiB: InnoDB holds at most 64 KiB of a row besides its texts and BLOBs.
    pub fn has_short_rows(&self) -> bool {
        let has_64_kib = |column: &&StoredColumn| ["text", "blob"].contains(&&column.data_type[..]);
        let (texts, others): (Vec<_>, Vec<_>) = self.columns.iter().partition(has_64_kib);
        let short =
            |column: &&StoredColumn| Column::of(&column.name, &column.data_type).is_some_and(|it| it.is_short());
        texts.len() <= 8 && others.iter().all(short)
    }

    /// How the stored columns are queried and written.
    ///
    /// # Errors
    /// A type is unknown: the set is of a later version.
    pub fn forms(&self) -> Result<Vec<Column>> {
        let form = |column: &StoredColumn| {
            Column::of(&column.name, &column.data_type).ok_or_else(|| {
                let why = format!("its column `{}` has the type `{}`, which is unknown", column.name, column.data_type);
                Error::refused(format!("table {}", self.shown()), why, "use a newer fullbore, or leave this table out")
            })
        };
        self.columns.iter().map(form).collect()
    }
}

/// Another object with a body: a view, a routine, a trigger, an event.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Code {
    /// Its database.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// What it is, in the words of SQL: `VIEW`, `PROCEDURE`, `FUNCTION`, `TRIGGER`, `EVENT`, `PACKAGE`.
    pub kind: String,
    /// The table of a trigger; empty for others, and in sets of earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub table: String,
    /// As SHOW CREATE has it.
    pub create: String,
    /// The mode that its body was parsed in; empty for a view.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sql_mode: String,
    /// The collation that its database had at its creation: variables without a character set have it. Empty for a view, and in sets of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub database_collation: String,
    /// `character_set_client` of its creation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub character_set: String,
    /// `collation_connection` of its creation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub collation: String,
    /// The time zone of an event.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub time_zone: String,
    /// A view that names something which does not exist in the source, or which the backup leaves out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub broken: bool,
}

impl Code {
    /// Whether the session that made it was in UTF-8, or took bytes as they are.
    pub fn is_utf8(&self) -> bool {
        ["utf8mb4", "utf8mb3", "utf8", "binary", ""].contains(&self.character_set.as_str())
    }

    /// For messages: `view shop.totals`.
    pub fn shown(&self) -> String {
        format!("{} {}.{}", self.kind.to_lowercase(), self.schema, self.name)
    }
}

/// A user or a role of the server.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Account {
    /// Its name.
    pub user: String,
    /// Where it comes from.
    pub host: String,
    /// A role of MariaDB. Roles of MySQL are users.
    #[serde(default)]
    pub role: bool,
    /// CREATE USER, with the hash of its password; empty for a role.
    #[serde(default)]
    pub create: String,
    /// Its grants, as SHOW GRANTS has them.
    pub grants: Vec<String>,
    /// Its default roles, quoted.
    #[serde(default)]
    pub default_roles: Vec<String>,
    /// The hash of its second password, as a hexadecimal number; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub old_password: String,
}

impl std::fmt::Debug for Account {
    /// Without its statements: they have a hash.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account").field("user", &self.user).field("host", &self.host).finish_non_exhaustive()
    }
}

/// An object of a database, or an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "object", rename_all = "snake_case")]
pub enum Object {
    /// The database.
    Database {
        /// Its name.
        name: String,
        /// As SHOW CREATE DATABASE has it.
        create: String,
        /// Whether the set holds everything of it. Only then may a load drop the whole database. Sets of earlier versions
        /// do not say: false.
        #[serde(default)]
        whole: bool,
    },
    /// A sequence of MariaDB.
    Sequence {
        /// Its database.
        schema: String,
        /// Its name.
        name: String,
        /// As SHOW CREATE SEQUENCE has it.
        create: String,
        /// Its next value.
        next: String,
    },
    /// A table.
    Table(TableObject),
    /// Everything with a body.
    Code(Code),
    /// An account of the server.
    Account(Account),
}

/// The text of a catalog.
pub fn written(objects: impl IntoIterator<Item = impl Borrow<Object>>) -> Vec<u8> {
    let mut text = Vec::new();
    objects.into_iter().for_each(|object| write(&mut text, object.borrow()));
    text
}

/// Appends an object to the text of a catalog.
pub fn write(text: &mut Vec<u8>, object: &Object) {
    // A vector takes everything.
    let _ = serde_json::to_writer(&mut *text, object);
    text.push(b'\n');
}

/// The objects of a catalog. `stream` is its name, for errors.
///
/// # Errors
/// A line is not the JSON of an object.
pub fn read(stream: &str, text: &[u8]) -> Result<Vec<Object>> {
    objects(stream, text).collect()
}

/// The same, one after the other: a catalog of 50,000 tables is long.
pub fn objects(stream: &str, text: &[u8]) -> impl Iterator<Item = Result<Object>> {
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let object = move |line| {
        serde_json::from_slice(line).map_err(|error| {
            let why = format!("its catalog `{stream}` has a line that cannot be read: {error}");
            Error::incomplete("media set", why, "use another set, or a newer fullbore")
        })
    };
    lines.map(object)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_catalog_comes_back_and_a_line_that_is_none_is_refused() {
        let table = TableObject { schema: "a\nb".into(), name: "t`".into(), create: "x".into(), ..Default::default() };
        let code = Code { kind: "VIEW".into(), name: "v".into(), ..Default::default() };
        let objects = [
            Object::Database { name: "a\nb".into(), create: "CREATE".into(), whole: true },
            Object::Table(table),
            Object::Code(code),
        ];
        let text = written(&objects);
        assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 3);
        assert_eq!(read("c", &text).unwrap(), objects);
        let earlier = read("c", br#"{"object":"database","name":"a","create":"x"}"#).unwrap();
        assert!(matches!(earlier[..], [Object::Database { whole: false, .. }]));
        let error = read("shop/catalog.jsonl", b"{\"object\":\"engine\"}\n").unwrap_err().to_string();
        assert!(error.contains("shop/catalog.jsonl"), "{error}");
    }
}
