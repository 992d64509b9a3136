//! RESTORE: DATABASE, LOG, HEADERONLY, FILELISTONLY, LABELONLY, VERIFYONLY.

use fullbore_core::{Error, Result};

use super::expression::{Value, Variables, moment};
use super::lexemes::Position;
use super::names::Names;
use super::options::{Given, options};
use super::parser::Parser;
use super::statement::{Action, Command, database_name, places, step};

/// Reads the statement behind the word RESTORE.
///
/// # Errors
/// It is not as T-SQL has it, or it has words that fullbore does not have.
pub(crate) fn restore(parser: &mut Parser, variables: &Variables, names: &Names, at: Position) -> Result<Command> {
    let what = parser.any_word("DATABASE, LOG, HEADERONLY, FILELISTONLY, LABELONLY or VERIFYONLY")?;
    match what.as_str() {
        "DATABASE" | "LOG" => database(parser, variables, names, (at, &what)),
        "HEADERONLY" => show(parser, variables, names, (at, &["inspect", "header"])),
        "FILELISTONLY" => show(parser, variables, names, (at, &["inspect", "files"])),
        "LABELONLY" => show(parser, variables, names, (at, &["inspect", "label"])),
        "VERIFYONLY" => show(parser, variables, names, (at, &["verify"])),
        other => {
            let hint = "write RESTORE DATABASE, LOG, HEADERONLY, FILELISTONLY, LABELONLY or VERIFYONLY";
            Err(Error::usage(at.to_string(), format!("fullbore does not know RESTORE {other}"), hint))
        }
    }
}

fn database(
    parser: &mut Parser,
    variables: &Variables,
    names: &Names,
    (at, what): (Position, &str),
) -> Result<Command> {
    let (database, named_at) = database_name(parser, variables)?;
    let mut into = names.database(&database, named_at)?.to_owned();
    let mut words = vec!["restore".to_owned()];
    // `RESTORE DATABASE shop WITH RECOVERY` ends a restore in steps.
    let finishes = !parser.is_word("FROM");
    let mut directories = Vec::new();
    if !finishes {
        parser.want_word("FROM")?;
        let found = places(parser, variables, names)?;
        directories = found.directories();
        words.extend(found.0.iter().flat_map(|place| ["--from".to_owned(), place.clone()]));
    }
    let given = options(parser, variables)?;
    let (mut stats, mut steps, mut moves) = (None, finishes.then_some("--recovery"), false);
    for option in &given {
        match option.name.as_str() {
            "STATS" => stats = Some(step(option)?),
            "NORECOVERY" if finishes => {
                return Err(option.wrong("there is no backup to restore", "write FROM DISK = …"));
            }
            "NORECOVERY" => {
                option.alone()?;
                steps = Some("--no-recovery");
            }
            "RECOVERY" => {
                option.alone()?;
                steps = Some("--recovery");
            }
            "MOVE" => {
                let (target, is_data) = moved(option, &into, names)?;
                if is_data && moves {
                    let why = "a second data file is moved, and the database has one";
                    return Err(option.wrong(why, "give one MOVE"));
                }
                (into, moves) = (target, moves || is_data);
            }
            _ => words.extend(of_restore(option, what)?),
        }
    }
    // RECOVERY is the default of T-SQL: a full alone needs no flag, and a step after others does.
    match steps {
        Some("--recovery") if what == "DATABASE" && !finishes => {}
        None if what == "LOG" => words.push("--recovery".into()),
        Some(steps) => words.push(steps.into()),
        None => {}
    }
    if what == "LOG" && directories.is_empty() {
        return Err(parser.unexpected("FROM"));
    }
    words.extend(["--into".into(), into]);
    Ok(Command { at, words, action: Action::Restore { statement: format!("RESTORE {what}"), database }, stats })
}

/// `MOVE 'logical' TO 'path'`: a database in one file is restored there. Its log, an LDF file, has no file here. True if the
/// database goes elsewhere.
fn moved(option: &Given, into: &str, names: &Names) -> Result<(String, bool)> {
    let (Some(_), Some(Value::Text(path))) = (&option.value, &option.to) else {
        return Err(option.wrong("it needs two texts", "write MOVE 'file' TO 'path'"));
    };
    let Some((scheme, _)) = into.split_once(':').filter(|(_, rest)| !rest.starts_with("//")) else {
        return Err(option
            .wrong("this database is not in one file", "leave it out, and name another target in [sql.databases]"));
    };
    if path.to_lowercase().ends_with(".ldf") {
        return Ok((into.to_owned(), false));
    }
    Ok((format!("{scheme}:{}", names.device(path, option.at)?), true))
}

fn of_restore(option: &Given, what: &str) -> Result<Vec<String>> {
    let flag = |name: &str, value: String| Ok(vec![format!("--{name}"), value]);
    if !["STOPAT", "BUFFERCOUNT", "FILE", "BLOCKSIZE", "MAXTRANSFERSIZE", "STANDBY"].contains(&option.name.as_str()) {
        option.alone()?;
    }
    match option.name.as_str() {
        "REPLACE" => Ok(vec!["--replace".into()]),
        "RESTART" => Ok(vec!["--resume".into()]),
        "STOPAT" => flag("stop-at", moment(option.value.as_ref(), option.at)?),
        "BUFFERCOUNT" => flag("buffer-count", option.number()?.to_string()),
        "CONTINUE_AFTER_ERROR" => Ok(vec!["--continue-after-error".into()]),
        "FILE" => first_set(option),
        // fullbore finds these sizes on the media, and always checks.
        "BLOCKSIZE" | "MAXTRANSFERSIZE" => option.number().map(|_| Vec::new()),
        "CHECKSUM" | "STOP_ON_ERROR" => Ok(Vec::new()),
        "REWIND" | "NOREWIND" | "UNLOAD" | "NOUNLOAD" => Ok(Vec::new()),
        "NO_CHECKSUM" => Err(option.wrong("fullbore always checks", "leave it out")),
        "STOPATMARK" | "STOPBEFOREMARK" => {
            Err(option.wrong("fullbore stops at a time", "write STOPAT = '2026-11-26T10:00:00'"))
        }
        "STANDBY" => Err(option.wrong("a database cannot be read between two steps", "write NORECOVERY")),
        _ => Err(option.unknown(&format!("RESTORE {what}"))),
    }
}

/// FILE = 1: media of fullbore have one set.
fn first_set(option: &Given) -> Result<Vec<String>> {
    match option.number()? {
        1 => Ok(Vec::new()),
        _ => Err(option.wrong("these media have one backup set", "write FILE = 1")),
    }
}

fn show(parser: &mut Parser, variables: &Variables, names: &Names, (at, verb): (Position, &[&str])) -> Result<Command> {
    parser.want_word("FROM")?;
    let places = places(parser, variables, names)?;
    let mut words: Vec<String> = verb.iter().map(|word| (*word).to_owned()).collect();
    words.extend(places.0.iter().flat_map(|place| ["--from".to_owned(), place.clone()]));
    let mut stats = None;
    for option in options(parser, variables)? {
        match option.name.as_str() {
            "STATS" => stats = Some(step(&option)?),
            "FILE" => words.extend(first_set(&option)?),
            "CHECKSUM" | "STOP_ON_ERROR" | "NOUNLOAD" | "UNLOAD" | "NOREWIND" | "REWIND" => {}
            _ => return Err(option.unknown("this RESTORE")),
        }
    }
    let action = if verb == ["verify"] { Action::Verify } else { Action::Show };
    Ok(Command { at, words, action, stats })
}
