//! `fullbore tasks`, `task` and `cancel`.

use fullbore::Result;
use fullbore::config::Config;
use fullbore::job::repository::{Setting, tasks};

use super::inspect::print_json;
use super::repository_args::{OneTask, Tasks};
use super::{show, tables};

/// Runs `tasks`; gives the exit code.
pub fn list(args: &Tasks, config: &Config) -> Result<u8> {
    let conduct = super::heeding(config)?;
    let listed = tasks::list(Setting { name: &args.repo, config }, &conduct)?;
    if args.json {
        print_json(&listed)?;
    } else {
        show::line(&tables::tasks(&listed));
    }
    Ok(0)
}

/// Runs `task`; gives the exit code.
pub fn one(args: &OneTask, config: &Config) -> Result<u8> {
    let conduct = super::heeding(config)?;
    let task = tasks::one(Setting { name: &args.repo, config }, &args.task, &conduct)?;
    print(&task, args.json)
}

/// Runs `cancel`; gives the exit code.
pub fn cancel(args: &OneTask, config: &Config) -> Result<u8> {
    let conduct = super::heeding(config)?;
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
