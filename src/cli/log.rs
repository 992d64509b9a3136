//! `fullbore log follow`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fullbore::config::Config;
use fullbore::job::backup::Request;
use fullbore::job::follow::{self, COMMAND, Following};
use fullbore::job::repository::{self, Setting};
use fullbore::{Error, Result, units};
use fullbore_core::codec::Compression;
use fullbore_core::device::Device;
use fullbore_core::media::SetKind;
use fullbore_engines::engine::resolve_options;

use super::args::{Log, LogVerb, OutputFlags};
use super::closing;
use super::engine_options::FollowOptions;
use super::progress::FollowerLine;
use super::tuning::Tuning;

/// The flags of `log follow`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("where").args(["to", "repo"]).required(true))]
pub struct Follow {
    /// The database: sqlite:PATH, in WAL mode; mysql://… or mariadb://…, with a binary log.
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// The sets to continue from: a full and the sets based on it, as stripes, directories or patterns. Repeatable
    /// [default: take a full first, into --to].
    #[arg(long, value_name = "DEVICE", conflicts_with = "repo")]
    pub base: Vec<String>,
    /// If the log continues none of these sets, take a full first, instead of ending.
    #[arg(long)]
    pub full_if_needed: bool,
    /// Where the sets go: a directory ending in /, or a prefix in an object store. Repeatable.
    #[arg(long, value_name = "DEVICE")]
    pub to: Vec<String>,
    /// The repository for the sets. They continue from the sets in it. If it has no full of this database, take a full
    /// first.
    #[arg(long, value_name = "REPOSITORY")]
    pub repo: Option<String>,
    /// Write at most one set in this time: 500ms, 1s, 10s, 5m.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub interval: String,
    /// End after this time [default: at a signal].
    #[arg(long = "for", value_name = "TIME")]
    pub lasting: Option<String>,
    /// SQLite: when the log has this many bytes, copy it into the database and let it start again (checkpoint).
    #[arg(long, value_name = "BYTES", default_value = "4MiB")]
    pub checkpoint_after: String,
    /// The options of single engines.
    #[command(flatten)]
    pub engine_options: FollowOptions,
    /// Number of stripes of each set, spread evenly over the devices [default: one per device].
    #[arg(long, value_name = "N")]
    pub stripes: Option<usize>,
    /// Codec for the blocks: none, lz4, zstd[:LEVEL] or gzip[:LEVEL] [default: lz4].
    #[arg(long, value_name = "CODEC")]
    pub compression: Option<String>,
    /// Make missing directories.
    #[arg(long)]
    pub mkdir: bool,
    /// Wait for another backup of the same log instead of refusing.
    #[arg(long)]
    pub wait: bool,
    /// Names of stripes, as in `backup` [default: {database}-{kind}-{time}-{set}-{family}of{families}.bore].
    #[arg(long, value_name = "TEMPLATE")]
    pub name_template: Option<String>,
    /// Encrypt with AES-256-GCM for the holder of this key: a key file or its .pub. Repeatable.
    #[arg(long, value_name = "KEYFILE")]
    pub encrypt_to: Vec<PathBuf>,
    /// The key that opens an encrypted base.
    #[arg(long, value_name = "KEYFILE")]
    pub key: Option<PathBuf>,
    /// How long to wait for a lock on the database, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub lock_timeout: u64,
    /// Buffers and threads.
    #[command(flatten, next_help_heading = "Tuning")]
    pub tuning: Tuning,
    /// Messages and report.
    #[command(flatten, next_help_heading = "Output")]
    pub shown: OutputFlags,
}

