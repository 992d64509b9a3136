//! `fullbore restore`.

use fullbore::chain::moment;
use fullbore::config::Config;
use fullbore::job::foreign;
use fullbore::job::repository::{self, Setting};
use fullbore::job::restore::{self, Check, Into, Recovery, Request};
use fullbore::{Error, Result};

use fullbore_engines::GivenOptions;
use fullbore_engines::engine::{AlsoIn, EngineOption, LogStop, resolve_options};

use super::args::{CheckDepth, Restore};
use super::{closing, server};

/// Runs the verb; gives the exit code.
pub fn run(args: &Restore, config: &Config) -> Result<u8> {
    if let Some(server) = server::of(&args.into, args.served.experimental)? {
        return server::restore(args, server, config);
    }
    server::refuse_in_own_restore(args)?;
    let config = &args.repository.config(config);
    let mut reading = super::args::reading(args.from.clone(), args.key.as_ref(), &args.chosen, &args.tuning, config)?;
    let set_options = args.set_options.of_set(config)?;
    let stop = match &args.stop_at {
        Some(text) => Some(stop_at(text)?),
        None => set_options.stop(),
    };
    reading.choice.stop_at = stop.as_ref().and_then(LogStop::time);
    reading.choice.before = args.before.as_deref().map(|time| moment::parse("--before", time)).transpose()?;
    let (into, target_options) = target(args, config)?;
    let request = Request {
        reading,
        into,
        replace: args.replace,
        recovery: match (args.no_recovery, args.recovery) {
            (true, _) => Recovery::Later,
            (_, true) => Recovery::Now,
            (false, false) => Recovery::AtOnce,
        },
        mkdir: args.mkdir,
        resume: args.resume,
        dry_run: args.dry_run,
        check: check(args),
        set_options,
        continue_after_error: args.continue_after_error,
        needed: restore::NeededSets::default(),
        stop: stop.filter(|stop| stop.time().is_none()),
        target_options,
        refresh: None,
        data_directory: false,
    };
    super::refuse_report_in_database(args.shown.report.to().as_ref(), &fullbore_engines::identity(&args.into))?;
    super::with_report(
        "restore",
        &args.shown,
        config,
        |conduct, report| {
            super::compare_with(args.profile.as_deref(), conduct, report)?;
            match &args.repository.repo {
                None => {
                    match super::foreign::find(&request.reading.from, request.reading.key.as_deref(), config, conduct)?
                    {
                        Some(found) => foreign::restore(&found, &request, conduct, report),
                        None => restore::run(&request, conduct, report),
                    }
                }
                Some(name) => {
                    let (setting, database) = (Setting { name, config }, args.repository.database.as_deref());
                    repository::restore::run(&request, database, setting, conduct, report)
                }
            }
        },
        |report| closing::restore(report, &args.shown),
        false,
    )
}

/// `--stop-at`.
fn stop_at(text: &str) -> Result<LogStop> {
    Ok(match place(text) {
        true => LogStop::Place(text.to_owned()),
        false => LogStop::Time(moment::parse("--stop-at", text)?),
    })
}

/// True for `FILE:OFFSET`. A time never has a letter at its beginning.
fn place(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.rsplit_once(':').is_some_and(|(file, offset)| {
        digits(offset) && file.rsplit_once('.').is_some_and(|(base, number)| !base.is_empty() && digits(number))
    })
}

/// `--into`, and the options of a server there.
fn target(args: &Restore, config: &Config) -> Result<(Into, GivenOptions)> {
    let into = Into::parse(&args.into)?;
    let given = args.engine_options.given()?;
    let into_directory = matches!(into, Into::Directory(_));
    let Into::Server { engine, .. } = into else {
        let goes_into_directory =
            |option: &&EngineOption| into_directory && option.also.contains(&AlsoIn::NewDirectory);
        let other = given.iter().find(|option| !goes_into_directory(option));
        return match other {
            Some(option) => Err(Error::usage(
                format!("--{}", option.name),
                format!("is for a restore into a running server, and --into {} is none", args.into),
                "leave it out, or restore into mysql://…, mariadb://… or mssql://…",
            )),
            None => Ok((into, given)),
        };
    };
    let (url, options) = resolve_options(&args.into, &given, &config.engine)?;
    Ok((Into::Server { engine, url: url.text().to_owned() }, options))
}

/// `--check`, and the flags with the same meaning.
fn check(args: &Restore) -> Option<Check> {
    let full = args.integrity_check || args.start_check;
    let asked = args.check.map(|depth| match depth {
        CheckDepth::None => Check::None,
        CheckDepth::Quick => Check::Quick,
        CheckDepth::Full => Check::Full,
    });
    asked.or(full.then_some(Check::Full))
}
