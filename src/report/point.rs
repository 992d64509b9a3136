//! The state that a set or a restored database holds: its point in time, and a server's place in its binary log.

use fullbore_core::media::Manifest;
use serde::Serialize;

use fullbore_repository::chain::moment;

/// A state of a database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PointReport {
    /// RFC 3339: when the last commit in it was seen; of an engine without log backups, when its last byte was read. Of stored media of another program, nothing.
    pub at: Option<String>,
    /// The file of the binary log.
    pub binary_log_file: Option<String>,
    /// The offset of the next event in it.
    pub binary_log_position: Option<u64>,
    /// The transactions up to it, in the words of the server.
    pub gtid: Option<String>,
}

impl PointReport {
    /// The state that a set of this manifest holds.
    pub fn of(manifest: &Manifest) -> Self {
        let engine = fullbore_engines::named(&manifest.engine);
        let place = engine.and_then(|engine| engine.binary_log(&manifest.position.last.value()));
        let at = manifest.position.log.as_ref().map(|log| moment::show(log.at));
        // Media of another program are older than their set, and may say their time without a zone.
        let finished = match fullbore_engines::media_of(&manifest.engine) {
            Some(_) => None,
            None => Some(manifest.finished_at.clone()).filter(|time| !time.is_empty()),
        };
        Self {
            at: at.or(finished),
            binary_log_file: place.as_ref().map(|place| place.file.clone()),
            binary_log_position: place.as_ref().map(|place| place.offset),
            gtid: place.map(|place| place.gtid).filter(|gtid| !gtid.is_empty()),
        }
    }
}
