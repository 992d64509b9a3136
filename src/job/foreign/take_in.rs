//! `copy` of media of other programs: each media set becomes one backup set of this program.

use std::time::Instant;

use fullbore_core::conduct::Conduct;
use fullbore_core::device::Device;
use fullbore_core::media::SetKind;
use fullbore_core::units::show_bytes;
use fullbore_core::{Error, Result};
use fullbore_engines::ForeignMediaSet;
use fullbore_engines::engine::DatabaseUrl;
use fullbore_engines::foreign_set::session::ForeignSession;
use fullbore_repository::discovery;
use fullbore_repository::format::SetRecord;
use uuid::Uuid;

use super::{ForeignDevices, stored};
use crate::job::backup::{self, Opened, Predecessor, Within};
use crate::job::copy::{self, Request};
use crate::report::{CopyReport, FamilyReport, Report};

/// The ways in which media are taken in, for reports: nothing has a place, pages have places, or a full has them too.
const AS_IT_IS: &str = "stored as it is";
const WHOLE: &str = "stored whole";
const DIFFERENT_PAGES: &str = "stored as the pages that differ";
const THERE: &str = "there already";

/// Takes media sets into directories or prefixes, each whole. Fills `report`, also when it fails.
///
/// # Errors
/// No media set can be taken in, or a set cannot be written.
pub fn take_in(found: &ForeignDevices, request: &Request, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let places: Vec<String> = request.to.iter().map(Device::to_string).collect();
    let there = discovery::find(&places, &conduct.stores).map(|found| found.known()).unwrap_or_default();
    each(found, request, conduct, report, &mut |set, report| {
        let mut usable = there.iter().filter(|known| known.incomplete.is_none()).map(|known| known.backup_set_id);
        if let Some(id) = usable.find(|id| set.is_stored_as(*id)) {
            is_there(set, id, report);
            return Ok(());
        }
        if request.dry_run {
            return plan(found, set, request, report);
        }
        let session = stored::open(found, set, request, conduct)?;
        write(&session, set, &backup_of(found, set, request)?, Predecessor::None, None, conduct, report).map(drop)
    })
}

/// Calls `take` for each media set that is complete. A media set that is not, or that is damaged, is left out by name.
///
/// # Errors
/// All of them are left out: then the first reason. Or `take` cannot write.
pub(in crate::job) fn each(
    found: &ForeignDevices,
    request: &Request,
    conduct: &Conduct,
    report: &mut Report,
    take: &mut dyn FnMut(&ForeignMediaSet, &mut Report) -> Result<()>,
) -> Result<()> {
    let begun = Instant::now();
    refuse_flags(request, found.media.title())?;
    conduct.progress.total.store(found.bytes(), std::sync::atomic::Ordering::Relaxed);
    let description = found.describe()?;
    report.warnings.extend(description.warnings);
    let mut media = description.media_sets;
    copy::refuse_one_name_for_many(request, media.len())?;
    // A full comes before what was made later.
    media.sort_by_cached_key(|set| set.sets.first().map(|first| first.order.clone()));
    let (mut left_out, mut taken) = (Vec::new(), 0_usize);
    for mut set in media {
        let done = match set.incomplete.take() {
            Some(error) => Err(error),
            None => take(&set, report),
        };
        match done {
            Ok(()) => taken += 1,
            Err(error @ (Error::Damaged { .. } | Error::Incomplete { .. })) => left_out.push(error),
            Err(error) => return Err(error),
        }
    }
    if request.dry_run {
        report.status = "planned".into();
    } else {
        report.set_speed(begun.elapsed().as_secs_f64());
    }
    if taken == 0 {
        return crate::job::verify::first(left_out, report);
    }
    let left_out = left_out.iter().map(|error| format!("not stored: {}; {}", error.one_line(), error.hint()));
    report.warnings.extend(left_out);
    Ok(())
}

/// Reports a media set that the target has.
pub(in crate::job) fn is_there(set: &ForeignMediaSet, id: Uuid, report: &mut Report) {
    report.notes.push(format!("{} is there already, and is not stored again", title(set)));
    let mut one = Report::begin("copy");
    one.backup_set_id = Some(id.to_string());
    book(set, THERE, &one, 0, report);
}

