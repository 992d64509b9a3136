//! The host dies at each step of a backup, a restore, a verification and a prune, in a directory and in a store: the next run puts it right, every kept point
//! restores, and nothing is left that nobody accounts for. Here a few of the steps; all of them with `FULLBORE_EVERY_STEP` set, as
//! `tests/campaigns/stores` does.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use fullbore_test_servers::{At, Fault, FaultProxy, ObjectStore, StoreKind, StoreOptions};

use crate::account;
use crate::database::{self, Shape};
use crate::program::{self, Ended};
use crate::world::World;

/// A repository `life`, and a host that is killed while it works on it.
struct Scene {
    world: World,
    store: Option<ObjectStore>,
    places: Vec<PathBuf>,
    changes: u32,
}

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Killed {
    FirstBackup,
    Full,
    Differential,
    Restore,
    Verify,
    Prune,
}

impl Scene {
    fn in_directories() -> Self {
        let world = World::with_shape(Shape { rows: 60, ..Shape::default() });
        let places = vec![world.folder().canonicalize().unwrap().join("a"), world.at("b")];
        Self::configured(world, None, places, ["a/", "b/"])
    }

    fn in_a_store() -> Self {
        let world = World::with_shape(Shape { rows: 60, ..Shape::default() });
        let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
        store.make_bucket("media");
        let places = ["night", "more"].map(|name| store.data().join("media").join(name)).to_vec();
        Self::configured(world, Some(store), places, ["s3://media/night/", "s3://media/more/"])
    }

    fn configured(world: World, store: Option<ObjectStore>, places: Vec<PathBuf>, to: [&str; 2]) -> Self {
        let text = format!("[repository.life]\nto = {to:?}\n[repository.life.keep]\nlast = 1\n");
        world.write("fullbore.toml", text.as_bytes());
        // Outside of what is watched.
        fs::create_dir(world.at("out")).unwrap();
        Self { world, store, places, changes: 0 }
    }

    fn command(&self, endpoint: Option<&str>, line: &str) -> Command {
        let mut command = program::command(self.world.folder(), line.split_whitespace());
        if let Some(store) = &self.store {
            command.envs(store.environment_at(endpoint.unwrap_or(store.endpoint())));
        }
        command
    }

    #[track_caller]
    fn run(&self, line: &str) -> Ended {
        let ended = program::run(self.command(None, line));
        assert!(matches!(ended.code, 0 | 4), "{ended}");
        ended
    }

    /// Runs `line` and kills it at its `n`-th step. What that would have been; nothing when it ended before.
    fn killed_at(&self, line: &str, n: usize) -> Option<String> {
        let Some(store) = &self.store else {
            let traced = crate::traced::killed_before(&self.command(None, line), self.world.folder(), n);
            return match traced.expect("this kernel lets nobody trace a process") {
                crate::traced::Traced::Killed(step) => Some(step),
                crate::traced::Traced::Ended(code) => {
                    assert!(matches!(code, 0 | 4), "{line}: {code}");
                    None
                }
            };
        };
        let proxy = FaultProxy::start(store.endpoint(), move |request| match request.number + 1 >= n as u64 {
            true => Fault::Stall(At::Start),
            false => Fault::Pass,
        });
        let mut running = program::start(self.command(Some(proxy.endpoint()), line));
        let step = loop {
            if proxy.faults() > 0 {
                running.child.kill().unwrap();
                let seen = proxy.requests().swap_remove(n - 1).request;
                break Some(format!("{} {}", seen.operation(), seen.path));
            }
            if running.child.try_wait().unwrap().is_some() {
                break None;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        };
        let ended = running.wait();
        assert!(step.is_some() || matches!(ended.code, 0 | 4), "{ended}");
        step
    }

    /// Something new to be backed up.
    fn change(&mut self) {
        self.changes += 1;
        let text = format!("CREATE TABLE more_{0} AS SELECT {0} AS n, randomblob(3000) AS b", self.changes);
        database::sql(&self.world.at("app.db"), &text);
    }

    /// What is needed before the verb has something to do, and its line.
    fn prepare(&mut self, killed: Killed) -> &'static str {
        self.change();
        match killed {
            Killed::FirstBackup => {
                for place in &self.places {
                    let _ = fs::remove_dir_all(place); // In a store there is none yet.
                    fs::create_dir(place).unwrap();
                }
                "backup sqlite:app.db --repo life"
            }
            Killed::Full => "backup sqlite:app.db --repo life",
            Killed::Differential => "backup sqlite:app.db --repo life --kind differential",
            Killed::Restore => "restore --repo life --into sqlite:out/copy.db",
            Killed::Verify => "verify --repo life --latest",
            Killed::Prune => {
                self.run("backup sqlite:app.db --repo life");
                self.run("backup sqlite:app.db --repo life --kind differential");
                self.run("verify --repo life --latest");
                "prune --repo life --confirm --grace 0s"
            }
        }
    }

