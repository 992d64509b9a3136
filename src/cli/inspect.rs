//! `fullbore inspect` and `fullbore list`.

use fullbore::config::Config;
use fullbore::job::inspect::{self, Remarks, SetSummary};
use fullbore::job::repository::list::ListedSet;
use fullbore::job::repository::{self, Setting};
pub(super) use fullbore::report::WITH_WARNINGS;
use fullbore::{Error, Result};
use fullbore_core::conduct::Conduct;
use fullbore_core::media::Manifest;
use serde::Serialize;

use super::args::{Inspect, Inspected, InspectedMedia, List, SetState};
use super::foreign::Question;
use super::listing::newest;
use super::{show, tables};

/// Sets as an object.
#[derive(Serialize)]
struct Sets<'a, T> {
    sets: &'a [T],
    warnings: &'a [String],
    notes: &'a [String],
}

/// Manifests as an object.
#[derive(Serialize)]
struct Manifests<'a> {
    manifests: &'a [Manifest],
    warnings: &'a [String],
}

/// Runs `inspect`; gives the exit code.
pub fn run(args: &Inspect, config: &Config) -> Result<u8> {
    let (media, question) = match &args.what {
        Inspected::Files(media) => (media, Question::Files),
        Inspected::Header(media) => (media, Question::Header),
        Inspected::Label(media) => (media, Question::Label),
    };
    let from = [&media.place[..], &media.from].concat();
    let conduct = Conduct { stores: super::stores(config)?, ..Conduct::default() };
    if let Some(found) = super::foreign::find_or_pipe(&from, media.key.as_deref(), config, &conduct)? {
        return super::foreign::inspect(&found.describe()?, found.media.title(), question, media);
    }
    super::foreign::refuse_file(media.file)?;
    match &args.what {
        Inspected::Files(media) => files(media, config),
        Inspected::Header(media) => headers("inspect header", media, config, show::headers),
        Inspected::Label(media) => headers("inspect label", media, config, show::labels),
    }
}

fn files(media: &InspectedMedia, config: &Config) -> Result<u8> {
    let (from, key) = ([&media.place[..], &media.from].concat(), media.key.clone().or_else(|| config.key.clone()));
    let (manifests, notes) = inspect::manifests(&from, key.as_ref(), &super::stores(config)?)?;
    if media.shown.write("inspect files", &Manifests { manifests: &manifests, warnings: &notes })? {
        show::files(&manifests);
    }
    notes.iter().for_each(|note| show::warning(note));
    Ok(if notes.is_empty() { 0 } else { WITH_WARNINGS })
}

fn headers(command: &str, media: &InspectedMedia, config: &Config, show: impl Fn(&[SetSummary])) -> Result<u8> {
    let (sets, remarks) = inspect::header(&[&media.place[..], &media.from].concat(), &super::stores(config)?)?;
    let Remarks { warnings, notes, .. } = &remarks;
    if media.shown.write(command, &Sets { sets: &sets, warnings, notes })? {
        show(&sets);
    }
    Ok(remarked(&remarks, false))
}

/// Prints the remarks; gives the exit code.
fn remarked(remarks: &Remarks, quiet: bool) -> u8 {
    remarks.warnings.iter().for_each(|warning| show::warning(warning));
    if !quiet {
        remarks.notes.iter().for_each(|note| show::note(note));
    }
    if remarks.warnings.is_empty() && !remarks.incomplete { 0 } else { WITH_WARNINGS }
}

/// Runs `list`; gives the exit code.
pub fn list(args: &List, config: &Config) -> Result<u8> {
    if let Some(name) = &args.repository.repo {
        return list_repository(name, args, config);
    }
    let from = [&args.place[..], &args.from].concat();
    let conduct = Conduct { stores: super::stores(config)?, ..Conduct::default() };
    if let Some(found) = super::foreign::find(&from, None, config, &conduct)? {
        return super::foreign::list(&found.describe()?, found.media.title(), args);
    }
    if args.stop_at.is_some() {
        let why = "is for backup files of SQL Server";
        return Err(Error::usage(
            "--stop-at",
            why,
            "leave it out; `fullbore restore --dry-run --stop-at` shows the sets",
        ));
    }
    let (mut sets, remarks) = inspect::header(&from, &conduct.stores)?;
    sets.retain(|set| is_asked(args.state, set.complete));
    let sets = newest(sets, args.last);
    let Remarks { warnings, notes, .. } = &remarks;
    if args.shown.report.write("list", &Sets { sets: &sets, warnings, notes })? {
        let shown: Vec<SetSummary> = sets.into_iter().filter(|set| !args.shown.quiet || !set.complete).collect();
        if !args.shown.quiet || !shown.is_empty() {
            show::table(&tables::found_sets(&shown, args.shown.view()));
        }
    }
    Ok(remarked(&remarks, args.shown.quiet))
}

fn is_asked(state: Option<SetState>, complete: bool) -> bool {
    state.is_none_or(|state| complete == (state == SetState::Complete))
}

fn list_repository(name: &str, args: &List, config: &Config) -> Result<u8> {
    let conduct = super::stop_on_signals(&config.of_repository(name))?;
    let database = args.repository.database.as_deref();
    let key = args.key.as_deref();
    let mut listing = repository::list::list(Setting { name, config }, database, args.catalog, key, &conduct)?;
    listing.sets.retain(|set| is_asked(args.state, set.why_incomplete.is_none()));
    let sets = newest(listing.sets, args.last);
    let (warnings, notes) = (&listing.warnings[..], &listing.notes[..]);
    if args.shown.report.write("list", &Sets { sets: &sets, warnings, notes })? {
        let shown: Vec<ListedSet> = sets.into_iter().filter(|set| !args.shown.quiet || !tables::is_good(set)).collect();
        if !args.shown.quiet || !shown.is_empty() {
            show::table(&tables::sets(&shown, args.shown.view()));
        }
    }
    warnings.iter().for_each(|warning| show::warning(warning));
    if !args.shown.quiet {
        notes.iter().for_each(|note| show::note(note));
    }
    Ok(if warnings.is_empty() { 0 } else { WITH_WARNINGS })
}
