//! How the program is called: places without a flag, a repository from the environment, one JSON object for each verb.

use serde_json::Value;

use crate::program::{self, Ended};
use crate::world::World;

fn world() -> World {
    let world = World::with_database();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    world
}

/// Runs `fullbore LINE` with FULLBORE_REPO.
fn with_repository(world: &World, line: &str) -> Ended {
    let mut command = program::command(world.folder(), line.split_whitespace());
    command.env("FULLBORE_REPO", "night");
    program::run(command)
}

#[test]
fn places_need_no_flag_and_both_forms_can_be_mixed() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/ --to b/").done();
    for line in ["verify a b", "verify --from a b", "list a b", "inspect header a b", "inspect files a --from b"] {
        world.run(line).done();
    }
    assert!(world.run("list a").with_code(4).text().contains(" incomplete "), "half of the set");
    world.run("inspect label a b").done();
    for line in ["verify", "list", "inspect header"] {
        world.run(line).with_code(2).says(&["PLACE"]);
    }
    world.run("verify a --repo night").with_code(2).says(&["cannot be used with"]);
    world.run("help backup").done();
    world.run("inspect --help").done();
}

#[test]
fn the_environment_names_the_repository_where_the_line_names_neither_it_nor_places() {
    let world = world();
    assert!(with_repository(&world, "backup sqlite:app.db").done().text().contains(" to a/ "));
    for line in ["list", "verify", "tasks", "check", "restore --into sqlite:copy.db", "prune --keep-last 1"] {
        let ended = with_repository(&world, line);
        assert!([0, 4].contains(&ended.code), "{ended}");
        world.run(line).with_code(2).says(&["--repo"]);
    }
    with_repository(&world, "verify --").done();
    with_repository(&world, "backup sqlite:app.db --to b/").done();
    assert_eq!(with_repository(&world, "list b").done().text().lines().count(), 2, "the line wins");
    with_repository(&world, "restore").with_code(2).says(&["--into <TARGET>"]);
    with_repository(&world, "copy --to b/").done();
}

#[test]
fn every_listing_writes_an_object_to_standard_output_or_into_a_file() {
    let world = world();
    world.run("backup sqlite:app.db --repo night").done();
    let tasks = world.run("tasks --repo night --json").done().json();
    let task = format!("task {} --repo night", tasks[0]["task"].as_str().unwrap());
    for (line, command, listed) in [
        ("list --repo night", "list", "sets"),
        ("list a", "list", "sets"),
        ("inspect header a", "inspect header", "sets"),
        ("inspect label a", "inspect label", "sets"),
        ("inspect files a", "inspect files", "manifests"),
        ("tasks --repo night", "tasks", "tasks"),
        (task.as_str(), "task", "task"),
        ("check --repo night", "check", "databases"),
        ("prune --repo night --keep-last 1", "prune", "sets"),
    ] {
        let short = world.run(&format!("{line} --json"));
        let object = short.object();
        assert_eq!((&object["schema_version"], &object["command"]), (&1.into(), &command.into()), "{short}");
        assert!(!object[listed].is_null(), "{short}");
        world.run(&format!("{line} --report json:r.json"));
        let written: Value = serde_json::from_slice(&world.read("r.json")).unwrap();
        let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&written), keys(&object), "{line}");
        world.run(&format!("{line} --json --report json")).with_code(2);
    }
    let before = world.read("app.db");
    world.run("list a --report json:app.db").refused(2, "app.db", "is not a report");
    assert_eq!(world.read("app.db"), before);
}

#[test]
fn key_and_bench_write_an_object_too_and_no_secret() {
    let world = world();
    let made = world.run("key new --no-recovery k.key --json").done();
    let object = made.object();
    assert_eq!((&object["command"], &object["schema_version"]), (&"key new".into(), &1.into()), "{made}");
    assert_eq!((&object["secret_file"], &object["public_file"]), (&"k.key".into(), &"k.key.pub".into()), "{made}");
    assert!(object["key_id"].as_str().unwrap().len() == 32 && object["recovery_key_id"].is_null(), "{made}");
    let new = world.run("key new --recovery k.key.pub new.key --json").done().object();
    assert_eq!(new["recovery_key_id"], object["key_id"]);
    world.run("backup sqlite:app.db --to a/ --encrypt-to k.key.pub").done();
    let rewrapped = world.run("key rewrap --from a --key k.key --encrypt-to new.key.pub --json").done().object();
    assert!(rewrapped["sidecars"][0].as_str().unwrap().ends_with(".borekeys"), "{rewrapped}");
    world.write("m.toml", crate::bench_matrix::SMALL.as_bytes());
    let planned = world.run("bench m.toml --dry-run --json").done().object();
    assert!(planned["command"] == "bench" && planned["planned"] == true, "{planned}");
    assert!(planned["runs"].as_u64().unwrap() > 0 && planned["failed"] == 0, "{planned}");
}

#[test]
fn a_report_has_the_hint_in_a_field_of_its_own() {
    let world = World::with_database();
    let report = world.run("verify nowhere --json").with_code(2).object();
    let text = |name: &str| report[name].as_str().unwrap().to_owned();
    assert!(text("error").contains("nowhere") && !text("error").contains("hint"), "{report:#}");
    assert!(text("hint").contains("not mounted"), "{report:#}");
}

