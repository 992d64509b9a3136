//! The order of measurements: a coarse set, the ways around the fastest, and all of them again until the time is used.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fullbore_core::Result;
use fullbore_core::codec::Compression;

use super::pace::Pace;
use super::places::{self, Medium};
use super::probe::Probe;
use super::probe_file::ProbeFile;
use super::sample::{self, BLOCK, Packed};
use super::shapes::{SMALL_BLOCK, USUAL_BLOCK, USUAL_DEPTH, around_the_fastest_file};
use super::stream::Window;
use super::tiny_jobs::TinyJobs;
use super::{Request, small_files};
use fullbore_core::conduct::Conduct;
use fullbore_core::units::{counted, show_bytes};
use fullbore_model::profile::{
    Access, CodecCell, EVEN, JobCost, Order, Profile, Together, Use, WRITE_HEAVY, WorkCell, contradicted,
};

/// The least and the greatest length of a round in memory.
const ROUND: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// The unit of a round's counted length on a device: a slice of its bucket (`stream.rs`).
const SLICE: Duration = Duration::from_millis(100);
const SLICES: (u32, u32) = (2, 10);
/// Rounds of every cell that a run has time for, if devices are quick.
const ROUNDS: u32 = 2;
/// After this many more rounds, a stalled round is one of three.
const ROUNDS_TO_SETTLE: u32 = 2;
/// The most rounds: more would add little.
const ROUNDS_MOST: usize = 9;
/// The factor for refinement after the coarse set; and the factor for opening, allocating and syncing besides rounds.
const REFINEMENT: f64 = 1.4;
const BESIDES: f64 = 1.5;
/// The rank of the other mixes and sizes of reading and writing at once, among the ways of a place: on one device, and on
/// two, which rarely share a limit.
const RANK_ON_ONE_DEVICE: usize = 4;
const RANK_ON_TWO_DEVICES: usize = 100;
/// After these shares of the time, no new cell of the coarse set begins, and no new cell around the fastest. The rest
/// of the time is for second rounds, which show chance.
const COARSE_UNTIL: f64 = 0.65;
const REFINED_UNTIL: f64 = 0.8;
/// The share of the time that a sample may take under `--throttle`.
const SAMPLE_UNTIL: f64 = 0.25;
/// Measured codecs, as `--compression` spells them; and the additional ones of a thorough run.
const CODECS: [&str; 5] = ["lz4", "zstd:-1", "zstd:1", "zstd:3", "gzip:1"];
const MORE_CODECS: [&str; 3] = ["zstd:6", "zstd:9", "gzip:6"];
/// Blocks of the sample.
const SAMPLE: usize = 16;
const SAMPLE_THOROUGH: usize = 32;
/// Shorter files may be in caches of lower layers.
const SHORT: u64 = 256 << 20;

/// A running calibration.
pub(super) struct Run<'a> {
    pub(super) request: &'a Request,
    pub(super) profile: Profile,
    pub(super) media: Vec<Medium>,
    pub(super) blocks: Vec<Vec<u8>>,
    pub(super) packed: Vec<Packed>,
    pub(super) tiny_jobs: Vec<TinyJobs>,
    pub(super) pace: Pace<'a>,
    pub(super) begun: Instant,
}

impl<'a> Run<'a> {
    /// Opens all places, takes the sample and packs it once.
    pub fn open(request: &'a Request, mut profile: Profile, conduct: &'a Conduct, begun: Instant) -> Result<Self> {
        let opened = places::open(request, conduct, &mut profile.notes)?;
        let (entries, media): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
        profile.places = entries;
        let pace = Pace::new(ROUND.0, request.throttle, conduct);
        let (blocks, packed, tiny_jobs) = (Vec::new(), Vec::new(), Vec::new());
        let mut run = Self { request, profile, media, blocks, packed, tiny_jobs, pace, begun };
        run.take_sample(conduct)?;
        Ok(run)
    }

