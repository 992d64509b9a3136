//! RESTORE of an uploaded object: one file, byte for byte, under the last part of its key.

use fullbore_core::conduct::Conduct;
use fullbore_core::sink::check_directory;
use fullbore_core::units::show_bytes;
use fullbore_core::unpack::NullTarget;
use fullbore_core::{Error, Result};
use fullbore_engines::foreign_set::target::is_file_name;
use fullbore_engines::{ObjectFacts, ObjectFile, object_parts};
use fullbore_repository::discovery;

use super::super::reading;
use super::directory::{manifests, unpack};
use super::{Into, Request, media, plan_line};
use crate::report::Report;

/// The name of the file if the key ends in no name of a file.
const NAMELESS: &str = "object";

/// Gives the object of a set back.
///
/// # Errors
/// The request has a flag that an object does not have, the file exists, or the set is damaged. Then no file is left.
pub(super) fn restore(
    chain: &[discovery::Found],
    mut opened: reading::Opened,
    request: &Request,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    media::refuse_flags(request, "uploaded object")?;
    if request.dry_run {
        chain.iter().for_each(|found| plan_line(found, report));
        report.status = "planned".into();
        return Ok(());
    }
    let manifests = manifests(chain, &mut opened, conduct);
    let (Some(manifest), Some(found)) = (manifests.last(), chain.last()) else { return Ok(()) };
    let directory = match &request.into {
        Into::Media { directory, .. } => directory,
        Into::Null => return unpack(&mut opened, found, &NullTarget, conduct, report),
        Into::Directory(_) | Into::File { .. } | Into::Server { .. } => {
            let why = "the set holds an object that was uploaded through the gateway";
            let hint = format!("write --into {}:DIRECTORY", fullbore_engines::OBJECT);
            return Err(Error::usage(format!("--into {}", request.into), why, hint));
        }
    };
    let wrong = || Error::incomplete("backup set", "its manifest does not describe an object", "use another set");
    let facts = ObjectFacts::of(&manifest.position.last.value()).ok_or_else(wrong)?;
    let parts = object_parts(&manifest.streams)?;
    if parts.iter().fold(0, |sum: u64, part| sum.saturating_add(part.bytes)) != facts.bytes {
        return Err(wrong());
    }
    check_directory(directory, request.mkdir)?;
    std::fs::create_dir_all(directory).map_err(|e| Error::io("make", directory.display().to_string(), e))?;
    let last = facts.key.rsplit('/').next().unwrap_or_default();
    let path = directory.join(if is_file_name(last) { last } else { NAMELESS });
    let file = ObjectFile::create(&path, &parts, request.replace)?;
    unpack(&mut opened, found, &file, conduct, report)?;
    conduct.check()?;
    file.publish()?;
    report.notes.push(format!("1 file of {}: `{}`", show_bytes(facts.bytes), path.display()));
    Ok(())
}
