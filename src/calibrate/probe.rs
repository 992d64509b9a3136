//! One measurement of a calibration, and where its rounds are in the profile.

use fullbore_model::profile::{AccessPattern, Profile};

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Probe {
    /// The number of the place, and the way.
    Cell(usize, AccessPattern),
    /// The number of the pair.
    Both(usize),
    /// The number of the codec, and the number of its cell in the profile.
    Codec(usize, usize),
    Checksum(usize),
    Cipher(usize),
    HandOver,
    TinyJobs(usize),
}

impl Probe {
    /// Its length in rounds: each direction alone and both, packing and unpacking.
    pub fn rounds(&self) -> f64 {
        match self {
            Self::Both(_) | Self::TinyJobs(_) => 3.0,
            Self::Codec(..) => 2.0,
            Self::Cell(..) | Self::Checksum(_) | Self::Cipher(_) | Self::HandOver => 1.0,
        }
    }

    pub fn is_of_places(&self) -> bool {
        matches!(self, Self::Cell(..) | Self::Both(_))
    }

    pub fn is_in_memory(&self) -> bool {
        matches!(self, Self::Codec(..) | Self::Checksum(_) | Self::Cipher(_) | Self::HandOver)
    }

    /// The rounds that the profile has of it.
    pub fn rounds_in(&self, profile: &Profile) -> usize {
        match *self {
            Self::Cell(at, shape) => {
                let cell = profile.places[at].cells.iter().find(|cell| cell.shape == shape);
                cell.map_or(0, |cell| cell.rounds.len())
            }
            Self::Both(pair) => profile.together[pair].rounds.len(),
            Self::Codec(_, cell) => profile.codecs[cell].pack.len(),
            Self::Checksum(cell) => profile.checksums[cell].rounds.len(),
            Self::Cipher(cell) => profile.ciphers[cell].rounds.len(),
            Self::HandOver => profile.hand_overs.len(),
            Self::TinyJobs(number) => profile.job_costs[number].backup_s.len(),
        }
    }
}
