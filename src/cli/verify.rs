//! `fullbore verify`.

use fullbore::Result;
use fullbore::config::Config;
use fullbore::job::verify;

use super::args::{Verify, reading};
use super::show;

/// Runs the verb; gives the exit code.
pub fn run(args: &Verify, config: &Config) -> Result<u8> {
    let request = reading(&args.from, args.key.as_ref(), &args.chosen, &args.tuning, config);
    super::with_report(
        "verify",
        &args.shown,
        config,
        |conduct, report| verify::run(&request, conduct, report),
        |report| show::verify_result(report, &args.shown),
    )
}
