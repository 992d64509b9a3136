//! The two connections to a server: one runs the statement, the other looks how far it is, and ends it.
//!
//! The only async code of the engines. One thread drives both connections, and every call here blocks.

use std::pin::pin;
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};
use futures_util::TryStreamExt;
use tiberius::{AuthMethod, Client, ColumnData, Config, EncryptionLevel};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};
use zeroize::Zeroizing;

use super::address::{Address, Encrypt};
use super::answer::{Row, Value, datetime};
use super::failure::Failure;

/// The longest time for a login.
const LOGIN: Duration = Duration::from_secs(30);
/// The longest time for a question. RESTORE HEADERONLY may read a slow share.
const QUESTION: Duration = Duration::from_secs(300);
/// The longest time for a look at a run.
const LOOK: Duration = Duration::from_secs(20);
/// How long the server may be silent on both connections.
const SILENT: Duration = Duration::from_secs(120);
/// How long a run may take to end after it was told to.
const ENDS: Duration = Duration::from_secs(120);
/// The time between two looks at the halt.
const TICK: Duration = Duration::from_millis(100);
/// The time between two looks at a run: short at first, for short runs.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The most rows of an answer.
const ROWS_MAX: usize = 10_000;

type Wire = Client<Compat<TcpStream>>;

/// What the second connection sees of a run.
pub enum Sight<'a> {
    /// The row of the question.
    Row(&'a Row),
    /// The server shows no row: the run begins or ends, or the login may not see it.
    Nothing,
    /// The server refuses the question.
    Refused(&'a Failure),
}

/// Both connections.
pub struct Link {
    runtime: Runtime,
    wire: Wire,
    watch: Option<Wire>,
    address: Address,
    password: Zeroizing<String>,
    halt: Option<Halt>,
}

impl Link {
    /// Connects; the second connection is made when it is needed.
    pub fn open(address: Address, password: Zeroizing<String>, halt: Option<Halt>) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| Error::io("start", "the connection to the server", error))?;
        let connected = wait(&runtime, halt.as_ref(), LOGIN, login(&address, &password));
        let wire = connected.map_err(|failure| failure.on(&address.name()))?;
        Ok(Self { runtime, wire, watch: None, address, password, halt })
    }

    /// The rows of an answer.
    pub fn ask(&mut self, statement: &str) -> Result<Vec<Row>, Failure> {
        wait(&self.runtime, self.halt.as_ref(), QUESTION, rows(&mut self.wire, statement))
    }

    /// The same, also when the job is to end.
    pub fn ask_at_last(&mut self, statement: &str) -> Result<Vec<Row>, Failure> {
        wait(&self.runtime, None, LOOK, rows(&mut self.wire, statement))
    }

    /// Connects again, after the connection was lost.
    pub fn renew(&mut self) -> Result<(), Failure> {
        self.wire = wait(&self.runtime, None, LOGIN, login(&self.address, &self.password))?;
        Ok(())
    }

    /// Runs a statement of any length. `look` hears the answer to `question` again and again. After an error of `look`
    /// the statement `end` ends the run, and the error is the result, unless the run was done before.
    pub fn run(
        &mut self,
        statement: &str,
        question: &str,
        end: &str,
        look: &mut dyn FnMut(Sight<'_>) -> Result<()>,
    ) -> Result<Vec<Row>, Failure> {
        let Self { runtime, wire, watch, address, password, .. } = self;
        let mut watch = Watch { wire: watch, address, password, blind: false, silent_since: None };
        runtime.block_on(async {
            let mut work = pin!(rows(wire, statement));
            let mut pause = PAUSES.0;
            let mut ending: Option<(Error, Instant)> = None;
            loop {
                match (timeout(pause, &mut work).await, ending.take()) {
                    (Ok(Ok(rows)), _) => return Ok(rows),
                    (Ok(Err(_)), Some((why, _))) => return Err(Failure::Ours(why)),
                    (Ok(Err(failure)), None) => return Err(failure),
                    (Err(_), Some((why, since))) if since.elapsed() > ENDS => {
                        let more = "the server was told to end the run, and has not: look into sys.dm_exec_requests";
                        return Err(Failure::Ours(why.noting(more)));
                    }
                    (Err(_), Some(waiting)) => ending = Some(waiting),
                    (Err(_), None) => {
                        if let Err(why) = watch.look(question, look).await {
                            // If it cannot be told, the end of the connection ends the run.
                            if watch.ask(end).await.is_err() {
                                return Err(Failure::Ours(why));
                            }
                            ending = Some((why, Instant::now()));
                            pause = PAUSES.0;
                            continue;
                        }
                        pause = (pause * 3 / 2).min(PAUSES.1);
                    }
                }
            }
        })
    }
}

/// The second connection of a run.
struct Watch<'l> {
    wire: &'l mut Option<Wire>,
    address: &'l Address,
    password: &'l str,
    /// The server refused the question once: it will again.
    blind: bool,
    silent_since: Option<Instant>,
}

