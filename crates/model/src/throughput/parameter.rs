//! The parameters of a path by name, so that a fit or a sample can change one.

use super::configuration::Direction;
use super::path::{Access, Path, Side};

/// Part of a ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CeilingPart {
    /// Rate of one stream, bytes per second; measured rates of requests to a store scale with it.
    StreamRate,
    /// Rate of all streams, bytes per second; the rate of a burst scales with it.
    TotalRate,
    /// Seconds of an operation besides its transfer.
    Latency,
    /// Processor seconds for moving a byte.
    Processor,
}

/// One number of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parameter {
    /// A ceiling.
    Ceiling(Side, Access, CeilingPart),
    /// The share of the sum that a shared device does, 1.
    Simultaneous,
    /// Processors, 1.
    Cores,
    /// Seconds for packing a plain byte with the codec of that name.
    Pack(String),
    /// Seconds for unpacking a plain byte.
    Unpack(String),
    /// Stored for plain bytes, 1.
    StoredShare(String),
    /// Seconds for hashes and digests of a plain byte.
    Checksum,
    /// Seconds for the cipher of a stored byte.
    Cipher,
    /// Processor seconds for handing a buffer from thread to thread.
    HandOver,
    /// Seconds of a job in that direction besides moving and the commit of its stripes.
    Start(Direction),
    /// Seconds for the commit of a stripe.
    Commit,
    /// Seconds for writing one byte from the page cache to the database's device.
    Flush,
    /// Seconds for one file of the database, read or made, besides its bytes.
    File(Access),
}

impl Parameter {
    /// Its unit.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Ceiling(_, _, CeilingPart::StreamRate | CeilingPart::TotalRate) => "bytes/s",
            Self::Ceiling(_, _, CeilingPart::Processor) => "s/byte",
            Self::Ceiling(_, _, CeilingPart::Latency) | Self::Start(_) | Self::Commit | Self::File(_) => "s",
            Self::HandOver => "s",
            Self::Pack(_) | Self::Unpack(_) | Self::Checksum | Self::Cipher | Self::Flush => "s/byte",
            Self::Simultaneous | Self::Cores | Self::StoredShare(_) => "1",
        }
    }

    /// Its value; `None` if the path has no such parameter.
    pub fn of(&self, path: &Path) -> Option<f64> {
        // A parameter is one place in a path. One lookup serves reading and writing, so the two cannot differ.
        let mut copy = path.clone();
        self.place(&mut copy).map(|value| *value)
    }

    /// Multiplies it by `factor`; does nothing if the path has no such parameter.
    pub fn scale(&self, path: &mut Path, factor: f64) {
        if let Self::Ceiling(side, way, CeilingPart::TotalRate) = self
            && let Some(burst) = &mut path.side_mut(*side).ceiling_mut(*way).burst
        {
            burst.rate *= factor;
        }
        if let Self::Ceiling(Side::Media, way, CeilingPart::StreamRate) = self {
            path.requests.of_mut(*way).iter_mut().for_each(|measured| measured.rate *= factor);
        }
        if let Some(value) = self.place(path) {
            *value *= factor;
        }
    }

    fn place<'a>(&self, path: &'a mut Path) -> Option<&'a mut f64> {
        let codec = |path: &'a mut Path, name: &str| path.codecs.iter_mut().find(|codec| codec.name == name);
        match self {
            Self::Ceiling(side, way, part) => {
                let ceiling = path.side_mut(*side).ceiling_mut(*way);
                Some(match part {
                    CeilingPart::StreamRate => &mut ceiling.stream_rate,
                    CeilingPart::TotalRate => &mut ceiling.total_rate,
                    CeilingPart::Latency => &mut ceiling.latency,
                    CeilingPart::Processor => &mut ceiling.processor,
                })
            }
            Self::Simultaneous => path.simultaneous.as_mut(),
            Self::Cores => Some(&mut path.machine.cores),
            Self::Pack(name) => codec(path, name).map(|codec| &mut codec.pack),
            Self::Unpack(name) => codec(path, name).map(|codec| &mut codec.unpack),
            Self::StoredShare(name) => codec(path, name).map(|codec| &mut codec.stored_share),
            Self::Checksum => Some(&mut path.machine.checksum),
            Self::Cipher => Some(&mut path.machine.cipher),
            Self::HandOver => Some(&mut path.machine.hand_over),
            Self::Start(Direction::Backup) => Some(&mut path.fixed.backup),
            Self::Start(Direction::Restore) => Some(&mut path.fixed.restore),
            Self::Commit => Some(&mut path.fixed.commit),
            Self::Flush => Some(&mut path.fixed.flush),
            Self::File(way) => Some(path.fixed.of_file_mut(*way)),
        }
    }
}
