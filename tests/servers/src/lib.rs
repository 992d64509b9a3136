//! Real database servers for tests: `Server::start(Kind::Mysql9, &Options::new())` is one, until it is dropped.
//!
//! Everything is done by the script `server` beside this crate; README.md there says how, and what it guarantees. A
//! server that is not installed makes the test fail, and the message says what to run.
//!
//! ```no_run
//! use fullbore_test_servers::{Kind, Options, Server};
//!
//! let server = Server::start(Kind::Mariadb11, &Options::new().binlog());
//! server.sql("CREATE DATABASE shop");
//! let url = format!("mariadb://{}@{}:{}", server.user(), server.host(), server.port());
//! ```
//!
//! [`SqlServerStub`](sql_server::SqlServerStub) stands in the place of a SQL Server, which does not run here.
//!
//! [`ObjectStore`] is the same for S3 servers, with [`S3Client`] to look into them and [`FaultProxy`] to stand in between.

mod fault_proxy;
mod object_store;
mod s3_client;
pub mod sql_server;
mod waiting;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use tempfile::TempDir;

pub use fault_proxy::{At, Fault, FaultProxy, Plan, Request, Seen, Which};
pub use object_store::{Object, ObjectStore, StoreKind, StoreOptions};
pub use s3_client::{Answer, Call, Failure, S3Client};
pub use waiting::{SetAtEnd, wait_until};

/// Which server, by its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// MySQL 9.
    Mysql9,
    /// MariaDB 10.11.
    Mariadb10,
    /// MariaDB 11.8.
    Mariadb11,
}

impl Kind {
    /// All that can be installed.
    pub const ALL: [Self; 3] = [Self::Mysql9, Self::Mariadb10, Self::Mariadb11];
    /// The two series of MariaDB.
    pub const MARIADB: [Self; 2] = [Self::Mariadb10, Self::Mariadb11];

    /// The name that the scripts `install` and `server` know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mysql9 => "mysql-9",
            Self::Mariadb10 => "mariadb-10.11",
            Self::Mariadb11 => "mariadb-11.8",
        }
    }
}

/// How a server is to be started. The default: an empty server without a binary log.
#[derive(Clone, Debug, Default)]
pub struct Options {
    arguments: Vec<String>,
    time_zone: Option<String>,
}

impl Options {
    /// The default.
    pub fn new() -> Self {
        Self::default()
    }

    /// With a binary log named `binlog`, and GTIDs.
    pub fn binlog(self) -> Self {
        self.argument("--binlog", None)
    }

    /// InnoDB's page size: `4k`, `8k`, `16k`, `32k` or `64k`.
    pub fn page_size(self, size: &str) -> Self {
        self.argument("--page-size", Some(size))
    }

    /// The size of the redo log, such as `8M`: the least is 8 MiB in MySQL and 4 MiB in MariaDB.
    pub fn redo(self, size: &str) -> Self {
        self.argument("--redo", Some(size))
    }

    /// With a keyring: tables can be encrypted (MariaDB: with the keys 1, 2 and 3).
    pub fn encrypt(self) -> Self {
        self.argument("--encrypt", None)
    }

    /// An option of the server itself, without its dashes: `innodb_undo_tablespaces=4`.
    pub fn option(self, option: &str) -> Self {
        self.argument("--option", Some(option))
    }

    /// Starts on a data directory that exists, such as a restored one. As root, it is given to the server's user. It
    /// is not removed when the server is dropped.
    pub fn datadir(self, path: &Path) -> Self {
        self.argument("--datadir", Some(&path.to_string_lossy()))
    }

    /// mysqld is started again when it asks for it (RESTART, CLONE), on the same port.
    pub fn restarts(self) -> Self {
        self.argument("--restarts", None)
    }

    /// Where root's password in that data directory stands. Without it, `Server::sql` tries without a password. A new
    /// data directory gets this password.
    pub fn password_file(self, path: &Path) -> Self {
        self.argument("--password-file", Some(&path.to_string_lossy()))
    }

    /// Its system time zone, as `TZ` has it.
    pub fn time_zone(mut self, zone: &str) -> Self {
        self.time_zone = Some(zone.to_owned());
        self
    }

