//! Log sets made once (`--kind log`) and their way back: what was committed behind a full, up to the end or to a time.

use rusqlite::Connection;

use crate::database::{self, Shape};
use crate::forge::{forge, manifest_of, set_manifest};
use crate::world::World;

/// A small database in WAL mode that an application has open: nobody's close checkpoints it, and only what a test does.
pub fn kept_open(world: &World) -> Connection {
    let connection = Connection::open(world.at("app.db")).unwrap();
    connection.busy_timeout(std::time::Duration::from_secs(120)).unwrap();
    connection.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
    connection
}

fn small() -> World {
    World::with_shape(Shape { rows: 150, ..Shape::default() })
}

/// The full of a small database, in `a/`, and the application.
fn with_full() -> (World, Connection) {
    let world = small();
    let app = kept_open(&world);
    app.execute_batch("CREATE TABLE ledger (n INTEGER PRIMARY KEY, t TEXT); INSERT INTO ledger VALUES (0, 'first')")
        .unwrap();
    world.run("backup sqlite:app.db --to a/").done();
    (world, app)
}

fn commit(app: &Connection, n: i64) {
    app.execute("INSERT INTO ledger VALUES (?1, 'row ' || ?1)", [n]).unwrap();
}

fn log_set(world: &World, more: &str) {
    world.run(&format!("backup sqlite:app.db --kind log --base a --to a/ {more}")).done();
}

/// What a writer writes down with a commit: the items that it sees.
pub const ITEMS: &str = "SELECT count(*) * 1000003 + coalesce(sum(id + length(blob)), 0) FROM item";

/// Restores `copy.db`, which has to be sound, and gives the greatest number in the ledger; there is no gap below.
#[track_caller]
pub fn restored_up_to(world: &World, line: &str) -> i64 {
    world.run(&format!("restore {line} --into sqlite:copy.db --integrity-check")).done();
    greatest(world)
}

/// The same while a follower writes; None if the newest set is not complete at this moment.
#[track_caller]
pub fn restored_meanwhile(world: &World, line: &str) -> Option<i64> {
    let ended = world.run(&format!("restore {line} --into sqlite:copy.db --integrity-check"));
    if ended.code == 4 && ended.err.contains("is newer, but cannot be used") {
        return None;
    }
    ended.done();
    Some(greatest(world))
}

fn greatest(world: &World) -> i64 {
    let copy = world.at("copy.db");
    database::contents(&copy);
    let (count, greatest) =
        (database::number(&copy, "SELECT count(*) FROM ledger"), database::number(&copy, "SELECT max(n) FROM ledger"));
    assert_eq!(count, greatest + 1, "a row is missing, or there twice");
    if database::number(&copy, "SELECT count(*) FROM pragma_table_info('ledger') WHERE name = 'items'") == 1 {
        let then = format!("SELECT coalesce(items, ({ITEMS})) FROM ledger WHERE n = {greatest}");
        assert_eq!(
            database::number(&copy, ITEMS),
            database::number(&copy, &then),
            "other items than the writer saw at {greatest}"
        );
    }
    for name in ["copy.db", "copy.db-wal", "copy.db-shm"] {
        let _ = std::fs::remove_file(world.at(name)); // The side files may not be there.
    }
    greatest
}

/// What a time is called on the command line, now.
pub fn now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

#[test]
fn a_full_and_a_log_set_are_the_database_of_now() {
    for page_size in [512, 4096, 65536] {
        let world = World::with_shape(Shape { page_size, rows: 150, ..Shape::default() });
        let app = kept_open(&world);
        app.execute_batch("CREATE TABLE ledger (n INTEGER PRIMARY KEY, t TEXT)").unwrap();
        world.run("backup sqlite:app.db --to a/").done();
        database::change(&world.at("app.db"), 1);
        (0..50).for_each(|n| commit(&app, n));
        log_set(&world, "");
        world.run("verify --from a").done();
        let restored = world.run("restore --from a --into sqlite:copy.db --integrity-check").done();
        assert!(restored.text().contains("RESTORE DATABASE"), "{restored}");
        assert_eq!(database::contents(&world.at("copy.db")), database::contents(&world.at("app.db")));
    }
}

