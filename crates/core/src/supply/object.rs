//! A family in an object store: ranges of it in flight ahead of the caller.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::ranges::{Ranges, up_to_a_beginning};
use super::{Supply, ranges, under_way};
use crate::device::BucketName;
use crate::error::{Error, Result};
use crate::io::DeviceAccount;
use crate::io::Statistics;
use crate::pool::{Buffer, Piece, Pool};
use crate::store::{Bucket, Request, Stores, cut_off};

/// A supply that reads an object as it was when it was opened: a replacement meanwhile is an error.
pub struct ObjectSupply {
    device: String,
    /// Keeps the threads of the requests.
    _stores: Stores,
    bucket: Arc<Bucket>,
    key: String,
    size: u64,
    tag: Option<String>,
    pool: Arc<Pool>,
    /// The most buffers that it may hold: a plan counts on that ("Why nothing deadlocks", ARCHITECTURE.md).
    depth: usize,
    /// The buffers that it holds: of ranges under way, and of ranges that are not given out yet.
    held: usize,
    /// Ranges in the order in which they are given out.
    ahead: VecDeque<Ahead>,
    /// Ranges requested so far: the same one may be ahead twice, and its number tells it apart.
    asked: u64,
    /// What is to be read.
    course: Ranges,
    /// Transfers begin a whole number of them from here.
    beginning: u64,
    arrived: (Sender<Arrived>, Receiver<Arrived>),
    failed: bool,
    statistics: Statistics,
}

/// A range under way, or the rest of one.
struct Ahead {
    number: u64,
    length: usize,
    /// What fills its buffers.
    request: Option<Request>,
    /// Its buffers in order, once they are filled.
    buffers: Option<VecDeque<Buffer>>,
}

struct Arrived {
    number: u64,
    took: Duration,
    result: Result<Vec<Buffer>>,
}

impl ObjectSupply {
    /// Looks at the object; `device` is the family's name in messages.
    ///
    /// # Errors
    /// It is not there, or may not be read.
    pub fn open(
        device: &str,
        bucket: &BucketName,
        key: &str,
        pool: &Arc<Pool>,
        queue_depth: usize,
        stores: &Stores,
    ) -> Result<Self> {
        let bucket = stores.bucket(bucket)?;
        let there = bucket.head(key)?.ok_or_else(|| {
            Error::refused(
                device,
                "is not there",
                "check the name; `fullbore list --from` with a prefix that ends in `/` shows what is there",
            )
        })?;
        Ok(Self {
            device: device.to_owned(),
            _stores: stores.clone(),
            bucket,
            key: key.to_owned(),
            size: there.size,
            tag: there.tag,
            pool: Arc::clone(pool),
            depth: queue_depth,
            held: 0,
            ahead: VecDeque::with_capacity(queue_depth),
            asked: 0,
            course: Ranges::whole(there.size),
            beginning: 0,
            arrived: unbounded(),
            failed: false,
            statistics: Statistics::default(),
        })
    }

    /// Starts requests while there is room in the queue, something to read, and free buffers for a whole range: many
    /// short ranges cost the store more. With `wait`, it waits for the buffers of one range when nothing is under way:
    /// never while the caller is owed a piece, which may be the last buffer of all.
    fn read_ahead(&mut self, wait: bool) -> Result<()> {
        while let Some(range) = self.course.now() {
            let left = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let (of_a_range, _) = ranges(self.pool.size(), self.depth);
            let wanted = of_a_range.min(left.div_ceil(self.pool.size())).min(self.pool.count().max(1));
            if self.held + wanted > self.depth {
                return Ok(());
            }
            let buffers = match self.pool.try_take_all(wanted) {
                Some(buffers) => buffers,
                None if wait && self.ahead.is_empty() => self.pool.take_all(wanted)?,
                None => return Ok(()),
            };
            let (transfer, room) = (self.pool.size(), buffers.len() * self.pool.size());
            let length =
                if left > room { up_to_a_beginning(range.start, room, transfer, self.beginning) } else { left };
            self.held += buffers.len();
            self.request(range.start, buffers, length);
        }
        Ok(())
    }

