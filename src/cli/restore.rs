//! `fullbore restore`.

use fullbore::Result;
use fullbore::chain::moment;
use fullbore::config::Config;
use fullbore::job::foreign;
use fullbore::job::repository::{self, Setting};
use fullbore::job::restore::{self, Check, Into, Owner, Recovery, Request, StartCheck, Tables};

use super::args::{CheckDepth, Restore};
use super::{closing, server};

/// Runs the verb; gives the exit code.
pub fn run(args: &Restore, config: &Config) -> Result<u8> {
    if let Some(server) = server::of(&args.into, args.served.experimental)? {
        return server::restore(args, server, config);
    }
    server::refuse_in_own_restore(args)?;
    let config = &args.repository.config(config);
    let server = || StartCheck { program: args.server_program.clone(), options: args.server_option.clone() };
    let mut reading = super::args::reading(args.from.clone(), args.key.as_ref(), &args.chosen, &args.tuning, config)?;
    reading.choice.stop_at = args.stop_at.as_deref().map(|time| moment::parse("--stop-at", time)).transpose()?;
    let request = Request {
        reading,
        into: Into::parse(&args.into)?,
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
        server: server(),
        place_outside: args.place_outside,
        owner: args.owner.as_deref().map(Owner::parse).transpose()?,
        continue_after_error: args.continue_after_error,
        moves: args.moved().map(|(name, path)| (name.to_owned(), path.into())).collect(),
        file: args.file,
        tables: (!args.table.is_empty()).then(|| Tables { names: args.table.clone(), server: server() }),
    };
    super::refuse_report_in_database(args.shown.report.to().as_ref(), &fullbore_engines::identity(&args.into))?;
    super::with_report(
        "restore",
        &args.shown,
        config,
        |conduct, report| {
            super::compare_with(args.profile.as_deref(), conduct, report)?;
            match &args.repository.repo {
                None => match foreign::find(&request.reading.from, conduct)? {
                    Some(found) => foreign::restore(&found, &request, conduct, report),
                    None => restore::run(&request, conduct, report),
                },
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
