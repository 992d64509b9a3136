//! One stream: a file, and operations in flight on it until the round is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fullbore_core::io::{Completion, Mode, OpenedFile, Queue};
use fullbore_core::pool::{Piece, Pool};
use fullbore_core::{Error, Result};

use super::pace::{Pace, thread_seconds};
use super::probe_file::Blocks;
use fullbore_model::profile::{Access, AccessPattern, Order};

/// The first bytes of a stream do not count: in a short round, a volume's burst above its rate looks like speed. Linux
/// fills the bucket of a throttled device every 100 ms (`DFL_THROTL_SLICE` in `block/blk-throttle.c`), and an idle
/// device begins with a full bucket. This is one and a half fillings.
pub(super) const LEAD_IN: Duration = Duration::from_millis(150);
/// The least counted time of reads and writes at once. For some tenths of a second a local disk serves more of them than
/// it can for the length of a job: rounds of 0.15 s saw up to 1.6 times the rate of rounds of 0.35 s.
const BOTH: Duration = Duration::from_millis(650);
/// How often the bucket of a throttled device is filled.
const FILLING: Duration = Duration::from_millis(100);

/// The counted time of a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    /// Operations that end earlier do not count.
    from: Instant,
    /// From the first operation that counts to the last.
    length: Duration,
}

impl Window {
    /// The window of a round that begins now.
    pub fn new(pace: &Pace<'_>) -> Self {
        Self::lasting(pace.on_device)
    }

    /// The same for a round that reads and writes at once.
    pub fn of_both(pace: &Pace<'_>) -> Self {
        Self::lasting(pace.on_device.max(BOTH))
    }

    fn lasting(length: Duration) -> Self {
        Self { from: Instant::now() + LEAD_IN, length: between_bursts(length) }
    }

    /// The least duration of a round.
    pub fn whole(pace: &Pace<'_>) -> Duration {
        LEAD_IN + pace.on_device
    }

    /// The least duration of a round of each direction alone, and of both at once.
    pub fn whole_of_both(pace: &Pace<'_>) -> Duration {
        2 * Self::whole(pace) + LEAD_IN + pace.on_device.max(BOTH)
    }
}

/// A window of about this length that ends in the middle between two fillings of a bucket, counted from the first
/// operation of a filling. So the last counted operation is the first of the next filling. A window of whole fillings
/// would end among the operations of one filling, and might count all of them: 2 fillings of 8 MB looked like 3, and 80
/// MB/s like 115.
fn between_bursts(wanted: Duration) -> Duration {
    let halves = (wanted.as_nanos() / (FILLING.as_nanos() / 2)) as u32;
    if halves == 0 { wanted } else { FILLING / 2 * (halves - (halves + 1) % 2) }
}

/// A stream of a round, with all its memory: no memory is allocated after the beginning of the round.
pub(super) struct Stream {
    file: Arc<OpenedFile>,
    queue: Queue,
    pool: Arc<Pool>,
    shape: AccessPattern,
    /// Its blocks in the file.
    blocks: Blocks,
    random: fastrand::Rng,
}

/// Keeps two streams in a given mix of bytes, as the two sides of a job. Otherwise a device may serve one of them
/// first.
pub(super) struct Balance {
    /// Bytes to write for each byte that is read.
    written_per_read: u64,
    /// The read bytes, as bytes to write for them.
    read: AtomicU64,
    written: AtomicU64,
}

impl Balance {
    /// How long a stream with nothing in flight sleeps while the other one catches up.
    const NAP: Duration = Duration::from_micros(100);

    pub fn new(written_per_read: u64) -> Self {
        Self { written_per_read, read: AtomicU64::new(0), written: AtomicU64::new(0) }
    }

    fn started(&self, way: Access, bytes: u64) {
        let (own, _) = self.sides(way);
        own.fetch_add(self.as_written(way, bytes), Ordering::Relaxed);
    }

    fn as_written(&self, way: Access, bytes: u64) -> u64 {
        if way == Access::Read { bytes * self.written_per_read } else { bytes }
    }

    /// Whether a stream in that direction has started more than `lead` bytes more than the other.
    fn is_ahead(&self, way: Access, lead: u64) -> bool {
        let (own, other) = self.sides(way);
        own.load(Ordering::Relaxed) > other.load(Ordering::Relaxed) + self.as_written(way, lead)
    }

    fn sides(&self, way: Access) -> (&AtomicU64, &AtomicU64) {
        match way {
            Access::Read => (&self.read, &self.written),
            Access::Write => (&self.written, &self.read),
        }
    }
}

/// The work of a stream or a worker from its start to its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved {
    pub bytes: u64,
    pub begun: Instant,
    pub ended: Instant,
    pub sync_seconds: f64,
    pub cpu_seconds: f64,
}

