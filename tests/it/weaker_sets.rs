//! Sets in clear that say they belong to encrypted ones: anybody can write them, without any key.

use fullbore_core::media::FamilyHeader;

use crate::database::{self, Shape};
use crate::forge::{ForgedFamily, forge, manifest_of, set_manifest};
use crate::world::World;

/// An encrypted full in `a/`, and a differential of another's database in clear that says it is based on it.
fn world() -> World {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    world.run("key new --no-recovery k.key").done();
    world.run("backup sqlite:app.db --to a/full.bore --encrypt-to k.key.pub").done();
    put_evil_beside(&world, "a/full.bore");
    world
}

/// The differential, in `a/evil.bore`.
fn put_evil_beside(world: &World, full: &str) {
    let header = FamilyHeader::decode(&world.read(full)[..4096]).unwrap().set;
    world.run("backup sqlite:app.db --to b/plain.bore").done();
    database::change(&world.at("app.db"), 1);
    world.run("backup sqlite:app.db --to a/evil.bore --kind differential --base b/plain.bore").done();
    forge(world, &["a/evil.bore"], None, |families: &mut [ForgedFamily]| {
        families[0].header.set.base_backup_set_id = Some(header.backup_set_id);
        let mut manifest = manifest_of(families);
        manifest["base_backup_set_id"] = header.backup_set_id.to_string().into();
        set_manifest(families, &manifest.to_string());
    });
}

const WHY: &[&str] = &["is not encrypted", "without any key", "copy --decrypt"];

#[test]
fn a_differential_in_clear_on_an_encrypted_full_is_refused_with_the_key_of_that() {
    let world = world();
    for line in [
        "restore --from a --latest --key k.key --into sqlite:copy.db",
        "restore --from a --key k.key --into sqlite:copy.db --dry-run",
        "restore --from a --key k.key --into nul:",
        "verify --from a --key k.key",
        "verify --from a --key k.key --latest",
        "copy --from a --key k.key --to b/",
    ] {
        world.run(line).with_code(3).says(WHY);
    }
    world.assert_no_copy();
    assert_eq!(world.names("b"), ["plain.bore"]);
    // The full itself is good.
    let id = FamilyHeader::decode(&world.read("a/full.bore")[..4096]).unwrap().set.backup_set_id;
    world.run(&format!("restore --from a --set {id} --key k.key --into sqlite:copy.db")).done();
}

#[test]
fn a_copy_in_clear_of_a_differential_does_not_stand_in_the_way_of_its_encrypted_chain() {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    world.run("key new --no-recovery k.key").done();
    world.run("backup sqlite:app.db --to a/full.bore --encrypt-to k.key.pub").done();
    database::change(&world.at("app.db"), 1);
    let differential = "backup sqlite:app.db --to a/differential.bore --kind differential --base a/full.bore";
    world.run(&format!("{differential} --key k.key --encrypt-to k.key.pub")).done();
    world.run("copy --from a/differential.bore --key k.key --decrypt --to a/clear.bore").done();
    world.run("verify --from a --key k.key").done();
    world.run("restore --from a --key k.key --into sqlite:copy.db").done();
    world.assert_copy();
    // Without the key the chain is not readable, and the copy alone is no chain.
    assert_ne!(world.run("restore --from a --into sqlite:other.db").code, 0);
}

#[test]
fn copies_of_the_encrypted_sets_in_clear_make_a_chain_with_what_is_in_clear() {
    let world = world();
    // A user who has turned encryption off, and knows the differential, says so in this way.
    world.run("copy --from a/full.bore --key k.key --decrypt --to b/clear.bore").done();
    let ended = world.run("restore --from b/clear.bore --from a/evil.bore --into sqlite:copy.db");
    assert!(![1, 2].contains(&ended.code), "{ended}");
    world
        .run("backup sqlite:app.db --to b/d.bore --kind differential --base a/full.bore --key k.key")
        .with_code(2)
        .says(&["its full is encrypted", "--encrypt-to"]);
}

#[test]
fn a_repository_refuses_it_too_and_restores_the_full() {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    world.run("key new --no-recovery k.key").done();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    world.run("backup sqlite:app.db --repo night --encrypt-to k.key.pub").done();
    let full = world.names("a").into_iter().find(|name| name.ends_with(".bore")).unwrap();
    put_evil_beside(&world, &format!("a/{full}"));
    world.run("restore --repo night --key k.key --into sqlite:copy.db").with_code(3).says(WHY);
    world.assert_no_copy();
    world.run("verify --repo night --key k.key").with_code(3).says(WHY);
    let id = FamilyHeader::decode(&world.read(&format!("a/{full}"))[..4096]).unwrap().set.backup_set_id;
    world.run(&format!("restore --repo night --set {id} --key k.key --into sqlite:copy.db")).done();
}

#[test]
fn a_log_set_in_clear_is_refused_in_the_next_step_of_a_restore_too() {
    let world = World::new();
    let application = rusqlite::Connection::open(world.at("app.db")).unwrap();
    application
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x); INSERT INTO t VALUES (1)",
        )
        .unwrap();
    world.run("key new --no-recovery k.key").done();
    world.run("backup sqlite:app.db --to a/full.bore --encrypt-to k.key.pub").done();
    world.run("copy --from a/full.bore --key k.key --decrypt --to b/clear.bore").done();
    application.execute_batch("INSERT INTO t VALUES (2)").unwrap();
    world
        .run("backup sqlite:app.db --to a/log.bore --kind log --base a/full.bore --key k.key")
        .with_code(2)
        .says(&["in clear"]);
    world.run("backup sqlite:app.db --to a/log.bore --kind log --base b/clear.bore").done();
    world.run("restore --from a --key k.key --into sqlite:copy.db").with_code(3).says(&["is not encrypted"]);
    world.run("restore --from a/full.bore --key k.key --into sqlite:copy.db --no-recovery").done();
    world.run("restore --from a/log.bore --into sqlite:copy.db --recovery").with_code(3).says(&["is not encrypted"]);
    world.run("restore --from b/clear.bore --into sqlite:other.db --no-recovery").done();
    world.run("restore --from a/log.bore --into sqlite:other.db --recovery").done();
}
