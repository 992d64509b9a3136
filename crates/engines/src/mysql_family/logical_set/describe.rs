//! The statements that create the objects of a server, asked for many at a time.

use std::collections::BTreeMap;

use fullbore_core::units::{counted, first_of};
use fullbore_core::{Error, Result};

use super::catalog::{Code, Object};
use super::listing::{Kind, Listing};
use super::selection::Selection;
use super::server::{Facts, Texts, each_row, first_row};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::logical::names::quoted;

/// How many statements are sent before the first answer is read. Together they fit into the buffers of the network.
const AHEAD: usize = 100;
/// How many names a warning lists.
const NAMED_MAX: usize = 10;
/// The answers to a question about an object that the account may not see.
const HIDDEN: [u32; 5] = [1142, 1044, 1227, 1370, 1305];

/// The answers of a server without such a table: MySQL 9.0 and 9.1 have no libraries.
const NO_TABLE: [u32; 2] = [1109, 1146];

/// The objects by database, and what is not among them.
#[derive(Debug, Default)]
pub struct Described {
    /// For each database its objects, in the order in which they are created.
    pub catalogs: BTreeMap<String, Vec<Object>>,
    /// What the set does not hold.
    pub warnings: Vec<String>,
}

/// Describes everything that was listed, and adds the statements to the tables of `listing`.
///
/// # Errors
/// The server refuses to describe a table or view, or a table has changed since it was listed.
pub fn describe(
    connection: &mut Connection,
    facts: &Facts,
    selection: &Selection,
    listing: &mut Listing,
) -> Result<Described> {
    let mut described = Described::default();
    let statements: Vec<String> =
        listing.databases.iter().map(|name| format!("SHOW CREATE DATABASE {}", quoted(name))).collect();
    let names = listing.databases.clone();
    let databases =
        ask(connection, &statements, |at| names.get(at).map_or_else(String::new, |name| format!("database {name}")))?;
    for (name, row) in names.into_iter().zip(databases) {
        let create = utf8(&row, 1, || format!("database {name}"))?;
        described
            .catalogs
            .insert(name.clone(), vec![Object::Database { whole: selection.takes_whole(&name), name, create }]);
    }
    described.tables(connection, listing)?;
    let wanted = wanted_code(connection, facts, selection, listing, &mut described.warnings)?;
    described.code(connection, wanted)?;
    described.warnings.extend(libraries(connection, facts, selection)?);
    Ok(described)
}

/// The events of the databases, for a server that runs none of them yet.
///
/// # Errors
/// The server refuses.
pub fn events(connection: &mut Connection, selection: &Selection) -> Result<Vec<Code>> {
    let within = selection.databases_in("event_schema");
    let asked = format!("SELECT event_schema, event_name FROM information_schema.events WHERE {within} ORDER BY 1, 2");
    let named = connection.query(&asked)?.rows.into_iter().filter_map(|row| match <[_; 2]>::try_from(row) {
        Ok([Some(schema), Some(name)]) if selection.takes_code(&schema) => {
            Some(Wanted { schema, kind: "EVENT", name, table: String::new() })
        }
        _ => None,
    });
    let mut described = Described::default();
    described.code(connection, named.collect())?;
    let code = |object| match object {
        Object::Code(code) => Some(code),
        _ => None,
    };
    Ok(described.catalogs.into_values().flatten().filter_map(code).collect())
}

/// A routine, trigger or event to describe.
struct Wanted {
    schema: String,
    kind: &'static str,
    name: String,
    /// Of a trigger.
    table: String,
}

impl Described {
    fn add(&mut self, schema: &str, object: Object) {
        self.catalogs.entry(schema.to_owned()).or_default().push(object);
    }

    /// Tables, sequences and views.
    fn tables(&mut self, connection: &mut Connection, listing: &mut Listing) -> Result<()> {
        let statements: Vec<String> =
            listing.tables.iter().map(|table| show_create(table.kind, &table.object.quoted())).collect();
        let rows = ask(connection, &statements, |at| {
            listing.tables.get(at).map_or_else(String::new, |table| format!("table {}", table.object.shown()))
        })?;
        let mut views = Vec::new();
        for (table, row) in listing.tables.iter_mut().zip(rows) {
            let shown = table.object.shown();
            let create = utf8(&row, 1, || format!("table {shown}"))?;
            let (schema, name) = (table.object.schema.clone(), table.object.name.clone());
            match table.kind {
                Kind::Table => {
                    table.object.create = create;
                    self.add(&schema, Object::Table(table.object.clone()));
                }
                Kind::View => {
                    let text = |column| utf8(&row, column, || format!("view {shown}"));
                    let (character_set, collation) = (text(2)?, text(3)?);
                    let kind = "VIEW".to_owned();
                    let code = Code { schema, name, kind, create, character_set, collation, ..Code::default() };
                    views.push(code);
                }
                Kind::Sequence => {
                    let quoted = table.object.quoted();
                    let next = connection.query(&format!("SELECT next_not_cached_value FROM {quoted}"))?;
                    let next = next.single().unwrap_or_default().to_owned();
                    self.add(&schema.clone(), Object::Sequence { schema, name, create, next });
                }
            }
        }
        views.into_iter().for_each(|view| self.add(&view.schema.clone(), Object::Code(view)));
        Ok(())
    }

