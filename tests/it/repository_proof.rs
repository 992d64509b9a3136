//! What a verdict is worth: it is about what was read, and prune looks once more at what takes the place of that which goes.

use std::fs;

use fullbore_test_servers::wait_until;
use serde_json::{Value, json};

use crate::database::{self, Shape};
use crate::program::{self, Ended};
use crate::world::{World, one_tick, write_over};

fn world(shape: Shape) -> World {
    let world = World::with_shape(shape);
    world.write(
        "fullbore.toml",
        b"compression = \"none\"\n[repository.night]\nto = [\"a/\"]\n[repository.night.keep]\nlast = 1\n",
    );
    world
}

fn small() -> World {
    world(Shape { rows: 150, ..Shape::default() })
}

/// A full; its id.
fn full(world: &World) -> String {
    let made = world.run("backup sqlite:app.db --repo night --report json").done().json();
    made["backup_set_id"].as_str().unwrap().to_owned()
}

fn prune(world: &World) -> Ended {
    world.run("prune --repo night --confirm --grace 0s --json")
}

fn is_there(world: &World, id: &str) -> bool {
    world.at(&format!("a/.fullbore/sets/{id}.json")).exists()
}

fn flip_a_byte(path: &std::path::Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[20_000] ^= 1;
    fs::write(path, bytes).unwrap();
}

/// Whichever part of the run the change falls into: before it is read, after that, or after the verdict.
#[test]
fn a_family_that_changes_while_it_is_judged_proves_nothing() {
    for line in ["verify --repo night --latest", "restore-test --repo night --scratch b"] {
        let world = world(Shape { rows: 120_000, ..Shape::default() });
        let (old, new) = (full(&world), full(&world));
        let family = world.first_family("a", &new);
        let length = fs::metadata(&family).unwrap().len();
        // What the kernel reads for it by a ring is in no account.
        let mut command = program::command(world.folder(), line.split_whitespace());
        let judging = program::start({
            command.env("FULLBORE_IO", "blocking");
            command
        });
        let read = || {
            let of_it =
                |name: &str| fs::read_to_string(format!("/proc/{}/{name}", judging.child.id())).unwrap_or_default();
            let bytes = of_it("io").lines().find_map(|line| line.strip_prefix("rchar: ")?.parse::<u64>().ok());
            bytes.is_some_and(|bytes| bytes > length / 2) || of_it("stat").contains(") Z ")
        };
        wait_until("half of it is read, or it has ended", read);
        judging.stop();
        one_tick();
        flip_a_byte(&family);
        judging.go_on();
        let ended = judging.wait();
        // 0: it had ended already.
        assert!([0, 3].contains(&ended.code), "{ended}");
        prune(&world);
        assert!(is_there(&world, &old), "{line}: the newest set is damaged\n{ended}");
    }
}

#[test]
fn damage_right_behind_a_verdict_takes_it_back() {
    for line in ["verify --repo night --latest", "restore-test --repo night --scratch b"] {
        let world = small();
        let (old, new) = (full(&world), full(&world));
        world.run(line).done();
        one_tick();
        flip_a_byte(&world.first_family("a", &new));
        prune(&world).with_code(4).says(&["none of its chains is verified"]);
        assert!(is_there(&world, &old), "{line}");
    }
}

#[test]
fn a_verdict_says_when_its_reading_began_and_one_that_does_not_still_counts() {
    let world = small();
    let (old, new) = (full(&world), full(&world));
    world.run("verify --repo night --latest").done();
    let name = world.names("a/.fullbore/verdicts").remove(0);
    let parts: Vec<&str> = name.split('.').collect();
    let [id, time, "passed", began, "json"] = parts[..] else { panic!("{name}") };
    assert!(id == new && began.parse::<i64>().unwrap() <= time.parse::<i64>().unwrap(), "{name}");
    // As earlier versions wrote it.
    let folder = world.at("a/.fullbore/verdicts");
    let of_earlier = folder.join(format!("{id}.{time}.passed.json"));
    fs::rename(folder.join(&name), &of_earlier).unwrap();
    prune(&world).done();
    assert!(!is_there(&world, &old));
    // One that was begun before its family was written is about something else.
    let before = began.parse::<i64>().unwrap() - 60_000_000;
    fs::rename(of_earlier, folder.join(format!("{id}.{time}.passed.{before}.json"))).unwrap();
    let listed = world.run("list --repo night --json").json();
    assert!(listed[0]["verified_at"].is_null(), "{listed}");
}

