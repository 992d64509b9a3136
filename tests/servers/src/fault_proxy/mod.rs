//! A proxy between a client and a store that makes requests fail as networks and stores do: one fault per request, by rule.
//!
//! It speaks plain HTTP/1.1 and passes everything on as it came: the signature stays valid, because the client has
//! signed the proxy's own `Host` and the store believes that.
//!
//! ```no_run
//! use fullbore_test_servers::{At, Fault, FaultProxy, ObjectStore, StoreKind, StoreOptions};
//!
//! let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
//! let proxy = FaultProxy::start(store.endpoint(), |request| match (request.operation(), request.attempt) {
//!     ("UploadPart", 0) => Fault::Reset(At::Answer),
//!     _ => Fault::Pass,
//! });
//! std::process::Command::new("fullbore").envs(store.environment_at(proxy.endpoint()));
//! assert!(proxy.requests().iter().any(|seen| seen.store_status == Some(200) && seen.status.is_none()));
//! ```

mod connection;
mod fault;
mod http;
mod state;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fmt, mem};

pub use fault::{At, Fault, Plan, Request, Which};
pub use state::Seen;

use connection::Connection;
use state::{Side, State};

/// How long the threads may take to reset their connections before these are closed for them.
const PARTING: Duration = Duration::from_millis(500);

type Threads = Arc<Mutex<Vec<JoinHandle<()>>>>;

/// A running proxy. All its connections and threads end when it is dropped, whatever they wait for.
pub struct FaultProxy {
    state: Arc<State>,
    address: SocketAddr,
    endpoint: String,
    acceptor: Option<JoinHandle<()>>,
    threads: Threads,
}

impl fmt::Debug for FaultProxy {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "FaultProxy({})", self.endpoint)
    }
}

impl FaultProxy {
    /// Starts a proxy before the store at `http://HOST:PORT`; `rule` decides about each request.
    ///
    /// # Panics
    /// If that is no such endpoint, or there is no port.
    pub fn start(store: &str, rule: impl Fn(&Request) -> Fault + Send + Sync + 'static) -> Self {
        let address = store.strip_prefix("http://").map(|rest| rest.trim_end_matches('/').to_socket_addrs());
        let address = address.and_then(Result::ok).and_then(|mut addresses| addresses.next());
        let address = address.unwrap_or_else(|| panic!("`{store}` is not http://HOST:PORT"));
        let state = Arc::new(State::new(address, Arc::new(rule)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no port for a proxy: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("a socket without an address: {error}"));
        let threads = Threads::default();
        let acceptor = {
            let (state, threads) = (Arc::clone(&state), Arc::clone(&threads));
            thread::spawn(move || accept(&listener, &state, &threads))
        };
        Self { state, address, endpoint: format!("http://{address}"), acceptor: Some(acceptor), threads }
    }

    /// `http://127.0.0.1:PORT`
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Another rule, for the requests that come from now on.
    pub fn set_rule(&self, rule: impl Fn(&Request) -> Fault + Send + Sync + 'static) {
        self.state.set_rule(Arc::new(rule));
    }

    /// All requests so far, in the order in which they came; those that are under way too.
    pub fn requests(&self) -> Vec<Seen> {
        self.state.seen()
    }

    /// How many requests had which fault, by `Fault::name`.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        self.state.seen().iter().fold(BTreeMap::new(), |mut counts, seen| {
            *counts.entry(seen.fault.name()).or_default() += 1;
            counts
        })
    }

    /// How many requests had a fault.
    pub fn faults(&self) -> usize {
        self.state.seen().iter().filter(|seen| seen.fault != Fault::Pass).count()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.state.end();
        // The acceptor looks whether it is over when somebody comes.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        let threads = mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let started = Instant::now();
        while started.elapsed() < PARTING && !threads.iter().all(JoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(5));
        }
        self.state.end_writing();
        for thread in threads {
            // A test's rule that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>, threads: &Threads) {
    for stream in listener.incoming() {
        if state.stopped() {
            return;
        }
        // A connection that was gone before it was accepted is not the listener's end.
        let Ok(socket) = stream.and_then(|stream| state.adopt(stream, Side::Client)) else { continue };
        let state = Arc::clone(state);
        let thread = thread::spawn(move || Connection::new(&state, socket).serve());
        let mut threads = threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }
}
