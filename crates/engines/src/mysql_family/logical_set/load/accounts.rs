//! Users, roles and grants of a set, on their way into the target (`--users`).

use std::collections::BTreeSet;
use std::ops::Range;

use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};

use super::grants;
use super::plan::Plan;
use crate::engine::LoadOrder;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical_set::accounts::{INTERNAL, PUBLIC_SINCE, at_host};
use crate::mysql_family::logical_set::catalog::Account;
use crate::mysql_family::logical_set::server::Facts;
use crate::mysql_family::sql_text::{find_outside, token_end, tokens, unquoted};

/// How many names an error or a warning lists: an account that is left out must be known.
const NAMED_MAX: usize = 50;

/// The plugins of MySQL for which an account without a hash has an empty password.
const OF_PASSWORDS: [&str; 3] = ["mysql_native_password", "sha256_password", "caching_sha2_password"];
/// Dynamic privileges of MySQL 8.0, and what later series have instead of them.
/// <https://dev.mysql.com/doc/refman/8.4/en/privileges-provided.html#priv_set-any-definer>
const LATER_NAMES: [(&str, &[&str]); 1] = [("SET_USER_ID", &["ALLOW_NONEXISTENT_DEFINER", "SET_ANY_DEFINER"])];
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
    grants::run_all(connection, statements).map(drop)
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

/// Takes out what the target does not have. Gives warnings about it.
///
/// # Errors
/// The target has `partial_revokes = OFF`, and an account needs it.
pub fn fit(
    connection: &mut Connection,
    accounts: &mut Vec<Account>,
    dialect: Dialect,
    new_server: bool,
) -> Result<Vec<String>> {
    if accounts.is_empty() {
        return Ok(Vec::new());
    }
    let left_out = without_plugin(connection, accounts);
    let unknown = without_unknown_privileges(connection, accounts)?;
    demand_partial_revokes(connection, accounts, dialect, new_server)?;
    Ok(left_out.into_iter().chain(unknown).collect())
}

/// Takes out the accounts whose plugin the target does not have. Gives a warning then.
fn without_plugin(connection: &mut Connection, accounts: &mut Vec<Account>) -> Option<String> {
    let asked = "SELECT plugin_name FROM information_schema.plugins WHERE plugin_type = 'AUTHENTICATION' AND plugin_status = 'ACTIVE'";
    let answer = connection.query(asked).ok()?;
    let known: Vec<String> = answer.rows.into_iter().flatten().flatten().collect();
    without_others(accounts, &known)
}

fn without_others(accounts: &mut Vec<Account>, known: &[String]) -> Option<String> {
    let mut named = Vec::new();
    let is_known = |plugin: &str| known.iter().any(|name| name.eq_ignore_ascii_case(plugin));
    accounts.retain_mut(|account| {
        if let Some(plugin) = plugins_of_mariadb(&account.create).into_iter().find(|plugin| !is_known(plugin)) {
            named.push(format!("{} ({plugin})", at_host(&account.user, &account.host)));
            return false;
        }
        let Some((clause, plugin)) = plugin(&account.create) else { return true };
        if is_known(&plugin) {
            return true;
        }
        // Without a password, such as a role, it works with the plugin that the target chooses. But one of another system is no password.
        let has_password = account.create.get(clause.end..).is_none_or(|rest| rest.starts_with(" AS "));
        let is_empty = !has_password && OF_PASSWORDS.contains(&&plugin[..]);
        match is_empty {
            true => account.create.replace_range(clause, ""),
            false => named.push(format!("{} ({plugin})", at_host(&account.user, &account.host))),
        }
        is_empty
    });
    (!named.is_empty()).then(|| {
        format!(
            "accounts whose plugin the target does not have are left out: {}. Install the plugin, or create the accounts with another one",
            first_of(named, NAMED_MAX)
        )
    })
}

/// The plugins in CREATE USER of MariaDB. It may name several, and a server must know all of them.
fn plugins_of_mariadb(create: &str) -> Vec<String> {
    let word = " IDENTIFIED VIA ";
    let Some(rest) = find_outside(create, word).and_then(|at| create.get(at + word.len()..)) else { return Vec::new() };
    let words = tokens(rest.as_bytes()).filter_map(|token| rest.get(token.place));
    let words: Vec<&str> =
        words.take_while(|word| !["REQUIRE", "WITH", "ACCOUNT", "PASSWORD"].contains(word)).collect();
    let behind = |at: usize| at.checked_sub(1).and_then(|before| words.get(before)).is_none_or(|word| *word == "OR");
    words.iter().enumerate().filter(|(at, _)| behind(*at)).map(|(_, word)| unquoted(word)).collect()
}

/// The plugin in CREATE USER of MySQL, and the place of its clause.
fn plugin(create: &str) -> Option<(Range<usize>, String)> {
    let word = " IDENTIFIED WITH ";
    let at = find_outside(create, word)?;
    let rest = create.get(at + word.len()..)?;
    let length = token_end(rest.as_bytes(), 0);
    Some((at..at + word.len() + length, unquoted(rest.get(..length)?)))
}

/// Takes privileges that the target does not know out of the grants, or gives those that it has instead. Gives a warning then. A server
/// takes no privilege of a list with an unknown one.
fn without_unknown_privileges(connection: &mut Connection, accounts: &mut [Account]) -> Result<Option<String>> {
    let Ok(answer) = connection.query("SHOW PRIVILEGES") else { return Ok(None) };
    let known: BTreeSet<String> =
        answer.rows.into_iter().filter_map(|row| row.into_iter().next()?).map(|name| name.to_uppercase()).collect();
    let mut unknown = BTreeSet::new();
    for account in accounts {
        account.grants = account.grants.iter().filter_map(|grant| fitted(grant, &known, &mut unknown)).collect();
    }
    Ok(grants::unknown_privileges(unknown))
}

