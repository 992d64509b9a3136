//! Tables: CSV of all runs, and Markdown of medians in the shape of published reports (a time, and "~2.7× faster").

use std::fmt::Write;

use super::matrix::{Axis, Matrix};
use super::medians::{Paired, Row};
use super::notes::notes;
use super::results::Record;
use fullbore_core::units::{MIB, mib_per_s};

/// A TB in bytes and an hour in seconds: backup vendors count in TB/h.
const TB: f64 = 1e12;
const HOUR: f64 = 3600.0;

/// The column of ratios within the rounds to the first row of a group.
const VERSUS_FIRST: &str = "vs first, paired";

/// One row for each run.
pub fn csv(records: &[Record]) -> String {
    let mut text = String::from("title,host,");
    for axis in Axis::ALL {
        text += axis.name();
        text.push(',');
    }
    text += "round,warm_up,status,cache,seconds,elapsed_s,source_bytes,stored_bytes,full_bytes,mib_per_s,cpu_s,\
             peak_rss_bytes,pool_bytes,bottleneck,\
             raw_path_mib_per_s,volumes,threads_given,memory_capped,load_alone_per_s,load_alone_p99_ms,\
             load_beside_per_s,load_beside_p99_ms,error,started_at,command\n";
    for record in records {
        let number = |number: Option<f64>| number.map_or_else(String::new, |number| number.to_string());
        let load = |of: &dyn Fn(&super::results::LoadResult) -> f64| number(record.load.as_ref().map(of));
        let mut fields = vec![record.title.clone(), record.machine.host.clone()];
        fields.extend(Axis::ALL.iter().map(|axis| record.word(*axis).to_owned()));
        fields.extend([
            record.round.to_string(),
            record.warm_up.to_string(),
            record.status.clone(),
            record.cache.clone(),
        ]);
        fields.extend([record.seconds, record.elapsed_s].map(|seconds| seconds.to_string()));
        fields.extend([record.source_bytes, record.stored_bytes, record.full_bytes].map(|bytes| bytes.to_string()));
        fields.extend([record.mib_per_s, record.cpu_s].map(|number| number.to_string()));
        fields.extend([record.peak_rss_bytes, record.pool_bytes].map(|bytes| bytes.to_string()));
        fields.extend([record.bottleneck.clone().unwrap_or_default(), number(record.raw_path_mib_per_s)]);
        let volumes = record.volumes.iter().map(|volume| format!("{} {} {}", volume.role, volume.name, volume.how));
        fields.push(volumes.collect::<Vec<_>>().join("; "));
        fields.extend([record.caps.threads_given.to_string(), record.caps.memory_capped.to_string()]);
        fields.extend([load(&|load| load.alone.per_s), load(&|load| load.alone.p99_ms)]);
        fields.extend([load(&|load| load.beside.per_s), load(&|load| load.beside.p99_ms)]);
        fields.push(record.error.clone().unwrap_or_default());
        fields.extend([record.started_at.clone(), record.command.clone()]);
        text += &fields.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(",");
        text.push('\n');
    }
    text
}

/// A field in the form of RFC 4180.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

/// A table for each group.
pub fn markdown(matrix: &Matrix, rows: &[Row], records: &[Record]) -> String {
    let mut text = format!("# {}\n\n{}\n", line(&matrix.title), line(&super::preamble(matrix, rows, records)));
    for (group, rows) in groups(rows) {
        let (head, lines) = table(matrix, &rows);
        let _ = write!(text, "\n## {}\n\n| {} |\n", line(group), head.join(" | ")); // A String takes everything.
        let _ = writeln!(text, "|---|{}", "---:|".repeat(head.len() - 1));
        for fields in lines {
            let _ = writeln!(text, "| {} |", fields.iter().map(|field| line(field)).collect::<Vec<_>>().join(" | "));
        }
    }
    let notes: String = notes(rows, records).iter().map(|note| format!("- {}\n", line(note))).collect();
    if !notes.is_empty() {
        let _ = write!(text, "\n## Notes\n\n{notes}");
    }
    text
}

/// A text in the form of one line of a table.
fn line(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

/// Rows by group, in the order of the file.
pub fn groups(rows: &[Row]) -> Vec<(&str, Vec<&Row>)> {
    let mut groups: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|(group, _)| *group == row.group) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((&row.group, vec![row])),
        }
    }
    groups
}

