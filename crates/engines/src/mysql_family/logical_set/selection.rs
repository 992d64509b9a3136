//! Which databases, tables and rows a logical backup takes.

use std::collections::BTreeMap;

use fullbore_core::{Error, Result};

use crate::engine::GivenOptions;
use crate::mysql_family::logical::names::literal;
use crate::mysql_family::server_options::{DATABASE, EXCLUDE, TABLE, WHERE};
use crate::mysql_family::single_table::TableName;
use crate::mysql_family::sql_text::tokens;
use crate::mysql_family::url::ServerAddress;

/// The databases of the server itself.
pub const OWN: [&str; 4] = ["mysql", "sys", "performance_schema", "information_schema"];
/// The database that a load keeps its notes in.
pub const NOTES: &str = "fullbore_load";
/// The database that a migration keeps its state in.
pub const MIGRATION: &str = "fullbore_migrate";
/// Both.
const OURS: [&str; 2] = [NOTES, MIGRATION];

/// What to take. Empty lists mean everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    databases: Vec<String>,
    tables: Vec<TableName>,
    excluded_databases: Vec<String>,
    excluded_tables: Vec<TableName>,
    conditions: BTreeMap<(String, String), String>,
}

impl Selection {
    /// From the URL and the options.
    ///
    /// # Errors
    /// A name is not one, or options contradict each other.
    pub fn of(address: &ServerAddress, given: &GivenOptions) -> Result<Self> {
        let mut databases = given.texts(&DATABASE).to_vec();
        databases.extend(address.database.clone());
        if let Some(own) = databases.iter().find(|name| OWN.contains(&name.as_str())) {
            let why = "is a database of the server itself, which a logical backup does not store";
            return Err(Error::usage(format!("--database {own}"), why, "leave it out"));
        }
        let tables = given.texts(&TABLE).iter().map(|name| TableName::parse(name)).collect::<Result<Vec<_>>>()?;
        if let Some(table) = tables.iter().find(|table| databases.contains(&table.schema)) {
            let why = format!("the URL or --database takes all tables of `{}` already", table.schema);
            let hint = "name the database in --table only";
            return Err(Error::usage(format!("--table {}.{}", table.schema, table.table), why, hint));
        }
        let mut selection = Self { databases, tables, ..Self::default() };
        for name in given.texts(&EXCLUDE) {
            match name.strip_suffix(".*") {
                Some(database) => selection.excluded_databases.push(database.to_owned()),
                None => selection.excluded_tables.push(TableName::parse(name)?),
            }
        }
        selection.refuse_contradiction()?;
        for text in given.texts(&WHERE) {
            let (table, condition) =
                text.split_once(':').filter(|(_, condition)| !condition.trim().is_empty()).ok_or_else(|| {
                    Error::usage(
                        "--where",
                        "it has no condition after a colon",
                        "write --where 'DATABASE.TABLE:CONDITION'",
                    )
                })?;
            if !is_closed(condition) {
                let why = "its parentheses do not match";
                return Err(Error::usage(format!("--where {text}"), why, "write a condition that is complete"));
            }
            let table = TableName::parse(table)?;
            selection.conditions.insert((table.schema, table.table), condition.to_owned());
        }
        Ok(selection)
    }

    /// Refuses `--exclude` with the name of something that the URL, `--database` or `--table` asks for.
    fn refuse_contradiction(&self) -> Result<()> {
        let named = self.databases.iter().map(|name| (name.as_str(), None));
        let mut named = named.chain(self.tables.iter().map(|name| (name.schema.as_str(), Some(name.table.as_str()))));
        let is_out = |(schema, table): &(&str, Option<&str>)| {
            self.exclusions().any(|(out, name)| out == *schema && (name.is_none() || name == *table))
        };
        match named.find(is_out) {
            None => Ok(()),
            Some((schema, table)) => {
                let shown =
                    table.map_or_else(|| format!("database {schema}"), |table| format!("table {schema}.{table}"));
                let why = format!("the URL, --database or --table asks for {shown}, and --exclude leaves it out");
                Err(Error::usage("--exclude", why, "leave out one of the two"))
            }
        }
    }

