//! What all statements share: the command line that they become, devices, names of databases, STATS.

use fullbore_core::{Error, Result};

use super::expression::{Value, Variables};
use super::lexemes::{Lexeme, Position};
use super::names::Names;
use super::options::Given;
use super::parser::Parser;

/// A command line of fullbore for one statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Where the statement begins.
    pub at: Position,
    /// The verb and its words, without the name of the program.
    pub words: Vec<String>,
    /// What it does, for the messages.
    pub action: Action,
    /// STATS: the step of progress in percent.
    pub stats: Option<u8>,
    /// What is compared with the media before the command runs.
    pub expected: Expected,
}

/// What a RESTORE says about its media.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expected {
    /// MEDIANAME, and its place: the media have this name.
    pub media_name: Option<(String, Position)>,
    /// FILE: the position of the set on its media.
    pub file: Option<u16>,
}

/// What a command does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// BACKUP DATABASE or BACKUP LOG.
    Backup {
        /// Its first two words.
        statement: String,
        /// The name in the script.
        database: String,
    },
    /// RESTORE DATABASE or RESTORE LOG.
    Restore {
        /// Its first two words.
        statement: String,
        /// The name in the script.
        database: String,
    },
    /// RESTORE VERIFYONLY.
    Verify,
    /// A statement whose output is its result.
    Show,
    /// PRINT: the text. There is no command line.
    Print(String),
}

/// BUFFERCOUNT: any number of buffers. Whether there is memory for them is not known here.
pub(crate) fn buffer_count(option: &Given) -> Result<Vec<String>> {
    Ok(vec!["--buffer-count".into(), option.number(1, u32::MAX.into())?.to_string()])
}

/// The devices of a statement.
#[derive(Debug)]
pub(crate) struct Places(pub Vec<String>);

impl Command {
    /// A command line without options of its own.
    pub(crate) fn new(at: Position, words: Vec<String>, action: Action) -> Self {
        Self { at, words, action, stats: None, expected: Expected::default() }
    }
}

impl Places {
    /// Their directories, each once.
    pub fn directories(&self) -> Vec<String> {
        let mut directories: Vec<String> = Vec::new();
        for place in self.0.iter().filter(|place| *place != "nul:") {
            let directory = place.rsplit_once('/').map_or("./".to_owned(), |(directory, _)| format!("{directory}/"));
            if !directories.contains(&directory) {
                directories.push(directory);
            }
        }
        directories
    }
}

/// STATS and STATS = n: the step in percent.
pub(crate) fn step(option: &Given) -> Result<u8> {
    let step = if option.value.is_some() { option.number(1, 100)? } else { 10 };
    Ok(u8::try_from(step).unwrap_or(100))
}

/// A name, or a variable with one.
pub(crate) fn database_name(parser: &mut Parser, variables: &Variables) -> Result<(String, Position)> {
    let at = parser.at();
    match parser.peek().cloned() {
        Some(Lexeme::Word(name) | Lexeme::Name(name)) => {
            parser.next();
            Ok((name, at))
        }
        Some(Lexeme::Variable(_)) => Ok((variables.value(parser)?.text(), at)),
        _ => Err(parser.unexpected("the name of a database")),
    }
}

/// `DISK = 'a', DISK = 'b'`, `URL = '…'`.
pub(crate) fn places(parser: &mut Parser, variables: &Variables, names: &Names) -> Result<Places> {
    places_by(parser, variables, &|_, path, at| names.device(path, at))
}

/// A device by its kind, its path and its place in the script.
pub(crate) type DeviceOf<'a> = &'a dyn Fn(&str, &str, Position) -> Result<String>;

/// The same with other rules for each device.
pub(crate) fn places_by(parser: &mut Parser, variables: &Variables, device: DeviceOf<'_>) -> Result<Places> {
    let mut devices = Vec::new();
    loop {
        let at = parser.at();
        let kind = parser.any_word("DISK or URL")?;
        if kind != "DISK" && kind != "URL" {
            let why = format!("fullbore does not know the device {kind}");
            return Err(Error::usage(at.to_string(), why, "write DISK = 'path' or URL = 's3://bucket/key'"));
        }
        parser.want_sign('=')?;
        let path = match variables.value(parser)? {
            Value::Text(path) if !path.is_empty() => path,
            _ => return Err(Error::usage(at.to_string(), "the path is empty or no text", "write DISK = N'path'")),
        };
        devices.push(device(&kind, &path, at)?);
        if !parser.take_sign(',') {
            break;
        }
    }
    if devices.len() > 64 {
        let why = format!("{} devices are named, and a media set has at most 64 families", devices.len());
        return Err(Error::usage(parser.at().to_string(), why, "name fewer"));
    }
    Ok(Places(devices))
}
