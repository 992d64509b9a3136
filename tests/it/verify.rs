//! `fullbore verify`: reads everything, checks everything, writes nothing.

use crate::world::World;

#[test]
fn every_set_that_is_found_is_verified_and_nothing_is_written() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/one.bore").done();
    world.run("backup sqlite:app.db --to a/ --to b/ --stripes 3").done();
    let before = (world.names("."), world.names("a"), world.names("b"));
    let report = world.run("verify --from a --from b --report json").done().json();
    assert_eq!(report["families"].as_array().unwrap().len(), 4);
    assert_eq!((world.names("."), world.names("a"), world.names("b")), before);
}

#[test]
fn other_files_in_a_directory_are_none_of_its_business() {
    let world = World::with_small_set("");
    world.write("a/README", b"The backups of the shop.");
    world.write("a/empty", b"");
    world.run("verify --from a").done();
    world.run("verify --from a/README").refused(3, "a/README", "");
}

#[test]
fn an_empty_directory_holds_no_backup() {
    let world = World::new();
    world.run("verify --from a").refused(2, "--from", "no backup set was found");
    world.run("restore --from a --into sqlite:copy.db").refused(2, "--from", "no backup set was found");
    world.run("list --from a").refused(2, "--from", "no backup set was found");
    world.run("verify --from gone").refused(2, "gone", "No such file");
    world.run("verify --from gone/*").refused(2, "gone/*", "no file matches");
    world.run("verify --from nul:").refused(2, "nul:", "it keeps no data");
    world.run("verify --from s3://Bucket/key").refused(2, "s3://Bucket/key", "s3");
    world.run("verify --from gopher://x").refused(2, "gopher://x", "unknown scheme");
}

#[test]
fn damage_in_one_set_does_not_keep_the_others_from_being_looked_at() {
    let world = World::with_small_set("");
    world.run("backup sqlite:app.db --to b/other.bore").done();
    let mut bytes = world.read("a/app.bore");
    bytes[5000] ^= 1;
    world.write("a/app.bore", &bytes);
    let ended = world.run("verify --from a --from b --report json").with_code(3).says(&["a/app.bore", "is damaged"]);
    let report = ended.json();
    let devices: Vec<_> =
        report["families"].as_array().unwrap().iter().map(|family| family["device"].as_str().unwrap()).collect();
    assert_eq!(devices, ["b/other.bore"]);
}
