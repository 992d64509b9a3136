//! Options that only an object store can obey: with other targets, they are an error or a warning.

use fullbore::config::Config;
use fullbore::report::Report;
use fullbore::{Error, Result};
use fullbore_core::device::{Destination, Device};

/// Refuses such a flag for places outside of stores.
pub fn refuse(flag: Option<&str>, places: &[Device]) -> Result<()> {
    match (flag, places.iter().find(|device| !device.is_in_store())) {
        (Some(flag), Some(device)) => Err(Error::usage(
            flag,
            format!("only an object store can do that, and {device} is not in one"),
            "leave it out, or name only places such as s3://BUCKET/PREFIX/",
        )),
        _ => Ok(()),
    }
}

/// The same for the places of a repository, and for the keys of that repository in the configuration. Without the
/// error, the user would trust a lock that does not exist.
pub fn refuse_in_repository(flag: Option<&str>, name: Option<&String>, config: &Config) -> Result<()> {
    // A name that is not a repository is refused when it is opened.
    let Some((name, Ok(places))) = name.map(|name| (name, fullbore_repository::places(name, config))) else {
        return Ok(());
    };
    refuse(flag, &places)?;
    let own = config.repository.get(name).and_then(|own| own.asked_of_store());
    refuse(own.map(|key| format!("[repository.{name}] {key}")).as_deref(), &places)
}

/// Says which defaults of the configuration do not count for places outside of stores. They are defaults of all jobs,
/// so they are not an error: the backup is made. A lost lock or encryption is a warning, the rest is a note.
pub fn say_of_defaults(config: &Config, places: &[Device], report: &mut Report) {
    // `nul:` keeps nothing.
    let outside = places.iter().find(|device| !device.is_in_store() && !matches!(device.place(), Destination::Null));
    let Some(device) = outside else { return };
    for (key, lost) in config.for_stores_alone() {
        let said = format!("{key} of the configuration is for object stores, and {device} is not in one");
        match lost {
            Some(lost) => report.warnings.push(format!(
                "{said}: {lost}; move the key below [repository.NAME] of the repositories that it is for"
            )),
            None => report.notes.push(said),
        }
    }
}

/// The same for the places of a repository.
pub fn say_of_defaults_in_repository(config: &Config, name: &str, report: &mut Report) {
    if let Ok(places) = fullbore_repository::places(name, config) {
        say_of_defaults(config, &places, report);
    }
}
