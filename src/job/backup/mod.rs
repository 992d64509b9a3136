//! BACKUP DATABASE: from a request to a committed backup set. [`run`] opens the database and chooses the base. Then
//! [`resolve`] fixes devices, keys and plan, [`moving`] moves the bytes, and [`within`] tells the repository.

pub(super) mod auto;
mod base;
mod claim;
pub(super) mod log_base;
pub(super) mod log_set;
mod manifest;
mod mirror;
mod moving;
mod planned;
mod resolve;
pub(super) mod sinks;
mod within;

use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::Result;
use fullbore_core::codec::Compression;
use fullbore_core::conduct::Conduct;
use fullbore_core::device::Device;
use fullbore_core::halt::Halt;
use fullbore_core::media::SetKind;
use fullbore_core::plan::Knobs;
use fullbore_engines::engine::DatabaseUrl;
use fullbore_engines::{GivenOptions, Options, Session};
use fullbore_repository::Repository;
use fullbore_repository::format::SetRecord;
use fullbore_repository::task::Task;

use super::exclusive;
use crate::report::Report;
pub use auto::Auto;
pub(super) use base::about_base;
pub use mirror::Mirror;
pub(super) use planned::encrypted_to;
pub use resolve::recipients;
pub(super) use resolve::{Opened, Predecessor, fresh_key, refuse_long};
pub use sinks::is_of_database;

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

/// Runs the backup and fills `report`, also when it fails. Into a repository, gives the record of the committed set;
/// otherwise, after `--dry-run` and if there is nothing to store, `None`.
///
/// # Errors
/// Any error, and a commit that the repository does not permit; then no usable set was left behind.
pub fn run(
    request: &Request,
    within: Option<Within<'_>>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Option<SetRecord>> {
    let request = &auto::chosen(request, 0, conduct, report)?;
    report.kind = Some(request.kind.to_string());
    report.database = Some(request.source.shown().to_owned());
    report.engine = Some(request.source.scheme().to_owned()).filter(|scheme| !scheme.is_empty());
    let halt = conduct.halt();
    let options = engine_options(request, &halt, conduct, report)?;
    let _exclusive = exclusive::take(request.source.shown(), &request.exclusive_name(), request.wait, conduct)?;
    let (session, base) = match request.kind {
        SetKind::Log => match log_set::open(request, &options, conduct, report)? {
            Some((session, base)) => (session as Box<dyn Session>, base),
            None => return Ok(None),
        },
        SetKind::Full | SetKind::Differential => {
            let candidates = base::candidates(request, &conduct.stores).map_err(|error| conduct.why_halted(error))?;
            // It may have to wait for a lock.
            let session = conduct.until_signalled(&halt, || request.source.open(&options))?;
            let base = Predecessor::among(candidates, &*session, request)?;
            (session, base)
        }
    };
    store(Opened { request, session: &*session, base }, within, conduct, &halt, report)
}

/// Stores a set of a database that the caller has opened, as [`run`] does.
///
/// # Errors
/// Any error; then no usable set was left behind.
pub(super) fn store(
    opened: Opened<'_>,
    within: Option<Within<'_>>,
    conduct: &Conduct,
    halt: &Halt,
    report: &mut Report,
) -> Result<Option<SetRecord>> {
    let resolved = opened.resolve(conduct, report)?;
    if resolved.request.dry_run {
        report.status = "planned".into();
        report.warnings.extend(resolved.session.facts().warnings);
        report.planned = Some(planned::planned(&resolved)?);
        report.stored_bytes = resolved.expected_per_family * resolved.devices.len() as u64;
        return Ok(None);
    }
    if let Some(within) = within {
        within.begins(&resolved)?;
    }
    let (outcome, manifest) = resolved.run(within, conduct, halt, report)?;
    let unread = resolved.session.facts().free_bytes + resolved.session.extra_work().hole_bytes;
    within.zip(manifest).map(|(within, manifest)| within.described(&resolved, &outcome, &manifest, unread)).transpose()
}

/// Checks that there is enough memory for the backup; gives the options for the engine.
///
/// # Errors
/// There is not enough.
pub(super) fn engine_options(
    request: &Request,
    halt: &Halt,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Options> {
    let plan = claim::claimed(request, request.families(), 0, conduct, report)?;
    Ok(Options {
        lock_timeout: request.lock_timeout,
        halt: Some(halt.clone()),
        readers: plan.readers,
        media_encrypted: !request.encrypt_to.is_empty(),
        continue_after_error: request.continue_after_error,
        given: request.engine_options.clone(),
    })
}

impl Request {
    /// A backup of this kind with the default of every setting, and without a place to go to.
    pub fn plain(source: DatabaseUrl, kind: SetKind) -> Self {
        Self {
            source,
            to: Vec::new(),
            stripes: None,
            compression: Compression::default(),
            auto: None,
            knobs: Knobs::default(),
            kind,
            copy_only: false,
            base: Vec::new(),
            init: false,
            mkdir: false,
            wait: false,
            dry_run: false,
            measure_limit: false,
            encrypt_to: Vec::new(),
            key: None,
            name: String::new(),
            description: String::new(),
            media_name: String::new(),
            mirror: None,
            name_template: None,
            own_template: None,
            lock_timeout: Duration::ZERO,
            continue_after_error: false,
            engine_options: GivenOptions::default(),
        }
    }

    /// The number of families, before their lengths are known.
    fn families(&self) -> usize {
        self.stripes.unwrap_or_else(|| self.places())
    }

    /// What only one backup at a time may hold. A server has one name, whatever account and options are used. A log backup
    /// may run beside a full, but only one log backup.
    fn exclusive_name(&self) -> String {
        let name = self.source.name();
        if self.kind == SetKind::Log { format!("{name}#log") } else { name.to_owned() }
    }

    fn is_differential(&self) -> bool {
        self.kind == SetKind::Differential
    }
}
