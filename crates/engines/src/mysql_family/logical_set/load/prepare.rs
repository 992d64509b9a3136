//! Before the first row: the connections of a load, the checks of the target, and its databases and tables.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};

use super::creation::is_same_collation;
use super::ddl::bare_timestamp;
use super::plan::{Plan, PlannedDatabase, PlannedTable};
use super::rows::SHOWN_MAX;
use super::{history, notes, objects, rollback};
use crate::engine::LoadOrder;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::logical::dump::UNLIMITED;
use crate::mysql_family::logical::names::{literal, quoted};
use crate::mysql_family::logical_set::catalog::Code;
use crate::mysql_family::logical_set::selection::NOTES;
use crate::mysql_family::logical_set::server::{Facts, Login, demand_vendor};

/// ER_VERS_NOT_SUPPORTED.
const NOT_OF_VERSIONED: u32 = 4137;
/// ER_ILLEGAL_HA.
const NOT_OF_ENGINE: u32 = 1031;
/// How many databases an error lists.
const NAMED_MAX: usize = 5;

/// The mode for loading: no value is cut off or replaced silently, and all dates that can be stored are accepted.
pub const MODE: &str = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION,NO_DIR_IN_CREATE";
/// Settings that stored generated columns may depend on.
pub const SETTINGS: &str = "lc_time_names = 'en_US', div_precision_increment = 4, default_week_format = 0";
/// A column without a default has none.
const EXPLICIT_TIMESTAMPS: &str = "explicit_defaults_for_timestamp = 1";
/// How long the server may be silent: it may create an index of a large table.
const SILENCE: Duration = Duration::from_secs(24 * 3600);
/// The settings of names and modes, for objects.
pub fn session_names() -> [String; 2] {
    let set = format!("SET SESSION sql_mode = '{MODE},STRICT_ALL_TABLES', time_zone = '+00:00'");
    ["SET NAMES utf8mb4".to_owned(), set]
}

/// A connection with the settings of a load.
///
/// # Errors
/// The server cannot be reached, or refuses.
pub fn control(login: &Login) -> Result<Connection> {
    let mut connection = Connection::open_loading(&login.address, &login.credentials, login.halt.clone())?;
    demand_vendor(&connection, login.address.dialect)?;
    connection.set_silence(SILENCE);
    for statement in session_names() {
        connection.query(&statement)?;
    }
    connection.query(&format!("SET SESSION foreign_key_checks = 0, sql_safe_updates = 0, {SETTINGS}, {UNLIMITED}"))?;
    connection.set_if_taken(&format!("max_error_count = {SHOWN_MAX}"))?;
    let of_dialect: &[&str] = match login.address.dialect {
        Dialect::MySql => {
            &[
                EXPLICIT_TIMESTAMPS,
                "max_execution_time = 0",
                "sql_require_primary_key = 0",
                "sql_generate_invisible_primary_key = 0",
                "show_gipk_in_create_table_and_information_schema = 1",
                // A foreign key may refer to columns that are not unique.
                "restrict_fk_on_non_standard_key = 0",
                // The default of 1 MiB sorts the entries of an index in many small runs.
                "innodb_ddl_buffer_size = 67108864",
            ]
        }
        Dialect::MariaDb => &[
            EXPLICIT_TIMESTAMPS,
            "max_statement_time = 0, idle_transaction_timeout = 0",
            // The source has taken rows that break a CHECK, such as a JSON text that is none: by INSERT IGNORE.
            "check_constraint_checks = 0",
            // The log of the target needs no text of a statement besides its rows.
            "binlog_annotate_row_events = 0",
            // A change of a system-versioned table keeps the history.
            "system_versioning_alter_history = KEEP",
        ],
    };
    of_dialect.iter().try_for_each(|setting| connection.set_if_taken(setting))?;
    Ok(connection)
}

/// Marks the tables whose rows can be part of a transaction: by the target's engines.
///
/// # Errors
/// The server refuses.
pub fn mark_transactions(control: &mut Connection, plan: &mut Plan) -> Result<()> {
    let answer = control.query("SELECT engine FROM information_schema.engines WHERE transactions = 'YES'")?;
    let engines: Vec<String> = answer.rows.into_iter().filter_map(|row| row.into_iter().next()?).collect();
    for table in &mut plan.tables {
        let is_one = engines.iter().any(|engine| engine.eq_ignore_ascii_case(&table.object.engine));
        table.transactional = is_one && !table.takes_one_at_a_time();
    }
    Ok(())
}