/// Runs the verb; gives the exit code.
pub fn run(args: &Log, config: &Config) -> Result<u8> {
    let LogVerb::Follow(args) = &args.verb;
    let config = &args.repo.as_ref().map_or_else(|| config.clone(), |name| config.of_repository(name));
    let following = Following {
        backup: request(args, config)?,
        full_if_needed: args.full_if_needed,
        interval: duration("--interval", &args.interval)?,
        locked_for: config.locked_for()?,
        lasting: args.lasting.as_deref().map(|text| duration("--for", text)).transpose()?,
        checkpoint_after: units::bytes("--checkpoint-after", &args.checkpoint_after)?,
    };
    super::outside::refuse_in_repository(None, args.repo.as_ref(), config)?;
    super::refuse_report_in_database(args.shown.report.to().as_ref(), following.backup.source.identity())?;
    // The last set is still stored after a signal, so a signal does not end the requests to these stores.
    let stores = super::stores(config)?;
    super::with_report(
        COMMAND,
        &args.shown,
        config,
        |conduct, report| {
            let line = FollowerLine::start(&args.shown);
            let told = |event: follow::Event| line.tell(&event, is_wanted(&event, &args.shown));
            let done = match &args.repo {
                None => {
                    super::outside::say_of_defaults(config, &following.backup.to, report);
                    follow::follow(&following, conduct, &stores, &told, report)
                }
                Some(name) => {
                    super::outside::say_of_defaults_in_repository(config, name, report);
                    let setting = Setting { name, config };
                    repository::follow::run(&following, setting, conduct, &stores, &told, report)
                }
            };
            line.stop();
            done
        },
        |report| closing::follow(report, &args.shown),
        false,
    )
}

/// True for an event that gets a message, besides the line of progress.
fn is_wanted(event: &follow::Event, shown: &OutputFlags) -> bool {
    match event {
        follow::Event::Failed(..) | follow::Event::Apart(_) | follow::Event::Behind(_) => true,
        // A message for each set would fill the journal of a service.
        follow::Event::Shipped(_) => shown.verbose,
        follow::Event::Durable(_) => false,
        follow::Event::Full(_) | follow::Event::Joined(_) => !shown.quiet,
    }
}

fn request(args: &Follow, config: &Config) -> Result<Request> {
    let compression = args.compression.as_ref().or(config.compression.as_ref());
    let (source, engine_options) = resolve_options(&args.source, &args.engine_options.given()?, &config.engine)?;
    Ok(Request {
        source,
        to: args.to.iter().map(|text| Device::parse(text)).collect::<Result<_>>()?,
        stripes: args.stripes.or(config.stripes),
        compression: compression.map_or(Ok(Compression::default()), |text| text.parse())?,
        auto: None,
        knobs: args.tuning.knobs(config),
        kind: SetKind::Log,
        copy_only: false,
        base: args.base.clone(),
        init: false,
        mkdir: args.mkdir,
        wait: args.wait,
        dry_run: false,
        measure_limit: false,
        encrypt_to: if args.encrypt_to.is_empty() { config.encrypt_to.clone() } else { args.encrypt_to.clone() },
        key: args.key.clone().or_else(|| config.key.clone()),
        name: String::new(),
        description: String::new(),
        media_name: String::new(),
        mirror: None,
        own_template: args.name_template.clone(),
        // The names of a repository keep sets apart. The general template may not.
        name_template: args
            .name_template
            .clone()
            .or_else(|| config.repository.get(args.repo.as_ref()?)?.name_template.clone()),
        lock_timeout: Duration::from_secs(args.lock_timeout),
        continue_after_error: false,
        engine_options,
    })
}

/// A time such as 500ms, 10s, 5m or 2h: from 1 ms to a year.
pub fn duration(option: &str, text: &str) -> Result<Duration> {
    let wrong = |why: &str| Error::usage(format!("{option} {text}"), why, "write 500ms, 10s, 5m or 2h");
    let split = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .ok_or_else(|| wrong("the unit is missing"))?;
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(wrong("this is not a time")),
    };
    let number: f64 = number.parse().map_err(|_| wrong("this is not a time"))?;
    let seconds = number * seconds;
    if !(0.001..=31_536_000.0).contains(&seconds) {
        return Err(wrong("it is not from 1 ms to a year"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(duration("--for", "500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(duration("--for", "1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(duration("--for", "2m").unwrap(), Duration::from_secs(120));
        for bad in ["", "5", "s", "-1s", "0s", "5y", "1e9h", "..s", "99999999d"] {
            assert!(duration("--for", bad).is_err(), "{bad}");
        }
    }
}
