//! `fullbore backup`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore::config::Config;
use fullbore::job::backup::{self, Auto, Mirror, Request};
use fullbore::job::repository::backup::Wanted;
use fullbore::job::repository::{self, Setting};
use fullbore::units::counted;
use fullbore::{Error, Result};
use fullbore_core::codec::Compression;
use fullbore_core::device::{Destination, Device};
use fullbore_core::media::SetKind;
use fullbore_engines::engine::{DatabaseUrl, GivenOptions, resolve_options};

use super::args::{Backup, Kind, ReportTo};
use super::{closing, outside, server};

/// Runs the verb; gives the exit code.
pub fn run(args: &Backup, config: &Config) -> Result<u8> {
    if let Some(server) = server::of(&args.source, args.server.experimental)? {
        return server::backup(args, server, config);
    }
    let second = args.copy_to.as_ref().map(|name| (name, args.kept.over(&config.of_repository(name))));
    let own = args.repo.as_ref().map_or_else(|| config.clone(), |name| config.of_repository(name));
    let config = &args.kept.over(&own);
    let request = request(args, config)?;
    let new_file = new_file(&request.to);
    let flag = args.kept.first();
    outside::refuse(flag, &request.to)?;
    let mirror = mirror(args)?;
    outside::refuse(flag, &mirror)?;
    [&args.repo, &args.copy_to]
        .into_iter()
        .try_for_each(|name| outside::refuse_in_repository(flag, name.as_ref(), config))?;
    if request.to.iter().any(|device| matches!(device.place(), Destination::Pipe))
        && args.shown.report.to() == Some(ReportTo::Output)
    {
        return Err(Error::usage("--report json", "standard output is the backup itself", "write json:FILE"));
    }
    super::refuse_report_in_database(args.shown.report.to().as_ref(), request.source.identity())?;
    if let Some(name) = &args.repo {
        let setting = Setting { name, config };
        let wanted = wanted(args.kind);
        return super::with_report(
            "backup",
            &args.shown,
            config,
            |conduct, report| {
                outside::say_of_defaults_in_repository(config, name, report);
                if let Some((name, config)) = &second {
                    outside::say_of_defaults_in_repository(config, name, report);
                }
                super::compare_with(args.profile.as_deref(), conduct, report)?;
                let copy_to = second.as_ref().map(|(name, config)| Setting { name, config });
                repository::backup::run(&request, wanted, setting, copy_to, conduct, report)
            },
            |report| closing::backup(report, &args.shown),
            false,
        );
    }
    let piped = request.to.iter().any(|device| matches!(device.place(), Destination::Pipe));
    super::with_report(
        "backup",
        &args.shown,
        config,
        |conduct, report| {
            outside::say_of_defaults(config, &request.to, report);
            report.notes.extend(new_file.clone());
            super::compare_with(args.profile.as_deref(), conduct, report)?;
            let second = (!mirror.is_empty()).then(|| Mirror {
                to: mirror.clone(),
                mirrors: args.mirrors,
                name_template: request.name_template.clone(),
                stores: conduct.stores.clone(),
            });
            backup::run(&Request { mirror: second, ..request.clone() }, None, conduct, report).map(drop)
        },
        |report| closing::backup(report, &args.shown),
        piped,
    )
}

/// A note on the first place of a new file whose name looks like that of a directory: `/mnt/backup`, without a dot.
fn new_file(to: &[Device]) -> Option<String> {
    let looks_like_a_directory = |path: &&PathBuf| {
        path.extension().is_none() && path.parent().is_some_and(|above| above != Path::new("")) && !path.exists()
    };
    let path = to.iter().filter_map(|device| match device.place() {
        Destination::File(path) => Some(path),
        _ => None,
    });
    let path = path.into_iter().find(looks_like_a_directory)?.display();
    Some(format!("`{path}` is a file. For a directory, write `{path}/`"))
}