#[test]
fn prune_checks_a_replacement_before_it_removes_the_replaced_sets() {
    type Exchange<'a> = &'a dyn Fn(&World, &[String]) -> Vec<u8>;
    let exchanges: [(&str, Exchange<'_>); 4] = [
        ("zeroed", &|world, ids| vec![0; world.first_family("a", &ids[2]).metadata().unwrap().len() as usize]),
        ("without its head", &|world, ids| {
            let mut bytes = fs::read(world.first_family("a", &ids[2])).unwrap();
            bytes[..4096].fill(0);
            bytes
        }),
        ("without its end", &|world, ids| {
            let mut bytes = fs::read(world.first_family("a", &ids[2])).unwrap();
            let end = bytes.len() - 4096;
            bytes[end..].fill(0);
            bytes
        }),
        ("another set's", &|world, ids| fs::read(world.first_family("a", &ids[0])).unwrap()),
    ];
    for (what, exchange) in exchanges {
        let world = small();
        let ids: Vec<String> = (0..3).map(|_| full(&world)).collect();
        world.run("verify --repo night").done();
        let family = world.first_family("a", &ids[2]);
        let bytes = exchange(&world, &ids);
        assert_eq!(bytes.len() as u64, family.metadata().unwrap().len(), "{what}");
        write_over(&family, &bytes);
        let planned = world.run("prune --repo night --json").with_code(4).says(&[&ids[2], "was verified, but cannot"]);
        assert!(planned.err.matches("was verified, but cannot").count() == 1, "{planned}");
        let pruned = prune(&world).with_code(4);
        assert_eq!(pruned.json()["deleted"], json!([ids[0]]), "{what}: the one before is verified as well");
        assert!(is_there(&world, &ids[1]) && is_there(&world, &ids[2]), "{what}");
    }
}

#[test]
fn prune_checks_the_bases_of_a_proving_set_and_needs_no_key_for_encrypted_ones() {
    let world = small();
    world.run("key new app.key --no-recovery").done();
    let back_up = |kind: &str| {
        database::sql(&world.at("app.db"), &format!("CREATE TABLE {kind}_{} AS SELECT 1 AS n", world.names("a").len()));
        let keys = "--encrypt-to app.key.pub --key app.key";
        let line = format!("backup sqlite:app.db --repo night {keys} --kind {kind} --report json");
        world.run(&line).done().json()["backup_set_id"].as_str().unwrap().to_owned()
    };
    let (old, base, _) = (back_up("full"), back_up("full"), back_up("differential"));
    world.run("verify --repo night --key app.key").done();
    let family = world.first_family("a", &base);
    let mut bytes = fs::read(&family).unwrap();
    let end = bytes.len() - 4096;
    bytes[end..].fill(0);
    let whole = fs::read(&family).unwrap();
    write_over(&family, &bytes);
    prune(&world).with_code(4).says(&[&base, "was verified, but cannot"]);
    assert!(is_there(&world, &old));
    write_over(&family, &whole);
    prune(&world).done();
    assert!(!is_there(&world, &old));
}

#[test]
fn a_forged_record_of_a_run_does_not_make_a_committed_set_a_leftover() {
    for lost in
        [&["decisions"][..], &["decisions", "sets"], &["decisions", "verdicts"], &["decisions", "sets", "verdicts"]]
    {
        let world = small();
        full(&world);
        let new = full(&world);
        world.run("verify --repo night --latest").done();
        let family = world.first_family("a", &new);
        let records = world.names("a/.fullbore/tasks").into_iter().map(|name| world.at("a/.fullbore/tasks").join(name));
        for path in records {
            let mut record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            if record["writes"] == json!(new) {
                (record["state"], record["ended_at"]) = ("IN_PROGRESS".into(), Value::Null);
                record["lease_s"] = 0.into();
                fs::write(&path, record.to_string()).unwrap();
            }
        }
        for folder in lost {
            fs::remove_dir_all(world.at(&format!("a/.fullbore/{folder}"))).unwrap();
        }
        one_tick();
        let pruned = prune(&world);
        assert!([0, 4].contains(&pruned.code) && family.exists() && is_there(&world, &new), "{lost:?}: {pruned}");
        assert!(pruned.json()["dead_runs"].to_string().contains("it had committed its set"), "{pruned}");
        world.run(&format!("verify --repo night --set {new}")).done();
    }
}
