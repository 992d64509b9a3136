//! One blocking connection to a MySQL or MariaDB server: logs in, sends queries, and gives raw packets to code that
//! speaks another protocol over it (CLONE, later the binary log).
//!
//! Every read and write has a deadline and ends when the job is stopped. Nothing here retries.

mod authentication;
mod binary;
mod handshake;
mod local_data;
mod packet;
mod result_set;
mod rows;
mod server_error;
mod stream;
mod tls;

use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};

pub use binary::double;
pub use handshake::Greeting;
pub use local_data::Changed;
pub use result_set::{ResultSet, take_integer};
pub use rows::{Fetched, RowBytes, RowDecoder, RowFault, Rows, take_value};
pub use server_error::{CLONE_NEEDS_TLS, CLONE_RUNNING, Failure, NOT_ALLOWED, PRIVILEGE_MISSING, ServerError};

use authentication::Plugin;
use handshake::{SwitchRequest, capability};
use packet::{PacketStream, Payload};
use stream::{Stream, TimedSocket};

use super::credentials::Credentials;
use super::url::{ServerAddress, TlsMode};

/// How long the whole login may take.
const LOGIN_LIMIT: Duration = Duration::from_secs(30);
/// How long the server may be silent while it answers a statement.
const SILENCE: Duration = Duration::from_secs(60);
/// Longer timeouts of the server for a session while media are slow or unreachable: otherwise its own settings may end
/// an idle session. (No test could show that a donor uses them: without this, a target that stopped for 8 s did no
/// harm.)
const PATIENT_SESSION: &str = "SET SESSION net_write_timeout = 3600, net_read_timeout = 3600, wait_timeout = 604800, \
                               interactive_timeout = 604800";
/// The longest packet of a login.
const LOGIN_PACKET_MAX: usize = 64 << 10;
/// How many bytes of an invalid greeting are shown.
const FIRST_BYTES: usize = 16;
/// A login needs four packets from the server at most, with a change of the plugin six.
const LOGIN_STEPS_MAX: usize = 8;

/// ER_ACCESS_DENIED_ERROR.
const ACCESS_DENIED: u32 = 1045;

const COM_QUIT: u8 = 1;
const COM_QUERY: u8 = 3;
const COM_STMT_PREPARE: u8 = 22;
const COM_STMT_EXECUTE: u8 = 23;
const COM_STMT_CLOSE: u8 = 25;

/// A connection that is logged in.
pub struct Connection {
    packets: PacketStream,
    greeting: Greeting,
    tls: bool,
    /// The limit of the user.
    read_timeout: Duration,
}

impl Connection {
    /// Connects and logs in.
    pub fn open(address: &ServerAddress, credentials: &Credentials, halt: Option<Halt>) -> Result<Self> {
        Self::open_with(address, credentials, halt, 0)
    }

    /// The same with further capabilities, if the server has them.
    fn open_with(address: &ServerAddress, credentials: &Credentials, halt: Option<Halt>, further: u32) -> Result<Self> {
        let read_timeout = address.read_timeout.unwrap_or(Duration::MAX);
        let mut socket = TimedSocket::connect(address, SILENCE.min(read_timeout), halt)?;
        socket.until = Some(Instant::now() + LOGIN_LIMIT);
        let unix = socket.is_unix();
        let mut packets = PacketStream::new(Stream::Plain(socket), address.name());
        let greeting = read_greeting(&mut packets)?;
        let tls = wants_tls(address, &greeting, unix)?;
        let capabilities = greeting.capabilities & (capability::WANTED | further) | capability::LONG_PASSWORD;
        if tls {
            packets.write(&handshake::tls_request(capabilities))?;
            packets = packets.wrap(|stream| tls::wrap(stream, address))?;
        }
        let login = Login { address, credentials, capabilities, tls, private: tls || unix };
        login.run(&mut packets, &greeting)?;
        packets.stream_mut().socket_mut().until = None;
        Ok(Self { packets, greeting, tls, read_timeout })
    }

