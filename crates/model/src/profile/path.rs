//! From a profile to the path of the throughput model (`docs/CALIBRATION.md`, section 4).

use std::collections::BTreeMap;
use std::path::Path as FilePath;

use fullbore_core::plan::FIXED_MEMORY;
use fullbore_core::unpack::LEAST_DIRECT_TRANSFER;

use super::operations::{Measured, Operations, measured};
use super::scatter::{LEAST_DEVIATION, Scatter};
use super::{
    Access, AccessPattern, BothRound, Cell, CodecCell, EVEN, HandOver, MeasuredPath, Order, Profile, Round, Together,
    WRITE_HEAVY, rate,
};
use crate::statistics::median;
use crate::throughput::{
    Asking, Ceiling, CeilingPart, CodecCost, Machine, Measured as Request, Parameter, Path, Side, Uncertain,
};

/// Two places share no limit if one of them is as fast as alone, or nearly: this share of it. The other one may be slower,
/// because both move bytes in a fixed mix.
const SEPARATE: f64 = 0.9;
/// The model's bounds for the share of the sum that a shared device does (`docs/MODEL.md`, section 1).
const SIMULTANEOUS: (f64, f64) = (0.1, 2.0);

/// The bounds of its factor in a write-heavy mix.
const FACTOR_OF_WRITE_HEAVY: (f64, f64) = (0.25, 1.5);

/// The places and the buffers of a path.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The file or directory of the database; for a copy, those of the media that it reads; none if it is not on a
    /// device of this machine.
    pub database: &'a [&'a str],
    /// Directories, files or URLs of the media.
    pub media: &'a [&'a str],
    /// MAXTRANSFERSIZE in bytes.
    pub transfer_bytes: u64,
}

impl Asked<'_> {
    /// The greatest number of the database's files. A database in one file has one, with any number of threads.
    fn database_files(&self) -> u64 {
        let files = self.database.iter().filter(|path| FilePath::new(path).is_file()).count();
        if files == self.database.len() { files.max(1) as u64 } else { u64::MAX }
    }
}

/// A path, and its uncertainty.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibrated {
    /// The path.
    pub path: Path,
    /// Scatter of its measurements.
    pub uncertain: Vec<Uncertain>,
    /// Missing measurements, which give no limit in the path: one line each.
    pub unknown: Vec<String>,
    /// Reasons why a part may be from another disk: one line each.
    pub doubts: Vec<String>,
}

impl Profile {
    /// The path between a database and media.
    pub fn path(&self, asked: &Asked<'_>) -> Calibrated {
        let path = Path::unlimited(self.machine.cores as f64);
        let mut made = Calibrated { path, uncertain: Vec::new(), unknown: Vec::new(), doubts: Vec::new() };
        let (mut used, mut restored) = (BTreeMap::new(), 0.0);
        for (side, places) in [(Side::Database, asked.database), (Side::Media, asked.media)] {
            for way in [Access::Read, Access::Write] {
                let found = self.places_for(places, way, &mut made);
                let files = if side == Side::Database { asked.database_files() } else { u64::MAX };
                let sync = self.add_side(&mut made, (side, files), way, &found, asked.transfer_bytes);
                if (side, way) == (Side::Database, Access::Write) {
                    restored = sync;
                }
                used.insert((side == Side::Database, way == Access::Read), found);
            }
        }
        made.path.evenness = self.evenness(used.values().flatten().copied());
        let of = |database, read| used.get(&(database, read)).map_or(&[][..], Vec::as_slice);
        self.add_flush(&mut made, of(true, false));
        self.add_simultaneous(&mut made, (of(true, true), of(false, false)), asked.transfer_bytes);
        self.add_codecs(&mut made);
        self.add_work(&mut made);
        made.path.fixed.memory = FIXED_MEMORY as f64;
        self.add_job_costs(&mut made, &[of(false, true), of(false, false)].concat(), restored);
        made
    }

