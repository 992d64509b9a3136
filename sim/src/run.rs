//! One seed from its start to its verdict.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use fullbore_core::cipher::{KeyFile, SecretKey};
use fullbore_core::pool::Pool;
use fullbore_core::testkit::{Fault, FaultPlan};
use fullbore_core::unpack::{BaseMap, Family, MediaSet};
use uuid::Uuid;

use crate::damage::{Consequence, Damage};
use crate::database::{Content, Database, Simulated, SourceFault};
use crate::read_back::{ReadSets, Reading};
use crate::scenario::{Scenario, Trouble};
use crate::shelf::Media;
use crate::statistics::{fault_name, first_word};
use crate::write_set::{SetWriter, Written, has_a_reason};

/// Bits flipped, one after the other, in a set that came out whole.
const FLIPS: usize = 6;

/// What a seed did, for the statistics.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// What became of the backup.
    pub written: &'static str,
    /// What became of the media.
    pub read: &'static str,
    /// The kinds of faults that were really met.
    pub met: Vec<String>,
    /// What the scenario was like.
    pub features: Vec<&'static str>,
    /// Backups that ran.
    pub backups: u64,
    /// Bits that were flipped besides, each found.
    pub flips: u64,
    /// Bytes of the databases that were backed up.
    pub bytes: u64,
    /// The refusal or failure, for those who want to read it.
    pub reasons: Vec<String>,
}

/// The world of one seed.
struct World<'a> {
    scenario: &'a Scenario,
    directory: &'a Path,
    media: Media,
    key: Option<SecretKey>,
    /// What each set has to restore to.
    known: BTreeMap<Uuid, Content>,
    /// The full that the set is a differential of: its map, and its content.
    base: Option<(BaseMap, Content)>,
    /// The set that `--init` replaces.
    old: Option<Uuid>,
    /// Another set, for its families.
    foreign: Option<Media>,
    database: Database,
    record: Record,
}

/// Runs the scenario in an empty directory.
///
/// # Errors
/// The invariant does not hold: says how.
pub fn run(scenario: &Scenario, directory: &Path) -> anyhow::Result<Record> {
    let mut world = World::new(scenario, directory)?;
    let faults = match scenario.trouble {
        Trouble::Device(family, fault) => FaultPlan::new().with(family, fault),
        Trouble::None | Trouble::Source(_) => FaultPlan::new(),
    };
    let source_fault = match scenario.trouble {
        Trouble::Source(fault) => Some(fault),
        Trouble::None | Trouble::Device(..) => None,
    };
    let database = world.database.clone();
    let source = Simulated::new(&database, source_fault, scenario.units_at_once);
    let before = world.media.names();
    let written = world.write(&source, scenario.families, &world.media, world.old, &faults)?;
    world.known.insert(written.media_set_id, database.snapshot());
    let source_met = source_fault.filter(|fault| met(*fault, source.delivered()));
    let sinks_met: Vec<Fault> = faults.fired().into_iter().map(|(_, fault)| fault).collect();
    world.record.met.extend(sinks_met.iter().map(|fault| format!("writing: {}", fault_name(fault))));
    world.record.met.extend(source_met.map(|fault| format!("source: {}", first_word(&format!("{fault:?}")))));
    let end = End { written, sinks_met, source_met, dead: faults.is_dead() };
    world.judge_run(&end, &before)?;
    let done = world.damage(&end)?;
    let heap = world.read(scenario.damage).context("reading the media")?;
    world.judge_media(&end, done, &heap)?;
    if scenario.damage == Damage::None && end.written.result.is_ok() && !end.flipped() {
        world.flip_here_and_there(end.written.media_set_id)?;
    }
    Ok(world.record)
}

/// How the backup ended.
struct End {
    written: Written,
    sinks_met: Vec<Fault>,
    source_met: Option<SourceFault>,
    dead: bool,
}

impl End {
    fn flipped(&self) -> bool {
        self.sinks_met.iter().any(|fault| matches!(fault, Fault::FlipBit(..)))
    }
}

fn met(fault: SourceFault, delivered: u64) -> bool {
    let (SourceFault::ReadError(at) | SourceFault::CheckFails(at) | SourceFault::Signal(at) | SourceFault::Hole(at)) =
        fault;
    delivered > at
}

impl<'a> World<'a> {
    /// Makes the database, and the sets that are there before.
    fn new(scenario: &'a Scenario, directory: &'a Path) -> anyhow::Result<Self> {
        let random = &mut fastrand::Rng::with_seed(!scenario.seed);
        let shelf = directory.join("media");
        std::fs::create_dir(&shelf)?;
        let media = scenario.files.map_or_else(Media::memory, |mode| Media::Files(shelf, mode));
        let key = if scenario.encrypted { Some(KeyFile::generate()?.into_secret()?) } else { None };
        let mut world = Self {
            scenario,
            directory,
            media,
            key,
            known: BTreeMap::new(),
            base: None,
            old: None,
            foreign: None,
            database: scenario.database(random),
            record: Record { features: features(scenario), ..Record::default() },
        };
        if scenario.differential {
            world.make_base(random).context("the full of a differential")?;
        }
        if let Some(families) = scenario.init {
            let (id, content) = world.write_calmly(random, families, None).context("the old set")?;
            world.known.insert(id, content);
            world.old = Some(id);
        }
        if let Damage::Foreign(_) = scenario.damage {
            let foreign = Media::memory();
            let (id, content) =
                world.write_calmly(random, scenario.families, Some(&foreign)).context("a foreign set")?;
            world.known.insert(id, content);
            world.foreign = Some(foreign);
        }
        Ok(world)
    }

