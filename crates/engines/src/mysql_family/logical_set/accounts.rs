//! The accounts of a server: users, roles and grants, as a stream of their own (`--users`). Its text has password hashes.

use fullbore_core::{Error, Result};

use super::catalog::{Account, Object};
use super::server::{Facts, each_row};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure, ServerError};
use crate::mysql_family::logical::names::{literal, quoted};
use crate::mysql_family::sql_text::{find_outside, token_end};

/// Accounts of the servers themselves. No backup stores them, and no load touches them.
pub const INTERNAL: [&str; 4] = ["mysql.sys", "mysql.session", "mysql.infoschema", "mariadb.sys"];
/// The clause of a password that is expired; or, with a further word, of one that may expire later.
const EXPIRED: &str = " PASSWORD EXPIRE";
/// What every account of MariaDB may do. The server lists it as a role, but nobody makes or drops it.
const PUBLIC: &str = "PUBLIC";
/// The series of MariaDB that knows it first.
pub const PUBLIC_SINCE: (u16, u16) = (10, 11);

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
        connection.set_if_taken("print_identified_with_as_hex = 1")?;
    }
    let mut accounts = list(connection, if mysql { MYSQL_LIST } else { MARIADB_LIST })?;
    accounts.retain(|account| mysql || account.user != PUBLIC || facts.series >= PUBLIC_SINCE);
    for account in &mut accounts {
        describe(connection, account, facts.dialect)?;
    }
    certificates(connection, &mut accounts)?;
    if mysql {
        default_roles(connection, &mut accounts)?;
        old_passwords(connection, &mut accounts)?;
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
        // MariaDB shows an empty subject as nothing, which it does not take.
        let create = answer.value(0, 0).unwrap_or_default().replacen(" REQUIRE  WITH ", " REQUIRE NONE WITH ", 1);
        account.create = without_default_roles(&create);
    }
    let answer = connection.query(&format!("SHOW GRANTS FOR {name}")).map_err(failed)?;
    account.grants = answer.rows.into_iter().flatten().flatten().collect();
    Ok(())
}

/// Subjects, issuers and ciphers with a quote or a backslash. MySQL, and MariaDB before 11, show them as if neither meant anything.
fn certificates(connection: &mut Connection, accounts: &mut [Account]) -> Result<()> {
    let asked = "SELECT user, host, x509_subject, x509_issuer, ssl_cipher FROM (SELECT *, CONCAT(x509_subject, x509_issuer, \
                 ssl_cipher) AS texts FROM mysql.user) AS of_users WHERE LOCATE(x'5C', texts) + LOCATE(x'27', texts) > 0";
    for row in rows_unless(connection, asked, 1054)? {
        let Ok([Some(user), Some(host), of_certificate @ ..]) = <[_; 5]>::try_from(row) else { continue };
        let Some(account) = named(accounts, &user, &host) else { continue };
        for (word, text) in ["SUBJECT", "ISSUER", "CIPHER"].iter().zip(of_certificate) {
            let text = text.unwrap_or_default();
            let shown = format!(" {word} '{text}'");
            let meant = format!(" {word} '{}'", text.replace('\\', "\\\\").replace('\'', "''"));
            for statement in account.grants.iter_mut().chain([&mut account.create]) {
                *statement = statement.replacen(&shown, &meant, 1);
            }
        }
    }
    Ok(())
}

/// The default roles of MySQL: SHOW CREATE USER has them before the roles exist.
fn default_roles(connection: &mut Connection, accounts: &mut [Account]) -> Result<()> {
    let asked = "SELECT user, host, default_role_user, default_role_host FROM mysql.default_roles ORDER BY 1, 2, 3, 4";
    // MySQL 5.7 has no roles.
    for row in rows_unless(connection, asked, 1146)? {
        let Ok([Some(user), Some(host), Some(role), Some(of)]) = <[_; 4]>::try_from(row) else { continue };
        let mine = named(accounts, &user, &host);
        mine.into_iter().for_each(|account| account.default_roles.push(at_host(&role, &of)));
    }
    Ok(())
}

