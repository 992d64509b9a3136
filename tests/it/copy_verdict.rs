//! What a copy says of its limit, in every way that it goes. Whether it names the true one is asked in `tests/verdict`.

use serde_json::Value;

use crate::calibrated::assert_tells_limit;
use crate::world::World;

/// The verdict, which every copy that moved something has.
#[track_caller]
pub fn verdict(report: &Value) -> &Value {
    let verdict = &report["verdict"];
    let names: Vec<_> = verdict["uses"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names[..4], ["media", "transform", "sink", "processors"], "{report:#}");
    let limits = ["media", "transform", "sink", "one stripe", "processor", "throttle", "pool", "fixed costs", "none"];
    assert!(limits.contains(&verdict["limit"].as_str().unwrap()), "{verdict}");
    verdict
}

/// A full of four families in `a/`, encrypted for `k.key`.
fn encrypted() -> World {
    let world = World::with_database();
    world.run("key new --no-recovery k.key").done();
    world.run("backup sqlite:app.db --to a/ --stripes 4 --encrypt-to k.key.pub").done();
    world
}

#[test]
fn every_way_of_copying_has_a_verdict() {
    let world = encrypted();
    for (number, way) in [
        "",
        "--key k.key",
        "--key k.key --decrypt --stripes 2",
        "--key k.key --encrypt-to k.key.pub --compression zstd:1",
        "--key k.key --decrypt --compression none --stripes 1",
    ]
    .into_iter()
    .enumerate()
    {
        let report = world.run(&format!("copy --from a --to b/{number}/ --mkdir {way} --report json")).done().json();
        let used = |at: usize| verdict(&report)["uses"][at]["share"].as_f64().unwrap();
        assert!(used(0) > 0.0 && used(2) > 0.0, "{way}: {report:#}");
        assert_eq!(used(1) > 0.0, !way.is_empty(), "without the key nothing is opened: {report:#}");
        assert_eq!(verdict(&report)["one_device"], true, "{way}");
        assert!(verdict(&report)["percent_of_limit"].is_null());
    }
    let text = world.run("copy --from a --to b/text/ --mkdir").done().text();
    assert!(text.contains("\n  limit: "), "{text}");
    let planned = world.run("copy --from a --to b/plan/ --mkdir --dry-run --report json").done().json();
    assert!(planned["verdict"].is_null(), "nothing moved");
    let again = world.run("copy --from a --to b/0/ --report json").done().json();
    assert_eq!(again["copied"][0]["how"], "there already");
    assert!(!again["verdict"].is_null(), "it was read and compared");
}

#[test]
fn a_throttled_copy_names_the_throttle_and_what_it_costs() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/ --compression none --max-transfer-size 64KiB").done();
    for way in ["", "--compression lz4"] {
        let line = format!("copy --from a --to b/{}/ --mkdir --throttle 500KiB/s {way} --report json", way.len());
        let report = world.run(&line).done().json();
        assert_eq!(verdict(&report)["limit"], "throttle", "{report:#}");
        let changes = verdict(&report)["what_if"].as_array().unwrap();
        assert!(changes.iter().any(|one| one["change"] == "without --throttle"), "{report:#}");
        let media = report["stages"][0]["busy_s"].as_f64().unwrap();
        assert!(media < 0.5 * report["elapsed_s"].as_f64().unwrap(), "waiting for it is no work: {report:#}");
    }
}

#[test]
fn a_chain_has_one_verdict_and_asks_nothing_of_the_model() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/").done();
    crate::database::change(&world.at("app.db"), 1);
    world.run("backup sqlite:app.db --to a/ --kind differential --base a").done();
    let report = world.run("copy --from a --to b/ --stripes 2 --report json").done().json();
    assert_eq!(report["copied"].as_array().unwrap().len(), 2);
    assert_eq!(verdict(&report)["what_if"].as_array().unwrap().len(), 0, "{report:#}");
    assert!(verdict(&report)["calibrated"].is_null());
    let throttled = world.run("copy --from a --to b/slow/ --mkdir --throttle 500KiB/s --report json").done().json();
    assert_eq!(verdict(&throttled)["limit"], "throttle", "{throttled:#}");
}

#[test]
fn a_copy_is_compared_with_a_profile_that_knows_both_its_places() {
    let world = World::with_database();
    world.run("calibrate --read app.db --write a --write b --seconds 1 --space 32MiB --name night").done();
    world.run("backup sqlite:app.db --to a/ --compression lz4").done();
    for way in ["", "--compression zstd:1"] {
        let line = |to: &str| format!("copy --from a --to b/{to}{}/ --mkdir {way} --profile night", way.len());
        let report = world.run(&format!("{} --report json", line("report"))).done().json();
        let limit = &verdict(&report)["calibrated"];
        let limits = ["source media", "target media", "shared device", "transform", "processor"];
        assert!(limits.contains(&limit["limit"].as_str().unwrap()), "{report:#}");
        let number = |value: &Value| value.as_f64().unwrap();
        let read: u64 =
            report["copied"].as_array().unwrap().iter().map(|copy| copy["read_bytes"].as_u64().unwrap()).sum();
        let speed = read as f64 / f64::from(1 << 20) / number(&report["elapsed_s"]);
        let percent = 100.0 * speed / number(&limit["mib_per_s"]);
        assert!(
            (number(&limit["percent"]) - percent).abs() < 0.02 * percent,
            "of the media that were read: {report:#}"
        );
        assert_eq!(verdict(&report)["percent_of_limit"], limit["percent"]);
        let text = world.run(&format!("{} -v", line("text"))).done();
        assert_tells_limit(&text, "night");
    }
    world.run("copy --from a --to b/ --profile day").refused(2, "profile `day`", "there is no such profile");
}
