//! The objects of a load: databases and tables before the rows, all others after them.

use std::collections::BTreeMap;
use std::sync::Mutex;

use fullbore_core::threads::in_turns;
use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};

use super::plan::{Plan, PlannedTable};
use crate::mysql_family::connection::{Connection, Failure, ServerError};
use crate::mysql_family::logical::names::{literal, quoted};
use crate::mysql_family::logical_set::catalog::Code;
use crate::mysql_family::logical_set::lock;

/// How many statements are sent before the first answer is read.
const AHEAD: usize = 50;
/// How many bytes of statements are sent ahead.
const AHEAD_BYTES: usize = 32 << 10;
/// ER_DUP_KEYNAME.
const DOUBLED_NAME: u32 = 1061;
/// How many names an error lists.
const NAMED_MAX: usize = 5;
/// ER_WRONG_VALUE_FOR_VAR.
const WRONG_VALUE: u32 = 1231;
/// Parts of an SQL mode that MySQL 8.0 and later refuse. The first one is in the default of MySQL 5.7 and of MariaDB, and is about
/// GRANT. The next three are about SHOW CREATE. The others stand for parts that the mode lists, too.
const ENDED: [&str; 10] = [
    "NO_AUTO_CREATE_USER",
    "NO_FIELD_OPTIONS",
    "NO_KEY_OPTIONS",
    "NO_TABLE_OPTIONS",
    "DB2",
    "MAXDB",
    "MSSQL",
    "MYSQL323",
    "MYSQL40",
    "POSTGRESQL",
];

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

