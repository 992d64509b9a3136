//! Finds the place of a profile for a path: by their names, and by their devices.

use std::cmp::Reverse;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::io::real_path;

use super::{Access, MeasuredPath, Profile, Use};

/// A possible place for a path. The greatest one is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Kin {
    /// By the device numbers, it was measured on the present device of the path.
    agrees: bool,
    /// The number of names that both paths have in common; 0 if only the device is the same.
    nearness: usize,
    /// The path is this place, or in it.
    within: bool,
    /// Its number; the first counts.
    at: Reverse<usize>,
}

impl Profile {
    /// The place for a path: on its device with the nearest name; else on its device; else by its name on another
    /// device.
    pub(super) fn place_for(&self, asked: &str, way: Access) -> Option<usize> {
        self.kin(asked, way).into_iter().max().map(|kin| kin.at.0)
    }

    /// Why the figures for a path may be wrong: the place with its name was measured on another device. The disk may
    /// not be mounted, or a restart has changed its device number.
    pub fn doubt(&self, asked: &str, way: Access) -> Option<String> {
        let kin = self.kin(asked, way);
        let told = kin.iter().max()?;
        let named = kin.iter().filter(|kin| kin.within && !kin.agrees).max()?;
        if told.agrees && told.nearness >= named.nearness {
            return None;
        }
        let (place, name, now) = (&self.places[named.at.0], &self.name, resolved(asked).0);
        let was = if now == Path::new(&place.path) { String::new() } else { format!(" `{}` was", place.path) };
        let taken = match (told.agrees, &self.places[told.at.0].path) {
            (true, other) => format!("the figures are those of `{other}`, which was on its device"),
            (false, _) => "if it is not the same disk, the figures are wrong".into(),
        };
        let flag = if place.used == Use::Read { "--read" } else { "--write" };
        Some(format!(
            "`{}` is on another device than{was} when profile `{name}` was made: a disk is not mounted, another disk \
             is mounted there, or a restart has changed its number; {taken}. \
             To measure it: fullbore calibrate {flag} {} --name {name}",
            now.display(),
            place.path
        ))
    }

    /// All possible places for a path in that direction.
    fn kin(&self, asked: &str, way: Access) -> Vec<Kin> {
        let (real, device) = resolved(asked);
        let measured =
            |place: &MeasuredPath| place.cells.iter().any(|cell| cell.shape.way == way && !cell.rounds.is_empty());
        let places = self.places.iter().enumerate().filter(|(_, place)| measured(place));
        places.filter_map(|(at, place)| kinship(place, at, &real, device)).collect()
    }
}

fn kinship(place: &MeasuredPath, at: usize, real: &Path, device: Option<u64>) -> Option<Kin> {
    let (name, at) = (Path::new(&place.path), Reverse(at));
    let within = real.starts_with(name);
    let agrees = device == place.device || device.is_none() || place.device.is_none();
    // Another file system is mounted below the place, and the path is in it. (Only the device of the path itself is
    // looked up: a server behind another place may not answer.)
    let beyond = within && !agrees && resolved(&place.path).1 != device;
    if (within || name.starts_with(real)) && !beyond {
        let nearness = 1 + name.components().count().min(real.components().count());
        return Some(Kin { agrees, nearness, within, at });
    }
    let one_device = device.is_some() && device == place.device;
    one_device.then_some(Kin { agrees, nearness: 0, within: false, at })
}

