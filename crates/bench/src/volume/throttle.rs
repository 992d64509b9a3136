//! Rates of a block device, limited by the kernel: the block controller of control groups, version 1, on the root
//! group. The root group also counts later write-backs of the kernel. This module counts burst credit, and sets the
//! higher rates while there is some.
//!
//! The kernel counts requests as the device gets them. With requests of at most `io-size` bytes (`max_sectors_kb`), it
//! counts as the provider does: a transfer of a MiB is four operations of 256 KiB (measured; `docs/BENCH.md`, "How").

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::emulated::{Ceiling, Promise};
use fullbore_core::{Error, Result, threads};

/// The directory of the controller.
pub const CONTROLLER: &str = "/sys/fs/cgroup/blkio";
/// Its files of bytes per second, for reads and for writes.
pub const BYTES: [&str; 2] = ["blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device"];
/// The same for operations per second.
pub const OPERATIONS: [&str; 2] = ["blkio.throttle.read_iops_device", "blkio.throttle.write_iops_device"];
/// How often credit is counted: at 250 MiB/s no more than 13 MiB pass at the old rate.
const TICK: Duration = Duration::from_millis(50);
/// Bytes of a sector in the kernel's statistics.
const SECTOR: f64 = 512.0;
/// The kernel's file of the largest request of a device in KiB.
const REQUEST: &str = "queue/max_sectors_kb";
/// The smallest request limit of the kernel, in KiB: a page.
const LEAST_REQUEST_KIB: u64 = 4;

/// The limit of one device's rates.
pub struct Throttle {
    /// The kernel's directory of the device.
    device: PathBuf,
    /// Its number in the form of the controller: `7:0`.
    number: String,
    promise: Promise,
    /// Operations of the kernel for one operation of the promise.
    operations_for_one: f64,
    /// The earlier largest request in KiB, as the kernel wrote it.
    request_before: Option<String>,
    state: Mutex<State>,
}

#[derive(PartialEq)]
enum State {
    Idle,
    Kept,
    Lifted,
}

impl Throttle {
    /// For a device, whose requests are limited to the promise's size from here on. If the promise counts no
    /// operations, the limit is the device's largest request: an earlier volume of the same number may have left
    /// another limit.
    ///
    /// # Errors
    /// The kernel does not accept the size, or does not show the number.
    pub fn of(device: &Path, promise: Promise) -> Result<Self> {
        let path = device.join("dev");
        let number = fs::read_to_string(&path).map_err(|e| Error::io("read", path.display().to_string(), e))?;
        let most = greatest_request_kib(device);
        let (request, operations_for_one) = match promise.operations {
            None => (most, 1.0),
            Some(_) => {
                let bytes = u64::from(promise.operation_bytes);
                let (request, each) = request_kib(bytes, most.unwrap_or(u64::MAX));
                (Some(request), each)
            }
        };
        let path = device.join(REQUEST);
        let request_before = fs::read_to_string(&path).ok();
        if let Some(request) = request {
            fs::write(&path, request.to_string()).map_err(|e| Error::io("write", path.display().to_string(), e))?;
        }
        let (device, number) = (device.to_owned(), number.trim().to_owned());
        let state = Mutex::new(State::Idle);
        Ok(Self { device, number, promise, operations_for_one, request_before, state })
    }

    /// Restores the earlier request limit, while the device still belongs to the volume.
    pub fn put_back(&self) {
        if let Some(before) = &self.request_before {
            let _ = fs::write(self.device.join(REQUEST), before.trim()); // The kernel accepted it before.
        }
    }

    /// Limits the rates from here on, with full credit.
    ///
    /// # Errors
    /// The kernel does not accept the rates.
    pub fn begin(self: &Arc<Self>) -> Result<()> {
        *self.lock() = State::Kept;
        let mut credits = Credits::full(&self.promise);
        self.keep(credits.rates(&self.promise))?;
        let bursts =
            self.promise.bytes.burst.is_some() || self.promise.operations.is_some_and(|one| one.burst.is_some());
        if bursts {
            let throttle = Arc::clone(self);
            threads::start("credit", move || throttle.count(&mut credits))?;
        }
        Ok(())
    }

