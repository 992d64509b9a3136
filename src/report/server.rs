//! What a server says of a backup or restore that it ran itself.

use serde::Serialize;

/// A run of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ServerReport {
    /// Its version and edition.
    pub server: String,
    /// Its own number of the run: `session 51`, `rds task 5`.
    pub run: Option<String>,
    /// The statements that ran, in order. They have no secrets.
    pub statements: Vec<String>,
    /// When the backup began, by the clock of the server, without a zone.
    pub started_at: Option<String>,
    /// When it was finished, by the same clock.
    pub finished_at: Option<String>,
    /// Whether the set has checksums.
    pub has_checksums: Option<bool>,
}
