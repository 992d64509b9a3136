//! The copy of one set.

use std::time::Duration;

use fullbore_core::cipher::SecretKey;
use fullbore_core::device::{Destination, Device};
use fullbore_core::io::Mode;
use fullbore_core::media::{Manifest, total};
use fullbore_core::pipeline::{Copied, FamilyOutcome, Remade, Remake, Verbatim};
use fullbore_core::pool::Pool;
use fullbore_core::sink::{self, DeviceAccount, Sink, StandingSink};
use fullbore_core::supply;
use fullbore_core::unpack::MediaSet;
use fullbore_core::{Error, Result};

use super::Request;
use super::method::CopyMethod;
use super::prepare::{CopyPlan, Prepared};
use crate::job::backup::{self, sinks};
use crate::job::keys;
use crate::report::{CopyReport, FamilyReport, Report};
use fullbore_core::conduct::Conduct;
use fullbore_repository::Repository;
use fullbore_repository::chain;
use fullbore_repository::discovery;
use fullbore_repository::format::{FORMAT, SetRecord};
use fullbore_repository::inventory::{family_as_it_is, family_record};
use fullbore_repository::task::Task;

/// The repository that copies go to, and their task there.
#[derive(Clone, Copy)]
pub struct Arrival<'a> {
    /// The repository.
    pub repository: &'a Repository,
    /// The task, which permits the commit.
    pub task: &'a Task,
}

/// One set to copy.
pub struct One<'a> {
    /// What the user asked for.
    pub request: &'a Request,
    /// The set.
    pub found: &'a discovery::Found,
    /// The key that opens it.
    pub key: Option<&'a SecretKey>,
    /// The target, if that is a repository.
    pub arrival: Option<Arrival<'a>>,
    /// Its record in the repository that it comes from.
    pub known: Option<&'a SetRecord>,
}

/// The result of a copy, for both ways.
struct Done {
    families: Vec<FamilyOutcome>,
    plain: Option<(u64, u64)>,
    manifest: Option<Manifest>,
    publishing: Duration,
}

