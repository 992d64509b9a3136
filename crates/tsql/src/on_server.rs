//! BACKUP and RESTORE of a database of a SQL Server (`mssql://`): its server runs the statement. Paths are those of its host.

use fullbore_core::{Error, Result};

use super::expression::{Value, Variables, moment};
use super::lexemes::Position;
use super::names::Names;
use super::options::{Given, file, has_no_effect, options};
use super::parser::Parser;
use super::statement::{Action, Command, Places, buffer_count, places_by, step};

/// True for the URL of a database whose server runs backups itself.
pub(crate) fn is_on_server(url: &str) -> bool {
    url.starts_with("mssql://")
}

/// Refuses the database of a SQL Server unless the user accepts that this is experimental.
///
/// # Errors
/// It is one, and the user has not.
pub(crate) fn accepted(url: &str, database: &str, at: Position, names: &Names) -> Result<()> {
    if !is_on_server(url) || names.experimental {
        return Ok(());
    }
    let why = "it is on a SQL Server, which is experimental: fullbore is tested against a stub server only";
    Err(Error::usage(format!("{at}: database [{database}]"), why, "add --experimental to accept that"))
}

/// The devices of a statement, as the server sees them.
pub(crate) fn places(parser: &mut Parser, variables: &Variables) -> Result<Places> {
    places_by(parser, variables, &|kind, path, at| {
        let wrong = |why: &str, hint: &str| Err(Error::usage(format!("{at}: '{path}'"), why, hint));
        match (kind, path.contains("://")) {
            ("DISK", _) if path.eq_ignore_ascii_case("NUL") || path.eq_ignore_ascii_case("NUL:") => Ok("nul:".into()),
            ("DISK", false) => Ok(format!("server:{path}")),
            ("URL", true) => Ok(path.to_owned()),
            ("DISK", true) => wrong("it is a URL", "write URL = 's3://…'"),
            _ => wrong("it is not a URL", "write URL = 's3://…', or DISK = 'path'"),
        }
    })
}

/// What a statement is about.
pub(crate) struct Subject {
    pub at: Position,
    /// DATABASE or LOG.
    pub what: String,
    /// The name in the script.
    pub database: String,
    pub url: String,
}

/// The rest of a BACKUP, behind the name of its database.
///
/// # Errors
/// It has words that fullbore does not have for a SQL Server.
pub(crate) fn backup(parser: &mut Parser, variables: &Variables, subject: Subject) -> Result<Command> {
    let Subject { at, what, database, url } = subject;
    let to = places(parser, variables)?;
    if parser.is_word("MIRROR") {
        let why = "fullbore has no MIRROR TO for a SQL Server yet";
        return Err(Error::usage(format!("{}: MIRROR TO", parser.at()), why, "copy the files with fullbore copy"));
    }
    let mut words = vec!["backup".to_owned(), url];
    words.extend(to.0.into_iter().flat_map(|place| ["--to".to_owned(), place]));
    let given = options(parser, variables)?;
    let differential = given.iter().find(|option| option.name == "DIFFERENTIAL");
    match (what.as_str(), differential) {
        ("DATABASE", None) => {}
        ("DATABASE", Some(_)) => words.extend(["--kind".into(), "differential".into()]),
        (_, None) => words.extend(["--kind".into(), "log".into()]),
        (_, Some(option)) => return Err(option.wrong("a log backup is not a differential", "leave it out")),
    }
    let mut stats = None;
    for option in &given {
        let more = match option.name.as_str() {
            "STATS" => {
                stats = Some(step(option)?);
                Vec::new()
            }
            _ => of_backup(option, &what)?,
        };
        // INIT and FORMAT are one flag here.
        words.extend(more.into_iter().filter(|word| word != "--init" || !words.contains(word)).collect::<Vec<_>>());
    }
    words.push("--experimental".into());
    let action = Action::Backup { statement: format!("BACKUP {what}"), database };
    Ok(Command { stats, ..Command::new(at, words, action) })
}

