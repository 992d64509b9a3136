//! The account of a run of the private server.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fullbore_core::{Error, Result};

use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::relays::RELAY;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::credentials::Credentials;
use crate::mysql_family::start_check::without_account;

/// How we log in at the server.
pub struct Account {
    /// The user and the password.
    pub credentials: Credentials,
    /// The options of the server that make it possible.
    pub options: Vec<String>,
    /// The account that is made for this run, and its file.
    made: Option<(String, PathBuf)>,
}

impl Account {
    /// MySQL runs without its grant tables, which it reads later. MariaDB without grant tables refuses statements about
    /// events, so it makes an account while it starts.
    ///
    /// # Errors
    /// The file of the account cannot be written.
    pub fn new(dialect: Dialect, directory: &Path) -> Result<Self> {
        if dialect == Dialect::MySql {
            return Ok(Self { credentials: without_account()?, options: Vec::new(), made: None });
        }
        Self::made(dialect, directory)
    }

    /// An account that the server makes while it starts. It can do what root can.
    ///
    /// # Errors
    /// The file of the account cannot be written.
    pub fn made(dialect: Dialect, directory: &Path) -> Result<Self> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let name = format!("fullbore_{}", id.get(..12).unwrap_or_default());
        let password = new_password();
        // Only those who may act for everybody can grant it. MariaDB refuses the statement while it starts.
        let proxy = match dialect {
            Dialect::MySql => format!("GRANT PROXY ON ''@'' TO '{name}'@'localhost' WITH GRANT OPTION"),
            Dialect::MariaDb => format!(
                "INSERT INTO mysql.proxies_priv (Host, User, With_grant) VALUES ('localhost', '{name}', 1);\nFLUSH PRIVILEGES"
            ),
        };
        let text = format!(
            "CREATE USER '{name}'@'localhost' IDENTIFIED BY '{password}';\n\
             GRANT ALL PRIVILEGES ON *.* TO '{name}'@'localhost' WITH GRANT OPTION;\n\
             {proxy};\n"
        );
        // The server runs in a directory of its own.
        let directory = fs::canonicalize(directory);
        let directory = directory.map_err(|error| Error::io("find", "the restored directory", error))?;
        let path = directory.join(format!("{RELAY}.sql"));
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = made.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()));
        written.map_err(|error| Error::io("write", path.display().to_string(), error))?;
        let options =
            vec!["skip-grant-tables=0".into(), format!("init-file={}", path.display()), "event-scheduler=OFF".into()];
        Ok(Self { credentials: Credentials::new(&name, password.as_bytes())?, options, made: Some((name, path)) })
    }

    /// Removes the account that was made.
    ///
    /// # Errors
    /// The server refuses.
    pub fn drop_it(&self, connection: &mut Connection) -> Result<()> {
        let Some((name, path)) = &self.made else { return Ok(()) };
        let _ = fs::remove_file(path); // It is removed again with the relay logs.
        connection.query(&format!("DROP USER '{name}'@'localhost'"))?;
        Ok(())
    }
}

/// A random password. Plugins for passwords want letters of both cases, digits and other characters.
pub fn new_password() -> String {
    format!("Aa1+{}", uuid::Uuid::new_v4().simple())
}