/// The error of a target that holds something already. A migration gives no database another name.
pub fn not_empty(server: &str, found: &[String], is_migration: bool) -> Error {
    let named = first_of(found, NAMED_MAX);
    let hint = match is_migration {
        true => "choose another server, or drop what is there with --replace",
        false => {
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
    drops(plan, &found).iter().try_for_each(|statement| Ok(connection.query(statement).map(drop)?))
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
    statements.iter().try_for_each(|statement| Ok(connection.query(statement).map(drop)?))
}

/// Creates databases, sequences and tables. `open` gives further connections, of which `at_once` work at a time.
///
/// # Errors
/// The server refuses one of them: the error names it.
pub fn create(
    connection: &mut Connection,
    open: &(dyn Fn() -> Result<Connection> + Sync),
    at_once: usize,
    plan: &Plan,
) -> Result<()> {
    for database in &plan.databases {
        let statement = format!("CREATE DATABASE IF NOT EXISTS {}{}", quoted(&database.name), database.options);
        connection.query(&statement).map_err(|failure| refused(&format!("database {}", database.name), failure))?;
    }
    for sequence in &plan.sequences {
        let place = sequence.quoted();
        let shown = format!("sequence {place}");
        let create = format!("CREATE SEQUENCE {place}{}", sequence.options);
        connection.query(&create).map_err(|failure| refused(&shown, failure))?;
        if sequence.next.parse::<i128>().is_ok() {
            connection.query(&format!("SELECT SETVAL({place}, {}, 0)", sequence.next))?;
        }
    }
    create_all_tables(connection, open, at_once, plan)
}

/// Creates the tables on several connections. Those with foreign keys come last and alone: a statement of MySQL locks the
/// tables that it refers to.
fn create_all_tables(
    connection: &mut Connection,
    open: &(dyn Fn() -> Result<Connection> + Sync),
    at_once: usize,
    plan: &Plan,
) -> Result<()> {
    // A foreign key without a database means the current one.
    let mut by_schema: BTreeMap<&str, (Vec<&PlannedTable>, Vec<&PlannedTable>)> = BTreeMap::new();
    for table in &plan.tables {
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

/// Adds the indexes of a table, or its foreign keys. `may_exist`: they may be there already.
///
/// # Errors
/// The server refuses.
pub fn add(connection: &mut Connection, table: &PlannedTable, what: &str, may_exist: bool) -> Result<()> {
    connection.query(&format!("USE {}", quoted(&table.schema)))?;
    match connection.query(&format!("ALTER TABLE {} {what}", table.quoted())) {
        Ok(_) => Ok(()),
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

/// Creates views, routines, triggers and events. A view may need another one: what is refused is tried again, as long as
/// something else was created.
///
/// # Errors
/// Names all that the server refuses in the end. All others are there.
pub fn create_code(connection: &mut Connection, plan: &Plan) -> Result<()> {
    create_all(connection, &plan.code)
}

/// The same for any of these objects.
///
/// # Errors
/// As [`create_code`].
pub fn create_all(connection: &mut Connection, code: &[Code]) -> Result<()> {
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
        if let Some(error) = first.filter(|_| left.len() == before) {
            return Err(refused_code(&left, &error));
        }
    }
    Ok(())
}

/// The error of a server that does not make these objects; `first` is about the first of them.
fn refused_code(left: &[&Code], first: &ServerError) -> Error {
    let named = first_of(left.iter().map(|code| code.shown()), NAMED_MAX);
    let hint = "what the target takes is there. Make what it needs on the target, such as a missing table, function or account, or \
                grant SET_ANY_DEFINER (MySQL) or SET USER (MariaDB). Then continue with --resume";
    Error::refused(named, format!("the target refuses it: {first}"), hint)
}

/// Runs the statement of an object, in its database and with the settings of its creation.
///
/// # Errors
/// The server refuses it.
pub fn run_code(connection: &mut Connection, code: &Code) -> Result<(), Failure> {
    connection.query(&format!("USE {}", quoted(&code.schema)))?;
    if let Some(wanted) = settings(code) {
        match connection.query(&wanted) {
            Err(Failure::Server(error)) if error.code == WRONG_VALUE => {
                let code = Code { sql_mode: without_ended(&code.sql_mode), ..code.clone() };
                settings(&code).map_or(Ok(()), |settings| connection.query(&settings).map(drop))?;
            }
            answer => drop(answer?),
        }
    }
    let before = take_collation(connection, code)?;
    let made = connection.run_bytes(code.create.as_bytes());
    if let Some(before) = before {
        connection.query(&format!("ALTER DATABASE {} COLLATE {before}", quoted(&code.schema)))?;
    }
    for statement in super::prepare::session_names() {
        connection.query(&statement)?;
    }
    made
}

/// Gives the database the collation that it had when the object was created, and gives the one that it has. None if they are equal.
fn take_collation(connection: &mut Connection, code: &Code) -> Result<Option<String>, Failure> {
    let wanted = &code.database_collation;
    let is_word = wanted.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if wanted.is_empty() || !is_word {
        return Ok(None);
    }
    let now = connection.query("SELECT @@collation_database")?.single().unwrap_or_default().to_owned();
    if is_same_collation(&now, wanted) {
        return Ok(None);
    }
    connection.query(&format!("ALTER DATABASE {} COLLATE {wanted}", quoted(&code.schema)))?;
    Ok(Some(now))
}

/// Whether two names are those of one collation: `utf8_general_ci` is `utf8mb3_general_ci`.
pub fn is_same_collation(one: &str, other: &str) -> bool {
    let whole = |name: &str| name.strip_prefix("utf8_").map_or(name.to_owned(), |rest| format!("utf8mb3_{rest}"));
    whole(one) == whole(other)
}

/// An SQL mode without the parts that MySQL 8.0 and later do not have, and that say nothing about an object.
pub fn without_ended(mode: &str) -> String {
    mode.split(',').filter(|part| !ENDED.contains(part)).collect::<Vec<_>>().join(",")
}

/// The statement for the settings of an object's creation.
pub fn settings(code: &Code) -> Option<String> {
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
    (!settings.is_empty()).then(|| format!("SET SESSION {}", settings.join(", ")))
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

#[cfg(test)]
mod tests {
    use super::super::plan::PlannedDatabase;
    use super::*;
    use crate::mysql_family::logical_set::catalog::TableObject;

    #[test]
    fn an_sql_mode_loses_only_the_parts_that_say_nothing_about_an_object() {
        let of_mariadb = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION";
        let expected = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION";
        assert_eq!(without_ended(of_mariadb), expected);
        // It changes the meaning of a body: the target refuses it.
        assert_eq!(without_ended("PIPES_AS_CONCAT,ORACLE,NO_KEY_OPTIONS"), "PIPES_AS_CONCAT,ORACLE");
        assert_eq!(without_ended("NO_AUTO_CREATE_USER"), "");
    }

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
