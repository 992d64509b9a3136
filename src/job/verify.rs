//! RESTORE VERIFYONLY: reads everything, checks everything, writes nothing. Also the unpacking that a restore shares.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use fullbore_core::cipher::SecretKey;
use fullbore_core::device::Device;
use fullbore_core::halt::Halt;
use fullbore_core::io::Mode;
use fullbore_core::plan::{Knobs, UnpackPlan};
use fullbore_core::pool::Pool;
use fullbore_core::supply;
use fullbore_core::unpack::{MediaSet, NullTarget, Target, Unpack, UnpackOutcome};
use fullbore_core::{Error, Result};

use super::{Conduct, media, memory};
use crate::chain::{self, Choice};
use crate::report::{FamilyReport, PoolReport, Report};

/// What the user asked for.
#[derive(Clone)]
pub struct Request {
    /// `--from`.
    pub from: Vec<String>,
    /// BUFFERCOUNT and the like.
    pub knobs: Knobs,
    /// `--key`.
    pub key: Option<PathBuf>,
    /// `--set`, `--latest`; without a choice all sets are verified.
    pub choice: Choice,
}

/// Verifies the sets that `--from` names; fills `report`, also when damage is found.
///
/// # Errors
/// The first damage that was found, after everything else was looked at as well.
pub fn run(request: &Request, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let key = media::read_key(request.key.as_deref())?;
    let begun = Instant::now();
    if media::is_pipe(&request.from)? {
        let mut set = piped(key.as_ref(), conduct)?;
        let outcome = unpack(&mut set, &request.knobs, &NullTarget, conduct, report)?;
        book(&outcome, report);
        report.set_speed(begun.elapsed().as_secs_f64());
        return Ok(());
    }
    let heap = media::find(&request.from)?;
    let known: Vec<_> = heap.sets.iter().map(|found| found.set.clone()).collect();
    let chosen = if request.choice == Choice::default() {
        (0..known.len()).collect()
    } else {
        chain::choose(&known, &request.choice)?.sets
    };
    if chosen.is_empty() && heap.unreadable.is_empty() {
        return Err(Error::incomplete(
            "--from",
            "no backup set was found there",
            "name the directory or the families of a backup",
        ));
    }
    let total = chosen.iter().map(|&at| heap.sets[at].database_bytes).sum();
    conduct.progress.total.store(total, std::sync::atomic::Ordering::Relaxed);
    let mut damage = Vec::new();
    for at in chosen {
        let found = &heap.sets[at];
        match verify_set(found, request, key.as_ref(), conduct, report) {
            Ok(()) => {}
            Err(error @ (Error::Damaged { .. } | Error::Incomplete { .. } | Error::Refused { .. })) => {
                damage.push(error)
            }
            Err(error) => return Err(error),
        }
    }
    let orphaned =
        |set: &&chain::FoundSet| set.base.is_some_and(|base| known.iter().all(|full| full.backup_set_id != base));
    for set in known.iter().filter(orphaned) {
        let title = chain::title(set);
        report.warnings.push(format!("{title} cannot be restored from here: its full is not among these"));
    }
    for unreadable in heap.unreadable {
        if unreadable.leftover {
            report.warnings.push(format!(
                "`{}` is what a killed backup has left, or is being written: {}",
                unreadable.path.display(),
                media::one_line(&unreadable.error)
            ));
        } else {
            damage.push(unreadable.error);
        }
    }
    report.set_speed(begun.elapsed().as_secs_f64());
    first(damage, report)
}

/// The first of several errors; the others become warnings.
fn first(damage: Vec<Error>, report: &mut Report) -> Result<()> {
    let mut damage = damage.into_iter();
    let Some(first) = damage.next() else { return Ok(()) };
    report.warnings.extend(damage.map(|error| format!("also: {}", media::one_line(&error))));
    Err(first)
}

fn verify_set(
    found: &media::Found,
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let (mut set, pool, plan) = open(found, &request.knobs, key, report)?;
    let outcome = unpack_with(&mut set, &plan, &pool, &NullTarget, conduct)?;
    book(&outcome, report);
    Ok(())
}

