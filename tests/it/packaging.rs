//! The systemd units and samples of `xtask/packaging`: the program runs their command lines with the sample files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::database::Shape;
use crate::program::{self, Ended};
use crate::world::World;

/// The services that run fullbore, in the order of a night.
const VERBS: [&str; 6] = ["backup", "verify", "restore-test", "prune", "check", "follow"];

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("xtask/packaging").join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(packaging(name)).unwrap()
}

/// The sample configuration with every key that it shows in a comment.
fn with_every_key() -> String {
    let is_key = |rest: &str| rest.starts_with(|first: char| first.is_ascii_lowercase() || first == '[');
    let line = |line: &str| match line.strip_prefix('#') {
        Some(rest) if is_key(rest) => format!("{rest}\n"),
        _ => format!("{line}\n"),
    };
    text("examples/fullbore.toml").lines().map(line).collect()
}

/// A text of a sample with the places of this world.
fn moved(sample: &str, world: &World) -> String {
    let to = |name: &str| world.at(name).display().to_string();
    // The folder of this world may be below the first one.
    let places = [("/var/tmp", to("scratch")), ("/mnt/a", to("a")), ("/mnt/b", to("b")), ("/data", to("."))];
    let more = [("/etc/fullbore", to(".")), ("/var/lib/fullbore", to("state"))];
    places.iter().chain(&more).fold(sample.to_owned(), |sample, (old, new)| sample.replace(old, new))
}

/// A database in WAL mode, and the samples as an administrator installs them.
fn world(configuration: &str) -> World {
    let world = World::with_shape(Shape { rows: 300, ..Shape::default() });
    fs::create_dir(world.at("scratch")).unwrap();
    world.write("fullbore.toml", moved(configuration, &world).as_bytes());
    world.write("nightly.env", moved(&text("examples/nightly.env"), &world).as_bytes());
    world
}

/// A service: its keys in order, without the name of its section.
struct Service {
    name: String,
    lines: Vec<(String, String)>,
}

impl Service {
    fn of(verb: &str) -> Self {
        let name = format!("systemd/fullbore-{verb}@.service");
        let pair = |line: &str| line.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        let lines = text(&name).lines().filter(|line| !line.starts_with('#')).filter_map(pair).collect();
        Self { name, lines }
    }

    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// The variables: those of the unit, then those of the sample file, which win.
    fn variables(&self, world: &World) -> BTreeMap<String, String> {
        let words = self.all("Environment").flat_map(|line| shlex::split(line).unwrap());
        let sample = fs::read_to_string(world.at("nightly.env")).unwrap();
        let sample = sample.lines().filter(|line| !line.starts_with('#')).map(str::to_owned);
        let pairs = words.chain(sample).filter_map(|word| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.replace("%i", "nightly")))
        });
        let mut variables: BTreeMap<String, String> = pairs.collect();
        // The tests do not wait for the grace time of a removal.
        variables.insert("FULLBORE_PRUNE_OPTIONS".into(), "--grace 0s".into());
        variables
    }

    /// The words that systemd starts: `${X}` is one word, `$X` as a word becomes the words of its value.
    fn command(&self, world: &World) -> Vec<String> {
        let variables = self.variables(world);
        let value = |name: &str| variables.get(name).unwrap_or_else(|| panic!("{}: nothing sets {name}", self.name));
        let [line] = self.all("ExecStart").collect::<Vec<_>>()[..] else { panic!("{}: one ExecStart", self.name) };
        let expanded = |word: &str| -> Vec<String> {
            match word.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) {
                Some(name) => vec![value(name).clone()],
                None => match word.strip_prefix('$') {
                    Some(name) => value(name).split_whitespace().map(str::to_owned).collect(),
                    None => vec![word.to_owned()],
                },
            }
        };
        line.split_whitespace().flat_map(expanded).collect()
    }

    /// Runs it in this world.
    fn run(&self, world: &World, more: &[&str]) -> Ended {
        let command = self.command(world);
        assert_eq!(command[0], "/usr/bin/fullbore", "{}", self.name);
        let more = more.iter().map(|word| (*word).to_owned());
        program::run(program::command(world.folder(), command[1..].iter().cloned().chain(more)))
    }

    /// True for an exit code that systemd takes for a success.
    fn is_success(&self, code: i32) -> bool {
        let named = self.all("SuccessExitStatus").flat_map(str::split_whitespace);
        code == 0 || named.into_iter().any(|word| word == code.to_string())
    }
}

/// A backup, its proofs, the removal of what is old, and the check, as the timers start them.
fn night(world: &World) {
    for verb in VERBS {
        let service = Service::of(verb);
        let more: &[&str] = if verb == "follow" { &["--for", "1s"] } else { &[] };
        let ended = service.run(world, more);
        assert!(ended.code == 0 && service.is_success(ended.code), "{verb}: {ended}");
    }
}

#[test]
fn the_units_make_prove_prune_and_check_a_backup_with_the_sample_files() {
    let world = world(&text("examples/fullbore.toml"));
    night(&world);
    let listed = world.run("list --repo nightly --json").done().json();
    assert!(listed.as_array().is_some_and(|sets| !sets.is_empty()), "{listed}");
    assert_eq!(world.names("scratch"), [""; 0]);
}

