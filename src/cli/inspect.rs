//! `fullbore inspect` and `fullbore list`.

use fullbore::config::Config;
use fullbore::job::inspect::{self, SetSummary};
use fullbore::job::repository::{self, Setting};
pub(super) use fullbore::report::WITH_WARNINGS;
use fullbore::{Error, Result};

use super::args::{Inspect, Inspected, List};
use super::show;

/// Runs `inspect`; gives the exit code.
pub fn run(args: &Inspect, config: &Config) -> Result<u8> {
    match args.what {
        Inspected::Files => {
            let key = args.key.clone().or_else(|| config.key.clone());
            let (manifests, notes) = inspect::manifests(&args.from, key.as_ref(), &super::stores(config)?)?;
            if args.json {
                print_json(&manifests)?;
            } else {
                show::files(&manifests);
            }
            notes.iter().for_each(|note| show::warning(note));
            Ok(if notes.is_empty() { 0 } else { WITH_WARNINGS })
        }
        Inspected::Header => print_sets(&args.from, args.json, config, show::headers),
        Inspected::Label => print_sets(&args.from, args.json, config, show::labels),
    }
}

/// Runs `list`; gives the exit code.
pub fn list(args: &List, config: &Config) -> Result<u8> {
    if let Some(name) = &args.repository.repo {
        return list_repository(name, args, config);
    }
    print_sets(&args.from, args.json, config, show::list)
}

fn list_repository(name: &str, args: &List, config: &Config) -> Result<u8> {
    let conduct = super::stop_on_signals(&config.of_repository(name))?;
    let database = args.repository.database.as_deref();
    let key = args.key.as_deref();
    let listing = repository::list::list(Setting { name, config }, database, args.catalog, key, &conduct)?;
    if args.json {
        print_json(&listing.sets)?;
    } else {
        show::line(&super::tables::sets(&listing.sets));
    }
    listing.warnings.iter().for_each(|warning| show::warning(warning));
    listing.notes.iter().for_each(|note| show::note(note));
    Ok(if listing.warnings.is_empty() { 0 } else { WITH_WARNINGS })
}

fn print_sets(from: &[String], json: bool, config: &Config, show: impl Fn(&[SetSummary])) -> Result<u8> {
    let (sets, remarks) = inspect::header(from, &super::stores(config)?)?;
    if json {
        print_json(&sets)?;
    } else {
        show(&sets);
    }
    remarks.warnings.iter().for_each(|warning| show::warning(warning));
    remarks.notes.iter().for_each(|note| show::note(note));
    Ok(if remarks.warnings.is_empty() && !remarks.incomplete { 0 } else { WITH_WARNINGS })
}

pub(super) fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let json = serde_json::to_string_pretty(value).map_err(|e| Error::io("write", "standard output", e.into()))?;
    show::as_it_is(&json);
    Ok(())
}
