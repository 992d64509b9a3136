//! `fullbore restore`: where it goes and which set is meant.

use crate::database;
use crate::world::World;

/// Two fulls of two states in `a/`; the first state is kept as `first.db`.
fn two_fulls() -> World {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/one.bore").done();
    std::fs::copy(world.at("app.db"), world.at("first.db")).unwrap();
    database::change(&world.at("app.db"), 3);
    world.run("backup sqlite:app.db --to a/two.bore").done();
    world
}

fn set_of(world: &World, family: &str) -> String {
    let header = world.run(&format!("inspect header --from {family} --json")).done().json();
    header[0]["backup_set_id"].as_str().unwrap().to_owned()
}

#[test]
fn two_fulls_are_refused_with_the_list_of_both() {
    let world = two_fulls();
    let (one, two) = (set_of(&world, "a/one.bore"), set_of(&world, "a/two.bore"));
    let ended = world.run("restore --from a --into sqlite:copy.db");
    ended.refused(1, "--from", "more than one chain").says(&[&one, &two, "--latest", "--set"]);
    world.assert_no_copy();
}

#[test]
fn the_latest_of_two_fulls_is_the_newer_one() {
    two_fulls().assert_restores("--from a --latest");
}

#[test]
fn a_set_is_chosen_by_its_id() {
    let world = two_fulls();
    let one = set_of(&world, "a/one.bore");
    world.run(&format!("restore --from a --set {one} --into sqlite:copy.db")).done();
    assert_eq!(database::contents(&world.at("copy.db")), database::contents(&world.at("first.db")));
    world.run("restore --from a --set zzzz --into sqlite:other.db").refused(2, "--set zzzz", "no such set");
    let common: String = one.chars().take(4).collect();
    world.run(&format!("restore --from a --set {common} --into sqlite:other.db")).refused(
        2,
        "--set",
        "fits several sets",
    );
    assert!(!world.at("other.db").exists());
}

#[test]
fn families_are_found_by_pattern_directory_and_name_in_any_order() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/ --to b/ --stripes 4 --name-template x-{family}").done();
    for from in [
        "--from b --from a",
        "--from a/x-* --from b/x-[24]",
        "--from b/x-4 --from a/x-3 --from b --from a/x-1",
        "--from a --from a --from b",
    ] {
        world.assert_restores(from);
    }
}

#[test]
fn a_directory_as_target_gets_the_database_under_its_own_name() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/app.bore").done();
    world.run("restore --from a --into dir:new").refused(2, "new", "No such file");
    world.run("restore --from a --into dir:new --mkdir").done();
    assert_eq!(world.names("new"), ["app.db"]);
    database::assert_same_file(&world.at("app.db"), &world.at("new/app.db"));
}

#[test]
fn into_nul_everything_is_read_and_nothing_kept() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/app.bore").done();
    let before = world.names(".");
    world.run("restore --from a --into nul:").done();
    assert_eq!(world.names("."), before);
}

#[test]
fn a_dry_run_of_a_restore_writes_nothing() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/app.bore").done();
    world.run("restore --from a --into sqlite:copy.db --dry-run").with_code(0).says(&[]);
    world.assert_no_copy();
}

#[test]
fn sqlite_checks_the_restored_file_when_asked() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/app.bore").done();
    for check in ["--check none", "--check quick", "--check full", "--integrity-check", "--start-check"] {
        let report = world.run(&format!("restore --from a --into sqlite:copy.db {check} --report json")).done().json();
        let checked = report["verdict"]["fixed_costs"].to_string().contains("integrity check");
        assert!(checked || check == "--check none", "{check}: {report:#}");
        world.assert_copy();
        std::fs::remove_file(world.at("copy.db")).unwrap();
    }
    world.run("restore --from a --into nul: --check quick").refused(2, "--check", "keeps no database");
    world.run("restore --from a --into dir:out --users").refused(2, "--users", "running server");
    let line = "restore --from a --into sqlite:copy.db --check full --server-program /bin/true";
    world.run(line).refused(2, "--server-program", "which needs no server");
    world.run("restore --from a --into sqlite:copy.db --check full --start-check").with_code(2);
    world.assert_no_copy();
}

#[test]
fn options_of_other_engines_are_refused_before_the_target_exists() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/app.bore").done();
    for (option, why) in [
        ("--owner root", "only the files of a server"),
        ("--place-outside", "no tablespaces"),
        ("--map shop=new", "only a logical set"),
        ("--table shop.orders", "MySQL or MariaDB"),
        ("--file 2", "choose a set of fullbore with --set"),
        ("--move shop new.mdf", "--into names the target"),
    ] {
        let flag = option.split(' ').next().unwrap_or_default();
        for step in ["", " --no-recovery"] {
            if step.is_empty() || flag != "--table" {
                world.run(&format!("restore --from a --into sqlite:copy.db {option}{step}")).refused(2, flag, why);
                world.assert_no_copy();
            }
        }
    }
    world.run("restore --from a --into sqlite:copy.db --file 1").done();
    world.write("fullbore.toml", "[engine.mysql]\nowner = \"mysql\"\n".as_bytes());
    world.run("restore --config fullbore.toml --from a --into nul:").refused(2, "owner", "not an option of MySQL");
}

#[test]
fn a_database_that_was_damaged_before_its_backup_is_not_published_by_a_checked_restore() {
    let world = World::with_database();
    let mut bytes = world.read("app.db");
    let page = 4096 * 9;
    bytes[page..page + 64].fill(0xee);
    world.write("app.db", &bytes);
    world.run("backup sqlite:app.db --to a/app.bore").done();
    for check in ["--integrity-check", "--check quick"] {
        let line = format!("restore --from a --into sqlite:copy.db {check}");
        world.run(&line).refused(1, "copy.db", "the check finds");
        world.assert_no_copy();
    }
    world.run("restore --from a --into sqlite:copy.db --check none").done();
}

#[test]
fn an_incomplete_newer_set_is_named_and_not_skipped_in_silence() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/one.bore").done();
    world.run("backup sqlite:app.db --to a/two.bore --to b/two.bore").done();
    std::fs::remove_file(world.at("b/two.bore")).unwrap();
    world.run("restore --from a --into sqlite:copy.db").with_code(4).says(&[
        "warning: ",
        "is newer, but cannot be used",
        "missing",
    ]);
    world.assert_copy();
}

#[test]
fn small_pools_are_enough_and_too_small_ones_say_the_minimum() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/ --stripes 6 --max-transfer-size 64KiB").done();
    let ended =
        world.run("restore --from a --into sqlite:copy.db --buffer-count 3").refused(2, "--buffer-count", "fewer than");
    world.assert_no_copy();
    let least: usize =
        ended.err.split("give at least ").nth(1).unwrap().split([',', '\n']).next().unwrap().parse().unwrap();
    world.run(&format!("restore --from a --into sqlite:copy.db --buffer-count {least}")).done();
    world.assert_copy();
    world.run(&format!("verify --from a --buffer-count {least}")).done();
}

#[test]
fn a_directory_that_holds_anything_is_left_alone() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/").done();
    std::fs::create_dir(world.at("full")).unwrap();
    std::fs::write(world.at("full/letter.txt"), "mine").unwrap();
    world.run("restore --from a --into dir:full").refused(1, "full", "is not empty");
    assert_eq!(world.names("full"), ["letter.txt"]);
}
