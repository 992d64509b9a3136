//! `fullbore verify`.

use fullbore::Result;
use fullbore::config::Config;
use fullbore::job::foreign;
use fullbore::job::repository::{self, Setting};
use fullbore::job::verify;

use super::args::{Verify, reading};
use super::closing;

/// Runs the verb; gives the exit code.
pub fn run(args: &Verify, config: &Config) -> Result<u8> {
    let config = &args.repository.config(config);
    let from = [&args.place[..], &args.from].concat();
    let request = reading(from, args.key.as_ref(), &args.chosen, &args.tuning, config)?;
    super::with_report(
        "verify",
        &args.shown,
        config,
        |conduct, report| {
            super::compare_with(args.profile.as_deref(), conduct, report)?;
            match &args.repository.repo {
                None => match super::foreign::find_or_pipe(&request.from, request.key.as_deref(), config, conduct)? {
                    Some(found) => {
                        super::foreign::refuse_flags_of_verify(&request)?;
                        foreign::verify(&found, args.file, conduct, report)
                    }
                    None => {
                        super::foreign::refuse_file(args.file)?;
                        verify::run(&request, conduct, report)
                    }
                },
                Some(name) => {
                    let (setting, database) = (Setting { name, config }, args.repository.database.as_deref());
                    repository::verify::run(&request, database, setting, conduct, report)
                }
            }
        },
        |report| closing::verify(report, &args.shown),
        false,
    )
}
