//! Requests to object stores: measurements of some sizes and numbers at once, which correct the equations for others
//! (`docs/MODEL.md` §2).

use super::path::{Access, Ceiling};

/// A way to send requests to a store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asking {
    /// Bytes of a request: a part, or a range.
    pub bytes: f64,
    /// Requests in flight in each stream.
    pub in_flight: f64,
    /// Objects at once.
    pub streams: f64,
}

/// A way to send requests to a store, and its measured speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// The way.
    pub asking: Asking,
    /// Bytes per second of all requests together.
    pub rate: f64,
}

/// The measurements of the media, in both directions; empty if the media are not in stores.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Requests {
    /// Gets.
    pub read: Vec<Measured>,
    /// Puts.
    pub write: Vec<Measured>,
}

impl Requests {
    /// The measurements of a direction.
    pub fn of(&self, way: Access) -> &[Measured] {
        match way {
            Access::Read => &self.read,
            Access::Write => &self.write,
        }
    }

    /// The same, to change them.
    pub fn of_mut(&mut self, way: Access) -> &mut Vec<Measured> {
        match way {
            Access::Read => &mut self.read,
            Access::Write => &mut self.write,
        }
    }

    /// The factor by which a byte is slower than in the equations for streams under `ceiling`, by the measurement
    /// nearest to `asked`; 1 without measurements.
    pub fn slowdown(&self, way: Access, ceiling: &Ceiling, asked: &Asking) -> f64 {
        let nearest =
            self.of(way).iter().min_by(|one, other| one.asking.far(asked).total_cmp(&other.asking.far(asked)));
        let Some(Measured { asking, rate }) = nearest else { return 1.0 };
        let by_equation = asking.streams / ceiling.of_stream(asking.in_flight, asking.bytes);
        Some(by_equation / rate).filter(|slowdown| *slowdown > 0.0 && slowdown.is_finite()).unwrap_or(1.0)
    }
}

impl Asking {
    /// The difference of two ways: the sum of the logarithms of their ratios of size, of bytes in flight in a stream,
    /// and of streams.
    fn far(&self, other: &Self) -> f64 {
        let ratio = |one: f64, other: f64| (one / other).ln().abs();
        ratio(self.bytes, other.bytes)
            + ratio(self.bytes * self.in_flight, other.bytes * other.in_flight)
            + ratio(self.streams, other.streams)
    }
}
