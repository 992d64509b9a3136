//! What of a log must not be applied to a running server: accounts, tables of the server itself, our own databases, and
//! databases of the target that the set does not hold.

use std::collections::BTreeSet;

use crate::mysql_family::binlog::cut::place_of;
use crate::mysql_family::binlog::statement::{Kind, Statement};
use crate::mysql_family::logical::names::quoted;
use crate::mysql_family::logical_set::selection::{MIGRATION, NOTES, OWN};

/// Why no event may be in the target before the end of the log.
pub const RUNS_EVENTS: &str = "the target runs events (event_scheduler = ON), so an event would change rows beside the log, which has \
                               what the events of the source did. SET GLOBAL event_scheduler = OFF until the restore has ended";

/// What becomes of a statement.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It runs.
    Apply,
    /// It does not.
    LeaveOut,
    /// It runs when the target has dropped its database of this (quoted) name.
    Replace(String),
}

/// The rules of one restore.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    /// Statements about accounts are applied.
    pub with_accounts: bool,
    /// The set has accounts.
    pub has_accounts: bool,
    /// Databases that the target had before, and that are not of the set, in lower case.
    pub foreign: BTreeSet<String>,
    /// They may be dropped where the log creates them.
    pub replace: bool,
    /// Tables of the set without transactions, in lower case: `database.table`.
    pub unsettled: BTreeSet<String>,
    /// The place in the log where the set was complete: its file and its offset. None: it is unknown.
    pub complete: Option<(String, u64)>,
    /// The target runs events: those of the set and of the log would write beside the log.
    pub runs_events: bool,
    /// How many statements about accounts were left out.
    pub accounts_left_out: u64,
    /// How many statements about tables of the server itself were left out.
    pub own_left_out: u64,
}

impl Guard {
    /// Whether a set was not complete yet at a place.
    pub fn is_before_the_end_of_the_set(&self, file: &str, offset: u64) -> bool {
        self.complete.as_ref().is_some_and(|(end, at)| place_of(file, offset) < place_of(end, *at))
    }

    /// From now on, places are in the log of another server: the set was complete before, or it is unknown when.
    pub fn leave_server(&mut self, file: &str, offset: u64) {
        self.complete = self.complete.take().filter(|(end, at)| place_of(end, *at) <= place_of(file, offset));
        if let Some(complete) = &mut self.complete {
            *complete = (String::new(), 0);
        }
    }

    /// Whether the rows of a table are applied.
    ///
    /// # Errors
    /// They must not come, and must not be missing either.
    pub fn takes_rows(&self, schema: &str, table: &str, place: (&str, u64)) -> Result<bool, String> {
        if is_not_a_users(schema) {
            return Ok(false);
        }
        if self.foreign.contains(&schema.to_lowercase()) {
            return Err(self.of_another(schema));
        }
        let name = format!("{}.{}", schema.to_lowercase(), table.to_lowercase());
        if self.unsettled.contains(&name) && self.is_unsettled_at(place) {
            return Err(twice(&name));
        }
        Ok(true)
    }

    fn is_unsettled_at(&self, (file, offset): (&str, u64)) -> bool {
        self.complete.is_none() || self.is_before_the_end_of_the_set(file, offset)
    }

    /// What becomes of a statement, of a group that begins at a place.
    ///
    /// # Errors
    /// Why it can neither run nor be left out.
    pub fn judge(&mut self, kind: Kind, statement: &Statement, place: (&str, u64)) -> Result<Verdict, String> {
        if kind == Kind::Account && !self.with_accounts {
            self.accounts_left_out += 1;
            return Ok(Verdict::LeaveOut);
        }
        if kind == Kind::Account {
            return Ok(Verdict::Apply);
        }
        if is_of_the_server(kind, statement)? {
            self.own_left_out += 1;
            return Ok(Verdict::LeaveOut);
        }
        if kind == Kind::Rows && self.is_unsettled_at(place) {
            // The server logs a statement as rows if it changes tables with and without transactions.
            let text = String::from_utf8_lossy(&statement.text).to_lowercase();
            let table = |name: &String| name.split_once('.').is_some_and(|(_, table)| text.contains(table));
            if let Some(name) = self.unsettled.iter().find(|name| table(name)) {
                return Err(twice(name));
            }
        }
        if kind == Kind::Event && self.runs_events && !statement.shown().starts_with("DROP") {
            return Err(format!("it makes or changes an event: {RUNS_EVENTS}"));
        }
        let about = statement.about();
        let met =
            |name: &str| about.iter().any(|known| known.eq_ignore_ascii_case(name)) || statement.names_database(name);
        let Some(name) = self.foreign.iter().find(|name| met(name)).cloned() else { return Ok(Verdict::Apply) };
        if self.replace && statement.detached {
            self.foreign.remove(&name);
            return Ok(Verdict::Replace(quoted(&String::from_utf8_lossy(&statement.schema))));
        }
        Err(self.of_another(&name))
    }

    fn of_another(&self, schema: &str) -> String {
        let way = if self.replace { "" } else { ", and --replace is not given" };
        format!("it changes the database `{schema}`: the target had it before, and the set does not hold it{way}")
    }
}

/// Why changes of a table without transactions cannot be applied.
fn twice(name: &str) -> String {
    format!("{name} has no transactions, and changed while the set was made: the set may hold these rows already")
}

/// Databases of the server itself, and ours.
pub fn is_not_a_users(schema: &str) -> bool {
    OWN.contains(&schema) || schema == NOTES || schema == MIGRATION
}

