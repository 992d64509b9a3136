//! The full that a differential is made against: found, and checked to fit.

use std::path::Path;

use fullbore_core::cipher::SecretKey;
use fullbore_core::media::{SetHeader, SetKind};
use fullbore_core::pool::Pool;
use fullbore_core::unpack::BaseMap;
use fullbore_core::{Error, Result};

use super::super::media;
use super::{Request, path_of};
use crate::chain;

/// The page map of the full that a differential is made against.
pub(super) fn open(request: &Request) -> Result<Option<BaseMap>> {
    match (request.kind, request.base.is_empty()) {
        (SetKind::Full, true) => return Ok(None),
        (SetKind::Full, false) => {
            return Err(Error::usage("--base", "only a differential has a base", "add --kind differential"));
        }
        (SetKind::Log, _) => {
            return Err(Error::usage("--kind log", "this engine has no log backups yet", "take --kind differential"));
        }
        (SetKind::Differential, true) => {
            return Err(Error::usage(
                "--kind differential",
                "the full that it belongs to is not named",
                "name its families with --base",
            ));
        }
        (SetKind::Differential, false) => {}
    }
    let key = media::read_key(request.key.as_deref())?;
    let choose = |heap: &media::Heap| choose(heap, request, key.as_ref());
    media::settled(&request.base, choose).map(Some).map_err(about_base)
}

/// The newest full of this database that can be a base.
fn choose(heap: &media::Heap, request: &Request, key: Option<&SecretKey>) -> Result<BaseMap> {
    let source = path_of(&request.source);
    let nothing = Pool::new(0, 4096)?;
    let mut passed_over = String::new();
    let fulls = heap.sets.iter().rev().filter(|found| found.set.kind == SetKind::Full);
    for found in fulls {
        if let Some(why) = &found.set.incomplete {
            passed_over.push_str(&format!("\n    {}: {why}", chain::title(&found.set)));
            continue;
        }
        let set = media::open_set(found, &nothing, 1, key)?;
        if let Some(other) =
            set.manifest().map(|manifest| &manifest.database).filter(|name| !same_file_name(name, source))
        {
            passed_over.push_str(&format!("\n    {}: of another database, `{other}`", chain::title(&found.set)));
            continue;
        }
        if set.manifest().is_some_and(|manifest| manifest.copy_only) {
            passed_over.push_str(&format!("\n    {}: taken with --copy-only", chain::title(&found.set)));
            continue;
        }
        let base = BaseMap::open(set)?;
        if base.is_encrypted() && request.encrypt_to.is_empty() {
            return Err(Error::usage(
                "--kind differential",
                "its full is encrypted, and this differential would be written in clear",
                "name the recipients with --encrypt-to",
            ));
        }
        return Ok(base);
    }
    let why = if passed_over.is_empty() {
        "no full was found there".to_owned()
    } else {
        format!("no full there can be the base:{passed_over}")
    };
    Err(Error::incomplete("--base", why, "take a full first, and name its families"))
}

/// A database may be named by different paths, but not by different file names.
fn same_file_name(one: &str, other: &str) -> bool {
    Path::new(one).file_name() == Path::new(other).file_name()
}

/// Errors of a search speak of `--from`; here the families follow `--base`.
fn about_base(error: Error) -> Error {
    let rename = |thing: String| thing.replace("--from", "--base");
    match error {
        Error::Usage { thing, why, hint } => Error::Usage { thing: rename(thing), why, hint: rename(hint) },
        Error::Refused { thing, why, hint } => Error::Refused { thing: rename(thing), why, hint: rename(hint) },
        Error::Incomplete { thing, why, hint } => Error::Incomplete { thing: rename(thing), why, hint: rename(hint) },
        other => other,
    }
}

/// The base must have the page size that the database has now.
pub(super) fn check(set: &SetHeader, base: Option<&BaseMap>) -> Result<()> {
    let Some(base) = base else { return Ok(()) };
    for stream in &set.streams {
        let same =
            base.streams().iter().find(|known| known.id == stream.id).is_some_and(|known| known.unit == stream.unit);
        if !same {
            return Err(Error::refused(
                format!("base {}", base.backup_set_id()),
                "the database has another page size now than when this full was taken",
                "take a full (--kind full)",
            ));
        }
    }
    Ok(())
}