    fn make_base(&mut self, random: &mut fastrand::Rng) -> anyhow::Result<()> {
        let media = Media::memory();
        let source = Simulated::new(&self.database, None, self.scenario.units_at_once);
        let families = random.u16(1..=8);
        let written = self.write(&source, families, &media, None, &FaultPlan::new())?;
        written.result?;
        let nothing = Pool::new(0, 4096)?;
        let open = |name: &String| media.supply(name, &nothing, 1).and_then(Family::open);
        let families = media.names().iter().map(open).collect::<fullbore_core::Result<Vec<_>>>()?;
        let set = MediaSet::assemble(families, self.key.as_ref(), &[])?;
        let content = self.database.snapshot();
        self.database = self.database.later(random);
        self.base = Some((BaseMap::open(set)?, content));
        self.record.backups += 1;
        Ok(())
    }

    /// A full of another database, with nothing going wrong; to the world's own media unless told otherwise.
    fn write_calmly(
        &self,
        random: &mut fastrand::Rng,
        families: u16,
        media: Option<&Media>,
    ) -> anyhow::Result<(Uuid, Content)> {
        let database = self.scenario.database(random);
        let source = Simulated::new(&database, None, 8);
        let writer = SetWriter {
            scenario: self.scenario,
            families,
            key: self.key.as_ref(),
            base: None,
            replaces: None,
            started_at: 1,
        };
        let written = writer.write(&source, media.unwrap_or(&self.media), &FaultPlan::new())?;
        written.result?;
        Ok((written.media_set_id, database.snapshot()))
    }

    fn write(
        &self,
        source: &Simulated<'_>,
        families: u16,
        media: &Media,
        replaces: Option<Uuid>,
        faults: &FaultPlan,
    ) -> anyhow::Result<Written> {
        let writer = SetWriter {
            scenario: self.scenario,
            families,
            key: self.key.as_ref(),
            base: self.base.as_ref().map(|(map, _)| map),
            replaces,
            started_at: 2,
        };
        writer.write(source, media, faults)
    }

    /// What the run said must fit what it met, and what it left behind.
    fn judge_run(&mut self, end: &End, before: &[String]) -> anyhow::Result<()> {
        self.record.backups += 1;
        self.record.bytes += self.database.bytes();
        let names = self.media.names();
        match &end.written.result {
            Ok(outcome) => {
                self.record.written = "backup succeeded";
                ensure!(!end.dead, "a killed run reported success");
                ensure!(end.source_met.is_none(), "success, although the source failed: {:?}", end.source_met);
                ensure!(outcome.source_bytes == self.database.bytes(), "not every byte of the source was read");
                let harmless = |fault: &Fault| matches!(fault, Fault::Delay(..) | Fault::FlipBit(..));
                ensure!(end.sinks_met.iter().all(harmless), "success, although a device failed: {:?}", end.sinks_met);
                let working = names.iter().find(|name| name.contains(".new-") || name.contains(".old-"));
                ensure!(working.is_none(), "success left {working:?}");
            }
            Err(error) => {
                self.record.written = if end.dead { "backup killed" } else { "backup failed" };
                self.record.reasons.push(error.to_string());
                ensure!(has_a_reason(error), "it failed without a reason: {error:?}");
                ensure!(end.source_met.is_some() || !end.sinks_met.is_empty(), "it failed for nothing: {error}");
                let stays = self.old.is_some() && error.to_string().contains("new set is whole");
                if !end.dead && !stays {
                    ensure!(names == before, "a failed run left {names:?} where {before:?} were; its error: {error}");
                }
            }
        }
        Ok(())
    }

    /// Lets the media suffer; false when that changed nothing.
    fn damage(&mut self, end: &End) -> anyhow::Result<bool> {
        let damage = self.scenario.damage;
        if end.written.result.is_err() {
            return Ok(false);
        }
        let done = damage.happen(&self.media, self.scenario.families, self.foreign.as_ref())?;
        let counts = match damage {
            Damage::None | Damage::Reading(..) => false,
            Damage::WrongKey => self.scenario.encrypted,
            _ => true,
        };
        if done && counts {
            self.record.met.push(damage.name());
        }
        Ok(done)
    }

