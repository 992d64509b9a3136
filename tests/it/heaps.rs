//! Heaps of families in which not everything is as it should be, and a restore that is still plain.

use crate::database::{self, Shape};
use crate::world::World;

/// `a/` holds a whole set of `app.db` in two families, `b/other.bore` a set of another database.
fn with_two_sets() -> World {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/1.bore --to a/2.bore").done();
    database::make(&world.at("other.db"), Shape { rows: 200, ..Shape::default() });
    world.run("backup sqlite:other.db --to b/other.bore").done();
    world
}

fn damage(world: &World, name: &str, at: usize) {
    let mut bytes = world.read(name);
    let at = if at == usize::MAX { bytes.len() - 1 } else { at };
    bytes[at] ^= 1;
    world.write(name, &bytes);
}

#[test]
fn a_copy_of_a_family_is_taken_once_and_named() {
    let world = with_two_sets();
    std::fs::copy(world.at("a/2.bore"), world.at("a/copy-of-2.bore")).unwrap();
    world.assert_restores("--from a");
    world.run("verify --from a").done().says(&["note: ", "copy-of-2.bore` is a copy of `a/2.bore`"]);
    world.run("list --from a").done().says(&["copy-of-2.bore"]);
    std::fs::hard_link(world.at("a/1.bore"), world.at("a/linked.bore")).unwrap();
    world.run("verify --from a").done().says(&["a/linked.bore` is the same file as `a/1.bore`"]);
    damage(&world, "a/copy-of-2.bore", 100);
    world.run("verify --from a").with_code(3);
}

#[test]
fn a_damaged_family_of_another_set_is_named_and_does_not_stop_a_restore() {
    // In its footer, and then in its header.
    for at in [usize::MAX, 100] {
        let world = with_two_sets();
        damage(&world, "b/other.bore", at);
        for from in ["--from a --from b", "--from a/* --from b/*"] {
            let ended = world.run(&format!("restore {from} --into sqlite:copy.db")).with_code(4);
            ended.says(&["warning: not used", "b/other.bore"]);
            world.assert_copy();
            std::fs::remove_file(world.at("copy.db")).unwrap();
        }
        world.run("verify --from a --from b").with_code(3).says(&["b/other.bore"]);
        world.run("verify --from a --from b --latest").with_code(4).says(&["b/other.bore"]);
    }
}

#[test]
fn a_damaged_family_of_the_set_that_is_meant_stops_a_restore() {
    for at in [usize::MAX, 100] {
        let world = with_two_sets();
        damage(&world, "a/2.bore", at);
        world.run("restore --from a --into sqlite:copy.db").refused(3, "a/2.bore", "is damaged");
        world.assert_no_copy();
    }
}

#[test]
fn damage_inside_a_family_names_the_copy_that_is_beside_it() {
    let world = with_two_sets();
    std::fs::copy(world.at("a/2.bore"), world.at("a/copy-of-2.bore")).unwrap();
    let middle = world.read("a/2.bore").len() / 2;
    damage(&world, "a/2.bore", middle);
    let hint = ["a/2.bore` is damaged", "a copy of it exists: name `a/copy-of-2.bore` instead"];
    world.run("verify --from a").with_code(3).says(&hint);
    world.run("restore --from a --into sqlite:copy.db").with_code(3).says(&hint);
    world.assert_no_copy();
    world.run("restore --from a/1.bore --from a/copy-of-2.bore --into sqlite:copy.db").done();
    world.assert_copy();
}
