//! An object while it is uploaded: pieces come in any order, from several connections, and one reader of a backup takes
//! them. A piece is one attempt at a part. Only pieces that the end of the upload names are part of the object.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fullbore_core::halt::Halt;
use fullbore_core::source::{Extent, Reader, Source, Stream};
use fullbore_core::{Error, Result};

use super::position::{ObjectFacts, part_name};

/// The unit of its streams, in bytes.
const UNIT: u32 = 4096;
/// The time between two looks at whether the backup has ended.
const TICK: Duration = Duration::from_millis(100);

/// Bytes on their way to the reader, and the way back for their buffer.
struct Delivery {
    piece: u32,
    offset: u64,
    bytes: Vec<u8>,
    back: SyncSender<Vec<u8>>,
}

/// The end of an upload.
#[derive(Clone)]
struct Completed {
    facts: ObjectFacts,
    /// The number of each part and its piece, in the order of the object.
    parts: Vec<(u16, u32)>,
}

#[derive(Default)]
struct State {
    /// Bytes of each piece so far.
    pieces: BTreeMap<u32, u64>,
    /// To the reader; `None` after the end.
    to_reader: Option<SyncSender<Delivery>>,
    /// For the reader, until it begins.
    from_writers: Option<Receiver<Delivery>>,
    completed: Option<Completed>,
    /// Why it ended without being complete.
    ended: Option<String>,
}

/// An upload. A clone is the same one.
#[derive(Clone)]
pub struct IncomingObject {
    state: Arc<Mutex<State>>,
    key: Arc<str>,
    halt: Halt,
}

impl IncomingObject {
    /// Of an object with this key, for a backup that `halt` ends.
    pub fn new(key: &str, halt: &Halt) -> Self {
        let (to_reader, from_writers) = sync_channel(0);
        let state = State { to_reader: Some(to_reader), from_writers: Some(from_writers), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), key: key.into(), halt: halt.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn over(&self, why: &str) -> Error {
        Error::refused(format!("upload of `{}`", self.key.escape_debug()), why, "upload it again")
    }

    /// The next bytes of a piece. Waits until they are in a buffer of the backup, and gives `bytes` back. One thread at a
    /// time writes one piece.
    ///
    /// # Errors
    /// The upload or its backup has ended.
    pub fn write(&self, piece: u32, bytes: Vec<u8>) -> Result<Vec<u8>> {
        if bytes.is_empty() {
            self.lock().pieces.entry(piece).or_default();
            return Ok(bytes);
        }
        let (to_reader, offset) = {
            let mut state = self.lock();
            let Some(to_reader) = state.to_reader.clone() else {
                let why = state.ended.clone();
                return Err(self.over(why.as_deref().unwrap_or("has ended")));
            };
            let length = state.pieces.entry(piece).or_default();
            let offset = *length;
            *length += bytes.len() as u64;
            (to_reader, offset)
        };
        let (back, returned) = sync_channel(1);
        let ended = |_| self.over("its backup has ended");
        to_reader.send(Delivery { piece, offset, bytes, back }).map_err(|_| ended(()))?;
        returned.recv().map_err(|_| ended(()))
    }

    /// Ends the upload: these parts, in this order, are the object. The backup then ends by itself.
    ///
    /// # Errors
    /// The upload has ended already.
    pub fn complete(&self, facts: ObjectFacts, parts: Vec<(u16, u32)>) -> Result<()> {
        let mut state = self.lock();
        if state.to_reader.take().is_none() {
            return Err(self.over(state.ended.as_deref().unwrap_or("has ended")));
        }
        state.completed = Some(Completed { facts, parts });
        Ok(())
    }

    /// Ends the upload: nothing of it stays. Without an effect after the end of the upload.
    pub fn abort(&self, why: &str) {
        let mut state = self.lock();
        if state.completed.is_none() && state.ended.is_none() {
            state.ended = Some(why.to_owned());
        }
        state.to_reader = None;
        state.from_writers = None;
    }

    /// What it is, once it is complete.
    pub(super) fn facts(&self) -> Option<ObjectFacts> {
        self.lock().completed.as_ref().map(|completed| completed.facts.clone())
    }

    fn why_ended(&self) -> Error {
        self.over(self.lock().ended.as_deref().unwrap_or("has ended"))
    }
}

impl Source for IncomingObject {
    /// None are known at the start.
    fn streams(&self) -> &[Stream] {
        &[]
    }

    fn is_open(&self) -> bool {
        true
    }

    fn stream(&self, id: u32) -> Option<Stream> {
        let size = *self.lock().pieces.get(&id)?;
        Some(Stream { id, name: String::new(), unit: UNIT, size })
    }

    /// Pieces that do not count have no name: a reader drops their bytes.
    fn found(&self) -> Result<Vec<Stream>> {
        let state = self.lock();
        let Some(completed) = &state.completed else {
            drop(state);
            return Err(self.why_ended());
        };
        let numbers: BTreeMap<u32, u16> = completed.parts.iter().map(|(number, piece)| (*piece, *number)).collect();
        let stream = |(id, size): (&u32, &u64)| match numbers.get(id) {
            Some(number) => Stream { id: *id, name: part_name(*number), unit: UNIT, size: *size },
            None => Stream { id: *id, name: String::new(), unit: UNIT, size: 0 },
        };
        Ok(state.pieces.iter().map(stream).collect())
    }

    fn reader(&self, index: usize, _count: usize) -> Result<Box<dyn Reader + '_>> {
        let deliveries = if index == 0 { self.lock().from_writers.take() } else { None };
        Ok(Box::new(PieceReader { upload: self, deliveries, current: None }))
    }

    fn is_free(&self, _stream: u32, _offset: u64) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        let state = self.lock();
        if state.ended.is_some() && state.completed.is_none() {
            drop(state);
            return Err(self.why_ended());
        }
        Ok(())
    }
}

/// The reader that takes all pieces. Others have nothing to read.
struct PieceReader<'a> {
    upload: &'a IncomingObject,
    deliveries: Option<Receiver<Delivery>>,
    /// A delivery of which some bytes are left, and how many are taken.
    current: Option<(Delivery, usize)>,
}

impl PieceReader<'_> {
    fn receive(&self) -> Result<Option<Delivery>> {
        let Some(deliveries) = &self.deliveries else { return Ok(None) };
        loop {
            match deliveries.recv_timeout(TICK) {
                Ok(delivery) => return Ok(Some(delivery)),
                Err(RecvTimeoutError::Timeout) => self.upload.halt.check()?,
                Err(RecvTimeoutError::Disconnected) if self.upload.facts().is_some() => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err(self.upload.why_ended()),
            }
        }
    }
}

impl Reader for PieceReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let (delivery, taken) = match self.current.take() {
            Some(current) => current,
            None => match self.receive()? {
                Some(delivery) => (delivery, 0),
                None => return Ok(None),
            },
        };
        let left = delivery.bytes.get(taken..).unwrap_or_default();
        let count = left.len().min(buffer.len());
        let (into, from) = (buffer.get_mut(..count), left.get(..count));
        into.zip(from).into_iter().for_each(|(into, from)| into.copy_from_slice(from));
        let offset = delivery.offset + taken as u64;
        let extent = Extent { stream: delivery.piece, layer: 0, offset, length: u32::try_from(count).unwrap_or(0) };
        if taken + count < delivery.bytes.len() {
            self.current = Some((delivery, taken + count));
        } else {
            let Delivery { bytes, back, .. } = delivery;
            let _ = back.send(bytes); // Its writer may have gone: then the memory is freed.
        }
        Ok(Some(extent))
    }
}