/// Opens a set with a pool of the right size.
pub(super) fn open(
    found: &media::Found,
    knobs: &Knobs,
    key: Option<&SecretKey>,
    report: &mut Report,
) -> Result<(MediaSet, Arc<Pool>, UnpackPlan)> {
    let nothing = Pool::new(0, 4096)?;
    let transfer_size = media::open_set(found, &nothing, 1, key)?.header().transfer_size;
    let plan = UnpackPlan::new(knobs, usize::from(found.families), transfer_size)?;
    claim(&plan, report)?;
    let pool = Pool::new(plan.input_buffers, transfer_size as usize)?;
    Ok((media::open_set(found, &pool, plan.queue_depth, key)?, pool, plan))
}

fn claim(plan: &UnpackPlan, report: &mut Report) -> Result<()> {
    report.pool = PoolReport {
        buffer_count: plan.buffer_count() as u64,
        max_transfer_size: plan.transfer_size.into(),
        bytes: plan.pool_bytes(),
    };
    let codec_bytes = plan.workers as u64 * (1 << 20);
    memory::check(plan.pool_bytes(), plan.buffer_count(), plan.transfer_size, codec_bytes)
}

/// The set on standard input.
pub(super) fn piped(key: Option<&SecretKey>, conduct: &Conduct) -> Result<MediaSet> {
    // A pipe gives 64 KiB at a time; blocks are assembled in the job's own pool.
    let pool = Pool::new(8, 64 << 10)?;
    conduct.close_on_signal(&pool);
    let supply = supply::open(&Device::parse("-")?, &pool, 1, Mode::from_environment()?)?;
    MediaSet::piped(supply, key, &[]).map_err(|error| conduct.why_halted(error))
}

/// Unpacks a set whose pool is not made yet.
pub(super) fn unpack(
    set: &mut MediaSet,
    knobs: &Knobs,
    target: &dyn Target,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<UnpackOutcome> {
    let plan = UnpackPlan::new(knobs, 1, set.header().transfer_size)?;
    claim(&plan, report)?;
    let pool = Pool::new(plan.input_buffers, plan.transfer_size as usize)?;
    unpack_with(set, &plan, &pool, target, conduct)
}

/// Unpacks an opened set into `target`.
pub(super) fn unpack_with(
    set: &mut MediaSet,
    plan: &UnpackPlan,
    input: &Arc<Pool>,
    target: &dyn Target,
    conduct: &Conduct,
) -> Result<UnpackOutcome> {
    let halt = Halt::new();
    let unpack = Unpack { plan, target, progress: &conduct.progress, halt: &halt, tick: &|| conduct.check(), input };
    unpack.run(set).map_err(|error| conduct.why_halted(error))
}

/// Books what an unpacking did; several sets add up.
pub(super) fn book(outcome: &UnpackOutcome, report: &mut Report) {
    let manifest = &outcome.manifest;
    report.kind = Some(manifest.kind.to_string());
    report.engine = Some(manifest.engine.clone());
    report.database = Some(manifest.database.clone());
    report.media_set_id = Some(manifest.media_set_id.to_string());
    report.backup_set_id = Some(manifest.backup_set_id.to_string());
    report.sets.push(format!("{} {}", manifest.kind, manifest.backup_set_id));
    report.source_bytes += outcome.data_bytes + outcome.zero_bytes;
    report.skipped_bytes += outcome.zero_bytes;
    report.allocated_bytes += outcome.data_bytes;
    report.stored_bytes += outcome.stored_bytes;
    report.add_stages(&outcome.stages);
    for ((device, account), footer) in outcome.devices.iter().zip(&outcome.footers) {
        let hex = footer.family_digest.iter().map(|byte| format!("{byte:02x}")).collect();
        report.families.push(FamilyReport { device: device.clone(), bytes: footer.family_length, blake3: hex });
        report.add_device(device, account);
    }
}
