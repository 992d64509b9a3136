//! Takes media of other programs into a repository.

use fullbore_core::conduct::Conduct;
use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};
use fullbore_engines::ForeignMediaSet;
use fullbore_repository::hidden;
use fullbore_repository::inventory::{Inventory, StoredSet};
use fullbore_repository::{self, Repository};
use uuid::Uuid;

use super::Setting;
use super::backup::{self as into_repository, Wanted};
use crate::job::backup::{self, Predecessor, Within};
use crate::job::copy::Request;
use crate::job::foreign::{self, ForeignDevices, stored};
use crate::report::Report;

/// Takes the media sets into a repository. A full of a database that has a full there is stored as the pages that
/// differ. Fills `report`, also when it fails.
///
/// # Errors
/// No media set can be taken in, a set cannot be written, or those of the repository.
pub fn run(
    found: &ForeignDevices,
    request: &Request,
    setting: Setting<'_>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    into_repository::refuse_names_of_many_sets(request.init, request.name_template.as_deref())?;
    let places = fullbore_repository::places(setting.name, setting.config)?;
    fullbore_repository::make_directories(&places, request.mkdir && !request.dry_run)?;
    let opened = match request.dry_run {
        true => Repository::open_or_plan(setting.name, places, &conduct.stores),
        false => Repository::open_to_write(setting.name, places, &conduct.stores),
    };
    let opened = opened.and_then(|repository| repository.hiding(setting.config));
    let repository = opened.map_err(|error| conduct.why_halted(error))?;
    let name_template = hidden::template(setting.config, setting.name, request.name_template.clone())?;
    let request = &Request { to: repository.places.clone(), name_template, ..request.clone() };
    let inventory = match repository.id.is_nil() {
        true => Inventory::default(), // It does not exist yet.
        false => setting.inventory(&repository, conduct, &mut report.warnings)?,
    };
    // Media that were damaged are no reason to leave out good ones.
    let is_good = |set: &&StoredSet| {
        let position = set.record.position.last.value();
        set.is_usable() && fullbore_engines::damaged_at_source(&set.record.engine, &position).is_none()
    };
    let usable = inventory.sets.iter().filter(is_good);
    let there = usable.map(|set| set.record.backup_set_id).collect();
    let mut target = Target { found, request, setting, repository, inventory, there, is_old: false };
    foreign::each(found, request, conduct, report, &mut |set, report| target.take(set, conduct, report))
}

/// The repository while media are taken in.
struct Target<'a> {
    found: &'a ForeignDevices,
    request: &'a Request,
    setting: Setting<'a>,
    repository: Repository,
    inventory: Inventory,
    /// The sets that it has.
    there: Vec<Uuid>,
    /// True if sets were added since the inventory was taken.
    is_old: bool,
}

impl Target<'_> {
    fn take(&mut self, set: &ForeignMediaSet, conduct: &Conduct, report: &mut Report) -> Result<()> {
        // A set that is incomplete or damaged does not count: the media are taken in again, as a set of their own.
        if let Some(id) = self.there.iter().find(|id| set.is_stored_as(**id)) {
            foreign::is_there(set, *id, report);
            return Ok(());
        }
        if self.request.dry_run {
            return foreign::plan(self.found, set, self.request, report);
        }
        let session = stored::open(self.found, set, self.request, conduct)?;
        let mut backup = foreign::backup_of(self.found, set, self.request)?;
        let base = match set.has_pages_by_place && !backup.copy_only {
            true => self.base(&backup, conduct, report)?,
            false => None,
        };
        let predecessor = match &base {
            Some(base) => self.predecessor(&mut backup, base, &session, conduct, report)?,
            None => Predecessor::None,
        };
        // The full may have been refused.
        let base: Vec<StoredSet> = base.into_iter().filter(|_| backup.kind == SetKind::Differential).collect();
        let (repository, setting) = (&self.repository, self.setting);
        let database = Some(backup.source.name().to_owned());
        let record = setting.as_task(repository, "copy", database, conduct, report, |task, report| {
            into_repository::lease(&base, task, repository)?;
            into_repository::renew_locks(&into_repository::ids_of(&base), repository, setting, conduct, report)?;
            let within = Some(Within { repository, task, second: None });
            foreign::write(&session, set, &backup, predecessor, within, conduct, report)
        })?;
        if let Some(record) = record {
            setting.describe(repository, record, &mut report.warnings);
        }
        self.there.push(session.id);
        self.is_old = true;
        Ok(())
    }

    /// The full in the repository that a full of the same database is compared with.
    fn base(&mut self, backup: &backup::Request, conduct: &Conduct, report: &mut Report) -> Result<Option<StoredSet>> {
        if std::mem::take(&mut self.is_old) {
            self.inventory = self.setting.inventory(&self.repository, conduct, &mut Vec::new())?;
        }
        let database = self.repository.named(backup.source.name());
        into_repository::choose_base(&self.inventory, Wanted::Auto, backup, &database, self.setting, report)
    }

    /// The page map of this full. Without one, the media are stored whole: that is always possible.
    fn predecessor(
        &self,
        backup: &mut backup::Request,
        base: &StoredSet,
        session: &dyn fullbore_engines::Session,
        conduct: &Conduct,
        report: &mut Report,
    ) -> Result<Predecessor> {
        let devices = base.devices(&self.repository)?;
        backup.kind = SetKind::Differential;
        backup.base = devices.iter().map(ToString::to_string).collect();
        match Predecessor::of(backup, session, conduct) {
            Err(error @ (Error::Cancelled { .. } | Error::Halted)) => Err(error),
            Err(error) => {
                report.notes.pop(); // It named the full.
                report.notes.push(format!("stored whole: {}", error.one_line()));
                (backup.kind, backup.base) = (SetKind::Full, Vec::new());
                Ok(Predecessor::None)
            }
            predecessor => predecessor,
        }
    }
}
