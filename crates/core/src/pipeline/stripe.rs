//! Stripes: each packs blocks into device writes for one family, and hands them to its sink.
//!
//! Any worker appends to any stripe. A stripe's load is what its device has not taken yet. The least loaded stripe gets
//! the next block, so a slow device takes fewer blocks and does not hold up the others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded, unbounded};
use zerocopy::IntoBytes;

use super::seal::seal;
use super::turns::Turns;
use super::writing::{SINK, Ways};
use crate::checksum::xxh3_128_le;
use crate::cipher::{DataKey, Sealer};
use crate::error::{Error, Result};
use crate::media::{
    BLOCK_HEADER, BlockBody, BlockHeader, BlockKind, BlockReference, DIGEST, FamilyDigest, FamilyHeader, IndexEntry,
    Run, SetHeader, TAG, index_capacity, round_up,
};
use crate::meter::{Account, Clock, Progress, Spent};
use crate::pool::{Buffer, Piece, Pool};
use crate::sink::Sink;

/// What a stripe's writer is to do.
pub(super) enum DeviceWork {
    /// Put a piece at an offset of the family.
    Write { offset: u64, piece: Piece },
    /// Make everything so far durable, and say so.
    Secure(Sender<()>),
}

/// What all stripes of a set share.
pub(super) struct Board {
    stripes: Vec<Stripe>,
    sequence: AtomicU64,
    turns: Turns,
    set_tag: [u8; 8],
    cipher: u8,
    block_size: u32,
    transfer_size: u32,
    index_capacity: usize,
    /// Blocks without a codec are padded to whole device blocks, so that full ones need no copy.
    aligned: bool,
    pool: Arc<Pool>,
}

/// One family in the making.
pub(super) struct Stripe {
    family: u16,
    load: Arc<AtomicU64>,
    state: Mutex<StripeState>,
}

/// The end of a family so far, and its index.
pub(super) struct StripeState {
    current: Option<Buffer>,
    filled: usize,
    position: u64,
    pending: Vec<IndexEntry>,
    queue: Option<Sender<DeviceWork>>,
    digest: FamilyDigest,
    /// INDEX blocks so far.
    pub index: Vec<BlockReference>,
    /// Blocks so far.
    pub block_count: u64,
    /// Plain bytes of DATA blocks so far.
    pub data_bytes: u64,
    /// Bytes of ZERO runs so far.
    pub zero_bytes: u64,
}

/// A block ready to be sealed and placed.
pub(super) struct Unsealed<'a> {
    pub kind: BlockKind,
    pub codec: u8,
    pub stream: u32,
    pub layer: u16,
    /// Number among the blocks of ordered streams; else 0.
    pub order: u32,
    pub runs: &'a [Run],
    pub prefix_length: usize,
    pub plain_length: usize,
    pub bytes: BlockBytes<'a>,
}

/// Where the bytes of a block are: room for header and tag, prefix, payload.
pub(super) enum BlockBytes<'a> {
    /// In memory that the worker keeps: they are copied.
    Kept(&'a mut [u8]),
    /// At the start of a buffer that may go to the device as it is.
    Given(Buffer, usize),
    /// Room for the header and the prefix, and the payload elsewhere: without a cipher, which wants all of it in one
    /// piece.
    Joined(&'a mut [u8], &'a [u8]),
}

/// A worker's own tools for placing blocks: the cipher and one spare buffer, so that no thread waits for memory while
/// it holds a stripe.
pub(super) struct Hand {
    pub sealer: Option<Sealer>,
    pub spare: Option<Buffer>,
}

impl Hand {
    /// For blocks under this key, or for plain ones.
    pub fn new(data_key: Option<&DataKey>) -> Self {
        Self { sealer: data_key.map(Sealer::new), spare: None }
    }
}

/// A board, the queues of its writers, and what each of them has not taken yet.
type Connected = (Board, Vec<Receiver<DeviceWork>>, Vec<Arc<AtomicU64>>);

