//! Slips of the hand that must not cost anything: each was once possible, and exit 0.

use std::os::unix::fs::PermissionsExt;

use crate::database::{self, Shape};
use crate::world::World;

const KEY: &str = "--encrypt-to k.key";

#[test]
fn a_differential_does_not_replace_its_own_full() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/full.bore").done();
    let line = "backup sqlite:app.db --kind differential --base a/full.bore --to a/full.bore --init";
    world.run(line).refused(2, "a/full.bore", "is the full of this differential");
    world.assert_restores("--from a");
}

#[test]
fn a_report_overwrites_reports_only() {
    let world = World::with_database();
    let before = world.read("app.db");
    world.run("backup sqlite:app.db --to a/x.bore --report json:app.db").refused(2, "app.db", "is the database itself");
    assert_eq!(world.read("app.db"), before);
    world.assert_no_media();
    // The family has come there meanwhile, and is worth more than its report.
    let said = ["was committed; its report was not written", "exists already and is not a report"];
    world.run("backup sqlite:app.db --to a/x.bore --report json:a/x.bore").with_code(4).says(&said);
    world.run("verify --from a").done();
    world.run("verify --from a --report json:r.json").done();
    world.run("verify --from a --report json:r.json").done();
}

#[test]
fn a_family_in_nul_beside_real_ones_is_refused() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/x.bore --to nul:").refused(2, "nul:", "can never be restored");
    world.assert_no_media();
}

#[test]
fn a_backup_to_a_device_that_keeps_nothing_is_refused() {
    let world = World::with_database();
    let program = env!("CARGO_BIN_EXE_fullbore");
    for ending in ["> /dev/null", ">&-"] {
        let line = format!("'{program}' backup sqlite:app.db --to - {ending}");
        let ended = std::process::Command::new("sh").arg("-c").arg(line).current_dir(world.folder()).output().unwrap();
        assert_eq!(ended.status.code(), Some(2), "{ending}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains("--to nul:"), "{ending}");
    }
}

#[test]
fn recovery_spares_what_is_newer_than_the_leftover() {
    let world = World::with_database();
    // A set whose families were never given their names, as a kill leaves it.
    world.run("backup sqlite:app.db --to a/x.bore --to b/x.bore").done();
    let id = world.run("list --from a --json").json()[0]["media_set_id"].as_str().unwrap().to_owned();
    for directory in ["a", "b"] {
        let name = world.at(directory).join("x.bore");
        std::fs::rename(&name, world.at(directory).join(format!("x.bore.new-{id}"))).unwrap();
    }
    database::change(&world.at("app.db"), 1);
    world.run("backup sqlite:app.db --to c/x.bore --mkdir").done();
    std::fs::rename(world.at("c/x.bore"), world.at("a/x.bore")).unwrap();
    let newer = world.read("a/x.bore");
    world.run("backup sqlite:app.db --to a/x.bore --to b/x.bore").with_code(1);
    assert_eq!(world.read("a/x.bore"), newer);
}

#[test]
fn an_unpublished_set_of_another_name_is_not_taken_for_the_latest() {
    let world = World::with_database();
    database::make(&world.at("other.db"), Shape { rows: 10, ..Shape::default() });
    world.run("backup sqlite:app.db --to a/app.bore").done();
    world.run("backup sqlite:other.db --to b/other.bore").done();
    let id = world.run("list --from b --json").json()[0]["media_set_id"].as_str().unwrap().to_owned();
    std::fs::rename(world.at("b/other.bore"), world.at("a").join(format!("other.bore.new-{id}"))).unwrap();
    world.run("restore --from a --into sqlite:copy.db").refused(1, "more than one chain", "--set");
    world.run("restore --from a --into sqlite:copy.db --latest").refused(1, "several databases", "other.db");
    world.assert_no_copy();
}

#[test]
fn the_full_of_another_database_is_no_base() {
    let world = World::with_database();
    database::make(&world.at("other.db"), Shape { rows: 10, ..Shape::default() });
    world.run("backup sqlite:app.db --to a/app.bore").done();
    world.run("backup sqlite:other.db --to a/other.bore").done();
    world.run("backup sqlite:app.db --kind differential --base a --to b/diff.bore").done();
    assert!(world.run("inspect header --from b --json").json()[0]["base_backup_set_id"].is_string());
    world.assert_restores("--from a/app.bore --from b");
}

#[test]
fn a_differential_of_an_encrypted_full_is_not_written_in_clear() {
    let world = World::with_database();
    world.run("key new --no-recovery k.key").done();
    world.run(&format!("backup sqlite:app.db --to a/full.bore {KEY}")).done();
    let line = "backup sqlite:app.db --kind differential --base a --key k.key --to b/diff.bore";
    world.run(line).refused(2, "--encrypt-to", "in clear");
    world.run(&format!("{line} {KEY}")).done();
}

#[test]
fn a_restored_database_is_its_owners_alone() {
    let world = World::with_small_set("");
    world.run("restore --from a --into sqlite:copy.db").done();
    assert_eq!(std::fs::metadata(world.at("copy.db")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_differential_alone_is_right_but_said_to_be_of_no_use() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/full.bore").done();
    world.run("backup sqlite:app.db --kind differential --base a --to b/diff.bore").done();
    world.run("verify --from b").with_code(3).says(&["its own bytes are right", "its full, "]);
}

#[test]
fn a_flag_of_another_verb_gets_the_flag_with_the_same_meaning_as_a_suggestion() {
    let world = World::new();
    for (line, right, other) in [
        ("restore --from a --to sqlite:copy.db", "--into", "--stop-at"),
        ("backup sqlite:app.db --into a/", "--to", "--init"),
        ("copy --from a --into b/", "--to", "--init"),
    ] {
        let ended = world.run(line).with_code(2).says(&[&format!("a similar argument exists: '{right}'"), "Usage: "]);
        assert!(!ended.err.contains(other), "{ended}");
    }
}

#[test]
fn a_database_beside_from_is_refused() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/x.bore").done();
    world.run("restore --from a --database other --into sqlite:copy.db").with_code(2).says(&["--database"]);
    world.run("verify --from a --database other").with_code(2).says(&["--database"]);
    assert!(!world.at("copy.db").exists());
}
