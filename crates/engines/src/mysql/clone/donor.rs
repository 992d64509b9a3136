//! A clone that has begun: connections, the donor's account of itself, acknowledgements, and the end.
//!
//! One connection acknowledges; each of the others is a [`Task`]. A clone that is not finished is given up when the
//! [`Donor`] is dropped, so that the server is free for another.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};

use super::descriptor::{BadMessage, StateDescriptor};
use super::files::{CloneFile, FileId};
use super::message::{self, COM_CLONE, Ddl, Locator, RESPONSE_MAX, Response, command};
use super::page_zero::PageSize;
use super::progress::Progress;
use super::task::Task;
use crate::mysql_family::connection::{Connection, Failure, ServerError};
use crate::mysql_family::credentials::Credentials;
use crate::mysql_family::url::ServerAddress;

/// The most tasks: the donor's own limit.
pub const TASKS_MAX: usize = 128;
/// The donor sends a sign of life every few seconds while it waits for us.
const SILENCE: Duration = Duration::from_secs(120);
/// The donor waits for its backup lock, and then for tables that are being created.
const BEGIN_SILENCE: Duration = Duration::from_secs(300 + 300);
/// How long to try again while the donor says that DDL runs.
const DDL_PATIENCE: Duration = Duration::from_secs(60);
/// How long the donor may take to give up or to take its leave.
const PARTING: Duration = Duration::from_secs(3);
/// ER_CLONE_DDL_IN_PROGRESS.
const DDL_IN_PROGRESS: u32 = 3633;
/// ER_QUERY_INTERRUPTED: sent to the donor when we give up.
const INTERRUPTED: i32 = 1317;
/// More settings, plugins or collations than a server has.
const LIST_MAX: usize = 1 << 14;

/// How to clone.
#[derive(Clone)]
pub struct DonorOptions {
    /// Connections that carry data, 1 to [`TASKS_MAX`].
    pub tasks: usize,
    /// Whether DDL may run during the clone.
    pub ddl: Ddl,
    /// Ends everything.
    pub halt: Halt,
}

/// The donor's description before it sends a file: a server that starts on the copy must agree with it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description {
    /// Settings, such as `version` and `innodb_page_size`.
    pub settings: Vec<(String, String)>,
    /// Plugins with their libraries; empty for built-in plugins.
    pub plugins: Vec<(String, String)>,
    /// Collations.
    pub collations: Vec<String>,
}

impl Description {
    /// The value of a setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn page_size(&self) -> Option<PageSize> {
        PageSize::new(self.setting("innodb_page_size")?.parse().ok()?)
    }
}

/// A clone that has begun.
pub struct Donor {
    conversation: Arc<Conversation>,
    description: Description,
    tasks: Vec<Task>,
    sessions: Vec<u32>,
}

impl Donor {
    /// Connects as often as there are tasks and once more, and begins the clone.
    pub fn begin(address: &ServerAddress, credentials: &Credentials, options: &DonorOptions) -> Result<Self> {
        if !(1..=TASKS_MAX).contains(&options.tasks) {
            let why = format!("a clone has 1 to {TASKS_MAX} connections for data");
            return Err(Error::usage("--readers", why, "2 to 4 fill a network"));
        }
        let started = Instant::now();
        loop {
            match Self::attempt(address, credentials, options) {
                Err(Failure::Server(error)) if error.code == DDL_IN_PROGRESS && started.elapsed() < DDL_PATIENCE => {
                    options.halt.check()?;
                    std::thread::sleep(Duration::from_millis(200));
                }
                done => return Ok(done?),
            }
        }
    }

    fn attempt(address: &ServerAddress, credentials: &Credentials, options: &DonorOptions) -> Result<Self, Failure> {
        let connect = || -> Result<Connection, Failure> {
            Ok(Connection::open_patient(address, credentials, Some(options.halt.clone()))?)
        };
        let clone = |mut connection: Connection| -> Result<Connection, Failure> {
            connection.command(COM_CLONE, &[])?;
            connection.set_silence(SILENCE);
            Ok(connection)
        };
        // All of them before the clone begins: too many connections are an error before anything happens.
        let mut first = connect()?;
        let server_uuid = first.query("SELECT @@server_uuid")?.single().unwrap_or_default().to_owned();
        let mut first = clone(first)?;
        let acknowledging = clone(connect()?)?;
        let workers = (1..options.tasks).map(|_| clone(connect()?)).collect::<Result<Vec<_>, _>>()?;
        first.set_silence(BEGIN_SILENCE);
        first.send(command::INIT, &message::begin(options.ddl, &[Locator::of_version()]))?;
        let (description, locator) = receive_description(&mut first)?;
        first.set_silence(SILENCE);
        let page = description.page_size().ok_or_else(|| first.broken("it does not report its innodb_page_size"))?;
        let conversation = Arc::new(Conversation {
            progress: Progress::new(page, &server_uuid, options.halt.clone()),
            acknowledging: Mutex::new(Some(acknowledging)),
            locator,
            ddl: options.ddl,
        });
        let connections: Vec<Connection> = std::iter::once(first).chain(workers).collect();
        let sessions = connections.iter().map(|connection| connection.greeting().connection_id).collect();
        let connections = connections.into_iter().enumerate();
        let tasks =
            connections.map(|(number, connection)| Task::new(number, connection, conversation.clone())).collect();
        Ok(Self { conversation, description, tasks, sessions })
    }

