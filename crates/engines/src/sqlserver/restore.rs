//! A restore of backup files to the files of their database.

use fullbore_core::Result;
use fullbore_core::media::SetKind;

use super::chain::{self, Chain, Chosen};
use super::configuration::FileKind;
use super::database_files::DatabaseFiles;
use super::foreign::warnings_about_copies;
use super::media::{self, MediaSet};
use super::room::must_fit;
use super::tables;
use crate::engine::{FilePlaces, ForeignFamily, ForeignRestore};

/// Writes the files of a database: see
/// [`ForeignMedia::restore`](crate::ForeignMedia::restore).
///
/// # Errors
/// A set or a family is missing, damage was found, or a file cannot be written. Then no file is left.
pub fn restore(
    devices: &[String],
    open: &dyn Fn(&str) -> Result<ForeignFamily>,
    wanted: Option<&str>,
    into: &FilePlaces,
) -> Result<ForeignRestore> {
    let groups = grouped(devices, open)?;
    let chosen = chain::choose(&groups, wanted)?;
    let layers = layers(&chosen);
    let newest = chosen.differential.unwrap_or(chosen.full);
    // Files that are moved may be on other volumes.
    must_fit(&layers, &newest.set.configuration, into.moves.is_empty().then_some(&into.directory))?;
    let mut files = DatabaseFiles::create(&newest.set.configuration, into)?;
    write(&mut files, &layers, open)?;
    files.check()?;
    let mut warnings = chosen.warnings;
    warnings.extend(groups.iter().flat_map(warnings_about_copies));
    let left_out = newest.set.configuration.files.iter().filter(|file| matches!(file.kind, FileKind::Other(_)));
    warnings.extend(left_out.map(|file| format!("`{}` is not restored: its files are not pages", file.logical_name)));
    let kind = if chosen.differential.is_some() { SetKind::Differential } else { SetKind::Full };
    let database = newest.set.configuration.database.database.clone();
    Ok(ForeignRestore { database, kind, sets: titles(&layers), files: files.publish()?, warnings })
}

/// The media sets on these devices.
pub(super) fn grouped(devices: &[String], open: &dyn Fn(&str) -> Result<ForeignFamily>) -> Result<Vec<MediaSet>> {
    let found = devices.iter().map(|device| media::look(open(device)?)).collect::<Result<Vec<_>>>()?;
    Ok(media::group(found))
}

/// The sets of a chain, in the order in which they are written.
pub(super) fn layers<'a>(chosen: &Chain<'a>) -> Vec<Chosen<'a>> {
    [Some(chosen.full), chosen.differential].into_iter().flatten().collect()
}

/// Writes the sets, each over the one before.
pub(super) fn write(
    files: &mut DatabaseFiles,
    layers: &[Chosen<'_>],
    open: &dyn Fn(&str) -> Result<ForeignFamily>,
) -> Result<()> {
    for Chosen { media, set } in layers {
        let families = media.devices().iter().map(|device| open(device)).collect::<Result<Vec<_>>>()?;
        files.write_set(families, set.header.position)?;
    }
    Ok(())
}

/// The titles of the sets, for messages.
pub(super) fn titles(layers: &[Chosen<'_>]) -> Vec<String> {
    layers.iter().map(|layer| tables::title(&layer.set.header, &layer.set.configuration)).collect()
}
