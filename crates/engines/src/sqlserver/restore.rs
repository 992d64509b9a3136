//! A restore of backup files to the files of their database.

use std::path::Path;

use fullbore_core::Result;

use super::chain::{self, Chosen};
use super::configuration::FileKind;
use super::database_files::DatabaseFiles;
use super::foreign::warnings_about_copies;
use super::{media, tables};
use crate::engine::{ForeignFamily, ForeignRestore};

/// Writes the files of a database into a directory, which is empty: see
/// [`ForeignMedia::restore`](crate::ForeignMedia::restore).
///
/// # Errors
/// A set or a family is missing, damage was found, or a file cannot be written. Then no file is left.
pub fn restore(
    devices: &[String],
    open: &dyn Fn(&str) -> Result<ForeignFamily>,
    wanted: Option<&str>,
    into: &Path,
) -> Result<ForeignRestore> {
    let found = devices.iter().map(|device| media::look(open(device)?)).collect::<Result<Vec<_>>>()?;
    let groups = media::group(found);
    let chosen = chain::choose(&groups, wanted)?;
    let (full, differential) = (chosen.full, chosen.differential);
    let layers: Vec<Chosen<'_>> = [Some(full), differential].into_iter().flatten().collect();
    let newest = differential.unwrap_or(full);
    let mut files = DatabaseFiles::create(&newest.set.configuration, into)?;
    for Chosen { media, set } in &layers {
        let families = media.devices().iter().map(|device| open(device)).collect::<Result<Vec<_>>>()?;
        files.write_set(families, set.header.position)?;
    }
    files.check()?;
    let mut warnings = chosen.warnings;
    warnings.extend(groups.iter().flat_map(warnings_about_copies));
    let left_out = newest.set.configuration.files.iter().filter(|file| matches!(file.kind, FileKind::Other(_)));
    warnings.extend(left_out.map(|file| format!("`{}` is not restored: its files are not pages", file.logical_name)));
    let sets = layers.iter().map(|layer| tables::title(&layer.set.header, &layer.set.configuration)).collect();
    Ok(ForeignRestore { sets, files: files.publish()?, warnings })
}
