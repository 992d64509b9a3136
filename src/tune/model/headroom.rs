//! What more streams would bring, where only one job and a ratio are known.

/// What several streams of a side do that one does not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Headroom {
    /// Devices that the side is on; of stores, places.
    pub devices: u64,
    /// How many times as fast several streams to one device are as one, at most.
    pub streams: f64,
    /// A gain below this is not told from the scatter of the profile.
    pub noise: f64,
}

impl Headroom {
    /// How many streams all that the side can do is worth, if it is used by `streams` now.
    pub fn worth(&self, streams: f64) -> f64 {
        let gain = if self.streams > self.noise { self.streams } else { 1.0 };
        streams.max(self.devices as f64 * gain)
    }
}
