//! One measurement of a calibration: how long it is, how it is done, and where its rounds are in the profile.

use fullbore_core::{Error, Result};
use fullbore_model::profile::{Access, AccessPattern, BothRound, Cell, Profile, Round, Together, WorkCell};

use super::disk::both;
use super::in_memory;
use super::pace::Pace;
use super::places::Medium;
use super::schedule::{Run, unmeasured_jobs};
use super::shapes::usual;

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

impl Run<'_> {
    /// Does one measurement, and adds its rounds to the profile.
    pub(super) fn measure_one(&mut self, probe: Probe) -> Result<()> {
        let Self { profile, blocks, packed, pace, media, tiny_jobs, .. } = self;
        match probe {
            Probe::Cell(at, shape) => {
                let round = match &mut media[at] {
                    Medium::Disk(disk) => disk.round(&shape, pace)?,
                    Medium::Store(store) => store.round(&shape, pace)?,
                };
                add_rounds(&mut profile.places[at].cells, shape, round);
            }
            Probe::Both(pair) => {
                let pair = &mut profile.together[pair];
                let (alone, made) = measure_both(media, pair, pace)?;
                pair.rounds.extend(made);
                for (at, (shape, round)) in [pair.read, pair.written].into_iter().zip(alone) {
                    add_rounds(&mut profile.places[at].cells, shape, round);
                }
            }
            Probe::Codec(codec, cell) => {
                let (cell, packed) = (&mut profile.codecs[cell], &packed[codec]);
                cell.pack.extend(in_memory::pack(blocks, packed, cell.threads, pace)?);
                cell.unpack.extend(in_memory::unpack(blocks, packed, cell.threads, pace)?);
            }
            Probe::Checksum(cell) => {
                let WorkCell { threads, rounds } = &mut profile.checksums[cell];
                rounds.extend(in_memory::checksum(blocks, *threads, pace)?);
            }
            Probe::Cipher(cell) => {
                let WorkCell { threads, rounds } = &mut profile.ciphers[cell];
                rounds.extend(in_memory::cipher(blocks, *threads, pace)?);
            }
            Probe::HandOver => profile.hand_overs.extend(in_memory::hand_over(pace)?),
            Probe::TinyJobs(number) => {
                let (jobs, known) = (&mut tiny_jobs[number], &mut profile.job_costs[number]);
                if let Err(error) = jobs.measure(known, pace) {
                    pace.conduct.check()?;
                    profile.notes.push(unmeasured_jobs(&profile.places[jobs.media].path, &error.one_line()));
                }
            }
        }
        Ok(())
    }
}

/// Adds the rounds of one way. A way without measurements is a cell without rounds.
fn add_rounds(cells: &mut Vec<Cell>, shape: AccessPattern, rounds: impl IntoIterator<Item = Round>) {
    match cells.iter_mut().find(|cell| cell.shape == shape) {
        Some(cell) => cell.rounds.extend(rounds),
        None => cells.push(Cell { shape, rounds: rounds.into_iter().collect() }),
    }
}

/// One round of a way to use a place.
type Alone = (AccessPattern, Option<Round>);

/// Measures each direction alone, in usual rounds, and then both at once.
fn measure_both(media: &mut [Medium], pair: &Together, pace: &Pace<'_>) -> Result<([Alone; 2], Option<BothRound>)> {
    let Ok([Medium::Disk(from), Medium::Disk(to)]) = media.get_disjoint_mut([pair.read, pair.written]) else {
        return Err(Error::refused("calibration", "one place was to be read and written at once", ""));
    };
    let reads = usual(Access::Read, from.is_direct(), pair.block_bytes);
    let writes = usual(Access::Write, to.is_direct(), pair.block_bytes);
    let alone = [(reads, from.round(&reads, pace)?), (writes, to.round(&writes, pace)?)];
    let [Some(read_alone), Some(written_alone)] = alone.map(|(_, round)| round.map(|round| round.rate())) else {
        return Ok((alone, None));
    };
    let together = both((from, &reads), (to, &writes), pair.written_per_read, pace)?;
    let made = |(read_bytes, written_bytes, seconds)| BothRound {
        read_bytes,
        written_bytes,
        seconds,
        read_alone,
        written_alone,
    };
    Ok((alone, together.map(made)))
}
