//! Lives of a repository in a store that fails: whatever goes wrong between us and it, what was said to be done is there, what failed leaves
//! nothing that looks whole, nothing waits for ever, and when the store is well again one prune leaves nothing that nobody accounts for.
//! `tests/campaigns/stores` lives a thousand of them. In a module of this name, so that tests with servers are found by it.

mod object_store {
    use std::collections::BTreeMap;
    use std::fs::{self, File};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use fullbore_test_servers::{Fault, FaultProxy, ObjectStore, Plan, StoreKind, StoreOptions};
    use rusqlite::Connection;

    use crate::account;
    use crate::database::{self, Shape};
    use crate::program::{self, Ended};
    use crate::world::World;

    /// Most of the waits are for the proxy: more at once than processors.
    const AT_ONCE: usize = 10;
    /// What one command may take: a few requests that each use up the four seconds of `--device-timeout`, on a busy machine.
    const DEADLINE: Duration = Duration::from_secs(300);
    /// How many things are done in a life.
    const STEPS: usize = 9;

    /// Counts of all lives together.
    type Counts = Mutex<BTreeMap<String, usize>>;

    fn count(counts: &Counts, what: impl Into<String>, times: usize) {
        *counts.lock().unwrap().entry(what.into()).or_default() += times;
    }

