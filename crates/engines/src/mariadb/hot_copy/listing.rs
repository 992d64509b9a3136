//! Which files there are: tablespaces of InnoDB, and the others that belong to the copy.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use fullbore_core::units::{counted, first_of};
use fullbore_core::{Error, Result};

use super::places::Places;

/// A file that is to be copied: of a tablespace, or another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedFile {
    /// Its name in the copy, relative to the data directory.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Whether it is elsewhere, by an `.isl` beside the table definition or by a variable of the server.
    pub elsewhere: bool,
    /// Another file has the same tablespace number: the right file is unknown.
    pub ambiguous: bool,
    /// The role of the file.
    pub role: Role,
}

/// The role of a tablespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The system tablespace; its files follow each other.
    System {
        /// Which of its files, from 0.
        index: usize,
    },
    /// Undo logs.
    Undo,
    /// A table, or a partition of one.
    Table,
    /// Not a tablespace: a file of another engine, copied unchanged.
    Other,
}

/// A file that is not InnoDB's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherFile {
    /// Its name in the copy, relative to the data directory.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// When it holds still.
    pub settles: Settles,
}

/// From which stage on a file holds still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settles {
    /// DDL and writes to tables of other engines are blocked.
    WithoutDdl,
    /// Commits are blocked too: the server's own tables of statistics and logs, and Aria's log.
    WithoutCommits,
}

/// All that belongs to the copy, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// Of InnoDB.
    pub tablespaces: Vec<ListedFile>,
    /// The others.
    pub others: Vec<OtherFile>,
    /// Warnings of files that were left out and may matter.
    pub passed_over: Vec<String>,
}

/// Files in a database's folder that belong to it, by what follows the last dot: definitions, partitions, triggers, and
/// the tables of MyISAM, Aria, MERGE, ARCHIVE and CSV.
const OTHER_SUFFIXES: [&str; 15] =
    ["frm", "opt", "par", "TRG", "TRN", "isl", "MYD", "MYI", "MAD", "MAI", "MRG", "ARM", "ARZ", "CSM", "CSV"];
/// Files that are left out without a warning: leftovers of EXPORT or of a repair.
const KNOWN_SUFFIXES: [&str; 5] = ["cfg", "cfp", "BAK", "TMD", "TMM"];
/// Files in the data directory itself that belong to the copy.
const TOP_FILES: [&str; 2] = ["mariadb_upgrade_info", "mysql_upgrade_info"];
/// The server's own database: its tables of statistics and logs change at any time.
const SYSTEM_DATABASE: &str = "mysql";
/// How many names a warning lists.
const NAMED_MAX: usize = 5;

/// Looks at every place that the server names.
pub fn list(places: &Places) -> Result<Listing> {
    let mut listing = Listing::default();
    for (index, path) in places.system_files.iter().enumerate() {
        let (name, elsewhere) = name_of(path, &places.datadir);
        listing.tablespaces.push(ListedFile {
            name,
            path: path.clone(),
            elsewhere,
            ambiguous: false,
            role: Role::System { index },
        });
    }
    for (name, path) in entries(&places.undo_directory)? {
        // A database may have this name too.
        if is_undo_tablespace(&name) && is_file(&path)? {
            let elsewhere = path.strip_prefix(&places.datadir).is_err();
            listing.tablespaces.push(ListedFile { name, path, elsewhere, ambiguous: false, role: Role::Undo });
        }
    }
    listing.others = aria_log(places)?;
    let apart = server_folders(places);
    let mut unknown = Vec::new();
    for (name, path) in entries(&places.datadir)? {
        // A database may be a symbolic link to its folder.
        let Some(stat) = found(fs::metadata(&path), &path)? else { continue };
        if stat.is_file() && TOP_FILES.contains(&name.as_str()) {
            listing.others.push(OtherFile { name, path, settles: Settles::WithoutDdl });
        } else if stat.is_dir() && !name.starts_with(['#', '.']) && name != "lost+found" && !apart.contains(&path) {
            list_database(&name, &path, &mut listing, &mut unknown)?;
        }
    }
    if !unknown.is_empty() {
        listing.passed_over.push(format!(
            "not in this backup: {} of an unknown kind in the folders of databases: {}; --accept-left-out \
             switches this warning off",
            counted(unknown.len() as u64, "file"),
            first_of(&unknown, NAMED_MAX)
        ));
    }
    Ok(listing)
}

