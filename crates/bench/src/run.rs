//! One run of a cell: make its data, drop the caches, start the child, and turn its report into a record.

use std::fs;
use std::path::{Path, PathBuf};

use fullbore_core::device::without_password;
use fullbore_core::{Error, Result};
use rustix::fs::{Advice, fadvise};
use serde::Deserialize;

use super::cells::{Cell, Round};
use super::data;
use super::load;
use super::matrix::{Axis, DataFrom, Instance, Matrix};
use super::results::{DONE, LimitInWords, Machine, OnVolume, Record, SCHEMA_VERSION, Stage};
use super::rooms::Rooms;
use super::volume::How;
use super::volume::environment::{Handed, VARIABLE};
use fullbore_core::child::{self, Ended, Surroundings};
use fullbore_core::conduct::Conduct;
use fullbore_core::units::mib_per_s;

/// A bench in its work directory.
pub struct Bench<'a> {
    /// The matrix.
    pub matrix: &'a Matrix,
    /// The work directory, as an absolute path.
    pub work: &'a Path,
    /// The machine.
    pub machine: &'a Machine,
    /// Signals.
    pub conduct: &'a Conduct,
}

/// The parts of a child's report that a record needs.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ReportParts {
    error: Option<String>,
    source_bytes: u64,
    stored_bytes: u64,
    elapsed_s: f64,
    cpu_s: f64,
    cpu_before_s: f64,
    peak_rss_bytes: u64,
    pool: Pool,
    stages: Vec<Stage>,
    bottleneck: Option<Bottleneck>,
    limit: Option<Limit>,
    verdict: Option<VerdictParts>,
    warnings: Vec<String>,
}

#[derive(Default, Deserialize)]
struct Pool {
    bytes: u64,
}

#[derive(Deserialize)]
struct Bottleneck {
    stage: String,
}

#[derive(Deserialize)]
struct VerdictParts {
    limit: String,
    why: String,
    what_if: Vec<WhatIfParts>,
}

#[derive(Deserialize)]
struct WhatIfParts {
    text: String,
}

#[derive(Deserialize)]
struct Limit {
    mib_per_s: f64,
}

