//! What a profile of this machine knows of the path of a job. The places are those that the job has booked.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use fullbore_core::device::Device;
use fullbore_core::io::free_space;
use fullbore_core::{Result, threads};

use super::Report;
use fullbore_model::profile::{self, MeasuredPath, PathLocation, Profile, Use};
use fullbore_model::throughput::{Direction, Side};
use fullbore_model::verdict::{CalibratedLimits, Elsewhere};

/// How long to wait for an answer from directories that the job has not used.
const PATIENCE: Duration = Duration::from_secs(1);

impl Report {
    /// Lets the verdict compare with a profile: the named profile, or the default profile, if it exists.
    ///
    /// # Errors
    /// The named profile does not exist.
    pub fn compare_with(&mut self, named: Option<&str>) -> Result<()> {
        let (profile, notes) = profile::for_job(named)?;
        self.profile = profile;
        self.notes.extend(notes);
        Ok(())
    }

    /// Books where the database is on this machine, or why that is unknown. Without it, nothing can be compared.
    pub fn is_of_database_at(&mut self, found: Result<PathBuf, String>) {
        match (found, &self.profile) {
            (Ok(path), _) => self.database_at = Some(path.display().to_string()),
            (Err(why), Some(profile)) => {
                self.notes.push(format!("profile `{}` knows no limit of this backup: {why}", profile.name));
            }
            (Err(_), None) => {}
        }
    }

    /// Where families are, each place once.
    fn media(&self) -> Vec<PathLocation> {
        places(self.families.iter().map(|family| family.device.as_str()))
    }

    /// Where the database is; of a copy, the media that it reads.
    fn other_side(&self) -> Vec<PathLocation> {
        match &self.read_from[..] {
            [] => vec![self.database_at.clone().map_or(PathLocation::Unknown, PathLocation::At)],
            read_from => places(read_from.iter().map(String::as_str)),
        }
    }

    /// True if a family is on the same device as the database, or as the media that a copy reads.
    pub(super) fn one_device(&self) -> bool {
        let others: Vec<u64> = self.other_side().iter().filter_map(PathLocation::device).collect();
        self.media().iter().filter_map(PathLocation::device).any(|family| others.contains(&family))
    }

    /// What the profile knows of the path of this job. The model does not cover a backup with `--copy-to`, which writes
    /// its bytes twice, and a restore with `--resume`.
    pub(super) fn known(&self, direction: Direction) -> Option<CalibratedLimits> {
        let (profile, setup) = (self.profile.as_ref()?, self.setup.as_ref()?);
        if !self.copies.is_empty() || self.resumed.is_some() || self.families.is_empty() {
            return None;
        }
        let way = |side| direction.way(side);
        let is_known = |place: &PathLocation, side| match place {
            PathLocation::At(name) => profile.knows(name, way(side)),
            PathLocation::Nowhere => true,
            PathLocation::Unknown => false,
        };
        let (media, database) = (self.media(), self.other_side());
        let of_database = self.accounts.get(if direction == Direction::Backup { 0 } else { 2 });
        let moves_database = of_database.is_some_and(|stage| stage.account.bytes > 0);
        let whole = media.iter().all(|place| is_known(place, Side::Media))
            && (!moves_database || database.iter().all(|place| is_known(place, Side::Database)));
        let elsewhere = match direction {
            Direction::Backup => self.elsewhere(profile, &media, &database),
            Direction::Restore => Vec::new(),
        };
        let used = [(&media, Side::Media), (&database, Side::Database)];
        let used = used.into_iter().flat_map(|(places, side)| names(places).map(move |name| (name, way(side))));
        let mut doubts: Vec<String> = used.filter_map(|(name, way)| profile.doubt(name, way)).collect();
        doubts.dedup();
        Some(CalibratedLimits {
            profile: profile.name.clone(),
            path: profile.path_between(&database, &media, setup.transfer_bytes).path,
            whole,
            database: profile.headroom(&database, way(Side::Database)),
            media: profile.headroom(&media, way(Side::Media)),
            directories: names(&media).map(str::to_owned).collect(),
            elsewhere,
            doubts,
        })
    }

