//! `fullbore advise`.

use std::path::PathBuf;

use clap::Args;
use fullbore::config::Config;
use fullbore::job::backup::recipients;
use fullbore::job::estimate::{self, Advice};
use fullbore::units::{bytes_of_flag, counted, show_bytes};
use fullbore::{Error, Result};
use fullbore_model::estimate::{Best, Goal};
use fullbore_model::profile::DEFAULT;
use serde::Serialize;

use super::args::Global;
use super::estimated::{Direction, ForeseenJob, answer, deadline, show_seconds, told_configuration};

/// Choose codec, stripes, buffers and workers for a goal, and print the command.
///
/// Settings in flags or in the configuration stay. The rest is chosen by the same model as an estimate, from a profile
/// of this machine (fullbore calibrate) and samples of the database. It writes nothing.
#[derive(Debug, Args)]
pub struct Advise {
    /// The job.
    #[command(flatten)]
    pub job: ForeseenJob,
    /// Encrypt for the holder of this key, as for backup. Repeatable.
    #[arg(long, value_name = "KEYFILE")]
    pub encrypt_to: Vec<PathBuf>,
    /// The goal.
    #[command(flatten)]
    pub goal: GoalFlags,
}

/// The goal of a configuration.
#[derive(Debug, Args)]
pub struct GoalFlags {
    /// The least time; of equally fast configurations, the fewest bytes [default without --deadline].
    #[arg(long, conflicts_with_all = ["fastest", "smallest"])]
    pub balanced: bool,
    /// The least time.
    #[arg(long)]
    pub fastest: bool,
    /// The fewest bytes on the media [default with --deadline].
    #[arg(long, conflicts_with = "fastest")]
    pub smallest: bool,
    /// Share of all processors that the backup may use, e.g. 25%. If no codec is light enough, a throttle is set.
    #[arg(long, value_name = "PERCENT")]
    pub cpu_limit: Option<String>,
    /// Finish within this time in nine of ten runs, e.g. 2h.
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<String>,
    /// The direction whose time counts [default: backup].
    #[arg(long, value_enum)]
    pub direction: Option<Direction>,
}

/// The report of `advise`: the advice and the command.
#[derive(Serialize)]
struct Advised {
    #[serde(flatten)]
    advice: Advice,
    /// Words of the command.
    command: Vec<String>,
}

/// Runs the verb; gives the exit code.
pub fn run(args: &Advise, config: &Config, global: &Global) -> Result<u8> {
    let encrypt_to = if args.encrypt_to.is_empty() { &config.encrypt_to } else { &args.encrypt_to };
    let request = args.job.request(!encrypt_to.is_empty(), config)?;
    let make = || {
        // The command must work: open its keys as the backup does.
        recipients(encrypt_to)?;
        let advice = estimate::advise(&request, &args.goal.goal()?, &super::stop_on_signals(config)?)?;
        Ok(Advised { command: command(args, encrypt_to, global, &advice)?, advice })
    };
    answer(&args.job, &request, make, told, |made| [&made.advice.notes, &made.advice.warnings])
}

impl GoalFlags {
    /// The first of these flags that was given.
    pub fn first(&self) -> Option<&'static str> {
        let given = [
            ("--balanced", self.balanced),
            ("--fastest", self.fastest),
            ("--smallest", self.smallest),
            ("--cpu-limit", self.cpu_limit.is_some()),
            ("--deadline", self.deadline.is_some()),
            ("--direction", self.direction.is_some()),
        ];
        given.into_iter().find_map(|(name, given)| given.then_some(name))
    }

    /// The goal.
    ///
    /// # Errors
    /// A text that is not a time or not a share.
    pub fn goal(&self) -> Result<Goal> {
        let best = match (self.fastest, self.smallest) {
            (true, _) => Best::Fastest,
            (_, true) => Best::Smallest,
            _ if self.deadline.is_some() && !self.balanced => Best::Smallest,
            _ => Best::Balanced,
        };
        Ok(Goal {
            best,
            by: self.direction.unwrap_or(Direction::Backup).into(),
            cpu_limit: self.cpu_limit.as_ref().map(|text| cpu_limit(text)).transpose()?,
            deadline: self.deadline.as_ref().map(|text| deadline(text)).transpose()?,
        })
    }
}

/// A share from `25%` or `25`.
fn cpu_limit(text: &str) -> Result<f64> {
    let percent = text.trim().trim_end_matches('%').trim_end().parse::<f64>().ok();
    percent.filter(|percent| *percent > 0.0 && *percent <= 100.0).map(|percent| percent / 100.0).ok_or_else(|| {
        let why = format!("`{text}` is not a share of the processors");
        Error::usage("--cpu-limit", why, "write e.g. 25%, at most 100%")
    })
}

/// The words of the backup command: the given flags, and the chosen values of the others. It also names the keys of the
/// configuration: without that configuration, the backup must not be in clear.
fn command(args: &Advise, encrypt_to: &[PathBuf], global: &Global, advice: &Advice) -> Result<Vec<String>> {
    let (job, chosen) = (&args.job, &advice.advised);
    let mut words = vec!["fullbore".to_owned(), "backup".to_owned(), job.source.clone()];
    let mut flag = |name: &str, value: Option<String>| {
        words.extend(value.into_iter().flat_map(|value| [format!("--{name}"), value]));
    };
    for device in &job.to {
        flag("to", Some(device.clone()));
    }
    flag("stripes", Some(chosen.stripes.to_string()));
    flag("compression", Some(chosen.compression.clone()));
    flag("buffer-count", Some(chosen.buffer_count.to_string()));
    flag("workers", Some(chosen.workers.to_string()));
    let tuning = &job.tuning;
    flag("throttle", advice.throttle.map(|rate| format!("{}/s", bytes_of_flag(rate))));
    flag("readers", tuning.readers.map(|readers| readers.to_string()));
    flag("queue-depth", tuning.shared.queue_depth.map(|depth| depth.to_string()));
    flag("max-transfer-size", tuning.max_transfer_size.clone());
    flag("block-size", tuning.block_size.clone());
    for key in encrypt_to {
        flag("encrypt-to", Some(key.display().to_string()));
    }
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    flag("profile", Some(&job.profile).filter(|name| *name != DEFAULT).cloned());
    flag("config", path(&global.config));
    flag("device-timeout", global.device_timeout.map(|seconds| seconds.to_string()));
    flag("outage", global.outage.map(|seconds| seconds.to_string()));
    words.extend(job.engine_options.given()?.words());
    Ok(words)
}

fn told(made: &Advised) -> String {
    let Advised { advice, command } = made;
    let mut lines = vec![format!(
        "ADVICE for {} of `{}`, the best of {} (profile `{}`)",
        show_bytes(advice.plain_bytes),
        advice.source,
        counted(advice.compared as u64, "configuration"),
        advice.profile.name
    )];
    lines.extend(told_configuration(&advice.advised));
    if let Some(asked) = advice.as_asked.backup {
        let asked_line = &advice.as_asked;
        lines.push(format!(
            "  without advice ({}, {}, {}): {} (middle), stored {}, memory {}",
            asked_line.compression,
            counted(asked_line.stripes, "stripe"),
            counted(asked_line.buffer_count, "buffer"),
            show_seconds(asked.p50_s),
            show_bytes(asked_line.stored_bytes),
            show_bytes(asked_line.memory_bytes),
        ));
    }
    lines.push(in_shell(command));
    lines.join("\n")
}

/// Words as they can be pasted into a shell.
fn in_shell(words: &[String]) -> String {
    // A NUL byte cannot come from an argument.
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}
