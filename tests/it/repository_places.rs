//! Repositories whose places are not what they were: a disk that is not mounted, a host that names fewer of them, a disk that is full.

use std::fs;

use serde_json::Value;

use crate::database::Shape;
use crate::program::{self, Ended};
use crate::small_disk::SmallDisk;
use crate::world::{World, one_tick};

/// `night` over `a/` and `b/`, with two fulls on both, the newer of which is verified.
fn world() -> World {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    configure(&world, "[\"a/\", \"b/\"]");
    for _ in 0..2 {
        world.run("backup sqlite:app.db --repo night").done();
    }
    world.run("verify --repo night --latest").done();
    world
}

fn configure(world: &World, to: &str) {
    let text = format!("[repository.night]\nto = {to}\nstripes = 2\n[repository.night.keep]\nlast = 1\n");
    world.write("fullbore.toml", text.as_bytes());
}

fn families(world: &World, folder: &str) -> Vec<String> {
    world.names(folder).into_iter().filter(|name| name.contains(".bore")).collect()
}

/// As if the disk in `b/` was not mounted.
fn unmount(world: &World) {
    fs::rename(world.at("b"), world.at("disk")).unwrap();
    fs::create_dir(world.at("b")).unwrap();
}

fn mount(world: &World) {
    fs::remove_dir(world.at("b")).unwrap();
    fs::rename(world.at("disk"), world.at("b")).unwrap();
}

#[test]
fn nothing_is_written_where_the_second_disk_is_not_mounted_and_nothing_goes() {
    let world = world();
    unmount(&world);
    let before = families(&world, "a");
    let asks = "is its disk not mounted?";
    for line in [
        "backup sqlite:app.db --repo night",
        "backup sqlite:app.db --repo night --kind differential",
        "backup sqlite:app.db --repo night --dry-run",
        "log follow sqlite:app.db --repo night --for 1s",
        "prune --repo night --confirm --grace 0s",
    ] {
        world.run(line).refused(1, "b/", asks);
    }
    assert_eq!((families(&world, "a"), world.names("b")), (before.clone(), Vec::new()));
    // Who only reads is told the same, beside what it means for the sets.
    world.run("list --repo night").with_code(4).says(&[asks, "family 2 of 2 is missing"]);
    world.run("prune --repo night").with_code(4).says(&[asks]);
    world.run("check --repo night").with_code(1).says(&[asks]);
    world.run("restore --repo night --into sqlite:copy.db").with_code(3).says(&["is missing"]);
    mount(&world);
    world.run("list --repo night").done();
    world.run("prune --repo night --confirm --grace 0s").done();
    assert_eq!((families(&world, "a").len(), families(&world, "b").len()), (1, 1));
    world.run("restore --repo night --into sqlite:copy.db").done();
}

#[test]
fn a_second_repository_whose_disk_is_not_mounted_stops_a_backup_into_both_and_a_copy() {
    let world = world();
    fs::create_dir(world.at("c")).unwrap();
    let text = "[repository.first]\nto = [\"c/\"]\n[repository.night]\nto = [\"a/\", \"b/\"]\n";
    world.write("fullbore.toml", text.as_bytes());
    world.run("backup sqlite:app.db --repo first").done();
    unmount(&world);
    let refused = world.run("backup sqlite:app.db --repo first --copy-to night");
    refused.refused(1, "--copy-to night: b/", "is its disk not mounted?");
    world.run("copy --repo first --to-repo night").refused(1, "--repo night: b/", "is its disk not mounted?");
    assert_eq!((families(&world, "c").len(), world.names("b")), (1, Vec::new()));
}

#[test]
fn a_host_that_names_fewer_places_is_told_so_before_it_writes() {
    let world = world();
    configure(&world, "[\"a/\"]");
    let before = families(&world, "a");
    let line = "backup sqlite:app.db --repo night";
    world.run(line).refused(1, "a/", "records name families in place 2").says(&["list all places"]);
    world.run("prune --repo night --confirm --grace 0s").refused(1, "a/", "in place 2");
    assert_eq!(families(&world, "a"), before);
    world.run("list --repo night").with_code(4).says(&["family 2 of 2 is in place 2, but 1 are configured here"]);
    // A third one is new: nothing speaks against it.
    fs::create_dir(world.at("c")).unwrap();
    configure(&world, "[\"a/\", \"b/\", \"c/\"]");
    world.run("backup sqlite:app.db --repo night --stripes 3").done();
    configure(&world, "[\"a/\", \"c/\", \"b/\"]");
    world.run(line).refused(1, "c/", "holds none of the families").says(&["in the same order"]);
}

