//! The closing lines of a job: what, the result, the limit. With `-v`, everything that explains the limit too.

use comfy_table::{Table, presets};
use fullbore::chain::show_time;
use fullbore::ids;
use fullbore::report::{CalibratedReport, LimitReport, MigrationReport, PlannedReport, PointReport, Report};
use fullbore::units::{counted, mib_per_s, show_bytes};
use fullbore_model::verdict::is_worth_naming;

use super::args::OutputFlags;
use super::estimated::show_seconds;
use super::show::value;

/// Places that a closing line names.
const PLACES_NAMED: usize = 3;
/// Copied sets that are named without `-v`.
const SETS_NAMED: usize = 5;
/// Characters of a GTID set that are shown without `-v`: a server's set may be very long.
const GTID_SHOWN: usize = 48;
/// A job that reached less than this of a calibrated limit moved too few bytes for a comparison.
const LEAST_PERCENT: f64 = 0.5;

/// What a backup did.
pub fn backup(report: &Report, shown: &OutputFlags) -> Vec<String> {
    if report.status == "planned" {
        return plan(report);
    }
    let what = if report.kind.as_deref() == Some("log") { "BACKUP LOG" } else { "BACKUP DATABASE" };
    let (kind, database) = (report.kind.as_deref().unwrap_or("full"), report.database.as_deref().unwrap_or_default());
    if report.backup_set_id.is_none() && what == "BACKUP LOG" {
        let mut out = vec![format!("{what}: no new commits in {}: nothing was written", value(database))];
        tail(report, shown, &mut out);
        return out;
    }
    let (places, at) = (places(report.families.iter().map(|family| &family.device)), point(report, " as of ", shown));
    let mut out = vec![format!("{what}: {kind} of {}{at} to {places}{}", value(database), set(report, shown))];
    out.extend(binary_log(report, shown));
    // Zero bytes have no ratio.
    let ratio = if report.source_bytes == 0 { String::new() } else { format!(" ({:.2} : 1)", report.ratio) };
    let families = counted(report.families.len() as u64, "family");
    out.push(format!("  {}, {} stored in {families}{ratio}", moved(report), show_bytes(report.stored_bytes)));
    if shown.verbose {
        out.push(format!("  skipped {}", show_bytes(report.skipped_bytes)));
        out.extend(read_besides(report));
    }
    tail(report, shown, &mut out);
    out
}

/// The result of following a log.
pub fn follow(report: &Report, shown: &OutputFlags) -> Vec<String> {
    let database = value(report.database.as_deref().unwrap_or_default());
    if report.backup_set_id.is_none() {
        let mut out = vec![format!("BACKUP LOG: nothing was committed in {database}: nothing was written")];
        if shown.verbose {
            tail(report, shown, &mut out);
        }
        return out;
    }
    let at = point(report, " up to ", shown);
    let mut out = vec![format!("BACKUP LOG: log of {database}{at}{}", set(report, shown))];
    out.push(format!("  {}, {} stored", moved(report), show_bytes(report.stored_bytes)));
    tail(report, shown, &mut out);
    out
}

/// What a restore did.
pub fn restore(report: &Report, shown: &OutputFlags) -> Vec<String> {
    if report.status == "planned" {
        return plan(report);
    }
    let (of, at) = (of_database(report), point(report, " up to ", shown));
    let into = report.into.as_ref().map_or_else(String::new, |into| format!(" into {}", value(into)));
    let (what, into) = match (&report.command[..], report.restoring) {
        ("restore-test", _) => ("RESTORE TEST", "; restored, checked and removed".to_owned()),
        (_, true) => ("RESTORE DATABASE", format!("{into}, which is not a database yet (NORECOVERY)")),
        (_, false) => ("RESTORE DATABASE", into),
    };
    let mut out = vec![format!("{what}: {of}{at}{into}{}", set(report, shown))];
    out.extend(binary_log(report, shown));
    out.extend(start_at(report));
    match report.sets.is_empty() {
        true => out.push(format!("  no set was read; {}", seconds(report.elapsed_s))),
        false => out.push(format!("  {}", moved(report))),
    }
    if let Some(resumed) = report.resumed.as_ref().filter(|resumed| resumed.fetched_blocks + resumed.kept_bytes > 0) {
        out.push(format!(
            "  kept {} of the partial restore, and fetched {} ({}) for the rest",
            show_bytes(resumed.kept_bytes),
            counted(resumed.fetched_blocks, "block"),
            show_bytes(resumed.fetched_bytes)
        ));
    }
    servers(report, &mut out);
    tail(report, shown, &mut out);
    out
}