/// A target that gives TIMESTAMP columns a default and changes them at each update takes no column without a default.
///
/// # Errors
/// It is such a target, and the set has such a column.
fn demand_timestamps(control: &mut Connection, plan: &Plan) -> Result<()> {
    let explicit = control.query_if_allowed("SELECT @@SESSION.explicit_defaults_for_timestamp")?;
    if explicit.is_none_or(|answer| answer.single() != Some("0")) {
        return Ok(());
    }
    let bare = |table: &PlannedTable| Some((table.shown(), bare_timestamp(&table.split.create)?));
    let Some((table, column)) = plan.tables.iter().find_map(bare) else { return Ok(()) };
    let why =
        "it has no default, and the target would change it at each update (explicit_defaults_for_timestamp = OFF)";
    let hint = "let the target start with explicit_defaults_for_timestamp = ON, or leave the table out with --table";
    Err(Error::refused(format!("{table}, column {column}"), why, hint))
}

/// Checks the target and makes everything that comes before the rows. Gives what an earlier load left.
///
/// # Errors
/// The server refuses, or holds something already.
pub fn prepared(
    control: &mut Connection,
    login: &Login,
    order: &LoadOrder,
    plan: &mut Plan,
    facts: &Facts,
    users: bool,
) -> Result<notes::Earlier> {
    let server = login.address.name();
    let without_history = plan.tables.iter().any(|table| table.dropped.is_some());
    let (earlier, selection) = (notes::read(control)?, notes::selection(order, users, without_history));
    let same = earlier.set.as_deref() == Some(&order.set.to_string());
    let continues = order.resume && same;
    if continues && earlier.selection != selection {
        return Err(other_selection(server));
    }
    if continues && earlier.created {
        return if order.dry_run { Ok(earlier) } else { continued(control, order, plan, &earlier) };
    }
    // The run was killed while it made its notes: it has made nothing else.
    let is_bare = order.resume && earlier.set.as_deref() == Some("");
    if earlier.set.is_some() && !order.replace && !continues && !is_bare {
        let why = "the target holds a load that was interrupted";
        let hint = if same {
            "continue it with --resume, or begin again with --replace"
        } else {
            "begin again with --replace"
        };
        return Err(Error::refused(server, why, hint));
    }
    let replaced = if order.replace { databases_there(control)? } else { HashSet::new() };
    demand_privileges(plan, facts, order.check, &replaced, &server)?;
    demand_trust(control, order, plan, facts)?;
    demand_timestamps(control, plan)?;
    if facts.lower_case_table_names != 0 {
        demand_names(plan, &server)?;
    }
    // A load that continues has made what is there: a part of its empty tables.
    let there = if continues { objects::tables_there(control, plan)? } else { HashSet::new() };
    let found = if continues { Vec::new() } else { objects::existing(control, plan)? };
    if !found.is_empty() && !order.replace {
        return Err(objects::not_empty(&server, &found, order.leave_events, order.resume));
    }
    if order.replace && !(same && earlier.selection == selection) {
        demand_nothing_else(control, plan, &earlier)?;
    }
    if order.dry_run {
        return Ok(notes::Earlier::default());
    }
    if order.replace {
        objects::drop_all(control, plan)?;
    }
    if order.replace || is_bare {
        notes::remove(control)?;
    }
    if !continues || order.replace {
        let databases: Vec<String> = plan.databases.iter().map(|database| database.name.clone()).collect();
        notes::begin(control, order.set, &selection, &databases)?;
    }
    objects::create(control, &|| self::control(login), order.at_once, plan, &there)?;
    notes::created(control)?;
    Ok(notes::Earlier::default())
}

/// A load that continues behind its first row: what is there of it, when the transactions of the killed run have ended.
fn continued(
    control: &mut Connection,
    order: &LoadOrder,
    plan: &mut Plan,
    earlier: &notes::Earlier,
) -> Result<notes::Earlier> {
    rollback::wait(control, order, plan, &earlier.streams)?;
    begin_again(control, plan)?;
    // A commit of the killed run may have ended meanwhile.
    let now = notes::read(control)?;
    if now.set == earlier.set {
        return Ok(now);
    }
    let why = "another run has ended this load, or has begun again, meanwhile";
    Err(Error::refused(control.name(), why, "wait until it has ended, and look at the target"))
}

/// Another load that was interrupted has left nothing that stays: without its notes, its tables would look complete.
fn demand_nothing_else(control: &mut Connection, plan: &Plan, earlier: &notes::Earlier) -> Result<()> {
    let is_dropped = |name: &String| plan.databases.iter().any(|database| database.whole && database.name == *name);
    let left = earlier.databases.iter().filter(|name| !is_dropped(name));
    let there = databases_there(control)?;
    let left: Vec<&String> = left.filter(|name| there.contains(*name)).collect();
    if left.is_empty() {
        return Ok(());
    }
    let named = first_of(&left, NAMED_MAX);
    let why = format!("another load into it was interrupted, and its tables are not complete: {named}");
    let hint = "continue that load with --resume and its own set and options. Or drop what it has made and the database \
                fullbore_load, and begin again";
    Err(Error::refused(control.name(), why, hint))
}