#[test]
fn a_repository_continues_after_a_lost_disk_without_its_records() {
    let world = world();
    unmount(&world);
    let line = "backup sqlite:app.db --repo night";
    world.run(line).refused(1, "b/", "is its disk not mounted?").says(&[".fullbore/sets/ID.json"]);
    fs::remove_dir_all(world.at("a/.fullbore/sets")).unwrap();
    world.run(line).done();
    world.run("restore --repo night --into sqlite:copy.db").with_code(0);
    world.assert_copy();
    // Any number may stand in a record that somebody has forged.
    let (name, mut record) = record_of(&world, 0);
    record["families"][1]["place"] = u64::MAX.into();
    world.write(&name, record.to_string().as_bytes());
    fs::remove_dir_all(world.at("state")).unwrap();
    world.run(line).refused(1, "a/", "records name families in place");
    world.run("list --repo night").with_code(4);
}

#[test]
fn a_place_that_holds_one_family_of_many_is_no_other_place() {
    let world = world();
    let name = families(&world, "b").remove(0);
    fs::remove_file(world.at(&format!("b/{name}"))).unwrap();
    world.run("backup sqlite:app.db --repo night").done();
    let listed = world.run("list --repo night").with_code(4);
    assert!(!listed.err.contains("not mounted"), "{listed}");
}

#[test]
fn a_record_larger_than_any_locks_nobody_out_who_only_reads() {
    let world = world();
    let sets: Vec<String> = world.names("a/.fullbore/sets");
    let large = vec![b' '; (1 << 20) + 1];
    world.write(&format!("a/.fullbore/sets/{}", sets[1]), &large);
    world.write("a/.fullbore/tasks/large.json", &large);
    let id = sets[1].trim_end_matches(".json");
    fs::create_dir_all(world.at("a/.fullbore/tombstones")).unwrap();
    world.write(&format!("a/.fullbore/tombstones/{id}.json"), &large);
    fs::remove_dir_all(world.at("state")).unwrap();
    let (set, task) = (format!("sets/{id}.json"), "tasks/large.json");
    let both = [&set[..], task, "larger than any record"];
    let listed = world.run("list --repo night --json").with_code(4).says(&both).json();
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    world.run("tasks --repo night").with_code(4).says(&[task]);
    world.run("task 00000000 --repo night").refused(2, "task 00000000", "is not known").says(&[task]);
    world.run(&format!("verify --repo night --set {id}")).with_code(4).says(&both);
    let restored = world.run(&format!("restore --repo night --set {id} --into sqlite:copy.db")).with_code(4);
    restored.says(&both).says(&["tombstones/", "a prune at the same time may remove them"]);
    world.assert_copy();
    world.run("copy --repo night --to elsewhere/ --mkdir").with_code(4);
    prune_refuses(&world, task);
    assert_eq!((families(&world, "a").len(), families(&world, "b").len()), (2, 2));
    // Its record is made again from its media.
    fs::remove_file(world.at("a/.fullbore/tasks/large.json")).unwrap();
    fs::remove_file(world.at(&format!("a/.fullbore/tombstones/{id}.json"))).unwrap();
    fs::remove_dir_all(world.at("state")).unwrap();
    world.run("catalog rebuild --repo night").with_code(4).says(&[&set]);
    world.run("list --repo night").done();
}

#[track_caller]
fn prune_refuses(world: &World, thing: &str) {
    world.run("prune --repo night --confirm --grace 0s").refused(3, thing, "larger than any record");
    world.run("prune --repo night").refused(3, thing, "larger than any record");
}

fn record_of(world: &World, at: usize) -> (String, Value) {
    let name = format!("a/.fullbore/sets/{}", world.names("a/.fullbore/sets")[at]);
    let record = serde_json::from_slice(&world.read(&name)).unwrap();
    (name, record)
}

#[test]
fn a_name_in_a_record_begins_no_line_of_its_own_and_steers_no_terminal() {
    let world = world();
    let (name, mut record) = record_of(&world, 0);
    record["database"] = "/x.db\nerror: all is lost\u{1b}[2J".into();
    record["families"][1]["name"] = "gone\nwarning: forged".into();
    world.write(&name, record.to_string().as_bytes());
    one_tick();
    fs::remove_dir_all(world.at("state")).unwrap();
    let harmless = |ended: &Ended| {
        let lines = format!("{}\n{}", ended.text(), ended.err);
        let forged = |line: &&str| line.starts_with("error: all is lost") || line.starts_with("warning: forged");
        assert!(!lines.lines().any(|line| forged(&line)) && !lines.contains('\u{1b}'), "{ended}");
    };
    for line in [
        "list --repo night",
        "check --repo night",
        "restore --repo night --into sqlite:copy.db",
        "restore --repo night --database none --into sqlite:copy.db",
        "prune --repo night",
        "prune --repo night --confirm --grace 0s",
        "verify --repo night",
        "backup sqlite:app.db --repo night --kind auto",
    ] {
        harmless(&world.run(line));
    }
}

#[test]
fn sets_whose_database_only_a_key_tells_are_called_so_beside_others() {
    let world = world();
    world.run("key new --no-recovery k.key").done();
    world.run("backup sqlite:app.db --repo night --encrypt-to k.key.pub").done();
    let (name, _) = record_of(&world, 2);
    fs::remove_file(world.at(&name)).unwrap();
    fs::remove_dir_all(world.at("state")).unwrap();
    let several = world.run("restore --repo night --into sqlite:copy.db");
    several
        .refused(1, "--repo", "several databases")
        .says(&["1 set with an encrypted name", "catalog rebuild --repo night --key"]);
}