    fn request(&mut self, offset: u64, buffers: Vec<Buffer>, length: usize) {
        self.course.pass(length as u64);
        let (bucket, key, tag) = (Arc::clone(&self.bucket), self.key.clone(), self.tag.clone());
        let (arrived, begun, number) = (self.arrived.0.clone(), Instant::now(), self.asked);
        self.asked += 1;
        let work = async move { bucket.read_into(&key, offset, length, tag, buffers).await };
        let request = self.bucket.start(work, move |result| {
            let _ = arrived.send(Arrived { number, took: begun.elapsed(), result }); // The supply may be gone.
        });
        self.ahead.push_back(Ahead { number, length, request: Some(request), buffers: None });
        let under_way = self.ahead.iter().filter(|ahead| ahead.request.is_some()).count();
        self.statistics.queue_depth_sum += under_way as u64;
    }

    /// Waits for an answer. Each has a deadline.
    fn await_range(&mut self) -> Result<()> {
        let Ok(Arrived { number, took, result }) = self.arrived.1.recv() else { return Err(Error::Halted) };
        let buffers = result?;
        self.statistics.latency.record(took);
        self.statistics.operations += 1;
        if let Some(ahead) = self.ahead.iter_mut().find(|ahead| ahead.number == number) {
            self.statistics.bytes += ahead.length as u64;
            ahead.buffers = Some(buffers.into());
            ahead.request = None;
        }
        Ok(())
    }

    fn next_checked(&mut self) -> Result<Option<Piece>> {
        self.read_ahead(true)?;
        while self.ahead.front().is_some_and(|first| first.buffers.is_none()) {
            self.await_range()?;
        }
        let Some(first) = self.ahead.front_mut() else { return Ok(None) };
        let Some(buffer) = first.buffers.as_mut().and_then(VecDeque::pop_front) else {
            return Err(Error::refused(&self.device, "a range came without its bytes", ""));
        };
        self.held -= 1;
        let length = first.length.min(buffer.len());
        first.length -= length;
        if first.length == 0 {
            self.ahead.pop_front();
            // The room of the one given out is used at once: the store does not wait for the next call.
            self.read_ahead(false)?;
        }
        Ok(Some(Piece::new(buffer, 0..length)))
    }
}

impl Supply for ObjectSupply {
    fn device(&self) -> &str {
        &self.device
    }

    fn size(&self) -> Option<u64> {
        Some(self.size)
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let end = self.size.min(offset.saturating_add(buffer.len() as u64));
        if offset >= end {
            return Ok(0);
        }
        let bytes = self.bucket.read(&self.key, offset..end, self.tag.clone())?;
        if bytes.len() as u64 != end - offset {
            return Err(cut_off(&self.device, offset + bytes.len() as u64));
        }
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn next(&mut self) -> Result<Option<Piece>> {
        if self.failed {
            return Err(Error::refused(&self.device, "an earlier read of this family failed", ""));
        }
        let next = self.next_checked();
        self.failed = next.is_err();
        next
    }

    fn aim(&mut self, ranges: Vec<Range<u64>>) -> Result<()> {
        if !self.ahead.is_empty() {
            return Err(under_way(&self.device));
        }
        self.course = Ranges::of(ranges);
        Ok(())
    }

    fn begin_at(&mut self, offset: u64) {
        self.beginning = offset;
    }

    fn account(&self) -> DeviceAccount {
        DeviceAccount::new(self.bucket.shown(), &self.statistics, false)
    }
}

impl Drop for ObjectSupply {
    /// Every buffer returns before it is gone, also those that requests under way still write into.
    fn drop(&mut self) {
        self.ahead.drain(..).filter_map(|ahead| ahead.request).for_each(Request::end);
    }
}
