//! Where the server keeps its files: asked for, never guessed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use fullbore_core::{Error, Result};

use super::statements::{Statements, variables};

/// The server's answers, as paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// Version of the server.
    pub version: String,
    /// The data directory.
    pub datadir: PathBuf,
    /// The files of the system tablespace, in their order.
    pub system_files: Vec<PathBuf>,
    /// Where the undo tablespaces are.
    pub undo_directory: PathBuf,
    /// The redo log.
    pub redo_log: PathBuf,
    /// Where Aria's log is.
    pub aria_log_directory: PathBuf,
    /// Bytes that the redo log is written by, at least.
    pub write_block: u64,
    /// MyISAM tables are written through memory, which leaves their times as they are.
    pub myisam_use_mmap: bool,
}

/// The most files of a system tablespace that are believed.
const SYSTEM_FILES_MAX: usize = 1024;

impl Places {
    /// Asks the server.
    ///
    /// # Errors
    /// The server cannot be copied: it has no InnoDB, or an archived redo log.
    pub fn ask(server: &mut dyn Statements) -> Result<Self> {
        let names = [
            "aria_log_dir_path",
            "datadir",
            "innodb_data_file_path",
            "innodb_data_home_dir",
            "innodb_log_archive",
            "innodb_log_group_home_dir",
            "innodb_log_write_ahead_size",
            "innodb_undo_directory",
            "myisam_use_mmap",
            "version",
        ];
        Self::from_variables(&variables(server, &names)?)
    }

    /// The data directory is here, and has another path for the server: moves all paths inside of it.
    pub fn move_to(&mut self, datadir: &Path) {
        let from = std::mem::replace(&mut self.datadir, datadir.to_owned());
        let places = [&mut self.undo_directory, &mut self.redo_log, &mut self.aria_log_directory];
        for place in self.system_files.iter_mut().chain(places) {
            if let Ok(inside) = place.strip_prefix(&from) {
                *place = datadir.join(inside);
            }
        }
    }

    fn from_variables(variables: &HashMap<String, String>) -> Result<Self> {
        let said = |name: &str| variables.get(name).map(String::as_str).unwrap_or_default();
        let datadir = PathBuf::from(said("datadir"));
        let refused = |why: &str, hint: &str| Err(Error::refused("MariaDB", why, hint));
        if !datadir.is_absolute() {
            return refused(
                "it does not report its data directory",
                "`datadir` is readable without a privilege: check that this is MariaDB",
            );
        }
        if said("innodb_data_file_path").is_empty() {
            return refused("it runs without InnoDB", "a hot copy needs InnoDB; use a logical backup");
        }
        if said("innodb_log_archive").eq_ignore_ascii_case("ON") {
            return refused(
                "its redo log is archived (innodb_log_archive=ON), which is not supported",
                "SET GLOBAL innodb_log_archive=OFF during the backup",
            );
        }
        // An empty value and "." mean the data directory; a relative one is relative to it, because the server runs
        // there.
        let within =
            |base: &Path, name: &str| if matches!(name, "" | "." | "./") { base.to_owned() } else { base.join(name) };
        let home = within(&datadir, said("innodb_data_home_dir"));
        let files = said("innodb_data_file_path").split(';').take(SYSTEM_FILES_MAX);
        let system_files =
            files.filter_map(|file| file.split(':').next()).map(|name| within(&home, name.trim())).collect();
        Ok(Self {
            version: said("version").to_owned(),
            system_files,
            undo_directory: within(&datadir, said("innodb_undo_directory")),
            redo_log: within(&datadir, said("innodb_log_group_home_dir")).join("ib_logfile0"),
            aria_log_directory: within(&datadir, said("aria_log_dir_path")),
            write_block: said("innodb_log_write_ahead_size").parse().unwrap_or(0),
            myisam_use_mmap: said("myisam_use_mmap").eq_ignore_ascii_case("ON"),
            datadir,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn places(pairs: &[(&str, &str)]) -> Result<Places> {
        let mut all: HashMap<String, String> = HashMap::new();
        all.insert("datadir".into(), "/var/lib/mysql/".into());
        all.insert("innodb_data_file_path".into(), "ibdata1:12M:autoextend".into());
        all.extend(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Places::from_variables(&all)
    }

    #[test]
    fn an_unnamed_path_is_in_the_data_directory() {
        let found = places(&[("innodb_log_group_home_dir", "./"), ("innodb_undo_directory", ".")]).unwrap();
        assert_eq!(found.system_files, [Path::new("/var/lib/mysql/ibdata1")]);
        assert_eq!(found.redo_log, Path::new("/var/lib/mysql/ib_logfile0"));
        assert_eq!(found.undo_directory, found.datadir);
        assert_eq!(found.aria_log_directory, found.datadir);
    }

    #[test]
    fn every_place_can_be_elsewhere() {
        let found = places(&[
            ("innodb_data_home_dir", "/fast"),
            ("innodb_data_file_path", "a/ibdata1:10M;/other/ibdata2:10M:autoextend:max:1G"),
            ("innodb_log_group_home_dir", "/log"),
            ("innodb_undo_directory", "undo"),
            ("aria_log_dir_path", "/aria/"),
            ("innodb_log_write_ahead_size", "8192"),
        ])
        .unwrap();
        assert_eq!(found.system_files, [Path::new("/fast/a/ibdata1"), Path::new("/other/ibdata2")]);
        assert_eq!(found.redo_log, Path::new("/log/ib_logfile0"));
        assert_eq!(found.undo_directory, Path::new("/var/lib/mysql/undo"));
        assert_eq!((found.aria_log_directory.as_path(), found.write_block), (Path::new("/aria/"), 8192));
    }

    #[test]
    fn files_below_a_moved_data_directory_move_along() {
        let mut found = places(&[("innodb_undo_directory", "undo"), ("innodb_log_group_home_dir", "/log")]).unwrap();
        found.move_to(Path::new("/srv/volume"));
        assert_eq!(found.datadir, Path::new("/srv/volume"));
        assert_eq!(found.system_files, [Path::new("/srv/volume/ibdata1")]);
        assert_eq!(found.undo_directory, Path::new("/srv/volume/undo"));
        assert_eq!(found.redo_log, Path::new("/log/ib_logfile0"));
    }

    #[test]
    fn servers_that_cannot_be_copied_are_refused() {
        for (name, value, said) in [
            ("datadir", "", "data directory"),
            ("innodb_data_file_path", "", "without InnoDB"),
            ("innodb_log_archive", "ON", "innodb_log_archive"),
        ] {
            let error = places(&[(name, value)]).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
