//! BACKUP DATABASE: from a request to a committed backup set.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fullbore_core::cipher::{CipherId, DataKey, KeyFile, wrap_for};
use fullbore_core::codec::Compression;
use fullbore_core::device::{Device, Place};
use fullbore_core::halt::Halt;
use fullbore_core::io::Mode;
use fullbore_core::media::{
    Label, Manifest, ManifestFamily, ManifestMap, ManifestStream, Position, SetHeader, SetKind, StreamRecord,
};
use fullbore_core::pipeline::{Backup, BackupOutcome, map_window};
use fullbore_core::plan::{Knobs, Plan};
use fullbore_core::pool::Pool;
use fullbore_core::sink::{self, Sink};
use fullbore_core::source::Source;
use fullbore_core::unpack::BaseMap;
use fullbore_core::{Error, Result};
use fullbore_engines::{Options, Session};
use uuid::Uuid;

use super::names::{DEFAULT_TEMPLATE, NameFields};
use super::{Conduct, estimate, exclusive, limit, media, memory, names, recover};
use crate::chain;
use crate::report::{FamilyReport, PoolReport, PositionReport, Report};

/// What the user asked for.
#[derive(Clone)]
pub struct Request {
    /// `sqlite:PATH`.
    pub source: String,
    /// `--to`.
    pub to: Vec<Device>,
    /// `--stripes`.
    pub stripes: Option<usize>,
    /// `--compression`.
    pub compression: Compression,
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
    /// `--name-template`.
    pub name_template: Option<String>,
    /// `--lock-timeout`.
    pub lock_timeout: Duration,
    /// `--max-wal-growth` in bytes.
    pub max_wal_growth: u64,
}

/// Everything known before the first byte is read.
struct Prepared {
    devices: Vec<Device>,
    plan: Plan,
    set: SetHeader,
    data_key: Option<DataKey>,
    map_seed: Option<u64>,
    base: Option<BaseMap>,
    allocated: u64,
    expected_per_family: u64,
    file_mode: Mode,
}

/// Runs the backup and fills `report`, also when it fails.
///
/// # Errors
/// Whatever stops it; then nothing usable was left behind.
pub fn run(request: &Request, conduct: &Conduct, report: &mut Report) -> Result<()> {
    report.kind = Some(request.kind.to_string());
    report.database = Some(request.source.clone());
    report.engine = request.source.split_once(':').map(|(scheme, _)| scheme.to_owned());
    let path = path_of(&request.source);
    let identity =
        std::fs::canonicalize(path).map_or_else(|_| request.source.clone(), |path| path.display().to_string());
    let plan = plan(request)?;
    report.pool = PoolReport {
        buffer_count: plan.buffer_count() as u64,
        max_transfer_size: plan.transfer_size.into(),
        bytes: plan.pool_bytes(),
    };
    memory::check(plan.pool_bytes(), plan.buffer_count(), plan.transfer_size, plan.codec_bytes)?;
    let _exclusive = exclusive::take(&request.source, &identity, request.wait, conduct)?;
    let halt = Halt::new();
    let options = Options {
        lock_timeout: request.lock_timeout,
        max_wal_growth: request.max_wal_growth,
        halt: Some(halt.clone()),
    };
    let base = base(request)?;
    // It may have to wait for a lock.
    let session = conduct.heeded(&halt, || fullbore_engines::open(&request.source, &options))?;
    let prepared = prepare(request, plan, base, &*session, report)?;
    if request.dry_run {
        report.status = "planned".into();
        report.stored_bytes = prepared.expected_per_family * prepared.devices.len() as u64;
        return Ok(());
    }
    let raw = if request.measure_limit {
        Some(limit::measure(session.source(), &prepared.devices, &prepared.plan, request.compression, conduct)?)
    } else {
        None
    };
    let begun = Instant::now();
    let outcome = move_bytes(request, &prepared, &*session, conduct, &halt, report)?;
    book(&outcome, &prepared, &*session, report)?;
    report.set_speed(begun.elapsed().as_secs_f64());
    report.limit = raw.map(|raw| limit::limit_of(&raw, report.source_bytes, report.stored_bytes, report.mib_per_s));
    Ok(())
}

/// The part of a URL behind its scheme.
fn path_of(source: &str) -> &str {
    source.split_once(':').map_or(source, |(_, path)| path)
}

fn plan(request: &Request) -> Result<Plan> {
    let stripes = request.stripes.unwrap_or(request.to.len());
    Plan::backup(&request.knobs, stripes, request.compression, request.kind == SetKind::Differential)
}

