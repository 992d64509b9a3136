//! The options that MySQL and MariaDB share.

use crate::engine::{AlsoIn, EngineOption, OptionKind};

/// Where the password is.
pub static PASSWORD_FILE: EngineOption = EngineOption {
    name: "password-file",
    kind: OptionKind::File,
    help: "File with the server's password in its first line. Without this flag: FULLBORE_PASSWORD, then the server's own \
           option file (~/.my.cnf)",
    elsewhere: "only a server asks for a password",
    also: &[AlsoIn::Estimates],
};

/// Continues with a series of the server that this program is not tested with.
pub static ACCEPT_UNVERIFIED: EngineOption = EngineOption {
    name: "accept-unverified",
    kind: OptionKind::Switch,
    help: "Accept a server series that this version of fullbore is not tested with. Prove such a backup by a restore",
    elsewhere: "only servers have series",
    also: &[],
};