/// The work of a stream within a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub bytes: u64,
    /// Seconds, with their share of `sync_seconds`.
    pub seconds: f64,
    /// Seconds without that share.
    pub moving_seconds: f64,
    /// The whole time until the written bytes were durable.
    pub sync_seconds: f64,
    /// The counted bytes' share of the processor time.
    pub cpu_seconds: f64,
    /// Bytes from the start to the end, also those that do not count.
    pub in_all: u64,
}

/// Counts from the end of one operation to the end of another. So operations in flight, or a device that works in
/// bursts, add no part of an operation.
struct Count {
    window: Window,
    in_all: u64,
    /// The ends of the first and the last operation within the window, with the bytes until then.
    first: Option<(Instant, u64)>,
    last: Option<(Instant, u64)>,
}

impl Count {
    fn new(window: Window) -> Self {
        Self { window, in_all: 0, first: None, last: None }
    }

    fn ended(&mut self, bytes: u64, now: Instant) {
        self.in_all += bytes;
        let here = Some((now, self.in_all));
        if self.first.is_none() {
            self.first = here.filter(|_| now >= self.window.from);
        } else if self.last.is_none_or(|(at, _)| at < self.until()) {
            self.last = here;
        }
    }

    /// The operation that ends at this time or next is the last that counts. On a slow device, the first one may be
    /// late.
    fn until(&self) -> Instant {
        self.first.map_or(self.window.from, |(first, _)| first) + self.window.length
    }

    /// Bytes and seconds; of all operations if too few ended within the window.
    fn made(&self, begun: Instant, ended: Instant) -> (u64, f64) {
        match (self.first, self.last) {
            (Some((first, before)), Some((last, after))) if last > first && last >= ended.min(self.until()) => {
                (after - before, (last - first).as_secs_f64())
            }
            _ => (self.in_all, (ended - begun).as_secs_f64()),
        }
    }
}

impl Stream {
    /// A stream over `blocks` of a file. Its buffers are touched, and full of random bytes from `seed`, which cannot be
    /// packed on the way.
    pub fn new(
        (file, mode): (&Arc<OpenedFile>, Mode),
        shape: AccessPattern,
        blocks: Blocks,
        seed: u64,
    ) -> Result<Self> {
        let (depth, block) = (shape.queue_depth as usize, shape.block_bytes as usize);
        let (queue, pool) = (Queue::new(depth, mode)?, Pool::new(depth, block)?);
        let mut random = fastrand::Rng::with_seed(seed);
        for mut buffer in pool.take_all(depth)? {
            random.fill(&mut buffer);
        }
        Ok(Self { file: Arc::clone(file), queue, pool, shape, blocks, random })
    }

    /// Runs until the window is over, or until a sequential write has filled its range. Then it waits for all
    /// operations, and syncs the written bytes. A write may fill its range early: then half of it is the lead-in. With
    /// a `balance`, it is not faster than the other direction.
    pub fn run(&mut self, pace: &Pace<'_>, window: Window, balance: Option<&Balance>) -> Result<Counted> {
        let block = self.shape.block_bytes;
        let places = self.blocks.count();
        let (begun, processor) = (Instant::now(), thread_seconds());
        let mut count = Count::new(window);
        let mut number = 0;
        let fills = self.shape.way == Access::Write && self.shape.order == Order::Sequential;
        while !(fills && number == places) && pace.admits(block, count.until())? {
            while self.queue.in_flight() == self.queue.depth() {
                self.wait(&mut count)?;
            }
            if let Some(balance) = balance {
                self.wait_for_the_other(balance, &mut count)?;
            }
            let place = match self.shape.order {
                Order::Sequential | Order::Files => number % places,
                Order::Random => self.random.u64(0..places),
            };
            self.start(number, self.blocks.offset(place))?;
            number += 1;
            if fills && number == places / 2 {
                count.window.from = count.window.from.min(Instant::now());
            }
        }
        while self.queue.in_flight() > 0 {
            self.wait(&mut count)?;
        }
        let written = Instant::now();
        if self.shape.way == Access::Write {
            self.file.sync()?;
        }
        let sync_seconds = written.elapsed().as_secs_f64();
        let (bytes, moving_seconds) = count.made(begun, written);
        let share = bytes as f64 / count.in_all.max(1) as f64;
        let cpu_seconds = (thread_seconds() - processor).max(0.0) * share;
        let seconds = moving_seconds + sync_seconds * share;
        Ok(Counted { bytes, seconds, moving_seconds, sync_seconds, cpu_seconds, in_all: count.in_all })
    }

    /// Waits until the other direction has caught up, or the window is over: the other one may have ended.
    fn wait_for_the_other(&mut self, balance: &Balance, count: &mut Count) -> Result<()> {
        let (way, lead) = (self.shape.way, self.shape.block_bytes * self.shape.queue_depth);
        while balance.is_ahead(way, lead) && Instant::now() < count.until() {
            match self.queue.in_flight() {
                0 => std::thread::sleep(Balance::NAP),
                _ => self.wait(count)?,
            }
        }
        balance.started(way, self.shape.block_bytes);
        Ok(())
    }

