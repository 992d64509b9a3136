//! Whether a server that was reached over some connection has its data directory on this machine: proved, not guessed. A tunnel ends on
//! loopback too, a container has a socket here, and another server may have the same path.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// What the server keeps in its data directory of who it is.
const IDENTITY: &str = "auto.cnf";
/// Bytes of it that are believed: the server writes some 60.
const IDENTITY_MAX: u64 = 4096;

/// The data directory `datadir` of the server with that uuid, which says that it runs on `hostname`.
///
/// # Errors
/// Why it is not known to be here, for the user.
pub fn data_directory(datadir: &str, server_uuid: &str, hostname: &str) -> Result<PathBuf, String> {
    let path = Path::new(datadir);
    let of = format!("the server's data directory is `{datadir}` on {hostname}");
    match identity(path) {
        Ok(Some(here)) if here.eq_ignore_ascii_case(server_uuid) => Ok(path.to_owned()),
        Ok(_) => Err(format!("{of}, and the one of that name on this machine is not its own")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(format!("{of}, and this user may not look whether that is on this machine"))
        }
        Err(_) => Err(format!("{of}, which is not on this machine")),
    }
}

/// The uuid of the server whose data directory this is; `None` where it does not say.
fn identity(datadir: &Path) -> io::Result<Option<String>> {
    let mut text = String::new();
    File::open(datadir.join(IDENTITY))?.take(IDENTITY_MAX).read_to_string(&mut text)?;
    let uuid = text.lines().filter_map(|line| line.split_once('=')).find(|(name, _)| name.trim() == "server-uuid");
    Ok(uuid.map(|(_, uuid)| uuid.trim().to_owned()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const UUID: &str = "6ccd780c-baba-1026-9564-5b8c656024db";

    #[test]
    fn a_data_directory_is_here_where_it_says_that_it_is_the_servers_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        let asked = || data_directory(&path, UUID, "db1");
        let missing = asked().unwrap_err();
        assert!(
            missing.contains(&path) && missing.contains("db1") && missing.contains("not on this machine"),
            "{missing}"
        );
        let write = |text: &str| std::fs::write(folder.path().join(IDENTITY), text).unwrap();
        write(&format!("[auto]\nserver-uuid={UUID}\n"));
        assert_eq!(asked().unwrap(), folder.path());
        write("[auto]\nserver-uuid = 00000000-baba-1026-9564-5b8c656024db\n");
        assert!(asked().unwrap_err().contains("is not its own"), "another server has this path");
        write("");
        assert!(asked().unwrap_err().contains("is not its own"));
    }
}
