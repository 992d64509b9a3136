//! A connection that counts what comes in: tiberius itself puts a whole value into memory, whatever its length.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use futures_util::io::{AsyncRead, AsyncWrite};

/// The error of a connection that has read more than it may.
pub const TOO_LONG: &str = "the answer of the server is too long";

/// How many bytes may still come in.
#[derive(Clone, Default)]
pub struct Allowance(Arc<AtomicU64>);

impl Allowance {
    /// Allows as many bytes from now on.
    pub fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    fn take(&self, bytes: u64) -> io::Result<()> {
        let left = self.0.load(Ordering::Relaxed).checked_sub(bytes);
        let left = left.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, TOO_LONG))?;
        self.set(left);
        Ok(())
    }
}

/// A stream that ends with an error after its allowance.
pub struct Metered<S> {
    inner: S,
    allowance: Allowance,
}

impl<S> Metered<S> {
    /// `inner`, with an allowance for what is read from it.
    pub fn new(inner: S, allowance: Allowance) -> Self {
        Self { inner, allowance }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let read = ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        self.allowance.take(read as u64)?;
        Poll::Ready(Ok(read))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_close(context)
    }
}
