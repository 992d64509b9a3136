//! What the names of a script mean here: databases, paths, certificates.

use std::collections::BTreeMap;

use fullbore_core::{Error, Result};

use super::lexemes::Position;

/// The table `[sql]` of the configuration. Names are compared without regard to case, as SQL Server does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// The URL of each database: `shop = "sqlite:/srv/shop.db"`. A restore writes there too.
    pub databases: BTreeMap<String, String>,
    /// Directories for the beginnings of paths: `"D:\\Backup" = "/mnt/backup"`.
    pub paths: BTreeMap<String, String>,
    /// The public key of each certificate: `BackupCert = "/etc/fullbore/backup.pub"`.
    pub certificates: BTreeMap<String, String>,
    /// The repository whose tasks `rds_task_status` shows.
    pub repository: Option<String>,
    /// True if the user accepts statements on a SQL Server, which are experimental.
    pub experimental: bool,
}

impl Names {
    /// The URL of a database.
    ///
    /// # Errors
    /// The configuration does not have the name.
    pub(crate) fn database(&self, name: &str, at: Position) -> Result<&str> {
        find(&self.databases, name).ok_or_else(|| {
            Error::usage(
                format!("{at}: database [{name}]"),
                "the configuration does not have this name",
                format!("add it to fullbore.toml, in [sql.databases]: {name} = \"sqlite:/path/of/it.db\""),
            )
        })
    }

    /// The file of a certificate's public key.
    ///
    /// # Errors
    /// The configuration does not have the name.
    pub(crate) fn certificate(&self, name: &str, at: Position) -> Result<&str> {
        find(&self.certificates, name).ok_or_else(|| {
            Error::usage(
                format!("{at}: certificate [{name}]"),
                "the configuration does not have this name",
                format!("add its public key to fullbore.toml, in [sql.certificates]: {name} = \"/path/of/key.pub\""),
            )
        })
    }

    /// A device of fullbore for `DISK = 'path'` or `URL = 'url'`. `NUL` is the device that discards everything.
    ///
    /// # Errors
    /// A Windows path that the configuration does not map.
    pub(crate) fn device(&self, path: &str, at: Position) -> Result<String> {
        if path.eq_ignore_ascii_case("NUL") || path.eq_ignore_ascii_case("NUL:") {
            return Ok("nul:".to_owned());
        }
        let wrong = |why: &str, hint: &str| Err(Error::usage(format!("{at}: '{path}'"), why, hint));
        if path == "-" {
            return wrong("standard input and output are not devices of a script", "name a file");
        }
        if path.split(['\\', '/']).any(|part| part == "..") {
            return wrong("it leaves its directory by `..`", "name the directory itself");
        }
        let mapped = self.paths.iter().filter_map(|(from, to)| Some((from.len(), to, rest_below(path, from)?)));
        if let Some((_, to, rest)) = mapped.max_by_key(|(length, ..)| *length) {
            return Ok(format!("{}{rest}", to.trim_end_matches('/')));
        }
        let mut letters = path.chars();
        let has_drive =
            letters.next().is_some_and(|letter| letter.is_ascii_alphabetic()) && letters.next() == Some(':');
        if (has_drive || path.starts_with("\\\\")) && !path.contains("://") {
            let directory = path.rsplit_once('\\').map_or(path, |(directory, _)| directory);
            return Err(Error::usage(
                format!("{at}: '{path}'"),
                "it is a path of Windows, and the configuration does not map it",
                format!("add its directory to fullbore.toml, in [sql.paths]: '{directory}' = \"/mnt/backup\""),
            ));
        }
        if path.contains('\\') {
            return wrong(
                "it is a path of Windows without a drive",
                "write it with / or map its directory in [sql.paths]",
            );
        }
        Ok(path.to_owned())
    }
}

fn find<'n>(names: &'n BTreeMap<String, String>, name: &str) -> Option<&'n str> {
    let found = names.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

/// The rest of a path below a directory, with `/` between its parts. Windows compares paths without case.
fn rest_below(path: &str, directory: &str) -> Option<String> {
    let plain = |path: &str| path.replace('/', "\\").to_lowercase();
    let directory = directory.trim_end_matches(['\\', '/']);
    let (start, rest) = path.split_at_checked(directory.len())?;
    let is_below = plain(start) == plain(directory) && (rest.is_empty() || rest.starts_with(['\\', '/']));
    is_below.then(|| rest.replace('\\', "/"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const AT: Position = Position { line: 1, column: 1 };

    #[test]
    fn the_longest_mapped_beginning_of_a_windows_path_counts() {
        let paths = [("D:\\", "/mnt/d"), ("d:\\Backup\\", "/mnt/backup/"), ("\\\\nas\\dump", "/mnt/nas")];
        let names =
            Names { paths: paths.map(|(from, to)| (from.to_owned(), to.to_owned())).into(), ..Names::default() };
        for (path, device) in [
            ("D:\\BACKUP\\night\\shop.bak", "/mnt/backup/night/shop.bak"),
            ("D:\\Backups\\shop.bak", "/mnt/d/Backups/shop.bak"),
            ("\\\\NAS\\dump\\a.bak", "/mnt/nas/a.bak"),
            ("/var/opt/mssql/a.bak", "/var/opt/mssql/a.bak"),
            ("s3://bucket/a.bak", "s3://bucket/a.bak"),
            ("nul", "nul:"),
        ] {
            assert_eq!(names.device(path, AT).unwrap(), device);
        }
        let error = names.device("E:\\x\\a.bak", AT).unwrap_err().to_string();
        assert!(error.contains("E:\\x\\a.bak") && error.contains("[sql.paths]"), "{error}");
    }

    #[test]
    fn names_of_databases_are_compared_without_case() {
        let names = Names { databases: [("Shop".to_owned(), "sqlite:a.db".to_owned())].into(), ..Names::default() };
        assert_eq!(names.database("SHOP", AT).unwrap(), "sqlite:a.db");
        assert!(names.database("other", AT).unwrap_err().to_string().contains("[sql.databases]"));
    }
}
