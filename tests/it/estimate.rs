//! `fullbore estimate`: what it says of a real database on a calibrated machine, and what it refuses.

use serde_json::Value;

use crate::world::World;

const PROFILE: &str = "state/fullbore/profiles/default.json";

fn calibrated() -> World {
    let world = World::with_database();
    world.run("calibrate --read app.db --write a --write b --seconds 1 --space 32MiB").done();
    world
}

fn estimate(world: &World, options: &str) -> Value {
    world.run(&format!("estimate sqlite:app.db --to a/ --report json {options}")).done().json()
}

/// P10, P50 and P90 of a direction.
fn seconds(line: &Value, direction: &str) -> [f64; 3] {
    ["p10_s", "p50_s", "p90_s"].map(|name| line[direction][name].as_f64().unwrap())
}

#[test]
fn an_estimate_has_both_directions_and_writes_nothing() {
    let world = calibrated();
    let before = world.read("app.db");
    let made = estimate(&world, "--stripes 2 --compression zstd:1 --price 3600");
    for direction in ["backup", "restore"] {
        let [p10, p50, p90] = seconds(&made, direction);
        assert!(0.0 < p10 && p10 < p50 && p50 < p90, "{made:#}");
        assert!(made[direction]["limit"].as_str().is_some_and(|limit| !limit.is_empty()));
    }
    let plain = made["plain_bytes"].as_u64().unwrap();
    assert!(plain > 0 && plain <= before.len() as u64);
    assert!(made["stored_bytes"].as_u64().unwrap() < plain, "it compresses");
    assert!(made["memory_bytes"].as_u64().unwrap() > 0 && made["cpu_s"].as_f64().unwrap() > 0.0);
    let cost = made["cost"].as_f64().unwrap();
    assert!((cost - seconds(&made, "backup")[1]).abs() < 1e-6, "a unit of money a second");
    assert_eq!(made["history_runs"], 0);
    world.assert_no_media();
    assert_eq!(world.read("app.db"), before);
    let text = world.run("estimate sqlite:app.db --to a/").done();
    assert!(text.text().starts_with("ESTIMATE of") && text.text().contains("restore:"), "{text}");
    world.run("estimate sqlite:app.db --to a/ --report json:e.json").done();
    world.run("estimate sqlite:app.db --to a/ --report json:e.json").done();
    let report = serde_json::from_slice::<Value>(&world.read("e.json")).unwrap();
    assert_eq!((&report["schema_version"], &report["command"]), (&1.into(), &"estimate".into()));
    world.run("estimate sqlite:app.db --to a/ --report json:app.db").refused(2, "app.db", "is the database itself");
    assert_eq!(world.read("app.db"), before);
}

#[test]
fn the_restore_has_knobs_of_its_own() {
    let world = calibrated();
    let seconds_of = |options: &str| {
        let made = estimate(&world, &format!("--size 1TB --compression zstd:1 {options}"));
        ["backup", "restore"].map(|direction| seconds(&made, direction)[1])
    };
    let (usual, one_worker) = (seconds_of(""), seconds_of("--restore-workers 1 --restore-queue-depth 1"));
    assert_eq!(usual[0], one_worker[0], "the backup is what it was");
    assert!(usual[1] <= one_worker[1] * 1.005, "{usual:?} and {one_worker:?}");
    let line = "estimate sqlite:app.db --to a/ --restore-buffer-count 2";
    world.run(line).refused(2, "--buffer-count", "at least");
}

#[test]
fn the_estimated_stored_bytes_are_those_of_a_backup() {
    let world = calibrated();
    for codec in ["none", "lz4", "zstd:1"] {
        let foreseen = estimate(&world, &format!("--compression {codec}"))["stored_bytes"].as_f64().unwrap();
        let name = codec.replace(':', "");
        let made =
            world.run(&format!("backup sqlite:app.db --to {name}.bore --compression {codec} --report json")).done();
        let stored = made.json()["stored_bytes"].as_f64().unwrap();
        // Header, index, manifest and footer of a family are as much as a small database is.
        assert!((foreseen - stored).abs() < 0.1 * stored + 262_144.0, "{codec}: {foreseen} and {stored}");
    }
}