    fn take_sample(&mut self, conduct: &Conduct) -> Result<()> {
        let files: Vec<&ProbeFile> = self.media.iter().filter_map(only_read).flatten().collect();
        let most = if self.request.thorough { SAMPLE_THOROUGH } else { SAMPLE };
        self.blocks = sample::taken(&files, most, self.request.time.mul_f64(SAMPLE_UNTIL), &self.pace)?;
        self.profile.sample_bytes = self.blocks.iter().map(|block| block.len() as u64).sum();
        if self.blocks.is_empty() {
            let why = match files.is_empty() {
                true => "there is no --read with files for a sample",
                false => "under --throttle there was no time to take a sample",
            };
            self.profile.notes.push(format!("codecs were not measured: {why}"));
            let mut random = fastrand::Rng::with_seed(1);
            self.blocks = vec![(0..BLOCK).map(|_| random.u8(..)).collect()];
            return Ok(());
        }
        let more = if self.request.thorough { &MORE_CODECS[..] } else { &[] };
        for text in CODECS.iter().chain(more) {
            let compression: Compression = text.parse()?;
            self.packed.push(sample::packed(&self.blocks, compression, conduct)?);
        }
        Ok(())
    }

    /// Measures, and returns the profile.
    pub fn measure(mut self, tell: &dyn Fn(&str)) -> Result<Profile> {
        let (mut probes, rest) = self.coarse();
        let needed = probes.len();
        probes.extend(rest);
        let lengths: f64 = probes.iter().map(Probe::rounds).sum();
        let rounds = (f64::from(ROUNDS) * BESIDES * REFINEMENT * lengths).max(1.0);
        let left = self.request.time.saturating_sub(self.begun.elapsed());
        self.pace.length = left.div_f64(rounds).clamp(ROUND.0, ROUND.1);
        let slices = self.pace.length.div_duration_f64(SLICE).round() as u32;
        self.pace.on_device = SLICE * slices.clamp(SLICES.0, SLICES.1);
        tell(&format!(
            "{} ways to use {}, {:.0} ms each, and {} in memory, {:.0} ms each, for about {} s",
            probes.iter().filter(|probe| probe.is_of_places()).count(),
            places_in_words(self.profile.places.len()),
            Window::whole(&self.pace).as_secs_f64() * 1e3,
            probes.iter().filter(|probe| probe.is_in_memory()).count(),
            self.pace.length.as_secs_f64() * 1e3,
            self.request.time.as_secs()
        ));
        // Once in any case: a profile needs these.
        self.pass(&probes[..needed], Duration::MAX)?;
        let time = self.request.time;
        self.pass(&probes[needed..], time.mul_f64(COARSE_UNTIL))?;
        let more = self.around();
        tell(&format!("{} more around the fastest", more.len()));
        self.pass(&more, time.mul_f64(REFINED_UNTIL))?;
        probes.extend(more);
        self.look_again()?;
        self.again(&probes)?;
        self.note_what_may_mislead();
        super::drop_empty(&mut self.profile);
        super::refuse_nothing(&self.profile, self.request)?;
        Ok(self.profile)
    }

    /// Measures contradicted cells again, even after the end of the time: the device stalled in that round, and no
    /// other check would find it.
    fn look_again(&mut self) -> Result<()> {
        for _ in 0..ROUNDS_TO_SETTLE {
            let doubtful: Vec<Probe> = (0..self.media.len())
                .flat_map(|at| contradicted(&self.profile.places[at].cells).into_iter().map(move |shape| (at, shape)))
                .map(|(at, shape)| Probe::Cell(at, shape))
                .collect();
            self.pass(&doubtful, Duration::MAX)?;
        }
        Ok(())
    }

    /// Measures again what has the fewest rounds, until the time is over. A single round may be far off by chance.
    fn again(&mut self, probes: &[Probe]) -> Result<()> {
        let mut rounds: Vec<usize> = probes.iter().map(|probe| probe.rounds_in(&self.profile)).collect();
        loop {
            let left = self.request.time.saturating_sub(self.begun.elapsed());
            let fits = |at: &usize| rounds[*at] < ROUNDS_MOST && self.takes(&probes[*at]) <= left;
            let Some(next) = (0..probes.len()).filter(fits).min_by_key(|at| rounds[*at]) else { return Ok(()) };
            self.pace.conduct.check()?;
            self.measure_one(probes[next])?;
            rounds[next] = (rounds[next] + 1).max(probes[next].rounds_in(&self.profile));
        }
    }

