//! RESTORE DATABASE: from families to a database that gets its name only when it is whole.

mod directory;
mod file;
mod log;
mod logical;
mod media;
pub(in crate::job) mod new_directory;
mod object;
mod outside;
mod owner;
mod other_tables;
pub mod refresh;
mod replay;
mod resume;
mod start;
mod state;
mod steps;
pub(in crate::job) mod stop;
mod table;
mod unfinished;

use std::path::{Path, PathBuf};
use std::time::Instant;

use fullbore_core::cipher::SecretKey;
use fullbore_core::device::Device;
use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{LogStop, ONLY_TABLE, PLACE_OUTSIDE, SetOptions, refuse_target_options};
use fullbore_engines::{ENGINES, FOREIGN_MEDIA, GivenOptions};

pub(in crate::job) use file::found_by_check;
use owner::Owner;

use super::reading::{self, Media, Reading};
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_core::units::{counted, show_bytes};
use fullbore_repository::chain::steps::RestoredState;
use fullbore_repository::chain::{self, Choice};
use fullbore_repository::discovery;

/// Names for the verdict of work other than moving bytes.
const SYNCING: &str = "syncing the database";
const CHECKING: &str = "integrity check";

/// The target of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Into {
    /// `sqlite:FILE`: a database that is one file.
    File {
        /// The engine's name.
        engine: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// `dir:PATH`: the database's file in it, under the name it had.
    Directory(PathBuf),
    /// `bak:DIRECTORY`: the files of another program that a set holds, under their names.
    Media {
        /// The word before the colon.
        scheme: &'static str,
        /// The directory.
        directory: PathBuf,
    },
    /// `mysql://…`: a running server, which takes rows and statements.
    Server {
        /// The engine's name.
        engine: &'static str,
        /// The URL, without options of the engine.
        url: String,
    },
    /// `nul:`: everything is read and unpacked, and nothing is kept.
    Null,
}

impl Into {
    /// Parses the value of `--into`.
    ///
    /// # Errors
    /// A usage error that names the known forms.
    pub fn parse(text: &str) -> Result<Self> {
        let files = || ENGINES.iter().filter(|engine| engine.file().is_some()).map(|engine| engine.name());
        let wrong = |why: &str| {
            let known: String = files().map(|engine| format!("{engine}:FILE, ")).collect();
            let media: String = FOREIGN_MEDIA.iter().map(|media| format!("{}:DIRECTORY ", media.scheme())).collect();
            Error::usage(
                format!("--into {}", fullbore_engines::without_password(text)),
                why,
                format!("write {known}dir:PATH, {media}{}:DIRECTORY or nul:", fullbore_engines::OBJECT),
            )
        };
        match text.split_once(':') {
            Some(("dir", "")) => Err(wrong("the path is missing")),
            Some(("dir", path)) => Ok(Into::Directory(path.into())),
            Some(("nul", "")) => Ok(Into::Null),
            Some((scheme, path)) if let Some(media) = of_media(scheme) => match path {
                "" => Err(wrong("the path is missing")),
                path => Ok(Into::Media { scheme: media, directory: path.into() }),
            },
            Some((scheme, path)) => match fullbore_engines::named(scheme).map(|engine| (engine, engine.file())) {
                Some((_, Some(_))) if path.is_empty() => Err(wrong("the path is missing")),
                Some((engine, Some(_))) => {
                    refuse_target_options(engine, path)?;
                    Ok(Into::File { engine: engine.name(), path: path.into() })
                }
                Some((engine, None)) if engine.logical().is_some() => {
                    Ok(Into::Server { engine: engine.name(), url: text.to_owned() })
                }
                Some((_, None)) => Err(wrong("this version cannot restore into such a server")),
                None => Err(wrong("this is not a target")),
            },
            None => Err(wrong("this is not a target")),
        }
    }
}

impl std::fmt::Display for Into {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { engine, path } => write!(out, "{engine}:{}", path.display()),
            Self::Directory(path) => write!(out, "dir:{}", path.display()),
            Self::Media { scheme, directory } => write!(out, "{scheme}:{}", directory.display()),
            Self::Server { url, .. } => out.write_str(&fullbore_engines::without_password(url)),
            Self::Null => out.write_str("nul:"),
        }
    }
}

/// The scheme of media of another program, if this is one.
fn of_media(scheme: &str) -> Option<&'static str> {
    let known = FOREIGN_MEDIA.iter().map(|media| media.scheme());
    known.chain([fullbore_engines::OBJECT]).find(|known| *known == scheme)
}