    /// Removes all caps; waiting threads continue at once.
    pub fn lift(&self) {
        let mut state = self.lock();
        *state = State::Lifted;
        no_caps(&self.number);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts credit until the caps are lifted, and changes them when the credit ends or returns.
    fn count(&self, credits: &mut Credits) {
        let (mut last, mut seen, mut kept) = (Instant::now(), used(&self.device), credits.rates(&self.promise));
        loop {
            std::thread::sleep(TICK);
            if *self.lock() == State::Lifted {
                return;
            }
            let (now, sum) = (Instant::now(), used(&self.device));
            let seconds = (now - last).as_secs_f64();
            credits.pass(&self.promise, seconds, sum.0 - seen.0, (sum.1 - seen.1) / self.operations_for_one);
            (last, seen) = (now, sum);
            let rates = credits.rates(&self.promise);
            if rates != kept && self.keep(rates).is_ok() {
                kept = rates;
            }
        }
    }

    /// Writes rates of bytes and operations, unless they were lifted meanwhile.
    fn keep(&self, (bytes, operations): (f64, Option<f64>)) -> Result<()> {
        let state = self.lock();
        if *state == State::Lifted {
            return Ok(());
        }
        let operations = operations.map(|rate| rate * self.operations_for_one);
        let write = |file: &str, rate: u64| {
            let path = Path::new(CONTROLLER).join(file);
            let written = fs::write(&path, format!("{} {rate}\n", self.number));
            written.map_err(|e| Error::io("write a rate to", path.display().to_string(), e))
        };
        for file in BYTES {
            write(file, (bytes as u64).max(1))?;
        }
        for file in OPERATIONS {
            if let Some(rate) = operations {
                write(file, (rate as u64).clamp(1, u64::from(u32::MAX)))?;
            }
        }
        Ok(())
    }
}

/// Removes the caps of a device of an earlier bench, and gives it its greatest requests.
pub fn lift(device: &Path) {
    no_caps(fs::read_to_string(device.join("dev")).unwrap_or_default().trim());
    if let Some(most) = greatest_request_kib(device) {
        let _ = fs::write(device.join(REQUEST), most.to_string()); // The next volume on it sets its own.
    }
}

/// KiB of the largest request that the device takes.
fn greatest_request_kib(device: &Path) -> Option<u64> {
    fs::read_to_string(device.join("queue/max_hw_sectors_kb")).ok()?.trim().parse().ok()
}

/// Removes the caps of a device, by its number.
fn no_caps(number: &str) {
    for file in BYTES.iter().chain(&OPERATIONS) {
        let _ = fs::write(Path::new(CONTROLLER).join(file), format!("{number} 0\n")); // There may be none.
    }
}

/// The request limit in KiB for operations of `bytes` bytes, on a device that takes `most` KiB; and the number of
/// requests for one operation.
fn request_kib(bytes: u64, most: u64) -> (u64, f64) {
    let request = (bytes >> 10).clamp(LEAST_REQUEST_KIB, most.max(LEAST_REQUEST_KIB));
    (request, bytes as f64 / (request << 10) as f64)
}

/// Bytes and requests of a device since it exists.
fn used(device: &Path) -> (f64, f64) {
    let text = fs::read_to_string(device.join("stat")).unwrap_or_default();
    let field = |at| text.split_whitespace().nth(at).and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
    // Documentation/block/stat.rst: reads, merged, sectors, milliseconds; the same for writes.
    ((field(2) + field(6)) * SECTOR, field(0) + field(4))
}

/// Credit in bytes and in operations.
struct Credits {
    bytes: f64,
    operations: f64,
}

impl Credits {
    fn full(promise: &Promise) -> Self {
        let of = |ceiling: Ceiling| ceiling.burst.map_or(0.0, |(_, credit)| credit);
        Self { bytes: of(promise.bytes), operations: promise.operations.map_or(0.0, of) }
    }

