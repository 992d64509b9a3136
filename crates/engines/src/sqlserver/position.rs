//! What a stored backup set is called, from the description of its database.

use super::configuration::DatabaseHeader;
use super::tables::backup_type;

/// The database, with its server: `SERVER\\INSTANCE/DATABASE`.
pub fn database(database: &DatabaseHeader) -> String {
    format!("{}/{}", one_line(&database.server), one_line(&database.database))
}

/// The kind of the backup, as in BackupTypeDescription.
pub fn kind(database: &DatabaseHeader) -> String {
    backup_type(database.kind).1.to_lowercase()
}

/// The kind of the backup, and when it was finished by the clock of its server.
pub fn summary(database: &DatabaseHeader) -> String {
    let kind = kind(database);
    match database.finished.or(database.started) {
        Some(date) => format!("SQL Server {kind} backup of {date} (time of the server)"),
        None => format!("SQL Server {kind} backup"),
    }
}

/// The version of the server.
pub fn writer(database: &DatabaseHeader) -> String {
    let (major, minor, build) = database.software;
    format!("SQL Server {major}.{minor}.{build}")
}

/// Names from media may hold anything.
fn one_line(name: &str) -> String {
    name.chars().map(|letter| if letter.is_control() { '_' } else { letter }).collect()
}