    fn argument(mut self, name: &str, value: Option<&str>) -> Self {
        // One argument, so that a value may begin with a dash.
        self.arguments.push(value.map_or_else(|| name.to_owned(), |value| format!("{name}={value}")));
        self
    }
}

/// What the script says about a server that it started.
#[derive(Clone, Debug, Deserialize)]
struct Description {
    kind: String,
    version: String,
    host: String,
    port: u16,
    socket: PathBuf,
    datadir: PathBuf,
    user: String,
    password_file: Option<PathBuf>,
    pid: u32,
    supervisor: u32,
    ca: Option<PathBuf>,
    client: PathBuf,
    client_options: PathBuf,
    bin: PathBuf,
    tablespaces: PathBuf,
    keyring: Option<PathBuf>,
    error_log: PathBuf,
}

/// A server in a temporary directory. Dropping it kills the server and removes the directory; so does the end of the
/// test's process, whatever ends it.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    directory: TempDir,
    description: Description,
}

impl Server {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    /// With the script's message, if it is not installed or does not start.
    pub fn start(kind: Kind, options: &Options) -> Self {
        Self::try_start(kind, options).unwrap_or_else(|message| panic!("{message}"))
    }

    /// The same for a server that may refuse to start, such as one on a damaged data directory: then what the script
    /// says, the end of the server's error log included.
    pub fn try_start(kind: Kind, options: &Options) -> Result<Self, String> {
        let directory = tempfile::Builder::new().prefix("fullbore-server-").tempdir();
        let directory = directory.map_err(|error| format!("cannot make a temporary directory: {error}"))?;
        let description = start_in(kind, directory.path(), options)?;
        Ok(Self { kind, directory, description })
    }

    /// Starts it again after `stop` or `kill`, on the data that it left. Most options must be given again.
    ///
    /// # Panics
    /// With the script's message, if it does not start.
    pub fn start_again(&mut self, options: &Options) {
        self.description =
            start_in(self.kind, self.directory.path(), options).unwrap_or_else(|message| panic!("{message}"));
    }

    /// Shuts the server down as an operator would. The data directory stays until the `Server` is dropped.
    ///
    /// # Panics
    /// If it did not end by itself and without an error.
    pub fn stop(&mut self) {
        script(["stop".as_ref(), self.directory.path().as_os_str()]).unwrap_or_else(|message| panic!("{message}"));
    }

    /// Ends the server as a power cut would, by SIGKILL.
    ///
    /// # Panics
    /// If it cannot be ended.
    pub fn kill(&mut self) {
        script(["kill".as_ref(), self.directory.path().as_os_str()]).unwrap_or_else(|message| panic!("{message}"));
    }

    /// Runs statements as root over the socket; the answer's rows, one a line, columns separated by tabs.
    ///
    /// # Panics
    /// With the server's message, if a statement fails.
    pub fn sql(&self, statements: &str) -> String {
        self.try_sql(statements).unwrap_or_else(|message| panic!("{message}\nin: {statements}"))
    }

    /// The same for statements that may fail: then the client's message.
    pub fn try_sql(&self, statements: &str) -> Result<String, String> {
        let mut statements = statements.to_owned();
        if ["mysql-5.7", "mysql-8.0"].contains(&self.description.kind.as_str()) {
            // Tests use the words of MySQL 8.2 and later.
            for (new, old) in [("RESET BINARY LOGS AND GTIDS", "RESET MASTER"), ("BINARY LOG STATUS", "MASTER STATUS")]
            {
                statements = statements.replace(new, old);
            }
        }
        output(self.client().args(["--batch", "--skip-column-names", "--execute", &statements]))
    }

    /// Has every changed page written to its file, now and from now on, and waits until that is so. A copy of the files that is taken before
    /// has old pages and the redo log that makes them new: the log is stored whole, and a differential stores those pages again.
    pub fn flush_pages(&self) {
        self.sql("SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0; SET GLOBAL innodb_max_dirty_pages_pct = 0");
        let dirty = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'";
        wait_until("no page is dirty", || self.sql(dirty).trim().ends_with("\t0"));
    }

    /// The server's own command-line client with root's account: over the socket, unless `--protocol=tcp` follows.
    pub fn client(&self) -> Command {
        let mut client = Command::new(&self.description.client);
        // The password stands in that file, and in no argument.
        client.arg(format!("--defaults-file={}", self.description.client_options.display()));
        client.stdin(Stdio::null());
        client
    }

