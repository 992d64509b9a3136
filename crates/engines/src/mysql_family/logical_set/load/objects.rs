//! The objects of a load: databases and tables before the rows, all others after them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;

use fullbore_core::threads::in_turns;
use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};

use super::creation::run_code;
use super::ddl::set_sequence;
use super::plan::{Plan, PlannedTable};
use super::prepare::{MODE, session_names};
use crate::mysql_family::connection::{Connection, Failure, ServerError};
use crate::mysql_family::logical::names::{literal, quoted};
use crate::mysql_family::logical_set::catalog::Code;
use crate::mysql_family::logical_set::lock;

/// How many statements are sent before the first answer is read.
const AHEAD: usize = 50;
/// How many bytes of statements are sent ahead.
const AHEAD_BYTES: usize = 32 << 10;
/// What a server without a strict mode has taken: the same member twice in an ENUM or SET (ER_DUPLICATED_VALUE_IN_TYPE), and values
/// of computed columns that do not fit.
const LENIENT: [u32; 6] = [1291, 1264, 1265, 1292, 1366, 1406];
/// What a server says of the argument of a function, such as a text that is no date, number, address, JSON or XML, and of what an index
/// of an expression computes. Such a warning never
/// means that a column of the set changed.
pub const OF_FUNCTIONS: [u32; 23] = [
    1105, 1259, 1260, 1300, 1301, 1365, 1411, 1441, 1525, 1916, 1918, 1958, 1977, 3020, 3047, 3141, 3751, 3752, 4037,
    4038, 4042, 4183, 6527,
];
/// Warnings about words that a later series will not have, and about a doubled index.
const OF_WORDS: [u32; 6] = [1287, 1681, 3719, 3720, 3778, 1831];
/// What a server says of a disk without space. The last two are about the temporary files of a new index.
pub const DISK_FULL: [u32; 6] = [1114, 1021, 3, 28, 1878, 1026];
/// ER_DUP_KEYNAME.
const DOUBLED_NAME: u32 = 1061;
/// How many names an error lists.
const NAMED_MAX: usize = 5;
/// How many tables a question about foreign keys names.
const ASKED_AT_ONCE: usize = 500;

/// What the target holds under the names of the plan.
///
/// # Errors
/// The server refuses.
pub fn existing(connection: &mut Connection, plan: &Plan) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for database in &plan.databases {
        let answer = connection.query(&format!(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = {} UNION ALL SELECT routine_name FROM \
             information_schema.routines WHERE routine_schema = {0} UNION ALL SELECT event_name FROM \
             information_schema.events WHERE event_schema = {0}",
            literal(&database.name)
        ))?;
        let names = answer.rows.into_iter().filter_map(|row| row.into_iter().next()?);
        let taken = names.filter(|name| database.whole || plan.holds(&database.name, name));
        found.extend(taken.map(|name| format!("{}.{name}", database.name)));
    }
    Ok(found)
}

/// The tables and sequences of the plan that the target has, each with its database.
///
/// # Errors
/// The server refuses.
pub fn tables_there(connection: &mut Connection, plan: &Plan) -> Result<HashSet<(String, String)>> {
    let mut found = HashSet::new();
    let folds = connection.query("SELECT @@lower_case_table_names")?.single() != Some("0");
    let spelled = |name: &str| if folds { name.to_lowercase() } else { name.to_owned() };
    for database in &plan.databases {
        let asked = "SELECT table_name FROM information_schema.tables WHERE table_schema";
        let answer = connection.query(&format!("{asked} = {}", literal(&database.name)))?;
        found.extend(answer.rows.into_iter().flatten().flatten().map(|name| (database.name.clone(), spelled(&name))));
    }
    let tables = plan.tables.iter().map(|table| (table.schema.clone(), table.object.name.clone()));
    let all = tables.chain(plan.sequences.iter().map(|it| (it.schema.clone(), it.name.clone())));
    Ok(all.filter(|(schema, name)| found.contains(&(schema.clone(), spelled(name)))).collect())
}

