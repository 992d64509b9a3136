//! All terminal output. Messages and progress go to standard error, results to standard output.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use fullbore::Error;
use fullbore::chain::show_time;
use fullbore::job::follow::{Event, Shipped};
use fullbore::job::inspect::SetSummary;
use fullbore::report::WITH_WARNINGS;
use fullbore::units::{counted, harmless, show_bytes};
use fullbore_core::io::{open_without_wait, refuse_file_with_other_writers};
use fullbore_core::media::Manifest;
use rustix::fs::{FileType, Stat};

/// Why a part of the result is not on standard output.
static LOST: OnceLock<std::io::Error> = OnceLock::new();
/// The file that gets all messages (`--log-file`).
static LOG: OnceLock<File> = OnceLock::new();
/// A message could not be written to that file: said once.
static LOG_FAILED: AtomicBool = AtomicBool::new(false);
/// A job runs: its lines on standard error begin with the time, if that is not a terminal.
static JOB_RUNS: AtomicBool = AtomicBool::new(false);
/// Statements of T-SQL run: they have no flags that a hint may name.
static SCRIPT_RUNS: AtomicBool = AtomicBool::new(false);

/// Colours of messages and tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// An error, damage.
    Red,
    /// A warning.
    Yellow,
    /// Everything is good.
    Green,
}

