//! Reading a heap of families: every set in it is assembled, verified and restored.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::ensure;
use fullbore_core::cipher::SecretKey;
use fullbore_core::halt::Halt;
use fullbore_core::meter::Progress;
use fullbore_core::plan::UnpackPlan;
use fullbore_core::pool::Pool;
use fullbore_core::supply::Supply;
use fullbore_core::testkit::{Fault, FaultPlan, FaultSupply};
use fullbore_core::unpack::{Family, FileTarget, MediaSet, NullTarget, Target, Unpack, group};
use fullbore_core::{Error, Result};
use uuid::Uuid;

use crate::damage::Damage;
use crate::database::Content;
use crate::scenario::Scenario;
use crate::shelf::{Media, name_of};
use crate::write_set::{all_home, has_a_reason};

/// Opens and reads media.
pub struct Reading<'a> {
    /// Threads and buffers.
    pub scenario: &'a Scenario,
    /// Where the families are.
    pub media: &'a Media,
    /// Families of the set that the damage is done to.
    pub families: u16,
    /// What happens while they are read.
    pub damage: Damage,
    /// Opens sets with a cipher.
    pub key: Option<&'a SecretKey>,
    /// A restored full that a differential is applied to.
    pub base: Option<&'a Content>,
    /// For restores into files.
    pub directory: &'a Path,
}

/// One set that was found.
pub struct Found {
    /// Its media-set id.
    pub id: Uuid,
    /// What a verification says.
    pub verified: Result<()>,
    /// What a restore gives.
    pub restored: Result<Content>,
}

/// Everything that a heap holds.
#[derive(Default)]
pub struct ReadSets {
    /// Sets of which at least one family can be read.
    pub sets: Vec<Found>,
    /// Why the others cannot.
    pub unreadable: Vec<Error>,
    /// The planned faults that reading has met.
    pub met: Vec<Fault>,
}

impl Reading<'_> {
    /// Looks at everything there is.
    ///
    /// # Errors
    /// A buffer that did not come home, a refusal without a reason, or something that the simulation itself got wrong.
    pub fn all(&self) -> anyhow::Result<ReadSets> {
        let mut heap = ReadSets::default();
        let mut names = self.media.names();
        names.extend(self.damage.duplicated(self.families).filter(|name| !self.media.bytes(name).is_empty()));
        let nothing = Pool::new(0, 4096)?;
        let plan = self.damage.plan(self.families);
        let mut families = Vec::new();
        for name in &names {
            match self.supply(name, &nothing, 1, &plan).and_then(Family::open) {
                Ok(family) => families.push(family),
                Err(error) => heap.unreadable.push(error),
            }
        }
        heap.met.extend(plan.fired().into_iter().map(|(_, fault)| fault));
        for (id, members) in group(families) {
            let names: Vec<String> = members.iter().map(|family| family.device().to_owned()).collect();
            let set = &members[0].header().set;
            let (of, transfer_size, window) = (set.families, set.transfer_size, set.window);
            drop(members);
            let plan = self.scenario.plan(|knobs| UnpackPlan::new(knobs, usize::from(of), transfer_size, window))?;
            let verified = self.unpack(&names, &plan, |_| Ok(Into::Nothing), &mut heap.met)?.map(drop);
            let restored = self.unpack(&names, &plan, |set| self.target(set), &mut heap.met)?;
            heap.sets.push(Found { id, verified, restored: restored.and_then(Into::content) });
        }
        let verified = heap.sets.iter().filter_map(|set| set.verified.as_ref().err());
        let restored = heap.sets.iter().filter_map(|set| set.restored.as_ref().err());
        for error in heap.unreadable.iter().chain(verified).chain(restored) {
            ensure!(has_a_reason(error), "a refusal without a reason: {error:?}");
        }
        Ok(heap)
    }

    fn supply(&self, name: &str, pool: &Arc<Pool>, depth: usize, plan: &FaultPlan) -> Result<Box<dyn Supply>> {
        let inner = self.media.supply(name, pool, depth)?;
        // A family that has another name now is no family of the plan.
        let place = (1..=self.families).position(|family| name_of(family) == *name).unwrap_or(usize::MAX);
        Ok(Box::new(FaultSupply::new(inner, plan, place)))
    }

    /// Unpacks one set; the outer error is the simulation's.
    fn unpack(
        &self,
        names: &[String],
        plan: &UnpackPlan,
        target: impl FnOnce(&MediaSet) -> Result<Into>,
        met: &mut Vec<Fault>,
    ) -> anyhow::Result<Result<Into>> {
        drop(Pool::made_here());
        let faults = self.damage.plan(self.families);
        let input = Pool::new(plan.input_buffers, plan.transfer_size as usize)?;
        let halt = Halt::new();
        let unpacked = (|| {
            let open = |name: &String| self.supply(name, &input, plan.queue_depth, &faults).and_then(Family::open);
            let families = names.iter().map(open).collect::<Result<Vec<_>>>()?;
            let mut set = MediaSet::assemble(families, self.key, &[])?;
            let target = target(&set)?;
            let progress = Progress::default();
            let unpack = Unpack {
                plan,
                target: target.as_target(),
                progress: &progress,
                halt: &halt,
                tick: &|| Ok(()),
                input: &input,
            };
            unpack.run(&mut set)?;
            Ok(target)
        })();
        all_home("unpacking")?;
        met.extend(faults.fired().into_iter().map(|(_, fault)| fault));
        Ok(unpacked)
    }

    fn target(&self, set: &MediaSet) -> Result<Into> {
        let sizes: Vec<(u32, u64)> = set.header().streams.iter().map(|stream| (stream.id, stream.size)).collect();
        let base = self.base.filter(|_| set.header().base_backup_set_id.is_some());
        if !self.scenario.into_files {
            let ordered = set.header().streams.iter().filter(|stream| stream.ordered).map(|stream| stream.id);
            return Ok(Into::Memory(Model::new(&sizes, base, ordered)));
        }
        let mut target = FileTarget::new();
        for &(id, size) in &sizes {
            let path = self.directory.join(format!("restored-{id}"));
            let failed = |error| Error::io("prepare", path.display().to_string(), error);
            match base {
                Some(base) => std::fs::write(&path, base.get(&id).map_or(&[][..], Vec::as_slice)).map_err(failed)?,
                None => drop(File::create(&path).map_err(failed)?),
            }
            target.add(id, &path, size, base.is_none())?;
        }
        let paths = sizes.iter().map(|(id, _)| (*id, self.directory.join(format!("restored-{id}")))).collect();
        Ok(Into::Files(target, paths))
    }
}