/// The error of a target that holds something already. A migration gives no database another name. `resumes`: the user continues a
/// load, and the target notes none.
pub fn not_empty(server: &str, found: &[String], is_migration: bool, resumes: bool) -> Error {
    let named = first_of(found, NAMED_MAX);
    let hint = match (is_migration, resumes) {
        (_, true) => "no load of this set is interrupted there: an earlier run has completed it, or it was never begun",
        (true, false) => {
            "if an earlier migration is complete, there is nothing to do. Else choose another server, or drop what is there with --replace"
        }
        (false, false) => {
            "choose another server, give the database another name with --map OLD=NEW, or drop what is there with --replace"
        }
    };
    Error::refused(server, format!("the target holds {named} already"), hint)
}

/// Drops what the target holds under the names of the plan. Nothing else of a database goes, unless the plan holds all of
/// it.
///
/// # Errors
/// The server refuses.
pub fn drop_all(connection: &mut Connection, plan: &Plan) -> Result<()> {
    let mut found = Vec::new();
    for database in plan.databases.iter().filter(|database| !database.whole) {
        let schema = &database.name;
        let asked = "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema";
        let answer = connection.query(&format!("{asked} = {}", literal(schema)))?;
        for row in answer.rows {
            if let Ok([Some(name), Some(kind)]) = <[_; 2]>::try_from(row)
                && plan.holds(schema, &name)
            {
                found.push((schema.clone(), name, kind));
            }
        }
    }
    run_drops(connection, &drops(plan, &found))
}

/// MariaDB before 12 knows the word PACKAGE in the mode ORACLE only.
fn run_drops(connection: &mut Connection, statements: &[String]) -> Result<()> {
    for statement in statements {
        let of_package = statement.starts_with("DROP PACKAGE");
        if of_package {
            connection.query("SET SESSION sql_mode = 'ORACLE'")?;
        }
        connection.query(statement)?;
        if of_package {
            session_names().iter().try_for_each(|setting| connection.query(setting).map(drop))?;
        }
    }
    Ok(())
}

/// `found` are the tables, views and sequences of the target that go: a view can have the name of a table in the set.
fn drops(plan: &Plan, found: &[(String, String, String)]) -> Vec<String> {
    let (whole, parts): (Vec<_>, Vec<_>) = plan.databases.iter().partition(|database| database.whole);
    let mut statements: Vec<String> =
        whole.iter().map(|database| format!("DROP DATABASE IF EXISTS {}", quoted(&database.name))).collect();
    statements.extend(found.iter().map(|(schema, name, kind)| {
        let kind = match &kind[..] {
            "VIEW" => "VIEW",
            "SEQUENCE" => "SEQUENCE",
            _ => "TABLE",
        };
        format!("DROP {kind} IF EXISTS {}.{}", quoted(schema), quoted(name))
    }));
    // A trigger goes with its table. A trigger of this name on another table stays: the server refuses the new one.
    let is_part = |schema: &str| parts.iter().any(|database| database.name == schema);
    let code = plan.code.iter().filter(|code| !["TRIGGER", "VIEW"].contains(&&code.kind[..]) && is_part(&code.schema));
    statements.extend(code.map(drop_one));
    statements
}

fn drop_one(code: &Code) -> String {
    format!("DROP {} IF EXISTS {}.{}", code.kind, quoted(&code.schema), quoted(&code.name))
}

/// Drops the objects that an interrupted load of the same plan has made after its rows. All triggers of its tables are its
/// own: it has created the tables.
///
/// # Errors
/// The server refuses.
pub fn drop_code(connection: &mut Connection, plan: &Plan) -> Result<()> {
    let mut statements: Vec<String> = plan.code.iter().filter(|code| code.kind != "TRIGGER").map(drop_one).collect();
    for database in &plan.databases {
        let schema = &database.name;
        let asked = "SELECT trigger_name, event_object_table, @@lower_case_table_names FROM information_schema.triggers WHERE \
                     trigger_schema";
        for row in connection.query(&format!("{asked} = {}", literal(schema)))?.rows {
            let Ok([Some(name), Some(table), Some(case)]) = <[_; 3]>::try_from(row) else { continue };
            let is_it = |it: &str| it == table || (case != "0" && it.to_lowercase() == table.to_lowercase());
            if plan.tables.iter().any(|it| it.schema == *schema && is_it(&it.object.name)) {
                statements.push(format!("DROP TRIGGER IF EXISTS {}.{}", quoted(schema), quoted(&name)));
            }
        }
    }
    run_drops(connection, &statements)
}

