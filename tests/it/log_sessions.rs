//! Log sets of a database that its application closes every evening: then its log is gone, and the next one begins with nothing in it.

use rusqlite::Connection;

use crate::database;
use crate::world::World;

/// Fulls and log sets of so many sessions, each of which makes a table; the time of each one's last commit.
fn sessions(world: &World, count: usize) -> Vec<String> {
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    Connection::open(world.at("app.db")).unwrap().execute_batch("PRAGMA journal_mode = WAL").unwrap();
    let session = |number: usize| {
        let app = Connection::open(world.at("app.db")).unwrap();
        app.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).unwrap();
        world.run("backup sqlite:app.db --repo night").done();
        app.execute_batch(&format!("CREATE TABLE session_{number} (n); INSERT INTO session_{number} VALUES (1)"))
            .unwrap();
        world.run("backup sqlite:app.db --repo night --kind log").done();
    };
    (1..=count).for_each(session);
    let headers = world.run("inspect header --from a --json").done().json();
    let logs = headers.as_array().unwrap().iter().filter(|set| set["kind"] == "log");
    let mut ends: Vec<String> = logs.map(|set| set["log_at"].as_str().unwrap().to_owned()).collect();
    ends.sort();
    assert_eq!(ends.len(), count);
    ends
}

/// The tables of the sessions that a restore brings back.
fn restored(world: &World, line: &str) -> i64 {
    let _ = std::fs::remove_file(world.at("copy.db")); // Of the one before, if any.
    world.run(&format!("restore {line} --into sqlite:copy.db --integrity-check")).done();
    let tables = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'session\\_%' ESCAPE '\\'";
    database::number(&world.at("copy.db"), tables)
}

#[test]
fn each_of_them_comes_back_with_the_full_that_it_stands_on() {
    let world = World::with_database();
    let ends = sessions(&world, 3);
    for (number, end) in (1..).zip(&ends) {
        for from in ["--repo night", "--from a"] {
            assert_eq!(restored(&world, &format!("{from} --stop-at {end}")), number, "{from} {end}");
        }
    }
    assert_eq!(restored(&world, "--repo night"), 3);
}

#[test]
fn without_its_full_a_log_set_is_not_applied_to_an_older_one() {
    let world = World::with_database();
    sessions(&world, 2);
    let listed = world.run("list --repo night --json").json();
    let of = |at: usize| listed[at]["backup_set_id"].as_str().unwrap().to_owned();
    let gone = of(2);
    std::fs::remove_file(world.first_family("a", &gone)).unwrap();
    world.run("restore --from a --latest --into sqlite:new.db").refused(3, &gone, "is not there");
    // Nor step by step.
    world.run(&format!("restore --from a --set {} --into sqlite:steps.db --no-recovery", of(0))).done();
    world.run(&format!("restore --from a --set {} --into sqlite:steps.db --no-recovery", of(3))).with_code(3);
    world.run(&format!("restore --from a --set {} --into sqlite:steps.db --recovery", of(1))).done();
}
