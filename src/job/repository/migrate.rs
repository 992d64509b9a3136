//! A migration as a task of a repository, which stores nothing of it: others see the task, and can end it.

use fullbore_core::Result;
use fullbore_core::conduct::Conduct;
use fullbore_repository::Repository;

use super::Setting;
use crate::job::migrate::{self, Event, Request};
use crate::report::Report;

/// Migrates as a task; see [`migrate::run`].
///
/// # Errors
/// Those of [`migrate::run`], and those of the repository.
pub fn run(
    request: &Request,
    setting: Setting<'_>,
    conduct: &Conduct,
    told: &dyn Fn(Event),
    report: &mut Report,
) -> Result<()> {
    let places = fullbore_repository::places(setting.name, setting.config)?;
    let repository = Repository::open_to_write(setting.name, places, &conduct.stores)?.hiding(setting.config)?;
    let database = Some(request.source.name().to_owned());
    setting.as_task(&repository, migrate::COMMAND, database, conduct, report, |task, report| {
        task.lasts();
        migrate::run(request, conduct, told, report)
    })
}
