//! Users, roles and grants of a set, on their way into the target (`--users`).

use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};

use super::ddl::renamed;
use super::plan::Plan;
use crate::engine::LoadOrder;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure, ServerError};
use crate::mysql_family::logical::names::quoted;
use crate::mysql_family::logical_set::accounts::{INTERNAL, PUBLIC_SINCE, at_host};
use crate::mysql_family::logical_set::catalog::Account;
use crate::mysql_family::logical_set::server::Facts;
use crate::mysql_family::sql_text::{token_end, unquoted};

/// How many names an error lists.
const NAMED_MAX: usize = 5;

/// ER_BAD_DB_ERROR, ER_BAD_FIELD_ERROR, ER_NO_SUCH_TABLE, ER_SP_DOES_NOT_EXIST.
const NO_OBJECT: [u32; 4] = [1049, 1054, 1146, 1305];
/// What SUPER allowed in MariaDB before a series.
const PARTS_OF_SUPER: [((u16, u16), &str); 2] = [
    ((10, 11), "READ_ONLY ADMIN"),
    (
        (11, 0),
        "BINLOG ADMIN, BINLOG REPLAY, CONNECTION ADMIN, FEDERATED ADMIN, REPLICATION MASTER ADMIN, REPLICATION SLAVE ADMIN, SET USER",
    ),
];

/// The accounts of the plan that are made: all except root, the server's own, and the account that runs the load. A server
/// that was made for the load gets the root accounts, too.
///
/// # Errors
/// The set has no accounts, or they are of the other vendor, or some exist already and `--replace` is not given.
pub fn chosen(connection: &mut Connection, order: &LoadOrder, plan: &Plan, dialect: Dialect) -> Result<Vec<Account>> {
    demand_possible(order, plan, dialect)?;
    let answer = connection.query("SELECT CURRENT_USER()")?;
    let own = answer.single().unwrap_or_default().to_owned();
    let is_own = |account: &&Account| format!("{}@{}", account.user, account.host) == own;
    let taken =
        |account: &&Account| (order.new_server || account.user != "root") && !INTERNAL.contains(&&account.user[..]);
    let chosen: Vec<Account> = plan.accounts.iter().filter(taken).filter(|it| !is_own(it)).cloned().collect();
    if order.replace || order.resume || order.new_server {
        return Ok(chosen);
    }
    let mut there = Vec::new();
    for account in chosen.iter().filter(|account| !account.is_public()) {
        let found = connection.query(&format!("SELECT 1 FROM mysql.user WHERE {}", account.condition()))?;
        if !found.rows.is_empty() {
            there.push(account.quoted(dialect));
        }
    }
    if there.is_empty() {
        return Ok(chosen);
    }
    let why = format!("the target has these accounts already: {}", first_of(there, NAMED_MAX));
    Err(Error::refused("--users", why, "leave --users out, drop them, or overwrite them with --replace"))
}

fn demand_possible(order: &LoadOrder, plan: &Plan, dialect: Dialect) -> Result<()> {
    if plan.accounts.is_empty() {
        let why = "the set holds no accounts";
        return Err(Error::usage("--users", why, "back up with --users, or leave it out"));
    }
    if order.engine != dialect.name() {
        let why = "accounts of one vendor do not exist at the other: hashes, plugins and privileges differ";
        return Err(Error::usage("--users", why, "leave it out, and create the accounts by hand"));
    }
    if !order.tables.is_empty() {
        let why = "accounts have grants on tables that --table leaves out";
        return Err(Error::usage("--users", why, "leave out one of the two"));
    }
    Ok(())
}

/// Creates the accounts, without their grants: a view or routine may have one of them as its definer.
///
/// # Errors
/// Names the first that the server refuses. It never repeats a statement: it has a hash. All others are there.
pub fn create(connection: &mut Connection, accounts: &[Account], dialect: Dialect) -> Result<()> {
    let statements = accounts.iter().filter(|account| !account.is_public()).flat_map(|account| {
        let name = account.quoted(dialect);
        let kind = if account.role { "ROLE" } else { "USER" };
        // `--replace` allows it. A load that continues has made it itself.
        let mut statements = vec![format!("DROP {kind} IF EXISTS {name}")];
        statements.extend(account.creates(dialect));
        statements.into_iter().map(move |statement| (name.clone(), statement))
    });
    run_all(connection, statements).map(drop)
}

/// Takes the grants for PUBLIC out of the accounts if the target does not know them. Gives a warning then.
pub fn without_public(accounts: &mut Vec<Account>, facts: &Facts) -> Option<String> {
    let is_unknown = |account: &Account| account.is_public() && facts.series < PUBLIC_SINCE;
    let warning = || "the target does not know grants for PUBLIC (MariaDB before 10.11): they are not made".to_owned();
    let found = accounts.iter().any(is_unknown).then(warning);
    accounts.retain(|account| !is_unknown(account));
    found
}

