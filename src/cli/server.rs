//! `backup`, `restore` and `estimate` of a database whose server runs them itself (`mssql://`). Each flag without a word
//! in T-SQL is refused by its name.

mod estimate;

use clap::Args;
use fullbore::chain::moment;
use fullbore::config::Config;
use fullbore::job::repository::Setting;
use fullbore::job::server::{self, Served};
use fullbore::report::Report;
use fullbore::units::{self, show_bytes};
use fullbore::{Error, Result};
use fullbore_core::conduct::Conduct;
use fullbore_core::media::SetKind;
use fullbore_engines::GivenOptions;
use fullbore_engines::engine::{BackupOrder, BackupServer, RestoreOrder, RestoreStep, StopMark, resolve_options};
use fullbore_engines::engine::{CHAIN, FILE, MOVE};

use super::args::{Backup, Kind, OutputFlags, Restore};
use super::show;
use super::tuning::{BackupTuning, ReadTuning, Tuning};
pub use estimate::estimate;

/// The flags of a server that runs its backups itself.
#[derive(Debug, Args)]
pub struct ServerFlags {
    /// Needed for mssql://: SQL Server and Amazon RDS are experimental. fullbore is tested against a stub server only and has
    /// never run against a SQL Server.
    #[arg(long, help_heading = "SQL Server")]
    pub experimental: bool,
    /// Record the run as a task in this repository: fullbore tasks shows it, and fullbore cancel ends it on the server.
    #[arg(long, value_name = "REPOSITORY", requires = "experimental", help_heading = "SQL Server")]
    pub task_in: Option<String>,
}

/// The flags of one step of a restore that a server runs itself.
#[derive(Debug, Args)]
pub struct ServerSteps {
    /// Stop at the transaction with this mark (STOPATMARK), or at lsn:NUMBER. Of one log backup.
    #[arg(long, value_name = "MARK", requires = "experimental", conflicts_with_all = ["stop_at", "stop_before_mark"], help_heading = "SQL Server")]
    pub stop_at_mark: Option<String>,
    /// The same without this transaction (STOPBEFOREMARK).
    #[arg(
        long,
        value_name = "MARK",
        requires = "experimental",
        conflicts_with = "stop_at",
        help_heading = "SQL Server"
    )]
    pub stop_before_mark: Option<String>,
    /// Of several marks with this name, take the first one at or after this time (AFTER). The time has a zone.
    #[arg(long, value_name = "TIME", requires = "experimental", help_heading = "SQL Server")]
    pub mark_after: Option<String>,
    /// The database can be read before the next step (STANDBY): the path of a file on the server for what recovery undoes.
    #[arg(long, value_name = "PATH", requires = "experimental", conflicts_with_all = ["no_recovery", "recovery"], help_heading = "SQL Server")]
    pub standby: Option<String>,
}

impl ServerSteps {
    /// An order with these flags, and with nothing else said.
    ///
    /// # Errors
    /// As of [`mark`](Self::mark).
    fn order(&self) -> Result<RestoreOrder> {
        Ok(RestoreOrder { stop_mark: self.mark()?, standby: self.standby.clone(), ..RestoreOrder::default() })
    }

    /// The mark to stop at.
    ///
    /// # Errors
    /// The time is none, or no mark is named.
    fn mark(&self) -> Result<Option<StopMark>> {
        let after = self.mark_after.as_deref().map(|time| moment::parse("--mark-after", time)).transpose()?;
        let named = match (&self.stop_at_mark, &self.stop_before_mark) {
            (Some(mark), _) => Some((mark, false)),
            (None, Some(mark)) => Some((mark, true)),
            (None, None) => None,
        };
        match (named, after) {
            (None, Some(_)) => {
                let hint = "name the mark with --stop-at-mark or --stop-before-mark";
                Err(Error::usage("--mark-after", "is for a mark, and none is named", hint))
            }
            (named, after) => Ok(named.map(|(mark, before)| StopMark { mark: mark.clone(), before, after })),
        }
    }
}

