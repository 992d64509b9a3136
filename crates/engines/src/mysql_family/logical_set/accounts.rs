//! The accounts of a server: users, roles and grants, as a stream of their own (`--users`). Its text has password hashes.

use fullbore_core::{Error, Result};

use super::catalog::{Account, Object};
use super::load::quoted_end;
use super::server::{Facts, each_row};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure, ServerError};
use crate::mysql_family::logical::names::{literal, quoted};

/// Accounts of the servers themselves. No backup stores them, and no load touches them.
pub const INTERNAL: [&str; 5] = ["mysql.sys", "mysql.session", "mysql.infoschema", "mariadb.sys", "PUBLIC"];

/// The statement that gives names, hosts and whether an account is a role.
const MARIADB_LIST: &str = "SELECT user, host, is_role FROM mysql.user ORDER BY is_role, user, host";
const MYSQL_LIST: &str = "SELECT user, host, 'N' FROM mysql.user ORDER BY user, host";

/// Asks for all accounts except those of the server itself.
///
/// # Errors
/// The account may not read `mysql.user`, or the server refuses to describe an account.
pub fn ask(connection: &mut Connection, facts: &Facts) -> Result<Vec<Object>> {
    let mysql = facts.dialect == Dialect::MySql;
    if mysql {
        // A hash has bytes that are not text. MySQL before 8.0.17 does not know this setting, and has hashes of letters.
        if let Err(Failure::Fault(error)) = connection.query("SET SESSION print_identified_with_as_hex = 1") {
            return Err(error);
        }
    }
    let mut accounts = list(connection, if mysql { MYSQL_LIST } else { MARIADB_LIST })?;
    for account in &mut accounts {
        describe(connection, account, facts.dialect)?;
    }
    if mysql {
        default_roles(connection, &mut accounts)?;
    }
    Ok(accounts.into_iter().map(Object::Account).collect())
}

fn list(connection: &mut Connection, statement: &str) -> Result<Vec<Account>> {
    let mut accounts = Vec::new();
    connection.send_ahead(&[statement.to_owned()])?;
    let asked = each_row(connection, |row| {
        let text = |column: usize| {
            String::from_utf8_lossy(row.get(column).copied().flatten().unwrap_or_default()).into_owned()
        };
        let account = Account { user: text(0), host: text(1), role: text(2) == "Y", ..Account::default() };
        if !INTERNAL.contains(&&account.user[..]) {
            accounts.push(account);
        }
        Ok(())
    });
    match asked {
        Ok(()) => Ok(accounts),
        Err(Failure::Server(error)) => Err(refused(&error)),
        Err(failure) => Err(failure.into()),
    }
}

fn refused(error: &ServerError) -> Error {
    let why = format!("the account may not read the accounts of the server: {error}");
    Error::refused("--users", why, "GRANT SELECT ON mysql.*, or leave --users out")
}

/// The statements that make an account.
fn describe(connection: &mut Connection, account: &mut Account, dialect: Dialect) -> Result<()> {
    let name = account.quoted(dialect);
    let failed = |failure: Failure| match failure {
        Failure::Server(error) => {
            let why = format!("the server does not describe it: error {}", error.code);
            let hint = "GRANT SELECT ON mysql.*; run the backup again if the account was dropped meanwhile";
            Error::refused(format!("account {name}"), why, hint)
        }
        Failure::Fault(error) => error,
    };
    if !account.role {
        let answer = connection.query(&format!("SHOW CREATE USER {name}")).map_err(failed)?;
        account.create = without_default_roles(answer.value(0, 0).unwrap_or_default());
    }
    let answer = connection.query(&format!("SHOW GRANTS FOR {name}")).map_err(failed)?;
    account.grants = answer.rows.into_iter().flatten().flatten().collect();
    Ok(())
}

/// The default roles of MySQL: SHOW CREATE USER has them before the roles exist.
fn default_roles(connection: &mut Connection, accounts: &mut [Account]) -> Result<()> {
    let asked = "SELECT user, host, default_role_user, default_role_host FROM mysql.default_roles ORDER BY 1, 2, 3, 4";
    let answer = match connection.query(asked) {
        Ok(answer) => answer,
        // MySQL 5.7 has no roles.
        Err(Failure::Server(error)) if error.code == 1146 => return Ok(()),
        Err(Failure::Server(error)) => return Err(refused(&error)),
        Err(failure) => return Err(failure.into()),
    };
    for row in answer.rows {
        let Ok([Some(user), Some(host), Some(role), Some(of)]) = <[_; 4]>::try_from(row) else { continue };
        let mine = accounts.iter_mut().find(|account| account.user == user && account.host == host);
        mine.into_iter().for_each(|account| account.default_roles.push(at_host(&role, &of)));
    }
    Ok(())
}

/// An account for statements.
pub fn at_host(user: &str, host: &str) -> String {
    format!("{}@{}", quoted(user), quoted(host))
}

impl Account {
    /// For statements. A role of MariaDB has no host.
    pub fn quoted(&self, dialect: Dialect) -> String {
        if self.role && dialect == Dialect::MariaDb { quoted(&self.user) } else { at_host(&self.user, &self.host) }
    }

    /// For a comparison with `user` and `host` of `mysql.user`.
    pub fn condition(&self) -> String {
        format!("user = {} AND host = {}", literal(&self.user), literal(&self.host))
    }
}

/// CREATE USER without its default roles: they follow when all roles exist.
fn without_default_roles(create: &str) -> String {
    const CLAUSE: &str = " DEFAULT ROLE ";
    let text = create.as_bytes();
    let mut place = 0;
    while place < text.len() {
        if create.get(place..).is_some_and(|rest| rest.starts_with(CLAUSE)) {
            let mut end = place + CLAUSE.len();
            while end < text.len() && !create.get(end..).is_some_and(|rest| rest.starts_with(" REQUIRE ")) {
                end = quoted_end(text, end);
            }
            return [create.get(..place), create.get(end..)].into_iter().flatten().collect();
        }
        place = quoted_end(text, place);
    }
    create.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_roles_leave_the_statement_and_texts_stay() {
        let create = "CREATE USER `a DEFAULT ROLE `@`%` IDENTIFIED WITH 'x' AS 0x41 DEFAULT ROLE `r REQUIRE `@`%`,`s`@`%` \
                      REQUIRE NONE ATTRIBUTE '{\"comment\": \" DEFAULT ROLE \"}'";
        let expected = "CREATE USER `a DEFAULT ROLE `@`%` IDENTIFIED WITH 'x' AS 0x41 REQUIRE NONE ATTRIBUTE \
                        '{\"comment\": \" DEFAULT ROLE \"}'";
        assert_eq!(without_default_roles(create), expected);
        assert_eq!(without_default_roles("CREATE USER `é`@`%`"), "CREATE USER `é`@`%`");
        let role = Account { user: "r`".into(), role: true, ..Account::default() };
        assert_eq!(role.quoted(Dialect::MariaDb), "`r```");
        assert_eq!(role.quoted(Dialect::MySql), "`r```@``");
    }
}
