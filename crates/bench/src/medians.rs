//! Medians: one row for each cell, over the rounds that count, and how much faster it is than the first of its group.

use std::collections::BTreeMap;

use super::cells::{Cell, Round};
use super::matrix::{Axis, Matrix};
use super::results::{DONE, Record, Throughput};
use fullbore_model::statistics::median;

/// A cell and its medians.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its settings.
    pub cell: Cell,
    /// The values on the axes that differ in the matrix: the name of the row.
    pub name: String,
    /// The same without the axes of its group.
    pub short: String,
    /// The operation and its object: rows of one group are compared.
    pub group: String,
    /// Rounds that count.
    pub rounds: usize,
    /// Requested rounds.
    pub wanted: usize,
    /// Runs that failed and were not run again, with the reason.
    pub failures: Vec<String>,
    /// Seconds of a run.
    pub seconds: f64,
    /// MiB/s of the database.
    pub mib_per_s: f64,
    /// Least and greatest MiB/s.
    pub range: (f64, f64),
    /// Minutes for the database before scaling.
    pub minutes: f64,
    /// The ratio to the speed of the first row of the group; `None` for the first row.
    pub faster: Option<Paired>,
    /// Bytes of media for a byte of the database.
    pub stored_share: f64,
    /// Processor seconds for a GB of the database.
    pub cpu_per_gb: f64,
    /// Greatest resident set.
    pub peak_rss_bytes: u64,
    /// Shares of busy time of each stage, in the median run.
    pub stages: Vec<(String, f64)>,
    /// The stage that was the limit most often.
    pub bottleneck: String,
    /// The machine's raw path in MiB/s.
    pub raw_path: Option<f64>,
    /// The load alone and beside the job.
    pub load: Option<(Throughput, Throughput)>,
    /// The price of a TB.
    pub price_per_tb: Option<f64>,
    /// Why it has no figures.
    pub failed: Option<String>,
    /// No row of its group is faster, and the group has several rows.
    pub fastest: bool,
    /// The command line of its last run, quoted for a shell; empty in results of earlier versions.
    pub command: String,
}

/// The ratios of two speeds within the rounds that both have: if the machine is slow in a round, both are slow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Paired {
    /// Their median.
    pub middle: f64,
    /// The least and the greatest of them.
    pub range: (f64, f64),
}

impl Paired {
    /// True if the range includes 1: the first row was as fast or faster in one round, and as fast or slower in
    /// another.
    pub fn is_noise(&self) -> bool {
        self.range.0 <= 1.0 && self.range.1 >= 1.0
    }
}

impl Row {
    /// Its name in a table, with its number of rounds if some are missing.
    pub fn label(&self) -> String {
        let name = if self.short.is_empty() { "as it is" } else { &self.short };
        match self.failed.is_none() && self.rounds < self.wanted {
            true => format!("{name} ({} of {} rounds)", self.rounds, self.wanted),
            false => name.to_owned(),
        }
    }
}

/// Rows in the order of the file.
pub fn rows(matrix: &Matrix, cells: &[Cell], records: &[Record]) -> Vec<Row> {
    let differ: Vec<Axis> = matrix.axes.iter().filter(|(_, words)| words.len() > 1).map(|(axis, _)| *axis).collect();
    let mut of_cell: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in records {
        of_cell.entry(&record.identity).or_default().push(record);
    }
    let mut first_of: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
    let mut rows = Vec::with_capacity(cells.len());
    for cell in cells {
        let identity = cell.identity(matrix);
        let all = of_cell.get(identity.as_str()).cloned().unwrap_or_default();
        let counted: Vec<&Record> = all.iter().copied().filter(|record| record.counts()).collect();
        let group = words(cell, Axis::ALL.iter().filter(|axis| Axis::GROUP.contains(axis)));
        let first = first_of.entry(group.clone()).or_insert_with(|| counted.clone());
        let is_first = first.first().zip(counted.first()).is_none_or(|(first, own)| first.identity == own.identity);
        let mut row = row(cell, &all, &counted);
        row.wanted = matrix.repetitions as usize;
        // The price is not measured: it is from the present matrix.
        row.price_per_tb =
            cell.price_per_hour(matrix).filter(|_| row.rounds > 0).map(|price| price * hours_per_tb(&counted));
        row.faster = if is_first { None } else { faster(&counted, first) };
        row.name = words(cell, differ.iter());
        row.short = words(cell, differ.iter().filter(|axis| !Axis::GROUP.contains(axis)));
        row.group = group;
        rows.push(row);
    }
    mark_the_fastest(&mut rows);
    rows
}