    /// The donor's description.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The server's numbers of the connections that carry the clone, for KILL.
    pub fn sessions(&self) -> &[u32] {
        &self.sessions
    }

    /// The tasks, to run at the same time, each until it gives no more events. Only the first call returns them.
    pub fn take_tasks(&mut self) -> Vec<Task> {
        std::mem::take(&mut self.tasks)
    }

    /// The current state of a file.
    pub fn file(&self, id: FileId) -> Option<CloneFile> {
        self.conversation.progress.with_files(|files| files.get(id).cloned())
    }

    /// All files with their final paths and sizes, also dropped ones: complete when all tasks have ended.
    pub fn files(&self) -> Vec<CloneFile> {
        self.conversation.progress.with_files(|files| files.all().cloned().collect())
    }
}

impl Drop for Donor {
    fn drop(&mut self) {
        self.conversation.give_up();
    }
}

/// The shared state of all tasks.
pub(super) struct Conversation {
    pub progress: Progress,
    /// The connection for acknowledgements, until the clone is finished or given up.
    acknowledging: Mutex<Option<Connection>>,
    locator: Locator,
    pub ddl: Ddl,
}

impl Conversation {
    pub fn locators(&self) -> &[Locator] {
        std::slice::from_ref(&self.locator)
    }

    /// Tells the donor that a stage is received; it then begins the next.
    pub fn acknowledge(&self, state: &StateDescriptor) -> Result<()> {
        let mut guard = self.acknowledging.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = guard.as_mut().ok_or(Error::Halted)?;
        connection.send(command::ACKNOWLEDGE, &message::acknowledge(0, &self.locator, Some(state)))?;
        Ok(receive_complete(connection)?)
    }

    /// The clone is complete: takes leave with the acknowledging connection.
    pub fn finish(&self) -> Result<()> {
        let taken = self.acknowledging.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut connection) = taken else { return Ok(()) };
        connection.send(command::EXIT, &[])?;
        receive_complete(&mut connection)?;
        connection.quit();
        Ok(())
    }

    /// Tells the donor to give up the clone, unless it is finished. It ignores errors: a donor that cannot be reached
    /// notices when the connections close.
    pub fn give_up(&self) {
        self.progress.fail();
        let taken = self.acknowledging.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut connection) = taken else { return };
        connection.clean_up_within(PARTING);
        let farewell = message::acknowledge(INTERRUPTED, &self.locator, None);
        if connection.send(command::ACKNOWLEDGE, &farewell).is_ok() {
            let _ = receive_complete(&mut connection);
        }
    }
}

/// Receives the next response; [`Response::Error`] as a failure. Raw data is for tasks only.
pub(super) fn receive(connection: &mut Connection) -> Result<Response, Failure> {
    let payload = {
        let message = connection.begin()?;
        connection.rest(message, RESPONSE_MAX)?
    };
    parse(connection, &payload)
}

pub(super) fn parse(connection: &Connection, payload: &[u8]) -> Result<Response, Failure> {
    let Some((kind, body)) = payload.split_first() else {
        return Err(connection.broken("it sent an empty message").into());
    };
    match Response::parse(*kind, body) {
        Ok(Response::Error { code, text }) => {
            Err(Failure::Server(ServerError::new(connection.name(), code, "", &text)))
        }
        Ok(response) => Ok(response),
        Err(BadMessage(what)) => Err(bad(connection, what).into()),
    }
}

pub(super) fn bad(connection: &Connection, what: &str) -> Error {
    connection.broken(&format!("in the clone protocol it sent {what}"))
}

/// Skips everything up to the end of an answer.
pub(super) fn receive_complete(connection: &mut Connection) -> Result<(), Failure> {
    for _ in 0..LIST_MAX {
        if receive(connection)? == Response::Complete {
            return Ok(());
        }
    }
    Err(connection.broken("its answer does not end").into())
}

fn receive_description(connection: &mut Connection) -> Result<(Description, Locator), Failure> {
    let mut description = Description::default();
    let mut found = None;
    for _ in 0..LIST_MAX {
        match receive(connection)? {
            Response::Locators(version, locators) => {
                if version > message::PROTOCOL_VERSION {
                    return Err(bad(connection, "a version that was not requested").into());
                }
                found = locators.into_iter().next();
            }
            Response::Setting(name, value) => description.settings.push((name, value)),
            Response::Plugin { name, library } => description.plugins.push((name, library)),
            Response::Collation(name) => description.collations.push(name),
            Response::Complete => {
                let locator = found.ok_or_else(|| bad(connection, "no locator"))?;
                return Ok((description, locator));
            }
            Response::Descriptor(_) => return Err(bad(connection, "a descriptor before the clone began").into()),
            Response::Error { .. } | Response::Unknown(_) => {}
        }
    }
    Err(connection.broken("its description does not end").into())
}