/// A path without symbolic links, as far as it exists, and its present or future device; a URL as it is.
pub(crate) fn resolved(text: &str) -> (PathBuf, Option<u64>) {
    let real = Some(Path::new(text)).filter(|_| !text.contains("://")).and_then(|path| real_path(path).ok());
    let Some(real) = real else { return (PathBuf::from(text), None) };
    let device = real.ancestors().find_map(|part| std::fs::metadata(part).ok()).map(|there| there.dev());
    (real, device)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::profile::{AccessPattern, Cell, Order, Round, Settings};

    const ANOTHER: u64 = 1 << 40;

    /// A profile with written places and their device numbers.
    fn profile(places: &[(&Path, u64)]) -> Profile {
        let settings = Settings { seconds: 1.0, space_bytes: None, throttle_bytes_per_s: None };
        let (way, order) = (Access::Write, Order::Sequential);
        let shape = AccessPattern { way, order, block_bytes: 1 << 20, queue_depth: 4, streams: 1, direct: true };
        let round = Round::of(100_000_000, 1.0);
        let place = |(path, device): &(&Path, u64)| MeasuredPath {
            path: path.display().to_string(),
            used: Use::Write,
            device: Some(*device),
            bytes: 1,
            cells: vec![Cell { shape, rounds: vec![round; 2] }],
        };
        Profile { places: places.iter().map(place).collect(), ..Profile::begin("ram", settings) }
    }

    fn asked(profile: &Profile, path: &Path) -> (Option<usize>, Option<String>) {
        let path = path.to_str().unwrap();
        (profile.place_for(path, Access::Write), profile.doubt(path, Access::Write))
    }

    /// A directory `disk`, another one, and the number of their device.
    fn directories() -> (tempfile::TempDir, PathBuf, PathBuf, u64) {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let [disk, other] = ["disk", "other"].map(|name| real.join(name));
        [&disk, &other].iter().for_each(|path| std::fs::create_dir(path).unwrap());
        let device = std::fs::metadata(&disk).unwrap().dev();
        (folder, disk, other, device)
    }

    #[test]
    fn a_disk_that_is_no_longer_mounted_is_doubted() {
        let (_folder, disk, _, device) = directories();
        assert_eq!(asked(&profile(&[(&disk, device)]), &disk.join("app.bore")), (Some(0), None));
        let (told, doubt) = asked(&profile(&[(&disk, ANOTHER)]), &disk);
        assert_eq!(told, Some(0), "a restart may have changed its number");
        let doubt = doubt.unwrap();
        for words in ["another device", "profile `ram`", "not mounted", "fullbore calibrate --write"] {
            assert!(doubt.contains(words), "{doubt}");
        }
    }

    #[test]
    fn a_relative_name_of_what_is_yet_to_be_made_is_that_and_not_the_directory_above() {
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        let device = std::fs::metadata(&here).unwrap().dev();
        assert_eq!(resolved("fullbore-is-not-there/media"), (here.join("fullbore-is-not-there/media"), Some(device)));
        // Of two places of a profile, the nearer one counts.
        let two = profile(&[(&here, device), (&here.join("fullbore-is-not-there"), device)]);
        assert_eq!(asked(&two, Path::new("fullbore-is-not-there")), (Some(1), None));
        assert_eq!(resolved("s3://bucket/a"), (PathBuf::from("s3://bucket/a"), None));
    }

    #[test]
    fn a_place_on_the_same_device_counts_more_than_the_name_of_another() {
        let (_folder, disk, other, device) = directories();
        let (told, doubt) = asked(&profile(&[(&disk, ANOTHER), (&other, device)]), &disk);
        assert_eq!(told, Some(1));
        assert!(doubt.is_some_and(|doubt| doubt.contains(&format!("`{}`, which was on its device", other.display()))));
        let (told, doubt) = asked(&profile(&[(&disk, ANOTHER), (&disk, device)]), &disk);
        assert_eq!((told, doubt), (Some(1), None), "it was measured twice, the second time where it is now");
        let above = disk.parent().unwrap();
        assert_eq!(asked(&profile(&[(above, device), (&disk, device)]), &disk), (Some(1), None), "the nearest name");
        assert_eq!(asked(&profile(&[(&disk, ANOTHER), (&other, device)]), above), (Some(1), None), "it lies above");
    }

    #[test]
    fn a_place_says_nothing_of_another_device_that_is_mounted_below_it() {
        let [root, memory] = ["/", "/dev/shm"].map(|path| std::fs::metadata(path).unwrap().dev());
        if root == memory {
            return; // Here memory is not a separate file system.
        }
        let below = Path::new("/dev/shm");
        assert_eq!(asked(&profile(&[(Path::new("/"), root)]), below), (None, None));
        assert_eq!(asked(&profile(&[(Path::new("/"), root), (below, memory)]), below), (Some(1), None));
    }
}
