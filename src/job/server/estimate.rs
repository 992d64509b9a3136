//! The time of a backup that a server runs itself, from its own history of backups.

use fullbore_core::conduct::Conduct;
use fullbore_core::units::{counted, mib_per_s};
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{BackupOrder, EarlierBackup};
use serde::Serialize;

use super::{Served, connected};

/// With fewer earlier backups in as many files, the others count too.
const FEW: usize = 3;

/// An estimate from the history of a server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServerEstimate {
    /// Version of this object; fields are added, never changed.
    pub schema_version: u32,
    /// `estimate`.
    pub command: &'static str,
    /// The database, as it may be shown.
    pub source: String,
    /// full, differential, log.
    pub kind: String,
    /// Files of the backup.
    pub files: usize,
    /// Earlier backups that the estimate is from.
    pub history_runs: usize,
    /// Whether all of them had as many files.
    pub same_files: bool,
    /// Bytes before compression: those of the newest one, or `--size`.
    pub plain_bytes: u64,
    /// Bytes on the media, in the ratio of the newest one.
    pub stored_bytes: u64,
    /// Bytes of the database's data files now, free pages too.
    pub database_bytes: u64,
    /// One of ten runs is faster.
    pub p10_s: f64,
    /// One of two.
    pub p50_s: f64,
    /// Nine of ten.
    pub p90_s: f64,
    /// At the middle.
    pub mib_per_s: f64,
    /// When the newest one was finished, by the clock of the server.
    pub newest: String,
    /// Facts that need no action.
    pub notes: Vec<String>,
    /// Problems.
    pub warnings: Vec<String>,
}

/// Makes the estimate.
///
/// # Errors
/// The server cannot be reached, or has no earlier backup of this kind.
pub fn estimate(served: &Served, order: &BackupOrder, size: Option<u64>, conduct: &Conduct) -> Result<ServerEstimate> {
    let (earlier, database_bytes) = connected(served, conduct, |session| session.history(order))?;
    let files = order.stripes.unwrap_or(order.to.len());
    let used = of_shape(&earlier, files);
    let Some(newest) = used.first() else {
        let why = format!("the history of the server has no {} of it", order.kind);
        return Err(Error::refused(served.source.shown(), why, "run a backup once: the next estimate learns from it"));
    };
    let same_files = used.iter().all(|one| one.files == files);
    let mut rates: Vec<f64> = used.iter().map(|one| one.bytes.max(1) as f64 / one.seconds.max(1.0)).collect();
    rates.sort_by(f64::total_cmp);
    let plain_bytes = size.unwrap_or(newest.bytes);
    let seconds = |share| plain_bytes as f64 / quantile(&rates, share);
    let mut notes = vec![format!("experimental: {}", served.server.caveat())];
    if !same_files {
        notes.push(format!(
            "the history has fewer than {FEW} such backups in {}: others count too",
            counted(files as u64, "file")
        ));
    }
    Ok(ServerEstimate {
        schema_version: crate::report::SCHEMA_VERSION,
        command: "estimate",
        source: served.source.shown().to_owned(),
        kind: order.kind.to_string(),
        files,
        history_runs: used.len(),
        same_files,
        plain_bytes,
        stored_bytes: (plain_bytes as f64 * newest.stored_bytes as f64 / newest.bytes.max(1) as f64) as u64,
        database_bytes,
        // The fastest run has the greatest rate.
        p10_s: seconds(0.9),
        p50_s: seconds(0.5),
        p90_s: seconds(0.1),
        mib_per_s: mib_per_s(plain_bytes, seconds(0.5)),
        newest: newest.finished_at.clone(),
        notes,
        warnings: Vec::new(),
    })
}

/// The earlier backups with as many files, or all of them if those are few.
fn of_shape(earlier: &[EarlierBackup], files: usize) -> Vec<&EarlierBackup> {
    let same: Vec<&EarlierBackup> = earlier.iter().filter(|one| one.files == files).collect();
    if same.len() >= FEW.min(earlier.len()) { same } else { earlier.iter().collect() }
}

/// Between the two nearest of sorted values. Not of an empty list: then 1.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * sorted.len().saturating_sub(1) as f64;
    let at = |place: f64| sorted.get(place as usize).copied();
    let (Some(below), Some(above)) = (at(place.floor()), at(place.ceil())) else { return 1.0 };
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(files: usize, seconds: f64) -> EarlierBackup {
        EarlierBackup { bytes: 100, stored_bytes: 50, seconds, files, finished_at: String::new() }
    }

    #[test]
    fn earlier_backups_of_the_same_shape_count_unless_they_are_few() {
        let mixed = [run(2, 1.0), run(1, 1.0), run(2, 1.0), run(2, 1.0)];
        assert_eq!(of_shape(&mixed, 2).len(), 3);
        assert_eq!(of_shape(&mixed, 1).len(), 4);
        assert_eq!(of_shape(&mixed[..1], 2).len(), 1);
        assert!(of_shape(&[], 1).is_empty());
    }

    #[test]
    fn a_quantile_lies_between_its_neighbours() {
        assert_eq!(quantile(&[10.0, 20.0, 40.0], 0.5), 20.0);
        assert_eq!(quantile(&[10.0, 20.0, 40.0], 0.75), 30.0);
        assert_eq!((quantile(&[7.0], 0.9), quantile(&[], 0.5)), (7.0, 1.0));
    }
}
