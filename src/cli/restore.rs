//! `fullbore restore`.

use fullbore::Result;
use fullbore::chain::Choice;
use fullbore::config::Config;
use fullbore::job::restore::{self, Into, Request};

use super::args::Restore;
use super::show;

/// Runs the verb; gives the exit code.
pub fn run(args: &Restore, config: &Config) -> Result<u8> {
    let request = Request {
        from: args.from.clone(),
        into: Into::parse(&args.into)?,
        replace: args.replace,
        mkdir: args.mkdir,
        dry_run: args.dry_run,
        integrity_check: args.integrity_check,
        knobs: args.tuning.knobs(config),
        key: args.key.clone().or_else(|| config.key.clone()),
        choice: Choice { set: args.chosen.set.clone(), latest: args.chosen.latest },
    };
    super::with_report(
        "restore",
        &args.shown,
        |conduct, report| restore::run(&request, conduct, report),
        |report| show::restore_result(report, &args.shown),
    )
}