#[test]
fn free_pages_are_not_taken_for_data() {
    let world = calibrated();
    let database = rusqlite::Connection::open(world.at("holes.db")).unwrap();
    database.execute_batch("PRAGMA page_size = 4096; CREATE TABLE text (a); CREATE TABLE noise (a);").unwrap();
    database.execute_batch("BEGIN").unwrap();
    for row in 0..3000 {
        let words = format!("row {row} of a table whose words pack well, ").repeat(80);
        database.execute("INSERT INTO text VALUES (?1)", [words]).unwrap();
        database.execute_batch("INSERT INTO noise VALUES (randomblob(3900))").unwrap();
    }
    // What is in its pages stays there, between those of the other table, and is not stored.
    database.execute_batch("COMMIT; DROP TABLE noise").unwrap();
    drop(database);
    for codec in ["lz4", "zstd:1"] {
        let line = format!("estimate sqlite:holes.db --to a/ --compression {codec} --report json");
        let foreseen = world.run(&line).done().json()["stored_bytes"].as_f64().unwrap();
        let name = codec.replace(':', "");
        let line = format!("backup sqlite:holes.db --to {name}.bore --compression {codec} --report json");
        let stored = world.run(&line).done().json()["stored_bytes"].as_f64().unwrap();
        assert!((foreseen - stored).abs() < 0.05 * stored + 262_144.0, "{codec}: {foreseen} and {stored}");
    }
}

#[test]
fn a_small_job_takes_what_tiny_jobs_took_and_with_an_old_profile_only_what_its_bytes_take() {
    let world = calibrated();
    let mut profile: Value = serde_json::from_slice(&world.read(PROFILE)).unwrap();
    let known = profile["job_costs"].as_array().unwrap();
    assert!(known.iter().all(|cost| !cost["restore_s"].as_array().unwrap().is_empty()), "{known:?}");
    for cost in profile["job_costs"].as_array_mut().unwrap() {
        (cost["backup_s"], cost["restore_s"]) = (serde_json::json!([50.0, 50.0]), serde_json::json!([70.0, 70.0]));
    }
    world.write(PROFILE, profile.to_string().as_bytes());
    let of = |made: &Value| ["backup", "restore"].map(|direction| seconds(made, direction)[1]);
    let long = estimate(&world, "");
    let [backup, restore] = of(&long);
    assert!((49.0..60.0).contains(&backup) && (69.0..80.0).contains(&restore), "{long:#}");
    assert_eq!(long["backup"]["limit"], "fixed costs");
    profile.as_object_mut().unwrap().remove("job_costs");
    world.write(PROFILE, profile.to_string().as_bytes());
    let [backup, restore] = of(&estimate(&world, ""));
    assert!(backup < 40.0 && restore < 40.0, "{backup} {restore}");
}

#[test]
fn a_size_that_the_database_does_not_have_yet_takes_as_much_longer() {
    let world = calibrated();
    let [one, ten] = ["1TB", "10TB"].map(|size| seconds(&estimate(&world, &format!("--size {size}")), "backup")[1]);
    assert!((9.9..10.1).contains(&(ten / one)), "{one} and {ten}");
    world.run("estimate sqlite:app.db --to a/ --size 0").refused(2, "--size", "4TB");
    world.run("estimate sqlite:app.db --to a/ --size much").refused(2, "--size", "is not a size");
}

#[test]
fn a_grid_is_ordered_by_the_time_of_the_backup() {
    let world = calibrated();
    let made = estimate(&world, "--grid --size 1TB");
    let grid = made["grid"].as_array().unwrap();
    assert!(grid.len() > 20, "{}", grid.len());
    let times: Vec<f64> = grid.iter().map(|line| seconds(line, "backup")[1]).collect();
    // Within one per cent memory decides.
    assert!(times.windows(2).all(|pair| pair[0] <= pair[1] * 1.02), "{times:?}");
    let codecs: std::collections::BTreeSet<&str> =
        grid.iter().filter_map(|line| line["compression"].as_str()).collect();
    assert!(codecs.len() >= 3 && codecs.contains("none"), "{codecs:?}");
    let shown = world.run("estimate sqlite:app.db --to a/ --grid").done();
    let text = shown.text();
    assert!(text.contains("sorted by the time of the backup, the fastest first"), "{text}");
    assert!(text.contains(" left out: the same codec, times within the interval"), "{text}");
    assert!(text.contains("in nothing better than another line"), "{text}");
    let marked: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("* ")).collect();
    assert!(marked.len() == 1 && marked[0].contains("lz4"), "{text}");
    // Three stripes are in no grid, but they were asked for.
    let shown = world.run("estimate sqlite:app.db --to a/ --grid --stripes 3").done();
    assert!(shown.text().lines().any(|line| line.trim_start().starts_with("* ")), "{shown}");
}

