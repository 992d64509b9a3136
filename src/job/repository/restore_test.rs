//! A test restore: restores the newest chain into a scratch place, opens it there, and records the verdict.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fullbore_core::{Error, Result};
use fullbore_engines::engine::{Depth, SetOptions};

use super::Setting;
use super::databases::{meant, to_choose_from};
use super::restore::ChosenChain;
use super::scratch::Scratch;
use crate::job::reading::Reading;
use crate::job::repository::verify::put_verdict;
use crate::job::restore::{self, Check, Into};
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_core::units::counted;
use fullbore_repository::Repository;
use fullbore_repository::format::VerdictRecord;
use fullbore_repository::inventory::StoredSet;
use fullbore_repository::times::JudgedReading;

/// What the user asked for.
#[derive(Clone)]
pub struct Request {
    /// `--database`; `None`: the only one.
    pub database: Option<String>,
    /// `--key`, `--set`, BUFFERCOUNT and the like.
    pub reading: Reading,
    /// `--scratch`: the place for the restored database, which is removed afterwards. Leftovers of killed test restores
    /// in it are removed too.
    pub scratch: PathBuf,
    /// The options that the engine of the set has.
    pub set_options: SetOptions,
}

/// Restores the newest chain of a database, opens it, removes it; fills `report`, also when it fails.
///
/// # Errors
/// The chain cannot be restored, or the restored database cannot be opened: this is then its verdict.
pub fn run(request: &Request, setting: Setting<'_>, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let repository = setting.open(conduct)?;
    let inventory = setting.inventory(&repository, conduct, &mut report.warnings)?;
    let set = request.reading.choice.set.as_deref();
    let database = meant(&repository, &inventory.sets, request.database.as_deref());
    let sets = to_choose_from(&inventory.sets, database.as_deref(), set, &repository.name)?;
    let chain = ChosenChain::among(sets, &request.reading, &repository, report)?;
    let scratch = Scratch::make(&request.scratch, report)?;
    let restore = restored_into(scratch.path(), &chain, request);
    let ids = chain.ids();
    report.engine = chain.engine();
    setting.as_task(&repository, "restore-test", chain.database(), conduct, report, |task, report| {
        task.lease(&ids)?;
        let begun = Instant::now();
        let titles = chain.titles();
        let reading = JudgedReading::begin(&repository, chain.sets.iter().map(|set| &set.record))?;
        let done = restore::run(&restore, conduct, report).and_then(|()| opened(&restore.into, &titles));
        if is_no_verdict(&done) {
            return done;
        }
        let began = match &done {
            Ok(()) => {
                report.warnings.extend(reading.end(&repository)?);
                Some(reading.began()?)
            }
            Err(_) => None,
        };
        let verdict = VerdictRecord {
            by: "restore-test".into(),
            host: fullbore_core::resources::host(),
            elapsed_s: begun.elapsed().as_secs_f64(),
            error: done.as_ref().err().map(|error| format!("{error}\n  chain: {}", titles.join("; "))),
        };
        for set in judged(&verdict, &chain, &repository) {
            put_verdict(&repository, set.record.backup_set_id, "proven", &verdict, began)?;
        }
        if done.is_ok() {
            let (sets, took) = (counted(ids.len() as u64, "set"), verdict.elapsed_s);
            report
                .notes
                .push(format!("the chain of {sets} was restored and opened in {took:.1} s: recorded as proven"));
        }
        done
    })
}

/// The sets that the verdict is about. Of a good chain: all. Else the sets whose family the error names, or the last
/// set, which cannot be restored whichever set is bad.
fn judged<'a>(verdict: &VerdictRecord, chain: &ChosenChain<'a>, repository: &Repository) -> Vec<&'a StoredSet> {
    let Some(error) = &verdict.error else { return chain.sets.clone() };
    let is_named = |set: &&StoredSet| {
        let devices = set.devices(repository).unwrap_or_default();
        devices.iter().any(|device| error.contains(&device.to_string()))
    };
    let named: Vec<&StoredSet> = chain.sets.iter().copied().filter(is_named).collect();
    if named.is_empty() { chain.sets.last().copied().into_iter().collect() } else { named }
}

/// The restore that proves a chain; for a server, it starts one on the restored directory.
fn restored_into(scratch: &Path, chain: &ChosenChain<'_>, request: &Request) -> restore::Request {
    let engine = chain.sets.last().and_then(|set| fullbore_engines::named(&set.record.engine));
    let file = engine.filter(|engine| engine.file().is_some());
    let media = engine.and_then(|engine| fullbore_engines::files_of(engine.name()));
    let into = match (file, media) {
        (Some(engine), _) => Into::File { engine: engine.name(), path: scratch.join("restored.db") },
        (None, Some(scheme)) => Into::Media { scheme, directory: scratch.join("restored") },
        (None, None) => Into::Directory(scratch.join("restored")),
    };
    restore::Request {
        mkdir: media.is_some(),
        data_directory: true,
        check: (file.is_none() && media.is_none()).then_some(Check::Full),
        set_options: if file.is_none() { request.set_options.clone() } else { SetOptions::default() },
        ..restore::Request::plain(chain.reading.clone(), into)
    }
}

/// True if the run says nothing about the chain: it was stopped, or this machine cannot restore it or start its server.
fn is_no_verdict(done: &Result<()>) -> bool {
    !matches!(done, Ok(()) | Err(Error::Damaged { .. } | Error::Incomplete { .. }))
}

/// Lets the engine look at every page and index of a restored file.
fn opened(restored: &Into, chain: &[String]) -> Result<()> {
    let Into::File { engine, path } = restored else { return Ok(()) };
    restore::found_by_check(engine, path, Depth::Full)?.map_or(Ok(()), |why| {
        let hint = "the database was damaged when it was backed up: check the database, and back it up again";
        Err(Error::incomplete(chain.join("; "), why, hint))
    })
}
