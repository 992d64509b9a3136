//! Jobs beside a profile of `fullbore calibrate`: what their verdict says of it, and that no job fails because of it.

use serde_json::Value;

use crate::program::Ended;
use crate::world::World;

const PROFILES: &str = "state/fullbore/profiles";
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
    let (bytes, unread) = (number(&report["source_bytes"]), number(&report["unread_bytes"]));
    let speed = number(&report["mib_per_s"]) * (1.0 - unread / bytes);
    let (highest, percent) = (number(&limit["mib_per_s"]), number(&limit["percent"]));
    assert!(highest > 0.0 && percent > 0.0 && (percent - 100.0 * speed / highest).abs() < 1e-6 * percent, "{limit}");
    assert_eq!(report["verdict"]["percent_of_limit"], limit["percent"]);
}

/// A line of text says how near to the calibrated limit it came. A job that is faster, because the machine was busy at the calibration, has no percentage.
#[track_caller]
pub fn assert_tells_limit(ended: &Ended, profile: &str) {
    let text = ended.text();
    let line = text.lines().find(|line| line.contains("calibrated limit: ")).unwrap_or_default();
    let is_near = line.contains("% of the calibrated limit: ");
    let is_faster = line.contains(" (the job met something faster): ");
    assert!(is_near != is_faster && line.contains(&format!("(profile `{profile}`)")), "{ended}");
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
    let text = world.run("backup sqlite:app.db --to b/ -v").done();
    assert_tells_limit(&text, "default");
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
        world.run(&format!("{line} --profile a/b")).refused(2, "a/b", "is not a name for a profile");
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
        let told = notes(&report).into_iter().find(|note| note.contains("profile `default` is ignored: "));
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
        assert!(notes(&report).iter().any(|note| note.contains("is ignored: ")), "{report:#}");
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
fn an_unmeasured_place_gives_no_calibrated_limit() {
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

#[test]
fn free_pages_are_no_bytes_of_the_calibrated_limit_as_they_are_none_of_an_estimate() {
    let world = World::with_purged_database(64);
    world.run("calibrate --read purged.db --write a --write b --seconds 1 --space 32MiB").done();
    let line = "sqlite:purged.db --to a/ --compression none --report json";
    let report = world.run(&format!("backup {line}")).done().json();
    let number = |name: &str| report[name].as_f64().unwrap();
    let [source, unread, elapsed] = ["source_bytes", "unread_bytes", "elapsed_s"].map(number);
    assert!(unread > 0.9 * source, "{report:#}");
    assert_percentage(&report, "default");
    let limit = &report["verdict"]["calibrated"];
    let said = limit["mib_per_s"].as_f64().unwrap() * limit["percent"].as_f64().unwrap() / 100.0;
    assert!(
        (said * 1_048_576.0 * elapsed / (source - unread) - 1.0).abs() < 1e-6,
        "what was read in that time: {report:#}"
    );
    let measured = world.run(&format!("backup {line} --measure-limit")).done().json();
    let of = |name: &str| measured["limit"][name].as_f64().unwrap();
    let read = (measured["source_bytes"].as_f64().unwrap() - measured["unread_bytes"].as_f64().unwrap()) / 1_048_576.0;
    let said = of("mib_per_s") * of("percent") / 100.0 * measured["elapsed_s"].as_f64().unwrap();
    assert!((said / read - 1.0).abs() < 1e-6, "{measured:#}");
    let foreseen = world.run(&format!("estimate {line}")).done().json();
    let plain = foreseen["plain_bytes"].as_f64().unwrap();
    assert!(
        plain <= source - unread && source - unread <= plain + 4.0 * 1_048_576.0,
        "{plain} of {source} but {unread}"
    );
}

#[test]
fn a_place_that_is_on_another_device_by_now_is_a_note_of_a_job_and_a_warning_of_an_estimate() {
    let world = calibrated("default");
    let of_disk = world.at("a").canonicalize().unwrap().display().to_string();
    change(&world, |made| {
        made["places"].as_array_mut().unwrap().retain(|place| place["path"] == of_disk.as_str());
        made["places"][0]["device"] = 999_999.into();
        made["together"] = serde_json::json!([]);
        made["job_costs"] = serde_json::json!([]);
    });
    let doubt = format!("`{of_disk}` is on another device than when profile `default` was made");
    let line = format!("--to {of_disk}/ --data-path {of_disk} --report json");
    let foreseen = world.run(&format!("estimate sqlite:app.db {line}")).with_code(4).says(&[&doubt, "not mounted"]);
    let warnings = foreseen.json()["warnings"].as_array().unwrap().clone();
    assert_eq!(warnings.len(), 1, "once, whatever it is asked for: {warnings:?}");
    world.run(&format!("advise sqlite:app.db {line}")).with_code(4).says(&[&doubt]);
    let report = world.run(BACKUP).done().json();
    let told = notes(&report).into_iter().filter(|note| note.contains("another device"));
    assert_eq!(told.count(), 1, "{report:#}");
}