/// A grant of dynamic privileges, as far as the target knows them.
fn fitted(grant: &str, known: &BTreeSet<String>, unknown: &mut BTreeSet<String>) -> Option<String> {
    let dynamic = |name: &str| name.contains('_') && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let parts = grant.strip_prefix("GRANT ").and_then(|rest| rest.split_once(" ON *.* TO "));
    let Some((list, to)) = parts.filter(|(list, _)| list.split(',').all(dynamic)) else {
        return Some(grant.to_owned());
    };
    let mut names: Vec<&str> = Vec::new();
    for name in list.split(',') {
        let later = LATER_NAMES.iter().find(|(earlier, _)| *earlier == name).map_or(&[][..], |(_, later)| later);
        match known.contains(name) {
            true => names.push(name),
            false if !later.is_empty() && later.iter().all(|name| known.contains(*name)) => names.extend(later),
            false => drop(unknown.insert(name.to_owned())),
        }
    }
    names.sort_unstable();
    names.dedup();
    (!names.is_empty()).then(|| format!("GRANT {} ON *.* TO {to}", names.join(",")))
}

/// Refuses revokes of a part, which the target would not keep. A server that was made for the load gets the setting, and keeps it.
fn demand_partial_revokes(
    connection: &mut Connection,
    accounts: &[Account],
    dialect: Dialect,
    new_server: bool,
) -> Result<()> {
    let revokes = |account: &&Account| account.grants.iter().any(|grant| grant.starts_with("REVOKE "));
    let Some(account) = accounts.iter().find(revokes).filter(|_| dialect == Dialect::MySql) else { return Ok(()) };
    if connection.query("SELECT @@GLOBAL.partial_revokes")?.single() == Some("1") {
        return Ok(());
    }
    if new_server {
        return Ok(connection.query("SET PERSIST partial_revokes = ON").map(drop)?);
    }
    let why = "a part of its rights is revoked, and the target has partial_revokes = OFF";
    let hint = "SET PERSIST partial_revokes = ON on the target";
    Err(Error::refused(format!("account {}", account.quoted(dialect)), why, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_privileges_fit_the_target_and_others_stay() {
        let known = ["BACKUP_ADMIN", "SET_ANY_DEFINER", "ALLOW_NONEXISTENT_DEFINER"].map(str::to_owned).into();
        let mut unknown = BTreeSet::new();
        let mut of = |grant: &str| fitted(grant, &known, &mut unknown);
        let later = "GRANT ALLOW_NONEXISTENT_DEFINER,BACKUP_ADMIN,SET_ANY_DEFINER ON *.* TO `a`@`%` WITH GRANT OPTION";
        assert_eq!(
            of("GRANT BACKUP_ADMIN,OLD_ONE,SET_USER_ID ON *.* TO `a`@`%` WITH GRANT OPTION").as_deref(),
            Some(later)
        );
        assert_eq!(of("GRANT OLD_ONE ON *.* TO `a`@`%`"), None);
        for same in [
            "GRANT SELECT, INSERT ON *.* TO `a`@`%`",
            "GRANT `r`@`%` TO `a`@`%`",
            "REVOKE INSERT ON `x`.* FROM `a`@`%`",
        ] {
            assert_eq!(of(same).as_deref(), Some(same));
        }
        assert_eq!(unknown.into_iter().collect::<Vec<_>>(), ["OLD_ONE"]);
    }

    #[test]
    fn an_account_of_an_unknown_plugin_is_left_out_unless_its_password_is_empty() {
        let account = |user: &str, with: &str| Account {
            user: user.into(),
            host: "%".into(),
            create: format!("CREATE USER `{user}`@`%` IDENTIFIED WITH {with} REQUIRE NONE"),
            ..Account::default()
        };
        let mut accounts = vec![
            account("known", "'caching_sha2_password' AS 0xA1"),
            account("native", "'mysql_native_password' AS '*A1'"),
            account("role", "'mysql_native_password'"),
            account("ldap", "'authentication_ldap_simple'"),
        ];
        let told = without_others(&mut accounts, &["caching_sha2_password".to_owned()]).unwrap_or_default();
        assert!(
            told.contains("`native`@`%` (mysql_native_password), `ldap`@`%` (authentication_ldap_simple)"),
            "{told}"
        );
        assert_eq!(accounts.iter().map(|account| &account.user[..]).collect::<Vec<_>>(), ["known", "role"]);
        assert_eq!(accounts[1].create, "CREATE USER `role`@`%` REQUIRE NONE");
    }

    #[test]
    fn the_plugin_of_an_account_is_read() {
        let create =
            "CREATE USER `x IDENTIFIED WITH 'y'`@`%` IDENTIFIED WITH 'mysql_native_password' AS '*A' REQUIRE NONE";
        let (clause, name) = plugin(create).unwrap_or_default();
        assert_eq!((&create[clause], &name[..]), (" IDENTIFIED WITH 'mysql_native_password'", "mysql_native_password"));
        let of_mariadb = "CREATE USER `a`@`%` IDENTIFIED VIA ed25519 USING 'x OR y' OR unix_socket REQUIRE SSL";
        assert_eq!(
            (plugin(of_mariadb), plugins_of_mariadb(of_mariadb)),
            (None, vec!["ed25519".into(), "unix_socket".into()])
        );
        assert_eq!(plugins_of_mariadb(create), Vec::<String>::new());
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
