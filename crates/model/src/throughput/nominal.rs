//! Volumes by their nominal figures, as providers publish them: a start before any measurement.
//!
//! Source of the figures: "Amazon EBS volume types", user guide for EC2, as of 2020 (the year of the published tables).

use super::path::{Burst, Ceiling};

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;

/// Operations per second for each GiB of a gp2 volume.
const GP2_PER_GIB: f64 = 3.0;
/// The least and the most operations per second.
const GP2_OPERATIONS: (f64, f64) = (100.0, 16_000.0);
/// Operations per second of a gp2 volume while it has credit.
const GP2_BURST_OPERATIONS: f64 = 3_000.0;
/// Operations of credit in a full bucket.
const GP2_CREDIT_OPERATIONS: f64 = 5_400_000.0;
/// The most bytes per second of a gp2 volume, while it has credit; from 334 GiB on, its operations give this
/// permanently.
const GP2_MOST: f64 = 250.0 * MIB;
/// GiB of the largest gp2 volume that has a lower ceiling.
const GP2_SMALL_GIB: f64 = 170.0;
/// The lower ceiling of these small volumes, in bytes per second.
const GP2_SMALL_MOST: f64 = 128.0 * MIB;
/// Bytes of the largest operation that counts as one.
const OPERATION: f64 = 256.0 * KIB;

/// Up to this number of operations per second, an io1 volume has one ceiling.
const IO1_FLAT_OPERATIONS: f64 = 32_000.0;
/// This ceiling in bytes per second; and beyond it, the bytes for each operation.
const IO1_FLAT: f64 = 500.0 * MIB;
const IO1_PER_OPERATION: f64 = 16.0 * KIB;
/// The most bytes per second.
const IO1_MOST: f64 = 1000.0 * MIB;

/// A gp2 volume of `gib` GiB with a full bucket.
pub fn gp2(gib: f64) -> Ceiling {
    let base = (gib * GP2_PER_GIB).clamp(GP2_OPERATIONS.0, GP2_OPERATIONS.1);
    let most = if gib > GP2_SMALL_GIB { GP2_MOST } else { GP2_SMALL_MOST };
    let total_rate = (base * OPERATION).min(most);
    let burst_rate = (GP2_BURST_OPERATIONS * OPERATION).min(most);
    // Large operations reach the ceiling in bytes long before the ceiling in operations: then there is no burst.
    let burst =
        (burst_rate > total_rate).then_some(Burst { rate: burst_rate, credit: GP2_CREDIT_OPERATIONS * OPERATION });
    Ceiling { burst, ..Ceiling::total(total_rate) }
}

/// An io1 volume with this many provisioned operations per second.
pub fn io1(operations: f64) -> Ceiling {
    let flat = (operations * OPERATION).min(IO1_FLAT);
    let total = if operations > IO1_FLAT_OPERATIONS { (operations * IO1_PER_OPERATION).min(IO1_MOST) } else { flat };
    Ceiling::total(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_have_their_published_ceilings() {
        assert_eq!(gp2(1500.0), Ceiling::total(250.0 * MIB));
        assert_eq!(io1(9_000.0).total_rate, 500.0 * MIB);
        assert_eq!(io1(30_000.0).total_rate, 500.0 * MIB);
        assert_eq!(io1(48_000.0).total_rate, 750.0 * MIB, "the user guide's own example");
        assert_eq!(io1(64_000.0).total_rate, 1000.0 * MIB);
    }

    #[test]
    fn a_small_volume_bursts() {
        let small = gp2(100.0);
        assert_eq!(small.total_rate, 300.0 * OPERATION);
        assert_eq!(small.burst.unwrap().rate, 128.0 * MIB);
    }

    #[test]
    fn a_gp2_volume_has_128_mib_a_second_up_to_170_gib_and_250_above() {
        let burst = |gib| gp2(gib).burst.map(|burst| burst.rate / MIB);
        assert_eq!((burst(1.0), burst(170.0)), (Some(128.0), Some(128.0)));
        assert_eq!((burst(171.0), burst(333.0)), (Some(250.0), Some(250.0)));
        assert_eq!((burst(334.0), gp2(334.0).total_rate), (None, 250.0 * MIB), "with credit or without");
    }
}
