//! Everything that a backup decides before its first byte: its base, its devices, its keys and its plan.

use std::path::PathBuf;

use fullbore_core::cipher::{CipherId, DataKey, KeyFile, PublicKey, WrappedKey, wrap_for};
use fullbore_core::conduct::Conduct;
use fullbore_core::device::Device;
use fullbore_core::io::Mode;
use fullbore_core::media::{FORMAT_VERSION, Label, SetHeader, SetKind};
use fullbore_core::order::window_of;
use fullbore_core::plan::{Knobs, Plan};
use fullbore_core::unpack::BaseMap;
use fullbore_core::{Error, Result};
use fullbore_engines::{Identity, Session};
use uuid::Uuid;

use super::base::{self, Candidates};
use super::planned::encrypted_to;
use super::{Request, claim, manifest, mirror, sinks};
use crate::job::space;
use crate::report::Report;

/// What a new set depends on.
pub(in crate::job) enum Predecessor {
    /// Nothing: a full.
    None,
    /// The full of a differential, by its page map.
    Full(Box<BaseMap>),
    /// The set that a log set continues.
    Set(Uuid),
}

impl Predecessor {
    /// The best of these fulls for the open `session`; nothing without candidates.
    ///
    /// # Errors
    /// None of them can be the base.
    pub fn among(candidates: Option<Candidates>, session: &dyn Session, request: &Request) -> Result<Self> {
        let base = candidates.map(|candidates| candidates.choose(session, request)).transpose()?;
        Ok(base.map_or(Self::None, |base| Self::Full(Box::new(base))))
    }

    /// What a set of the open `session` depends on, by its request.
    ///
    /// # Errors
    /// The request names no set that can be the base.
    pub fn of(request: &Request, session: &dyn Session, conduct: &Conduct) -> Result<Self> {
        let candidates = base::candidates(request, &conduct.stores).map_err(|error| conduct.why_halted(error))?;
        Self::among(candidates, session, request)
    }

    pub fn map(&self) -> Option<&BaseMap> {
        match self {
            Predecessor::Full(map) => Some(map),
            Predecessor::None | Predecessor::Set(_) => None,
        }
    }

    pub fn id(&self) -> Option<Uuid> {
        match self {
            Predecessor::None => None,
            Predecessor::Full(map) => Some(map.backup_set_id()),
            Predecessor::Set(id) => Some(*id),
        }
    }
}

/// A backup whose database is open and whose base is chosen.
pub(in crate::job) struct Opened<'a> {
    /// What the user asked for.
    pub request: &'a Request,
    /// The open database.
    pub session: &'a dyn Session,
    /// What the new set depends on.
    pub base: Predecessor,
}

/// Everything known before the first byte is read.
pub(super) struct Resolved<'a> {
    pub request: &'a Request,
    pub session: &'a dyn Session,
    pub devices: Vec<Device>,
    /// The second devices of the same families; empty without `--copy-to`.
    pub mirrors: Vec<Device>,
    pub plan: Plan,
    pub set: SetHeader,
    pub data_key: Option<DataKey>,
    pub map_seed: Option<u64>,
    pub base: Predecessor,
    pub allocated: u64,
    pub expected_per_family: u64,
    /// It may be much less.
    pub expected_is_most: bool,
    pub file_mode: Mode,
}

impl<'a> Opened<'a> {
    /// Fixes devices, keys and plan, and checks that there is room.
    pub(super) fn resolve(self, conduct: &Conduct, report: &mut Report) -> Result<Resolved<'a>> {
        let Self { request, session, base } = self;
        let source = session.source();
        report.is_of_database_at(session.database_at());
        let database = request.source.identity();
        let media_set_id = Uuid::now_v7();
        let allocated =
            source.streams().iter().map(|stream| stream.size).sum::<u64>().saturating_sub(session.facts().free_bytes);
        let of_full = || space::expected(source, allocated, request.compression);
        let expected = base.map().map_or_else(of_full, |_| Ok(space::Expected::default()))?;
        let plan = fitting_plan(request, request.families(), expected.bytes, conduct, report)?;
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
        let expected_per_family = expected.bytes / devices.len() as u64;
        space::check_index(set.streams.iter().map(|stream| stream.size).sum(), devices.len(), plan.transfer_size)?;
        sinks::make_room(request, &devices, expected, report)?;
        if let Some(mirrored) = request.mirrored() {
            sinks::make_room(&mirrored, &mirrors, expected.times(mirrors.len() / devices.len().max(1)), report)?;
        }
        report.encrypted_to = encrypted_to(&set.keys, &request.encrypt_to);
        if session.holds_a_part() && !request.copy_only {
            report.notes.push("it holds a part of the database, so it is marked as --copy-only".into());
        }
        Ok(Resolved {
            request,
            session,
            devices,
            mirrors,
            plan,
            set,
            data_key,
            map_seed,
            base,
            allocated,
            expected_per_family,
            expected_is_most: expected.is_most,
            file_mode: Mode::from_environment()?,
        })
    }
}

/// The plan with these knobs, for families of an expected length in bytes (0: not known yet).
pub(super) fn plan_with(request: &Request, knobs: &Knobs, stripes: usize, per_family: u64) -> Result<Plan> {
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

/// A new data key, and the key wrapped for each recipient; `None` without recipients.
pub(in crate::job) fn fresh_key(
    encrypt_to: &[PathBuf],
    media_set_id: Uuid,
) -> Result<(Option<DataKey>, Vec<WrappedKey>)> {
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