/// Adds to SUPER what it meant in earlier series of MariaDB: the later ones have privileges of their own for it. Gives a note then.
/// <https://mariadb.com/kb/en/grant/#super>
pub fn with_parts_of_super(accounts: &mut [Account], source: (u16, u16), facts: &Facts) -> Option<String> {
    let parts = PARTS_OF_SUPER.iter().filter(|(since, _)| source < *since && *since <= facts.series);
    let parts: Vec<&str> = parts.map(|(_, privileges)| *privileges).collect();
    if facts.dialect != Dialect::MariaDb || parts.is_empty() || source == (0, 0) {
        return None;
    }
    let is_super = |grant: &String| {
        let privileges = grant.split(" ON *.* TO ").next().filter(|privileges| privileges.len() < grant.len());
        privileges.is_some_and(|list| list.trim_start_matches("GRANT ").split(", ").any(|name| name == "SUPER"))
    };
    let mut named = Vec::new();
    for account in accounts.iter_mut().filter(|account| account.grants.iter().any(is_super)) {
        let name = account.quoted(facts.dialect);
        account.grants.push(format!("GRANT {} ON *.* TO {name}", parts.join(", ")));
        named.push(name);
    }
    let told = |named| format!("accounts with SUPER get what it no longer means ({}): {named}", parts.join(", "));
    (!named.is_empty()).then(|| told(first_of(named, NAMED_MAX)))
}

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
    let missing = run_all(connection, statements)?;
    Ok(missing
        .into_iter()
        .map(|missing| format!("a grant on what the target does not have is not made: {missing}"))
        .collect())
}

/// Runs statements, each with the name of its account, also behind one that the server refuses. Gives grants on objects that do not
/// exist.
///
/// # Errors
/// The first other error.
fn run_all(connection: &mut Connection, statements: impl Iterator<Item = (String, String)>) -> Result<Vec<String>> {
    let (mut first, mut missing) = (None, Vec::new());
    for (name, statement) in statements {
        match connection.query(&statement) {
            Ok(_) => {}
            Err(Failure::Server(error)) if NO_OBJECT.contains(&error.code) && statement.starts_with("GRANT ") => {
                missing.push(format!("{name}: {error}"));
            }
            Err(Failure::Server(error)) => first = first.or_else(|| Some(refused(&name, &statement, &error))),
            Err(failure) => return Err(failure.into()),
        }
    }
    first.map_or(Ok(missing), Err)
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

/// The definers of the plan's code that the target does not have, for a warning. None if the account may not ask.
///
/// # Errors
/// The connection fails.
pub fn unknown_definers(connection: &mut Connection, plan: &Plan, made: &[Account]) -> Result<Vec<String>> {
    let mut definers: Vec<(String, String)> = plan.code.iter().filter_map(|code| definer(&code.create)).collect();
    definers.sort();
    definers.dedup();
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

    #[test]
    fn super_keeps_what_it_meant_before_a_series() {
        let granted = |grant: &str, source| {
            let grants = vec![grant.to_owned()];
            let mut accounts = [Account { user: "a".into(), host: "%".into(), grants, ..Account::default() }];
            let told = with_parts_of_super(&mut accounts, source, &facts()).is_some();
            (told, accounts[0].grants.get(1).cloned().unwrap_or_default())
        };
        let (told, more) = granted("GRANT SELECT, SUPER ON *.* TO `a`@`%`", (10, 6));
        assert!(
            told && more.starts_with("GRANT READ_ONLY ADMIN, BINLOG ADMIN,") && more.ends_with(" ON *.* TO `a`@`%`")
        );
        let (told, more) = granted("GRANT SUPER ON *.* TO `a`@`%` WITH GRANT OPTION", (10, 11));
        assert!(told && more.starts_with("GRANT BINLOG ADMIN,"));
        assert_eq!(granted("GRANT SUPER ON *.* TO `a`@`%`", (11, 4)), (false, String::new()));
        assert_eq!(granted("GRANT SELECT ON `SUPER`.* TO `a`@`%`", (10, 6)), (false, String::new()));
    }

    fn facts() -> Facts {
        Facts {
            dialect: Dialect::MariaDb,
            version: String::new(),
            series: (11, 8),
            hostname: String::new(),
            server_id: 1,
            server_uuid: String::new(),
            lower_case_table_names: 0,
            binary_log: true,
            max_allowed_packet: 1 << 20,
            grants: Default::default(),
        }
    }
}