    /// The measured places of these paths in that direction. Adds a line for each missing one, and for each doubtful
    /// disk.
    fn places_for(&self, asked: &[&str], way: Access, made: &mut Calibrated) -> Vec<usize> {
        let mut found = Vec::new();
        for path in asked {
            // A written place was measured in both directions, and gets one line of doubt.
            made.doubts.extend(self.doubt(path, way).filter(|doubt| !made.doubts.contains(doubt)));
            match self.place_for(path, way) {
                Some(at) if found.contains(&at) => {}
                Some(at) => found.push(at),
                None => {
                    let (verb, flag) = if way == Access::Read { ("reading", "--read") } else { ("writing", "--write") };
                    made.unknown.push(format!("{verb} `{path}` was not measured: fullbore calibrate {flag} {path}"));
                }
            }
        }
        found
    }

    /// Adds one direction of one side to the path, and returns the seconds of a sync there. `files`: the greatest
    /// number of files on that side.
    fn add_side(
        &self,
        made: &mut Calibrated,
        (side, files): (Side, u64),
        way: Access,
        places: &[usize],
        transfer: u64,
    ) -> f64 {
        let operations = Operations { bytes: transfer, one_at_a_time: side == Side::Database, files };
        let usual = self.usual_deviation();
        let of_place = |&at: &usize| Some((at, measured(&self.with_its_device(at), way, &operations, usual)?));
        let measured: Vec<(usize, Measured)> = places.iter().filter_map(of_place).collect();
        if measured.is_empty() {
            return 0.0;
        }
        // Places on one device share it: the faster figure is the speed of the device, not their sum.
        let mut devices: BTreeMap<String, f64> = BTreeMap::new();
        for (at, one) in &measured {
            let place = &self.places[*at];
            let device = place.device.map_or_else(|| place.path.clone(), |number| number.to_string());
            let total = devices.entry(device).or_insert(0.0);
            *total = total.max(one.ceiling.total_rate);
        }
        let mean =
            |of: fn(&Measured) -> f64| measured.iter().map(|(_, one)| of(one)).sum::<f64>() / measured.len() as f64;
        let ceiling = Ceiling {
            stream_rate: mean(|one| one.ceiling.stream_rate),
            total_rate: devices.values().sum(),
            latency: mean(|one| one.ceiling.latency),
            processor: mean(|one| one.ceiling.processor),
            burst: None,
        };
        *made.path.side_mut(side).ceiling_mut(way) = ceiling;
        // A buffer on a disk is not a request: if only some of the media are in stores, one equation is used for all.
        if side == Side::Media && places.iter().all(|at| self.places[*at].is_in_store()) {
            let cells = places.iter().flat_map(|at| cells_that_count(&self.places[*at], way));
            *made.path.requests.of_mut(way) = cells.map(request).collect();
        }
        let deviation = mean(|one| one.deviation);
        let mut uncertain = |parameter, deviation| made.uncertain.push(Uncertain { parameter, deviation });
        for part in [CeilingPart::StreamRate, CeilingPart::TotalRate] {
            uncertain(Parameter::Ceiling(side, way, part), deviation);
        }
        if ceiling.latency > 0.0 {
            uncertain(Parameter::Ceiling(side, way, CeilingPart::Latency), mean(|one| one.latency_deviation));
        }
        if ceiling.processor > 0.0 {
            uncertain(Parameter::Ceiling(side, way, CeilingPart::Processor), deviation);
        }
        let commit = mean(|one| one.commit);
        let of_file = mean(|one| one.file_seconds);
        if side == Side::Database && of_file > 0.0 {
            *made.path.fixed.of_file_mut(way) = of_file;
            let deviation = mean(|one| one.file_deviation);
            made.uncertain.push(Uncertain { parameter: Parameter::File(way), deviation });
        }
        if side == Side::Media && way == Access::Write && commit > 0.0 {
            made.path.fixed.commit = commit;
            made.uncertain.push(Uncertain { parameter: Parameter::Commit, deviation });
        }
        commit
    }

