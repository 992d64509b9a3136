//! Checks of a database before SQLite opens it: refusals with a reason, and warnings.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::{Error, Result};
use rustix::fs::{Access, AtFlags, CWD};

use super::connection::not_a_database;
use super::header::{HEADER_SIZE, MAGIC};
use super::open_files::{Claim, RawFile, beside, io_error};

/// The database file at `path`, with links resolved: SQLite names the side files after the real file.
pub(super) fn locate(path: &Path) -> Result<PathBuf> {
    let real = fs::canonicalize(path).map_err(|e| io_error("find", path, e).on_named_thing())?;
    let metadata = fs::metadata(&real).map_err(|e| io_error("look at", &real, e))?;
    let refused = |why: &str, hint: &str| Err(Error::refused(path.display().to_string(), why, hint));
    if metadata.is_dir() {
        return refused("this is a directory, not a database file", "name the file in it");
    }
    if !metadata.is_file() {
        return refused("this is not a regular file", "name the database file itself");
    }
    if metadata.len() == 0 {
        return refused(
            "the file is empty: there is no database in it yet",
            "check the path; SQLite creates empty files for mistyped names",
        );
    }
    Ok(real)
}

/// Looks at the claimed database; gives the warnings.
pub(super) fn look(claim: &Claim) -> Result<Vec<String>> {
    let path = claim.path();
    let raw = claim.open_database(fs::OpenOptions::new().read(true))?;
    let mut start = [0; HEADER_SIZE];
    let got = raw.read_at(0, &mut start).map_err(|error| raw.read_error(0, HEADER_SIZE, error))?;
    // If a journal may have to be rolled back first, only SQLite can tell what the file is.
    let journal = fs::metadata(beside(path, "-journal")).is_ok_and(|journal| journal.len() > 0);
    if !start[..got].starts_with(MAGIC) && !journal {
        return Err(not_a_database(&raw.name()));
    }
    if start[19] == 2 {
        wal_can_be_joined(path)?;
    }
    let mut warnings = Vec::new();
    if let Some(kind) = is_network(&raw) {
        warnings.push(format!(
            "{} is on a {kind} file system: if SQLite's locks do not work there, the snapshot is not consistent; run \
             the backup on the machine that has the disk",
            raw.name()
        ));
    }
    let links = raw.metadata()?.nlink();
    if links > 1 {
        warnings.push(format!(
            "{} has {links} names (hard links): an application that opens another name uses other side files, which \
             can corrupt the database",
            raw.name()
        ));
    }
    Ok(warnings)
}

/// A reader in WAL mode has to write to the wal-index. This is checked here, because SQLite's own error names no file.
fn wal_can_be_joined(path: &Path) -> Result<()> {
    let read_only = |thing: &Path, what: &str| {
        Error::refused(
            thing.display().to_string(),
            format!("{what}, and the database is in WAL mode, where a reader has to write to its wal-index"),
            "run fullbore as the application's user, or as a member of its group",
        )
    };
    let mut missing = false;
    for suffix in ["-wal", "-shm"] {
        let file = beside(path, suffix);
        match rustix::fs::accessat(CWD, &file, Access::WRITE_OK, AtFlags::EACCESS) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => missing = true,
            // A reader only reads the log, but SQLite opens it for writing.
            Err(_) => return Err(read_only(&file, "this user may not write to it")),
        }
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    if missing && rustix::fs::accessat(CWD, folder, Access::WRITE_OK, AtFlags::EACCESS).is_err() {
        return Err(read_only(folder, "this user may not create files in the directory"));
    }
    Ok(())
}

/// The name of the network or user-space file system that holds the file, if it is on such a file system.
pub(super) fn is_network(raw: &RawFile) -> Option<&'static str> {
    // The numbers are from statfs(2).
    const KINDS: [(u64, &str); 14] = [
        (0x6969, "NFS"),
        (0x517b, "SMB"),
        (0xff53_4d42, "CIFS"),
        (0xfe53_4d42, "SMB2"),
        (0x6573_5546, "FUSE"),
        (0x0102_1997, "9P"),
        (0x00c3_6400, "Ceph"),
        (0x5346_414f, "AFS"),
        (0x7375_7245, "Coda"),
        (0x0bd0_0bd0, "Lustre"),
        (0x786f_4256, "VirtualBox shared folder"),
        (0x0116_1970, "GFS2"),
        (0x7461_636f, "OCFS2"),
        (0x564c, "NCP"),
    ];
    let kind = rustix::fs::fstatfs(raw.file()).ok()?.f_type as u64 & 0xffff_ffff;
    KINDS.iter().find(|(number, _)| *number == kind).map(|(_, name)| *name)
}
