//! `fullbore migrate --repo`.

use std::time::Duration;

use fullbore::config::Config;
use fullbore::job::migrate::{COMMAND, Event};
use fullbore::job::reading::Reading;
use fullbore::job::repository::{self, Setting, cut_over};
use fullbore::job::{backup, restore};
use fullbore::report::Report;
use fullbore::{Error, Result};
use fullbore_core::conduct::Conduct;
use fullbore_core::media::SetKind;
use fullbore_engines::engine::resolve_options;

use super::migrate::{self, CutOverCheck, Migrate, WRITERS_OUT};
use super::tuning::BackupTuning;
use super::{closing, show};

/// Runs the verb with a repository; gives the exit code.
pub fn run(args: &Migrate, name: &str, config: &Config) -> Result<u8> {
    let database = match &args.database[..] {
        [] => None,
        [one] => Some(&one[..]),
        _ => {
            let why = "with --repo, it names the database in the repository, and a migration has one";
            return Err(Error::usage("--database", why, "give it once"));
        }
    };
    let (sets, setting) = (sets(args, config)?, Setting { name, config });
    let into_file = matches!(sets.into, restore::Into::File { .. });
    match (&args.source, args.cut_over) {
        (None, _) if args.max_lag.is_some() => {
            let why = "says how near a cut-over begins, and there is none without the source";
            Err(Error::usage("--max-lag", why, "leave it out, or name the source and --cut-over"))
        }
        (None, cut_over) if into_file || !cut_over => {
            let run = |conduct: &Conduct, report: &mut Report| {
                repository::refresh::run(&sets, database, args.abort, setting, conduct, report)
            };
            super::with_report(COMMAND, &args.shown, config, run, |report| closing::refresh(report, &args.shown), false)
        }
        (None, _) => {
            let hint = "name it before --into; or stop the writers, make a log set, and run this without --cut-over";
            Err(Error::usage("--cut-over", "the source is not named, so it cannot be made read-only", hint))
        }
        (Some(source), true) if !args.replace => {
            let migration = migrate::request(args, config)?;
            let request = cut_over::Request { log: log(args, source, config)?, migration, sets };
            let told = |event| match event {
                Event::Frozen if args.shown.quiet => {}
                Event::Frozen if into_file => show::message(&format!("{COMMAND}: {WRITERS_OUT}")),
                Event::Frozen => show::message(&format!("{COMMAND}: the source is read-only")),
                _ => {}
            };
            let run = |conduct: &Conduct, report: &mut Report| {
                repository::cut_over::run(&request, database, setting, conduct, &told, report)
            };
            super::with_report(COMMAND, &args.shown, config, run, |report| closing::migrate(report, &args.shown), false)
        }
        (Some(source), _) => {
            let why = "with --repo, it is named for --cut-over only, which goes without --replace";
            let hint = "leave the source out: the sets come out of the repository";
            Err(Error::usage(fullbore_engines::without_password(source), why, hint))
        }
    }
}

/// The way of the sets into the target.
fn sets(args: &Migrate, config: &Config) -> Result<restore::Request> {
    let reading = Reading { key: args.key.clone().or_else(|| config.key.clone()), ..Reading::default() };
    match restore::Into::parse(&args.into)? {
        restore::Into::Server { engine, .. } => {
            let (url, target_options) = resolve_options(&args.into, &migrate::of_target(args), &config.engine)?;
            Ok(restore::Request {
                replace: args.replace,
                dry_run: args.plan,
                target_options,
                ..restore::Request::plain(reading, restore::Into::Server { engine, url: url.text().to_owned() })
            })
        }
        into @ restore::Into::File { .. } => into_file(args, into, reading),
        into => {
            let why = "a migration goes into a running MySQL or MariaDB server, or into an SQLite database";
            let hint = "write mysql://USER@HOST or sqlite:FILE, or use fullbore restore";
            Err(Error::usage(format!("--into {into}"), why, hint))
        }
    }
}

/// The same for a target that is one file.
fn into_file(args: &Migrate, into: restore::Into, reading: Reading) -> Result<restore::Request> {
    if args.abort {
        let why = "a file that is being restored in steps has no other state";
        let hint = format!("write fullbore restore --recovery --into {into}: then it is a database with what it has");
        return Err(Error::usage("--abort", why, hint));
    }
    if args.into_password_file.is_some() {
        let why = "the target is a file, and only a server asks for a password";
        return Err(Error::usage("--into-password-file", why, "leave it out"));
    }
    let ends = args.cut_over && args.source.is_none();
    let check = if args.check == CutOverCheck::None { restore::Check::None } else { restore::Check::Quick };
    Ok(restore::Request {
        replace: args.replace,
        resume: args.resume,
        dry_run: args.plan,
        recovery: if ends { restore::Recovery::Now } else { restore::Recovery::Later },
        check: ends.then_some(check),
        ..restore::Request::plain(reading, into)
    })
}

/// The log backup of the source, with the settings of the repository.
fn log(args: &Migrate, source: &str, config: &Config) -> Result<backup::Request> {
    let options = migrate::with_file(args.password_file.as_ref());
    let (source, engine_options) = resolve_options(source, &options, &config.engine)?;
    Ok(backup::Request {
        stripes: config.stripes,
        compression: config.compression.as_ref().map(|text| text.parse()).transpose()?.unwrap_or_default(),
        knobs: BackupTuning::default().knobs(config)?,
        encrypt_to: config.encrypt_to.clone(),
        key: args.key.clone().or_else(|| config.key.clone()),
        name_template: config.name_template.clone(),
        dry_run: args.plan,
        lock_timeout: Duration::from_secs(args.lock_timeout),
        engine_options,
        ..backup::Request::plain(source, SetKind::Log)
    })
}