/// The other files that do not change only while commits are blocked.
pub fn list_late(places: &Places) -> Result<Vec<OtherFile>> {
    let mut listing = Listing { others: aria_log(places)?, ..Listing::default() };
    list_database(SYSTEM_DATABASE, &places.datadir.join(SYSTEM_DATABASE), &mut listing, &mut Vec::new())?;
    Ok(listing.others)
}

fn aria_log(places: &Places) -> Result<Vec<OtherFile>> {
    let mut logs = Vec::new();
    for (name, path) in entries(&places.aria_log_directory)? {
        let is_log = name == "aria_log_control" || name.strip_prefix("aria_log.").is_some_and(is_number);
        if is_log && is_file(&path)? {
            logs.push(OtherFile { name, path, settles: Settles::WithoutCommits });
        }
    }
    Ok(logs)
}

/// Whether it is a file or a link to a file; false if it was removed.
fn is_file(path: &Path) -> Result<bool> {
    Ok(found(fs::metadata(path), path)?.is_some_and(|stat| stat.is_file()))
}

/// One database's folder.
fn list_database(database: &str, folder: &Path, listing: &mut Listing, unknown: &mut Vec<String>) -> Result<()> {
    let settles = if database == SYSTEM_DATABASE { Settles::WithoutCommits } else { Settles::WithoutDdl };
    for (file, path) in entries(folder)? {
        // Names that begin with # are of tables that are being rebuilt, or temporary.
        if file.starts_with('#') {
            continue;
        }
        let name = format!("{database}/{file}");
        let suffix = file.rsplit_once('.').map_or("", |(_, suffix)| suffix);
        if suffix == "ibd" {
            listing.tablespaces.push(ListedFile { name, path, elsewhere: false, ambiguous: false, role: Role::Table });
        } else if OTHER_SUFFIXES.contains(&suffix) {
            if suffix == "isl"
                && let Some(target) = read_link(&path)?
            {
                let table = format!("{}.ibd", name.trim_end_matches(".isl"));
                listing.tablespaces.push(ListedFile {
                    name: table,
                    path: target,
                    elsewhere: true,
                    ambiguous: false,
                    role: Role::Table,
                });
            }
            listing.others.push(OtherFile { name, path, settles });
        } else if !KNOWN_SUFFIXES.contains(&suffix) && path.is_file() {
            unknown.push(name);
        }
    }
    Ok(())
}

/// Folders of the server inside the data directory that are not databases.
fn server_folders(places: &Places) -> HashSet<PathBuf> {
    let logs = [Some(places.undo_directory.as_path()), Some(&places.aria_log_directory), places.redo_log.parent()];
    let files = places.system_files.iter().map(|file| file.parent());
    let folders = logs.into_iter().chain(files).flatten().filter(|folder| *folder != places.datadir);
    // A path with a slash at its end is the same folder: collected by components.
    folders.map(|folder| folder.components().collect()).collect()
}

/// The path in an `.isl`; `None` if the file was removed or is empty.
fn read_link(path: &Path) -> Result<Option<PathBuf>> {
    /// More than any path has.
    const LENGTH_MAX: u64 = 64 << 10;
    let Some(stat) = found(fs::metadata(path), path)? else { return Ok(None) };
    if stat.len() > LENGTH_MAX {
        return Err(Error::refused(
            path.display().to_string(),
            "a link to a tablespace is a path, and this is longer",
            "look at the file",
        ));
    }
    let Some(bytes) = found(fs::read(path), path)? else { return Ok(None) };
    let text = bytes.trim_ascii().to_vec();
    Ok((!text.is_empty()).then(|| PathBuf::from(std::ffi::OsString::from_vec(text))))
}

/// The names in a folder, sorted, with their paths; empty if the folder was removed.
fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let Some(read) = found(fs::read_dir(folder), folder)? else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    for entry in read {
        let entry = entry.map_err(|error| Error::io("list", folder.display().to_string(), error))?;
        // The server's names have letters, digits, and @ with digits; a name that is not text is not the server's.
        if let Ok(name) = entry.file_name().into_string() {
            all.push((name, entry.path()));
        }
    }
    all.sort();
    Ok(all)
}

/// A missing file is not an error: it was removed in between.
fn found<T>(result: io::Result<T>, path: &Path) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path.display().to_string(), error)),
    }
}

/// Its name in the copy, and whether it is outside of the data directory: then the name is its last part.
fn name_of(path: &Path, datadir: &Path) -> (String, bool) {
    match path.strip_prefix(datadir) {
        Ok(inside) => (inside.to_string_lossy().into_owned(), false),
        Err(_) => (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), true),
    }
}

