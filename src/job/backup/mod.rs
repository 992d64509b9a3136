//! BACKUP DATABASE: from a request to a committed backup set.

pub(super) mod auto;
mod base;
mod claim;
pub(super) mod log_base;
pub(super) mod log_set;
mod manifest;
mod mirror;
mod planned;
pub(super) mod sinks;
mod within;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use fullbore_core::cipher::{CipherId, DataKey, KeyFile, PublicKey, WrappedKey, wrap_for};
use fullbore_core::codec::Compression;
use fullbore_core::device::Device;
use fullbore_core::halt::Halt;
use fullbore_core::io::Mode;
use fullbore_core::media::{FORMAT_VERSION, Label, Manifest, SetHeader, SetKind};
use fullbore_core::order::window_of;
use fullbore_core::pipeline::{Backup, BackupOutcome};
use fullbore_core::plan::{Knobs, Plan};
use fullbore_core::unpack::BaseMap;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::DatabaseUrl;
use fullbore_engines::{GivenOptions, Identity, Options, Session};
use uuid::Uuid;

use super::stripes::Raised;
pub(super) use base::about_base;
pub use mirror::Mirror;
pub(super) use planned::encrypted_to;
pub use sinks::is_of_database;

use super::{exclusive, limit, space};
use crate::report::{FamilyReport, PointReport, PositionReport, Report};
pub use auto::Auto;
use fullbore_core::conduct::Conduct;
use fullbore_repository::Repository;
use fullbore_repository::format::SetRecord;

use fullbore_model::verdict::Setup;
use fullbore_repository::task::Task;

/// What the user asked for.
#[derive(Clone)]
pub struct Request {
    /// `sqlite:PATH`.
    pub source: DatabaseUrl,
    /// `--to`.
    pub to: Vec<Device>,
    /// `--stripes`.
    pub stripes: Option<usize>,
    /// `--compression`.
    pub compression: Compression,
    /// `--auto`: the model chooses the settings that were not given.
    pub auto: Option<Auto>,
    /// MAXTRANSFERSIZE, BUFFERCOUNT and the like.
    pub knobs: Knobs,
    /// `--kind`.
    pub kind: SetKind,
    /// `--copy-only`.
    pub copy_only: bool,
    /// `--base`: the families of the full, for a differential.
    pub base: Vec<String>,
    /// `--init`.
    pub init: bool,
    /// `--mkdir`.
    pub mkdir: bool,
    /// `--wait`.
    pub wait: bool,
    /// `--dry-run`.
    pub dry_run: bool,
    /// `--measure-limit`.
    pub measure_limit: bool,
    /// `--encrypt-to`.
    pub encrypt_to: Vec<PathBuf>,
    /// `--key`: opens the base of a differential.
    pub key: Option<PathBuf>,
    /// `--name`.
    pub name: String,
    /// `--description`.
    pub description: String,
    /// `--media-name`.
    pub media_name: String,
    /// `--copy-to`: the places of the second repository.
    pub mirror: Option<Mirror>,
    /// `--name-template`, else the template of the configuration.
    pub name_template: Option<String>,
    /// `--name-template` only.
    pub own_template: Option<String>,
    /// `--lock-timeout`.
    pub lock_timeout: Duration,
    /// `--continue-after-error`.
    pub continue_after_error: bool,
    /// The options of its engine.
    pub engine_options: GivenOptions,
}

/// What a new set depends on.
pub(super) enum Predecessor {
    /// Nothing: a full.
    None,
    /// The full of a differential, by its page map.
    Full(Box<BaseMap>),
    /// The set that a log set continues.
    Set(Uuid),
}

/// Everything known before the first byte is read.
struct Prepared {
    devices: Vec<Device>,
    /// The second devices of the same families; empty without `--copy-to`.
    mirrors: Vec<Device>,
    plan: Plan,
    set: SetHeader,
    data_key: Option<DataKey>,
    map_seed: Option<u64>,
    base: Predecessor,
    allocated: u64,
    expected_per_family: u64,
    file_mode: Mode,
}

/// The repository that a backup goes to, and its task there.
#[derive(Clone, Copy)]
pub struct Within<'a> {
    /// The repository.
    pub repository: &'a Repository,
    /// The task, which permits the commit.
    pub task: &'a Task,
    /// The repository of `--copy-to`, and the task there.
    pub second: Option<(&'a Repository, &'a Task)>,
}

/// Runs the backup and fills `report`, also when it fails.
///
/// # Errors
/// Any error; then no usable set was left behind.
pub fn run(request: &Request, conduct: &Conduct, report: &mut Report) -> Result<()> {
    run_within(&auto::chosen(request, 0, conduct, report)?, None, conduct, report).map(drop)
}

