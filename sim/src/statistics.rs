//! What a simulation has exercised: one that tests nothing shall be seen.

use std::collections::BTreeMap;
use std::fmt;

use fullbore_core::testkit::Fault;

use crate::run::Record;

/// From so many seeds on every kind must have been met.
pub const ENOUGH: u64 = 100;

/// Every kind of thing that goes wrong, by its name in [`Record::met`].
pub const KINDS: [&str; 30] = [
    "writing: ErrorAtOperation",
    "writing: ErrorAtByte",
    "writing: ShortWrite",
    "writing: NoSpaceAfter",
    "writing: TornWrite",
    "writing: FlipBit",
    "writing: Delay",
    "writing: Kill",
    "writing: KillAtStep",
    "writing: ErrorAtStep",
    "source: ReadError",
    "source: CheckFails",
    "source: Signal",
    "source: Hole",
    "media: Lost",
    "media: Foreign",
    "media: Truncated",
    "media: Appended",
    "media: FlippedBit",
    "media: ZeroedSector",
    "media: Duplicated",
    "media: Shuffled",
    "media: Newer",
    "media: WrongKey",
    "reading: ErrorAtOperation",
    "reading: ErrorAtByte",
    "reading: FlipBit",
    "reading: EndsAt",
    "reading: Kill",
    "reading: Delay",
];

/// Counts of what happened.
#[derive(Default)]
pub struct Statistics {
    seeds: u64,
    outcomes: BTreeMap<&'static str, u64>,
    met: BTreeMap<String, u64>,
    features: BTreeMap<&'static str, u64>,
    backups: u64,
    bytes: u64,
    flips: u64,
}

/// The name of a kind of fault.
pub fn fault_name(fault: &Fault) -> String {
    first_word(&format!("{fault:?}")).to_owned()
}

/// The word before the first bracket.
pub fn first_word(text: &str) -> &str {
    text.split(['(', ' ']).next().unwrap_or(text)
}

impl Statistics {
    /// Adds what one seed did.
    pub fn add(&mut self, record: &Record) {
        self.seeds += 1;
        self.backups += record.backups;
        self.bytes += record.bytes;
        self.flips += record.flips;
        *self.outcomes.entry(record.written).or_default() += 1;
        *self.outcomes.entry(record.read).or_default() += 1;
        for met in &record.met {
            *self.met.entry(met.clone()).or_default() += 1;
        }
        for feature in &record.features {
            *self.features.entry(feature).or_default() += 1;
        }
    }

    /// The kinds that no seed has met, when there were enough seeds to expect them.
    pub fn missing(&self) -> Vec<&'static str> {
        if self.seeds < ENOUGH {
            return Vec::new();
        }
        KINDS.into_iter().filter(|kind| !self.met.contains_key(*kind)).collect()
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = self.bytes as f64 / f64::from(1 << 20);
        let (seeds, backups, flips) = (self.seeds, self.backups, self.flips);
        writeln!(f, "{seeds} seeds, {backups} backups of {mib:.1} MiB in all, {flips} more bits flipped one by one")?;
        let join = |entries: Vec<String>| entries.join(" · ");
        writeln!(f, "  outcomes: {}", join(self.outcomes.iter().map(|(name, n)| format!("{name} {n}")).collect()))?;
        writeln!(f, "  with: {}", join(self.features.iter().map(|(name, n)| format!("{name} {n}")).collect()))?;
        write!(f, "  met: {}", join(self.met.iter().map(|(name, n)| format!("{name} {n}")).collect()))
    }
}
