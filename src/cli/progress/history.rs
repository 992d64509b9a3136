//! The last seconds of a job: rates, their scatter, and the estimate of the end.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fullbore_core::meter::{Account, PoolUse, Progress};
use fullbore_model::verdict::{Interval, interval};

/// Looks that are kept: at four in a second, half a minute.
const KEPT: usize = 120;
/// With fewer rates than this, their scatter is unknown.
const LEAST_RATES: usize = 4;

/// A job at one moment.
#[derive(Debug, Clone)]
pub struct Moment {
    pub at: Instant,
    /// Done, to do, on the media: bytes.
    pub bytes: (u64, u64, u64),
    pub stages: [(&'static str, Account); 3],
    pub pool: PoolUse,
    /// Resident bytes of the process.
    pub resident: u64,
}

impl Moment {
    pub fn now(progress: &Progress) -> Self {
        Self {
            at: Instant::now(),
            bytes: progress.read(),
            stages: progress.live(),
            pool: progress.pool_use(),
            resident: fullbore_core::resources::resident_bytes(),
        }
    }
}

/// The drawn values.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    pub verb: String,
    /// Done, to do, on the media: bytes.
    pub bytes: (u64, u64, u64),
    /// Bytes per second on average since the first byte.
    pub rate: f64,
    /// Bytes per second between looks, oldest first.
    pub rates: Vec<f64>,
    /// Seconds to the end, and by how many that may be wrong (one standard deviation).
    pub left: Option<(f64, f64)>,
    /// Of the last seconds.
    pub interval: Interval,
    pub pool: PoolUse,
    /// Resident bytes of the process.
    pub resident: u64,
}

/// Looks, oldest first.
#[derive(Debug, Default)]
pub struct History {
    looks: VecDeque<Moment>,
    begun: Option<Instant>,
}

impl History {
    pub fn add(&mut self, look: Moment) {
        if look.bytes.0 == 0 || self.begun.is_none() {
            self.begun = Some(look.at); // Waiting for a lock and measuring the limit are not the speed of the job.
            self.looks.clear();
        }
        if self.looks.len() == KEPT {
            self.looks.pop_front();
        }
        self.looks.push_back(look);
    }

    /// Since the first byte.
    pub fn elapsed(&self) -> Duration {
        let last = self.looks.back().map(|look| look.at);
        last.zip(self.begun).map_or(Duration::ZERO, |(last, begun)| last - begun)
    }

    /// The stages over the last `span`, or since the oldest look.
    pub fn recent(&self, span: Duration) -> Interval {
        let nothing = || interval(&Default::default(), &Default::default());
        let Some(last) = self.looks.back() else { return nothing() };
        let old_enough = self.looks.iter().rev().find(|look| last.at - look.at >= span);
        let before = old_enough.or(self.looks.front()).unwrap_or(last);
        interval(&before.stages, &last.stages)
    }

    /// Bytes per second between each two looks.
    fn rates(&self) -> Vec<f64> {
        let pairs = self.looks.iter().zip(self.looks.iter().skip(1));
        let rate = |(one, next): (&Moment, &Moment)| {
            let seconds = (next.at - one.at).as_secs_f64();
            (seconds > 0.0).then(|| next.bytes.0.saturating_sub(one.bytes.0) as f64 / seconds)
        };
        pairs.filter_map(rate).collect()
    }

    /// Everything that is drawn.
    pub fn view(&self, verb: &str, recent: Duration) -> View {
        let last = self.looks.back();
        let bytes = last.map_or((0, 0, 0), |look| look.bytes);
        let (rates, elapsed) = (self.rates(), self.elapsed().as_secs_f64());
        let between = if rates.is_empty() { 0.0 } else { self.span() / rates.len() as f64 };
        View {
            verb: verb.to_owned(),
            bytes,
            rate: if elapsed > 0.0 { bytes.0 as f64 / elapsed } else { 0.0 },
            left: left(&rates, between, bytes.1.saturating_sub(bytes.0) as f64),
            rates,
            interval: self.recent(recent),
            pool: last.map_or_else(PoolUse::default, |look| look.pool),
            resident: last.map_or(0, |look| look.resident),
        }
    }

