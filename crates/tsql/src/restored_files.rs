//! RESTORE DATABASE of backup files of SQL Server. Such a database is no database here: the configuration names a directory
//! (`shop = "dir:/srv/shop"`), and the MDF, NDF and LDF files are written into it.

use fullbore_core::{Error, Result};

use super::expression::Value;
use super::lexemes::Position;
use super::names::Names;
use super::options::{Given, file, has_no_effect};
use super::statement::{Action, Command, Expected, step};

/// The statement up to WITH.
pub(crate) struct Files<'a> {
    pub at: Position,
    /// DATABASE or LOG.
    pub what: &'a str,
    /// The name in the script.
    pub database: String,
    /// `dir:PATH`.
    pub into: String,
    /// The devices; none without FROM.
    pub from: Vec<String>,
}

/// The command that writes the files.
///
/// # Errors
/// The statement applies log, or has an option that a restore to files does not have.
pub(crate) fn to_files(files: &Files<'_>, given: &[Given], names: &Names) -> Result<Command> {
    let Files { at, what, database, into, from } = files;
    if *what == "LOG" {
        let why = "fullbore does not apply log backups of SQL Server: their records are not documented";
        let hint = "leave it out: a restore to files takes a full and a differential";
        return Err(Error::usage(format!("{at}: RESTORE LOG"), why, hint));
    }
    if from.is_empty() {
        let why = "a restore of SQL Server's files has one step";
        return Err(Error::usage(format!("{at}: RESTORE DATABASE without FROM"), why, "write FROM DISK = …"));
    }
    let mut words = vec!["restore".to_owned()];
    words.extend(from.iter().flat_map(|place| ["--from".to_owned(), place.clone()]));
    let (mut stats, mut expected) = (None, Expected::default());
    for option in given {
        match option.name.as_str() {
            "STATS" => stats = Some(step(option)?),
            "FILE" => {
                let file = file(option)?;
                expected.file = Some(file);
                words.extend(["--file".into(), file.to_string()]);
            }
            "MEDIANAME" => expected.media_name = Some((option.text()?, option.at)),
            "MOVE" => {
                let (logical, path) = moved(option, names)?;
                if words.windows(2).any(|pair| matches!(pair, [flag, name] if flag == "--move" && *name == logical)) {
                    return Err(option.wrong(format!("`{logical}` is moved twice"), "give one MOVE for each file"));
                }
                words.extend(["--move".into(), logical, path]);
            }
            "RECOVERY" => option.alone()?,
            name if has_no_effect(name) => option.alone()?,
            _ => return Err(refused(option)),
        }
    }
    words.extend(["--into".into(), into.clone()]);
    let action = Action::Restore { statement: "RESTORE DATABASE".into(), database: database.clone() };
    Ok(Command { stats, expected, ..Command::new(*at, words, action) })
}

/// The logical name and the path of `MOVE 'logical' TO 'path'`.
fn moved(option: &Given, names: &Names) -> Result<(String, String)> {
    let (Some(Value::Text(logical)), Some(Value::Text(path))) = (&option.value, &option.to) else {
        return Err(option.wrong("it needs two texts", "write MOVE 'file' TO 'path'"));
    };
    let path = names.device(path, option.at)?;
    if path == "nul:" || path.contains("://") {
        return Err(option.wrong(format!("`{path}` is not a file here"), "write the path of a file"));
    }
    Ok((logical.clone(), path))
}

fn refused(option: &Given) -> Error {
    let of = "of SQL Server's files";
    match option.name.as_str() {
        "REPLACE" => {
            let why = format!("a restore {of} replaces nothing");
            option.wrong(why, "move the old files away, or name another directory in [sql.databases]")
        }
        "NORECOVERY" => {
            let why = format!("a restore {of} has one step");
            option.wrong(why, "name the full and the differential in one statement: FROM DISK = …, DISK = …")
        }
        "STOPAT" => {
            let why = format!("a restore {of} applies no log: its records are not documented");
            option.wrong(
                why,
                "leave it out: the files are as of the end of the differential, or of the full; `fullbore list \
                               --stop-at` shows the sets of a restore to a time",
            )
        }
        "STANDBY" | "STOPATMARK" | "STOPBEFOREMARK" => {
            let why = format!("a restore {of} applies no log: its records are not documented");
            option.wrong(why, "leave it out: the files are as of the end of the differential, or of the full")
        }
        _ => option.unknown(&format!("RESTORE DATABASE {of}")),
    }
}