/// What a verification found.
pub fn verify(report: &Report, shown: &OutputFlags) -> Vec<String> {
    if !report.coverage.is_empty() {
        return foreign_verify(report);
    }
    let sets = report.sets.len();
    let first = match sets {
        0 | 1 => format!(
            "VERIFY: the backup set is valid: {}{}{}",
            of_database(report),
            point(report, " as of ", shown),
            set(report, shown)
        ),
        _ => format!("VERIFY: {} valid", each(sets as u64, "backup set")),
    };
    let (media, elapsed) = (report.stored_bytes, report.elapsed_s);
    let families = counted(report.families.len() as u64, "family");
    let speed = mib_per_s(media, elapsed);
    let mut out =
        vec![first, format!("  {} in {families}, {} ({speed:.1} MiB/s of media)", show_bytes(media), seconds(elapsed))];
    if shown.verbose && sets > 1 {
        out.extend(report.sets.iter().map(|set| format!("  {}", value(set))));
    }
    tail(report, shown, &mut out);
    out
}

/// The result of a verification of another program's media, with the statement of coverage.
fn foreign_verify(report: &Report) -> Vec<String> {
    let first = match &report.sets[..] {
        [one] => format!("VERIFY: the backup set is valid: {}", value(one)),
        sets => format!("VERIFY: {} valid", each(sets.len() as u64, "backup set")),
    };
    let (bytes, elapsed) = (report.stored_bytes, report.elapsed_s);
    let speed = mib_per_s(bytes, elapsed);
    let mut out = vec![first, format!("  {}, {} ({speed:.1} MiB/s of media)", show_bytes(bytes), seconds(elapsed))];
    out.extend(report.coverage_lines().into_iter().map(|line| format!("  {line}")));
    out
}

/// What was copied.
pub fn copy(report: &Report, shown: &OutputFlags) -> Vec<String> {
    if report.status == "planned" {
        return plan(report);
    }
    let done: Vec<_> = report.copied.iter().filter(|copy| copy.how != "there already").collect();
    let mut out = Vec::new();
    if done.is_empty() {
        out.push("COPY: stored nothing: the target has every chosen set already".to_owned());
    } else {
        let places = places(done.iter().flat_map(|copy| &copy.families));
        out.push(format!("COPY: {} to {places}", counted(done.len() as u64, "set")));
        let (stored, elapsed) = (report.stored_bytes, report.elapsed_s);
        let speed = mib_per_s(stored, elapsed);
        out.push(format!("  {} stored in {} ({speed:.1} MiB/s of media)", show_bytes(stored), seconds(elapsed)));
    }
    let named = if shown.verbose { report.sets.len() } else { SETS_NAMED };
    out.extend(report.sets.iter().take(named).map(|set| format!("  {}", value(set))));
    if let Some(more @ 1..) = report.sets.len().checked_sub(named) {
        out.push(format!("  and {more} more"));
    }
    // Without bytes there is no limit.
    if !done.is_empty() {
        tail(report, shown, &mut out);
    }
    out
}

/// What was unpacked.
pub fn unpack(report: &Report, shown: &OutputFlags) -> Vec<String> {
    let from = report.io.first().map_or("", |device| &device.device);
    let mut out = vec![format!("UNPACK: {} to {}", value(from), value(report.into.as_deref().unwrap_or_default()))];
    out.push(format!("  {}, from {} ({:.2} : 1)", moved(report), show_bytes(report.stored_bytes), report.ratio));
    tail(report, shown, &mut out);
    out
}

/// What was migrated out of a repository.
pub fn refresh(report: &Report, shown: &OutputFlags) -> Vec<String> {
    if report.status == "planned" {
        return plan(report);
    }
    let into = value(report.into.as_deref().unwrap_or_default());
    let state = if report.restoring { "; it is not a database yet" } else { "" };
    let point = point(report, " up to ", shown);
    let mut out = vec![format!("MIGRATE: {} into {into}{point}{state}", of_database(report))];
    out.extend(binary_log(report, shown));
    match report.sets.len() {
        0 => out.push("  no set was read".to_owned()),
        sets => out.push(format!("  {}: {}", counted(sets as u64, "set"), moved(report))),
    }
    if !report.sets.is_empty() {
        tail(report, shown, &mut out);
    }
    out
}

