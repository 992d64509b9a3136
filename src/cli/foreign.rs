//! `inspect` and `list` of media of other programs. The columns have the names of the program that wrote the media.

use std::path::Path;

use fullbore::config::Config;
use fullbore::job::foreign::{self, ForeignDevices};
use fullbore::job::reading::Reading;
use fullbore::job::uploaded;
use fullbore::{Error, Result};
use fullbore_core::conduct::Conduct;
use fullbore_core::units::counted;
use fullbore_engines::{ForeignDescription, ForeignMediaSet, ForeignSet, PointInTime, Restorable, Row};
use serde::Serialize;
use serde_json::Value;

use super::args::{InspectedMedia, List};
use super::inspect::WITH_WARNINGS;
use super::show;
use super::stop_at::{self, ToTime};

/// The media of another program that `from` names: on devices, or uploaded into a repository. `key` opens encrypted sets.
///
/// # Errors
/// As of [`foreign::find`] and [`uploaded::find`].
pub fn find(from: &[String], key: Option<&Path>, config: &Config, conduct: &Conduct) -> Result<Option<ForeignDevices>> {
    match uploaded::find(from, config, key, conduct)? {
        None => foreign::find(from, conduct),
        found => Ok(found),
    }
}

/// The same for a job that reads once: `from` may be `-`.
///
/// # Errors
/// As of [`find`].
pub fn find_or_pipe(
    from: &[String],
    key: Option<&Path>,
    config: &Config,
    conduct: &Conduct,
) -> Result<Option<ForeignDevices>> {
    match uploaded::find(from, config, key, conduct)? {
        None => foreign::find_or_pipe(from, conduct),
        found => Ok(found),
    }
}

/// What `inspect` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// HEADERONLY: one row for each set.
    Header,
    /// FILELISTONLY: one row for each file of a set.
    Files,
    /// LABELONLY: one row for each family.
    Label,
}

impl Question {
    fn command(self) -> &'static str {
        match self {
            Self::Header => "inspect header",
            Self::Files => "inspect files",
            Self::Label => "inspect label",
        }
    }
}

/// The media as an object.
#[derive(Serialize)]
struct Shown<'a> {
    media: &'a str,
    media_sets: Vec<ShownMedia<'a>>,
    warnings: &'a [String],
}

#[derive(Serialize)]
struct ShownMedia<'a> {
    media_set_id: &'a str,
    devices: &'a [String],
    why_incomplete: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a [Row]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sets: Option<Vec<ShownSet<'a>>>,
}

#[derive(Serialize)]
struct ShownSet<'a> {
    position: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    header: Option<&'a Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<&'a [Row]>,
}

/// Shows the answer to `question`; gives the exit code. A missing family comes first.
///
/// # Errors
/// The media have no set at the position that `--file` names, or the JSON object cannot be written.
pub fn inspect(
    description: &ForeignDescription,
    title: &str,
    question: Question,
    media: &InspectedMedia,
) -> Result<u8> {
    let ForeignDescription { media_sets, warnings, .. } = description;
    let is_there = |file: &u16| media_sets.iter().flat_map(|set| &set.sets).any(|set| set.position == *file);
    if let Some(file) = media.file.filter(|file| !is_there(file)) {
        let hint = "`inspect header` without --file shows all sets";
        return Err(Error::usage(format!("--file {file}"), "the media have no set at this position", hint));
    }
    let shown = Shown {
        media: title,
        media_sets: media_sets.iter().map(|set| shown_media(set, question, media.file)).collect(),
        warnings,
    };
    let code = missing_first(description);
    if media.shown.write(question.command(), &shown)? {
        shown.media_sets.iter().for_each(print);
    }
    warnings.iter().for_each(|warning| show::warning(warning));
    Ok(code)
}

