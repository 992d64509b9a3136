//! What cannot be removed, read or heeded in a repository, and does not stand in the way of the rest.

use std::fs;

use serde_json::{Value, json};

use crate::database::{self, Shape};
use crate::program::Ended;
use crate::world::{World, write_over};

fn world(more: &str) -> World {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    let text = format!("[repository.night]\nto = [\"a/\"]\n{more}\n[repository.night.keep]\nlast = 1\n");
    world.write("fullbore.toml", text.as_bytes());
    world
}

/// A full of that database, as it is listed.
fn back_up(world: &World, database: &str, kind: &str) -> Value {
    world.run(&format!("backup sqlite:{database} --repo night --kind {kind}")).done();
    let listed = world.run("list --repo night --json").json();
    listed.as_array().unwrap().last().unwrap().clone()
}

fn id(set: &Value) -> &str {
    set["backup_set_id"].as_str().unwrap()
}

fn is_there(world: &World, set: &Value) -> bool {
    world.at(&format!("a/.fullbore/sets/{}.json", id(set))).exists()
}

fn prune(world: &World, options: &str) -> Ended {
    world.run(&format!("prune --repo night --grace 0s --confirm {options}"))
}

#[test]
fn a_set_that_cannot_be_removed_keeps_what_it_stands_on_and_nothing_else() {
    let world = world("");
    database::make(&world.at("shop.db"), Shape { rows: 150, ..Shape::default() });
    let full = back_up(&world, "app.db", "full");
    database::sql(&world.at("app.db"), "CREATE TABLE more AS SELECT 1 AS n");
    let differential = back_up(&world, "app.db", "differential");
    let new = back_up(&world, "app.db", "full");
    let other = back_up(&world, "shop.db", "full");
    back_up(&world, "shop.db", "full");
    world.run("verify --repo night").done();
    // Under the name of its family is another set's, which nobody may remove in its place.
    write_over(&world.first_family("a", id(&differential)), &fs::read(world.first_family("a", id(&new))).unwrap());
    let ended = prune(&world, "").with_code(4);
    let ended = ended.says(&[id(&differential), "but the record of", id(&full), "the sets that depend on it stay"]);
    assert!(ended.text().contains("removed: 1 set"), "{ended}");
    assert!(is_there(&world, &full) && !is_there(&world, &other), "{ended}");
    assert_eq!(world.names("a/.fullbore/tombstones"), Vec::<String>::new());
    world.run(&format!("restore --repo night --database app.db --set {} --into sqlite:copy.db", id(&full))).done();
}

#[test]
fn a_set_with_a_damaged_header_goes_whatever_the_template_of_its_name() {
    for template in ["{database}_{kind}_{time}_{id}_{family}.bore", "{kind}{id}{family}.bore"] {
        let world = world(&format!("name-template = \"{template}\""));
        let old = back_up(&world, "app.db", "full");
        back_up(&world, "app.db", "full");
        world.run("verify --repo night").done();
        let path = world.first_family("a", id(&old));
        let mut bytes = fs::read(&path).unwrap();
        bytes[..4096].fill(0);
        write_over(&path, &bytes);
        let ended = prune(&world, "--json");
        assert_eq!(ended.json()["deleted"], json!([id(&old)]), "{template}: {ended}");
        assert!(!path.exists());
    }
}

#[test]
fn store_options_are_refused_for_a_repository_in_directories() {
    for key in ["lock-until = \"30d\"", "sse = \"AES256\"", "tag = [\"team=pay\"]", "max-parts = 1000"] {
        let world = world(key);
        let name = key.split(' ').next().unwrap();
        world.run("backup sqlite:app.db --to b/app.bore").done();
        for line in [
            "backup sqlite:app.db --repo night",
            "log follow sqlite:app.db --repo night --for 1s",
            "copy --from b/app.bore --to-repo night",
        ] {
            let thing = format!("[repository.night] {name}");
            world.run(line).refused(2, &thing, "only an object store can do that, and a/ is not in one");
        }
        assert!(!world.at("a/.fullbore").exists(), "{key}");
    }
    let world = world("");
    world.run("backup sqlite:app.db --repo night --lock-until 30d").refused(2, "--lock-until", "only an object store");
    world.run("backup sqlite:app.db --repo night").done();
}

#[test]
fn defaults_that_only_a_store_can_use_are_ignored_with_a_note_in_a_directory() {
    let lines = [
        ("backup sqlite:app.db --to b/app.bore", "b/app.bore"),
        ("backup sqlite:app.db --repo night", "a/"),
        ("log follow sqlite:app.db --repo night --for 1s", "a/"),
        ("copy --from b/app.bore --to b/copy.bore", "b/copy.bore"),
        ("copy --from b/app.bore --to-repo away", "c/"),
        ("backup sqlite:app.db --repo night --copy-to away", "a/"),
    ];
    for (keys, promised) in [("lock-until = \"30d\"", true), ("sse = \"AES256\"", true), ("max-parts = 1000", false)] {
        let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
        database::sql(&world.at("app.db"), "PRAGMA journal_mode = WAL");
        fs::create_dir(world.at("c")).unwrap();
        let text = format!("{keys}\n[repository.night]\nto = [\"a/\"]\n[repository.away]\nto = [\"c/\"]\n");
        world.write("fullbore.toml", text.as_bytes());
        let key = keys.split(' ').next().unwrap();
        for (line, place) in lines {
            let (code, how) = if promised { (4, "warning") } else { (0, "note") };
            let said = format!("{how}: {key} of the configuration is for object stores, and {place} is not in one");
            world.run(line).with_code(code).says(&[&said]);
        }
        world.run("backup sqlite:app.db --to nul:").done();
        world.run("restore --repo night --into sqlite:copy.db").done();
        world.assert_copy();
    }
}

#[test]
fn a_set_without_its_key_does_not_keep_the_others_from_their_verdicts() {
    let world = world("");
    database::make(&world.at("shop.db"), Shape { rows: 150, ..Shape::default() });
    world.run("key new --no-recovery k.key").done();
    world.run("backup sqlite:app.db --repo night --encrypt-to k.key.pub").done();
    world.run("verify --repo night").refused(1, "it is encrypted", "no key was given");
    let plain = back_up(&world, "shop.db", "full");
    let ended = world.run("verify --repo night").with_code(4);
    ended.says(&["not verified: full", "it is encrypted, and no key was given"]);
    let listed = world.run("list --repo night --json").json();
    let verified: Vec<bool> = listed.as_array().unwrap().iter().map(|set| set["verified_at"].is_string()).collect();
    assert_eq!((verified, id(&listed[1])), (vec![false, true], id(&plain)));
    world.run("verify --repo night --key k.key").done();
}
