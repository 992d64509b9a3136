//! The options that MySQL and MariaDB share.

pub use crate::engine::PASSWORD_FILE;
use crate::engine::{
    AlsoIn, EngineOption, MAP, ONLY_TABLE, OWNER, OptionKind, PLACE_OUTSIDE, SERVER_OPTION, SERVER_PROGRAM,
    STOP_AT_GTID, STOP_BEFORE_GTID,
};

/// Continues with a series of the server that this program is not tested with.
pub static ACCEPT_UNVERIFIED: EngineOption = EngineOption {
    name: "accept-unverified",
    kind: OptionKind::Switch,
    help: "Accept a server series that this version of fullbore is not tested with. Prove such a backup by a restore",
    elsewhere: "only servers have series",
    also: &[AlsoIn::LogFollow],
};

/// The methods of a backup: the files of the server, or its rows and statements.
pub static METHOD: EngineOption = EngineOption {
    name: "method",
    kind: OptionKind::Choice(&["physical", LOGICAL]),
    help: "physical: the files of the server. logical: its rows and statements, through ordinary connections. Needs no \
           access to files, and restores into other versions [default: physical]",
    elsewhere: "only MySQL and MariaDB have two methods",
    also: &[AlsoIn::LogFollow],
};

/// The value of [`METHOD`] for rows and statements.
pub const LOGICAL: &str = "logical";

/// The databases of a logical backup.
pub static DATABASE: EngineOption = EngineOption {
    name: "database",
    kind: OptionKind::Texts("NAME"),
    help: "With --method logical: only this database of the server. Repeatable. The same as mysql://…/NAME",
    elsewhere: "only a logical backup of MySQL and MariaDB chooses databases",
    also: &[],
};

/// The tables of a logical backup.
pub static TABLE: EngineOption = EngineOption {
    name: "table",
    kind: OptionKind::Texts("TABLE"),
    help: "With --method logical: only this table (DATABASE.TABLE). Repeatable",
    elsewhere: "only a logical backup of MySQL and MariaDB chooses tables",
    also: &[],
};

/// What a logical backup leaves out.
pub static EXCLUDE: EngineOption = EngineOption {
    name: "exclude",
    kind: OptionKind::Texts("NAME"),
    help: "With --method logical: leave out this table (DATABASE.TABLE) or database (DATABASE.*). Repeatable",
    elsewhere: "only a logical backup of MySQL and MariaDB leaves out tables",
    also: &[],
};

/// The rows of a logical backup.
pub static WHERE: EngineOption = EngineOption {
    name: "where",
    kind: OptionKind::Texts("CONDITION"),
    help: "With --method logical: only the rows of a table that fulfil a condition in SQL: DATABASE.TABLE:CONDITION. \
           Repeatable",
    elsewhere: "only a logical backup of MySQL and MariaDB chooses rows",
    also: &[],
};

/// The accounts of a logical backup.
pub static USERS: EngineOption = EngineOption {
    name: "users",
    kind: OptionKind::Switch,
    help: "Logical backups: users, roles and grants too, with the hashes of their passwords",
    elsewhere: "only a logical set of MySQL and MariaDB has users",
    also: &[AlsoIn::Restore, AlsoIn::NewDirectory, AlsoIn::LogFollow],
};

/// A load without redo log.
pub static DISABLE_REDO: EngineOption = EngineOption {
    name: "disable-redo",
    kind: OptionKind::Switch,
    help: "Into MySQL 8.0.21 and later: switch the redo log of the target off during the load. A crash of the server in \
           this time loses the whole instance: only for a new server",
    elsewhere: "only MySQL can switch its redo log off",
    also: &[AlsoIn::OnlyRestore],
};

/// All options of a logical backup, besides its method.
pub static OF_LOGICAL: [&EngineOption; 5] = [&DATABASE, &TABLE, &EXCLUDE, &WHERE, &USERS];

/// The options of a restore of their sets.
pub static OF_RESTORES: [&EngineOption; 8] =
    [&ONLY_TABLE, &MAP, &STOP_AT_GTID, &STOP_BEFORE_GTID, &OWNER, &PLACE_OUTSIDE, &SERVER_PROGRAM, &SERVER_OPTION];
