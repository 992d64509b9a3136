//! The contract of every engine that restores databases. An engine implements [`RestorerUnderTest`] on a real database
//! and calls [`restorer_conforms`].

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fullbore_core::Result;
use fullbore_core::testkit::Files;
use fullbore_engines::Restorer;
use fullbore_engines::engine::{Depth, Over};
use serde_json::Value;
use tempfile::TempDir;

/// Bytes that a differential compares.
const UNIT: usize = 4096;

/// An engine with a database that the suite changes, backs up and restores.
pub trait RestorerUnderTest {
    /// A restore to `target`.
    fn prepare(&self, target: &Path, over: Over) -> Result<Box<dyn Restorer>>;

    /// False if a database can only be restored to a new target.
    fn replaces(&self) -> bool;

    /// Commits a transaction that `content` shows.
    fn commit(&mut self);

    /// The content of the database.
    fn content(&mut self) -> String;

    /// The content of a restored database; `None` if the engine finds no whole database there. The files do not change.
    fn content_of(&self, restored: &Path) -> Option<String>;

    /// A full of now.
    fn full(&mut self) -> Full;

    /// Marks an empty directory as incomplete.
    fn begin(&self, directory: &Path) {
        let _ = directory;
    }

    /// Marks a directory as complete.
    fn finish(&self, directory: &Path, full: &Full) {
        let _ = (directory, full);
    }

    /// The problems that a check of the restored files of the last full finds.
    fn check(&self, restored: &Path, depth: Depth) -> Vec<String>;

    /// Damages the restored files so that only checks of that depth, or a greater one, find it. Returns false if there
    /// is no such damage.
    fn damage(&self, restored: &Path, found_by: Depth) -> bool;

    /// Commits twice, with a log set after each commit. Applies the sets to the database at `restored`, whose position
    /// is given. Returns the content of the database then. `None` without log backups.
    fn apply_logs(&mut self, restored: &Path, position: &Value) -> Option<String> {
        let _ = (restored, position);
        None
    }
}

/// A full: the files of a directory by their names, or one file without a name.
pub struct Full {
    pub files: Files,
    pub position: Value,
}

impl Full {
    fn is_directory(&self) -> bool {
        !self.files.contains_key("")
    }
}

/// Runs the suite; `make` gives a new database.
///
/// # Panics
/// The engine breaks a rule.
pub fn restorer_conforms<E: RestorerUnderTest>(make: impl FnOnce() -> E) {
    let mut test = make();
    a_target_that_exists_is_refused(&mut test);
    a_dropped_restore_leaves_nothing(&mut test);
    an_interrupted_restore_looks_like_no_database_and_is_continued(&mut test);
    layers_lead_to_the_newest_set(&mut test);
    a_replaced_database_stays_until_the_new_one_has_its_name(&mut test);
    the_state_of_a_restore_in_steps_is_replaced_when_the_caller_says_so(&mut test);
    a_check_of_each_depth_tells_what_it_finds(&mut test);
}

/// A folder, and the target in it.
struct Room(TempDir);