impl Bench<'_> {
    /// Makes the missing data sets.
    ///
    /// # Errors
    /// There is not enough space for one.
    pub fn make_data(&self, say: &dyn Fn(&str)) -> Result<()> {
        for (name, data) in &self.matrix.data {
            let Some(path) = data::path_of(self.work, &data.from) else { continue };
            if !path.exists() {
                self.conduct.check()?;
                say(&format!("making the data set `{name}` in {}", path.display()));
                data::make(&path, &data.from)?;
            }
        }
        Ok(())
    }

    /// Runs a cell once. A child that fails is a record too.
    ///
    /// # Errors
    /// Causes outside of the cell: a signal, or a work directory that cannot be written to.
    pub fn run(&self, cell: &Cell, round: Round) -> Result<Record> {
        let rooms = Rooms::make(self.matrix, self.work, cell)?;
        let mut record = self.record(cell, round);
        let ran = self.prepare(cell, &rooms).and_then(|database| self.measured(cell, &rooms, &database, &mut record));
        match ran {
            Ok(()) => Ok(record),
            Err(error) => {
                self.conduct.check()?;
                record.status = "failed".into();
                record.error = Some(error.to_string());
                Ok(record)
            }
        }
    }

    fn record(&self, cell: &Cell, round: Round) -> Record {
        let class = self.class(cell);
        let on = |(role, axis): (&str, Axis)| {
            let how = cell.how(self.matrix, axis)?;
            let name = cell.named(axis)?.into();
            Some(OnVolume { role: role.into(), name, how: how.name().into(), why: how.why().into() })
        };
        let volumes = [("database", Axis::Volume), ("media", Axis::MediaVolume)];
        Record {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION").into(),
            title: self.matrix.title.clone(),
            machine: self.machine.clone(),
            cell: cell.words(),
            identity: cell.identity(self.matrix),
            round: round.number,
            warm_up: round.warm_up,
            status: DONE.into(),
            started_at: jiff::Timestamp::now().to_string(),
            volumes: volumes.into_iter().filter_map(on).collect(),
            caps: child::caps(class.map(Instance::limits)),
            price_per_hour: cell.price_per_hour(self.matrix),
            ..Record::default()
        }
    }

    fn class(&self, cell: &Cell) -> Option<&Instance> {
        cell.get(Axis::Instance).and_then(|name| self.matrix.instances.get(name))
    }

    /// Makes the input of a cell before the measurement: its source, or for a restore its media.
    fn prepare(&self, cell: &Cell, rooms: &Rooms) -> Result<String> {
        let Some(data) = cell.get(Axis::Data).and_then(|name| self.matrix.data.get(name)) else {
            return Err(Error::usage("data", "the cell has none", "name data on the axes"));
        };
        let source = match (&data.from, data::path_of(self.work, &data.from)) {
            (DataFrom::Made { .. }, Some(kept)) => {
                let copied = cell.works_on_a_copy(self.matrix);
                let path = if copied { rooms.database.join("app.db") } else { kept.clone() };
                if copied {
                    fs::copy(&kept, &path).map_err(|e| Error::io("copy", kept.display().to_string(), e))?;
                }
                data::source_of(&path)
            }
            (DataFrom::Source(source), _) => source.clone(),
            (DataFrom::Made { .. }, None) => return Err(Error::usage("data", "it has no path", "")),
        };
        if cell.is_differential() {
            let base = rooms.run.join("base");
            fs::create_dir_all(&base).map_err(|e| Error::io("make", base.display().to_string(), e))?;
            let to = base.join("base.bore").display().to_string();
            self.unmeasured(rooms, &["backup", &source, "--to", &to])?;
            data::change(&data::file_of(&source).unwrap_or_default())?;
        }
        if cell.restores() {
            let arguments = self.backup_arguments(cell, rooms, &source, false);
            self.unmeasured(rooms, &arguments.iter().map(String::as_str).collect::<Vec<_>>())?;
        }
        Ok(source)
    }

    fn unmeasured(&self, rooms: &Rooms, arguments: &[&str]) -> Result<()> {
        let surroundings = Surroundings { limits: None, variable: None, timeout: self.matrix.timeout, relief: &|| {} };
        let mut arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        arguments.extend(self.shared_arguments(rooms));
        let ended = child::run(&arguments, &surroundings, self.conduct)?;
        judge(&ended, None, "the preparation of a run")
    }

    /// Arguments of every child.
    fn shared_arguments(&self, rooms: &Rooms) -> Vec<String> {
        let inside = |name: &str| rooms.run.join(name).display().to_string();
        vec![
            "--quiet".into(),
            "--report".into(),
            format!("json:{}", inside("report.json")),
            "--config".into(),
            inside("empty.toml"),
        ]
    }

    fn backup_arguments(&self, cell: &Cell, rooms: &Rooms, source: &str, measured: bool) -> Vec<String> {
        let mut words = vec!["backup".to_owned(), source.to_owned()];
        if cell.to_nul() {
            words.extend(["--to".into(), "nul:".into()]);
        } else {
            for directory in &rooms.media {
                words.extend(["--to".into(), format!("{}/", directory.display())]);
            }
        }
        let kind = cell.get(Axis::Kind).unwrap_or("full");
        words.extend(["--kind".into(), kind.into()]);
        if cell.is_differential() {
            words.extend(["--base".into(), rooms.run.join("base").display().to_string()]);
        }
        let of_media = [Axis::Codec, Axis::Stripes, Axis::MaxTransferSize, Axis::BlockSize];
        let of_job = [Axis::BufferCount, Axis::QueueDepth, Axis::Readers, Axis::Workers];
        words.extend(flags(cell, &of_media));
        if measured {
            words.extend(flags(cell, &of_job));
            words.extend(self.class_workers(cell));
            if cell.measures_the_raw_path(self.matrix) {
                words.push("--measure-limit".into());
            }
        }
        if let Some(file) = self.matrix.password_file.as_ref().filter(|_| data::file_of(source).is_none()) {
            words.extend(["--password-file".into(), file.display().to_string()]);
        }
        words
    }

    fn restore_arguments(&self, cell: &Cell, rooms: &Rooms, source: &str) -> Vec<String> {
        let mut words = vec!["restore".to_owned()];
        let base = cell.is_differential().then(|| rooms.run.join("base"));
        for directory in rooms.media.iter().chain(&base) {
            words.extend(["--from".into(), directory.display().to_string()]);
        }
        let into = rooms.database.join("restored");
        let of_file = fullbore_engines::of_url(source).filter(|engine| engine.file().is_some());
        let scheme = of_file.map_or("dir", |engine| engine.name());
        words.extend(["--into".into(), format!("{scheme}:{}", into.display())]);
        words.extend(flags(cell, &[Axis::BufferCount, Axis::QueueDepth, Axis::Workers]));
        words.extend(self.class_workers(cell));
        words
    }

    /// The workers of an instance class, unless they are an axis.
    fn class_workers(&self, cell: &Cell) -> Vec<String> {
        let threads = self.class(cell).and_then(|class| class.threads).filter(|_| cell.get(Axis::Workers).is_none());
        let most = Axis::Workers.most().unwrap_or(1) as usize;
        threads.map_or_else(Vec::new, |threads| vec!["--workers".into(), threads.min(most).to_string()])
    }

    /// The child that is measured.
    fn measured(&self, cell: &Cell, rooms: &Rooms, source: &str, record: &mut Record) -> Result<()> {
        let mut arguments = match cell.restores() {
            true => self.restore_arguments(cell, rooms, source),
            false => self.backup_arguments(cell, rooms, source, true),
        };
        record.command = command(&arguments);
        arguments.extend(self.shared_arguments(rooms));
        let report = rooms.run.join("report.json");
        let _ = fs::remove_file(&report); // From the preparation.
        let variable = self.handed(cell, rooms)?.map(|text| (VARIABLE, text));
        let relief = || rooms.speed_up();
        let (limits, timeout) = (self.class(cell).map(Instance::limits), self.matrix.timeout);
        let surroundings = Surroundings { limits, variable, timeout, relief: &relief };
        record.cache = self.cool(rooms, source)?.into();
        rooms.slow_down()?;
        let job = || child::run(&arguments, &surroundings, self.conduct);
        let load = cell.named(Axis::Load).and_then(|name| self.matrix.loads.get_key_value(name));
        let ended = match load {
            None => job()?,
            Some((name, load)) => {
                let database = data::file_of(source).unwrap_or_default();
                let (ended, result) = load::beside((name, load), &database, self.conduct, job)?;
                record.load = Some(result);
                ended
            }
        };
        let parts = fs::read_to_string(&report).ok().and_then(|text| serde_json::from_str::<ReportParts>(&text).ok());
        judge(&ended, parts.as_ref(), "the run")?;
        let parts = parts.ok_or_else(|| Error::refused("the run", "wrote no report", "run the cell by hand"))?;
        self.take(record, &ended, parts);
        Ok(())
    }

    fn take(&self, record: &mut Record, ended: &Ended, parts: ReportParts) {
        record.seconds = ended.seconds;
        record.elapsed_s = parts.elapsed_s;
        record.source_bytes = parts.source_bytes;
        record.stored_bytes = parts.stored_bytes;
        // The measurement of the raw path is not a part of the job, and the report excludes it.
        record.raw_path_mib_per_s = parts.limit.map(|limit| limit.mib_per_s);
        if record.raw_path_mib_per_s.is_some() {
            record.seconds = parts.elapsed_s;
        }
        record.mib_per_s = mib_per_s(parts.source_bytes, record.seconds);
        let data = record.cell.get(Axis::Data.name()).and_then(|name| self.matrix.data.get(name));
        record.full_bytes = match data.map(|data| &data.from) {
            Some(DataFrom::Made { full_bytes, .. }) => *full_bytes,
            _ => parts.source_bytes,
        };
        record.cpu_s = match record.raw_path_mib_per_s {
            Some(_) => (parts.cpu_s - parts.cpu_before_s).max(0.0),
            None => parts.cpu_s,
        };
        record.peak_rss_bytes = parts.peak_rss_bytes;
        record.pool_bytes = parts.pool.bytes;
        record.stages = parts.stages;
        record.bottleneck = parts.bottleneck.map(|bottleneck| bottleneck.stage);
        record.warnings = parts.warnings;
        record.verdict = parts.verdict.map(|verdict| {
            let what_if = verdict.what_if.into_iter().map(|one| one.text).collect();
            LimitInWords { limit: verdict.limit, why: verdict.why, what_if }
        });
    }

    /// The volumes of a child, in the form of the variable.
    fn handed(&self, cell: &Cell, rooms: &Rooms) -> Result<Option<String>> {
        let promise = |axis| {
            let emulated = cell.how(self.matrix, axis).is_some_and(|how| how != How::Block);
            let profile = cell.named(axis).filter(|_| emulated).and_then(|name| self.matrix.volumes.get(name));
            profile.map(|profile| profile.scaled(self.matrix.scale).into())
        };
        let (database, media) = (promise(Axis::Volume), promise(Axis::MediaVolume));
        if database.is_none() && media.is_none() {
            return Ok(None);
        }
        let media = media
            .map_or_else(Vec::new, |media| rooms.media.iter().map(|directory| (directory.clone(), media)).collect());
        let text = serde_json::to_string(&Handed { database, media });
        text.map(Some).map_err(|e| Error::io("write", VARIABLE, e.into()))
    }

    /// Makes caches cold, as far as this process may; returns the method.
    fn cool(&self, rooms: &Rooms, source: &str) -> Result<&'static str> {
        rustix::fs::sync();
        if !self.matrix.cold {
            return Ok("kept");
        }
        if fs::write("/proc/sys/vm/drop_caches", "3\n").is_ok() {
            return Ok("dropped");
        }
        let base = rooms.run.join("base");
        let mut files: Vec<PathBuf> = data::file_of(source).into_iter().collect();
        for directory in rooms.media.iter().chain([&base]) {
            let entries = fs::read_dir(directory).into_iter().flatten().filter_map(std::result::Result::ok);
            files.extend(entries.map(|entry| entry.path()));
        }
        for path in files {
            if let Ok(file) = fs::File::open(&path) {
                let _ = fadvise(&file, 0, None, Advice::DontNeed); // Advice.
            }
        }
        Ok("advised")
    }
}

