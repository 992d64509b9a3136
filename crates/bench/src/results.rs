//! Results: one JSON object in each line, durable before the next run begins. A resume reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use fullbore_core::child::Caps;
use fullbore_core::io::LockableFile;
use fullbore_core::{Error, Result};
use serde::{Deserialize, Serialize};

use super::cells::Round;

/// Version of a record; fields are added, never changed.
pub const SCHEMA_VERSION: u32 = 1;
/// Bytes of the longest file that is read. Only a bench of years, with 100,000 cells of 110 rounds, would be longer.
const FILE_MAX: u64 = 1 << 30;
/// Its name.
const FILE: &str = "results.jsonl";
/// The status of a run that counts.
pub const DONE: &str = "done";

/// One run. `docs/BENCH.md` explains each field.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the program.
    pub tool_version: String,
    /// The title of the matrix.
    pub title: String,
    /// The machine that it ran on.
    pub machine: Machine,
    /// The settings by axis.
    pub cell: BTreeMap<String, String>,
    /// The same with all numbers.
    pub identity: String,
    /// The number of the round, from 1.
    pub round: u32,
    /// A warm-up is not counted.
    pub warm_up: bool,
    /// `done`, `failed`.
    pub status: String,
    /// The error of the child, if it failed.
    pub error: Option<String>,
    /// RFC 3339.
    pub started_at: String,
    /// The child's command line without its report and configuration, quoted for a shell.
    pub command: String,
    /// `dropped`, `advised`, `kept`.
    pub cache: String,
    /// From the child's start to its exit.
    pub seconds: f64,
    /// `elapsed_s` of the child's report.
    pub elapsed_s: f64,
    /// Bytes of the database.
    pub source_bytes: u64,
    /// Bytes of the media.
    pub stored_bytes: u64,
    /// source_bytes divided by seconds.
    pub mib_per_s: f64,
    /// Bytes before scaling.
    pub full_bytes: u64,
    /// User and system time of the child.
    pub cpu_s: f64,
    /// Its greatest resident set.
    pub peak_rss_bytes: u64,
    /// Its buffer pool.
    pub pool_bytes: u64,
    /// Where the time of each stage went.
    pub stages: Vec<Stage>,
    /// The stage that was the limit.
    pub bottleneck: Option<String>,
    /// The machine's raw path, in source MiB/s.
    pub raw_path_mib_per_s: Option<f64>,
    /// Its volumes.
    pub volumes: Vec<OnVolume>,
    /// Its caps.
    pub caps: Caps,
    /// The load beside it.
    pub load: Option<LoadResult>,
    /// The price of an hour.
    pub price_per_hour: Option<f64>,
    /// The child's warnings.
    pub warnings: Vec<String>,
    /// The verdict of the child.
    pub verdict: Option<LimitInWords>,
}

/// The texts of a verdict (`docs/VERDICT.md`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitInWords {
    /// The limit.
    pub limit: String,
    /// The numbers that show it.
    pub why: String,
    /// What another configuration would have changed.
    pub what_if: Vec<String>,
}

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// Model of its processors.
    pub processor: String,
    /// Their number.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Release of the kernel.
    pub kernel: String,
}

/// One stage, summed over its threads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// As the report calls it.
    pub name: String,
    /// Seconds of work.
    pub busy_s: f64,
    /// Seconds of waiting for input.
    pub starved_s: f64,
    /// Seconds of waiting for the next stage.
    pub blocked_s: f64,
}

/// A volume of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OnVolume {
    /// `database`, `media`.
    pub role: String,
    /// Its profile.
    pub name: String,
    /// `in process`, `block device`.
    pub how: String,
    /// The reason.
    pub why: String,
}

/// The result of a load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    /// Its name.
    pub name: String,
    /// Before the job.
    pub alone: Throughput,
    /// While it ran.
    pub beside: Throughput,
}

/// Transactions of a load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Transactions in a second.
    pub per_s: f64,
    /// 99th percentile of their time in milliseconds.
    pub p99_ms: f64,
}

impl Record {
    /// The round of its cell.
    pub fn round(&self) -> Round {
        Round { warm_up: self.warm_up, number: self.round }
    }

    /// It counts in a median.
    pub fn counts(&self) -> bool {
        self.status == DONE && !self.warm_up
    }

