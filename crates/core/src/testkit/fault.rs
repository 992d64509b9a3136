//! Faults: what fails, when, and on which family. All faulty devices of one simulated process share a plan.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::sink::{Step, StepFault, StepHook};

/// One thing that goes wrong. Operations are counted from 0, per family: on a sink each `write`, `sync`, `publish`
/// and `retire`; on a supply each `next` and `read_at`. Error numbers are those of Linux (5 EIO, 28 ENOSPC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An operation fails with an error number and has no effect.
    ErrorAtOperation(u64, i32),
    /// Any operation that touches this byte fails with an error number and has no effect.
    ErrorAtByte(u64, i32),
    /// The write that touches this byte writes the bytes before it, and fails with EIO.
    ShortWrite(u64),
    /// So many bytes fit; the write that needs more writes the bytes that fit, and fails with ENOSPC.
    NoSpaceAfter(u64),
    /// The write that touches this byte writes the bytes before it, and the process dies.
    TornWrite(u64),
    /// This bit (0 to 7) of this byte is flipped on its way, without an error.
    FlipBit(u64, u8),
    /// A supply has only so many bytes.
    EndsAt(u64),
    /// An operation takes longer.
    Delay(u64, Duration),
    /// The process dies before an operation.
    Kill(u64),
    /// The process dies before a step of the commit.
    KillAtStep(Step),
    /// A step of the commit fails with an error number.
    ErrorAtStep(Step, i32),
}

/// The faults of one simulated process. Clones share the plan; once it is dead, all its devices are.
#[derive(Clone, Default)]
pub struct FaultPlan(Arc<Mutex<Planned>>);

#[derive(Default)]
struct Planned {
    faults: Vec<(usize, Fault)>,
    operations: HashMap<usize, u64>,
    fired: Vec<(usize, Fault)>,
    dead: bool,
}

impl FaultPlan {
    /// A plan in which nothing goes wrong.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fault on family `family` (counted as the caller likes).
    #[must_use]
    pub fn with(self, family: usize, fault: Fault) -> Self {
        self.lock().faults.push((family, fault));
        self
    }

    /// One or two faults of any kind for sinks, the same for the same seed: on `families` families of about `bytes`
    /// bytes, written in about `operations` operations each.
    pub fn seeded(seed: u64, families: usize, bytes: u64, operations: u64) -> Self {
        let mut random = Random { seed, drawn: 0 };
        let count = 1 + random.below(2);
        (0..count).fold(Self::new(), |plan, _| {
            let family = random.below(families.max(1) as u64) as usize;
            let (byte, operation) = (random.below(bytes.max(1)), random.below(operations.max(1)));
            let step = Step::ALL[random.below(Step::ALL.len() as u64) as usize];
            let fault = match random.below(10) {
                0 => Fault::ErrorAtOperation(operation, 5),
                1 => Fault::ErrorAtByte(byte, 5),
                2 => Fault::ShortWrite(byte),
                3 => Fault::NoSpaceAfter(byte),
                4 => Fault::TornWrite(byte),
                5 => Fault::FlipBit(byte, random.below(8) as u8),
                6 => Fault::Delay(operation, Duration::from_millis(random.below(20))),
                7 => Fault::Kill(operation),
                8 => Fault::KillAtStep(step),
                _ => Fault::ErrorAtStep(step, 5),
            };
            plan.with(family, fault)
        })
    }

    /// What [`crate::sink::Options::hook`] of the family's sink must be for the faults at steps to happen.
    pub fn hook(&self, family: usize) -> StepHook {
        let plan = self.clone();
        Box::new(move |step| plan.at_step(family, step))
    }

    /// Every fault that has happened.
    pub fn fired(&self) -> Vec<(usize, Fault)> {
        self.lock().fired.clone()
    }

    /// The process has been killed: answers of its devices do not count any more.
    pub fn is_dead(&self) -> bool {
        self.lock().dead
    }

    /// Kills the process now.
    pub fn kill(&self) {
        self.lock().dead = true;
    }

    fn at_step(&self, family: usize, step: Step) -> Option<StepFault> {
        if self.is_dead() {
            return Some(StepFault::Kill);
        }
        let fault = self
            .fire(family, |fault| matches!(fault, Fault::KillAtStep(at) | Fault::ErrorAtStep(at, _) if *at == step))?;
        if let Fault::ErrorAtStep(_, number) = fault {
            return Some(StepFault::Error(io::Error::from_raw_os_error(number)));
        }
        self.kill();
        Some(StepFault::Kill)
    }

    /// The number of the family's next operation.
    pub(super) fn count(&self, family: usize) -> u64 {
        let mut planned = self.lock();
        let count = planned.operations.entry(family).or_default();
        *count += 1;
        *count - 1
    }

    /// The family's first fault that `applies`; it happens once. Only a full or short device and a flipped bit stay so.
    pub(super) fn fire(&self, family: usize, applies: impl Fn(&Fault) -> bool) -> Option<Fault> {
        let mut planned = self.lock();
        let index = planned.faults.iter().position(|(at, fault)| *at == family && applies(fault))?;
        let lasting = matches!(planned.faults[index].1, Fault::NoSpaceAfter(_) | Fault::EndsAt(_) | Fault::FlipBit(..));
        let happened = if lasting { planned.faults[index] } else { planned.faults.remove(index) };
        if !planned.fired.contains(&happened) {
            planned.fired.push(happened);
        }
        Some(happened.1)
    }

    /// All bits to flip between two bytes.
    pub(super) fn flips(&self, family: usize, offset: u64, length: u64) -> Vec<(u64, u8)> {
        let inside = |byte: u64| byte >= offset && byte - offset < length;
        let mut planned = self.lock();
        let flips: Vec<_> = planned.faults.iter().filter(|(at, _)| *at == family).copied().collect();
        let mut bits = Vec::new();
        for flip in flips {
            if let Fault::FlipBit(byte, bit) = flip.1
                && inside(byte)
            {
                bits.push((byte - offset, bit % 8));
                if !planned.fired.contains(&flip) {
                    planned.fired.push(flip);
                }
            }
        }
        bits
    }

    fn lock(&self) -> MutexGuard<'_, Planned> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Numbers from a seed: the hash of a counter. Enough for choosing faults, and the hash is here anyway.
struct Random {
    seed: u64,
    drawn: u64,
}

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        twox_hash::XxHash3_64::oneshot_with_seed(self.seed, &self.drawn.to_le_bytes()) % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_faults_and_all_kinds_come_up() {
        let faults = |seed| FaultPlan::seeded(seed, 3, 1 << 20, 20).lock().faults.clone();
        assert_eq!(faults(7), faults(7));
        let kinds: std::collections::HashSet<_> =
            (0..200).flat_map(faults).map(|(_, fault)| std::mem::discriminant(&fault)).collect();
        assert_eq!(kinds.len(), 10);
    }
}