/// The server that runs backups of `url` itself, if it is one.
///
/// # Errors
/// `--experimental` is missing, or is given for another database.
pub fn of(url: &str, experimental: bool) -> Result<Option<&'static dyn BackupServer>> {
    let engine = fullbore_engines::of_url(url);
    let server = engine.filter(|engine| url.starts_with(&format!("{}:", engine.scheme())));
    match (server.and_then(|engine| Some((engine, engine.backup_server()?))), experimental) {
        (Some((_, server)), true) => Ok(Some(server)),
        (Some((engine, server)), false) => {
            let why = format!("{} is experimental: {}", engine.title(), server.caveat());
            Err(Error::usage(format!("{}://", engine.scheme()), why, "add --experimental to accept that"))
        }
        (None, true) => Err(Error::usage("--experimental", "is for mssql://", "leave it out")),
        (None, false) => Ok(None),
    }
}

fn served(server: &'static dyn BackupServer, url: &str, flags: &GivenOptions, config: &Config) -> Result<Served> {
    let (source, options) = resolve_options(url, flags, &config.engine)?;
    if let Some(engine) = source.engine() {
        fullbore_engines::refuse_options_of_others(engine, &options)?;
    }
    Ok(Served { source, server, options })
}

/// A flag, whether it was given, and what to do instead.
type Flag = (&'static str, bool, &'static str);

const OWN_MEDIA: &str = "it is for media of fullbore; SQL Server writes its own";

fn refuse(flags: &[Flag]) -> Result<()> {
    match flags.iter().find(|(_, given, _)| *given) {
        Some((flag, _, why)) => Err(Error::usage(*flag, format!("has no word in T-SQL: {why}"), "leave it out")),
        None => Ok(()),
    }
}

/// Runs `backup`; gives the exit code.
pub fn backup(args: &Backup, server: &'static dyn BackupServer, config: &Config) -> Result<u8> {
    let served = served(server, &args.source, &args.engine_options.given()?, config)?;
    let order = backup_order(args)?;
    run("backup", &args.server, &args.shown, config, |task_in, conduct, report| {
        server::backup(&served, &order, args.dry_run, task_in, conduct, report)
    })
}