    /// Its value on an axis.
    pub fn word(&self, axis: super::matrix::Axis) -> &str {
        self.cell.get(axis.name()).map_or("", String::as_str)
    }
}

/// The file of results, open for appending, and locked: two benches that resume the same results would repeat each
/// other's runs.
pub struct Results {
    path: PathBuf,
    file: LockableFile,
    /// All records in the file.
    pub records: Vec<Record>,
}

impl Results {
    /// Opens or makes the file in `directory`.
    ///
    /// # Errors
    /// Another bench writes there; there are results and this is not a resume; they cannot be read, or are from another
    /// machine.
    pub fn open(directory: &Path, resume: bool, machine: &Machine) -> Result<Self> {
        let path = directory.join(FILE);
        let shown = path.display().to_string();
        let failed = |action: &str, e| Error::io(action, shown.clone(), e);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = LockableFile::from(file.map_err(|e| failed("open the results", e))?);
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let why = "another bench is writing its results there";
                return Err(Error::refused(shown, why, "wait for it, or give another --out"));
            }
            Err(TryLockError::Error(e)) => return Err(failed("lock the results", e)),
        }
        // Read after the lock: no other process adds results now.
        let Found { records, whole, bytes } = read(&path)?;
        if !records.is_empty() && !resume {
            let why = format!("has {} results already", records.len());
            return Err(Error::refused(shown, why, "continue with --resume, or give another --out"));
        }
        of_this_machine(&shown, &records, machine)?;
        if whole < bytes {
            file.set_len(whole).map_err(|e| failed("cut off an unfinished line of", e))?;
        }
        Ok(Self { path, file, records })
    }

    /// Runs that need not be run again.
    pub fn done(&self) -> BTreeSet<(String, Round)> {
        done(&self.records)
    }

    /// Adds a record; it is durable when this returns.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append(&mut self, record: Record) -> Result<()> {
        let line = serde_json::to_string(&record).map_err(|e| self.failed(e.into()))? + "\n";
        (&*self.file).write_all(line.as_bytes()).map_err(|e| self.failed(e))?;
        self.file.sync_data().map_err(|e| self.failed(e))?;
        self.records.push(record);
        Ok(())
    }

    fn failed(&self, error: std::io::Error) -> Error {
        Error::io("write a result to", self.path.display().to_string(), error)
    }
}

/// Runs that need not be run again. This only reads.
///
/// # Errors
/// As [`Results::open`] with `resume`.
pub fn seen(directory: &Path, machine: &Machine) -> Result<BTreeSet<(String, Round)>> {
    let path = directory.join(FILE);
    let found = read(&path)?;
    of_this_machine(&path.display().to_string(), &found.records, machine)?;
    Ok(done(&found.records))
}

fn done(records: &[Record]) -> BTreeSet<(String, Round)> {
    let done = records.iter().filter(|record| record.status == DONE);
    done.map(|record| (record.identity.clone(), record.round())).collect()
}

fn of_this_machine(shown: &str, records: &[Record], machine: &Machine) -> Result<()> {
    let same = |record: &Record| {
        (&record.machine.host, &record.machine.processor, record.machine.cores)
            == (&machine.host, &machine.processor, machine.cores)
    };
    let Some(other) = records.iter().find(|record| !same(record)) else { return Ok(()) };
    let Machine { host, cores, .. } = &other.machine;
    let why = format!("has results of another machine (`{host}`, {cores} processors)");
    Err(Error::refused(shown, why, "results of two machines are not compared: give another --out"))
}

/// The content of a file of results.
struct Found {
    records: Vec<Record>,
    /// Bytes of the whole lines. A kill has cut the text after the last end of line.
    whole: u64,
    /// All of its bytes.
    bytes: u64,
}

fn read(path: &Path) -> Result<Found> {
    let shown = path.display().to_string();
    let text = match std::fs::metadata(path) {
        Ok(metadata) if metadata.len() > FILE_MAX => {
            return Err(Error::refused(shown, "is too long to be results", "give another --out"));
        }
        Ok(_) => std::fs::read(path).map_err(|e| Error::io("read the results", shown.clone(), e))?,
        Err(_) => Vec::new(),
    };
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    Ok(Found { records: parse(&shown, &text[..whole])?, whole: whole as u64, bytes: text.len() as u64 })
}

