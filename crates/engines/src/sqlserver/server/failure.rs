//! What goes wrong with a server, and the next step.

use std::io;

use fullbore_core::Error;

use super::answer::one_line;

/// Why a statement or a connection failed.
#[derive(Debug)]
pub enum Failure {
    /// The server refused, with the number and the text of its first error.
    Server(u32, String),
    /// The connection ended or cannot be made.
    Lost(io::ErrorKind, String),
    /// TLS, or an answer that is not TDS.
    Protocol(String),
    /// An answer is too long.
    TooMuch(String),
    /// A statement that changes something ended, and the server does not say how.
    Unproven(String),
    /// It has nothing to do with the server.
    Ours(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

/// A login failed.
const LOGIN_FAILED: u32 = 18456;
/// A backup device cannot be opened.
pub const CANNOT_OPEN_DEVICE: u32 = 3201;

impl Failure {
    /// The number of the server's error.
    pub fn code(&self) -> Option<u32> {
        match self {
            Self::Server(code, _) => Some(*code),
            _ => None,
        }
    }

    /// The error of a device that does not exist: operating system error 2. Nothing is there, so nothing is overwritten.
    pub fn is_missing_file(&self) -> bool {
        matches!(self, Self::Server(CANNOT_OPEN_DEVICE, text) if text.contains("error 2("))
    }

    /// As an error about `thing`: the server, or the database on it.
    pub fn on(self, thing: &str) -> Error {
        match self {
            Self::Ours(error) => error,
            Self::Server(code, text) => {
                Error::refused(thing, format!("the server says: {} (error {code})", one_line(&text)), hint(code, &text))
            }
            Self::Lost(kind, text) => {
                let error = Error::io("talk to", thing, io::Error::new(kind, one_line(&text)));
                error.noting("check that the server runs and can be reached")
            }
            Self::TooMuch(text) => Error::refused(thing, text, "look at what answers there: is it a SQL Server?"),
            Self::Unproven(text) => {
                Error::refused(thing, text, "look into the error log of the server, and whether the run has finished")
            }
            Self::Protocol(text) => {
                let hint = "encrypt=, trust-server-certificate= and certificate-authority= of the URL say how fullbore connects";
                Error::refused(thing, one_line(&text), hint)
            }
        }
    }
}

/// `why` as the error of a run that is not known to have ended. A cancelled job says elsewhere that nothing is left.
pub fn unfinished(why: Error, thing: &str, more: &str) -> Error {
    match why {
        Error::Cancelled { by } => Error::refused(thing, format!("cancelled by {by}, but {more}"), ""),
        Error::Halted => Error::refused(thing, format!("the job was to end, but {more}"), ""),
        other => other.noting(more),
    }
}

/// The next step after an error of the server.
fn hint(code: u32, text: &str) -> &'static str {
    match code {
        LOGIN_FAILED => "check the login in the URL, and --password-file or FULLBORE_PASSWORD",
        CANNOT_OPEN_DEVICE if text.contains("error 50(") => {
            "the bucket is missing, the URL is wrong, or the server has no CREDENTIAL for this URL (CREATE CREDENTIAL)"
        }
        CANNOT_OPEN_DEVICE if text.contains("error 12175(") => "the server does not trust the certificate of the store",
        CANNOT_OPEN_DEVICE if text.contains("error 5(") => {
            "the account of the SQL Server service may not write there; for a URL, check CREDENTIAL and clock"
        }
        CANNOT_OPEN_DEVICE if text.contains("error 3(") => {
            "the directory does not exist on the server's host: make it there"
        }
        CANNOT_OPEN_DEVICE => "check the place on the server's host, or the CREDENTIAL of the URL",
        3202 | 3271 => "the server's host cannot write more there: check its room, and use more files with --stripes",
        1222 => "another backup or a change of the database holds a lock: wait with --wait, or raise --lock-timeout",
        3035 | 4214 => "take a full backup first: --kind full",
        4208 => "the recovery model is SIMPLE: it has no log backups",
        229 | 262 | 300 | 916 | 15247 => {
            "grant the login: db_backupoperator for backups, dbcreator for restores, VIEW SERVER STATE"
        }
        3117 | 4306 | 4305 | 4326 | 3136 => "restore the earlier sets first, each with --no-recovery",
        1834 | 3156 => "the file is in use by another database: name another place with --move",
        3102 | 3101 => "close the connections to the database first",
        _ => "",
    }
}
