//! A network that breaks: passes the bytes between a client and a server on loopback, until a test cuts it or silences it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const PASSES: u8 = 0;
/// Both ends of every connection see it closed.
const CUT: u8 = 1;
/// Nothing arrives any more, and nobody is told.
const SILENT: u8 = 2;

/// How often a thread that has nothing to pass on looks what is wanted.
const TICK: Duration = Duration::from_millis(20);

/// A network on a port of its own. Dropped, it cuts whatever goes through it.
pub struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    mode: AtomicU8,
    /// Bytes from the server so far, over all connections.
    received: AtomicU64,
    /// Both ends of all connections.
    open: Mutex<Vec<(TcpStream, TcpStream)>>,
    /// Two texts of one length: the first, where it stands in what the server says first, becomes the second.
    greeting: Option<(&'static str, &'static str)>,
}

impl Proxy {
    /// To the server on this port.
    pub fn to(server: u16) -> Self {
        Self::start(server, None)
    }

    /// The same, to a server that says something else of itself when it greets.
    pub fn to_one_that_says(server: u16, what: &'static str, instead: &'static str) -> Self {
        assert_eq!(what.len(), instead.len());
        Self::start(server, Some((what, instead)))
    }

    fn start(server: u16, greeting: Option<(&'static str, &'static str)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared =
            Shared { mode: AtomicU8::new(PASSES), received: AtomicU64::new(0), open: Mutex::default(), greeting };
        let shared = Arc::new(shared);
        let accepting = Arc::downgrade(&shared);
        // Ends with the first connection after the proxy is gone, or with the process.
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Some(shared)) = (client, accepting.upgrade()) else { return };
                // A server that is gone: the client sees its connection closed.
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                shared.join(&client, &server);
            }
        });
        Self { port, shared }
    }

    /// Bytes that the server has sent so far.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }

    /// Waits until the server has sent so much.
    pub fn wait_for(&self, bytes: u64) {
        let patience = Instant::now();
        while self.received() < bytes {
            assert!(patience.elapsed() < Duration::from_secs(60), "{} bytes in a minute", self.received());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Closes every connection at both ends.
    pub fn cut(&self) {
        self.shared.mode.store(CUT, Ordering::Relaxed);
        for (client, server) in self.shared.open.lock().unwrap().drain(..) {
            let _ = client.shutdown(Shutdown::Both); // It may be closed already.
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    /// From now on nothing arrives at either end, as behind a firewall that has forgotten the connections.
    pub fn silence(&self) {
        self.shared.mode.store(SILENT, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Shared {
    fn join(self: &Arc<Self>, client: &TcpStream, server: &TcpStream) {
        let ends = |stream: &TcpStream| stream.try_clone().unwrap();
        self.open.lock().unwrap().push((ends(client), ends(server)));
        let (from_client, to_server, from_server, to_client) = (ends(client), ends(server), ends(server), ends(client));
        let (up, down) = (Arc::clone(self), Arc::clone(self));
        thread::spawn(move || up.pass(from_client, to_server, false));
        thread::spawn(move || down.pass(from_server, to_client, true));
    }

    fn pass(&self, mut from: TcpStream, mut to: TcpStream, of_server: bool) {
        let mut buffer = vec![0; 64 << 10];
        let mut first = of_server;
        from.set_read_timeout(Some(TICK)).unwrap();
        loop {
            match self.mode.load(Ordering::Relaxed) {
                CUT => break,
                SILENT => {
                    thread::sleep(TICK);
                    continue;
                }
                _ => {}
            }
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    if let (true, Some((what, instead))) = (std::mem::take(&mut first), self.greeting) {
                        replace(&mut buffer[..length], what.as_bytes(), instead.as_bytes());
                    }
                    if of_server {
                        self.received.fetch_add(length as u64, Ordering::Relaxed);
                    }
                    if to.write_all(&buffer[..length]).is_err() {
                        break;
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}

fn replace(bytes: &mut [u8], what: &[u8], instead: &[u8]) {
    if let Some(at) = bytes.windows(what.len()).position(|window| window == what) {
        bytes[at..at + what.len()].copy_from_slice(instead);
    }
}
