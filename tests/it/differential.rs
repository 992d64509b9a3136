//! `--kind differential`: what changed since a full, and the way back.

use crate::database::{self, Shape};
use crate::world::World;

/// A full of `app.db` in `a/full-*`, then `change`, then a differential in `b/`.
fn after(shape: Shape, change: impl FnOnce(&World)) -> World {
    let world = World::with_shape(shape);
    world.run("backup sqlite:app.db --to a/ --stripes 2 --name-template full-{family}.bore").done();
    change(&world);
    world.run("backup sqlite:app.db --to b/ --stripes 3 --kind differential --base a").done();
    world
}

/// Restored, it is the database of now, byte for byte; and the bytes of a full taken now.
#[track_caller]
fn assert_restores_to_now(world: &World) {
    world.run("verify --from a --from b").done();
    world.assert_restores("--from a --from b");
    world.run("backup sqlite:app.db --to now.bore").done();
    world.run("restore --from now.bore --into sqlite:now.db").done();
    world.run("restore --from b --from a --into sqlite:then.db").done();
    assert!(world.read("now.db") == world.read("then.db"), "another file than that of a full of the same moment");
}

#[test]
fn changed_added_and_deleted_rows_come_back() {
    for page_size in [512, 4096, 32768] {
        let world = after(Shape { page_size, ..Shape::default() }, |world| database::change(&world.at("app.db"), 2));
        assert_restores_to_now(&world);
    }
}

#[test]
fn an_unchanged_database_makes_an_almost_empty_differential() {
    let world = after(Shape::default(), |_| ());
    let report = world.run("backup sqlite:app.db --to nul: --kind differential --base a --report json").done().json();
    assert!(report["stored_bytes"].as_u64().unwrap() < 64 << 10, "{report:#}");
    assert_restores_to_now(&world);
}

#[test]
fn freed_pages_come_back_as_zeros() {
    let world =
        after(Shape::default(), |world| database::sql(&world.at("app.db"), "DELETE FROM item WHERE id % 10 <> 0"));
    assert_restores_to_now(&world);
}

#[test]
fn a_database_that_was_vacuumed_and_is_shorter_comes_back() {
    for auto_vacuum in ["none", "full"] {
        let world = after(Shape { auto_vacuum, ..Shape::default() }, |world| {
            let before = std::fs::metadata(world.at("app.db")).unwrap().len();
            database::sql(&world.at("app.db"), "DELETE FROM item WHERE id > 900; VACUUM");
            assert!(std::fs::metadata(world.at("app.db")).unwrap().len() < before);
        });
        assert_restores_to_now(&world);
    }
}

#[test]
fn a_database_that_has_grown_comes_back() {
    let world = after(Shape { rows: 300, ..Shape::default() }, |world| {
        let more = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 900) INSERT INTO item SELECT NULL, 'more', randomblob(999) FROM n";
        database::sql(&world.at("app.db"), more);
    });
    assert_restores_to_now(&world);
}

#[test]
fn every_codec_and_encryption_make_differentials_too() {
    let world = World::with_database();
    world.run("key new --no-recovery k.key").done();
    world.run("backup sqlite:app.db --to a/full.bore --encrypt-to k.key.pub").done();
    for (round, codec) in (1..).zip(["none", "lz4", "zstd:1", "gzip:1"]) {
        database::change(&world.at("app.db"), round);
        let line = format!(
            "backup sqlite:app.db --to b/{round}.bore --kind differential --base a/full.bore --compression {codec} --encrypt-to k.key.pub"
        );
        world.run(&line).refused(1, "media set", "encrypted");
        world.run(&format!("{line} --key k.key")).done();
        world.assert_restores(&format!("--from a --from b/{round}.bore --key k.key"));
    }
    world.assert_restores("--from a --from b --key k.key");
}

#[test]
fn the_list_says_which_full_a_differential_belongs_to() {
    let world = after(Shape::default(), |_| ());
    let sets = world.run("list --from a --from b --json").done().json();
    assert_eq!(sets[1]["base_backup_set_id"], sets[0]["backup_set_id"]);
    let table = world.run("list --from a --from b").done().text();
    let (full, first) = (sets[0]["backup_set_id"].as_str().unwrap(), table.lines().nth(1).unwrap());
    assert!(table.lines().next().unwrap().contains("based on"), "{table}");
    assert!(first.contains(" differential ") && first.contains(full), "newest first: {table}");
}

#[test]
fn a_differential_without_its_base_is_not_restored() {
    let world = after(Shape::default(), |_| ());
    world.run("restore --from b --into sqlite:copy.db").refused(3, "differential", "is not there");
    world.run("backup sqlite:app.db --to other.bore").done();
    let differential = world.run("inspect header --from b --json").done().json();
    let id = differential[0]["backup_set_id"].as_str().unwrap().to_owned();
    world.run(&format!("restore --from b --from other.bore --set {id} --into sqlite:copy.db")).refused(
        3,
        "differential",
        "is not there",
    );
    world.assert_no_copy();
}

