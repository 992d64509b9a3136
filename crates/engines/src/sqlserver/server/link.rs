//! The two connections to a server: one runs the statement, the other looks how far it is, and ends it.
//!
//! The only async code of the engines. One thread drives both connections, and every call here blocks.

use std::pin::pin;
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};
use futures_util::TryStreamExt;
use tiberius::{AuthMethod, Client, ColumnData, Config, EncryptionLevel, QueryItem};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_util::compat::{Compat, TokioAsyncWriteCompatExt};
use zeroize::Zeroizing;

use super::address::{Address, Encrypt};
use super::answer::{Collected, Row, Value, datetime};
use super::failure::{Failure, unfinished};
use super::meter::{Allowance, Metered, TOO_LONG};
use super::questions;

/// The longest time for a login.
const LOGIN: Duration = Duration::from_secs(30);
/// How long the server may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For a question. RESTORE HEADERONLY may read a slow share.
    pub question: Duration,
    /// For a look at a run.
    pub look: Duration,
    /// How long nobody may hear of a run: the server does not answer on the second connection, or no longer shows it.
    pub silent: Duration,
    /// For the end of a run that was told to end.
    pub ends: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let [question, look, silent, ends] = [300, 20, 120, 120].map(Duration::from_secs);
        Self { question, look, silent, ends }
    }
}

/// The time between two looks at the halt.
const TICK: Duration = Duration::from_millis(100);
/// The time between two looks at a run: short at first, for short runs.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// The most bytes of an answer, as they come from the network.
const ANSWER_MAX: u64 = 16 << 20;

/// A connection with a login.
struct Wire {
    client: Client<Metered<Compat<TcpStream>>>,
    allowance: Allowance,
}

const WHERE_TO_LOOK: &str = "the run may continue on the server: look into sys.dm_exec_requests and msdb.dbo.backupset";

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
    pub(super) limits: Limits,
}

