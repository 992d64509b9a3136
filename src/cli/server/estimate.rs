//! `estimate` of a backup that a server runs itself: from its own history.

use fullbore::config::Config;
use fullbore::job::server::{self, ServerEstimate};
use fullbore::units::{self, counted, show_bytes};
use fullbore::{Error, Result};
use fullbore_core::media::SetKind;
use fullbore_engines::engine::{BackupOrder, BackupServer};

use super::{Flag, served};
use crate::cli::args::{Kind, ReportTo};
use crate::cli::estimate::Estimate;
use crate::cli::estimated::{ForeseenJob, show_seconds};
use crate::cli::show;

/// Runs `estimate`; gives the exit code.
pub fn estimate(args: &Estimate, server: &'static dyn BackupServer, config: &Config) -> Result<u8> {
    let Estimate {
        job,
        encrypted,
        grid,
        plan,
        change_rate,
        deadline,
        direction: _,
        restore_tuning,
        kind,
        experimental: _,
    } = args;
    let ForeseenJob {
        source,
        to,
        stripes,
        compression,
        profile,
        size,
        data_path,
        price,
        engine_options,
        tuning,
        report,
    } = job;
    let restore = restore_tuning.knobs();
    let tuned = tuning.shared.buffer_count.is_some()
        || tuning.shared.queue_depth.is_some()
        || tuning.shared.workers.is_some()
        || [&tuning.max_transfer_size, &tuning.block_size, &tuning.throttle].iter().any(|text| text.is_some())
        || tuning.readers.is_some();
    let restores = restore.buffer_count.is_some() || restore.queue_depth.is_some() || restore.workers.is_some();
    let history = "the estimate is from the history of the server";
    let flags: [Flag; 11] = [
        ("--encrypted", *encrypted, history),
        ("--grid", *grid, history),
        ("--plan", plan.is_some() || change_rate.is_some(), history),
        ("--deadline", deadline.is_some(), history),
        ("--compression", compression.is_some(), history),
        ("--profile", profile != "default", history),
        ("--data-path", data_path.is_some(), history),
        ("--price", price.is_some(), history),
        ("buffers and threads", tuned, history),
        ("buffers and threads of the restore", restores, history),
        ("--kind auto", *kind == Some(Kind::Auto), "say full, differential or log"),
    ];
    if let Some((flag, _, why)) = flags.iter().find(|(_, given, _)| *given) {
        return Err(Error::usage(*flag, format!("is not possible for mssql://: {why}"), "leave it out"));
    }
    let served = served(server, source, &engine_options.given()?, config)?;
    let kind = kind.and_then(Kind::of_set).unwrap_or(SetKind::Full);
    let order = BackupOrder { stripes: stripes.map(usize::from), ..BackupOrder::new(kind, to.clone()) };
    let size = size.as_ref().map(|text| units::bytes("--size", text)).transpose()?;
    let to = report.to();
    if let Some(ReportTo::File(path)) = &to {
        crate::cli::check_report_place(path)?;
    }
    let made = server::estimate(&served, &order, size, &crate::cli::stop_on_signals(config)?)?;
    if to != Some(ReportTo::Output) {
        show::line(&told(&made));
    }
    if let Some(to) = &to {
        crate::cli::write_report(to, &made)?;
    }
    made.notes.iter().for_each(|note| show::note(note));
    Ok(0)
}

fn told(made: &ServerEstimate) -> String {
    let shape = if made.same_files { "in as many files" } else { "in any number of files" };
    [
        format!(
            "ESTIMATE of {} of `{}`: {}, {}",
            show_bytes(made.plain_bytes),
            made.source,
            made.kind,
            counted(made.files as u64, "file")
        ),
        format!(
            "  backup:  {} to {} (middle {}, {:.0} MiB/s)",
            show_seconds(made.p10_s),
            show_seconds(made.p90_s),
            show_seconds(made.p50_s),
            made.mib_per_s
        ),
        format!("  stored {}; data files {}", show_bytes(made.stored_bytes), show_bytes(made.database_bytes)),
        format!(
            "  from {} {shape} in msdb.dbo.backupset, the newest of {} (time of the server)",
            counted(made.history_runs as u64, "earlier backup"),
            made.newest
        ),
    ]
    .join("\n")
}
