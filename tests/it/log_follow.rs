//! `log follow` beside real writers: processes of their own with a ledger of which commit was made when, killed, checkpointed by others,
//! and restored to times between.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub use fullbore_test_servers::wait_until as until;
use rusqlite::Connection;

use crate::database::{self, Shape};
use crate::log::{ITEMS, kept_open, now, restored_up_to};
use crate::program::Running;
use crate::world::World;

/// What tells the test binary that it is a writer: the database, and what it does besides.
const WRITER: &str = "FULLBORE_TEST_WRITER";

/// A writer in a process of its own. Killed when dropped.
pub struct Writer(Child);

impl Writer {
    pub fn start(world: &World, ways: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "log_follow::writer_process", "--nocapture", "--test-threads=1"]);
        command.env(WRITER, format!("{} {ways}", world.at("app.db").display()));
        Self(command.stdout(Stdio::null()).stdin(Stdio::null()).spawn().unwrap())
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill(); // It may have been killed.
        let _ = self.0.wait();
    }
}

/// Not a test: a writer that a test has started. Each commit has the next number and the time before it.
#[test]
fn writer_process() {
    let Ok(order) = std::env::var(WRITER) else { return };
    let (path, ways) = order.split_once(' ').unwrap();
    let has = |way: &str| ways.split(' ').any(|word| word == way);
    let database = Connection::open(path).unwrap();
    database.busy_timeout(Duration::from_secs(120)).unwrap();
    database.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA cache_size = 20").unwrap();
    if has("no-checkpoints") {
        database.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
    }
    let mut random = fastrand::Rng::with_seed(7);
    // Until it is killed, or nobody is there any more who could do that.
    let test = std::os::unix::process::parent_id();
    while std::os::unix::process::parent_id() == test {
        let pause = if has("fast") { 50 } else { random.u64(0..4000) };
        std::thread::sleep(Duration::from_micros(pause));
        database.execute_batch("BEGIN IMMEDIATE").unwrap();
        let time = jiff::Timestamp::now().as_microsecond();
        let insert = "INSERT INTO ledger SELECT coalesce(max(n), -1) + 1, ?1, NULL FROM ledger";
        database.execute(insert, [time]).unwrap();
        if random.u8(0..8) == 0 {
            // More pages than the cache has: frames stand in the log before the commit.
            database.execute_batch("INSERT INTO item SELECT NULL, 'w', randomblob(3000) FROM item LIMIT 40").unwrap();
        }
        if random.u8(0..12) == 0 {
            database.execute_batch("DELETE FROM item WHERE id % 7 = 3").unwrap();
        }
        if has("slots") {
            // A page for each: a commit that is missing shows for as long as no other writes to the same page.
            let slot = "UPDATE slot SET n = (SELECT max(n) FROM ledger) WHERE id = (SELECT max(n) FROM ledger) % 40";
            database.execute_batch(slot).unwrap();
        }
        if !has("fast") {
            database
                .execute_batch(&format!("UPDATE ledger SET items = ({ITEMS}) WHERE n = (SELECT max(n) FROM ledger)"))
                .unwrap();
        }
        let end = if random.u8(0..10) == 0 { "ROLLBACK" } else { "COMMIT" };
        database.execute_batch(end).unwrap();
    }
}

pub fn world() -> World {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    database::sql(
        &world.at("app.db"),
        "CREATE TABLE ledger (n INTEGER PRIMARY KEY, t INTEGER, items INTEGER); INSERT INTO ledger VALUES (0, 0, NULL)",
    );
    world
}

fn full(world: &World) {
    world.run("backup sqlite:app.db --to a/").done();
}

const FOLLOW: &str = "log follow sqlite:app.db --base a --to a/ --interval 100ms";

/// A follower that holds the log: what comes from now on cannot be lost.
fn following(world: &World, line: &str) -> Running {
    let follower = world.start(line);
    follower.says_any(&["continuing from", "its log is followed from here"]);
    follower
}

fn log_sets(world: &World) -> usize {
    world.names("a").iter().filter(|name| name.contains("-log-") && name.ends_with(".bore")).count()
}