fn of_backup(option: &Given, what: &str) -> Result<Vec<String>> {
    let flag = |name: &str, value: String| Ok(vec![format!("--{name}"), value]);
    let alone = |words: &[&str]| option.alone().map(|()| words.iter().map(|word| (*word).to_owned()).collect());
    match option.name.as_str() {
        "INIT" | "FORMAT" => alone(&["--init"]),
        "COPY_ONLY" => alone(&["--copy-only"]),
        "CONTINUE_AFTER_ERROR" => alone(&["--continue-after-error"]),
        "NO_COMPRESSION" => alone(&["--compression", "none"]),
        "COMPRESSION" => flag("compression", compression(option)?),
        "BUFFERCOUNT" => buffer_count(option),
        "MAXTRANSFERSIZE" => flag("max-transfer-size", option.number(1, u32::MAX.into())?.to_string()),
        "BLOCKSIZE" => flag("block-size", option.number(1, u32::MAX.into())?.to_string()),
        "NAME" => flag("name", option.text()?),
        "DESCRIPTION" => flag("description", option.text()?),
        "MEDIANAME" => flag("media-name", option.text()?),
        // fullbore gives CHECKSUM always, and appends to no file.
        "DIFFERENTIAL" | "NOINIT" | "NOFORMAT" | "NOSKIP" => alone(&[]),
        name if has_no_effect(name) => alone(&[]),
        "NO_CHECKSUM" => Err(option.wrong("fullbore always asks for checksums", "leave it out")),
        "ENCRYPTION" | "MEDIADESCRIPTION" | "RETAINDAYS" | "EXPIREDATE" | "SKIP" | "STANDBY" | "NORECOVERY"
        | "NO_TRUNCATE" => {
            let why = "fullbore does not pass it to a SQL Server yet";
            Err(option.wrong(why, "leave it out, or run the statement with SQL Server's own programs"))
        }
        _ => Err(option.unknown(&format!("BACKUP {what}"))),
    }
}

/// The codec, as `--compression` spells it for a SQL Server.
fn compression(option: &Given) -> Result<String> {
    if option.value.is_some() {
        return Err(option.wrong("it has no value", "write COMPRESSION alone, or COMPRESSION (ALGORITHM = ZSTD)"));
    }
    let (mut algorithm, mut level) = (String::new(), String::new());
    for (name, value) in &option.parts {
        match name.as_str() {
            "ALGORITHM" => algorithm = value.to_ascii_lowercase(),
            "LEVEL" => level = value.to_ascii_lowercase(),
            other => return Err(option.wrong(format!("it has no part {other}"), "write ALGORITHM and LEVEL")),
        }
    }
    let is_plain = |text: &str| text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    match (algorithm.as_str(), level.as_str()) {
        ("", "") => Ok("on".into()),
        ("", _) => Err(option.wrong("LEVEL needs an ALGORITHM", "write COMPRESSION (ALGORITHM = ZSTD, LEVEL = LOW)")),
        // The driver names the algorithms and levels that there are.
        (algorithm, "") if is_plain(algorithm) => Ok(algorithm.into()),
        (algorithm, level) if is_plain(algorithm) && is_plain(level) => Ok(format!("{algorithm}:{level}")),
        _ => Err(option.wrong("its ALGORITHM or LEVEL is not a word", "write ALGORITHM = ZSTD, LEVEL = LOW")),
    }
}

