//! Whether the files that a backup describes can be: before they are made. A few bytes of media may claim any length.

use std::path::Path;

use fullbore_core::io::free_space;
use fullbore_core::units::show_bytes;
use fullbore_core::{Error, Result};

use super::chain::Chosen;
use super::configuration::{Configuration, FileKind};

/// Each 8,088 pages of a data file have a PFS page, whose extent is allocated, so it is in each full. No genuine file has
/// shown more than one of them: so there is room for an error of this rule.
const LENGTH_FOR_EACH_BYTE: u64 = 8 * 1011;

/// Refuses data files that are longer than any that these sets can describe, and a directory without room for the bytes of
/// the full. Holes need no room.
///
/// # Errors
/// As above, or the free space is not known.
pub fn must_fit(layers: &[Chosen<'_>], newest: &Configuration, directory: Option<&Path>) -> Result<()> {
    let bytes =
        |layer: &Chosen<'_>| layer.media.families.iter().fold(0, |sum: u64, one| sum.saturating_add(one.length));
    let all = layers.iter().fold(0, |sum: u64, layer| sum.saturating_add(bytes(layer)));
    let data = || newest.files.iter().filter(|file| file.kind == FileKind::Data);
    let claimed = data().fold(0, |sum: u64, file| sum.saturating_add(file.size));
    if claimed > all.saturating_mul(LENGTH_FOR_EACH_BYTE) {
        let largest = data().max_by_key(|file| file.size).map_or("", |file| file.logical_name.as_str());
        let (claimed, all) = (show_bytes(claimed), show_bytes(all));
        let why =
            format!("the data files have {claimed}, as the media say, and {all} of media cannot be a backup of them");
        let hint = "the media are damaged, or not genuine: use others";
        return Err(Error::incomplete(format!("file `{}`", largest.escape_debug()), why, hint));
    }
    let needed = layers.first().map_or(0, bytes);
    let Some(directory) = directory else { return Ok(()) };
    let free = free_space(directory)?;
    if free < needed {
        let why = format!("the files need {} there, but {} are free", show_bytes(needed), show_bytes(free));
        return Err(Error::refused(
            directory.display().to_string(),
            why,
            "free space there, or name another directory",
        ));
    }
    Ok(())
}
