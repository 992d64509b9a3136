//! Moves the bytes of a backup, and reports what that took.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Instant;

use fullbore_core::Result;
use fullbore_core::conduct::Conduct;
use fullbore_core::halt::Halt;
use fullbore_core::media::{Manifest, SetKind};
use fullbore_core::pipeline::{Backup, BackupOutcome};
use fullbore_core::units::mib_per_s;
use fullbore_model::verdict::Setup;

use super::resolve::Resolved;
use super::{Within, manifest, sinks};
use crate::job::limit;
use crate::report::{FamilyReport, PointReport, PositionReport, Report};

impl Resolved<'_> {
    /// Moves the bytes and commits the set, after the measurement of the limit if the user wants it. For a repository,
    /// also gives the manifest.
    ///
    /// # Errors
    /// Any error; then no usable set was left behind.
    pub(super) fn run(
        &self,
        within: Option<Within<'_>>,
        conduct: &Conduct,
        halt: &Halt,
        report: &mut Report,
    ) -> Result<(BackupOutcome, Option<Manifest>)> {
        let (request, plan) = (self.request, &self.plan);
        let raw = match request.measure_limit {
            true => limit::measure(self.session.source(), &self.devices, plan, request.compression, conduct)?,
            false => None,
        };
        if request.measure_limit && raw.is_none() {
            let why = "the limit was not measured: this source can be read only once, by the backup itself";
            report.notes.push(why.into());
        }
        if raw.is_some() {
            report.begin_processor_time();
        }
        let setup = Setup::of_backup(plan, &request.compression.to_string(), request.kind == SetKind::Differential);
        report.setup = Some(Setup { encrypted: self.data_key.is_some(), ..setup });
        report.throttle = plan.throttle;
        let begun = Instant::now();
        let (outcome, manifest) = self.move_bytes(within, conduct, halt, report)?;
        self.book(&outcome, report)?;
        report.set_speed(begun.elapsed().as_secs_f64());
        let read = report.source_bytes.saturating_sub(report.unread_bytes);
        let speed = mib_per_s(read, report.elapsed_s);
        report.limit = raw.map(|raw| limit::limit_of(&raw, read, report.stored_bytes, speed));
        Ok((outcome, manifest))
    }

    fn move_bytes(
        &self,
        within: Option<Within<'_>>,
        conduct: &Conduct,
        halt: &Halt,
        report: &mut Report,
    ) -> Result<(BackupOutcome, Option<Manifest>)> {
        let (request, session) = (self.request, self.session);
        if let Some(stores) = request.mirror.as_ref().map(|mirror| mirror.stores.clone()) {
            halt.on_stop(move || stores.stop());
        }
        let opened = report.timed("opening the families", |_| sinks::open(self, &conduct.stores));
        let mut sinks = opened.map_err(|error| conduct.why_halted(error))?;
        let mut on_volume = None;
        if let Some(volumes) = &conduct.volumes {
            sinks = sinks.into_iter().map(|sink| volumes.sink(sink, self.plan.queue_depth, halt)).collect();
            on_volume = volumes.source(session.source(), halt);
        }
        let total: u64 = session.source().streams().iter().map(|stream| stream.size).sum();
        conduct.progress.total.store(total, Ordering::Relaxed);
        let warnings = report.warnings.clone();
        let (kept, point) = (OnceLock::new(), OnceLock::new());
        let manifest = || {
            let made = manifest::manifest(self, &warnings)?;
            let _ = point.set(PointReport::of(&made)); // Made once.
            if within.is_some() {
                let _ = kept.set(made.clone());
            }
            Ok(made)
        };
        let backup = Backup {
            plan: &self.plan,
            set: &self.set,
            compression: request.compression,
            data_key: self.data_key.as_ref(),
            map_seed: self.map_seed,
            base: self.base.map(),
            init: request.init,
            source: on_volume.as_deref().unwrap_or(session.source()),
            progress: &conduct.progress,
            halt,
            tick: &|| conduct.check(),
            manifest: &manifest,
            permit: &|| within.map_or(Ok(()), |within| within.permit()),
        };
        let outcome = backup.run(sinks)?;
        report.point = point.into_inner();
        let named = if request.init { self.devices.len() } else { 1 };
        report.published(named, self.devices[0].is_in_store(), outcome.publishing);
        Ok((outcome, kept.into_inner()))
    }

    fn book(&self, outcome: &BackupOutcome, report: &mut Report) -> Result<()> {
        let (session, facts) = (self.session, self.session.facts());
        for warning in facts.warnings {
            if !report.warnings.contains(&warning) {
                report.warnings.push(warning);
            }
        }
        report.writers_blocked_s = facts.writers_blocked.as_secs_f64();
        report.source_bytes = outcome.source_bytes;
        report.stored_bytes = outcome.stored_bytes;
        report.skipped_bytes = outcome.source_bytes.saturating_sub(outcome.data_bytes);
        report.allocated_bytes = self.allocated;
        report.add_stages(&outcome.stages);
        for family in &outcome.families {
            let hex = family.digest.iter().map(|byte| format!("{byte:02x}")).collect();
            let mut written = FamilyReport { device: family.device.clone(), bytes: family.bytes, blake3: hex };
            report.families.push(written.clone());
            report.add_device(&family.device, &family.account);
            for (device, account) in &family.mirrors {
                written.device.clone_from(device);
                report.copies.push(written.clone());
                report.add_device(device, account);
            }
        }
        let position = session.position()?;
        let first = session.first_position()?;
        report.position = Some(PositionReport { first, checkpoint: position.clone(), last: position });
        Ok(())
    }
}