    /// Seconds from the oldest look to the last.
    fn span(&self) -> f64 {
        let ends = self.looks.front().zip(self.looks.back());
        ends.map_or(0.0, |(first, last)| (last.at - first.at).as_secs_f64())
    }
}

/// Seconds for `bytes` at the mean of these rates, each over `between` seconds, and their standard deviation. Both the
/// mean and the coming rates are uncertain by the scatter of the rates so far.
fn left(rates: &[f64], between: f64, bytes: f64) -> Option<(f64, f64)> {
    let count = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / count;
    if rates.len() < LEAST_RATES || mean <= 0.0 || bytes <= 0.0 {
        return None;
    }
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let seconds = bytes / mean;
    let to_come = (seconds / between).max(1.0);
    Some((seconds, seconds * variance.sqrt() / mean * (1.0 / count + 1.0 / to_come).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn look(at: Instant, done: u64, busy: u64) -> Moment {
        let account = |busy| Account { busy: Duration::from_secs(busy), ..Account::default() };
        let waits = Account { starved: Duration::from_secs(busy), ..Account::default() };
        let stages = [("source", waits), ("transform", account(busy)), ("sink", waits)];
        Moment { at, bytes: (done, 100 * MIB, done / 2), stages, pool: PoolUse::default(), resident: 0 }
    }

    #[test]
    fn even_rates_tell_the_end_exactly_and_uneven_ones_say_how_uncertain_it_is() {
        assert_eq!(left(&[10.0; 8], 1.0, 100.0), Some((10.0, 0.0)));
        let (seconds, uncertain) = left(&[5.0, 15.0, 5.0, 15.0, 5.0, 15.0, 5.0, 15.0], 1.0, 100.0).unwrap();
        assert!((seconds - 10.0).abs() < 1e-9 && (2.0..3.0).contains(&uncertain), "{seconds} ± {uncertain}");
        let longer = left(&[5.0, 15.0, 5.0, 15.0, 5.0, 15.0, 5.0, 15.0], 1.0, 10_000.0).unwrap();
        assert!(longer.1 / longer.0 < uncertain / seconds, "a longer time evens out");
    }

    #[test]
    fn too_few_rates_a_standstill_and_an_unknown_size_tell_no_end() {
        assert_eq!(left(&[10.0; 3], 1.0, 100.0), None);
        assert_eq!(left(&[0.0; 8], 1.0, 100.0), None);
        assert_eq!(left(&[10.0; 8], 1.0, 0.0), None);
    }

    #[test]
    fn time_before_the_first_byte_is_not_the_speed_of_the_job() {
        let (start, mut history) = (Instant::now(), History::default());
        let second = Duration::from_secs(1);
        (0..5).for_each(|at| history.add(look(start + second * at, 0, 0)));
        (5..15).for_each(|at| history.add(look(start + second * at, u64::from(at - 4) * MIB, u64::from(at))));
        let view = history.view("backup", Duration::from_secs(2));
        assert_eq!(view.rate, MIB as f64);
        assert_eq!(view.rates, [MIB as f64; 10]);
        assert_eq!(view.left, Some((90.0, 0.0)));
        assert_eq!(view.interval.limit, Some("transform"));
    }

    #[test]
    fn no_more_than_the_last_looks_are_kept() {
        let (start, mut history) = (Instant::now(), History::default());
        (0..1000).for_each(|at| history.add(look(start + REDRAW * at, u64::from(at) + 1, 0)));
        assert_eq!(history.rates().len(), KEPT - 1);
    }

    const REDRAW: Duration = Duration::from_millis(250);
}