    fn code(&mut self, connection: &mut Connection, wanted: Vec<Wanted>) -> Result<()> {
        let show = |Wanted { schema, kind, name, .. }: &Wanted| {
            format!("SHOW CREATE {kind} {}.{}", quoted(schema), quoted(name))
        };
        let statements: Vec<String> = wanted.iter().map(show).collect();
        let mut hidden = Vec::new();
        let rows = ask_some(connection, &statements)?;
        for (Wanted { schema, kind, name, table }, row) in wanted.into_iter().zip(rows) {
            let shown = format!("{} {schema}.{name}", kind.to_lowercase());
            // An event has its time zone before its statement.
            let at = if kind == "EVENT" { 3 } else { 2 };
            let Some(row) = row.filter(|row| row.get(at).is_some_and(Option::is_some)) else {
                hidden.push(shown);
                continue;
            };
            let text = |column| utf8(&row, column, || shown.clone());
            let code = Code {
                sql_mode: text(1)?,
                create: text(at)?,
                character_set: text(at + 1)?,
                collation: text(at + 2)?,
                time_zone: if kind == "EVENT" { text(2)? } else { String::new() },
                kind: kind.to_owned(),
                schema: schema.clone(),
                name,
                table,
            };
            self.add(&schema, Object::Code(code));
        }
        if !hidden.is_empty() {
            let count = counted(hidden.len() as u64, "object");
            let what = format!("the account may not see {count}, which this backup does not hold");
            let hint = "grant SHOW_ROUTINE (MySQL), SHOW CREATE ROUTINE or SELECT on mysql.proc (MariaDB)";
            self.warnings.push(format!("{what}: {}; {hint}", named(&hidden)));
        }
        Ok(())
    }
}

/// A warning that names the libraries of the databases, which a set does not hold.
fn libraries(connection: &mut Connection, facts: &Facts, selection: &Selection) -> Result<Option<String>> {
    if facts.dialect != Dialect::MySql || facts.series < (9, 0) {
        return Ok(None);
    }
    let within = selection.databases_in("library_schema");
    let asked = format!("SELECT library_schema, library_name FROM information_schema.libraries WHERE {within}");
    let answer = match connection.query(&asked) {
        Ok(answer) => answer,
        Err(Failure::Server(error)) if NO_TABLE.contains(&error.code) => return Ok(None),
        Err(failure) => return Err(failure.into()),
    };
    let name = |row: Vec<Option<String>>| match <[_; 2]>::try_from(row) {
        Ok([Some(schema), Some(name)]) if selection.takes_code(&schema) => Some(format!("{schema}.{name}")),
        _ => None,
    };
    let names: Vec<String> = answer.rows.into_iter().filter_map(name).collect();
    let warning = || format!("this backup holds no libraries (CREATE LIBRARY): {}", named(&names));
    Ok((!names.is_empty()).then(warning))
}

fn show_create(kind: Kind, quoted: &str) -> String {
    let word = match kind {
        Kind::Table => "TABLE",
        Kind::View => "VIEW",
        Kind::Sequence => "SEQUENCE",
    };
    format!("SHOW CREATE {word} {quoted}")
}

fn named(names: &[String]) -> String {
    first_of(names, NAMED_MAX)
}