#[test]
fn log_sets_continue_each_other_and_a_differential() {
    let (world, app) = with_full();
    for round in 1..=4 {
        commit(&app, round);
        log_set(&world, "");
        assert_eq!(restored_up_to(&world, "--from a"), round);
    }
    world.run("backup sqlite:app.db --kind differential --base a --to b/").done();
    commit(&app, 5);
    world.run("backup sqlite:app.db --kind log --base a --base b --to b/").done();
    assert_eq!(restored_up_to(&world, "--from a --from b"), 5);
    let plan = world.run("restore --from a --from b --into sqlite:copy.db --dry-run").done().text();
    assert!(plan.contains("1. full") && plan.contains("2. differential") && plan.contains("3. log"), "{plan}");
}

#[test]
fn nothing_new_makes_no_set() {
    let (world, app) = with_full();
    commit(&app, 1);
    log_set(&world, "");
    let before = world.names("a");
    let again = world.run("backup sqlite:app.db --kind log --base a --to a/").done();
    again.says(&["nothing was committed since"]);
    assert_eq!(world.names("a"), before);
}

#[test]
fn a_restore_stops_at_a_time_and_names_the_range_otherwise() {
    let (world, app) = with_full();
    let mut times = vec![now()];
    for round in 1..=3 {
        commit(&app, round);
        log_set(&world, "");
        times.push(now());
    }
    for (round, time) in times.iter().enumerate().take(3) {
        assert_eq!(restored_up_to(&world, &format!("--from a --stop-at {time}")), round as i64);
    }
    let refused = |time: &str| world.run(&format!("restore --from a --into sqlite:copy.db --stop-at {time}"));
    refused("2026-01-01T00:00:00Z").refused(
        1,
        "--stop-at '2026-01-01T00:00:00Z'",
        "is before the range that these sets",
    );
    refused("2096-01-01T00:00:00+01:00").refused(
        1,
        "--stop-at '2095-12-31T23:00:00Z'",
        "is after the range that these sets",
    );
    refused("2026-01-01T00:00:00").refused(2, "--stop-at", "the zone is missing");
    refused("2026-10-25T02:30:00[Europe/Berlin]").refused(2, "--stop-at", "had this time twice");
    world.assert_no_copy();
}

/// What one set ends with the next one begins behind: that commit is in a restore up to its very time, and not a microsecond before.
#[test]
fn a_time_on_the_border_between_two_log_sets_is_that_of_the_last_commit_of_the_first() {
    let (world, app) = with_full();
    for n in 1..=3 {
        commit(&app, n);
        log_set(&world, "");
    }
    let headers = world.run("inspect header --from a --json").done().json();
    let of_logs = headers.as_array().unwrap().iter().filter(|set| set["kind"] == "log");
    let mut ends: Vec<jiff::Timestamp> = of_logs.map(|set| set["log_at"].as_str().unwrap().parse().unwrap()).collect();
    ends.sort();
    assert_eq!(ends.len(), 3);
    let microsecond = std::time::Duration::from_micros(1);
    for (n, end) in (1..).zip(ends) {
        for (time, rows) in [(end - microsecond, n - 1), (end, n)] {
            assert_eq!(restored_up_to(&world, &format!("--from a --stop-at {time}")), rows, "{time}");
        }
    }
}

#[test]
fn a_copy_only_full_interrupts_no_chain_of_logs_in_a_repository() {
    let world = small();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    let app = kept_open(&world);
    app.execute_batch("CREATE TABLE ledger (n INTEGER PRIMARY KEY, t TEXT); INSERT INTO ledger VALUES (0, 'first')")
        .unwrap();
    world.run("backup sqlite:app.db --repo night").done();
    for round in 1..=3 {
        commit(&app, round);
        world.run("backup sqlite:app.db --repo night --kind log").done();
        world.run("backup sqlite:app.db --repo night --copy-only").done();
    }
    commit(&app, 4);
    world.run("backup sqlite:app.db --repo night --kind log").done();
    let listed = world.run("list --repo night --json").json();
    let sets = listed.as_array().unwrap();
    let logs: Vec<_> = sets.iter().filter(|set| set["kind"] == "log").collect();
    assert_eq!(logs.len(), 4);
    logs.windows(2).for_each(|pair| assert_eq!(pair[1]["base_backup_set_id"], pair[0]["backup_set_id"]));
    assert_eq!(restored_up_to(&world, "--repo night"), 4);
}