/// The head and the fields of a group's table, without empty columns.
pub fn table(matrix: &Matrix, rows: &[&Row]) -> (Vec<String>, Vec<Vec<String>>) {
    let any = |has: &dyn Fn(&Row) -> bool| rows.iter().any(|row| has(row));
    let to_nul = any(&|row| row.cell.to_nul());
    let priced = any(&|row| row.price_per_tb.is_some());
    let raw = any(&|row| row.raw_path.is_some());
    let loaded = any(&|row| row.load.is_some());
    let names = ["configuration", "time", "MiB/s", "rounds", VERSUS_FIRST, "stored", "CPU s/GB", "peak MiB", "limit"];
    let mut head: Vec<String> = names.map(str::to_owned).to_vec();
    let further = [
        (to_nul, "TB/h".to_owned()),
        (priced, format!("{} per TB/h", matrix.currency)),
        (raw, "raw path MiB/s".into()),
        (raw, "of it".into()),
        (loaded, "load alone /s".into()),
        (loaded, "beside /s".into()),
        (loaded, "p99 alone ms".into()),
        (loaded, "beside ms".into()),
    ];
    head.extend(further.into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| name));
    let lines = rows.iter().map(|row| {
        let mut fields = fields(row);
        let price = row.price_per_tb;
        let tb_per_h = row.mib_per_s * MIB * HOUR / TB;
        let with = |is_there: bool, value: Option<String>| is_there.then(|| value.unwrap_or_else(|| "–".into()));
        let measured = row.failed.is_none();
        fields.extend(with(to_nul, measured.then(|| format!("{tb_per_h:.2}"))));
        fields.extend(with(priced, price.map(|price| format!("{price:.3}"))));
        fields.extend(with(raw, row.raw_path.map(|raw| format!("{raw:.0}"))));
        fields.extend(with(
            raw,
            row.raw_path.filter(|raw| *raw > 0.0).map(|raw| format!("{:.0} %", row.mib_per_s / raw * 100.0)),
        ));
        let load = row.load;
        fields.extend(with(loaded, load.map(|(alone, _)| format!("{:.0}", alone.per_s))));
        fields.extend(with(loaded, load.map(|(_, beside)| format!("{:.0}", beside.per_s))));
        fields.extend(with(loaded, load.map(|(alone, _)| format!("{:.2}", alone.p99_ms))));
        fields.extend(with(loaded, load.map(|(_, beside)| format!("{:.2}", beside.p99_ms))));
        fields.resize(head.len(), String::new());
        fields
    });
    let lines = lines.collect();
    (head, lines)
}

fn fields(row: &Row) -> Vec<String> {
    let name = if row.fastest { format!("{}, fastest", row.label()) } else { row.label() };
    if let Some(why) = &row.failed {
        return vec![name, format!("failed: {}", why.lines().next().unwrap_or_default())];
    }
    vec![
        name,
        time(60.0 * row.minutes),
        format!("{:.0}", row.mib_per_s),
        range(row.range),
        row.faster.map_or_else(String::new, faster),
        format!("{:.0} %", row.stored_share * 100.0),
        format!("{:.2}", row.cpu_per_gb),
        format!("{:.0}", mib_per_s(row.peak_rss_bytes, 1.0)),
        row.bottleneck.clone(),
    ]
}

