//! `--report json`: the fields, on success and on failure.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::database;
use crate::world::World;

const FIELDS: &str = "schema_version tool_version host command status error hint exit_code started_at finished_at kind engine database \
    backup_set_id media_set_id migration sets task families copies copied source_bytes unread_bytes allocated_bytes hole_bytes skipped_bytes stored_bytes ratio elapsed_s mib_per_s pool \
    peak_rss_bytes stages io cpu_before_s cpu_s bottleneck verdict following limit position server point into restoring writers_blocked_s resumed start_check tables configuration encrypted_to planned coverage exported warnings notes";

#[track_caller]
fn assert_fields(value: &Value, fields: &str) {
    let found: BTreeSet<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(found, fields.split_whitespace().collect());
}

#[test]
fn a_report_has_exactly_the_documented_fields() {
    let world = World::with_database();
    let report =
        world.run("backup sqlite:app.db --to a/ --to b/ --stripes 4 --report json --measure-limit").done().json();
    assert_fields(&report, FIELDS);
    assert_fields(&report["pool"], "buffer_count max_transfer_size bytes codec_bytes part_bytes");
    assert_fields(&report["families"][0], "device bytes blake3");
    assert_fields(&report["stages"][0], "name bytes busy_s starved_s blocked_s");
    assert_fields(&report["io"][0], "device dir ops mean_bytes mean_queue_depth p99_us direct");
    assert_fields(&report["bottleneck"], "stage why");
    assert_fields(
        &report["verdict"],
        "limit device why uses fixed_share fixed_costs percent_of_limit calibrated one_device what_if",
    );
    assert_fields(&report["verdict"]["uses"][0], "name share ceiling_mib_per_s");
    assert_fields(&report["position"], "first checkpoint last");
    assert_fields(&report["point"], "at binary_log_file binary_log_position gtid");
    assert_eq!(
        (report["status"].as_str(), report["exit_code"].as_u64(), report["error"].is_null()),
        (Some("done"), Some(0), true)
    );
    assert_eq!(report["families"].as_array().unwrap().len(), 4);
    for verb in ["verify", "restore --into sqlite:copy.db", "copy --to c/ --mkdir"] {
        assert_fields(&world.run(&format!("{verb} --from a --from b --report json")).done().json(), FIELDS);
    }
}

#[test]
fn the_numbers_of_a_report_are_true() {
    let world = World::with_database();
    let size = std::fs::metadata(world.at("app.db")).unwrap().len();
    let report = world.run("backup sqlite:app.db --to a/x.bore --to b/x.bore --report json").done().json();
    let number = |path: &str| report.pointer(path).and_then(Value::as_u64).unwrap();
    let stored = world.read("a/x.bore").len() + world.read("b/x.bore").len();
    assert_eq!(number("/stored_bytes"), stored as u64);
    assert_eq!(number("/families/0/bytes") + number("/families/1/bytes"), stored as u64);
    assert!(number("/source_bytes") <= size && number("/source_bytes") > size / 2);
    assert_eq!(number("/pool/bytes"), number("/pool/buffer_count") * number("/pool/max_transfer_size"));
    let ratio = report["ratio"].as_f64().unwrap();
    assert!((ratio - number("/source_bytes") as f64 / stored as f64).abs() < 0.01);
    let verified = world.run("verify --from a --from b --report json").done().json();
    assert_eq!(verified["families"], report["families"]);
    assert_eq!(
        (&verified["stored_bytes"], &verified["backup_set_id"]),
        (&report["stored_bytes"], &report["backup_set_id"])
    );
}

/// A job uses less memory than its pool and 64 MiB.
pub fn assert_within_the_pool(report: &Value) {
    let (peak, pool) = (report["peak_rss_bytes"].as_u64().unwrap(), report["pool"]["bytes"].as_u64().unwrap());
    assert!(peak > 0 && peak < pool + (64 << 20), "peak {peak}, pool {pool}: {report}");
}

