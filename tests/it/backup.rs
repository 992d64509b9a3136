//! `fullbore backup` when all goes well.

use crate::database::{self, Shape};
use crate::world::World;

/// Backs up with `options` into `stripes` families in two directories, verifies, restores, compares.
fn round_trip(world: &World, stripes: usize, options: &str, key: &str) {
    let line = format!(
        "backup sqlite:app.db --to a/ --to b/ --stripes {stripes} --name-template x-{{family}}.bore --init {options}"
    );
    let to = if stripes == 1 { line.replace("--to b/ ", "") } else { line };
    world.run(&to).done();
    let from = if stripes == 1 { "--from a".to_owned() } else { "--from a --from b".to_owned() };
    let families = world.names("a").len() + world.names("b").len();
    assert_eq!(families, stripes);
    world.run(&format!("verify {from} {key}")).done();
    world.assert_restores(&format!("{from} {key}"));
    for directory in ["a", "b"] {
        for name in world.names(directory) {
            std::fs::remove_file(world.at(directory).join(name)).unwrap();
        }
    }
}

fn every_stripe_count_and_size(compression: &str) {
    let world = World::with_shape(Shape { rows: 2000, ..Shape::default() });
    world.run("key new --no-recovery k.key").done();
    for (stripes, transfer, block) in
        [(1, "64KiB", 512), (1, "4MiB", 65536), (4, "1MiB", 4096), (4, "192KiB", 8192), (64, "64KiB", 512)]
    {
        let options = format!("--compression {compression} --max-transfer-size {transfer} --block-size {block}");
        round_trip(&world, stripes, &options, "");
        round_trip(&world, stripes, &format!("{options} --encrypt-to k.key.pub"), "--key k.key");
    }
}

#[test]
fn an_uncompressed_backup_comes_back_from_any_number_of_stripes_of_any_size() {
    every_stripe_count_and_size("none");
}

#[test]
fn an_lz4_backup_comes_back_from_any_number_of_stripes_of_any_size() {
    every_stripe_count_and_size("lz4");
}

#[test]
fn a_zstd_backup_comes_back_from_any_number_of_stripes_of_any_size() {
    every_stripe_count_and_size("zstd:3");
}

#[test]
fn a_gzip_backup_comes_back_from_any_number_of_stripes_of_any_size() {
    every_stripe_count_and_size("gzip:1");
}

#[test]
fn every_page_size_and_journal_mode_comes_back() {
    let shapes = [
        (512, "delete", "full"),
        (1024, "wal", "incremental"),
        (8192, "truncate", "none"),
        (65536, "wal", "full"),
        (65536, "persist", "none"),
    ];
    for (page_size, journal, auto_vacuum) in shapes {
        let world = World::with_shape(Shape { page_size, journal, auto_vacuum, rows: 1500 });
        world.run("backup sqlite:app.db --to a/app.bore --to b/app.bore").done();
        // A persistent journal is a file of the source, not of the copy.
        world.assert_restores("--from a --from b");
    }
}

#[test]
fn free_pages_are_not_stored() {
    let world = World::with_database();
    database::sql(&world.at("app.db"), "DELETE FROM item WHERE id % 20 <> 0");
    let report = world.run("backup sqlite:app.db --to a/app.bore --compression none --report json").done().json();
    let free = database::number(&world.at("app.db"), "PRAGMA freelist_count") as u64;
    assert!(free > 50, "{free}");
    let pages = database::number(&world.at("app.db"), "PRAGMA page_count") as u64;
    let stored = report["stored_bytes"].as_u64().unwrap();
    // Trunk pages of the free list are kept; the rest is header, index, map and footer.
    assert!(stored < (pages - free) * 4096 + (64 << 10), "{stored} bytes for {pages} pages of which {free} are free");
    world.assert_restores("--from a");
}

