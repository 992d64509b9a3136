//! Finds the full for a differential, and checks that it fits.

use fullbore_core::cipher::SecretKey;
use fullbore_core::media::{EngineValue, Manifest, SetHeader, SetKind};
use fullbore_core::pool::Pool;
use fullbore_core::store::Stores;
use fullbore_core::unpack::BaseMap;
use fullbore_core::{Error, Result};
use fullbore_engines::Session;

use super::Request;
use fullbore_repository::chain;
use fullbore_repository::discovery;

/// Fulls that may be the base of a differential, newest first.
pub(in crate::job) struct Candidates {
    /// Each with its position.
    fulls: Vec<(discovery::Found, EngineValue)>,
    passed_over: String,
}

/// The fulls that `--base` names and that may be the base, before the database is asked; `None` without a differential.
///
/// # Errors
/// None of them can be the base, or the request contradicts itself.
pub(super) fn candidates(request: &Request, stores: &Stores) -> Result<Option<Candidates>> {
    match (request.kind, request.base.is_empty()) {
        (SetKind::Full, true) => return Ok(None),
        (SetKind::Full, false) => {
            return Err(Error::usage("--base", "only a differential has a base", "add --kind differential"));
        }
        // A log set does not compare pages: see `job::follow`.
        (SetKind::Log, _) => return Ok(None),
        (SetKind::Differential, true) => {
            return Err(Error::usage(
                "--kind differential",
                "its full is not named",
                "name the families of the full with --base",
            ));
        }
        (SetKind::Differential, false) => {}
    }
    let key = discovery::read_key(request.key.as_deref())?;
    discovery::settled(&request.base, stores, |discovered| gather(discovered, request, key.as_ref()))
        .map(Some)
        .map_err(about_base)
}

fn gather(discovered: &discovery::DiscoveredSets, request: &Request, key: Option<&SecretKey>) -> Result<Candidates> {
    let nothing = Pool::new(0, 4096)?;
    let mut candidates = Candidates { fulls: Vec::new(), passed_over: String::new() };
    let Candidates { fulls, passed_over } = &mut candidates;
    for found in discovered.sets.iter().rev().filter(|found| found.set.kind == SetKind::Full) {
        let why = match &found.set.incomplete {
            Some(why) => Some(why.clone()),
            None => {
                let set = discovery::open_set(found, &nothing, 1, key)?;
                let why = set.manifest().and_then(|manifest| unfit(manifest, request));
                if let (None, Some(manifest)) = (&why, set.manifest()) {
                    fulls.push((found.clone(), manifest.position.checkpoint.clone()));
                }
                why
            }
        };
        if let Some(why) = why {
            passed_over.push_str(&format!("\n    {}: {why}", chain::title(&found.set)));
        } else if !request.source.is_server() {
            break; // The newest fit is enough.
        }
    }
    if candidates.fulls.is_empty() { Err(candidates.none()) } else { Ok(candidates) }
}

/// Why a full cannot be the base, by its manifest.
fn unfit(manifest: &Manifest, request: &Request) -> Option<String> {
    let engine = request.source.scheme();
    if manifest.engine != engine {
        return Some(format!("of another engine, {}", manifest.engine));
    }
    // The same server may have many names: the session compares it.
    if !request.source.is_server() && manifest.database != request.source.name() {
        return Some(format!("of `{}`, and this backup is of `{}`", manifest.database, request.source.name()));
    }
    manifest.copy_only.then(|| "taken with --copy-only".to_owned())
}

impl Candidates {
    /// The page map of the newest full of the database that the session has open.
    ///
    /// # Errors
    /// None of them is of this database, or it is encrypted and the differential would not be.
    pub fn choose(mut self, session: &dyn Session, request: &Request) -> Result<BaseMap> {
        let key = discovery::read_key(request.key.as_deref())?;
        for (found, position) in std::mem::take(&mut self.fulls) {
            if let Err(why) = session.accepts_base(&position.value()) {
                self.passed_over.push_str(&format!("\n    {}: {why}", chain::title(&found.set)));
                continue;
            }
            let base = BaseMap::open(discovery::open_set(&found, &Pool::new(0, 4096)?, 1, key.as_ref())?)?;
            if base.is_encrypted() && request.encrypt_to.is_empty() {
                return Err(Error::usage(
                    "--kind differential",
                    "its full is encrypted, but this differential would be written in clear",
                    "name the recipients with --encrypt-to",
                ));
            }
            return Ok(base);
        }
        Err(self.none())
    }

    fn none(&self) -> Error {
        let why = match self.passed_over.as_str() {
            "" => "no full was found there".to_owned(),
            passed_over => format!("no full there can be the base:{passed_over}"),
        };
        Error::incomplete("--base", why, "take a full first, into the same repository or named with --base")
    }
}

/// Errors of a search name `--from`; here the flag is `--base`.
pub(in crate::job) fn about_base(error: Error) -> Error {
    let rename = |thing: String| thing.replace("--from", "--base");
    match error {
        Error::Usage { thing, why, hint } => Error::Usage { thing: rename(thing), why, hint: rename(hint) },
        Error::Refused { thing, why, hint } => Error::Refused { thing: rename(thing), why, hint: rename(hint) },
        Error::Incomplete { thing, why, hint } => Error::Incomplete { thing: rename(thing), why, hint: rename(hint) },
        other => other,
    }
}

/// Checks that the base has the page size of the database.
pub(super) fn check(set: &SetHeader, base: Option<&BaseMap>) -> Result<()> {
    let Some(base) = base else { return Ok(()) };
    for stream in &set.streams {
        let same =
            base.streams().iter().find(|known| known.id == stream.id).is_some_and(|known| known.unit == stream.unit);
        if !same {
            return Err(Error::refused(
                format!("base {}", base.backup_set_id()),
                "the page size of the database has changed since this full was taken",
                "take a full (--kind full)",
            ));
        }
    }
    Ok(())
}
