//! RESTORE: DATABASE, LOG, HEADERONLY, FILELISTONLY, LABELONLY, VERIFYONLY.

use fullbore_core::plan::{BlockSize, TransferSize};
use fullbore_core::{Error, Result};

use super::expression::{Value, Variables, moment};
use super::lexemes::Position;
use super::names::Names;
use super::on_server::{self, Subject};
use super::options::{Given, file, has_no_effect, options};
use super::parser::Parser;
use super::restored_files::{Files, to_files};
use super::statement::{Action, Command, Expected, buffer_count, database_name, places, step};

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
    on_server::accepted(&into, &database, named_at, names)?;
    if on_server::is_on_server(&into) {
        let what = what.to_owned();
        return on_server::restore(parser, variables, Subject { at, what, database, url: into });
    }
    let from = if parser.take_word("FROM") { places(parser, variables, names)?.0 } else { Vec::new() };
    // `RESTORE DATABASE shop WITH RECOVERY` ends a restore in steps.
    let finishes = from.is_empty();
    if what == "LOG" && finishes {
        return Err(parser.unexpected("FROM"));
    }
    let given = options(parser, variables)?;
    if into.starts_with("dir:") {
        return to_files(&Files { at, what, database, into, from }, &given, names);
    }
    let mut words = vec!["restore".to_owned()];
    words.extend(from.into_iter().flat_map(|place| ["--from".to_owned(), place]));
    let (mut stats, mut steps, mut moves) = (None, finishes.then_some("--recovery"), false);
    let mut expected = Expected::default();
    for option in &given {
        match option.name.as_str() {
            "STATS" => stats = Some(step(option)?),
            "MEDIANAME" if !finishes => expected.media_name = Some((option.text()?, option.at)),
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
            _ => words.extend(of_restore(option, what, &into)?),
        }
    }
    // RECOVERY is the default of T-SQL: a full alone needs no flag, and a step after others does.
    match steps {
        Some("--recovery") if what == "DATABASE" && !finishes => {}
        None if what == "LOG" => words.push("--recovery".into()),
        Some(steps) => words.push(steps.into()),
        None => {}
    }
    words.extend(["--into".into(), into]);
    let action = Action::Restore { statement: format!("RESTORE {what}"), database };
    Ok(Command { stats, expected, ..Command::new(at, words, action) })
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

/// The words of fullbore for one option. `into` is the URL of the target: its engine is in messages.
fn of_restore(option: &Given, what: &str, into: &str) -> Result<Vec<String>> {
    let flag = |name: &str, value: String| Ok(vec![format!("--{name}"), value]);
    let engine = into.split_once(':').map_or(into, |(engine, _)| engine);
    if ["REPLACE", "RESTART", "CONTINUE_AFTER_ERROR", "NO_CHECKSUM"].contains(&option.name.as_str()) {
        option.alone()?;
    }
    if has_no_effect(&option.name) {
        return option.alone().map(|()| Vec::new());
    }
    match option.name.as_str() {
        "REPLACE" => Ok(vec!["--replace".into()]),
        "RESTART" => Ok(vec!["--resume".into()]),
        "STOPAT" => flag("stop-at", moment(option.value.as_ref(), option.at)?),
        "BUFFERCOUNT" => buffer_count(option),
        "CONTINUE_AFTER_ERROR" => Ok(vec!["--continue-after-error".into()]),
        "FILE" => first_set(option),
        // fullbore finds these sizes on the media, and always checks.
        "BLOCKSIZE" => option.checked(BlockSize::new, 4096).map(|_| Vec::new()),
        "MAXTRANSFERSIZE" => option.checked(TransferSize::new, 1_048_576).map(|_| Vec::new()),
        "NO_CHECKSUM" => Err(option.wrong("fullbore always checks", "leave it out")),
        "STOPATMARK" | "STOPBEFOREMARK" => {
            let why = format!("a log of {engine} has no marks and no LSNs of SQL Server");
            Err(option.wrong(why, "write STOPAT = '2026-11-26T10:00:00'"))
        }
        "STANDBY" => {
            let why = format!("a database of {engine} cannot be read between two steps");
            Err(option.wrong(why, "write NORECOVERY"))
        }
        _ => Err(option.unknown(&format!("RESTORE {what} into {engine}"))),
    }
}

/// FILE = 1: media of fullbore have one set.
fn first_set(option: &Given) -> Result<Vec<String>> {
    match file(option)? {
        1 => Ok(Vec::new()),
        _ => Err(option.wrong("these media have one backup set", "write FILE = 1")),
    }
}

fn show(parser: &mut Parser, variables: &Variables, names: &Names, (at, verb): (Position, &[&str])) -> Result<Command> {
    parser.want_word("FROM")?;
    let places = places(parser, variables, names)?;
    let is_verify = verb == ["verify"];
    let mut words: Vec<String> = verb.iter().map(|word| (*word).to_owned()).collect();
    words.extend(places.0.iter().flat_map(|place| ["--from".to_owned(), place.clone()]));
    let (mut stats, mut expected) = (None, Expected::default());
    for option in options(parser, variables)? {
        match option.name.as_str() {
            "STATS" if is_verify => stats = Some(step(&option)?),
            "FILE" if verb != ["inspect", "label"] => {
                let file = file(&option)?;
                expected.file = Some(file);
                words.extend(["--file".into(), file.to_string()]);
            }
            "MEDIANAME" => expected.media_name = Some((option.text()?, option.at)),
            name if has_no_effect(name) => option.alone()?,
            _ => return Err(option.unknown("this RESTORE")),
        }
    }
    if expected.file.is_none() && (is_verify || verb == ["inspect", "files"]) {
        // As SQL Server does.
        words.extend(["--file".into(), "1".into()]);
    }
    let action = if is_verify { Action::Verify } else { Action::Show };
    Ok(Command { stats, expected, ..Command::new(at, words, action) })
}