/// In each group of several measured rows.
fn mark_the_fastest(rows: &mut [Row]) {
    let mut of_group: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate().filter(|(_, row)| row.failed.is_none()) {
        of_group.entry(&row.group).or_default().push(at);
    }
    let slower = |one: &usize, other: &usize| rows[*other].mib_per_s.total_cmp(&rows[*one].mib_per_s);
    let several = of_group.into_values().filter(|group| group.len() > 1);
    let fastest: Vec<usize> = several.filter_map(|group| group.into_iter().min_by(slower)).collect();
    fastest.into_iter().for_each(|at| rows[at].fastest = true);
}

/// Values on some axes in one line; operations and codecs have no name of the axis before them.
pub(super) fn words<'a>(cell: &Cell, axes: impl Iterator<Item = &'a Axis>) -> String {
    let word = |axis: &Axis| {
        let word = cell.get(*axis)?;
        Some(match axis {
            Axis::Operation | Axis::Codec | Axis::Kind | Axis::Data | Axis::Instance => word.to_owned(),
            Axis::Stripes if word == "1" => "1 file".into(),
            Axis::Stripes => format!("{word} files"),
            Axis::Media => format!("to {word}"),
            axis => format!("{} {word}", axis.name()),
        })
    };
    axes.filter_map(word).collect::<Vec<_>>().join(", ")
}

/// Seconds for one byte: so a database that grew under its load does not count as slower.
fn pace(record: &Record) -> f64 {
    record.seconds / record.source_bytes.max(1) as f64
}

/// For a TB of 10¹² bytes, as in the prices of providers.
fn hours_per_tb(counted: &[&Record]) -> f64 {
    median(counted.iter().map(|record| 1e12 * pace(record) / 3600.0)).unwrap_or(0.0)
}

/// The ratios in the rounds that both have.
fn faster(own: &[&Record], first: &[&Record]) -> Option<Paired> {
    let ratio = |record: &&Record| {
        let of_first = first.iter().find(|other| other.round == record.round)?;
        (pace(record) > 0.0).then(|| pace(of_first) / pace(record))
    };
    let ratios: Vec<f64> = own.iter().filter_map(ratio).collect();
    let range = ratios.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), one| (least.min(*one), most.max(*one)));
    Some(Paired { middle: median(ratios.iter().copied())?, range })
}

fn row(cell: &Cell, all: &[&Record], counted: &[&Record]) -> Row {
    let middle = |of: &dyn Fn(&Record) -> f64| median(counted.iter().map(|record| of(record))).unwrap_or(0.0);
    let speeds = || counted.iter().map(|record| record.mib_per_s);
    let minutes = middle(&|record| record.full_bytes as f64 * pace(record) / 60.0);
    let loads: Vec<_> = counted.iter().filter_map(|record| record.load.as_ref()).collect();
    let of_load =
        |of: &dyn Fn(&super::results::LoadResult) -> f64| median(loads.iter().map(|load| of(load))).unwrap_or(0.0);
    let last_error = all.iter().rev().find(|record| record.status != DONE).and_then(|record| record.error.clone());
    Row {
        cell: cell.clone(),
        name: String::new(),
        short: String::new(),
        group: String::new(),
        rounds: counted.len(),
        wanted: 0,
        failures: failures(all),
        seconds: middle(&|record| record.seconds),
        mib_per_s: middle(&|record| record.mib_per_s),
        range: (speeds().fold(f64::INFINITY, f64::min), speeds().fold(0.0, f64::max)),
        minutes,
        faster: None,
        stored_share: middle(&|record| record.stored_bytes as f64 / record.source_bytes.max(1) as f64),
        cpu_per_gb: middle(&|record| record.cpu_s / (record.source_bytes.max(1) as f64 / 1e9)),
        peak_rss_bytes: middle(&|record| record.peak_rss_bytes as f64) as u64,
        stages: stages(counted),
        bottleneck: most_frequent(counted),
        raw_path: median(counted.iter().filter_map(|record| record.raw_path_mib_per_s)),
        load: (!loads.is_empty()).then(|| {
            let alone =
                Throughput { per_s: of_load(&|load| load.alone.per_s), p99_ms: of_load(&|load| load.alone.p99_ms) };
            let beside =
                Throughput { per_s: of_load(&|load| load.beside.per_s), p99_ms: of_load(&|load| load.beside.p99_ms) };
            (alone, beside)
        }),
        price_per_tb: None,
        failed: counted.is_empty().then(|| last_error.unwrap_or_else(|| "not run".into())),
        fastest: false,
        command: all.last().map_or_else(String::new, |record| record.command.clone()),
    }
}

