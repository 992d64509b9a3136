//! `hide-names`: the records of a repository tell no path and no name of encrypted sets, and everything works as before.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::database::{self, Shape};
use crate::world::World;

const KEYS: &str = "hide-names = true\nencrypt-to = [\"k.key.pub\"]\nkey = \"k.key\"\n";

/// A database whose name is a secret, and two repositories that hide it.
fn world() -> World {
    let world = World::new();
    database::make(&world.at("SECRET.db"), Shape { rows: 150, ..Shape::default() });
    database::make(&world.at("other.db"), Shape { rows: 10, ..Shape::default() });
    world.run("key new --no-recovery k.key").done();
    let text = format!(
        "[repository.night]\nto = [\"a/\"]\n{KEYS}[repository.night.keep]\nlast = 1\n[repository.away]\nto = [\"b/\"]\n{KEYS}"
    );
    world.write("fullbore.toml", text.as_bytes());
    world
}

/// The files below a directory in whose names or bytes the secret stands.
fn told(directory: &Path) -> Vec<String> {
    let mut told = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap();
        let tells = |bytes: &[u8]| bytes.windows(6).any(|part| part == b"SECRET");
        match path.is_dir() {
            true => told.extend(self::told(&path)),
            false if tells(name.as_bytes()) || tells(&fs::read(&path).unwrap()) => {
                told.push(path.display().to_string())
            }
            false => {}
        }
    }
    told
}

fn listed(world: &World, options: &str) -> Vec<Value> {
    world.run(&format!("list --repo night --json {options}")).done().json().as_array().unwrap().clone()
}

#[test]
fn nothing_in_a_repository_that_hides_names_tells_one_whatever_is_done_in_it() {
    let world = world();
    let secret = world.at("SECRET.db");
    database::sql(&secret, "PRAGMA journal_mode = WAL");
    let more = |n: u32| database::sql(&secret, &format!("CREATE TABLE t{n} AS SELECT 1 AS n, 2 AS m"));
    let name = "--name SECRET-NAME";
    world.run(&format!("backup sqlite:SECRET.db --repo night {name} --copy-to away")).done();
    world.run("backup sqlite:other.db --repo night").done();
    more(1);
    let auto = world.run(&format!("backup sqlite:SECRET.db --repo night --kind auto {name}")).done();
    assert!(auto.err.contains("a differential of full"), "{auto}");
    let held = rusqlite::Connection::open(&secret).unwrap();
    held.execute_batch("PRAGMA wal_autocheckpoint = 0; CREATE TABLE held (n, m)").unwrap();
    world.run(&format!("backup sqlite:SECRET.db --repo night --kind full {name}")).done();
    held.execute_batch("INSERT INTO held VALUES (1, 2)").unwrap();
    world.run(&format!("backup sqlite:SECRET.db --repo night --kind log {name}")).done();
    world.run("log follow sqlite:SECRET.db --repo night --for 1s --interval 200ms");
    drop(held);
    // Runs that fail say why on their own host only.
    world.run("backup sqlite:SECRET-that-is-not-there.db --repo night").with_code(2);
    let path = secret.canonicalize().unwrap().display().to_string();
    world.run(&format!("restore --repo night --database {path} --into sqlite:SECRET.db")).with_code(1);
    world.run("verify --repo night").done();
    world.run(&format!("restore-test --repo night --database {path} --scratch .")).done();
    world.run(&format!("copy --repo night --database {path} --to-repo away")).done();
    world.run(&format!("prune --repo night --database {path} --confirm --grace 0s")).done();
    world.run(&format!("check --repo night --database {path} --max-age 1h --max-unproven 1h")).done();
    fs::remove_dir_all(world.at("a/.fullbore/sets")).unwrap();
    world.run("catalog rebuild --repo night --key k.key").done();
    assert_eq!((told(&world.at("a")), told(&world.at("b"))), (Vec::new(), Vec::new()));
    world.run(&format!("restore --repo night --database {path} --into sqlite:copy.db")).done();
    assert_eq!(database::contents(&world.at("copy.db")), database::contents(&secret));
}

#[test]
fn hidden_sets_are_grouped_without_a_key_and_named_with_one() {
    let world = world();
    for name in ["SECRET.db", "other.db", "SECRET.db"] {
        world.run(&format!("backup sqlite:{name} --repo night")).done();
    }
    let names = |options: &str| -> Vec<String> {
        listed(&world, options).iter().map(|set| set["database"].as_str().unwrap().to_owned()).collect()
    };
    let hidden = names("");
    assert!(hidden.iter().all(|name| name.starts_with("hidden-local-")), "{hidden:?}");
    assert!(hidden[0] == hidden[2] && hidden[0] != hidden[1], "{hidden:?}");
    let clear = names("--key k.key");
    assert!(clear[0].ends_with("/SECRET.db") && clear[1].ends_with("/other.db"), "{clear:?}");
    assert_eq!(
        names(&format!("--database {}", clear[0])).len(),
        2,
        "with the public key, a reader finds it by its whole name"
    );
    assert_eq!(names(&format!("--database {}", hidden[1])).len(), 1);
    // The rules hold for each database by itself, also on a host that has no key.
    world.run("verify --repo night").done();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n[repository.night.keep]\nlast = 1\n");
    world.run("prune --repo night --confirm --grace 0s").done();
    assert_eq!(names(""), hidden[1..]);
    world.run("check --repo night --max-age 1h").done();
}

#[test]
fn a_public_key_that_is_not_there_stops_new_backups_and_no_restore() {
    let world = world();
    world.run("backup sqlite:SECRET.db --repo night").done();
    fs::remove_file(world.at("k.key.pub")).unwrap();
    world.run("backup sqlite:SECRET.db --repo night").refused(2, "k.key.pub", "No such file");
    world.run("restore --repo night --database SECRET-and-no-more --into sqlite:copy.db").with_code(2);
    world.run("restore --repo night --into sqlite:copy.db").done();
    world.run("verify --repo night").done();
    assert_eq!(told(&world.at("a")), Vec::<String>::new());
}

#[test]
fn sets_from_before_names_were_hidden_belong_to_their_database_still() {
    let world = world();
    let hiding = world.text("fullbore.toml");
    world.write("fullbore.toml", hiding.replace("hide-names = true\n", "").as_bytes());
    world.run("backup sqlite:SECRET.db --repo night").done();
    world.write("fullbore.toml", hiding.as_bytes());
    database::sql(&world.at("SECRET.db"), "CREATE TABLE more AS SELECT 1 AS n");
    world.run("backup sqlite:SECRET.db --repo night --kind differential").done();
    let sets = listed(&world, "");
    assert_eq!(sets[0]["database"], sets[1]["database"], "{sets:?}");
    world.run("restore --repo night --into sqlite:copy.db").done();
}

#[test]
fn hiding_without_a_key_or_with_names_in_families_is_refused() {
    let world = world();
    let text = world.text("fullbore.toml");
    world.write("fullbore.toml", text.replace("encrypt-to = [\"k.key.pub\"]\n", "").as_bytes());
    world.run("backup sqlite:SECRET.db --repo night").refused(2, "[repository.night] hide-names", "has no encrypt-to");
    world.write("fullbore.toml", text.as_bytes());
    let line = "--name-template {database}-{set}.bore";
    world.run(&format!("backup sqlite:SECRET.db --repo night {line}")).refused(2, "--name-template", "hide-names");
    world.run(&format!("backup sqlite:SECRET.db --repo night --copy-to away {line}")).with_code(2);
    world.assert_no_media();
}
