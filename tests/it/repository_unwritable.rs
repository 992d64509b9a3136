//! Repositories that can be read and not written to: a full disk, one that is mounted read-only, an account that may only read. What is
//! there comes back; what rests on agreement with other hosts is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::database::Shape;
use crate::program::Ended;
use crate::world::World;

/// Two fulls in `a/`, the newer of which is verified; nobody may write below `.fullbore/` but where it is opened again.
fn world() -> World {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n[repository.night.keep]\nlast = 1\n");
    for _ in 0..2 {
        world.run("backup sqlite:app.db --repo night --kind full").done();
    }
    world.run("verify --repo night --latest").done();
    close(&world.at("a/.fullbore"));
    world
}

fn close(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => close(&entry.path()),
            false => fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o444)).unwrap(),
        }
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o555)).unwrap();
}

fn open(world: &World, folder: &str) {
    fs::set_permissions(world.at("a/.fullbore").join(folder), fs::Permissions::from_mode(0o777)).unwrap();
}

fn run(world: &World, line: &str) -> Ended {
    world.run_as_nobody(line)
}

#[test]
fn a_read_only_repository_can_be_restored_copied_and_verified() {
    let world = world();
    let nobody_told = "a prune at the same time may remove them";
    run(&world, "restore --repo night --into sqlite:copy.db").with_code(4).says(&[nobody_told]);
    world.assert_copy();
    run(&world, "copy --repo night --to b/").with_code(4).says(&[nobody_told]);
    run(&world, "restore --from b --into sqlite:copy2.db").done();
    run(&world, "verify --repo night").with_code(4).says(&[nobody_told, "cannot record the result"]);
    run(&world, "check --repo night --max-age 26h").with_code(0);
    // What others have to agree to is refused, and nothing of it is begun.
    let before = world.names("a");
    run(&world, "backup sqlite:app.db --repo night").refused(1, "a/.fullbore/tasks", "ermission denied");
    run(&world, "prune --repo night --grace 0s --confirm").refused(1, "a/.fullbore/tasks", "ermission denied");
    assert_eq!(world.names("a"), before);
}

#[test]
fn a_prune_that_cannot_ask_the_clock_of_the_store_takes_nobody_for_dead() {
    let world = world();
    open(&world, "");
    for folder in ["clock", "tasks", "tombstones", "sets", "verdicts", "decisions"] {
        let _ = fs::create_dir(world.at("a/.fullbore").join(folder)); // Most of them are there.
        open(&world, folder);
    }
    close(&world.at("a/.fullbore/clock"));
    run(&world, "prune --repo night").with_code(4).text();
    run(&world, "prune --repo night --grace 0s --confirm").refused(1, "a/.fullbore/clock", "ermission denied");
    assert_eq!(world.names("a").iter().filter(|name| name.ends_with(".bore")).count(), 2);
}