/// The same into a repository: returns the record of the committed set; `None` after `--dry-run`.
///
/// # Errors
/// Those of [`run`], and a commit that the repository does not permit.
pub fn run_within(
    request: &Request,
    within: Option<Within<'_>>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Option<SetRecord>> {
    report.kind = Some(request.kind.to_string());
    report.database = Some(request.source.shown().to_owned());
    report.engine = Some(request.source.scheme().to_owned()).filter(|scheme| !scheme.is_empty());
    // A server has one identity, whatever account and options are used.
    let identity = request.source.name().to_owned();
    let plan = checked_plan(request, conduct, report)?;
    // A log backup may run beside a full, but only one log backup.
    let identity = if request.kind == SetKind::Log { format!("{identity}#log") } else { identity };
    let _exclusive = exclusive::take(request.source.shown(), &identity, request.wait, conduct)?;
    let halt = conduct.halt();
    let options = options(request, plan.readers, &halt);
    if request.kind == SetKind::Log {
        return log_set::once(request, &options, within, conduct, report);
    }
    let candidates = base::candidates(request, &conduct.stores).map_err(|error| conduct.why_halted(error))?;
    // It may have to wait for a lock.
    let session = conduct.until_signalled(&halt, || request.source.open(&options))?;
    let base = candidates.map(|candidates| candidates.choose(&*session, request)).transpose()?;
    let base = base.map_or(Predecessor::None, |base| Predecessor::Full(Box::new(base)));
    write(request, base, &*session, within, conduct, &halt, report)
}

/// What a set of the open `session` depends on, by its request.
///
/// # Errors
/// The request names no set that can be the base.
pub(super) fn predecessor(request: &Request, session: &dyn Session, conduct: &Conduct) -> Result<Predecessor> {
    let candidates = base::candidates(request, &conduct.stores).map_err(|error| conduct.why_halted(error))?;
    let base = candidates.map(|candidates| candidates.choose(session, request)).transpose()?;
    Ok(base.map_or(Predecessor::None, |base| Predecessor::Full(Box::new(base))))
}

/// Writes a set of the open `session`; returns the record of the committed set if it went into a repository.
///
/// # Errors
/// Any error; then no usable set was left behind.
pub(super) fn write(
    request: &Request,
    base: Predecessor,
    session: &dyn Session,
    within: Option<Within<'_>>,
    conduct: &Conduct,
    halt: &Halt,
    report: &mut Report,
) -> Result<Option<SetRecord>> {
    let prepared = prepare(request, base, session, conduct, report)?;
    report.encrypted_to = encrypted_to(&prepared.set.keys, &request.encrypt_to);
    if session.holds_a_part() && !request.copy_only {
        report.notes.push("it holds a part of the database, so it is marked as --copy-only".into());
    }
    if request.dry_run {
        report.status = "planned".into();
        report.warnings.extend(session.facts().warnings);
        report.planned = Some(planned::planned(request, &prepared)?);
        report.stored_bytes = prepared.expected_per_family * prepared.devices.len() as u64;
        return Ok(None);
    }
    if let Some(within) = within {
        within.begins(&prepared)?;
    }
    let raw = if request.measure_limit {
        limit::measure(session.source(), &prepared.devices, &prepared.plan, request.compression, conduct)?
    } else {
        None
    };
    if request.measure_limit && raw.is_none() {
        report.notes.push("the limit was not measured: this source can be read only once, by the backup itself".into());
    }
    if raw.is_some() {
        report.begin_processor_time();
    }
    let differential = request.kind == SetKind::Differential;
    let setup = Setup::of_backup(&prepared.plan, &request.compression.to_string(), differential);
    report.setup = Some(Setup { encrypted: prepared.data_key.is_some(), ..setup });
    report.throttle = prepared.plan.throttle;
    let begun = Instant::now();
    let (outcome, manifest) = move_bytes(request, &prepared, session, within, conduct, halt, report)?;
    book(&outcome, &prepared, session, report)?;
    report.set_speed(begun.elapsed().as_secs_f64());
    let read = report.source_bytes.saturating_sub(report.unread_bytes);
    let speed = fullbore_core::units::mib_per_s(read, report.elapsed_s);
    report.limit = raw.map(|raw| limit::limit_of(&raw, read, report.stored_bytes, speed));
    let unread = session.facts().free_bytes + session.extra_work().hole_bytes;
    within.zip(manifest).map(|(within, manifest)| within.described(&prepared, &outcome, &manifest, unread)).transpose()
}

/// The plan, after a check that there is enough memory.
pub(super) fn checked_plan(request: &Request, conduct: &Conduct, report: &mut Report) -> Result<Plan> {
    claim::claimed(request, request.families(), 0, conduct, report)
}

