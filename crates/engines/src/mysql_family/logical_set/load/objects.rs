//! The objects of a load: databases and tables before the rows, all others after them.

use std::collections::BTreeMap;

use fullbore_core::{Error, Result};

use super::plan::{Plan, PlannedTable};
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::logical::names::{literal, quoted};
use crate::mysql_family::logical_set::catalog::Code;

/// How many statements are sent before the first answer is read.
const AHEAD: usize = 50;
/// How many bytes of statements are sent ahead.
const AHEAD_BYTES: usize = 32 << 10;
/// How many names an error lists.
const NAMED_MAX: usize = 5;

/// What the target holds under the names of the plan.
///
/// # Errors
/// The server refuses.
pub fn existing(connection: &mut Connection, plan: &Plan) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for database in &plan.databases {
        let answer = connection.query(&format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = {} UNION ALL SELECT routine_name FROM \
             information_schema.routines WHERE routine_schema = {0}",
            literal(&database.name)
        ))?;
        let names = answer.rows.into_iter().filter_map(|row| row.into_iter().next()?);
        let is_planned = |name: &str| {
            plan.tables
                .iter()
                .any(|table| table.schema == database.name && table.object.name.eq_ignore_ascii_case(name))
        };
        let taken = names.filter(|name| database.whole || is_planned(name));
        found.extend(taken.map(|name| format!("{}.{name}", database.name)));
    }
    Ok(found)
}

/// The error of a target that holds something already.
pub fn not_empty(server: &str, found: &[String]) -> Error {
    let more = if found.len() > NAMED_MAX { ", …" } else { "" };
    let named = found.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ") + more;
    let hint = "choose another server, give the database another name with --map OLD=NEW, or drop what is there with \
                --replace";
    Error::refused(server, format!("the target holds {named} already"), hint)
}

/// Drops what the target holds under the names of the plan.
///
/// # Errors
/// The server refuses.
pub fn drop_all(connection: &mut Connection, plan: &Plan) -> Result<()> {
    for database in &plan.databases {
        if database.whole {
            connection.query(&format!("DROP DATABASE IF EXISTS {}", quoted(&database.name)))?;
            continue;
        }
        for table in plan.tables.iter().filter(|table| table.schema == database.name) {
            connection.query(&format!("DROP TABLE IF EXISTS {}", table.quoted()))?;
        }
    }
    Ok(())
}

/// Creates databases, sequences and tables.
///
/// # Errors
/// The server refuses one of them: the error names it.
pub fn create(connection: &mut Connection, plan: &Plan) -> Result<()> {
    for database in &plan.databases {
        let statement = format!("CREATE DATABASE IF NOT EXISTS {}{}", quoted(&database.name), database.options);
        connection.query(&statement).map_err(|failure| refused(&format!("database {}", database.name), failure))?;
    }
    for sequence in &plan.sequences {
        let shown = format!("sequence {}", sequence.quoted);
        let create = format!("CREATE SEQUENCE {}{}", sequence.quoted, sequence.options);
        connection.query(&create).map_err(|failure| refused(&shown, failure))?;
        if sequence.next.parse::<i128>().is_ok() {
            connection.query(&format!("SELECT SETVAL({}, {}, 0)", sequence.quoted, sequence.next))?;
        }
    }
    // A foreign key without a database means the current one.
    let mut by_schema: BTreeMap<&str, Vec<&PlannedTable>> = BTreeMap::new();
    plan.tables.iter().for_each(|table| by_schema.entry(&table.schema).or_default().push(table));
    for (schema, tables) in by_schema {
        connection.query(&format!("USE {}", quoted(schema)))?;
        create_tables(connection, &tables)?;
    }
    Ok(())
}

