//! The definers of views, routines, triggers and events: accounts of the target.

use std::collections::BTreeSet;

use fullbore_core::Result;
use fullbore_core::units::first_of;

use super::plan::Plan;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical_set::accounts::at_host;
use crate::mysql_family::logical_set::catalog::Account;
use crate::mysql_family::logical_set::server::Facts;
use crate::mysql_family::sql_text::{token_end, unquoted};

/// How many names a warning lists.
const NAMED_MAX: usize = 10;

/// Adds the warnings about definers that the target does not have, or that the account may not name.
///
/// # Errors
/// The connection fails.
pub fn warn(control: &mut Connection, plan: &mut Plan, facts: &Facts, made: &[Account]) -> Result<()> {
    if let Some((privilege, others)) = not_allowed_definers(control, plan, facts)? {
        let named = first_of(others, NAMED_MAX);
        plan.warnings.push(format!(
            "the account lacks {privilege}, so that the target will refuse objects of other definers: {named}. GRANT {privilege} ON *.* \
             TO … now, or load the rest with --resume later"
        ));
    }
    let unknown = unknown_definers(control, plan, made)?;
    if !unknown.is_empty() {
        let named = first_of(unknown, NAMED_MAX);
        plan.warnings.push(format!(
            "the target does not have these definers, so that their views and routines fail when they are used: {named}. \
             Create the accounts"
        ));
    }
    Ok(())
}

/// The definers of the plan's code that the target does not have, for a warning. None if the account may not ask.
///
/// # Errors
/// The connection fails.
fn unknown_definers(connection: &mut Connection, plan: &Plan, made: &[Account]) -> Result<Vec<String>> {
    let mut definers: BTreeSet<(String, String)> = plan.code.iter().filter_map(|code| definer(&code.create)).collect();
    definers.retain(|(user, host)| !made.iter().any(|it| it.user == *user && it.host == *host));
    let mut unknown = Vec::new();
    for (user, host) in definers {
        let account = Account { user, host, ..Account::default() };
        let asked = format!("SELECT 1 FROM mysql.user WHERE {}", account.condition());
        match connection.query_if_allowed(&asked)? {
            None => return Ok(Vec::new()),
            Some(found) if found.rows.is_empty() => unknown.push(at_host(&account.user, &account.host)),
            Some(_) => {}
        }
    }
    Ok(unknown)
}

/// The objects of the plan whose definer is another account than that of the load, if it may not create such objects. With it, the name
/// of the privilege.
///
/// # Errors
/// The connection fails.
fn not_allowed_definers(
    connection: &mut Connection,
    plan: &Plan,
    facts: &Facts,
) -> Result<Option<(&'static str, Vec<String>)>> {
    /// What allows them, in one series or another.
    const ALLOWING: [&str; 5] = ["ALL PRIVILEGES", "SUPER", "SET_USER_ID", "SET_ANY_DEFINER", "SET USER"];
    if ALLOWING.iter().any(|privilege| facts.grants.globally(privilege)) {
        return Ok(None);
    }
    let answer = connection.query("SELECT CURRENT_USER()")?;
    let own = answer.single().unwrap_or_default();
    let is_of_another = |create: &str| definer(create).is_some_and(|(user, host)| format!("{user}@{host}") != own);
    let others = plan.code.iter().filter(|code| is_of_another(&code.create)).map(|code| code.shown());
    let others: Vec<String> = others.collect();
    let privilege = match (facts.dialect, facts.series) {
        (Dialect::MariaDb, _) => "SET USER",
        (Dialect::MySql, (..=5, _)) => "SUPER",
        (Dialect::MySql, (8, 0 | 1)) => "SET_USER_ID",
        (Dialect::MySql, _) => "SET_ANY_DEFINER",
    };
    Ok((!others.is_empty()).then_some((privilege, others)))
}

/// User and host of the DEFINER of a statement.
fn definer(create: &str) -> Option<(String, String)> {
    let (_, rest) = create.split_once(" DEFINER=")?;
    let (user, rest) = name(rest)?;
    let (host, _) = name(rest.strip_prefix('@')?)?;
    Some((user, host))
}

/// The name between backticks at the start, and what follows it.
fn name(text: &str) -> Option<(String, &str)> {
    let (name, rest) = text.split_at_checked(token_end(text.as_bytes(), 0)).filter(|_| text.starts_with('`'))?;
    Some((unquoted(name), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definer_is_read_with_quotes_in_its_name() {
        let view = "CREATE ALGORITHM=UNDEFINED DEFINER=`a``b`@`10.%` SQL SECURITY DEFINER VIEW `v` AS select 1";
        assert_eq!(definer(view), Some(("a`b".into(), "10.%".into())));
        assert_eq!(
            definer("CREATE DEFINER=`root`@`localhost` PROCEDURE `p`()"),
            Some(("root".into(), "localhost".into()))
        );
        assert_eq!(
            [definer("CREATE VIEW v"), definer("CREATE DEFINER=`a"), definer("CREATE DEFINER=")],
            [None, None, None]
        );
    }
}
