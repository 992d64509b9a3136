//! `fullbore restore-test`.

use fullbore::Result;
use fullbore::config::Config;
use fullbore::job::repository::{Setting, restore_test};

use super::args::reading;
use super::closing;
use super::repository_args::RestoreTest;

/// Runs the verb; gives the exit code.
pub fn run(args: &RestoreTest, config: &Config) -> Result<u8> {
    let config = &config.of_repository(&args.repo);
    let request = restore_test::Request {
        database: args.database.clone(),
        reading: reading(Vec::new(), args.key.as_ref(), &args.chosen, &args.tuning, config)?,
        scratch: args.scratch.clone().unwrap_or_else(std::env::temp_dir),
        set_options: args.set_options.of_set(config)?,
    };
    super::with_report(
        "restore-test",
        &args.shown,
        config,
        |conduct, report| restore_test::run(&request, Setting { name: &args.repo, config }, conduct, report),
        |report| closing::restore(report, &args.shown),
        false,
    )
}
