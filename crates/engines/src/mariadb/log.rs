//! The thread that follows the redo log while everything else is copied.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use fullbore_core::Result;
use fullbore_core::halt::Halt;

use super::hot_copy::{Statements, server_lsn};
use super::redo::tail::Tail;

/// How often the server is asked how far its log has got.
const PERIOD: Duration = Duration::from_millis(25);

/// Takes the log from its checkpoint up to the target that `target` will give, and hands it to `emit`; the LSN at its end.
///
/// # Errors
/// What [`Tail`] finds wrong, a server that does not answer, or the end of the job.
pub fn follow(
    mut tail: Tail,
    monitor: &mut dyn Statements,
    target: &Receiver<u64>,
    halt: &Halt,
    emit: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<u64> {
    let target = loop {
        halt.check()?;
        let server = server_lsn(monitor)?;
        let more = tail.advance(server, emit)?;
        match target.recv_timeout(if more { Duration::ZERO } else { PERIOD }) {
            Ok(target) => break target,
            Err(RecvTimeoutError::Timeout) => {}
            // Whoever would have given the target has failed, and says so.
            Err(RecvTimeoutError::Disconnected) => return Err(fullbore_core::Error::Halted),
        }
    };
    loop {
        halt.check()?;
        let server = server_lsn(monitor)?;
        if tail.finish(server, target, emit)? {
            // What was read last had not been overwritten if the server has not got so far even now.
            tail.prove(server_lsn(monitor)?)?;
            return Ok(tail.lsn());
        }
        std::thread::sleep(PERIOD);
    }
}