impl Board {
    /// The board of a new set, for these sinks. `aligned`: its blocks fill whole device blocks.
    pub fn of_set(set: &SetHeader, aligned: bool, sinks: &[Box<dyn Sink>], pool: &Arc<Pool>) -> Result<Connected> {
        let (queues, listeners): (Vec<_>, Vec<_>) = (0..set.families).map(|_| unbounded()).unzip();
        let loads: Vec<_> = (0..set.families).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let headers: Vec<_> =
            (1..=set.families).map(|family| FamilyHeader { set: set.clone(), family }.encode()).collect();
        let settings = BoardSettings {
            set_tag: set.media_set_id.as_bytes().first_chunk().copied().unwrap_or_default(),
            cipher: set.cipher.number(),
            block_size: set.block_size,
            transfer_size: set.transfer_size,
            aligned,
            in_a_row: sinks.iter().map(|sink| sink.in_a_row()).max().unwrap_or_default(),
        };
        Ok((Self::new(&settings, &headers, queues, &loads, pool)?, listeners, loads))
    }

    /// A board for families 1…n whose writers listen at `queues`; each begins with its header.
    fn new(
        set: &BoardSettings,
        headers: &[Vec<u8>],
        queues: Vec<Sender<DeviceWork>>,
        loads: &[Arc<AtomicU64>],
        pool: &Arc<Pool>,
    ) -> Result<Self> {
        let mut stripes = Vec::with_capacity(headers.len());
        for (at, (header, queue)) in headers.iter().zip(queues).enumerate() {
            let mut state = StripeState {
                current: None,
                filled: 0,
                position: 0,
                pending: Vec::new(),
                queue: Some(queue),
                digest: FamilyDigest::new(header),
                index: Vec::new(),
                block_count: 0,
                data_bytes: 0,
                zero_bytes: 0,
            };
            let load = Arc::clone(&loads[at]);
            for part in header.chunks(pool.size()) {
                let mut spare = Some(pool.take()?);
                state.copy(part, &mut spare, &load)?;
            }
            if at == 0 && headers.len() > 1 && header.len().is_multiple_of(set.block_size as usize) {
                // Without it, an unfinished family 1 cannot be found, and it is the proof that its set was never
                // committed.
                state.flush(&load)?;
            }
            stripes.push(Stripe { family: at as u16 + 1, load, state: Mutex::new(state) });
        }
        Ok(Self {
            stripes,
            sequence: AtomicU64::new(0),
            turns: Turns::new(set.in_a_row),
            set_tag: set.set_tag,
            cipher: set.cipher,
            block_size: set.block_size,
            transfer_size: set.transfer_size,
            index_capacity: index_capacity(set.transfer_size),
            aligned: set.aligned,
            pool: Arc::clone(pool),
        })
    }

    /// Bytes of tag in each block.
    pub fn tag_length(&self) -> usize {
        if self.cipher == 0 { 0 } else { TAG }
    }

    /// Bytes of the longest block.
    pub fn transfer_size(&self) -> u32 {
        self.transfer_size
    }

    /// True when blocks fill whole device blocks.
    pub fn aligned(&self) -> bool {
        self.aligned
    }

