//! What happens to media after they were written.

use std::time::Duration;

use fullbore_core::testkit::{Fault, FaultPlan};

use crate::shelf::{Media, name_of};

/// One misfortune. Families are counted from 1, and taken modulo the number there is; places are shares of a family
/// in 1/65536.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// Nothing happens.
    None,
    /// A family is gone.
    Lost(u16),
    /// A family of the same number, but of another set, has taken its place.
    Foreign(u16),
    /// A family ends too early.
    Truncated(u16, u16),
    /// Something stands behind a family's end.
    Appended(u16),
    /// A bit is not what it was.
    FlippedBit(u16, u16, u8),
    /// A sector of 512 bytes has become zeros.
    ZeroedSector(u16, u16),
    /// A family is given twice.
    Duplicated(u16),
    /// The families stand under each other's names.
    Shuffled,
    /// A family says that it was made by a later version.
    Newer(u16),
    /// The right key is not to be had.
    WrongKey,
    /// Reading: a family's device behaves like this.
    Reading(u16, Fault),
}

/// What becomes of the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consequence {
    /// It must restore exactly.
    Harmless,
    /// It must be refused.
    Fatal,
    /// It depends on whether the fault was met.
    IfMet,
}

impl Damage {
    /// How many kinds there are.
    pub const KINDS: u64 = 17;

    /// The damage whose turn it is.
    pub fn draw(turn: u64, random: &mut fastrand::Rng) -> Self {
        let (family, place) = (random.u16(..64), random.u16(..));
        // Every other round where reading meets it for sure.
        let sure = (turn / Self::KINDS).is_multiple_of(2);
        let operation = random.u64(0..if sure { 4 } else { 12 });
        let byte = random.u64(0..if sure { 8192 } else { 150_000 });
        match turn % Self::KINDS {
            0 => Damage::None,
            1 => Damage::Lost(family),
            2 => Damage::Foreign(family),
            3 => Damage::Truncated(family, place),
            4 => Damage::Appended(family),
            5 => Damage::FlippedBit(family, place, random.u8(..8)),
            6 => Damage::ZeroedSector(family, place),
            7 => Damage::Duplicated(family),
            8 => Damage::Shuffled,
            9 => Damage::Newer(family),
            10 => Damage::WrongKey,
            11 => Damage::Reading(family, Fault::ErrorAtOperation(operation, 5)),
            12 => Damage::Reading(family, Fault::ErrorAtByte(byte, 5)),
            13 => Damage::Reading(family, Fault::FlipBit(byte, random.u8(..8))),
            14 => Damage::Reading(family, Fault::EndsAt(byte)),
            15 => Damage::Reading(family, Fault::Kill(operation)),
            _ => Damage::Reading(family, Fault::Delay(operation, Duration::from_millis(random.u64(1..30)))),
        }
    }

    /// Its name in the statistics.
    pub fn name(&self) -> String {
        match self {
            Damage::Reading(_, fault) => format!("reading: {}", crate::statistics::fault_name(fault)),
            other => format!("media: {}", crate::statistics::first_word(&format!("{other:?}"))),
        }
    }

    /// What becomes of a set of `families` families, with a cipher or not.
    pub fn consequence(&self, encrypted: bool) -> Consequence {
        match self {
            Damage::None | Damage::Shuffled | Damage::Reading(_, Fault::Delay(..)) => Consequence::Harmless,
            Damage::WrongKey if !encrypted => Consequence::Harmless,
            Damage::Reading(..) => Consequence::IfMet,
            _ => Consequence::Fatal,
        }
    }

    /// The plan of the supplies, which counts families from 0.
    pub fn plan(&self, families: u16) -> FaultPlan {
        match self {
            Damage::Reading(family, fault) => FaultPlan::new().with(usize::from(family % families), *fault),
            _ => FaultPlan::new(),
        }
    }

    /// Does it to a set of `families` families; `foreign` is another set of as many. False when there was nothing to do it to.
    pub fn happen(&self, media: &Media, families: u16, foreign: Option<&Media>) -> std::io::Result<bool> {
        let name = |family: u16| name_of(family % families + 1);
        let place = |bytes: &[u8], share: u16| (bytes.len() * usize::from(share)) >> 16;
        let change = |family: u16, change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = media.bytes(&name(family));
            let before = bytes.clone();
            change(&mut bytes);
            let changed = bytes != before;
            media.put(&name(family), bytes).map(|()| changed)
        };
        match *self {
            Damage::None | Damage::WrongKey | Damage::Reading(..) | Damage::Duplicated(_) => Ok(true),
            Damage::Lost(family) => change(family, &Vec::clear),
            Damage::Foreign(family) => match foreign {
                Some(foreign) => media.put(&name(family), foreign.bytes(&name(family))).map(|()| true),
                None => Ok(false),
            },
            // At least a byte stays: no bytes at all would be a lost family.
            Damage::Truncated(family, share) => change(family, &|bytes| bytes.truncate(place(bytes, share).max(1))),
            Damage::Appended(family) => change(family, &|bytes| bytes.extend([0; 512])),
            Damage::FlippedBit(family, share, bit) => change(family, &|bytes| {
                let at = place(bytes, share);
                bytes[at] ^= 1 << bit;
            }),
            Damage::ZeroedSector(family, share) => change(family, &|bytes| {
                // From there on the first byte that is not zero already; the header at last.
                let from = place(bytes, share);
                let at = bytes[from..].iter().position(|&byte| byte != 0).map_or(0, |at| from + at) / 512 * 512;
                let end = bytes.len().min(at + 512);
                bytes[at..end].fill(0);
            }),
            Damage::Shuffled => {
                let all: Vec<_> = (0..families).map(|family| media.bytes(&name(family))).collect();
                for (family, bytes) in (0..families).zip(all.into_iter().rev()) {
                    media.put(&name(family), bytes)?;
                }
                Ok(true)
            }
            Damage::Newer(family) => change(family, &|bytes| bytes[8] = 9),
        }
    }

    /// The name that is given twice, if one is.
    pub fn duplicated(&self, families: u16) -> Option<String> {
        match self {
            Damage::Duplicated(family) => Some(name_of(family % families + 1)),
            _ => None,
        }
    }
}