#[test]
fn the_units_do_their_work_with_every_key_that_the_sample_shows_in_a_comment() {
    let world = world(&with_every_key());
    world.run("key new recovery.key --no-recovery").done();
    world.run("key new app.key --recovery recovery.key.pub").done();
    // With hide-names, a database has its whole name.
    let whole = world.at("app.db").canonicalize().unwrap().display().to_string();
    let sample = moved(&text("examples/nightly.env"), &world);
    world.write("nightly.env", sample.replace("DATABASE=app.db", &format!("DATABASE={whole}")).as_bytes());
    night(&world);
    // The vault's keys are read before its profile is found missing.
    world.run("check --repo vault --max-age 26h").with_code(2).says(&["profile", "vault"]);
}

#[test]
fn the_sample_shows_every_key_that_the_program_reads() {
    let world = world("");
    let sample = with_every_key();
    for section in ["", "[repository.x]\n", "[repository.x.keep]\n"] {
        world.write("fullbore.toml", format!("{section}nothing = 1\n").as_bytes());
        let said = world.run("list --from a").with_code(2).err;
        let known: BTreeSet<&str> = said.split('`').skip(1).step_by(2).filter(|word| *word != "nothing").collect();
        let known = known.into_iter().filter(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
        let known: Vec<&str> = known.collect();
        assert!(known.len() >= 8, "{known:?}: {said}");
        for key in known {
            let shown = |line: &str| line.starts_with(&format!("{key} = ")) || line.starts_with(&format!("[{key}."));
            let keep = key == "keep" && sample.contains(".keep]");
            assert!(keep || sample.lines().any(shown), "the sample does not show `{key}`");
        }
    }
}

#[test]
fn damage_fails_the_units_of_verify_restore_test_and_check() {
    let world = world(&text("examples/fullbore.toml"));
    let of = |verb: &str| Service::of(verb);
    of("backup").run(&world, &[]).done();
    let family = world.names("a").into_iter().find(|name| name.ends_with(".bore")).unwrap();
    let mut bytes = world.read(&format!("a/{family}"));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    world.write(&format!("a/{family}"), &bytes);
    for (verb, code) in [("verify", 3), ("restore-test", 3), ("check", 1)] {
        let service = of(verb);
        let ended = service.run(&world, &[]);
        assert!(ended.code == code && !service.is_success(code), "{verb}: {ended}");
    }
    // Nothing was verified: prune removes nothing, and says so with 4, which is no failure.
    assert!(of("prune").is_success(4) && !of("check").is_success(4));
}

#[test]
fn a_runtime_directory_that_this_user_cannot_write_to_does_not_stop_a_backup() {
    let test = "a_runtime_directory_that_this_user_cannot_write_to_does_not_stop_a_backup";
    let shared = ["/run/fullbore", "/run/lock"].map(|path| fs::metadata(path).map_or(0, |stat| stat.mode() & 0o002));
    if !program::is_root() || shared == [0, 0] {
        return program::skipped(test, "only root becomes another user, and the locks need a directory for everybody");
    }
    let world = World::with_shape(Shape { rows: 300, ..Shape::default() });
    let mut command = world.as_nobody("backup sqlite:app.db --to a/");
    fs::create_dir(world.at("of_root")).unwrap();
    command.env("XDG_RUNTIME_DIR", world.at("of_root"));
    program::run(command).done();
    assert_eq!(world.names("of_root"), [""; 0]);
}

#[test]
fn each_service_tells_of_its_failure_and_has_the_same_limits() {
    let limits = |service: &Service| -> Vec<(String, String)> {
        let begin = service.lines.iter().position(|(key, _)| key == "User").unwrap();
        let end = service.lines.iter().position(|(key, _)| key == "RestrictAddressFamilies").unwrap();
        service.lines[begin..=end].to_vec()
    };
    let first = limits(&Service::of(VERBS[0]));
    assert!(first.iter().any(|line| *line == ("ProtectSystem".to_owned(), "strict".to_owned())));
    for verb in VERBS {
        let service = Service::of(verb);
        assert_eq!(limits(&service), first, "{verb}");
        assert_eq!(service.all("OnFailure").collect::<Vec<_>>(), ["fullbore-failed@%n.service"], "{verb}");
        assert!(!service.is_success(1) && !service.is_success(2) && !service.is_success(3), "{verb}");
    }
}

#[test]
fn each_unit_is_tried_here_and_each_timer_starts_a_service() {
    let names = fs::read_dir(packaging("systemd")).unwrap().map(|entry| entry.unwrap().file_name());
    let names: BTreeSet<String> = names.map(|name| name.into_string().unwrap()).collect();
    let services = VERBS.iter().copied().chain(["failed"]).map(|verb| format!("fullbore-{verb}@.service"));
    let timers = VERBS.iter().filter(|verb| **verb != "follow").map(|verb| format!("fullbore-{verb}@.timer"));
    assert_eq!(names, services.chain(timers).collect());
}
