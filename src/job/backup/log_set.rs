//! BACKUP LOG: one log set from the end of its base to now.

use fullbore_core::conduct::Conduct;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{LogSession, SetEnd};
use fullbore_engines::{LogEngine, Options};

use super::log_base::{self, LogBase};
use super::{Predecessor, Request};
use crate::report::Report;

/// Opens the log of the database from the end of the base to now; `None` if nothing was committed since the base.
///
/// # Errors
/// Frames are missing between the base and the log.
pub(super) fn open(
    request: &Request,
    options: &Options,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Option<(Box<dyn LogSession>, Predecessor)>> {
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
    log_base::passed_over(engine, &tips, at, report);
    let Some(session) = session else {
        report.notes.push(format!("nothing was committed since {}: no set was written", tip.title));
        return Ok(None);
    };
    refuse_clear(request, tip)?;
    Ok(Some((session, Predecessor::Set(tip.id))))
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