/// True for `undo001`, `undo002` …
pub(in crate::mariadb) fn is_undo_tablespace(name: &str) -> bool {
    name.strip_prefix("undo").is_some_and(|number| number.len() == 3 && is_number(number))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn places(root: &Path) -> Places {
        Places {
            version: String::new(),
            datadir: root.join("data"),
            system_files: vec![root.join("data/ibdata1")],
            undo_directory: root.join("data/undo"),
            redo_log: root.join("data/ib_logfile0"),
            aria_log_directory: root.join("aria"),
            write_block: 0,
            myisam_use_mmap: false,
        }
    }

    #[test]
    fn a_database_may_have_the_name_of_a_file_of_the_server() {
        let root = tempfile::tempdir().unwrap();
        let names = ["undo001", "aria_log_control", "mariadb_upgrade_info", "mysql_upgrade_info"];
        for name in names {
            fs::create_dir_all(root.path().join("data").join(name)).unwrap();
            fs::write(root.path().join("data").join(name).join("db.opt"), b"").unwrap();
        }
        let data = root.path().join("data");
        let places = Places { undo_directory: data.clone(), aria_log_directory: data.clone(), ..places(root.path()) };
        let listing = list(&places).unwrap();
        assert!(listing.tablespaces.iter().all(|file| file.name == "ibdata1"), "{:?}", listing.tablespaces);
        let mut expected = names.map(|name| format!("{name}/db.opt"));
        expected.sort();
        assert_eq!(listing.others.iter().map(|file| file.name.clone()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn every_file_of_the_copy_is_found_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        for folder in
            ["data/shop", "data/mysql", "data/undo", "data/#tmp", "data/.keys", "aria", "far", "elsewhere/old"]
        {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        for file in [
            "data/ibdata1",
            "data/ib_logfile0",
            "data/ibtmp1",
            "data/host.pid",
            "data/binlog.000001",
            "data/mariadb_upgrade_info",
            "data/server-key.pem",
            "data/undo/undo001",
            "data/undo/undo0001",
            "data/undo/undo",
            "aria/aria_log_control",
            "aria/aria_log.00000001",
            "aria/aria_log.x",
            "data/shop/db.opt",
            "data/shop/a.ibd",
            "data/shop/a.frm",
            "data/shop/p#P#p0.ibd",
            "data/shop/#sql-alter-1.ibd",
            "data/shop/b.MYD",
            "data/shop/b.MYI",
            "data/shop/c.strange",
            "data/shop/c.log",
            "data/shop/a.cfg",
            "data/mysql/stats.MAD",
            "data/#tmp/a.ibd",
            "data/.keys/a.frm",
            "elsewhere/old/z.MAD",
        ] {
            fs::write(root.path().join(file), b"").unwrap();
        }
        let remote = root.path().join("far/r.ibd");
        fs::write(root.path().join("data/shop/r.isl"), format!("{}\n", remote.display())).unwrap();
        std::os::unix::fs::symlink(root.path().join("elsewhere/old"), root.path().join("data/old")).unwrap();
        let listing = list(&places(root.path())).unwrap();
        let tablespaces: Vec<(&str, bool)> =
            listing.tablespaces.iter().map(|file| (file.name.as_str(), file.elsewhere)).collect();
        assert_eq!(
            tablespaces,
            [
                ("ibdata1", false),
                ("undo001", false),
                ("shop/a.ibd", false),
                ("shop/p#P#p0.ibd", false),
                ("shop/r.ibd", true)
            ]
        );
        assert_eq!(listing.tablespaces[4].path, remote);
        let late = |settles: Settles| -> Vec<&str> {
            listing.others.iter().filter(|file| file.settles == settles).map(|file| file.name.as_str()).collect()
        };
        assert_eq!(late(Settles::WithoutCommits), ["aria_log.00000001", "aria_log_control", "mysql/stats.MAD"]);
        let early = [
            "mariadb_upgrade_info",
            "old/z.MAD",
            "shop/a.frm",
            "shop/b.MYD",
            "shop/b.MYI",
            "shop/db.opt",
            "shop/r.isl",
        ];
        assert_eq!(late(Settles::WithoutDdl), early);
        assert!(
            listing.passed_over.len() == 1
                && listing.passed_over[0].contains("2 files")
                && listing.passed_over[0].contains("shop/c.log, shop/c.strange"),
            "{:?}",
            listing.passed_over
        );
    }
}