/// The second passwords of MySQL (`RETAIN CURRENT PASSWORD`): no statement shows them.
fn old_passwords(connection: &mut Connection, accounts: &mut [Account]) -> Result<()> {
    let asked = "SELECT user, host, HEX(JSON_UNQUOTE(JSON_EXTRACT(user_attributes, '$.additional_password'))) FROM \
                 mysql.user WHERE JSON_EXTRACT(user_attributes, '$.additional_password') IS NOT NULL";
    // MySQL 5.7 has no such column.
    for row in rows_unless(connection, asked, 1054)? {
        let Ok([Some(user), Some(host), Some(hash)]) = <[_; 3]>::try_from(row) else { continue };
        let mine = named(accounts, &user, &host);
        mine.into_iter().for_each(|account| account.old_password = format!("0x{hash}"));
    }
    Ok(())
}

/// The rows of a question about accounts; none from a server that answers with the error `unknown`.
fn rows_unless(connection: &mut Connection, asked: &str, unknown: u32) -> Result<Vec<Vec<Option<String>>>> {
    match connection.query(asked) {
        Ok(answer) => Ok(answer.rows),
        Err(Failure::Server(error)) if error.code == unknown => Ok(Vec::new()),
        Err(Failure::Server(error)) => Err(refused(&error)),
        Err(failure) => Err(failure.into()),
    }
}

fn named<'a>(accounts: &'a mut [Account], user: &str, host: &str) -> Option<&'a mut Account> {
    accounts.iter_mut().find(|account| account.user == user && account.host == host)
}

/// An account for statements.
pub fn at_host(user: &str, host: &str) -> String {
    format!("{}@{}", quoted(user), quoted(host))
}

impl Account {
    /// Whether it is not an account, but what every account of MariaDB may do. Roles of MySQL are users.
    pub fn is_public(&self) -> bool {
        self.role && self.user == PUBLIC
    }

    /// For statements. A role of MariaDB has no host.
    pub fn quoted(&self, dialect: Dialect) -> String {
        match self.role && dialect == Dialect::MariaDb {
            true if self.is_public() => PUBLIC.to_owned(),
            true => quoted(&self.user),
            false => at_host(&self.user, &self.host),
        }
    }

    /// The statements that make it. The second password is there first: then the other one takes its place, and keeps it.
    pub fn creates(&self, dialect: Dialect) -> Vec<String> {
        if self.role {
            return vec![format!("CREATE ROLE {}", quoted(&self.user))];
        }
        let Some((first, hash)) = hash_in(&self.create).filter(|_| !self.old_password.is_empty()) else {
            return vec![self.create.clone()];
        };
        let part = |range: std::ops::Range<usize>| self.create.get(range).unwrap_or_default();
        let create = [part(0..hash.start), &self.old_password, part(hash.end..self.create.len())].concat();
        // A new password is not expired.
        let expired = if self.is_expired() { EXPIRED } else { "" };
        let identified = part(first..hash.end);
        vec![create, format!("ALTER USER {}{identified} RETAIN CURRENT PASSWORD{expired}", self.quoted(dialect))]
    }

    /// Whether the password is expired.
    pub fn is_expired(&self) -> bool {
        let mut rest = &self.create[..];
        while let Some(at) = find_outside(rest, EXPIRED) {
            rest = rest.get(at + EXPIRED.len()..).unwrap_or_default();
            if ![" NEVER", " INTERVAL", " DEFAULT"].iter().any(|word| rest.starts_with(word)) {
                return true;
            }
        }
        false
    }

    /// For a comparison with `user` and `host` of `mysql.user`.
    pub fn condition(&self) -> String {
        format!("user = {} AND host = {}", literal(&self.user), literal(&self.host))
    }
}