#[test]
fn verify_tells_of_a_missing_full_with_one_code_in_a_directory_and_in_a_repository() {
    let world = World::with_database();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    world.run("backup sqlite:app.db --repo night").done();
    world.run("backup sqlite:app.db --repo night --kind differential").done();
    world.run("verify a").done();
    world.run("verify --repo night").done();
    let full = world.names("a").into_iter().find(|name| name.contains("-full-")).unwrap();
    std::fs::rename(world.at("a").join(full), world.at("full.bore")).unwrap();
    let says = ["its own bytes are right, but it cannot be restored: its full, ", "hint: "];
    world.run("verify a").with_code(3).says(&says);
    world.run("verify a full.bore").done();
    world.run("verify --repo night").with_code(3).says(&["family 1 of 1 is missing"]);
    // Nothing in the repository knows the full any more.
    let listed = world.run("list --repo night --json").with_code(4).json();
    let full = listed.as_array().unwrap().iter().find(|set| set["kind"] == "full").unwrap();
    let record = format!("a/.fullbore/sets/{}.json", full["backup_set_id"].as_str().unwrap());
    std::fs::remove_file(world.at(&record)).unwrap();
    world.run("verify --repo night").with_code(3).says(&says);
    let restored = world.run("restore --repo night --into sqlite:copy.db").with_code(3);
    restored.says(&["is not there", "hint: `fullbore list --repo night` shows the sets that are there"]);
    assert!(
        !world.run("list --repo night --json").json()[0]["verified_at"].is_null(),
        "the verdict is on its own bytes"
    );
}

#[test]
fn a_full_that_is_not_whole_is_no_base() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/full.bore --to b/full.bore").done();
    std::fs::remove_file(world.at("b/full.bore")).unwrap();
    world.run("backup sqlite:app.db --to b/diff.bore --kind differential --base a").refused(3, "full", "missing");
    assert!(world.names("b").is_empty());
}

#[test]
fn a_base_that_is_missing_or_none_is_refused() {
    let world = World::with_database();
    let line = "backup sqlite:app.db --to a/diff.bore --kind differential";
    world.run(line).refused(2, "--kind differential", "not named").says(&["--base"]);
    world.run(&format!("{line} --base gone.bore")).refused(2, "gone.bore", "No such file");
    world.run(&format!("{line} --base b")).refused(3, "--base", "");
    world.run(&format!("{line} --base app.db")).refused(3, "app.db", "");
    world.run("backup sqlite:app.db --to a/x.bore --base b").refused(2, "--base", "only a differential");
    world.run("backup sqlite:app.db --to a/x.bore --kind log").refused(2, "--kind log", "is not named");
    world.assert_no_media();
}

#[test]
fn a_differential_is_no_base() {
    let world = after(Shape::default(), |_| ());
    world.run("backup sqlite:app.db --to x.bore --kind differential --base b").refused(3, "--base", "");
    assert!(!world.at("x.bore").exists());
}

#[test]
fn another_page_size_than_that_of_the_full_is_refused() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/full.bore").done();
    database::sql(&world.at("app.db"), "PRAGMA journal_mode = delete; PRAGMA page_size = 8192; VACUUM");
    world.run("backup sqlite:app.db --to b/diff.bore --kind differential --base a").refused(
        1,
        "base",
        "the page size of the database has changed",
    );
    assert!(world.names("b").is_empty());
}

#[test]
fn a_damaged_page_map_is_refused_and_leaves_nothing() {
    let world = World::with_small_set("--compression none");
    let bytes = world.read("a/app.bore");
    // The MAP block: kind 2 behind the magic of a block.
    let map = bytes.windows(6).position(|window| window == b"fbBK\0\x02").unwrap();
    for offset in [map + 5, map + 40, map + 70, map + 100, map + 64 + 40] {
        let mut damaged = bytes.clone();
        damaged[offset] ^= 0x10;
        world.write("a/app.bore", &damaged);
        world
            .run("backup sqlite:app.db --to b/diff.bore --kind differential --base a/app.bore")
            .with_code(3)
            .says(&["a/app.bore"]);
        assert!(world.names("b").is_empty());
    }
}

#[test]
fn a_full_of_another_database_of_the_same_name_is_no_base() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/full.bore").done();
    std::fs::create_dir(world.at("elsewhere")).unwrap();
    std::fs::copy(world.at("app.db"), world.at("elsewhere/app.db")).unwrap();
    let line = "backup sqlite:elsewhere/app.db --to b/diff.bore --kind differential --base a";
    world.run(line).refused(3, "--base", "and this backup is of");
    assert!(world.names("b").is_empty());
    // The same file by another path is the same database.
    std::os::unix::fs::symlink("app.db", world.at("alias.db")).unwrap();
    world.run("backup sqlite:alias.db --to b/diff.bore --kind differential --base a").done();
    world.assert_restores("--from a --from b");
}

#[test]
fn a_restore_goes_on_with_the_differential_that_it_began_with() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/full.bore").done();
    database::change(&world.at("app.db"), 1);
    let differential = "backup sqlite:app.db --to b/diff.bore --kind differential --base a --init --quiet";
    world.run(differential).done();
    std::fs::copy(world.at("app.db"), world.at("then.db")).unwrap();
    for _ in 0..3 {
        let restore = world.start("restore --from a --from b --into sqlite:copy.db");
        for _ in 0..4 {
            assert!([0, 4].contains(&world.run(differential).code));
        }
        restore.wait().done();
        database::assert_same_file(&world.at("then.db"), &world.at("copy.db"));
        std::fs::remove_file(world.at("copy.db")).unwrap();
    }
}