/// `--mirror-to`.
fn mirror(args: &Backup) -> Result<Vec<Device>> {
    let devices: Vec<Device> = args.mirror_to.iter().map(|text| Device::parse(text)).collect::<Result<_>>()?;
    if let Some(pipe) = devices.iter().find(|device| matches!(device.place(), Destination::Pipe)) {
        let why = "standard output can be the first place only";
        return Err(Error::usage(format!("--mirror-to {pipe}"), why, "name it with --to"));
    }
    if args.mirrors == 0 || !devices.len().is_multiple_of(args.mirrors) {
        let why = format!("--mirror-to names {}, and each mirror has as many", counted(devices.len() as u64, "place"));
        return Err(Error::usage(format!("--mirrors {}", args.mirrors), why, "name as many places for each mirror"));
    }
    Ok(devices)
}

/// A logical set has no pages to compare, so it has no differentials.
fn refuse_logical_differential(args: &Backup, source: &DatabaseUrl, given: &GivenOptions) -> Result<()> {
    let logical = fullbore_engines::named(source.scheme()).and_then(|engine| engine.logical());
    if args.kind.of_set() != Some(SetKind::Differential) || !logical.is_some_and(|logical| logical.is_wanted(given)) {
        return Ok(());
    }
    let why = "a logical backup has no differentials";
    Err(Error::usage("--kind differential", why, "take a full, and log backups behind it (--kind log)"))
}

fn request(args: &Backup, config: &Config) -> Result<Request> {
    let compression = args.compression.as_ref().or(config.compression.as_ref());
    let compression: Option<Compression> = compression.map(|text| text.parse()).transpose()?;
    let goal = args.goal.goal()?;
    let (source, engine_options) = resolve_options(&args.source, &args.engine_options.given()?, &config.engine)?;
    if let Some(flag) = args.goal.first().filter(|_| !args.auto) {
        return Err(Error::usage(flag, "is a goal of --auto", "add --auto, or leave it out"));
    }
    refuse_logical_differential(args, &source, &engine_options)?;
    let auto = args.auto.then(|| Auto {
        goal,
        profile: args.profile.clone().unwrap_or_else(|| fullbore_model::profile::DEFAULT.to_owned()),
        data_path: args.data_path.clone(),
        compression,
        catalog: config.catalog_path(),
    });
    Ok(Request {
        source,
        to: args.to.iter().map(|text| Device::parse(text)).collect::<Result<_>>()?,
        stripes: args.stripes.or(config.stripes),
        compression: compression.unwrap_or_default(),
        auto,
        knobs: args.tuning.knobs(config)?,
        kind: match args.kind.of_set() {
            Some(kind) => kind,
            None if args.repo.is_some() => SetKind::Full,
            None => {
                let why = "needs --repo: only a repository knows earlier backups";
                return Err(Error::usage("--kind auto", why, "add --repo, or say full or differential"));
            }
        },
        copy_only: args.copy_only,
        base: args.base.clone(),
        init: args.init,
        mkdir: args.mkdir,
        wait: args.wait,
        dry_run: args.dry_run,
        measure_limit: args.measure_limit,
        encrypt_to: if args.encrypt_to.is_empty() { config.encrypt_to.clone() } else { args.encrypt_to.clone() },
        key: args.key.clone().or_else(|| config.key.clone()),
        name: args.name.clone(),
        description: args.description.clone(),
        media_name: args.media_name.clone(),
        mirror: None,
        name_template: args.name_template.clone().or_else(|| config.name_template.clone()),
        own_template: args.name_template.clone(),
        lock_timeout: Duration::from_secs(args.lock_timeout),
        continue_after_error: args.continue_after_error,
        engine_options,
    })
}

fn wanted(kind: Kind) -> Wanted {
    match kind {
        Kind::Full => Wanted::Full,
        Kind::Differential => Wanted::Differential,
        Kind::Auto => Wanted::Auto,
        Kind::Log => Wanted::Log,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_whose_name_looks_like_a_directory_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| Device::parse(&format!("{}/{name}", folder.path().display())).unwrap();
        let note = new_file(&[at("a.bore"), at("zz")]).unwrap();
        assert!(note.contains("/zz` is a file. For a directory, write `") && note.ends_with("/zz/`"), "{note}");
        std::fs::write(folder.path().join("there"), "").unwrap();
        for place in
            [at("zz/"), at("a.bore"), at("there"), Device::parse("zz").unwrap(), Device::parse("nul:").unwrap()]
        {
            assert_eq!(new_file(std::slice::from_ref(&place)), None, "{place}");
        }
    }
}
