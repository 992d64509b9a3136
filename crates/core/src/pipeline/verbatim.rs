//! A copy of a media set as it is: the bytes of its families go to other devices while they are checked.
//!
//! The footers are held back until the whole source was read and found good: then the commit is that of a backup.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crossbeam_channel::unbounded;

use super::FamilyOutcome;
use super::read::Throttle;
use super::tee::{Tee, ToWriter};
use super::writing::{SINK, Writing};
use super::{COPY_STAGES, MEDIA, TRANSFORM};
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::media::{FOOTER, Footer, Manifest, total};
use crate::meter::{Accounts, Progress, Stage};
use crate::plan::UnpackPlan;
use crate::pool::Pool;
use crate::sink::{DeviceAccount, Sink};
use crate::unpack::{MediaSet, NullTarget, Unpack, check_sealed};

/// A copy as it is, about to run.
pub struct Verbatim<'a> {
    /// Threads and buffers.
    pub plan: &'a UnpackPlan,
    /// The pool that the families are read through: what is read is what is written.
    pub input: &'a Arc<Pool>,
    /// Bytes of media per second, at most.
    pub throttle: Option<u64>,
    /// Replace the sets under the sinks' names.
    pub init: bool,
    /// Counters for a display: bytes of media.
    pub progress: &'a Arc<Progress>,
    /// Ends the job early.
    pub halt: &'a Halt,
    /// Called every 100 ms: an error ends the job.
    pub tick: &'a (dyn Fn() -> Result<()> + Sync),
    /// Called once, when everything is durable and only the commit record has no name yet: an error takes everything
    /// back.
    pub permit: &'a (dyn Fn() -> Result<()> + Sync),
}

/// The result of a copy as it is.
#[derive(Debug, Clone)]
pub struct Copied {
    /// The families that were written, first to last.
    pub families: Vec<FamilyOutcome>,
    /// What each family was read from, and what that device did.
    pub devices: Vec<(String, DeviceAccount)>,
    /// media, transform, sink.
    pub stages: Vec<Stage>,
    /// The manifest; unknown for an encrypted set whose key was not given.
    pub manifest: Option<Manifest>,
    /// Bytes of DATA and of ZERO runs; the same.
    pub plain_bytes: Option<(u64, u64)>,
    /// Bytes of all families.
    pub stored_bytes: u64,
    /// How long it took to give the last families their names, after all bytes were on their devices.
    pub publishing: Duration,
}

/// What the copy learns of its source.
struct Read {
    footers: Vec<Footer>,
    manifest: Option<Manifest>,
    plain_bytes: Option<(u64, u64)>,
    stages: Vec<Stage>,
}

impl Verbatim<'_> {
    /// Copies all of `set` into `sinks`, one for each family. On an error nothing of the copy is left behind, as after
    /// a backup.
    ///
    /// # Errors
    /// Damage in the source, with the family and the byte; what a sink has against it.
    pub fn run(&self, set: &mut MediaSet, mut sinks: Vec<Box<dyn Sink>>) -> Result<Copied> {
        if sinks.len() != set.families().len() {
            let why =
                format!("{} families are to be copied to {} devices as they are", set.families().len(), sinks.len());
            return Err(Error::refused("copy", why, "this is a defect: please report it"));
        }
        let throttle = self.throttle.map(|rate| Arc::new(Throttle::new(rate)));
        let (mut ways, mut listeners, mut loads) = (Vec::new(), Vec::new(), Vec::new());
        for family in set.families() {
            let (queue, listener) = unbounded();
            let load = Arc::new(AtomicU64::new(0));
            let held_from = family.size().unwrap_or(0).saturating_sub(FOOTER as u64);
            ways.push(Arc::new(ToWriter::new(queue, Arc::clone(&load), held_from)));
            listeners.push(listener);
            loads.push(load);
        }
        let mut each = ways.iter();
        set.listen(|supply| {
            Box::new(Tee {
                supply,
                way: each.next().cloned(),
                throttle: throttle.clone(),
                progress: Some(Arc::clone(self.progress)),
                halt: self.halt.clone(),
                position: 0,
            })
        });
        let accounts = Accounts::new(COPY_STAGES);
        self.progress.enter(COPY_STAGES, &[self.input]);
        let (init, halt, permit) = (self.init, self.halt, self.permit);
        let writing = Writing { init, progress: self.progress, halt, watch: self.tick, permit };
        let read = writing.run(&mut sinks, (listeners, &loads), &ways, &accounts, |commit| {
            let read = self.read(set)?;
            commit.run(|family| ways[usize::from(family) - 1].send_held())?;
            Ok(read)
        })?;
        let mut stages = read.stages;
        stages.extend(accounts.stages().into_iter().skip(SINK));
        let families = sinks.iter().zip(&read.footers).map(|(sink, footer)| FamilyOutcome {
            device: sink.device().to_owned(),
            bytes: footer.family_length,
            digest: footer.family_digest,
            account: sink.account(),
            mirrors: Vec::new(),
        });
        Ok(Copied {
            families: families.collect(),
            devices: set.families().iter().map(|family| (family.device().to_owned(), family.account())).collect(),
            stages,
            manifest: read.manifest,
            plain_bytes: read.plain_bytes,
            stored_bytes: total(read.footers.iter().map(|footer| footer.family_length)),
            publishing: accounts.publishing(),
        })
    }

    /// Reads the whole set, and checks everything that can be checked: without the key, everything except the unpacked
    /// content of its blocks.
    fn read(&self, set: &mut MediaSet) -> Result<Read> {
        if set.is_sealed() {
            let (footers, accounts) = check_sealed(set, self.input, &self.progress.stages[MEDIA], self.halt)?;
            // Nothing is unpacked, and the reader of a family checks it as well.
            let stages = vec![Stage::of(COPY_STAGES[MEDIA], accounts), Stage::of(COPY_STAGES[TRANSFORM], Vec::new())];
            return Ok(Read { footers, manifest: None, plain_bytes: None, stages });
        }
        let unpack = Unpack {
            plan: self.plan,
            target: &NullTarget,
            progress: &self.progress.of_first_part(), // What passes is counted already.
            halt: self.halt,
            tick: self.tick,
            input: self.input,
        };
        let outcome = unpack.run(set)?;
        Ok(Read {
            footers: outcome.footers,
            manifest: Some(outcome.manifest),
            plain_bytes: Some((outcome.data_bytes, outcome.zero_bytes)),
            stages: outcome.stages.into_iter().take(SINK).collect(),
        })
    }
}