/// The rest of a RESTORE of a database or its log, behind its name.
///
/// # Errors
/// As of [`backup`].
pub(crate) fn restore(parser: &mut Parser, variables: &Variables, subject: Subject) -> Result<Command> {
    let Subject { at, what, database, url } = subject;
    let from = if parser.take_word("FROM") { places(parser, variables)?.0 } else { Vec::new() };
    let finishes = from.is_empty();
    if what == "LOG" && finishes {
        return Err(parser.unexpected("FROM"));
    }
    let mut words = vec!["restore".to_owned()];
    words.extend(from.into_iter().flat_map(|place| ["--from".to_owned(), place]));
    let (mut stats, mut has_file) = (None, finishes);
    for option in options(parser, variables)? {
        let alone = |word: &str| option.alone().map(|()| vec![word.to_owned()]);
        let more = match option.name.as_str() {
            "STATS" => {
                stats = Some(step(&option)?);
                Vec::new()
            }
            "FILE" => {
                has_file = true;
                vec!["--file".to_owned(), file(&option)?.to_string()]
            }
            "REPLACE" => alone("--replace")?,
            "NORECOVERY" if !finishes => alone("--no-recovery")?,
            "RECOVERY" if finishes => alone("--recovery")?,
            "CONTINUE_AFTER_ERROR" => alone("--continue-after-error")?,
            "BUFFERCOUNT" => buffer_count(&option)?,
            "STOPAT" => vec!["--stop-at".to_owned(), time_with_zone(option.value.as_ref(), option.at)?],
            "STOPATMARK" | "STOPBEFOREMARK" => mark(&option)?,
            "STANDBY" if !finishes => vec!["--standby".to_owned(), option.text()?],
            "MOVE" => moved(&option)?,
            "RECOVERY" => option.alone().map(|()| Vec::new())?,
            name if has_no_effect(name) => option.alone().map(|()| Vec::new())?,
            name @ ("STANDBY" | "MEDIANAME" | "BLOCKSIZE" | "MAXTRANSFERSIZE" | "RESTART" | "PARTIAL" | "PAGE"
            | "KEEP_CDC" | "KEEP_REPLICATION") => {
                let why = format!("fullbore does not pass {name} to a SQL Server yet");
                return Err(option.wrong(why, "leave it out, or run the statement with SQL Server's own programs"));
            }
            _ => return Err(option.unknown(&format!("RESTORE {what}"))),
        };
        words.extend(more);
    }
    if finishes && !words.iter().any(|word| word == "--recovery") {
        words.push("--recovery".into());
    }
    if !has_file && !url.contains("rds=true") {
        // As SQL Server does.
        words.extend(["--file".into(), "1".into()]);
    }
    words.extend(["--into".into(), url, "--experimental".into()]);
    let action = Action::Restore { statement: format!("RESTORE {what}"), database };
    Ok(Command { stats, ..Command::new(at, words, action) })
}

/// `STOPATMARK = 'name' AFTER 'time'`; the time has a zone, as that of STOPAT.
fn mark(option: &Given) -> Result<Vec<String>> {
    let flag = if option.name == "STOPATMARK" { "--stop-at-mark" } else { "--stop-before-mark" };
    let mut words = vec![flag.to_owned(), option.text()?];
    if let Some(after) = &option.to {
        words.extend(["--mark-after".to_owned(), time_with_zone(Some(after), option.at)?]);
    }
    Ok(words)
}

fn moved(option: &Given) -> Result<Vec<String>> {
    match (&option.value, &option.to) {
        (Some(Value::Text(logical)), Some(Value::Text(path))) => {
            Ok(vec!["--move".to_owned(), logical.clone(), path.clone()])
        }
        _ => Err(option.wrong("it needs two texts", "write MOVE 'file' TO 'path'")),
    }
}

/// STOPAT for a server in another place: its own zone is not known here.
pub(crate) fn time_with_zone(value: Option<&Value>, at: Position) -> Result<String> {
    if let Some(Value::Text(text)) = value
        && text.trim().replacen(' ', "T", 1).parse::<jiff::Timestamp>().is_err()
    {
        let why = format!("`{text}` has no zone, and the zone of the server is not known here");
        let hint = "write the time as '2026-11-26T10:00:00Z', or with +01:00";
        return Err(Error::usage(format!("{at}: STOPAT"), why, hint));
    }
    moment(value, at)
}
