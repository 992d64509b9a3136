//! An upload into a repository: a set whose bytes come from other programs, as a run that other hosts see.

use fullbore_core::conduct::Conduct;
use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};
use fullbore_engines::UploadSession;
use fullbore_repository::format::SetRecord;
use fullbore_repository::hidden;
use fullbore_repository::{self, Repository};

use super::Setting;
use super::backup::refuse_names_of_many_sets;
use crate::job::backup::{self, Opened, Predecessor, Within};
use crate::report::Report;

/// The families of a request.
pub fn families(request: &backup::Request) -> usize {
    request.stripes.unwrap_or(request.to.len()).max(1)
}

/// Writes the set, until the upload is complete. Gives its record when the set is durable.
///
/// # Errors
/// Any error, and an upload that ends without being complete; then no usable set was left behind.
pub fn write(
    session: &UploadSession,
    request: &backup::Request,
    setting: Setting<'_>,
    conduct: &Conduct,
    halt: &Halt,
    report: &mut Report,
) -> Result<SetRecord> {
    let name_template = hidden::template(setting.config, setting.name, request.name_template.clone())?;
    refuse_names_of_many_sets(request.init, name_template.as_deref())?;
    let places = fullbore_repository::places(setting.name, setting.config)?;
    let repository = Repository::open_to_write(setting.name, places, &conduct.stores)?;
    let request = &backup::Request { to: repository.places.clone(), name_template, ..request.clone() };
    let database = Some(request.source.name().to_owned());
    let record = setting.as_task(&repository, "gateway", database, conduct, report, |task, report| {
        let within = Some(Within { repository: &repository, task, second: None });
        let opened = Opened { request, session, base: Predecessor::None };
        backup::store(opened, within, conduct, halt, report)
    })?;
    let record = record.ok_or(Error::Halted)?;
    setting.describe(&repository, record.clone(), &mut report.warnings);
    Ok(record)
}