fn shown_media(set: &ForeignMediaSet, question: Question, file: Option<u16>) -> ShownMedia<'_> {
    let ForeignMediaSet { id, devices, labels, sets, incomplete, copies: _, has_pages_by_place: _ } = set;
    let wanted = sets.iter().filter(|set| file.is_none_or(|file| file == set.position));
    let sets = wanted.map(|set| ShownSet {
        position: set.position,
        header: (question == Question::Header).then_some(&set.header),
        files: (question == Question::Files).then_some(&set.files[..]),
    });
    ShownMedia {
        media_set_id: id,
        devices,
        why_incomplete: incomplete.as_ref().map(Error::one_line),
        labels: (question == Question::Label).then_some(&labels[..]),
        sets: (question != Question::Label).then(|| sets.collect()),
    }
}

fn print(media: &ShownMedia) {
    show::line(&format!("media set {}", media.media_set_id));
    for (label, device) in media.labels.unwrap_or_default().iter().zip(media.devices) {
        show::line(&format!("  {}", show::value(device)));
        print_row(label);
    }
    for set in media.sets.iter().flatten() {
        show::line(&format!("  file {}", set.position));
        set.header.into_iter().for_each(print_row);
        for (number, file) in set.files.unwrap_or_default().iter().enumerate() {
            if number > 0 {
                show::line("");
            }
            print_row(file);
        }
    }
}

fn print_row(row: &Row) {
    for (column, value) in &row.0 {
        show::line(format!("    {column:<22} {}", text(value)).trim_end());
    }
}

/// A value as SQL clients show it.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::String(text) => show::value(text),
        other => other.to_string(),
    }
}

/// Names what is missing; gives the exit code.
fn missing_first(description: &ForeignDescription) -> u8 {
    let missing = description.media_sets.iter().filter_map(|set| set.incomplete.as_ref());
    let codes = missing.map(|error| {
        show::error(error);
        error.exit_kind().exit_code()
    });
    let otherwise = if description.warnings.is_empty() { 0 } else { WITH_WARNINGS };
    // All of them are named, not only the first.
    codes.collect::<Vec<_>>().first().copied().unwrap_or(otherwise)
}

/// A line of a list as an object.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    line: &'a Row,
    media_set_id: &'a str,
    devices: &'a [String],
    complete: bool,
    why_incomplete: Option<String>,
    base_is_missing: bool,
}

/// The list as an object.
#[derive(Serialize)]
struct Lists<'a> {
    media: &'a str,
    sets: Vec<Listed<'a>>,
    restorable: &'a [Restorable],
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_at: Option<Vec<ToTime<'a>>>,
    warnings: &'a [String],
}

/// Lists the sets of each database in the order of its log; gives the exit code.
///
/// # Errors
/// A flag does not work here, or the JSON object cannot be written.
pub fn list(description: &ForeignDescription, title: &str, args: &List) -> Result<u8> {
    refuse_given(&[("--last", args.last.is_some()), ("--state", args.state.is_some())], "leave it out")?;
    let mut sets: Vec<(&ForeignSet, &ForeignMediaSet)> =
        description.media_sets.iter().flat_map(|media| media.sets.iter().map(move |set| (set, media))).collect();
    sets.sort_by(|(one, _), (other, _)| one.order.cmp(&other.order));
    let without_base = description.without_base();
    let listed = sets.iter().map(|(set, media)| Listed {
        line: &set.line,
        media_set_id: &media.id,
        devices: &media.devices,
        complete: media.incomplete.is_none(),
        why_incomplete: media.incomplete.as_ref().map(Error::one_line),
        base_is_missing: without_base.iter().any(|(_, id)| *id == set.id),
    });
    let stop_at = args.stop_at.as_deref().map(stop_at::time).transpose()?;
    let lists = Lists {
        media: title,
        sets: listed.collect(),
        restorable: &description.restorable,
        stop_at: stop_at.map(|time| stop_at::of(description, time)),
        warnings: &description.warnings,
    };
    let code = match missing_first(description) {
        // A differential without its full, or logs behind a gap.
        0 if description.restorable.iter().any(|database| !database.missing.is_empty()) => WITH_WARNINGS,
        code => code,
    };
    if args.shown.report.write("list", &lists)? {
        print_list(&lists.sets);
        print_restorable(lists.restorable);
        lists.stop_at.iter().flatten().for_each(ToTime::print);
    }
    let failed = lists.stop_at.iter().flatten().filter_map(ToTime::failed).collect::<Vec<u8>>();
    let code = if code == 0 || code == WITH_WARNINGS { failed.first().copied().unwrap_or(code) } else { code };
    description.warnings.iter().for_each(|warning| show::warning(warning));
    Ok(code)
}

