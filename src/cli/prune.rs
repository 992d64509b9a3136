//! `fullbore prune`, `check` and `catalog`.

use std::time::Duration;

use fullbore::chain::retention::KeepRules;
use fullbore::config::Config;
use fullbore::job::repository::check::DatabaseHealth;
use fullbore::job::repository::{Setting, catalog, check, prune};
use fullbore::{Error, Result, units};
use fullbore_core::io::replace_whole;
use serde::Serialize;

use super::inspect::WITH_WARNINGS;
use super::repository_args::{Catalog, CatalogAction, Check, Prune};
use super::{show, tables};

/// From this time on, somebody who looks at the terminal wants to know why nothing happens.
const LONG_WAIT: Duration = Duration::from_secs(10);

/// The state of databases as an object.
#[derive(Serialize)]
struct Databases<'a> {
    databases: &'a [DatabaseHealth],
    warnings: &'a [String],
}

/// Runs `prune`; gives the exit code.
pub fn run(args: &Prune, config: &Config) -> Result<u8> {
    let request = prune::Request {
        policy: rules(args, config).policy(&thing(args, config))?,
        database: args.database.clone(),
        confirm: args.confirm,
        grace: units::duration("--grace", &args.grace)?,
    };
    let conduct = super::stop_on_signals(&config.of_repository(&args.repo))?;
    if args.confirm && !args.shown.quiet && request.grace >= LONG_WAIT {
        show::note(&format!("before it removes a set, it waits {} (--grace)", args.grace));
    }
    let pruned = prune::run(&request, Setting { name: &args.repo, config }, &conduct)?;
    let (quiet, all_well) = (args.shown.quiet, pruned.refusals.is_empty() && pruned.warnings.is_empty());
    if args.shown.report.write("prune", &pruned)? && (!quiet || !all_well) {
        show::table(&tables::pruned(&pruned, args.confirm, args.shown.view()));
    }
    let said = pruned.refusals.iter().chain(&pruned.warnings);
    said.for_each(|warning| show::warning(warning));
    if !quiet {
        pruned.dead_runs.iter().chain(&pruned.notes).for_each(|note| show::note(note));
    }
    Ok(if all_well { 0 } else { WITH_WARNINGS })
}

/// The rules of the configuration. Rules on the command line replace them.
fn rules(args: &Prune, config: &Config) -> KeepRules {
    let configured =
        config.repository.get(&args.repo).and_then(|repository| repository.keep.clone()).unwrap_or_default();
    KeepRules {
        last: args.keep_last.or(configured.last),
        daily: args.keep_daily.or(configured.daily),
        weekly: args.keep_weekly.or(configured.weekly),
        monthly: args.keep_monthly.or(configured.monthly),
        yearly: args.keep_yearly.or(configured.yearly),
        window: args.window.clone().or(configured.window),
        min_verified_chains: args.min_verified_chains.or(configured.min_verified_chains),
        time_zone: args.time_zone.clone().or(configured.time_zone),
    }
}

/// The place of the rules, for the error of a wrong rule.
fn thing(args: &Prune, config: &Config) -> String {
    let configured = config.repository.get(&args.repo).is_some_and(|repository| repository.keep.is_some());
    if configured { format!("[repository.{}.keep]", args.repo) } else { "prune".to_owned() }
}

/// Runs `check`; gives the exit code.
pub fn check(args: &Check, config: &Config) -> Result<u8> {
    if let Some(path) = &args.metrics {
        let is_ours = |text: &str| text.starts_with("# HELP fullbore_");
        super::check_replaceable(&format!("--metrics {}", path.display()), path, "a file of metrics", is_ours)?;
    }
    let time = |flag: &str, text: &Option<String>| -> Result<Option<Duration>> {
        text.as_ref().map(|text| units::duration(flag, text)).transpose()
    };
    let configured = config.repository.get(&args.repo).map(|repository| repository.retired.clone());
    let request = check::Request {
        database: args.database.clone(),
        retired: args.retired.iter().cloned().chain(configured.into_iter().flatten()).collect(),
        max_age: time("--max-age", &args.max_age)?,
        max_unproven: time("--max-unproven", &args.max_unproven)?,
    };
    let conduct = super::stop_on_signals(&config.of_repository(&args.repo))?;
    let mut warnings = Vec::new();
    let checked = check::run(&request, Setting { name: &args.repo, config }, &conduct, &mut warnings);
    if let Some(path) = &args.metrics {
        let written = replace_whole(path, &check::metrics(&args.repo, &checked));
        written.map_err(|e| Error::io("write the metrics", path.display().to_string(), e).on_named_thing())?;
    }
    let databases = checked?;
    if args.shown.report.write("check", &Databases { databases: &databases, warnings: &warnings })? {
        let shown: Vec<_> = databases.iter().filter(|of| !args.shown.quiet || !of.problems.is_empty()).collect();
        if !args.shown.quiet || !shown.is_empty() {
            show::table(&tables::databases(&shown, args.shown.view()));
        }
    }
    warnings.iter().for_each(|warning| show::warning(warning));
    let bad: Vec<String> = databases
        .iter()
        .flat_map(|of| {
            let database = show::value(&format!("{} `{}`", of.engine, of.database));
            of.problems.iter().map(move |problem| format!("\n    {database}: {problem}"))
        })
        .collect();
    if bad.is_empty() {
        return Ok(if warnings.is_empty() { 0 } else { WITH_WARNINGS });
    }
    let repo = format!("--repo {}", args.repo);
    let hint = format!(
        "`fullbore list {repo}` shows the sets, `fullbore tasks {repo}` the last runs; `verify` and `restore-test` \
         prove a chain"
    );
    Err(Error::refused(repo, format!("not all is good:{}", bad.concat()), hint))
}

/// Runs `catalog`; gives the exit code.
pub fn catalog(args: &Catalog, config: &Config) -> Result<u8> {
    let CatalogAction::Rebuild { repo, key, shown } = &args.action;
    let conduct = super::stop_on_signals(&config.of_repository(repo))?;
    let key = key.clone().or_else(|| config.of_repository(repo).key);
    let rebuilt = catalog::rebuild(Setting { name: repo, config }, key.as_deref(), &conduct)?;
    if shown.write("catalog rebuild", &rebuilt)? {
        show::line(&format!(
            "catalog: {}; without a record: {}; written for these: {}",
            units::counted(rebuilt.sets as u64, "set"),
            units::counted(rebuilt.by_media as u64, "set"),
            units::counted(rebuilt.records as u64, "record")
        ));
    }
    rebuilt.warnings.iter().for_each(|warning| show::warning(warning));
    rebuilt.notes.iter().for_each(|note| show::note(note));
    Ok(if rebuilt.warnings.is_empty() { 0 } else { WITH_WARNINGS })
}