    fn start(&mut self, tag: u64, offset: u64) -> Result<()> {
        let (buffer, length) = (self.pool.take()?, self.shape.block_bytes as usize);
        let started = match self.shape.way {
            Access::Read => self.queue.read(tag, &self.file, offset, buffer, length),
            Access::Write => self.queue.write(tag, &self.file, offset, Piece::new(buffer, 0..length)),
        };
        started.map_err(|error| self.failed(error))
    }

    /// Waits for the next operation that ends, and counts it.
    fn wait(&mut self, count: &mut Count) -> Result<()> {
        if let Some(Completion { result, .. }) = self.queue.wait().map_err(|error| self.failed(error))? {
            let moved = result.map_err(|error| self.failed(error))?;
            count.ended(moved as u64, Instant::now());
        }
        Ok(())
    }

    fn failed(&self, error: std::io::Error) -> Error {
        let action = match self.shape.way {
            Access::Read => "read",
            Access::Write => "write to",
        };
        Error::io(action, self.file.path.display().to_string(), error)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The rate of operations of 1 MiB that end at these milliseconds, counted from 150 on for `length`.
    fn rate(ends: impl IntoIterator<Item = u64>, length: u64) -> f64 {
        let begun = Instant::now();
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut count = Count::new(Window { from: at(150), length: Duration::from_millis(length) });
        let mut ended = begun;
        for end in ends {
            ended = at(end);
            count.ended(MIB, ended);
        }
        let (bytes, seconds) = count.made(begun, ended);
        bytes as f64 / MIB as f64 / seconds
    }

    #[test]
    fn a_direction_that_is_a_queue_ahead_waits_for_the_other_one() {
        let (balance, queue) = (Balance::new(1), 4 * MIB);
        for _ in 0..5 {
            assert!(!balance.is_ahead(Access::Read, queue));
            balance.started(Access::Read, MIB);
        }
        assert!(balance.is_ahead(Access::Read, queue) && !balance.is_ahead(Access::Write, queue));
        balance.started(Access::Write, MIB);
        assert!(!balance.is_ahead(Access::Read, queue));
    }

    #[test]
    fn a_write_heavy_mix_reads_half_of_what_it_writes() {
        let balance = Balance::new(2);
        balance.started(Access::Read, 4 * MIB);
        assert!(!balance.is_ahead(Access::Read, 4 * MIB) && balance.is_ahead(Access::Read, 3 * MIB));
        balance.started(Access::Write, 8 * MIB);
        assert!(!balance.is_ahead(Access::Read, 0) && !balance.is_ahead(Access::Write, 0));
    }

    #[test]
    fn the_first_burst_and_unfinished_operations_do_not_count() {
        // 25 operations at the start of each 100 ms: 250 a second.
        let bursts = (0..10).flat_map(|slice| (0..25).map(move |number| slice * 100 + number / 5));
        assert!((rate(bursts, 300) - 250.0).abs() < 0.01);
        let evenly = (1..=60).map(|number| number * 10);
        assert!((rate(evenly, 305) - 100.0).abs() < 0.01);
    }

    #[test]
    fn a_window_ends_between_the_fillings_of_a_bucket() {
        let length = |milliseconds| between_bursts(Duration::from_millis(milliseconds)).as_millis() as u64;
        assert_eq!([20, 60, 100, 200, 240, 350, 1000].map(length), [20, 50, 50, 150, 150, 350, 950]);
        // Eight operations within two milliseconds, and the first may be a little early or late: 80 a second.
        for wanted in [100, 200, 300, 400, 700] {
            for late in [0, 1] {
                let burst = move |slice: u64| (0..8).map(move |number| slice * 100 + number / 4 + late * (slice % 2));
                let made = rate((0..12).flat_map(burst), length(wanted));
                assert!((made / 80.0 - 1.0).abs() < 0.02, "{wanted} ms: {made}");
            }
        }
    }

    #[test]
    fn operations_that_end_together_do_not_make_a_window_of_no_length() {
        // Four in flight, which a slow device ends all at once, every 400 ms.
        let together = (1..=4).flat_map(|time| [time * 400; 4]);
        assert!((rate(together, 200) - 10.0).abs() < 0.01);
        assert_eq!(rate([500, 500, 500, 500], 200), 8.0, "no operation came after them: all of them count");
    }

    #[test]
    fn a_round_without_two_ends_in_its_window_counts_as_a_whole() {
        assert_eq!(rate([100], 200), 10.0);
        assert_eq!(rate([100, 200], 200), 10.0);
        assert_eq!(rate([200, 1200], 200), 1.0, "on a slow device, the window is as long as an operation");
    }
}