    /// Of a set that is whole no bit may change unnoticed: some are tried, one after the other.
    fn flip_here_and_there(&mut self, id: Uuid) -> anyhow::Result<()> {
        let random = &mut fastrand::Rng::with_seed(self.scenario.seed ^ 0x5EED);
        for _ in 0..FLIPS {
            let flip = Damage::FlippedBit(random.u16(..64), random.u16(..), random.u8(..8));
            flip.happen(&self.media, self.scenario.families, None)?;
            let heap = self.read(Damage::None).with_context(|| format!("reading after {flip:?}"))?;
            let refused = heap.sets.iter().all(|set| set.id != id || (set.verified.is_err() && set.restored.is_err()));
            ensure!(refused, "{flip:?} went unnoticed");
            flip.happen(&self.media, self.scenario.families, None)?;
            self.record.flips += 1;
        }
        Ok(())
    }

    fn read(&self, damage: Damage) -> anyhow::Result<ReadSets> {
        let wrong = KeyFile::generate()?.into_secret()?;
        let key = if damage == Damage::WrongKey { Some(&wrong) } else { self.key.as_ref() };
        let reading = Reading {
            scenario: self.scenario,
            media: &self.media,
            families: self.scenario.families,
            damage,
            key,
            base: self.base.as_ref().map(|(_, content)| content),
            directory: self.directory,
        };
        reading.all()
    }

    /// The restore equals the snapshot, or the set is refused with the reason.
    fn judge_media(&mut self, end: &End, done: bool, heap: &ReadSets) -> anyhow::Result<()> {
        let damage = self.scenario.damage;
        let mut whole = Vec::new();
        for set in &heap.sets {
            let (verified, restored) = (set.verified.as_ref().err(), set.restored.as_ref().err());
            ensure!(
                verified.is_none() == restored.is_none(),
                "verify and restore of {} do not agree: {verified:?}, {restored:?}",
                set.id
            );
            if let Ok(content) = &set.restored {
                let expected = self.known.get(&set.id).context("a set that nobody has written")?;
                compare(content, expected).with_context(|| format!("set {} was RESTORED WRONGLY", set.id))?;
                whole.push(set.id);
            }
        }
        let new = whole.contains(&end.written.media_set_id);
        let old = self.old.is_some_and(|old| whole.contains(&old));
        let refusals = heap.sets.iter().filter_map(|set| set.restored.as_ref().err()).chain(&heap.unreadable);
        self.record.reasons.extend(refusals.map(ToString::to_string));
        self.record.met.extend(heap.met.first().map(|_| damage.name()));
        let consequence = match damage.consequence(self.scenario.encrypted) {
            _ if end.flipped() => Consequence::Fatal,
            Consequence::Fatal if !done => Consequence::Harmless,
            Consequence::IfMet if heap.met.is_empty() => Consequence::Harmless,
            other => other,
        };
        self.record.read = match (new, old) {
            (true, _) => "set restored exactly",
            (false, true) => "old set restored exactly",
            (false, false) => "nothing but refusals",
        };
        if end.written.result.is_ok() {
            return match (consequence, new) {
                (Consequence::Harmless, false) => {
                    bail!("success, and nothing harmful, but refused: {:?}", self.record.reasons)
                }
                (Consequence::Fatal, true) => bail!("{damage:?}, {:?} went unnoticed", end.sinks_met),
                _ => Ok(()),
            };
        }
        if self.old.is_some() {
            let said = end.written.result.as_ref().is_err_and(|error| error.to_string().contains("new set is whole"));
            ensure!(end.dead || said == new, "it failed; the new set is whole: {new}, and the error says so: {said}");
            ensure!(
                new || old,
                "killed or failed, neither the old nor the new set is whole: {:?}",
                self.record.reasons
            );
        }
        if !end.dead && self.old.is_none() {
            ensure!(!new, "it reported failure and left a whole set");
        }
        Ok(())
    }
}

fn compare(content: &Content, expected: &Content) -> anyhow::Result<()> {
    ensure!(content.keys().eq(expected.keys()), "other streams");
    for (stream, bytes) in expected {
        let got = &content[stream];
        ensure!(got.len() == bytes.len(), "stream {stream} has {} bytes, not {}", got.len(), bytes.len());
        let differs = got.iter().zip(bytes).position(|(got, byte)| got != byte);
        ensure!(differs.is_none(), "stream {stream} differs at byte {differs:?} of {}", bytes.len());
    }
    Ok(())
}

fn features(scenario: &Scenario) -> Vec<&'static str> {
    let mut features = vec![match scenario.compression.to_string().split(':').next() {
        Some("none") => "none",
        Some("lz4") => "lz4",
        Some("zstd") => "zstd",
        _ => "gzip",
    }];
    let all = [
        (scenario.encrypted, "cipher"),
        (scenario.differential, "differential"),
        (scenario.unmapped, "no page map"),
        (scenario.files.is_some(), "files"),
        (scenario.init.is_some(), "--init"),
        (scenario.buffers != crate::scenario::Buffers::Default, "least buffers"),
        (scenario.into_files, "into files"),
        (scenario.window.is_some(), "ordered stream"),
    ];
    features.extend(all.into_iter().filter(|(there, _)| *there).map(|(_, name)| name));
    features
}
