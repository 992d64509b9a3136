//! The server: connections, TLS, and the end of all of it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fullbore_core::{Error, Result};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::validation::NameValidation;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::budget::Budget;
use crate::gateway::Gateway;
pub use crate::gateway::Tell;
use crate::incoming::{Bounded, Bounds, Held, LIST_MAX};
use crate::keys::{HasSigned, Keys};
use crate::patience::Patience;
use crate::requests::Shared;
use crate::storage::Storage;
use crate::uploads::Uploads;
use crate::{refusals, tls, trace};

/// Connections at the same time, at most.
const CONNECTIONS_MAX: usize = 512;
/// Bytes that a connection holds before the gateway takes them: of all connections together half of the 64 MiB beside the
/// budget.
const CONNECTION_BUFFER: usize = 64 << 10;
/// The longest time until a connection has its TLS, and the same until it has signed a request with a key: clients without
/// one must not hold the connections.
const GREETING: Duration = Duration::from_secs(20);
/// The longest time until a connection has the headers of its next request: between two parts, a client may have to read a
/// slow disk.
const BETWEEN_REQUESTS: Duration = Duration::from_secs(120);
/// Threads that move bytes between sockets and buffers.
const THREADS_MAX: usize = 4;
/// Threads that wait for the storage, at most.
const WAITING_MAX: usize = 512;
/// Bytes of an XML body: a list of 10,000 parts has about 2 MB.
const XML_MAX: usize = 4 << 20;
/// The memory for lists in XML. Lists must not wait for uploads, which wait for their lists.
const LISTS: u64 = 2 * LIST_MAX;
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

/// Names that are buckets anyway: the storage knows them. They need not obey the rules for new buckets.
struct AnyBucket;

impl NameValidation for AnyBucket {
    fn validate_bucket_name(&self, name: &str) -> bool {
        !name.is_empty() && name.len() <= 255
    }
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
    let gateway = Arc::new(Gateway {
        storage,
        budget: Budget::new(settings.memory),
        uploads: Uploads::default(),
        still: settings.still,
        ending: AtomicBool::new(false),
        tell: Arc::clone(&tell),
    });
    gateway.must_hold_one()?;
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(THREADS_MAX);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(WAITING_MAX)
        .thread_name("gateway")
        .enable_all()
        .build()
        .map_err(|e| Error::io("start the threads of", "the gateway", e))?;
    let bounds = Bounds { still: settings.still, budget: gateway.budget.clone(), lists: Budget::new(LISTS) };
    let protocol = protocol(keys, &gateway);
    let service = Service { protocol, bounds, tell, trace: settings.trace, requests: Arc::default() };
    let done = runtime.block_on(async {
        let listener = listen(&settings.listen).await?;
        let address = listener.local_addr().map_err(|e| Error::io("listen on", &settings.listen, e))?;
        (service.tell)(&format!("listening on https://{address}"));
        let looks = tokio::spawn(Arc::clone(&gateway).end_still_uploads(still_looks(settings.still)));
        accept(&listener, &acceptor, &service, &gateway, ends).await;
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

fn protocol(keys: Keys, gateway: &Arc<Gateway>) -> S3Service {
    let mut config = S3Config::default();
    config.xml_max_body_size = XML_MAX;
    // Uploads by forms of browsers would be taken into memory.
    (config.post_object_max_file_size, config.form_max_field_size) = (1, 1024);
    (config.form_max_fields_size, config.form_max_parts) = (16 << 10, 16);
    let mut builder = S3ServiceBuilder::new(Shared(Arc::clone(gateway), keys.clone()));
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    builder.set_auth(keys.clone());
    builder.set_access(keys);
    builder.set_validation(AnyBucket);
    builder.build()
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
    service: &Service,
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
        let (acceptor, service, closing) = (acceptor.clone(), service.clone(), closing.clone());
        tokio::spawn(async move {
            connection(stream, peer, &acceptor, service, closing).await;
            drop(permit);
        });
    }
    (service.tell)("ending: new uploads are refused");
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
    service: Service,
    mut closing: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true); // It only makes answers faster.
    let stream = match tokio::time::timeout(GREETING, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return (service.tell)(&format!("{peer}: no TLS connection: {error}")),
        Err(_) => return,
    };
    let peer = peer.to_string();
    let known = HasSigned::default();
    let answer = service_fn(|request| service.answer(request, &peer, &known));
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(BETWEEN_REQUESTS).max_buf_size(CONNECTION_BUFFER);
    let stream = Patience::new(stream, service.bounds.still);
    let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), answer));
    let is_closing = async {
        let _ = closing.wait_for(|closing| *closing).await; // The server is gone: it ends as well.
    };
    let first = tokio::select! {
        done = serving.as_mut() => Some(done),
        () = is_closing => None,
        () = stays_unknown(&known, GREETING) => return,
    };
    let done = match first {
        Some(done) => done,
        None => {
            // The request that runs is answered, and no other is taken.
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let (Err(error), true) = (done, service.trace) {
        (service.tell)(&format!("trace: connection from {peer} ended: {error}"));
    }
}

/// Returns after this time if the client has signed no request with a key until then.
async fn stays_unknown(known: &HasSigned, limit: Duration) {
    tokio::time::sleep(limit).await;
    if known.0.load(Ordering::Acquire) {
        std::future::pending::<()>().await;
    }
}

/// The protocol, with a trace around it.
#[derive(Clone)]
struct Service {
    protocol: S3Service,
    bounds: Bounds,
    tell: Tell,
    trace: bool,
    requests: Arc<AtomicU64>,
}

impl Service {
    async fn answer(
        &self,
        request: hyper::Request<Incoming>,
        peer: &str,
        known: &HasSigned,
    ) -> Result<s3s::HttpResponse, s3s::HttpError> {
        let (number, begun) = (self.requests.fetch_add(1, Ordering::Relaxed) + 1, Instant::now());
        if self.trace {
            let (method, uri, headers) = (request.method(), request.uri(), request.headers());
            (self.tell)(&trace::request(number, peer, method, uri, headers));
        }
        let answered = match refusals::refusal(request.method(), request.uri(), request.headers()) {
            Some(refusal) => Ok(refusal.answer()),
            None => {
                // It lasts until the answer.
                let held = Held::default();
                let (mut head, body) = request.into_parts();
                let body = Bounded::new(body, (&head.method, &head.uri, &head.headers), &self.bounds, &held);
                head.extensions.insert(known.clone());
                let request = hyper::Request::from_parts(head, s3s::Body::http_body_unsync(body));
                self.protocol.call(request).await
            }
        };
        if let (Ok(answer), true) = (&answered, self.trace) {
            let after = begun.elapsed().as_millis();
            (self.tell)(&trace::answer(number, answer.status(), answer.headers(), after));
        }
        answered
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_client_without_a_key_has_a_time_limit_and_one_with_a_key_has_none() {
        let (known, limit) = (HasSigned::default(), Duration::from_millis(50));
        stays_unknown(&known, limit).await;
        known.0.store(true, Ordering::Release);
        assert!(tokio::time::timeout(limit * 4, stays_unknown(&known, limit)).await.is_err());
    }
}