/// Does `work` with a report, as a task if there is a repository for it; gives the exit code.
fn run(
    verb: &str,
    flags: &ServerFlags,
    shown: &OutputFlags,
    config: &Config,
    work: impl FnOnce(Option<Setting<'_>>, &Conduct, &mut Report) -> Result<()>,
) -> Result<u8> {
    let task_in = flags.task_in.as_deref();
    let within = task_in.map(|name| config.of_repository(name));
    let task_in = task_in.zip(within.as_ref()).map(|(name, config)| Setting { name, config });
    let closing = |report: &Report| closing(&verb.to_uppercase(), report, shown);
    super::with_report(verb, shown, config, |conduct, report| work(task_in, conduct, report), closing, false)
}

/// The order. A flag that is new in [`Backup`] must be placed here, too: there is no `..`.
fn backup_order(args: &Backup) -> Result<BackupOrder> {
    let Backup {
        source: _,
        to,
        repo,
        copy_to,
        mirror_to,
        mirrors: _,
        stripes,
        compression,
        auto,
        goal,
        data_path,
        kind,
        base,
        copy_only,
        init,
        mkdir,
        wait,
        name,
        description,
        media_name,
        name_template,
        encrypt_to,
        key,
        lock_timeout,
        engine_options: _,
        continue_after_error,
        measure_limit,
        profile,
        dry_run: _,
        tuning,
        kept,
        server: _,
        shown,
    } = args;
    let kept = kept.first();
    refuse(&[
        ("--repo", repo.is_some(), "the server writes the files; --task-in records the run in a repository"),
        ("--copy-to", copy_to.is_some(), "copy the files with fullbore copy"),
        ("--mirror-to", !mirror_to.is_empty(), "MIRROR TO is not there yet; copy the files with fullbore copy"),
        ("--auto", *auto || goal.first().is_some(), "the server moves the bytes"),
        ("--data-path", data_path.is_some(), "the server moves the bytes"),
        ("--kind auto", *kind == Kind::Auto, "say full, differential or log"),
        ("--base", !base.is_empty(), "the server knows the base"),
        ("--mkdir", *mkdir, "make the directory on the server's host"),
        ("--name-template", name_template.is_some(), OWN_MEDIA),
        ("--encrypt-to", !encrypt_to.is_empty(), "SQL Server encrypts for its own certificates only"),
        ("--key", key.is_some(), OWN_MEDIA),
        ("--measure-limit", *measure_limit, "the server moves the bytes"),
        ("--profile", profile.is_some(), "the server moves the bytes"),
        (kept.unwrap_or_default(), kept.is_some(), "the server writes the objects"),
    ])?;
    let order = tuned(tuning, BackupOrder::new(kind.of_set().unwrap_or(SetKind::Full), to.clone()))?;
    Ok(BackupOrder {
        stripes: *stripes,
        compression: compression.clone(),
        copy_only: *copy_only,
        init: *init,
        continue_after_error: *continue_after_error,
        name: name.clone(),
        description: description.clone(),
        media_name: media_name.clone(),
        stats: shown.stats,
        lock_timeout_ms: (!*wait).then(|| lock_timeout.saturating_mul(1000)),
        ..order
    })
}

/// The order with the buffers.
fn tuned(tuning: &BackupTuning, order: BackupOrder) -> Result<BackupOrder> {
    let BackupTuning {
        shared: Tuning { buffer_count, queue_depth, workers },
        readers,
        max_transfer_size,
        block_size,
        throttle,
    } = tuning;
    refuse_threads(*queue_depth, *workers, throttle.is_some())?;
    refuse(&[("--readers", readers.is_some(), "the server reads")])?;
    let bytes = |flag: &str, text: &Option<String>| text.as_ref().map(|text| units::bytes(flag, text)).transpose();
    Ok(BackupOrder {
        buffer_count: *buffer_count,
        transfer_size: bytes("--max-transfer-size", max_transfer_size)?,
        block_size: bytes("--block-size", block_size)?,
        ..order
    })
}

fn refuse_threads(queue_depth: Option<usize>, workers: Option<usize>, throttle: bool) -> Result<()> {
    refuse(&[
        ("--queue-depth", queue_depth.is_some(), "the server writes; --buffer-count is BUFFERCOUNT"),
        ("--workers", workers.is_some(), "the server packs"),
        ("--throttle", throttle, "use the Resource Governor of the server"),
    ])
}

/// Runs `restore`; gives the exit code.
pub fn restore(args: &Restore, server: &'static dyn BackupServer, config: &Config) -> Result<u8> {
    let served = served(server, &args.into, &args.engine_options.given()?, config)?;
    let order = restore_order(args)?;
    run("restore", &args.served, &args.shown, config, |task_in, conduct, report| {
        server::restore(&served, &order, args.dry_run, task_in, conduct, report)
    })
}

/// The order. A flag that is new in [`Restore`] must be placed here, too: there is no `..`.
fn restore_order(args: &Restore) -> Result<RestoreOrder> {
    let Restore {
        from,
        repository,
        into: _,
        replace,
        no_recovery,
        recovery: _,
        mkdir,
        resume,
        check,
        integrity_check,
        start_check,
        set_options,
        stop_at,
        before,
        continue_after_error,
        dry_run: _,
        profile,
        key,
        chosen,
        tuning,
        kind,
        engine_options: _,
        steps,
        served: _,
        shown,
    } = args;
    let given = set_options.given()?;
    refuse(&[
        ("--repo", repository.repo.is_some(), "the server reads the files; --task-in records the run in a repository"),
        ("--mkdir", *mkdir, "make the directory on the server's host"),
        ("--resume", *resume, "run the restore again"),
        ("--check", check.is_some() || *integrity_check || *start_check, "run DBCC CHECKDB afterwards"),
        ("--before", before.is_some(), "choose the set with --set"),
        ("--profile", profile.is_some(), "the server moves the bytes"),
        ("--chain", given.has(&CHAIN), "the server reads the files"),
        ("--key", key.is_some(), OWN_MEDIA),
        ("--kind auto", *kind == Some(Kind::Auto), "say full, differential or log"),
    ])?;
    refuse_options(&given)?;
    Ok(RestoreOrder {
        from: from.clone(),
        set: chosen.set.clone(),
        latest: chosen.latest,
        position: given.number(&FILE),
        kind: kind.and_then(Kind::of_set),
        replace: *replace,
        step: if *no_recovery { RestoreStep::NoRecovery } else { RestoreStep::Recovery },
        stop_at: stop_at.as_deref().map(|time| moment::parse("--stop-at", time)).transpose()?,
        moves: given.pairs(&MOVE).into_iter().map(|(name, path)| (name.to_owned(), path.to_owned())).collect(),
        continue_after_error: *continue_after_error,
        buffer_count: buffers(tuning)?,
        stats: shown.stats,
        ..steps.order()?
    })
}

/// Refuses options of sets of fullbore.
fn refuse_options(of_sets: &GivenOptions) -> Result<()> {
    let Some(option) = of_sets.iter().find(|option| ![&MOVE, &FILE].contains(option)) else { return Ok(()) };
    let why = "has no word in T-SQL: it is for the restores of other engines";
    Err(Error::usage(format!("--{}", option.name), why, "leave it out"))
}

/// BUFFERCOUNT of a restore. The server has no other knobs.
fn buffers(tuning: &ReadTuning) -> Result<Option<usize>> {
    let ReadTuning { shared: Tuning { buffer_count, queue_depth, workers }, throttle } = tuning;
    refuse_threads(*queue_depth, *workers, throttle.is_some())?;
    Ok(*buffer_count)
}

/// Refuses the flag of such a server in a restore that fullbore does itself.
///
/// # Errors
/// It names the flag.
pub fn refuse_in_own_restore(args: &Restore) -> Result<()> {
    match args.kind {
        Some(_) => Err(Error::usage("--kind", "is for --into mssql://…", "leave it out")),
        None => Ok(()),
    }
}

/// What was done, or would be.
fn closing(what: &str, report: &Report, shown: &OutputFlags) -> Vec<String> {
    let value = |text: &Option<String>| show::value(text.as_deref().unwrap_or_default());
    let Some(ran) = &report.server else { return Vec::new() };
    if report.status == "planned" {
        let mut lines = vec![format!("{what} would run on {}:", show::value(&ran.server))];
        lines.extend(ran.statements.iter().map(|statement| format!("  {}", show::value(statement))));
        return lines;
    }
    let object = if report.kind.as_deref() == Some("log") { "LOG" } else { "DATABASE" };
    let kind = report.kind.as_deref().unwrap_or("recovery");
    let places: Vec<String> = report.families.iter().map(|family| show::value(&family.device)).collect();
    let way = if what == "BACKUP" { "to" } else { "from" };
    let places = if places.is_empty() { String::new() } else { format!(" {way} {}", places.join(", ")) };
    let restoring = if report.restoring { "; it is not usable yet (NORECOVERY)" } else { "" };
    let mut lines = vec![format!("{what} {object}: {kind} of {}{places}{restoring}", value(&report.database))];
    if report.source_bytes > 0 {
        lines.push(format!(
            "  {} in {:.3} s ({:.1} MiB/s), {} stored ({:.2} : 1)",
            show_bytes(report.source_bytes),
            report.elapsed_s,
            report.mib_per_s,
            show_bytes(report.stored_bytes),
            report.ratio
        ));
    }
    if shown.verbose {
        lines.push(format!("  by {}, {}", show::value(&ran.server), value(&ran.run)));
        lines.push(format!("  set {}, media set {}", value(&report.backup_set_id), value(&report.media_set_id)));
        lines.extend(ran.statements.iter().map(|statement| format!("  {}", show::value(statement))));
    }
    lines
}
