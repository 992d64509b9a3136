//! Emulated volumes, for benchmarks: a token bucket before each device, so that a fast machine behaves as one with a
//! slow volume.
//!
//! A job without [`EmulatedVolumes`] is free of this: the wrappers for sources, sinks, supplies and targets are used
//! only where a volume was named.

mod bucket;
mod devices;
mod source;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use bucket::{Bucket, Ceiling};
pub use devices::{PacedSink, PacedSupply, PacedTarget};
pub use source::PacedSource;

use fullbore_core::Result;
use fullbore_core::conduct::Volumes;
use fullbore_core::halt::Halt;
use fullbore_core::sink::Sink;
use fullbore_core::source::Source;
use fullbore_core::supply::Supply;
use fullbore_core::unpack::Target;

/// The longest sleep before a stopped job notices the stop.
const NAP: Duration = Duration::from_millis(50);

/// What a volume promises. Reads and writes share it, as they do on block volumes of cloud providers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Promise {
    /// Bytes per second.
    pub bytes: Ceiling,
    /// Operations per second.
    pub operations: Option<Ceiling>,
    /// Bytes of the largest operation that counts as one; above 0.
    pub operation_bytes: u32,
    /// The latency of an operation; several of a stream may be under way meanwhile.
    pub latency: Duration,
}

/// A volume in use.
pub struct Volume {
    promise: Promise,
    started: Instant,
    buckets: Mutex<Buckets>,
}

struct Buckets {
    bytes: Bucket,
    operations: Option<Bucket>,
}

impl Volume {
    /// One whose credit is full.
    pub fn new(promise: Promise) -> Self {
        let buckets = Buckets { bytes: Bucket::new(promise.bytes), operations: promise.operations.map(Bucket::new) };
        Self { promise, started: Instant::now(), buckets: Mutex::new(buckets) }
    }

    /// Returns when an operation of `bytes` bytes would have passed. `side_by_side`: how many of the caller's
    /// operations are under way at a time and share its latency.
    ///
    /// # Errors
    /// The job was stopped meanwhile.
    pub fn pass(&self, bytes: u64, side_by_side: usize, halt: &Halt) -> Result<()> {
        let latency = self.promise.latency / u32::try_from(side_by_side.max(1)).unwrap_or(u32::MAX);
        self.wait(self.begin(bytes, latency), halt)
    }

    /// Begins an operation of `bytes` bytes; gives its end, on the volume's clock.
    fn begin(&self, bytes: u64, latency: Duration) -> Duration {
        if bytes == 0 {
            return Duration::ZERO;
        }
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.started.elapsed().as_secs_f64();
        let over = buckets.pass(now, bytes, self.promise.operation_bytes);
        Duration::try_from_secs_f64(over).unwrap_or(Duration::MAX).saturating_add(latency)
    }

    /// Waits until the volume's clock says `over`.
    fn wait(&self, over: Duration, halt: &Halt) -> Result<()> {
        loop {
            halt.check()?;
            let left = over.saturating_sub(self.started.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(NAP));
        }
    }
}

impl Buckets {
    fn pass(&mut self, now: f64, bytes: u64, operation_bytes: u32) -> f64 {
        let by_bytes = self.bytes.pass(now, bytes as f64);
        let count = bytes.div_ceil(u64::from(operation_bytes.max(1))) as f64;
        self.operations.as_mut().map_or(by_bytes, |operations| operations.pass(now, count).max(by_bytes))
    }
}

/// The volumes of a job.
#[derive(Default)]
pub struct EmulatedVolumes {
    /// Under the database: the source of a backup, the target of a restore.
    pub database: Option<Arc<Volume>>,
    /// Under the media, each for the families in its directory.
    pub media: Vec<(PathBuf, Arc<Volume>)>,
}

impl EmulatedVolumes {
    fn under(&self, device: &str) -> Option<Arc<Volume>> {
        let found = self.media.iter().find(|(directory, _)| Path::new(device).starts_with(directory));
        found.map(|(_, volume)| Arc::clone(volume))
    }
}

impl Volumes for EmulatedVolumes {
    fn sink(&self, sink: Box<dyn Sink>, queue_depth: usize, halt: &Halt) -> Box<dyn Sink> {
        match self.under(sink.device()) {
            Some(volume) => Box::new(PacedSink::new(sink, volume, queue_depth, halt.clone())),
            None => sink,
        }
    }

    fn supply(&self, supply: Box<dyn Supply>, queue_depth: usize, halt: &Halt) -> Box<dyn Supply> {
        match self.under(supply.device()) {
            Some(volume) => Box::new(PacedSupply::new(supply, volume, queue_depth, halt.clone())),
            None => supply,
        }
    }

