//! A new data directory for the rows of a logical set: the program of the server makes it, and a private server on it takes
//! the rows. It has no network. `root@localhost` is for root of this machine, over the socket.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::Value;

use super::binlog::gtid::{GtidList, GtidSet};
use super::binlog::relays;
use super::binlog::replay::account::{Account, new_password};
use super::connection::{Connection, Failure};
use super::logical_set::catalog::{self, Object};
use super::server_options::USERS;
use super::start_check::{Running, ServerProgram};
use super::system_zone::SystemZone;
use crate::engine::{GivenOptions, OptionValue, PASSWORD_FILE, SERVER_OPTION, SERVER_PROGRAM};
use crate::mysql_family::Dialect;

/// How long a program may take to make a data directory.
const LIMIT: Duration = Duration::from_secs(600);
/// The statements that make MariaDB's system tables, in this order. Each file begins with `mariadb_` or `mysql_`.
const SYSTEM_TABLES: [&str; 3] = ["system_tables.sql", "performance_tables.sql", "system_tables_data.sql"];
/// The others. A package may lack the first one, the texts of HELP.
const OTHERS: [&str; 2] = ["fill_help_tables.sql", "maria_add_gis_sp_bootstrap.sql"];
const SYS_SCHEMA: &str = "sys_schema.sql";

/// The program of a server that can make a data directory.
pub struct NewDirectory {
    program: ServerProgram,
    /// `--server-option`.
    options: Vec<String>,
    /// MariaDB: the texts that make the system tables.
    texts: Vec<PathBuf>,
}

impl NewDirectory {
    /// Finds the program for a set of `engine` in this version, and what it needs. Writes nothing.
    ///
    /// # Errors
    /// No program of the set's series was found, or the texts of its system tables are missing.
    pub fn find(engine: &str, engine_version: &str, given: &GivenOptions) -> Result<Self> {
        let named = given.file(&SERVER_PROGRAM);
        let program = ServerProgram::find(engine, engine_version, named, "a data directory")?;
        let texts = match program.dialect {
            Dialect::MySql => Vec::new(),
            Dialect::MariaDb => system_tables(program.path())?,
        };
        Ok(Self { program, options: given.texts(&SERVER_OPTION).to_vec(), texts })
    }

