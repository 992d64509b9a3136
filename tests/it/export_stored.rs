//! Tables of stored backup files of SQL Server, read out of their sets: `fullbore export --repo`, or `--from` a directory.

use std::fs;

use fullbore_engines::compressed::Writer;
use fullbore_engines::sqlserver::configuration::BackupKind;
use fullbore_engines::sqlserver::page::EXTENT;
use fullbore_engines::sqlserver::tables_out::sample_database::sample_database;
use fullbore_engines::sqlserver::tables_out::types::xtype;
use fullbore_engines::sqlserver::tables_out::writer::{WrittenColumn, WrittenTable, record};
use fullbore_engines::sqlserver::writer::{FamilyWriter, sample_label, sample_log};
use uuid::Uuid;

use crate::foreign_sets::{how, id, list, set, world, written};
use crate::world::World;

/// The sample database with a table `Changed`, whose only row has this id.
fn database(id: u8) -> Vec<u8> {
    let columns = vec![WrittenColumn::new("id", xtype::INT, 4, 4)];
    sample_database(&[WrittenTable::of("Changed", columns, vec![record(&[id, 0, 0, 0], 1, &[], &[])])])
}

fn full(number: u32, id: u8) -> Vec<u8> {
    let mut full = set(BackupKind::Full, number);
    // The second copy of an extent counts. Only the first one has a place in the set.
    full.copies = vec![database(0), database(id)];
    full.logs = vec![sample_log(1 << 16)];
    written(&full, number)
}

/// The extents of a differential over full `base`: those that changed.
fn differential(base: u32, number: u32, (before, after): (u8, u8)) -> Vec<u8> {
    let mut differential = set(BackupKind::Differential, number);
    differential.configuration.database.base = Uuid::from_u128(u128::from(base) + 7000);
    let extents = |file: Vec<u8>| file.as_chunks::<EXTENT>().0.to_vec();
    let (before, after) = (extents(database(before)), extents(database(after)));
    let news = before.iter().zip(&after).filter(|(before, after)| before != after);
    differential.copies = vec![news.flat_map(|(_, after)| after.to_vec()).collect()];
    written(&differential, number)
}

/// All tables of a stored set, and of the files that it holds: they are the same.
fn compare(world: &World, place: &str, from: &str, folder: &str) {
    world.run(&format!("export {place} --format csv --into dir:{folder}")).done();
    world.run(&format!("export {from} --format csv --into dir:{folder}-files")).done();
    assert_eq!(world.names(folder), world.names(&format!("{folder}-files")));
    for name in world.names(folder) {
        assert!(world.text(&format!("{folder}/{name}")) == world.text(&format!("{folder}-files/{name}")), "{name}");
    }
}

#[test]
fn tables_of_a_stored_full_of_pages_that_differ_and_of_a_differential_come_out_of_a_repository() {
    let world = world();
    let packed = Writer::of_stream(&full(3, 33)).container;
    let media = [full(1, 11), full(2, 22), packed, differential(2, 4, (22, 44))];
    let mut ways = Vec::new();
    for (bytes, number) in media.iter().zip(1..) {
        world.write(&format!("{number}.bak"), bytes);
        ways.extend(how(&world.run(&format!("copy --from {number}.bak --to-repo night --report json")).done()));
    }
    let ways: Vec<&str> = ways.iter().map(|way| way.trim_start_matches("stored ")).collect();
    assert_eq!(ways, ["whole", "as the pages that differ", "as it is", "whole"]);
    let sets = list(&world);
    for (set, (from, row)) in sets.iter().zip([
        ("--from 1.bak", 11),
        ("--from 2.bak", 22),
        ("--from 3.bak", 33),
        ("--from 2.bak --from 4.bak", 44),
    ]) {
        for (place, folder) in [("--repo night", format!("of-{row}")), ("--from a/", format!("of-{row}-in-a"))] {
            compare(&world, &format!("{place} --set {}", id(set)), from, &folder);
            assert_eq!(world.text(&format!("{folder}/dbo.Changed.csv")), format!("id\r\n{row}\r\n"));
        }
    }
    let newest = world.run("export --from a/ --format csv --into dir:newest --json").done().object();
    assert_eq!(newest["backup_set_id"].as_str(), Some(id(sets.last().unwrap())));
    // Without --set, the newest state.
    let line = "export --repo night --database shop --table Changed --format parquet --into dir:new --json";
    let object = world.run(line).done().object();
    assert_eq!((object["exported"][0]["rows"].as_u64(), object["engine"].as_str()), (Some(1), Some("sqlserver")));
    assert_eq!(world.names("new"), ["dbo.Changed.parquet"]);
    assert!(!world.at("new/2.bak").exists());
    fs::remove_dir_all(world.at("a")).unwrap();
    world.run("export --repo night --format csv --into dir:none").with_code(2);
    assert!(!world.at("none").exists());
}