    /// The same, for a session that may be idle for long: media may be slow or unreachable for a while.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_patient(address: &ServerAddress, credentials: &Credentials, halt: Option<Halt>) -> Result<Self> {
        let mut connection = Self::open(address, credentials, halt)?;
        connection.query(PATIENT_SESSION)?;
        Ok(connection)
    }

    /// Whether a server greets there, without a login.
    pub fn greets(address: &ServerAddress) -> bool {
        let greeting = || -> Result<()> {
            let mut socket = TimedSocket::connect(address, SILENCE, None)?;
            socket.until = Some(Instant::now() + LOGIN_LIMIT);
            read_greeting(&mut PacketStream::new(Stream::Plain(socket), address.name())).map(drop)
        };
        greeting().is_ok()
    }

    /// The greeting of the server.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The server's name, for errors.
    pub fn name(&self) -> &str {
        &self.packets.name
    }

    /// Runs one statement; returns its result, in the text protocol.
    pub fn query(&mut self, statement: &str) -> Result<ResultSet, Failure> {
        self.send(COM_QUERY, statement.as_bytes())?;
        result_set::read(&mut self.packets)
    }

    /// Sends statements without waiting for their answers, which come in the same order: the caller reads each by
    /// [`answer`](Self::answer) or [`rows`](Self::rows). All of them together must be short, because the server reads no
    /// statement while it sends an answer.
    pub fn send_ahead(&mut self, statements: &[String]) -> Result<()> {
        statements.iter().try_for_each(|statement| self.send(COM_QUERY, statement.as_bytes()))
    }

    /// The answer to the next statement that was sent ahead.
    pub fn answer(&mut self) -> Result<ResultSet, Failure> {
        result_set::read(&mut self.packets)
    }

    /// Runs one statement; `None` if the account lacks the privilege.
    pub fn query_if_allowed(&mut self, statement: &str) -> Result<Option<ResultSet>> {
        match self.query(statement) {
            Ok(answer) => Ok(Some(answer)),
            Err(Failure::Server(error)) if NOT_ALLOWED.contains(&error.code) => Ok(None),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Gives the session a setting, as `NAME = VALUE`, if the server takes it: not every version has it, and not every account may set it.
    pub fn set_if_taken(&mut self, setting: &str) -> Result<()> {
        match self.query(&format!("SET SESSION {setting}")) {
            Err(Failure::Fault(error)) => Err(error),
            Ok(_) | Err(Failure::Server(_)) => Ok(()),
        }
    }

    /// Runs one statement that is not UTF-8, and ignores its result.
    pub fn run_bytes(&mut self, statement: &[u8]) -> Result<(), Failure> {
        self.send(COM_QUERY, statement)?;
        result_set::read(&mut self.packets).map(drop)
    }

    /// Sends a command: its number and its body.
    pub fn send(&mut self, command: u8, body: &[u8]) -> Result<()> {
        let mut payload = Vec::with_capacity(1 + body.len());
        payload.push(command);
        payload.extend_from_slice(body);
        self.packets.restart_sequence();
        let sent = self.packets.write(&payload);
        zeroize::Zeroize::zeroize(&mut payload);
        sent
    }

    /// Sends a command and waits for OK.
    pub fn command(&mut self, command: u8, body: &[u8]) -> Result<(), Failure> {
        self.send(command, body)?;
        let answer = self.packets.read(LOGIN_PACKET_MAX)?;
        match answer.split_first() {
            Some((0x00, _)) => Ok(()),
            Some((0xFF, body)) => Err(Failure::Server(ServerError::parse(&self.packets.name, body))),
            _ => Err(self.packets.broken("its answer is neither OK nor an error").into()),
        }
    }

    /// Starts reading the next message, however long.
    pub fn begin(&mut self) -> Result<Message> {
        self.packets.begin().map(Message)
    }

    /// Fills `buffer` with the next bytes of the message; an error if it has fewer.
    pub fn read_exact(&mut self, message: &mut Message, buffer: &mut [u8]) -> Result<()> {
        self.packets.read_exact(&mut message.0, buffer)
    }

    /// The rest of the message, of at most `limit` bytes.
    pub fn rest(&mut self, message: Message, limit: usize) -> Result<Vec<u8>> {
        self.packets.read_rest(message.0, limit)
    }

    /// An error if the message has more bytes.
    pub fn end(&mut self, mut message: Message) -> Result<()> {
        self.packets.end(&mut message.0)
    }

    /// How long the server may be silent from now on; no longer than the user allows.
    pub fn set_silence(&mut self, limit: Duration) {
        self.packets.stream_mut().socket_mut().silence = limit.min(self.read_timeout);
    }

    /// From now on the job's halt no longer ends reads and writes; `limit` bounds them all in all. For cleaning up.
    pub fn clean_up_within(&mut self, limit: Duration) {
        let socket = self.packets.stream_mut().socket_mut();
        socket.ignore_halt();
        socket.silence = limit;
        socket.until = Some(Instant::now() + limit);
    }

    /// Closes the connection at once, without COM_QUIT: readers of it get an error.
    pub fn shut_down(&self) {
        self.packets.stream().socket().shut_down();
    }

    /// Sends COM_QUIT and closes.
    pub fn quit(mut self) {
        self.clean_up_within(Duration::from_secs(1));
        let _ = self.send(COM_QUIT, &[]); // The server closes in any case.
    }

    /// The error of a server that breaks the protocol.
    pub fn broken(&self, why: &str) -> Error {
        self.packets.broken(why)
    }
}

/// The reader's place in a message of the connection.
pub struct Message(Payload);

fn read_greeting(packets: &mut PacketStream) -> Result<Greeting> {
    let no_greeting = |packets: &PacketStream, bytes: &[u8]| {
        let first = bytes.iter().take(FIRST_BYTES).copied().collect::<Vec<u8>>().escape_ascii().to_string();
        packets.broken(&format!("it does not greet like a MySQL or MariaDB server; it begins with `{first}`"))
    };
    let begun = packets.begin()?;
    if begun.is_longer_than(LOGIN_PACKET_MAX) {
        // The length is the first word of another protocol, such as HTTP.
        return Err(no_greeting(packets, &packets.header_of(begun)));
    }
    let payload = packets.read_rest(begun, LOGIN_PACKET_MAX)?;
    if let Some((0xFF, body)) = payload.split_first() {
        return Err(ServerError::parse(&packets.name, body).into_error());
    }
    let Some(greeting) = Greeting::parse(&payload) else { return Err(no_greeting(packets, &payload)) };
    if greeting.capabilities & capability::NEEDED != capability::NEEDED {
        return Err(packets.broken("its protocol is older than MySQL 5.5"));
    }
    Ok(greeting)
}

/// Whether to begin TLS. `preferred` works without TLS if the server has none, and on a Unix socket, which is private.
fn wants_tls(address: &ServerAddress, greeting: &Greeting, unix: bool) -> Result<bool> {
    let offered = greeting.capabilities & capability::SSL != 0;
    match address.tls.mode {
        TlsMode::Disabled => Ok(false),
        TlsMode::Preferred => Ok(offered && !unix),
        TlsMode::Required | TlsMode::VerifyCa | TlsMode::VerifyIdentity if offered => Ok(true),
        mode => Err(Error::refused(
            address.name(),
            format!("ssl-mode={mode}, but the server offers no TLS"),
            "give the server a certificate (ssl_cert, ssl_key, ssl_ca), or use ssl-mode=disabled on a network you \
             trust",
        )),
    }
}

/// The conversation from the login to OK.
struct Login<'a> {
    address: &'a ServerAddress,
    credentials: &'a Credentials,
    capabilities: u32,
    tls: bool,
    /// True if no one can listen: TLS, or a Unix socket.
    private: bool,
}