/// Whether a statement changes tables of the server itself, such as those of accounts, or ours.
///
/// # Errors
/// It reads them, or changes others too.
fn is_of_the_server(kind: Kind, statement: &Statement) -> Result<bool, String> {
    if let Some(named) = statement.databases.as_ref().filter(|named| !named.is_empty()) {
        return Ok(named.iter().all(|name| is_not_a_users(name)));
    }
    let schema = String::from_utf8_lossy(&statement.schema);
    if statement.detached {
        return Ok(is_not_a_users(&schema));
    }
    if let Some(first) = statement.first_qualified() {
        if is_not_a_users(&first) {
            return Ok(true);
        }
        // It changes this one. Without rows of its own it may name the server's.
        let reads = kind == Kind::Rows && OWN.iter().any(|name| statement.names_database(name));
        return if reads { Err("a statement reads tables of the server itself".into()) } else { Ok(false) };
    }
    if kind == Kind::Rows && OWN.iter().any(|name| statement.names_database(name)) {
        return Err("a statement reads tables of the server itself".into());
    }
    Ok(is_not_a_users(&schema) && kind != Kind::Idle)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const HERE: (&str, u64) = ("b.000001", 900);

    fn statement(schema: &str, text: &str, databases: Option<&[&str]>) -> Statement {
        Statement {
            schema: schema.into(),
            text: text.into(),
            databases: databases.map(|names| names.iter().map(|name| (*name).to_owned()).collect()),
            detached: text.contains("DATABASE"),
            ..Statement::default()
        }
    }

    #[test]
    fn statements_about_the_servers_own_tables_are_left_out_and_those_that_read_them_are_refused() {
        let judge = |one: &Statement| Guard::default().judge(Kind::of(&one.text), one, HERE);
        for (one, verdict) in [
            (statement("shop", "DELETE FROM mysql.global_priv WHERE user = 'x'", None), Some(Verdict::LeaveOut)),
            (statement("shop", "delete from `mysql`.`user`", Some(&["mysql"])), Some(Verdict::LeaveOut)),
            (statement("mysql", "UPDATE user SET a = 1", None), Some(Verdict::LeaveOut)),
            (statement("mysql", "INSERT INTO shop.t VALUES (1)", None), Some(Verdict::Apply)),
            (statement("shop", "INSERT INTO t SELECT * FROM mysql.user", None), None),
            (statement("shop", "INSERT INTO shop.t SELECT * FROM mysql.user", None), None),
            (statement("shop", "CREATE VIEW v AS SELECT * FROM mysql.user", None), Some(Verdict::Apply)),
            (statement("fullbore_load", "CREATE DATABASE fullbore_load", None), Some(Verdict::LeaveOut)),
            (statement("shop", "INSERT INTO t VALUES (1)", None), Some(Verdict::Apply)),
        ] {
            assert_eq!(judge(&one).ok(), verdict, "{}", String::from_utf8_lossy(&one.text));
        }
    }

    #[test]
    fn a_target_that_runs_events_gets_none_out_of_the_log() {
        let judge = |text: &str, runs_events| {
            let one = statement("shop", text, None);
            Guard { runs_events, ..Guard::default() }.judge(Kind::of(&one.text), &one, HERE)
        };
        let create = "CREATE DEFINER=`a`@`b` EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1";
        assert!(judge(create, true).unwrap_err().contains("event_scheduler = OFF"));
        assert!(judge("ALTER EVENT e ENABLE", true).is_err());
        assert_eq!(judge(create, false), Ok(Verdict::Apply));
        assert_eq!(judge("DROP EVENT e", true), Ok(Verdict::Apply));
    }

    #[test]
    fn a_database_that_only_the_target_has_is_refused_or_replaced_where_the_log_creates_it() {
        let mut guard = Guard { foreign: ["mine".to_owned()].into(), ..Guard::default() };
        let drops = statement("mine", "DROP DATABASE IF EXISTS mine", None);
        assert!(guard.judge(Kind::Definition, &drops, HERE).unwrap_err().contains("--replace"));
        assert!(guard.judge(Kind::Definition, &statement("a", "DROP TABLE mine.t", None), HERE).is_err());
        assert!(guard.takes_rows("Mine", "t", ("b.000001", 4)).is_err());
        guard.replace = true;
        let creates = statement("mine", "CREATE DATABASE mine", None);
        assert_eq!(guard.judge(Kind::Definition, &creates, HERE).unwrap(), Verdict::Replace("`mine`".into()));
        assert_eq!(guard.judge(Kind::Definition, &drops, HERE).unwrap(), Verdict::Apply);
    }

    #[test]
    fn rows_of_a_table_without_transactions_are_refused_until_the_set_was_complete() {
        let of = |complete| Guard { unsettled: ["shop.plain".to_owned()].into(), complete, ..Guard::default() };
        let guard = of(Some(("b.000002".to_owned(), 500)));
        assert!(guard.takes_rows("shop", "plain", ("b.000001", 900)).is_err());
        assert!(guard.takes_rows("shop", "plain", ("b.000002", 500)).unwrap());
        let inserts = statement("shop", "INSERT INTO plain VALUES (1)", None);
        assert!(of(guard.complete.clone()).judge(Kind::Rows, &inserts, HERE).is_err());
        assert!(of(guard.complete.clone()).judge(Kind::Rows, &inserts, ("b.000002", 500)).is_ok());
        assert!(guard.takes_rows("shop", "t", ("b.000001", 900)).unwrap());
        assert!(of(None).takes_rows("shop", "plain", ("b.000009", 4)).is_err());
        assert!(!guard.takes_rows("mysql", "user", ("b.000001", 4)).unwrap());
    }
}
