//! Compares earlier runs of the same database, from the catalog, with the model.

use std::collections::{BTreeMap, BTreeSet};

use fullbore_core::Result;
use fullbore_core::device::{Destination, Device};
use fullbore_core::store::Stores;

use super::Request;
use super::candidates::{self, Variant};
use super::sample::Source;
use fullbore_model::estimate::{Factor, Observed, learn};
use fullbore_model::profile::PathLocation;
use fullbore_model::throughput::{Path, predict};
use fullbore_repository::catalog::Catalog;
use fullbore_repository::format::SetRecord;

/// The time of shorter runs depends little on speed.
const TOO_SHORT_S: f64 = 1.0;

/// The medium of families: all families on one medium are equally fast.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Medium {
    /// A file system, by its device number now.
    Disk(u64),
    /// A bucket of a store.
    Bucket(String),
    /// Anything else, by its name.
    Other(String),
}

/// The correction of the model by earlier fulls of this database, made on this machine into the same media.
pub(super) fn learned(request: &Request, path: &Path, source: &Source, stores: &Stores) -> Result<Factor> {
    if !request.catalog.exists() {
        return Ok(Factor::untried());
    }
    let (catalog, _) = Catalog::open(&request.catalog)?;
    let records = catalog.of_database(request.source.name())?;
    let to: BTreeSet<Medium> =
        request.to.iter().map(|device| medium(PathLocation::of(device).name().unwrap_or_default())).collect();
    let here = fullbore_core::resources::host();
    // The copy of a set in another repository is not another run.
    let mut runs: BTreeMap<_, &SetRecord> = BTreeMap::new();
    for (record, place) in records.iter().filter(|(record, _)| record.host == here && record.base.is_none()) {
        if is_of_full_speed(record) && is_into(record, place, &to) {
            runs.entry(record.backup_set_id).or_insert(record);
        }
    }
    let observed: Vec<Observed> =
        runs.into_values().filter_map(|record| observed(record, request, path, (source, stores))).collect();
    Ok(learn(&observed))
}

/// False for a run with a throttle: it says nothing about the hardware.
fn is_of_full_speed(record: &SetRecord) -> bool {
    record.run.as_ref().is_none_or(|run| run.throttle.is_none())
}

/// True if the families of `record` went to exactly these media. `place` is the first directory of its repository. For
/// older records only this directory and the number of places are known.
fn is_into(record: &SetRecord, place: &str, to: &BTreeSet<Medium>) -> bool {
    let places: BTreeSet<usize> = record.families.iter().map(|family| family.place).collect();
    match &record.run {
        Some(run) => run.media.iter().map(|name| medium(name)).collect::<BTreeSet<_>>() == *to,
        None if place.is_empty() => to.iter().any(|medium| matches!(medium, Medium::Bucket(_))),
        None => to.len() <= places.len() && to.contains(&medium(place)),
    }
}

/// The medium of a directory, a file or a URL.
fn medium(name: &str) -> Medium {
    match Device::parse(name).as_ref().map(Device::place) {
        Ok(Destination::Object { bucket, .. } | Destination::Prefix { bucket, .. }) => {
            Medium::Bucket(bucket.to_string())
        }
        Ok(_) => {
            PathLocation::At(name.to_owned()).device().map_or_else(|| Medium::Other(name.to_owned()), Medium::Disk)
        }
        Err(_) => Medium::Other(name.to_owned()),
    }
}

/// The time of a run, and its time by the model; `None` if it is too short.
fn observed(
    record: &SetRecord,
    request: &Request,
    path: &Path,
    (source, stores): (&Source, &Stores),
) -> Option<Observed> {
    let seconds = (record.finished_at - record.started_at) as f64 / 1e6;
    // Older records have only the whole size: assumes the same share of moved bytes as now.
    let of_whole = || (record.database_bytes as f64 * source.passing_share) as u64;
    let plain_bytes = record.run.as_ref().map_or_else(of_whole, |run| run.plain_bytes);
    if seconds < TOO_SHORT_S || plain_bytes == 0 || record.families.is_empty() {
        return None;
    }
    let shape = Variant::new(record.codec.parse().ok()?, record.families.len());
    let mut request = Request { encrypted: record.encrypted, differential: false, ..request.clone() };
    request.knobs.throttle = None;
    let of_run = Source { plain_bytes, shares: Vec::new(), ..source.clone() };
    let candidate = candidates::candidate(&shape, &request, &of_run, stores).ok()?;
    let predicted = predict(path, &candidate.backup?).ok()?;
    // A record has the time from the snapshot to the last byte read, without fixed costs.
    Some(Observed { seconds, predicted: predicted.seconds - predicted.fixed_seconds })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A record of a version that recorded nothing about its run.
    fn record(run: Option<&str>) -> SetRecord {
        let id = uuid::Uuid::nil();
        let mut record = serde_json::json!({
            "format": 1, "backup_set_id": id, "media_set_id": id, "kind": "full", "base": null, "copy_only": false,
            "engine": "sqlite", "database": "/app.db", "name": "", "started_at": 0, "finished_at": 0, "host": "h",
            "families": [{"place": 0, "name": "f", "bytes": 1}], "database_bytes": 9,
            "encrypted": false, "codec": "lz4", "position": {"first": null, "checkpoint": null, "last": null},
        });
        if let Some(run) = run {
            record["run"] = serde_json::from_str(run).unwrap();
        }
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn a_run_counts_where_it_went_to_just_these_media() {
        let disk = medium("/");
        assert!(matches!(disk, Medium::Disk(_)) && medium("/etc/fullbore-is-not-there") == disk);
        assert_ne!(medium("/proc"), disk, "another file system");
        let store = medium("s3://bucket/a/");
        assert_eq!(store, medium("s3://bucket/b/c.bore"));
        let (on_disk, in_store) = (BTreeSet::from([disk]), BTreeSet::from([store]));
        let of = |media: &str| record(Some(&format!(r#"{{"plain_bytes": 1, "media": {media}}}"#)));
        assert!(is_into(&of(r#"["/"]"#), "", &on_disk) && !is_into(&of(r#"["/", "/proc"]"#), "/", &on_disk));
        assert!(
            is_into(&of(r#"["s3://bucket/"]"#), "", &in_store) && !is_into(&of(r#"["s3://other/"]"#), "", &in_store)
        );
        let old = record(None);
        assert!(is_into(&old, "/", &on_disk) && is_into(&old, "", &in_store));
        assert!(!is_into(&old, "/proc", &on_disk) && !is_into(&old, "", &on_disk) && !is_into(&old, "/", &in_store));
    }

    #[test]
    fn a_throttled_run_says_nothing_of_the_hardware() {
        assert!(is_of_full_speed(&record(None)));
        assert!(is_of_full_speed(&record(Some(r#"{"plain_bytes": 1, "media": []}"#))));
        assert!(!is_of_full_speed(&record(Some(r#"{"plain_bytes": 1, "throttle": 65536, "media": []}"#))));
    }
}