impl Login<'_> {
    fn run(&self, packets: &mut PacketStream, greeting: &Greeting) -> Result<()> {
        let password = self.credentials.password();
        // The greeting names the server's default plugin. If the account has another, the server asks to switch.
        let first = Plugin::parse(&greeting.plugin).filter(|plugin| *plugin != Plugin::Sha256);
        let mut plugin = first.unwrap_or(Plugin::Native);
        let mut nonce = greeting.nonce.clone();
        let answer = plugin.answer(password, &nonce);
        let user = self.credentials.user();
        packets.write(&handshake::login(self.capabilities, self.tls, user, plugin.name(), &answer))?;
        for _ in 0..LOGIN_STEPS_MAX {
            let payload = packets.read(LOGIN_PACKET_MAX)?;
            match payload.split_first() {
                Some((0x00, _)) => return Ok(()),
                Some((0xFF, body)) => return Err(self.denied(ServerError::parse(&packets.name, body))),
                Some((0xFE, body)) => {
                    let Some(switch) = SwitchRequest::parse(body) else {
                        return Err(packets.broken("it asks for an authentication method without a name"));
                    };
                    plugin = self.known(&switch.plugin)?;
                    nonce = switch.nonce;
                    match plugin {
                        Plugin::Sha256 => self.send_password(packets, &nonce, 1)?,
                        _ => packets.write(&plugin.answer(password, &nonce))?,
                    }
                }
                Some((0x01, [3])) if plugin == Plugin::CachingSha2 => {} // The account is in the cache: OK follows.
                Some((0x01, [4])) if plugin == Plugin::CachingSha2 => self.send_password(packets, &nonce, 2)?,
                _ => return Err(packets.broken("it sent a message that does not belong to a login")),
            }
        }
        Err(packets.broken("its login does not end"))
    }

    /// A MariaDB server that accepts only encrypted connections (require_secure_transport) says only "Access denied".
    fn denied(&self, error: ServerError) -> Error {
        let denied = error.code == ACCESS_DENIED;
        let error = error.into_error();
        if denied && !self.private {
            return error.noting("or the server accepts only encrypted connections: ssl-mode=required");
        }
        error
    }

    fn known(&self, name: &str) -> Result<Plugin> {
        Plugin::parse(name).ok_or_else(|| {
            Error::refused(
                self.address.name(),
                format!("the account uses the authentication plugin `{name}`, which this program does not know"),
                "use an account with caching_sha2_password, mysql_native_password or ed25519",
            )
        })
    }

    /// The server needs the password itself, because the account is not in its cache, or it has no cache. `ask` is the
    /// plugin's request for the public key.
    fn send_password(&self, packets: &mut PacketStream, nonce: &[u8], ask: u8) -> Result<()> {
        let password = self.credentials.password();
        if self.private {
            let clear = zeroize::Zeroizing::new([password, &[0]].concat());
            return packets.write(&clear);
        }
        if !self.address.tls.accept_server_key {
            return Err(Error::refused(
                self.address.name(),
                "the server needs the password itself, and the connection is not encrypted",
                "use ssl-mode=required; or get-server-public-key=true on a network where no one can impersonate the \
                 server",
            ));
        }
        packets.write(&[ask])?;
        let payload = packets.read(LOGIN_PACKET_MAX)?;
        let sealed = match payload.split_first() {
            Some((0x01, pem)) => authentication::encrypt_password(password, nonce, pem),
            Some((0xFF, body)) => return Err(ServerError::parse(&packets.name, body).into_error()),
            _ => None,
        };
        match sealed {
            Some(sealed) => packets.write(&sealed),
            None => Err(packets.broken("its public key cannot encrypt the password")),
        }
    }
}