    /// Makes the data directory, which does not exist yet. `position` is that of the set.
    ///
    /// # Errors
    /// The program does not make it.
    pub fn make(&self, directory: &Path, position: &Value, halt: &Halt) -> Result<()> {
        let failed = |action, path: &Path, error| Error::io(action, path.display().to_string(), error);
        let made = DirBuilder::new().mode(0o700).create(directory);
        made.map_err(|error| failed("make", directory, error))?;
        let (own, input): (&[&str], Stdio) = match self.program.dialect {
            Dialect::MySql => {
                let own = &["initialize-insecure", "skip-grant-tables=0", "performance-schema=ON"];
                (own, Stdio::null())
            }
            Dialect::MariaDb => {
                let system = directory.join("mysql");
                let made = DirBuilder::new().mode(0o700).create(&system);
                made.map_err(|error| failed("make", &system, error))?;
                let own = &["bootstrap", "enforce-storage-engine=", "log-warnings=0", "max-allowed-packet=64M"];
                (own, self.statements(&directory.with_extension("sql"))?)
            }
        };
        let mut options: Vec<String> = own.iter().map(|&option| option.to_owned()).collect();
        options.extend(self.options.iter().cloned());
        let mut server = Running::start_reading(&self.program, directory, position, &options, input)?;
        match server.end_within(LIMIT, halt)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(server.refused(format!("it ended with {status} while it made the data directory"))),
            None => {
                Err(server.refused(format!("it did not make the data directory within {} seconds", LIMIT.as_secs())))
            }
        }
    }

    /// The statements for MariaDB, in a file without a name.
    fn statements(&self, path: &Path) -> Result<Stdio> {
        let failed = |error| Error::io("write", path.display().to_string(), error);
        let mut file = File::options().read(true).write(true).create_new(true).open(path).map_err(failed)?;
        fs::remove_file(path).map_err(failed)?;
        let begin = b"CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket='root';\n";
        file.write_all(begin).map_err(failed)?;
        for text in &self.texts {
            let text = fs::read(text).map_err(|error| Error::io("read", text.display().to_string(), error))?;
            file.write_all(&text).and_then(|()| file.write_all(b"\n")).map_err(failed)?;
        }
        file.rewind().map_err(failed)?;
        Ok(file.into())
    }

    /// Starts a private server on the directory, ready to take the rows. It ends with this thread.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(&self, directory: &Path, position: &Value, halt: &Halt) -> Result<LoadingServer> {
        let account = Account::made(self.program.dialect, directory)?;
        let mut options: Vec<String> =
            ["local-infile=1", "max-allowed-packet=1G", "sync-binlog=0"].map(str::to_owned).into();
        // The directory gets its name when the server has stopped: what is broken off is removed.
        options.extend(["innodb-flush-log-at-trx-commit=0", "innodb-doublewrite=0"].map(str::to_owned));
        let gtids = Gtids::of(self.program.dialect, position);
        if self.program.dialect == Dialect::MySql {
            let mode = if gtids.is_some() { "ON" } else { "OFF" };
            options.extend([format!("gtid-mode={mode}"), format!("enforce-gtid-consistency={mode}")]);
        }
        options.extend(self.options.iter().cloned());
        options.extend(account.options.iter().cloned());
        // The log may go on with statements in the system time zone of the source.
        let mut program = self.program.clone();
        program.zone = SystemZone::of(position).and_then(|zone| zone.environment());
        let mut server = Running::start(&program, directory, position, &options)?;
        server.account = account.credentials.clone();
        let password = server.private().join("password");
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&password);
        let written = written.and_then(|mut file| file.write_all(account.credentials.password()));
        written.map_err(|error| Error::io("write", password.display().to_string(), error))?;
        let connection = server.wait_until_ready(halt)?;
        let (directory, dialect) = (directory.to_owned(), self.program.dialect);
        Ok(LoadingServer { server, connection, account, password, directory, dialect, gtids })
    }
}

/// The GTIDs of the set, as the server takes them.
struct Gtids {
    variable: &'static str,
    value: String,
}

impl Gtids {
    fn of(dialect: Dialect, position: &Value) -> Option<Self> {
        let text = |place: &str, name: &str| position[place][name].as_str().filter(|text| !text.is_empty());
        match dialect {
            Dialect::MySql => {
                let value = GtidSet::parse(text("binary_log_exact", "gtid_executed")?)?.to_string();
                Some(Self { variable: "gtid_purged", value })
            }
            Dialect::MariaDb => {
                let value = GtidList::parse(text("binary_log", "gtid_binlog_pos")?)?.to_string();
                Some(Self { variable: "gtid_slave_pos", value })
            }
        }
    }
}

/// A private server on a new data directory, while it takes rows and statements.
pub struct LoadingServer {
    server: Running,
    connection: Connection,
    account: Account,
    password: PathBuf,
    directory: PathBuf,
    dialect: Dialect,
    gtids: Option<Gtids>,
}

impl LoadingServer {
    /// Prepares a directory that was just made: nobody can log in without a password, and the server has the GTIDs of the
    /// set. Returns what the user has to know about its root account.
    ///
    /// # Errors
    /// The server refuses.
    pub fn prepare(&mut self) -> Result<Option<String>> {
        let warning = match self.dialect {
            Dialect::MySql => self.lock_root()?,
            Dialect::MariaDb => None,
        };
        if let Some(Gtids { variable, value }) = &self.gtids {
            self.connection.query(&format!("SET GLOBAL {variable} = '{value}'"))?;
        }
        Ok(warning)
    }

