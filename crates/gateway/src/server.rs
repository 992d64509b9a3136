//! The server: connections, TLS, and the end of all of it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fullbore_core::{Error, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::front::{Front, GREETING};
use crate::gateway::{Gateway, Tell};
use crate::keys::Keys;
use crate::storage::Storage;
use crate::tls;

/// Connections at the same time, at most.
const CONNECTIONS_MAX: usize = 512;
/// Threads that move bytes between sockets and buffers.
const THREADS_MAX: usize = 4;
/// Threads that wait for the storage, at most.
const WAITING_MAX: usize = 512;
/// The time between two looks at whether the gateway is to end.
const TICK: Duration = Duration::from_millis(100);
/// How long running requests may take at the end.
const FAREWELL: Duration = Duration::from_secs(20);

/// What the gateway is started with.
#[derive(Clone)]
pub struct Settings {
    /// `--listen`: an address with a port.
    pub listen: String,
    /// The certificate, and those that it is signed by.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// `--memory`, in bytes.
    pub memory: u64,
    /// `--idle-timeout`: uploads without a byte for so long end.
    pub still: Duration,
    /// `--trace`.
    pub trace: bool,
}

/// Serves until `ends` is true. Tells the address once it listens.
///
/// # Errors
/// The address cannot be used, a file of TLS is wrong, or the budget is too small for one upload.
pub fn serve(
    settings: &Settings,
    keys: Keys,
    storage: Arc<dyn Storage>,
    tell: Tell,
    ends: &(dyn Fn() -> bool + Sync),
) -> Result<()> {
    let acceptor = tls::acceptor(&settings.certificate, &settings.key)?;
    let gateway = Arc::new(Gateway::new(storage, settings.memory, settings.still, &tell));
    gateway.must_hold_one()?;
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(THREADS_MAX);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(WAITING_MAX)
        .thread_name("gateway")
        .enable_all()
        .build()
        .map_err(|e| Error::io("start the threads of", "the gateway", e))?;
    let front = Front::new(keys, &gateway, settings.trace);
    let done = runtime.block_on(async {
        let listener = listen(&settings.listen).await?;
        let address = listener.local_addr().map_err(|e| Error::io("listen on", &settings.listen, e))?;
        tell(&format!("listening on https://{address}"));
        let looks = tokio::spawn(Arc::clone(&gateway).end_still_uploads(still_looks(settings.still)));
        accept(&listener, &acceptor, &front, &gateway, ends).await;
        looks.abort();
        Ok(())
    });
    // Bodies that still wait for a client end with their threads' time limits.
    runtime.shutdown_timeout(FAREWELL);
    done
}

/// How often uploads that stand still are looked for.
fn still_looks(still: Duration) -> Duration {
    (still / 4).clamp(Duration::from_millis(100), Duration::from_secs(10))
}

async fn listen(address: &str) -> Result<TcpListener> {
    let hint = "write an address and a port: 0.0.0.0:9443";
    let found: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|e| Error::usage(format!("--listen {address}"), e.to_string(), hint))?
        .collect();
    let first = found.first().ok_or_else(|| Error::usage(format!("--listen {address}"), "is no address", hint))?;
    TcpListener::bind(first).await.map_err(|e| Error::io("listen on", address, e))
}

/// Takes connections until the gateway is to end, and then waits for the requests that run.
async fn accept(
    listener: &TcpListener,
    acceptor: &TlsAcceptor,
    front: &Front,
    gateway: &Arc<Gateway>,
    ends: &(dyn Fn() -> bool + Sync),
) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (close, closing) = watch::channel(false);
    while !ends() {
        let Ok(taken) = tokio::time::timeout(TICK, listener.accept()).await else { continue };
        let (Ok((stream, peer)), Ok(permit)) = (taken, Arc::clone(&room).try_acquire_owned()) else {
            // Too many connections, or too many open files: a moment later there may be fewer.
            tokio::time::sleep(TICK).await;
            continue;
        };
        let (acceptor, front, closing) = (acceptor.clone(), front.clone(), closing.clone());
        tokio::spawn(async move {
            connection(stream, peer, &acceptor, front, closing).await;
            drop(permit);
        });
    }
    front.tell("ending: new uploads are refused");
    gateway.ending.store(true, Ordering::Release);
    let _ = close.send(true); // Without a connection nobody listens.
    let all = u32::try_from(CONNECTIONS_MAX).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(FAREWELL, room.acquire_many(all)).await; // Uploads that are left are ended below.
    gateway.end_all_uploads(FAREWELL).await;
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: &TlsAcceptor,
    front: Front,
    closing: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true); // It only makes answers faster.
    match tokio::time::timeout(GREETING, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => front.serve(stream, &peer.to_string(), closing).await,
        Ok(Err(error)) => front.tell(&format!("{peer}: no TLS connection: {error}")),
        Err(_) => {}
    }
}
