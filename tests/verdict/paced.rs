//! A database and media in memory whose every stage takes a known time for a byte, by sleeping.

use std::cell::Cell;
use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use fullbore_core::Result;
use fullbore_core::meter::Clock;
use fullbore_core::pool::Piece;
use fullbore_core::sink::{DeviceAccount, Sink};
use fullbore_core::source::{Extent, Reader, Source, Stream};
use fullbore_core::supply::Supply;
use fullbore_core::testkit::{MemorySink, MemorySupply};
use fullbore_core::unpack::{BlockTaker, CheckedBlock, Target};

/// Bytes of an extent, and so of a block: twelve pages, which fit into the least buffer with the head of a block.
pub const EXTENT: u32 = 48 << 10;
/// Lateness of a sleep that is made up for by the next ones; more was another process, and stays.
const LATE: Duration = Duration::from_millis(8);

thread_local! {
    static OWED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Time that a byte takes on one thread.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pace {
    pub seconds_per_byte: f64,
}

impl Pace {
    /// Lets the time of these bytes pass.
    fn pass(self, bytes: usize) {
        let wanted = Duration::from_secs_f64(self.seconds_per_byte * bytes as f64);
        let owed = OWED.get();
        if wanted <= owed {
            return OWED.set(owed - wanted);
        }
        let (begun, wanted) = (Instant::now(), wanted - owed);
        thread::sleep(wanted);
        OWED.set(begun.elapsed().saturating_sub(wanted).min(LATE));
    }
}

/// One file of so many extents, half of whose bytes a codec can save.
pub struct PacedSource {
    streams: Vec<Stream>,
    page: Vec<u8>,
    read: Pace,
    transform: Pace,
}

impl PacedSource {
    pub fn new(extents: u64, read: Pace, transform: Pace) -> Self {
        let size = extents * u64::from(EXTENT);
        let streams = vec![Stream { id: 1, name: "file".into(), unit: 4096, size }];
        let mut random = fastrand::Rng::with_seed(7);
        let page = (0..EXTENT).map(|at| if at % 4096 < 2048 { random.u8(..) } else { 1 }).collect();
        Self { streams, page, read, transform }
    }
}

impl Source for PacedSource {
    fn streams(&self) -> &[Stream] {
        &self.streams
    }

    fn reader(&self, index: usize, count: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(PacedReader { source: self, next: index as u64, count: count as u64 }))
    }

    /// A worker asks once for each page: at the first one of an extent, the time of its work passes.
    fn is_free(&self, _: u32, offset: u64) -> bool {
        if offset.is_multiple_of(EXTENT.into()) {
            self.transform.pass(EXTENT as usize);
        }
        false
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

struct PacedReader<'a> {
    source: &'a PacedSource,
    next: u64,
    count: u64,
}

impl Reader for PacedReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let offset = self.next * u64::from(EXTENT);
        if offset >= self.source.streams[0].size {
            return Ok(None);
        }
        self.next += self.count;
        self.source.read.pass(EXTENT as usize);
        buffer[..EXTENT as usize].copy_from_slice(&self.source.page);
        Ok(Some(Extent { stream: 1, layer: 0, offset, length: EXTENT }))
    }
}

/// A family in memory that takes its time to be written, and to be complete.
pub struct PacedSink {
    sink: MemorySink,
    write: Pace,
    /// How long it takes to give it its name.
    completing: Duration,
}

impl PacedSink {
    pub fn new(sink: MemorySink, write: Pace, completing: Duration) -> Self {
        Self { sink, write, completing }
    }
}

impl Sink for PacedSink {
    fn device(&self) -> &str {
        self.sink.device()
    }

    fn write(&mut self, offset: u64, piece: Piece) -> Result<()> {
        self.write.pass(piece.len());
        self.sink.write(offset, piece)
    }

    fn settle(&mut self, in_flight: usize) -> Result<()> {
        self.sink.settle(in_flight)
    }

    fn in_flight(&self) -> usize {
        self.sink.in_flight()
    }

    fn sync(&mut self) -> Result<()> {
        self.sink.sync()
    }

    fn publish(&mut self) -> Result<()> {
        thread::sleep(self.completing);
        self.sink.publish()
    }

    fn retire(&mut self) -> Result<()> {
        self.sink.retire()
    }

    fn abandon(&mut self) {
        self.sink.abandon();
    }

    fn account(&self) -> DeviceAccount {
        self.sink.account()
    }

    fn die(&mut self) {
        self.sink.die();
    }
}

/// The same, to be read.
pub struct PacedSupply(pub MemorySupply, pub Pace);

impl Supply for PacedSupply {
    fn device(&self) -> &str {
        self.0.device()
    }

    fn size(&self) -> Option<u64> {
        self.0.size()
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.0.read_at(offset, buffer)
    }

    fn next(&mut self) -> Result<Option<Piece>> {
        let piece = self.0.next()?;
        self.1.pass(piece.as_ref().map_or(0, |piece| piece.len()));
        Ok(piece)
    }

    fn aim(&mut self, ranges: Vec<Range<u64>>) -> Result<()> {
        self.0.aim(ranges)
    }

    fn account(&self) -> DeviceAccount {
        self.0.account()
    }
}

/// Takes bytes in its time and forgets them; its blocks take the workers' time.
pub struct PacedTarget {
    pub transform: Pace,
    pub write: Pace,
}

impl Target for PacedTarget {
    fn discards(&self) -> bool {
        false
    }

    fn blocks(&self) -> Result<Option<Box<dyn BlockTaker + '_>>> {
        Ok(Some(Box::new(PacedWork(self.transform))))
    }

    fn write(&self, _: u32, _: u64, bytes: &[u8]) -> Result<()> {
        self.write.pass(bytes.len());
        Ok(())
    }

    fn zero(&self, _: u32, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
}

struct PacedWork(Pace);

impl BlockTaker for PacedWork {
    fn take(&mut self, block: &CheckedBlock<'_>, _: &mut Clock) -> Result<()> {
        self.0.pass(block.plain.len());
        Ok(())
    }
}
