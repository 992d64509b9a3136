//! What one seed stands for. The kinds of faults take turns with the seeds, so that any hundred seeds in a row meet
//! every one; everything else is drawn.

use std::time::Duration;

use fullbore_core::codec::Compression;
use fullbore_core::io::Mode;
use fullbore_core::plan::{BlockSize, Knobs, TransferSize};
use fullbore_core::sink::Step;
use fullbore_core::testkit::Fault;

use crate::damage::Damage;
use crate::database::{Database, SourceFault};

/// What goes wrong while the set is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    None,
    /// A family's device (counted from 0).
    Device(usize, Fault),
    /// The database.
    Source(SourceFault),
}

/// Buffers that a job gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffers {
    /// The least that the plan allows, and so many more.
    Least(usize),
    /// As the plan wants.
    Default,
}

/// Everything that is drawn from a seed before the first byte is made.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Bytes in a unit of the database.
    pub unit: u32,
    /// Bytes of the database's streams.
    pub sizes: Vec<u64>,
    /// Units in one extent, at most.
    pub units_at_once: usize,
    /// Families of the set.
    pub families: u16,
    /// BLOCKSIZE.
    pub block_size: u32,
    /// MAXTRANSFERSIZE.
    pub transfer_size: u32,
    /// Readers, workers, operations in flight.
    pub threads: (usize, usize, usize),
    /// BUFFERCOUNT of backup and restore.
    pub buffers: Buffers,
    /// How blocks are packed.
    pub compression: Compression,
    /// With a cipher.
    pub encrypted: bool,
    /// A full of an engine without a page map.
    pub unmapped: bool,
    /// The last stream is ordered, with so many blocks as its window.
    pub window: Option<u32>,
    /// A full, and then the differential that is looked at.
    pub differential: bool,
    /// Files, and how they are written and read; otherwise memory.
    pub files: Option<Mode>,
    /// Bytes are reserved before the first write.
    pub preallocated: bool,
    /// Over an older set of so many families.
    pub init: Option<u16>,
    /// Restored into files.
    pub into_files: bool,
    /// While the set is written.
    pub trouble: Trouble,
    /// Afterwards.
    pub damage: Damage,
}

