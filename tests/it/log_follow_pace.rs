//! What `log follow` says of its pace: how much of the time it waits for the database, and whether it keeps up.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::log::kept_open;
use crate::log_follow::{until, world};
use crate::program::Running;
use crate::world::World;

const FOLLOW: &str = "log follow sqlite:app.db --to a/ --interval 50ms --report json:r.json";

fn report(world: &World, follower: Running) -> Value {
    follower.signal("TERM");
    follower.wait().done();
    serde_json::from_slice(&world.read("r.json")).unwrap()
}

fn log_sets(world: &World) -> usize {
    world.names("a").iter().filter(|name| name.contains("-log-") && name.ends_with(".bore")).count()
}

#[test]
fn a_follower_of_a_database_that_seldom_writes_waits_for_it_and_keeps_up() {
    let world = world();
    let app = kept_open(&world);
    let follower = world.start(&format!("{FOLLOW} --verbose"));
    until("a full", || world.names("a").iter().any(|name| name.contains("-full-") && name.ends_with(".bore")));
    // Seldom is meant in comparison with what a set takes, which is long on a machine that is busy with other tests.
    let mut took = Duration::ZERO;
    for n in 1..6 {
        std::thread::sleep((took * 8).max(Duration::from_millis(400)));
        let (before, begun) = (log_sets(&world), Instant::now());
        app.execute_batch(&format!("INSERT INTO ledger VALUES ({n}, {n}, NULL)")).unwrap();
        until("its set", || log_sets(&world) > before);
        took = begun.elapsed();
    }
    let report = report(&world, follower);
    let verdict = &report["verdict"];
    assert_eq!(verdict["limit"], "source", "{report:#}");
    let why = verdict["why"].as_str().unwrap();
    assert!(why.starts_with("the database wrote ") && why.ends_with("; it keeps up"), "{why}");
    let names: Vec<_> = verdict["uses"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["source", "transform", "sink", "processors"]);
    for stretch in [&report["following"]["run"], &report["following"]["last"]] {
        let number = |name: &str| stretch[name].as_f64().unwrap();
        assert_eq!(stretch["keeps_up"], true, "{report:#}");
        assert!(number("behind_s") > 0.0 && number("behind_s") <= number("elapsed_s") + 1.0, "{stretch}");
        assert!(number("stage_share") <= number("busy_share") && number("busy_share") < 1.0, "{stretch}");
        assert!(stretch["stage"].is_string() && number("mib_per_s") > 0.0, "{stretch}");
    }
    let sets = report["following"]["run"]["sets"].as_u64().unwrap();
    let backlog = u64::from(report["following"]["backlog"].is_object());
    assert_eq!(sets + backlog, log_sets(&world) as u64, "{report:#}");
    assert_eq!(report["stages"].as_array().unwrap().len(), 3);
}

#[test]
fn a_follower_that_cannot_keep_up_says_so_and_what_holds_it_up() {
    let world = world();
    let app = kept_open(&world);
    let follower = world.start(&format!("{FOLLOW} --compression zstd:19 --workers 1"));
    until("a full", || world.names("a").iter().any(|name| name.contains("-full-") && name.ends_with(".bore")));
    follower.says("its log is followed from here");
    // A commit of a moment that takes a worker seconds to pack so tightly.
    let before = log_sets(&world);
    app.execute_batch("INSERT INTO item SELECT NULL, 'w', randomblob(1000000) FROM item LIMIT 12").unwrap();
    until("its set", || log_sets(&world) > before);
    follower.signal("TERM");
    let ended = follower.wait().done();
    ended.says(&["falls behind: a set of ", "transform busy"]);
    let report: Value = serde_json::from_slice(&world.read("r.json")).unwrap();
    for stretch in [&report["following"]["run"], &report["following"]["last"]] {
        assert_eq!((&stretch["keeps_up"], &stretch["stage"]), (&false.into(), &"transform".into()), "{report:#}");
    }
    assert!(report["verdict"]["why"].as_str().unwrap().contains("; it falls behind"), "{report:#}");
}

#[test]
fn a_database_that_writes_nothing_is_said_to_and_what_was_there_before_is_told_apart() {
    let world = world();
    world.run("backup sqlite:app.db --to a/").done();
    let text = world.run(&format!("{FOLLOW} --base a --for 1s -v")).done().text();
    assert!(text.contains("limit: source: the database wrote nothing"), "{text}");
    let report: Value = serde_json::from_slice(&world.read("r.json")).unwrap();
    assert_eq!((&report["following"]["run"]["sets"], &report["following"]["last"]), (&0.into(), &Value::Null));
    assert!(report["following"]["backlog"].is_null());
    let app = kept_open(&world);
    app.execute_batch("INSERT INTO ledger VALUES (1, 1, NULL)").unwrap();
    let ended = world.run(&format!("{FOLLOW} --base a --for 1s --verbose")).done();
    ended.says(&["of log from before in"]);
    let report: Value = serde_json::from_slice(&world.read("r.json")).unwrap();
    assert!(report["following"]["backlog"]["source_bytes"].as_u64().unwrap() > 0, "{report:#}");
    assert_eq!(report["following"]["run"]["sets"], 0, "it was committed before: {report:#}");
}