fn create_tables(connection: &mut Connection, mut tables: &[&PlannedTable]) -> Result<()> {
    while !tables.is_empty() {
        let (mut statements, mut bytes) = (Vec::new(), 0);
        for table in tables.iter().take(AHEAD) {
            let statement = format!("CREATE TABLE {}{}", table.quoted(), table.split.create);
            bytes += statement.len();
            if bytes > AHEAD_BYTES && !statements.is_empty() {
                break;
            }
            statements.push(statement);
        }
        let (now, later) = tables.split_at(statements.len());
        connection.send_ahead(&statements)?;
        let mut first = None;
        for table in now {
            match connection.answer() {
                Ok(_) => {}
                Err(failure @ Failure::Server(_)) => {
                    first.get_or_insert_with(|| refused(&format!("table {}", table.shown()), failure));
                }
                Err(Failure::Fault(error)) => return Err(error),
            }
        }
        if let Some(error) = first {
            return Err(error);
        }
        tables = later;
    }
    Ok(())
}

/// Adds the indexes of a table, or its foreign keys.
///
/// # Errors
/// The server refuses.
pub fn add(connection: &mut Connection, table: &PlannedTable, what: &str) -> Result<()> {
    connection.query(&format!("USE {}", quoted(&table.schema)))?;
    let statement = format!("ALTER TABLE {} {what}", table.quoted());
    connection
        .query(&statement)
        .map_err(|failure| refused(&format!("an index or key of table {}", table.shown()), failure))?;
    Ok(())
}

/// Creates views, routines, triggers and events. A view may need another one: what is refused is tried again, as long as
/// something else was created.
///
/// # Errors
/// Names the first that the server refuses in the end.
pub fn create_code(connection: &mut Connection, plan: &Plan) -> Result<()> {
    let order = |code: &&Code| match &code.kind[..] {
        "VIEW" => 1,
        "TRIGGER" => 2,
        "EVENT" => 3,
        _ => 0,
    };
    let mut left: Vec<&Code> = plan.code.iter().collect();
    left.sort_by_key(order);
    while !left.is_empty() {
        let before = left.len();
        let (mut refused_now, mut first) = (Vec::new(), None);
        for code in left {
            match run_code(connection, code) {
                Ok(()) => {}
                Err(failure @ Failure::Server(_)) => {
                    first.get_or_insert_with(|| refused(&code.shown(), failure));
                    refused_now.push(code);
                }
                Err(Failure::Fault(error)) => return Err(error),
            }
        }
        left = refused_now;
        if let Some(error) = first.filter(|_| left.len() == before) {
            return Err(error);
        }
    }
    Ok(())
}

fn run_code(connection: &mut Connection, code: &Code) -> Result<(), Failure> {
    connection.query(&format!("USE {}", quoted(&code.schema)))?;
    let word = |text: &str| text.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | ','));
    let mut settings = Vec::new();
    if code.kind != "VIEW" && word(&code.sql_mode) {
        settings.push(format!("sql_mode = '{}'", code.sql_mode));
    }
    if !code.time_zone.is_empty() && code.time_zone.chars().all(|letter| !matches!(letter, '\'' | '\\')) {
        settings.push(format!("time_zone = '{}'", code.time_zone));
    }
    // The statement is UTF-8. It means the same in another character set only if it is ASCII.
    let is_utf8 = ["utf8mb4", "utf8mb3", "utf8"].contains(&code.character_set.as_str());
    if (is_utf8 || code.create.is_ascii())
        && !code.character_set.is_empty()
        && word(&code.character_set)
        && word(&code.collation)
    {
        settings.push(format!("character_set_client = {}", code.character_set));
        settings.push(format!("collation_connection = {}", code.collation));
    }
    if !settings.is_empty() {
        connection.query(&format!("SET SESSION {}", settings.join(", ")))?;
    }
    let made = connection.run_bytes(code.create.as_bytes());
    for statement in super::session_names() {
        connection.query(&statement)?;
    }
    made
}

/// The error of a server that does not make an object.
fn refused(what: &str, failure: Failure) -> Error {
    match failure {
        Failure::Server(error) => Error::refused(
            what,
            format!("the target refuses it: {error}"),
            "the target may be another version or vendor: leave the object out with --table, or load into another server",
        ),
        Failure::Fault(error) => error,
    }
}