    /// Family `family` (from 1), locked.
    pub fn lock(&self, family: u16) -> MutexGuard<'_, StripeState> {
        self.stripes[usize::from(family) - 1].lock()
    }

    /// How long the prefix of a block must be, so that the whole block ends on a device block if it should.
    pub fn prefix_length(&self, runs: usize, payload: usize) -> usize {
        let least = DIGEST + runs * crate::media::RUN;
        if !self.aligned {
            return least;
        }
        let head = BLOCK_HEADER + self.tag_length();
        let padded = round_up((head + least + payload) as u64, u64::from(self.block_size)) as usize - head - payload;
        if head + padded + payload <= self.pool.size() { padded } else { least }
    }

    /// Seals a block, puts it into the stripe whose turn it is, and books it there.
    pub fn place(&self, block: Unsealed<'_>, hand: &mut Hand, clock: &mut Clock) -> Result<()> {
        self.place_in(self.next_stripe(block.bytes.len()), block, hand, clock).map(|_| ())
    }

    /// As [`place`](Self::place), in the family wanted (from 1).
    pub fn place_in_family(
        &self,
        family: u16,
        block: Unsealed<'_>,
        hand: &mut Hand,
        clock: &mut Clock,
    ) -> Result<BlockReference> {
        self.place_in(&self.stripes[usize::from(family) - 1], block, hand, clock)
    }

    fn place_in(
        &self,
        stripe: &Stripe,
        block: Unsealed<'_>,
        hand: &mut Hand,
        clock: &mut Clock,
    ) -> Result<BlockReference> {
        let sealed = self.seal(stripe, block, hand.sealer.as_ref())?;
        loop {
            self.fetch_spare(hand, clock)?;
            let mut state = stripe.lock();
            if state.pending.len() < self.index_capacity {
                return state.append(sealed, &mut hand.spare, &stripe.load, self.block_size);
            }
            self.write_index(stripe, &mut state, hand)?;
        }
    }

    /// Writes the entries that no INDEX block holds yet, if there are any.
    pub fn flush_index(&self, family: u16, hand: &mut Hand, clock: &mut Clock) -> Result<()> {
        self.fetch_spare(hand, clock)?;
        let stripe = &self.stripes[usize::from(family) - 1];
        let mut state = stripe.lock();
        if state.pending.is_empty() { Ok(()) } else { self.write_index(stripe, &mut state, hand) }
    }

    fn write_index(&self, stripe: &Stripe, state: &mut StripeState, hand: &mut Hand) -> Result<()> {
        let payload = std::mem::take(&mut state.pending);
        let payload = payload.as_bytes();
        let mut bytes = Vec::new();
        let block = self.unpacked_block(BlockKind::Index, 0, &[], payload, &mut bytes);
        let sealed = self.seal(stripe, block, hand.sealer.as_ref())?;
        let reference = state.append(sealed, &mut hand.spare, &stripe.load, self.block_size)?;
        state.index.push(reference);
        Ok(())
    }

    /// A block of `payload` without a codec, laid out in `bytes`.
    pub fn unpacked_block<'a>(
        &self,
        kind: BlockKind,
        stream: u32,
        runs: &'a [Run],
        payload: &[u8],
        bytes: &'a mut Vec<u8>,
    ) -> Unsealed<'a> {
        self.packed_block(kind, 0, stream, runs, payload, (payload.len(), xxh3_128_le(0, payload)), bytes)
    }

    /// A block of a payload that is packed already; `plain` is its unpacked length and digest.
    #[expect(clippy::too_many_arguments, reason = "a block has that many fields")]
    pub fn packed_block<'a>(
        &self,
        kind: BlockKind,
        codec: u8,
        stream: u32,
        runs: &'a [Run],
        payload: &[u8],
        plain: (usize, [u8; DIGEST]),
        bytes: &'a mut Vec<u8>,
    ) -> Unsealed<'a> {
        let prefix_length = self.prefix_length(runs.len(), payload.len());
        let head = BLOCK_HEADER + self.tag_length();
        bytes.clear();
        bytes.resize(head + prefix_length, 0);
        BlockBody::encode_prefix(plain.1, runs, &mut bytes[head..]);
        bytes.extend_from_slice(payload);
        Unsealed {
            kind,
            codec,
            stream,
            layer: 0,
            order: 0,
            runs,
            prefix_length,
            plain_length: plain.0,
            bytes: BlockBytes::Kept(bytes),
        }
    }

    /// Appends zeros and the footer, which `make` gets for the final length; nothing follows.
    pub fn finish(&self, family: u16, footer: &[u8], hand: &mut Hand, clock: &mut Clock) -> Result<()> {
        let stripe = &self.stripes[usize::from(family) - 1];
        let end = crate::media::family_length(stripe.lock().position, self.block_size);
        let mut tail = vec![0; (end - stripe.lock().position) as usize];
        let at = tail.len() - footer.len();
        tail[at..].copy_from_slice(footer);
        for part in tail.chunks(self.pool.size()) {
            self.fetch_spare(hand, clock)?;
            stripe.lock().copy(part, &mut hand.spare, &stripe.load)?;
        }
        stripe.lock().flush(&stripe.load)
    }

    fn fetch_spare(&self, hand: &mut Hand, clock: &mut Clock) -> Result<()> {
        if hand.spare.is_none() {
            clock.lap(Spent::Busy);
            hand.spare = Some(self.pool.take()?);
            clock.lap(Spent::Blocked);
        }
        Ok(())
    }

    fn seal<'a>(&self, stripe: &Stripe, block: Unsealed<'a>, sealer: Option<&Sealer>) -> Result<Sealed<'a>> {
        let mut bytes = block.bytes;
        let length = bytes.len();
        let mut header = BlockHeader {
            kind: block.kind,
            codec: block.codec,
            cipher: self.cipher,
            stream: block.stream,
            layer: block.layer,
            family: stripe.family,
            sequence: self.sequence.fetch_add(1, Ordering::AcqRel),
            set_tag: self.set_tag,
            run_count: block.runs.len() as u32,
            prefix_length: block.prefix_length as u32,
            payload_length: (length - BLOCK_HEADER - self.tag_length() - block.prefix_length) as u32,
            plain_length: block.plain_length as u32,
            order: block.order,
            body_crc: 0,
        };
        let header_bytes = seal(&mut header, &mut bytes, sealer)?;
        let zero_bytes = block
            .runs
            .iter()
            .filter(|run| run.kind == crate::media::RunKind::Zero)
            .map(|run| u64::from(run.length))
            .sum();
        Ok(Sealed { header, header_bytes, span: IndexEntry::span_of(block.runs), zero_bytes, bytes })
    }

    /// The stripe that gets a block of so many bytes.
    fn next_stripe(&self, length: usize) -> &Stripe {
        let load = |at: usize| self.stripes[at].load.load(Ordering::Relaxed);
        &self.stripes[self.turns.next(length, self.stripes.len(), load)]
    }
}