/// The error if a set of `engine` cannot go into a file of the engine `asked`.
fn of_another_engine(asked: &str, path: &Path, engine: &str) -> Error {
    let hint = "restore its files into a directory: --into dir:PATH";
    Error::usage(format!("--into {asked}:{}", path.display()), format!("the set is a backup of {engine}"), hint)
}

/// Whether the restored files are a usable database at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Recovery {
    /// Yes: the restore is done in one step.
    #[default]
    AtOnce,
    /// `--no-recovery`: more steps follow.
    Later,
    /// `--recovery`: this is the last step.
    Now,
}

/// How thorough the check of a restored database is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// No check.
    None,
    /// Each page by itself.
    Quick,
    /// Everything that the engine can check. A server is started for it.
    Full,
}

/// What the user asked for.
#[derive(Clone)]
pub struct Request {
    /// What to read.
    pub reading: Reading,
    /// `--into`.
    pub into: Into,
    /// `--replace`.
    pub replace: bool,
    /// `--no-recovery`, `--recovery`.
    pub recovery: Recovery,
    /// `--mkdir`.
    pub mkdir: bool,
    /// `--resume`: continues an interrupted restore, and can itself be continued.
    pub resume: bool,
    /// `--dry-run`.
    pub dry_run: bool,
    /// `--check`: of the restored database, before it gets its name.
    pub check: Option<Check>,
    /// The options that the engine of the set has.
    pub set_options: SetOptions,
    /// `--continue-after-error`: restores a set as it is, with pages that were damaged at the source.
    pub continue_after_error: bool,
    /// `--stop-at FILE:OFFSET`, `--stop-at-gtid`, `--stop-before-gtid`: where to stop in the log, if that is not a time.
    pub stop: Option<LogStop>,
    /// What a set of another program's files needs besides itself. A repository finds it.
    pub needed: NeededSets,
    /// The options of the server that rows are loaded into.
    pub target_options: GivenOptions,
    /// `migrate --repo`: the target remembers how far it is.
    pub refresh: Option<refresh::Refresh>,
    /// `restore-test`: a logical set becomes a data directory, on which a server starts.
    pub data_directory: bool,
}

impl Request {
    /// A restore without flags.
    pub fn plain(reading: Reading, into: Into) -> Self {
        Self {
            reading,
            into,
            replace: false,
            recovery: Recovery::AtOnce,
            mkdir: false,
            resume: false,
            dry_run: false,
            check: None,
            set_options: SetOptions::default(),
            continue_after_error: false,
            stop: None,
            needed: NeededSets::default(),
            target_options: fullbore_engines::GivenOptions::default(),
            refresh: None,
            data_directory: false,
        }
    }

    /// `--table`: only these tables, and nothing else.
    pub(super) fn tables(&self) -> &[String] {
        self.set_options.flags().texts(&ONLY_TABLE)
    }

    /// `--place-outside`: tablespaces outside of the data directory go to their former places.
    fn place_outside(&self) -> bool {
        self.set_options.flags().has(&PLACE_OUTSIDE)
    }

    /// Where to stop in the log.
    fn stop(&self) -> Option<LogStop> {
        self.stop.clone().or(self.reading.choice.stop_at.map(LogStop::Time))
    }
}

/// Sets with files of another program that a restore needs besides the chosen one.
#[derive(Debug, Clone, Default)]
pub struct NeededSets {
    /// How each of them is read.
    pub readings: Vec<Reading>,
    /// The backup set of the other program whose pages are the last ones.
    pub database_set: Option<String>,
}

/// Runs the restore and fills `report`, also when it fails.
///
/// # Errors
/// Any error; then the target is as before.
pub fn run(request: &Request, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let begun = Instant::now();
    report.database_at = match &request.into {
        Into::File { path, .. } | Into::Directory(path) | Into::Media { directory: path, .. } => {
            Some(path.display().to_string())
        }
        Into::Server { .. } | Into::Null => None,
    };
    report.into = Some(request.into.to_string());
    resume::refuse(request)?;
    refuse_check_of_nothing(request)?;
    media::refuse_chain(request)?;
    if steps::go_on(request, conduct, report)? {
        report.set_speed(begun.elapsed().as_secs_f64());
        return Ok(());
    }
    match report.timed(reading::FINDING, |_| request.reading.begin(conduct))? {
        (_, Media::Piped(mut set)) => file::restore_piped(&mut set, request, conduct, report)?,
        (key, Media::DiscoveredSets(discovered)) => {
            let request = &at_stop(request, &discovered, key.as_ref())?;
            let done = restore_found(discovered, request, key.as_ref(), conduct, report);
            done.inspect_err(|_| resume::tell_what_stays(report))?;
        }
    }
    report.set_speed(begun.elapsed().as_secs_f64());
    Ok(())
}

