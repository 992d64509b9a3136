//! The plain MTF stream of a container: records are unpacked on several threads, and come out in order.
//!
//! The thread that reads the stream also reads the container. It hands packed blocks to the workers in turns, and takes
//! them back in the same turns. So the order is right without sorting. A fixed number of blocks bounds the memory.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use fullbore_core::{Error, Result, threads};

use super::block::Block;
use super::container::Container;
use super::xpress::Decoder;

/// Most workers of a stream.
const WORKERS_MAX: usize = 256;
/// Blocks of a worker: one in work, the others before and behind it.
const BLOCKS_EACH: usize = 4;

/// The plain bytes of a container, in order. A reader gets them by [`Self::next_block`] or as [`Read`].
pub struct PlainStream<R> {
    container: Container<R>,
    workers: Vec<Worker>,
    /// Where the next packed block goes.
    turn: usize,
    /// The blocks on their way, in the order of the stream.
    order: VecDeque<OnItsWay>,
    free: Vec<Block>,
    /// The block that is given out, and how much of it was read.
    current: Option<(Block, usize)>,
    /// Why there are no more records. Blocks before are given out first.
    ended: Option<Result<()>>,
}

/// A thread that unpacks.
struct Worker {
    work: SyncSender<Block>,
    done: Receiver<(Block, Result<()>)>,
}

enum OnItsWay {
    /// Its bytes are in the container as they are.
    Plain(Block),
    /// The worker of this number has it.
    With(usize),
}

impl<R: Read> PlainStream<R> {
    /// Opens the container in `source`; `device` is its name in messages. `workers` threads unpack: 1 to 256. The
    /// stream has `workers` × 4 + 1 blocks of 128 KiB each.
    ///
    /// # Errors
    /// As [`Container::open`]; a thread that cannot be started.
    pub fn open(source: R, device: &str, workers: usize) -> Result<Self> {
        let container = Container::open(source, device)?;
        let workers = workers.clamp(1, WORKERS_MAX);
        let started = (1..=workers).map(|number| Worker::start(number, device)).collect::<Result<Vec<_>>>()?;
        let mut free = Vec::new();
        free.resize_with(workers * BLOCKS_EACH + 1, Block::default);
        let order = VecDeque::with_capacity(free.len());
        Ok(Self { container, workers: started, turn: 0, order, free, current: None, ended: None })
    }

    /// The source of the container.
    pub fn source(&self) -> &R {
        self.container.source()
    }

    /// The next plain bytes, up to 65,536; `None` at the end.
    ///
    /// # Errors
    /// The first error of the container, after all blocks before it. Then there are no more bytes, only
    /// [`Error::Halted`].
    pub fn next_block(&mut self) -> Result<Option<&[u8]>> {
        self.advance()?;
        Ok(self.current.as_ref().map(|(block, read)| block.plain().get(*read..).unwrap_or_default()))
    }

    fn advance(&mut self) -> Result<()> {
        self.free.extend(self.current.take().map(|(block, _)| block));
        self.read_ahead()?;
        let block = match self.order.pop_front() {
            Some(OnItsWay::Plain(block)) => block,
            Some(OnItsWay::With(number)) => {
                let done = self.workers.get(number).and_then(|worker| worker.done.recv().ok());
                // A worker that has panicked answers no more.
                let (block, result) = done.ok_or(Error::Halted)?;
                if result.is_err() {
                    self.order.clear();
                    self.ended = Some(Err(Error::Halted));
                }
                result?;
                block
            }
            None => {
                let ended = self.ended.as_mut().map_or(Ok(()), |ended| std::mem::replace(ended, Err(Error::Halted)));
                if ended.is_ok() {
                    self.ended = Some(Ok(()));
                }
                return ended;
            }
        };
        self.current = Some((block, 0));
        Ok(())
    }

    /// Hands out records while there are free blocks.
    fn read_ahead(&mut self) -> Result<()> {
        while self.ended.is_none() {
            let Some(mut block) = self.free.pop() else { break };
            match self.container.next(&mut block) {
                Ok(true) if block.is_packed() => {
                    let worker = self.workers.get(self.turn).ok_or(Error::Halted)?;
                    worker.work.send(block).map_err(|_| Error::Halted)?;
                    self.order.push_back(OnItsWay::With(self.turn));
                    self.turn = (self.turn + 1) % self.workers.len();
                }
                Ok(true) => self.order.push_back(OnItsWay::Plain(block)),
                Ok(false) => self.ended = Some(Ok(())),
                Err(error) => self.ended = Some(Err(error)),
            }
        }
        Ok(())
    }
}

impl Worker {
    fn start(number: usize, device: &str) -> Result<Self> {
        // All blocks that can be with one worker have room, so neither side waits to send.
        let (work, blocks) = sync_channel::<Block>(BLOCKS_EACH + 1);
        let (results, done) = sync_channel(BLOCKS_EACH + 1);
        let device: Arc<str> = device.into();
        // The thread ends when the stream is dropped.
        threads::start(&format!("unpacker {number}"), move || {
            let mut decoder = Decoder::default();
            for mut block in blocks {
                let result = block.unpack(&mut decoder, &device);
                if results.send((block, result)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { work, done })
    }
}

impl<R: Read> Read for PlainStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let is_used_up = |(block, read): &(Block, usize)| *read >= block.plain().len();
        if self.current.as_ref().is_none_or(is_used_up) {
            self.advance().map_err(io::Error::other)?;
        }
        let Some((block, read)) = &mut self.current else { return Ok(0) };
        let rest = block.plain().get(*read..).unwrap_or_default();
        let now = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..now), rest.get(..now)) {
            to.copy_from_slice(from);
        }
        *read += now;
        Ok(now)
    }
}
