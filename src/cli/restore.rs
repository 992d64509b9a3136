//! `fullbore restore`.

use fullbore::chain::moment;
use fullbore::config::Config;
use fullbore::job::foreign;
use fullbore::job::repository::{self, Setting};
use fullbore::job::restore::{self, Check, Into, Owner, Recovery, Request};
use fullbore::{Error, Result};

use fullbore_engines::GivenOptions;
use fullbore_engines::engine::{LogStop, resolve_options};

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
    let stop = stop(args)?;
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
        set_options: args.set_options.of_set(config)?,
        place_outside: args.place_outside,
        owner: args.owner.as_deref().map(Owner::parse).transpose()?,
        continue_after_error: args.continue_after_error,
        moves: args.moved().map(|(name, path)| (name.to_owned(), path.into())).collect(),
        file: args.file,
        whole_chain: args.chain,
        needed: restore::NeededSets::default(),
        stop: stop.filter(|stop| stop.time().is_none()),
        maps: args.map.iter().map(|text| mapped(text)).collect::<Result<_>>()?,
        target_options,
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

/// `--stop-at`, `--stop-at-gtid` and `--stop-before-gtid`.
fn stop(args: &Restore) -> Result<Option<LogStop>> {
    if let Some(gtid) = &args.stop_at_gtid {
        return Ok(Some(LogStop::ThroughGtid(gtid.clone())));
    }
    if let Some(gtid) = &args.stop_before_gtid {
        return Ok(Some(LogStop::BeforeGtid(gtid.clone())));
    }
    let Some(text) = &args.stop_at else { return Ok(None) };
    Ok(Some(match place(text) {
        true => LogStop::Place(text.clone()),
        false => LogStop::Time(moment::parse("--stop-at", text)?),
    }))
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
    let Into::Server { engine, .. } = into else {
        return match given.iter().next() {
            Some(option) => Err(Error::usage(
                format!("--{}", option.name),
                format!("is for a restore into a running server, and --into {} is none", args.into),
                "leave it out, or restore into mysql://…, mariadb://… or mssql://…",
            )),
            None => Ok((into, GivenOptions::default())),
        };
    };
    let (url, options) = resolve_options(&args.into, &given, &config.engine)?;
    Ok((Into::Server { engine, url: url.text().to_owned() }, options))
}

/// `--map`.
fn mapped(text: &str) -> Result<(String, String)> {
    let parts = text.split_once('=').filter(|(old, new)| !old.is_empty() && !new.is_empty());
    parts
        .map(|(old, new)| (old.to_owned(), new.to_owned()))
        .ok_or_else(|| Error::usage(format!("--map {text}"), "it is not two names", "write --map OLD=NEW"))
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