#[test]
fn quiet_listings_print_only_what_is_not_good() {
    let world = world();
    world.run("backup sqlite:app.db --repo night").done();
    for line in ["check --repo night -q", "list --repo night -q", "tasks --repo night -q", "list a -q"] {
        let ended = world.run(line).done();
        assert_eq!((ended.text().as_str(), ended.err.as_str()), ("", ""), "{line}");
    }
    assert_eq!(world.run("list --repo night --state incomplete").done().text().lines().count(), 1, "the heads");
    let family = world.names("a").into_iter().find(|name| name.ends_with(".bore")).unwrap();
    std::fs::remove_file(world.at(&format!("a/{family}"))).unwrap();
    let listed = world.run("list --repo night -q").with_code(4).text();
    assert!(listed.contains(" incomplete ") && listed.lines().count() == 2, "{listed}");
    assert!(world.run("check --repo night -q").with_code(1).text().contains("not good"));
}

#[test]
fn a_list_has_the_code_for_warnings_when_the_last_verification_found_damage() {
    let world = world();
    world.run("backup sqlite:app.db --repo night").done();
    let family = world.names("a").into_iter().find(|name| name.ends_with(".bore")).unwrap();
    let good = world.read(&format!("a/{family}"));
    let mut bytes = good.clone();
    bytes[good.len() / 2] ^= 1;
    world.write(&format!("a/{family}"), &bytes);
    world.run("verify --repo night").with_code(3);
    for line in ["list --repo night", "list --repo night -q"] {
        let listed = world.run(line).with_code(4).says(&["the last verification, at 20", "found damage"]);
        assert!(listed.text().contains(" failed 20"), "{listed}");
    }
    world.write(&format!("a/{family}"), &good);
    world.run("verify --repo night").done();
    world.run("list --repo night -q").done();
}

#[test]
fn a_throttle_slows_what_reads_media() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/ --compression none").done();
    let stored: u64 = world.names("a").iter().map(|name| world.read(&format!("a/{name}")).len() as u64).sum();
    for line in ["verify a", "restore --from a --into sqlite:copy.db"] {
        let begun = std::time::Instant::now();
        let report = world.run(&format!("{line} --throttle 1MiB/s --json")).done().object();
        let least = stored as f64 / f64::from(1 << 20) * 0.6;
        assert!(begun.elapsed().as_secs_f64() > least, "{line}: {:?} for {stored} bytes", begun.elapsed());
        assert_eq!(report["verdict"]["limit"], "throttle", "{line}: {report:#}");
    }
    world.assert_copy();
    world.run("verify a --throttle 5").refused(2, "--throttle", "has no unit");
}

#[test]
fn what_a_command_names_and_does_not_exist_has_one_exit_code_in_every_verb() {
    let world = world();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n[repository.off]\nto = [\"off/\"]\n");
    world.run("backup sqlite:app.db --repo night").done();
    world.run("key new --no-recovery k.key").done();
    std::fs::create_dir(world.at("empty")).unwrap();
    for verb in [
        "list",
        "list --catalog",
        "verify",
        "restore --into sqlite:copy.db",
        "restore-test --scratch empty",
        "check",
        "prune --keep-last 1",
        "prune --keep-last 1 --confirm",
        "tasks",
        "task 0123",
        "cancel 0123",
        "copy --to b/",
        "catalog rebuild",
        "backup sqlite:app.db",
        "log follow sqlite:app.db --for 1s",
    ] {
        // A configured repository, and a place: both directories are missing. And a name that is not configured.
        for repository in ["off", "off/", "nigthly"] {
            world.run(&format!("{verb} --repo {repository}")).with_code(2).says(&["error: ", "hint: "]);
        }
    }
    for reading in ["list", "verify", "inspect header", "inspect files", "restore --into sqlite:copy.db --from"] {
        for place in ["off", "off/", "off/x.bore", "off/*", "empty"] {
            world.run(&format!("{reading} {place}")).with_code(2).says(&["error: ", "hint: "]);
        }
    }
    for line in [
        "verify --repo empty/",
        "verify --repo night --set 00112233",
        "verify a --set 00112233",
        "list --repo night --database foo",
        "check --repo night --database foo",
        "task 0011 --repo night",
        "list a --config off.toml",
        "verify a --key off.key",
        "key rewrap --from a --key k.key --encrypt-to k.key.pub",
        "key new --no-recovery off/k.key",
        "backup sqlite:off.db --to a/",
        "backup sqlite:app.db --to off/",
        "backup sqlite:app.db --to b/ --encrypt-to off.pub",
        "backup sqlite:app.db --to b/ --kind differential --base off",
        "backup sqlite:app.db --to b/ --profile off",
        "copy --from a --to off/",
        "restore --from a --into sqlite:off/copy.db",
        "restore-test --repo night --scratch off",
        "calibrate --read off.db",
        "bench off.toml",
        "check --repo night --metrics off/metrics",
        "verify a --report json:off/report.json",
    ] {
        world.run(line).with_code(2).says(&["error: ", "hint: "]);
    }
    // A URL in the place of a name.
    let told = world.run("check --repo night --database mysql://u:s3cret@h").with_code(2).err;
    assert!(told.contains("u:***@h") && !told.contains("s3cret"), "{told}");
}