#[test]
fn a_backup_of_1970_has_no_age() {
    let world = world();
    for folder in ["a", "b"] {
        for name in families(&world, folder) {
            let family = fs::File::options().write(true).open(world.at(&format!("{folder}/{name}"))).unwrap();
            family.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
    }
    let checked = world.run("check --repo night --max-age 26h");
    let checked = checked.refused(1, "--repo night", "is dated 1970-01-01T00:00:00Z, before the first version");
    assert!(!checked.err.contains("minutes") && !checked.err.contains("days old"), "{checked}");
}

#[test]
fn a_family_under_whose_name_another_stands_is_said_to_be_replaced() {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    for _ in 0..2 {
        world.run("backup sqlite:app.db --repo night --compression none").done();
    }
    let family = |set: &Value| format!("a/{}", set["families"][0]["name"].as_str().unwrap());
    let ((record, mut set), (_, other)) = (record_of(&world, 0), record_of(&world, 1));
    let instead = world.read(&family(&other));
    world.write(&family(&set), &instead);
    // As long as it was: only its header tells.
    set["families"][0]["bytes"] = instead.len().into();
    world.write(&record, set.to_string().as_bytes());
    fs::remove_dir_all(world.at("state")).unwrap();
    let id = set["backup_set_id"].as_str().unwrap();
    let verified = world.run(&format!("verify --repo night --set {id}"));
    verified.refused(3, id, "its families now contain full").says(&["its families were replaced"]);
    let listed = world.run("list --repo night --json").with_code(4).json();
    assert!(listed[0]["failed_at"].is_string() && listed[0]["verified_at"].is_null(), "{listed}");
}

#[test]
fn a_prune_on_a_disk_without_any_room_makes_some() {
    let world = World::with_shape(Shape { rows: 2_000, ..Shape::default() });
    let test = "a_prune_on_a_disk_without_any_room_makes_some";
    let Some(disk) = SmallDisk::mount(&world, "disk", 8, test) else { return };
    world.write("fullbore.toml", b"[repository.night]\nto = [\"disk/\"]\n[repository.night.keep]\nlast = 1\n");
    for _ in 0..3 {
        world.run("backup sqlite:app.db --repo night --compression none").done();
    }
    world.run("verify --repo night --latest").done();
    let fill = |name: &str| {
        let noise = vec![7; 4096];
        let mut file = fs::File::create(world.at(name)).unwrap();
        while std::io::Write::write_all(&mut file, &noise).is_ok() {}
    };
    fill("disk/of-somebody-else");
    world.run("backup sqlite:app.db --repo night").with_code(1).says(&["No space left"]);
    world.run("prune --repo night --confirm --grace 0s").done();
    let left = disk.names().into_iter().filter(|name| name.ends_with(".bore")).count();
    assert_eq!(left, 1, "{:?}", disk.names());
    assert!(world.at("disk/.fullbore/reserve").exists(), "room is kept for the next one");
    world.run("restore --repo night --into sqlite:copy.db").done();
    world.assert_copy();
    // Without that, what to do is said.
    fill("disk/of-another");
    fs::remove_file(world.at("disk/.fullbore/reserve")).unwrap();
    fill("disk/of-a-third");
    let refused = world.run("prune --repo night --confirm --grace 0s");
    refused.refused(1, "disk/.fullbore", "No space left").says(&["free about 100 KiB there by hand"]);
    if program::is_root() {
        drop(disk);
    }
}

/// The one that was made later knows nothing of the other, whose first place is not its own.
#[test]
fn two_repositories_do_not_share_a_place() {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    let text = "[repository.one]\nto = [\"a/\"]\n[repository.one.keep]\nlast = 9\n\
                [repository.two]\nto = [\"b/\", \"a/\"]\nstripes = 2\n[repository.two.keep]\nlast = 1\n";
    world.write("fullbore.toml", text.as_bytes());
    world.run("backup sqlite:app.db --repo two").done();
    for _ in 0..2 {
        world.run("backup sqlite:app.db --repo one").done();
    }
    let before = world.names("a");
    let lines =
        ["backup sqlite:app.db --repo two", "prune --repo two --confirm --grace 0s", "copy --repo one --to-repo two"];
    for line in lines {
        world.run(line).refused(1, "a/", "holds the records of another repository");
    }
    // Who only reads is told.
    world.run("verify --repo two").with_code(4).says(&["holds the records of another repository"]);
    assert_eq!(world.names("a"), before);
    world.run("restore --repo one --into sqlite:copy.db").done();
    world.assert_copy();
    // One place by two names.
    world.write("fullbore.toml", b"[repository.one]\nto = [\"a/\", \"./b/../a/\"]\n[repository.one.keep]\nlast = 1\n");
    world.run("backup sqlite:app.db --repo one").refused(1, "a/", "both are the same place");
}
