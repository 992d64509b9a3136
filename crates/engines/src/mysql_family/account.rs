//! What an account may do on a server, and the channels through which a replica receives changes.

use fullbore_core::Result;

use super::connection::{Connection, Failure};

/// More channels than a replica can have.
const CHANNELS_MAX: usize = 256;

/// A channel of a replica, which receives the changes of another server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Channel {
    /// Empty for the default one.
    pub name: String,
    /// `host:port`
    pub source: String,
    /// Whether its applier runs, in the server's words: `ON`, `OFF` or in between, of a MariaDB `Yes` or `No`.
    pub applier: String,
}

impl Channel {
    /// For the manifest.
    pub fn described(&self) -> serde_json::Value {
        serde_json::json!({ "channel": self.name, "source": self.source, "applier": self.applier })
    }

    /// From where a MySQL server replicates, as far as the account may see it.
    ///
    /// # Errors
    /// The server is lost.
    pub fn all_of_mysql(connection: &mut Connection) -> Result<Vec<Self>> {
        let query = format!(
            "SELECT channel_name, CONCAT(host, ':', port), service_state \
             FROM performance_schema.replication_connection_configuration \
             JOIN performance_schema.replication_applier_status USING (channel_name) WHERE host <> '' LIMIT {CHANNELS_MAX}"
        );
        let Some(answer) = connection.query_if_allowed(&query)? else { return Ok(Vec::new()) };
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let channel = |row: Vec<Option<String>>| match &row[..] {
            [name, source, applier] => Some(Self { name: text(name), source: text(source), applier: text(applier) }),
            _ => None,
        };
        Ok(answer.rows.into_iter().filter_map(channel).collect())
    }
}

/// The grants of an account and of its active roles, as SHOW GRANTS gives them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grants(pub Vec<String>);

impl Grants {
    /// Asks the server.
    ///
    /// # Errors
    /// The server refuses.
    pub fn ask(connection: &mut Connection) -> Result<Self> {
        if connection.greeting().is_mariadb() {
            return Self::ask_mariadb(connection);
        }
        let roles = match connection.query("SELECT CURRENT_ROLE()") {
            Ok(answer) => answer.single().filter(|roles| *roles != "NONE").map(str::to_owned),
            // MySQL 5.7 has no roles.
            Err(Failure::Server(_)) => None,
            Err(failure) => return Err(failure.into()),
        };
        // The server quotes the roles' names itself.
        let using = roles.map_or(String::new(), |roles| format!(" USING {roles}"));
        let grants = connection.query(&format!("SHOW GRANTS FOR CURRENT_USER(){using}"))?;
        Ok(Self(grants.rows.into_iter().flatten().flatten().collect()))
    }

    /// MariaDB lists those of the active role too, but not those of everyone, which exist since 10.11.
    fn ask_mariadb(connection: &mut Connection) -> Result<Self> {
        let grants = connection.query("SHOW GRANTS")?;
        let of_everyone = match connection.query("SHOW GRANTS FOR PUBLIC") {
            Ok(answer) => answer.rows,
            Err(Failure::Server(_)) => Vec::new(),
            Err(failure) => return Err(failure.into()),
        };
        Ok(Self(grants.rows.into_iter().chain(of_everyone).flatten().flatten().collect()))
    }

    /// Whether the privilege is granted on everything.
    pub fn globally(&self, privilege: &str) -> bool {
        self.0.iter().any(|grant| grants_globally(grant, privilege))
    }

    /// Whether the privilege is granted on everything or on this schema, also by a pattern of names. A partial revoke of MySQL takes a
    /// schema out of what is granted on everything.
    pub fn on(&self, schema: &str, privilege: &str) -> bool {
        let globally = self.globally(privilege) || self.globally("ALL PRIVILEGES");
        globally && !self.0.iter().any(|revoke| revokes_on(revoke, schema, privilege))
            || self.0.iter().any(|grant| grants_on(grant, schema, privilege))
    }
}

/// Whether a line of SHOW GRANTS gives the privilege on everything.
pub(crate) fn grants_globally(grant: &str, privilege: &str) -> bool {
    let Some((privileges, _)) = grant.strip_prefix("GRANT ").and_then(|rest| rest.split_once(" ON *.* TO ")) else {
        return false;
    };
    privileges.split(',').any(|granted| granted.trim() == privilege)
}