    /// One round of each; false if `most` of the time is over before the last.
    fn pass(&mut self, probes: &[Probe], most: Duration) -> Result<bool> {
        for probe in probes {
            let length = self.takes(probe);
            if self.begun.elapsed().saturating_add(length) > most {
                return Ok(false);
            }
            self.pace.conduct.check()?;
            self.measure_one(*probe)?;
        }
        Ok(true)
    }

    /// The length of one round, if known.
    fn takes(&self, probe: &Probe) -> Duration {
        match probe {
            Probe::Cell(at, shape) => match &self.media[*at] {
                Medium::Disk(_) if shape.order == Order::Files => small_files::length(&self.pace),
                Medium::Disk(_) => Window::whole(&self.pace),
                Medium::Store(store) => store.takes(shape, &self.profile.places[*at].cells).max(self.pace.length),
            },
            Probe::Both(_) => Window::whole_of_both(&self.pace),
            Probe::TinyJobs(number) => self.tiny_jobs[*number].took,
            Probe::Codec(..) | Probe::Checksum(_) | Probe::Cipher(_) | Probe::HandOver => self.pace.length,
        }
    }

    /// The coarse set, in two parts. A profile needs the first: the usual way in each direction of a place, and all
    /// work in memory. The second part is the rest.
    fn coarse(&mut self) -> (Vec<Probe>, Vec<Probe>) {
        let (mut probes, mut rest) = (Vec::new(), Vec::new());
        // The likeliest ways of all places come first: there may not be time for the others.
        for (at, medium) in self.media.iter().enumerate() {
            let mut ways = Vec::new();
            for (rank, shape) in medium.coarse(self.profile.places[at].used).into_iter().enumerate() {
                if !ways.contains(&shape.way) {
                    probes.push(Probe::Cell(at, shape));
                } else if !self.is_told_by_another(at) {
                    rest.push((rank, Probe::Cell(at, shape)));
                }
                ways.push(shape.way);
            }
        }
        let disk =
            |at: &usize, used| self.profile.places[*at].used == used && matches!(self.media[*at], Medium::Disk(_));
        let read = (0..self.media.len()).find(|at| disk(at, Use::Read));
        let written: Vec<usize> = (0..self.media.len()).filter(|at| disk(at, Use::Write)).collect();
        let device = |at: usize| self.profile.places[at].device;
        let one_device = written.iter().all(|at| read.is_some_and(|read| device(*at) == device(read)));
        let rank = if one_device { RANK_ON_ONE_DEVICE } else { RANK_ON_TWO_DEVICES };
        for written in written {
            let Some(read) = read else { break };
            let usual = (USUAL_BLOCK, EVEN);
            for way in [usual, (USUAL_BLOCK, WRITE_HEAVY), (SMALL_BLOCK, EVEN), (SMALL_BLOCK, WRITE_HEAVY)] {
                let probe = Probe::Both(self.profile.together.len());
                if way == usual {
                    probes.push(probe);
                } else if self.is_told_by_another(written) {
                    continue;
                } else {
                    rest.push((rank, probe));
                }
                let ((block_bytes, written_per_read), queue_depth, rounds) = (way, USUAL_DEPTH, Vec::new());
                let pair = Together { read, written, block_bytes, queue_depth, written_per_read, rounds };
                self.profile.together.push(pair);
            }
        }
        rest.sort_by_key(|(rank, _)| *rank);
        self.add_tiny_jobs();
        probes.extend((0..self.tiny_jobs.len()).map(Probe::TinyJobs));
        let mut threads = vec![1, self.profile.machine.cores];
        threads.dedup();
        for threads in threads {
            for (number, packed) in self.packed.iter().enumerate() {
                probes.push(Probe::Codec(number, self.profile.codecs.len()));
                self.profile.codecs.push(CodecCell {
                    codec: packed.compression.to_string(),
                    threads,
                    stored_share: packed.stored_share,
                    stored_share_error: packed.stored_share_error,
                    context_bytes: packed.context_bytes,
                    pack: Vec::new(),
                    unpack: Vec::new(),
                });
            }
            probes.extend([Probe::Checksum(self.profile.checksums.len()), Probe::Cipher(self.profile.ciphers.len())]);
            self.profile.checksums.push(WorkCell { threads, rounds: Vec::new() });
            self.profile.ciphers.push(WorkCell { threads, rounds: Vec::new() });
        }
        probes.push(Probe::HandOver);
        (probes, rest.into_iter().map(|(_, probe)| probe).collect())
    }

