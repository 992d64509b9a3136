//! What a client meets once it is connected: HTTP, the refusals, the bounds of bodies, and the protocol behind them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::validation::NameValidation;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use crate::budget::Budget;
use crate::gateway::{Gateway, Tell};
use crate::incoming::{Bounded, Bounds, Held, LIST_MAX};
use crate::keys::{HasSigned, Keys};
use crate::patience::Patience;
use crate::requests::Shared;
use crate::{refusals, trace};

/// Bytes that a connection holds before the gateway takes them: of all connections together half of the 64 MiB beside the
/// budget.
const CONNECTION_BUFFER: usize = 64 << 10;
/// The longest time until a connection has its TLS, and the same until it has signed a request with a key: clients without
/// one must not hold the connections.
pub(crate) const GREETING: Duration = Duration::from_secs(20);
/// The longest time until a connection has the headers of its next request: between two parts, a client may have to read a
/// slow disk.
const BETWEEN_REQUESTS: Duration = Duration::from_secs(120);
/// Bytes of an XML body: a list of 10,000 parts has about 2 MB.
const XML_MAX: usize = 4 << 20;
/// The memory for lists in XML. Lists must not wait for uploads, which wait for their lists.
const LISTS: u64 = 2 * LIST_MAX;

/// Names that are buckets anyway: the storage knows them. They need not obey the rules for new buckets.
struct AnyBucket;

impl NameValidation for AnyBucket {
    fn validate_bucket_name(&self, name: &str) -> bool {
        !name.is_empty() && name.len() <= 255
    }
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

/// The protocol, with a trace around it.
#[derive(Clone)]
pub(crate) struct Front {
    protocol: S3Service,
    bounds: Bounds,
    tell: Tell,
    trace: bool,
    requests: Arc<AtomicU64>,
    half_close: bool,
}

impl Front {
    /// Of a gateway, for the clients with these keys.
    pub fn new(keys: Keys, gateway: &Arc<Gateway>, trace: bool) -> Self {
        let bounds = Bounds { still: gateway.still, budget: gateway.budget.clone(), lists: Budget::new(LISTS) };
        let (protocol, tell) = (protocol(keys, gateway), Arc::clone(&gateway.tell));
        Self { protocol, bounds, tell, trace, requests: Arc::default(), half_close: false }
    }

    /// The same for clients that end their side of a connection before they read the answer.
    #[cfg(feature = "testkit")]
    pub fn half_closing(self) -> Self {
        Self { half_close: true, ..self }
    }

    /// Writes a line into the log.
    pub fn tell(&self, line: &str) {
        (self.tell)(line);
    }

    /// Answers the requests of a connection, until it ends or the gateway does.
    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        peer: &str,
        mut closing: watch::Receiver<bool>,
    ) {
        let known = HasSigned::default();
        let answer = service_fn(|request| self.answer(request, peer, &known));
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.half_close(self.half_close);
        builder.timer(TokioTimer::new()).header_read_timeout(BETWEEN_REQUESTS).max_buf_size(CONNECTION_BUFFER);
        let stream = Patience::new(stream, self.bounds.still);
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
        if let (Err(error), true) = (done, self.trace) {
            self.tell(&format!("trace: connection from {peer} ended: {error}"));
        }
    }

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

/// Returns after this time if the client has signed no request with a key until then.
async fn stays_unknown(known: &HasSigned, limit: Duration) {
    tokio::time::sleep(limit).await;
    if known.0.load(Ordering::Acquire) {
        std::future::pending::<()>().await;
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