    /// The time of writing the page cache to these places. Without it, restores count as direct.
    fn add_flush(&self, made: &mut Calibrated, places: &[usize]) {
        let is_flushed = |cell: &&Cell| {
            let AccessPattern { way, order, direct, .. } = cell.shape;
            (way, order, direct) == (Access::Write, Order::Sequential, false)
        };
        let places: Vec<MeasuredPath> = places.iter().map(|at| self.with_its_device(*at)).collect();
        let cells: Vec<&Cell> =
            places.iter().filter(|place| !place.is_in_store()).flat_map(|place| &place.cells).collect();
        let rounds = cells.into_iter().filter(is_flushed).flat_map(|cell| &cell.rounds);
        let seconds: Vec<f64> = rounds
            // `seconds` has the share of the sync that belongs to the counted bytes.
            .filter_map(|round| Some((round.seconds - round.moving_seconds?) / round.bytes as f64))
            .collect();
        if let Some(flush) = median(seconds.iter().copied()) {
            made.path.least_direct_transfer = LEAST_DIRECT_TRANSFER as f64;
            made.path.fixed.flush = flush;
            let deviation = self.deviation(&Scatter::of([seconds.as_slice()]));
            made.uncertain.push(Uncertain { parameter: Parameter::Flush, deviation });
        }
    }

    /// A place with the cells of all places on its file system: `calibrate` measures most ways of a file system once.
    pub(super) fn with_its_device(&self, at: usize) -> MeasuredPath {
        let mut place = self.places[at].clone();
        let others =
            self.places.iter().enumerate().filter(|(number, other)| *number != at && other.shares_cells(&place));
        for cell in others.flat_map(|(_, other)| other.cells.clone()).collect::<Vec<_>>() {
            match place.cells.iter_mut().find(|known| known.shape == cell.shape) {
                Some(known) => known.rounds.extend(cell.rounds),
                None => place.cells.push(cell),
            }
        }
        place
    }

    /// How regularly these places serve operations. With regular times, each round has the same number of operations.
    /// With exponential times, their number `n` has the variance `n`. The variance divided by the number (the index of
    /// dispersion) is the squared coefficient of variation of the times.
    fn evenness(&self, places: impl Iterator<Item = usize>) -> f64 {
        let cells = places.flat_map(|at| {
            let place = &self.places[at];
            [Access::Read, Access::Write].into_iter().flat_map(|way| cells_that_count(place, way))
        });
        let dispersion = |cell: &Cell| {
            let rates: Vec<f64> = cell.rounds.iter().map(Round::rate).collect();
            let bytes = cell.rounds.iter().map(|round| round.bytes as f64).sum::<f64>() / rates.len() as f64;
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            let freedom = rates.len().checked_sub(1).filter(|freedom| *freedom > 0)?;
            let squares: f64 = rates.iter().map(|rate| (rate / mean - 1.0).powi(2)).sum();
            Some(squares / freedom as f64 * bytes / cell.shape.block_bytes as f64)
        };
        // The median: a disturbed round does not show how the place serves.
        median(cells.filter_map(dispersion)).map_or(0.0, |dispersion| (1.0 - dispersion).clamp(0.0, 1.0))
    }

