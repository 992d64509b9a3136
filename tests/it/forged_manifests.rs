//! Manifests that would take very much memory: each is read, or refused, in little of it, and harms no other set.

use crate::database::Shape;
use crate::forge::{forge, manifest_of, set_manifest};
use crate::program::{self, Ended};
use crate::world::World;

/// KiB of address space: 1 GiB. The worst manifest that the format allows stays below it in every verb.
const LIMIT_KIB: usize = 1 << 20;
const MIB: usize = 1 << 20;

fn limited(world: &World, line: &str) -> Ended {
    let script = format!("ulimit -v {LIMIT_KIB}; exec {} {line}", env!("CARGO_BIN_EXE_fullbore"));
    let mut command = std::process::Command::new("sh");
    program::surroundings(&mut command, world.folder());
    // Each thread has an arena of 64 MiB of addresses otherwise, used or not.
    command.env("MALLOC_ARENA_MAX", "1").args(["-c", &script]);
    program::run(command)
}

fn world() -> World {
    World::with_shape(Shape { rows: 150, ..Shape::default() })
}

/// The manifest of `one.bore`, with `"HERE"` where something else shall stand.
fn marked(world: &World, name: &str, mark: impl FnOnce(&mut serde_json::Value)) -> String {
    let mut json = String::new();
    forge(world, &[name], None, |families| {
        let mut manifest = manifest_of(families);
        mark(&mut manifest);
        json = manifest.to_string();
    });
    assert!(json.contains("\"HERE\""));
    json
}

/// Things that take far more memory than text, each in so many bytes of a list.
fn lists(bytes: usize) -> Vec<String> {
    let list = |item: &str| format!("[{}{item}]", format!("{item},").repeat(bytes / (item.len() + 1)));
    ["{\"\":0}", "0", "[]", "\"\"", "{\"\":{\"\":{\"\":[0]}}}"].map(list).to_vec()
}

fn attacks() -> Vec<(&'static str, Vec<String>)> {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let mut of_position = lists(16 * MIB - 1000);
    of_position.extend(lists(60 * MIB).into_iter().take(1));
    of_position.push(deep(MIB));
    vec![
        ("position", of_position),
        ("warnings", vec![lists(40 * MIB).swap_remove(3)]),
        ("streams", vec![lists(20 * MIB).swap_remove(0)]),
    ]
}

#[test]
fn a_manifest_that_would_take_gigabytes_is_refused_in_little_memory() {
    let world = world();
    world.run("backup sqlite:app.db --to one.bore").done();
    let original = world.read("one.bore");
    for (place, values) in attacks() {
        let json = marked(&world, "one.bore", |manifest| match place {
            "position" => manifest["position"]["last"] = "HERE".into(),
            place => manifest[place] = "HERE".into(),
        });
        for value in values {
            let json = json.replace("\"HERE\"", &value);
            forge(&world, &["one.bore"], None, |families| set_manifest(families, &json));
            let what = format!("{}… in {place}", &value[..20]);
            for line in ["inspect files", "verify", "restore --into sqlite:copy.db"] {
                let ended = limited(&world, &format!("{line} --from one.bore"));
                assert_eq!(ended.code, 3, "{what}: {ended}");
                assert!(ended.err.contains("manifest"), "{what}: {ended}");
            }
            world.assert_no_copy();
            world.write("one.bore", &original);
        }
    }
}

#[test]
fn the_largest_manifest_that_is_allowed_is_read_in_little_memory() {
    let world = world();
    world.run("backup sqlite:app.db --to one.bore").done();
    // As many values in each position as there may be, and a member that nobody knows for the rest.
    let json = marked(&world, "one.bore", |manifest| {
        for part in ["first", "checkpoint", "last"] {
            manifest["position"][part]["more"] = "HERE".into();
        }
        manifest["unknown"] = "ELSE".into();
    });
    let json = json.replace("\"HERE\"", &format!("[{}0]", "{\"\":0},".repeat((1 << 17) - 100)));
    let rest = (64 * MIB - json.len() - 100) / 7;
    let json = json.replace("\"ELSE\"", &format!("[{}0]", "{\"\":0},".repeat(rest)));
    assert!((63 * MIB..64 * MIB).contains(&json.len()));
    forge(&world, &["one.bore"], None, |families| set_manifest(families, &json));
    for line in ["list", "inspect files", "verify", "restore --into sqlite:copy.db"] {
        let ended = limited(&world, &format!("{line} --from one.bore"));
        assert_eq!((ended.code, ended.err.contains("error")), (0, false), "{line}: {}", ended.err);
    }
    world.assert_copy();
    let json = json.replace("\"unknown\":", &format!("\"unknown\":\"{}\",\"more\":", "x".repeat(MIB)));
    forge(&world, &["one.bore"], None, |families| set_manifest(families, &json));
    let ended = limited(&world, "verify --from one.bore");
    assert!(ended.code == 3 && ended.err.contains("manifest out of bounds"), "{ended}");
}

#[test]
fn a_hostile_family_in_a_repository_is_named_and_harms_no_other_set() {
    let world = world();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    world.run("backup sqlite:app.db --repo night").done();
    world.run("backup sqlite:app.db --repo night").done();
    world.run("backup sqlite:app.db --to hostile.bore").done();
    let json = marked(&world, "hostile.bore", |manifest| manifest["position"]["last"] = "HERE".into());
    let json = json.replace("\"HERE\"", &format!("[{}0]", "{\"\":0},".repeat(2 * MIB)));
    forge(&world, &["hostile.bore"], None, |families| set_manifest(families, &json));
    std::fs::rename(world.at("hostile.bore"), world.at("a/hostile.bore")).unwrap();
    let lines = [
        "list --repo night",
        "check --repo night",
        "restore --repo night --into sqlite:copy.db",
        "catalog rebuild --repo night",
    ];
    for line in lines {
        let ended = limited(&world, line);
        assert!([0, 4].contains(&ended.code), "{ended}");
        assert!(line.starts_with("catalog") || ended.err.contains("hostile.bore"), "{line}: {ended}");
    }
    world.assert_copy();
    world.run("list --repo night --json").with_code(4);
    let sets = world.run("list --repo night --json").json().as_array().unwrap().len();
    assert_eq!(sets, 2);
    // A set whose position fits into no record is listed, and restored, all the same.
    let json = json.replacen("\"\":0", &format!("\"{}\":0", "x".repeat(2 * MIB)), 1);
    let json = format!("{}0]{}", &json[..json.find("{\"\":0},").unwrap()], &json[json.rfind(",0]").unwrap() + 3..]);
    forge(&world, &["a/hostile.bore"], None, |families| set_manifest(families, &json));
    let sets = limited(&world, "list --repo night --json").done().json();
    assert_eq!(sets.as_array().unwrap().len(), 3, "{sets}");
}