    /// These databases; without names, all of them.
    pub fn of_databases(names: &[String]) -> Self {
        Self { databases: names.to_vec(), ..Self::default() }
    }

    /// Whether options leave something out. A database in the URL is a whole of its own.
    pub fn is_part(&self, address: &ServerAddress) -> bool {
        let of_url = Self { databases: address.database.iter().cloned().collect(), ..Self::default() };
        *self != of_url
    }

    /// Whether it takes all databases of the server.
    pub fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// The databases that it names.
    pub fn named(&self) -> impl Iterator<Item = &String> {
        self.databases.iter()
    }

    /// Whether it takes anything of a database.
    pub fn takes_database(&self, name: &str) -> bool {
        let named = self.databases.is_empty() && self.tables.is_empty()
            || self.databases.iter().any(|known| known == name)
            || self.tables.iter().any(|table| table.schema == name);
        named && !OWN.contains(&name) && !OURS.contains(&name) && !self.excluded_databases.iter().any(|out| out == name)
    }

    /// Whether it takes a table or view.
    pub fn takes_table(&self, schema: &str, table: &str) -> bool {
        let is = |name: &TableName| name.schema == schema && name.table == table;
        let named =
            self.tables.is_empty() || self.tables.iter().any(is) || self.databases.iter().any(|it| it == schema);
        named && self.takes_database(schema) && !self.excluded_tables.iter().any(is)
    }

    /// What `--exclude` names: databases, and tables with their databases.
    pub fn exclusions(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let databases = self.excluded_databases.iter().map(|name| (name.as_str(), None));
        databases.chain(self.excluded_tables.iter().map(|name| (name.schema.as_str(), Some(name.table.as_str()))))
    }

    /// Whether it takes everything of a database that is not a table: routines and events.
    pub fn takes_code(&self, schema: &str) -> bool {
        self.takes_database(schema) && (self.tables.is_empty() || self.databases.iter().any(|it| it == schema))
    }

    /// Whether it takes every table and object of a database.
    pub fn takes_whole(&self, schema: &str) -> bool {
        self.takes_code(schema) && !self.excluded_tables.iter().any(|out| out.schema == schema)
    }

    /// The condition for the rows of a table.
    pub fn condition(&self, schema: &str, table: &str) -> Option<&String> {
        self.conditions.get(&(schema.to_owned(), table.to_owned()))
    }

    /// The condition that bounds a query of `information_schema` to these databases. `column` has their names.
    pub fn databases_in(&self, column: &str) -> String {
        let list = |names: &mut dyn Iterator<Item = &str>| names.map(literal).collect::<Vec<_>>().join(", ");
        let own = list(&mut OWN.into_iter().chain(OURS));
        let mut named: Vec<&str> = self.databases.iter().map(String::as_str).collect();
        named.extend(self.tables.iter().map(|table| table.schema.as_str()));
        match named.is_empty() {
            true => format!("{column} NOT IN ({own})"),
            false => format!("{column} IN ({}) AND {column} NOT IN ({own})", list(&mut named.into_iter())),
        }
    }

    /// Names of the selection that the server does not have. `has` knows databases and tables.
    pub fn missing(&self, has: impl Fn(&str, Option<&str>) -> bool) -> Option<String> {
        let database = self.databases.iter().find(|name| !has(name, None)).map(|name| format!("database {name}"));
        let conditioned = self.conditions.keys().map(|(schema, table)| (schema, table));
        let tables = self.tables.iter().map(|table| (&table.schema, &table.table)).chain(conditioned);
        let table = || tables.into_iter().find(|(schema, table)| !has(schema, Some(table)));
        database.or_else(|| table().map(|(schema, table)| format!("table {schema}.{table}")))
    }
}

