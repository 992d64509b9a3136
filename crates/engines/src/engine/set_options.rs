//! Options of a restore that belong to the engine of the set, such as the server to start on the restored files.

use fullbore_core::{Error, Result};

use super::options::EngineDefaults;
use super::{AlsoIn, EngineOption, GivenIn, GivenOptions, LogStop, OptionKind};
use crate::named;

/// The program of the server.
pub static SERVER_PROGRAM: EngineOption = EngineOption {
    name: "server-program",
    kind: OptionKind::File,
    help: "Server program for the check of a restored server, for single tables and for log sets, of the same series as \
           the backup. Makes a data directory out of a logical backup [default: mariadbd or mysqld in PATH]",
    elsewhere: "the backup is of a database in one file, which needs no server",
    also: &[AlsoIn::RestoreTest],
};

/// Options of this server.
pub static SERVER_OPTION: EngineOption = EngineOption {
    name: "server-option",
    kind: OptionKind::Texts("OPTION"),
    help: "Option for that server, without dashes: NAME=VALUE. Repeatable. An encrypted server needs its keys",
    elsewhere: "the backup is of a database in one file, which needs no server",
    also: &[AlsoIn::RestoreTest],
};

/// The tables that a restore takes out of a set.
pub static ONLY_TABLE: EngineOption = EngineOption {
    name: "table",
    kind: OptionKind::Texts("TABLE"),
    help: "Restore only this InnoDB table (DATABASE.TABLE) from a server's backup, ready for IMPORT TABLESPACE. A private \
           server recovers the files that the table needs. Not as root. From a logical backup: load only this table, or \
           this database (DATABASE.*). Repeatable",
    elsewhere: "tables can only be taken from the physical backup of a MySQL or MariaDB server, in files, into dir:PATH",
    also: &[],
};

/// Databases that get another name.
pub static MAP: EngineOption = EngineOption {
    name: "map",
    kind: OptionKind::Texts("OLD=NEW"),
    help: "Give a database of a logical backup another name in the target: OLD=NEW. Repeatable",
    elsewhere: "only a logical set has databases that can get another name",
    also: &[],
};

/// Puts files outside of the data directory back to their places.
pub static PLACE_OUTSIDE: EngineOption = EngineOption {
    name: "place-outside",
    kind: OptionKind::Switch,
    help: "Restore tablespaces outside the server's data directory (DATA DIRECTORY) to their old places. Nothing may exist \
           there",
    elsewhere: "the set has no tablespaces outside of a data directory",
    also: &[],
};

/// Who owns the restored files.
pub static OWNER: EngineOption = EngineOption {
    name: "owner",
    kind: OptionKind::Text("USER[:GROUP]"),
    help: "Owner of the restored files of a server: names, e.g. mysql or mysql:mysql, or numbers [default: the user that \
           runs the restore]",
    elsewhere: "only the files of a server get an owner",
    also: &[],
};

/// The last transaction of the log that is restored.
pub static STOP_AT_GTID: EngineOption = EngineOption {
    name: "stop-at-gtid",
    kind: OptionKind::Text("GTID"),
    help: "With log sets: stop after the transaction with this GTID",
    elsewhere: "its log has no GTIDs",
    also: &[],
};

/// The first transaction of the log that is not restored.
pub static STOP_BEFORE_GTID: EngineOption = EngineOption {
    name: "stop-before-gtid",
    kind: OptionKind::Text("GTID"),
    help: "With log sets: stop before the transaction with this GTID",
    elsewhere: "its log has no GTIDs",
    also: &[],
};

/// Files of a database that go elsewhere.
pub static MOVE: EngineOption = EngineOption {
    name: "move",
    kind: OptionKind::Pairs(&["NAME", "PATH"]),
    help: "Backup files of SQL Server: write the file of the database with this logical name to PATH (MOVE). The others go \
           into the directory of --into. Repeatable",
    elsewhere: "is for backup files of other programs: --into names the target",
    also: &[],
};

/// A set of media with several.
pub static FILE: EngineOption = EngineOption {
    name: "file",
    kind: OptionKind::Number("N"),
    help: "Backup files of SQL Server: the set at this position of its media (FILE = N) [default: the newest full and \
           differential]",
    elsewhere: "is for backup files of other programs: choose a set of fullbore with --set",
    also: &[],
};