/// Columns of the list: they are as wide as their longest text.
fn print_list(sets: &[Listed]) {
    let Some(first) = sets.first() else { return };
    let heads = first.line.0.iter().map(|(head, _)| (*head).to_owned()).chain(["State".into(), "Devices".into()]);
    let row = |set: &Listed| {
        let state = match (set.complete, set.base_is_missing) {
            (false, _) => "incomplete",
            (true, true) => "full is missing",
            (true, false) => "complete",
        };
        let devices = set.devices.iter().map(|device| show::value(device)).collect::<Vec<_>>().join(", ");
        let values = set.line.0.iter().map(|(_, value)| text(value));
        values.chain([state.to_owned(), devices]).collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = [heads.collect()].into_iter().chain(sets.iter().map(row)).collect();
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|text| text.chars().count()).max();
    for row in &rows {
        let cell = |(at, text): (usize, &String)| format!("{text:<width$}", width = width(at).unwrap_or(0));
        let line = row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ");
        show::line(line.trim_end());
    }
}

/// The points in time, a line for each range, and what is missing.
fn print_restorable(databases: &[Restorable]) {
    let time = |point: &PointInTime| point.time.clone().unwrap_or_else(|| "an unknown time".to_owned());
    let mut has_logs = false;
    for Restorable { database, ranges, missing } in databases {
        show::line(&format!("points in time of {} that can be restored", show::value(database)));
        for range in ranges {
            let base = range.differential.as_ref().map_or("a full", |_| "a full and a differential");
            let line = match range.log_backups {
                0 => format!("  {}, LSN {}: {base}", time(&range.from), range.from.lsn),
                logs => format!(
                    "  {} to {}, LSN {} to {}: {base}, then {}",
                    time(&range.from),
                    time(&range.to),
                    range.from.lsn,
                    range.to.lsn,
                    counted(logs, "log backup")
                ),
            };
            has_logs |= range.log_backups > 0;
            show::line(&line);
        }
        if ranges.is_empty() {
            show::line("  none");
        }
        missing.iter().for_each(|what| show::line(&format!("  not restorable: {what}")));
    }
    if has_logs {
        show::line(
            "times are by the server's clock; log records are not read, so a time inside a log backup is not checked",
        );
    }
}

/// Refuses `--file` for fullbore's own media, which have one set each, at position 1.
///
/// # Errors
/// It was given.
pub fn refuse_file(file: Option<u16>) -> Result<()> {
    let hint = "choose a set of fullbore with --set";
    match file {
        Some(file) if file != 1 => {
            Err(Error::usage(format!("--file {file}"), "is for backup files of other programs", hint))
        }
        _ => Ok(()),
    }
}

/// Refuses the flags of `verify` that do not work with media of other programs.
///
/// # Errors
/// One of them was given.
pub fn refuse_flags_of_verify(request: &Reading) -> Result<()> {
    let given = [
        ("--throttle", request.knobs.throttle.is_some()),
        ("--set", request.choice.set.is_some()),
        ("--latest", request.choice.latest),
    ];
    refuse_given(&given, "leave it out; --file N chooses a set")
}

fn refuse_given(given: &[(&str, bool)], hint: &str) -> Result<()> {
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(Error::usage(*flag, "does not work with backup files of other programs", hint)),
        None => Ok(()),
    }
}
