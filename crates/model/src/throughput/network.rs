//! A closed network of queues: how fast a number of buffers circulates through stations of known demands
//! (`docs/MODEL.md` §3).

/// More buffers are treated as this many: the rest to the roofline is then less than stations / 4,096.
pub const MOST_BUFFERS: u64 = 4096;

/// The time of one buffer at a resource.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Visit {
    /// Seconds for which the whole resource is busy: with several servers, the share of one.
    pub demand: f64,
    /// Seconds for which the buffer is held if it meets no other; not less than `demand`.
    pub held: f64,
}

/// The round that each buffer makes.
#[derive(Debug, Clone, PartialEq)]
pub struct Loop(pub Vec<Visit>);

impl Loop {
    /// The greatest demand, seconds.
    pub fn greatest(&self) -> f64 {
        self.0.iter().map(|visit| visit.demand).fold(0.0, f64::max)
    }

    /// Seconds of one buffer alone in the network.
    pub fn alone(&self) -> f64 {
        self.0.iter().map(|visit| visit.held).sum()
    }

    /// True if there are too few buffers to keep the slowest station busy: N is below the knee.
    pub fn is_held_by_its_pool(&self, buffers: u64) -> bool {
        (buffers as f64) * self.greatest() < self.alone()
    }

    /// Buffers per second that no arrangement can exceed.
    pub fn bound(&self, buffers: u64) -> f64 {
        (1.0 / self.greatest()).min(buffers as f64 / self.alone())
    }

    /// Buffers per second by mean value analysis: an arriving buffer meets the queue of a network with one buffer less,
    /// and waits if all servers are busy. Exact for exponential service at single servers.
    pub fn mean_value(&self, buffers: u64) -> f64 {
        // (queue, stay) of each station.
        let mut at: Vec<(f64, f64)> = vec![(0.0, 0.0); self.0.len()];
        let mut throughput = 0.0;
        for circulating in 1..=buffers.min(MOST_BUFFERS) {
            let mut round = 0.0;
            for (visit, (queue, stay)) in self.0.iter().zip(&mut at) {
                *stay = visit.held.max(visit.demand * (1.0 + *queue));
                round += *stay;
            }
            throughput = circulating as f64 / round;
            for (queue, stay) in &mut at {
                *queue = throughput * *stay;
            }
        }
        throughput
    }

    /// Buffers per second: between exponential service (`evenness` 0) and the bound (1). Infinite if no station takes
    /// time.
    pub fn throughput(&self, buffers: u64, evenness: f64) -> f64 {
        if self.alone() <= 0.0 {
            return f64::INFINITY;
        }
        let (mean, bound) = (self.mean_value(buffers), self.bound(buffers));
        mean.powf(1.0 - evenness) * bound.powf(evenness)
    }
}
