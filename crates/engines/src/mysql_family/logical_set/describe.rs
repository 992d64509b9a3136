//! The statements that create the objects of a server, asked for many at a time.

use std::collections::{BTreeMap, HashMap};

use fullbore_core::units::{counted, first_of};
use fullbore_core::{Error, Result};

use super::catalog::{Code, Object, TableObject};
use super::code_text;
use super::listing::{Kind, Listed, Listing};
use super::selection::Selection;
use super::server::{Facts, Texts, each_row, first_row};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure, ServerError};
use crate::mysql_family::logical::names::quoted;

/// How many statements are sent before the first answer is read. Together they fit into the buffers of the network.
const AHEAD: usize = 100;
/// How many names a warning lists.
const NAMED_MAX: usize = 10;
/// The answers to a question about an object that the account may not see.
const HIDDEN: [u32; 5] = [1142, 1044, 1227, 1370, 1305];

/// ER_VIEW_INVALID.
const VIEW_INVALID: &str = "1356";

/// The answers of a server without such a table: MySQL 9.0 and 9.1 have no libraries.
const NO_TABLE: [u32; 2] = [1109, 1146];

/// Definitions come in UTF-8, and rows as they are stored: a connection for rows changes over, and back.
pub const UTF8_NAMES: &str = "SET SESSION character_set_results = utf8mb4";
/// The way back.
pub const PLAIN_NAMES: &str = "SET SESSION character_set_results = NULL";

/// The objects by database, and what is not among them.
#[derive(Debug, Default)]
pub struct Described {
    /// For each database its objects without tables, in the order in which they are created.
    pub catalogs: BTreeMap<String, Vec<Object>>,
    /// CREATE TABLE of the tables at these places in the listing. The readers ask for those of tables with rows: a server
    /// opens a table once for both.
    pub creates: HashMap<usize, String>,
    /// What the set does not hold.
    pub warnings: Vec<String>,
}