    /// What the next runs find, and leave.
    fn put_right(&mut self, killed: Killed, at: &str) {
        let is_made = self.places[0].join(".fullbore/repository.json").exists();
        if is_made {
            // Before anybody has put anything right.
            let listed = self.run("list --repo life --json").json();
            let whole = listed.as_array().unwrap().iter().filter(|set| set["why_incomplete"].is_null()).count();
            if whole > 0 {
                self.run("restore --repo life --into sqlite:out/found.db");
                fs::remove_file(self.world.at("out/found.db")).unwrap();
            }
        }
        match killed {
            Killed::FirstBackup | Killed::Full => drop(self.run("backup sqlite:app.db --repo life")),
            Killed::Differential => drop(self.run("backup sqlite:app.db --repo life --kind differential")),
            Killed::Restore => {
                let half = |name: &String| name.starts_with("copy.db") && name != "copy.db";
                self.world.names("out").iter().filter(|name| half(name)).for_each(|name| {
                    fs::remove_file(self.world.at("out").join(name)).unwrap();
                });
                if self.world.at("out/copy.db").exists() {
                    database::contents(&self.world.at("out/copy.db"));
                    fs::remove_file(self.world.at("out/copy.db")).unwrap();
                }
            }
            Killed::Verify | Killed::Prune => {}
        }
        self.run("verify --repo life --latest");
        account::let_leases_end(&self.places);
        self.run("prune --repo life --confirm --grace 0s");
        let wrong = account::faults(&self.places);
        assert!(wrong.is_empty(), "{killed:?} killed before {at}: {wrong:#?}");
        if let Some(store) = &self.store {
            assert_eq!(store.uploads("media"), Vec::new(), "{killed:?} killed before {at}");
        }
        let listed = self.run("list --repo life --json").json();
        let broken = listed.as_array().unwrap().iter().find(|set| !set["why_incomplete"].is_null());
        assert!(broken.is_none(), "{killed:?} killed before {at}: {listed:#}");
        self.run("restore --repo life --into sqlite:copy.db");
        if !matches!(killed, Killed::Restore | Killed::Verify) {
            self.world.assert_copy();
        }
        fs::remove_file(self.world.at("copy.db")).unwrap();
        self.run("verify --repo life");
    }
}

/// Kills the verb at each of its steps, or at every `apart`-th.
fn kill_at_steps(mut scene: Scene, killed: Killed, apart: usize) {
    if killed != Killed::FirstBackup {
        scene.change();
        scene.run("backup sqlite:app.db --repo life");
    }
    let apart = if std::env::var_os("FULLBORE_EVERY_STEP").is_some() { 1 } else { apart };
    let mut steps = 0;
    for n in (1..).step_by(apart) {
        let line = scene.prepare(killed);
        let step = scene.killed_at(line, n);
        scene.put_right(killed, &format!("step {n}, {step:?}"));
        if step.is_none() {
            break;
        }
        steps += 1;
    }
    eprintln!(
        "{killed:?} {}: killed at {steps} steps",
        if scene.store.is_some() { "in a store" } else { "in directories" }
    );
    assert!(steps > 2, "{killed:?}: only {steps} steps");
}

mod directories {
    use super::{Killed, Scene};

    fn kill_at_steps(scene: Scene, killed: Killed, apart: usize) {
        if !crate::traced::is_allowed() {
            return crate::program::skipped(
                &format!("{killed:?} killed at its steps"),
                "no process may be traced here",
            );
        }
        super::kill_at_steps(scene, killed, apart);
    }

    #[test]
    fn a_first_backup_killed_at_a_step_is_put_right_by_the_next_run() {
        kill_at_steps(Scene::in_directories(), Killed::FirstBackup, 13);
    }

    #[test]
    fn a_full_killed_at_a_step_is_put_right_by_the_next_run() {
        kill_at_steps(Scene::in_directories(), Killed::Full, 13);
    }

    #[test]
    fn a_differential_killed_at_a_step_is_put_right_by_the_next_run() {
        kill_at_steps(Scene::in_directories(), Killed::Differential, 17);
    }

    #[test]
    fn a_restore_killed_at_a_step_is_put_right_by_the_next_run() {
        kill_at_steps(Scene::in_directories(), Killed::Restore, 7);
    }

    #[test]
    fn a_verification_killed_at_a_step_is_put_right_by_the_next_run() {
        kill_at_steps(Scene::in_directories(), Killed::Verify, 7);
    }

    #[test]
    fn a_prune_killed_at_a_step_is_put_right_by_the_next_run() {
        kill_at_steps(Scene::in_directories(), Killed::Prune, 13);
    }
}

mod object_store {
    use super::{Killed, Scene, kill_at_steps};

    #[test]
    fn a_first_backup_killed_at_a_request_is_put_right_by_the_next_run() {
        kill_at_steps(Scene::in_a_store(), Killed::FirstBackup, 11);
    }

    #[test]
    fn a_full_killed_at_a_request_is_put_right_by_the_next_run() {
        kill_at_steps(Scene::in_a_store(), Killed::Full, 9);
    }

    #[test]
    fn a_differential_killed_at_a_request_is_put_right_by_the_next_run() {
        kill_at_steps(Scene::in_a_store(), Killed::Differential, 17);
    }

    #[test]
    fn a_restore_killed_at_a_request_is_put_right_by_the_next_run() {
        kill_at_steps(Scene::in_a_store(), Killed::Restore, 9);
    }

    #[test]
    fn a_prune_killed_at_a_request_is_put_right_by_the_next_run() {
        kill_at_steps(Scene::in_a_store(), Killed::Prune, 17);
    }
}
