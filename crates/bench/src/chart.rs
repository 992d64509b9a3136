//! The charts of a matrix: speeds of its configurations, backup beside restore, speed over stored size, lines over a
//! number, and shares of the stages. [`fullbore_model::svg`] draws them.

use super::matrix::Axis;
use super::medians::{Row, words};
use super::tables::{groups, time};
use fullbore_core::units;
use fullbore_model::svg::{self, Bar, BarRow, Bars, Chart, Plot, Point, Series};

const SPEED: &str = "MiB/s of the database";
const WHISKER: &str = "lowest to highest round";
/// Numbers that a line is drawn over.
const NUMBERS: [Axis; 6] =
    [Axis::BufferCount, Axis::Stripes, Axis::Devices, Axis::BlockSize, Axis::MaxTransferSize, Axis::Workers];

/// All charts of a matrix. `foot` says where and when it was measured.
pub fn charts(all: &[Row], foot: &str) -> Vec<Chart> {
    let mut charts = Vec::new();
    for ((group, rows), number) in groups(all).into_iter().zip(1..) {
        let rows: Vec<&Row> = rows.into_iter().filter(|row| row.failed.is_none()).collect();
        let mut add = |name: &str, what: &str, draw: &dyn Fn(&str) -> String| {
            let title = format!("{group}: {what}");
            charts.push(Chart { name: format!("{number}-{name}"), svg: draw(&title), title });
        };
        if rows.is_empty() {
            continue;
        }
        add("speed", "speed", &|title| speeds(title, foot, &rows));
        let both = with_restores(&rows, all);
        if !both.is_empty() {
            add("both", "speed of the backup and of its restore", &|title| beside(title, foot, &both));
        }
        let codecs = fastest_of_codecs(&rows);
        if codecs.len() > 1 {
            add("stored", "speed over stored size, the fastest row of each codec", &|title| {
                over_stored(title, foot, &codecs)
            });
        }
        for axis in NUMBERS {
            let series = series(&rows, axis);
            if series.iter().any(|series| series.points.len() > 1) {
                let over = format!("speed over {}", axis.name());
                add(axis.name(), &over, &|title| over_a_number(title, foot, axis, &series));
            }
        }
        if rows.iter().any(|row| !row.stages.is_empty()) {
            add("stages", "how busy each stage was", &|title| shares(title, foot, &rows));
        }
    }
    charts
}

fn speed_of(row: &Row, label: String, colour: usize) -> Bar {
    Bar { label, value: row.mib_per_s, range: Some(row.range), colour, marked: false }
}

fn speeds(title: &str, foot: &str, rows: &[&Row]) -> String {
    let row = |row: &&Row| {
        let fastest = if row.fastest { "fastest, " } else { "" };
        BarRow {
            name: row.label(),
            remark: format!("{fastest}{}", time(60.0 * row.minutes)),
            marked: row.fastest,
            bars: vec![speed_of(row, format!("{:.0}", row.mib_per_s), 0)],
        }
    };
    Bars { title, foot, axis: SPEED, rows: rows.iter().map(row).collect(), whisker: WHISKER, ..Bars::default() }.draw()
}

/// Backups, each with the restore of what it wrote.
fn with_restores<'a>(rows: &[&'a Row], all: &'a [Row]) -> Vec<(&'a Row, &'a Row)> {
    let restore = |row: &&'a Row| {
        let mut measured = all.iter().filter(|other| other.failed.is_none());
        measured.find(|other| other.cell.restores_the_backup(&row.cell)).map(|restore| (*row, restore))
    };
    rows.iter().filter_map(restore).collect()
}

fn beside(title: &str, foot: &str, both: &[(&Row, &Row)]) -> String {
    let bar = |row: &Row, colour| speed_of(row, format!("{:.0}", row.mib_per_s), colour);
    let row = |(backup, restore): &(&Row, &Row)| BarRow {
        name: backup.label(),
        bars: vec![bar(backup, 0), bar(restore, 1)],
        ..BarRow::default()
    };
    let (rows, colours) = (both.iter().map(row).collect(), &["backup", "restore"]);
    Bars { title, foot, axis: SPEED, rows, colours, whisker: WHISKER, ..Bars::default() }.draw()
}