#[test]
fn three_short_closing_lines_say_what_the_result_and_the_limit() {
    let world = World::with_database();
    let text = world.run("backup sqlite:app.db --to a/ --to b/").done().text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 3 && lines.iter().all(|line| line.len() < 120), "{text}");
    let made = &world.run("list --from a --from b --json").done().json()[0];
    let id = &made["backup_set_id"].as_str().unwrap()[..13];
    assert!(lines[0].starts_with("BACKUP DATABASE: full of sqlite:app.db as of 20"), "{text}");
    assert!(lines[0].ends_with(&format!("Z to a/, b/ (set {id})")), "{text}");
    assert!(lines[1].contains(" MiB/s), ") && lines[1].contains(" stored in 2 families ("), "{text}");
    assert!(lines[2].starts_with("  limit: "), "{text}");
    let text = world.run("restore --from a --from b --into sqlite:copy.db").done().text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("RESTORE DATABASE: full of sqlite "), "{text}");
    assert!(
        lines[0].contains(" up to 20") && lines[0].ends_with(&format!(" into sqlite:copy.db (set {id})")),
        "{text}"
    );
    let text = world.run("verify --from a --from b").done().text();
    assert!(
        text.starts_with("VERIFY: the backup set is valid: full of sqlite ") && text.lines().count() == 3,
        "{text}"
    );
    let text = world.run("verify --from a --from b -v").done().text();
    assert!(text.contains("  memory: pool ") && text.contains(made["backup_set_id"].as_str().unwrap()), "{text}");
}

#[test]
fn a_log_file_gets_all_messages_with_times_also_those_that_quiet_leaves_out() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/ -q --log-file all.log").done();
    world.run("verify nowhere --log-file all.log").with_code(2);
    world.write("fullbore.toml", b"log-file = \"all.log\"\n");
    world.run("verify a -q").done();
    let text = String::from_utf8(world.read("all.log")).unwrap();
    let is_timed = |line: &str| line.starts_with("20") && line.as_bytes()[19] == b'Z';
    assert!(text.lines().all(is_timed), "{text}");
    for part in ["backup: begins", "BACKUP DATABASE: full of", "  limit: ", "error: ", "exit code 2", "VERIFY: the"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(world.at("all.log")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    // A log file that cannot be written is a warning, and the work is done.
    let ended = world.run("verify a -q --log-file nowhere/all.log").done();
    assert_eq!(ended.err.matches("warning: ").count(), 1, "{ended}");
}

#[test]
fn quiet_is_quiet() {
    let world = World::with_database();
    let ended = world.run("backup sqlite:app.db --to a/app.bore -q").done();
    assert_eq!((ended.text(), ended.err.clone()), (String::new(), String::new()));
}

#[test]
fn a_dry_run_writes_nothing_and_says_the_plan() {
    let world = World::with_database();
    let before = world.names(".");
    let ended = world.run("backup sqlite:app.db --to a/ --to b/ --stripes 4 --dry-run").done();
    let text = ended.text();
    assert!(text.contains("nothing was written") && text.contains("buffers"), "{text}");
    world.assert_no_media();
    assert_eq!(world.names("."), before);
}

#[test]
fn a_dry_run_refuses_a_missing_directory_as_the_backup_does() {
    let world = World::with_database();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"night/\"]\n");
    for line in ["backup sqlite:app.db --to night/", "backup sqlite:app.db --repo night"] {
        world.run(&format!("{line} --dry-run")).refused(2, "night", "does not exist");
        world.run(&format!("{line} --dry-run --mkdir")).done();
    }
    assert!(!world.at("night").exists());
}

#[test]
fn a_dry_run_over_an_existing_set_leaves_it_alone() {
    let world = World::with_small_set("");
    let before = world.read("a/app.bore");
    world.run("backup sqlite:app.db --to a/app.bore --init --dry-run").done();
    assert!(world.read("a/app.bore") == before && world.names("a") == ["app.bore"]);
}

#[test]
fn a_throttled_backup_takes_its_time() {
    let world = World::with_database();
    let size = std::fs::metadata(world.at("app.db")).unwrap().len();
    let begun = std::time::Instant::now();
    world.run("backup sqlite:app.db --to a/app.bore --throttle 1MiB/s --max-transfer-size 64KiB").done();
    let least = size as f64 / f64::from(1 << 20) * 0.7;
    assert!(begun.elapsed().as_secs_f64() > least, "{:?} for {size} bytes", begun.elapsed());
    world.assert_restores("--from a");
}

