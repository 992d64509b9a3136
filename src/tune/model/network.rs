//! A closed network of queues: how fast a number of buffers goes round stations of known demands (`docs/MODEL.md` §3).

/// More buffers than this are treated as this many: what is missing to the roofline is less than stations / 4,096 then.
pub const MOST_BUFFERS: u64 = 4096;

/// The demands of a loop, for one buffer.
#[derive(Debug, Clone, PartialEq)]
pub struct Loop {
    /// Seconds for which each station is kept busy by one buffer.
    pub demands: Vec<f64>,
    /// Seconds for which a buffer is held while nothing is kept busy.
    pub delay: f64,
}

impl Loop {
    /// The greatest demand, seconds.
    pub fn greatest(&self) -> f64 {
        self.demands.iter().copied().fold(0.0, f64::max)
    }

    /// Seconds of one buffer that meets no other.
    pub fn alone(&self) -> f64 {
        self.delay + self.demands.iter().sum::<f64>()
    }

    /// True where there are too few buffers to keep the slowest station busy: N is below the knee.
    pub fn is_held_by_its_pool(&self, buffers: u64) -> bool {
        (buffers as f64) * self.greatest() < self.alone()
    }

    /// Buffers per second that no arrangement can exceed.
    pub fn bound(&self, buffers: u64) -> f64 {
        (1.0 / self.greatest()).min(buffers as f64 / self.alone())
    }

    /// Buffers per second with exponential service, exactly: mean value analysis.
    pub fn mean_value(&self, buffers: u64) -> f64 {
        let mut queues = vec![0.0; self.demands.len()];
        let mut throughput = 0.0;
        for circulating in 1..=buffers.min(MOST_BUFFERS) {
            let waiting = |(demand, queue): (&f64, &f64)| demand * (1.0 + queue);
            let round: f64 = self.delay + self.demands.iter().zip(&queues).map(waiting).sum::<f64>();
            throughput = circulating as f64 / round;
            for (queue, demand) in queues.iter_mut().zip(&self.demands) {
                *queue = throughput * demand * (1.0 + *queue);
            }
        }
        throughput
    }

    /// Buffers per second: between exponential service (`evenness` 0) and the bound (1). Infinite where nothing takes time.
    pub fn throughput(&self, buffers: u64, evenness: f64) -> f64 {
        if self.alone() <= 0.0 {
            return f64::INFINITY;
        }
        let (mean, bound) = (self.mean_value(buffers), self.bound(buffers));
        mean.powf(1.0 - evenness) * bound.powf(evenness)
    }
}