    /// The least share of the sum, if each place of the media shares a limit with a place of the database.
    fn add_simultaneous(&self, made: &mut Calibrated, (database, media): (&[usize], &[usize]), transfer: u64) {
        let mut least: Option<(f64, f64, f64)> = None;
        for &written in media {
            let Some(even) = self.measured_at_once(database, written, transfer) else { return };
            // One undisturbed round is enough: a disk slows both down in every round.
            let separate = even.rounds.iter().map(share_of_the_faster).fold(0.0, f64::max) >= SEPARATE;
            if !self.share_a_device(even.read, even.written) && separate {
                return;
            }
            let shares = self.shares_of_sum(made, even, transfer);
            let Some(share) = median(shares.iter().copied()) else { return };
            if least.is_none_or(|(known, ..)| share < known) {
                // Only with the same places and blocks: otherwise the two shares differ for other reasons too.
                let of = |pair: &Together| (pair.read, pair.written, pair.block_bytes);
                let is_heavy = |pair: &&Together| pair.written_per_read == WRITE_HEAVY && of(pair) == of(even);
                let heavy = self.together.iter().find(is_heavy).map(|pair| self.shares_of_sum(made, pair, transfer));
                let factor = heavy.and_then(median).map_or(1.0, |heavy| heavy / share);
                least = Some((share, factor, self.deviation(&Scatter::of([shares.as_slice()]))));
            }
        }
        if let Some((share, factor, deviation)) = least {
            made.path.simultaneous = Some(share.clamp(SIMULTANEOUS.0, SIMULTANEOUS.1));
            made.path.write_heavy = factor.clamp(FACTOR_OF_WRITE_HEAVY.0, FACTOR_OF_WRITE_HEAVY.1);
            made.uncertain.push(Uncertain { parameter: Parameter::Simultaneous, deviation });
        }
    }

    /// The share of the sum that the places of a pair do, in each round.
    fn shares_of_sum(&self, made: &Calibrated, pair: &Together, transfer: u64) -> Vec<f64> {
        // With the path's own rates, a job with operations of at least the measured size gets the measured rates of both at
        // once. The fastest of all cells is fast by chance: with the rates of the round, the job would get more.
        let alone = (pair.block_bytes <= transfer && self.share_a_device(pair.read, pair.written))
            .then_some((made.path.database.read.total_rate, made.path.media.write.total_rate));
        let share = |round: &BothRound| share_of_sum(round, alone.unwrap_or((round.read_alone, round.written_alone)));
        pair.rounds.iter().map(share).collect()
    }

    /// The measured pair for reading the database and writing as much to `written` at the same time: these two places,
    /// or two on the same devices. If there are several, the pair with operations nearest to `transfer` bytes.
    fn measured_at_once(&self, database: &[usize], written: usize, transfer: u64) -> Option<&Together> {
        let alike = |one: usize, other: usize| one == other || self.share_a_device(one, other);
        let of_these = |pair: &&Together| {
            let of_these_places = alike(pair.written, written) && database.iter().any(|&at| alike(at, pair.read));
            !pair.rounds.is_empty() && pair.written_per_read == EVEN && of_these_places
        };
        let far = |pair: &&Together| {
            let named = pair.written == written && database.contains(&pair.read);
            ((pair.block_bytes as f64 / transfer.max(1) as f64).ln().abs(), !named)
        };
        self.together.iter().filter(of_these).min_by(|one, other| {
            let ((one, unnamed), (other, other_unnamed)) = (far(one), far(other));
            one.total_cmp(&other).then(unnamed.cmp(&other_unnamed))
        })
    }

    fn share_a_device(&self, one: usize, other: usize) -> bool {
        let [one, other] = [one, other].map(|at| self.places.get(at).and_then(|place| place.device));
        one.is_some() && one == other
    }

    fn add_codecs(&self, made: &mut Calibrated) {
        let mut widest: BTreeMap<&str, &CodecCell> = BTreeMap::new();
        for cell in &self.codecs {
            let known = widest.entry(&cell.codec).or_insert(cell);
            if cell.threads > known.threads {
                *known = cell;
            }
        }
        let all = self.codecs.iter().flat_map(|cell| [&cell.pack, &cell.unpack]);
        let deviation = self.deviation(&Scatter::of_rounds(all));
        for cell in widest.into_values() {
            let (Some(pack), Some(unpack)) =
                (worker_seconds(cell.threads, &cell.pack), worker_seconds(cell.threads, &cell.unpack))
            else {
                continue;
            };
            let cost = CodecCost {
                name: cell.codec.clone(),
                pack,
                unpack,
                stored_share: cell.stored_share.min(1.0),
                context_bytes: cell.context_bytes as f64,
            };
            let parameters = [
                (Parameter::Pack(cost.name.clone()), deviation),
                (Parameter::Unpack(cost.name.clone()), deviation),
                (Parameter::StoredShare(cost.name.clone()), cell.stored_share_error.max(LEAST_DEVIATION)),
            ];
            made.uncertain.extend(parameters.map(|(parameter, deviation)| Uncertain { parameter, deviation }));
            made.path.codecs.push(cost);
        }
        if made.path.codecs.len() == 1 {
            made.unknown.push("codecs were not measured: fullbore calibrate --read DATABASE".into());
        }
    }

