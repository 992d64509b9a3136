//! `fullbore migrate --repo`.

use std::time::Duration;

use fullbore::config::Config;
use fullbore::job::migrate::COMMAND;
use fullbore::job::reading::Reading;
use fullbore::job::repository::{self, Setting, cut_over};
use fullbore::job::{backup, restore};
use fullbore::report::Report;
use fullbore::{Error, Result};
use fullbore_core::conduct::Conduct;
use fullbore_core::media::SetKind;
use fullbore_engines::engine::resolve_options;

use super::migrate::{self, Migrate};
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
    match (&args.source, args.cut_over) {
        (None, false) => {
            let run = |conduct: &Conduct, report: &mut Report| {
                repository::refresh::run(&sets, database, args.abort, setting, conduct, report)
            };
            super::with_report(COMMAND, &args.shown, config, run, |report| closing::refresh(report, &args.shown), false)
        }
        (None, true) => {
            let hint = "name it before --into; or stop the writers, make a log set, and run this without --cut-over";
            Err(Error::usage("--cut-over", "the source is not named, so it cannot be made read-only", hint))
        }
        (Some(source), true) if !args.plan && !args.replace => {
            let migration = migrate::request(args, config)?;
            let request = cut_over::Request { log: log(args, source, config)?, migration, sets };
            let told = |event| match event {
                fullbore::job::migrate::Event::Frozen if !args.shown.quiet => {
                    show::message(&format!("{COMMAND}: the source is read-only"));
                }
                _ => {}
            };
            let run = |conduct: &Conduct, report: &mut Report| {
                repository::cut_over::run(&request, database, setting, conduct, &told, report)
            };
            super::with_report(COMMAND, &args.shown, config, run, |report| closing::migrate(report, &args.shown), false)
        }
        (Some(source), _) => {
            let why = "with --repo, it is named for --cut-over only, which goes without --plan and --replace";
            let hint = "leave the source out: the sets come out of the repository";
            Err(Error::usage(fullbore_engines::without_password(source), why, hint))
        }
    }
}

/// The way of the sets into the target.
fn sets(args: &Migrate, config: &Config) -> Result<restore::Request> {
    let into = restore::Into::parse(&args.into)?;
    let restore::Into::Server { engine, .. } = into else {
        let why = "a migration goes into a running MySQL or MariaDB server";
        return Err(Error::usage(format!("--into {into}"), why, "write mysql://USER@HOST, or use fullbore restore"));
    };
    let (url, target_options) = resolve_options(&args.into, &migrate::of_target(args), &config.engine)?;
    let reading = Reading { key: args.key.clone().or_else(|| config.key.clone()), ..Reading::default() };
    Ok(restore::Request {
        replace: args.replace,
        dry_run: args.plan,
        target_options,
        ..restore::Request::plain(reading, restore::Into::Server { engine, url: url.text().to_owned() })
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
        lock_timeout: Duration::from_secs(args.lock_timeout),
        engine_options,
        ..backup::Request::plain(source, SetKind::Log)
    })
}
