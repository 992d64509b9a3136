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
    /// True if the statement may have run to its end on the server.
    pub fn may_be_done(&self) -> bool {
        matches!(self, Self::Lost(..) | Self::Unproven(_))
    }

    /// The number of the server's error.
    pub fn code(&self) -> Option<u32> {
        match self {
            Self::Server(code, _) => Some(*code),
            _ => None,
        }
    }

    /// The error of a device that does not exist: operating system error 2. Nothing is there, so nothing is overwritten.
    pub fn is_missing_file(&self) -> bool {
        matches!(self, Self::Server(CANNOT_OPEN_DEVICE, text) if system_error(text) == Some(2))
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

/// The number at the end of `Cannot open backup device '…'. Operating system error 2(…).`, in any language: the last number
/// before a bracket. The path before it may hold the same words. `None` for a message in another form.
fn system_error(text: &str) -> Option<u32> {
    let text = text.trim_end();
    let text = text.strip_suffix(['.', '。']).unwrap_or(text).strip_suffix(')')?;
    text.rmatch_indices('(').find_map(|(at, _)| {
        let before = text.get(..at)?;
        let number = before.get(before.trim_end_matches(|letter: char| letter.is_ascii_digit()).len()..)?;
        before.strip_suffix(number)?.ends_with(' ').then(|| number.parse().ok())?
    })
}

/// The next step after an error of the server.
fn hint(code: u32, text: &str) -> &'static str {
    match code {
        CANNOT_OPEN_DEVICE => cannot_open(text),
        LOGIN_FAILED => "check the login in the URL, and --password-file or FULLBORE_PASSWORD",
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

/// The same for a device that cannot be opened.
fn cannot_open(text: &str) -> &'static str {
    match system_error(text) {
        Some(50) => {
            "the bucket is missing, the URL is wrong, or the server has no CREDENTIAL for this URL (CREATE CREDENTIAL)"
        }
        Some(12175) => "the server does not trust the certificate of the store",
        Some(5) => "the account of the SQL Server service may not write there; for a URL, check CREDENTIAL and clock",
        Some(3) => "the directory does not exist on the server's host: make it there",
        _ => "check the place on the server's host, or the CREDENTIAL of the URL",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_the_operating_system_is_at_the_end_of_the_message() {
        let number = |path: &str, end: &str| {
            system_error(&format!("Cannot open backup device '{path}'. Operating system error {end}"))
        };
        assert_eq!(number("/a.bak", "2(The system cannot find the file specified.)."), Some(2));
        assert_eq!(number("/error 2(x)/a.bak", "32(The process cannot access the file.)."), Some(32));
        assert_eq!(number("/a'. Operating system error 2(x).", "5(Access is denied.)."), Some(5));
        assert_eq!(number("/a.bak", "2 x"), None);
        assert_eq!(number("/a.bak", "2(Not found (x).)."), Some(2));
        for other_language in [
            "Das Sicherungsmedium '/a.bak' kann nicht geöffnet werden. Betriebssystemfehler 2(Datei nicht gefunden.).",
            "Impossible d'ouvrir l'unité '/2 3(a'. Erreur du système d'exploitation 2(Le fichier est introuvable.).",
            "バックアップ デバイス '/a.bak' を開けません。オペレーティング システム エラー 2(見つかりません。)。",
        ] {
            assert_eq!(system_error(other_language), Some(2), "{other_language}");
        }
        let other_form = "Cannot open '/a'. Operating system error 2(x).'. The device is off-line.";
        assert_eq!((system_error(other_form), system_error("")), (None, None));
        assert_eq!(system_error("Cannot open backup device '/a'. Operating system error 2(x)'."), None);
    }
}
