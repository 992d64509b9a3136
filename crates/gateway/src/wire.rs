//! A gateway without a socket: what a client would send, and what it would get. For tests and fuzzers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore_core::{Error, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::watch;

use crate::front::Front;
use crate::gateway::Gateway;
use crate::keys::Keys;
use crate::storage::Storage;

/// Bytes on their way between the client and the gateway.
const IN_FLIGHT: usize = 64 << 10;
/// The longest time without a byte.
const STILL: Duration = Duration::from_secs(5);

/// A gateway and the runtime that it needs.
pub struct Wire {
    runtime: tokio::runtime::Runtime,
    gateway: Arc<Gateway>,
    front: Front,
}

impl Wire {
    /// In front of a storage, for clients with these keys, with so many bytes of memory.
    ///
    /// # Errors
    /// Its runtime cannot be started, or the memory is too small for one upload.
    pub fn new(keys: Keys, storage: Arc<dyn Storage>, memory: u64) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|e| Error::io("start the threads of", "the gateway", e))?;
        let nobody: crate::Tell = Arc::new(|_: &str| {});
        let gateway = Arc::new(Gateway::new(storage, memory, STILL, &nobody));
        gateway.must_hold_one()?;
        // A trace reads the head of each request, too.
        let front = Front::new(keys, &gateway, true).half_closing();
        Ok(Self { runtime, gateway, front })
    }

    /// The answers to what a client sends on one connection. The client sends no more after that.
    pub fn answers(&self, sent: &[u8]) -> Vec<u8> {
        let (client, server) = tokio::io::duplex(IN_FLIGHT);
        let (mut from, mut to) = tokio::io::split(client);
        let (_open, closing) = watch::channel(false);
        let send = async {
            let _ = to.write_all(sent).await; // The gateway may have ended the connection.
            let _ = to.shutdown().await;
        };
        let receive = async {
            let mut answers = Vec::new();
            let _ = from.read_to_end(&mut answers).await; // It ends with what came.
            answers
        };
        let ((), answers, ()) =
            self.runtime.block_on(async { tokio::join!(send, receive, self.front.serve(server, "wire", closing)) });
        answers
    }

    /// Ends all uploads. Gives the bytes of memory that did not come back: 0 if all did.
    pub fn end(&self) -> u64 {
        self.runtime.block_on(self.gateway.end_all_uploads(STILL));
        // An upload whose connection was cut ends in a thread of its own.
        let begun = Instant::now();
        while self.gateway.budget.missing() > 0 && begun.elapsed() < STILL {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.gateway.budget.missing()
    }
}
