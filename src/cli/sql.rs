//! `fullbore sql`: T-SQL in, jobs of fullbore out, messages in the words of SQL Server.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, Parser};
use fullbore::config::Config;
use fullbore::job::inspect;
use fullbore::report::{Report, WITH_WARNINGS};
use fullbore::{Error, Result};
use fullbore_core::conduct::Conduct;
use fullbore_core::io::read_whole;
use fullbore_engines::engine::FILE;
use fullbore_tsql::{Action, Command, Names, SCRIPT_MAX, read_script};

use super::args::{Arguments, Verb};
use super::show;

/// Run BACKUP and RESTORE statements of T-SQL on the databases of the configuration.
///
/// The names in the statements are those of `[sql.databases]` in the configuration, with a URL each. So one script works
/// on SQLite, MySQL and MariaDB. fullbore reads the whole script before it runs the first statement. A word that it does
/// not have is an error with its line: it ignores nothing. The script ends with the first statement that fails.
///
/// Backups are media of fullbore: SQL Server cannot read them. RESTORE reads backup files of SQL Server too. Their
/// database becomes files: its name in the configuration is a directory (`dir:PATH`).
#[derive(Debug, Args)]
pub struct Sql {
    /// The statements.
    #[arg(required_unless_present = "input", conflicts_with = "input", allow_hyphen_values = true)]
    pub statements: Option<String>,
    /// Read the statements from this file; `-` for standard input.
    #[arg(short, long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Needed for statements on databases of a SQL Server (mssql://), which are experimental: fullbore is tested against a
    /// stub server only and has never run against a SQL Server.
    #[arg(long)]
    pub experimental: bool,
    /// Print the command lines of fullbore, and run nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Runs the verb; gives the exit code.
pub fn run(args: &Sql, config: &Config) -> Result<u8> {
    let script = match (&args.statements, &args.input) {
        (Some(statements), _) => statements.clone(),
        (None, input) => script_of(input.as_deref().unwrap_or(Path::new("-")))?,
    };
    let sql = &config.sql;
    let names = Names {
        databases: sql.databases.clone(),
        paths: sql.paths.clone(),
        certificates: sql.certificates.clone(),
        repository: sql.repository.clone(),
        experimental: args.experimental,
    };
    let commands = read_script(&script, &names, jiff::Zoned::now())?;
    // All of them are parsed before the first one runs.
    let parsed = commands.iter().map(parsed).collect::<Result<Vec<_>>>()?;
    if args.dry_run {
        commands.iter().for_each(show_command);
        return Ok(0);
    }
    show::script_runs();
    let mut code = 0;
    for (command, arguments) in commands.iter().zip(parsed) {
        let ended = run_command(command, arguments, config);
        match ended {
            0 | WITH_WARNINGS => code = code.max(ended),
            failed => return Ok(failed),
        }
    }
    Ok(code)
}

fn script_of(input: &Path) -> Result<String> {
    let name = input.display().to_string();
    let too_long = || Error::usage(&name, "it has more than 4 MiB", "divide the script");
    let bytes = if input.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().take(SCRIPT_MAX as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|e| Error::io("read", "standard input", e))?;
        bytes
    } else {
        let read = read_whole(input, SCRIPT_MAX).map_err(|e| Error::io("read", &name, e).on_named_thing());
        read?.ok_or_else(too_long)?.to_vec()
    };
    if bytes.len() > SCRIPT_MAX {
        return Err(too_long());
    }
    // Tools of Windows write UTF-16.
    let wide =
        |make: fn([u8; 2]) -> u16| bytes[2..].chunks_exact(2).map(|pair| make([pair[0], pair[1]])).collect::<Vec<_>>();
    let text = match &bytes[..] {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] if !bytes.len().is_multiple_of(2) => None,
        [0xff, 0xfe, ..] => String::from_utf16(&wide(u16::from_le_bytes)).ok(),
        [0xfe, 0xff, ..] => String::from_utf16(&wide(u16::from_be_bytes)).ok(),
        _ => String::from_utf8(bytes).ok(),
    };
    text.ok_or_else(|| Error::usage(name, "it is neither UTF-8 nor UTF-16", "save the script as UTF-8"))
}

/// The words as a shell takes them.
fn show_command(command: &Command) {
    match &command.action {
        Action::Print(text) => show::line(text),
        _ => {
            let words: Vec<String> =
                command.words.iter().map(|word| fullbore_engines::without_password(word)).collect();
            let words = std::iter::once("fullbore").chain(words.iter().map(String::as_str));
            show::line(&shlex::try_join(words).unwrap_or_else(|_| "a word cannot be shown".into()));
        }
    }
}

/// The command line, parsed; `None` for PRINT.
fn parsed(command: &Command) -> Result<Option<Arguments>> {
    if let Action::Print(_) = &command.action {
        return Ok(None);
    }
    let mut words = vec!["fullbore".to_owned()];
    words.extend(command.words.iter().cloned());
    if command.action != Action::Show {
        words.push("--quiet".into());
    }
    if let Some(step) = command.stats.filter(|_| command.action != Action::Show) {
        words.extend(["--progress".into(), "percent".into(), "--stats".into(), step.to_string()]);
    }
    let parsed = Arguments::try_parse_from(words);
    parsed.map(Some).map_err(|error| {
        let why =
            error.render().to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Error::usage(command.at.to_string(), why, "fullbore help sql shows what each option becomes")
    })
}