#[test]
fn the_base_of_a_log_is_found_behind_many_sets_that_are_none() {
    let (world, app) = with_full();
    commit(&app, 1);
    // None of these is the database's own, or in its chain.
    world.run("backup sqlite:app.db --to a/ --copy-only").done();
    for number in 0..5 {
        let other = Connection::open(world.at(&format!("other-{number}.db"))).unwrap();
        other.execute_batch("CREATE TABLE t (n)").unwrap();
        world.run(&format!("backup sqlite:other-{number}.db --to a/")).done();
    }
    world.run("backup sqlite:app.db --to log/ --kind log --base a/ --mkdir").done();
}

#[test]
fn a_log_set_does_not_replace_what_it_continues() {
    let (world, app) = with_full();
    commit(&app, 1);
    log_set(&world, "--name-template log.bore");
    commit(&app, 2);
    let line = "backup sqlite:app.db --kind log --base a --to a/log.bore --init";
    world.run(line).refused(2, "a/log.bore", "is the set that this log set continues");
    assert_eq!(restored_up_to(&world, "--from a"), 1);
}

#[test]
fn a_missing_log_set_in_the_middle_is_named() {
    let (world, app) = with_full();
    let mut ids = Vec::new();
    for round in 1..=3 {
        commit(&app, round);
        log_set(&world, &format!("--name-template log-{round}.bore"));
        let sets = world.run(&format!("inspect header --from a/log-{round}.bore --json")).done().json();
        ids.push(sets[0]["backup_set_id"].as_str().unwrap().to_owned());
    }
    std::fs::rename(world.at("a/log-2.bore"), world.at("b/log-2.bore")).unwrap();
    let refused = world.run("restore --from a --into sqlite:copy.db");
    refused.refused(3, &ids[2], &format!("continues backup set {}, which is not there", ids[1]));
    world.assert_no_copy();
    assert_eq!(restored_up_to(&world, "--from a --from b"), 3);
    assert_eq!(restored_up_to(&world, &format!("--from a --set {}", ids[0])), 1);
}

#[test]
fn a_flipped_bit_in_a_log_set_is_named() {
    let (world, app) = with_full();
    commit(&app, 1);
    log_set(&world, "--name-template log.bore");
    let mut bytes = world.read("a/log.bore");
    let at = bytes.len() / 2;
    bytes[at] ^= 4;
    world.write("a/log.bore", &bytes);
    world.run("verify --from a").refused(3, "a/log.bore", "");
    world.run("restore --from a --into sqlite:copy.db").refused(3, "a/log.bore", "");
    world.assert_no_copy();
}

#[test]
fn an_encrypted_chain_comes_back_and_does_not_go_on_in_clear() {
    let world = small();
    let app = kept_open(&world);
    app.execute_batch("CREATE TABLE ledger (n INTEGER PRIMARY KEY, t TEXT); INSERT INTO ledger VALUES (0, '')")
        .unwrap();
    world.run("key new --no-recovery k.key").done();
    world.run("backup sqlite:app.db --to a/ --encrypt-to k.key.pub").done();
    commit(&app, 1);
    let clear = world.run("backup sqlite:app.db --kind log --base a --to a/ --key k.key");
    clear.refused(2, "--kind log", "would be written in clear");
    log_set(&world, "--key k.key --encrypt-to k.key.pub --stripes 2 --compression zstd:3");
    assert_eq!(restored_up_to(&world, "--from a --key k.key"), 1);
    world.run("restore --from a --into sqlite:copy.db").with_code(1);
}

#[test]
fn a_log_that_was_restarted_past_unsaved_frames_is_refused() {
    let (world, app) = with_full();
    commit(&app, 1);
    log_set(&world, "");
    commit(&app, 2);
    app.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    commit(&app, 3);
    let refused = world.run("backup sqlite:app.db --kind log --base a --to a/");
    refused.refused(1, "app.db-wal", "are lost or cannot be proved").says(&["take a new full or differential"]);
    world.run("backup sqlite:app.db --kind differential --base a --to a/").done();
    commit(&app, 4);
    log_set(&world, "");
    assert_eq!(restored_up_to(&world, "--from a"), 4);
}

