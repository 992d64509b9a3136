//! The password of a server: from a file, and its bounds.

use std::path::Path;

use fullbore_core::io::read_small;
use fullbore_core::{Error, Result};
use zeroize::Zeroizing;

use super::{AlsoIn, EngineOption, OptionKind};

/// The longest password in bytes: longer than any server takes.
const PASSWORD_MAX: usize = 1024;

/// Where the password is.
pub static PASSWORD_FILE: EngineOption = EngineOption {
    name: "password-file",
    kind: OptionKind::File,
    help: "File with the server's password in its first line. Without this flag: FULLBORE_PASSWORD, then, for MySQL and \
           MariaDB, the server's own option file (~/.my.cnf)",
    elsewhere: "only a server asks for a password",
    also: &[AlsoIn::Estimates, AlsoIn::LogFollow, AlsoIn::Restore],
};

/// The content of a password file, without one line end.
///
/// # Errors
/// The file cannot be read, is too long, or has more than one line.
pub fn password_file(path: &Path) -> Result<Zeroizing<Vec<u8>>> {
    let failed = |error| Error::io("read the password from", path.display().to_string(), error).on_named_thing();
    // It may be a pipe, `<(pass show db)`.
    let (mut bytes, _) = read_small(path, PASSWORD_MAX + 3).map_err(failed)?;
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    if bytes.contains(&b'\n') {
        let hint = "write the password alone into the file, on one line";
        return Err(Error::usage(path.display().to_string(), "it has more than one line", hint));
    }
    Ok(bytes)
}

/// Refuses what no server takes as a password.
///
/// # Errors
/// It is too long, or contains a zero byte. The error does not repeat it.
pub fn check_password(password: &[u8]) -> Result<()> {
    if password.len() > PASSWORD_MAX || password.contains(&0) {
        return Err(Error::usage("the password", "it is too long for every server, or contains a zero byte", ""));
    }
    Ok(())
}