#[track_caller]
fn wait_for_sets(world: &World, more: usize) {
    let before = log_sets(world);
    until("log sets", || log_sets(world) >= before + more);
}

/// Waits for that many log sets of a follower that goes on, or says why it cannot: a checkpoint has restarted the log before it held that. Then
/// another begins anew with a full. One that does neither is a defect, and is shown with what it has said.
#[track_caller]
fn wait_for_sets_of(world: &World, follower: &mut Running, line: &str, more: usize) {
    let (before, since) = (log_sets(world), Instant::now());
    while log_sets(world) < before + more {
        if matches!(follower.child.try_wait(), Ok(Some(_))) {
            let anew = following(world, &format!("{line} --full-if-needed"));
            let ended = std::mem::replace(follower, anew);
            ended.wait().refused(1, "app.db-wal", "are lost or cannot be proved");
        }
        assert!(since.elapsed() < Duration::from_secs(120), "no log set for two minutes; it says: {}", follower.said());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the set of what `change` does once, however soon it comes.
#[track_caller]
fn set_of<T>(world: &World, change: impl FnOnce() -> T) {
    let before = log_sets(world);
    change();
    until("its log set", || log_sets(world) > before);
}

/// A clean end: everything that was committed is on media.
#[track_caller]
fn ended(follower: Running) {
    follower.signal("TERM");
    let ended = follower.wait();
    // 4: what a killed one had left was removed.
    assert!(ended.code == 0 || ended.code == 4 && ended.err.contains("killed backup"), "{ended}");
}

pub fn newest_row(path: &Path) -> i64 {
    database::number(path, "SELECT max(n) FROM ledger")
}

/// Restored to `time`, there are all rows up to one, which was begun before it.
#[track_caller]
fn restored_at(world: &World, time: &str) -> i64 {
    let greatest = restored_up_to(world, &format!("--from a --latest --stop-at {time}"));
    let limit = time.parse::<jiff::Timestamp>().unwrap().as_microsecond();
    let begun = database::number(&world.at("app.db"), &format!("SELECT t FROM ledger WHERE n = {greatest}"));
    assert!(begun <= limit, "row {greatest} was begun behind the time that was asked for");
    greatest
}

#[test]
fn every_commit_beside_a_busy_writer_comes_back_also_when_the_follower_is_killed() {
    killed_again_and_again("", FOLLOW);
}

#[test]
fn a_follower_that_is_killed_while_it_shortens_the_log_leaves_no_silent_gap() {
    killed_again_and_again("fast", &format!("{FOLLOW} --checkpoint-after 64KiB"));
}

fn killed_again_and_again(ways: &str, line: &str) {
    let world = world();
    full(&world);
    let mut follower = following(&world, line);
    let mut writer = Writer::start(&world, ways);
    let mut times = Vec::new();
    for round in 0..4 {
        wait_for_sets_of(&world, &mut follower, line, 3);
        times.push(now());
        std::thread::sleep(Duration::from_millis(60));
        let seen = newest_row(&world.at("app.db"));
        wait_for_sets_of(&world, &mut follower, line, 2);
        assert!(
            restored_up_to(&world, "--from a --latest") >= seen,
            "round {round}: what was there before two sets is not in them"
        );
        follower.signal("KILL");
        follower.wait();
        follower = world.start(line);
        wait_for_sets_of(&world, &mut follower, line, 1);
    }
    wait_for_sets_of(&world, &mut follower, line, 2);
    writer.kill();
    ended(follower);
    assert_eq!(restored_up_to(&world, "--from a --latest"), newest_row(&world.at("app.db")));
    let mut before = 0;
    for time in times {
        let row = restored_at(&world, &time);
        assert!(row >= before, "an earlier time has more rows");
        before = row;
    }
    world.run("verify --from a").done();
}

#[test]
fn a_follower_without_a_base_takes_a_full_and_the_first_commit_behind_it_is_there() {
    let world = world();
    let mut writer = Writer::start(&world, "fast");
    until("a writer", || newest_row(&world.at("app.db")) > 20);
    let follower = world.start("log follow sqlite:app.db --to a/ --interval 50ms");
    until("sets", || log_sets(&world) >= 5);
    writer.kill();
    ended(follower);
    assert_eq!(restored_up_to(&world, "--from a"), newest_row(&world.at("app.db")));
}

#[test]
fn checkpoints_of_others_lose_nothing() {
    for mode in ["RESTART", "TRUNCATE", "FULL"] {
        let world = world();
        full(&world);
        let follower = following(&world, FOLLOW);
        let mut writer = Writer::start(&world, "");
        let other = kept_open(&world);
        let begun = Instant::now();
        other.busy_timeout(Duration::from_millis(30)).unwrap();
        while begun.elapsed() < Duration::from_millis(2500) {
            let _ = other.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(())); // It may be busy.
            std::thread::sleep(Duration::from_millis(15));
        }
        writer.kill();
        ended(follower);
        assert_eq!(restored_up_to(&world, "--from a"), newest_row(&world.at("app.db")), "{mode}");
    }
}

#[test]
fn a_killed_writer_and_its_successor_are_followed() {
    let world = world();
    full(&world);
    let follower = following(&world, FOLLOW);
    for _ in 0..4 {
        let mut writer = Writer::start(&world, "fast");
        wait_for_sets(&world, 2);
        writer.kill();
    }
    ended(follower);
    assert_eq!(restored_up_to(&world, "--from a"), newest_row(&world.at("app.db")));
}

/// Bytes of the log's frames that are in sets.
fn shipped_bytes(world: &World) -> u64 {
    let files = world.run("inspect files --from a --json").done().json();
    let logs = files.as_array().unwrap().iter().skip(1);
    logs.map(|set| set["position"]["last"]["frames"].as_u64().unwrap() * 4120).sum()
}

#[test]
fn the_log_stays_short_beside_a_writer_that_hardly_pauses() {
    let world = world();
    full(&world);
    let follower = following(&world, &format!("{FOLLOW} --checkpoint-after 512KiB"));
    let mut writer = Writer::start(&world, "fast no-checkpoints");
    // A machine with much else to do lets the log become longer, and needs longer until thrice as much has gone through it.
    let (begun, mut longest, mut shipped) = (Instant::now(), 0, 0);
    while begun.elapsed() < Duration::from_secs(50)
        && (begun.elapsed() < Duration::from_secs(4) || shipped <= 3 * longest)
    {
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(50));
            longest = longest.max(std::fs::metadata(world.at("app.db-wal")).map_or(0, |log| log.len()));
        }
        shipped = shipped_bytes(&world);
    }
    writer.kill();
    follower.signal("INT");
    let report = follower.wait().done();
    assert!(shipped > 3 * longest, "{shipped} bytes of frames were shipped, and the log had {longest}: {report}");
    assert_eq!(restored_up_to(&world, "--from a"), newest_row(&world.at("app.db")));
}