/// What was migrated.
pub fn migrate(report: &Report, shown: &OutputFlags) -> Vec<String> {
    let Some(migration) = &report.migration else { return Vec::new() };
    let [source, target] = [&report.database, &report.into].map(|name| value(name.as_deref().unwrap_or_default()));
    let (tables, versions) = (counted(migration.tables, "table"), migration.servers.join(" into "));
    let is_mapped = !migration.definitions.is_empty();
    if report.status == "planned" {
        let bytes = show_bytes(migration.expected_bytes);
        let what = if is_mapped { "of values" } else { "on disk" };
        let tables = if migration.tables == 0 { String::new() } else { format!("{tables}, ") };
        let mut out =
            vec![format!("MIGRATE: {source} into {target} ({versions})"), format!("  {tables}{bytes} {what}")];
        out.extend(report.sets.iter().map(|set| format!("  {}", value(set))));
        if let Some(foreseen) = migration.foreseen {
            let span = |[least, most]: [f64; 2]| format!("{} to {}", show_seconds(least), show_seconds(most));
            let per_second = |bytes: f64| format!("{:.1} MiB/s", mib_per_s(bytes as u64, 1.0));
            let (read, log) = (per_second(foreseen.read_bytes_per_s), per_second(foreseen.log_bytes_per_s));
            let log = if is_mapped { String::new() } else { format!(", its log grows by {log}") };
            let full = match migration.method {
                // A cut-over out of a repository.
                "" => String::new(),
                "physical" => "full as files, not foreseen; ".to_owned(),
                _ => format!("full {}; ", span(foreseen.full_s)),
            };
            out.push(format!("  {full}the source is read at {read}{log}"));
            out.push(format!("  downtime {}", span(foreseen.downtime_s)));
        }
        for table in &migration.definitions {
            let (rows, bytes) = (counted(table.rows, "row"), show_bytes(table.bytes));
            out.push(format!("  {}: {rows}, {bytes}", value(&table.table)));
            out.extend(table.create.lines().map(|line| format!("    {}", value(line))));
        }
        return out;
    }
    let state = if migration.cut_over { "" } else { "; the source is still in use" };
    let mut out = vec![format!("MIGRATE: {source} into {target} ({versions}){state}")];
    if migration.full_s > 0.0 {
        let rows = match migration.method {
            "physical" => "their files".to_owned(),
            _ => counted(migration.rows, "row"),
        };
        let bytes = show_bytes(report.source_bytes);
        let (time, speed) = (seconds(migration.full_s), mib_per_s(report.source_bytes, migration.full_s));
        out.push(format!("  full: {tables} with {rows}, {bytes} in {time} ({speed:.1} MiB/s)"));
    }
    out.extend(applied(migration));
    let compared = migration.compared.map(|(tables, rows)| {
        format!("{} with {} compared, and equal", counted(tables, "table"), counted(rows, "row"))
    });
    match (migration.downtime_s.filter(|_| migration.cut_over), compared) {
        (Some(down), compared) => {
            let compared = compared.unwrap_or_else(|| "rows were not compared".to_owned());
            out.push(format!("  downtime {}; {compared}", seconds(down)));
        }
        (None, Some(compared)) => out.push(format!("  {compared}")),
        (None, None) => {}
    }
    if migration.full_s > 0.0 {
        tail(report, shown, &mut out);
    }
    out
}

/// What was applied of the log.
fn applied(migration: &MigrationReport) -> Option<String> {
    let bytes = show_bytes(migration.applied_bytes);
    let count = counted(migration.transactions, "transaction");
    let lag = migration.lag_s.map_or_else(|| "unknown".to_owned(), seconds);
    match (migration.follow_s > 0.0, migration.transactions) {
        (true, _) => Some(format!("  log: {count} applied, {bytes}; lag {lag}")),
        // Out of a repository. Not all logs say how many transactions they have.
        (false, 0) => (migration.applied_bytes > 0).then(|| format!("  log: {bytes} applied")),
        (false, _) => Some(format!("  log: {count} applied, {bytes}")),
    }
}

/// What was exported.
pub fn export(report: &Report, shown: &OutputFlags) -> Vec<String> {
    let exported: Vec<_> = report.exported.iter().filter(|table| table.refused.is_none()).collect();
    let rows = exported.iter().map(|table| table.rows).sum::<u64>();
    let (tables, rows) = (counted(exported.len() as u64, "table"), counted(rows, "row"));
    let into = value(report.into.as_deref().unwrap_or_default());
    let database = value(report.database.as_deref().unwrap_or_default());
    let mut out = vec![format!("EXPORT: {tables} of {database} with {rows} to {into}")];
    if let refused @ 1.. = report.exported.len() - exported.len() {
        out.push(format!("  {} refused: see the warnings", counted(refused as u64, "table")));
    }
    out.push(format!("  {} in {}", show_bytes(report.source_bytes), seconds(report.elapsed_s)));
    if shown.verbose {
        out.extend(exported.iter().map(|table| format!("  {}: {}", value(&table.table), counted(table.rows, "row"))));
    }
    out
}

