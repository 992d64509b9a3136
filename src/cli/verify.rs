//! `fullbore verify`.

use fullbore::Result;
use fullbore::chain::Choice;
use fullbore::config::Config;
use fullbore::job::verify::{self, Request};

use super::args::Verify;
use super::show;

/// Runs the verb; gives the exit code.
pub fn run(args: &Verify, config: &Config) -> Result<u8> {
    let request = Request {
        from: args.from.clone(),
        knobs: args.tuning.knobs(config),
        key: args.key.clone().or_else(|| config.key.clone()),
        choice: Choice { set: args.chosen.set.clone(), latest: args.chosen.latest },
    };
    super::with_report(
        "verify",
        &args.shown,
        |conduct, report| verify::run(&request, conduct, report),
        |report| show::verify_result(report, &args.shown),
    )
}