    /// Measured directories that families could also go to. The job has not touched them. If a server behind a
    /// directory does not answer in time, nothing is advised.
    fn elsewhere(&self, profile: &Profile, media: &[PathLocation], database: &[PathLocation]) -> Vec<Elsewhere> {
        let used: Vec<u64> = media.iter().chain(database).filter_map(PathLocation::device).collect();
        let of_one = self.stored_bytes / (self.families.len() as u64 + 1);
        let transfer_bytes = self.setup.as_ref().map_or(0, |setup| setup.transfer_bytes);
        let (found, heard) = channel();
        let profile = profile.clone();
        let look = move || {
            // The receiver may be gone.
            let _ = found.send(with_room(&profile, used, of_one, transfer_bytes));
        };
        let looked = threads::start("places", look).ok().and_then(|_| heard.recv_timeout(PATIENCE).ok());
        looked.unwrap_or_default()
    }
}

/// Where these devices are, each place once.
fn places<'a>(devices: impl Iterator<Item = &'a str>) -> Vec<PathLocation> {
    let of = |device: &str| Device::parse(device).map_or(PathLocation::Unknown, |device| PathLocation::of(&device));
    let mut places: Vec<PathLocation> = devices.map(of).collect();
    places.sort();
    places.dedup();
    places
}

/// The names of places that have one.
fn names(places: &[PathLocation]) -> impl Iterator<Item = &str> {
    places.iter().filter_map(PathLocation::name)
}

/// Directories on unused devices, with room for a family of `of_one` bytes.
fn with_room(profile: &Profile, mut used: Vec<u64>, of_one: u64, transfer_bytes: u64) -> Vec<Elsewhere> {
    let mut found = Vec::new();
    for place in profile.places.iter().filter(|place| place.used == Use::Write) {
        let Some(number) = still_there(place).filter(|number| !used.contains(number)) else { continue };
        if free_space(Path::new(&place.path)).is_ok_and(|free| free > of_one) {
            let media = [PathLocation::At(place.path.clone())];
            let write = profile.path_between(&[], &media, transfer_bytes).path.media.write;
            found.push(Elsewhere { directory: place.path.clone(), write });
            used.push(number);
        }
    }
    found
}