impl Ways for Board {
    fn secure(&self, family: u16) -> Result<()> {
        secured(self.lock(family).queue.as_ref())
    }

    fn close_family(&self, family: u16) {
        self.lock(family).queue = None;
    }

    fn close(&self) {
        for stripe in &self.stripes {
            let mut state = stripe.lock();
            state.queue = None;
            state.current = None;
        }
    }
}

/// Asks a writer to make everything so far durable, and waits for its answer.
pub(super) fn secured(queue: Option<&Sender<DeviceWork>>) -> Result<()> {
    let (done, durable) = bounded(1);
    let asked = queue.is_some_and(|queue| queue.send(DeviceWork::Secure(done)).is_ok());
    // A writer that ends without an answer has failed, and has reported why.
    if asked && durable.recv().is_ok() { Ok(()) } else { Err(Error::Halted) }
}

/// What [`Board::new`] needs to know of the set.
struct BoardSettings {
    set_tag: [u8; 8],
    cipher: u8,
    block_size: u32,
    transfer_size: u32,
    aligned: bool,
    in_a_row: u64,
}

struct Sealed<'a> {
    header: BlockHeader,
    header_bytes: [u8; BLOCK_HEADER],
    span: (u64, u64),
    zero_bytes: u64,
    bytes: BlockBytes<'a>,
}

impl BlockBytes<'_> {
    fn len(&self) -> usize {
        match self {
            BlockBytes::Kept(bytes) => bytes.len(),
            BlockBytes::Given(_, length) => *length,
            BlockBytes::Joined(head, payload) => head.len() + payload.len(),
        }
    }
}

impl Stripe {
    fn lock(&self) -> MutexGuard<'_, StripeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StripeState {
    /// Where the next block will be.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The family's digest so far.
    pub fn digest(&self) -> [u8; 32] {
        self.digest.value()
    }

    fn append(
        &mut self,
        block: Sealed<'_>,
        spare: &mut Option<Buffer>,
        load: &AtomicU64,
        block_size: u32,
    ) -> Result<BlockReference> {
        let entry = IndexEntry::of(&block.header, &block.header_bytes, self.position, block.span);
        self.digest.add(&entry);
        if !matches!(block.header.kind, BlockKind::Index | BlockKind::Trailer) {
            self.pending.push(entry);
        }
        self.block_count += 1;
        if block.header.kind == BlockKind::Data {
            self.data_bytes += u64::from(block.header.plain_length);
            self.zero_bytes += block.zero_bytes;
        }
        let reference = BlockReference { offset: self.position, length: block.header.block_length() as u32 };
        match block.bytes {
            BlockBytes::Kept(bytes) => self.copy(bytes, spare, load)?,
            BlockBytes::Given(buffer, length) => self.give(buffer, length, spare, load, u64::from(block_size))?,
            BlockBytes::Joined(head, payload) => {
                self.copy(head, spare, load)?;
                self.copy(payload, spare, load)?;
            }
        }
        Ok(reference)
    }