#[test]
fn peak_memory_keeps_to_the_pool_and_the_fixed_part() {
    let world = World::with_database();
    for options in [
        "--stripes 64 --max-transfer-size 1MiB --compression none",
        "--compression lz4 --max-transfer-size 4MiB",
        "--stripes 8 --compression gzip:1",
    ] {
        for name in world.names("a") {
            std::fs::remove_file(world.at("a").join(name)).unwrap();
        }
        let line = format!("backup sqlite:app.db --to a/ --report json {options}");
        let peaks = [
            world.run(&line).done().json(),
            world.run("verify --from a --report json").done().json(),
            world.run("restore --from a --into nul: --report json").done().json(),
        ];
        peaks.iter().for_each(assert_within_the_pool);
    }
}

#[test]
fn a_failed_job_has_a_report_too() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to gone/x.bore --report json:report.json").with_code(2);
    let report: Value = serde_json::from_slice(&world.read("report.json")).unwrap();
    assert_fields(&report, FIELDS);
    assert_eq!((report["status"].as_str(), report["exit_code"].as_u64()), (Some("failed"), Some(2)));
    assert!(report["error"].as_str().unwrap().contains("gone"));
    let report = world.run("backup sqlite:gone.db --to a/ --report json").with_code(2).json();
    assert_fields(&report, FIELDS);
    let report = world.run("restore --from app.db --into sqlite:copy.db --report json").with_code(3).json();
    assert_eq!((report["status"].as_str(), report["exit_code"].as_u64()), (Some("failed"), Some(3)));
    let report = world.run("verify --from a --report json").with_code(2).json();
    assert_fields(&report, FIELDS);
}

#[test]
fn a_cancelled_job_says_so_in_its_report() {
    let world = World::with_database();
    let running =
        world.start("backup sqlite:app.db --to a/ --report json --throttle 64KiB/s --max-transfer-size 64KiB");
    world.media_begun("a");
    running.signal("TERM");
    let report = running.wait().with_code(143).json();
    assert_eq!((report["status"].as_str(), report["exit_code"].as_u64()), (Some("cancelled"), Some(143)));
}

#[test]
fn warnings_are_in_the_report_and_in_the_exit_code() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/one.bore").done();
    world.run("backup sqlite:app.db --to a/two.bore --to b/two.bore").done();
    std::fs::remove_file(world.at("b/two.bore")).unwrap();
    let report = world.run("restore --from a --into sqlite:copy.db --report json").with_code(4).json();
    assert_eq!((report["status"].as_str(), report["exit_code"].as_u64()), (Some("done_with_warnings"), Some(4)));
    assert_eq!(report["warnings"].as_array().unwrap().len(), 1);
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/x.bore --report json:gone/report.json").refused(
        2,
        "gone/report.json",
        "No such file",
    );
    world.assert_no_media();
    world.run("backup sqlite:app.db --to a/y.bore --report xml").with_code(2);
}

#[test]
fn a_report_that_finds_no_room_leaves_the_backup_good_and_says_so() {
    let world = World::with_database();
    let test = "a_report_that_finds_no_room_leaves_the_backup_good_and_says_so";
    let Some(_disk) = crate::small_disk::SmallDisk::mount(&world, "disk", 1, test) else { return };
    let mut file = std::fs::File::create(world.at("disk/full")).unwrap();
    while std::io::Write::write_all(&mut file, &[7; 4096]).is_ok() {}
    let line = "--report json:disk/report.json";
    let ended = world.run(&format!("backup sqlite:app.db --to a/ {line}")).with_code(4);
    let ended = ended.says(&["warning: backup set ", "was committed; its report was not written", "No space left"]);
    assert!(!ended.err.contains("error: "), "{ended}");
    world.run(&format!("verify --from a {line}")).with_code(4).says(&["verify was done; its report was not written"]);
    world.run(&format!("backup sqlite:none.db --to a/ {line}")).with_code(2).says(&["error: ", "its report was not"]);
    assert_eq!(world.names("disk"), ["full"]);
    world.assert_restores("--from a");
}

