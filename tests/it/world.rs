//! A folder to play in: databases in it, the directories `a/` and `b/` for media, and the binary run from inside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use fullbore_test_servers::wait_until;

use crate::database::{self, Shape};
use crate::program::{self, Ended, Running};

/// Removed with everything in it when dropped.
pub struct World {
    folder: tempfile::TempDir,
}

/// Lets the clock that files get their times from go on: it ticks every 10 ms at the slowest, and within a tick nobody was silent.
pub fn one_tick() {
    std::thread::sleep(std::time::Duration::from_millis(20));
}

/// Writes over a file, which is no younger for it.
pub fn write_over(path: &Path, bytes: &[u8]) {
    let then = fs::metadata(path).unwrap().modified().unwrap();
    fs::write(path, bytes).unwrap();
    fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
}

impl World {
    pub fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for name in ["a", "b"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    /// With the database `app.db` of the usual shape.
    pub fn with_database() -> Self {
        Self::with_shape(Shape::default())
    }

    /// With the database `app.db`.
    pub fn with_shape(shape: Shape) -> Self {
        let world = Self::new();
        database::make(&world.at("app.db"), shape);
        world
    }

    /// With the database `purged.db`, of which next to nothing is left: a table of that many MiB was dropped.
    pub fn with_purged_database(mib: u32) -> Self {
        let world = Self::new();
        let batch = format!(
            "PRAGMA synchronous = OFF; PRAGMA secure_delete = OFF; CREATE TABLE kept (id INTEGER PRIMARY KEY, a); INSERT INTO kept VALUES (1, randomblob(300000));
             CREATE TABLE dropped (a); BEGIN;
             WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {mib}) INSERT INTO dropped SELECT randomblob(1048576) FROM n;
             COMMIT; DROP TABLE dropped;"
        );
        database::sql(&world.at("purged.db"), &batch);
        world
    }

    /// With a set of one family, `a/app.bore`, small enough to be written and read a few hundred times.
    pub fn with_small_set(options: &str) -> Self {
        let world = Self::with_shape(Shape { rows: 150, ..Shape::default() });
        world
            .run(&format!("backup sqlite:app.db --to a/app.bore --max-transfer-size 64KiB --workers 1 {options}"))
            .done();
        world
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `fullbore LINE` from inside the folder; words are parted by blanks.
    pub fn run(&self, line: &str) -> Ended {
        program::run(program::command(self.folder(), line.split_whitespace()))
    }

    /// Runs `fullbore` with these words: some have blanks.
    pub fn run_with(&self, words: &[&str]) -> Ended {
        program::run(program::command(self.folder(), words.iter().copied()))
    }

    /// The same as the user of the test's servers, who can reach everything in the folder then: where the tests run as root, as
    /// `nobody`.
    pub fn run_as_nobody(&self, line: &str) -> Ended {
        program::run(self.as_nobody(line))
    }

    /// What [`run_as_nobody`](Self::run_as_nobody) runs.
    pub fn as_nobody(&self, line: &str) -> Command {
        let mut command = program::command(self.folder(), line.split_whitespace());
        if program::is_root() {
            for name in [".", "a", "b"] {
                let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
                open(&self.at(name));
                for entry in fs::read_dir(self.at(name)).unwrap().map(Result::unwrap) {
                    if entry.file_name() == "fullbore.toml" {
                        // Nobody trusts one that others may write or replace.
                        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o1777)).unwrap();
                        fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o644)).unwrap();
                    } else if entry.file_type().unwrap().is_file() {
                        open(&entry.path());
                    }
                }
            }
            command.env("XDG_RUNTIME_DIR", self.folder()).uid(65_534).gid(65_534);
        }
        command
    }

    /// Starts `fullbore LINE`.
    pub fn start(&self, line: &str) -> Running {
        program::start(program::command(self.folder(), line.split_whitespace()))
    }

    /// Waits until a run has begun a family in that directory.
    #[track_caller]
    pub fn media_begun(&self, directory: &str) {
        wait_until("media are begun", || self.names(directory).iter().any(|name| name.contains(".new-")));
    }

    /// Waits until something of a family is in that directory: one without a byte is removed without a word.
    #[track_caller]
    pub fn media_written(&self, directory: &str) {
        // A file gets its length before its first byte.
        let has_bytes = |name: &String| {
            name.contains(".new-") && self.read(&format!("{directory}/{name}")).iter().any(|byte| *byte != 0)
        };
        wait_until("media have bytes", || self.names(directory).iter().any(has_bytes));
    }

    /// The names in a directory, sorted.
    pub fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(directory)).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The media directories hold nothing: no family, no working name.
    #[track_caller]
    pub fn assert_no_media(&self) {
        assert_eq!((self.names("a"), self.names("b")), (Vec::new(), Vec::new()));
    }

    /// No restored database and nothing of one under way.
    #[track_caller]
    pub fn assert_no_copy(&self) {
        let left: Vec<String> = self.names(".").into_iter().filter(|name| name.starts_with("copy.db")).collect();
        assert_eq!(left, Vec::<String>::new());
    }

    /// Restores what `from` says into `copy.db` and compares it with `app.db`, byte for byte and row for row.
    #[track_caller]
    pub fn assert_restores(&self, from: &str) {
        self.run(&format!("restore {from} --into sqlite:copy.db")).done();
        self.assert_copy();
        fs::remove_file(self.at("copy.db")).unwrap();
    }

    /// `copy.db` is `app.db`.
    #[track_caller]
    pub fn assert_copy(&self) {
        database::assert_same_file(&self.at("app.db"), &self.at("copy.db"));
        assert_eq!(database::contents(&self.at("copy.db")), database::contents(&self.at("app.db")));
    }

    /// Where the first family of a set stands, in the repository that has its records in `directory`.
    pub fn first_family(&self, directory: &str, id: &str) -> PathBuf {
        let record = self.read(&format!("{directory}/.fullbore/sets/{id}.json"));
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
        self.at(directory).join(record["families"][0]["name"].as_str().unwrap())
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.at(name)).unwrap()
    }

    pub fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).unwrap()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.at(name), bytes).unwrap();
    }

    /// A file that only its owner may read.
    pub fn write_secret(&self, name: &str, bytes: &[u8]) {
        self.write(name, bytes);
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
}