fn run_command(command: &Command, arguments: Option<Arguments>, config: &Config) -> u8 {
    let Some(arguments) = arguments else {
        if let Action::Print(text) = &command.action {
            show::line(text);
        }
        return 0;
    };
    super::LAST_REPORT.take();
    let checked = check_media(command, config);
    let ended = checked.and_then(|position| super::dispatch(at_position(arguments, position), config));
    let code = ended.unwrap_or_else(|error| {
        show::error(&error);
        error.exit_kind().exit_code()
    });
    let report = super::LAST_REPORT.take();
    match code {
        0 | WITH_WARNINGS => messages(command, report.as_ref()).iter().for_each(|line| show::line(line)),
        _ => {
            let what = match &command.action {
                Action::Backup { statement, .. } | Action::Restore { statement, .. } => statement.as_str(),
                Action::Verify => "VERIFY DATABASE",
                Action::Show | Action::Print(_) => "The statement",
            };
            show::line(&format!("Msg 3013, Level 16, State 1, Line {}", command.at.line));
            show::line(&format!("{what} is terminating abnormally."));
        }
    }
    code
}

/// The same command line for the set at this position, if it names none itself.
fn at_position(mut arguments: Arguments, position: Option<u16>) -> Arguments {
    if let (Verb::Restore(restore), Some(position)) = (&mut arguments.verb, position) {
        restore.set_options.or(&FILE, position.to_string());
    }
    arguments
}

/// Compares the media of a RESTORE with what the statement says about them. Gives the position of the set that SQL Server
/// would take, if the statement names none and becomes files.
fn check_media(command: &Command, config: &Config) -> Result<Option<u16>> {
    let values = |flag: &str| -> Vec<String> {
        let pairs = command.words.iter().zip(command.words.iter().skip(1));
        pairs.filter(|(word, _)| *word == flag).map(|(_, value)| value.clone()).collect()
    };
    let (from, into) = (values("--from"), values("--into"));
    let wanted = command.expected.media_name.as_ref();
    let becomes_files = into.first().is_none_or(|into| into.starts_with("dir:"));
    let is_restore = matches!(command.action, Action::Restore { .. });
    // The server itself reads its media.
    let is_elsewhere = command.words.iter().any(|word| word == "--experimental");
    if from.is_empty() || is_elsewhere || wanted.is_none() && becomes_files && !is_restore {
        return Ok(None);
    }
    let conduct = Conduct { stores: super::stores(config)?, ..Conduct::default() };
    let found = super::foreign::find(&from, None, config, &conduct)?;
    match (&found, &command.action) {
        (Some(found), Action::Restore { database, .. }) if !becomes_files => {
            let why =
                format!("`{}` is a {}, which becomes files of SQL Server", from.join("`, `"), found.media.title());
            let hint = format!("name a directory in fullbore.toml, in [sql.databases]: {database} = \"dir:/path\"");
            return Err(Error::usage(format!("{}: database [{database}]", command.at), why, hint));
        }
        _ => {}
    }
    let media_sets = found.as_ref().map(|found| found.describe()).transpose()?.map(|found| found.media_sets);
    // A full and its differential, each on media of its own, are one statement here only: then the newest ones count.
    let is_one = media_sets.as_ref().is_some_and(|media_sets| media_sets.len() == 1);
    let first = (is_restore && is_one && command.expected.file.is_none()).then_some(1);
    let Some((name, at)) = wanted else { return Ok(first) };
    let thing = format!("{at}: MEDIANAME");
    let names: Vec<Option<String>> = match &media_sets {
        Some(media_sets) => {
            let labels = media_sets.iter().flat_map(|set| &set.labels);
            labels.filter_map(|label| label.get("MediaName")).map(|name| name.as_str().map(str::to_owned)).collect()
        }
        None => inspect::header(&from, &conduct.stores)?.0.into_iter().map(|set| set.media_name).collect(),
    };
    let other = names.into_iter().find(|there| there.as_ref() != Some(name));
    match other {
        None => Ok(first),
        Some(there) => {
            let why = format!("the media have the name {}", there.as_deref().unwrap_or("NULL"));
            Err(Error::refused(format!("{thing} = '{name}'"), why, "name the right media, or leave MEDIANAME out"))
        }
    }
}

/// The messages of SQL Server for a statement that has ended well. Its pages have 8 KiB.
fn messages(command: &Command, report: Option<&Report>) -> Vec<String> {
    let (Action::Backup { statement, database } | Action::Restore { statement, database }, Some(report)) =
        (&command.action, report)
    else {
        let is_valid = command.action == Action::Verify;
        return if is_valid {
            vec![format!("The backup set on file {} is valid.", command.expected.file.unwrap_or(1))]
        } else {
            Vec::new()
        };
    };
    let runs_here = !command.words.iter().any(|word| word == "--experimental");
    let pages = report.source_bytes.div_ceil(8192);
    let speed = if report.elapsed_s > 0.0 { report.source_bytes as f64 / report.elapsed_s / 1_048_576.0 } else { 0.0 };
    let processed = match statement.as_str() {
        // fullbore writes no empty log set, so the file of the statement does not exist.
        "BACKUP LOG" if runs_here && report.backup_set_id.is_none() => {
            format!("Nothing was committed in database '{database}' since its last backup: no file was written.")
        }
        _ => format!("Processed {pages} pages for database '{database}', file '{database}' on file 1."),
    };
    vec![
        processed,
        format!(
            "{statement} successfully processed {pages} pages in {:.3} seconds ({speed:.3} MB/sec).",
            report.elapsed_s
        ),
    ]
}