#[test]
fn a_directory_in_which_no_report_can_be_written_is_refused_before_the_job() {
    let world = World::with_database();
    std::fs::create_dir(world.at("closed")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o555);
    std::fs::set_permissions(world.at("closed"), mode).unwrap();
    let line = "backup sqlite:app.db --to a/ --report json:closed/report.json";
    world.run_as_nobody(line).refused(1, "closed/report.json", "ermission denied").says(&["nothing was done"]);
    world.assert_no_media();
}

#[test]
fn a_report_in_the_place_of_the_database_or_its_side_files_is_refused() {
    let world = World::with_database();
    database::sql(&world.at("app.db"), "PRAGMA journal_mode = delete");
    std::os::unix::fs::symlink("app.db", world.at("link.db")).unwrap();
    let before = world.names(".");
    for name in ["app.db", "app.db-wal", "app.db-shm", "app.db-journal", "a/../app.db-wal"] {
        for source in ["app.db", "link.db"] {
            let line = format!("backup sqlite:{source} --to a/x.bore --report json:{name}");
            world.run(&line).refused(2, name, "belongs to it");
        }
    }
    world.run("backup sqlite:app.db --to a/x.bore").done();
    for name in ["copy.db", "copy.db-wal"] {
        world.run(&format!("restore --from a --into sqlite:copy.db --report json:{name}")).refused(
            2,
            name,
            "belongs to it",
        );
    }
    assert_eq!(world.names("."), before);
}

#[test]
fn a_password_is_neither_in_an_error_nor_in_the_report() {
    let world = World::with_database();
    for line in [
        "backup sqlite:app.db --to s3://AK:sekret@b/x --report json:r.json",
        "backup mysql://u:sekret@h/x --to a/ --report json:r.json",
        "backup mysql://u:sekret@h/x --to a/ --base a --report json:r.json",
        "restore --from s3://AK:sekret@b/x --into sqlite:copy.db --report json:r.json",
        "restore --from a --into mysql://u:sekret@h/x --report json:r.json",
        "verify --from s3://AK:sekret@b/x --report json:r.json",
        "list --from s3://AK:sekret@b/x",
        "backup sqlite:app.db --to a/ --base s3://AK:sekret@b/x --kind differential --report json:r.json",
    ] {
        let ended = world.run(line);
        assert!(ended.code != 0 && !ended.err.contains("sekret"), "{ended}");
        let report = std::fs::read_to_string(world.at("r.json")).unwrap_or_default();
        assert!(!report.contains("sekret"), "{line}: {report}");
    }
    world.run("backup oracle://u:sekret@h/x --to a/").with_code(2).says(&["oracle://u:***@h/x"]);
}

#[test]
fn a_limit_that_could_not_be_measured_is_none_and_stops_no_backup() {
    let world = World::with_small_set("");
    // Smaller than one write: reading and writing at once tells nothing.
    world.run("backup sqlite:app.db --to b/small.bore --measure-limit --report json:report.json").done();
    let report: serde_json::Value = serde_json::from_slice(&world.read("report.json")).unwrap();
    assert!(report["limit"]["copy_mib_per_s"].is_null(), "{report}");
    assert!(report["limit"]["mib_per_s"].as_f64() > Some(0.0), "{report}");
    // No file may be as large as the probe's; the backup is far smaller. The unit is 512 bytes.
    let program = env!("CARGO_BIN_EXE_fullbore");
    let script = format!(
        "ulimit -f 40000; exec {program} backup sqlite:app.db --to b/limited.bore --measure-limit --report json:limited.json"
    );
    let ended = std::process::Command::new("sh").args(["-c", &script]).current_dir(world.folder()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let report: serde_json::Value = serde_json::from_slice(&world.read("limited.json")).unwrap();
    assert!(report["limit"]["sink_mib_per_s"].is_null(), "{report}");
}
