//! Which stored media the restore of a stored backup set needs besides its own: from what their sets of fullbore say of
//! them, in the columns of RESTORE HEADERONLY.

use fullbore_core::{Error, Result};
use serde_json::Value;

use crate::engine::NeededMedia;

/// BackupType.
const FULL: u64 = 1;
const LOG: u64 = 2;
const DIFFERENTIAL: u64 = 5;

/// One backup set on stored media.
struct Header<'a> {
    /// The media: their number among those that are stored.
    media: usize,
    row: &'a Value,
}

impl<'a> Header<'a> {
    fn text(&self, column: &str) -> &'a str {
        self.row[column].as_str().unwrap_or_default()
    }

    fn kind(&self) -> u64 {
        self.row["BackupType"].as_u64().unwrap_or_default()
    }

    /// LSNs are texts of digits without zeros before them.
    fn lsn(&self, column: &str) -> (usize, &'a str) {
        let digits = self.text(column);
        (digits.len(), digits)
    }

    /// True if their LSNs can be compared.
    fn is_of_one_history(&self, other: &Self) -> bool {
        ["FamilyGUID", "RecoveryForkID"].iter().all(|column| self.text(column) == other.text(column))
    }
}

fn headers(media: usize, position: &Value) -> Vec<Header<'_>> {
    position["sets"].as_array().into_iter().flatten().map(|row| Header { media, row }).collect()
}

/// What the newest backup set on the media `chosen` needs: `stored` are the positions of all stored media.
///
/// # Errors
/// A full or a log backup that it needs is not stored.
pub fn needed(stored: &[&Value], chosen: usize) -> Result<NeededMedia> {
    let all: Vec<Header<'_>> =
        stored.iter().enumerate().flat_map(|(media, position)| headers(media, position)).collect();
    let own = || all.iter().filter(|header| header.media == chosen);
    let Some(newest) = own().max_by_key(|header| header.lsn("LastLSN")) else { return Ok(NeededMedia::default()) };
    let mut needed = NeededMedia::default();
    let mut base = newest;
    while base.kind() == LOG {
        needed.logs.push(base.media);
        base = before(&all, base)?;
    }
    needed.database_set = Some(base.text("BackupSetGUID").to_owned());
    needed.pages.push(base.media);
    if base.kind() == DIFFERENTIAL {
        needed.pages.push(full_of(&all, base)?.media);
    }
    needed.pages.reverse();
    needed.logs.reverse();
    needed.pages.dedup();
    needed.logs.dedup();
    Ok(needed)
}

/// What comes before a log backup: a differential or a full that ends inside it, or else the log backup before it.
fn before<'a, 'b>(all: &'b [Header<'a>], log: &Header<'a>) -> Result<&'b Header<'a>> {
    let (first, last) = (log.lsn("FirstLSN"), log.lsn("LastLSN"));
    let others = || all.iter().filter(|other| other.is_of_one_history(log));
    let ends_inside = |other: &&Header<'a>| {
        [FULL, DIFFERENTIAL].contains(&other.kind()) && (first..=last).contains(&other.lsn("LastLSN"))
    };
    let base = others().filter(ends_inside).max_by_key(|other| other.lsn("LastLSN"));
    // A copy of it is as good: the first one counts.
    let is_before =
        |other: &&Header<'a>| other.kind() == LOG && other.lsn("LastLSN") == first && other.lsn("FirstLSN") < first;
    base.or_else(|| others().find(is_before)).ok_or_else(|| {
        let what = format!("the log up to LSN {}", first.1);
        let why = format!("is not stored, and the log backup {} needs it", log.text("BackupSetGUID"));
        Error::incomplete(what, why, "take the full, the differential or the log backups before it in too")
    })
}

fn full_of<'a, 'b>(all: &'b [Header<'a>], differential: &Header<'a>) -> Result<&'b Header<'a>> {
    let base = differential.text("DifferentialBaseGUID");
    let is_it = |other: &&Header<'a>| other.kind() == FULL && other.text("BackupSetGUID") == base;
    // Media with both are read once.
    let found = all.iter().filter(is_it).max_by_key(|other| other.media == differential.media);
    found.ok_or_else(|| {
        let why = format!("is not stored, and the differential {} needs it", differential.text("BackupSetGUID"));
        Error::incomplete(format!("the full backup {base}"), why, "take the files of this full in too")
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(kind: u64, id: &str, first: u64, last: u64, base: &str) -> Value {
        json!({ "sets": [{ "BackupType": kind, "BackupSetGUID": id, "FirstLSN": first.to_string(),
            "LastLSN": last.to_string(), "DifferentialBaseGUID": base, "FamilyGUID": "F", "RecoveryForkID": "R" }] })
    }

    fn found(stored: &[Value], chosen: usize) -> Result<(Vec<usize>, Vec<usize>, Option<String>)> {
        let stored: Vec<&Value> = stored.iter().collect();
        needed(&stored, chosen).map(|needed| (needed.pages, needed.logs, needed.database_set))
    }

    #[test]
    fn a_differential_needs_its_full_and_a_log_all_that_is_before_it() {
        let stored = [
            set(FULL, "A", 10, 20, ""),
            set(LOG, "L1", 5, 30, ""),
            set(DIFFERENTIAL, "D", 40, 100, "A"),
            set(LOG, "L2", 30, 110, ""),
            set(LOG, "L3", 110, 900, ""),
            set(FULL, "B", 800, 1000, ""),
        ];
        let id = |id: &str| Some(id.to_owned());
        assert_eq!(found(&stored, 0).unwrap(), (vec![0], vec![], id("A")));
        assert_eq!(found(&stored, 2).unwrap(), (vec![0, 2], vec![], id("D")));
        assert_eq!(found(&stored, 1).unwrap(), (vec![0], vec![1], id("A")));
        assert_eq!(found(&stored, 4).unwrap(), (vec![0, 2], vec![3, 4], id("D")));
        let without_full = [stored[2].clone(), stored[3].clone()];
        let error = found(&without_full, 1).unwrap_err().to_string();
        assert!(error.contains("the full backup A") && error.contains("the differential D needs it"), "{error}");
        let gap = [stored[0].clone(), stored[4].clone()];
        assert!(found(&gap, 1).unwrap_err().to_string().contains("the log up to LSN 110"));
        assert_eq!(found(&[json!({})], 0).unwrap(), (vec![], vec![], None));
    }

    #[test]
    fn media_with_both_are_needed_once_and_another_history_does_not_count() {
        let mut both = set(FULL, "A", 10, 20, "");
        let differential = set(DIFFERENTIAL, "D", 40, 100, "A")["sets"][0].clone();
        both["sets"].as_array_mut().unwrap().push(differential);
        assert_eq!(found(&[set(FULL, "A", 10, 20, ""), both], 1).unwrap(), (vec![1], vec![], Some("D".to_owned())));
        let mut other = set(FULL, "X", 10, 105, "");
        other["sets"][0]["RecoveryForkID"] = "S".into();
        assert!(found(&[other, set(LOG, "L", 100, 110, "")], 1).is_err());
    }
}
