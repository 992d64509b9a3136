//! What only an object store can do is not left out in silence elsewhere.

use fullbore::config::Config;
use fullbore::report::Report;
use fullbore::{Error, Result, repository};
use fullbore_core::device::{Device, Place};

/// Refuses a flag that asks it of places that are in no store.
pub fn refuse(flag: Option<&str>, places: &[Device]) -> Result<()> {
    match (flag, places.iter().find(|device| !device.is_in_store())) {
        (Some(flag), Some(device)) => Err(Error::usage(
            flag,
            format!("only an object store can do that, and {device} is in none"),
            "leave it out, or name places as s3://BUCKET/PREFIX/ alone",
        )),
        _ => Ok(()),
    }
}

/// The same of the places of a repository, and of what the configuration says of it alone: who asks for a lock and gets none believes in it.
pub fn refuse_in_repository(flag: Option<&str>, name: Option<&String>, config: &Config) -> Result<()> {
    // What is no repository is refused where it is opened.
    let Some((name, Ok(places))) = name.map(|name| (name, repository::places(name, config))) else { return Ok(()) };
    refuse(flag, &places)?;
    let own = config.repository.get(name).and_then(|own| own.asked_of_store());
    refuse(own.map(|key| format!("[repository.{name}] {key}")).as_deref(), &places)
}

/// Says which defaults of the configuration do not count for places that are in no store. They are for all jobs, so that they refuse none: a
/// backup that is not made protects nobody. What promises that nobody deletes or reads it is a warning, the rest a note.
pub fn say_of_defaults(config: &Config, places: &[Device], report: &mut Report) {
    // `nul:` keeps nothing, in whichever way.
    let outside = places.iter().find(|device| !device.is_in_store() && !matches!(device.place(), Place::Null));
    let Some(device) = outside else { return };
    for (key, lost) in config.for_stores_alone() {
        let said = format!("{key} of the configuration is for object stores, and {device} is in none");
        match lost {
            Some(lost) => report.warnings.push(format!(
                "{said}: {lost}; put it below [repository.NAME] of those that it is for, where it is no default of all jobs"
            )),
            None => report.notes.push(said),
        }
    }
}

/// The same of the places of a repository.
pub fn say_of_defaults_in_repository(config: &Config, name: &str, report: &mut Report) {
    if let Ok(places) = repository::places(name, config) {
        say_of_defaults(config, &places, report);
    }
}
