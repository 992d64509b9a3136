//! BACKUP DATABASE and BACKUP LOG, as `fullbore backup`.

use fullbore_core::plan::{BlockSize, TransferSize};
use fullbore_core::units::counted;
use fullbore_core::{Error, Result};

use super::expression::Variables;
use super::lexemes::{Lexeme, Position};
use super::names::Names;
use super::on_server::{self, Subject};
use super::options::{Given, options};
use super::parser::Parser;
use super::statement::{Action, Command, buffer_count, database_name, places, step};

/// The largest RETAINDAYS of SQL Server.
const DAYS_MAX: u64 = 99_999;
/// Mirrors of a backup, at most: as many as in SQL Server.
const MIRRORS_MAX: usize = 3;
/// Options that are a word alone.
const ALONE: [&str; 19] = [
    "INIT",
    "NOINIT",
    "FORMAT",
    "NOFORMAT",
    "SKIP",
    "NOSKIP",
    "COPY_ONLY",
    "DIFFERENTIAL",
    "CHECKSUM",
    "NO_CHECKSUM",
    "NO_COMPRESSION",
    "STOP_ON_ERROR",
    "CONTINUE_AFTER_ERROR",
    "REWIND",
    "NOREWIND",
    "UNLOAD",
    "NOUNLOAD",
    "LOAD",
    "NOLOAD",
];

/// Reads the statement behind the word BACKUP.
///
/// # Errors
/// It is not as T-SQL has it, or it has words that fullbore does not have.
pub(crate) fn backup(parser: &mut Parser, variables: &Variables, names: &Names, at: Position) -> Result<Command> {
    let what = parser.any_word("DATABASE or LOG")?;
    if what != "DATABASE" && what != "LOG" {
        let why = format!("fullbore does not know BACKUP {what}");
        return Err(Error::usage(at.to_string(), why, "write BACKUP DATABASE or BACKUP LOG"));
    }
    let (database, named_at) = database_name(parser, variables)?;
    let url = names.database(&database, named_at)?.to_owned();
    if url.starts_with("dir:") {
        let why = format!("`{url}` is a directory for restored files of SQL Server, not a database");
        let hint = "back it up with SQL Server; fullbore copy takes its files into a repository";
        return Err(Error::usage(format!("{named_at}: database [{database}]"), why, hint));
    }
    on_server::accepted(&url, &database, named_at, names)?;
    if !parser.is_word("TO") {
        let why = "parts of a database (FILE, FILEGROUP, READ_WRITE_FILEGROUPS) cannot be backed up alone";
        return Err(if matches!(parser.peek(), Some(Lexeme::Word(_))) {
            Error::usage(parser.at().to_string(), why, "back up the database")
        } else {
            parser.unexpected("TO")
        });
    }
    parser.want_word("TO")?;
    if on_server::is_on_server(&url) {
        return on_server::backup(parser, variables, Subject { at, what, database, url });
    }
    let places = places(parser, variables, names)?;
    let mirrored = mirrors(parser, variables, names, places.0.len())?;
    let given = options(parser, variables)?;
    let mut words = vec!["backup".to_owned(), url];
    for place in &places.0 {
        words.extend(["--to".into(), place.clone()]);
    }
    let mirrors = mirrored.len() / places.0.len().max(1);
    words.extend(mirrored.into_iter().flat_map(|place| ["--mirror-to".to_owned(), place]));
    if mirrors > 1 {
        words.extend(["--mirrors".into(), mirrors.to_string()]);
    }
    let mut stats = None;
    let differential = given.iter().any(|option| option.name == "DIFFERENTIAL");
    if let Some(option) = given.iter().find(|option| option.name == "DIFFERENTIAL").filter(|_| what == "LOG") {
        return Err(option.wrong("a log backup is not a differential", "leave it out"));
    }
    match (what.as_str(), differential) {
        ("DATABASE", false) => {}
        ("DATABASE", true) => words.extend(["--kind".into(), "differential".into()]),
        _ => words.extend(["--kind".into(), "log".into()]),
    }
    if differential || what == "LOG" {
        // SQL Server knows the base itself. Here it is found among the sets beside the new one.
        for directory in places.directories() {
            words.extend(["--base".into(), directory]);
        }
    }
    for option in &given {
        if option.name == "STATS" {
            stats = Some(step(option)?);
        } else {
            let more = of_backup(option, names, &what)?;
            // INIT and FORMAT are one flag here.
            words.extend(more.into_iter().filter(|word| word != "--init" || !words.contains(word)).collect::<Vec<_>>());
        }
    }
    let action = Action::Backup { statement: format!("BACKUP {what}"), database };
    Ok(Command { stats, ..Command::new(at, words, action) })
}

/// `MIRROR TO DISK = …`, up to three times: the other places of `families` families, one mirror after the other.
fn mirrors(parser: &mut Parser, variables: &Variables, names: &Names, families: usize) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for count in 1.. {
        let at = parser.at();
        if !parser.take_word("MIRROR") {
            break;
        }
        let wrong = |why: String, hint: &str| Err(Error::usage(format!("{at}: MIRROR TO"), why, hint));
        if count > MIRRORS_MAX {
            return wrong(format!("a backup has {MIRRORS_MAX} mirrors at most"), "make more copies with fullbore copy");
        }
        parser.want_word("TO")?;
        let mirrored = places(parser, variables, names)?.0;
        if mirrored.len() != families {
            let why = format!("it has {}, and TO has {families}", counted(mirrored.len() as u64, "device"));
            return wrong(why, "name as many devices as behind TO");
        }
        if let Some(discarded) = mirrored.iter().find(|place| *place == "nul:") {
            return wrong(format!("`{discarded}` keeps nothing"), "leave it out");
        }
        all.extend(mirrored);
    }
    Ok(all)
}

