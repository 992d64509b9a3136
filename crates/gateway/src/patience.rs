//! A connection whose client has to take bytes: one that takes none for too long ends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A connection that ends if its client takes no byte for too long.
pub(crate) struct Patience<S> {
    inner: S,
    limit: Duration,
    /// Runs while bytes wait for the client.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Patience<S> {
    /// A connection with this limit.
    pub fn new(inner: S, limit: Duration) -> Self {
        Self { inner, limit, waiting: None }
    }

    /// The result of a write, or an error if it has waited for too long.
    fn bounded<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.waiting = None;
            return done;
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        waiting.as_mut().poll(cx).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes no bytes")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patience<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patience<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.inner).poll_write(cx, bytes);
        this.bounded(cx, done)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.inner).poll_flush(cx);
        this.bounded(cx, done)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let done = Pin::new(&mut this.inner).poll_shutdown(cx);
        this.bounded(cx, done)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_client_that_takes_no_byte_ends_its_connection_and_a_slow_one_does_not() {
        let limit = Duration::from_millis(300);
        let (server, mut client) = tokio::io::duplex(100);
        let mut server = Patience::new(server, limit);
        let writes = async { server.write_all(&[7; 1000]).await };
        let reads = async {
            let mut taken = [0; 100];
            for _ in 0..10 {
                tokio::time::sleep(limit / 4).await;
                client.read_exact(&mut taken).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(writes, reads);
        written.unwrap();
        server.write_all(&[7; 100]).await.unwrap();
        let stuck = server.write_all(&[7; 1]).await.unwrap_err();
        assert_eq!(stuck.kind(), io::ErrorKind::TimedOut);
    }
}
