//! Jobs beside a profile of `fullbore calibrate`: what their verdict says of it, and that no job fails because of it.

use serde_json::Value;

use crate::world::World;

const PROFILES: &str = "home/.config/fullbore/profiles";
const BACKUP: &str = "backup sqlite:app.db --to a/ --report json";

fn calibrated(name: &str) -> World {
    let world = World::with_database();
    world.run(&format!("calibrate --read app.db --write a --write b --seconds 1 --space 32MiB --name {name}")).done();
    world
}

/// A profile that is changed afterwards.
fn change(world: &World, change: impl FnOnce(&mut Value)) {
    let file = format!("{PROFILES}/default.json");
    let mut made: Value = serde_json::from_slice(&world.read(&file)).unwrap();
    change(&mut made);
    world.write(&file, &serde_json::to_vec(&made).unwrap());
}

fn notes(report: &Value) -> Vec<&str> {
    report["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

#[track_caller]
fn assert_percentage(report: &Value, profile: &str) {
    let limit = &report["verdict"]["calibrated"];
    assert_eq!(limit["profile"], profile, "{report:#}");
    let number = |value: &Value| value.as_f64().unwrap();
    let (speed, highest, percent) =
        (number(&report["mib_per_s"]), number(&limit["mib_per_s"]), number(&limit["percent"]));
    assert!(highest > 0.0 && percent > 0.0 && (percent - 100.0 * speed / highest).abs() < 1e-6 * percent, "{limit}");
    assert_eq!(report["verdict"]["percent_of_limit"], limit["percent"]);
}

#[test]
fn every_job_that_moves_a_set_says_how_near_it_came_to_the_calibrated_limit() {
    let world = calibrated("default");
    let made = world.run(BACKUP).done().json();
    assert_percentage(&made, "default");
    assert_eq!(made["verdict"]["one_device"], true);
    let restored = world.run("restore --from a --into sqlite:copy.db --report json").done().json();
    assert_percentage(&restored, "default");
    for (line, limits) in [
        ("verify --from a --report json", ["media together", "transform", "processor"]),
        ("restore --from a --into nul: --report json", ["media together", "transform", "processor"]),
    ] {
        let read = world.run(line).done().json();
        assert_percentage(&read, "default");
        let limit = read["verdict"]["calibrated"]["limit"].as_str().unwrap();
        assert!(limits.contains(&limit), "no database is written: {limit}");
        assert_eq!(read["verdict"]["one_device"], false);
    }
    let text = world.run("backup sqlite:app.db --to b/").done();
    assert!(
        text.text().contains("% of the calibrated limit: ") && text.text().contains("(profile `default`)"),
        "{text}"
    );
    let measured = world.run("backup sqlite:app.db --to b/ --measure-limit --report json").done().json();
    let [said, percent] =
        [&measured["verdict"]["percent_of_limit"], &measured["limit"]["percent"]].map(|one| one.as_f64().unwrap());
    assert!((said - percent).abs() < 1e-9 * percent, "measured just now counts first: {said} {percent}");
    assert!(measured["verdict"]["calibrated"]["percent"].is_f64());
}

#[test]
fn a_profile_that_was_named_has_to_be_there() {
    let world = calibrated("night");
    let quiet = world.run(BACKUP).done().json();
    assert!(quiet["verdict"]["calibrated"].is_null() && notes(&quiet).is_empty(), "{quiet:#}");
    assert_percentage(&world.run(&format!("{BACKUP} --profile night")).done().json(), "night");
    let before = world.names("a");
    for line in ["backup sqlite:app.db --to a/", "verify --from a", "restore --from a --into sqlite:copy.db"] {
        world.run(&format!("{line} --profile day")).refused(2, "profile `day`", "there is no such profile");
        world.run(&format!("{line} --profile a/b")).refused(2, "a/b", "is no name for a profile");
    }
    assert_eq!(world.names("a"), before);
    world.assert_no_copy();
}

#[test]
fn a_profile_of_another_machine_is_not_used_and_that_is_a_note() {
    let world = calibrated("default");
    change(&world, |made| {
        made["machine"]["host_id"] = "0".repeat(32).into();
        made["machine"]["host"] = "db99".into();
    });
    for line in [BACKUP.to_owned(), format!("{BACKUP} --profile default")] {
        let report = world.run(&line).done().json();
        assert!(report["verdict"]["calibrated"].is_null() && report["verdict"]["percent_of_limit"].is_null());
        let told = notes(&report).into_iter().find(|note| note.contains("profile `default` is not compared with"));
        assert!(told.is_some_and(|note| note.contains("another machine") && note.contains("db99")), "{report:#}");
    }
}

#[test]
fn a_torn_profile_costs_a_note_and_no_backup() {
    let world = calibrated("default");
    let file = format!("{PROFILES}/default.json");
    let whole = world.read(&file);
    for torn in [&whole[..whole.len() / 2], b"", b"{}", b"{\"version\": 9}"] {
        world.write(&file, torn);
        let report = world.run(BACKUP).done().json();
        assert!(report["verdict"]["calibrated"].is_null() && !report["verdict"]["limit"].is_null());
        assert!(notes(&report).iter().any(|note| note.contains("is not compared with")), "{report:#}");
    }
}

#[test]
fn an_old_profile_is_used_and_says_how_old_it_is() {
    let world = calibrated("default");
    change(&world, |made| made["made_at"] = "2020-02-02T00:00:00Z".into());
    let report = world.run(BACKUP).done().json();
    assert_percentage(&report, "default");
    assert!(notes(&report).iter().any(|note| note.contains("days old")), "{report:#}");
}

#[test]
fn where_a_place_was_not_measured_there_is_no_calibrated_limit() {
    let world = World::with_database();
    world.run("calibrate --read app.db --seconds 1").done();
    let report = world.run(BACKUP).done().json();
    assert!(report["verdict"]["calibrated"].is_null(), "nobody has written there: {report:#}");
    world.run("calibrate --read app.db --write a --seconds 1 --space 32MiB").done();
    world.run("backup sqlite:app.db --to - --report json:r.json").with_code(0);
    let report: Value = serde_json::from_slice(&world.read("r.json")).unwrap();
    assert!(report["verdict"]["calibrated"].is_null(), "a pipe leads anywhere: {report:#}");
    assert_percentage(&world.run("backup sqlite:app.db --to nul: --report json").done().json(), "default");
}