#[test]
fn a_log_that_was_restarted_once_is_joined_while_its_end_still_stands() {
    let (world, app) = with_full();
    // The file has been longer: frames of a still older log show where the old one ends.
    (1..70).for_each(|n| commit(&app, n));
    app.execute_batch("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
    (70..80).for_each(|n| commit(&app, n));
    std::fs::remove_dir_all(world.at("a")).unwrap();
    std::fs::create_dir(world.at("a")).unwrap();
    world.run("backup sqlite:app.db --to a/").done();
    (80..100).for_each(|n| commit(&app, n));
    log_set(&world, "");
    (100..110).for_each(|n| commit(&app, n));
    // Everything is copied, and the next writer restarts the log: frames from the first one on are overwritten.
    app.execute_batch("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
    (110..113).for_each(|n| commit(&app, n));
    log_set(&world, "");
    assert_eq!(restored_up_to(&world, "--from a"), 112);
    let files = world.run("inspect files --from a --json").done().json();
    let runs = &files[2]["position"]["last"]["runs"];
    assert_eq!(runs.as_array().unwrap().len(), 2, "{files:#}");
    // The same in the words that all engines share.
    let [before, set] = [1, 2].map(|at| &files[at]["position"]["log"]);
    assert!(set["first"] == before["last"] && before["last"].is_object(), "{files:#}");
    assert_eq!(set["spans"].as_array().unwrap().len(), 2, "{files:#}");
}

/// A full and three log sets, the application, and the names of the families, oldest first.
fn with_three_log_sets() -> (World, Connection, Vec<String>) {
    let (world, app) = with_full();
    for n in 1..4 {
        commit(&app, n);
        log_set(&world, "");
    }
    let mut names = world.names("a");
    names.sort_by_key(|name| std::fs::metadata(world.at("a").join(name)).unwrap().modified().unwrap());
    (world, app, names)
}

/// Until 2026-11-25 a set said where it ends in its engine's own words only.
#[test]
fn sets_of_older_programs_and_newer_ones_make_one_chain() {
    let (world, _app, names) = with_three_log_sets();
    // The full first, and then each log set.
    for name in names {
        forge(&world, &[&format!("a/{name}")], None, |families| {
            let mut manifest = manifest_of(families);
            assert!(manifest["position"].as_object_mut().unwrap().remove("log").is_some());
            set_manifest(families, &manifest.to_string());
        });
        assert_eq!(restored_up_to(&world, "--from a"), 3, "{name}");
    }
}

/// The shared words choose the sets, and the engine's own words are what is applied.
#[test]
fn a_log_set_whose_shared_words_contradict_its_engine_is_not_passed_over_in_silence() {
    let (world, _app, names) = with_three_log_sets();
    forge(&world, &[&format!("a/{}", names[2])], None, |families| {
        let mut manifest = manifest_of(families);
        let log = &mut manifest["position"]["log"];
        (log["first"]["at"], log["spans"]) = ("999".into(), serde_json::json!([]));
        set_manifest(families, &manifest.to_string());
    });
    world.run("restore --from a --into sqlite:copy.db").refused(
        1,
        "its manifest, which has its place in the log chain",
        "contradicts itself",
    );
    world.assert_no_copy();
}

/// With `PRAGMA journal_size_limit` the first commit of a restarted log cuts the file: the predecessor's end still stands, and what followed it
/// does not.
#[test]
fn a_log_that_was_cut_when_it_was_restarted_is_refused() {
    // Within a frame, and where a commit ends, so that what is left looks like all there was.
    for within_a_frame in [77, 0] {
        let (world, app) = with_full();
        let length = || std::fs::metadata(world.at("app.db-wal")).unwrap().len();
        (1..20).for_each(|n| commit(&app, n));
        log_set(&world, "");
        (20..30).for_each(|n| commit(&app, n));
        let limit = length() + within_a_frame;
        (30..50).for_each(|n| commit(&app, n));
        app.query_row(&format!("PRAGMA journal_size_limit = {limit}"), [], |_| Ok(())).unwrap();
        app.execute_batch("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
        (50..53).for_each(|n| commit(&app, n));
        assert_eq!(length(), limit, "SQLite has cut the log");
        let refused = world.run("backup sqlite:app.db --kind log --base a --to a/");
        refused.refused(1, "app.db-wal", "are lost or cannot be proved");
        assert_eq!(restored_up_to(&world, "--from a"), 19);
    }
}

#[test]
fn a_log_that_was_restarted_twice_or_has_overwritten_its_old_end_is_refused() {
    for (rounds, commits) in [(2, 1), (1, 60)] {
        let (world, app) = with_full();
        (1..20).for_each(|n| commit(&app, n));
        log_set(&world, "");
        for round in 0..rounds {
            app.execute_batch("PRAGMA wal_checkpoint(PASSIVE)").unwrap();
            (0..commits).for_each(|n| commit(&app, 20 + round * commits + n));
        }
        let refused = world.run("backup sqlite:app.db --kind log --base a --to a/");
        refused.refused(1, "app.db-wal", "are lost or cannot be proved");
        assert_eq!(restored_up_to(&world, "--from a"), 19);
    }
}

#[test]
fn logs_of_a_database_that_was_closed_between_are_joined_only_when_nobody_wrote_to_the_file() {
    let world = small();
    let app = world.at("app.db");
    database::sql(&app, "CREATE TABLE ledger (n INTEGER PRIMARY KEY, t TEXT); INSERT INTO ledger VALUES (0, '')");
    world.run("backup sqlite:app.db --to a/").done();
    let open = kept_open(&world);
    commit(&open, 1);
    log_set(&world, "");
    assert_eq!(restored_up_to(&world, "--from a"), 1);
    // Closed and opened again, its log is another one, and what was in the old one is in the file.
    open.execute_batch("PRAGMA wal_autocheckpoint = 1000").unwrap();
    drop(open);
    let open = kept_open(&world);
    commit(&open, 2);
    let refused = world.run("backup sqlite:app.db --kind log --base a --to a/");
    refused.refused(1, "app.db-wal", "are lost or cannot be proved");
    // The same where the log is empty before and after.
    let world = small();
    let app = world.at("app.db");
    database::sql(&app, "CREATE TABLE ledger (n INTEGER PRIMARY KEY, t TEXT); INSERT INTO ledger VALUES (0, '')");
    world.run("backup sqlite:app.db --to a/").done();
    world.run("backup sqlite:app.db --kind log --base a --to a/").done().says(&["nothing was committed"]);
    database::sql(&app, "INSERT INTO ledger VALUES (1, '')");
    world.run("backup sqlite:app.db --kind log --base a --to a/").refused(1, "app.db-wal", "are lost or cannot be");
}

#[test]
fn a_database_without_a_log_is_refused() {
    let world = World::with_shape(Shape { journal: "delete", rows: 50, ..Shape::default() });
    world.run("backup sqlite:app.db --to a/").done();
    world.run("backup sqlite:app.db --kind log --base a --to a/").refused(1, "app.db", "not in WAL mode");
    database::sql(&world.at("app.db"), "PRAGMA journal_mode = wal");
    let _app = kept_open(&world);
    database::change(&world.at("app.db"), 1);
    world.run("backup sqlite:app.db --kind log --base a --to a/").refused(1, "app.db", "no write-ahead log then");
}

/// Commits, checkpoints of every kind, closing and opening, and log sets in any order: a log set is refused, or there is no gap.
#[test]
fn no_change_to_the_log_leaves_a_silent_gap() {
    let (mut joined, mut refused) = (0, 0);
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let world = small();
        let mut app = Some(kept_open(&world));
        let open = |app: &mut Option<Connection>| {
            if app.is_none() {
                *app = Some(kept_open(&world));
            }
        };
        app.as_ref()
            .unwrap()
            .execute_batch("CREATE TABLE ledger (n INTEGER PRIMARY KEY, t TEXT); INSERT INTO ledger VALUES (0, '')")
            .unwrap();
        world.run("backup sqlite:app.db --to a/").done();
        let mut rows = 0;
        for step in 0..24 {
            match random.u8(0..10) {
                0..=3 => {
                    open(&mut app);
                    let count = if random.u8(0..4) == 0 { 30 } else { 1 };
                    for _ in 0..count {
                        rows += 1;
                        commit(app.as_ref().unwrap(), rows);
                    }
                }
                4 | 5 => {
                    open(&mut app);
                    let mode = ["PASSIVE", "PASSIVE", "FULL", "RESTART", "TRUNCATE"][random.usize(0..5)];
                    app.as_ref().unwrap().execute_batch(&format!("PRAGMA wal_checkpoint({mode})")).unwrap();
                }
                6 => app = None,
                _ => {
                    let ended = world.run("backup sqlite:app.db --kind log --base a --to a/");
                    if ended.code == 0 {
                        joined += 1;
                        assert_eq!(restored_up_to(&world, "--from a --latest"), rows, "seed {seed}, step {step}");
                    } else {
                        refused += 1;
                        ended.refused(1, "app.db-wal", "are lost or cannot be proved");
                        world.run("backup sqlite:app.db --to a/").done();
                    }
                }
            }
        }
    }
    assert!(joined > 20 && refused > 3, "{joined} joined and {refused} refused: too few of one");
}
