//! `--copy-to` and `--mirror-to`: the second places of a backup. Each family goes there in the same pass.

use fullbore_core::device::Device;
use fullbore_core::plan::Plan;
use fullbore_core::store::Stores;
use fullbore_core::{Error, Result};
use fullbore_engines::Identity;
use uuid::Uuid;

use super::super::stripes;
use super::{Raised, Request, sinks};

/// The second destination of the families.
#[derive(Clone)]
pub struct Mirror {
    /// Directories and prefixes.
    pub to: Vec<Device>,
    /// The names of the families there.
    pub name_template: Option<String>,
    /// Access to its object stores, and the options of objects in them.
    pub stores: Stores,
}

impl Request {
    /// The same backup as if the second places were its only ones.
    pub(super) fn mirrored(&self) -> Option<Self> {
        let mirror = self.mirror.clone()?;
        Some(Self { to: mirror.to, name_template: mirror.name_template, mirror: None, ..self.clone() })
    }

    /// The default number of families: one for each place of the side that has more.
    pub(super) fn places(&self) -> usize {
        self.mirror.as_ref().map_or(0, |mirror| mirror.to.len()).max(self.to.len())
    }

    /// Both sides, with their stores.
    fn sides<'a>(&'a self, stores: &'a Stores) -> impl Iterator<Item = (&'a [Device], &'a Stores)> {
        let second = self.mirror.as_ref().map(|mirror| (&mirror.to[..], &mirror.stores));
        std::iter::once((&self.to[..], stores)).chain(second)
    }

    /// The stripes that the two sides need, if the planned ones are not enough.
    pub(super) fn enough_stripes(&self, planned: usize, whole: u64, stores: &Stores) -> Result<Option<Raised>> {
        let mut raised: Option<Raised> = None;
        for (to, stores) in self.sides(stores) {
            let needed = stripes::enough(to, planned, self.stripes.is_some(), whole, stores)?;
            raised = [raised, needed].into_iter().flatten().max_by_key(|raised| raised.stripes);
        }
        Ok(raised)
    }

    /// The size of upload parts for these families, in bytes, on either side; 0 without a store.
    pub(super) fn part_size(&self, stripes: usize, per_family: u64) -> u64 {
        let second = self.mirror.as_ref().map_or(0, |mirror| stripes::part_size(&mirror.to, stripes, per_family));
        stripes::part_size(&self.to, stripes, per_family).max(second)
    }

    /// The memory of parts that are not full, on both sides, in bytes.
    pub(super) fn part_bytes(&self, plan: &Plan, per_family: u64, stores: &Stores) -> Result<u64> {
        let of = |(to, stores)| stripes::part_bytes(to, plan.stripes, per_family, plan.part_size, stores);
        self.sides(stores).map(of).sum()
    }
}

/// The second devices of all families. They must differ from the `first` ones: two copies in one file are one.
pub(super) fn devices(
    request: &Request,
    stripes: usize,
    database: &Identity,
    media_set_id: Uuid,
    (first, stores): (&[Device], &Stores),
) -> Result<Vec<Device>> {
    let Some(mirrored) = request.mirrored() else { return Ok(Vec::new()) };
    let devices = sinks::devices(&mirrored, Some(stripes), database, media_set_id)?;
    let taken = |device: &&Device| {
        let identity = device.identity();
        let elsewhere = request.mirror.as_ref().is_some_and(|mirror| mirror.stores.differ_from(stores));
        !(elsewhere && device.is_in_store())
            && identity.is_some()
            && first.iter().any(|first| first.identity() == identity)
    };
    if let Some(device) = devices.iter().find(taken) {
        let why = "is a destination of the backup itself";
        return Err(Error::usage(format!("the second place {device}"), why, "name other places for the copies"));
    }
    Ok(devices)
}