/// Whether a line of SHOW GRANTS gives the privilege on this schema.
fn grants_on(grant: &str, schema: &str, privilege: &str) -> bool {
    let Some((privileges, object)) = grant.strip_prefix("GRANT ").and_then(|rest| rest.split_once(" ON ")) else {
        return false;
    };
    let Some(pattern) = object.strip_prefix('`').and_then(|rest| rest.split_once("`.* TO ")).map(|(name, _)| name)
    else {
        return false;
    };
    is_like(schema, &pattern.replace("``", "`"))
        && privileges.split(',').any(|granted| [privilege, "ALL PRIVILEGES"].contains(&granted.trim()))
}

/// Whether a line of SHOW GRANTS is a partial revoke of the privilege on this schema. The name of the schema is no pattern there.
/// <https://dev.mysql.com/doc/refman/9.7/en/partial-revokes.html>
fn revokes_on(revoke: &str, schema: &str, privilege: &str) -> bool {
    let Some((privileges, object)) = revoke.strip_prefix("REVOKE ").and_then(|rest| rest.split_once(" ON `")) else {
        return false;
    };
    object.split_once("`.* FROM ").is_some_and(|(name, _)| name.replace("``", "`") == schema)
        && privileges.split(',').any(|revoked| revoked.trim() == privilege)
}

/// A part of a pattern.
#[derive(PartialEq)]
enum Sign {
    Text,
    One,
    Letter(char),
}

/// Whether a name fits a pattern: `%` is any text, `_` any character, and a backslash takes their meaning away.
fn is_like(name: &str, pattern: &str) -> bool {
    let (name, mut signs, mut letters) = (name.chars().collect::<Vec<_>>(), Vec::new(), pattern.chars());
    while let Some(letter) = letters.next() {
        signs.push(match letter {
            '%' => Sign::Text,
            '_' => Sign::One,
            '\\' => Sign::Letter(letters.next().unwrap_or('\\')),
            letter => Sign::Letter(letter),
        });
    }
    // After a `%`, only the last one is tried again, one letter later.
    let (mut at, mut sign, mut again) = (0, 0, None);
    while let Some(letter) = name.get(at) {
        match signs.get(sign) {
            Some(Sign::Text) => {
                again = Some((at, sign));
                sign += 1;
            }
            Some(wanted) if *wanted == Sign::One || *wanted == Sign::Letter(*letter) => (at, sign) = (at + 1, sign + 1),
            _ => {
                let Some((from, text)) = again else { return false };
                again = Some((from + 1, text));
                (at, sign) = (from + 1, text + 1);
            }
        }
    }
    signs.iter().skip(sign).all(|sign| *sign == Sign::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_privilege_counts_only_where_it_is_granted_globally() {
        assert!(grants_globally("GRANT AUDIT_ADMIN,BACKUP_ADMIN,CLONE_ADMIN ON *.* TO `b`@`%`", "BACKUP_ADMIN"));
        for other in [
            "GRANT `BACKUP_ADMIN`@`%` TO `b`@`%`",
            "GRANT SELECT ON `BACKUP_ADMIN`.* TO `b`@`%`",
            "GRANT USAGE ON *.* TO `BACKUP_ADMIN`@`%`",
        ] {
            assert!(!grants_globally(other, "BACKUP_ADMIN"), "{other}");
        }
        let grants = ["GRANT SELECT, TRIGGER ON `sh\\_op`.* TO `b`@`%`", "GRANT ALL PRIVILEGES ON `a``b`.* TO `b`@`%`"];
        let grants = Grants(grants.map(str::to_owned).to_vec());
        assert!(grants.on("sh_op", "TRIGGER") && grants.on("a`b", "LOCK TABLES") && !grants.globally("SELECT"));
        assert!(!grants.on("sh_op", "LOCK TABLES") && !grants.on("sh1op", "TRIGGER") && !grants.on("a", "SELECT"));
        let patterns = ["GRANT SELECT ON `sh%`.* TO `b`@`%`", "GRANT SELECT ON `x_z`.* TO `b`@`%`"];
        let grants = Grants(patterns.map(str::to_owned).to_vec());
        assert!(grants.on("shop", "SELECT") && grants.on("sh", "SELECT") && grants.on("xyz", "SELECT"));
        let revokes = ["GRANT SELECT, TRIGGER ON *.* TO `b`@`%`", "REVOKE SELECT, TRIGGER ON `a``_%`.* FROM `b`@`%`"];
        let part = Grants(revokes.map(str::to_owned).to_vec());
        assert!(part.on("shop", "TRIGGER") && part.on("a`bc", "TRIGGER") && !part.on("a`_%", "TRIGGER"));
        assert!(!grants.on("ash", "SELECT") && !grants.on("xz", "SELECT") && !grants.on("shop", "EVENT"));
    }
}
