//! Volume profiles: the promises of cloud volumes, by name, and how a child gets such a volume.

pub mod block;
pub mod environment;
mod how;
mod throttle;

use std::time::Duration;

use crate::emulated::{Ceiling, Promise};
use fullbore_core::{Error, Result};

pub use how::{Choice, How, Means};

use fullbore_model::throughput::nominal;

/// The largest operation of EBS that counts as one, in bytes; the figures of `nominal` are in bytes of such operations.
pub(crate) const OPERATION: u32 = 256 << 10;
/// gp2: operations per second for each GiB, the least and the most; then those of a burst with its credit; as in
/// `nominal`.
const GP2: (f64, f64, f64) = (3.0, 100.0, 16_000.0);
const GP2_BURST: (f64, f64) = (3_000.0, 5_400_000.0);

/// A volume, given by its promise.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// As the matrix calls it.
    pub name: String,
    /// Its promise.
    pub promise: Promise,
}

impl Profile {
    /// The promise with scaled burst credits.
    pub fn scaled(&self, scale: f64) -> Promise {
        let smaller =
            |ceiling: Ceiling| Ceiling { burst: ceiling.burst.map(|(rate, credit)| (rate, credit * scale)), ..ceiling };
        let promise = self.promise;
        Promise { bytes: smaller(promise.bytes), operations: promise.operations.map(smaller), ..promise }
    }

    /// Bytes per second without burst, in operations of a MiB.
    pub fn lasting_rate(&self) -> f64 {
        let by_operations = self
            .promise
            .operations
            .map_or(f64::INFINITY, |operations| operations.rate * f64::from(self.promise.operation_bytes));
        self.promise.bytes.rate.min(by_operations)
    }

    /// All its numbers, for the identity of a cell.
    pub fn numbers(&self) -> String {
        let Promise { bytes, operations, operation_bytes, latency } = self.promise;
        let ceiling = |ceiling: Ceiling| match ceiling.burst {
            Some((rate, credit)) => format!("{}+{rate}/{credit}", ceiling.rate),
            None => ceiling.rate.to_string(),
        };
        let operations = operations.map_or_else(String::new, ceiling);
        format!("{} {operations} {operation_bytes} {}", ceiling(bytes), latency.as_secs_f64())
    }
}

/// The profile of a known kind of volume: `gp2-1.5tb`, `io1-9000`.
///
/// # Errors
/// There is no profile with that name.
pub fn profile(name: &str) -> Result<Profile> {
    let unknown = || {
        Error::usage(
            "volume",
            format!("there is no volume `{name}`"),
            "write none, gp2-SIZE (gp2-1.5tb), io1-IOPS (io1-9000), or add a table [volume.NAME]",
        )
    };
    let (kind, figure) = name.split_once('-').ok_or_else(unknown)?;
    match kind {
        "gp2" => gp2(name, gib(figure).ok_or_else(unknown)?),
        "io1" => {
            let iops: u32 = figure.parse().map_err(|_| unknown())?;
            if !(100..=64_000).contains(&iops) {
                return Err(Error::usage("volume", format!("`{name}` is out of bounds"), "io1 has 100 to 64000 IOPS"));
            }
            let operations = Some(Ceiling { rate: f64::from(iops), burst: None });
            Ok(of_ebs(name, Ceiling { rate: nominal::io1(f64::from(iops)).total_rate, burst: None }, operations))
        }
        _ => Err(unknown()),
    }
}

/// `1.5tb` or `100gb` as GiB: providers sell binary units and write decimal ones.
fn gib(text: &str) -> Option<f64> {
    let (number, factor) = match text.strip_suffix("tb") {
        Some(number) => (number, 1024.0),
        None => (text.strip_suffix("gb")?, 1.0),
    };
    let gib = number.parse::<f64>().ok()? * factor;
    (1.0..=16_384.0).contains(&gib).then_some(gib)
}

fn gp2(name: &str, gib: f64) -> Result<Profile> {
    let ceiling = nominal::gp2(gib);
    let base = (gib * GP2.0).clamp(GP2.1, GP2.2);
    let bytes = Ceiling { rate: ceiling.total_rate, burst: ceiling.burst.map(|burst| (burst.rate, burst.credit)) };
    let burst = (base < GP2_BURST.0).then_some(GP2_BURST);
    Ok(of_ebs(name, bytes, Some(Ceiling { rate: base, burst })))
}

fn of_ebs(name: &str, bytes: Ceiling, operations: Option<Ceiling>) -> Profile {
    let promise = Promise { bytes, operations, operation_bytes: OPERATION, latency: Duration::ZERO };
    Profile { name: name.to_owned(), promise }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    use fullbore_core::units::MIB;

    #[test]
    fn known_volumes_have_the_figures_of_their_provider() {
        let large = profile("gp2-1.5tb").unwrap().promise;
        assert_eq!(large.bytes, Ceiling { rate: 250.0 * MIB, burst: None });
        assert_eq!(large.operations.unwrap().rate, 1536.0 * 3.0);
        let small = profile("gp2-100gb").unwrap().promise;
        assert_eq!(small.operations.unwrap(), Ceiling { rate: 300.0, burst: Some((3000.0, 5.4e6)) });
        assert_eq!(small.bytes.burst.unwrap().0, 128.0 * MIB);
        assert_eq!(profile("gp2-200gb").unwrap().promise.bytes.burst.unwrap().0, 250.0 * MIB);
        assert_eq!(profile("io1-9000").unwrap().lasting_rate(), 500.0 * MIB);
    }

    #[test]
    fn a_volume_that_nobody_sells_is_refused() {
        for name in ["gp2-", "gp2-x", "gp2-99tb", "io1-", "io1-70000", "io1-1", "st1-1tb", "fast", "gp2-nantb"] {
            let error = profile(name).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("hint: "), "{error}");
        }
    }

    #[test]
    fn credit_gets_smaller_with_the_world_and_rates_do_not() {
        let scaled = profile("gp2-100gb").unwrap().scaled(0.001).operations.unwrap();
        assert_eq!((scaled.rate, scaled.burst), (300.0, Some((3000.0, 5400.0))));
    }
}