    fn add_work(&self, made: &mut Calibrated) {
        let hand_over = |round: &HandOver| round.cpu_seconds / round.buffers as f64;
        let hand_overs: Vec<f64> = self.hand_overs.iter().map(hand_over).collect();
        if let Some(seconds) = median(hand_overs.iter().copied()) {
            made.path.machine.hand_over = seconds;
            let deviation = self.deviation(&Scatter::of([hand_overs.as_slice()]));
            made.uncertain.push(Uncertain { parameter: Parameter::HandOver, deviation });
        }
        let machine: &mut Machine = &mut made.path.machine;
        let works = [
            (&self.checksums, &mut machine.checksum, Parameter::Checksum),
            (&self.ciphers, &mut machine.cipher, Parameter::Cipher),
        ];
        for (cells, value, parameter) in works {
            let widest = cells.iter().max_by_key(|cell| cell.threads);
            let Some(seconds) = widest.and_then(|cell| worker_seconds(cell.threads, &cell.rounds)) else { continue };
            *value = seconds;
            let deviation = self.deviation(&Scatter::of_rounds(cells.iter().map(|cell| &cell.rounds)));
            made.uncertain.push(Uncertain { parameter, deviation });
        }
    }
}

/// Seconds of one of `threads` threads for a byte.
fn worker_seconds(threads: u64, rounds: &[Round]) -> Option<f64> {
    rate(rounds).map(|rate| threads as f64 / rate)
}

/// The speed of both directions at once, as a share of the sum of each alone.
fn share_of_sum(round: &BothRound, alone: (f64, f64)) -> f64 {
    let (read, written) = shares(round, alone);
    read + written
}

/// The speed of each direction while both ran, as a share of its speed alone.
fn shares(round: &BothRound, (read_alone, written_alone): (f64, f64)) -> (f64, f64) {
    let of = |bytes: u64, alone: f64| bytes as f64 / round.seconds / alone;
    (of(round.read_bytes, read_alone), of(round.written_bytes, written_alone))
}

/// The greater share of its own speed that a side had while both were moved at once.
fn share_of_the_faster(round: &BothRound) -> f64 {
    let (read, written) = shares(round, (round.read_alone, round.written_alone));
    read.max(written)
}

/// The sequential cells of a direction: those of direct I/O if there are any, as jobs use direct I/O.
pub(crate) fn cells_that_count(place: &MeasuredPath, way: Access) -> Vec<&Cell> {
    let sequential =
        |cell: &&Cell| cell.shape.way == way && cell.shape.order == Order::Sequential && !cell.rounds.is_empty();
    let all: Vec<&Cell> = place.cells.iter().filter(sequential).collect();
    let direct: Vec<&Cell> = all.iter().copied().filter(|cell| cell.shape.direct).collect();
    if direct.is_empty() { all } else { direct }
}

/// The requests of a store's cell.
fn request(cell: &Cell) -> Request {
    let AccessPattern { block_bytes, queue_depth, streams, .. } = cell.shape;
    let [bytes, in_flight, streams] = [block_bytes, queue_depth, streams].map(|number| number as f64);
    Request { asking: Asking { bytes, in_flight, streams }, rate: cell.rate() }
}
