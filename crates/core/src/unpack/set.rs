//! Media sets: families that belong together, found among any families, and checked to be whole.

use std::collections::VecDeque;

use uuid::Uuid;

use super::family::Family;
use super::parse::open_pipe;
use crate::cipher::{DataKey, SecretKey, WrappedKey, unwrap};
use crate::error::{Error, Result};
use crate::media::{FamilyHeader, Manifest, SetHeader, total};
use crate::pool::Piece;
use crate::supply::Supply;

/// A whole media set, ready to be read.
pub struct MediaSet {
    families: Vec<Family>,
    data_key: Option<DataKey>,
    manifest: Option<Manifest>,
    /// Bytes of a pipe that were read beyond its header.
    ahead: VecDeque<Piece>,
}

/// Where a family is, for messages and lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyPlace {
    /// From 1.
    pub family: u16,
    /// Device.
    pub device: String,
}

/// Sorts families by the set they belong to, oldest set first.
pub fn group(families: Vec<Family>) -> Vec<(Uuid, Vec<Family>)> {
    let mut groups: Vec<(Uuid, Vec<Family>)> = Vec::new();
    for family in families {
        let id = family.header().set.media_set_id;
        match groups.iter_mut().find(|(known, _)| *known == id) {
            Some((_, members)) => members.push(family),
            None => groups.push((id, vec![family])),
        }
    }
    groups.sort_by_key(|(_, members)| members.first().map(|family| family.header().set.started_at));
    groups
}

impl MediaSet {
    /// Checks that families of one set, in order, are all that belong to it, as far as this shows without a key.
    pub fn check_whole(families: &[Family]) -> Result<()> {
        check_members(families)?;
        check_commit(families)
    }

    /// Puts the families of one set in order and checks that the set is whole, as its commit record says. With a
    /// cipher, `key` opens it; `extra_keys` are wrapped keys from a sidecar.
    pub fn assemble(mut families: Vec<Family>, key: Option<&SecretKey>, extra_keys: &[WrappedKey]) -> Result<Self> {
        families.sort_by_key(|family| family.header().family);
        Self::check_whole(&families)?;
        let data_key = data_key(&families[0].header().set, key, extra_keys)?;
        for family in &families {
            family.authenticate(data_key.as_ref())?;
        }
        let mut set = Self { families, data_key, manifest: None, ahead: VecDeque::new() };
        if set.families.iter().all(|family| family.footer().is_some()) {
            set.manifest = Some(set.families[0].manifest(set.data_key.as_ref())?);
        }
        Ok(set)
    }

    /// The same for an encrypted set without its key: nothing in it can be opened, but it can be read as it is.
    pub fn assemble_sealed(mut families: Vec<Family>) -> Result<Self> {
        families.sort_by_key(|family| family.header().family);
        Self::check_whole(&families)?;
        Ok(Self { families, data_key: None, manifest: None, ahead: VecDeque::new() })
    }

    /// True of an encrypted set that was put together without its key.
    pub fn is_sealed(&self) -> bool {
        self.data_key.is_none() && !self.header().keys.is_empty()
    }

    /// Puts something between each family and its supply.
    pub fn listen(&mut self, mut tap: impl FnMut(Box<dyn Supply>) -> Box<dyn Supply>) {
        let families = std::mem::take(&mut self.families);
        self.families = families.into_iter().map(|family| family.listened_by(&mut tap)).collect();
    }

    /// The set in a pipe: it must be the only family. Its end is checked when it is read.
    pub fn piped(supply: Box<dyn Supply>, key: Option<&SecretKey>, extra_keys: &[WrappedKey]) -> Result<Self> {
        let (family, ahead) = open_pipe(supply)?;
        check_members(std::slice::from_ref(&family))?;
        let data_key = data_key(&family.header().set, key, extra_keys)?;
        Ok(Self { families: vec![family], data_key, manifest: None, ahead })
    }

    pub(super) fn take_ahead(&mut self) -> VecDeque<Piece> {
        std::mem::take(&mut self.ahead)
    }

    /// What all its families share.
    pub fn header(&self) -> &SetHeader {
        &self.families[0].header().set
    }