/// Creates databases, sequences and tables, except those that are `there` already. `open` gives further connections, of which `at_once`
/// work at a time.
///
/// # Errors
/// The server refuses one of them: the error names it.
pub fn create(
    connection: &mut Connection,
    open: &(dyn Fn() -> Result<Connection> + Sync),
    at_once: usize,
    plan: &Plan,
    there: &HashSet<(String, String)>,
) -> Result<()> {
    for database in &plan.databases {
        let statement = format!("CREATE DATABASE IF NOT EXISTS {}{}", quoted(&database.name), database.options);
        connection.query(&statement).map_err(|failure| refused(&format!("database {}", database.name), failure))?;
    }
    let is_new = |schema: &str, name: &str| !there.contains(&(schema.to_owned(), name.to_owned()));
    for sequence in &plan.sequences {
        let place = sequence.quoted();
        let shown = format!("sequence {place}");
        let create = format!("CREATE SEQUENCE {place}{}", sequence.options);
        if is_new(&sequence.schema, &sequence.name) {
            connection.query(&create).map_err(|failure| refused(&shown, failure))?;
        }
        if let Some(set) = set_sequence(&place, &sequence.options, &sequence.next) {
            connection.query(&set).map_err(|failure| refused(&shown, failure))?;
        }
    }
    let tables = plan.tables.iter().filter(|table| is_new(&table.schema, &table.object.name));
    create_all_tables(connection, open, at_once, tables)
}

/// Creates the tables on several connections. Those with foreign keys come last and alone: a statement of MySQL locks the
/// tables that it refers to.
fn create_all_tables<'p>(
    connection: &mut Connection,
    open: &(dyn Fn() -> Result<Connection> + Sync),
    at_once: usize,
    tables: impl Iterator<Item = &'p PlannedTable>,
) -> Result<()> {
    // A foreign key without a database means the current one.
    let mut by_schema: BTreeMap<&str, (Vec<&PlannedTable>, Vec<&PlannedTable>)> = BTreeMap::new();
    for table in tables {
        let (plain, keyed) = by_schema.entry(&table.schema).or_default();
        if table.split.makes_foreign_keys() { keyed.push(table) } else { plain.push(table) }
    }
    let batches =
        by_schema.iter().flat_map(|(schema, (plain, _))| plain.chunks(AHEAD).map(move |batch| (schema, batch)));
    let connections = Mutex::new(Vec::new());
    in_turns("load", at_once.max(1), batches.collect::<Vec<_>>(), |(schema, batch)| {
        let spare = lock(&connections).pop();
        let mut connection = spare.map_or_else(open, Ok)?;
        connection.query(&format!("USE {}", quoted(schema)))?;
        create_tables(&mut connection, batch)?;
        lock(&connections).push(connection);
        Ok(())
    })?;
    lock(&connections).drain(..).for_each(Connection::quit);
    for (schema, (_, keyed)) in by_schema.iter().filter(|(_, (_, keyed))| !keyed.is_empty()) {
        connection.query(&format!("USE {}", quoted(schema)))?;
        create_tables(connection, keyed)?;
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
        let (mut first, mut again) = (None, Vec::new());
        for (table, statement) in now.iter().zip(&statements) {
            match connection.answer() {
                Ok(_) => {}
                Err(Failure::Server(error)) if is_lenient(error.code) => again.push((table, statement)),
                Err(failure @ Failure::Server(_)) => {
                    first.get_or_insert_with(|| refused(&format!("table {}", table.shown()), failure));
                }
                Err(Failure::Fault(error)) => return Err(error),
            }
        }
        if let Some(error) = first {
            return Err(error);
        }
        for (table, statement) in again {
            define(connection, statement).map_err(|failure| refused(&format!("table {}", table.shown()), failure))?;
        }
        tables = later;
    }
    Ok(())
}

/// Whether a server without a strict mode only warns of it.
fn is_lenient(code: u32) -> bool {
    LENIENT.contains(&code) || OF_FUNCTIONS.contains(&code)
}

