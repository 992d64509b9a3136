//! Media of another program on their way into backup sets of this program: read and judged once, then stored by an
//! ordinary backup, which reads them a second time.

use std::collections::BTreeSet;

use fullbore_core::conduct::Conduct;
use fullbore_core::device::Device;
use fullbore_core::pool::Pool;
use fullbore_core::supply::{self, Supply};
use fullbore_core::{Error, Result, io};
use fullbore_engines::foreign_set::session::ForeignSession;
use fullbore_engines::foreign_set::source::{FamilyPlaces, ForeignSource, OpenPlaces};
use fullbore_engines::foreign_set::target::is_file_name;
use fullbore_engines::{ForeignMediaSet, ForeignVerification, Surveyed};
use serde_json::{Value, json};

use super::{ForeignDevices, all_bytes_pool};
use crate::report::Report;

/// Reads all families of a media set, and judges them. The session reads them again. With `continue_after_error`, damaged
/// pages are warnings.
///
/// # Errors
/// The first damage; the others are warnings. Or a device cannot be read.
pub fn open(
    found: &ForeignDevices,
    set: &ForeignMediaSet,
    continue_after_error: bool,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<ForeignSession> {
    let pool = all_bytes_pool()?;
    let families = set.devices.iter().map(|name| found.open(name, &pool, conduct)).collect::<Result<_>>()?;
    let Surveyed { verification, mut families, files, delivered } = found.media.survey(families)?;
    let ForeignVerification { damage, coverage, mut warnings, .. } = verification;
    // Behind damage in the structure nothing was checked, and there is no coverage.
    let mut stored_damage = Vec::new();
    if continue_after_error && !coverage.is_empty() {
        stored_damage.extend(damage.iter().map(Error::one_line));
        warnings.extend(stored_damage.iter().map(|damage| format!("stored as it is: {damage}")));
    } else {
        crate::job::verify::first(damage, report)?;
    }
    report.add_coverage(coverage);
    // What was read may be other media by now. What is stored below is compared with what was read.
    let now = found.describe_these(&set.devices)?.media_sets;
    if !matches!(&now[..], [now] if now.is_same_as(set) && now.incomplete.is_none()) {
        let why = "was replaced by other media while it was read";
        return Err(Error::incomplete(format!("media set {}", set.id), why, "take it in when nobody writes to it"));
    }
    let mut names = BTreeSet::new();
    for family in &mut families {
        family.laid.name = own_name(&family.laid.name, &mut names);
    }
    let lengths = families.iter().map(|family| family.laid.length).collect();
    let source = ForeignSource::new(families, files, delivered, open_places(found, set, lengths)?)?;
    Ok(ForeignSession {
        engine: found.media.engine().name(),
        source,
        facts: facts(set),
        id: set.new_set_id(),
        writer: set.sets.first().map(|first| first.writer.clone()).unwrap_or_default(),
        warnings,
        damage: stored_damage,
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

/// `lengths` are those of the families when they were checked.
fn open_places(found: &ForeignDevices, set: &ForeignMediaSet, lengths: Vec<u64>) -> Result<OpenPlaces> {
    let devices = set.devices.iter().map(|name| found.device(name).cloned()).collect::<Result<Vec<Device>>>()?;
    let stores = found.stores.clone();
    Ok(Box::new(move |number| {
        let place = usize::from(number);
        let device = devices.get(place).ok_or(Error::Halted)?;
        let supply = supply::open(device, &Pool::new(0, 4096)?, 1, io::Mode::from_environment()?, &stores)?;
        match supply.size() == lengths.get(place).copied() {
            true => Ok(Box::new(AnyPlace(supply))),
            false => Err(changed(&*supply)),
        }
    }))
}

/// A supply that is read at any place.
struct AnyPlace(Box<dyn Supply>);

impl FamilyPlaces for AnyPlace {
    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> Result<()> {
        let count = self.0.read_at(offset, into)?;
        if count == into.len() {
            return Ok(());
        }
        Err(changed(&*self.0))
    }
}

fn changed(supply: &dyn Supply) -> Error {
    let why = "has another length than when it was checked";
    Error::incomplete(format!("`{}`", supply.device()), why, "copy it when the other program has finished it")
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