impl Watch<'_> {
    /// Asks once, and lets `look` hear the answer.
    async fn look(&mut self, question: &str, look: &mut dyn FnMut(Sight<'_>) -> Result<()>) -> Result<()> {
        if self.blind {
            return look(Sight::Nothing);
        }
        match self.ask(question).await {
            Ok(rows) => {
                self.silent_since = None;
                look(rows.first().map_or(Sight::Nothing, Sight::Row))
            }
            Err(refused @ Failure::Server(..)) => {
                self.blind = true;
                look(Sight::Refused(&refused))
            }
            Err(lost) => {
                let since = *self.silent_since.get_or_insert_with(Instant::now);
                if since.elapsed() > SILENT {
                    let hint =
                        "the run may continue on the server: look into sys.dm_exec_requests and msdb.dbo.backupset";
                    return Err(lost.on(&self.address.name()).noting(hint));
                }
                look(Sight::Nothing)
            }
        }
    }

    /// The answer on the second connection, which is made if it is missing.
    async fn ask(&mut self, statement: &str) -> Result<Vec<Row>, Failure> {
        let asked = async {
            let mut wire = match self.wire.take() {
                Some(wire) => wire,
                None => login(self.address, self.password).await?,
            };
            let rows = rows(&mut wire, statement).await;
            // After an error of the server the connection can be used again; else a new one is made.
            if matches!(rows, Ok(_) | Err(Failure::Server(..))) {
                *self.wire = Some(wire);
            }
            rows
        };
        match timeout(LOOK, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(silent(LOOK)),
        }
    }
}

/// Waits for `work`, and no longer than `limit`; `halt` ends it sooner.
fn wait<T>(
    runtime: &Runtime,
    halt: Option<&Halt>,
    limit: Duration,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    runtime.block_on(async {
        let (mut work, begun) = (pin!(work), Instant::now());
        loop {
            if let Ok(done) = timeout(TICK, &mut work).await {
                return done;
            }
            halt.map_or(Ok(()), Halt::check)?;
            if begun.elapsed() > limit {
                return Err(silent(limit));
            }
        }
    })
}

fn silent(limit: Duration) -> Failure {
    Failure::Lost(std::io::ErrorKind::TimedOut, format!("no answer in {} s", limit.as_secs()))
}

/// A connection with a login.
async fn login(address: &Address, password: &str) -> Result<Wire, Failure> {
    let mut config = Config::new();
    config.host(&address.host);
    config.port(address.port);
    config.database("master");
    config.application_name("fullbore");
    config.authentication(AuthMethod::sql_server(&address.user, password));
    config.encryption(match address.encrypt {
        Encrypt::Mandatory => EncryptionLevel::Required,
        Encrypt::Strict => EncryptionLevel::Strict,
        Encrypt::Never => EncryptionLevel::NotSupported,
    });
    if address.trusts_any {
        config.trust_cert();
    }
    if let Some(path) = &address.authority {
        config.trust_cert_ca(path.display());
    }
    let lost = |error: std::io::Error| Failure::Lost(error.kind(), error.to_string());
    let socket = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(lost)?;
    socket.set_nodelay(true).map_err(lost)?;
    Client::connect(config, socket.compat_write()).await.map_err(failure)
}

/// The rows of all results of a statement.
async fn rows(wire: &mut Wire, statement: &str) -> Result<Vec<Row>, Failure> {
    let mut stream = wire.simple_query(statement).await.map_err(failure)?.into_row_stream();
    let mut rows = Vec::new();
    while let Some(row) = stream.try_next().await.map_err(failure)? {
        if rows.len() >= ROWS_MAX {
            return Err(Failure::Protocol(format!("the server answers more than {ROWS_MAX} rows")));
        }
        rows.push(Row::new(row.cells().map(|(column, data)| (column.name().to_owned(), value(data))).collect()));
    }
    Ok(rows)
}

fn value(data: &ColumnData<'static>) -> Value {
    let found = match data {
        ColumnData::U8(number) => number.map(|number| Value::Integer(number.into())),
        ColumnData::I16(number) => number.map(|number| Value::Integer(number.into())),
        ColumnData::I32(number) => number.map(|number| Value::Integer(number.into())),
        ColumnData::I64(number) => number.map(Value::Integer),
        ColumnData::Bit(bit) => bit.map(|bit| Value::Integer(bit.into())),
        ColumnData::F32(number) => number.map(|number| Value::Number(number.into())),
        ColumnData::F64(number) => number.map(Value::Number),
        ColumnData::String(text) => text.as_ref().map(|text| Value::Text(text.to_string())),
        ColumnData::Guid(id) => id.map(|id| Value::Text(id.to_string())),
        // LSNs and sizes of headers have no digits after the point.
        ColumnData::Numeric(number) => {
            number.filter(|number| number.scale() == 0).map(|number| Value::Text(number.value().to_string()))
        }
        ColumnData::DateTime(time) => {
            time.and_then(|time| datetime(time.days(), time.seconds_fragments())).map(Value::Text)
        }
        _ => None,
    };
    found.unwrap_or_default()
}

fn failure(error: tiberius::error::Error) -> Failure {
    match error {
        tiberius::error::Error::Server(token) => Failure::Server(token.code(), token.message().to_owned()),
        tiberius::error::Error::Io { kind, message } => Failure::Lost(kind, message),
        other => Failure::Protocol(other.to_string()),
    }
}