#[test]
fn free_pages_that_are_not_read_cost_a_throttle_no_time() {
    let world = World::with_purged_database(48);
    let line = "backup sqlite:purged.db --to a/app.bore --throttle 512KiB/s --compression none --report json";
    let report = world.run(line).done().json();
    let number = |name: &str| report[name].as_f64().unwrap();
    let [source, unread, elapsed] = ["source_bytes", "unread_bytes", "elapsed_s"].map(number);
    let read = source - unread;
    assert!(unread >= 45.0 * 1048576.0 && read <= number("allocated_bytes") + 4.0 * 1048576.0, "{report:#}");
    assert!(elapsed < 70.0, "all of it would take 96 s: {report:#}");
    let uses = report["verdict"]["uses"].as_array().unwrap();
    let throttle = uses.iter().find(|used| used["name"] == "throttle").unwrap();
    assert!(throttle["share"].as_f64().unwrap() <= 1.0, "{report:#}");
    world.run("restore --from a --into sqlite:copy.db").done();
    assert_eq!(crate::database::contents(&world.at("copy.db")), crate::database::contents(&world.at("purged.db")));
}

#[test]
fn the_measured_limit_stands_in_the_report_and_leaves_no_file() {
    let world = World::with_database();
    let report = world.run("backup sqlite:app.db --to a/app.bore --measure-limit --report json").done().json();
    for field in ["stage", "mib_per_s", "percent", "source_mib_per_s"] {
        assert!(!report["limit"][field].is_null(), "{field}: {}", report["limit"]);
    }
    assert_eq!(world.names("a"), ["app.bore"]);
}

#[test]
fn a_missing_directory_is_made_only_when_told_to() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to gone/app.bore").refused(2, "gone", "does not exist").says(&["--mkdir"]);
    assert!(!world.at("gone").exists());
    world.run("backup sqlite:app.db --to gone/app.bore --mkdir").done();
    world.assert_restores("--from gone");
}

#[test]
fn the_configuration_file_gives_defaults_and_flags_win() {
    let world = World::with_database();
    world.write("fullbore.toml", b"compression = \"zstd:2\"\nstripes = 3\n");
    world.run("backup sqlite:app.db --to a/").done();
    assert_eq!(world.names("a").len(), 3);
    let header = world.run("inspect header --from a --json").done().json();
    assert_eq!(header[0]["codec"], "zstd:2");
    world.run("backup sqlite:app.db --to b/ --stripes 1 --compression none").done();
    assert_eq!(world.names("b").len(), 1);
}

#[test]
fn a_transfer_size_that_holds_no_page_is_refused_with_one_that_does() {
    let world = World::with_shape(Shape { page_size: 65536, rows: 50, ..Shape::default() });
    let refused = world.run("backup sqlite:app.db --to a/ --max-transfer-size 64KiB");
    refused.refused(2, "--max-transfer-size", "65536").says(&["--max-transfer-size 128KiB"]);
    world.run("backup sqlite:app.db --to a/ --max-transfer-size 128KiB").done();
}

#[test]
fn the_memory_of_the_codecs_is_planned_and_said() {
    let world = World::with_small_set("");
    let line = "backup sqlite:app.db --to b/ --compression zstd:19 --workers 4";
    let pool = world.run(&format!("{line} --dry-run --report json")).done().json()["pool"].clone();
    let codecs = pool["codec_bytes"].as_u64().unwrap();
    assert!(codecs > 4 << 20, "{pool}");
    let text = world.run(&format!("{line} --dry-run")).done().text();
    assert!(text.contains(" + codecs ") && text.contains(" = "), "{text}");
}

#[test]
fn no_family_has_a_name_that_programs_take_for_an_option_and_one_of_before_is_still_replaced() {
    let world = World::with_database();
    std::fs::rename(world.at("app.db"), world.at("-x.db")).unwrap();
    world.run("backup sqlite:-x.db --to a/").done();
    let made = world.names("a");
    assert!(made.len() == 1 && made[0].starts_with("x-full-"), "{made:?}");
    // As an earlier version has called it.
    let line = "backup sqlite:-x.db --init --name-template {database}.bore --to b/";
    world.run("backup sqlite:-x.db --to b/-x.bore").done();
    world.run(line).done();
    assert_eq!(world.names("b"), ["-x.bore"]);
    std::fs::remove_file(world.at("b/-x.bore")).unwrap();
    world.run(line).done();
    assert_eq!(world.names("b"), ["x.bore"]);
}
