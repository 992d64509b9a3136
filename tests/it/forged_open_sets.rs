//! Open sets whose checksums are all right and whose names, runs and sizes are not. They are made of golden media.

use std::fs;

use fullbore_core::media::{BlockKind, Run, RunKind};
use serde_json::{Value, json};

use crate::forge::{ForgedFamily, forge, manifest_of, set_manifest};
use crate::golden_servers::with_media;
use crate::world::World;

const FAMILIES: [&str; 2] = ["a/mariadb-1.bore", "a/mariadb-2.bore"];
const FROM: &str = "--from a/mariadb-1.bore --from a/mariadb-2.bore";

/// Changes the manifest of the set.
fn with_manifest(world: &World, change: impl FnOnce(&mut Value)) {
    forge(world, &FAMILIES, None, |families| {
        let mut manifest = manifest_of(families);
        change(&mut manifest);
        set_manifest(families, &manifest.to_string());
    });
}

fn names(world: &World) -> Vec<String> {
    let manifests = world.run(&format!("inspect files --json {FROM}")).json();
    let streams = manifests[0]["streams"].as_array().unwrap().clone();
    streams.iter().map(|stream| stream["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn names_that_no_restore_takes_are_refused_by_every_reader() {
    let world = with_media();
    let original = FAMILIES.map(|name| world.read(name));
    let known = names(&world);
    let (first, below) = (known[0].clone(), format!("{}/x", known[0]));
    let long = ["x".repeat(256), format!("{}x", "abc/".repeat(1024))];
    let bad = [
        "../x",
        "/abs",
        "a\0b",
        "a/./b",
        "a//b",
        ".",
        "..",
        "a/",
        "ddl_recovery.log",
        "ddl_recovery.log/x",
        &long[0],
        &long[1],
        &first,
        &below,
    ];
    for name in bad {
        with_manifest(&world, |manifest| manifest["streams"][1]["name"] = name.into());
        let shown: String = name.chars().take(30).collect();
        for line in ["verify", "inspect files", "restore --into dir:copy", "restore --into nul:"] {
            let ended = world.run(&format!("{line} {FROM}")).with_code(3);
            assert!(ended.err.contains("manifest"), "{shown:?}: {ended}");
        }
        assert!(!world.at("copy").exists(), "{shown:?}");
        for (name, bytes) in FAMILIES.iter().zip(&original) {
            world.write(name, bytes);
        }
    }
    world.run(&format!("verify {FROM}")).done();
}

#[test]
fn a_run_far_beyond_the_end_of_its_file_is_cut_off() {
    let world = with_media();
    let line = |to: &str| format!("restore {FROM} --into dir:{to}");
    world.run(&line("honest")).done();
    let streams = world.run(&format!("inspect files --json {FROM}")).json()[0]["streams"].clone();
    let unmapped = |id: u32| {
        let of_id = |stream: &&Value| stream["id"] == id;
        streams
            .as_array()
            .unwrap()
            .iter()
            .find(of_id)
            .is_some_and(|stream| stream["map_window"] == 0 && stream["name"] != "")
    };
    forge(&world, &FAMILIES, None, |families: &mut [ForgedFamily]| {
        let mut blocks = families.iter_mut().flat_map(|family| family.of(BlockKind::Data));
        let block = blocks.find(|block| unmapped(block.header.stream)).expect("a file without a page map");
        block.runs.push(Run { offset: 1 << 61, length: 4096, kind: RunKind::Data });
        block.plain.extend([7; 4096]);
    });
    world.run(&format!("verify {FROM}")).done();
    world.run(&line("copy")).done();
    let same =
        std::process::Command::new("diff").arg("-r").arg(world.at("honest")).arg(world.at("copy")).output().unwrap();
    assert!(same.status.success(), "{same:?}");
}

#[test]
fn sizes_that_no_number_holds_together_are_not_taken_for_a_small_sum() {
    let world = with_media();
    with_manifest(&world, |manifest| {
        let named = manifest["streams"].as_array_mut().unwrap().iter_mut().filter(|stream| stream["name"] != "");
        for stream in named.take(5) {
            stream["size"] = (1_u64 << 62).into();
            stream["map_window"] = 0.into();
        }
    });
    let listed = world.run(&format!("list --json {FROM}")).json();
    assert_eq!(listed[0]["database_bytes"], u64::MAX, "{listed}");
    let refused = world.run(&format!("restore {FROM} --into dir:copy")).with_code(1);
    assert!(refused.err.contains("16") && refused.err.contains("EiB") || refused.err.contains("need"), "{refused}");
    assert!(!world.at("copy").exists());
}

#[test]
fn a_set_of_65_535_files_is_read_in_every_way() {
    let world = with_media();
    with_manifest(&world, |manifest| {
        let streams = manifest["streams"].as_array_mut().unwrap();
        let used: Vec<u64> = streams.iter().map(|stream| stream["id"].as_u64().unwrap()).collect();
        streams.extend((1..=65_535_u64).filter(|id| !used.contains(id)).map(|id| {
            json!({ "id": id, "name": format!("shop_of_many/orders_of_a_long_year_{id}#P#p2026_11.ibd"), "layer": 0, "unit": 16384,
                "map_window": 0, "size": 0, "identity": format!("{id}"), "detail": { "fsp_flags": 21 } })
        }));
        let file = json!({ "path": "shop/a.ibd", "was": "/mnt/fast/shop/a.ibd" });
        for part in ["first", "checkpoint", "last"] {
            manifest["position"][part]["outside_the_data_directory"] = vec![file.clone(); 60_000].into();
        }
    });
    assert_eq!(names(&world).len(), 65_535);
    world.run(&format!("list {FROM}")).done();
    world.run(&format!("verify {FROM}")).done();
    world.run(&format!("restore {FROM} --into nul:")).done();
}

#[test]
fn place_outside_makes_no_file_but_one_under_the_name_of_its_table_and_names_it() {
    let world = with_media();
    let table = names(&world).into_iter().find(|name| name.ends_with("item.ibd")).expect("a table");
    let outside = |was: &std::path::Path| {
        let file = json!([{ "path": table, "was": was.display().to_string() }]);
        with_manifest(&world, |manifest| manifest["position"]["last"]["outside_the_data_directory"] = file);
    };
    fs::create_dir(world.at("jail")).unwrap();
    outside(&world.at("jail/evil.cron"));
    let line = format!("restore {FROM} --into dir:copy --place-outside --mkdir");
    world.run(&line).with_code(3).says(&["evil.cron", "not a valid pair"]);
    assert!(fs::read_dir(world.at("jail")).unwrap().next().is_none() && !world.at("copy").exists());
    let was = world.at("jail").join(&table);
    outside(&was);
    let named = format!("puts `{table}` at `{}`", was.display());
    world.run(&format!("{line} --dry-run")).done().says(&[&named]);
    assert!(!was.exists());
    world.run(&line).done().says(&[&named]);
    assert!(was.is_file());
}