impl Room {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn target(&self) -> PathBuf {
        self.0.path().join("target")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn write(files: &Files, root: &Path) {
    for (name, bytes) in files {
        let path = if name.is_empty() { root.to_owned() } else { root.join(name) };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        OpenOptions::new().write(true).create(true).truncate(true).open(path).unwrap().write_all_at(bytes, 0).unwrap();
    }
}

/// Writes the files of a full to where the restorer wants them. Nothing marks them as complete.
fn unpack(test: &impl RestorerUnderTest, restorer: &mut dyn Restorer, full: &Full) {
    restorer.make().unwrap();
    if full.is_directory() {
        test.begin(restorer.temporary());
    }
    write(&full.files, restorer.temporary());
}

/// A restore that only lacks the name.
fn ready(test: &impl RestorerUnderTest, target: &Path, over: Over, full: &Full) -> Box<dyn Restorer> {
    let mut restorer = test.prepare(target, over).unwrap();
    unpack(test, &mut *restorer, full);
    if full.is_directory() {
        test.finish(restorer.temporary(), full);
    }
    restorer
}

/// Puts something of the same kind, which is not a database, under that name.
fn occupy(path: &Path, full: &Full) {
    if full.is_directory() {
        fs::create_dir(path).unwrap();
        fs::write(path.join("mine"), "mine").unwrap();
    } else {
        fs::write(path, "mine").unwrap();
    }
}

fn is_occupied(path: &Path) -> bool {
    let file = if path.is_dir() { path.join("mine") } else { path.to_owned() };
    fs::read(file).is_ok_and(|bytes| bytes == b"mine")
}

fn a_target_that_exists_is_refused(test: &mut impl RestorerUnderTest) {
    let (room, full) = (Room::new(), test.full());
    let target = room.target();
    occupy(&target, &full);
    for over in [Over::Nothing, Over::Database] {
        assert!(test.prepare(&target, over).is_err(), "{over:?}: it is not a database of this engine");
    }
    assert!(is_occupied(&target) && room.names() == ["target"]);
    // It is made while the restore runs.
    let other = room.0.path().join("other");
    let restorer = ready(test, &other, Over::Nothing, &full);
    occupy(&other, &full);
    assert!(restorer.publish().is_err(), "it would replace what another program has made");
    assert!(is_occupied(&other) && room.names() == ["other", "target"]);
}

fn a_dropped_restore_leaves_nothing(test: &mut impl RestorerUnderTest) {
    let (room, full) = (Room::new(), test.full());
    drop(test.prepare(&room.target(), Over::Nothing).unwrap());
    assert!(room.names().is_empty(), "the first look writes nothing");
    let mut restorer = test.prepare(&room.target(), Over::Nothing).unwrap();
    unpack(test, &mut *restorer, &full);
    assert!(!room.target().exists() && restorer.temporary().exists());
    drop(restorer);
    assert!(room.names().is_empty(), "{:?}", room.names());
    drop(ready(test, &room.target(), Over::Nothing, &full));
    assert!(room.names().is_empty(), "{:?}", room.names());
}

/// As a kill leaves it: the lock has ended, and the files stay.
fn an_interrupted_restore_looks_like_no_database_and_is_continued(test: &mut impl RestorerUnderTest) {
    let (room, full) = (Room::new(), test.full());
    let expected = test.content();
    let mut first = test.prepare(&room.target(), Over::Nothing).unwrap();
    unpack(test, &mut *first, &full);
    if !full.is_directory() {
        let half = full.files[""].len() / 2 / UNIT * UNIT;
        File::options().write(true).open(first.temporary()).unwrap().set_len(half as u64).unwrap();
    }
    let left = first.temporary().to_owned();
    assert!(test.prepare(&room.target(), Over::Nothing).unwrap().leftovers().is_empty(), "the first one is running");
    assert!(test.prepare(&room.target(), Over::Nothing).unwrap().take_over().is_err(), "the first one is running");
    first.keep();
    drop(first);
    assert!(!room.target().exists(), "the target has no name before it is whole");
    assert_eq!(test.content_of(&left), None, "the engine takes it for a whole database");
    let mut second = test.prepare(&room.target(), Over::Nothing).unwrap();
    assert_eq!(second.leftovers(), std::slice::from_ref(&left));
    assert!(second.take_over().unwrap() && second.temporary() == left);
    assert!(second.leftovers().is_empty(), "it is in use again");
    unpack(test, &mut *second, &full);
    if full.is_directory() {
        test.finish(&left, &full);
    }
    assert!(second.publish().unwrap().is_empty());
    assert_eq!(room.names(), ["target"]);
    assert_eq!(test.content_of(&room.target()), Some(expected));
    assert!(test.prepare(&room.target(), Over::Nothing).is_err(), "now it exists");
}

/// The changed units of each file, and its size. Files without an entry are not in the newer full.
type Changes = BTreeMap<String, (u64, Vec<(u64, Vec<u8>)>)>;

fn changes(base: &Files, newer: &Files) -> Changes {
    let of = |(name, bytes): (&String, &Vec<u8>)| {
        let before = base.get(name).map_or(&[][..], |bytes| bytes);
        let old = |at: usize| before.get(at..).map(|rest| &rest[..UNIT.min(rest.len())]);
        let units = bytes.chunks(UNIT).enumerate().map(|(number, unit)| (number * UNIT, unit));
        let changed = units.filter(|&(at, unit)| old(at) != Some(unit)).map(|(at, unit)| (at as u64, unit.to_vec()));
        (name.clone(), (bytes.len() as u64, changed.collect()))
    };
    newer.iter().map(of).collect()
}

fn apply(changes: &Changes, base: &Files, root: &Path) {
    base.keys().filter(|name| !changes.contains_key(*name)).for_each(|name| fs::remove_file(root.join(name)).unwrap());
    for (name, (size, units)) in changes {
        let path = if name.is_empty() { root.to_owned() } else { root.join(name) };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
        units.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
        file.set_len(*size).unwrap();
    }
}

fn layers_lead_to_the_newest_set(test: &mut impl RestorerUnderTest) {
    let (room, full) = (Room::new(), test.full());
    test.commit();
    let newer = test.full();
    let mut expected = test.content();
    let mut restorer = test.prepare(&room.target(), Over::Nothing).unwrap();
    unpack(test, &mut *restorer, &full);
    apply(&changes(&full.files, &newer.files), &full.files, restorer.temporary());
    if let Some(content) = test.apply_logs(restorer.temporary(), &newer.position) {
        assert_ne!(content, expected, "the log sets have commits");
        expected = content;
    }
    if full.is_directory() {
        test.finish(restorer.temporary(), &newer);
    }
    restorer.publish().unwrap();
    assert_eq!(test.content_of(&room.target()), Some(expected));
}

fn a_replaced_database_stays_until_the_new_one_has_its_name(test: &mut impl RestorerUnderTest) {
    if !test.replaces() {
        return;
    }
    let (room, full, old) = (Room::new(), test.full(), test.content());
    let target = room.target();
    ready(test, &target, Over::Database, &full).publish().unwrap();
    test.commit();
    let (full, new) = (test.full(), test.content());
    assert_ne!(old, new);
    let restorer = ready(test, &target, Over::Database, &full);
    assert_eq!(test.content_of(&target).as_ref(), Some(&old));
    drop(restorer);
    assert_eq!(test.content_of(&target), Some(old));
    assert_eq!(room.names(), ["target"]);
    ready(test, &target, Over::Database, &full).publish().unwrap();
    assert_eq!(test.content_of(&target), Some(new));
    assert_eq!(room.names(), ["target"], "nothing of the old database stays");
}

/// NORECOVERY: under the target's name is a text of the caller until the last step.
fn the_state_of_a_restore_in_steps_is_replaced_when_the_caller_says_so(test: &mut impl RestorerUnderTest) {
    let (room, full) = (Room::new(), test.full());
    let target = room.target();
    if full.is_directory() {
        return; // A directory is restored in one step.
    }
    let expected = test.content();
    occupy(&target, &full);
    let restorer = ready(test, &target, Over::State, &full);
    assert!(is_occupied(&target), "until the name is given, the state stays");
    fs::remove_file(&target).unwrap();
    restorer.publish().unwrap();
    assert_eq!(test.content_of(&target), Some(expected));
    assert_eq!(room.names(), ["target"]);
}

fn a_check_of_each_depth_tells_what_it_finds(test: &mut impl RestorerUnderTest) {
    let (room, full) = (Room::new(), test.full());
    let restorer = ready(test, &room.target(), Over::Nothing, &full);
    for depth in [Depth::Quick, Depth::Full] {
        assert_eq!(test.check(restorer.temporary(), depth), Vec::<String>::new(), "{depth:?}");
    }
    drop(restorer);
    for found_by in [Depth::Quick, Depth::Full] {
        let restorer = ready(test, &room.target(), Over::Nothing, &full);
        if !test.damage(restorer.temporary(), found_by) {
            continue;
        }
        let quick = test.check(restorer.temporary(), Depth::Quick);
        assert_eq!(quick.is_empty(), found_by == Depth::Full, "{quick:?}");
        assert!(!test.check(restorer.temporary(), Depth::Full).is_empty(), "{found_by:?}");
    }
    assert!(room.names().is_empty());
}