/// The files of a whole chain.
pub static CHAIN: EngineOption = EngineOption {
    name: "chain",
    kind: OptionKind::Switch,
    help: "With bak:DIRECTORY: give back the files of all sets that the chosen one needs: its full, differential and log \
           backups",
    elsewhere: "is for backup files of other programs: a restore of fullbore takes the sets that it needs",
    also: &[],
};

/// The options of a restore, before the set and its engine are known.
#[derive(Debug, Clone, Default)]
pub struct SetOptions {
    flags: GivenOptions,
    defaults: EngineDefaults,
}

impl SetOptions {
    /// From the command line and the configuration.
    pub fn new(flags: GivenOptions, defaults: EngineDefaults) -> Self {
        Self { flags, defaults }
    }

    /// The options for a set of the engine with this name. A flag wins over the configuration.
    pub fn of(&self, engine: &str) -> GivenOptions {
        let mut given = self.flags.clone();
        let Some(engine) = named(engine) else { return given };
        for &option in engine.restore_options().iter().filter(|option| self.flags.value(option).is_none()) {
            if let Some(value) = self.defaults.of(engine, option) {
                given.add(option, value.clone(), GivenIn::Configuration);
            }
        }
        given
    }

    /// The options that the user gave for this run.
    pub fn flags(&self) -> &GivenOptions {
        &self.flags
    }

    /// Refuses flags that a set of the engine with this name does not have.
    ///
    /// # Errors
    /// It names the first of them.
    pub fn refuse_others(&self, engine: &str) -> Result<()> {
        match self.other_than(engine) {
            Some(option) => Err(Error::usage(format!("--{}", option.name), option.elsewhere, "leave it out")),
            None => Ok(()),
        }
    }

    /// The first flag that a set of the engine with this name does not have. Media of fullbore hold one set, at
    /// position 1: there, `--file 1` names it.
    pub fn other_than(&self, engine: &str) -> Option<&'static EngineOption> {
        let known = named(engine).map_or(&[][..], |engine| engine.restore_options());
        let is_only_set = |option: &EngineOption| *option == FILE && self.flags.number(&FILE) == Some(1);
        self.flags.iter().find(|option| !known.contains(option) && !is_only_set(option))
    }

    /// Where to stop in the log, if a flag names a transaction.
    pub fn stop(&self) -> Option<LogStop> {
        let through = self.flags.text(&STOP_AT_GTID).map(|gtid| LogStop::ThroughGtid(gtid.to_owned()));
        through.or_else(|| self.flags.text(&STOP_BEFORE_GTID).map(|gtid| LogStop::BeforeGtid(gtid.to_owned())))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::super::OptionValue;
    use super::super::options::Setting;
    use super::*;

    fn configured(engine: &str, option: &str, value: &str) -> Result<EngineDefaults, String> {
        let options = [(option.to_owned(), Setting::Text(value.to_owned()))].into();
        EngineDefaults::new(&[(engine.to_owned(), options)].into())
    }

    #[test]
    fn the_configuration_of_the_sets_engine_names_its_server_and_a_flag_wins() {
        let defaults = configured("mysql", "server-program", "/usr/sbin/mysqld").unwrap();
        let none = SetOptions::new(GivenOptions::default(), defaults.clone());
        assert_eq!(none.of("mysql").file(&SERVER_PROGRAM), Some(Path::new("/usr/sbin/mysqld")));
        assert_eq!(none.of("mariadb").file(&SERVER_PROGRAM), None);
        assert_eq!(none.of("unknown").file(&SERVER_PROGRAM), None);
        none.refuse_others("sqlite").unwrap();
        let flags = GivenOptions::default().with_value(&SERVER_PROGRAM, OptionValue::File("/bin/other".into()));
        let both = SetOptions::new(flags, defaults);
        assert_eq!(both.of("mysql").file(&SERVER_PROGRAM), Some(Path::new("/bin/other")));
        both.refuse_others("mysql").unwrap();
        let error = both.refuse_others("sqlite").unwrap_err().to_string();
        assert!(error.contains("--server-program") && error.contains("which needs no server"), "{error}");
    }

    #[test]
    fn an_engine_whose_restores_start_no_server_has_no_such_key() {
        assert!(configured("sqlite", "server-program", "/bin/true").unwrap_err().contains("not an option of SQLite"));
    }
}