#[test]
fn a_device_that_fails_for_a_while_is_tried_again() {
    let world = world();
    full(&world);
    let app = kept_open(&world);
    let follower = following(&world, &format!("{FOLLOW} --to b/"));
    set_of(&world, || app.execute_batch("INSERT INTO ledger VALUES (1, 1, NULL)").unwrap());
    std::fs::rename(world.at("b"), world.at("away")).unwrap();
    app.execute_batch("INSERT INTO ledger VALUES (2, 2, NULL)").unwrap();
    follower.says("could not be stored");
    // The follower holds the log: this checkpoint would wait for it, as long as it was told to, and cannot restart it.
    app.busy_timeout(Duration::from_millis(100)).unwrap();
    app.execute_batch("INSERT INTO ledger VALUES (3, 3, NULL); PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    app.busy_timeout(Duration::from_secs(120)).unwrap();
    set_of(&world, || std::fs::rename(world.at("away"), world.at("b")).unwrap());
    follower.signal("TERM");
    follower.wait().done().says(&["could not be stored", "next try in"]);
    assert_eq!(restored_up_to(&world, "--from a --from b"), 3);
}

#[test]
fn a_follower_goes_on_where_the_log_was_emptied_and_nothing_was_committed_since_its_last_set() {
    for modes in [["TRUNCATE", "TRUNCATE"], ["RESTART", "TRUNCATE"], ["TRUNCATE", "PASSIVE"]] {
        let world = world();
        full(&world);
        let app = kept_open(&world);
        let follower = following(&world, FOLLOW);
        set_of(&world, || app.execute_batch("INSERT INTO ledger VALUES (1, 1, NULL)").unwrap());
        follower.signal("KILL");
        follower.wait();
        for mode in modes {
            app.execute_batch(&format!("PRAGMA wal_checkpoint({mode})")).unwrap();
        }
        let follower = following(&world, FOLLOW);
        set_of(&world, || app.execute_batch("INSERT INTO ledger VALUES (2, 2, NULL)").unwrap());
        follower.signal("TERM");
        follower.wait().done();
        assert_eq!(restored_up_to(&world, "--from a"), 2, "{modes:?}");
        // One commit that nobody stored, and it is refused.
        app.execute_batch("INSERT INTO ledger VALUES (3, 3, NULL); PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        world.run(FOLLOW).refused(1, "app.db-wal", "are lost or cannot be proved").says(&["--full-if-needed"]);
    }
}

#[test]
fn a_follower_goes_on_from_a_full_of_an_empty_log_that_was_emptied_again() {
    let world = world();
    let app = kept_open(&world);
    app.execute_batch("INSERT INTO ledger VALUES (1, 1, NULL); PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    full(&world);
    app.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let follower = following(&world, FOLLOW);
    set_of(&world, || app.execute_batch("INSERT INTO ledger VALUES (2, 2, NULL)").unwrap());
    follower.signal("TERM");
    follower.wait().done();
    assert_eq!(restored_up_to(&world, "--from a"), 2);
    // The full is still there, and what was committed behind it is not in the log any more.
    app.execute_batch("INSERT INTO ledger VALUES (3, 3, NULL); PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    world.run(FOLLOW).refused(1, "app.db-wal", "are lost or cannot be proved");
}

#[test]
fn full_if_needed_takes_a_full_if_the_log_continues_no_base() {
    let world = world();
    full(&world);
    database::sql(&world.at("app.db"), "INSERT INTO ledger VALUES (1, 1, NULL)");
    let app = kept_open(&world);
    let follower = following(&world, &format!("{FOLLOW} --full-if-needed"));
    until("a full", || {
        world.names("a").iter().filter(|name| name.contains("-full-") && name.ends_with(".bore")).count() == 2
    });
    set_of(&world, || app.execute_batch("INSERT INTO ledger VALUES (2, 2, NULL)").unwrap());
    follower.signal("TERM");
    follower.wait().done().says(&["are lost or cannot be proved", "a full is taken"]);
    assert_eq!(restored_up_to(&world, "--from a --latest"), 2);
}

#[test]
fn a_pattern_that_matches_no_base_yet_is_no_reason_to_end_if_a_full_may_be_taken() {
    let world = world();
    let line = "log follow sqlite:app.db --base a/*.bore --to a/ --for 1s";
    world.run(line).refused(2, "--base a/*.bore", "no file matches");
    world.run(&format!("{line} --full-if-needed")).done().says(&["no file matches --base yet; a full is taken"]);
    assert_eq!(world.names("a").iter().filter(|name| name.contains("-full-")).count(), 1);
}

#[test]
fn vacuum_and_a_shrinking_database_are_followed_and_the_journal_mode_cannot_be_changed_meanwhile() {
    let world = world();
    full(&world);
    let follower = following(&world, FOLLOW);
    let app = world.at("app.db");
    set_of(&world, || database::sql(&app, "DELETE FROM item WHERE id > 20; VACUUM"));
    database::sql(
        &app,
        "INSERT INTO ledger VALUES (1, 1, NULL); CREATE TABLE more AS SELECT * FROM item; DROP INDEX item_name",
    );
    let changed =
        Connection::open(&app).unwrap().query_row("PRAGMA journal_mode = delete", [], |row| row.get::<_, String>(0));
    assert!(changed.as_ref().map_or(true, |mode| mode == "wal"), "{changed:?}");
    ended(follower);
    assert_eq!(restored_up_to(&world, "--from a"), 1);
    world.run("restore --from a --into sqlite:copy.db").done();
    assert_eq!(database::contents(&world.at("copy.db")), database::contents(&app));
}

#[test]
fn a_database_that_is_replaced_or_loses_its_log_is_named() {
    for (what, suffix) in [("the database", ""), ("its log", "-wal")] {
        let world = world();
        full(&world);
        let app = kept_open(&world);
        let follower = following(&world, FOLLOW);
        set_of(&world, || app.execute_batch("INSERT INTO ledger VALUES (1, 1, NULL)").unwrap());
        let name = world.at(&format!("app.db{suffix}"));
        std::fs::copy(&name, world.at("other")).unwrap();
        std::fs::rename(world.at("other"), &name).unwrap();
        let refused = follower.wait();
        refused.refused(1, name.to_str().unwrap(), "another file has taken its name");
        assert_eq!(restored_up_to(&world, "--from a"), 1, "{what}");
    }
}

#[test]
fn a_full_that_is_taken_meanwhile_goes_on_with_the_same_log_sets() {
    let world = world();
    full(&world);
    let follower = following(&world, FOLLOW);
    let mut writer = Writer::start(&world, "");
    wait_for_sets(&world, 2);
    world.run("backup sqlite:app.db --to b/").done();
    let time = now();
    std::thread::sleep(Duration::from_millis(100));
    wait_for_sets(&world, 2);
    writer.kill();
    ended(follower);
    let newest = newest_row(&world.at("app.db"));
    assert_eq!(restored_up_to(&world, "--from a --from b --latest"), newest);
    let plan = world.run("restore --from a --from b --latest --into nul: --dry-run").done().text();
    let all = world.run("restore --from a --into nul: --dry-run").done().text();
    assert!(plan.lines().count() < all.lines().count(), "the newer full saves log sets:\n{plan}\n{all}");
    let (both, alone) = (format!("--from a --from b --stop-at {time}"), format!("--from a --stop-at {time}"));
    let plan = world.run(&format!("restore {both} --into nul: --dry-run")).text();
    // What the full holds was committed before it ended, also where the follower was late to see it.
    let expected = restored_up_to(&world, &alone).max(restored_up_to(&world, "--from b"));
    assert_eq!(restored_up_to(&world, &both), expected, "{time}\n{plan}");
}

/// What a restore with these options gives: its greatest row, in a database in which nothing of an earlier commit is missing.
#[track_caller]
fn greatest_row(world: &World, line: &str) -> i64 {
    world.run(&format!("restore {line} --into sqlite:copy.db")).done();
    let copy = world.at("copy.db");
    let (count, greatest) =
        (database::number(&copy, "SELECT count(*) FROM ledger"), database::number(&copy, "SELECT max(n) FROM ledger"));
    assert_eq!(count, greatest + 1, "{line}: a row is missing, or there twice");
    let stale = format!("SELECT count(*) FROM slot WHERE n <> {greatest} - ({greatest} - id) % 40");
    assert_eq!(database::number(&copy, &stale), 0, "{line}: the page of a commit before {greatest} is missing");
    for name in ["copy.db", "copy.db-wal", "copy.db-shm"] {
        let _ = std::fs::remove_file(world.at(name)); // The side files may not be there.
    }
    greatest
}

/// Stops the follower where it lets the writer go on, and returns when it has: while it shortens the log, it holds the lock of writers, and
/// nothing would be committed that it has not seen.
#[track_caller]
fn stopped_beside_a_writer(world: &World, follower: &Running) {
    until("a commit beside a follower that does not run", || {
        follower.stop();
        let (before, begun) = (newest_row(&world.at("app.db")), Instant::now());
        while begun.elapsed() < Duration::from_secs(1) {
            if newest_row(&world.at("app.db")) > before {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        follower.go_on();
        false
    });
}

/// Fulls beside a writer that checkpoints and a follower that is slow by chance: each holds exactly what its position says, and from each of them
/// the same log sets lead to the same commits.
#[test]
fn fulls_that_are_taken_meanwhile_hold_what_their_positions_say() {
    let rounds = std::env::var("FULLBORE_TEST_ROUNDS").map_or(3, |rounds| rounds.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(rounds);
    let world = world();
    database::sql(
        &world.at("app.db"),
        "CREATE TABLE slot (id INTEGER PRIMARY KEY, n INTEGER, filler BLOB);
         WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n WHERE x < 39) INSERT INTO slot SELECT x, 0, zeroblob(3500) FROM n;
         INSERT INTO ledger (n, t) WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 79) SELECT x, 0 FROM n;
         UPDATE slot SET n = 40 + id",
    );
    full(&world);
    let follower = following(&world, &format!("{FOLLOW} --checkpoint-after 128KiB"));
    let mut writer = Writer::start(&world, "slots");
    wait_for_sets(&world, 1);
    let (mut stops, mut late) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let stopped = round == 0 || random.u8(0..3) == 0;
        late.push(stopped);
        if stopped {
            stopped_beside_a_writer(&world, &follower);
        }
        std::fs::create_dir_all(world.at(&format!("full-{round}"))).unwrap();
        world.run(&format!("backup sqlite:app.db --to full-{round}/")).done();
        stops.push(now());
        if stopped {
            std::thread::sleep(Duration::from_millis(random.u64(0..30)));
            follower.go_on();
        }
        std::thread::sleep(Duration::from_millis(random.u64(0..150)));
        stops.push(now());
    }
    wait_for_sets(&world, 2);
    writer.kill();
    ended(follower);
    let newest = newest_row(&world.at("app.db"));
    for round in 0..rounds {
        let own = greatest_row(&world, &format!("--from full-{round}"));
        assert_eq!(greatest_row(&world, &format!("--from a --from full-{round} --latest")), newest, "full {round}");
        for (number, stop) in stops.iter().enumerate().skip(2 * round as usize).take(4) {
            let alone = greatest_row(&world, &format!("--from a --stop-at {stop}"));
            let both = greatest_row(&world, &format!("--from a --from full-{round} --stop-at {stop}"));
            // What the full holds was committed before it ended, also where the follower saw it later.
            assert_eq!(both, alone.max(own), "full {round} holds {own}; stop {number}, {stop}");
            let while_it_slept = late[round as usize] && number == 2 * round as usize;
            assert!(
                !while_it_slept || own > alone,
                "full {round} holds {own}, and a follower that did not run saw {alone}"
            );
        }
    }
}

#[test]
fn an_encrypted_log_is_followed_into_stripes() {
    let world = world();
    world.run("key new --no-recovery k.key").done();
    let line = "log follow sqlite:app.db --to a/ --to b/ --interval 50ms --encrypt-to k.key.pub --key k.key";
    let follower = world.start(line);
    let mut writer = Writer::start(&world, "");
    wait_for_sets(&world, 3);
    writer.kill();
    ended(follower);
    assert_eq!(restored_up_to(&world, "--from a --from b --key k.key"), newest_row(&world.at("app.db")));
}

#[test]
fn devices_that_take_one_set_and_a_second_follower_are_refused() {
    let world = world();
    full(&world);
    for device in ["a/x.bore", "nul:", "-"] {
        world.run(&format!("log follow sqlite:app.db --base a --to {device}")).refused(2, device, "takes one set");
    }
    world.run("log follow sqlite:app.db --base a --to a/ --interval 5").refused(
        2,
        "--interval 5",
        "the unit is missing",
    );
    world.run("log follow mysql://x --base a --to a/").refused(2, "mysql://x", "the account is missing");
    let app = kept_open(&world);
    let follower = following(&world, FOLLOW);
    set_of(&world, || app.execute_batch("INSERT INTO ledger VALUES (1, 1, NULL)").unwrap());
    world.run(FOLLOW).refused(1, "sqlite:app.db", "another run of fullbore");
    world.run("backup sqlite:app.db --kind log --base a --to a/").refused(
        1,
        "sqlite:app.db",
        "another run of fullbore",
    );
    ended(follower);
}
