//! Keys: made, used, wrong, rotated.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::program;
use crate::world::World;

fn encrypted() -> World {
    let world = World::with_database();
    world.run("key new --no-recovery k.key").done();
    world.run("backup sqlite:app.db --to a/ --to b/ --encrypt-to k.key.pub --name secret-name").done();
    world
}

#[test]
fn a_new_key_asks_for_an_offline_recovery_recipient() {
    let world = World::new();
    world.run("key new k.key").refused(2, "key new", "no offline recovery key").says(&["--recovery", "--no-recovery"]);
    assert!(!world.at("k.key").exists() && !world.at("k.key.pub").exists());
    world.run("key new --no-recovery recovery.key").done();
    let text = world.run("key new --recovery recovery.key.pub k.key").done().text();
    assert!(text.contains("--encrypt-to k.key.pub --encrypt-to recovery.key.pub"), "{text}");
}

#[test]
fn a_new_secret_is_its_owners_alone_and_overwrites_nothing() {
    let world = World::new();
    world.run("key new --no-recovery k.key").done();
    assert_eq!(fs::metadata(world.at("k.key")).unwrap().permissions().mode() & 0o777, 0o600);
    let before = world.read("k.key");
    world.run("key new --no-recovery k.key").refused(1, "k.key", "exists");
    fs::remove_file(world.at("k.key.pub")).unwrap();
    world.run("key new --no-recovery k.key").refused(1, "k.key", "already there");
    assert_eq!(world.read("k.key"), before);
    assert!(!world.at("k.key.pub").exists(), "a .pub of a key that was not made");
}

#[test]
fn a_secret_that_systemd_passes_as_a_credential_opens_the_set_with_the_mode_of_an_access_list() {
    let world = encrypted();
    fs::create_dir(world.at("credentials")).unwrap();
    fs::rename(world.at("k.key"), world.at("credentials/key")).unwrap();
    fs::set_permissions(world.at("credentials/key"), fs::Permissions::from_mode(0o440)).unwrap();
    let key = world.at("credentials/key").display().to_string();
    let verify = |directory: &str| {
        let words = ["verify", "--from", "a", "--from", "b", "--key", &key];
        let mut command = program::command(world.folder(), words);
        command.env("CREDENTIALS_DIRECTORY", world.at(directory));
        program::run(command)
    };
    verify("credentials").done();
    verify("a").refused(1, "credentials/key", "users other than its owner");
}

#[test]
fn each_recipient_opens_the_set_alone() {
    let world = World::with_database();
    world.run("key new --no-recovery one.key").done();
    world.run("key new --no-recovery two.key").done();
    world.run("backup sqlite:app.db --to a/ --encrypt-to one.key.pub --encrypt-to two.key").done();
    world.assert_restores("--from a --key one.key");
    world.assert_restores("--from a --key two.key");
}

#[test]
fn without_the_key_nothing_is_opened() {
    let world = encrypted();
    for verb in ["verify", "restore --into sqlite:copy.db", "inspect files"] {
        world.run(&format!("{verb} --from a --from b")).refused(1, "media set", "encrypted").says(&["--key"]);
    }
    world.assert_no_copy();
}

#[test]
fn a_wrong_key_is_refused() {
    let world = encrypted();
    world.run("key new --no-recovery wrong.key").done();
    for verb in ["verify", "restore --into sqlite:copy.db", "inspect files"] {
        world.run(&format!("{verb} --from a --from b --key wrong.key")).refused(1, "media set", "key");
    }
    world.run("verify --from a --from b --key k.key.pub").refused(1, "k.key.pub", "only the public half");
    world.run("verify --from a --from b --key gone.key").refused(2, "gone.key", "No such file");
    world.write("noise.key", b"this is no key file\n");
    world.run("verify --from a --from b --key noise.key").refused(1, "noise.key", "key");
    world.assert_no_copy();
}

#[test]
fn a_key_file_that_others_may_read_is_refused() {
    let world = encrypted();
    for mode in [0o644, 0o640, 0o660] {
        fs::set_permissions(world.at("k.key"), fs::Permissions::from_mode(mode)).unwrap();
        world.run("verify --from a --from b --key k.key").refused(1, "k.key", "other than its owner").says(&["chmod"]);
    }
}

#[test]
fn names_and_contents_are_not_readable_in_encrypted_media() {
    let world = encrypted();
    let text = world.run("inspect label --from a --from b").done().text();
    assert!(text.contains("encrypted") && !text.contains("secret-name"), "{text}");
    let families = [world.names("a").remove(0), world.names("b").remove(0)];
    for path in [world.at("a").join(&families[0]), world.at("b").join(&families[1])] {
        let bytes = fs::read(path).unwrap();
        for word in ["secret-name", "app.db", "item number"] {
            assert!(!bytes.windows(word.len()).any(|window| window == word.as_bytes()), "{word}");
        }
    }
}

#[test]
fn a_rewrapped_set_opens_with_the_new_key_and_its_media_are_unchanged() {
    let world = encrypted();
    world.run("key new --no-recovery new.key").done();
    let family = world.names("a").remove(0);
    let before = fs::read(world.at("a").join(&family)).unwrap();
    world.run("key rewrap --from a --from b --key new.key --encrypt-to new.key.pub").refused(1, "media set", "key");
    world.run("key rewrap --from a --from b --key k.key --encrypt-to new.key.pub").done();
    assert!(fs::read(world.at("a").join(&family)).unwrap() == before);
    world.assert_restores("--from a --from b --key new.key");
    world.assert_restores("--from a --from b --key k.key");
    world.run("backup sqlite:app.db --to plain.bore").done();
    world.run("key rewrap --from plain.bore --key k.key --encrypt-to new.key.pub").refused(
        2,
        "--from",
        "no encrypted backup set",
    );
}

#[test]
fn one_damaged_sidecar_of_two_is_named_and_the_other_opens_the_set() {
    let world = encrypted();
    world.run("key new --no-recovery new.key").done();
    world.run("key rewrap --from a --from b --key k.key --encrypt-to new.key.pub").done();
    let name = world.names("a").into_iter().find(|name| name.ends_with(".borekeys")).unwrap();
    let path = world.at("a").join(name);
    let mut bytes = fs::read(&path).unwrap();
    bytes[40] ^= 4;
    fs::write(&path, bytes).unwrap();
    world.run("verify --from a --from b --key new.key").with_code(4).says(&["warning: ", ".borekeys", "checksum"]);
}

#[test]
fn a_damaged_sidecar_does_not_stand_against_the_original_key() {
    let world = encrypted();
    world.run("key new --no-recovery new.key").done();
    world.run("key rewrap --from a --from b --key k.key --encrypt-to new.key.pub").done();
    let sidecars: Vec<_> = world.names("a").into_iter().filter(|name| name.ends_with(".borekeys")).collect();
    for directory in ["a", "b"] {
        world.write(&format!("{directory}/{}", sidecars[0]), b"torn");
    }
    for verb in ["verify", "restore --into sqlite:copy.db"] {
        let ended = world.run(&format!("{verb} --from a --from b --key k.key"));
        ended.with_code(4).says(&["warning: ", ".borekeys"]);
    }
    world.assert_copy();
    // Who is only in the sidecar hears of it.
    world.run("verify --from a --from b --key new.key").refused(3, ".borekeys", "damaged");
}
