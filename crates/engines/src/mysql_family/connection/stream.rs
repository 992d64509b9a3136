//! Bytes to and from a server, over TCP or a Unix socket, with a deadline on every read and write.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};
use rustls::{ClientConnection, StreamOwned};

use super::super::url::{Endpoint, ServerAddress};

/// How long one system call waits before the deadline and the halt are checked.
const SLICE: Duration = Duration::from_millis(100);

/// How long one host address may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket whose reads and writes end: with bytes, at a deadline, or when the job is stopped.
pub(super) struct TimedSocket {
    socket: Socket,
    /// How long the server may send nothing, and how long it may receive nothing.
    pub silence: Duration,
    /// The deadline for everything: a handshake could otherwise be prolonged byte by byte.
    pub until: Option<Instant>,
    halt: Option<Halt>,
}

impl TimedSocket {
    /// Connects to the first address of the host that answers, or to the socket's path.
    pub fn connect(address: &ServerAddress, silence: Duration, halt: Option<Halt>) -> Result<Self> {
        let socket = match &address.endpoint {
            Endpoint::Socket(path) => {
                let thing = path.display().to_string();
                let hint = "check that the server runs, and that this is its socket (SELECT @@socket)";
                let stream = UnixStream::connect(path).map_err(|error| unreachable_server(&thing, &error, hint))?;
                Socket::Unix(stream)
            }
            Endpoint::Tcp { host, port } => Socket::Tcp(connect_tcp(host, *port, halt.as_ref())?),
        };
        let timed = Self { socket, silence, until: None, halt };
        timed
            .set_slices()
            .map_err(|error| Error::io("set the deadline of the connection to", address.name(), error))?;
        Ok(timed)
    }

    fn set_slices(&self) -> io::Result<()> {
        match &self.socket {
            Socket::Tcp(stream) => {
                // Requests are small and the server waits for each.
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(SLICE))?;
                stream.set_write_timeout(Some(SLICE))
            }
            Socket::Unix(stream) => {
                stream.set_read_timeout(Some(SLICE))?;
                stream.set_write_timeout(Some(SLICE))
            }
        }
    }

    pub fn is_unix(&self) -> bool {
        matches!(self.socket, Socket::Unix(_))
    }

    /// From now on the job's halt no longer ends reads and writes: for cleaning up after it.
    pub fn ignore_halt(&mut self) {
        self.halt = None;
    }

    pub fn is_halted(&self) -> bool {
        self.halt.as_ref().is_some_and(Halt::is_stopped)
    }

    /// Ends both directions at once.
    pub fn shut_down(&self) {
        // It may be closed already.
        let _ = match &self.socket {
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }

    /// Repeats `attempt` until it has moved bytes or failed, or a limit is reached.
    fn within_limits(&mut self, mut attempt: impl FnMut(&mut Socket) -> io::Result<usize>) -> io::Result<usize> {
        let started = Instant::now();
        loop {
            if self.is_halted() {
                return Err(io::Error::other("the job was stopped"));
            }
            match attempt(&mut self.socket) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if started.elapsed() >= self.silence {
                        let seconds = self.silence.as_secs_f32();
                        let text = format!("the server was silent for {seconds:.0} s");
                        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                    }
                }
                done => return done,
            }
            if self.until.is_some_and(|until| Instant::now() >= until) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the server took too long"));
            }
        }
    }
}

impl Read for TimedSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.within_limits(|socket| match socket {
            Socket::Tcp(stream) => stream.read(buffer),
            Socket::Unix(stream) => stream.read(buffer),
        })
    }
}

impl Write for TimedSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.within_limits(|socket| match socket {
            Socket::Tcp(stream) => stream.write(bytes),
            Socket::Unix(stream) => stream.write(bytes),
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // Sockets have no buffer.
    }
}

/// The socket, with or without TLS around it.
pub(super) enum Stream {
    Plain(TimedSocket),
    Tls(Box<StreamOwned<ClientConnection, TimedSocket>>),
}

impl Stream {
    pub fn socket(&self) -> &TimedSocket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => &tls.sock,
        }
    }

    pub fn socket_mut(&mut self) -> &mut TimedSocket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => &mut tls.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(buffer),
            Stream::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}

fn connect_tcp(host: &str, port: u16, halt: Option<&Halt>) -> Result<TcpStream> {
    let thing = format!("{host}:{port}");
    let hint = "check host and port, and that the server listens there (bind_address, skip_networking, a firewall)";
    let addresses = (host, port).to_socket_addrs().map_err(|error| unreachable_server(&thing, &error, hint))?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    // A name with a hundred addresses would cause a hundred waits.
    for address in addresses.take(8) {
        if let Some(halt) = halt {
            halt.check()?;
        }
        match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(unreachable_server(&thing, &last, hint))
}

fn unreachable_server(thing: &str, error: &io::Error, hint: &str) -> Error {
    Error::refused(thing, format!("the server cannot be reached: {error}"), hint)
}
