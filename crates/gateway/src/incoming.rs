//! The body of a request on its way to the protocol's library: it ends if no byte comes for too long, if a chunk is too
//! long, or if a body that is taken into memory is.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::{HeaderMap, Method, Uri};
use tokio::time::{Instant, Sleep};

use crate::budget::{Budget, Lease};
use crate::chunks::{CHUNK_MAX, Chunks, Wrong};
use crate::refusals::names;

/// Chunks of up to so many bytes are beside the budget.
const SMALL_CHUNK: u64 = 1 << 20;

/// Why a body ended. Its text tells the answer: the protocol's library gives nothing else on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// No byte came for so long.
    Still(Duration),
    /// Its chunks.
    Chunks(Wrong),
    /// It is a list with more elements than an upload has parts.
    List,
    /// There is no memory left for it.
    Memory,
}

/// Begins the text of each reason.
pub(crate) const STILL: &str = "no byte came for";
/// The same for chunks.
pub(crate) const CHUNKS: &str = "the chunks of the body";
/// The same for the memory.
pub(crate) const MEMORY: &str = "the memory of the gateway";

impl std::fmt::Display for Ended {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Still(limit) => write!(to, "{STILL} {} seconds", limit.as_secs()),
            Self::List => write!(to, "the list has more than {TAGS_MAX} tags"),
            Self::Memory => write!(to, "{MEMORY} is in use by other requests: try again later"),
            Self::Chunks(Wrong::NoLine) => write!(to, "{CHUNKS} have no lengths"),
            Self::Chunks(Wrong::TooLong(length)) => {
                let most = CHUNK_MAX >> 20;
                write!(to, "{CHUNKS} are too long: one has {length} bytes, and may have {most} MiB")
            }
        }
    }
}

impl std::error::Error for Ended {}

/// What bounds the bodies of a server.
#[derive(Clone)]
pub(crate) struct Bounds {
    /// The longest time without a byte.
    pub still: Duration,
    /// The memory of all requests: long chunks take from it.
    pub budget: Budget,
    /// The memory for lists in XML.
    pub lists: Budget,
}

/// Memory of a request that lasts until its answer: its body is read into memory, and is gone before it is used.
pub(crate) type Held = Arc<std::sync::Mutex<Option<Lease>>>;

/// A body that is bounded.
pub(crate) struct Bounded<B> {
    inner: B,
    bounds: Bounds,
    timer: Option<Pin<Box<Sleep>>>,
    chunks: Option<Chunks>,
    chunk: Option<Lease>,
    list: Option<List>,
    held: Held,
}

/// A list in XML, which the protocol's library takes into memory.
struct List {
    /// Memory that it takes.
    bytes: u64,
    /// Elements so far.
    elements: u64,
}

/// Elements of a list, at most: 10,000 parts with a checksum of each have 80,000 tags.
const TAGS_MAX: u64 = 100_000;
/// Memory that a byte of a list may take: an empty part has 13 bytes, and becomes a structure.
const OF_A_BYTE: u64 = 60;
/// Memory that a list may take at most, by its greatest number of elements.
pub(crate) const LIST_MAX: u64 = 36 << 20;