impl Link {
    /// Connects; the second connection is made when it is needed.
    pub fn open(address: Address, password: Zeroizing<String>, halt: Option<Halt>) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build();
        let runtime = runtime.map_err(|error| Error::io("start", "the connection to the server", error))?;
        let connected = wait(&runtime, halt.as_ref(), LOGIN, login(&address, &password));
        let wire = connected.map_err(|failure| failure.on(&address.name()))?;
        Ok(Self { runtime, wire, watch: None, address, password, halt, limits: Limits::default() })
    }

    /// The rows of an answer.
    pub fn ask(&mut self, statement: &str) -> Result<Vec<Row>, Failure> {
        wait(&self.runtime, self.halt.as_ref(), self.limits.question, rows(&mut self.wire, statement))
    }

    /// The same for a statement that starts work on the server: its answer says which work, so it is awaited also when
    /// the job is to end.
    pub fn ask_to_the_end(&mut self, statement: &str) -> Result<Vec<Row>, Failure> {
        wait(&self.runtime, None, self.limits.question, rows(&mut self.wire, statement))
    }

    /// The same, also when the job is to end.
    pub fn ask_at_last(&mut self, statement: &str) -> Result<Vec<Row>, Failure> {
        wait(&self.runtime, None, self.limits.look, rows(&mut self.wire, statement))
    }

    /// Connects again, after the connection was lost.
    pub fn renew(&mut self) -> Result<(), Failure> {
        self.wire = wait(&self.runtime, None, LOGIN, login(&self.address, &self.password))?;
        Ok(())
    }

    /// Runs a statement of any length, which may be silent for any time while the second connection hears of it. `look` hears the answer to `question` again and again. After an error of `look`
    /// the statement `end` ends the run, and the error is the result, unless the run was done before.
    pub fn run(
        &mut self,
        statement: &str,
        question: &str,
        end: &str,
        look: &mut dyn FnMut(Sight<'_>) -> Result<()>,
    ) -> Result<Vec<Row>, Failure> {
        let Self { runtime, wire, watch, address, password, limits, .. } = self;
        let mut watch =
            Watch { wire: watch, address, password, limits: *limits, blind: false, seen: false, since: None };
        let batch = format!("{statement}{}", questions::ENDED);
        runtime.block_on(async {
            let mut work = pin!(rows(wire, &batch));
            let mut pause = PAUSES.0;
            let mut ending: Option<(Error, Instant)> = None;
            loop {
                match (timeout(pause, &mut work).await, ending.take()) {
                    (Ok(Ok(rows)), _) => return ended(rows),
                    (Ok(Err(_)), Some((why, _))) => return Err(Failure::Ours(why)),
                    (Ok(Err(failure)), None) => return Err(failure),
                    (Err(_), Some((why, since))) if since.elapsed() > limits.ends => {
                        let more = "the server was told to end the run, and has not: look into sys.dm_exec_requests";
                        return Err(Failure::Ours(unfinished(why, &address.name(), more)));
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

/// The rows of a statement that says itself that it ended without an error. tiberius hides how a statement ends.
fn ended(rows: Vec<Row>) -> Result<Vec<Row>, Failure> {
    match rows.iter().find_map(|row| row.integer(questions::ENDED_COLUMN)) {
        Some(0) => Ok(rows),
        Some(code) => {
            Err(Failure::Unproven(format!("the statement ended with error {code}, and the server does not say more")))
        }
        None => Err(Failure::Unproven("the server does not say that the statement ended without an error".into())),
    }
}

/// The second connection of a run.
struct Watch<'l> {
    wire: &'l mut Option<Wire>,
    address: &'l Address,
    password: &'l str,
    limits: Limits,
    /// The server refused the question once: it will again.
    blind: bool,
    /// The server showed the run once.
    seen: bool,
    /// Since then nobody hears of the run.
    since: Option<Instant>,
}

impl Watch<'_> {
    /// Asks once, and lets `look` hear the answer.
    async fn look(&mut self, question: &str, look: &mut dyn FnMut(Sight<'_>) -> Result<()>) -> Result<()> {
        // Also a login that sees nothing must notice that the server is dead.
        let question = if self.blind { questions::ALIVE } else { question };
        match self.ask(question).await {
            Ok(_) if self.blind => {
                self.since = None;
                look(Sight::Nothing)
            }
            Ok(rows) if rows.is_empty() && self.seen => {
                if self.is_over() {
                    let why = "the server no longer shows the run, and does not say how it ended";
                    return Err(Error::refused(self.address.name(), why, WHERE_TO_LOOK));
                }
                look(Sight::Nothing)
            }
            Ok(rows) => {
                self.since = None;
                self.seen |= !rows.is_empty();
                look(rows.first().map_or(Sight::Nothing, Sight::Row))
            }
            Err(refused @ Failure::Server(..)) if !self.blind => {
                self.blind = true;
                look(Sight::Refused(&refused))
            }
            Err(lost) if self.is_over() => Err(lost.on(&self.address.name()).noting(WHERE_TO_LOOK)),
            Err(_) => look(Sight::Nothing),
        }
    }

    /// Whether nobody has heard of the run for too long.
    fn is_over(&mut self) -> bool {
        self.since.get_or_insert_with(Instant::now).elapsed() > self.limits.silent
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
        match timeout(self.limits.look, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(silent(self.limits.look)),
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

/// What tiberius connects with.
fn config(address: &Address, password: &str) -> Config {
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
    } else if let Some(path) = &address.authority {
        config.trust_cert_ca(path.display());
    }
    // A BACKUP may say nothing for hours. The limits of this module are for questions only.
    config.command_timeout(None);
    config
}

/// A connection with a login.
async fn login(address: &Address, password: &str) -> Result<Wire, Failure> {
    let lost = |error: std::io::Error| Failure::Lost(error.kind(), error.to_string());
    let socket = TcpStream::connect((address.host.as_str(), address.port)).await.map_err(lost)?;
    socket.set_nodelay(true).map_err(lost)?;
    let allowance = Allowance::default();
    allowance.set(ANSWER_MAX);
    let stream = Metered::new(socket.compat_write(), allowance.clone());
    let client = Client::connect(config(address, password), stream).await.map_err(failure)?;
    let mut wire = Wire { client, allowance };
    rows(&mut wire, questions::ENGLISH).await?;
    Ok(wire)
}

/// The rows of all results of a statement.
async fn rows(wire: &mut Wire, statement: &str) -> Result<Vec<Row>, Failure> {
    wire.allowance.set(ANSWER_MAX);
    let mut stream = wire.client.simple_query(statement).await.map_err(failure)?;
    let mut answer = Collected::default();
    while let Some(item) = stream.try_next().await.map_err(failure)? {
        let kept = match &item {
            QueryItem::Metadata(result) => answer.begin(result.columns().iter().map(|column| column.name())),
            QueryItem::Row(row) => answer.push(row.cells().map(|(_, data)| value(data))),
        };
        kept.map_err(Failure::TooMuch)?;
    }
    Ok(answer.into_rows())
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
        tiberius::error::Error::Io { message, .. } if message.contains(TOO_LONG) => {
            Failure::TooMuch(format!("an answer has more than {} MiB", ANSWER_MAX >> 20))
        }
        tiberius::error::Error::Io { kind, message } => Failure::Lost(kind, message),
        other => Failure::Protocol(other.to_string()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_may_be_silent_for_any_time() {
        let address = Address::parse("mssql://sa@h/shop").unwrap();
        assert_eq!(config(&address, "x").get_command_timeout(), None);
    }
}