impl One<'_> {
    /// Copies it; returns the record of the committed set if it went into a repository. `None` for a plan.
    ///
    /// # Errors
    /// Any error; then no usable copy was left behind.
    pub fn run(&self, conduct: &Conduct, report: &mut Report) -> Result<Option<SetRecord>> {
        if let Some(why) = &self.found.set.incomplete {
            return Err(Error::incomplete(
                chain::title(&self.found.set),
                why,
                "copy another set, or name all its families",
            ));
        }
        let way = CopyMethod::of(self.request, self.found)?;
        let plan = CopyPlan::claimed(self.request, self.found, &way, conduct, report)?;
        let buffers = if self.request.dry_run { 0 } else { plan.reading.input_buffers };
        let pool = Pool::new(buffers, plan.reading.transfer_size as usize)?;
        let mut set = self.open(&way, &pool, plan.reading.queue_depth)?;
        report.warnings.extend(self.found.unreadable_sidecars());
        if self.arrival.is_some() && set.manifest().is_none() && self.known.is_none() {
            let why = "is encrypted: the repository records the name of its database, and this name needs the key";
            return Err(Error::refused(chain::title(&self.found.set), why, "name the key file with --key"));
        }
        let prepared = self.prepare(&way, &mut set, &conduct.stores, report)?;
        let longest = prepared.expected.iter().max().copied().unwrap_or(0);
        plan.claim(self.request, (self.found, &way), longest, conduct, report)?;
        for key in backup::encrypted_to(&prepared.header.keys, &self.request.encrypt_to) {
            if !report.encrypted_to.contains(&key) {
                report.encrypted_to.push(key);
            }
        }
        if prepared.stands() {
            // By header and footer: the rest is compared.
            report.notes.push(format!("{} is already there, as it is", chain::title(&self.found.set)));
        }
        if self.request.dry_run {
            self.book_planned(prepared.how(&way), &prepared, report);
            return Ok(None);
        }
        if let Some(arrival) = self.arrival {
            arrival.begins(&prepared)?;
        }
        report.throttle = self.request.throttle;
        report.setup = self.setup(&way, &plan, &set, &prepared, report);
        let sinks = report.timed("opening the families", |_| self.sinks(&way, &prepared, plan.queue_depth, conduct));
        let sinks = sinks.map_err(|error| conduct.why_halted(error))?;
        let done = self.moved(&way, &plan, &pool, &mut set, &prepared, sinks, conduct, report);
        let done = done.map_err(|error| self.found.naming_copies(conduct.why_halted(error)))?;
        let named = if self.request.init { prepared.devices.len() } else { 1 };
        report.published(named, prepared.devices[0].is_in_store(), done.publishing);
        self.take_rotated_keys(&way, &prepared, report);
        self.book(&way, &prepared, &done, report);
        let manifest = prepared.manifest.as_ref().or(done.manifest.as_ref());
        self.arrived(&prepared, manifest)
    }

    fn open(&self, way: &CopyMethod, pool: &std::sync::Arc<Pool>, queue_depth: usize) -> Result<MediaSet> {
        let sealed = *way == CopyMethod::AsItIs && !self.found.header.keys.is_empty() && self.key.is_none();
        match sealed {
            true => discovery::open_sealed(self.found, pool, queue_depth),
            false => discovery::open_set(self.found, pool, queue_depth, self.key),
        }
    }

    fn sinks(
        &self,
        way: &CopyMethod,
        prepared: &Prepared,
        queue_depth: usize,
        conduct: &Conduct,
    ) -> Result<Vec<Box<dyn Sink>>> {
        let stores = &conduct.stores;
        let header = &prepared.header;
        let stands_on = (header.base_backup_set_id, header.kind);
        let replaced = sinks::check_replaced(self.request.init, &prepared.devices, stands_on, stores)?;
        let mut made: Vec<Box<dyn Sink>> = Vec::new();
        for (at, device) in prepared.devices.iter().enumerate() {
            if prepared.standing[at] {
                let there = supply::open(device, &Pool::new(0, 4096)?, 1, Mode::from_environment()?, stores)?;
                made.push(Box::new(StandingSink::new(there)?));
                continue;
            }
            let as_it_is = *way == CopyMethod::AsItIs;
            let in_store = matches!(device.place(), Destination::Object { .. });
            // An unfinished file with the media-set id of the source would look as if the source was never committed.
            let id = if as_it_is && !in_store { prepared.attempt } else { header.media_set_id };
            let options = sink::Options {
                old_set_id: replaced.get(at).copied().flatten().map(|id| id.to_string()),
                init: self.request.init,
                mkdir: self.request.mkdir,
                expected_size: Some(prepared.expected[at]),
                queue_depth,
                mode: Mode::from_environment()?,
                resume: as_it_is,
                stores: stores.clone(),
                ..sink::Options::new(id.to_string())
            };
            made.push(sink::open(device, options)?);
        }
        Ok(made)
    }

    #[expect(clippy::too_many_arguments, reason = "everything that is known about a copy")]
    fn moved(
        &self,
        way: &CopyMethod,
        plan: &CopyPlan,
        pool: &std::sync::Arc<Pool>,
        set: &mut MediaSet,
        prepared: &Prepared,
        sinks: Vec<Box<dyn Sink>>,
        conduct: &Conduct,
        report: &mut Report,
    ) -> Result<Done> {
        let halt = conduct.halt();
        let tick = || conduct.check();
        let permit = || self.arrival.map_or(Ok(()), |arrival| arrival.task.permit());
        let (progress, throttle, init) = (&conduct.progress, self.request.throttle, self.request.init);
        match (way, &prepared.manifest) {
            (CopyMethod::Anew { compression, .. }, Some(manifest)) => {
                let remake = Remake {
                    plan: &plan.reading,
                    input: pool,
                    output_buffers: plan.output_buffers,
                    throttle,
                    set: &prepared.header,
                    manifest,
                    compression: *compression,
                    data_key: prepared.data_key.as_ref(),
                    init,
                    progress,
                    halt: &halt,
                    tick: &tick,
                    permit: &permit,
                };
                let Remade { written, devices } = remake.run(set, sinks)?;
                report.add_stages(&written.stages);
                book_read(&devices, report);
                let plain = Some((written.data_bytes, written.zero_bytes));
                Ok(Done { families: written.families, plain, manifest: None, publishing: written.publishing })
            }
            _ => {
                let verbatim = Verbatim {
                    plan: &plan.reading,
                    input: pool,
                    throttle,
                    init,
                    progress,
                    halt: &halt,
                    tick: &tick,
                    permit: &permit,
                };
                let Copied { families, devices, stages, manifest, plain_bytes, publishing, .. } =
                    verbatim.run(set, sinks)?;
                report.add_stages(&stages);
                book_read(&devices, report);
                Ok(Done { families, plain: plain_bytes, manifest, publishing })
            }
        }
    }

    /// Copies keys that were wrapped later, so that they also open a copy as it is.
    fn take_rotated_keys(&self, way: &CopyMethod, prepared: &Prepared, report: &mut Report) {
        let records = self.found.rotated_keys();
        if *way != CopyMethod::AsItIs || records.is_empty() {
            return;
        }
        if let Err(error) = keys::write_sidecars(&prepared.devices, self.found.media_set_id, &records) {
            report.warnings.push(format!("cannot copy rotated keys: {}", error.one_line()));
        }
    }

    fn planned(&self, how: &str, prepared: &Prepared) -> CopyReport {
        CopyReport {
            kind: self.found.set.kind.to_string(),
            backup_set_id: self.found.set.backup_set_id.to_string(),
            database: Some(self.database(prepared.manifest.as_ref())).filter(|name| !name.is_empty()),
            how: how.to_owned(),
            from_media_set_id: self.found.media_set_id.to_string(),
            media_set_id: prepared.header.media_set_id.to_string(),
            from_families: self.found.families,
            families: prepared.devices.iter().map(Device::to_string).collect(),
            read_bytes: self.found.stored_bytes,
            stored_bytes: total(prepared.expected.iter().copied()),
        }
    }

    fn book_planned(&self, how: &str, prepared: &Prepared, report: &mut Report) {
        let mut planned = self.planned(how, prepared);
        let stored = if how == "there already" { 0 } else { planned.stored_bytes };
        if self.request.dry_run {
            if how == "made anew" {
                planned.media_set_id = String::new(); // The copy makes a new one.
            }
            report.stored_bytes += stored;
        }
        report.sets.push(planned.line());
        report.copied.push(planned);
        report.kind = Some(self.found.set.kind.to_string());
        report.backup_set_id = Some(self.found.set.backup_set_id.to_string());
    }

    fn book(&self, way: &CopyMethod, prepared: &Prepared, done: &Done, report: &mut Report) {
        let mut copied = self.planned(prepared.how(way), prepared);
        copied.stored_bytes = done.families.iter().map(|family| family.bytes).sum();
        let (data, zero) = done.plain.unwrap_or_default();
        report.source_bytes += data + zero;
        report.allocated_bytes += data;
        report.skipped_bytes += zero;
        report.stored_bytes += copied.stored_bytes;
        report.kind = Some(copied.kind.clone());
        report.engine = Some(self.found.header.engine.clone());
        report.database.clone_from(&copied.database);
        report.backup_set_id = Some(copied.backup_set_id.clone());
        report.media_set_id = Some(copied.media_set_id.clone());
        for family in &done.families {
            let hex = family.digest.iter().map(|byte| format!("{byte:02x}")).collect();
            report.families.push(FamilyReport { device: family.device.clone(), bytes: family.bytes, blake3: hex });
            report.add_device(&family.device, &family.account);
        }
        report.sets.push(copied.line());
        report.copied.push(copied);
    }

    /// The record of a set that has arrived in a repository.
    fn arrived(&self, prepared: &Prepared, manifest: Option<&Manifest>) -> Result<Option<SetRecord>> {
        let Some(arrival) = self.arrival.filter(|_| !self.request.dry_run) else { return Ok(None) };
        let mut families = Vec::new();
        for device in &prepared.devices {
            families.push(family_as_it_is(device, arrival.repository)?);
        }
        let header = &prepared.header;
        let encrypted = !header.keys.is_empty();
        let finished = |manifest: &Manifest| {
            manifest.finished_at.parse::<jiff::Timestamp>().map_or(header.started_at, jiff::Timestamp::as_microsecond)
        };
        let record = match (manifest, self.known) {
            (Some(manifest), _) => SetRecord {
                format: FORMAT,
                backup_set_id: header.backup_set_id,
                media_set_id: header.media_set_id,
                kind: header.kind,
                base: header.base_backup_set_id,
                copy_only: manifest.copy_only,
                engine: header.engine.clone(),
                database: manifest.database.clone(),
                name: manifest.name.clone(),
                started_at: header.started_at,
                finished_at: finished(manifest),
                host: manifest.host.clone(),
                families,
                database_bytes: manifest.database_bytes(),
                encrypted,
                codec: manifest.codec.clone(),
                position: manifest.position.clone(),
                stored_at: Some(self.known.and_then(|known| known.stored_at).unwrap_or(finished(manifest))),
                run: self.known.and_then(|known| known.run.clone()),
            },
            (None, Some(known)) => {
                SetRecord { families, media_set_id: header.media_set_id, encrypted, ..known.clone() }
            }
            (None, None) => return Ok(None), // Refused before.
        };
        Ok(Some(record))
    }
}

/// Adds the devices that were read to the report.
fn book_read(devices: &[(String, DeviceAccount)], report: &mut Report) {
    for (device, account) in devices {
        report.add_device(device, account);
        report.read_from.push(device.clone());
    }
}

impl Arrival<'_> {
    /// Records which set will be written, and where: if this host dies, its leftovers can be found.
    fn begins(&self, prepared: &Prepared) -> Result<()> {
        let devices = prepared.devices.iter().map(|device| family_record(device, 0, self.repository));
        let families = devices.collect::<Result<Vec<_>>>()?;
        self.task.of_engine(&prepared.header.engine);
        self.task.writes_copy(prepared.header.backup_set_id, prepared.attempt, families)
    }
}
