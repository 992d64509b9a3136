//! Which configuration counts, what is refused of it, and what a result and a plan say of it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

use crate::program;
use crate::world::World;

const NOBODY: u32 = 65_534;
const BACKUP: &str = "backup sqlite:app.db --to b/";

fn allow(world: &World, name: &str, mode: u32) {
    fs::set_permissions(world.at(name), fs::Permissions::from_mode(mode)).unwrap();
}

/// With the pair of keys `night.key` and `night.key.pub`, and a configuration that encrypts to it.
fn encrypting() -> World {
    let world = World::with_database();
    world.run("key new night.key --no-recovery").with_code(0);
    world.write("fullbore.toml", b"encrypt-to = [\"night.key.pub\"]\ncompression = \"lz4\"\n");
    world
}

#[test]
fn a_configuration_that_others_may_write_or_replace_is_refused_and_nothing_is_written() {
    let world = encrypting();
    allow(&world, "fullbore.toml", 0o666);
    world.run(BACKUP).refused(2, "fullbore.toml", "everybody may write it").says(&["chmod go-w"]);
    world.run("list --from b --config fullbore.toml").refused(2, "fullbore.toml", "everybody may write it");
    allow(&world, "fullbore.toml", 0o644);
    allow(&world, ".", 0o777);
    world.run(BACKUP).refused(2, "fullbore.toml", "everybody may replace it");
    world.assert_no_media();
    allow(&world, ".", 0o1777);
    world.run(BACKUP).done();
}

#[test]
fn a_configuration_of_another_user_is_refused_also_where_it_is_named_or_behind_a_link() {
    let test = "a_configuration_of_another_user_is_refused_also_where_it_is_named_or_behind_a_link";
    if !program::is_root() {
        return program::skipped(test, "only root makes files of others");
    }
    let world = encrypting();
    fs::create_dir(world.at("other")).unwrap();
    fs::rename(world.at("fullbore.toml"), world.at("other/their.toml")).unwrap();
    symlink("other/their.toml", world.at("fullbore.toml")).unwrap();
    world.run(BACKUP).done();
    for name in ["other/their.toml", "other"] {
        chown(world.at(name), Some(NOBODY), None).unwrap();
        world.run(BACKUP).refused(2, "fullbore.toml", "belongs to the user");
        let named = format!("{BACKUP} --config other/their.toml");
        world.run(&named).refused(2, "other/their.toml", "belongs to the user").says(&["chown"]);
        chown(world.at(name), Some(0), None).unwrap();
    }
    world.run(BACKUP).done();
}

#[test]
fn a_result_names_the_configuration_that_counted_and_the_keys_of_the_set() {
    let world = encrypting();
    let report = world.run(&format!("{BACKUP} --report json")).done().json();
    let id = report["encrypted_to"][0]["key_id"].as_str().unwrap().to_owned();
    assert_eq!((id.len(), report["encrypted_to"][0]["file"].as_str()), (32, Some("night.key.pub")));
    let path = world.at("fullbore.toml").canonicalize().unwrap().display().to_string();
    assert_eq!(report["configuration"], path.as_str());
    let [key, configuration] = [format!("encrypted to {id}"), format!("configuration {path}")];
    for line in [BACKUP, "backup sqlite:app.db --to a/ --dry-run", "copy --from b --latest --to a/ --key night.key"] {
        let text = world.run(&format!("{line} -v")).done().text();
        assert!(text.contains(&key) && text.contains(&configuration), "{line}: {text}");
    }
    let restored = world.run("restore --from b --latest --into sqlite:copy.db --key night.key -v").done().text();
    assert!(restored.contains(&configuration), "{restored}");
    fs::remove_file(world.at("fullbore.toml")).unwrap();
    let clear = world.run(&format!("{BACKUP} -v")).done().text();
    assert!(!clear.contains("encrypted") && !clear.contains("configuration"), "{clear}");
}

#[test]
fn the_environment_names_the_configuration_and_the_flag_wins() {
    let world = World::with_database();
    world.write("one.toml", b"compression = 'none'");
    world.write("two.toml", b"compression = 'zstd:1'");
    for (more, file) in [("", "one.toml"), (" --config two.toml", "two.toml")] {
        let line = format!("backup sqlite:app.db --to nul:{more} --report json");
        let mut command = program::command(world.folder(), line.split_whitespace());
        command.env("FULLBORE_CONFIG", "one.toml");
        let report = program::run(command).done().json();
        assert!(report["configuration"].as_str().unwrap().ends_with(file), "{report}");
    }
}

#[test]
fn the_words_of_other_programs_mean_a_differential_and_a_rate() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/").done();
    for kind in ["diff", "incr"] {
        let line = format!("backup sqlite:app.db --to a/ --kind {kind} --base a --throttle 500MB --report json");
        assert_eq!(world.run(&line).done().json()["kind"], "differential");
    }
}

#[test]
fn a_plan_names_the_families_with_their_places_and_room_the_codec_and_the_engine() {
    let world = World::with_database();
    let line = "backup sqlite:app.db --to a/ --to b/ --stripes 3 --compression zstd:3 --dry-run";
    let text = world.run(line).done().text();
    for words in [
        "full by engine sqlite",
        "compression zstd:3",
        "not encrypted",
        "family 1: a/app-full-",
        "family 2: b/app-full-",
    ] {
        assert!(text.contains(words), "`{words}` is not in {text}");
    }
    let families: Vec<&str> = text.lines().filter(|line| line.contains("  family ")).collect();
    assert_eq!(families.len(), 3, "{text}");
    assert!(families.iter().all(|line| line.contains(", about ") && line.ends_with(" free there")), "{text}");
    let report = world.run(&format!("{line} --report json")).done().json();
    let planned = &report["planned"];
    assert_eq!((planned["compression"].as_str(), planned["copies"].as_array().unwrap().len()), (Some("zstd:3"), 0));
    assert!(planned["families"][2]["device"].as_str().unwrap().starts_with("a/app-full-"), "{planned}");
    assert!(planned["families"][0]["free_bytes"].as_u64().unwrap() > 0, "{planned}");
    world.assert_no_media();
    let done = world.run("backup sqlite:app.db --to a/ --report json").done().json();
    assert!(done["planned"].is_null());
}

#[test]
fn without_home_profiles_are_those_of_the_machine_and_of_the_state_directory() {
    let world = World::with_database();
    let bare = |line: &str, state: bool| {
        let mut command = program::command(world.folder(), line.split_whitespace());
        command.env_clear();
        if state {
            command.env("XDG_STATE_HOME", world.at("state"));
        }
        program::run(command)
    };
    let none = bare("backup sqlite:app.db --to a/ --auto --profile there-is-none", false);
    none.refused(2, "profile `there-is-none`", "/var/lib/fullbore/profiles/there-is-none.json");
    world.run("calibrate --read app.db --write a --seconds 1 --space 32MiB --name night").done();
    bare("backup sqlite:app.db --to a/ --auto --profile night", true).done();
    // Where earlier versions kept it.
    let old = world.at("home/.config/fullbore/profiles");
    fs::create_dir_all(&old).unwrap();
    fs::rename(world.at("state/fullbore/profiles/night.json"), old.join("night.json")).unwrap();
    world.run("backup sqlite:app.db --to b/ --auto --profile night").done();
}
