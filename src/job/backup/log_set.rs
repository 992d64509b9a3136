//! BACKUP LOG: one log set from the end of its base to now.

use fullbore_core::conduct::Conduct;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::SetEnd;
use fullbore_engines::{LogEngine, Options};
use fullbore_repository::format::SetRecord;

use super::log_base::{self, LogBase};
use super::{Predecessor, Request, Within};
use crate::report::Report;

/// `backup --kind log`: makes one set, or no set if nothing was committed since the last one.
///
/// # Errors
/// Frames are missing between the base and the log, or the set cannot be stored.
pub fn once(
    request: &Request,
    options: &Options,
    within: Option<Within<'_>>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Option<SetRecord>> {
    let engine = engine(request)?;
    if request.base.is_empty() {
        let hint = "name the full and its log sets with --base";
        return Err(Error::usage("--kind log", "the set to continue is not named", hint));
    }
    let tips = log_base::tips(request, engine, &conduct.stores).map_err(|error| conduct.why_halted(error))?;
    let ends: Vec<SetEnd> = tips.iter().map(|tip| tip.end.clone()).collect();
    let halt = options.halt.clone().unwrap_or_default();
    let (at, session) = conduct.until_signalled(&halt, || engine.open(request.source.text(), &ends, options))?;
    let tip = &tips[at];
    log_base::passed_over(&tips, at, report);
    let Some(session) = session else {
        report.notes.push(format!("nothing was committed since {}: no set was written", tip.title));
        return Ok(None);
    };
    refuse_clear(request, tip)?;
    super::write(request, Predecessor::Set(tip.id), &*session, within, conduct, &halt, report)
}

/// The log backups of the engine that the source names.
///
/// # Errors
/// It has no log backups; or an option is of another engine.
pub fn engine(request: &Request) -> Result<&'static dyn LogEngine> {
    let engine = request.source.engine();
    engine.map_or(Ok(()), |engine| fullbore_engines::refuse_options_of_others(engine, &request.engine_options))?;
    let log = engine.and_then(|engine| engine.log());
    log.ok_or_else(|| Error::usage("--kind log", "this engine has no log backups yet", "use --kind differential"))
}

/// Refuses to continue an encrypted chain in clear.
pub fn refuse_clear(request: &Request, tip: &LogBase) -> Result<()> {
    if tip.encrypted && request.encrypt_to.is_empty() {
        return Err(Error::usage(
            "--kind log",
            "its base is encrypted, but this set would be written in clear",
            "name the recipients with --encrypt-to",
        ));
    }
    Ok(())
}