/// The words of fullbore for one option.
fn of_backup(option: &Given, names: &Names, what: &str) -> Result<Vec<String>> {
    let flag = |name: &str, value: String| Ok(vec![format!("--{name}"), value]);
    let none = Ok(Vec::new());
    if ALONE.contains(&option.name.as_str()) {
        option.alone()?;
    }
    match option.name.as_str() {
        "INIT" | "FORMAT" => Ok(vec!["--init".into()]),
        "COPY_ONLY" if what == "DATABASE" => Ok(vec!["--copy-only".into()]),
        "CONTINUE_AFTER_ERROR" => Ok(vec!["--continue-after-error".into()]),
        "COMPRESSION" => compression(option),
        "NO_COMPRESSION" => flag("compression", "none".into()),
        "ENCRYPTION" => encryption(option, names),
        "MAXTRANSFERSIZE" => flag("max-transfer-size", option.checked(TransferSize::new, 1_048_576)?.to_string()),
        "BUFFERCOUNT" => buffer_count(option),
        "BLOCKSIZE" => flag("block-size", option.checked(BlockSize::new, 4096)?.to_string()),
        "NAME" => flag("name", option.text()?),
        "DESCRIPTION" => flag("description", option.text()?),
        "MEDIANAME" => flag("media-name", option.text()?),
        "RETAINDAYS" => flag("lock-until", format!("{}d", option.number(1, DAYS_MAX)?)),
        // What fullbore always does.
        // SKIP leaves out a check that fullbore does not make: it compares no names and no dates before it replaces. A lock in
        // an object store holds all the same.
        "DIFFERENTIAL" | "CHECKSUM" | "STOP_ON_ERROR" | "NOFORMAT" | "NOINIT" | "NOSKIP" | "SKIP" => none,
        // Tapes.
        "REWIND" | "NOREWIND" | "UNLOAD" | "NOUNLOAD" | "LOAD" | "NOLOAD" => none,
        "NO_CHECKSUM" => Err(option.wrong("fullbore always writes checksums", "leave it out")),
        "EXPIREDATE" => Err(option.wrong("fullbore takes a number of days", "write RETAINDAYS = 30")),
        "MEDIADESCRIPTION" => {
            let why = "fullbore's media have a name, and no description of their own";
            Err(option.wrong(why, "write DESCRIPTION: the set has it"))
        }
        _ => Err(option.unknown(&format!("BACKUP {what}"))),
    }
}

fn compression(option: &Given) -> Result<Vec<String>> {
    if option.value.is_some() {
        return Err(
            option.wrong("it has no value", "write COMPRESSION, or COMPRESSION (ALGORITHM = ZSTD, LEVEL = LOW)")
        );
    }
    let (mut algorithm, mut level) = ("ZSTD".to_owned(), String::new());
    for (name, value) in &option.parts {
        match name.as_str() {
            "ALGORITHM" => algorithm = value.to_ascii_uppercase(),
            "LEVEL" => level = value.to_ascii_uppercase(),
            other => return Err(option.wrong(format!("it has no part {other}"), "write ALGORITHM and LEVEL")),
        }
    }
    let codec = match (algorithm.as_str(), level.as_str()) {
        ("ZSTD", "LOW" | "") => "zstd:1",
        ("ZSTD", "MEDIUM") => "zstd:3",
        ("ZSTD", "HIGH") => "zstd:9",
        ("ZSTD", _) => return Err(option.wrong(format!("{level} is not a level"), "write LOW, MEDIUM or HIGH")),
        ("LZ4", "") => "lz4",
        ("LZ4", _) => return Err(option.wrong("LZ4 has no level", "leave LEVEL out")),
        _ => {
            let why = format!("fullbore does not pack with {algorithm}");
            return Err(option.wrong(why, "write ALGORITHM = ZSTD, ALGORITHM = LZ4 or no algorithm"));
        }
    };
    Ok(vec!["--compression".into(), codec.into()])
}

fn encryption(option: &Given, names: &Names) -> Result<Vec<String>> {
    let mut certificate = None;
    for (name, value) in &option.parts {
        match (name.as_str(), value.to_ascii_uppercase().as_str()) {
            ("ALGORITHM", "AES_256") => {}
            ("ALGORITHM", other) => {
                return Err(
                    option.wrong(format!("fullbore does not encrypt with {other}"), "write ALGORITHM = AES_256")
                );
            }
            ("SERVER CERTIFICATE" | "SERVER ASYMMETRIC KEY", _) => certificate = Some(value),
            (other, _) => {
                return Err(option.wrong(format!("it has no part {other}"), "write ALGORITHM and SERVER CERTIFICATE"));
            }
        }
    }
    let hint = "write ENCRYPTION (ALGORITHM = AES_256, SERVER CERTIFICATE = [name])";
    let certificate = certificate.ok_or_else(|| option.wrong("it names no certificate", hint))?;
    Ok(vec!["--encrypt-to".into(), names.certificate(certificate, option.at)?.to_owned()])
}
