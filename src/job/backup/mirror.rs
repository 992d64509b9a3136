//! `--copy-to`: the second places of a backup, to which each family goes in the same pass.

use fullbore_core::device::Device;
use fullbore_core::plan::Plan;
use fullbore_core::store::Stores;
use fullbore_core::{Error, Result};
use fullbore_engines::Identity;
use uuid::Uuid;

use super::{Raised, Request, sinks, stripes};

/// Where the families go as well.
#[derive(Clone)]
pub struct Mirror {
    /// Directories and prefixes.
    pub to: Vec<Device>,
    /// What they are called there.
    pub name_template: Option<String>,
    /// What its object stores are reached through, and how families are kept in them.
    pub stores: Stores,
}

impl Request {
    /// The same backup as if the second places were its only ones.
    pub(super) fn mirrored(&self) -> Option<Self> {
        let mirror = self.mirror.clone()?;
        Some(Self { to: mirror.to, name_template: mirror.name_template, mirror: None, ..self.clone() })
    }

    /// How many families there are if nobody says: one for each place of the side that has more.
    pub(super) fn places(&self) -> usize {
        self.mirror.as_ref().map_or(0, |mirror| mirror.to.len()).max(self.to.len())
    }

    /// Both sides, with their stores.
    fn sides<'a>(&'a self, stores: &'a Stores) -> impl Iterator<Item = (&'a [Device], &'a Stores)> {
        let second = self.mirror.as_ref().map(|mirror| (&mirror.to[..], &mirror.stores));
        std::iter::once((&self.to[..], stores)).chain(second)
    }

    /// As many stripes as either side needs, where these are not enough.
    pub(super) fn enough_stripes(&self, planned: usize, whole: u64, stores: &Stores) -> Result<Option<Raised>> {
        let mut raised: Option<Raised> = None;
        for (to, stores) in self.sides(stores) {
            let needed = stripes::enough(to, planned, self.stripes.is_some(), whole, stores)?;
            raised = [raised, needed].into_iter().flatten().max_by_key(|raised| raised.stripes);
        }
        Ok(raised)
    }

    /// The parts that so many families, so long, are sent in, in bytes, on either side; 0 without a store.
    pub(super) fn part_size(&self, stripes: usize, per_family: u64) -> u64 {
        let second = self.mirror.as_ref().map_or(0, |mirror| stripes::part_size(&mirror.to, stripes, per_family));
        stripes::part_size(&self.to, stripes, per_family).max(second)
    }

    /// What parts that are not full may take on both sides, in bytes.
    pub(super) fn part_bytes(&self, plan: &Plan, per_family: u64, stores: &Stores) -> Result<u64> {
        let of = |(to, stores)| stripes::part_bytes(to, plan.stripes, per_family, plan.part_size, stores);
        self.sides(stores).map(of).sum()
    }
}

/// The second devices of all families, which are not the `first` ones: two copies in one file are one.
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
        let why = "is where the backup itself goes";
        return Err(Error::usage(format!("--copy-to: {device}"), why, "name a repository in other places"));
    }
    Ok(devices)
}