/// For each codec its fastest row, in the order of the rows.
fn fastest_of_codecs<'a>(rows: &[&'a Row]) -> Vec<(&'a str, &'a Row)> {
    let mut found: Vec<(&str, &Row)> = Vec::new();
    for &row in rows {
        let Some(codec) = row.cell.get(Axis::Codec) else { continue };
        match found.iter_mut().find(|(known, _)| *known == codec) {
            Some((_, fastest)) if fastest.mib_per_s < row.mib_per_s => *fastest = row,
            Some(_) => {}
            None => found.push((codec, row)),
        }
    }
    found
}

fn over_stored(title: &str, foot: &str, codecs: &[(&str, &Row)]) -> String {
    let point = |(codec, row): &(&str, &Row)| Point {
        x: 100.0 * row.stored_share,
        y: row.mib_per_s,
        range: Some(row.range),
        label: (*codec).to_owned(),
    };
    let points = codecs.iter().map(point).collect();
    let series = Series::best_and_others(points, "no other codec is faster and smaller", "others");
    let x = svg::Axis::Linear("bytes of the media, % of the database");
    Plot { title, foot, x, y: SPEED, series, whisker: WHISKER }.draw()
}

/// A line of points for each combination of the other axes; none if a row has no number on this axis.
fn series(rows: &[&Row], axis: Axis) -> Vec<Series> {
    let mut found: Vec<Series> = Vec::new();
    let differs = |other: &Axis| {
        *other != axis && rows.windows(2).any(|pair| pair[0].cell.get(*other) != pair[1].cell.get(*other))
    };
    let differ: Vec<Axis> = Axis::ALL.into_iter().filter(differs).collect();
    for row in rows {
        let Some(x) = row.cell.get(axis).and_then(|word| number(axis, word)) else { return Vec::new() };
        let point = Point { x, y: row.mib_per_s, range: Some(row.range), ..Point::default() };
        let name = words(&row.cell, differ.iter());
        match found.iter_mut().find(|series| series.name == name) {
            Some(series) => series.points.push(point),
            None => found.push(Series { name, joined: true, points: vec![point] }),
        }
    }
    found.iter_mut().for_each(|series| series.points.sort_by(|left, right| left.x.total_cmp(&right.x)));
    found
}

/// A number; on an axis of sizes in bytes.
fn number(axis: Axis, word: &str) -> Option<f64> {
    match axis.is_a_size() {
        true => units::bytes(axis.name(), word).ok().map(|bytes| bytes as f64),
        false => word.parse().ok(),
    }
}

fn over_a_number(title: &str, foot: &str, axis: Axis, series: &[Series]) -> String {
    let shown: fn(f64) -> String = match axis.is_a_size() {
        true => |bytes| units::bytes_of_flag(bytes as u64),
        false => |number| number.to_string(),
    };
    let x = svg::Axis::Logarithmic(axis.name(), shown);
    Plot { title, foot, x, y: SPEED, series: series.to_vec(), whisker: WHISKER }.draw()
}