    /// MySQL makes root without a password.
    fn lock_root(&mut self) -> Result<Option<String>> {
        match self.connection.query("INSTALL PLUGIN auth_socket SONAME 'auth_socket.so'") {
            Ok(_) => {
                self.connection.query("ALTER USER root@localhost IDENTIFIED WITH auth_socket")?;
                Ok(None)
            }
            Err(Failure::Server(error)) => {
                self.connection.query(&format!("ALTER USER root@localhost IDENTIFIED BY '{}'", new_password()))?;
                Ok(Some(format!(
                    "root@localhost of the restored directory has a random password that nobody knows, since the server has \
                     no auth_socket ({error}): set one with --init-file at the first start"
                )))
            }
            Err(Failure::Fault(error)) => Err(error),
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        let socket = percent_encode(self.server.socket().as_os_str().as_encoded_bytes(), NON_ALPHANUMERIC).to_string();
        format!("{}://{}@/?socket={socket}", self.dialect.name(), self.account.credentials.user())
    }

    /// The options of a load into it. `users`: with the accounts of the set.
    pub fn options(&self, users: bool) -> GivenOptions {
        let given = GivenOptions::default().with_value(&PASSWORD_FILE, OptionValue::File(self.password.clone()));
        if users { given.with(&USERS) } else { given }
    }

    /// An error of a connection to it: the server may have ended.
    pub fn explained(&mut self, error: Error) -> Error {
        self.server.explained(error)
    }

    /// Stops the server. `gtids` are those of the last transaction that was applied through a connection: MariaDB does not
    /// note them itself.
    ///
    /// # Errors
    /// It refuses, or does not stop by itself.
    pub fn finish(mut self, gtids: Option<&str>, halt: &Halt) -> Result<()> {
        if let (Dialect::MariaDb, Some(list)) = (self.dialect, gtids.and_then(GtidList::parse)) {
            self.connection.query(&format!("SET GLOBAL gtid_slave_pos = '{list}'"))?;
        }
        self.account.drop_it(&mut self.connection)?;
        self.connection.quit();
        self.server.stop(halt)?;
        relays::clear(&self.directory);
        Ok(())
    }
}

/// Whether a log behind these catalogs can be applied as statements only: rows of a table without transactions may be of any
/// moment until the set was complete, and relay logs would bring them twice.
///
/// # Errors
/// A catalog is damaged.
pub fn has_tables_without_transactions(catalogs: &[(String, Vec<u8>)]) -> Result<bool> {
    for (name, bytes) in catalogs {
        let plain = |object: &Object| match object {
            Object::Table(table) => table.has_rows() && !table.engine.eq_ignore_ascii_case("InnoDB"),
            _ => false,
        };
        if catalog::read(name, bytes)?.iter().any(plain) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The texts that make MariaDB's system tables. They are beside the messages of the server.
fn system_tables(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new(program).args(["--no-defaults", "--verbose", "--help"]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| Error::io("start", program.display().to_string(), error))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name))?;
        Some(PathBuf::from(line.get(name.len()..)?.trim()))
    };
    let beside = value("character-sets-dir").and_then(|path| path.parent().map(Path::to_owned));
    let below = |path: &str| value("basedir").map(|base| base.join(path));
    let folders = [value("lc-messages-dir"), beside, below("share"), below("share/mariadb"), below("share/mysql")];
    for folder in folders.into_iter().flatten() {
        for stem in ["mariadb_", "mysql_"] {
            let texts = SYSTEM_TABLES.map(|name| folder.join(format!("{stem}{name}")));
            if texts.iter().all(|path| path.is_file()) {
                let others = OTHERS.iter().map(|name| folder.join(name));
                let others = others.chain([folder.join(format!("{stem}{SYS_SCHEMA}"))]).filter(|path| path.is_file());
                return Ok(texts.into_iter().chain(others).collect());
            }
        }
    }
    Err(Error::usage(
        "a data directory",
        format!("{} has no mariadb_system_tables.sql beside its messages, so it cannot make one", program.display()),
        "install the whole server package, or name another program with --server-program",
    ))
}