/// Where the clause with the password of CREATE USER begins, and where its hash is.
fn hash_in(create: &str) -> Option<(usize, std::ops::Range<usize>)> {
    const CLAUSE: &str = " IDENTIFIED WITH ";
    const AS: &str = " AS ";
    let first = find_outside(create, CLAUSE)?;
    let plugin_end = token_end(create.as_bytes(), first + CLAUSE.len());
    let begin = create.get(plugin_end..)?.starts_with(AS).then_some(plugin_end + AS.len())?;
    let end = match create.get(begin..)? {
        quoted if quoted.starts_with('\'') => token_end(create.as_bytes(), begin),
        number => begin + number.find(' ').unwrap_or(number.len()),
    };
    Some((first, begin..end))
}

/// CREATE USER without its default roles: they follow when all roles exist.
fn without_default_roles(create: &str) -> String {
    const CLAUSE: &str = " DEFAULT ROLE ";
    let Some(place) = find_outside(create, CLAUSE) else { return create.to_owned() };
    let mut end = place + CLAUSE.len();
    while end < create.len() && !create.get(end..).is_some_and(|rest| rest.starts_with(" REQUIRE ")) {
        end = token_end(create.as_bytes(), end);
    }
    [create.get(..place), create.get(end..)].into_iter().flatten().collect()
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

    #[test]
    fn the_second_password_is_made_first_and_an_expired_one_expires_again() {
        let of = |create: &str, old: &str| {
            let (user, host) = ("a".to_owned(), "%".to_owned());
            let (create, old_password) = (create.to_owned(), old.to_owned());
            Account { user, host, create, old_password, ..Account::default() }.creates(Dialect::MySql)
        };
        let create = "CREATE USER `a`@`%` IDENTIFIED WITH 'x' AS 0x41 REQUIRE NONE PASSWORD EXPIRE ACCOUNT UNLOCK";
        assert_eq!(of(create, ""), [create]);
        let old = "CREATE USER `a`@`%` IDENTIFIED WITH 'x' AS 0x42 REQUIRE NONE PASSWORD EXPIRE ACCOUNT UNLOCK";
        let new = "ALTER USER `a`@`%` IDENTIFIED WITH 'x' AS 0x41 RETAIN CURRENT PASSWORD PASSWORD EXPIRE";
        assert_eq!(of(create, "0x42"), [old, new]);
        let native = "CREATE USER ` IDENTIFIED WITH `@`%` IDENTIFIED WITH 'y' AS '*4''1'";
        let new = "ALTER USER `a`@`%` IDENTIFIED WITH 'y' AS '*4''1' RETAIN CURRENT PASSWORD";
        assert_eq!(of(native, "0x42"), [native.replace("'*4''1'", "0x42").as_str(), new]);
        assert_eq!(of("CREATE USER `a`@`%`", "0x42"), ["CREATE USER `a`@`%`"]);
    }

    #[test]
    fn a_password_that_expires_one_day_is_not_expired() {
        let expired =
            |rest: &str| Account { create: format!("CREATE USER `a`@`%` {rest}"), ..Account::default() }.is_expired();
        assert!(expired("REQUIRE SSL PASSWORD EXPIRE") && expired("PASSWORD EXPIRE INTERVAL 5 DAY PASSWORD EXPIRE"));
        for rest in
            ["PASSWORD EXPIRE NEVER", "PASSWORD EXPIRE INTERVAL 5 DAY", "IDENTIFIED VIA x USING ' PASSWORD EXPIRE'", ""]
        {
            assert!(!expired(rest), "{rest}");
        }
    }

    #[test]
    fn public_is_a_word_and_a_user_of_this_name_is_none() {
        let public = |role| Account { user: "PUBLIC".into(), role, ..Account::default() };
        assert_eq!(public(true).quoted(Dialect::MariaDb), "PUBLIC");
        assert!(!public(false).is_public() && public(false).quoted(Dialect::MySql) == "`PUBLIC`@``");
    }
}
