//! `fullbore tasks`, `task` and `cancel`.

use fullbore::Result;
use fullbore::config::Config;
use fullbore::job::repository::Setting;
use fullbore::job::repository::tasks::{self, ListedTask};
use serde::Serialize;

use super::inspect::WITH_WARNINGS;
use super::listing::newest;
use super::repository_args::{OneTask, Tasks};
use super::{show, tables};

/// Runs as an object.
#[derive(Serialize)]
struct Runs<'a> {
    tasks: &'a [ListedTask],
    warnings: &'a [String],
}

/// One run as an object.
#[derive(Serialize)]
struct Run<'a> {
    task: &'a ListedTask,
}

/// Runs `tasks`; gives the exit code.
pub fn list(args: &Tasks, config: &Config) -> Result<u8> {
    let conduct = super::stop_on_signals(&config.of_repository(&args.repo))?;
    let mut warnings = Vec::new();
    let mut listed =
        tasks::list(Setting { name: &args.repo, config }, args.database.as_deref(), &conduct, &mut warnings)?;
    listed.retain(|task| args.state.is_none_or(|state| state.name() == tables::state(task)));
    let listed = newest(listed, args.last);
    if args.shown.report.write("tasks", &Runs { tasks: &listed, warnings: &warnings })? {
        let is_bad = |task: &ListedTask| matches!(tables::state(task), "failed" | "dead");
        let shown: Vec<ListedTask> = listed.into_iter().filter(|task| !args.shown.quiet || is_bad(task)).collect();
        if !args.shown.quiet || !shown.is_empty() {
            show::table(&tables::tasks(&shown, args.shown.view()));
        }
    }
    warnings.iter().for_each(|warning| show::warning(warning));
    Ok(if warnings.is_empty() { 0 } else { WITH_WARNINGS })
}

/// Runs `task`; gives the exit code.
pub fn one(args: &OneTask, config: &Config) -> Result<u8> {
    let conduct = super::stop_on_signals(&config.of_repository(&args.repo))?;
    let task = tasks::one(Setting { name: &args.repo, config }, &args.task, &conduct)?;
    print("task", &task, args)
}

/// Runs `cancel`; gives the exit code.
pub fn cancel(args: &OneTask, config: &Config) -> Result<u8> {
    let conduct = super::stop_on_signals(&config.of_repository(&args.repo))?;
    let task = tasks::cancel(Setting { name: &args.repo, config }, &args.task, &conduct)?;
    print("cancel", &task, args)
}

fn print(command: &str, task: &ListedTask, args: &OneTask) -> Result<u8> {
    if args.shown.write(command, &Run { task })? {
        show::line(&tables::task(task));
    }
    Ok(0)
}