/// Describes everything that was listed, except tables with rows.
///
/// # Errors
/// The server refuses to describe a view, or something has changed since it was listed.
pub fn describe(
    connection: &mut Connection,
    facts: &Facts,
    selection: &Selection,
    listing: &Listing,
) -> Result<Described> {
    let mut described = Described::default();
    let statements: Vec<_> =
        listing.databases.iter().map(|name| [format!("SHOW CREATE DATABASE {}", quoted(name))]).collect();
    let names = listing.databases.clone();
    let databases =
        ask(connection, &statements, |at| names.get(at).map_or_else(String::new, |name| format!("database {name}")))?;
    for (name, row) in names.into_iter().zip(databases) {
        let create = utf8(&row, 1, || format!("database {name}"))?;
        described
            .catalogs
            .insert(name.clone(), vec![Object::Database { whole: selection.takes_whole(&name), name, create }]);
    }
    described.others(connection, listing)?;
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

    /// Sequences, views, and tables without rows.
    fn others(&mut self, connection: &mut Connection, listing: &Listing) -> Result<()> {
        let others: Vec<_> = listing.tables.iter().enumerate().filter(|(_, table)| !table.has_rows()).collect();
        let (mut views, mut unusable) = (Vec::new(), Vec::new());
        for ((place, table), (row, is_broken)) in others.iter().zip(ask_others(connection, &others)?) {
            let (place, row) = (*place, &row);
            let create = create_of(table, row)?;
            let (schema, name) = (table.object.schema.clone(), table.object.name.clone());
            match table.kind {
                Kind::Table => drop(self.creates.insert(place, create)),
                Kind::View => {
                    let text = |column| utf8(row, column, || shown(table));
                    let (character_set, collation) = (text(2)?, text(3)?);
                    let kind = "VIEW".to_owned();
                    unusable.extend(is_broken.then(|| table.object.shown()));
                    let code = Code {
                        schema,
                        name,
                        kind,
                        create,
                        character_set,
                        collation,
                        broken: is_broken,
                        ..Code::default()
                    };
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
        self.warnings.extend(broken(&unusable));
        self.warnings.extend(without_tables(&mut views, listing));
        views.into_iter().for_each(|view| self.add(&view.schema.clone(), Object::Code(view)));
        Ok(())
    }

    /// Asks for the definitions of all tables that have none yet.
    ///
    /// # Errors
    /// The server refuses.
    pub fn tables(&mut self, connection: &mut Connection, listing: &Listing) -> Result<()> {
        let is_new = |(place, table): &(usize, &Listed)| table.kind == Kind::Table && !self.creates.contains_key(place);
        let tables: Vec<_> = listing.tables.iter().enumerate().filter(is_new).collect();
        let statements: Vec<_> = tables.iter().map(|(_, table)| [show_create(table)]).collect();
        let rows =
            ask(connection, &statements, |at| tables.get(at).map_or_else(String::new, |(_, table)| shown(table)))?;
        for ((place, table), row) in tables.into_iter().zip(rows) {
            self.creates.insert(place, create_of(table, &row)?);
        }
        Ok(())
    }

    /// All objects of a database whose definitions are there: tables follow the database and its sequences. The first
    /// `begin` of them are left out.
    pub fn objects<'a>(
        &'a self,
        listing: &'a Listing,
        schema: &'a str,
        begin: usize,
    ) -> impl Iterator<Item = Object> + 'a {
        enum Part<'a> {
            Object(&'a Object),
            Table(&'a TableObject, &'a str),
        }
        let objects = self.catalogs.get(schema).map_or(&[][..], Vec::as_slice);
        let (before, code) = objects.split_at(objects.partition_point(|object| !matches!(object, Object::Code(_))));
        let first = listing.tables.partition_point(|table| *table.object.schema < *schema);
        let of_schema =
            listing.tables.iter().enumerate().skip(first).take_while(move |(_, it)| it.object.schema == schema);
        let tables = of_schema.filter_map(|(place, it)| Some(Part::Table(&it.object, self.creates.get(&place)?)));
        let parts = before.iter().map(Part::Object).chain(tables).chain(code.iter().map(Part::Object));
        parts.skip(begin).map(|part| match part {
            Part::Object(object) => object.clone(),
            Part::Table(object, create) => Object::Table(TableObject { create: create.to_owned(), ..object.clone() }),
        })
    }

    fn code(&mut self, connection: &mut Connection, wanted: Vec<Wanted>) -> Result<()> {
        let show = |Wanted { schema, kind, name, .. }: &Wanted| {
            format!("SHOW CREATE {kind} {}.{}", quoted(schema), quoted(name))
        };
        let statements: Vec<String> = wanted.iter().map(show).collect();
        let mut hidden = Vec::new();
        let rows = ask_some(connection, &statements)?;
        for ((Wanted { schema, kind, name, table }, statement), row) in wanted.into_iter().zip(statements).zip(rows) {
            let shown = format!("{} {schema}.{name}", kind.to_lowercase());
            // An event has its time zone before its statement.
            let at = if kind == "EVENT" { 3 } else { 2 };
            let Some(row) = row.filter(|row| row.get(at).is_some_and(Option::is_some)) else {
                hidden.push(shown);
                continue;
            };
            let text = |column| utf8(&row, column, || shown.clone());
            let mut code = Code {
                sql_mode: text(1)?,
                create: text(at)?,
                character_set: text(at + 1)?,
                collation: text(at + 2)?,
                database_collation: text(at + 3)?,
                time_zone: if kind == "EVENT" { text(2)? } else { String::new() },
                kind: kind.to_owned(),
                schema: schema.clone(),
                name,
                table,
                broken: false,
            };
            if code_text::may_differ(&code) {
                code_text::mend(connection, &mut code, &statement, at)?;
            }
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

/// The descriptions of views and others, and whether the server cannot use a view: one of its warnings says so.
fn ask_others(connection: &mut Connection, others: &[(usize, &Listed)]) -> Result<Vec<(Texts, bool)>> {
    let statements: Vec<_> = others.iter().map(|(_, table)| [show_create(table), "SHOW WARNINGS".to_owned()]).collect();
    let is_it = |row: &Vec<Option<String>>| row.get(1).and_then(Option::as_deref) == Some(VIEW_INVALID);
    let read = |connection: &mut Connection| {
        let (row, warned) = (first_row(connection), connection.answer());
        Ok((row?.unwrap_or_default(), warned?.rows.iter().any(is_it)))
    };
    ask_each(connection, &statements, read, |at| others.get(at).map_or_else(String::new, |(_, table)| shown(table)))
}

/// The warning of views that the server cannot use.
fn broken(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| {
        format!(
            "the server cannot use these views, because they name a table, column, function or account that does not exist: {}. A \
             restore leaves them out if its server refuses them",
            named(names)
        )
    })
}

/// Marks the views that name a table or view which the backup leaves out, and gives the warning that names them.
fn without_tables(views: &mut [Code], listing: &Listing) -> Option<String> {
    let named_so = |schema: &str, name: &str| format!("{}.{}", quoted(schema), quoted(name));
    let missing = listing.left_out.iter().map(|(schema, table)| match table {
        Some(table) => named_so(schema, table),
        None => format!("{}.", quoted(schema)),
    });
    let (mut missing, mut marked): (Vec<String>, _) = (missing.collect(), Vec::new());
    let lacks = |view: &Code, missing: &[String]| !view.broken && missing.iter().any(|name| view.create.contains(name));
    while let Some(view) = views.iter_mut().find(|view| lacks(view, &missing)) {
        view.broken = true;
        missing.push(named_so(&view.schema, &view.name));
        marked.push(format!("{}.{}", view.schema, view.name));
    }
    (!marked.is_empty()).then(|| {
        format!(
            "these views name what --exclude leaves out: {}. A restore leaves them out if its server refuses them",
            named(&marked)
        )
    })
}

/// The statement that asks for a definition.
pub fn show_create(table: &Listed) -> String {
    let word = match table.kind {
        Kind::Table => "TABLE",
        Kind::View => "VIEW",
        Kind::Sequence => "SEQUENCE",
    };
    format!("SHOW CREATE {word} {}", table.object.quoted())
}

/// The definition out of the answer.
///
/// # Errors
/// It is not UTF-8.
pub fn create_of(table: &Listed, row: &Texts) -> Result<String> {
    utf8(row, 1, || shown(table))
}

fn shown(table: &Listed) -> String {
    let kind = if table.kind == Kind::View { "view" } else { "table" };
    format!("{kind} {}", table.object.shown())
}

/// The error of a server that does not describe something.
pub fn not_described(what: String, error: &ServerError) -> Error {
    let hint = "if it was dropped meanwhile, run the backup again. The account needs SELECT, for a view also SHOW VIEW. A \
                view on a missing table: drop it, or leave it out with --exclude";
    Error::refused(what, format!("the server does not describe it: {error}"), hint)
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
    if let Some(privilege) = facts.lacks_for_routines()
        && listing.databases.iter().any(|name| selection.takes_code(name))
    {
        warnings.push(format!("the account lacks {privilege}: this backup may hold no routines of other accounts"));
    }
    Ok(wanted)
}

/// The first row of each answer.
fn ask(connection: &mut Connection, statements: &[[String; 1]], what: impl Fn(usize) -> String) -> Result<Vec<Texts>> {
    ask_each(connection, statements, |connection| Ok(first_row(connection)?.unwrap_or_default()), what)
}

/// What `read` makes of the answers about each object. The statements are sent ahead, so it reads all of its answers, also behind
/// an error. `what` names an object.
fn ask_each<T, const N: usize>(
    connection: &mut Connection,
    statements: &[[String; N]],
    read: impl Fn(&mut Connection) -> Result<T, Failure>,
    what: impl Fn(usize) -> String,
) -> Result<Vec<T>> {
    let mut found = Vec::with_capacity(statements.len());
    for batch in statements.chunks(AHEAD / N) {
        connection.send_ahead(batch.as_flattened())?;
        let begun = found.len();
        let mut refused = None;
        for place in 0..batch.len() {
            match read(connection) {
                Ok(one) => found.push(one),
                Err(Failure::Server(error)) => {
                    refused.get_or_insert((place, error));
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        if let Some((place, error)) = refused {
            return Err(not_described(what(begun + place), &error));
        }
    }
    Ok(found)
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