#[test]
fn a_deadline_says_what_keeps_it_or_what_it_would_take() {
    let world = calibrated();
    let easy = estimate(&world, "--size 1TB --deadline 52w");
    assert!(!easy["fits"].as_array().unwrap().is_empty() && easy["nearest"].is_null());
    let never = estimate(&world, "--size 1000TB --deadline 1h --direction both");
    assert!(never["fits"].as_array().unwrap().is_empty() && !never["nearest"].is_null(), "{never:#}");
    let hard = world.run("estimate sqlite:app.db --to a/ --size 1000TB --deadline 1s").done();
    assert!(hard.text().contains("no configuration keeps the deadline; the nearest"), "{hard}");
    world.run("estimate sqlite:app.db --to a/ --deadline soon").refused(2, "--deadline", "is not a time");
    world.run("estimate sqlite:app.db --to a/ --deadline 0s").refused(2, "--deadline", "2h");
}

#[test]
fn requested_settings_stay_if_they_meet_the_deadline() {
    let world = calibrated();
    // Three stripes are in no grid.
    let line = "estimate sqlite:app.db --to a/ --stripes 3 --compression none --size 1TB --report json";
    let [_, _, p90] = seconds(&world.run(line).done().json(), "backup");
    let made = world.run(&format!("{line} --deadline {}s", p90.ceil() as u64 + 1)).done().json();
    let fits = made["fits"].as_array().unwrap();
    assert!(
        fits.iter().any(|line| (&line["stripes"], &line["compression"]) == (&3.into(), &"none".into())),
        "{made:#}"
    );
}

#[test]
fn one_file_takes_one_family_in_every_line_of_a_grid() {
    let world = calibrated();
    for (to, expected) in
        [("--to a/one.bore", 1), ("--to a/one.bore --to b/two.bore", 2), ("--to a/ --to b/two.bore", 2)]
    {
        let made = world.run(&format!("estimate sqlite:app.db {to} --grid --report json")).done().json();
        let grid = made["grid"].as_array().unwrap();
        assert!(!grid.is_empty() && grid.iter().all(|line| line["stripes"] == expected), "{to}: {made:#}");
    }
    let line = "estimate sqlite:app.db --to a/one.bore --stripes 2";
    world.run(line).refused(2, "--stripes", "is one file and takes one family");
}

#[test]
fn the_downtime_of_a_move_is_that_of_its_last_step() {
    let world = calibrated();
    let of = |plan: &str| {
        let made = estimate(&world, &format!("--size 1TB --plan {plan} --change-rate 30GB/d"));
        made["cutover"]["downtime_s"][1].as_f64().unwrap()
    };
    let [full, differential, log] = ["full", "full+diff", "full+diff+log"].map(of);
    // A differential reads all of the database again, however little has changed. How much longer each one takes depends on the
    // speeds that a second of calibration measures, and that is what else the machine does.
    assert!(full > differential && differential > log, "{full} {differential} {log}");
    world.run("estimate sqlite:app.db --to a/ --plan full+diff").with_code(2).says(&["--change-rate"]);
    let line = "estimate sqlite:app.db --to a/ --plan everything --change-rate 1GB/d";
    world.run(line).refused(2, "--plan", "full+diff+log");
    let line = "estimate sqlite:app.db --to a/ --plan full --change-rate 1GB";
    world.run(line).refused(2, "--change-rate", "30GB/d");
}

#[test]
fn earlier_runs_of_the_database_are_learned_from() {
    let world = calibrated();
    // A throttle makes a run long enough to count.
    world.run("backup sqlite:app.db --repo a/ --mkdir --throttle 64KiB/s").done();
    assert_eq!(estimate(&world, "")["history_runs"], 0, "a throttle says nothing of the hardware");
    let catalog = rusqlite::Connection::open(world.at("state/fullbore/catalog.db")).unwrap();
    let change = |change: &str| {
        let changed = catalog.execute(&format!("UPDATE backup_set SET stored = {change}"), []).unwrap();
        assert_eq!(changed, 1);
        estimate(&world, "")
    };
    let made = change("json_remove(stored, '$.record.run.throttle')");
    assert_eq!(made["history_runs"], 1, "{made:#}");
    assert!(made["history_factor"].as_f64().unwrap() > 1.0, "it took longer than the model says");
    assert_eq!(estimate(&world, "--throttle 64KiB/s")["history_factor"], made["history_factor"], "it had no throttle");
    let elsewhere = change("json_set(stored, '$.record.run.media', json_array('/proc'))");
    assert_eq!(elsewhere["history_runs"], 0, "its families went elsewhere");
    let old = change("json_remove(stored, '$.record.run')");
    assert_eq!(old["history_runs"], 1, "of an older version: {old:#}");
}