    /// Books bytes and operations of `seconds`. Credit returns at the lasting rate, up to its value at the start.
    fn pass(&mut self, promise: &Promise, seconds: f64, bytes: f64, operations: f64) {
        let after = |credit: f64, ceiling: Ceiling, amount: f64| {
            let most = ceiling.burst.map_or(0.0, |(_, credit)| credit);
            (credit + seconds * ceiling.rate - amount).min(most)
        };
        self.bytes = after(self.bytes, promise.bytes, bytes);
        if let Some(ceiling) = promise.operations {
            self.operations = after(self.operations, ceiling, operations);
        }
    }

    /// Bytes and operations per second that may pass now.
    fn rates(&self, promise: &Promise) -> (f64, Option<f64>) {
        let now = |ceiling: Ceiling, credit: f64| match ceiling.burst {
            Some((high, _)) if credit > 0.0 => high,
            _ => ceiling.rate,
        };
        (now(promise.bytes, self.bytes), promise.operations.map(|ceiling| now(ceiling, self.operations)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::volume::profile;

    #[test]
    fn requests_are_as_long_as_an_operation_and_what_does_not_fit_is_converted() {
        assert_eq!(request_kib(256 << 10, 1280), (256, 1.0));
        assert_eq!(request_kib(2 << 20, 1024), (1024, 2.0), "one operation of 2 MiB is two requests");
        assert_eq!(request_kib(512, 1280), (4, 0.125), "a page is eight operations of 512 bytes");
    }

    #[test]
    fn a_device_has_its_requests_back_and_one_that_counts_none_has_the_greatest() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path();
        let write = |name: &str, text: &str| fs::write(device.join(name), text).unwrap();
        let request = || fs::read_to_string(device.join(REQUEST)).unwrap();
        fs::create_dir(device.join("queue")).unwrap();
        write("dev", "7:99999\n");
        write("queue/max_hw_sectors_kb", "1280\n");
        write(REQUEST, "512\n");
        let mut promise = profile("io1-9000").unwrap().promise;
        let throttle = Throttle::of(device, promise).unwrap();
        assert_eq!(request(), "256");
        throttle.put_back();
        assert_eq!(request(), "512");
        promise.operations = None;
        Throttle::of(device, promise).unwrap();
        assert_eq!(request(), "1280", "an earlier limit is replaced");
    }

    #[test]
    fn the_high_rate_lasts_as_long_as_its_credit_and_comes_back() {
        let promise = profile("gp2-100gb").unwrap().promise;
        let (_, most) = promise.operations.unwrap().burst.unwrap();
        let mut credits = Credits::full(&promise);
        assert_eq!(credits.rates(&promise).1, Some(3000.0));
        // 3,000 are used in a second, and 300 return: the credit ends after credit / 2,700 seconds.
        let seconds = most / 2700.0;
        credits.pass(&promise, seconds - 1.0, 0.0, (seconds - 1.0) * 3000.0);
        assert_eq!(credits.rates(&promise).1, Some(3000.0));
        credits.pass(&promise, 2.0, 0.0, 6000.0);
        assert_eq!(credits.rates(&promise).1, Some(300.0));
        credits.pass(&promise, 1e9, 0.0, 0.0);
        assert!(credits.operations <= most, "not more than at the start: {}", credits.operations);
        assert_eq!(credits.rates(&promise).1, Some(3000.0));
    }

    #[test]
    fn a_volume_without_burst_has_one_rate() {
        let promise = profile("io1-9000").unwrap().promise;
        let mut credits = Credits::full(&promise);
        credits.pass(&promise, 1.0, 1e12, 1e9);
        assert_eq!(credits.rates(&promise), (500.0 * 1048576.0, Some(9000.0)));
    }
}
