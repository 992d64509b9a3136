//! Burst credit: ceilings that fall while a job runs (`docs/MODEL.md` §4).

use super::path::Ceiling;

/// The credit of one side during a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Credit {
    ceiling: Ceiling,
    /// Bytes above the ceiling that may still pass.
    left: f64,
}

impl Credit {
    /// The credit at the start of a job.
    pub fn new(ceiling: &Ceiling) -> Self {
        Self { ceiling: *ceiling, left: ceiling.burst.map_or(0.0, |burst| burst.credit) }
    }

    /// Bytes per second of all streams together, while there is credit.
    pub fn rate(&self) -> f64 {
        self.ceiling.burst.map_or(self.ceiling.total_rate, |burst| burst.rate.max(self.ceiling.total_rate))
    }

    /// The average bytes per second that credit allows from now on: infinite while there is some. Without credit, the
    /// bucket is filled as fast as it is emptied: the flow is as bursty as before, and on average at the ceiling.
    pub fn allows(&self) -> f64 {
        if self.ceiling.burst.is_some() && self.left <= 0.0 { self.ceiling.total_rate } else { f64::INFINITY }
    }

    /// Seconds until it ends at `flow` bytes per second across the side; infinite if it does not end.
    pub fn lasts(&self, flow: f64) -> f64 {
        let drain = flow - self.ceiling.total_rate;
        if self.left > 0.0 && drain > 0.0 { self.left / drain } else { f64::INFINITY }
    }

    /// Lets `seconds` pass at `flow` bytes per second. `ends`: this credit ends after these seconds.
    pub fn pass(&mut self, flow: f64, seconds: f64, ends: bool) {
        let drain = (flow - self.ceiling.total_rate).max(0.0) * seconds;
        self.left = if ends { 0.0 } else { (self.left - drain).max(0.0) };
    }

    /// Seconds for `bytes` with this ceiling as the only limit; they use credit.
    pub fn fill(&mut self, bytes: f64) -> f64 {
        let (mut bytes, mut seconds) = (bytes, 0.0);
        let rate = self.rate();
        let lasts = self.lasts(rate);
        if lasts * rate < bytes {
            self.pass(rate, lasts, true);
            seconds += lasts;
            bytes -= lasts * rate;
        }
        let rate = rate.min(self.allows());
        let rest = bytes / rate;
        self.pass(rate, rest, false);
        seconds + rest
    }
}
