//! From a path and a configuration to the stations of a network: their demands (`docs/MODEL.md` §2).

use super::configuration::{Buffers, Configuration, Direction};
use super::path::{Ceiling, CodecCost, Path, Side};
use super::requests::Asking;

/// The limit of a job's speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The streams of the database, each at its own ceiling: more readers or writers would help.
    DatabaseStreams,
    /// The database's device as a whole.
    Database,
    /// The workers: more of them would help.
    Transform,
    /// The processors that all stages share.
    Processor,
    /// The families, each at its own ceiling: more stripes would help.
    Stripes,
    /// The media as a whole.
    Media,
    /// The device that is both read and written.
    SharedDevice,
    /// `--throttle`.
    Throttle,
    /// Too few buffers to keep any stage busy.
    Pool,
    /// Costs that do not depend on the amount of data.
    FixedCosts,
}

impl Limit {
    /// The stage of a report's account that this belongs to; `None` if it is between stages.
    pub fn stage(self, direction: Direction) -> Option<&'static str> {
        match (self, direction) {
            (Self::DatabaseStreams | Self::Database | Self::Throttle, Direction::Backup) => Some("source"),
            (Self::DatabaseStreams | Self::Database | Self::Throttle, Direction::Restore) => Some("target"),
            (Self::Transform | Self::Processor, _) => Some("transform"),
            (Self::Stripes | Self::Media, Direction::Backup) => Some("sink"),
            (Self::Stripes | Self::Media, Direction::Restore) => Some("media"),
            (Self::SharedDevice | Self::Pool | Self::FixedCosts, _) => None,
        }
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::DatabaseStreams => "database streams",
            Self::Database => "database volume",
            Self::Transform => "transform",
            Self::Processor => "processor",
            Self::Stripes => "stripes",
            Self::Media => "media together",
            Self::SharedDevice => "shared device",
            Self::Throttle => "throttle",
            Self::Pool => "pool",
            Self::FixedCosts => "fixed costs",
        }
    }
}

/// One resource, for one plain byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Station {
    /// The resource.
    pub limit: Limit,
    /// Seconds for which it is busy: 1 / ceiling.
    pub demand: f64,
    /// Seconds for which it holds a buffer alone: longer than `demand` if it serves several at a time.
    pub held: f64,
}

impl Station {
    /// A station that serves one buffer after the other.
    fn single(limit: Limit, demand: f64) -> Self {
        Self { limit, demand, held: demand }
    }
}

/// The ceilings of all streams together, while credit lasts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TotalRates {
    /// The side that bytes come from, bytes per second.
    pub source: f64,
    /// The side that bytes go to, bytes per second.
    pub target: f64,
}

/// The stations of a job, in the order in which a byte passes them.
#[derive(Debug, Clone, PartialEq)]
pub struct Stations {
    /// Before the transform.
    pub before: Vec<Station>,
    /// The transform.
    pub transform: Station,
    /// After the transform.
    pub behind: Vec<Station>,
}

/// The speed of a network of stations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Flow {
    /// Plain bytes per second.
    pub rate: f64,
    /// Its limit.
    pub limit: Limit,
}

/// Bytes that cross a side for one plain byte.
pub fn crossing(side: Side, codec: &CodecCost) -> f64 {
    match side {
        Side::Database => 1.0,
        Side::Media => codec.stored_share,
    }
}

/// Seconds of a worker for one plain byte.
fn worker_seconds(path: &Path, configuration: &Configuration, codec: &CodecCost) -> f64 {
    let packing = match configuration.direction {
        Direction::Backup => codec.pack,
        Direction::Restore => codec.unpack,
    };
    let cipher = if configuration.encrypted { path.machine.cipher * codec.stored_share } else { 0.0 };
    packing + path.machine.checksum + cipher
}

/// Processor seconds of all stages for one plain byte.
pub fn processor_seconds(path: &Path, configuration: &Configuration, codec: &CodecCost) -> f64 {
    let direction = configuration.direction;
    let moving = |side: Side| path.side(side).ceiling(direction.way(side)).processor * crossing(side, codec);
    let handing_over = path.machine.hand_over / configuration.transfer_bytes;
    worker_seconds(path, configuration, codec) + moving(Side::Database) + moving(Side::Media) + handing_over
}

