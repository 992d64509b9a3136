//! `fullbore migrate`.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use fullbore::config::Config;
use fullbore::job::migrate::{self, COMMAND, Comparison, Event, Request};
use fullbore::job::repository::{self, Setting};
use fullbore::units::{counted, show_bytes};
use fullbore::{Error, Result};

use fullbore_core::conduct::Conduct;
use fullbore_engines::GivenOptions;
use fullbore_engines::engine::{GivenIn, OptionValue, PASSWORD_FILE, Standing, resolve_options};

use super::args::{How, OutputFlags};
use super::progress::Display;
use super::show::{self, Terminal};
use super::{closing, log, refresh};

/// The time between two plain lines while the log is followed.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// The time between two drawings on a terminal.
const REDRAWN: Duration = Duration::from_millis(250);

/// A database without a read-only state has no writers from here on.
pub const WRITERS_OUT: &str = "writers of the source are kept out";

/// Move a running MySQL or MariaDB server into another one, or an SQLite database into such a server.
///
/// A full goes straight from the source into the target. Then the log of the source is applied to the target while
/// applications write to the source. --cut-over makes the source read-only, applies the last changes, compares all rows,
/// and reports the downtime. Without it, fullbore follows the source until a signal.
///
/// With --repo and without a source, the newest full and the sets behind it come out of the repository: logical sets into a
/// server, sets of an SQLite database into another file. Each later run applies the log sets that came since. With a source
/// and --cut-over, it ends the same way as above.
///
/// SQLite has no log that can be followed: the migration ends after the rows, and --cut-over keeps writers out from the
/// beginning to the end.
#[derive(Debug, Args)]
pub struct Migrate {
    /// The source: mysql://USER@HOST or mariadb://USER@HOST; with /NAME only this database. Or sqlite:PATH.
    #[arg(value_name = "SOURCE", required_unless_present = "repo")]
    pub source: Option<String>,
    /// The target: another running server, which is empty or has other databases. For SQLite with /NAME, the database that
    /// takes the tables. With --repo also sqlite:FILE.
    #[arg(long, value_name = "TARGET")]
    pub into: String,
    /// Take the sets of this repository: its name in the configuration, or a directory or prefix ending in /. Without SOURCE,
    /// the target gets all sets that it does not have. With SOURCE and --cut-over, the last log set is made first.
    #[arg(long, value_name = "REPOSITORY", conflicts_with_all = ["no_follow", "lasting", "task_in"])]
    pub repo: Option<String>,
    /// Only this database of the source. Repeatable. With --repo: the database in the repository [default: the only one].
    #[arg(long, value_name = "NAME")]
    pub database: Vec<String>,
    /// The key that opens encrypted sets of the repository.
    #[arg(long, value_name = "KEYFILE", requires = "repo")]
    pub key: Option<PathBuf>,
    /// How the full is moved. logical: rows, through connections. physical: the target copies the files of the source
    /// (CLONE INSTANCE) and starts again on them. Only MySQL into MySQL. Replaces everything on the target, its accounts too.
    #[arg(long, value_name = "METHOD", value_enum, default_value_t = Method::Logical, hide_possible_values = true)]
    #[arg(conflicts_with = "repo")]
    pub method: Method,
    /// Drop what the target holds under the same names first. With --method physical: everything that it holds.
    #[arg(long)]
    pub replace: bool,
    /// Continue an interrupted migration. An interrupted full begins again; the log continues at the last change.
    #[arg(long)]
    pub resume: bool,
    /// End an interrupted migration: make the source what it was before a killed cut-over, and remove the state from the
    /// target. What was moved stays there.
    #[arg(long, conflicts_with_all = ["replace", "resume", "plan", "no_follow", "cut_over", "max_lag", "lasting"])]
    pub abort: bool,
    /// Foresee the full, the log and the downtime. Moves nothing. For SQLite, list the tables as the target will have them. With
    /// --repo, list the sets.
    #[arg(long, conflicts_with = "resume")]
    pub plan: bool,

