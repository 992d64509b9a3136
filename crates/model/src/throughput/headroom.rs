//! The gain of more streams, if only one job and a ratio are known.

/// The gain of several streams of a side over one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Headroom {
    /// Devices of the side; for stores, places.
    pub devices: u64,
    /// The greatest factor by which several streams to one device are faster than one.
    pub streams: f64,
    /// A smaller gain is within the scatter of the profile.
    pub noise: f64,
}

impl Headroom {
    /// The speed of the whole side, in multiples of one stream, if it is used by `streams` now.
    pub fn worth(&self, streams: f64) -> f64 {
        let gain = if self.streams > self.noise { self.streams } else { 1.0 };
        streams.max(self.devices as f64 * gain)
    }
}