/// The list in the body of a request with this head.
fn list_of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<List> {
    let is_list = *method == Method::POST && names(uri).any(|name| ["uploadid", "delete"].contains(&&name[..]));
    let length =
        headers.get(hyper::header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let bytes = length.map_or(LIST_MAX, |length| length.saturating_mul(OF_A_BYTE).min(LIST_MAX));
    is_list.then_some(List { bytes, elements: 0 })
}

impl<B> Bounded<B> {
    /// The body of a request with this head; `held` has its memory until the answer.
    pub fn new(inner: B, (method, uri, headers): (&Method, &Uri, &HeaderMap), bounds: &Bounds, held: &Held) -> Self {
        let sum = headers.get("x-amz-content-sha256");
        let chunked = sum.is_some_and(|sum| sum.as_bytes().starts_with(b"STREAMING-"));
        Self {
            inner,
            bounds: bounds.clone(),
            timer: None,
            chunks: chunked.then(Chunks::new),
            chunk: None,
            list: list_of(method, uri, headers),
            held: Arc::clone(held),
        }
    }

    /// Checks the next bytes.
    fn follow(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        if let Some(list) = &mut self.list {
            list.elements += bytes.iter().filter(|byte| **byte == b'<').count() as u64;
            if list.elements > TAGS_MAX {
                return Err(Ended::List);
            }
        }
        let Some(chunks) = &mut self.chunks else { return Ok(()) };
        let announced = chunks.follow(bytes).map_err(Ended::Chunks)?;
        match announced {
            0 => {}
            1..=SMALL_CHUNK => self.chunk = None,
            longer => {
                self.chunk = None; // What the last one took may do for this one.
                self.chunk = Some(self.bounds.budget.take(longer).ok_or(Ended::Memory)?);
            }
        }
        Ok(())
    }

    /// Takes the memory for a list, once.
    fn hold(&self) -> Result<(), Ended> {
        let Some(list) = &self.list else { return Ok(()) };
        let mut held = self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if held.is_none() {
            *held = Some(self.bounds.lists.take(list.bytes).ok_or(Ended::Memory)?);
        }
        Ok(())
    }

    /// Waits until a byte came, or too long.
    fn poll_still(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        let still = self.bounds.still;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(still)));
        timer.as_mut().poll(cx).map(|()| Ended::Still(still))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Bounded<B>
where
    B::Error: Into<s3s::StdError>,
{
    type Data = Bytes;
    type Error = s3s::StdError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.get_mut();
        if let Err(ended) = this.hold() {
            return Poll::Ready(Some(Err(ended.into())));
        }
        let Poll::Ready(next) = Pin::new(&mut this.inner).poll_frame(cx) else {
            let ended = ready!(this.poll_still(cx));
            return Poll::Ready(Some(Err(ended.into())));
        };
        let still = this.bounds.still;
        if let Some(timer) = &mut this.timer {
            timer.as_mut().reset(Instant::now() + still);
        }
        let Some(frame) = next else { return Poll::Ready(None) };
        let frame = frame.map_err(Into::into)?;
        let followed = frame.data_ref().map_or(Ok(()), |bytes| this.follow(bytes));
        Poll::Ready(Some(followed.map(|()| frame).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Instant as Moment;

    use http_body_util::BodyExt;
    use tokio::sync::mpsc;

    use super::*;

    /// A body whose bytes a test sends.
    struct Sent(mpsc::UnboundedReceiver<Vec<u8>>);

    impl Body for Sent {
        type Data = Bytes;
        type Error = std::io::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
            self.0.poll_recv(cx).map(|next| next.map(|bytes| Ok(Frame::data(bytes.into()))))
        }
    }

    fn body(
        (method, target): (Method, &str),
        header: (&'static str, &'static str),
        bounds: &Bounds,
        held: &Held,
    ) -> (mpsc::UnboundedSender<Vec<u8>>, Bounded<Sent>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut headers = HeaderMap::new();
        headers.insert(header.0, header.1.parse().unwrap());
        let uri: Uri = target.parse().unwrap();
        (sender, Bounded::new(Sent(receiver), (&method, &uri, &headers), bounds, held))
    }

    fn bounds(budget: u64) -> Bounds {
        let still = Duration::from_millis(400);
        Bounds { still, budget: Budget::new(budget), lists: Budget::new(LIST_MAX) }
    }

    async fn end(body: Bounded<Sent>) -> String {
        body.collect().await.err().map(|error| error.to_string()).unwrap_or_default()
    }

    const SIGNED: (&str, &str) = ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD");

    #[tokio::test]
    async fn a_body_that_stands_still_ends_and_one_that_comes_slowly_does_not() {
        let (bounds, held) = (bounds(0), Held::default());
        let (sender, slow) = body((Method::PUT, "/b/k"), SIGNED, &bounds, &held);
        let begun = Moment::now();
        let send = async {
            for byte in b"5\r\nhello\r\n0\r\n\r\n" {
                tokio::time::sleep(bounds.still / 8).await;
                sender.send(vec![*byte]).unwrap();
            }
            drop(sender);
        };
        let (ended, ()) = tokio::join!(end(slow), send);
        assert_eq!(ended, "");
        assert!(begun.elapsed() > bounds.still);
        let (sender, still) = body((Method::POST, "/b?delete"), ("content-length", "9"), &bounds, &held);
        sender.send(b"<Delete>".to_vec()).unwrap();
        assert!(end(still).await.starts_with(STILL));
    }

    #[tokio::test]
    async fn long_chunks_take_memory_from_the_budget_and_longer_ones_are_refused() {
        let (bounds, held) = (bounds(3 << 20), Held::default());
        for (length, said) in [(3_u64 << 20, ""), (4 << 20, MEMORY), (CHUNK_MAX + 1, CHUNKS)] {
            let (sender, chunked) = body((Method::PUT, "/b/k"), SIGNED, &bounds, &held);
            sender.send(format!("{length:x}\r\n").into_bytes()).unwrap();
            drop(sender);
            assert!(end(chunked).await.starts_with(said), "{length}");
            assert!(bounds.budget.take(3 << 20).is_some(), "all memory is back");
        }
    }

    #[tokio::test]
    async fn a_list_holds_memory_until_its_answer_and_has_no_more_tags_than_an_upload_has_parts() {
        let (bounds, held) = (bounds(0), Held::default());
        let target = (Method::POST, "/b/k?uploadId=7");
        let (sender, list) = body(target.clone(), ("content-length", "1000000"), &bounds, &held);
        drop(sender);
        assert_eq!(end(list).await, "");
        let (_sender, other) = body(target.clone(), ("content-length", "1000000"), &bounds, &Held::default());
        assert!(end(other).await.starts_with(MEMORY));
        drop(held);
        let (sender, many) = body(target, ("content-length", "1000000"), &bounds, &Held::default());
        sender.send(b"<Part></Part>".repeat(60_000)).unwrap();
        assert!(end(many).await.contains("tags"));
    }
}
