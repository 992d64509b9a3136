//! The token bucket: when an amount that comes now has passed a ceiling. Pure: the caller gives the time.

/// A ceiling, and a higher one while credit lasts. The unit is the caller's: bytes, or operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceiling {
    /// Units per second for as long as you like; above 0.
    pub rate: f64,
    /// A higher rate, and the units above `rate` that may pass at it until the bucket is empty.
    pub burst: Option<(f64, f64)>,
}

/// A ceiling in use. Its credit is full at the start, and grows again by the difference between `rate` and what passes.
#[derive(Debug, Clone, PartialEq)]
pub struct Bucket {
    ceiling: Ceiling,
    /// Second at which all that has come so far will have passed at the highest rate.
    free_at: f64,
    /// Units that may pass beyond what `rate` has given; below 0 where they were promised for later.
    credit: f64,
    /// Second up to which `rate` has been added to `credit`.
    filled_at: f64,
}

impl Bucket {
    /// A full one, at second 0 of its clock.
    pub fn new(ceiling: Ceiling) -> Self {
        let credit = ceiling.burst.map_or(0.0, |(_, credit)| credit);
        Self { ceiling, free_at: 0.0, credit, filled_at: 0.0 }
    }

    /// Takes `amount` in at second `now`, which never goes back; gives the second at which it will have passed. Later
    /// amounts pass after it. Idle time is saved up only as credit, where there is a burst.
    pub fn pass(&mut self, now: f64, amount: f64) -> f64 {
        let Ceiling { rate, burst } = self.ceiling;
        let highest = burst.map_or(rate, |(highest, _)| highest.max(rate));
        self.free_at = self.free_at.max(now) + amount / highest;
        let Some((_, most)) = burst else { return self.free_at };
        let now = now.max(self.filled_at);
        self.credit = (self.credit + (now - self.filled_at) * rate).min(most) - amount;
        self.filled_at = now;
        // The missing credit comes in at the lasting rate.
        let paid_at = now + (-self.credit / rate).max(0.0);
        self.free_at = self.free_at.max(paid_at);
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(rate: f64) -> Bucket {
        Bucket::new(Ceiling { rate, burst: None })
    }

    /// Seconds for `count` amounts of 1, each asked for when the one before has passed.
    fn one_after_the_other(bucket: &mut Bucket, count: u32) -> f64 {
        (0..count).fold(0.0, |now, _| bucket.pass(now, 1.0))
    }

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-6 * right.abs().max(1.0)
    }

    #[test]
    fn a_ceiling_without_burst_is_kept_and_a_pause_is_not_saved_up() {
        let mut bucket = steady(10.0);
        assert!(near(one_after_the_other(&mut bucket, 100), 10.0));
        assert!(near(bucket.pass(1000.0, 10.0), 1001.0));
        assert!(near(bucket.pass(1000.0, 10.0), 1002.0));
    }

    #[test]
    fn callers_at_the_same_time_share_the_ceiling() {
        let mut bucket = steady(4.0);
        let ends: Vec<f64> = (0..8).map(|_| bucket.pass(0.0, 1.0)).collect();
        assert!(near(ends[7], 2.0) && ends.windows(2).all(|pair| pair[0] < pair[1]), "{ends:?}");
    }

    #[test]
    fn credit_lasts_as_long_as_its_arithmetic_says_and_then_the_base_rate_counts() {
        // 30 per second while 200 units above 10 per second last: 10 seconds, 300 units.
        let mut bucket = Bucket::new(Ceiling { rate: 10.0, burst: Some((30.0, 200.0)) });
        assert!(near(one_after_the_other(&mut bucket, 300), 10.0));
        assert!(near(bucket.pass(10.0, 100.0), 20.0));
    }

    #[test]
    fn credit_comes_back_in_a_pause_and_never_above_full() {
        let mut bucket = Bucket::new(Ceiling { rate: 10.0, burst: Some((30.0, 200.0)) });
        one_after_the_other(&mut bucket, 300);
        assert!(near(bucket.pass(15.0, 60.0), 17.0), "5 seconds have saved 50, and 10 per second come in meanwhile");
        let mut rested = Bucket::new(Ceiling { rate: 10.0, burst: Some((30.0, 200.0)) });
        rested.pass(0.0, 1.0);
        let end = rested.pass(1e9, 300.0);
        assert!(near(end, 1e9 + 10.0), "{}", end - 1e9);
    }
}
