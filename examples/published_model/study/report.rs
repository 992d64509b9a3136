//! The report: every number, published and predicted.

use std::fmt::Write;

use fullbore_model::throughput::{Buffers, Ceiling, Configuration, Device, Direction, ExtraCost, Path, predict};

use super::across::{self, Transfer};
use super::table::Table;
use super::{Cell, Leave, Outcome, Study, buffers, coverage, dbs, median_error, rds, words};

/// A cell is odd where it is missed by more than this.
const ODD: f64 = 0.15;

/// What the issue wants of a part of a table.
struct Goal {
    what: &'static str,
    counts: fn(&Cell) -> bool,
    wanted: Option<f64>,
}

fn is_backup(cell: &Cell) -> bool {
    cell.column.starts_with("backup")
}

fn is_restore(cell: &Cell) -> bool {
    cell.column.starts_with("restore")
}

fn is_any(_: &Cell) -> bool {
    true
}

const RDS_GOALS: [Goal; 2] = [
    Goal { what: "backup columns", counts: is_backup, wanted: Some(0.10) },
    Goal { what: "restore columns", counts: is_restore, wanted: Some(0.15) },
];
const DBS_GOALS: [Goal; 3] = [
    Goal { what: "all rows", counts: is_any, wanted: Some(0.10) },
    Goal { what: "of these the backups", counts: is_backup, wanted: None },
    Goal { what: "of these the restores", counts: is_restore, wanted: Some(0.15) },
];
const BUFFERS_GOALS: [Goal; 1] = [Goal { what: "all rows", counts: is_any, wanted: None }];

/// The lines of the table of goals: what a test computes again. Each configuration is predicted without any number of it.
pub fn goal_lines() -> Vec<String> {
    let studies = [(rds::study(), &RDS_GOALS[..]), (dbs::study(), &DBS_GOALS), (buffers::study(), &BUFFERS_GOALS)];
    studies.iter().flat_map(|(study, goals)| lines_of(study, &study.leave_out(Leave::Row), goals)).collect()
}

fn lines_of(study: &Study, outcomes: &[Outcome], goals: &[Goal]) -> Vec<String> {
    let line = |goal: &Goal| {
        let median = median_error(study, outcomes, goal.counts);
        let verdict = match goal.wanted {
            None => "–".into(),
            Some(wanted) if median <= wanted => format!("≤ {} %: met", 100.0 * wanted),
            Some(wanted) => format!("≤ {} %: missed", 100.0 * wanted),
        };
        let numbers = study.cells.iter().filter(|cell| (goal.counts)(cell)).count();
        format!("| {}, {} | {numbers} | {} | {verdict} |", study.title, goal.what, percent(median))
    };
    goals.iter().map(line).collect()
}

/// The whole report.
pub fn whole() -> String {
    let mut text = String::from(HEAD);
    for line in goal_lines() {
        put(&mut text, &line);
    }
    text.push_str(AFTER_GOALS);
    let (rds, dbs, buffers) = (rds::study(), dbs::study(), buffers::study());
    part(&mut text, &rds, &words::of_rds(&rds), &RDS_GOALS);
    without_two_facts(&mut text);
    part(&mut text, &dbs, &words::of_dbs(&dbs), &DBS_GOALS);
    part(&mut text, &buffers, &words::of_buffers(&buffers), &BUFFERS_GOALS);
    raw_path(&mut text);
    transfers(
        &mut text,
        "Across sizes: fitted to the 1 TB database, asked for the 4 TB one",
        SIZES_TEXT,
        &across::sizes(),
    );
    transfers(&mut text, "Across codecs: fitted to gzip, asked for LZ4", CODECS_TEXT, &across::codecs());
    text.push_str(&words::not_explained(&rds));
    text
}