    /// A program of the server's series: `mysqlbinlog`, `mariadb-binlog`, `mariadb-backup`, `mbstream` …
    pub fn program(&self, name: &str) -> Command {
        Command::new(self.description.bin.join(name))
    }

    /// Which series.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The version in full, such as `9.7.4-2`.
    pub fn version(&self) -> &str {
        &self.description.version
    }

    /// The loopback address that it listens on.
    pub fn host(&self) -> &str {
        &self.description.host
    }

    /// The TCP port that it listens on.
    pub fn port(&self) -> u16 {
        self.description.port
    }

    /// Its Unix socket.
    pub fn socket(&self) -> &Path {
        &self.description.socket
    }

    /// Its data directory.
    pub fn datadir(&self) -> &Path {
        &self.description.datadir
    }

    /// The account that may do everything, from the socket and from `host`.
    pub fn user(&self) -> &str {
        &self.description.user
    }

    /// The file with that account's password, without a line end; none if nobody said it (`Options::datadir`).
    pub fn password_file(&self) -> Option<&Path> {
        self.description.password_file.as_deref()
    }

    /// That account's password.
    ///
    /// # Panics
    /// If it is not known.
    pub fn password(&self) -> String {
        let file = self.password_file().unwrap_or_else(|| panic!("nobody said the password of this server"));
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    }

    /// The certificate of the authority that signed the server's: none for MariaDB 11.8, which makes itself one
    /// that clients check by the password.
    pub fn ca(&self) -> Option<&Path> {
        self.description.ca.as_deref()
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.description.pid
    }

    /// The process that started the server and ends it with its owner.
    pub fn supervisor(&self) -> u32 {
        self.description.supervisor
    }

    /// A folder of the server's user, for tables with a `DATA DIRECTORY`; in MySQL it is one of `innodb_directories`.
    pub fn tablespaces(&self) -> &Path {
        &self.description.tablespaces
    }

    /// The folder with the keys, if the server was started with `Options::encrypt`.
    pub fn keyring(&self) -> Option<&Path> {
        self.description.keyring.as_deref()
    }

    /// What the server has said so far, since its data directory was made.
    pub fn error_log(&self) -> String {
        fs::read(&self.description.error_log).map_or_else(
            |error| format!("{}: {error}", self.description.error_log.display()),
            |log| String::from_utf8_lossy(&log).into_owned(),
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A panic here would hide the test's own; and the end of this process ends the server at the latest.
        let _ = script(["kill".as_ref(), self.directory.path().as_os_str()]);
    }
}

/// Runs the tests of a kind on another series: `FULLBORE_TEST_INSTEAD="mysql-9=mysql-8.0 mariadb-11.8=mariadb-10.6"`.
const INSTEAD: &str = "FULLBORE_TEST_INSTEAD";

fn start_in(kind: Kind, directory: &Path, options: &Options) -> Result<Description, String> {
    let owner = std::process::id().to_string();
    let instead = std::env::var(INSTEAD).unwrap_or_default();
    let mut pairs = instead.split_whitespace().filter_map(|pair| pair.split_once('='));
    let series = pairs.find(|(of, _)| *of == kind.name()).map_or(kind.name(), |(_, series)| series);
    let fixed = ["start", series, "--remove", "--owner", &owner, "--dir"].map(OsStr::new);
    let given = options.arguments.iter().map(OsStr::new);
    let mut command = command(fixed.into_iter().chain([directory.as_os_str()]).chain(given));
    let answer = output(command.envs(options.time_zone.iter().map(|zone| ("TZ", zone))))?;
    serde_json::from_str(&answer).map_err(|error| format!("`server start` said what is no description: {error}"))
}

/// Runs the script beside this crate.
fn script<'a>(arguments: impl IntoIterator<Item = &'a OsStr>) -> Result<String, String> {
    output(&mut command(arguments))
}

fn command<'a>(arguments: impl IntoIterator<Item = &'a OsStr>) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("server"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// What a command prints, or, if it fails, what it says about that.
fn output(command: &mut Command) -> Result<String, String> {
    let done =
        command.output().map_err(|error| format!("cannot run `{}`: {error}", command.get_program().display()))?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }
}