/// The device of a directory, if it is the measured device. By now, another device or none may be mounted there.
fn still_there(place: &MeasuredPath) -> Option<u64> {
    let now = PathLocation::At(place.path.clone()).device();
    now.filter(|_| now == place.device && Path::new(&place.path).is_dir())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use fullbore_core::codec::Compression;
    use fullbore_core::plan::{Knobs, Plan};

    use super::*;
    use crate::report::FamilyReport;
    use fullbore_model::profile::{Access, AccessPattern, Cell, Order, Round, Settings};
    use fullbore_model::verdict::Setup;

    /// A place that was written to at 100 MB/s.
    fn written(path: &Path, device: u64) -> MeasuredPath {
        let shape = AccessPattern {
            way: Access::Write,
            order: Order::Sequential,
            block_bytes: 1 << 20,
            queue_depth: 4,
            streams: 1,
            direct: true,
        };
        let round = Round::of(100_000_000, 1.0);
        let cells = vec![Cell { shape, rounds: vec![round; 2] }];
        MeasuredPath { path: path.display().to_string(), used: Use::Write, device: Some(device), bytes: 1, cells }
    }

    /// A backup of `database` into a family in `media`, beside a profile with these places.
    fn backup(database: &Path, media: &Path, places: Vec<MeasuredPath>) -> Report {
        let plan = Plan::backup(&Knobs::default(), 1, Compression::None, false).unwrap();
        let settings = Settings { seconds: 1.0, space_bytes: None, throttle_bytes_per_s: None };
        let device = media.join("app.bore").display().to_string();
        Report {
            families: vec![FamilyReport { device, bytes: 1, blake3: String::new() }],
            stored_bytes: 1,
            setup: Some(Setup::of_backup(&plan, "none", false)),
            database_at: Some(database.display().to_string()),
            profile: Some(Profile { places, ..Profile::begin("night", settings) }),
            ..Report::begin("backup")
        }
    }

    #[test]
    fn another_directory_is_advised_where_it_is_there_on_a_device_of_its_own() {
        let (disk, memory) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm").unwrap());
        let number = |path: &Path| std::fs::metadata(path).unwrap().dev();
        let (own, other) = (number(disk.path()), number(memory.path()));
        if own == other {
            return; // Here, memory is not a file system of its own.
        }
        let places = vec![written(disk.path(), own), written(memory.path(), other)];
        let known = |report: &Report| report.known(Direction::Backup).unwrap();
        let report = backup(Path::new("/nowhere/app.db"), disk.path(), places.clone());
        let [found] = &known(&report).elsewhere[..] else { panic!("{:?}", known(&report).elsewhere) };
        assert_eq!(found.directory, memory.path().display().to_string());
        assert!((found.write.total_rate - 1e8).abs() < 1.0);
        let beside_the_database = backup(&memory.path().join("app.db"), disk.path(), places.clone());
        assert_eq!(known(&beside_the_database).elsewhere, []);
        let of_another_disk = vec![written(disk.path(), own), written(memory.path(), other + 1_000_000)];
        assert_eq!(known(&backup(Path::new("/nowhere/app.db"), disk.path(), of_another_disk)).elsewhere, []);
        let full = Report { stored_bytes: u64::MAX, ..report };
        assert_eq!(known(&full).elsewhere, [], "a family has no room there");
    }

    #[test]
    fn an_unknown_database_gets_a_note_with_the_reason() {
        let disk = tempfile::tempdir().unwrap();
        let number = std::fs::metadata(disk.path()).unwrap().dev();
        let mut report = backup(disk.path(), disk.path(), vec![written(disk.path(), number)]);
        report.is_of_database_at(Ok(disk.path().join("app.db")));
        assert!(report.notes.is_empty() && report.database_at.as_ref().is_some_and(|name| name.ends_with("app.db")));
        let mut unknown = Report { database_at: None, ..report.clone() };
        unknown.is_of_database_at(Err("its disk is far away".into()));
        assert_eq!(unknown.other_side(), [PathLocation::Unknown]);
        assert_eq!(unknown.notes, ["profile `night` knows no limit of this backup: its disk is far away"]);
        let mut alone = Report::begin("backup");
        alone.is_of_database_at(Err("its disk is far away".into()));
        assert!(alone.notes.is_empty(), "without a profile, no note");
    }

    #[test]
    fn the_way_is_known_as_a_whole_where_each_place_was_measured() {
        let disk = tempfile::tempdir().unwrap();
        let number = std::fs::metadata(disk.path()).unwrap().dev();
        let report = backup(&disk.path().join("app.db"), disk.path(), vec![written(disk.path(), number)]);
        let known = report.known(Direction::Backup).unwrap();
        assert!(known.whole, "nothing of the database has moved in this report: {known:?}");
        assert!(report.one_device());
        let far = Report { families: vec![], ..report.clone() };
        assert_eq!(far.known(Direction::Backup), None);
        let mirrored = Report { copies: report.families.clone(), ..report.clone() };
        assert_eq!(mirrored.known(Direction::Backup), None, "the model does not cover it");
        let unmeasured = backup(Path::new("/nowhere/app.db"), Path::new("/proc"), vec![written(disk.path(), number)]);
        assert!(!unmeasured.known(Direction::Backup).unwrap().whole);
    }
}