/// The databases of the target that the account may see.
fn databases_there(control: &mut Connection) -> Result<HashSet<String>> {
    let there = control.query("SELECT schema_name FROM information_schema.schemata")?;
    Ok(there.rows.into_iter().flatten().flatten().collect())
}

/// Refuses functions and triggers that the server does not create with a binary log: it takes them from trusted accounts only.
/// <https://dev.mysql.com/doc/refman/9.7/en/stored-programs-logging.html>
fn demand_trust(control: &mut Connection, order: &LoadOrder, plan: &Plan, facts: &Facts) -> Result<()> {
    /// What MariaDB takes in the place of SUPER.
    const TRUSTED: [&str; 3] = ["SUPER", "BINLOG ADMIN", "ALL PRIVILEGES"];
    /// Without one of these words, MySQL and MariaDB take a function from no account.
    const SAFE: [&str; 3] = ["DETERMINISTIC", "NO SQL", "READS SQL DATA"];
    let guarded: Vec<&Code> =
        plan.code.iter().filter(|code| ["FUNCTION", "TRIGGER"].contains(&&code.kind[..])).collect();
    if guarded.is_empty() || !facts.binary_log {
        return Ok(());
    }
    if order.new_server {
        // A private server: nobody else has an account.
        return Ok(control.query("SET GLOBAL log_bin_trust_function_creators = ON").map(drop)?);
    }
    if control.query("SELECT @@log_bin_trust_function_creators")?.single() != Some("0") {
        return Ok(());
    }
    let is_trusted = TRUSTED.iter().any(|privilege| facts.grants.globally(privilege));
    let is_safe = |code: &Code| {
        let text = code.create.to_uppercase();
        code.kind != "FUNCTION" || SAFE.iter().any(|word| text.contains(word))
    };
    let refused = guarded.into_iter().filter(|code| !is_trusted || !is_safe(code)).map(Code::shown);
    let named = first_of(refused, NAMED_MAX);
    if named.is_empty() {
        return Ok(());
    }
    let why = format!("it has a binary log and log_bin_trust_function_creators = OFF, so it refuses {named}");
    let hint = "SET GLOBAL log_bin_trust_function_creators = ON on the target. For a trigger, or a function that is DETERMINISTIC, NO SQL or \
                READS SQL DATA, SUPER allows it, too";
    Err(Error::refused(control.name(), why, hint))
}

/// Refuses an account that lacks privileges, and names each. `replaced`: what `--replace` may have to drop.
fn demand_privileges(plan: &Plan, facts: &Facts, check: bool, replaced: &HashSet<String>, server: &str) -> Result<()> {
    let missing_on = |schema: &str, wanted: &[&str]| {
        let missing: Vec<&str> = wanted.iter().copied().filter(|privilege| !facts.allows(schema, privilege)).collect();
        (!missing.is_empty()).then(|| format!("{} ON {}.*", missing.join(", "), quoted(schema)))
    };
    let mut missing: Vec<String> =
        missing_on(NOTES, &["CREATE", "DROP", "SELECT", "INSERT", "UPDATE"]).into_iter().collect();
    for database in &plan.databases {
        let of_schema = |table: &&PlannedTable| table.schema == database.name;
        let tables = || plan.tables.iter().filter(of_schema);
        let has = |kind: &str| plan.code.iter().any(|code| code.schema == database.name && code.kind == kind);
        let wanted = [
            ("CREATE", true),
            ("DROP", replaced.contains(&database.name)),
            ("INSERT", tables().next().is_some()),
            ("SELECT", check),
            ("ALTER", tables().any(is_altered) || has_other_collations(database, plan)),
            ("INDEX", tables().any(|table| !table.split.indexes.is_empty())),
            ("REFERENCES", tables().any(|table| table.split.has_foreign_keys())),
            ("CREATE VIEW", has("VIEW")),
            ("CREATE ROUTINE", ["FUNCTION", "PROCEDURE", "PACKAGE"].into_iter().any(has)),
            ("TRIGGER", has("TRIGGER")),
            ("EVENT", has("EVENT")),
        ];
        let wanted: Vec<&str> =
            wanted.into_iter().filter(|(_, needed)| *needed).map(|(privilege, _)| privilege).collect();
        missing.extend(missing_on(&database.name, &wanted));
    }
    let Some(first) = missing.first() else { return Ok(()) };
    let more = if missing.len() > NAMED_MAX { "; …" } else { "" };
    let why = format!("the account lacks {}{more}", missing[..missing.len().min(NAMED_MAX)].join("; "));
    let notes = format!("The load keeps its notes in the database {NOTES}");
    Err(Error::refused(server, why, format!("GRANT {first} TO …, and so on, or load with another account. {notes}")))
}

