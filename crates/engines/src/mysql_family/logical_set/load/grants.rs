//! The grants of accounts, after everything that they name.

use std::collections::BTreeSet;

use fullbore_core::{Error, Result};

use super::ddl::renamed;
use super::prepare::session_names;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure, ServerError};
use crate::mysql_family::logical::names::quoted;
use crate::mysql_family::logical_set::catalog::Account;

/// ER_BAD_DB_ERROR, ER_BAD_FIELD_ERROR, ER_NO_SUCH_TABLE, ER_SP_DOES_NOT_EXIST.
const NO_OBJECT: [u32; 4] = [1049, 1054, 1146, 1305];
/// ER_PARSE_ERROR.
const NO_SYNTAX: u32 = 1064;
/// ER_WRONG_VALUE_FOR_VAR: MySQL 8.0 and later make no accounts by GRANT.
const NO_SUCH_MODE: u32 = 1231;

/// Grants privileges and roles, after all tables and routines exist. Gives warnings about grants on what the target does not have:
/// a server keeps the grants of a table that was dropped.
///
/// # Errors
/// Names the first account with a grant that the server refuses. All other grants are there.
pub fn grant(
    connection: &mut Connection,
    accounts: &[Account],
    maps: &[(String, String)],
    dialect: Dialect,
) -> Result<Vec<String>> {
    let of_maps = |text: String, (from, to): &(String, String)| renamed(&text, &quoted(from), &quoted(to));
    // A role has its privileges before another account gets the role.
    let (roles, users): (Vec<_>, Vec<_>) = accounts.iter().partition(|account| account.role);
    let statements = roles.into_iter().chain(users).flat_map(|account| {
        let name = account.quoted(dialect);
        let mut statements: Vec<String> =
            account.grants.iter().map(|grant| maps.iter().fold(grant.clone(), of_maps)).collect();
        if !account.default_roles.is_empty() {
            statements.push(format!("ALTER USER {name} DEFAULT ROLE {}", account.default_roles.join(", ")));
        }
        if dialect == Dialect::MariaDb && account.is_expired() {
            // The grant with the password has made it new.
            statements.push(format!("ALTER USER {name} PASSWORD EXPIRE"));
        }
        statements.into_iter().map(move |statement| (name.clone(), statement))
    });
    // Without this mode, these servers make an account that they refused before, and without a password.
    let makes_none = connection.query("SET SESSION sql_mode = CONCAT(@@sql_mode, ',NO_AUTO_CREATE_USER')");
    let is_known = |failure: &Failure| !matches!(failure, Failure::Server(error) if error.code == NO_SUCH_MODE);
    if let Some(failure) = makes_none.err().filter(is_known) {
        return Err(failure.into());
    }
    let left_out = run_all(connection, statements);
    for statement in session_names() {
        connection.query(&statement)?;
    }
    let LeftOut { missing, unknown } = left_out?;
    let missing = missing.into_iter().map(|it| format!("a grant on what the target does not have is not made: {it}"));
    Ok(missing.chain(unknown_privileges(unknown)).collect())
}

/// The warning of privileges that the target does not know.
pub fn unknown_privileges(unknown: BTreeSet<String>) -> Option<String> {
    let named = unknown.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    (!unknown.is_empty()).then(|| format!("privileges that the target does not know are not granted: {named}"))
}

/// What a target refused without an error of the load.
#[derive(Default)]
pub struct LeftOut {
    /// Grants on objects that do not exist, each with its account.
    missing: Vec<String>,
    /// Privileges that the target does not know.
    unknown: BTreeSet<String>,
}

/// Runs statements, each with the name of its account, also behind one that the server refuses.
///
/// # Errors
/// The first other error.
pub fn run_all(connection: &mut Connection, statements: impl Iterator<Item = (String, String)>) -> Result<LeftOut> {
    let (mut first, mut left_out) = (None, LeftOut::default());
    for (name, statement) in statements {
        let Err(failure) = connection.query(&statement) else { continue };
        let is_syntax = matches!(&failure, Failure::Server(error) if error.code == NO_SYNTAX);
        // A privilege of a later series is no word of an earlier one.
        let parts = if is_syntax { each_privilege(&statement) } else { Vec::new() };
        if parts.is_empty() {
            judge_refused(&name, &statement, failure, &mut first, &mut left_out)?;
        }
        for (privilege, part) in parts {
            match connection.query(&part) {
                Err(Failure::Server(error)) if error.code == NO_SYNTAX => drop(left_out.unknown.insert(privilege)),
                Err(failure) => judge_refused(&name, &part, failure, &mut first, &mut left_out)?,
                Ok(_) => {}
            }
        }
    }
    first.map_or(Ok(left_out), Err)
}

/// Keeps the first error, and grants on objects that do not exist.
fn judge_refused(
    name: &str,
    statement: &str,
    failure: Failure,
    first: &mut Option<Error>,
    left_out: &mut LeftOut,
) -> Result<()> {
    match failure {
        Failure::Server(error) if NO_OBJECT.contains(&error.code) && statement.starts_with("GRANT ") => {
            left_out.missing.push(format!("{name}: {error}"));
        }
        Failure::Server(error) => {
            first.get_or_insert_with(|| refused(name, statement, &error));
        }
        failure => return Err(failure.into()),
    }
    Ok(())
}

/// A grant of several privileges as a grant of each, with the name of the privilege. Nothing for another statement.
fn each_privilege(statement: &str) -> Vec<(String, String)> {
    let Some((list, on)) = statement.strip_prefix("GRANT ").and_then(|rest| rest.split_once(" ON ")) else {
        return Vec::new();
    };
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0_usize, 0);
    for (at, letter) in list.char_indices().chain([(list.len(), ',')]) {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                let privilege = list.get(begin..at).unwrap_or_default().trim();
                parts.push((privilege.to_owned(), format!("GRANT {privilege} ON {on}")));
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts
}

/// The error of a server that refuses a statement about an account.
fn refused(name: &str, statement: &str, error: &ServerError) -> Error {
    // The text of a syntax error has a part of the statement.
    let secret = statement.contains("IDENTIFIED");
    let told = if secret { format!("error {}", error.code) } else { error.to_string() };
    let hint = "the target may be another version, or lack a plugin or component. What it takes is there: mend it and \
                continue with --resume, or create the account by hand";
    Error::refused(format!("account {name}"), format!("the target refuses it: {told}"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_with_a_privilege_of_a_later_series_is_tried_privilege_by_privilege() {
        let names = |statement: &str| each_privilege(statement).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let grant = "GRANT SELECT (`a`, `b`), SHOW CREATE ROUTINE ON `shop`.* TO `a`@`%` WITH GRANT OPTION";
        assert_eq!(names(grant), ["SELECT (`a`, `b`)", "SHOW CREATE ROUTINE"]);
        let second = "GRANT SHOW CREATE ROUTINE ON `shop`.* TO `a`@`%` WITH GRANT OPTION";
        assert_eq!(each_privilege(grant)[1].1, second);
        assert!(names("CREATE USER `a`@`%`").is_empty() && names("GRANT `r` TO `a`@`%`").is_empty());
    }
}
