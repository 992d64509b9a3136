//! The options that MySQL and MariaDB share.

pub use crate::engine::PASSWORD_FILE;
use crate::engine::{AlsoIn, EngineOption, OptionKind};

/// Continues with a series of the server that this program is not tested with.
pub static ACCEPT_UNVERIFIED: EngineOption = EngineOption {
    name: "accept-unverified",
    kind: OptionKind::Switch,
    help: "Accept a server series that this version of fullbore is not tested with. Prove such a backup by a restore",
    elsewhere: "only servers have series",
    also: &[AlsoIn::LogFollow],
};