/// The options for the engine.
pub(super) fn options(request: &Request, readers: usize, halt: &Halt) -> Options {
    Options {
        lock_timeout: request.lock_timeout,
        halt: Some(halt.clone()),
        readers,
        media_encrypted: !request.encrypt_to.is_empty(),
        continue_after_error: request.continue_after_error,
        given: request.engine_options.clone(),
    }
}

impl Predecessor {
    pub(super) fn map(&self) -> Option<&BaseMap> {
        match self {
            Predecessor::Full(map) => Some(map),
            Predecessor::None | Predecessor::Set(_) => None,
        }
    }

    fn id(&self) -> Option<Uuid> {
        match self {
            Predecessor::None => None,
            Predecessor::Full(map) => Some(map.backup_set_id()),
            Predecessor::Set(id) => Some(*id),
        }
    }
}

impl Request {
    /// The number of families, before their lengths are known.
    fn families(&self) -> usize {
        self.stripes.unwrap_or_else(|| self.places())
    }

    fn is_differential(&self) -> bool {
        self.kind == SetKind::Differential
    }
}

/// The plan with these knobs, for families of an expected length in bytes (0: not known yet).
fn plan_with(request: &Request, knobs: &Knobs, stripes: usize, per_family: u64) -> Result<Plan> {
    let part_size = request.part_size(stripes, per_family);
    Plan::backup_in_parts(knobs, stripes, request.compression, request.is_differential(), part_size)
}