impl Colour {
    /// The text in this colour, for a terminal.
    pub fn paint(self, text: &str) -> String {
        let code = match self {
            Colour::Red => 31,
            Colour::Yellow => 33,
            Colour::Green => 32,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// True if the user wants colours on a terminal: `NO_COLOR` and a terminal without abilities turn them off.
fn colours_wanted() -> bool {
    let unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
    unset("NO_COLOR") && std::env::var_os("TERM").is_some_and(|kind| kind != "dumb")
}

/// True if the result may have colours.
pub fn result_has_colours() -> bool {
    colours_wanted() && std::io::stdout().is_terminal()
}

/// The columns of standard output; `None` if it is not a terminal.
pub fn result_width() -> Option<usize> {
    let out = std::io::stdout();
    if !out.is_terminal() {
        return None;
    }
    let said = rustix::termios::tcgetwinsize(out).ok().filter(|size| size.ws_col > 0);
    Some(said.map_or(80, |size| size.ws_col.into()))
}

/// True of the first bytes of a log file: a time, as [`log`] writes it.
pub fn is_log(text: &str) -> bool {
    text.split_once(' ').is_some_and(|(time, _)| time.ends_with('Z') && time.parse::<jiff::Timestamp>().is_ok())
}

/// Opens the file that gets all messages. If that fails, the command goes on, with a warning.
///
/// # Errors
/// It is standard output: the messages would be in the result. Or other users may write to it.
pub fn log_to(path: &Path) -> fullbore::Result<()> {
    let opened = open_without_wait(File::options().create(true).append(true).mode(0o600), path);
    let file = match opened {
        Ok(file) => file,
        Err(e) => {
            warning(&Error::io("append messages to", path.display().to_string(), e).to_string());
            return Ok(());
        }
    };
    if let Ok(metadata) = file.metadata() {
        refuse_file_with_other_writers(path, &metadata)?;
    }
    let stat = |file: &dyn AsFd| rustix::fs::fstat(file).ok();
    // A terminal, and /dev/null, may be both.
    let keeps = |stat: &Stat| !FileType::from_raw_mode(stat.st_mode).is_char_device();
    let log = stat(&file).filter(keeps).map(|log| (log.st_dev, log.st_ino));
    if log.is_some() && log == stat(&std::io::stdout()).map(|out| (out.st_dev, out.st_ino)) {
        let why = "is standard output: messages would be in the result";
        return Err(Error::usage(format!("--log-file {}", path.display()), why, "name a file, or /dev/stderr"));
    }
    let _ = LOG.set(file); // Set once.
    Ok(())
}

/// Writes a text to the log file only, each line with the time.
pub fn log(text: &str) {
    let Some(mut file) = LOG.get() else { return };
    let lines: String = printable(text).lines().map(|line| format!("{} {line}\n", now())).collect();
    // One write for each message: other processes may append to this file too.
    if let Err(e) = file.write_all(lines.as_bytes())
        && !LOG_FAILED.swap(true, Ordering::Relaxed)
    {
        let _ = writeln!(std::io::stderr(), "warning: messages are missing in the log file: {e}");
    }
}

/// Says that a job runs, or has ended.
pub fn job_runs(runs: bool) {
    JOB_RUNS.store(runs, Ordering::Relaxed);
}

/// The time in UTC, to the second.
fn now() -> String {
    show_time(jiff::Timestamp::now().as_microsecond())
}

/// A line of the result, or several.
pub fn line(text: &str) {
    as_it_is(&printable(text));
}

/// A table. It has shown control characters of its texts already, and may have colours.
pub fn table(text: &str) {
    as_it_is(text);
}

/// A line that a program reads: JSON, which has its own escapes.
pub fn as_it_is(text: &str) {
    let mut out = std::io::stdout();
    noted(writeln!(out, "{text}").and_then(|()| out.flush()));
}

/// Remembers the first error. A reader that closed the pipe (`| head`) is not an error.
fn noted(written: std::io::Result<()>) {
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let _ = LOST.set(error); // The first one is kept.
    }
}

/// The exit code of a run that would end with `code`. If output was lost, it says so. `for_output` is true for a verb
/// that only prints.
pub fn ended(code: u8, for_output: bool) -> u8 {
    let Some(lost) = LOST.get() else { return code };
    let failed = Error::refused(
        "standard output",
        format!("the result could not be written: {lost}"),
        "free space there, or send the result elsewhere",
    );
    match code {
        0 | WITH_WARNINGS if for_output => {
            error(&failed);
            failed.exit_kind().exit_code()
        }
        0 | WITH_WARNINGS => {
            warning(&failed.noting("the command itself is done").to_string());
            WITH_WARNINGS
        }
        _ => {
            warning(&failed.to_string());
            code
        }
    }
}

/// Names, paths and descriptions come from media and directories that others may have made. Control characters in them
/// are shown and not sent to the terminal.
fn printable(text: &str) -> String {
    harmless(text, |letter| letter != '\n' && letter != '\t')
}

/// The same for a value that must stay on its line.
pub(super) use fullbore::units::on_its_line as value;

/// A report that must arrive: also a closed pipe is an error.
pub fn must_print(text: &str) -> fullbore::Result<()> {
    let mut out = std::io::stdout();
    let printed = writeln!(out, "{text}").and_then(|()| out.flush());
    printed.map_err(|e| Error::io("write the report to", "standard output", e))
}

/// A line to standard error.
pub(super) fn message(text: &str) {
    said(None, text);
}

/// A line to standard error that begins with a coloured word.
fn said(word: Option<(Colour, &str)>, text: &str) {
    let (plain, text) = (word.map_or_else(String::new, |(_, word)| format!("{word}: ")), printable(text));
    log(&format!("{plain}{text}"));
    let terminal = std::io::stderr().is_terminal();
    let time = if JOB_RUNS.load(Ordering::Relaxed) && !terminal { now() + " " } else { String::new() };
    let word = match word {
        Some((colour, word)) if terminal && colours_wanted() => colour.paint(&format!("{word}:")) + " ",
        _ => plain,
    };
    let _ = writeln!(std::io::stderr(), "{time}{word}{text}");
}

/// An error, with its hint.
pub fn error(error: &Error) {
    let text = match SCRIPT_RUNS.load(Ordering::Relaxed) && error.hint().contains("--mkdir") {
        true => {
            format!("{}\n  hint: make the directory first; it may be a disk that is not mounted", error.without_hint())
        }
        false => error.to_string(),
    };
    said(Some((Colour::Red, "error")), &text);
}

/// A script of T-SQL runs from here on.
pub fn script_runs() {
    SCRIPT_RUNS.store(true, Ordering::Relaxed);
}

/// A warning.
pub fn warning(text: &str) {
    said(Some((Colour::Yellow, "warning")), text);
}

/// The present step of a long command.
pub fn told(text: &str) {
    message(text);
}

/// A fact that is worth knowing and needs no action.
pub fn note(text: &str) {
    message(&format!("note: {text}"));
}

/// A note while progress may be drawn: the progress line is erased, and is drawn again below the note.
pub fn beside_progress(text: &str) {
    if std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "\r\x1b[J");
    }
    note(text);
}