    /// End after the full. Later changes of the source are not moved.
    #[arg(long, conflicts_with_all = ["cut_over", "max_lag", "lasting"], help_heading = "Log and cut-over")]
    pub no_follow: bool,
    /// When the target is near enough: make the source read-only, apply the last changes, compare all rows, and end.
    #[arg(long, help_heading = "Log and cut-over")]
    pub cut_over: bool,
    /// How far the target may be behind at the beginning of the cut-over: 500ms, 1s, 5m [default: 1s].
    #[arg(long, value_name = "TIME", help_heading = "Log and cut-over")]
    pub max_lag: Option<String>,
    /// Follow for this time only [default: until a signal, or the cut-over].
    #[arg(long = "for", value_name = "TIME", help_heading = "Log and cut-over")]
    pub lasting: Option<String>,
    /// The check at the cut-over. full: all rows of both servers are read and compared, and the definitions of all tables,
    /// views, routines, triggers and events. rows: only rows. none: no check, a shorter downtime.
    #[arg(long, value_name = "DEPTH", value_enum, default_value_t = CutOverCheck::Full, hide_possible_values = true)]
    #[arg(help_heading = "Log and cut-over")]
    pub check: CutOverCheck,
    /// Record this migration as a task of a repository: `fullbore tasks` shows it, and `fullbore cancel` ends it. Nothing is
    /// stored there.
    #[arg(long, value_name = "REPOSITORY", help_heading = "Log and cut-over")]
    pub task_in: Option<String>,
    /// How long to wait for a lock on the source, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, help_heading = "Log and cut-over")]
    pub lock_timeout: u64,

    /// The password of the source [default: FULLBORE_PASSWORD, then ~/.my.cnf].
    #[arg(long, value_name = "FILE", help_heading = "Passwords")]
    pub password_file: Option<PathBuf>,
    /// The password of the target [default: as for the source].
    #[arg(long, value_name = "FILE", help_heading = "Passwords")]
    pub into_password_file: Option<PathBuf>,

    /// Connections to each server [default: 4].
    #[arg(long, value_name = "N", help_heading = "Tuning")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    pub readers: Option<u16>,
    /// Messages and report.
    #[command(flatten, next_help_heading = "Output")]
    pub shown: OutputFlags,
}

/// How the full is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// Rows.
    Logical,
    /// Files.
    Physical,
}

/// The check at the cut-over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CutOverCheck {
    /// Nothing is read again.
    None,
    /// All rows of both servers.
    Rows,
    /// All rows and all definitions.
    Full,
}

/// Runs the verb; gives the exit code.
pub fn run(args: &Migrate, config: &Config) -> Result<u8> {
    if let Some(name) = &args.repo {
        return refresh::run(args, name, &config.of_repository(name));
    }
    let config = &args.task_in.as_ref().map_or_else(|| config.clone(), |name| config.of_repository(name));
    let request = request(args, config)?;
    super::with_report(
        COMMAND,
        &args.shown,
        config,
        |conduct, report| {
            let line = Line::start(&args.shown, conduct);
            let told = |event| line.tell(event);
            let done = match &args.task_in {
                None => migrate::run(&request, conduct, &told, report),
                Some(name) => repository::migrate::run(&request, Setting { name, config }, conduct, &told, report),
            };
            line.stop();
            done
        },
        |report| closing::migrate(report, &args.shown),
        false,
    )
}

/// The option of a file with a password.
pub fn with_file(file: Option<&PathBuf>) -> GivenOptions {
    let value = file.map(|file| OptionValue::File(file.clone()));
    value.into_iter().fold(GivenOptions::default(), |mut given, value| {
        given.add(&PASSWORD_FILE, value, GivenIn::Flag);
        given
    })
}

/// The options of the target.
pub fn of_target(args: &Migrate) -> GivenOptions {
    with_file(args.into_password_file.as_ref().or(args.password_file.as_ref()))
}

/// The migration that was asked for.
///
/// # Errors
/// A URL or a time is wrong.
pub fn request(args: &Migrate, config: &Config) -> Result<Request> {
    let source = args.source.as_deref().unwrap_or_default();
    if args.password_file.is_some() && fullbore_engines::of_url(source).is_some_and(|engine| !engine.is_server()) {
        let why = "it is the password of the source, and only a server asks for one";
        return Err(Error::usage("--password-file", why, "use --into-password-file for the target"));
    }
    let (source, source_options) = resolve_options(source, &with_file(args.password_file.as_ref()), &config.engine)?;
    let (target, target_options) = resolve_options(&args.into, &of_target(args), &config.engine)?;
    let time = |flag: &str, text: Option<&String>| text.map(|text| log::duration(flag, text)).transpose();
    Ok(Request {
        source,
        source_options,
        target,
        target_options,
        databases: args.database.clone(),
        replace: args.replace,
        resume: args.resume,
        follow: !args.no_follow,
        cut_over: args.cut_over,
        compare: match args.check {
            CutOverCheck::None => Comparison::None,
            CutOverCheck::Rows => Comparison::Rows,
            CutOverCheck::Full => Comparison::All,
        },
        abort: args.abort,
        max_lag: time("--max-lag", args.max_lag.as_ref())?,
        lasting: time("--for", args.lasting.as_ref())?,
        lock_timeout: Duration::from_secs(args.lock_timeout),
        readers: args.readers.map(usize::from),
        plan: args.plan,
        physical: args.method == Method::Physical,
    })
}

