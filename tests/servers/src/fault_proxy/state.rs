//! What the proxy's threads share: the rule, the record of all requests, and the way to end everything.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use super::connection::Socket;
use super::fault::{Fault, Request};
use super::http::Head;

const CONNECT: Duration = Duration::from_secs(5);

pub(super) type Rule = dyn Fn(&Request) -> Fault + Send + Sync;

/// Whom a socket leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Store,
}

/// A request that came, and what became of it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// As the rule saw it.
    pub request: Request,
    /// What the rule decided.
    pub fault: Fault,
    /// What the store answered, if it was asked and heard to the end of its head.
    pub store_status: Option<u16>,
    /// What the client was told, if it was told anything: with a truncated answer, that the head said so.
    pub status: Option<u16>,
    /// Bytes of answers that came from the store to the client, heads included.
    pub answered_bytes: u64,
}

pub(super) struct State {
    store: SocketAddr,
    rule: RwLock<Arc<Rule>>,
    seen: Mutex<Vec<Seen>>,
    attempts: Mutex<HashMap<String, u32>>,
    stopped: Mutex<bool>,
    stop: Condvar,
    /// Locked before `stopped`: a socket that comes later finds that it is over.
    sockets: Mutex<Vec<(Weak<TcpStream>, Side)>>,
}

/// A thread that panicked (in a test's rule) is no reason for others to do so.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    pub(super) fn new(store: SocketAddr, rule: Arc<Rule>) -> Self {
        Self {
            store,
            rule: RwLock::new(rule),
            seen: Mutex::default(),
            attempts: Mutex::default(),
            stopped: Mutex::default(),
            stop: Condvar::new(),
            sockets: Mutex::default(),
        }
    }

    pub(super) fn set_rule(&self, rule: Arc<Rule>) {
        *self.rule.write().unwrap_or_else(PoisonError::into_inner) = rule;
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        lock(&self.seen).clone()
    }

    /// Takes a request into the record.
    pub(super) fn arrived(&self, head: &Head) -> Request {
        let mut words = head.first_line.split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let (path, query) = (path.to_owned(), query.to_owned());
        let mut request = Request { number: 0, attempt: 0, method, path, query, headers: head.headers.clone() };
        {
            let mut attempts = lock(&self.attempts);
            let attempt = attempts.entry(request.identity()).or_default();
            request.attempt = *attempt;
            *attempt += 1;
        }
        let mut seen = lock(&self.seen);
        request.number = seen.len() as u64;
        seen.push(Seen {
            request: request.clone(),
            fault: Fault::Pass,
            store_status: None,
            status: None,
            answered_bytes: 0,
        });
        request
    }

    /// Asks the rule.
    pub(super) fn decide(&self, request: &Request) -> Fault {
        // Not under the lock: a rule may wait for another request.
        let rule = Arc::clone(&self.rule.read().unwrap_or_else(PoisonError::into_inner));
        let fault = rule(request);
        self.note(request.number, |seen| seen.fault = fault.clone());
        fault
    }

    /// What the store said, and what the client is told: what is not none is taken into the record.
    pub(super) fn answered(&self, number: u64, store_status: Option<u16>, status: Option<u16>) {
        self.note(number, |seen| {
            seen.store_status = store_status.or(seen.store_status);
            seen.status = status.or(seen.status);
        });
    }

    /// So many bytes are about to go to the client.
    pub(super) fn giving(&self, number: u64, bytes: usize) {
        self.note(number, |seen| seen.answered_bytes += bytes as u64);
    }

    fn note(&self, number: u64, change: impl FnOnce(&mut Seen)) {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(seen) = lock(&self.seen).get_mut(number) {
            change(seen);
        }
    }

    /// A new connection to the store.
    pub(super) fn connect(&self) -> io::Result<Socket> {
        self.adopt(TcpStream::connect_timeout(&self.store, CONNECT)?, Side::Store)
    }

    /// Takes a socket among those that the end shuts down.
    pub(super) fn adopt(&self, stream: TcpStream, side: Side) -> io::Result<Socket> {
        // What is sent in two writes must not wait for an acknowledgement in between.
        stream.set_nodelay(true)?;
        let stream = Arc::new(stream);
        let mut sockets = lock(&self.sockets);
        if self.stopped() {
            return Err(io::Error::other("the proxy has ended"));
        }
        sockets.retain(|(socket, _)| socket.strong_count() > 0);
        sockets.push((Arc::downgrade(&stream), side));
        Ok(Socket(stream))
    }

    pub(super) fn stopped(&self) -> bool {
        *lock(&self.stopped)
    }

    /// Waits that long, or until the end.
    pub(super) fn wait(&self, time: Duration) {
        let stopped = lock(&self.stopped);
        let _ = self.stop.wait_timeout_while(stopped, time, |stopped| !*stopped);
    }

    /// Ends every wait and what is read. A client's socket stays open for its thread to reset: one that were closed in an
    /// orderly way could make the client take the half of an answer for all of it.
    pub(super) fn end(&self) {
        let sockets = lock(&self.sockets);
        *lock(&self.stopped) = true;
        self.stop.notify_all();
        for (socket, side) in sockets.iter().filter_map(|(socket, side)| Some((socket.upgrade()?, *side))) {
            // It may be closed already.
            let _ = socket.shutdown(if side == Side::Client { Shutdown::Read } else { Shutdown::Both });
        }
    }

    /// Ends what is written too, to a client that does not read.
    pub(super) fn end_writing(&self) {
        for (socket, _) in lock(&self.sockets).iter() {
            let _ = socket.upgrade().map(|socket| socket.shutdown(Shutdown::Both));
        }
    }
}
