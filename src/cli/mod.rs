//! The command line: one file per verb; all printing is in [`show`].

mod advise;
mod args;
mod backup;
mod calibrate;
mod closing;
mod bench;
mod copy;
#[cfg(test)]
mod documents;
mod engine_options;
mod estimate;
mod examples;
mod export;
mod foreign;
mod estimated;
mod gateway;
mod grid;
mod inspect;
mod key;
mod listing;
mod log;
mod manual;
mod migrate;
mod outside;
mod progress;
mod prune;
mod refresh;
mod repository_args;
mod restore;
mod restore_test;
mod server;
mod show;
mod sql;
mod stop_at;
mod suggestions;
mod tables;
mod tasks;
mod tuning;
mod unpack;
mod verify;

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::{CommandFactory, FromArgMatches};
use fullbore::config::Config;
use fullbore::job::backup::is_of_database;
use fullbore::report::Report;
use fullbore::{Error, Result};
use fullbore_core::conduct::{Conduct, Volumes};
use fullbore_core::device::Device;
use fullbore_core::io::{replace_whole, working_name};
use fullbore_core::store::Stores;
use fullbore_core::threads;
use fullbore_engines::Identity;

use args::{Arguments, Global, ReportTo, Verb};

/// The volumes under the devices of every job of this process; nearly always unset.
static UNDER_DEVICES: OnceLock<Arc<dyn Volumes>> = OnceLock::new();

/// Parses, runs, and gives the exit code. `volumes` are those that the caller puts under the devices of jobs.
pub fn main(volumes: impl FnOnce() -> Result<Option<Arc<dyn Volumes>>>) -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let arguments = match parsed(words.clone()) {
        Ok(arguments) => arguments,
        Err(error) => return show::clap_error(&suggestions::improved(error, &words)),
    };
    let for_output = arguments.verb.is_for_output();
    let begun = volumes().map(|volumes| volumes.map(|volumes| UNDER_DEVICES.set(volumes)));
    let code = begun.and_then(|_| run(arguments)).unwrap_or_else(|error| {
        show::error(&error);
        error.exit_kind().exit_code()
    });
    ExitCode::from(show::ended(code, for_output))
}

/// The command line. If it names neither places nor a repository, FULLBORE_REPO names the repository.
fn parsed(words: Vec<OsString>) -> Result<Arguments, clap::Error> {
    let parse = |words: &[OsString]| {
        let matches = examples::added_to(Arguments::command()).try_get_matches_from(words)?;
        Arguments::from_arg_matches(&matches)
    };
    let error = match parse(&words) {
        Err(error) if error.kind() == clap::error::ErrorKind::MissingRequiredArgument => error,
        parsed => return parsed,
    };
    let Some(repository) = std::env::var_os("FULLBORE_REPO").filter(|name| !name.is_empty()) else {
        return Err(error);
    };
    // Before `--`: behind it, every word is a place.
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (before, behind) = words.split_at(end);
    let more = parse(&[before, &["--repo".into(), repository], behind].concat());
    // With places on the command line, something else is missing.
    more.map_err(|other| if other.kind() == error.kind() { other } else { error })
}