/// The output of clap: help and version to standard output, errors to standard error.
pub fn clap_error(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let _ = error.print();
        return ExitCode::from(2);
    }
    noted(error.print().and_then(|()| std::io::stdout().flush()));
    ExitCode::from(ended(0, true))
}

/// Standard error as a terminal whose last lines are written over.
pub struct Terminal {
    /// Lines that are drawn now, with the cursor at the end of the last line.
    drawn: usize,
}

impl Terminal {
    /// `None` if standard error is not a terminal.
    pub fn on_standard_error() -> Option<Self> {
        std::io::stderr().is_terminal().then_some(Self { drawn: 0 })
    }

    /// True if the terminal can move its cursor.
    pub fn is_able(&self) -> bool {
        std::env::var_os("TERM").is_some_and(|kind| kind != "dumb")
    }

    /// True unless the user turns colours off (`NO_COLOR`).
    pub fn colours(&self) -> bool {
        colours_wanted()
    }

    /// Columns now: users resize their windows.
    pub fn width(&self) -> usize {
        Self::size().0
    }

    /// Lines now.
    pub fn height(&self) -> usize {
        Self::size().1
    }

    /// 80 × 24 if the terminal does not say its size, such as a serial line.
    fn size() -> (usize, usize) {
        let said =
            rustix::termios::tcgetwinsize(std::io::stderr()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        said.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()))
    }

    /// Writes these lines over those that were drawn before, in one write so that nothing flickers.
    pub fn draw(&mut self, lines: &[String]) {
        let mut text = self.to_top();
        for (at, line) in lines.iter().enumerate() {
            let before = if at > 0 { "\n" } else { "" };
            text += &format!("{before}{line}\x1b[K");
        }
        text += "\x1b[J"; // Fewer lines than before.
        let mut out = std::io::stderr();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        self.drawn = lines.len();
    }

    /// Erases all drawn lines.
    pub fn clear(&mut self) {
        if self.drawn > 0 {
            let _ = write!(std::io::stderr(), "{}\x1b[J", self.to_top());
            self.drawn = 0;
        }
    }

    fn to_top(&self) -> String {
        if self.drawn > 1 { format!("\r\x1b[{}A", self.drawn - 1) } else { "\r".to_owned() }
    }
}

/// The closing lines of a job. With `piped`, the media themselves are on standard output.
pub fn closing(lines: &[String], piped: bool) {
    for text in lines {
        if piped {
            message(text);
        } else {
            log(text);
            line(text);
        }
    }
}

/// What happened while a log is followed.
pub fn event(event: &Event) {
    match event {
        Event::Full(id) => message(&format!("full {id} taken: its log is followed from here")),
        Event::Apart(why) => warning(&format!("{why}; a full is taken")),
        Event::Joined(title) => message(&format!("continuing from {title}")),
        Event::Shipped(Shipped { set, last, amount, stored_bytes, pace, .. }) => {
            message(&format!("log {set} up to {last}: {amount}, {}; {pace}", show_bytes(*stored_bytes)))
        }
        // This event comes with each look at the log.
        Event::Durable(_) => {}
        Event::Behind(why) => warning(why),
        Event::Failed(why, pause) => {
            warning(&format!("a log set could not be stored: {why}; next try in {:.1} s", pause.as_secs_f64()))
        }
    }
}