/// The display: the usual one during the full, then one line.
struct Line {
    full: Cell<Option<Display>>,
    terminal: RefCell<Option<Terminal>>,
    quiet: bool,
    plain: bool,
    last: Cell<Option<Instant>>,
}

impl Line {
    fn start(shown: &OutputFlags, conduct: &Conduct) -> Self {
        let draws = !shown.quiet && matches!(shown.progress, How::Auto | How::Rich | How::Line);
        let terminal = if draws { Terminal::on_standard_error() } else { None };
        Self {
            full: Cell::new(Some(Display::start(COMMAND, shown, &conduct.progress))),
            terminal: RefCell::new(terminal),
            quiet: shown.quiet,
            plain: shown.progress == How::Plain,
            last: Cell::new(None),
        }
    }

    fn tell(&self, event: Event) {
        let text = match event {
            Event::Begins(plan) if plan.is_full_done => {
                self.end_of_full();
                format!("{COMMAND}: the full is in the target; its log continues")
            }
            Event::Begins(plan) => {
                let [from, to] = plan.servers;
                format!("{COMMAND}: {} of {from} into {to}", counted(plan.tables, "table"))
            }
            Event::Told(text) => format!("{COMMAND}: {text}"),
            Event::FullDone(summary) => {
                self.end_of_full();
                format!("{COMMAND}: {summary}")
            }
            Event::Standing(standing) => return self.standing(&standing),
            Event::KeepsUp(_) => format!("{COMMAND}: the target has caught up"),
            Event::Behind(standing) => {
                self.clear();
                return show::warning(&format!("the target falls behind: {}", standing_line(&standing)));
            }
            Event::Frozen => format!("{COMMAND}: {WRITERS_OUT}"),
        };
        self.clear();
        if !self.quiet {
            show::message(&text);
        }
    }

    fn standing(&self, standing: &Standing) {
        let since = self.last.get().map(|last| last.elapsed());
        let is_due = |pause: Duration| since.is_none_or(|since| since >= pause);
        match &mut *self.terminal.borrow_mut() {
            Some(terminal) if is_due(REDRAWN) => {
                let width = terminal.width().saturating_sub(1);
                terminal.draw(&[standing_line(standing).chars().take(width).collect()]);
                self.last.set(Some(Instant::now()));
            }
            None if self.plain && is_due(LINE_EVERY) => {
                show::message(&standing_line(standing));
                self.last.set(Some(Instant::now()));
            }
            _ => {}
        }
    }

    fn end_of_full(&self) {
        if let Some(full) = self.full.take() {
            full.stop();
        }
    }

    fn clear(&self) {
        if self.last.take().is_some() {
            self.terminal.borrow_mut().iter_mut().for_each(Terminal::clear);
        }
    }

    fn stop(self) {
        self.end_of_full();
        self.clear();
    }
}

/// `migrate: lag 0.4 s, 1.2 MiB behind, 3,041 transactions applied`.
fn standing_line(standing: &Standing) -> String {
    let lag = standing.lag.map_or_else(|| "unknown".to_owned(), |lag| format!("{:.1} s", lag.as_secs_f64()));
    format!(
        "{COMMAND}: lag {lag}, {} behind; {} applied, {} of log",
        show_bytes(standing.behind_bytes),
        counted(standing.transactions, "transaction"),
        show_bytes(standing.applied_bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_shows_the_lag_in_seconds_and_bytes() {
        let standing = Standing {
            at_end: false,
            lag: Some(Duration::from_millis(1250)),
            is_inside: false,
            behind_bytes: 3 << 20,
            applied_bytes: 9 << 20,
            transactions: 2,
        };
        let line = "migrate: lag 1.2 s, 3.0 MiB behind; 2 transactions applied, 9.0 MiB of log";
        assert_eq!(standing_line(&standing), line);
    }
}