fn run(Arguments { global, verb }: Arguments) -> Result<u8> {
    let from_environment = || std::env::var_os("FULLBORE_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from);
    let global = Global { config: global.config.or_else(from_environment), ..global };
    let mut config = fullbore::config::load(global.config.as_deref())?;
    config.device_timeout = global.device_timeout.or(config.device_timeout);
    config.outage = global.outage.or(config.outage);
    if let Some(path) = global.log_file.as_ref().or(config.log_file.as_ref()) {
        check_replaceable(&format!("--log-file {}", path.display()), path, "a log file", show::is_log)?;
        show::log_to(path)?;
    }
    dispatch(Arguments { global, verb }, &config)
}

/// Runs a verb with a configuration that has been read.
fn dispatch(Arguments { global, verb }: Arguments, config: &Config) -> Result<u8> {
    match verb {
        Verb::Sql(args) => sql::run(&args, config),
        Verb::Gateway(args) => gateway::run(&args, config),
        Verb::Backup(args) => backup::run(&args, config),
        Verb::Log(args) => log::run(&args, config),
        Verb::Restore(args) => restore::run(&args, config),
        Verb::Verify(args) => verify::run(&args, config),
        Verb::Copy(args) => copy::run(&args, config),
        Verb::Unpack(args) => unpack::run(&args, config),
        Verb::Migrate(args) => migrate::run(&args, config),
        Verb::Export(args) => export::run(&args, config),
        Verb::Calibrate(args) => calibrate::run(&args, config, global.config),
        Verb::Advise(args) => advise::run(&args, config, &global),
        Verb::Estimate(args) => estimate::run(&args, config),
        Verb::Inspect(args) => inspect::run(&args, config),
        Verb::List(args) => inspect::list(&args, config),
        Verb::RestoreTest(args) => restore_test::run(&args, config),
        Verb::Check(args) => prune::check(&args, config),
        Verb::Prune(args) => prune::run(&args, config),
        Verb::Catalog(args) => prune::catalog(&args, config),
        Verb::Tasks(args) => tasks::list(&args, config),
        Verb::Task(args) => tasks::one(&args, config),
        Verb::Cancel(args) => tasks::cancel(&args, config),
        Verb::Bench(args) => bench::run(&args, config),
        Verb::Key(args) => key::run(&args, config),
        Verb::Manual(args) => manual::manual(&args),
        Verb::Completions(args) => manual::completions(&args),
    }
}

/// The signal of a write beyond the greatest file size, by its number on Linux; signal-hook does not name it.
const SIGXFSZ: i32 = 25;

/// The connections to object stores. They print a note when requests fail for some seconds.
fn stores(config: &Config) -> Result<Stores> {
    let stores = config.stores()?;
    stores.tell_retries(show::beside_progress);
    Ok(stores)
}

/// Signals in this time after the first one count as the same: `timeout` signals its child, and then the group of it.
const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// A conduct that hears SIGINT, SIGTERM and SIGHUP. A second signal ends the process at once, unless it follows the first
/// one directly.
fn conduct(config: &Config, quiet: bool) -> Result<Conduct> {
    fullbore_core::child::end_with_the_parent()?;
    let volumes = UNDER_DEVICES.get().cloned();
    let conduct =
        Conduct { stores: if quiet { config.stores()? } else { stores(config)? }, volumes, ..Conduct::default() };
    let armed = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut heard = vec![signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];
    // Under nohup, the job continues without its terminal.
    if !ignores_hang_up() {
        heard.push(signal_hook::consts::SIGHUP);
    }
    for &signal in &heard {
        let number = signal.cast_unsigned() as usize;
        // Register the number first, so that a signal between these calls is not lost.
        let first = Arc::<AtomicUsize>::clone(&conduct.signal);
        let registered = signal_hook::flag::register_usize(signal, first, number)
            .and_then(|_| signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&armed)));
        registered.map_err(|e| Error::io("listen to signals in", "this process", e))?;
    }
    let first = Arc::<AtomicUsize>::clone(&conduct.signal);
    let by_thread = Arc::clone(&armed);
    let arm = move || {
        while first.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(SAME_SIGNAL);
        by_thread.store(true, Ordering::Relaxed);
    };
    if threads::start("second signal", arm).is_err() {
        // Without a thread to spare, every second signal counts, however soon it follows.
        for signal in heard {
            signal_hook::flag::register(signal, Arc::clone(&armed))
                .map_err(|e| Error::io("listen to signals in", "this process", e))?;
        }
    }
    // A limit on the size of files (ulimit -f) is an error of the write, not a sudden end.
    let unheeded = Arc::new(std::sync::atomic::AtomicBool::new(false));
    signal_hook::flag::register(SIGXFSZ, unheeded).map_err(|e| Error::io("listen to signals in", "this process", e))?;
    Ok(conduct)
}

/// The same for a verb without a report: a signal also ends its requests to stores.
fn stop_on_signals(config: &Config) -> Result<Conduct> {
    let conduct = conduct(config, false)?;
    conduct.stores.stop_on(&conduct.signal);
    Ok(conduct)
}

/// True when the parent process wants SIGHUP to be ignored. The mask is hexadecimal, and SIGHUP is its lowest bit.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

thread_local! {
    /// The report of the last job: `sql` words its messages from it.
    static LAST_REPORT: std::cell::RefCell<Option<Report>> = const { std::cell::RefCell::new(None) };
}