/// The routines, triggers and events to describe, in the order in which they are created.
fn wanted_code(
    connection: &mut Connection,
    facts: &Facts,
    selection: &Selection,
    listing: &Listing,
    warnings: &mut Vec<String>,
) -> Result<Vec<Wanted>> {
    let kinds = ["PACKAGE", "PACKAGE BODY", "FUNCTION", "PROCEDURE", "TRIGGER", "EVENT"];
    let within = |column| selection.databases_in(column);
    let statements = [
        format!(
            "SELECT routine_schema, routine_name, routine_type, '' FROM information_schema.routines WHERE {} ORDER BY 1, 2",
            within("routine_schema")
        ),
        format!(
            "SELECT trigger_schema, trigger_name, 'TRIGGER', event_object_table FROM information_schema.triggers WHERE \
             {} ORDER BY trigger_schema, event_object_table, event_manipulation, action_timing, action_order",
            within("trigger_schema")
        ),
        format!(
            "SELECT event_schema, event_name, 'EVENT', '' FROM information_schema.events WHERE {} ORDER BY 1, 2",
            within("event_schema")
        ),
    ];
    let mut wanted = Vec::new();
    connection.send_ahead(&statements)?;
    for _ in &statements {
        each_row(connection, |row| {
            let text = |column: usize| {
                let value = row.get(column).copied().flatten().unwrap_or_default();
                String::from_utf8_lossy(value).into_owned()
            };
            let (schema, name, kind, table) = (text(0), text(1), text(2), text(3));
            let kind = kinds.iter().find(|known| **known == kind);
            let taken =
                if table.is_empty() { selection.takes_code(&schema) } else { selection.takes_table(&schema, &table) };
            wanted.extend(kind.filter(|_| taken).map(|kind| Wanted { schema, kind, name, table }));
            Ok(())
        })?;
    }
    // A package is made before its body.
    let order = |kind: &str| kinds.iter().position(|known| *known == kind);
    wanted.sort_by_key(|wanted: &Wanted| order(wanted.kind));
    for privilege in ["TRIGGER", "EVENT"] {
        let without: Vec<String> =
            listing.databases.iter().filter(|name| !facts.allows(name, privilege)).cloned().collect();
        if !without.is_empty() {
            let what = privilege.to_lowercase();
            warnings.push(format!(
                "the account lacks the privilege {privilege} on {}: this backup holds no {what}s of them",
                named(&without)
            ));
        }
    }
    let sees_all = match facts.dialect {
        Dialect::MySql => ["SHOW_ROUTINE", "SELECT"].iter().any(|privilege| facts.grants.globally(privilege)),
        Dialect::MariaDb => facts.allows("mysql", "SELECT") || facts.grants.globally("SHOW CREATE ROUTINE"),
    };
    if !sees_all
        && !facts.grants.globally("ALL PRIVILEGES")
        && listing.databases.iter().any(|name| selection.takes_code(name))
    {
        let privilege = if facts.dialect == Dialect::MySql { "SHOW_ROUTINE" } else { "SHOW CREATE ROUTINE" };
        warnings.push(format!("the account lacks {privilege}: this backup may hold no routines of other accounts"));
    }
    Ok(wanted)
}

/// The first row of each answer. The statements are sent ahead.
fn ask(connection: &mut Connection, statements: &[String], what: impl Fn(usize) -> String) -> Result<Vec<Texts>> {
    let mut rows = Vec::with_capacity(statements.len());
    for batch in statements.chunks(AHEAD) {
        connection.send_ahead(batch)?;
        let begun = rows.len();
        let mut refused = None;
        for place in 0..batch.len() {
            match first_row(connection) {
                Ok(row) => rows.push(row.unwrap_or_default()),
                Err(Failure::Server(error)) => {
                    refused.get_or_insert((place, error));
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        if let Some((place, error)) = refused {
            let hint = "if it was dropped meanwhile, run the backup again. The account needs SELECT, for a view also SHOW \
                        VIEW. A view on a missing table: drop it, or leave it out with --exclude";
            let why = format!("the server does not describe it: {error}");
            return Err(Error::refused(what(begun + place), why, hint));
        }
    }
    Ok(rows)
}

/// The same; None where the account may not see the object.
fn ask_some(connection: &mut Connection, statements: &[String]) -> Result<Vec<Option<Texts>>> {
    let mut rows = Vec::with_capacity(statements.len());
    for batch in statements.chunks(AHEAD) {
        connection.send_ahead(batch)?;
        for _ in batch {
            rows.push(match first_row(connection) {
                Ok(row) => row,
                Err(Failure::Server(error)) if HIDDEN.contains(&error.code) => None,
                Err(failure) => return Err(failure.into()),
            });
        }
    }
    Ok(rows)
}

/// A text of a description.
fn utf8(row: &Texts, column: usize, what: impl Fn() -> String) -> Result<String> {
    let value = row.get(column).cloned().flatten().unwrap_or_default();
    String::from_utf8(value).map_err(|_| {
        let why = "its definition has bytes that are not UTF-8, such as the default of a BINARY column";
        Error::refused(what(), why, "write the default as a hexadecimal number, or leave it out with --exclude")
    })
}
