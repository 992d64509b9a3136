//! `fullbore tasks`, `task` and `cancel`.

use fullbore::Result;
use fullbore::config::Config;
use fullbore::job::repository::{Setting, tasks};

use super::inspect::{WITH_WARNINGS, print_json};
use super::repository_args::{OneTask, Tasks};
use super::{show, tables};

/// Runs `tasks`; gives the exit code.
pub fn list(args: &Tasks, config: &Config) -> Result<u8> {
    let conduct = super::stop_on_signals(&config.of_repository(&args.repo))?;
    let mut warnings = Vec::new();
    let listed = tasks::list(Setting { name: &args.repo, config }, &conduct, &mut warnings)?;
    if args.json {
        print_json(&listed)?;
    } else {
        show::line(&tables::tasks(&listed));
    }
    warnings.iter().for_each(|warning| show::warning(warning));
    Ok(if warnings.is_empty() { 0 } else { WITH_WARNINGS })
}

/// Runs `task`; gives the exit code.
pub fn one(args: &OneTask, config: &Config) -> Result<u8> {
    let conduct = super::stop_on_signals(&config.of_repository(&args.repo))?;
    let task = tasks::one(Setting { name: &args.repo, config }, &args.task, &conduct)?;
    print(&task, args.json)
}

/// Runs `cancel`; gives the exit code.
pub fn cancel(args: &OneTask, config: &Config) -> Result<u8> {
    let conduct = super::stop_on_signals(&config.of_repository(&args.repo))?;
    let task = tasks::cancel(Setting { name: &args.repo, config }, &args.task, &conduct)?;
    print(&task, args.json)
}

fn print(task: &tasks::ListedTask, json: bool) -> Result<u8> {
    if json {
        print_json(task)?;
    } else {
        show::line(&tables::task(task));
    }
    Ok(0)
}