fn prepare(
    request: &Request,
    plan: Plan,
    base: Option<BaseMap>,
    session: &dyn Session,
    report: &mut Report,
) -> Result<Prepared> {
    let source = session.source();
    let path = path_of(&request.source);
    let media_set_id = Uuid::now_v7();
    let devices = devices(request, path, media_set_id)?;
    let data_key = if request.encrypt_to.is_empty() { None } else { Some(DataKey::random()?) };
    let keys = match &data_key {
        None => Vec::new(),
        Some(key) => {
            let read = |path: &PathBuf| KeyFile::read(path).map(|file| file.public().clone());
            let recipients = request.encrypt_to.iter().map(read).collect::<Result<Vec<_>>>()?;
            wrap_for(&recipients, key, media_set_id.as_bytes())?
        }
    };
    let map_seed = match &base {
        Some(base) => Some(base.seed()),
        None => (request.kind == SetKind::Full).then(random_seed),
    };
    let allocated =
        source.streams().iter().map(|stream| stream.size).sum::<u64>().saturating_sub(session.facts().free_bytes);
    let label =
        Label { name: request.name.clone(), description: request.description.clone(), database: path.to_owned() };
    let set = SetHeader {
        media_set_id,
        backup_set_id: Uuid::now_v7(),
        families: devices.len() as u16,
        cipher: if data_key.is_some() { CipherId::Aes256Gcm } else { CipherId::None },
        kind: request.kind,
        block_size: plan.block_size,
        transfer_size: plan.transfer_size,
        codec: (request.compression.codec().number(), request.compression.level()),
        started_at: jiff::Timestamp::now().as_microsecond(),
        engine: session.engine().into(),
        tool_version: env!("CARGO_PKG_VERSION").into(),
        base_backup_set_id: base.as_ref().map(BaseMap::backup_set_id),
        label: data_key.is_none().then_some(label),
        keys,
        streams: stream_records(source, plan.transfer_size, request.kind),
    };
    check_base(&set, base.as_ref())?;
    report.media_set_id = Some(set.media_set_id.to_string());
    report.backup_set_id = Some(set.backup_set_id.to_string());
    report.allocated_bytes = allocated;
    let whole = if base.is_some() { 0 } else { estimate::stored_bytes(source, allocated, request.compression)? };
    let expected_per_family = whole / devices.len() as u64;
    estimate::check_index(set.streams.iter().map(|stream| stream.size).sum(), devices.len(), plan.transfer_size)?;
    estimate::check_room(&devices, expected_per_family)?;
    Ok(Prepared {
        devices,
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

/// 64 bits from the system's randomness.
fn random_seed() -> u64 {
    // A version-4 UUID has 122 random bits; these two halves hide its six fixed ones.
    let (a, b) = (Uuid::new_v4().as_u64_pair(), Uuid::new_v4().as_u64_pair());
    a.0 ^ b.1.rotate_left(32) ^ a.1.rotate_left(17) ^ b.0
}

fn devices(request: &Request, path: &str, media_set_id: Uuid) -> Result<Vec<Device>> {
    let stem = Path::new(path).file_stem();
    let database = stem.map_or_else(|| "database".into(), |stem| stem.to_string_lossy().into_owned());
    let set_id = media_set_id.to_string();
    let fields =
        NameFields { database: &database, kind: request.kind, started: jiff::Timestamp::now(), set_id: &set_id };
    let template = request.name_template.as_deref().unwrap_or(DEFAULT_TEMPLATE);
    let devices = names::devices(&request.to, request.stripes, template, &fields)?;
    refuse_the_source(&devices, path)?;
    Ok(devices)
}

/// A backup must not be written over the database or its side files.
fn refuse_the_source(devices: &[Device], path: &str) -> Result<()> {
    let Ok(source) = std::fs::canonicalize(path) else { return Ok(()) };
    let sides = ["", "-wal", "-shm", "-journal"].map(|end| {
        let mut name = source.clone().into_os_string();
        name.push(end);
        Device::file(name).identity()
    });
    match devices.iter().find(|device| device.identity().is_some() && sides.contains(&device.identity())) {
        Some(device) => Err(Error::usage(
            device.to_string(),
            "is the database itself, or a file that belongs to it",
            "name another file or directory",
        )),
        None => Ok(()),
    }
}

fn stream_records(source: &dyn Source, transfer_size: u32, kind: SetKind) -> Vec<StreamRecord> {
    let window = |unit| if kind == SetKind::Full { map_window(unit, transfer_size) } else { 0 };
    let streams = source.streams().iter();
    let record = |stream: &fullbore_core::source::Stream| StreamRecord {
        id: stream.id,
        layer: 0,
        unit: stream.unit,
        map_window: window(stream.unit),
        size: stream.size,
    };
    streams.map(record).collect()
}

/// The page map of the full that a differential is made against.
fn base(request: &Request) -> Result<Option<BaseMap>> {
    match (request.kind, request.base.is_empty()) {
        (SetKind::Full, true) => return Ok(None),
        (SetKind::Full, false) => {
            return Err(Error::usage("--base", "only a differential has a base", "add --kind differential"));
        }
        (SetKind::Log, _) => {
            return Err(Error::usage("--kind log", "this engine has no log backups yet", "take --kind differential"));
        }
        (SetKind::Differential, true) => {
            return Err(Error::usage(
                "--kind differential",
                "the full that it belongs to is not named",
                "name its families with --base",
            ));
        }
        (SetKind::Differential, false) => {}
    }
    let source = path_of(&request.source);
    let heap = media::find(&request.base).map_err(about_base)?;
    let key = media::read_key(request.key.as_deref())?;
    let nothing = Pool::new(0, 4096)?;
    let mut passed_over = String::new();
    let fulls = heap.sets.iter().rev().filter(|found| found.set.kind == SetKind::Full);
    for found in fulls {
        if let Some(why) = &found.set.incomplete {
            passed_over.push_str(&format!("\n    {}: {why}", chain::title(&found.set)));
            continue;
        }
        let set = media::open_set(found, &nothing, 1, key.as_ref())?;
        if let Some(other) =
            set.manifest().map(|manifest| &manifest.database).filter(|name| !same_file_name(name, source))
        {
            passed_over.push_str(&format!("\n    {}: of another database, `{other}`", chain::title(&found.set)));
            continue;
        }
        if set.manifest().is_some_and(|manifest| manifest.copy_only) {
            passed_over.push_str(&format!("\n    {}: taken with --copy-only", chain::title(&found.set)));
            continue;
        }
        let base = BaseMap::open(set)?;
        if base.is_encrypted() && request.encrypt_to.is_empty() {
            return Err(Error::usage(
                "--kind differential",
                "its full is encrypted, and this differential would be written in clear",
                "name the recipients with --encrypt-to",
            ));
        }
        return Ok(Some(base));
    }
    let why = if passed_over.is_empty() {
        "no full was found there".to_owned()
    } else {
        format!("no full there can be the base:{passed_over}")
    };
    Err(Error::incomplete("--base", why, "take a full first, and name its families"))
}

/// A database may be named by different paths, but not by different file names.
fn same_file_name(one: &str, other: &str) -> bool {
    Path::new(one).file_name() == Path::new(other).file_name()
}

/// Errors of a search speak of `--from`; here the families follow `--base`.
fn about_base(error: Error) -> Error {
    let rename = |thing: String| thing.replace("--from", "--base");
    match error {
        Error::Usage { thing, why, hint } => Error::Usage { thing: rename(thing), why, hint: rename(hint) },
        Error::Refused { thing, why, hint } => Error::Refused { thing: rename(thing), why, hint: rename(hint) },
        Error::Incomplete { thing, why, hint } => Error::Incomplete { thing: rename(thing), why, hint: rename(hint) },
        other => other,
    }
}

fn check_base(set: &SetHeader, base: Option<&BaseMap>) -> Result<()> {
    let Some(base) = base else { return Ok(()) };
    for stream in &set.streams {
        let same =
            base.streams().iter().find(|known| known.id == stream.id).is_some_and(|known| known.unit == stream.unit);
        if !same {
            return Err(Error::refused(
                format!("base {}", base.backup_set_id()),
                "the database has another page size now than when this full was taken",
                "take a full (--kind full)",
            ));
        }
    }
    Ok(())
}

/// `--init` replaces families, also damaged ones, and nothing else: a mistyped name must not cost a file of another kind.
fn refuse_foreign(path: &Path) -> Result<()> {
    if !path.is_file() || media::begins_like_a_family(path) {
        return Ok(());
    }
    Err(Error::refused(
        path.display().to_string(),
        "is no media family, and --init replaces nothing else",
        "choose another name, or remove the file yourself",
    ))
}

fn open_sinks(request: &Request, prepared: &Prepared, report: &mut Report) -> Result<Vec<Box<dyn Sink>>> {
    report.warnings.extend(recover::recover(&prepared.devices)?);
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    for device in &prepared.devices {
        let old_set_id = match device.place() {
            Place::File(path) if request.init => {
                refuse_foreign(path)?;
                let old = recover::set_of(path);
                if old.is_some() && old == prepared.base.as_ref().map(BaseMap::media_set_id) {
                    return Err(Error::usage(
                        device.to_string(),
                        "is the full that this differential belongs to, and --init would replace it",
                        "name another file: a differential is worth nothing without its full",
                    ));
                }
                old.map(|id| id.to_string())
            }
            _ => None,
        };
        let options = sink::Options {
            old_set_id,
            init: request.init,
            mkdir: request.mkdir,
            expected_size: Some(prepared.expected_per_family).filter(|&bytes| bytes > 0),
            queue_depth: prepared.plan.queue_depth,
            mode: prepared.file_mode,
            ..sink::Options::new(prepared.set.media_set_id.to_string())
        };
        // A sink that is dropped removes what it made.
        sinks.push(sink::open(device, options)?);
    }
    Ok(sinks)
}

fn move_bytes(
    request: &Request,
    prepared: &Prepared,
    session: &dyn Session,
    conduct: &Conduct,
    halt: &Halt,
    report: &mut Report,
) -> Result<BackupOutcome> {
    let sinks = open_sinks(request, prepared, report)?;
    let total: u64 = session.source().streams().iter().map(|stream| stream.size).sum();
    conduct.progress.total.store(total, std::sync::atomic::Ordering::Relaxed);
    let warnings = report.warnings.clone();
    let backup = Backup {
        plan: &prepared.plan,
        set: &prepared.set,
        compression: request.compression,
        data_key: prepared.data_key.as_ref(),
        map_seed: prepared.map_seed,
        base: prepared.base.as_ref(),
        init: request.init,
        source: session.source(),
        progress: &conduct.progress,
        halt,
        tick: &|| conduct.check(),
        manifest: &|| manifest(request, prepared, session, &warnings),
    };
    backup.run(sinks)
}

fn manifest(request: &Request, prepared: &Prepared, session: &dyn Session, warnings: &[String]) -> Result<Manifest> {
    let set = &prepared.set;
    let time = |micros: i64| jiff::Timestamp::from_microsecond(micros).map(|time| time.to_string()).unwrap_or_default();
    let position = session.position()?;
    let facts = session.facts();
    let more = facts.warnings.into_iter().filter(|known| !warnings.contains(known));
    Ok(Manifest {
        schema: 0,
        tool_version: set.tool_version.clone(),
        engine: set.engine.clone(),
        engine_version: facts.library,
        host: super::host(),
        database: path_of(&request.source).to_owned(),
        kind: set.kind,
        copy_only: request.copy_only,
        media_set_id: set.media_set_id,
        backup_set_id: set.backup_set_id,
        base_backup_set_id: set.base_backup_set_id,
        name: request.name.clone(),
        description: request.description.clone(),
        started_at: time(set.started_at),
        finished_at: jiff::Timestamp::now().to_string(),
        codec: request.compression.to_string(),
        block_size: set.block_size,
        transfer_size: set.transfer_size,
        families: manifest_families(&prepared.devices),
        streams: manifest_streams(set, session.source()),
        map: prepared.map_seed.filter(|_| set.kind == SetKind::Full).map(ManifestMap::new),
        position: Position { first: position.clone(), checkpoint: position.clone(), last: position },
        warnings: warnings.iter().cloned().chain(more).collect(),
    })
}

fn manifest_families(devices: &[Device]) -> Vec<ManifestFamily> {
    let numbered = devices.iter().zip(1..);
    numbered.map(|(device, family)| ManifestFamily { family, device: device.to_string() }).collect()
}

fn manifest_streams(set: &SetHeader, source: &dyn Source) -> Vec<ManifestStream> {
    let name = |id: u16| {
        let stream = source.streams().iter().find(|stream| stream.id == id);
        stream.map_or_else(String::new, |stream| stream.name.clone())
    };
    let described = |stream: &StreamRecord| ManifestStream {
        id: stream.id,
        name: name(stream.id),
        layer: stream.layer,
        unit: stream.unit,
        map_window: stream.map_window,
        size: stream.size,
    };
    set.streams.iter().map(described).collect()
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
        report.families.push(FamilyReport { device: family.device.clone(), bytes: family.bytes, blake3: hex });
        report.add_device(&family.device, &family.account);
    }
    let position = session.position()?;
    report.position = Some(PositionReport { first: position.clone(), checkpoint: position.clone(), last: position });
    Ok(())
}
