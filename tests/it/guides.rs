//! The guides of `docs/guides`, run line by line as a new user runs them. Their absolute paths are below the world's folder.
//!
//! Left out: lines that need another machine, a store or a server. Other tests run those.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fullbore_engines::sqlserver::configuration::BackupKind;

use crate::database;
use crate::foreign_sets;
use crate::program::{self, Ended};
use crate::world::World;

/// The absolute paths of the guides begin so.
const ROOTS: [&str; 7] = ["/etc/fullbore/", "/mnt/", "/data", "/var/tmp", "/scratch", "/dump/", "/restore/"];
/// A line with such a word needs another machine, a store or a server.
const ELSEWHERE: [&str; 7] = ["mysql", "mariadb", "dir:", "s3://", "systemctl", "sudo", "ssh"];

fn guide(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides").join(name)).unwrap()
}

/// The commands of a guide in their order: the lines of its `sh` blocks, and those in its tables.
fn commands(guide: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut language = None;
    for line in guide.lines().map(str::trim) {
        match (line.strip_prefix("```"), language) {
            (Some(opened), None) => language = Some(opened),
            (Some(_), Some(_)) => language = None,
            (None, Some("sh")) => found.push(line.to_owned()),
            (None, None) if line.starts_with('|') => {
                found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned))
            }
            (None, _) => {}
        }
    }
    let is_command = |line: &String| ["fullbore ", "sqlite3 "].iter().any(|program| line.starts_with(program));
    found.retain(|line| is_command(line) && !ELSEWHERE.iter().any(|word| line.contains(word)));
    found
}

/// The first TOML block of a guide.
fn configuration(guide: &str) -> &str {
    guide.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0
}

/// A machine with the directories of the guides, and a database in WAL mode.
struct Machine {
    world: World,
    programs: PathBuf,
}

impl Machine {
    fn new() -> Self {
        let world = World::new();
        for directory in ["etc/fullbore", "mnt/a", "mnt/b", "mnt/away", "data", "var/tmp", "scratch", "restore", "bin"]
        {
            fs::create_dir_all(world.at(directory)).unwrap();
        }
        let batch = "PRAGMA journal_mode = WAL; CREATE TABLE orders (id INTEGER PRIMARY KEY, what TEXT);
                     WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 20000)
                     INSERT INTO orders SELECT x, 'order number ' || x || hex(randomblob(100)) FROM n;";
        database::sql(&world.at("data/app.db"), batch);
        let program = program::command(world.folder(), [""; 0]).get_program().to_owned();
        std::os::unix::fs::symlink(program, world.at("bin/fullbore")).unwrap();
        let programs = world.at("bin");
        Self { world, programs }
    }

    /// The text with its paths below this machine's folder.
    fn own(&self, text: &str) -> String {
        let marked = ROOTS.iter().fold(text.to_owned(), |text, root| text.replace(root, &format!("\0{root}")));
        marked.replace('\0', self.world.folder().to_str().unwrap())
    }

    fn configure(&self, text: &str) {
        self.world.write("etc/fullbore/fullbore.toml", self.own(text).as_bytes());
    }

    /// Runs a line in a shell. A follower gets SIGINT after some seconds.
    fn run(&self, line: &str) -> Ended {
        let line =
            self.own(line).replace("fullbore log follow", "timeout --preserve-status -s INT 3 fullbore log follow");
        let mut command = Command::new("sh");
        command.args(["-c", &line]);
        program::surroundings(&mut command, self.world.folder());
        let path = format!("{}:{}", self.programs.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("FULLBORE_CONFIG", self.world.at("etc/fullbore/fullbore.toml"));
        program::run(command)
    }

    /// Runs every command of a guide, and gives their number.
    fn follow(&self, guide: &str, change: impl Fn(&str) -> String) -> usize {
        let commands = commands(guide);
        for line in &commands {
            // A guide shows several ways to the same new name.
            let _ = fs::remove_file(self.world.at("data/app-restored.db"));
            let ended = self.run(&change(line));
            let stopped = line.contains("log follow") && ended.code == 130;
            assert!(ended.code == 0 || stopped, "{line}\n{ended}");
        }
        commands.len()
    }
}

#[test]
fn the_guides_to_nightly_backups_proofs_and_restores_run_as_they_are_written() {
    let machine = Machine::new();
    let nightly = guide("nightly-backups.md");
    machine.configure(&format!("{}[repository.away]\nto = [\"/mnt/away/\"]\n", configuration(&nightly)));
    assert!(machine.follow(&nightly, str::to_owned) >= 9);
    assert!(machine.follow(&guide("prove-backups.md"), str::to_owned) >= 8);
    assert!(machine.follow(&guide("restore-at-3-am.md"), str::to_owned) >= 4);
    assert_eq!(database::number(&machine.world.at("data/app-restored.db"), "SELECT count(*) FROM orders"), 20000);
}

#[test]
fn the_guide_to_a_window_runs_as_it_is_written() {
    let machine = Machine::new();
    machine.configure("");
    let quick = |line: &str| line.replace("fullbore calibrate", "fullbore calibrate --seconds 3 --space 64MiB");
    assert!(machine.follow(&guide("size-a-window.md"), quick) >= 9);
}

#[test]
fn the_guide_to_backups_of_sql_server_runs_as_it_is_written() {
    let machine = Machine::new();
    machine.configure("");
    let text = guide("sqlserver-backups.md");
    machine.run("fullbore key new /etc/fullbore/recovery --no-recovery").done();
    machine.run("fullbore key new /etc/fullbore/backup --recovery /etc/fullbore/recovery.pub").done();
    machine.configure(&configuration(&text).replace("s3://backups/sqlserver/", "/mnt/a/"));
    let mut full = foreign_sets::set(BackupKind::Full, 1);
    full.configuration.files[0].size = 16 << 20;
    full.copies = vec![foreign_sets::extents(60, 20, 1)];
    let log = "dump/DB1/shop/LOG/2.trn";
    for (name, set, number) in [("dump/DB1/shop/FULL/1.bak", full, 1), (log, foreign_sets::set(BackupKind::Log, 2), 2)]
    {
        fs::create_dir_all(machine.world.at(name).parent().unwrap()).unwrap();
        machine.world.write(name, &foreign_sets::written(&set, number));
    }
    let id = |line: &str| match line.split_once("1f0c2a") {
        Some((before, after)) => {
            let sets = machine.run("fullbore list --repo nightly --json").json();
            format!("{before}{}{after}", foreign_sets::id(sets.as_array().unwrap().last().unwrap()))
        }
        None => line.to_owned(),
    };
    assert!(machine.follow(&text, id) >= 5);
    assert!(machine.world.read("restore/2.trn") == machine.world.read(log));
}
