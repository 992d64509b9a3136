//! `--copy-to` and `--mirror-to`: the second places of a backup. Each family goes there in the same pass.

use fullbore_core::device::Device;
use fullbore_core::plan::Plan;
use fullbore_core::store::Stores;
use fullbore_core::{Error, Result};
use fullbore_engines::Identity;
use uuid::Uuid;

use super::super::stripes::{self, Raised};
use super::{Request, sinks};

/// The second destination of the families.
#[derive(Clone)]
pub struct Mirror {
    /// Directories, prefixes and devices: those of the first mirror, then those of the next one, as many for each.
    pub to: Vec<Device>,
    /// The number of mirrors, from 1.
    pub mirrors: usize,
    /// The names of the families there.
    pub name_template: Option<String>,
    /// Access to its object stores, and the options of objects in them.
    pub stores: Stores,
}

impl Mirror {
    /// The places of each mirror.
    fn each(&self) -> impl Iterator<Item = &[Device]> {
        self.to.chunks((self.to.len() / self.mirrors.max(1)).max(1))
    }
}

impl Request {
    /// The same backup as if the second places were its only ones.
    pub(super) fn mirrored(&self) -> Option<Self> {
        let mirror = self.mirror.clone()?;
        Some(Self { to: mirror.to, name_template: mirror.name_template, mirror: None, ..self.clone() })
    }

    /// The default number of families: one for each place of the side that has more.
    pub(super) fn places(&self) -> usize {
        self.sides_of_mirrors().map(<[Device]>::len).max().unwrap_or(0).max(self.to.len())
    }

    /// The places of each mirror; none without a mirror.
    fn sides_of_mirrors(&self) -> impl Iterator<Item = &[Device]> {
        self.mirror.iter().flat_map(Mirror::each)
    }

    /// All sides, with their stores.
    fn sides<'a>(&'a self, stores: &'a Stores) -> impl Iterator<Item = (&'a [Device], &'a Stores)> {
        let mirrors = self.mirror.iter().flat_map(|mirror| mirror.each().map(|to| (to, &mirror.stores)));
        std::iter::once((&self.to[..], stores)).chain(mirrors)
    }

    /// The stripes that the sides need, if the planned ones are not enough.
    pub(super) fn enough_stripes(&self, planned: usize, whole: u64, stores: &Stores) -> Result<Option<Raised>> {
        let mut raised: Option<Raised> = None;
        for (to, stores) in self.sides(stores) {
            let needed = stripes::enough(to, planned, self.stripes.is_some(), whole, stores)?;
            raised = [raised, needed].into_iter().flatten().max_by_key(|raised| raised.stripes);
        }
        Ok(raised)
    }

    /// The size of upload parts for these families, in bytes, on any side; 0 without a store.
    pub(super) fn part_size(&self, stripes: usize, per_family: u64) -> u64 {
        let mirrors = self.sides_of_mirrors().map(|to| stripes::part_size(to, stripes, per_family)).max();
        stripes::part_size(&self.to, stripes, per_family).max(mirrors.unwrap_or(0))
    }

    /// The memory of parts that are not full, on all sides, in bytes.
    pub(super) fn part_bytes(&self, plan: &Plan, per_family: u64, stores: &Stores) -> Result<u64> {
        let of = |(to, stores)| stripes::part_bytes(to, plan.stripes, per_family, plan.part_size, stores);
        self.sides(stores).map(of).sum()
    }
}

/// The devices of all families in all mirrors, one mirror after the other. They must differ from the `first` ones and from
/// each other: two copies in one file are one.
pub(super) fn devices(
    request: &Request,
    stripes: usize,
    database: &Identity,
    media_set_id: Uuid,
    (first, stores): (&[Device], &Stores),
) -> Result<Vec<Device>> {
    let Some(mirrored) = request.mirrored() else { return Ok(Vec::new()) };
    let mut devices: Vec<Device> = Vec::new();
    for to in request.sides_of_mirrors() {
        let one = Request { to: to.to_vec(), ..mirrored.clone() };
        let more = sinks::devices(&one, Some(stripes), database, media_set_id)?;
        let again = more.iter().find(|device| {
            let identity = device.identity();
            identity.is_some() && devices.iter().any(|known| known.identity() == identity)
        });
        if let Some(device) = again {
            let why = "is a destination of another mirror";
            return Err(Error::usage(format!("the second place {device}"), why, "name other places for each mirror"));
        }
        devices.extend(more);
    }
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
