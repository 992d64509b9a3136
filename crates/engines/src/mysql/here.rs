//! Proves whether the data directory of a connected server is on this machine. The address proves nothing: a tunnel
//! ends on loopback, a container has a socket here, and another server may use the same path.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The file in the data directory that holds the server's uuid.
const IDENTITY: &str = "auto.cnf";
/// Most bytes to read of it: the server writes about 60.
const IDENTITY_MAX: u64 = 4096;

/// The data directory `datadir` of the server with this uuid. The server says that it runs on `hostname`.
///
/// # Errors
/// Why it is not proved to be here, for the user.
pub fn data_directory(datadir: &str, server_uuid: &str, hostname: &str) -> Result<PathBuf, String> {
    let path = Path::new(datadir);
    let of = format!("the server's data directory is `{datadir}` on {hostname}");
    match identity(path) {
        Ok(Some(here)) if here.eq_ignore_ascii_case(server_uuid) => Ok(path.to_owned()),
        Ok(_) => Err(format!("{of}; a directory with this name on this machine is not its own")),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(format!("{of}; this user has no permission to check whether it is on this machine"))
        }
        Err(_) => Err(format!("{of}, which is not on this machine")),
    }
}

/// The uuid of the server that owns this data directory; `None` if the file has none.
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
