//! Notes besides the figures: failed runs, and differences from the requested settings.

use super::medians::Row;
use super::results::Record;

/// The greatest number of failed runs in the notes; all of them are in the results.
const MOST_FAILURES: usize = 100;
/// Letters of an error that are shown.
const MOST_LETTERS: usize = 500;

/// The notes, each once, in one line each.
pub fn notes(rows: &[Row], records: &[Record]) -> Vec<String> {
    let of_row = |row: &Row| {
        let named = if row.short.is_empty() { row.group.clone() } else { format!("{}: {}", row.group, row.short) };
        row.failures.iter().map(move |failure| one_line(&format!("{named}: {failure}"))).collect::<Vec<_>>()
    };
    let mut notes: Vec<String> = rows.iter().flat_map(of_row).collect();
    if notes.len() > MOST_FAILURES {
        let more = notes.len() - MOST_FAILURES;
        notes.truncate(MOST_FAILURES);
        notes.push(format!("… and {more} more failed: results.csv has all of them"));
    }
    for record in records {
        let volumes =
            record.volumes.iter().map(|volume| format!("volume {}: {}, {}", volume.name, volume.how, volume.why));
        for note in volumes.chain(record.caps.why.clone()).chain(record.warnings.iter().cloned()) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(MOST_LETTERS) {
        Some((end, _)) => format!("{} …", &words[..end]),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::super::medians::{rows, tests::measured};
    use super::*;

    #[test]
    fn every_failure_is_told_in_one_line_up_to_a_number() {
        let (matrix, cells, mut records) = measured([[1.0; 3]; 4]);
        records[1].status = "failed".into();
        records[1].error = Some(format!("no\nroom {}", "x".repeat(1000)));
        let told = notes(&rows(&matrix, &cells, &records), &records);
        assert_eq!(told.len(), 1);
        assert!(told[0].starts_with("backup, a: none, 1 file: round 2 failed: no room xxx"), "{told:?}");
        assert!(told[0].chars().count() < 600, "{told:?}");
        let mut many = rows(&matrix, &cells, &records);
        many[0].failures = vec!["no".into(); 150];
        let told = notes(&many, &[]);
        assert_eq!((told.len(), told[100].as_str()), (101, "… and 50 more failed: results.csv has all of them"));
    }
}
