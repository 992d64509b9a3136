//! Which set, run or database is meant by what is typed: parts of ids, and names with and without a host.

use serde_json::Value;

use crate::database::{self, Shape};
use crate::program::{self, Ended};
use crate::world::World;

/// Two databases with two fulls each, of one host.
fn world() -> World {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    database::sql(&world.at("other.db"), "CREATE TABLE t (a); INSERT INTO t VALUES (1)");
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    for name in ["app.db", "other.db", "app.db", "other.db"] {
        on(&world, "one", &format!("backup sqlite:{name} --repo night")).done();
    }
    world
}

fn on(world: &World, host: &str, line: &str) -> Ended {
    let mut command = program::command(world.folder(), line.split_whitespace());
    command.env("FULLBORE_HOST", host);
    program::run(command)
}

/// The ids of a listing, oldest first.
fn ids(world: &World, from: &str) -> Vec<String> {
    let listed = world.run(&format!("list {from} --json")).json();
    listed.as_array().unwrap().iter().map(|set| set["backup_set_id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_id_says_of_which_database_it_is() {
    let world = world();
    let ids = ids(&world, "--repo night");
    let (app, other) = (&ids[0], &ids[3]);
    world.run(&format!("restore --repo night --set {app} --into sqlite:copy.db")).done();
    world.assert_copy();
    world.run(&format!("restore-test --repo night --set {other} --scratch b")).done();
    world.run(&format!("verify --repo night --set {other}")).done();
    let copied = world.run(&format!("copy --repo night --set {other} --chain --to b/ --report json")).done().json();
    assert_eq!(copied["copied"][0]["backup_set_id"], Value::from(other.as_str()), "{copied}");
    // And a name that does not fit is heeded.
    let line = format!("restore --repo night --set {app} --database other.db --into sqlite:no.db");
    world.run(&line).refused(2, "--set", "no such set");
    world.run("restore --repo night --into sqlite:no.db").refused(1, "--repo", "several databases");
}

#[test]
fn any_part_of_an_id_is_enough_and_what_fits_several_names_them() {
    let world = world();
    let ids = ids(&world, "--repo night");
    let id = &ids[1];
    let media_set = world.run("list --from a --json").json();
    let media_set = media_set.as_array().unwrap().iter().find(|set| set["backup_set_id"] == id.as_str()).unwrap();
    let media_set = media_set["media_set_id"].as_str().unwrap().to_owned();
    for part in [
        id.clone(),
        id[..18].to_owned(),
        id[24..].to_owned(),
        id[5..20].to_owned(),
        format!("…{}", &id[24..]),
        media_set[20..].to_uppercase(),
    ] {
        for line in ["verify --repo night --report json", "verify --from a --report json"] {
            let report = world.run(&format!("{line} --set {part}")).done().json();
            assert_eq!(report["backup_set_id"], Value::from(id.as_str()), "{line} {part}");
        }
        let report = world.run(&format!("copy --from a --to b/ --set {part} --dry-run --report json")).done().json();
        assert_eq!(report["copied"][0]["backup_set_id"], Value::from(id.as_str()), "{part}");
    }
    // The ids of sets of the same hour begin alike.
    let ended = world.run(&format!("verify --repo night --set {}", &id[..4])).refused(2, "--set", "fits several sets");
    assert!(ids.iter().all(|id| ended.err.contains(id)), "{ended}");
    world.run("verify --repo night --set zzzz").refused(2, "--set zzzz", "no such set");
}

#[test]
fn a_run_is_named_by_any_part_of_its_id() {
    let world = world();
    let tasks = world.run("tasks --repo night --json").json();
    let task = tasks[2]["task"].as_str().unwrap();
    for part in [task, &task[..13], &task[5..20], &task[24..]] {
        let shown = world.run(&format!("task {part} --repo night --json")).done().json();
        assert_eq!(shown["task"], Value::from(task), "{part}");
    }
}

#[test]
fn a_base_is_shown_by_the_start_of_its_id_as_everywhere() {
    let world = world();
    database::sql(&world.at("app.db"), "CREATE TABLE more AS SELECT 1 AS n");
    on(&world, "one", "backup sqlite:app.db --repo night --kind differential").done();
    let base = &ids(&world, "--repo night")[2];
    let listed = world.run("list --repo night").done().text();
    let line = listed.lines().find(|line| line.contains("differential")).unwrap();
    assert!(line.contains(&base[..13]) && !listed.contains('…'), "{listed}");
    world.run(&format!("verify --repo night --set {}", &base[..13])).done();
}

#[test]
fn a_database_may_be_named_with_its_host_where_there_is_one_host_only() {
    let world = world();
    let path = world.at("app.db").canonicalize().unwrap();
    let line = |host: &str| format!("restore --repo night --database {host}:{} --into sqlite:copy.db", path.display());
    world.run(&line("two")).refused(2, "--database two:", "is not in the repository");
    world.run(&line("one")).done();
    world.assert_copy();
    let listed = world.run(&format!("list --repo night --database one:{} --json", path.display())).done().json();
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
}

#[test]
fn a_copy_of_several_chains_takes_the_newest_from_wherever_they_are() {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    world.write("fullbore.toml", b"[repository.night]\nto = [\"night/\"]\n[repository.away]\nto = [\"away/\"]\n");
    for folder in ["night", "away"] {
        std::fs::create_dir(world.at(folder)).unwrap();
    }
    for to in ["--to a/", "--repo night"] {
        for _ in 0..2 {
            let template = "--name-template {set}.bore";
            world.run(&format!("backup sqlite:app.db {to} {template}")).done();
        }
        let base = match to {
            "--to a/" => {
                let listed = world.run("list --from a --json").json();
                let newest = listed
                    .as_array()
                    .unwrap()
                    .iter()
                    .max_by_key(|set| set["backup_set_id"].as_str().unwrap().to_owned());
                format!("--base {}", newest.unwrap()["devices"][0].as_str().unwrap())
            }
            _ => String::new(),
        };
        database::sql(&world.at("app.db"), &format!("CREATE TABLE t{} AS SELECT 1 AS n", to.len()));
        world.run(&format!("backup sqlite:app.db {to} --kind differential {base} --name-template {{set}}.bore")).done();
    }
    for from in ["--from a", "--repo night"] {
        let chain = ids(&world, from).split_off(1);
        for to in ["--to b/", "--to-repo away"] {
            let report = world.run(&format!("copy {from} {to} --dry-run --report json")).done().json();
            let copied = report["copied"].as_array().unwrap().iter();
            let copied: Vec<&str> = copied.map(|copy| copy["backup_set_id"].as_str().unwrap()).collect();
            assert_eq!(copied, chain, "{from} {to}");
        }
    }
    world.run("copy --from a --to b/").done();
    assert_eq!(world.names("b").len(), 2);
    world.run("restore --from b --into sqlite:copy.db").done();
}
