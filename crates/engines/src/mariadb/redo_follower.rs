//! The thread that follows the redo log while everything else is copied.

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use fullbore_core::Result;
use fullbore_core::halt::Halt;

use super::hot_copy::{Statements, server_lsn};
use super::redo::tail::Tail;

/// How often the server is asked how far its log has got.
const PERIOD: Duration = Duration::from_millis(25);

/// Reads the log from its checkpoint up to the LSN that `target` gives later, and passes it to `emit`. Returns the LSN
/// at its end.
///
/// # Errors
/// The errors of [`Tail`], a server that does not answer, or the end of the job.
pub fn follow(
    mut tail: Tail,
    monitor: &mut dyn Statements,
    target: &Receiver<u64>,
    halt: &Halt,
    emit: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<u64> {
    let mut more = true;
    let target = loop {
        halt.check()?;
        match target.recv_timeout(if more { Duration::ZERO } else { PERIOD }) {
            Ok(target) => break target,
            Err(RecvTimeoutError::Timeout) => {}
            // The conductor has failed, and reports the reason.
            Err(RecvTimeoutError::Disconnected) => return Err(fullbore_core::Error::Halted),
        }
        let server = server_lsn(monitor)?;
        // Asked for again: the server continues after the target is given, maybe before it answered. Its later log must
        // not be in the copy.
        match target.try_recv() {
            Ok(target) => break target,
            Err(TryRecvError::Empty) => more = tail.advance(server, emit)?,
            Err(TryRecvError::Disconnected) => return Err(fullbore_core::Error::Halted),
        }
    };
    loop {
        halt.check()?;
        let server = server_lsn(monitor)?;
        if tail.finish(server, target, emit)? {
            // The last read bytes were not overwritten if the server has not reached them even now.
            tail.prove(server_lsn(monitor)?)?;
            return Ok(tail.lsn());
        }
        std::thread::sleep(PERIOD);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use fullbore_core::io::Mode;

    use super::super::hot_copy::Row;
    use super::super::redo::tail::tests::Writer;
    use super::*;

    /// A server that is given its target, continues, and answers only then.
    struct GoesOn {
        writer: Writer,
        tell: Option<Sender<u64>>,
        questions: u32,
        target: u64,
    }

    impl Statements for GoesOn {
        fn execute(&mut self, _: &str) -> Result<Vec<Row>> {
            self.questions += 1;
            if self.questions == 3 {
                self.target = self.writer.lsn;
                self.tell.take().unwrap().send(self.target).unwrap();
            }
            for _ in 0..100 {
                self.writer.write(400);
            }
            let lsn = self.writer.lsn.to_string().into_bytes();
            let row = |name: &[u8]| Row(vec![Some(name.to_vec()), Some(lsn.clone())]);
            Ok(vec![row(b"Innodb_lsn_flushed"), row(b"Innodb_lsn_current")])
        }
    }

    #[test]
    fn nothing_that_was_written_after_the_target_was_given_is_taken() {
        let writer = Writer::new(4, false);
        let tail = Tail::open(&writer.path(), Mode::Auto).unwrap();
        let (tell, told) = channel();
        let mut server = GoesOn { writer, tell: Some(tell), questions: 0, target: 0 };
        let end = follow(tail, &mut server, &told, &Halt::new(), &mut |_, _| Ok(())).unwrap();
        assert!(server.target > 0 && end == server.target, "{end} {}", server.target);
    }
}
