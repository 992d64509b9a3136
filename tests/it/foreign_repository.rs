//! Backup files of SQL Server in repositories: kills, prune, and the files of their database.

use std::fs;
use std::time::Instant;

use fullbore_engines::compressed::Writer;
use fullbore_engines::sqlserver::configuration::BackupKind;
use fullbore_engines::sqlserver::page::PAGE;
use fullbore_engines::sqlserver::writer::{FamilyWriter, WrittenSet, sample_label, sample_log};
use uuid::Uuid;

use crate::foreign_sets::{extents, how, id, list, set, world, written};
use crate::kills::{killed, moments, no_errors};
use crate::world::World;

/// A full with other bytes in each page whose number is 3 more than a multiple of `step`.
fn full(number: u32, step: u32) -> WrittenSet {
    let mut full = set(BackupKind::Full, number);
    full.configuration.files[0].size = 16 << 20;
    full.copies = vec![extents(60, step, number.into())];
    full
}

fn give_back(world: &World, number: u32, bytes: &[u8]) {
    let _ = fs::remove_dir_all(world.at("out"));
    let sets = list(world);
    let last = sets.iter().rfind(|set| set["state"] != "incomplete").unwrap();
    no_errors(world.run(&format!("restore --repo night --set {} --into bak:out --mkdir", id(last))));
    assert!(world.read(&format!("out/{number}.bak")) == bytes, "{number}.bak");
}

#[test]
fn a_copy_into_a_repository_that_is_killed_at_any_moment_leaves_a_whole_set_or_none() {
    let world = world();
    world.write("1.bak", &written(&full(1, 20), 1));
    world.run("copy --from 1.bak --to-repo night").done();
    world.write("2.bak", &written(&full(2, 20), 2));
    let begun = Instant::now();
    world.run("copy --from 2.bak --to-repo night").done();
    for (delay, number) in moments(17, 10, begun.elapsed()).into_iter().zip(3..) {
        let bytes = written(&full(number, 20), number);
        world.write(&format!("{number}.bak"), &bytes);
        let line = format!("copy --from {number}.bak --to-repo night");
        killed(&world, &line, delay);
        let there = list(&world).into_iter().filter(|set| set["why_incomplete"].is_null()).count();
        assert!(there == number as usize - 1 || there == number as usize, "kill {number}: {there} sets");
        no_errors(world.run("verify --repo night"));
        let again = world.run(&line);
        no_errors(again);
        let whole: Vec<_> = list(&world).into_iter().filter(|set| set["why_incomplete"].is_null()).collect();
        assert_eq!(whole.len(), number as usize, "kill {number}");
        give_back(&world, number, &bytes);
    }
}

#[test]
fn prune_removes_a_chain_of_stored_media_only_when_a_newer_one_is_proven() {
    let world = world();
    let config = "[repository.night]\nto = [\"a/\"]\ndifferential-share = 0.1\n[repository.night.keep]\nlast = 1\n";
    world.write("fullbore.toml", config.as_bytes());
    let prune = |options: &str| world.run(&format!("prune --repo night --grace 0s {options}"));
    // In the second, a quarter of the pages differ: the third is stored whole.
    let media: Vec<Vec<u8>> =
        [(1, 20), (2, 4), (3, 20), (4, 20)].map(|(number, step)| written(&full(number, step), number)).into();
    let mut ways = Vec::new();
    for (bytes, number) in media.iter().zip(1..) {
        world.write(&format!("{number}.bak"), bytes);
        let done = world.run(&format!("copy --from {number}.bak --to-repo night --report json")).done();
        ways.extend(how(&done));
    }
    let (whole, pages) = ("stored whole", "stored as the pages that differ");
    assert_eq!(ways, [whole, pages, whole, pages]);
    prune("--confirm").with_code(4).says(&["none of its chains is verified"]);
    assert_eq!(list(&world).len(), 4);
    world.run("verify --repo night --latest").done();
    prune("--confirm").done();
    let left = list(&world);
    assert_eq!(left.len(), 2, "{left:?}");
    world.run("verify --repo night").done();
    give_back(&world, 4, &media[3]);
}

#[test]
fn a_stored_full_becomes_the_files_of_its_database_straight_from_the_repository() {
    let world = world();
    let mut first = full(1, 20);
    first.logs = vec![sample_log(1 << 16)];
    let second = full(2, 20);
    let packed = Writer::of_stream(&written(&full(3, 20), 3)).container;
    for (name, bytes) in [("1.bak", written(&first, 1)), ("2.bak", written(&second, 2)), ("3.bak", packed)] {
        world.write(name, &bytes);
        world.run(&format!("copy --from {name} --to-repo night")).done();
    }
    for (set, number) in list(&world).iter().zip(1..) {
        let done = world.run(&format!("restore --repo night --set {} --into dir:out{number} --mkdir", id(set))).done();
        assert!(done.err.contains("FOR ATTACH_REBUILD_LOG"), "{done}");
        assert_eq!(world.names(&format!("out{number}")), ["shop", "shop_log"]);
        world.run(&format!("restore --from {number}.bak --into dir:plain{number} --mkdir")).done();
        for name in ["shop", "shop_log"] {
            let read = |folder: &str| world.read(&format!("{folder}{number}/{name}"));
            assert!(read("out") == read("plain"), "{number}: {name}");
        }
    }
    let page = &world.read("out2/shop")[9 * PAGE..10 * PAGE];
    assert_eq!(u32::from_le_bytes(page[32..36].try_into().unwrap()), 9);
    let again = world.run("restore --repo night --latest --into dir:out1");
    again.refused(1, "out1", "is not empty");
    world.run("restore --repo night --latest --into dir:out4 --mkdir --replace").refused(2, "--replace", "empty");
    assert!(!world.at("out4").exists());
    fs::create_dir_all(world.at("left/.restore-unfinished-1")).unwrap();
    world.run("restore --repo night --latest --into dir:left").refused(1, "left", "interrupted restore has left");
}

#[test]
fn a_stored_differential_of_sql_server_names_the_full_that_is_missing() {
    let world = world();
    let mut differential = set(BackupKind::Differential, 2);
    differential.configuration.database.base = Uuid::from_u128(7001);
    differential.copies = vec![extents(2, 8, 2)];
    world.write("d.bak", &FamilyWriter::new(&sample_label(1, 1), 512).set(&differential).finish());
    world.run("copy --from d.bak --to-repo night").done();
    let ended = world.run("restore --repo night --into dir:out --mkdir").with_code(3);
    ended.says(&["the full backup 00000000-0000-0000-0000-000000001B59", "is not stored"]);
    assert!(!world.at("out").exists());
}