    /// A repository of its own in the store, a database, and what is known of both.
    struct Life<'a> {
        seed: u64,
        random: fastrand::Rng,
        world: World,
        app: Connection,
        store: &'a ObjectStore,
        places: Vec<PathBuf>,
        counts: &'a Counts,
        /// Backups that were said to be done, in order: id and kind. Of each there is a copy of the database as it was then.
        done: Vec<(String, String)>,
        steps: Vec<String>,
    }

    impl<'a> Life<'a> {
        fn begin(seed: u64, store: &'a ObjectStore, counts: &'a Counts) -> Self {
            let mut random = fastrand::Rng::with_seed(seed);
            let world = World::with_shape(Shape { rows: 100, ..Shape::default() });
            let app = crate::log::kept_open(&world);
            app.execute_batch("CREATE TABLE ledger (n INTEGER PRIMARY KEY, t TEXT)").unwrap();
            let mut to = vec![format!("{seed}/")];
            if random.bool() {
                to.push(format!("{seed}/more/"));
            }
            let urls: Vec<String> = to.iter().map(|to| format!("\"s3://media/{to}\"")).collect();
            let text = format!(
                "device-timeout = 4\nstripes = 2\n[repository.life]\nto = [{}]\n[repository.life.keep]\nlast = 2\n",
                urls.join(", ")
            );
            world.write("fullbore.toml", text.as_bytes());
            fs::create_dir(world.at("snapshots")).unwrap();
            let places = to.iter().map(|to| store.data().join("media").join(to)).collect();
            Self { seed, random, world, app, store, places, counts, done: Vec::new(), steps: Vec::new() }
        }

        /// Runs a command by way of `endpoint`. It ends before its deadline, and with one error at most.
        fn run(&mut self, endpoint: &str, line: &str) -> Ended {
            let mut command: Command = program::command(self.world.folder(), line.split_whitespace());
            command.envs(self.store.environment_at(endpoint));
            let out = |name: &str| File::create(self.world.at(name)).unwrap();
            let mut child = command.stdout(out("out")).stderr(out("err")).spawn().unwrap();
            let begun = Instant::now();
            let status = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status;
                }
                if begun.elapsed() > DEADLINE {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    panic!("{line}: not ended after {DEADLINE:?}; {}", self.told());
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            let output =
                std::process::Output { status, stdout: self.world.read("out"), stderr: self.world.read("err") };
            let ended = Ended::from(line.to_owned(), output);
            self.steps.push(format!("{line}: {}", ended.code));
            count(self.counts, "runs", 1);
            let errors = ended.err.lines().filter(|line| line.starts_with("error: ")).count();
            let expected = match ended.code {
                0 | 4 => 0,
                1 | 3 => 1,
                // No backup is done yet: the repository, or the first backup set in it, is not found.
                2 if self.done.is_empty()
                    && ["holds no repository", "holds no backup set"].iter().any(|none| ended.err.contains(none)) =>
                {
                    1
                }
                code => panic!("exit code {code}: {ended}; {}", self.told()),
            };
            assert_eq!(errors, expected, "{ended}; {}", self.told());
            assert!(expected == 0 || ended.err.contains("hint: "), "no next step: {ended}; {}", self.told());
            ended
        }

        /// The life so far, for messages.
        fn told(&self) -> String {
            format!("seed {}:\n  {}", self.seed, self.steps.join("\n  "))
        }

        /// The same, through a proxy that lets requests fail by a seed.
        fn run_faulty(&mut self, line: &str) -> Ended {
            let seed = self.random.u64(..);
            let per_cent = self.random.choice([0, 5, 10, 20, 40]).unwrap();
            let attempts = self.random.choice([2, 2, 2, 5, 1000]).unwrap();
            let mut faults: Vec<Fault> =
                Fault::each().into_iter().filter(|fault| *fault != Fault::FlipAnswer(7)).collect();
            for _ in 0..3 {
                faults.extend([
                    Fault::FlipAnswer(self.random.u64(0..3000)),
                    Fault::FlipRequest(self.random.u64(0..3000)),
                ]);
            }
            let plan = Plan::seeded(seed).per_cent(per_cent).attempts(attempts).faults(&faults);
            let proxy = FaultProxy::start(self.store.endpoint(), plan.rule());
            let ended = self.run(proxy.endpoint(), line);
            let met: Vec<String> = proxy
                .requests()
                .iter()
                .filter(|seen| seen.fault != Fault::Pass)
                .map(|seen| format!("{} {} {:?}", seen.request.operation(), seen.request.path, seen.fault))
                .collect();
            for (name, times) in proxy.counts() {
                count(self.counts, format!("fault {name}"), times);
            }
            let last = self.steps.pop().unwrap();
            self.steps.push(format!("{last} after {} faults of {}: {met:?}", met.len(), proxy.requests().len()));
            let verb = line.split(' ').next().unwrap();
            count(self.counts, format!("{verb} {}", if matches!(ended.code, 0 | 4) { "done" } else { "failed" }), 1);
            ended
        }

        /// What the database is now, under the name of the set that holds it.
        fn snapshot(&self, id: &str) {
            let path = self.world.at(&format!("snapshots/{id}.db"));
            fs::copy(self.world.at("app.db"), &path).unwrap();
            fs::copy(self.world.at("app.db-wal"), path.with_extension("db-wal")).unwrap();
            let copy = Connection::open(&path).unwrap();
            copy.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        }

        /// The restored `copy.db` is what the database was when that set was made; it goes again.
        fn assert_copy(&self, id: &str) {
            assert!(self.done.iter().any(|(done, _)| done == id), "set {id} of a failed backup; {}", self.told());
            database::assert_same_file(&self.world.at(&format!("snapshots/{id}.db")), &self.world.at("copy.db"));
            fs::remove_file(self.world.at("copy.db")).unwrap();
        }

        fn back_up(&mut self, kind: &str) {
            let statement = format!(
                "INSERT INTO ledger SELECT NULL, hex(randomblob({})) FROM item LIMIT 20",
                self.random.u64(10..600)
            );
            self.app.execute_batch(&statement).unwrap();
            let before = account::commit_records(&self.places);
            let ended = self.run_faulty(&format!("backup sqlite:app.db --repo life --kind {kind} --report json"));
            if matches!(ended.code, 0 | 4) {
                let report = ended.json();
                let id = report["backup_set_id"].as_str().unwrap().to_owned();
                self.snapshot(&id);
                self.done.push((id, kind.to_owned()));
                assert_eq!(account::commit_records(&self.places).len(), before.len() + 1, "{}", self.told());
            } else {
                let after = account::commit_records(&self.places);
                assert_eq!(after, before, "a failed backup left a commit record: {ended}\n{}", self.told());
            }
        }

        fn restore(&mut self) {
            let ended = self.run_faulty("restore --repo life --into sqlite:copy.db --report json");
            if matches!(ended.code, 0 | 4) {
                self.assert_copy(ended.json()["backup_set_id"].as_str().unwrap());
            }
            self.world.assert_no_copy();
        }

        fn step(&mut self, first: bool) {
            let weights = [4, 3, 3, 4, 3, 3, 5, 1, 1, 1, 1, 1];
            let mut chosen = if first { 1 } else { self.random.usize(0..weights.iter().sum()) };
            let at = weights.iter().position(|&weight| {
                chosen < weight || {
                    chosen -= weight;
                    false
                }
            });
            match at.unwrap() {
                0 => self.back_up("auto"),
                _ if first => self.back_up("full"),
                1 => self.back_up("full"),
                2 => self.back_up("differential"),
                3 => self.back_up("log"),
                4 => drop(self.run_faulty("verify --repo life --latest")),
                5 => self.restore(),
                6 => drop(self.run_faulty("prune --repo life --confirm --grace 0s --json")),
                7 => drop(self.run_faulty("restore-test --repo life --scratch b")),
                8 => drop(self.run_faulty("check --repo life --max-age 1h")),
                9 => drop(self.run_faulty("tasks --repo life --json")),
                10 => drop(self.run_faulty("list --repo life --json")),
                _ => drop(self.run_faulty("catalog rebuild --repo life")),
            }
            assert_eq!(self.world.names("b"), Vec::<String>::new(), "a test restore left something; {}", self.told());
        }

        /// The store is well again, and the hosts of runs that have not ended are dead.
        fn end(&mut self) {
            let endpoint = self.store.endpoint().to_owned();
            let well = |life: &mut Self, line: &str| {
                // On a busy machine an answer may take longer than the second that a try has with the life's own four.
                let ended = life.run(&endpoint, &format!("--device-timeout 60 {line}"));
                assert!(matches!(ended.code, 0 | 4), "{ended}; {}", life.told());
                ended
            };
            if self.places.iter().all(|place| !place.join(".fullbore/repository.json").exists()) {
                assert!(self.done.is_empty(), "{}", self.told());
                self.back_up_well();
            }
            let dead = account::let_leases_end(&self.places);
            count(self.counts, "runs that never said their end", dead);
            well(self, "prune --repo life --confirm --grace 0s");
            let wrong = account::faults(&self.places);
            assert!(wrong.is_empty(), "{wrong:#?}\n{}", self.told());
            let prefix = format!("{}/", self.seed);
            let uploads: Vec<_> =
                self.store.uploads("media").into_iter().filter(|(key, _)| key.starts_with(&prefix)).collect();
            assert!(uploads.is_empty(), "{uploads:?} {}", self.told());
            let listed = well(self, "list --repo life --json").json();
            let listed = listed.as_array().unwrap();
            for set in listed {
                assert!(set["why_incomplete"].is_null() && set["tombstone"] == false, "{set} {}", self.told());
                let id = set["backup_set_id"].as_str().unwrap();
                well(self, &format!("restore --repo life --set {id} --into sqlite:copy.db"));
                self.assert_copy(id);
                count(self.counts, "sets restored in the end", 1);
            }
            let is_there = |id: &str| listed.iter().any(|set| set["backup_set_id"] == id);
            let backups = self.done.iter().filter(|(_, kind)| kind != "log").rev().take(2);
            for (id, _) in self.done.last().into_iter().chain(backups) {
                assert!(is_there(id), "{id} is gone, and was to be kept: {}", self.told());
            }
            count(self.counts, "backups that were done", self.done.len());
        }

        /// What was never made is made now.
        fn back_up_well(&mut self) {
            let endpoint = self.store.endpoint().to_owned();
            let ended =
                self.run(&endpoint, "--device-timeout 60 backup sqlite:app.db --repo life --report json").done();
            let id = ended.json()["backup_set_id"].as_str().unwrap().to_owned();
            self.snapshot(&id);
            self.done.push((id, "full".into()));
        }
    }

    fn live(seed: u64, store: &ObjectStore, counts: &Counts) {
        let mut life = Life::begin(seed, store, counts);
        (0..STEPS).for_each(|step| life.step(step == 0));
        life.end();
        count(counts, "lives", 1);
        let lives = counts.lock().unwrap()["lives"];
        if lives.is_multiple_of(100) {
            program::tell(&format!("{lives} lives so far, this was seed {seed}: {:#?}", counts.lock().unwrap()));
        }
        fs::remove_dir_all(&life.places[0]).unwrap();
    }

    #[test]
    fn a_repository_in_a_store_that_fails_loses_nothing_and_keeps_nothing_that_nobody_accounts_for() {
        let seeds = std::env::var("FULLBORE_STORE_LIVES").unwrap_or_else(|_| "0..6".into());
        let (from, to) = seeds.split_once("..").unwrap();
        let (next, to) = (AtomicU64::new(from.parse().unwrap()), to.parse::<u64>().unwrap());
        let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
        store.make_bucket("media");
        let (counts, failed) = (Counts::default(), Mutex::new(Vec::new()));
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&seed| seed < to) {
                        if catch_unwind(AssertUnwindSafe(|| live(seed, &store, &counts))).is_err() {
                            failed.lock().unwrap().push(seed);
                        }
                    }
                });
            }
        });
        let failed = failed.into_inner().unwrap();
        // Of a campaign these are the result.
        let took = begun.elapsed().as_secs_f64();
        program::tell(&format!("seeds {seeds} in {took:.0} s: {:#?}", counts.lock().unwrap()));
        assert!(failed.is_empty(), "seeds {failed:?} failed: what they say stands above");
    }
}
