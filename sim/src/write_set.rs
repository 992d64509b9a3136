//! Writing a set with the real pipeline.

use anyhow::{Context, ensure};
use fullbore_core::cipher::{CipherId, DataKey, SecretKey, wrap_for};
use fullbore_core::halt::Halt;
use fullbore_core::media::{
    FORMAT_VERSION, Label, Manifest, ManifestFamily, ManifestMap, ManifestStream, SetHeader, SetKind, StreamRecord,
};
use fullbore_core::meter::Progress;
use fullbore_core::pipeline::{Backup, BackupOutcome, map_window};
use fullbore_core::plan::Plan;
use fullbore_core::pool::Pool;
use fullbore_core::source::{Source, Stream};
use fullbore_core::testkit::{FaultPlan, plain_manifest};
use fullbore_core::unpack::BaseMap;
use fullbore_core::{Error, Result};
use uuid::Uuid;

use crate::database::Simulated;
use crate::scenario::Scenario;
use crate::shelf::{Media, Writing, name_of};

/// One set to be written.
pub struct SetWriter<'a> {
    /// Threads, buffers, codec.
    pub scenario: &'a Scenario,
    /// How many families.
    pub families: u16,
    /// Who opens it, when it has a cipher.
    pub key: Option<&'a SecretKey>,
    /// The full, when it is a differential.
    pub base: Option<&'a BaseMap>,
    /// The set that it replaces.
    pub replaces: Option<Uuid>,
    /// Goes on counting from set to set, so that they have an order.
    pub started_at: i64,
}

/// What became of it.
pub struct Written {
    /// Its identity.
    pub media_set_id: Uuid,
    /// What the run said.
    pub result: Result<BackupOutcome>,
}

impl SetWriter<'_> {
    /// Writes `source` to `media`; what goes wrong there is in `faults`.
    ///
    /// # Errors
    /// Something that the simulation itself got wrong, or a buffer that did not come home.
    pub fn write(&self, source: &Simulated<'_>, media: &Media, faults: &FaultPlan) -> anyhow::Result<Written> {
        self.write_source(source, &|| source.tick(), media, faults)
    }

    /// The same for any source.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_source(
        &self,
        source: &dyn Source,
        tick: &(dyn Fn() -> Result<()> + Sync),
        media: &Media,
        faults: &FaultPlan,
    ) -> anyhow::Result<Written> {
        let scenario = self.scenario;
        let differential = self.base.is_some();
        let families = usize::from(self.families);
        let plan = scenario.plan(|knobs| Plan::backup(knobs, families, scenario.compression, differential))?;
        let data_key = self.key.map(|_| DataKey::random()).transpose()?;
        let set = self.header(source, data_key.as_ref())?;
        let random = fastrand::Rng::with_seed(scenario.seed).u64(..);
        let map_seed = self.base.map(BaseMap::seed).or((!scenario.unmapped).then_some(random));
        let writing = Writing {
            set_id: set.media_set_id,
            families: self.families,
            replaces: self.replaces,
            queue_depth: plan.queue_depth,
            expected_size: scenario.preallocated.then(|| source_bytes(source) / u64::from(self.families)),
            plan: faults,
        };
        let sinks = media.sinks(&writing).context("opening the sinks")?;
        let (progress, halt) = (Progress::default(), Halt::new());
        let backup = Backup {
            plan: &plan,
            set: &set,
            compression: scenario.compression,
            data_key: data_key.as_ref(),
            map_seed,
            base: self.base,
            init: self.replaces.is_some(),
            source,
            progress: &progress,
            halt: &halt,
            tick,
            manifest: &|| Ok(manifest(&set, map_seed)),
            permit: &|| Ok(()),
        };
        drop(Pool::made_here());
        let result = backup.run(sinks);
        all_home("backup")?;
        Ok(Written { media_set_id: set.media_set_id, result })
    }

    fn header(&self, source: &dyn Source, data_key: Option<&DataKey>) -> anyhow::Result<SetHeader> {
        let scenario = self.scenario;
        let media_set_id = Uuid::now_v7();
        let keys = match (self.key, data_key) {
            (Some(key), Some(data_key)) => wrap_for(&[key.public().clone()], data_key, media_set_id.as_bytes())?,
            _ => Vec::new(),
        };
        // Small windows, so that there are several; not more than the pipeline keeps open.
        let units: u64 = source.streams().iter().map(|stream| stream.size.div_ceil(stream.unit.into())).sum();
        let small = (units / 32 + 1).next_power_of_two() as u32;
        let window = |unit| {
            let full = self.base.is_none() && !scenario.unmapped;
            if full { small.min(map_window(unit, scenario.transfer_size)) } else { 0 }
        };
        let record = |stream: &Stream| StreamRecord {
            id: stream.id,
            layer: 0,
            unit: stream.unit,
            map_window: if source.is_ordered(stream.id) { 0 } else { window(stream.unit) },
            size: stream.size,
            ordered: source.is_ordered(stream.id),
        };
        Ok(SetHeader {
            format_version: FORMAT_VERSION,
            media_set_id,
            backup_set_id: Uuid::now_v7(),
            families: self.families,
            cipher: if data_key.is_some() { CipherId::Aes256Gcm } else { CipherId::None },
            kind: if self.base.is_some() { SetKind::Differential } else { SetKind::Full },
            block_size: scenario.block_size,
            transfer_size: scenario.transfer_size,
            window: if source.has_ordered() { scenario.window.unwrap_or(1) } else { 0 },
            codec: (scenario.compression.codec().number(), scenario.compression.level()),
            started_at: self.started_at,
            engine: "simulated".into(),
            tool_version: "0".into(),
            base_backup_set_id: self.base.map(BaseMap::backup_set_id),
            keys,
            streams: source.streams().iter().map(record).collect(),
            open: false,
            label: data_key.is_none().then(|| Label { name: "sim".into(), ..Label::default() }),
        })
    }
}

fn source_bytes(source: &dyn Source) -> u64 {
    source.streams().iter().map(|stream| stream.size).sum()
}

fn manifest(set: &SetHeader, map_seed: Option<u64>) -> Manifest {
    let stream = |record: &StreamRecord| ManifestStream {
        id: record.id,
        name: format!("file-{}", record.id),
        layer: record.layer,
        unit: record.unit,
        map_window: record.map_window,
        size: record.size,
        ordered: record.ordered,
        identity: String::new(),
        base: None,
        detail: None,
    };
    Manifest {
        host: "localhost".into(),
        database: "simulated".into(),
        families: (1..=set.families).map(|family| ManifestFamily { family, device: name_of(family) }).collect(),
        map: map_seed.filter(|_| set.kind == SetKind::Full).map(ManifestMap::new),
        ..plain_manifest(set, set.streams.iter().map(stream).collect())
    }
}

/// Every buffer of the pools that this thread has made, and that are still there, is at home.
///
/// # Errors
/// Names how many are missing.
pub fn all_home(whose: &str) -> anyhow::Result<()> {
    for pool in Pool::made_here() {
        let (free, count) = (pool.free(), pool.count());
        ensure!(free == count, "{whose}: {free} of {count} buffers came home");
    }
    Ok(())
}

/// True for errors that say what went wrong; the others are consequences.
pub fn has_a_reason(error: &Error) -> bool {
    !matches!(error, Error::Halted) && !error.to_string().trim().is_empty()
}