#[test]
fn history_learns_from_passed_bytes_and_not_from_file_sizes() {
    let world = World::new();
    let database = rusqlite::Connection::open(world.at("app.db")).unwrap();
    database.execute_batch("CREATE TABLE kept (a); CREATE TABLE noise (a); BEGIN").unwrap();
    for _ in 0..300 {
        database.execute_batch("INSERT INTO kept VALUES (randomblob(3900))").unwrap();
        database.execute_batch("INSERT INTO noise VALUES (randomblob(39000))").unwrap();
    }
    database.execute_batch("COMMIT; DROP TABLE noise").unwrap();
    drop(database);
    world.run("calibrate --read app.db --write a --write b --seconds 1 --space 32MiB").done();
    let foreseen = estimate(&world, "")["plain_bytes"].as_u64().unwrap();
    world.run("backup sqlite:app.db --repo a/ --throttle 5MiB/s").done();
    let record = world.names("a/.fullbore/sets").remove(0);
    let record: Value = serde_json::from_slice(&world.read(&format!("a/.fullbore/sets/{record}"))).unwrap();
    assert_eq!(record["run"]["plain_bytes"], foreseen, "{record:#}");
    assert!(record["database_bytes"].as_u64().unwrap() > 5 * foreseen, "{record:#}");
    assert_eq!(record["run"]["throttle"], 5_242_880);
    assert_eq!(record["run"]["media"], serde_json::json!([world.at("a").canonicalize().unwrap()]));
    // An older record says nothing of it: as much is free now as was then.
    let catalog = rusqlite::Connection::open(world.at("state/fullbore/catalog.db")).unwrap();
    let factor = |change: &str| {
        catalog.execute(&format!("UPDATE backup_set SET stored = {change}"), []).unwrap();
        estimate(&world, "")["history_factor"].as_f64().unwrap()
    };
    let known = factor("json_remove(stored, '$.record.run.throttle')");
    let old = factor("json_remove(stored, '$.record.run')");
    assert!((old / known - 1.0).abs() < 0.01, "{old} and {known}");
}

#[test]
fn a_throttle_is_kept_by_all_of_the_interval() {
    let world = calibrated();
    let made = estimate(&world, "--size 100GB --throttle 1MiB/s");
    let [p10, ..] = seconds(&made, "backup");
    assert!(p10 >= 100e9 / 1_048_576.0, "{made:#}");
}

#[test]
fn a_move_that_never_catches_up_is_a_warning() {
    let world = calibrated();
    let line = "estimate sqlite:app.db --to a/ --plan full+log --size 10GB --report json --change-rate";
    let run = world.run(&format!("{line} 100TB/s")).with_code(4);
    assert!(run.json()["cutover"]["last_bytes"][1].as_f64().unwrap() > 1e12, "{run}");
    run.says(&["--change-rate", "the move never catches up"]);
    world.run(&format!("{line} 1MB/d")).done();
    world.run("estimate sqlite:app.db --to a/ --plan full --size 10GB --change-rate 100TB/s").done();
}

#[test]
fn without_a_profile_of_this_machine_nothing_is_foreseen() {
    let world = World::with_database();
    world.run("estimate sqlite:app.db --to a/").refused(2, "profile `default`", "fullbore calibrate");
    world.run("calibrate --read app.db --write a --seconds 1 --space 32MiB").done();
    world.write("state/fullbore/profiles/night.json", &world.read(PROFILE));
    let copied = world.run("estimate sqlite:app.db --to a/ --profile night --report json").done().json();
    assert_eq!(copied["profile"]["name"], "night", "a copy has the name of its file");
    world.run("estimate sqlite:app.db --to a/ --profile ../x").refused(2, "../x", "letters");
    world.run("estimate sqlite:app.db --to a/ --compression zstd:19").refused(2, "codec zstd:19", "--thorough");
    world.run("estimate sqlite:none.db --to a/").refused(2, "none.db", "");
    world.run("estimate sqlite:app.db --to -").refused(2, "-", "pipe");
    world.run("estimate mysql://root@127.0.0.1:9 --to a/").refused(1, "127.0.0.1", "");
    let mut profile: Value = serde_json::from_slice(&world.read(PROFILE)).unwrap();
    profile["machine"]["cpu_model"] = "another".into();
    world.write(PROFILE, profile.to_string().as_bytes());
    world.run("estimate sqlite:app.db --to a/").refused(1, "profile `default`", "another");
}

#[test]
fn a_profile_that_knows_one_direction_gives_that_one() {
    let world = World::with_database();
    world.run("calibrate --read app.db --seconds 1").done();
    let made = world.run("estimate sqlite:app.db --to nul: --report json").done().json();
    assert!(made["backup"]["p50_s"].as_f64().unwrap() > 0.0 && made["restore"].is_null(), "{made:#}");
    world.run("estimate sqlite:app.db --to a/").refused(2, "profile `default`", "fullbore calibrate --write");
}
