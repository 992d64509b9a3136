//! The table that DBAs publish, from fullbore's own reports: configuration, seconds, speed, size, limit.

use std::fs;

use anyhow::Context;
use serde_json::Value;

const HEAD: [&str; 6] = ["configuration", "seconds", "MiB/s", "size, MiB", "limit, MiB/s", "% of limit"];

/// The lines of the table; each argument is `LABEL=REPORT.json`.
pub fn run(reports: &[String]) -> anyhow::Result<Vec<String>> {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for report in reports {
        let (label, file) = report.split_once('=').context("write LABEL=REPORT.json")?;
        let text = fs::read_to_string(file).with_context(|| format!("cannot read `{file}`"))?;
        let report: Value = serde_json::from_str(&text).with_context(|| format!("`{file}` is no report"))?;
        rows.push(row(label, &report));
    }
    Ok(aligned(&rows))
}

/// A figure that the report does not have is shown as `-`, never as a zero.
fn row(label: &str, report: &Value) -> [String; 6] {
    let shown = |value: Option<f64>, digits: usize| value.map_or("-".into(), |value| format!("{value:.digits$}"));
    let speed = report["mib_per_s"].as_f64();
    let limit = report["limit"]["mib_per_s"].as_f64();
    let stage = report["limit"]["stage"].as_str().or(report["bottleneck"]["stage"].as_str()).unwrap_or("");
    let share = speed.zip(limit).filter(|(_, limit)| *limit > 0.0).map(|(speed, limit)| speed / limit * 100.0);
    let size = report["stored_bytes"].as_f64().map(|bytes| bytes / f64::from(1 << 20));
    [
        label.to_owned(),
        shown(report["elapsed_s"].as_f64(), 2),
        shown(speed, 0),
        shown(size, 0),
        shown(limit, 0),
        format!("{} {stage}", shown(share, 0)).trim_end().to_owned(),
    ]
}

fn aligned(rows: &[[String; 6]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            5 => cell.clone(),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    let mut lines: Vec<String> = rows.iter().map(line).collect();
    let rule = "-".repeat(lines.iter().map(String::len).max().unwrap_or(0));
    lines.insert(1, rule);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_becomes_a_row_and_what_it_lacks_a_dash() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("r.json");
        let report = r#"{"elapsed_s": 2.5, "mib_per_s": 412.0, "stored_bytes": 1048576,
                         "limit": {"mib_per_s": 430.0, "stage": "sink"}}"#;
        fs::write(&file, report).unwrap();
        let lines = run(&[format!("lz4={}", file.display())]).unwrap();
        assert_eq!(lines.len(), 3);
        for word in ["lz4", "2.50", "412", "430", "96 sink"] {
            assert!(lines[2].contains(word), "{word}: {}", lines[2]);
        }
        fs::write(&file, "{}").unwrap();
        assert!(run(&[format!("lz4={}", file.display())]).unwrap()[2].contains('-'));
        assert!(run(&["lz4".into()]).is_err());
    }
}