/// Whether each parenthesis of a condition closes within it. A condition with `) OR (` would take the place of the range of a
/// reader, too: then no chunk ends.
fn is_closed(condition: &str) -> bool {
    let mut depth = 0_usize;
    for token in tokens(condition.as_bytes()) {
        let next = match condition.get(token.place) {
            Some("(") => depth.checked_add(1),
            Some(")") => depth.checked_sub(1),
            _ => Some(depth),
        };
        let Some(next) = next else { return false };
        depth = next;
    }
    depth == 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::{GivenIn, OptionValue};

    fn selection(url: &str, options: &[(&'static crate::engine::EngineOption, &str)]) -> Result<Selection> {
        let mut given = GivenOptions::default();
        for (option, text) in options {
            given.add(option, OptionValue::Texts(vec![(*text).to_owned()]), GivenIn::Flag);
        }
        Selection::of(&ServerAddress::parse(url).unwrap(), &given)
    }

    #[test]
    fn databases_tables_and_exclusions_join() {
        let all = selection("mysql://h", &[(&EXCLUDE, "old.*"), (&EXCLUDE, "shop.log")]).unwrap();
        assert!(all.takes_table("shop", "item") && all.takes_code("shop") && !all.takes_table("shop", "log"));
        assert!(all.takes_whole("other") && !all.takes_whole("shop") && !all.takes_whole("old"));
        assert!(!all.takes_database("old") && !all.takes_database("mysql") && !all.takes_database(NOTES));
        let some = selection("mysql://h/shop", &[(&TABLE, "`a.b`.t"), (&WHERE, "a.t:x > ':'")]);
        let some = some.unwrap();
        assert!(some.takes_table("shop", "any") && some.takes_code("shop") && some.takes_table("a.b", "t"));
        assert!(some.takes_whole("shop") && !some.takes_whole("a.b"));
        assert!(!some.takes_table("a.b", "u") && !some.takes_code("a.b") && !some.takes_database("c"));
        assert_eq!(some.condition("a", "t").unwrap(), "x > ':'");
        assert!(selection("mysql://h", &[(&WHERE, "a.t:(x = ')') or `)` in (1, (2)) -- )")]).is_ok());
        assert_eq!(some.missing(|schema, _| schema == "shop").unwrap(), "table a.b.t");
        assert_eq!(some.missing(|_, _| true), None);
    }

    #[test]
    fn options_make_a_part_and_a_database_in_the_url_does_not() {
        let is_part = |url: &str, options: &[(&'static crate::engine::EngineOption, &str)]| {
            selection(url, options).unwrap().is_part(&ServerAddress::parse(url).unwrap())
        };
        assert!(!is_part("mysql://h", &[]) && !is_part("mysql://h/shop", &[]));
        for (option, text) in [(&DATABASE, "a"), (&TABLE, "a.t"), (&EXCLUDE, "a.t"), (&WHERE, "a.t:x > 1")] {
            assert!(is_part("mysql://h", &[(option, text)]), "{text}");
        }
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        let wrong = [(&WHERE, "a.t:x=1) or (x=2"), (&WHERE, "a.t:(x=1"), (&WHERE, "a.t"), (&WHERE, "a.t: ")];
        for (option, text) in [(&TABLE, "t"), (&EXCLUDE, "t"), (&DATABASE, "mysql")].into_iter().chain(wrong) {
            assert_eq!(selection("mysql://h", &[(option, text)]).unwrap_err().exit_kind().exit_code(), 2, "{text}");
        }
    }

    #[test]
    fn a_table_of_a_database_that_is_taken_whole_is_refused() {
        let error = selection("mysql://h/shop", &[(&TABLE, "shop.item")]).unwrap_err();
        assert!(error.to_string().contains("takes all tables of `shop` already"), "{error}");
    }

    #[test]
    fn what_is_asked_for_and_left_out_at_once_is_refused() {
        for (url, asked, out) in [
            ("mysql://h/shop", (&EXCLUDE, "a.b"), "shop.*"),
            ("mysql://h", (&DATABASE, "shop"), "shop.*"),
            ("mysql://h", (&TABLE, "shop.item"), "shop.*"),
            ("mysql://h", (&TABLE, "shop.item"), "shop.item"),
        ] {
            let error = selection(url, &[asked, (&EXCLUDE, out)]).unwrap_err();
            assert!(error.to_string().contains("--exclude leaves it out"), "{error}");
        }
        assert!(selection("mysql://h/shop", &[(&EXCLUDE, "shop.item")]).is_ok());
    }
}