/// The plan for `whole` bytes in so many stripes, or in more if they would be too long for their stores.
fn fitting_plan(
    request: &Request,
    mut stripes: usize,
    whole: u64,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Plan> {
    if let Some(raised) = request.enough_stripes(stripes, whole, &conduct.stores)? {
        stripes = raised.stripes;
        report.notes.push(raised.note);
    }
    let per_family = whole / stripes as u64;
    claim::claimed(request, stripes, per_family, conduct, report)
}

/// Refuses names that the header of a family has no room for: nobody could read the backup.
///
/// # Errors
/// They are too long.
pub(in crate::job) fn refuse_long(label: Option<&Label>) -> Result<()> {
    if label.is_none_or(Label::fits) {
        return Ok(());
    }
    let why = "are too long: a header has room for 4 KiB, with the name of the database";
    Err(Error::usage("--name, --description and --media-name", why, "shorten them"))
}

/// The names in the header of each family; none if the set is encrypted.
fn label(request: &Request, database: &Identity, is_encrypted: bool) -> Result<Option<Label>> {
    let label = Label {
        name: request.name.clone(),
        description: request.description.clone(),
        media_name: request.media_name.clone(),
        database: database.name.clone(),
    };
    let label = (!is_encrypted).then_some(label);
    refuse_long(label.as_ref())?;
    Ok(label)
}

fn prepare(
    request: &Request,
    base: Predecessor,
    session: &dyn Session,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Prepared> {
    let source = session.source();
    report.is_of_database_at(session.database_at());
    let database = request.source.identity();
    let media_set_id = Uuid::now_v7();
    let allocated =
        source.streams().iter().map(|stream| stream.size).sum::<u64>().saturating_sub(session.facts().free_bytes);
    let whole = if base.map().is_some() { 0 } else { space::stored_bytes(source, allocated, request.compression)? };
    let plan = fitting_plan(request, request.families(), whole, conduct, report)?;
    let devices = sinks::devices(request, Some(plan.stripes), database, media_set_id)?;
    let mirrors = mirror::devices(request, plan.stripes, database, media_set_id, (&devices, &conduct.stores))?;
    let (data_key, keys) = fresh_key(&request.encrypt_to, media_set_id)?;
    let map_seed = match base.map() {
        Some(base) => Some(base.seed()),
        None => (request.kind == SetKind::Full).then(random_seed),
    };
    let set = SetHeader {
        format_version: FORMAT_VERSION,
        media_set_id,
        backup_set_id: session.set_id().unwrap_or_else(Uuid::now_v7),
        families: devices.len() as u16,
        cipher: if data_key.is_some() { CipherId::Aes256Gcm } else { CipherId::None },
        kind: request.kind,
        block_size: plan.block_size,
        transfer_size: plan.transfer_size,
        window: if source.has_ordered() { window_of(plan.workers, plan.transfer_size) } else { 0 },
        codec: (request.compression.codec().number(), request.compression.level()),
        started_at: jiff::Timestamp::now().as_microsecond(),
        engine: session.engine().into(),
        tool_version: env!("CARGO_PKG_VERSION").into(),
        base_backup_set_id: base.id(),
        label: label(request, database, data_key.is_some())?,
        keys,
        streams: manifest::stream_records(source, plan.transfer_size, request.kind),
        open: source.is_open(),
    };
    base::check(&set, base.map())?;
    report.media_set_id = Some(set.media_set_id.to_string());
    report.backup_set_id = Some(set.backup_set_id.to_string());
    report.allocated_bytes = allocated;
    report.hole_bytes = session.extra_work().hole_bytes.min(allocated);
    let expected_per_family = whole / devices.len() as u64;
    space::check_index(set.streams.iter().map(|stream| stream.size).sum(), devices.len(), plan.transfer_size)?;
    sinks::make_room(request, &devices, expected_per_family, report)?;
    if let Some(mirrored) = request.mirrored() {
        sinks::make_room(&mirrored, &mirrors, expected_per_family, report)?;
    }
    Ok(Prepared {
        devices,
        mirrors,
        plan,
        set,
        data_key,
        map_seed,
        base,
        allocated,
        expected_per_family,
        file_mode: Mode::from_environment()?,
    })
}

/// A new data key, and the key wrapped for each recipient; `None` without recipients.
pub(super) fn fresh_key(encrypt_to: &[PathBuf], media_set_id: Uuid) -> Result<(Option<DataKey>, Vec<WrappedKey>)> {
    if encrypt_to.is_empty() {
        return Ok((None, Vec::new()));
    }
    let key = DataKey::random()?;
    let keys = wrap_for(&recipients(encrypt_to)?, &key, media_set_id.as_bytes())?;
    Ok((Some(key), keys))
}

/// The public keys in these files.
///
/// # Errors
/// A file cannot be read, or is not a public key.
pub fn recipients(encrypt_to: &[PathBuf]) -> Result<Vec<PublicKey>> {
    encrypt_to.iter().map(|path| KeyFile::read(path).map(|file| file.public().clone())).collect()
}

/// 64 random bits of the system.
fn random_seed() -> u64 {
    // A version-4 UUID has 122 random bits; these two halves hide its six fixed ones.
    let (a, b) = (Uuid::new_v4().as_u64_pair(), Uuid::new_v4().as_u64_pair());
    a.0 ^ b.1.rotate_left(32) ^ a.1.rotate_left(17) ^ b.0
}

fn move_bytes(
    request: &Request,
    prepared: &Prepared,
    session: &dyn Session,
    within: Option<Within<'_>>,
    conduct: &Conduct,
    halt: &Halt,
    report: &mut Report,
) -> Result<(BackupOutcome, Option<Manifest>)> {
    if let Some(stores) = request.mirror.as_ref().map(|mirror| mirror.stores.clone()) {
        halt.on_stop(move || stores.stop());
    }
    let opened = report.timed("opening the families", |_| sinks::open(request, prepared, &conduct.stores));
    let mut sinks = opened.map_err(|error| conduct.why_halted(error))?;
    let mut on_volume = None;
    if let Some(volumes) = &conduct.volumes {
        sinks = sinks.into_iter().map(|sink| volumes.sink(sink, prepared.plan.queue_depth, halt)).collect();
        on_volume = volumes.source(session.source(), halt);
    }
    let total: u64 = session.source().streams().iter().map(|stream| stream.size).sum();
    conduct.progress.total.store(total, std::sync::atomic::Ordering::Relaxed);
    let warnings = report.warnings.clone();
    let (kept, point) = (OnceLock::new(), OnceLock::new());
    let manifest = || {
        let made = manifest::manifest(request, prepared, session, &warnings)?;
        let _ = point.set(PointReport::of(&made)); // Made once.
        if within.is_some() {
            let _ = kept.set(made.clone());
        }
        Ok(made)
    };
    let backup = Backup {
        plan: &prepared.plan,
        set: &prepared.set,
        compression: request.compression,
        data_key: prepared.data_key.as_ref(),
        map_seed: prepared.map_seed,
        base: prepared.base.map(),
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
    let named = if request.init { prepared.devices.len() } else { 1 };
    report.published(named, prepared.devices[0].is_in_store(), outcome.publishing);
    Ok((outcome, kept.into_inner()))
}

fn book(outcome: &BackupOutcome, prepared: &Prepared, session: &dyn Session, report: &mut Report) -> Result<()> {
    let facts = session.facts();
    for warning in facts.warnings {
        if !report.warnings.contains(&warning) {
            report.warnings.push(warning);
        }
    }
    report.writers_blocked_s = facts.writers_blocked.as_secs_f64();
    report.source_bytes = outcome.source_bytes;
    report.stored_bytes = outcome.stored_bytes;
    report.skipped_bytes = outcome.source_bytes.saturating_sub(outcome.data_bytes);
    report.allocated_bytes = prepared.allocated;
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