/// Runs a statement that defines a table, or an index of it. A source without a strict mode may have taken more than this session.
fn define(connection: &mut Connection, statement: &str) -> Result<(), Failure> {
    let refused = match connection.query(statement) {
        Err(Failure::Server(error)) if is_lenient(error.code) => error,
        answer => return answer.map(drop),
    };
    connection.query(&format!("SET SESSION sql_mode = '{MODE}'"))?;
    let made = connection.query(statement).map(drop);
    let warned = connection.query("SHOW WARNINGS")?;
    for statement in session_names() {
        connection.query(&statement)?;
    }
    let number = |row: &Vec<Option<String>>| row.get(1).cloned().flatten()?.parse().ok();
    let is_it = |row| number(row).is_some_and(|number| is_lenient(number) || OF_WORDS.contains(&number));
    // Without a strict mode, a key that is too long becomes shorter.
    if warned.rows.iter().all(is_it) { made } else { Err(Failure::Server(refused)) }
}

/// Adds the indexes of a table, or its foreign keys. `may_exist`: they may be there already.
///
/// # Errors
/// The server refuses.
pub fn add(connection: &mut Connection, table: &PlannedTable, what: &str, may_exist: bool) -> Result<()> {
    connection.query(&format!("USE {}", quoted(&table.schema)))?;
    match define(connection, &format!("ALTER TABLE {} {what}", table.quoted())) {
        Ok(()) => Ok(()),
        // All indexes of one statement are there, or none.
        Err(Failure::Server(error)) if may_exist && error.code == DOUBLED_NAME => Ok(()),
        Err(failure) => Err(refused(&format!("an index or key of table {}", table.shown()), failure)),
    }
}

/// Whether a table has foreign keys already: all of them are made by one statement.
///
/// # Errors
/// The server refuses.
pub fn has_foreign_keys(connection: &mut Connection, table: &PlannedTable) -> Result<bool> {
    let answer = connection.query(&format!(
        "SELECT 1 FROM information_schema.table_constraints WHERE constraint_type = 'FOREIGN KEY' AND table_schema = {} \
         AND table_name = {} LIMIT 1",
        literal(&table.schema),
        literal(&table.object.name)
    ))?;
    Ok(!answer.rows.is_empty())
}

/// A warning that names the loaded tables whose foreign keys refer to a table that the target does not have. A load of a part of a
/// database may leave the parents out.
///
/// # Errors
/// The server refuses.
pub fn without_parents(connection: &mut Connection, plan: &Plan) -> Result<Option<String>> {
    let parts: HashSet<&str> = plan.databases.iter().filter(|it| !it.whole).map(|it| &it.name[..]).collect();
    let keyed = plan.tables.iter().filter(|table| parts.contains(&table.schema[..]) && table.split.has_foreign_keys());
    let keyed: Vec<String> =
        keyed.map(|it| format!("({}, {})", literal(&it.schema), literal(&it.object.name))).collect();
    let mut orphans = Vec::new();
    for some in keyed.chunks(ASKED_AT_ONCE) {
        let answer = connection.query(&format!(
            "SELECT DISTINCT r.constraint_schema, r.table_name, r.unique_constraint_schema, r.referenced_table_name \
             FROM information_schema.referential_constraints r LEFT JOIN information_schema.tables t \
             ON t.table_schema = r.unique_constraint_schema AND t.table_name = r.referenced_table_name \
             WHERE (r.constraint_schema, r.table_name) IN ({}) AND t.table_name IS NULL",
            some.join(", ")
        ))?;
        orphans.extend(answer.rows.into_iter().filter_map(|row| match <[_; 4]>::try_from(row) {
            Ok([Some(schema), Some(table), Some(of), Some(parent)]) => {
                Some(format!("{schema}.{table} ({of}.{parent})"))
            }
            _ => None,
        }));
    }
    let named = first_of(&orphans, NAMED_MAX);
    let why = "the target does not have the tables that foreign keys of these tables refer to";
    Ok((!orphans.is_empty())
        .then(|| format!("{why}: {named}. INSERT and UPDATE fail there until they are loaded, too")))
}

