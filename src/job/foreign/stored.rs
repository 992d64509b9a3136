//! Media of another program on their way into backup sets of this program: an ordinary backup stores them while they are
//! read and judged. They are read once.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use fullbore_core::codec::Compression;
use fullbore_core::conduct::Conduct;
use fullbore_core::device::Destination;
use fullbore_core::meter::Progress;
use fullbore_core::{Error, Result};
use fullbore_engines::foreign_set::session::{ForeignSession, refuses};
use fullbore_engines::foreign_set::source::{Accepts, Families, ForeignSource, SampleFamily};
use fullbore_engines::foreign_set::target::is_file_name;
use fullbore_engines::{ForeignMediaSet, Surveyed};
use serde_json::{Value, json};

use super::places::Place;
use super::{ForeignDevices, shared_bytes_pool};
use crate::job::copy::Request;

/// Opens a media set for a backup, which reads and judges it.
///
/// # Errors
/// A device cannot be read.
pub fn open(
    found: &ForeignDevices,
    set: &ForeignMediaSet,
    request: &Request,
    conduct: &Conduct,
) -> Result<ForeignSession> {
    let continue_after_error = request.continue_after_error;
    let (mut names, mut used) = (Vec::new(), BTreeSet::new());
    for device in &set.devices {
        let length = found.length_of(device)?;
        names.push((own_name(device, &mut used), length));
    }
    let stamps: Vec<Option<Stamp>> = set.devices.iter().map(|name| stamp(found, name)).collect();
    // The backup counts what it stores as progress.
    let silent = Conduct { progress: Arc::new(Progress::default()), ..conduct.clone() };
    // Without a codec every byte is copied, and full blocks are written faster than blocks of whole cells.
    let lends = request.compression.unwrap_or_default() != Compression::None;
    let pool = shared_bytes_pool(lends)?;
    let (media, devices, reads) = (found.media, set.devices.clone(), found.clone());
    let source = ForeignSource::new(Families {
        names,
        read: Box::new(move |to| {
            let families = devices.iter().map(|name| reads.open(name, &pool, &silent)).collect::<Result<_>>()?;
            media.survey(families, to)
        }),
        sample: sample(found, set),
        accepts: accepts(found, set, stamps, continue_after_error),
        lends,
    });
    Ok(ForeignSession {
        engine: found.media.engine().name(),
        source,
        facts: facts(set),
        id: set.new_set_id(),
        writer: set.sets.first().map(|first| first.writer.clone()).unwrap_or_default(),
        continue_after_error,
    })
}

/// Refuses media that are damaged, and media that were replaced or written to while they were read: their identity would
/// be wrong.
fn accepts(
    found: &ForeignDevices,
    set: &ForeignMediaSet,
    stamps: Vec<Option<Stamp>>,
    continue_after_error: bool,
) -> Accepts {
    let (found, devices) = (found.clone(), set.devices.clone());
    let identity = set.identity_of_media();
    let title = format!("media set {}", set.id);
    Box::new(move |surveyed: &Surveyed| {
        if refuses(&surveyed.verification, continue_after_error) {
            return Err(Error::incomplete(&title, "is damaged", "the first damaged place is the reason"));
        }
        let is_same = |media: &[ForeignMediaSet]| matches!(media, [now] if now.identity_of_media() == identity && now.incomplete.is_none());
        let hint = "take it in when nobody writes to it";
        if !is_same(&surveyed.media_sets) || !is_same(&found.describe_these(&devices)?.media_sets) {
            let why = "was replaced by other media while it was read";
            return Err(Error::incomplete(&title, why, hint));
        }
        match devices.iter().zip(&stamps).find(|(name, before)| stamp(&found, name) != **before) {
            None => Ok(()),
            Some((name, _)) => Err(Error::incomplete(format!("`{name}`"), "changed while it was read", hint)),
        }
    })
}

/// What a file has, and no other file has at the same time. The time is that of its inode, which no program can set back.
/// Objects have none: a request for a part of one names its ETag, and those of a repository never change.
#[derive(PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    length: u64,
    changed: (i64, i64),
}

fn stamp(found: &ForeignDevices, name: &str) -> Option<Stamp> {
    let Place::Device(device) = found.place(name).ok()? else { return None };
    let Destination::File(path) = device.place() else { return None };
    let of = |metadata: Metadata| Stamp {
        file: (metadata.dev(), metadata.ino()),
        length: metadata.len(),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    };
    path.metadata().ok().map(of)
}

/// Reads parts of families, to estimate the size of the backup.
fn sample(found: &ForeignDevices, set: &ForeignMediaSet) -> SampleFamily {
    let (found, devices) = (found.clone(), set.devices.clone());
    Box::new(move |family, offset, buffer| {
        let Some(name) = devices.get(usize::from(family)) else { return Ok(0) };
        let mut bytes = found.open_sparse(name)?;
        let failed = |error| Error::io("read", name, error);
        bytes.skip(offset).map_err(failed)?;
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match bytes.read(rest).map_err(failed)? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(filled)
    })
}

/// The descriptions of the backup sets on the media, for the manifest.
fn facts(set: &ForeignMediaSet) -> Value {
    let headers = set.sets.iter().map(|set| serde_json::to_value(&set.header).unwrap_or_default());
    let kinds: BTreeSet<&str> = set.sets.iter().map(|set| set.kind.as_str()).collect();
    let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
    json!({ "holds": kinds, "media_set": set.id, "families": set.devices.len(), "sets": headers.collect::<Vec<_>>() })
}

/// The longest name of a file, in bytes.
const NAME_MAX: usize = 255;
/// Bytes of a number and its point.
const NUMBER: usize = 11;

/// The last part of a device's name. Families of one media set may have the same name in several directories: then the
/// later one gets a number.
fn own_name(device: &str, names: &mut BTreeSet<String>) -> String {
    let last = device.rsplit('/').next().unwrap_or_default();
    // A line break or a `\` cannot be in the name of a file on every system.
    let plain: String =
        last.chars().map(|letter| if letter == '\\' || letter.is_control() { '_' } else { letter }).collect();
    let name = if is_file_name(&plain) { plain.as_str() } else { "family" };
    // With a number, a long name would not be the name of a file any more.
    let start = if name.len() + NUMBER <= NAME_MAX { name } else { "family" };
    let numbered = (2..).map(|number: u32| format!("{start}.{number}"));
    let mut all = std::iter::once(name.to_owned()).chain(numbered);
    all.find(|name| names.insert(name.clone())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_of_the_same_name_get_a_number() {
        let mut names = BTreeSet::new();
        let devices = ["/a/x.bak", "/b/x.bak", "s3://bucket/x.bak", "plain.bak", "/"];
        let found = devices.map(|device| own_name(device, &mut names));
        assert_eq!(found, ["x.bak", "x.bak.2", "x.bak.3", "plain.bak", "family"]);
        assert_eq!(own_name("/a/shop\\full\n.bak", &mut names), "shop_full_.bak");
        let long = format!("/a/{}", "x".repeat(NAME_MAX));
        assert_eq!(own_name(&long, &mut names).len(), NAME_MAX);
        assert_eq!(own_name(&long, &mut names), "family.2");
    }
}