    /// Whether an earlier `--write` place is on the same file system. Its cells count for this place as well
    /// (`profile/path.rs`). So the usual way in each direction is enough here: other ways need the time more.
    fn is_told_by_another(&self, at: usize) -> bool {
        let places = &self.profile.places;
        places[..at].iter().any(|other| other.shares_cells(&places[at]))
    }

    /// Adds tiny jobs into each written place, of a database in it, or else in the first written directory.
    fn add_tiny_jobs(&mut self) {
        let Self { request, profile, media, tiny_jobs, .. } = self;
        let directory = |at: usize| match (&media[at], profile.places[at].used) {
            (Medium::Disk(disk), Use::Write) => Some((at, disk.path.clone())),
            _ => None,
        };
        let directories: Vec<Option<(usize, PathBuf)>> = (0..media.len()).map(directory).collect();
        let first = directories.iter().flatten().next();
        for (at, place) in profile.places.iter().enumerate().filter(|(_, place)| place.used == Use::Write) {
            let object = match &media[at] {
                Medium::Disk(_) => None,
                Medium::Store(store) => store.own_name(".bore"),
            };
            if object.is_some() && request.locks {
                profile.notes.push(unmeasured_jobs(&place.path, "lock-until would lock objects there"));
                continue;
            }
            let Some((database, folder)) = directories[at].as_ref().or(first).cloned() else {
                let why = "there is no --write with a directory for a database";
                profile.notes.push(unmeasured_jobs(&place.path, why));
                continue;
            };
            let (config, took, failed) = (request.config.clone(), Duration::ZERO, false);
            tiny_jobs.push(TinyJobs { media: at, folder, object, config, took, failed });
            let (backup_s, restore_s) = (Vec::new(), Vec::new());
            profile.job_costs.push(JobCost { media: at, database, plain_bytes: 0, backup_s, restore_s });
        }
    }

    fn around(&self) -> Vec<Probe> {
        let mut probes = Vec::new();
        for (at, medium) in self.media.iter().enumerate() {
            if self.is_told_by_another(at) {
                continue;
            }
            let cells = &self.profile.places[at].cells;
            let shapes = match medium {
                Medium::Disk(disk) => [Access::Write, Access::Read]
                    .map(|way| around_the_fastest_file(cells, way, disk.is_direct()))
                    .concat(),
                Medium::Store(store) => store.around(cells),
            };
            probes.extend(shapes.into_iter().map(|shape| Probe::Cell(at, shape)));
        }
        probes
    }

    fn note_what_may_mislead(&mut self) {
        let told = (0..self.profile.places.len()).filter(|at| self.is_told_by_another(*at));
        let same_disk = |at: usize| {
            let path = &self.profile.places[at].path;
            format!("`{path}` is in the file system of an earlier --write: measurements of one count for both")
        };
        let told: Vec<String> = told.map(same_disk).collect();
        let notes = &mut self.profile.notes;
        notes.extend(told);
        for place in self.profile.places.iter().filter(|place| place.used == Use::Read && place.device.is_some()) {
            if place.bytes < SHORT {
                let size = show_bytes(place.bytes);
                notes.push(format!(
                    "only {size} of `{}` were read: caches below this machine may have held all of it",
                    place.path
                ));
            }
        }
        for (place, medium) in self.profile.places.iter().zip(&self.media) {
            if matches!(medium, Medium::Disk(disk) if !disk.is_direct()) {
                notes.push(format!(
                    "the file system of `{}` has no direct I/O: its I/O went through the page cache",
                    place.path
                ));
            }
        }
        if let Some(rate) = self.profile.settings.throttle_bytes_per_s {
            notes.push(format!("--throttle limited reads and writes to {}/s", show_bytes(rate)));
        }
    }
}

pub(super) fn unmeasured_jobs(place: &str, why: &str) -> String {
    format!("the costs of a job into `{place}` besides moving bytes were not measured: {why}")
}

fn places_in_words(count: usize) -> String {
    counted(count as u64, "place")
}

/// The files of a place that is only read.
fn only_read(medium: &Medium) -> Option<&[ProbeFile]> {
    match medium {
        Medium::Disk(disk) if disk.files.iter().all(|file| !file.ours) => Some(&disk.files),
        _ => None,
    }
}