fn parse(shown: &str, whole: &[u8]) -> Result<Vec<Record>> {
    let text = std::str::from_utf8(whole)
        .map_err(|e| Error::refused(shown, format!("is not text: {e}"), "give another --out"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let records = lines.map(|(number, line)| {
        let record: Record = serde_json::from_str(line).map_err(|e| {
            Error::refused(
                format!("{shown}, line {}", number + 1),
                e.to_string(),
                "remove that line, or give another --out",
            )
        })?;
        match record.schema_version {
            SCHEMA_VERSION => Ok(record),
            other => Err(Error::refused(
                format!("{shown}, line {}", number + 1),
                format!("has version {other}, and this program knows {SCHEMA_VERSION}"),
                "give another --out",
            )),
        }
    });
    records.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn machine(host: &str) -> Machine {
        Machine { host: host.into(), ..Machine::default() }
    }

    fn record(identity: &str, number: u32, status: &str) -> Record {
        Record {
            schema_version: SCHEMA_VERSION,
            machine: machine("here"),
            identity: identity.into(),
            round: number,
            status: status.into(),
            ..Record::default()
        }
    }

    #[test]
    fn appended_results_are_recognised_and_only_finished_ones_count() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = Results::open(folder.path(), false, &machine("here")).unwrap();
        for (identity, number, status) in [("a", 1, DONE), ("b", 1, "failed"), ("a", 2, DONE)] {
            results.append(record(identity, number, status)).unwrap();
        }
        let records = results.records.clone();
        drop(results);
        let again = Results::open(folder.path(), true, &machine("here")).unwrap();
        assert_eq!(again.records, records);
        let done = |number| ("a".to_owned(), Round { warm_up: false, number });
        assert_eq!(again.done(), BTreeSet::from([done(1), done(2)]));
    }

    #[test]
    fn results_that_are_there_are_neither_overwritten_nor_mixed_with_those_of_another_machine() {
        let folder = tempfile::tempdir().unwrap();
        Results::open(folder.path(), false, &machine("here")).unwrap().append(record("a", 1, DONE)).unwrap();
        let refused = |resume, host| Results::open(folder.path(), resume, &machine(host)).err().unwrap().to_string();
        assert!(refused(false, "here").contains("--resume"));
        assert!(refused(true, "there").contains("another machine"));
    }

    #[test]
    fn two_benches_do_not_write_the_same_results() {
        let folder = tempfile::tempdir().unwrap();
        let first = Results::open(folder.path(), false, &machine("here")).unwrap();
        for resume in [false, true] {
            let error = Results::open(folder.path(), resume, &machine("here")).err().unwrap().to_string();
            assert!(error.contains("another bench is writing its results there"), "{error}");
        }
        assert!(seen(folder.path(), &machine("here")).unwrap().is_empty(), "to look is allowed");
        drop(first);
        Results::open(folder.path(), true, &machine("here")).unwrap();
    }

    #[test]
    fn results_can_be_opened_again_at_once_while_other_threads_start_children() {
        let folder = tempfile::tempdir().unwrap();
        fullbore_core::io::while_children_start(|| {
            for round in 0..500 {
                let results = Results::open(folder.path(), true, &machine("here"));
                drop(results.unwrap_or_else(|error| panic!("round {round}: {error}")));
            }
        });
    }

    #[test]
    fn a_line_that_a_kill_has_cut_is_removed_and_a_broken_one_between_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.jsonl");
        Results::open(folder.path(), false, &machine("here")).unwrap().append(record("a", 1, DONE)).unwrap();
        let good = std::fs::read_to_string(&path).unwrap();
        // Cut in the middle of a letter of several bytes: names may have such letters.
        let cut = [good.as_bytes(), &good.as_bytes()[..good.len() / 2], &"ü".as_bytes()[..1]].concat();
        std::fs::write(&path, &cut).unwrap();
        assert_eq!(seen(folder.path(), &machine("here")).unwrap().len(), 1);
        assert_eq!(std::fs::read(&path).unwrap(), cut, "reading changes nothing");
        let mut results = Results::open(folder.path(), true, &machine("here")).unwrap();
        results.append(record("b", 1, DONE)).unwrap();
        drop(results);
        assert_eq!(Results::open(folder.path(), true, &machine("here")).unwrap().records.len(), 2);
        std::fs::write(&path, format!("no json\n{good}")).unwrap();
        let error = Results::open(folder.path(), true, &machine("here")).err().unwrap().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