/// Where a set is unpacked to.
enum Into {
    Nothing,
    Memory(Model),
    Files(FileTarget, Vec<(u32, std::path::PathBuf)>),
}

impl Into {
    fn as_target(&self) -> &dyn Target {
        match self {
            Into::Nothing => &NullTarget,
            Into::Memory(model) => model,
            Into::Files(target, _) => target,
        }
    }

    fn content(self) -> Result<Content> {
        match self {
            Into::Nothing => Ok(Content::new()),
            Into::Memory(model) => Ok(model.content.into_inner().unwrap_or_else(PoisonError::into_inner)),
            Into::Files(target, paths) => {
                target.sync()?;
                let read = |path: &Path| {
                    std::fs::read(path).map_err(|error| Error::io("read", path.display().to_string(), error))
                };
                paths.iter().map(|(id, path)| Ok((*id, read(path)?))).collect()
            }
        }
    }
}

/// Streams in memory. A full starts as garbage: what is not written shows.
struct Model {
    content: Mutex<Content>,
    /// Where ordered streams have come to.
    ends: Mutex<BTreeMap<u32, u64>>,
}

impl Model {
    fn new(sizes: &[(u32, u64)], base: Option<&Content>, ordered: impl Iterator<Item = u32>) -> Self {
        let stream = |&(id, size): &(u32, u64)| {
            let bytes = match base {
                None => vec![0xEE; size as usize],
                Some(base) => {
                    let mut bytes = base.get(&id).cloned().unwrap_or_default();
                    bytes.resize(size as usize, 0);
                    bytes
                }
            };
            (id, bytes)
        };
        let content = Mutex::new(sizes.iter().map(stream).collect());
        Self { content, ends: Mutex::new(ordered.map(|id| (id, 0)).collect()) }
    }

    fn with(&self, stream: u32, offset: u64, length: usize, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        let start = offset as usize;
        let range = content.get_mut(&stream).and_then(|bytes| bytes.get_mut(start..start + length));
        let refused = || Error::refused("the simulated target", "bytes outside of it", "a defect");
        range.map(change).ok_or_else(refused)
    }
}

impl Target for Model {
    fn discards(&self) -> bool {
        false
    }

    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let before = ends.get_mut(&stream).map(|end| std::mem::replace(end, offset + bytes.len() as u64));
        if before.is_some_and(|end| end != offset) {
            return Err(Error::refused("the simulated target", "bytes out of order", "a defect"));
        }
        drop(ends);
        self.with(stream, offset, bytes.len(), |range| range.copy_from_slice(bytes))
    }

    fn zero(&self, stream: u32, offset: u64, length: u64) -> Result<()> {
        self.with(stream, offset, length as usize, |range| range.fill(0))
    }
}
