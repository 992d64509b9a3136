//! What an account may do on a server, and the channels through which a replica receives changes.

use fullbore_core::Result;

use super::connection::Connection;

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
        let roles = connection.query("SELECT CURRENT_ROLE()")?;
        // The server quotes the roles' names itself.
        let using =
            roles.single().filter(|roles| *roles != "NONE").map_or(String::new(), |roles| format!(" USING {roles}"));
        let grants = connection.query(&format!("SHOW GRANTS FOR CURRENT_USER(){using}"))?;
        Ok(Self(grants.rows.into_iter().flatten().flatten().collect()))
    }

    /// Whether the privilege is granted on everything.
    pub fn globally(&self, privilege: &str) -> bool {
        self.0.iter().any(|grant| grants_globally(grant, privilege))
    }

    /// Whether the privilege is granted on everything or on this schema. It ignores patterns with `%`.
    pub fn on(&self, schema: &str, privilege: &str) -> bool {
        self.globally(privilege) || self.0.iter().any(|grant| grants_on(grant, schema, privilege))
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
    // An underscore that is meant as one has a backslash before it.
    let names = [schema.to_owned(), schema.replace('_', "\\_")];
    let same = names.iter().any(|name| object.starts_with(&format!("`{}`.* TO ", name.replace('`', "``"))));
    same && privileges.split(',').any(|granted| [privilege, "ALL PRIVILEGES"].contains(&granted.trim()))
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
        assert!(!grants.on("sh_op", "LOCK TABLES") && !grants.on("shop", "TRIGGER") && !grants.on("a", "SELECT"));
    }
}