#[test]
fn stripes_of_an_encrypted_repository_are_exported_and_damage_is_found() {
    let world = world();
    world.run("key new k.key --no-recovery").done();
    let config = "[repository.night]\nto = [\"a/\"]\nencrypt-to = [\"k.key.pub\"]\nhide-names = true\nstripes = 2\n";
    world.write("fullbore.toml", config.as_bytes());
    let all = database(7).as_chunks::<EXTENT>().0.to_vec();
    for family in [1_u16, 2] {
        let mut set = set(BackupKind::Full, 1);
        let own = all.iter().zip(0..).filter(|(_, number)| number % 2 == family - 1);
        set.copies = vec![own.flat_map(|(extent, _)| extent.to_vec()).collect()];
        world.write(&format!("{family}.bak"), &FamilyWriter::new(&sample_label(2, family), 512).set(&set).finish());
    }
    world.run("copy --from 1.bak --from 2.bak --to-repo night --key k.key").done();
    let line = "export --repo night --format csv --into dir:out";
    world.run(line).refused(1, "encrypted", "--key");
    world.run(&format!("{line} --key k.key")).done();
    assert_eq!(world.text("out/dbo.Changed.csv"), "id\r\n7\r\n");
    assert_eq!(world.names("out").len(), 6);
    let families: Vec<String> = world.names("a").into_iter().filter(|name| name.ends_with(".bore")).collect();
    assert!(!families.is_empty());
    for name in families {
        let mut bytes = world.read(&format!("a/{name}"));
        let middle = bytes.len() / 3;
        bytes[middle] ^= 1;
        world.write(&format!("a/{name}"), &bytes);
    }
    world.run("export --repo night --format csv --into dir:bad --key k.key").with_code(3);
    assert!(!world.at("bad").exists());
}

#[test]
fn a_position_on_stored_media_chooses_one_of_their_sets() {
    let world = world();
    let (mut first, mut second) = (set(BackupKind::Full, 1), set(BackupKind::Full, 2));
    (first.copies, second.copies) = (vec![database(1)], vec![database(2)]);
    second.header.position = 2;
    let media = FamilyWriter::new(&sample_label(1, 1), 512).set(&first).set(&second).finish();
    world.write("both.bak", &media);
    world.run("copy --from both.bak --to-repo night").done();
    for place in ["--repo night", "--from a/"] {
        for (file, row) in [("--file 1", 1), ("--file 2", 2), ("", 2)] {
            let line = format!("export {place} {file} --format csv --replace --into dir:out");
            world.run(&line).done();
            assert_eq!(world.text("out/dbo.Changed.csv"), format!("id\r\n{row}\r\n"), "{line}");
        }
        let line = format!("export {place} --file 3 --format csv --into dir:none");
        world.run(&line).refused(2, "--file 3", "no set at this position");
        assert!(!world.at("none").exists());
    }
}

#[test]
fn a_directory_without_the_full_of_a_differential_is_refused() {
    let world = world();
    world.write("2.bak", &differential(1, 2, (1, 4)));
    world.run("copy --from 2.bak --to-repo night").done();
    world.run("export --from a/ --format csv --into dir:out").with_code(3);
    assert!(!world.at("out").exists());
}
