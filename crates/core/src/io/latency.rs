//! How long operations take: a histogram of fixed size, so that counting one costs no memory.

use std::time::Duration;

/// Buckets of a quarter of a power of two, in microseconds: a percentile is at most 25 % above the truth.
const BUCKETS: usize = 256;

/// A histogram of durations.
#[derive(Clone)]
pub struct Latency {
    counts: [u64; BUCKETS],
    total: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0 }
    }
}

impl Latency {
    /// Counts one operation.
    pub fn record(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket(micros)] += 1;
        self.total += 1;
    }

    /// The time in microseconds that 99 of 100 operations did not exceed; 0 before the first one.
    pub fn p99_us(&self) -> u64 {
        let wanted = self.total - self.total / 100;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return upper_bound(index);
            }
        }
        0
    }
}

fn bucket(micros: u64) -> usize {
    if micros < 4 {
        return micros as usize;
    }
    let power = 63 - micros.leading_zeros();
    let quarter = (micros >> (power - 2)) & 3;
    (power as usize) * 4 + quarter as usize
}

/// The largest value that falls into bucket `index`.
fn upper_bound(index: usize) -> u64 {
    if index < 8 {
        return index as u64;
    }
    let (power, quarter) = (index / 4, (index % 4) as u128);
    let next = (4 + quarter + 1) << (power - 2);
    u64::try_from(next - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_into_a_bucket_whose_bound_is_at_most_a_quarter_above_it() {
        let powers = (0..64).flat_map(|power| [1_u64 << power, (1_u64 << power) + 1, (1_u64 << power) - 1]);
        for micros in (0..5000).chain(powers).chain([u64::MAX]) {
            let bound = upper_bound(bucket(micros));
            assert!(bound >= micros && bound - micros <= micros / 4, "{micros} µs became {bound} µs");
        }
    }

    #[test]
    fn the_99th_percentile_ignores_one_slow_operation_in_a_hundred() {
        let mut latency = Latency::default();
        assert_eq!(latency.p99_us(), 0);
        latency.record(Duration::from_secs(9));
        for _ in 0..99 {
            latency.record(Duration::from_micros(100));
        }
        assert!((100..=125).contains(&latency.p99_us()), "{}", latency.p99_us());
    }
}
