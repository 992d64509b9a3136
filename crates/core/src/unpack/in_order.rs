//! Blocks of ordered streams on their way to a target: checked against the rules of the format, and delivered in order.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::family::damage;
use super::layers::Layers;
use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::media::{BlockHeader, BlockKind, Flaw, Run, RunKind, SetHeader, StreamRecord, broken, require};
use crate::order::{OrderWindow, Threads};
use crate::pool::Piece;

/// The ordered streams of a set that is read in full.
pub(super) struct InOrder {
    window: OrderWindow<Arrived>,
    /// The layers, which families wait for too.
    layers: Arc<Layers>,
    lines: Mutex<HashMap<u32, Line>>,
}

/// A block that was checked and unpacked.
pub(super) struct Arrived {
    /// Where it is, for errors: device, and byte of the family.
    pub at: (String, u64),
    pub stream: u32,
    pub run: Run,
    /// Its bytes; a verification needs none.
    pub piece: Option<Piece>,
}

/// One ordered stream.
struct Line {
    size: u64,
    /// The stream has no gap up to here.
    end: u64,
    /// Bytes that its target has not taken: offset and bytes.
    queue: VecDeque<(u64, Piece)>,
    /// A writer works on it.
    busy: bool,
}

/// Checks a block's place in the order against what the set says of its stream.
pub(super) fn check_order(
    block: &BlockHeader,
    stream: &StreamRecord,
    runs: &[Run],
    transfer_size: u32,
) -> Result<(), Flaw> {
    let ordered = stream.ordered && block.kind == BlockKind::Data;
    require(
        ordered == (block.order != 0),
        "a block of an ordered stream has no order number, or another block has one",
    )?;
    if !ordered {
        return Ok(());
    }
    let alone = matches!(runs, [run] if run.kind == RunKind::Data);
    require(alone && block.layer == 0, "a block of an ordered stream is not one range of bytes in layer 0")?;
    require(block.plain_length <= transfer_size - 4096, "a block of an ordered stream is too long")
}

impl InOrder {
    /// `None` for a set without ordered streams.
    pub fn new(header: &SetHeader, streams: &[StreamRecord], layers: &Arc<Layers>) -> Option<Self> {
        let line = |stream: &StreamRecord| Line { size: stream.size, end: 0, queue: VecDeque::new(), busy: false };
        let ordered = streams.iter().filter(|stream| stream.ordered);
        let lines = ordered.map(|stream| (stream.id, line(stream))).collect();
        (header.window > 0).then(|| Self {
            window: OrderWindow::new(header.window),
            layers: Arc::clone(layers),
            lines: Mutex::new(lines),
        })
    }

    /// Waits until a block may go to the workers.
    ///
    /// # Errors
    /// A flaw of the media, or the end of the job.
    pub fn admit(&self, number: u32, halt: &Halt) -> Result<Result<(), Flaw>> {
        let threads = || {
            let (running, waiting) = self.layers.parsers();
            Threads { running, waiting }
        };
        self.window.admit(number, halt, threads)
    }

    /// Checks that no higher layer has begun: ordered streams are in layer 0.
    ///
    /// # Errors
    /// The block is behind a block of a higher layer.
    pub fn check_layer(&self) -> Result<(), Flaw> {
        self.layers.check_lowest()
    }

    /// Takes a block; gives the streams that need a writer.
    ///
    /// # Errors
    /// It, or a block that waited for it, does not continue its stream.
    pub fn arrive(&self, number: u32, arrived: Arrived) -> Result<Vec<u32>> {
        let at = arrived.at.clone();
        let (mut ready, mut strayed) = (Vec::new(), None);
        let released = self.window.done(number, arrived, |arrived| {
            let place = arrived.at.clone();
            let called = self.line_up(arrived).inspect_err(|_| strayed = Some(place))?;
            ready.extend(called);
            Ok(())
        });
        released.map_err(|flaw| {
            let (device, offset) = strayed.unwrap_or(at);
            damage(&device, offset, flaw)
        })?;
        Ok(ready)
    }

    /// Puts a block after those of its stream; gives the stream when no writer works on it.
    fn line_up(&self, arrived: Arrived) -> Result<Option<u32>, Flaw> {
        let mut lines = self.lock();
        let unnamed = || broken(format!("stream {} is not in its stream table", arrived.stream));
        let line = lines.get_mut(&arrived.stream).ok_or_else(unnamed)?;
        if arrived.run.offset != line.end {
            let (offset, end) = (arrived.run.offset, line.end);
            return Err(broken(format!(
                "a block of an ordered stream begins at {offset}, but the block before it ends at {end}"
            )));
        }
        line.end = arrived.run.end();
        let Some(piece) = arrived.piece else { return Ok(None) };
        line.queue.push_back((arrived.run.offset, piece));
        let idle = !std::mem::replace(&mut line.busy, true);
        Ok(idle.then_some(arrived.stream))
    }

    /// Gives the target all bytes of a stream that are ready, in order.
    ///
    /// # Errors
    /// What the target says, or the end of the job.
    pub fn deliver(&self, stream: u32, halt: &Halt, mut write: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        while let Some((offset, piece)) = self.next_of(stream) {
            halt.check()?;
            write(offset, &piece)?;
        }
        Ok(())
    }

    fn next_of(&self, stream: u32) -> Option<(u64, Piece)> {
        let mut lines = self.lock();
        let line = lines.get_mut(&stream)?;
        let next = line.queue.pop_front();
        line.busy = next.is_some();
        next
    }

    /// Checks that every ordered stream came to its end.
    ///
    /// # Errors
    /// What is missing.
    pub fn finish(&self, name: &str) -> Result<()> {
        let incomplete = |why: String| Error::incomplete(name, why, "use another backup set");
        self.window.finish().map_err(|flaw| incomplete(flaw.to_string()))?;
        match self.lock().iter().find(|(_, line)| line.end != line.size) {
            None => Ok(()),
            Some((stream, line)) => {
                let (end, size) = (line.end, line.size);
                Err(incomplete(format!("ordered stream {stream} has {size} bytes, but its blocks end at {end}")))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