fn put(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn signed(share: f64) -> String {
    format!("{:+.0} %", 100.0 * share)
}

/// One study: parameters, medians, every number.
fn part(text: &mut String, study: &Study, words: &str, goals: &[Goal]) {
    let _ = writeln!(text, "\n## {}\n\nSource: {}\n\n{words}", study.title, study.source);
    let Some(fitted) = study.fit_to(|_| true) else { return };
    let configurations = study.cells.iter().map(|cell| cell.group).max().map_or(0, |last| last + 1);
    let (parameters, numbers) = (study.free.len(), study.cells.len());
    let _ = writeln!(
        text,
        "**{parameters} parameters, {numbers} numbers in {configurations} configurations.** Fitted to all of them:\n\n| parameter, unit | value | ± |\n|---|---:|---:|"
    );
    for ((free, value), deviation) in study.free.iter().zip(&fitted.values).zip(&fitted.deviations) {
        let value = if *value > 1000.0 { format!("{:.1} × 10⁶", value / 1e6) } else { format!("{value:.3}") };
        let _ = writeln!(text, "| {} | {value} | {} |", free.name, percent(*deviation));
    }
    let all = [Leave::Row, Leave::Cell, Leave::Nothing].map(|leave| study.leave_out(leave));
    let _ = writeln!(
        text,
        "\n| median error | numbers | without its configuration | without the number alone | fitted to all |\n|---|---:|---:|---:|---:|"
    );
    for goal in goals {
        let count = study.cells.iter().filter(|cell| (goal.counts)(cell)).count();
        let medians = all.each_ref().map(|outcomes| percent(median_error(study, outcomes, goal.counts)));
        let _ = writeln!(text, "| {} | {count} | {} |", goal.what, medians.join(" | "));
    }
    let [rows, cells, fits] = &all;
    let _ = writeln!(
        text,
        "\nOf the numbers that were left out, P10 to P90 holds {:.0} %. {} are missed by more than {:.0} %.",
        100.0 * coverage(study, rows),
        rows.iter().filter(|outcome| outcome.error.abs() > ODD).count(),
        100.0 * ODD
    );
    every_number(text, study, rows, Some((cells, fits)));
}

fn every_number(text: &mut String, study: &Study, rows: &[Outcome], more: Option<(&[Outcome], &[Outcome])>) {
    let (scale, unit) = study.unit;
    let columns = if more.is_some() { " without the number alone | fitted to all |" } else { "" };
    let _ = writeln!(
        text,
        "\n| configuration | column | published, {unit} | predicted | error | P10–P90 | limit |{columns}\n|---|---|---:|---:|---:|---:|---|{}",
        columns.chars().filter(|one| *one == '|').map(|_| "---:|").collect::<String>()
    );
    for (at, outcome) in rows.iter().enumerate() {
        let cell = &study.cells[outcome.cell];
        let _ = write!(
            text,
            "| {} | {} | {:.0} | {:.0} | {} | {:.0}–{:.0} | {} |",
            cell.row,
            cell.column,
            cell.seconds / scale,
            outcome.seconds / scale,
            signed(outcome.error),
            outcome.interval.p10 / scale,
            outcome.interval.p90 / scale,
            outcome.limit.name()
        );
        if let Some((cells, fits)) = more {
            let _ = write!(text, " {} | {} |", signed(cells[at].error), signed(fits[at].error));
        }
        text.push('\n');
    }
}

/// What the two parameters that are about pages, not about speed, are worth.
fn without_two_facts(text: &mut String) {
    let study = rds::study().holding(&[(rds::Fitted::Used as usize, 1.0), (rds::Fitted::Written as usize, 1.0)]);
    let outcomes = study.leave_out(Leave::Row);
    let _ = writeln!(
        text,
        "\nWithout the two parameters that are no speeds (used share 1, written bytes 1), each configuration left out: backup {}, restore {}.",
        percent(median_error(&study, &outcomes, is_backup)),
        percent(median_error(&study, &outcomes, is_restore))
    );
}

fn transfers(text: &mut String, title: &str, words: &str, all: &[Transfer]) {
    let _ = writeln!(text, "\n## {title}\n\n{words}\n| known | numbers | backup | restore |\n|---|---:|---:|---:|");
    for transfer in all {
        let median = |counts: fn(&Cell) -> bool| {
            let some = transfer.outcomes.iter().any(|outcome| counts(&transfer.study.cells[outcome.cell]));
            if some { percent(median_error(&transfer.study, &transfer.outcomes, counts)) } else { "–".into() }
        };
        let (backup, restore) = (median(is_backup), median(is_restore));
        let _ = writeln!(text, "| {} | {} | {backup} | {restore} |", transfer.known, transfer.outcomes.len());
    }
    for transfer in all {
        let _ = writeln!(text, "\n**{}**", transfer.known);
        every_number(text, &transfer.study, &transfer.outcomes, None);
    }
}

/// The report whose author asked what 70 MB/s were.
fn raw_path(text: &mut String) {
    const MEGABYTE: f64 = 1e6;
    const TRANSFER: f64 = 1_048_576.0;
    // The table's second sentence: sqlio's sequential read and write, and random write.
    const RAW: [f64; 3] = [200.0, 120.0, 75.0];
    let table = Table::read(include_str!("../../../bench/published/sqlserver-path.csv"));
    let _ = writeln!(text, "\n## SQL Server's path\n\nSource: {}\n\n{PATH_TEXT}", table.source);
    put(text, "| server | devices | BLOCKSIZE | published, MB/s |\n|---|---|---|---:|");
    for row in table.rows() {
        let cells = ["server", "devices", "block_size", "mb_per_s"].map(|column| row.text(column));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    put(text, "\n| model | MB/s | limit |\n|---|---:|---|");
    for (what, write, buffers) in [
        ("one buffer at a time", RAW[1], 1),
        ("two", RAW[1], 2),
        ("enough", RAW[1], 64),
        ("enough, written at the random rate", RAW[2], 64),
    ] {
        let path = Path {
            database: Device { read: Ceiling::total(RAW[0] * MEGABYTE), write: Ceiling::NONE },
            media: Device { read: Ceiling::NONE, write: Ceiling::total(write * MEGABYTE) },
            ..Path::unlimited(1.0)
        };
        let configuration = Configuration {
            direction: Direction::Backup,
            plain_bytes: 16e9,
            extra: ExtraCost::default(),
            stripes: 1,
            database_streams: 1,
            queue_depth: 1,
            request_bytes: None,
            workers: 1,
            buffers: Buffers::Through(buffers),
            transfer_bytes: TRANSFER,
            codec: "none".into(),
            encrypted: false,
            throttle: None,
        };
        if let Ok(foreseen) = predict(&path, &configuration) {
            let _ = writeln!(text, "| {what} | {:.0} | {} |", foreseen.rate / MEGABYTE, foreseen.limit.name());
        }
    }
}

const HEAD: &str = "# The model against published tables

Written by `cargo run --release --example published_model` from the tables in [bench/published](../published); the equations are in [docs/MODEL.md](../../docs/MODEL.md). Nothing here was
measured by us: numbers that others have published are predicted from the other numbers of their table. Errors are (predicted − published) / published time; medians are of absolute errors. A configuration is left
out with **all** its numbers: a second machine says almost the same of it, so that to leave out a number alone would be to know the answer. Both are given.

| part | numbers | median error, its configuration left out | goal |
|---|---:|---:|---|
";

const AFTER_GOALS: &str = "
A test (`tests/it/published_model.rs`) computes these lines again and compares them with this file.
";

const PATH_TEXT: &str = "Raw: read 200, write 120 MB/s. No fit: there is one number for each question. What the raw path alone gives is below. One buffer at a time, so that reading and writing wait for each other, comes near what was measured on one device;
the random write rate (75) would come as near, and the table cannot tell them apart: this is what calibration is for. Many devices came nearer to the write rate. BLOCKSIZE=65536 made one server much slower and the other a little faster: no model explains opposite signs.
";

const SIZES_TEXT: &str = "With nominal IOPS alone the 4 TB rows are too slow by the share of the database that is in use, and compressed single files by its better compression: both are properties of the data that nobody can know from the other database. One
backup of it tells the first, a second one the other; restores then still lack what nobody told, the bytes that are filled.
";

const CODECS_TEXT: &str = "LZ4's stored share is given, as published. For restores gzip alone cannot tell whether a thread is held by the bytes that it reads or by those that it writes; each is a bound, and the truth is between. Backups need LZ4's speed from
somewhere: its 4-thread row. gzip speaks for a slow volume (see above), and LZ4 then breaks through it.
";