/// Kinds of trouble, in the order in which the seeds take them.
const TROUBLES: u64 = 14;

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(seed: u64) -> Self {
        let random = &mut fastrand::Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let turn = seed / 4;
        let mut scenario = Self::calm(seed, random);
        let at_step = |turn: u64| matches!(turn % TROUBLES, 8 | 9);
        match seed % 4 {
            half @ (0 | 1) => {
                let turn = turn + half * TROUBLES / 2;
                if at_step(turn) {
                    scenario.files = scenario.files.or(Some(Mode::Auto));
                }
                scenario.init =
                    scenario.init.or((at_step(turn) && (turn / TROUBLES).is_multiple_of(2)).then(|| random.u16(1..=8)));
                scenario.trouble = scenario.trouble(turn, random);
            }
            half => {
                scenario.damage = Damage::draw(turn + (half - 2) * Damage::KINDS / 2, random);
                scenario.encrypted |= scenario.damage == Damage::WrongKey;
                // Now and then the device has lied before already.
                if turn % 8 == 7 {
                    scenario.trouble = scenario.trouble(5, random);
                }
            }
        }
        if scenario.files.is_none() {
            // Media in memory have no working names: nothing can be replaced in them safely.
            scenario.init = None;
        }
        scenario
    }

    /// A scenario in which nothing goes wrong.
    pub fn calm(seed: u64, random: &mut fastrand::Rng) -> Self {
        let unit = 4096 << random.u32(0..5);
        let total = if random.u8(..4) == 0 { random.u64(50 << 10..3 << 20) } else { random.u64(50 << 10..700 << 10) };
        let second = if random.bool() { Some(random.u64(0..=total / 2)) } else { None };
        let least = if unit == 65536 { 2 } else { 1 };
        let differential = random.u8(..3) == 0;
        let codec = ["none", "lz4", "zstd:1", "zstd:-3", "gzip:1", "lz4"][random.usize(..6)];
        let modes = [Mode::Auto, Mode::Auto, Mode::Blocking, Mode::Buffered];
        Self {
            seed,
            unit,
            sizes: std::iter::once(total - second.unwrap_or(0)).chain(second).collect(),
            units_at_once: random.usize(1..16),
            families: random.u16(1..=8),
            block_size: 512 << random.u32(0..8),
            transfer_size: (least + random.u32(0..2)) << 16,
            threads: (random.usize(1..=4), random.usize(1..=4), random.usize(1..=6)),
            buffers: if random.bool() { Buffers::Least(random.usize(0..4)) } else { Buffers::Default },
            compression: codec.parse().unwrap_or_default(),
            encrypted: random.u8(..3) == 0,
            unmapped: !differential && random.u8(..4) == 0,
            differential,
            files: random.bool().then(|| modes[random.usize(..modes.len())]),
            preallocated: random.bool(),
            init: (random.u8(..3) == 0).then(|| random.u16(1..=8)),
            into_files: random.bool(),
            trouble: Trouble::None,
            damage: Damage::None,
            window: (random.u8(..3) == 0).then(|| random.u32(1..20)),
        }
    }

    /// A database of this scenario.
    pub fn database(&self, random: &mut fastrand::Rng) -> Database {
        let database = Database::random(random, self.unit, &self.sizes);
        if self.window.is_some() { database.with_ordered_stream() } else { database }
    }

    fn trouble(&self, turn: u64, random: &mut fastrand::Rng) -> Trouble {
        let total: u64 = self.sizes.iter().sum();
        let stored = if self.differential { total / 5 } else { total * 2 / 3 };
        let per_family = stored / u64::from(self.families) + 8192;
        // Every other round where it is met for sure: in the first bytes, operations and extents of the first family.
        let sure = (turn / TROUBLES).is_multiple_of(2);
        let byte = random.u64(0..if sure { 8192 } else { per_family });
        let operations = per_family / u64::from(self.transfer_size) + 4;
        let operation = random.u64(0..if sure { 3 } else { operations });
        let extents = total / (u64::from(self.unit) * self.units_at_once as u64) + 1;
        let extent = random.u64(0..if sure { 1 } else { extents.min(40) });
        let step = Step::ALL[random.usize(..Step::ALL.len())];
        let fault = match turn % TROUBLES {
            0 => Fault::ErrorAtOperation(operation, 5),
            1 => Fault::ErrorAtByte(byte, 5),
            2 => Fault::ShortWrite(byte),
            3 => Fault::NoSpaceAfter(byte),
            4 => Fault::TornWrite(byte),
            5 => Fault::FlipBit(byte, random.u8(..8)),
            6 => Fault::Delay(operation, Duration::from_millis(random.u64(1..30))),
            7 => Fault::Kill(operation),
            8 => Fault::KillAtStep(step),
            9 => Fault::ErrorAtStep(step, 5),
            10 => return Trouble::Source(SourceFault::ReadError(extent)),
            11 => return Trouble::Source(SourceFault::CheckFails(extent)),
            12 => return Trouble::Source(SourceFault::Signal(extent)),
            _ => return Trouble::Source(SourceFault::Hole(extent)),
        };
        Trouble::Device(if sure { 0 } else { random.usize(..usize::from(self.families)) }, fault)
    }

    /// What a user would have asked for; `buffer_count` as the caller found it.
    pub fn knobs(&self, buffer_count: Option<usize>) -> fullbore_core::Result<Knobs> {
        let (readers, workers, queue_depth) = self.threads;
        Ok(Knobs {
            transfer_size: TransferSize::new(self.transfer_size.into())?,
            block_size: BlockSize::new(self.block_size.into())?,
            buffer_count,
            queue_depth: Some(queue_depth),
            readers: Some(readers),
            workers: Some(workers),
            throttle: None,
        })
    }

    /// The plan that `make` makes of these knobs, with as many buffers as the scenario wants. The least count is the one
    /// that the refusal of a lower one names.
    pub fn plan<P>(&self, make: impl Fn(&Knobs) -> fullbore_core::Result<P>) -> anyhow::Result<P> {
        let count = match self.buffers {
            Buffers::Default => None,
            Buffers::Least(more) => match make(&self.knobs(Some(1))?) {
                Ok(_) => Some(1 + more),
                Err(error) => Some(named_minimum(&error.to_string())? + more),
            },
        };
        Ok(make(&self.knobs(count)?)?)
    }
}

/// The number behind "at least" in a refusal.
fn named_minimum(text: &str) -> anyhow::Result<usize> {
    let number = text.split("at least ").nth(1).and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    number.and_then(|digits| digits.parse().ok()).ok_or_else(|| anyhow::anyhow!("no minimum is named in: {text}"))
}
