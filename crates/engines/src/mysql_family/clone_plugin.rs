//! The plugin `clone` of MySQL: a server needs it to send its files, and to copy those of another one.

use fullbore_core::{Error, Result};

use super::connection::{Connection, Failure, PRIVILEGE_MISSING};

/// The series of MySQL whose clones this program is tested with, for messages.
pub const TESTED: &str = "8.0, 8.4, 9.x";
/// The least `max_allowed_packet` that a donor clones with, in bytes.
pub const LEAST_PACKET: u64 = 2 << 20;

/// The state of the plugin `clone`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClonePlugin {
    /// It can be used.
    Active,
    /// The server does not have it yet.
    Absent,
    /// It is there, and switched off.
    Inactive,
}

/// Whether clones of this series are tested: (9, 7) is that of 9.7.4.
pub fn is_tested(series: (u16, u16)) -> bool {
    matches!(series, (8, 0 | 4) | (9, _))
}

impl ClonePlugin {
    /// Asks a server.
    ///
    /// # Errors
    /// The server is lost.
    pub fn ask(connection: &mut Connection) -> Result<Self> {
        let status = "SELECT plugin_status FROM information_schema.plugins WHERE plugin_name = 'clone'";
        Ok(match connection.query(status)?.single() {
            Some("ACTIVE") => Self::Active,
            None => Self::Absent,
            Some(_) => Self::Inactive,
        })
    }

    /// Loads the plugin. It stays loaded, also after a restart.
    ///
    /// # Errors
    /// The server refuses.
    pub fn install(connection: &mut Connection) -> Result<()> {
        match connection.query("INSTALL PLUGIN clone SONAME 'mysql_clone.so'") {
            // 1125: another session loaded it first.
            Ok(_) => Ok(()),
            Err(Failure::Server(error)) if error.code == 1125 => Ok(()),
            Err(Failure::Server(error)) => {
                let hint = match error.code {
                    1142 | PRIVILEGE_MISSING => "this needs INSERT on mysql.plugin: ask an administrator to load it",
                    1290 | 1836 => {
                        "the server is read-only: load it while the server is writable, or by plugin-load-add in its \
                         configuration"
                    }
                    _ => "mysql_clone.so must be in the server's plugin_dir; it is part of the server's package",
                };
                Err(Error::refused(connection.name(), format!("the plugin `clone` cannot be loaded: {error}"), hint))
            }
            Err(Failure::Fault(error)) => Err(error),
        }
    }
}