/// Whether a database gets other collations for a moment, for its routines, triggers and events.
pub fn has_other_collations(database: &PlannedDatabase, plan: &Plan) -> bool {
    let of_it = plan.code.iter().filter(|code| code.schema == database.name && !code.database_collation.is_empty());
    let mut collations = database.collation().into_iter().chain(of_it.map(|code| &code.database_collation[..]));
    let Some(first) = collations.next() else { return false };
    collations.any(|other| !is_same_collation(first, other))
}

/// Whether a statement alters a table after its rows.
fn is_altered(table: &PlannedTable) -> bool {
    !table.split.indexes.is_empty() || table.split.foreign_keys.is_some() || history::has_period(table)
}

/// What comes behind the rows goes first: a trigger would change the rows that are loaded again. It is made again at the end. A
/// database may have the collation of an object whose statement was running.
///
/// No note tells which rows of a table without transactions are there: such a table is emptied and loaded again. So is a
/// table whose history stays away: all of its rows are counted.
fn begin_again(control: &mut Connection, plan: &mut Plan) -> Result<()> {
    objects::drop_code(control, plan)?;
    for database in plan.databases.iter().filter(|it| it.whole) {
        give_collation_back(control, database)?;
    }
    let is_unknown = |table: &&mut PlannedTable| !table.transactional || table.dropped.is_some();
    for table in plan.tables.iter_mut().filter(is_unknown).filter(|table| table.object.has_rows()) {
        let name = table.quoted();
        match control.query(&format!("TRUNCATE TABLE {name}")) {
            Ok(_) => {}
            // A table with system versioning.
            Err(Failure::Server(error)) if error.code == NOT_OF_VERSIONED => {
                control.query(&format!("DELETE FROM {name}"))?;
                control.query(&format!("DELETE HISTORY FROM {name}"))?;
            }
            // ARCHIVE and others only grow.
            Err(Failure::Server(error)) if error.code == NOT_OF_ENGINE => {
                control.query(&format!("DROP TABLE {name}"))?;
                control.query(&format!("CREATE TABLE {name}{}", table.split.create))?;
            }
            Err(failure) => return Err(failure.into()),
        }
        table.again = true;
    }
    Ok(())
}

/// Gives a database the collation of the set, if it has another one. A statement that changes nothing would wait for the last
/// transaction of a killed load.
fn give_collation_back(control: &mut Connection, database: &PlannedDatabase) -> Result<()> {
    let now = control.query(&format!(
        "SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = {}",
        literal(&database.name)
    ))?;
    let wanted = match (database.collation(), database.character_set()) {
        (Some(collation), _) => Some(collation.to_owned()),
        (None, Some(set)) => {
            let asked = "SELECT default_collate_name FROM information_schema.character_sets WHERE character_set_name";
            control.query(&format!("{asked} = {}", literal(set)))?.single().map(str::to_owned)
        }
        (None, None) => None,
    };
    if let (Some(wanted), Some(now)) = (wanted, now.single())
        && !is_same_collation(&wanted, now)
    {
        control.query_if_allowed(&format!("ALTER DATABASE {} COLLATE {wanted}", quoted(&database.name)))?;
    }
    Ok(())
}

/// The error of a load that continues with other tables or names: rows that the first run passed over would be missing.
fn other_selection(server: String) -> Error {
    let why = "the interrupted load in the target has other --table, --map or --users options, or the target takes the history \
               of tables in only one of the two runs";
    let hint = "give the same options as in its first run, or begin again with --replace and without --resume";
    Error::refused(server, why, hint)
}

/// Refuses names that are one for the target.
fn demand_names(plan: &Plan, server: &str) -> Result<()> {
    let mut seen = HashMap::new();
    let databases = plan.databases.iter().map(|database| database.name.clone());
    for shown in databases.chain(plan.tables.iter().map(PlannedTable::shown)) {
        if let Some(other) = seen.insert(shown.to_lowercase(), shown.clone()) {
            let why = format!("it compares names without case, and the set has both {other} and {shown}");
            return Err(Error::refused(server, why, "load into a server with lower_case_table_names = 0"));
        }
    }
    Ok(())
}