/// Runs a job with its progress display and report; gives the exit code.
fn with_report(
    command: &str,
    shown: &args::OutputFlags,
    config: &Config,
    job: impl FnOnce(&Conduct, &mut Report) -> Result<()>,
    closing: impl FnOnce(&Report) -> Vec<String>,
    piped: bool,
) -> Result<u8> {
    let report_to = shown.report.to();
    if let Some(ReportTo::File(path)) = &report_to {
        prove_report_place(path)?;
    }
    let conduct = conduct(config, shown.quiet)?;
    conduct.stores.stop_on(&conduct.signal);
    let mut report = Report::begin(command);
    report.configuration = config.read_from.as_ref().map(|path| path.display().to_string());
    let display = match command {
        // They have their own lines.
        fullbore::job::follow::COMMAND | fullbore::job::migrate::COMMAND => progress::Display::none(),
        _ => progress::Display::start(command, shown, &conduct.progress),
    };
    show::log(&format!("{command}: begins, process {}", std::process::id()));
    show::job_runs(true);
    let done = job(&conduct, &mut report);
    display.stop();
    show::job_runs(false);
    report.finish(done.as_ref().err());
    let written = match &report_to {
        None => Ok(()),
        Some(ReportTo::Output) => json_of(&report).and_then(|json| show::must_print(&json)),
        Some(to) => write_report(to, &report),
    };
    if let Err(error) = written {
        report.not_written(&error);
    }
    report.warnings.iter().for_each(|warning| show::warning(warning));
    let told: fn(&str) = if shown.quiet { |note| show::log(&format!("note: {note}")) } else { show::note };
    report.notes.iter().for_each(|note| told(note));
    match &done {
        Ok(()) if !shown.quiet && report_to != Some(ReportTo::Output) => {
            show::closing(&closing(&report), piped);
        }
        Ok(()) => closing(&report).iter().for_each(|line| show::log(line)),
        Err(error) => show::error(error),
    }
    show::log(&format!("{command}: ended with exit code {}", report.exit_code));
    let code = report.exit_code;
    LAST_REPORT.set(Some(report));
    Ok(code)
}

/// Lets the verdict compare with a profile of this machine. No profile describes emulated volumes.
fn compare_with(named: Option<&str>, conduct: &Conduct, report: &mut Report) -> Result<()> {
    match (&conduct.volumes, named) {
        (None, _) => report.compare_with(named),
        (Some(_), None) => Ok(()),
        (Some(_), Some(name)) => {
            report.notes.push(format!("profile `{name}` is not used: the volumes are emulated"));
            Ok(())
        }
    }
}

/// The first bytes of a report, after its brace.
const REPORT_MARK: &str = "\"schema_version\"";

/// Checks before the job that the report can be written there.
fn prove_report_place(path: &Path) -> Result<()> {
    check_report_place(path)?;
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Ok(());
    }
    let probe = working_name(path);
    let made = File::create_new(&probe).and_then(|_| std::fs::remove_file(&probe));
    made.map_err(|e| {
        Error::io("write the report", path.display().to_string(), e).on_named_thing().noting("nothing was done")
    })
}

/// A report may replace an earlier report, and no other kind of file.
fn check_report_place(path: &Path) -> Result<()> {
    let is_report = |text: &str| {
        let object = text.trim_start().strip_prefix('{').map(str::trim_start);
        object.is_some_and(|object| object.starts_with(REPORT_MARK))
    };
    check_replaceable(&format!("--report json:{}", path.display()), path, "a report", is_report)
}

/// A file must not exist, or be empty, or begin as `what` does. Else it may be a database, a stripe or a key. A device or a
/// named pipe keeps nothing. `flag` is the flag with its value.
fn check_replaceable(flag: &str, path: &Path, what: &str, is_ours: impl Fn(&str) -> bool) -> Result<()> {
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Ok(());
    }
    let mut start = Vec::new();
    match File::open(path).and_then(|file| file.take(64).read_to_end(&mut start)) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io("look at", path.display().to_string(), e)),
        Ok(_) => {}
    }
    if start.is_empty() || is_ours(&String::from_utf8_lossy(&start)) {
        return Ok(());
    }
    Err(Error::usage(
        flag,
        format!("exists already and is not {what}"),
        "name another file: nothing else is overwritten",
    ))
}

/// Refuses a report under a name where SQLite looks for the pages or the log of the database.
fn refuse_report_in_database(report: Option<&ReportTo>, database: &Identity) -> Result<()> {
    let Some(ReportTo::File(path)) = report else { return Ok(()) };
    if !is_of_database(database, &Device::file(path)) {
        return Ok(());
    }
    Err(Error::usage(
        format!("--report json:{}", path.display()),
        "is the database itself, or a file that belongs to it",
        "name another file",
    ))
}

/// Writes the whole report, or leaves the existing report as it is.
fn replace_report(path: &Path, text: &str) -> Result<()> {
    // The job may have made this file: a family, or the restored database.
    check_report_place(path)?;
    replace_whole(path, text).map_err(|e| Error::io("write the report", path.display().to_string(), e))
}

fn write_report(to: &ReportTo, report: &impl serde::Serialize) -> Result<()> {
    let json = json_of(report)?;
    match to {
        ReportTo::Output => show::as_it_is(&json),
        ReportTo::File(path) => replace_report(path, &(json + "\n"))?,
    }
    Ok(())
}

fn json_of(report: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string_pretty(report).map_err(|e| Error::io("write", "the report", e.into()))
}