    fn source<'a>(&self, source: &'a dyn Source, halt: &Halt) -> Option<Box<dyn Source + 'a>> {
        let volume = self.database.clone()?;
        Some(Box::new(PacedSource::new(source, volume, halt.clone())))
    }

    fn target<'a>(&self, target: &'a dyn Target, halt: &Halt) -> Option<Box<dyn Target + 'a>> {
        let volume = self.database.clone()?;
        Some(Box::new(PacedTarget::new(target, volume, halt.clone())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use fullbore_core::Error;

    fn promise(bytes: f64, operations: f64) -> Promise {
        let ceiling = |rate| Ceiling { rate, burst: None };
        Promise {
            bytes: ceiling(bytes),
            operations: Some(ceiling(operations)),
            operation_bytes: 256 << 10,
            latency: Duration::ZERO,
        }
    }

    fn buckets(promise: Promise) -> Buckets {
        Buckets { bytes: Bucket::new(promise.bytes), operations: promise.operations.map(Bucket::new) }
    }

    #[test]
    fn a_large_request_counts_as_several_operations() {
        let mut few_operations = buckets(promise(1e12, 100.0));
        assert!((few_operations.pass(0.0, 1 << 20, 256 << 10) - 0.04).abs() < 1e-9);
        assert!((few_operations.pass(0.0, 4096, 256 << 10) - 0.05).abs() < 1e-9);
        let mut few_bytes = buckets(promise(1e6, 1e9));
        assert!((few_bytes.pass(0.0, 1_000_000, 256 << 10) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_thread_that_waits_for_a_volume_ends_with_the_job() {
        let volume = Volume::new(promise(1.0, 1.0));
        let halt = Halt::new();
        halt.stop(Error::Halted);
        assert!(matches!(volume.pass(1 << 30, 1, &halt), Err(Error::Halted)));
    }

    #[test]
    fn operations_under_way_share_their_latency_and_not_the_bytes() {
        let latency = Duration::from_secs(1000);
        let volume = Volume::new(Promise { latency, ..promise(1e6, 1e9) });
        let first = volume.begin(1_000_000, latency);
        let second = volume.begin(1_000_000, latency);
        let apart = second.saturating_sub(first);
        assert!(apart >= Duration::from_millis(999) && apart < Duration::from_secs(2), "{apart:?}");
        assert_eq!(volume.begin(0, latency), Duration::ZERO, "nothing is moved, and nothing waited for");
    }

    #[test]
    fn a_family_on_a_slow_volume_arrives_whole_in_order_and_every_buffer_comes_home() {
        let pool = fullbore_core::pool::Pool::new(4, 4096).unwrap();
        let sink = Box::new(fullbore_core::sink::NullSink::new()); // It refuses what is out of order.
        let latency = Duration::from_millis(1);
        let volume = Arc::new(Volume::new(Promise { latency, ..promise(1e9, 1e9) }));
        let mut sink = PacedSink::new(sink, volume, 3, Halt::new());
        for number in 0..20 {
            let piece = fullbore_core::pool::Piece::new(pool.take().unwrap(), 0..4096);
            sink.write(number * 4096, piece).unwrap();
            assert!(sink.in_flight() <= 3);
        }
        sink.ease().unwrap();
        assert!(sink.in_flight() < 3);
        sink.sync().unwrap();
        assert_eq!((sink.in_flight(), sink.account().bytes), (0, 20 * 4096));
        assert_eq!(std::iter::from_fn(|| pool.try_take()).collect::<Vec<_>>().len(), 4);
    }

    #[test]
    fn a_family_on_a_slow_volume_that_is_abandoned_gives_its_buffers_home() {
        let pool = fullbore_core::pool::Pool::new(2, 4096).unwrap();
        let volume = Arc::new(Volume::new(promise(1.0, 1.0)));
        let mut sink = PacedSink::new(Box::new(fullbore_core::sink::NullSink::new()), volume, 2, Halt::new());
        for number in 0..2 {
            sink.write(number * 4096, fullbore_core::pool::Piece::new(pool.take().unwrap(), 0..4096)).unwrap();
        }
        sink.abandon();
        assert_eq!((sink.in_flight(), std::iter::from_fn(|| pool.try_take()).collect::<Vec<_>>().len()), (0, 2));
    }

    #[test]
    fn a_family_is_on_the_volume_of_its_directory() {
        let volume = |rate| Arc::new(Volume::new(promise(rate, 1.0)));
        let media = vec![("/m/1".into(), volume(1.0)), ("/m/2".into(), volume(2.0))];
        let volumes = EmulatedVolumes { database: None, media };
        let rate = |device: &str| volumes.under(device).map(|volume| volume.promise.bytes.rate);
        assert_eq!((rate("/m/2/a.bore"), rate("/m/1/a.bore")), (Some(2.0), Some(1.0)));
        assert_eq!((rate("/m/22/a.bore"), rate("nul:")), (None, None));
    }
}
