//! Follows a log into a repository: one task for as long as it runs, with leases on the sets that it continues.

use fullbore_core::Result;
use fullbore_core::store::Stores;
use uuid::Uuid;

use super::backup::{ids_of, lease, refuse_fixed_names, renew_locks, sets_to_continue};
use super::{Setting, databases};
use crate::job::backup::{Request, Within};
use crate::job::follow::{self, Event, Following, Home};
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_repository::Repository;
use fullbore_repository::format::SetRecord;
use fullbore_repository::hidden;
use fullbore_repository::task::{LeaseState, Task};

/// The most notes, and the most warnings, that a follower keeps.
const REMARKS_MOST: usize = 100;

/// Follows a log into a repository until it is asked to end; see [`follow::follow`].
///
/// # Errors
/// Those of [`follow::follow`], and those of the repository.
pub fn run(
    request: &Following,
    setting: Setting<'_>,
    conduct: &Conduct,
    stores: &Stores,
    told: &dyn Fn(Event),
    report: &mut Report,
) -> Result<()> {
    refuse_fixed_names(&request.backup)?;
    let places = fullbore_repository::places(setting.name, setting.config)?;
    fullbore_repository::make_directories(&places, request.backup.mkdir)?;
    // These ignore the signal: the last set and the end of the task are written after it.
    let repository = Repository::open_to_write(setting.name, places, stores)?.hiding(setting.config)?;
    let name_template = hidden::template(setting.config, setting.name, request.backup.name_template.clone())?;
    let backup = Request { to: repository.places.clone(), name_template, ..request.backup.clone() };
    let request = Following { backup, ..request.clone() };
    let database = Some(request.backup.source.name().to_owned());
    let lasting = Conduct { stores: stores.clone(), ..conduct.clone() };
    setting.as_task(&repository, follow::COMMAND, database, &lasting, report, |task, report| {
        task.lasts();
        let (foundation, tips) = (Vec::new(), Vec::new());
        let home = RepositoryHome { setting, repository: &repository, task, foundation, tips, unrecorded: None };
        follow::follow_into(&request, Some(Box::new(home)), conduct, stores, told, report)
    })
}

/// The repository that a follower writes into.
struct RepositoryHome<'a> {
    setting: Setting<'a>,
    repository: &'a Repository,
    task: &'a Task,
    /// The full, and perhaps its differential, that the sets depend on.
    foundation: Vec<Uuid>,
    /// These, and the newest set of the chain.
    tips: Vec<Uuid>,
    /// A set whose record could not be written yet: until then no other set may depend on it.
    unrecorded: Option<SetRecord>,
}

impl Home for RepositoryHome<'_> {
    fn within(&self) -> Within<'_> {
        Within { repository: self.repository, task: self.task, second: None }
    }

    fn bases(&mut self, request: &Request, conduct: &Conduct, report: &mut Report) -> Result<Vec<String>> {
        let inventory = self.setting.inventory(self.repository, conduct, &mut report.warnings)?;
        let database = self.repository.named(request.source.name());
        let engine = request.source.scheme();
        if databases::here(&inventory.sets, engine, &database).is_empty() {
            return Ok(Vec::new());
        }
        let tips = sets_to_continue(&inventory, engine, &database)?;
        lease(&tips, self.task, self.repository)?;
        self.foundation = ids_of(&tips);
        self.tips.clone_from(&self.foundation);
        self.renew_locks(conduct, report)?;
        let mut families = Vec::new();
        for tip in &tips {
            families.extend(tip.devices(self.repository)?.iter().map(ToString::to_string));
        }
        Ok(families)
    }

    fn renew_locks(&self, conduct: &Conduct, report: &mut Report) -> Result<()> {
        let mut said = Report::default();
        let renewed = renew_locks(&self.tips, self.repository, self.setting, conduct, &mut said);
        // A follower runs for months.
        for (known, more) in [(&mut report.notes, said.notes), (&mut report.warnings, said.warnings)] {
            let room = REMARKS_MOST.saturating_sub(known.len());
            let new: Vec<String> = more.into_iter().filter(|text| !known.contains(text)).take(room).collect();
            known.extend(new);
        }
        renewed
    }

    fn ground(&mut self) -> Result<LeaseState> {
        if let Some(record) = &self.unrecorded {
            self.repository.describe(record)?;
            self.unrecorded = None;
        }
        self.task.ground()
    }

    fn forsake(&mut self) {
        self.foundation.clear();
        self.tips.clear();
        self.task.goes_on_from(Vec::new());
    }

    fn committed(&mut self, record: Option<SetRecord>, report: &mut Report) {
        let Some(record) = record else { return };
        if record.base.is_none() {
            self.foundation = vec![record.backup_set_id];
        }
        let mut needs = self.foundation.clone();
        needs.push(record.backup_set_id);
        needs.dedup();
        self.tips.clone_from(&needs);
        self.task.goes_on_from(needs);
        self.setting.catalogue(self.repository, record.clone(), &mut report.warnings);
        if let Err(error) = self.repository.describe(&record) {
            report.warnings.push(format!("cannot write the record of the set: {}", error.one_line()));
            self.unrecorded = Some(record);
        }
    }
}