/// Reports a media set that would be taken in.
pub(in crate::job) fn plan(
    found: &ForeignDevices,
    set: &ForeignMediaSet,
    request: &Request,
    report: &mut Report,
) -> Result<()> {
    let bytes = found.bytes_of(&set.devices);
    report.stored_bytes += bytes;
    let mut one = Report::begin("copy");
    one.families = request
        .to
        .iter()
        .map(|place| FamilyReport { device: place.to_string(), bytes: 0, blake3: String::new() })
        .collect();
    book(set, "to be stored", &one, bytes, report);
    Ok(())
}

/// The backup that stores a media set whole.
///
/// # Errors
/// The devices to write to do not fit.
pub(in crate::job) fn backup_of(
    found: &ForeignDevices,
    set: &ForeignMediaSet,
    request: &Request,
) -> Result<backup::Request> {
    let first = set
        .sets
        .first()
        .ok_or_else(|| Error::incomplete(format!("media set {}", set.id), "has no backup set", "name other files"))?;
    let encrypt_to = if request.encrypt_to.is_empty() { &request.encrypt_plain_to } else { &request.encrypt_to };
    let mut knobs = request.reading.knobs.clone();
    knobs.throttle = request.throttle;
    Ok(backup::Request {
        to: request.to.clone(),
        stripes: request.stripes,
        compression: request.compression.unwrap_or_default(),
        knobs,
        // Only a full of the other program begins a chain of this one.
        copy_only: !set.sets.iter().any(|set| set.is_full),
        init: request.init,
        mkdir: request.mkdir,
        encrypt_to: encrypt_to.clone(),
        key: request.reading.key.clone(),
        name: first.summary.clone(),
        description: format!("media set {}", set.id),
        name_template: request.name_template.clone(),
        ..backup::Request::plain(DatabaseUrl::of_name(found.media.engine(), &first.database), SetKind::Full)
    })
}

/// Stores a media set; gives the record of the set if it went into a repository.
///
/// # Errors
/// Any error; then no usable set was left behind.
pub(in crate::job) fn write(
    session: &ForeignSession,
    set: &ForeignMediaSet,
    request: &backup::Request,
    base: Predecessor,
    within: Option<Within<'_>>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Option<SetRecord>> {
    let differs = base.map().is_some();
    let mut one = Report::begin("copy");
    let halt = conduct.halt();
    let written = backup::store(Opened { request, session, base }, within, conduct, &halt, &mut one);
    let verification = session.source.take_verification();
    if written.is_err() && session.refuses(&verification) {
        return crate::job::verify::first(verification.damage, report).map(|()| None);
    }
    let read = session.source.bytes();
    if written.is_ok() {
        let how = match session.source.has_files() {
            true if differs => DIFFERENT_PAGES,
            true => WHOLE,
            false => AS_IT_IS,
        };
        report.add_coverage(verification.coverage);
        one.notes.push(format!(
            "{}: {how}; {} of media became {}, {} saved",
            title(set),
            show_bytes(read),
            show_bytes(one.stored_bytes),
            show_bytes(read.saturating_sub(one.stored_bytes)),
        ));
        book(set, how, &one, read, report);
    }
    report.join(one);
    written
}

fn book(set: &ForeignMediaSet, how: &str, one: &Report, read_bytes: u64, report: &mut Report) {
    let copied = CopyReport {
        kind: one.kind.clone().unwrap_or_else(|| "full".into()),
        backup_set_id: one.backup_set_id.clone().unwrap_or_default(),
        database: set.sets.first().map(|first| first.database.clone()),
        how: how.to_owned(),
        from_media_set_id: set.id.clone(),
        media_set_id: one.media_set_id.clone().unwrap_or_default(),
        from_families: u16::try_from(set.devices.len()).unwrap_or(u16::MAX),
        families: one.families.iter().map(|family| family.device.clone()).collect(),
        read_bytes,
        stored_bytes: one.stored_bytes,
    };
    report.sets.push(copied.line());
    report.copied.push(copied);
}

/// A media set in messages, by the first of its backup sets.
pub(in crate::job) fn title(set: &ForeignMediaSet) -> String {
    let summary = set.sets.first().map_or("", |first| first.summary.as_str());
    format!("media set {} ({summary}, {})", set.id, set.devices.join(", "))
}

fn refuse_flags(request: &Request, title: &str) -> Result<()> {
    let choice = &request.reading.choice;
    let given = [
        ("--set", choice.set.is_some()),
        ("--latest", choice.latest),
        ("--chain", request.chain),
        ("--decrypt", request.decrypt),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        Some((flag, _)) => {
            let why = format!("does not work with a {title}: every media set is stored");
            Err(Error::usage(flag, why, "leave it out, and name the files with --from"))
        }
        None => Ok(()),
    }
}
