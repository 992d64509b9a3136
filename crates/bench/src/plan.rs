//! The expected costs of a matrix before it runs: runs, time, bytes on disk; and the requests that this machine cannot
//! meet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::cells::{Cell, Round};
use super::matrix::{Axis, Data, DataFrom, Matrix};
use super::volume::How;
use fullbore_core::child;
use fullbore_core::units::{MIB, counted, show_bytes};

/// MiB/s of a database on two cores, by codec: `bench/results/sqlite-2026-11-21.md`, "fullbore … to disk" (none 1058,
/// lz4 628, zstd:1 443, gzip:1 536). Other levels are slower; a plan need not be exact.
const RATES: [(&str, f64); 4] = [("none", 1058.0), ("lz4", 628.0), ("zstd", 443.0), ("gzip", 536.0)];
/// The share of that for levels above the first.
const HIGHER_LEVEL: f64 = 0.3;
/// The number of processors of that measurement.
const RATE_CORES: f64 = 2.0;
/// MiB/s of a restore and of a copy, from the same file ("fullbore restore of none", "cp").
const RESTORE_RATE: f64 = 930.0;
const COPY_RATE: f64 = 520.0;
/// MiB/s at which data sets are made: `data.rs`, release build, the machine of that file.
const MAKE_RATE: f64 = 100.0;
/// Seconds of a run besides its bytes: start, sync, dropping caches.
const FIXED_S: f64 = 0.5;

/// From this number of runs on, a matrix needs a confirmation.
pub const ASK_RUNS: u64 = 1000;
/// From this number of seconds on, a matrix needs a confirmation.
pub const ASK_SECONDS: f64 = 12.0 * 3600.0;

/// The work to do.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Cells.
    pub cells: usize,
    /// Runs, warm-up included, that are not done yet.
    pub runs: u64,
    /// Runs that are done already.
    pub done: u64,
    /// Seconds, for databases of known size.
    pub seconds: f64,
    /// Bytes on disk at the most.
    pub disk_bytes: u64,
    /// Data of unknown size.
    pub unknown: Vec<String>,
    /// Differences from the requested settings.
    pub notes: Vec<String>,
}

impl Plan {
    /// It needs a confirmation, because it is long.
    pub fn asks(&self) -> bool {
        self.runs >= ASK_RUNS || self.seconds >= ASK_SECONDS
    }

    /// In one line.
    pub fn line(&self) -> String {
        let Self { cells, runs, done, disk_bytes, .. } = self;
        let done = if *done == 0 { String::new() } else { format!(" ({done} are done)") };
        let unknown = if self.unknown.is_empty() { "" } else { " plus the time for databases of unknown size" };
        format!(
            "{cells} cells, {runs} runs{done}, about {}{unknown}, up to {} on disk",
            show_time(self.seconds),
            show_bytes(*disk_bytes)
        )
    }
}

