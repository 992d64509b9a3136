//! A backup into a repository: it finds its base there, and coordinates its commit with other hosts.

use std::collections::HashSet;

use fullbore_core::device::Destination;
use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::copy_to::{self, Second};
use super::hints::of_repository;
use super::restore::is_logical;
use super::{Setting, databases};
use crate::job::backup::{self, Request, Within};
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_core::units::counted;
use fullbore_engines::LogEngine;
use fullbore_engines::engine::FAIL_OVER_FROM;
use fullbore_repository::chain::{self, Choice, FoundSet};
use fullbore_repository::hidden;
use fullbore_repository::inventory::{Inventory, StoredSet};
use fullbore_repository::task::Task;
use fullbore_repository::{self, Repository};

/// fullbore takes a full when the last differential was larger than this share of its full: then two differentials cost
/// more than a full.
const DIFFERENTIAL_SHARE: f64 = 0.5;

/// What `--kind` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// A full.
    Full,
    /// What changed since the newest full of this database.
    Differential,
    /// What was committed since the newest set of the chain.
    Log,
    /// The same, if this set is in the chain; otherwise what was committed since this set.
    LogBehind(Uuid),
    /// A full if the repository has no full, or if the last differential was large; else a differential.
    Auto,
}

/// Backs up into a repository, and into a second one in the same pass; fills `report`, also when it fails.
///
/// # Errors
/// Those of [`backup::run`], and those of the repository.
pub fn run(
    request: &Request,
    wanted: Wanted,
    setting: Setting<'_>,
    copy_to: Option<Setting<'_>>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let name_template = hidden::template(setting.config, setting.name, request.name_template.clone())?;
    let request = &Request { name_template, ..request.clone() };
    refuse_fixed_names(request)?;
    let places = fullbore_repository::places(setting.name, setting.config)?;
    let kind = match wanted {
        // The chosen settings have to fit both kinds.
        Wanted::Auto => SetKind::Differential,
        _ => request.kind,
    };
    let mirrored = copy_to.map(copy_to::places).transpose()?.map_or(0, |places| places.len());
    let to_places = Request { to: places.clone(), kind, ..request.clone() };
    let advised = backup::auto::chosen(&to_places, mirrored, conduct, report)?;
    let request = &advised;
    let planned = copy_to.filter(|_| request.dry_run).map(|second| copy_to::planned(second, request, conduct));
    let mut request = Request { mirror: planned.transpose()?, kind: SetKind::Full, ..request.clone() };
    if request.dry_run && Repository::open(setting.name, places.clone(), &conduct.stores).is_err() {
        // A dry run creates nothing.
        return backup::run(&Request { to: places, ..request }, None, conduct, report).map(drop);
    }
    fullbore_repository::make_directories(&places, request.mkdir && !request.dry_run)?;
    let repository = Repository::open_to_write(setting.name, places, &conduct.stores);
    let repository = repository.and_then(|repository| repository.hiding(setting.config));
    let repository = repository.map_err(|error| conduct.why_halted(error))?;
    let second = copy_to.filter(|_| !request.dry_run);
    let second = second.map(|second| Second::open(second, &repository, &request, conduct)).transpose()?;
    request.mirror = second.as_ref().map(|second| second.mirror(&request)).transpose()?.or(request.mirror);
    request.to.clone_from(&repository.places);
    let database = request.source.name().to_owned();
    let (bases, copies) = choose_bases(&mut request, wanted, setting, (&repository, second.as_ref()), conduct, report)?;
    for base in &bases {
        request.base.extend(base.devices(&repository)?.iter().map(ToString::to_string));
    }
    if request.dry_run {
        // A dry run is not a task that other hosts see.
        let planned = backup::run(&request, None, conduct, report);
        return planned.map(drop).map_err(|error| of_repository(error, setting.name));
    }
    setting.as_task(&repository, "backup", Some(database.clone()), conduct, report, |task, report| {
        lease(&bases, task, &repository)?;
        renew_locks(&ids_of(&bases), &repository, setting, conduct, report)?;
        let write = |second: Option<(&Repository, &Task)>, report: &mut Report| {
            let within = Within { repository: &repository, task, second };
            backup::run(&request, Some(within), conduct, report).map_err(|error| of_repository(error, setting.name))
        };
        let committed = match &second {
            None => write(None, report)?,
            Some(second) => second.beside(&copies, &database, conduct, report, |there, task, report| {
                write(Some((there, task)), report)
            })?,
        };
        let Some(record) = committed else { return Ok(()) };
        setting.describe(&repository, record, &mut report.warnings);
        Ok(())
    })
}