    /// Packs bytes after those already there; needs `spare` when they do not fit into the current buffer.
    fn copy(&mut self, mut bytes: &[u8], spare: &mut Option<Buffer>, load: &AtomicU64) -> Result<()> {
        while !bytes.is_empty() {
            if self.current.is_none() {
                self.current = spare.take();
            }
            let Some(buffer) = self.current.as_mut() else {
                return Err(Error::refused(
                    "buffer pool",
                    "a block needs more than one spare buffer",
                    "this is a defect: please report it",
                ));
            };
            let room = buffer.len() - self.filled;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            buffer[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            self.position += now.len() as u64;
            bytes = later;
            if self.filled == buffer.len() {
                self.flush(load)?;
            }
        }
        Ok(())
    }

    /// Hands a buffer to the device as it is, when it begins on a device block and is long enough for a write of its
    /// own.
    fn give(
        &mut self,
        buffer: Buffer,
        length: usize,
        spare: &mut Option<Buffer>,
        load: &AtomicU64,
        block_size: u64,
    ) -> Result<()> {
        let aligned = self.position.is_multiple_of(block_size) && (length as u64).is_multiple_of(block_size);
        if !aligned || length < buffer.len() / 2 {
            return self.copy(&buffer[..length], spare, load);
        }
        self.flush(load)?;
        let offset = self.position;
        self.position += length as u64;
        self.submit(offset, Piece::new(buffer, 0..length), load)
    }

    /// Sends what is packed so far to the device.
    fn flush(&mut self, load: &AtomicU64) -> Result<()> {
        let Some(buffer) = self.current.take() else { return Ok(()) };
        let length = std::mem::take(&mut self.filled);
        self.submit(self.position - length as u64, Piece::new(buffer, 0..length), load)
    }

    fn submit(&mut self, offset: u64, piece: Piece, load: &AtomicU64) -> Result<()> {
        load.fetch_add(piece.len() as u64, Ordering::Relaxed);
        self.queue.as_ref().and_then(|queue| queue.send(DeviceWork::Write { offset, piece }).ok()).ok_or(Error::Halted)
    }
}

/// A stripe's writer: takes what is sent until the stripe closes, then makes it durable.
pub(super) fn write(
    sink: &mut dyn Sink,
    queue: &Receiver<DeviceWork>,
    load: &AtomicU64,
    progress: &Progress,
    account: &mut Account,
) -> Result<()> {
    let mut clock = Clock::shown_in(&progress.stages[SINK]);
    let result = write_all(sink, queue, load, progress, &mut clock);
    *account = clock.account();
    result
}

fn write_all(
    sink: &mut dyn Sink,
    queue: &Receiver<DeviceWork>,
    load: &AtomicU64,
    progress: &Progress,
    clock: &mut Clock,
) -> Result<()> {
    loop {
        let work = match queue.try_recv() {
            Ok(work) => work,
            Err(TryRecvError::Disconnected) => break,
            // Nothing to do: return a buffer, because a thread may wait for it. The device is at work meanwhile.
            Err(TryRecvError::Empty) if sink.in_flight() > 0 => {
                let received = queue.recv_timeout(sink.leisure());
                if matches!(received, Err(RecvTimeoutError::Timeout)) {
                    sink.ease()?;
                }
                clock.lap(Spent::Busy);
                match received {
                    Ok(work) => work,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            Err(TryRecvError::Empty) => {
                clock.lap(Spent::Busy);
                let received = queue.recv();
                clock.lap(Spent::Starved);
                match received {
                    Ok(work) => work,
                    Err(_) => break,
                }
            }
        };
        let (offset, piece) = match work {
            DeviceWork::Write { offset, piece } => (offset, piece),
            DeviceWork::Secure(done) => {
                sink.secure()?;
                clock.lap(Spent::Busy);
                let _ = done.send(()); // The caller may have given up.
                continue;
            }
        };
        let length = piece.len() as u64;
        sink.write(offset, piece)?;
        load.fetch_sub(length, Ordering::Relaxed);
        progress.stored.fetch_add(length, Ordering::Relaxed);
        clock.pass(length);
        clock.lap(Spent::Busy);
    }
    sink.settle(0)?;
    sink.sync()?;
    clock.lap(Spent::Busy);
    Ok(())
}