/// HEADERONLY.
pub fn headers(sets: &[SetSummary]) {
    for set in sets {
        line(&format!("{} {}", set.kind, set.backup_set_id));
        line(&format!("  media set   {}", set.media_set_id));
        if let Some(base) = &set.base_backup_set_id {
            line(&format!("  base        {base}"));
        }
        line(&format!("  started     {}", set.started_at));
        if let Some(span) = log_span(set) {
            line(&format!("  commits     {span}"));
        }
        line(&format!(
            "  engine      {}, {}",
            value(&set.engine),
            set.database_bytes.map_or_else(|| "size unknown".to_owned(), show_bytes)
        ));
        for (what, value) in [
            ("database", &set.database),
            ("host", &set.host),
            ("name", &set.name),
            ("description", &set.description),
            ("media name", &set.media_name),
        ] {
            if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
                line(&format!("  {what:<11} {}", self::value(value)));
            }
        }
        line(&format!("  codec       {}{}", set.codec, if set.encrypted { ", AES-256-GCM" } else { "" }));
        for recipient in &set.recipients {
            line(&format!("  for key     {recipient}"));
        }
        line(&format!("  transfer    {} (block size {})", show_bytes(set.max_transfer_size.into()), set.block_size));
        line(&format!("  written by  fullbore {}", value(&set.tool_version)));
        let state =
            set.why_incomplete.as_deref().map_or_else(|| "complete".to_owned(), |why| format!("incomplete: {why}"));
        line(&format!(
            "  families    {} of {}, {}, {state}",
            set.devices.len(),
            set.families,
            show_bytes(set.stored_bytes)
        ));
        for device in &set.devices {
            line(&format!("    {}", value(device)));
        }
    }
}

/// LABELONLY.
pub fn labels(sets: &[SetSummary]) {
    for set in sets {
        line(&format!("media set {}", set.media_set_id));
        match (&set.name, &set.description) {
            (None, None) => line("  encrypted: its label can be read with `inspect files --key`"),
            (name, description) => {
                line(&format!("  name        {}", value(name.as_deref().unwrap_or_default())));
                line(&format!("  description {}", value(description.as_deref().unwrap_or_default())));
                set.media_name.iter().for_each(|name| line(&format!("  media name  {}", value(name))));
            }
        }
    }
}

/// When the commits in a log set were seen.
fn log_span(set: &SetSummary) -> Option<String> {
    Some(format!("after {} to {}", set.log_from.as_deref()?, set.log_at.as_deref()?))
}

/// FILELISTONLY.
pub fn files(manifests: &[Manifest]) {
    for manifest in manifests {
        line(&format!(
            "{} {} ({} {})",
            manifest.kind,
            manifest.backup_set_id,
            value(&manifest.engine),
            value(&manifest.engine_version)
        ));
        line(&format!("  database  {} on {}", value(&manifest.database), value(&manifest.host)));
        line(&format!("  started   {}, last byte read {}", manifest.started_at, manifest.finished_at));
        let pages = fullbore_engines::pages(&manifest.engine);
        // A stream without a name is of a file that disappeared during the copy.
        for stream in manifest.streams.iter().filter(|stream| !stream.name.is_empty()) {
            let (what, size) = match pages.and_then(|pages| pages.page_size(stream)) {
                Some(page) => ("page", page),
                None => ("unit", stream.unit),
            };
            line(&format!(
                "  file      {} {} ({} of {size})",
                value(&stream.name),
                show_bytes(stream.size),
                counted(stream.size.div_ceil(size.into()), what),
            ));
        }
        line(&format!("  position  {}", manifest.position.checkpoint));
        for family in &manifest.families {
            line(&format!("  family {} was written to {}", family.family, value(&family.device)));
        }
        manifest.warnings.iter().for_each(|text| line(&format!("  warning   {}", value(text))));
    }
}
