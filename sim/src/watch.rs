//! The watchdog: a run that waits for ever is a finding like any other.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// A run may take so long.
pub const LONGEST: Duration = Duration::from_secs(30);

/// Runs `work` on a thread of its own and waits for it, at most [`LONGEST`]. A run that hangs stays behind.
///
/// # Errors
/// What the work says, its panic, or that it hangs.
pub fn run<T: Send + 'static>(work: impl FnOnce() -> anyhow::Result<T> + Send + 'static) -> anyhow::Result<T> {
    let (tell, told) = channel();
    let worker = std::thread::Builder::new().name("seed".into()).spawn(move || drop(tell.send(work())))?;
    match told.recv_timeout(LONGEST) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => anyhow::bail!("it hangs: not done after {} s", LONGEST.as_secs()),
        Err(RecvTimeoutError::Disconnected) => {
            let panic = worker.join().err();
            let text = panic.as_ref().and_then(|panic| {
                let owned = panic.downcast_ref::<String>().map(String::as_str);
                owned.or_else(|| panic.downcast_ref::<&str>().copied())
            });
            anyhow::bail!("it panicked: {}", text.unwrap_or("(no text)"))
        }
    }
}