/// Flags of the axes that a cell has.
fn flags(cell: &Cell, axes: &[Axis]) -> Vec<String> {
    let flag = |axis: &Axis| match axis {
        Axis::Codec => "--compression".to_owned(),
        axis => format!("--{}", axis.name()),
    };
    let given = axes.iter().filter_map(|axis| Some([flag(axis), cell.get(*axis)?.to_owned()]));
    given.flatten().collect()
}

/// The command line of these arguments, without passwords.
fn command(arguments: &[String]) -> String {
    let words: Vec<String> = arguments.iter().map(|word| without_password(word)).collect();
    shlex::try_join(["fullbore"].into_iter().chain(words.iter().map(String::as_str))).unwrap_or_default()
}

/// An error if a child failed. Warnings are not an error.
fn judge(ended: &Ended, report: Option<&ReportParts>, what: &str) -> Result<()> {
    /// Done, with warnings.
    const WARNED: i32 = 4;
    if ended.timed_out {
        return Err(Error::refused(what, "took longer than `timeout`", "raise it, or make the data smaller"));
    }
    match ended.status.code() {
        Some(0 | WARNED) => Ok(()),
        _ => {
            let said = report.and_then(|report| report.error.clone()).unwrap_or_else(|| ended.said.trim().to_owned());
            Err(Error::refused(what, format!("ended with {}: {said}", ended.status), ""))
        }
    }
}