/// `40 s`, `12 min`, `3.5 h`.
pub fn show_time(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// The expected costs of the runs that are not `done`.
pub fn plan(matrix: &Matrix, cells: &[Cell], rounds: &[Round], done: &BTreeSet<(String, Round)>, work: &Path) -> Plan {
    let mut plan = Plan { cells: cells.len(), ..Plan::default() };
    let cores = child::caps(None).threads_given as f64;
    let mut to_make = BTreeMap::new();
    let mut widest = 0;
    let mut identities = BTreeSet::new();
    for cell in cells {
        let identity = cell.identity(matrix);
        identities.insert(identity.clone());
        let left = rounds.iter().filter(|round| !done.contains(&(identity.clone(), **round))).count() as u64;
        plan.done += rounds.len() as u64 - left;
        plan.runs += left;
        let Some((name, data)) = cell.get(Axis::Data).and_then(|name| matrix.data.get_key_value(name)) else {
            continue;
        };
        let Some(bytes) = bytes_of(data) else {
            if !plan.unknown.contains(name) {
                plan.unknown.push(name.clone());
            }
            continue;
        };
        if super::data::path_of(work, &data.from).is_some_and(|path| !path.exists()) {
            to_make.insert(name, bytes);
        }
        plan.seconds += left as f64 * seconds(matrix, cell, bytes, cores);
        widest = widest.max(room(matrix, cell, bytes));
    }
    let made: u64 = to_make.values().sum();
    let kept: u64 = matrix.data.values().filter_map(bytes_of).sum();
    plan.seconds += made as f64 / MIB / MAKE_RATE;
    plan.disk_bytes = kept + widest;
    plan.notes = remarks(matrix);
    let others = done.iter().filter(|(identity, _)| !identities.contains(identity)).count();
    if others > 0 {
        let results = counted(others as u64, "result");
        plan.notes
            .push(format!("{results} of other settings, other places or another version are there, but not counted"));
    }
    plan
}

/// Bytes of a database, if known.
pub(super) fn bytes_of(data: &Data) -> Option<u64> {
    match &data.from {
        DataFrom::Made { bytes, .. } => Some(*bytes),
        DataFrom::Source(source) => std::fs::metadata(super::data::file_of(source)?).ok().map(|found| found.len()),
    }
}

/// Bytes that a run takes on disk at the same time: its copy, its media, its restored database.
fn room(matrix: &Matrix, cell: &Cell, bytes: u64) -> u64 {
    let copy = u64::from(cell.works_on_a_copy(matrix));
    let media = if cell.to_nul() && !cell.is_differential() { 0 } else { 1 + u64::from(cell.is_differential()) };
    bytes * (copy + media + u64::from(cell.restores()))
}

fn codec_rate(codec: Option<&str>) -> f64 {
    let codec = codec.unwrap_or("lz4");
    let (name, level) = codec.split_once(':').unwrap_or((codec, "1"));
    let rate = RATES.iter().find(|(known, _)| *known == name).map_or(RATES[1].1, |(_, rate)| *rate);
    if level == "1" || level.starts_with('-') { rate } else { rate * HIGHER_LEVEL }
}

/// Seconds of one run, with its preparation.
fn seconds(matrix: &Matrix, cell: &Cell, bytes: u64, cores: f64) -> f64 {
    let mib = bytes as f64 / MIB;
    let class = cell.get(Axis::Instance).and_then(|name| matrix.instances.get(name));
    let threads = class.and_then(|class| class.threads).map_or(cores, |threads| cores.min(threads as f64));
    let share = threads / RATE_CORES;
    let slowest = |axis: Axis, volumes: usize| {
        let rate = cell.named(axis).and_then(|name| matrix.volumes.get(name)).map(super::volume::Profile::lasting_rate);
        rate.map_or(f64::INFINITY, |rate| rate * volumes as f64 / MIB)
    };
    let volumes = slowest(Axis::Volume, 1).min(slowest(Axis::MediaVolume, cell.number(Axis::Devices).unwrap_or(1)));
    let pack = codec_rate(cell.get(Axis::Codec)) * share;
    let own = if cell.restores() { RESTORE_RATE * share } else { pack };
    let differential = cell.is_differential();
    let before = match (cell.restores(), differential) {
        (false, false) => 0.0,
        (true, false) | (false, true) => mib / pack,
        (true, true) => 2.0 * mib / pack,
    };
    let load = cell.named(Axis::Load).and_then(|name| matrix.loads.get(name));
    let copied = if cell.works_on_a_copy(matrix) { mib / COPY_RATE } else { 0.0 };
    FIXED_S + mib / own.min(volumes) + before + copied + load.map_or(0.0, |load| load.seconds as f64)
}

/// The differences from the requested settings on this machine.
fn remarks(matrix: &Matrix) -> Vec<String> {
    let named = |axis: Axis| matrix.axes.get(&axis).into_iter().flatten();
    let classes = named(Axis::Instance).filter_map(|name| matrix.instances.get_key_value(name));
    let of_class = |(name, class): (&String, &super::matrix::Instance)| {
        child::caps(Some(class.limits())).why.map(|why| format!("instance {name}: {why}"))
    };
    let volumes = matrix.volumes.iter().map(|(name, profile)| match matrix.means.of(profile, false) {
        How::Block => format!("volume {name}: {}", How::Block.why()),
        How::InProcess(why) => format!("volume {name}: emulated in process, {why}"),
    });
    classes.filter_map(of_class).chain(volumes).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cells::{cells, rounds};

    fn planned(text: &str) -> Plan {
        let matrix = Matrix::parse("m.toml", "m", text).unwrap();
        let cells = cells(&matrix).unwrap();
        plan(&matrix, &cells, &rounds(&matrix), &BTreeSet::new(), Path::new("/nowhere"))
    }

    #[test]
    fn a_slow_volume_makes_a_plan_longer_and_a_second_device_shorter() {
        let with = |axes: &str| {
            planned(&format!(
                "[data.a]\nsize = \"10GiB\"\n[volume.v]\nrate = \"10MiB/s\"\n[axes]\ncodec = \"none\"\n{axes}"
            ))
            .seconds
        };
        let (fast, slow) = (with(""), with("media-volume = \"v\""));
        let two = with("media-volume = \"v\"\ndevices = 2\nstripes = 2");
        assert!(fast < two && two < slow, "{fast} {two} {slow}");
        assert!((3900.0..4800.0).contains(&slow), "4 rounds of 1,024 s: {slow}");
    }

    #[test]
    fn runs_are_counted_with_warm_up_and_without_those_that_are_done() {
        let text = "repetitions = 2\nwarm-up = 1\n[data.a]\nsize = \"1MiB\"\n[axes]\nstripes = [1, 2]\n";
        let matrix = Matrix::parse("m.toml", "m", text).unwrap();
        let cells = cells(&matrix).unwrap();
        let round = Round { warm_up: true, number: 1 };
        let done = BTreeSet::from([(cells[0].identity(&matrix), round), ("another".into(), round)]);
        let plan = plan(&matrix, &cells, &rounds(&matrix), &done, Path::new("/nowhere"));
        assert_eq!((plan.cells, plan.runs, plan.done), (2, 5, 1));
        assert!(plan.line().contains("2 cells, 5 runs (1 are done)"), "{}", plan.line());
        assert!(plan.notes[0].contains("1 result of other settings"), "{:?}", plan.notes);
    }

    #[test]
    fn a_long_plan_asks() {
        assert!(!planned("[data.a]\nsize = \"1MiB\"\n").asks());
        assert!(planned("[data.a]\nsize = \"50TiB\"\n").asks());
        let many = (1..=256).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
        assert!(planned(&format!("[data.a]\nsize = \"1MiB\"\n[axes]\nworkers = [{many}]\n")).asks());
    }

    #[test]
    fn missing_abilities_of_the_machine_are_named() {
        let text = "[data.a]\nsize = \"1MiB\"\n[instance.huge]\nthreads = 1024\n[axes]\ninstance = \"huge\"\nvolume = \
                    \"gp2-1tb\"\n";
        let notes = planned(text).notes;
        assert!(notes.iter().any(|note| note.contains("1024 processors were asked for")), "{notes:?}");
        assert!(notes.iter().any(|note| note.contains("gp2-1tb") && note.contains("in process")), "{notes:?}");
    }
}