/// The stations of `configuration` on `path` under these ceilings of all streams.
pub fn stations(path: &Path, configuration: &Configuration, codec: &CodecCost, totals: TotalRates) -> Stations {
    let direction = configuration.direction;
    let (source, target) = (direction.source(), direction.target());
    let whole = |side: Side, rate: f64| crossing(side, codec) / rate;
    let (source_whole, target_whole) = (whole(source, totals.source), whole(target, totals.target));
    let mut before = vec![streams(path, configuration, codec, source)];
    let mut behind = vec![streams(path, configuration, codec, target)];
    match path.simultaneous {
        _ if path.writes_to_cache(configuration) => {
            before.push(Station::single(whole_limit(source), source_whole));
            behind.clear();
        }
        None => {
            before.push(Station::single(whole_limit(source), source_whole));
            behind.push(Station::single(whole_limit(target), target_whole));
        }
        Some(simultaneous) => {
            let written_per_read = crossing(target, codec) / crossing(source, codec);
            let sum = (source_whole + target_whole) / (simultaneous * of_mix(path.write_heavy, written_per_read));
            let demand = sum.max(source_whole).max(target_whole);
            before.push(Station::single(Limit::SharedDevice, demand));
        }
    }
    if let Some(rate) = configuration.throttle {
        before.push(Station::single(Limit::Throttle, 1.0 / rate));
    }
    Stations { before, transform: transform(path, configuration, codec), behind }
}

/// The factor for a job that writes `written_per_read` bytes for each byte that it reads: 1 up to one byte,
/// `write_heavy` from two bytes on, and evenly between.
fn of_mix(write_heavy: f64, written_per_read: f64) -> f64 {
    write_heavy.powf(written_per_read.log2().clamp(0.0, 1.0))
}

/// The name of a side as a whole.
pub fn whole_limit(side: Side) -> Limit {
    match side {
        Side::Database => Limit::Database,
        Side::Media => Limit::Media,
    }
}

fn streams(path: &Path, configuration: &Configuration, codec: &CodecCost, side: Side) -> Station {
    let way = configuration.direction.way(side);
    let ceiling: &Ceiling = path.side(side).ceiling(way);
    let transfer = configuration.transfer_bytes;
    let (limit, count, depth, request) = match side {
        Side::Database => (Limit::DatabaseStreams, configuration.database_streams, 1, None),
        Side::Media => (Limit::Stripes, configuration.stripes, configuration.queue_depth, configuration.request_bytes),
    };
    let (streams, in_flight, operation) = (count as f64, depth as f64, request.unwrap_or(transfer));
    let slowdown =
        request.map_or(1.0, |bytes| path.requests.slowdown(way, ceiling, &Asking { bytes, in_flight, streams }));
    let bytes = crossing(side, codec) * slowdown;
    let demand = bytes * ceiling.of_stream(in_flight, operation) / streams;
    // A request holds all of its buffers until it ends.
    let held = bytes * ceiling.alone(operation) * (operation / transfer).max(1.0);
    Station { limit, demand, held: demand.max(held) }
}

fn transform(path: &Path, configuration: &Configuration, codec: &CodecCost) -> Station {
    let worker = worker_seconds(path, configuration, codec);
    let all = processor_seconds(path, configuration, codec);
    let running = (configuration.workers as f64).min(path.machine.cores);
    let (by_workers, by_processors) = (worker / running, all / path.machine.cores);
    let limit = if by_processors > by_workers { Limit::Processor } else { Limit::Transform };
    let demand = by_workers.max(by_processors);
    // A worker holds its buffer for its own time, or longer if there are too few processors.
    Station { limit, demand, held: demand.max(worker) }
}

impl Stations {
    /// All stations, in order.
    pub fn all(&self) -> impl Iterator<Item = &Station> {
        self.before.iter().chain([&self.transform]).chain(&self.behind)
    }

    /// The speed of plain bytes with these buffers of `transfer_bytes` each.
    pub fn flow(&self, buffers: Buffers, transfer_bytes: f64, evenness: f64) -> Flow {
        match buffers {
            Buffers::Through(count) => {
                let all: Vec<Station> = self.all().copied().collect();
                solve(&all, count, transfer_bytes, evenness)
            }
            Buffers::Split { input, output } => {
                let inner: Vec<Station> = [self.transform].into_iter().chain(self.behind.iter().copied()).collect();
                let inner = solve(&inner, output, transfer_bytes, evenness);
                // For the input, the transform and all stations after it are one station. It holds a buffer at least as
                // long as a worker does.
                let demand = 1.0 / inner.rate;
                let rest = Station { limit: inner.limit, demand, held: demand.max(self.transform.held) };
                let outer: Vec<Station> = self.before.iter().copied().chain([rest]).collect();
                solve(&outer, input, transfer_bytes, evenness)
            }
        }
    }
}

fn solve(stations: &[Station], buffers: u64, transfer_bytes: f64, evenness: f64) -> Flow {
    let visit =
        |station: &Station| Visit { demand: station.demand * transfer_bytes, held: station.held * transfer_bytes };
    let of_buffers = Loop(stations.iter().map(visit).collect());
    let rate = of_buffers.throughput(buffers, evenness) * transfer_bytes;
    let greatest = stations.iter().max_by(|one, other| one.demand.total_cmp(&other.demand));
    let limit = match greatest {
        Some(station) if !of_buffers.is_held_by_its_pool(buffers) => station.limit,
        _ => Limit::Pool,
    };
    Flow { rate, limit }
}

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