    /// The manifest; for a pipe it is known only after the set was read.
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.as_ref()
    }

    /// The families, first to last.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// Bytes of all families, as far as they are known.
    pub fn stored_bytes(&self) -> u64 {
        total(self.families.iter().filter_map(Family::size))
    }

    /// Bytes that its blocks unpack to, zeros included, as the trailers say. They are for a display: nothing is sized
    /// by them. A byte that was sent twice counts twice, and a differential counts only what has changed.
    ///
    /// # Errors
    /// A trailer cannot be read, or the set comes from a pipe.
    pub fn plain_bytes(&mut self) -> Result<u64> {
        let data_key = self.data_key.as_ref();
        self.families.iter_mut().try_fold(0_u64, |sum, family| {
            let trailer = family.trailer(data_key)?;
            Ok(sum.saturating_add(trailer.data_bytes).saturating_add(trailer.zero_bytes))
        })
    }

    pub(super) fn families_mut(&mut self) -> &mut [Family] {
        &mut self.families
    }

    /// The families and the data key, for reading in places.
    pub fn parts_mut(&mut self) -> (&mut [Family], Option<&DataKey>) {
        (&mut self.families, self.data_key.as_ref())
    }

    pub(super) fn data_key(&self) -> Option<&DataKey> {
        self.data_key.as_ref()
    }
}

fn name(header: &SetHeader) -> String {
    format!("media set {}", header.media_set_id)
}

/// Each family once, all of the same set.
fn check_members(families: &[Family]) -> Result<()> {
    let Some(first) = families.first() else {
        return Err(Error::incomplete("media set", "no family was given", "name the families with --from"));
    };
    let header = &first.header().set;
    let of = header.families;
    for pair in families.windows(2) {
        if pair[0].header().family == pair[1].header().family {
            return Err(Error::incomplete(
                name(header),
                format!(
                    "family {} of {of} was given twice: `{}` and `{}`",
                    pair[0].header().family,
                    pair[0].device(),
                    pair[1].device()
                ),
                "leave one of them out",
            ));
        }
    }
    let strange = |family: &&Family| !FamilyHeader::same_set(family.header_bytes(), first.header_bytes());
    if let Some(stranger) = families.iter().find(strange) {
        return Err(Error::incomplete(
            name(header),
            format!("the header of `{}` differs from that of `{}`", stranger.device(), first.device()),
            "one of the two is not an original family of this set",
        ));
    }
    let missing: Vec<String> = (1..=of)
        .filter(|n| families.iter().all(|family| family.header().family != *n))
        .map(|n| n.to_string())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let which = if missing.len() == 1 { "family" } else { "families" };
    let uncommitted = if missing[0] == "1" {
        "; without family 1 there is no commit record: the backup may never have finished"
    } else {
        ""
    };
    Err(Error::incomplete(
        name(header),
        format!("{which} {} of {of} missing{uncommitted}", missing.join(", ")),
        "give all families with --from, also those on other disks; a restore needs all of them",
    ))
}

/// The commit record must name exactly these families.
fn check_commit(families: &[Family]) -> Result<()> {
    let Some(commit) = families[0].footer().and_then(|footer| footer.commit.as_ref()) else { return Ok(()) };
    for (family, digest) in families.iter().zip(&commit.digests) {
        let Some(footer) = family.footer() else { continue };
        if footer.family_digest != *digest {
            return Err(Error::incomplete(
                name(&family.header().set),
                format!(
                    "`{}` is not the family that the commit record in `{}` names",
                    family.device(),
                    families[0].device()
                ),
                "it may come from another attempt at the same backup; use the original family",
            ));
        }
    }
    let counted = total(families.iter().filter_map(|family| family.footer().map(|footer| footer.block_count)));
    if counted != commit.set_block_count {
        return Err(Error::incomplete(
            name(&families[0].header().set),
            "the families do not hold all blocks of the set",
            "use another backup set",
        ));
    }
    let mut finished = families.iter().filter_map(|family| family.footer().map(|footer| footer.finished_at));
    let first = finished.next();
    if finished.any(|at| Some(at) != first) {
        return Err(Error::incomplete(
            name(&families[0].header().set),
            "its families were finished at different times",
            "use the original families, or another backup set",
        ));
    }
    Ok(())
}

/// Opens the data key of a set with a cipher.
fn data_key(header: &SetHeader, key: Option<&SecretKey>, extra_keys: &[WrappedKey]) -> Result<Option<DataKey>> {
    if header.keys.is_empty() {
        return Ok(None);
    }
    let Some(key) = key else {
        return Err(Error::refused(
            name(header),
            "it is encrypted, and no key was given",
            "name the key file with --key",
        ));
    };
    let records: Vec<WrappedKey> = header.keys.iter().chain(extra_keys).cloned().collect();
    unwrap(&records, key, header.media_set_id.as_bytes()).map(Some).map_err(|e| e.at(&name(header), 0))
}