/// A time in a unit that suits its size.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        _ if seconds < 10.0 => format!("{seconds:.2} s"),
        _ if seconds < 120.0 => format!("{seconds:.1} s"),
        _ if seconds < 7200.0 => format!("{:.1} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// The slowest and the fastest round, in MiB/s.
fn range((least, greatest): (f64, f64)) -> String {
    let (least, greatest) = (format!("{least:.0}"), format!("{greatest:.0}"));
    if least == greatest { least } else { format!("{least}–{greatest}") }
}

/// `within noise` if rounds disagree about the faster row; else `~2.7× faster`, `~1.3× slower`, and `the same` within 5
/// %.
fn faster(paired: Paired) -> String {
    match paired.middle {
        _ if paired.is_noise() => "within noise".into(),
        r if (1.05..9.95).contains(&r) => format!("~{r:.1}× faster"),
        r if r >= 9.95 => format!("~{r:.0}× faster"),
        r if r <= 1.0 / 1.05 && r > 0.0 => format!("~{:.1}× slower", 1.0 / r),
        _ => "the same".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::medians::{rows, tests::measured};
    use super::*;

    #[test]
    fn a_table_has_times_and_how_much_faster() {
        let (matrix, cells, records) = measured([[12.0; 3], [6.0; 3], [4.5; 3], [13.0; 3]]);
        let text = markdown(&matrix, &rows(&matrix, &cells, &records), &records);
        assert!(!text.contains("## Notes") && !text.contains("have failed"), "{text}");
        for words in [
            "## backup, a",
            "| configuration | time | MiB/s | rounds | vs first, paired | stored |",
            "| none, 1 file | 24.0 s | 10 | 10 |  | 50 % |",
            "| none, 4 files | 12.0 s | 20 | 20 | ~2.0× faster |",
            "| lz4, 1 file, fastest | 9.00 s | 27 | 27 | ~2.7× faster |",
            "~1.1× slower",
            "USD per TB/h",
        ] {
            assert!(text.contains(words), "`{words}` is not in:\n{text}");
        }
    }

    #[test]
    fn a_table_of_which_a_run_failed_does_not_look_whole() {
        let (matrix, cells, mut records) = measured([[12.0; 3], [6.0; 3], [4.5; 3], [13.0; 3]]);
        records[4].status = "failed".into();
        records[4].error = Some("ended with signal: 9 (SIGKILL)".into());
        let text = markdown(&matrix, &rows(&matrix, &cells, &records), &records);
        for words in [
            "Runs have failed",
            "| none, 4 files (2 of 3 rounds) | 12.0 s |",
            "## Notes\n\n- backup, a: none, 4 files: round 2 failed: ended with signal: 9 (SIGKILL)\n",
        ] {
            assert!(text.contains(words), "`{words}` is not in:\n{text}");
        }
    }

    #[test]
    fn every_row_has_as_many_fields_as_the_head() {
        let (matrix, cells, mut records) = measured([[1.0; 3]; 4]);
        for record in &mut records[..3] {
            record.status = "failed".into();
            record.error = Some("no | room\nat all".into());
        }
        let text = markdown(&matrix, &rows(&matrix, &cells, &records), &records);
        let bars = |line: &str| line.replace("\\|", "").matches('|').count();
        let counts: Vec<usize> = text.lines().filter(|line| line.starts_with('|')).map(bars).collect();
        assert!(counts.len() == 6 && counts.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
        assert!(text.contains("failed: no"), "{text}");
    }

    #[test]
    fn a_csv_has_a_row_for_each_run_and_quotes_what_needs_it() {
        let (_, _, mut records) = measured([[1.0; 3]; 4]);
        records[0].error = Some("no \"room\", none".into());
        let text = csv(&records);
        assert_eq!(text.lines().count(), 13);
        assert!(text.contains("\"no \"\"room\"\", none\""), "{text}");
        let commas = |line: &str| line.matches(',').count();
        assert!(text.lines().skip(2).all(|line| commas(line) == commas(text.lines().next().unwrap_or_default())));
    }

    #[test]
    fn a_ratio_is_said_as_people_say_it() {
        for (ratio, said) in [
            (2.71, "~2.7× faster"),
            (12.2, "~12× faster"),
            (1.01, "the same"),
            (0.5, "~2.0× slower"),
            (0.99, "the same"),
        ] {
            let near = (ratio * 0.999, ratio * 1.001);
            assert_eq!(faster(Paired { middle: ratio, range: near }), said);
        }
        assert_eq!(faster(Paired { middle: 0.7, range: (0.6, 1.1) }), "within noise");
    }

    #[test]
    fn a_time_has_the_unit_of_its_size_and_rounds_their_range() {
        let shown = [0.58, 24.0, 90.0, 150.0, 9000.0].map(time);
        assert_eq!(shown, ["0.58 s", "24.0 s", "90.0 s", "2.5 min", "2.5 h"]);
        assert_eq!([range((356.2, 701.0)), range((10.0, 10.2))], ["356–701", "10"]);
    }
}