/// `256.0 MiB in 0.796 s (321.4 MiB/s)`.
fn moved(report: &Report) -> String {
    format!("{} in {} ({:.1} MiB/s)", show_bytes(report.source_bytes), seconds(report.elapsed_s), report.mib_per_s)
}

/// A time as it is read fastest: `0.796 s`, `95.3 s`, `12 min 4 s`, `2 h 5 min`.
fn seconds(time: f64) -> String {
    let whole = time.round() as u64;
    match time {
        short if short < 10.0 => format!("{short:.3} s"),
        medium if medium < 100.0 => format!("{medium:.1} s"),
        _ if whole < 3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// The kind, the engine and the database of the sets that were read.
fn of_database(report: &Report) -> String {
    let text = |part: &Option<String>| value(part.as_deref().unwrap_or_default());
    let before = match report.sets.len() {
        0 | 1 => String::new(),
        2 => " and the set before it".to_owned(),
        sets => format!(" and the {} before it", counted(sets as u64 - 1, "set")),
    };
    match &report.kind {
        None => format!("{} {}", text(&report.engine), text(&report.database)),
        Some(kind) => format!("{kind}{before} of {} {}", text(&report.engine), text(&report.database)),
    }
}

/// The short id of the set; the whole id with `-v`.
fn set(report: &Report, shown: &OutputFlags) -> String {
    let short = |id| if shown.verbose { id } else { ids::short(id) };
    report.backup_set_id.as_deref().map_or_else(String::new, |id| format!(" (set {})", short(id)))
}

/// The point in time; with `-v` to the microsecond.
fn point(report: &Report, word: &str, shown: &OutputFlags) -> String {
    let Some(at) = report.point.as_ref().and_then(|point| point.at.as_deref()) else { return String::new() };
    let parsed = if shown.verbose { None } else { at.parse::<jiff::Timestamp>().ok() };
    format!("{word}{}", parsed.map_or_else(|| value(at), |time| show_time(time.as_microsecond())))
}

/// The place in the binary log that the state is consistent with.
fn binary_log(report: &Report, shown: &OutputFlags) -> Option<String> {
    let PointReport { binary_log_file, binary_log_position, gtid, .. } = report.point.as_ref()?;
    let (file, position) = (binary_log_file.as_deref()?, binary_log_position.unwrap_or(0));
    let gtid = gtid.as_deref().map(|gtid| match gtid.char_indices().nth(GTID_SHOWN) {
        Some((end, _)) if !shown.verbose => format!(", GTID {}…", value(&gtid[..end])),
        _ => format!(", GTID {}", value(gtid)),
    });
    Some(format!("  binary log {} position {position}{}", value(file), gtid.unwrap_or_default()))
}

/// Where a server starts on the restored files.
fn start_at(report: &Report) -> Option<String> {
    let engine = report.engine.as_deref().and_then(fullbore_engines::named)?;
    let directory = report.into.as_deref()?.strip_prefix("dir:")?;
    let path = std::path::absolute(directory).map_or_else(|_| directory.into(), |path| path.display().to_string());
    let is_of_server = report.tables.is_none() && !report.is_of_texts;
    let starts = engine.directory().is_some() && is_of_server && report.command == "restore";
    starts.then(|| format!("  start the server on {}", value(&path)))
}

/// The check by a server, and the tables that it exported.
fn servers(report: &Report, out: &mut Vec<String>) {
    if let Some(started) = &report.start_check {
        out.push(format!(
            "  {} {} was ready after {}; {} OK ({})",
            value(&started.program),
            value(&started.version),
            seconds(started.ready_s),
            each(started.tables, "table"),
            seconds(started.check_s)
        ));
        if started.loaded > 0 {
            let loaded = counted(started.loaded, "table");
            out.push(format!("  of these, {loaded} of other engines than InnoDB, loaded from SQL text"));
        }
    }
    if let Some(taken) = &report.tables {
        out.push(format!(
            "  {} {} was ready after {}, on {} of {} ({})",
            value(&taken.program),
            value(&taken.version),
            seconds(taken.ready_s),
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
}

/// `the only table is`, `both tables are`, `all 3 tables are`.
fn each(number: u64, noun: &str) -> String {
    match number {
        1 => format!("the only {noun} is"),
        2 => format!("both {noun}s are"),
        _ => format!("all {number} {noun}s are"),
    }
}

/// The directories or prefixes of families, each once. A family whose name looks like that of a directory is named itself.
fn places<'a>(families: impl Iterator<Item = &'a String>) -> String {
    let mut places: Vec<&str> = Vec::new();
    for device in families {
        let of_a_file = |end: &usize| device[end + 1..].contains('.');
        let place = device.rfind('/').filter(of_a_file).map_or(device.as_str(), |end| &device[..=end]);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    let more = places.len().saturating_sub(PLACES_NAMED);
    let mut named: Vec<String> = places.iter().take(PLACES_NAMED).map(|place| value(place)).collect();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    named.join(", ")
}

/// The limit, the measured limit, and with `-v` all that explains them.
fn tail(report: &Report, shown: &OutputFlags, out: &mut Vec<String>) {
    out.extend(limit_line(report, shown));
    if let Some(limit) = &report.limit {
        out.push(format!("  measured before: {}, {}", of_probe(limit), limit.stage));
    }
    if shown.verbose {
        explained(report, out);
        details(report, out);
    }
}

/// The limit in a few words; with `-v`, why.
fn limit_line(report: &Report, shown: &OutputFlags) -> Option<String> {
    let Some(verdict) = &report.verdict else {
        let bottleneck = report.bottleneck.as_ref()?;
        let why = if shown.verbose { format!(": {}", bottleneck.why) } else { String::new() };
        return Some(format!("  limit: {}{why}", bottleneck.stage));
    };
    if shown.verbose {
        return Some(format!("  limit: {}: {}", verdict.limit, value(&verdict.why)));
    }
    let kept = report.following.as_ref().map(|following| match following.run.keeps_up {
        true => format!("; it keeps up, commits were durable within {:.1} s", following.run.behind_s),
        false => format!("; it falls behind, by {:.1} s", following.run.behind_s),
    });
    let fixed_s = verdict.fixed_share * report.elapsed_s;
    let longest = verdict.fixed_costs.iter().filter(|cost| is_worth_naming(cost.seconds, fixed_s));
    let longest = longest.max_by(|one, other| one.seconds.total_cmp(&other.seconds));
    let more = match verdict.limit.as_str() {
        "source" | "target" => " (database)".to_owned(),
        "media" | "sink" => " (media)".to_owned(),
        "transform" => " (codec, checksums)".to_owned(),
        "pool" => " (too few buffers)".to_owned(),
        "one stripe" => verdict.device.as_ref().map_or_else(String::new, |device| format!(" ({})", value(device))),
        "fixed costs" => longest.map_or_else(String::new, |cost| format!(" ({})", value(&cost.text))),
        _ => String::new(),
    };
    Some(format!("  limit: {}{more}{}", verdict.limit, kept.unwrap_or_default()))
}

/// What explains the limit: probes, what another configuration would change, memory, keys and configuration.
fn explained(report: &Report, out: &mut Vec<String>) {
    if let Some(verdict) = &report.verdict {
        let calibrated = verdict.calibrated.iter().filter(|one| one.percent >= LEAST_PERCENT);
        out.extend(calibrated.map(|calibrated| {
            format!("  {}: {} (profile `{}`)", of_calibrated(calibrated), calibrated.limit, calibrated.profile)
        }));
        out.extend(verdict.what_if.iter().map(|what_if| format!("  what if: {}", value(&what_if.text))));
    }
    if let Some(limit) = &report.limit {
        let known = |speed: Option<f64>| speed.map_or_else(|| "not measured".to_owned(), |speed| format!("{speed:.0}"));
        let copy =
            limit.copy_mib_per_s.map_or_else(String::new, |speed| format!("; source and sink at once {speed:.0}"));
        let (transform, sink) = (known(limit.transform_mib_per_s), known(limit.sink_mib_per_s));
        out.push(format!(
            "  alone: source {:.0}, transform {transform}, sink {sink} MiB/s{copy}",
            limit.source_mib_per_s
        ));
    }
    out.push(format!(
        "  memory: {}, peak {}; processor {:.2} s",
        memory(report),
        show_bytes(report.peak_rss_bytes),
        report.cpu_s,
    ));
    origin(report, out);
}

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

/// What a job would do.
fn plan(report: &Report) -> Vec<String> {
    let mut out = vec!["plan (nothing was written):".to_owned()];
    if report.pool.bytes > 0 {
        out.push(format!("  memory: {}", memory(report)));
    }
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
        plan_of_backup(report, planned, &mut out);
    }
    origin(report, &mut out);
    out
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

#[cfg(test)]
mod tests {
    use clap::Parser;
    use fullbore::report::{CostReport, VerdictReport};

    use super::*;
    use crate::cli::args::{Arguments, Verb};

    fn flags(verbose: bool) -> OutputFlags {
        let words = ["fullbore", "verify", "a"].into_iter().chain(verbose.then_some("-v"));
        match Arguments::parse_from(words).verb {
            Verb::Verify(args) => args.shown,
            _ => unreachable!("the verb is verify"),
        }
    }

    fn of_a_server() -> Report {
        let mut report = Report::begin("restore");
        report.kind = Some("full".into());
        report.engine = Some("mariadb".into());
        report.database = Some("db1.example.com:3306".into());
        report.backup_set_id = Some("01a2092b-9560-7c4d-8e5f-9fcdf68770de".into());
        report.sets = vec!["full".into()];
        report.into = Some("dir:/srv/copy".into());
        report.point = Some(PointReport {
            at: Some("2026-11-22T10:00:00.123456Z".into()),
            binary_log_file: Some("mariadb-bin.000012".into()),
            binary_log_position: Some(4_521),
            gtid: Some((1..40).map(|domain| format!("{domain}-1-77,")).collect()),
        });
        (report.source_bytes, report.elapsed_s) = (209 << 20, 725.0);
        report
    }

    #[test]
    fn lines_are_short_and_name_set_point_position_and_target() {
        let lines = restore(&of_a_server(), &flags(false));
        assert!(lines.iter().all(|line| line.chars().count() <= 120), "{lines:#?}");
        for (line, part) in [
            (0, "full of mariadb db1.example.com:3306 up to 2026-11-22T10:00:00Z into dir:/srv/copy"),
            (0, " (set 01a2092b-9560)"),
            (1, "  binary log mariadb-bin.000012 position 4521, GTID 1-1-77,"),
            (2, "  start the server on /srv/copy"),
            (3, "  209.0 MiB in 12 min 5 s ("),
        ] {
            assert!(lines[line].contains(part), "{part}: {lines:#?}");
        }
        let mut texts = of_a_server();
        texts.is_of_texts = true;
        assert!(!restore(&texts, &flags(false)).join("\n").contains("start the server"), "no server starts on texts");
        let whole = restore(&of_a_server(), &flags(true)).join("\n");
        assert!(whole.contains("9fcdf68770de") && whole.contains("39-1-77") && whole.contains(".123456Z"), "{whole}");
    }

    #[test]
    fn a_set_of_a_file_has_no_server_and_several_sets_are_counted() {
        let mut file = of_a_server();
        (file.engine, file.point) = (Some("sqlite".into()), None);
        file.sets = vec!["full".into(), "log".into(), "log".into()];
        let lines = restore(&file, &flags(false));
        assert!(lines[0].contains("full and the 2 sets before it of sqlite ") && lines.len() == 2, "{lines:#?}");
        file.sets.truncate(2);
        assert!(restore(&file, &flags(false))[0].contains("full and the set before it of sqlite "));
        let words = [1, 2, 3].map(|number| each(number, "table"));
        assert_eq!(words, ["the only table is", "both tables are", "all 3 tables are"]);
        assert_eq!(
            (seconds(0.7964), seconds(95.25), seconds(7_500.0)),
            ("0.796 s".into(), "95.2 s".into(), "2 h 5 min".into())
        );
    }

    #[test]
    fn a_fixed_cost_is_named_only_when_it_is_a_part_of_the_fixed_time_that_matters() {
        let of = |seconds: f64| {
            let mut report = of_a_server();
            report.elapsed_s = 0.188;
            report.verdict = Some(VerdictReport {
                limit: "fixed costs".into(),
                device: None,
                why: String::new(),
                uses: Vec::new(),
                fixed_share: 0.9,
                fixed_costs: vec![CostReport { text: "opening the database".into(), seconds }],
                percent_of_limit: None,
                calibrated: None,
                one_device: false,
                what_if: Vec::new(),
            });
            limit_line(&report, &flags(false)).unwrap()
        };
        assert_eq!(of(0.001), "  limit: fixed costs");
        assert_eq!(of(0.100), "  limit: fixed costs (opening the database)");
    }
}