/// The last failure of each round that has not succeeded since.
fn failures(all: &[&Record]) -> Vec<String> {
    let mut last: BTreeMap<Round, Option<&Record>> = BTreeMap::new();
    for record in all {
        last.insert(record.round(), (record.status != DONE).then_some(record));
    }
    let told = |record: &Record| {
        let kind = if record.warm_up { "warm-up" } else { "round" };
        format!("{kind} {} failed: {}", record.round, record.error.as_deref().unwrap_or("the reason is not known"))
    };
    last.into_values().flatten().map(told).collect()
}

/// Busy shares of the run whose time is nearest to the median.
fn stages(counted: &[&Record]) -> Vec<(String, f64)> {
    let middle = median(counted.iter().map(|record| record.seconds)).unwrap_or(0.0);
    let far = |record: &&&Record| (record.seconds - middle).abs();
    let Some(record) = counted.iter().min_by(|left, right| far(left).total_cmp(&far(right))) else { return Vec::new() };
    let share = |stage: &super::results::Stage| {
        let whole = stage.busy_s + stage.starved_s + stage.blocked_s;
        (stage.name.clone(), if whole > 0.0 { stage.busy_s / whole } else { 0.0 })
    };
    record.stages.iter().map(share).collect()
}

fn most_frequent(counted: &[&Record]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for stage in counted.iter().filter_map(|record| record.bottleneck.as_deref()) {
        *counts.entry(stage).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map_or_else(String::new, |(stage, _)| stage.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(super) mod tests {
    use super::*;
    use crate::cells::cells;
    use crate::results::Stage;

    /// A matrix of two codecs × two stripes, with three rounds whose seconds are given for each cell.
    pub fn measured(seconds: [[f64; 3]; 4]) -> (Matrix, Vec<Cell>, Vec<Record>) {
        let text = "scale = 0.5\nprice-per-hour = 2\n[data.a]\nsize = \"240MiB\"\n[axes]\ncodec = [\"none\", \
                    \"lz4\"]\nstripes = [1, 4]\n";
        let matrix = Matrix::parse("m.toml", "m", text).unwrap();
        let cells = cells(&matrix).unwrap();
        let mut records = Vec::new();
        for (cell, seconds) in cells.iter().zip(seconds) {
            for (number, seconds) in seconds.into_iter().enumerate() {
                records.push(Record {
                    cell: cell.words(),
                    identity: cell.identity(&matrix),
                    round: number as u32 + 1,
                    status: DONE.into(),
                    seconds,
                    source_bytes: 120 << 20,
                    stored_bytes: 60 << 20,
                    full_bytes: 240 << 20,
                    mib_per_s: 120.0 / seconds,
                    cpu_s: 1.0,
                    stages: vec![Stage { name: "source".into(), busy_s: 1.0, starved_s: 0.0, blocked_s: 3.0 }],
                    bottleneck: Some("transform".into()),
                    price_per_hour: Some(2.0),
                    ..Record::default()
                });
            }
        }
        (matrix, cells, records)
    }

    #[test]
    fn faster_is_the_median_of_the_ratios_within_the_rounds() {
        // The machine was twice as slow in the second round for both: the ratio does not see it.
        let (matrix, cells, records) =
            measured([[12.0, 24.0, 12.0], [6.0, 12.0, 6.0], [4.0, 4.0, 4.0], [4.0, 8.0, 3.0]]);
        let rows = rows(&matrix, &cells, &records);
        let paired = |middle, range| Some(Paired { middle, range });
        assert_eq!((rows[0].faster, rows[1].faster), (None, paired(2.0, (2.0, 2.0))));
        assert_eq!((rows[2].faster, rows[3].faster), (paired(3.0, (3.0, 6.0)), paired(3.0, (3.0, 4.0))));
        assert!((rows[0].seconds - 12.0).abs() < 1e-9 && (rows[0].minutes - 0.4).abs() < 1e-9, "{rows:?}");
        assert_eq!((rows[1].name.as_str(), rows[1].group.as_str()), ("none, 4 files", "backup, a"));
        assert_eq!((rows[0].stages.clone(), rows[0].bottleneck.as_str()), (vec![("source".into(), 0.25)], "transform"));
        assert!(rows[0].price_per_tb.unwrap() > rows[1].price_per_tb.unwrap());
        assert_eq!(rows.iter().map(|row| row.fastest).collect::<Vec<_>>(), [false, false, true, false], "30 MiB/s");
    }

    #[test]
    fn a_ratio_whose_rounds_lie_on_both_sides_of_one_is_noise() {
        // The medians are 428 and 441 MiB/s, but the median of the pairs is 1.4: the machine differs, not the codec.
        let (matrix, cells, records) =
            measured([[12.0, 10.0, 8.0], [11.0, 14.0, 11.2], [12.0, 10.0, 8.0], [13.0, 11.0, 8.8]]);
        let rows = rows(&matrix, &cells, &records);
        let noise: Vec<bool> = rows.iter().filter_map(|row| row.faster).map(|ratio| ratio.is_noise()).collect();
        assert_eq!(noise, [true, true, false], "{rows:?}");
    }

    #[test]
    fn a_price_is_the_one_that_the_matrix_says_now() {
        let (mut matrix, cells, records) = measured([[1.0; 3]; 4]);
        let before = rows(&matrix, &cells, &records)[0].price_per_tb.unwrap();
        (matrix.price_per_hour, matrix.currency) = (Some(20.0), "EUR".into());
        assert!((rows(&matrix, &cells, &records)[0].price_per_tb.unwrap() / before - 10.0).abs() < 1e-9);
        matrix.price_per_hour = None;
        assert_eq!(rows(&matrix, &cells, &records)[0].price_per_tb, None);
        assert_eq!(rows(&matrix, &cells, &[])[0].price_per_tb, None, "nothing was run");
    }

    #[test]
    fn warm_ups_and_failures_are_in_no_median_and_a_cell_without_figures_says_why() {
        let (matrix, cells, mut records) = measured([[1.0; 3]; 4]);
        records[0].warm_up = true;
        records[0].seconds = 99.0;
        for record in &mut records[3..6] {
            record.status = "failed".into();
            record.error = Some("no room".into());
        }
        let rows = rows(&matrix, &cells, &records);
        assert_eq!((rows[0].rounds, rows[0].seconds), (2, 1.0));
        assert_eq!((rows[1].rounds, rows[1].failed.as_deref()), (0, Some("no room")));
    }

    #[test]
    fn a_row_of_fewer_rounds_says_so_until_they_are_run_again() {
        let (matrix, cells, mut records) = measured([[1.0; 3]; 4]);
        let good = records[1].clone();
        records[1].status = "failed".into();
        records[1].error = Some("signal: 9".into());
        let before = &rows(&matrix, &cells, &records)[0];
        assert_eq!(before.label(), "none, 1 file (2 of 3 rounds)");
        assert_eq!(before.failures, ["round 2 failed: signal: 9"]);
        records.push(good);
        let after = &rows(&matrix, &cells, &records)[0];
        assert_eq!((after.label().as_str(), after.failures.len()), ("none, 1 file", 0));
    }
}