/// The request for the log set that has the place to stop at. In a repository it was chosen before.
fn at_stop(request: &Request, discovered: &discovery::DiscoveredSets, key: Option<&SecretKey>) -> Result<Request> {
    let mut request = request.clone();
    if let Some(stop) = request.stop.as_ref().filter(|_| request.reading.choice.set.is_none()) {
        request.reading.choice = stop::choice(stop, &discovered.sets, &request.reading.choice, key)?;
    }
    Ok(request)
}

/// The sets to restore, in order. An unreadable family does not stop the restore; a warning names it.
pub(super) fn choose(discovered: &mut discovery::DiscoveredSets, choice: &Choice) -> Result<chain::Sequence> {
    choose_by(discovered, choice, chain::choose)
}

/// True if a damaged family may be the one that is missing: a set is incomplete, or no set was found.
pub(super) fn is_missing_family(error: &Error, known: &[chain::FoundSet]) -> bool {
    matches!(error, Error::Incomplete { .. }) || known.is_empty()
}

/// The same by another rule.
pub(super) fn choose_by(
    discovered: &mut discovery::DiscoveredSets,
    choice: &Choice,
    rule: impl Fn(&[chain::FoundSet], &Choice) -> Result<chain::Sequence>,
) -> Result<chain::Sequence> {
    let known = discovered.known();
    let damaged = discovered.unreadable.iter().position(|unreadable| !unreadable.leftover);
    let mut sequence = match (rule(&known, choice), damaged) {
        (Err(error), Some(at)) if choice.set.is_none() && is_missing_family(&error, &known) => {
            // This may be the missing family of the wanted set.
            return Err(discovered.unreadable.swap_remove(at).error);
        }
        (chosen, _) => chosen?,
    };
    if choice.set.is_none() {
        sequence.warnings.extend(chain::clock_doubts(&known, jiff::Timestamp::now().as_microsecond()));
    }
    for other in discovered.unreadable.iter().filter(|unreadable| !unreadable.leftover) {
        let why = other.error.one_line();
        let mine = |at: &usize| Some(discovered.sets[*at].media_set_id) == other.set;
        sequence.warnings.push(match other.set {
            Some(_) if sequence.sets.iter().any(mine) => {
                format!("not used, because another copy of it is there: {why}")
            }
            Some(id) => format!("not used: {why}; it belongs to media set {id}"),
            None => {
                format!("not used: {why}; its header does not name its set, which may be newer than the restored one")
            }
        });
    }
    Ok(sequence)
}

