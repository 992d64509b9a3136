//! Tablespaces outside of their server's data directory: `DATA DIRECTORY`, general tablespaces, undo elsewhere.
//!
//! A copy has all files in one directory. MySQL finds them there: when it starts, it reads all files of its data
//! directory and writes the new places into its dictionary. MariaDB knows such a tablespace by its absolute path, from
//! the redo log, and looks there on any machine: so the file has to be put there, and must not exist there already.

use std::path::{Path, PathBuf};

use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};
use serde_json::Value;

use super::Dialect;

/// A file of a copy that belongs elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutsideFile {
    /// Its name in the copy.
    pub path: PathBuf,
    /// Its path on the source's host, where the restored server looks for it.
    pub was: PathBuf,
}

/// The files to move before a server of this dialect starts on a restored directory; `position` is from the manifest.
///
/// # Errors
/// A path in it leads out of the copy, is not absolute as required, or does not end like the name in the copy.
pub fn outside_files(dialect: Dialect, position: &Value) -> Result<Vec<OutsideFile>> {
    let entries = position["outside_the_data_directory"].as_array().into_iter().flatten();
    let named = entries.filter_map(|entry| Some((entry["path"].as_str()?, entry["was"].as_str()?)));
    // Files that variables of a server placed elsewhere stay in the data directory: the server finds them there.
    let wanted =
        named.filter(|(path, _)| path.ends_with(".ibd") || path.ends_with(".ibu") && dialect == Dialect::MySql);
    let checked = |(path, was): (&str, &str)| {
        let plain = |path: &str| !path.split('/').any(|part| matches!(part, ".." | "."));
        // Media may be forged: they can create a table's file elsewhere, and no other file.
        let is_pair = match dialect {
            Dialect::MySql => path.strip_prefix(OUTSIDE_MYSQL) == Some(was),
            Dialect::MariaDb => {
                path.matches('/').count() == 1 && was.strip_suffix(path).is_some_and(|before| before.ends_with('/'))
            }
        };
        if path.starts_with('/') || !was.starts_with('/') || !plain(path) || !plain(was) || !is_pair {
            let why = format!("`{path}`, formerly at `{was}`, is not a valid pair of paths");
            return Err(Error::damaged("manifest", 0, why));
        }
        Ok(OutsideFile { path: path.into(), was: was.into() })
    };
    wanted.map(checked).collect()
}

/// The folder for such files in a copy of MySQL: below it, each file has its whole former path.
const OUTSIDE_MYSQL: &str = "#outside";

/// Whether a server of this dialect finds these files in the directory they were restored into.
pub fn are_found_inside(dialect: Dialect) -> bool {
    dialect == Dialect::MySql
}

/// Refuses a restore on this machine if a file exists where the restored server would look for its own file.
///
/// # Errors
/// Such a file exists.
pub fn refuse_what_is_there(files: &[OutsideFile]) -> Result<()> {
    let Some(taken) = files.iter().find(|file| file.was.symlink_metadata().is_ok()) else { return Ok(()) };
    Err(Error::refused(
        taken.was.display().to_string(),
        format!(
            "this file exists, and the tablespace `{}` was at this path, outside of the data directory: the restored \
             server would open it",
            taken.path.display()
        ),
        "restore on another machine; or, if no server uses it, move it away",
    ))
}

/// The warning with the manual steps, for a restore that does not place these files.
pub fn to_be_moved(files: &[OutsideFile]) -> Option<String> {
    /// How many a warning names.
    const NAMED_MAX: usize = 5;
    let shown = |path: &Path| path.display().to_string();
    let moves = files.iter().map(|file| format!("`{}` to `{}`", shown(&file.path), shown(&file.was)));
    (!files.is_empty()).then(|| {
        format!(
            "tablespaces that were outside of the data directory: {}; before the server is started, move {}; \
             --place-outside does it",
            files.len(),
            first_of(moves, NAMED_MAX)
        )
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn position(path: &str, was: &str) -> Value {
        json!({ "outside_the_data_directory": [{ "path": "undo001", "was": "/undo" }, { "path": path, "was": was }] })
    }

    #[test]
    fn a_tablespace_that_would_be_opened_where_it_stood_is_refused_and_otherwise_named() {
        let far = tempfile::tempdir().unwrap();
        let was = far.path().join("shop/remote.ibd");
        std::fs::create_dir(far.path().join("shop")).unwrap();
        let files = outside_files(Dialect::MariaDb, &position("shop/remote.ibd", &was.display().to_string())).unwrap();
        assert_eq!(files, [OutsideFile { path: "shop/remote.ibd".into(), was: was.clone() }]);
        refuse_what_is_there(&files).unwrap();
        let said = to_be_moved(&files).unwrap();
        assert!(said.contains("data directory: 1;") && said.contains("`shop/remote.ibd` to `/"), "{said}");
        std::fs::write(&was, "x").unwrap();
        let error = refuse_what_is_there(&files).unwrap_err().to_string();
        assert!(error.contains("shop/remote.ibd") && error.contains("would open it"), "{error}");
        assert_eq!(outside_files(Dialect::MySql, &position("#outside/far/a.ibd", "/far/a.ibd")).unwrap().len(), 1);
        assert_eq!((outside_files(Dialect::MySql, &json!({})).unwrap().len(), to_be_moved(&[])), (0, None));
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for (path, was) in [
            ("/etc/a.ibd", "/etc/a.ibd"),
            ("../a.ibd", "/x/../a.ibd"),
            ("s/a.ibd", "s/a.ibd"),
            ("s/a.ibd", "/c/../s/a.ibd"),
        ] {
            let error = outside_files(Dialect::MariaDb, &position(path, was)).unwrap_err().to_string();
            assert!(error.contains("not a valid pair"), "{error}");
        }
    }

    #[test]
    fn a_file_goes_nowhere_but_under_the_name_of_its_own_table() {
        let refused = |dialect: Dialect, path: &str, was: &str| outside_files(dialect, &position(path, was)).is_err();
        for was in [
            "/etc/cron.d/evil",
            "/far/a.ibd",
            "/far/other/a.ibd",
            "/far/shop/b.ibd",
            "/farshop/a.ibd",
            "/far/xshop/a.ibd",
        ] {
            assert!(refused(Dialect::MariaDb, "shop/a.ibd", was), "{was}");
        }
        assert!(!refused(Dialect::MariaDb, "shop/a#P#p0.ibd", "/far/shop/a#P#p0.ibd"));
        assert!(
            refused(Dialect::MariaDb, "a.ibd", "/far/a.ibd")
                && refused(Dialect::MariaDb, "x/shop/a.ibd", "/far/x/shop/a.ibd")
        );
        for was in ["/etc/cron.d/evil", "/far/b.ibd", "far/a.ibd"] {
            assert!(refused(Dialect::MySql, "#outside/far/a.ibd", was), "{was}");
        }
        assert!(!refused(Dialect::MySql, "#outside/far/u.ibu", "/far/u.ibu"));
        // A name that is not of a tablespace stays in the directory.
        assert_eq!(
            outside_files(Dialect::MySql, &position("#outside/etc/cron.d/undo_001", "/etc/cron.d/undo_001")).unwrap(),
            []
        );
    }
}
