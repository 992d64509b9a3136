//! `--auto`: takes codec, stripes, buffers and workers as `fullbore advise` would print them.

use std::path::PathBuf;

use fullbore_core::codec::Compression;
use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};

use super::Request;
use crate::job::estimate;
use crate::job::estimate::ForeseenReport;
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_core::units::{counted, show_bytes};
use fullbore_engines::engine::AlsoIn;
use fullbore_model::estimate::Goal;
use fullbore_model::profile;

/// The input of the choice.
#[derive(Debug, Clone)]
pub struct Auto {
    /// The goal of the choice.
    pub goal: Goal,
    /// `--profile`.
    pub profile: String,
    /// `--data-path`: the directory with the files of a server.
    pub data_path: Option<PathBuf>,
    /// The codec, if flag or configuration gives one.
    pub compression: Option<Compression>,
    /// The path of the catalog.
    pub catalog: PathBuf,
}

/// `request` with the settings that `--auto` chooses, and without `--auto`; unchanged if `--auto` was not given. There
/// are at least `least_stripes` stripes, the places of a second side. A note says what was chosen.
///
/// # Errors
/// Those of `fullbore advise`, except a profile of another machine: a backup must not begin to fail because the machine
/// got another processor. A log set; a deadline that no configuration keeps.
pub(in crate::job) fn chosen(
    request: &Request,
    least_stripes: usize,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Request> {
    let Some(auto) = &request.auto else { return Ok(request.clone()) };
    if request.kind == SetKind::Log {
        let why = "a log set is too small for a choice to matter";
        return Err(Error::usage("--auto", why, "leave it out, or give --compression and --stripes"));
    }
    let profile = match profile::of_this_machine(&auto.profile) {
        Ok(profile) => profile,
        Err(error @ Error::Usage { .. }) => return Err(error), // No profile has that name.
        Err(error) => {
            let why = error.one_line();
            report.warnings.push(format!("--auto chose nothing, the usual defaults apply: {why}"));
            return Ok(Request { auto: None, ..request.clone() });
        }
    };
    let asked = estimate::Request {
        source: request.source.clone(),
        to: request.to.clone(),
        least_stripes,
        stripes: request.stripes,
        compression: auto.compression,
        encrypted: !request.encrypt_to.is_empty(),
        differential: request.kind == SetKind::Differential,
        knobs: request.knobs.clone(),
        profile: auto.profile.clone(),
        data_path: auto.data_path.clone(),
        engine_options: request.engine_options.of(AlsoIn::Estimates),
        catalog: auto.catalog.clone(),
        ..estimate::Request::default()
    };
    let advice = estimate::advise_by(profile, &asked, &auto.goal, conduct)?;
    if !advice.keeps_deadline {
        let p90 = |foreseen: Option<ForeseenReport>| foreseen.map(|foreseen| foreseen.p90_s);
        let line = &advice.advised;
        let p90 = auto.goal.by.of(p90(line.backup), p90(line.restore)).unwrap_or(f64::NAN);
        let why = format!(
            "no configuration keeps it: the nearest one needs {p90:.1} s for {}, in nine of ten runs",
            auto.goal.by.name()
        );
        return Err(Error::usage(
            "--deadline",
            why,
            "`fullbore estimate --deadline` says which hardware would keep it",
        ));
    }
    let line = &advice.advised;
    report.warnings.extend(advice.warnings);
    report.notes.push(format!(
        "chosen by --auto: {}, {}, {}, {}{}",
        line.compression,
        counted(line.stripes, "stripe"),
        counted(line.buffer_count, "buffer"),
        counted(line.workers, "worker"),
        advice.throttle.map_or_else(String::new, |rate| format!(", at most {}/s", show_bytes(rate)))
    ));
    let mut made = Request { auto: None, stripes: Some(line.stripes as usize), ..request.clone() };
    made.compression = line.compression.parse()?;
    made.knobs.buffer_count = Some(line.buffer_count as usize);
    made.knobs.workers = Some(line.workers as usize);
    made.knobs.throttle = advice.throttle;
    Ok(made)
}
