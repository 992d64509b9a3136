//! RESTORE of a server's files: into a directory that is complete, or not there.

use std::fs;
use std::path::{Path, PathBuf};

use fullbore_core::io::{free_space, sync_directory};
use fullbore_core::media::ManifestStream;
use fullbore_core::unpack::{BaseTarget, DirectoryTarget, MediaSet, NullTarget, Target};
use fullbore_core::{Error, Result};

use super::super::reading;
use super::super::{Conduct, media};
use super::start::Prepared;
use super::{Into, Request, other_tables, plan_line};
use crate::report::Report;
use crate::units::show_bytes;

/// Restores an open full, or one and its differential, into `dir:PATH`, which is empty or missing. What is not complete is
/// under another name.
pub(super) fn restore(
    chain: &[media::Found],
    mut opened: reading::Opened,
    request: &Request,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let manifests = || opened.sets.iter().filter_map(MediaSet::manifest);
    let streams: Vec<Vec<ManifestStream>> = manifests().map(|manifest| manifest.streams.clone()).collect();
    let (Some(last), Some(manifest)) = (streams.last(), manifests().next_back()) else { return Ok(()) };
    let (engine, position) = (manifest.engine.clone(), manifest.position.last.clone());
    let total = streams.iter().map(|streams| size_of(streams)).sum();
    conduct.progress.total.store(total, std::sync::atomic::Ordering::Relaxed);
    let start = request.start_check.as_ref().map(|wanted| Prepared::new(wanted, manifest)).transpose()?;
    if request.dry_run {
        chain.iter().for_each(|found| plan_line(found, report));
        report.status = "planned".into();
        return Ok(());
    }
    let target = match &request.into {
        Into::Null => {
            super::refuse_start_check(request)?;
            return chain.iter().try_for_each(|found| unpack(&mut opened, found, &NullTarget, conduct, report));
        }
        Into::Directory(target) => target,
        Into::Sqlite(path) => {
            return Err(Error::usage(
                format!("--into sqlite:{}", path.display()),
                format!("the set is a backup of {engine}"),
                "restore its files into a directory: --into dir:PATH",
            ));
        }
    };
    let unfinished = Unfinished::make(target, request.mkdir, size_of(last))?;
    let directory = unfinished.path();
    fullbore_engines::begin_directory(&engine, directory, &position)?;
    let files = DirectoryTarget::create(directory, last)?;
    if let ([full, _], [below, _]) = (chain, &streams[..]) {
        let base = BaseTarget::new(&files, below, last)?;
        unpack(&mut opened, full, &base, conduct, report)?;
        base.finish()?;
    }
    if let Some(found) = chain.last() {
        unpack(&mut opened, found, &files, conduct, report)?;
    }
    files.finish()?;
    let before_a_start = fullbore_engines::finish_directory(&engine, directory, &position)?;
    let mut texts = fullbore_engines::texts_of_tables(&engine, last);
    match &start {
        Some(start) if before_a_start.is_empty() => {
            start.run(directory, &position, last, conduct, report)?;
            texts.retain(|text| text.in_memory);
        }
        Some(_) => report.warnings.push("the server was not started: something has to be done before".into()),
        None => report.warnings.extend(fullbore_engines::after_a_start(&engine, &position)),
    }
    report.warnings.extend(before_a_start);
    other_tables::tell(target, &texts, report);
    conduct.check()?;
    unfinished.publish(target)
}

fn size_of(streams: &[ManifestStream]) -> u64 {
    streams.iter().map(|stream| stream.size).sum()
}

/// Unpacks the next opened set, which is `found`, and books it.
fn unpack(
    opened: &mut reading::Opened,
    found: &media::Found,
    target: &dyn Target,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let outcome = opened.unpack_next(target, conduct).map_err(|error| found.naming_copies(error))?;
    reading::book(&outcome, report);
    Ok(())
}

/// A directory beside the target, on the same file system; removed when it is dropped before it got the target's name.
struct Unfinished(Option<PathBuf>);

impl Unfinished {
    fn make(target: &Path, mkdir: bool, size: u64) -> Result<Self> {
        let shown = target.display().to_string();
        let taken = |why: &str| {
            Err(Error::refused(
                shown.clone(),
                why,
                "name an empty or missing directory: the files of a server are not mixed with others",
            ))
        };
        match fs::read_dir(target) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return taken("is not empty");
                }
            }
            Err(_) if target.symlink_metadata().is_ok() => return taken("is no directory"),
            Err(_) => {}
        }
        let parent = parent_of(target);
        if mkdir {
            fs::create_dir_all(parent).map_err(|e| Error::io("make", parent.display().to_string(), e))?;
        }
        let free = free_space(parent)?;
        if free < size {
            return Err(Error::refused(
                shown,
                format!("the files need {} there, and {} are free", show_bytes(size), show_bytes(free)),
                "free space there, or name another target with --into",
            ));
        }
        let name = target.file_name().ok_or_else(|| {
            Error::usage(format!("--into dir:{}", target.display()), "has no name", "name a new directory in it")
        })?;
        let mut working = name.to_owned();
        working.push(format!(".restoring-{}", uuid::Uuid::new_v4()));
        let path = parent.join(working);
        fs::create_dir(&path).map_err(|e| Error::io("make", path.display().to_string(), e))?;
        Ok(Self(Some(path)))
    }

    fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }

    /// Gives it the target's name, durably; an empty directory of that name gives way.
    fn publish(mut self, target: &Path) -> Result<()> {
        let Some(path) = self.0.take() else { return Ok(()) };
        match fs::rename(&path, target) {
            Ok(()) => sync_directory(parent_of(target)),
            Err(error) => {
                self.0 = Some(path);
                Err(Error::io("give its name to", target.display().to_string(), error))
            }
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = fs::remove_dir_all(path); // Whatever is left has a working name and no server starts on it.
        }
    }
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