/// Creates views, routines, triggers and events. A view may need another one: what is refused is tried again, as long as
/// something else was created. Gives a warning with the broken views of the set that the server refuses.
///
/// # Errors
/// Names all that the server refuses in the end. All others are there.
pub fn create_code(connection: &mut Connection, plan: &Plan) -> Result<Option<String>> {
    let (broken, sound): (Vec<Code>, Vec<Code>) = plan.code.iter().cloned().partition(|code| code.broken);
    let created = create_all(connection, &sound);
    let (left, first) = create_most(connection, &broken)?;
    created?;
    Ok(first.map(|first| {
        let named = first_of(left.iter().map(|view| view.shown()), NAMED_MAX);
        format!("the target refuses views that name something missing, and they are left out: {named}: {first}")
    }))
}

/// The same for any of these objects.
///
/// # Errors
/// As [`create_code`].
pub fn create_all(connection: &mut Connection, code: &[Code]) -> Result<()> {
    let (left, first) = create_most(connection, code)?;
    first.map_or(Ok(()), |first| Err(refused_code(&left, &first)))
}

/// Gives what the server refuses in the end, with its error about the first of them.
fn create_most<'c>(connection: &mut Connection, code: &'c [Code]) -> Result<(Vec<&'c Code>, Option<ServerError>)> {
    let order = |code: &&Code| match &code.kind[..] {
        "VIEW" => 1,
        "TRIGGER" => 2,
        "EVENT" => 3,
        _ => 0,
    };
    let mut left: Vec<&Code> = code.iter().collect();
    left.sort_by_key(order);
    while !left.is_empty() {
        let before = left.len();
        let (mut refused_now, mut first) = (Vec::new(), None);
        for code in left {
            match run_code(connection, code) {
                Ok(()) => {}
                Err(Failure::Server(error)) => {
                    first.get_or_insert(error);
                    refused_now.push(code);
                }
                Err(Failure::Fault(error)) => return Err(error),
            }
        }
        left = refused_now;
        if first.is_some() && left.len() == before {
            return Ok((left, first));
        }
    }
    Ok((left, None))
}

/// The error of a server that does not make these objects; `first` is about the first of them.
fn refused_code(left: &[&Code], first: &ServerError) -> Error {
    let named = first_of(left.iter().map(|code| code.shown()), NAMED_MAX);
    let hint = "what the target takes is there. Make what it needs on the target, such as a missing table, function or account, or \
                grant SET_ANY_DEFINER and SYSTEM_USER (MySQL) or SET USER (MariaDB). Then continue with --resume";
    Error::refused(named, format!("the target refuses it: {first}"), hint)
}

/// The error of a server that does not make an object.
fn refused(what: &str, failure: Failure) -> Error {
    let error = match failure {
        Failure::Server(error) => error,
        Failure::Fault(error) => return error,
    };
    let hint = match DISK_FULL.contains(&error.code) {
        true => "free space on the target, then continue with --resume",
        false => {
            "the target may be another version or vendor: leave the object out with --table, or load into another server"
        }
    };
    Error::refused(what, format!("the target refuses it: {error}"), hint)
}

#[cfg(test)]
mod tests {
    use super::super::plan::PlannedDatabase;
    use super::*;
    use crate::mysql_family::logical_set::catalog::TableObject;

    #[test]
    fn replace_drops_a_database_only_if_the_set_holds_all_of_it() {
        let database = |name: &str, whole| PlannedDatabase { name: name.into(), options: String::new(), whole };
        let table = |schema: &str| PlannedTable {
            object: TableObject { schema: "old".into(), name: "a".into(), ..TableObject::default() },
            schema: schema.into(),
            split: super::super::ddl::Split::default(),
            columns: Default::default(),
            transactional: true,
            again: false,
            dropped: None,
        };
        let code = |kind: &str, schema: &str| Code {
            kind: kind.into(),
            schema: schema.into(),
            name: "c".into(),
            ..Code::default()
        };
        let plan = Plan {
            databases: vec![database("all", true), database("part", false)],
            tables: vec![table("all"), table("part")],
            code: vec![code("VIEW", "all"), code("TRIGGER", "part"), code("PROCEDURE", "part")],
            ..Plan::default()
        };
        let expected =
            ["DROP DATABASE IF EXISTS `all`", "DROP VIEW IF EXISTS `part`.`a`", "DROP PROCEDURE IF EXISTS `part`.`c`"];
        assert_eq!(drops(&plan, &[("part".into(), "a".into(), "VIEW".into())]), expected);
        assert!(plan.holds("part", "A") && plan.holds("part", "c") && !plan.holds("part", "log"));
    }
}
