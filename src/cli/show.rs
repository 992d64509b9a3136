//! All terminal output. Messages and progress go to standard error, results to standard output.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use comfy_table::{Table, presets};
use fullbore::Error;
use fullbore::job::follow::{Event, Shipped};
use fullbore::job::inspect::SetSummary;
use fullbore::report::{CalibratedReport, LimitReport, PlannedReport, Report, WITH_WARNINGS};
use fullbore::units::{counted, harmless, mib_per_s, show_bytes};
use fullbore_core::media::Manifest;

use super::args::OutputFlags;

/// Bytes of a page in the closing line: SQL Server counts in 8 KiB.
const PAGE: u64 = 8192;

/// Why a part of the result is not on standard output.
static LOST: OnceLock<std::io::Error> = OnceLock::new();

/// A line of the result, or several.
pub fn line(text: &str) {
    as_it_is(&printable(text));
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
    let _ = writeln!(std::io::stderr(), "{}", printable(text));
}

/// An error, with its hint.
pub fn error(error: &Error) {
    message(&format!("error: {error}"));
}

/// A warning.
pub fn warning(text: &str) {
    message(&format!("warning: {text}"));
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
        std::env::var_os("TERM").is_none_or(|kind| kind != "dumb")
    }

    /// True unless the user turns colours off (`NO_COLOR`).
    pub fn colours(&self) -> bool {
        std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
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

/// The closing line in SQL Server's shape.
fn closing(report: &Report, what: &str) -> String {
    let pages = report.source_bytes.div_ceil(PAGE);
    if pages == 0 && what == "BACKUP LOG" {
        return format!("{what} successfully ended in {:.3} seconds: there were no new pages.", report.elapsed_s);
    }
    let pages = counted(pages, "page");
    format!(
        "{what} successfully processed {pages} in {:.3} seconds ({:.1} MB/sec).",
        report.elapsed_s, report.mib_per_s
    )
}

/// Which database went where. The places are directories or prefixes, each once.
fn backed_up(report: &Report) -> Option<String> {
    let (kind, database) = (report.kind.as_ref()?, report.database.as_ref()?);
    let mut places: Vec<&str> = Vec::new();
    for family in &report.families {
        let place = family.device.rfind('/').map_or(family.device.as_str(), |end| &family.device[..=end]);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let more = places.len().saturating_sub(PLACES_NAMED);
    let mut named: Vec<String> = places.iter().take(PLACES_NAMED).map(|place| value(place)).collect();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    Some(format!("  {kind} of {} to {}", value(database), named.join(", ")))
}

/// Which sets came to which target.
fn restored(report: &Report) -> Option<String> {
    let (last, target) = (report.sets.last()?, report.database_at.as_ref()?);
    let before = match report.sets.len() - 1 {
        0 => String::new(),
        sets => format!(" (with {} before it)", counted(sets as u64, "set")),
    };
    Some(format!("  {}{before} into {}", value(last), value(target)))
}

/// What a backup did.
pub fn backup_result(report: &Report, shown: &OutputFlags, piped: bool) {
    let mut out = Vec::new();
    if report.status == "planned" {
        plan(report, &mut out);
    } else {
        let what = match report.kind.as_deref() {
            Some("differential") => "BACKUP DATABASE WITH DIFFERENTIAL",
            Some("log") => "BACKUP LOG",
            _ => "BACKUP DATABASE",
        };
        out.push(closing(report, what));
        out.extend(backed_up(report));
        out.push(format!(
            "  stored {} in {}{}, skipped {}",
            show_bytes(report.stored_bytes),
            counted(report.families.len() as u64, "family"),
            // Zero bytes have no ratio.
            if report.source_bytes == 0 { String::new() } else { format!(" ({:.2} : 1)", report.ratio) },
            show_bytes(report.skipped_bytes),
        ));
        out.extend(read_besides(report));
        tail(report, shown, &mut out);
        if let Some(id) = &report.backup_set_id {
            out.push(format!("  backup set {id}"));
        }
    }
    for text in out {
        // The backup itself may be on standard output.
        if piped { message(&text) } else { line(&text) }
    }
}

/// What was copied.
pub fn copy_result(report: &Report, shown: &OutputFlags, piped: bool) {
    let mut out = Vec::new();
    if report.status == "planned" {
        plan(report, &mut out);
    } else {
        let copied = report.copied.iter().filter(|copy| copy.how != "there already").count();
        out.push(match copied {
            0 => "COPY stored nothing: the target has every set already.".to_owned(),
            _ => format!(
                "COPY of {} successfully stored {} in {:.3} seconds ({:.1} MiB/s of media).",
                counted(copied as u64, "set"),
                show_bytes(report.stored_bytes),
                report.elapsed_s,
                mib_per_s(report.stored_bytes, report.elapsed_s),
            ),
        });
        out.extend(report.sets.iter().map(|set| format!("  {set}")));
        tail(report, shown, &mut out);
    }
    for text in out {
        // The copy itself may be on standard output.
        if piped { message(&text) } else { line(&text) }
    }
}

/// The planned memory of the job: pool, codecs, parts of objects, and their sum.
fn memory(report: &Report) -> String {
    let pool = &report.pool;
    let parts = match pool.part_bytes {
        0 => String::new(),
        bytes => format!(" + parts of objects {}", show_bytes(bytes)),
    };
    format!(
        "pool {} ({} buffers × {}) + codecs {}{parts} = {}",
        show_bytes(pool.bytes),
        pool.buffer_count,
        show_bytes(pool.max_transfer_size),
        show_bytes(pool.codec_bytes),
        show_bytes(pool.bytes + pool.codec_bytes + pool.part_bytes),
    )
}

fn plan(report: &Report, out: &mut Vec<String>) {
    out.push("plan (nothing was written):".to_owned());
    out.push(format!("  memory: {}", memory(report)));
    for (at, set) in report.sets.iter().enumerate() {
        out.push(format!("  {}. {set}", at + 1));
    }
    if report.stored_bytes > 0 {
        out.push(format!("  media: about {}", show_bytes(report.stored_bytes)));
    }
    if report.allocated_bytes > 0 {
        out.push(format!("  database: {}", in_use(report)));
    }
    if let Some(planned) = &report.planned {
        plan_of_backup(report, planned, out);
    }
    origin(report, out);
}

/// What a backup would do.
fn plan_of_backup(report: &Report, planned: &PlannedReport, out: &mut Vec<String>) {
    let (kind, engine) = (report.kind.as_deref().unwrap_or("full"), report.engine.as_deref().unwrap_or("?"));
    out.push(format!(
        "  {kind} by engine {engine}, compression {}, {}, {}, queue depth {}",
        planned.compression,
        counted(planned.readers, "reader"),
        counted(planned.workers, "worker"),
        planned.queue_depth
    ));
    if report.encrypted_to.is_empty() {
        out.push("  not encrypted".to_owned());
    }
    for (what, families) in [("family", &planned.families), ("copy of family", &planned.copies)] {
        for (at, family) in families.iter().enumerate() {
            let about = match family.expected_bytes {
                0 => String::new(),
                bytes => format!(", about {}", show_bytes(bytes)),
            };
            let free =
                family.free_bytes.map_or_else(String::new, |bytes| format!(", {} free there", show_bytes(bytes)));
            out.push(format!("  {what} {}: {}{about}{free}", at + 1, value(&family.device)));
        }
    }
}

/// The keys that open the set, and the configuration that was used.
fn origin(report: &Report, out: &mut Vec<String>) {
    for key in &report.encrypted_to {
        let file = key.file.as_ref().map_or_else(String::new, |file| format!(" ({})", value(file)));
        out.push(format!("  encrypted to {}{file}", key.key_id));
    }
    out.extend(report.configuration.iter().map(|path| format!("  configuration {}", value(path))));
}

/// The size of a database: the bytes in use, and for a server the part that must be read. An estimate counts that part.
fn in_use(report: &Report) -> String {
    let used = format!("{} in use", show_bytes(report.allocated_bytes));
    match report.hole_bytes {
        0 => used,
        holes => {
            let left = show_bytes(report.allocated_bytes.saturating_sub(holes));
            format!("{used}; of these, {} were never written: {left} to read", show_bytes(holes))
        }
    }
}

/// For a server whose files changed during the backup: the bytes read beyond those in use at the start.
fn read_besides(report: &Report) -> Option<String> {
    let more = report.source_bytes.saturating_sub(report.allocated_bytes);
    let is_server = report.engine.as_deref().and_then(fullbore_engines::named).is_some_and(|engine| engine.is_server());
    (is_server && more > report.allocated_bytes / 100).then(|| {
        format!(
            "  read {}: {} in use at the start, and {} of redo log and of files that changed during the backup",
            show_bytes(report.source_bytes),
            show_bytes(report.allocated_bytes),
            show_bytes(more)
        )
    })
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

/// The result of following a log.
pub fn follow_result(report: &Report, shown: &OutputFlags) {
    let mut out = vec![closing(report, "BACKUP LOG")];
    tail(report, shown, &mut out);
    out.iter().for_each(|text| line(text));
}

/// What a restore did.
pub fn restore_result(report: &Report, shown: &OutputFlags) {
    let mut out = Vec::new();
    if report.status == "planned" {
        plan(report, &mut out);
    } else {
        out.push(closing(report, "RESTORE DATABASE"));
        out.extend(restored(report));
        if let Some(resumed) = report.resumed.as_ref().filter(|resumed| resumed.fetched_blocks + resumed.kept_bytes > 0)
        {
            out.push(format!(
                "  kept {} of the partial restore, and fetched {} blocks ({}) for the rest",
                show_bytes(resumed.kept_bytes),
                resumed.fetched_blocks,
                show_bytes(resumed.fetched_bytes)
            ));
        }
        if let Some(started) = &report.start_check {
            out.push(format!(
                "  {} {} was ready after {:.3} seconds; {} OK ({:.3} seconds)",
                value(&started.program),
                value(&started.version),
                started.ready_s,
                tables_are(started.tables),
                started.check_s
            ));
            if started.loaded > 0 {
                let loaded = counted(started.loaded, "table");
                out.push(format!("  of these, {loaded} of other engines than InnoDB, loaded from SQL text"));
            }
        }
        if let Some(taken) = &report.tables {
            out.push(format!(
                "  {} {} was ready after {:.3} seconds, on {} of {} ({})",
                value(&taken.program),
                value(&taken.version),
                taken.ready_s,
                taken.restored_files,
                counted(taken.restored_files + taken.passed_over_files, "file"),
                show_bytes(taken.restored_bytes)
            ));
            let tables = taken.tables.iter();
            out.extend(tables.map(|table| {
                let files = counted(table.files.len() as u64, "file");
                format!("  {}: {files}, {}", value(&table.table), show_bytes(table.bytes))
            }));
        }
        tail(report, shown, &mut out);
    }
    out.iter().for_each(|text| line(text));
}

fn tables_are(tables: u64) -> String {
    if tables == 1 { "the only table is".to_owned() } else { format!("all {tables} tables are") }
}

/// What a verification found.
pub fn verify_result(report: &Report, shown: &OutputFlags) {
    let mut out = vec![format!(
        "{}: {} in {}, {:.3} seconds ({:.1} MiB/s of media).",
        if report.sets.len() == 1 {
            "The backup set is valid".to_owned()
        } else {
            format!("All {} backup sets are valid", report.sets.len())
        },
        show_bytes(report.stored_bytes),
        counted(report.families.len() as u64, "family"),
        report.elapsed_s,
        mib_per_s(report.stored_bytes, report.elapsed_s),
    )];
    tail(report, shown, &mut out);
    out.iter().for_each(|text| line(text));
}

/// Stages, limit and devices.
fn tail(report: &Report, shown: &OutputFlags, out: &mut Vec<String>) {
    match (&report.verdict, &report.bottleneck) {
        (Some(verdict), _) => {
            out.push(format!("  limit: {}: {}", verdict.limit, value(&verdict.why)));
            let calibrated = verdict.calibrated.iter().filter(|one| one.percent >= LEAST_PERCENT);
            out.extend(calibrated.map(|calibrated| {
                format!("  {}: {} (profile `{}`)", of_calibrated(calibrated), calibrated.limit, calibrated.profile)
            }));
            out.extend(verdict.what_if.iter().map(|what_if| format!("  what if: {}", value(&what_if.text))));
        }
        (None, Some(bottleneck)) => out.push(format!("  limit: {}: {}", bottleneck.stage, bottleneck.why)),
        (None, None) => {}
    }
    if let Some(limit) = &report.limit {
        let sink = limit.sink_mib_per_s.map_or_else(|| "not measured".to_owned(), |speed| format!("{speed:.0}"));
        let copy =
            limit.copy_mib_per_s.map_or_else(String::new, |speed| format!("; source and sink at once {speed:.0}"));
        let transform =
            limit.transform_mib_per_s.map_or_else(|| "not measured".to_owned(), |speed| format!("{speed:.0}"));
        let alone =
            format!("alone: source {:.0}, transform {transform}, sink {sink} MiB/s{copy}", limit.source_mib_per_s);
        out.push(format!("  {}, {} ({alone})", of_probe(limit), limit.stage));
    }
    out.push(format!(
        "  memory: {}, peak {}; processor {:.2} s",
        memory(report),
        show_bytes(report.peak_rss_bytes),
        report.cpu_s,
    ));
    origin(report, out);
    if shown.verbose {
        details(report, out);
    }
}

/// Places that a closing line names.
const PLACES_NAMED: usize = 3;
/// A job that reached less than this of a calibrated limit moved too few bytes for a comparison.
const LEAST_PERCENT: f64 = 0.5;

/// The speed of the job as a share of the calibrated limit; of a copy in bytes of media.
fn of_calibrated(calibrated: &CalibratedReport) -> String {
    let (limit, percent) = (calibrated.mib_per_s, calibrated.percent);
    let speed = limit * percent / 100.0;
    match percent <= 100.0 {
        true => format!("{speed:.0} of {limit:.0} MiB/s, {percent:.0} % of the calibrated limit"),
        false => format!("{speed:.0} MiB/s; calibrated limit: {limit:.0} (the job met something faster)"),
    }
}

/// The speed of the job as a share of the probe before it. A share above 100 % shows that the probe was disturbed.
fn of_probe(limit: &LimitReport) -> String {
    let (probe, percent) = (limit.mib_per_s, limit.percent);
    let speed = probe * percent / 100.0;
    match percent <= 100.0 {
        true => format!("{speed:.0} of {probe:.0} MiB/s, {percent:.0} %"),
        false => format!("{speed:.0} MiB/s; probe before: {probe:.0} (disturbed)"),
    }
}

fn details(report: &Report, out: &mut Vec<String>) {
    let mut stages = Table::new();
    stages.load_style(presets::NOTHING).set_header(["stage", "MiB", "busy s", "starved s", "blocked s"]);
    for stage in &report.stages {
        let seconds = |value: f64| format!("{value:.2}");
        let bytes = format!("{:.0}", stage.bytes as f64 / f64::from(1 << 20));
        stages.add_row([
            stage.name.clone(),
            bytes,
            seconds(stage.busy_s),
            seconds(stage.starved_s),
            seconds(stage.blocked_s),
        ]);
    }
    out.push(stages.to_string());
    let mut devices = Table::new();
    devices.load_style(presets::NOTHING).set_header([
        "device",
        "operations",
        "mean KiB",
        "mean depth",
        "p99 µs",
        "direct",
    ]);
    for device in &report.io {
        devices.add_row([
            device.device.clone(),
            device.ops.to_string(),
            format!("{:.0}", device.mean_bytes / 1024.0),
            format!("{:.1}", device.mean_queue_depth),
            device.p99_us.to_string(),
            if device.direct { "yes" } else { "no" }.to_owned(),
        ]);
    }
    out.push(devices.to_string());
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
        for (what, value) in [("database", &set.database), ("name", &set.name), ("description", &set.description)] {
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
            set.why_incomplete.as_deref().map_or_else(|| "complete".to_owned(), |why| format!("INCOMPLETE: {why}"));
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
            }
        }
    }
}

/// When the commits in a log set were seen.
fn log_span(set: &SetSummary) -> Option<String> {
    Some(format!("after {} to {}", set.log_from.as_deref()?, set.log_at.as_deref()?))
}

/// The sets in directories.
pub fn list(sets: &[SetSummary]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "backup set",
        "kind",
        "started",
        "database",
        "size",
        "families",
        "state",
    ]);
    for set in sets {
        table.add_row([
            set.backup_set_id.clone(),
            set.kind.clone(),
            set.started_at.clone(),
            set.database.as_deref().map_or_else(|| "(encrypted)".to_owned(), value),
            show_bytes(set.stored_bytes),
            format!("{}/{}", set.devices.len(), set.families),
            set.why_incomplete.as_deref().map_or_else(|| "complete".to_owned(), value),
        ]);
        if let Some(base) = &set.base_backup_set_id {
            let on = if set.kind == "log" { "  continues" } else { "  based on full" };
            table.add_row([on.to_owned(), base.clone()]);
        }
        if let Some(span) = log_span(set) {
            table.add_row(["  commits".to_owned(), span]);
        }
    }
    line(&table.to_string());
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