/// The sets that the backup depends on, in both repositories; sets its kind.
fn choose_bases(
    request: &mut Request,
    wanted: Wanted,
    setting: Setting<'_>,
    (repository, second): (&Repository, Option<&Second<'_>>),
    conduct: &Conduct,
    report: &mut Report,
) -> Result<(Vec<StoredSet>, Vec<StoredSet>)> {
    let database = repository.named(request.source.name());
    let mut bases = match wanted {
        Wanted::Full => Vec::new(),
        Wanted::Differential | Wanted::Auto => {
            let inventory = setting.inventory(repository, conduct, &mut report.warnings)?;
            request.kind = SetKind::Differential;
            choose_base(&inventory, wanted, request, &database, setting, report)?.into_iter().collect()
        }
        Wanted::Log => {
            let inventory = setting.inventory(repository, conduct, &mut report.warnings)?;
            request.kind = SetKind::Log;
            sets_to_continue(&inventory, request.source.scheme(), &database)?
        }
        Wanted::LogBehind(id) => {
            let inventory = setting.inventory(repository, conduct, &mut report.warnings)?;
            request.kind = SetKind::Log;
            sets_behind(id, &inventory, request.source.scheme(), &database)?
        }
    };
    let copies = second.map_or(Ok(Vec::new()), |second| second.holding(&bases, conduct, &mut report.warnings));
    let copies = match copies {
        Err(missing @ Error::Incomplete { .. }) if wanted == Wanted::Auto => {
            report.notes.pop(); // It named the full of the differential.
            report.notes.push(format!("takes a full instead: {}", missing.one_line()));
            bases.clear();
            Vec::new()
        }
        copies => copies?,
    };
    if bases.is_empty() {
        request.kind = SetKind::Full;
    }
    Ok((bases, copies))
}

/// Leases the sets that a new set will depend on. A set that was found by its media alone gets its record: with the
/// record, the commit of the new set can check that its base still exists.
pub(super) fn lease(bases: &[StoredSet], task: &Task, repository: &Repository) -> Result<()> {
    bases.iter().filter(|base| !base.recorded).try_for_each(|base| repository.describe(&base.record))?;
    task.lease(&ids_of(bases))
}

/// The ids of these sets.
pub(super) fn ids_of(sets: &[StoredSet]) -> Vec<Uuid> {
    sets.iter().map(|set| set.record.backup_set_id).collect()
}

/// If new sets are locked, the sets that this one depends on are locked for as long: a base must stay as long as the
/// sets that need it.
pub(super) fn renew_locks(
    bases: &[Uuid],
    repository: &Repository,
    setting: Setting<'_>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let Some(until) = repository.stores.locks_until() else { return Ok(()) };
    if bases.is_empty() {
        return Ok(());
    }
    let inventory = setting.inventory(repository, conduct, &mut report.warnings)?;
    let (mut renewed, mut asked) = (0, HashSet::new());
    let mut next = bases.to_vec();
    while let Some(id) = next.pop() {
        let Some(set) = inventory.sets.iter().find(|set| set.record.backup_set_id == id) else { continue };
        if !asked.insert(id) {
            continue;
        }
        next.extend(set.record.base);
        let mut longer = false;
        for device in set.devices(repository)? {
            if let Destination::Object { bucket, key } = device.place() {
                longer |= repository.stores.bucket(bucket)?.extend_lock(key)?;
            }
        }
        renewed += usize::from(longer);
    }
    if renewed > 0 {
        report.notes.push(format!("also locked until {until}: {} that this set needs", counted(renewed as u64, "set")));
    }
    Ok(())
}

/// Refuses names that are the same for several sets: nothing is ever overwritten in a repository.
pub(super) fn refuse_fixed_names(request: &Request) -> Result<()> {
    refuse_names_of_many_sets(request.init, request.name_template.as_deref())
}

/// The same for any writer.
pub(super) fn refuse_names_of_many_sets(init: bool, name_template: Option<&str>) -> Result<()> {
    if init {
        let why = "nothing is ever overwritten in a repository";
        return Err(Error::usage("--init", why, "leave it out; `fullbore prune` removes what is no longer needed"));
    }
    match name_template {
        Some(template) if !template.contains("{id}") && !template.contains("{set}") => Err(Error::usage(
            format!("--name-template {template}"),
            "gives several sets the same name",
            "add {id} or {set} to the template: names in a repository must be different",
        )),
        _ => Ok(()),
    }
}

/// The newest full of the database that a differential may be based on; nothing when a full is to be taken.
pub(super) fn choose_base(
    inventory: &Inventory,
    wanted: Wanted,
    request: &Request,
    database: &str,
    setting: Setting<'_>,
    report: &mut Report,
) -> Result<Option<StoredSet>> {
    let engine = request.source.scheme();
    let ours = databases::here(&inventory.sets, engine, database);
    let logical = fullbore_engines::named(engine).and_then(|engine| engine.logical());
    if wanted == Wanted::Auto && logical.is_some_and(|logical| logical.is_wanted(&request.engine_options)) {
        report.notes.push("takes a full: a logical backup has no differentials".into());
        return Ok(None);
    }
    let may_be_base = |set: &&&StoredSet| set.record.kind == SetKind::Full && !set.record.copy_only && !is_logical(set);
    let fulls = ours.iter().filter(may_be_base).filter(|set| set.is_usable());
    let damaged = ours.iter().filter(may_be_base).filter(|set| set.is_damaged() && !set.tombstone);
    report.warnings.extend(damaged.map(|set| nothing_is_based_on(set, setting.name)));
    let Some(base) = fulls.max_by_key(|set| set.began_at()) else {
        if wanted == Wanted::Auto {
            report.notes.push(format!("takes a full: the repository has no full of `{database}` that can be a base"));
            report.notes.extend(databases::elsewhere(&inventory.sets, engine, database));
            return Ok(None);
        }
        return Err(no_full("--kind differential", inventory, engine, database));
    };
    let id = base.record.backup_set_id;
    let differentials =
        ours.iter().filter(|set| set.record.base == Some(id) && set.record.kind == SetKind::Differential);
    let last = differentials.max_by_key(|set| set.began_at());
    let share = setting.config.repository.get(setting.name).and_then(|repository| repository.differential_share);
    let share = share.unwrap_or(DIFFERENTIAL_SHARE);
    if let (Some(last), Wanted::Auto) = (last, wanted) {
        let grown = last.stored_bytes() as f64 / base.stored_bytes().max(1) as f64;
        if grown > share {
            let percent = |share: f64| (share * 100.0).round();
            let note = format!(
                "takes a full: the last differential had {} % of its full, more than {} % (differential-share)",
                percent(grown),
                percent(share)
            );
            report.notes.push(note);
            return Ok(None);
        }
    }
    if wanted == Wanted::Auto {
        report.notes.push(format!("takes a differential of full {id}"));
    }
    Ok(Some((*base).clone()))
}

fn nothing_is_based_on(set: &StoredSet, name: &str) -> String {
    let (title, id) = (super::title(&set.record), set.record.backup_set_id);
    format!(
        "{title} was found damaged and cannot be a base: verify it again with `fullbore verify --repo {name} --set {id}`, \
         or let prune remove it"
    )
}

/// The repository has no set to continue; perhaps with the reason.
fn no_full(asked: &str, inventory: &Inventory, engine: &str, database: &str) -> Error {
    let why = format!("the repository has no usable full of `{database}` (complete, not --copy-only, not damaged)");
    let why = match databases::elsewhere(&inventory.sets, engine, database) {
        Some(elsewhere) => format!("{why}; {elsewhere}"),
        None => why,
    };
    let fails_over = fullbore_engines::named(engine).is_some_and(|engine| engine.options().contains(&&FAIL_OVER_FROM));
    let hint = match fails_over && asked == "--kind log" {
        true => {
            "take a full first: --kind full; or, if this server is a promoted replica, name the database that it \
                 continues: --fail-over-from NAME"
        }
        false => "take a full first: --kind full, or --kind auto",
    };
    Error::incomplete(asked, why, hint)
}

/// The sets that a log may continue: the newest set that can be restored, and the sets that it depends on. Where the log
/// outlives fulls, also the newest log set: the log between it and a newer full is in no set yet.
///
/// # Errors
/// The repository has no such set.
pub(super) fn sets_to_continue(inventory: &Inventory, engine: &str, database: &str) -> Result<Vec<StoredSet>> {
    let (ours, chain) = newest_chain(inventory, engine, database)?;
    let ends = chain.last().copied();
    let bases = chain.iter().copied().filter(|set| {
        set.record.kind != SetKind::Log && Some(set.record.backup_set_id) != ends.map(|set| set.record.backup_set_id)
    });
    let outlives = fullbore_engines::log(engine).is_some_and(LogEngine::outlives_fulls);
    let tip =
        ours.iter().filter(|_| outlives).copied().filter(|set| set.record.kind == SetKind::Log && set.is_usable());
    let tip = tip.max_by_key(|set| set.began_at());
    let tip = tip.filter(|tip| Some(tip.record.backup_set_id) != ends.map(|set| set.record.backup_set_id));
    Ok(bases.chain(tip).chain(ends).cloned().collect())
}

/// The same for a target that has the set `id`: a newer chain that does not continue it does not matter.
fn sets_behind(id: Uuid, inventory: &Inventory, engine: &str, database: &str) -> Result<Vec<StoredSet>> {
    let is_it = |set: &&StoredSet| set.record.backup_set_id == id && set.is_usable();
    let is_newest = newest_chain(inventory, engine, database).is_ok_and(|(_, chain)| chain.iter().any(is_it));
    match databases::here(&inventory.sets, engine, database).into_iter().find(is_it).filter(|_| !is_newest) {
        Some(set) => Ok(vec![set.clone()]),
        None => sets_to_continue(inventory, engine, database),
    }
}

/// The sets of a database that may be in a chain, and the newest chain, in the order of a restore.
fn newest_chain<'a>(
    inventory: &'a Inventory,
    engine: &str,
    database: &str,
) -> Result<(Vec<&'a StoredSet>, Vec<&'a StoredSet>)> {
    let ours = databases::here(&inventory.sets, engine, database);
    if ours.is_empty() {
        return Err(no_full("--kind log", inventory, engine, database));
    }
    // A log set never continues a set that is outside of the chain.
    let ours: Vec<&StoredSet> = ours.into_iter().filter(|set| !set.record.copy_only).collect();
    let known: Vec<_> = ours.iter().map(|set| if_usable(set)).collect();
    let sequence = chain::choose(&known, &Choice { latest: true, ..Choice::default() }).map_err(nothing_to_continue)?;
    let chain = sequence.sets.iter().map(|&at| ours[at]).collect();
    Ok((ours, chain))
}

/// A set as a candidate to continue: a set with a tombstone, or a damaged one, counts as incomplete.
fn if_usable(set: &StoredSet) -> FoundSet {
    let found = set.found();
    let why =
        if set.tombstone { Some("it is being removed") } else { set.is_damaged().then_some("it was found damaged") };
    FoundSet { incomplete: found.incomplete.or(why.map(str::to_owned)), ..found }
}

/// The chain that the log would continue has a gap. A restore can stop before it, but a backup begins a new chain.
fn nothing_to_continue(error: Error) -> Error {
    match error {
        Error::Incomplete { thing, why, .. } => {
            Error::incomplete(thing, why, "take a new full or differential, and continue from it")
        }
        error => error,
    }
}