/// Chooses the sets and opens them, so that they cannot be removed meanwhile. If another backup has just replaced one
/// of their families, it chooses again.
fn choose_and_open(
    mut discovered: discovery::DiscoveredSets,
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<(Vec<discovery::Found>, reading::Opened)> {
    loop {
        let sequence = choose(&mut discovered, &request.reading.choice)?;
        // Log sets are opened one by one later: there may be very many.
        let found = sequence.sets.iter().map(|&at| &discovered.sets[at]).filter(|found| found.set.kind != SetKind::Log);
        let found: Vec<_> = found.collect();
        match reading::open(&found, &request.reading.knobs, key, true, report) {
            Err(_) if !found.iter().all(|found| found.is_in_place()) => {
                discovered = request.reading.find(key, conduct)?
            }
            opened => {
                let opened = opened?;
                refuse_media_as_target(request, &discovered)?;
                report.notes.extend(discovered.all_notes());
                report.warnings.extend(sequence.warnings);
                // A repository has chosen by the same rule, and has told it.
                let new: Vec<String> = sequence.notes.into_iter().filter(|note| !report.notes.contains(note)).collect();
                report.notes.extend(new);
                let mut sets: Vec<_> = discovered.sets.into_iter().map(Some).collect();
                return Ok((sequence.sets.iter().filter_map(|&at| sets[at].take()).collect(), opened));
            }
        }
    }
}

fn restore_found(
    discovered: discovery::DiscoveredSets,
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let chosen = report.timed(reading::OPENING, |report| choose_and_open(discovered, request, key, conduct, report));
    let (mut sequence, opened) = chosen?;
    let logs = sequence.split_off(opened.sets.len());
    if request.recovery == Recovery::Later {
        steps::refuse_servers(&sequence)?;
    }
    if let Some(last) = sequence.last() {
        media::refuse_others(&request.into, &last.header.engine)?;
        request.set_options.refuse_others(&last.header.engine)?;
        let logical = logical::of(&opened);
        new_directory::refuse_options(request, logical.is_some() && new_directory::is_wanted(request))?;
        if let Some(logical) = logical {
            return logical::restore(logical, (&sequence, &logs), opened, request, key, conduct, report);
        }
        logical::refuse_server(&request.into, &last.header.engine)?;
        if let Some(media) = fullbore_engines::media_of(&last.header.engine) {
            return media::restore(&sequence, opened, media, request, key, conduct, report);
        }
        if fullbore_engines::holds_object(&last.header.engine) {
            return object::restore(&sequence, opened, request, conduct, report);
        }
    }
    let engine = sequence.last().and_then(|found| fullbore_engines::named(&found.header.engine));
    if engine.is_none_or(|engine| engine.directory().is_some()) {
        if !request.tables().is_empty() {
            return table::restore(&sequence, opened, request, conduct, report);
        }
        return directory::restore((&sequence, &logs), opened, request, key, conduct, report);
    }
    file::restore(&sequence, &logs, opened, request, key, conduct, report)
}

/// The state of the target that the request continues, if it continues one.
///
/// # Errors
/// The state cannot be read.
pub(super) fn standing(request: &Request) -> Result<Option<RestoredState>> {
    let goes_on = request.recovery != Recovery::AtOnce && !request.replace;
    Ok(state_of(&request.into)?.filter(|_| goes_on).map(|state| state.standing()))
}

/// The last set that such a target has, or has in part after an interrupted step.
///
/// # Errors
/// The state cannot be read.
pub(super) fn last_set(into: &Into) -> Result<Option<uuid::Uuid>> {
    let last = |written: state::Written| written.doing.map_or(written.last.id, |doing| doing.last.id);
    Ok(state_of(into)?.map(|state| last(state.written)))
}

/// The unfinished database of a target that is being restored in steps.
///
/// # Errors
/// The state of the target cannot be read.
pub(super) fn unfinished(into: &Into) -> Result<Option<PathBuf>> {
    Ok(state_of(into)?.map(|state| state.working()))
}

/// The state of a target that is being restored in steps.
fn state_of(into: &Into) -> Result<Option<state::State>> {
    match into {
        Into::File { path, .. } => state::State::at(path),
        Into::Directory(_) | Into::Media { .. } | Into::Server { .. } | Into::Null => Ok(None),
    }
}

/// Refuses `--check` with `nul:`.
fn refuse_check_of_nothing(request: &Request) -> Result<()> {
    let checks = matches!(request.check, Some(Check::Quick | Check::Full));
    if !checks || request.into != Into::Null {
        return Ok(());
    }
    let why = "`nul:` keeps no database to check";
    Err(Error::usage("--check", why, "leave it out; each byte of the media is checked anyway"))
}

/// Refuses a target that is one of the families named with `--from`.
fn refuse_media_as_target(request: &Request, discovered: &discovery::DiscoveredSets) -> Result<()> {
    let Into::File { engine, path: target } = &request.into else { return Ok(()) };
    let identity = Device::file(target.clone()).identity();
    let mut devices = discovered.sets.iter().flat_map(|found| &found.devices);
    if devices.any(|device| device.identity() == identity) {
        let shown = format!("--into {engine}:{}", target.display());
        return Err(Error::usage(shown, "is one of the media families named with --from", "name another file"));
    }
    Ok(())
}

pub(super) fn plan_line(found: &discovery::Found, report: &mut Report) {
    let of_log = found.set.log_range.as_ref().filter(|_| found.set.kind == SetKind::Log);
    report.sets.push(format!(
        "{}, {} in {}{}",
        chain::title(&found.set),
        show_bytes(found.stored_bytes),
        counted(found.families.into(), "family"),
        of_log.map_or_else(String::new, |range| format!(", commits up to {}", chain::moment::show(range.at)))
    ));
    report.stored_bytes += found.stored_bytes;
    report.kind = Some(found.set.kind.to_string());
    report.backup_set_id = Some(found.set.backup_set_id.to_string());
    report.media_set_id = Some(found.media_set_id.to_string());
}