/// For each row, a bar for each stage: the share of its threads' time in which it was busy.
fn shares(title: &str, foot: &str, rows: &[&Row]) -> String {
    let row = |row: &&Row| {
        let bar = |(name, share): &(String, f64)| {
            let marked = *name == row.bottleneck;
            let label = format!("{name} {:.0} %", 100.0 * share);
            Bar { label, value: 100.0 * share, range: None, colour: usize::from(marked), marked }
        };
        let remark = if row.bottleneck.is_empty() { String::new() } else { format!("limit: {}", row.bottleneck) };
        BarRow { name: row.label(), remark, marked: false, bars: row.stages.iter().map(bar).collect() }
    };
    let (axis, colours) = ("% of the time of its threads", &["a stage", "the stage that was the limit"]);
    let rows = rows.iter().map(row).collect();
    Bars { title, foot, axis, end: 100.0, rows, colours, ..Bars::default() }.draw()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::cells::cells;
    use super::super::matrix::Matrix;
    use super::super::medians::{rows, tests::measured};
    use super::*;

    fn drawn() -> Vec<Chart> {
        let (matrix, cells, records) = measured([[12.0, 10.0, 14.0], [6.0; 3], [4.5; 3], [13.0; 3]]);
        charts(&rows(&matrix, &cells, &records), "here, 2026-11-26")
    }

    #[test]
    fn there_are_bars_codecs_lines_over_stripes_and_shares_of_stages() {
        let charts = drawn();
        let names: Vec<&str> = charts.iter().map(|chart| chart.name.as_str()).collect();
        assert_eq!(names, ["1-speed", "1-stored", "1-stripes", "1-stages"]);
        let has = |at: usize, wanted: &[&str]| {
            let svg = &charts[at].svg;
            wanted.iter().for_each(|text| assert!(svg.contains(&format!(">{text}<")), "{text}: {svg}"));
        };
        has(0, &["none, 1 file", "10", "24.0 s", "fastest, 9.00 s", SPEED, WHISKER, "here, 2026-11-26"]);
        has(1, &["none", "lz4", "40", "60", "no other codec is faster and smaller", "others", SPEED]);
        has(2, &["none", "lz4", "1", "4", "stripes", SPEED]);
        has(3, &["source 25 %", "limit: transform", "100"]);
        assert_eq!((charts[2].svg.matches("<polyline").count(), charts[2].svg.matches("<circle").count()), (2, 4));
    }

    #[test]
    fn the_stage_that_was_the_limit_is_marked() {
        let (matrix, cells, mut records) = measured([[12.0; 3]; 4]);
        records.iter_mut().for_each(|record| record.bottleneck = Some("source".into()));
        let charts = charts(&rows(&matrix, &cells, &records), "");
        let stages = charts.iter().find(|chart| chart.name == "1-stages").unwrap();
        assert_eq!(stages.svg.matches("class=\"outline\"").count(), 4);
        assert_eq!(drawn()[3].svg.matches("class=\"outline\"").count(), 0, "it has no stage `transform`");
    }

    #[test]
    fn a_restore_is_beside_the_backup_that_it_restores() {
        let text = "[data.a]\nsize = \"4MiB\"\n[axes]\noperation = [\"backup\", \"restore\"]\ncodec = [\"none\", \
                    \"lz4\"]\n";
        let matrix = Matrix::parse("m.toml", "m", text).unwrap();
        let mut rows = rows(&matrix, &cells(&matrix).unwrap(), &[]);
        for (row, speed) in rows.iter_mut().zip([123.0, 234.0, 321.0, 432.0]) {
            (row.mib_per_s, row.range, row.rounds) = (speed, (speed, speed), row.wanted);
        }
        rows[..3].iter_mut().for_each(|row| row.failed = None);
        let charts = charts(&rows, "");
        let names: Vec<&str> = charts.iter().map(|chart| chart.name.as_str()).collect();
        assert_eq!(names, ["1-speed", "1-both", "1-stored", "2-speed"]);
        let both = &charts[1].svg;
        for text in [">none<", ">123<", ">321<", ">backup<", ">restore<"] {
            assert!(both.contains(text), "{text}: {both}");
        }
        assert!(!both.contains(">234<") && !both.contains(">lz4<"), "the restore of lz4 has no figures: {both}");
    }

    #[test]
    fn sizes_stand_in_their_order_however_they_are_written() {
        let text = "[data.a]\nsize = \"4MiB\"\n[axes]\nblock-size = [\"64KiB\", 4096, 16384]\n";
        let matrix = Matrix::parse("m.toml", "m", text).unwrap();
        let rows = rows(&matrix, &cells(&matrix).unwrap(), &[]);
        let rows: Vec<&Row> = rows.iter().collect();
        let series = series(&rows, Axis::BlockSize);
        let points: Vec<f64> = series[0].points.iter().map(|point| point.x).collect();
        assert_eq!(points, [4096.0, 16384.0, 65536.0]);
        let svg = over_a_number("", "", Axis::BlockSize, &series);
        assert!(svg.contains(">4KiB<") && svg.contains(">64KiB<"), "{svg}");
    }
}
