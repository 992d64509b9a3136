//! The cut-over of a migration: what differs is found, what fails leaves the source as it was, and what is killed can be
//! continued or ended.

use fullbore_test_servers::{Kind, Server, wait_until};

use crate::database::{self, Shape};
use crate::held::{Held, is_running, wait_for_statement};
use crate::migrate::{migrate, server};
use crate::program::{Ended, Running};
use crate::world::World;

/// Two servers, and a full in the target.
struct Pair {
    world: World,
    source: Server,
    target: Server,
}

impl Pair {
    fn new(kinds: [Kind; 2], made: &str) -> Self {
        let world = World::new();
        let (source, target) = (server(kinds[0], &world, "source"), server(kinds[1], &world, "target"));
        for server in [&source, &target] {
            server.sql("CREATE USER other@localhost");
        }
        source.sql(&format!("CREATE DATABASE shop; USE shop; CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20)); INSERT INTO t VALUES (1, 'a'); {made}"));
        let pair = Self { world, source, target };
        let full = pair.run("--for 1ms");
        // Another vendor may have another collation in the place of one, and a warning says so.
        assert!(full.code == 0 || full.code == 4 && kinds[0] != kinds[1], "{full}");
        pair
    }

    fn run(&self, options: &str) -> Ended {
        migrate(&self.world, [&self.source, &self.target], options)
    }

    fn start(&self, options: &str) -> Running {
        self.world.start(&crate::migrate::line([&self.source, &self.target], options))
    }

    /// The cut-over, while it waits for a row of the target: the source is read-only then.
    fn start_cut_over(&self) -> (Held, Running) {
        let lock = Held::by(&self.target, "LOCK TABLES shop.t WRITE");
        let running = self.start("--resume --cut-over");
        wait_for_statement(&self.target, "SELECT%`shop`.`t`");
        assert!(self.source.sql("SELECT @@GLOBAL.read_only").starts_with('1'));
        (lock, running)
    }

    /// Kills a run within a statement that waits for a table of the target.
    fn kill_within(&self, statement: &str, table: &str) {
        let lock = Held::by(&self.target, &format!("LOCK TABLES shop.{table} WRITE"));
        let running = self.start("--resume --for 60s");
        wait_for_statement(&self.target, statement);
        running.signal("KILL");
        running.wait();
        drop(lock);
        wait_until("the server ends the statement", || !is_running(&self.target, statement));
    }

    fn is_writable(&self) -> bool {
        self.source.sql("SELECT @@GLOBAL.read_only").starts_with('0')
    }
}

fn each_difference_is_named(kind: Kind) {
    let pair = Pair::new(
        [kind; 2],
        "CREATE VIEW w AS SELECT id FROM t; CREATE PROCEDURE p () SELECT 1; CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.v = 'x'",
    );
    for (change, undo, named) in [
        ("ALTER TABLE t ADD KEY k (v)", "ALTER TABLE t DROP KEY k", "table shop.t"),
        ("CREATE TABLE more (a INT)", "DROP TABLE more", "only the target has it"),
        ("CREATE OR REPLACE VIEW w AS SELECT v FROM t", "CREATE OR REPLACE VIEW w AS SELECT id FROM t", "view shop.w"),
        ("DROP PROCEDURE p", "CREATE PROCEDURE p () SELECT 1", "procedure shop.p"),
        ("DROP TRIGGER tr", "CREATE TRIGGER tr BEFORE INSERT ON t FOR EACH ROW SET NEW.v = 'x'", "trigger shop.tr"),
    ] {
        pair.target.sql(&format!("USE shop; {change}"));
        let ended = pair.run("--resume --cut-over").with_code(1);
        assert!(ended.err.contains(named) && ended.err.contains("writable as before"), "{change}: {ended}");
        assert!(pair.is_writable());
        pair.target.sql(&format!("USE shop; {undo}"));
    }
    pair.source.sql("INSERT INTO shop.t VALUES (2, 'b')");
    pair.run("--resume --cut-over").done();
}

#[test]
fn a_definition_that_only_one_mysql_has_ends_the_cut_over_by_its_name() {
    each_difference_is_named(Kind::Mysql9);
}

#[test]
fn a_definition_that_only_one_mariadb_has_ends_the_cut_over_by_its_name() {
    each_difference_is_named(Kind::Mariadb11);
}

fn a_killed_cut_over_gives_the_settings_back(kind: Kind) {
    let pair = Pair::new([kind; 2], "CREATE TABLE w (a INT)");
    // A read-only MariaDB would run events all the same.
    pair.source.sql("SET GLOBAL event_scheduler = ON");
    let runs_events = || pair.source.sql("SELECT @@GLOBAL.event_scheduler") == "ON\n";
    for way in ["--resume --for 1ms", "--abort"] {
        let (lock, running) = pair.start_cut_over();
        running.signal("KILL");
        running.wait();
        drop(lock);
        assert!(!pair.is_writable(), "the killed run has left it so");
        assert_eq!(runs_events(), kind == Kind::Mysql9);
        let ended = pair.run(way).done();
        assert!(runs_events());
        assert!(ended.err.contains("is what it was before"), "{ended}");
        assert!(pair.is_writable() && pair.source.try_sql("INSERT INTO shop.w VALUES (1)").is_ok());
    }
    assert!(!pair.target.sql("SHOW DATABASES").contains("fullbore_migrate"));
    pair.run("--abort").refused(1, "", "no migration");
    assert_eq!(pair.target.sql("SELECT COUNT(*) FROM shop.t WHERE id = 1"), "1\n", "what was moved stays");
}

#[test]
fn the_next_run_or_abort_makes_a_mysql_writable_again_that_a_killed_cut_over_left_read_only() {
    a_killed_cut_over_gives_the_settings_back(Kind::Mysql9);
}

#[test]
fn the_next_run_or_abort_makes_a_mariadb_writable_again_that_a_killed_cut_over_left_read_only() {
    a_killed_cut_over_gives_the_settings_back(Kind::Mariadb10);
}

#[test]
fn a_cut_over_that_runs_keeps_its_source_and_abort_drops_the_events_of_one_that_was_killed() {
    let pair = Pair::new([Kind::Mysql9; 2], "");
    let (lock, running) = pair.start_cut_over();
    pair.run("--abort").refused(1, "", "another migration");
    assert!(!pair.is_writable(), "the running cut-over has made it so");
    running.signal("KILL");
    running.wait();
    drop(lock);
    // It was killed when it enabled events.
    pair.target.sql("CREATE EVENT shop.e ON SCHEDULE EVERY 1 DAY DO SET @a = 1");
    pair.run("--abort").done();
    assert!(pair.is_writable());
    assert_eq!(pair.target.sql("SELECT COUNT(*) FROM information_schema.events"), "0\n");
}

#[test]
fn a_source_that_somebody_makes_writable_during_the_cut_over_ends_it() {
    let pair = Pair::new([Kind::Mariadb11; 2], "");
    pair.target.sql("SET GLOBAL read_only = ON");
    let (lock, running) = pair.start_cut_over();
    pair.source.sql("SET GLOBAL read_only = OFF");
    drop(lock);
    let ended = running.wait().with_code(1);
    assert!(ended.err.contains("made it writable"), "{ended}");
    let ended = pair.run("--resume --cut-over").with_code(4);
    ended.says(&["is read-only: applications cannot write to it", "until its next start"]);
}

#[test]
fn a_mariadb_that_was_killed_while_it_dropped_tables_drops_the_others() {
    let made = "CREATE TABLE one (id INT PRIMARY KEY); CREATE TABLE two LIKE one; CREATE TABLE three LIKE one";
    let pair = Pair::new([Kind::Mariadb11; 2], made);
    pair.source.sql("USE shop; DROP TABLE one, two, three -- all");
    pair.kill_within("DROP TABLE", "two");
    // The server has dropped a part.
    pair.target.sql("DROP TABLE IF EXISTS shop.one; CREATE TABLE IF NOT EXISTS shop.two (id INT PRIMARY KEY)");
    pair.run("--resume --cut-over").done();
    assert_eq!(pair.target.sql("SHOW TABLES FROM shop"), "t\n");
}

fn an_event_that_fails_leaves_none(kind: Kind) {
    let event = |name: &str| {
        format!(
            "CREATE DEFINER = other@localhost EVENT {name} ON SCHEDULE EVERY 1 SECOND DO INSERT INTO shop.t VALUES (RAND() * 1000000, '{name}');"
        )
    };
    let pair = Pair::new([kind; 2], &format!("SET GLOBAL event_scheduler = OFF; {} {}", event("a"), event("b")));
    let (lock, running) = pair.start_cut_over();
    pair.target.sql(&format!("USE shop; {}", event("b")));
    drop(lock);
    let ended = running.wait().with_code(1);
    assert!(ended.err.contains("event shop.b") && ended.err.contains("no event is in the target yet"), "{ended}");
    assert_eq!(pair.target.sql("SELECT COUNT(*) FROM information_schema.events"), "0\n");
    assert!(pair.is_writable());
    // An event keeps its definer.
    pair.run("--resume --cut-over").done();
    let events = "SELECT event_name, definer, status FROM information_schema.events ORDER BY 1";
    assert_eq!(pair.target.sql(events), "a\tother@localhost\tENABLED\nb\tother@localhost\tENABLED\n");
}

#[test]
fn an_event_that_a_mysql_refuses_leaves_no_event_in_the_target() {
    an_event_that_fails_leaves_none(Kind::Mysql9);
}

#[test]
fn an_event_that_a_mariadb_refuses_leaves_no_event_in_the_target() {
    an_event_that_fails_leaves_none(Kind::Mariadb11);
}

fn a_swap_of_equal_tables_that_is_killed(kind: Kind) {
    let made = "CREATE TABLE one (id INT PRIMARY KEY, v INT); CREATE TABLE two LIKE one; INSERT INTO one VALUES (1, 1); INSERT INTO two VALUES (2, 2)";
    let pair = Pair::new([kind; 2], made);
    pair.source.sql("USE shop; RENAME TABLE one TO three, two TO one, three TO two -- swapped");
    pair.kill_within("RENAME", "one");
    pair.run("--resume --cut-over").done();
    for table in ["one", "two"] {
        let rows = format!("SELECT * FROM shop.{table}");
        assert_eq!(pair.target.sql(&rows), pair.source.sql(&rows), "{table}");
    }
}

#[test]
fn equal_tables_of_mysql_that_swap_their_names_are_swapped_once_also_after_a_kill() {
    a_swap_of_equal_tables_that_is_killed(Kind::Mysql9);
}

#[test]
fn equal_tables_of_mariadb_that_swap_their_names_are_swapped_once_also_after_a_kill() {
    a_swap_of_equal_tables_that_is_killed(Kind::Mariadb11);
}

#[test]
fn a_place_that_another_migration_has_written_ends_this_one_with_an_error() {
    let pair = Pair::new([Kind::Mariadb11; 2], "");
    let running = pair.start("--resume --for 60s");
    wait_until("it follows", || pair.target.sql("SELECT IS_USED_LOCK('fullbore_migrate') IS NOT NULL") == "1\n");
    pair.target.sql("UPDATE fullbore_migrate.state SET step = step + 7");
    pair.source.sql("INSERT INTO shop.t VALUES (2, 'b')");
    let ended = running.wait().with_code(1);
    assert!(ended.err.contains("another migration"), "{ended}");
    assert_eq!(pair.target.sql("SELECT COUNT(*) FROM shop.t"), "1\n", "nothing of the transaction stays");
    pair.run("--resume --cut-over").done();
}

#[test]
fn a_migration_that_is_cancelled_ends_well_and_can_be_continued() {
    let pair = Pair::new([Kind::Mysql9; 2], "");
    pair.world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    database::make(&pair.world.at("app.db"), Shape::default());
    pair.world.run("backup sqlite:app.db --repo night").done();
    let running = pair.start("--resume --task-in night");
    wait_until("it follows", || pair.target.sql("SELECT IS_USED_LOCK('fullbore_migrate') IS NOT NULL") == "1\n");
    pair.source.sql("INSERT INTO shop.t VALUES (2, 'b')");
    let tasks = || pair.world.run("tasks --repo night --json").done().json();
    let id = || tasks().as_array()?.iter().find(|task| task["verb"] == "migrate")?["task"].as_str().map(str::to_owned);
    wait_until("its task", || id().is_some());
    let shown = pair.world.run(&format!("cancel {} --repo night", id().unwrap())).done().text();
    assert!(shown.contains("state     cancelled"), "{shown}");
    running.wait().done().says(&["following was ended", "--resume --cut-over"]);
    assert!(pair.is_writable());
    pair.run("--resume --cut-over").done();
    assert_eq!(pair.target.sql("SELECT v FROM shop.t WHERE id = 2"), "b\n");
}

#[test]
fn a_writer_with_read_only_admin_that_waits_for_the_cut_over_ends_it_and_loses_nothing() {
    let pair = Pair::new([Kind::Mariadb11; 2], "");
    let (lock, running) = pair.start_cut_over();
    let mut writer = Held::by(&pair.source, "SELECT 1");
    writer.send("INSERT INTO shop.t VALUES (77, 'late')");
    wait_for_statement(&pair.source, "INSERT INTO shop.t VALUES (77");
    drop(lock);
    let ended = running.wait().with_code(1);
    assert!(ended.err.contains("READ_ONLY ADMIN") && pair.is_writable(), "{ended}");
    writer.run("SELECT 1");
    pair.run("--resume --cut-over").done();
    assert_eq!(pair.target.sql("SELECT v FROM shop.t WHERE id = 77"), "late\n");
}

#[test]
fn a_mariadb_runs_definitions_of_mysql_with_the_mode_and_the_character_set_of_their_session() {
    let pair = Pair::new([Kind::Mysql9, Kind::Mariadb11], "");
    pair.source.sql(
        "USE shop; SET NAMES latin1; SET sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT'; \
         CREATE TABLE \"q\" (a INT, b VARCHAR(9) CHARACTER SET latin1 DEFAULT '\u{e4}'); \
         CREATE PROCEDURE said () SELECT 'a' || 'b' AS \"x\"; SET NAMES utf8mb4; INSERT INTO \"q\" (a) VALUES (1)",
    );
    pair.run("--resume --cut-over").with_code(0);
    let mode = "SELECT sql_mode FROM information_schema.routines WHERE routine_name = 'said'";
    assert_eq!(pair.target.sql(mode).trim(), "PIPES_AS_CONCAT,ANSI_QUOTES");
    assert_eq!(pair.target.sql("CALL shop.said"), "ab\n");
    let default = "SELECT HEX(b), (SELECT HEX(column_default) FROM information_schema.columns WHERE table_name = 'q' AND column_name = 'b') FROM shop.q";
    let [found, expected] = [&pair.target, &pair.source].map(|server| server.sql(default));
    // MariaDB lists a default with its quotes.
    assert_eq!(found.replace("\t27", "\t").trim_end().trim_end_matches("27"), expected.trim_end());
}

#[test]
fn a_mariadb_gets_the_nearest_collation_of_a_definition_of_mysql() {
    let pair = Pair::new([Kind::Mysql9, Kind::Mariadb10], "");
    // The log names the collation, and the user has not.
    pair.source.sql(
        "CREATE TABLE shop.copied SELECT 'x' AS t; ALTER TABLE shop.copied ADD u VARCHAR(9) COLLATE utf8mb4_0900_as_cs",
    );
    pair.run("--resume --cut-over").with_code(0);
    let collations =
        "SELECT collation_name FROM information_schema.columns WHERE table_name = 'copied' ORDER BY column_name";
    assert_eq!(pair.target.sql(collations), "utf8mb4_uca1400_ai_ci\nutf8mb4_uca1400_as_cs\n");
}

#[test]
fn settings_that_only_mariadb_has_are_those_of_the_session_and_a_database_without_a_name_is_its_own() {
    let pair = Pair::new([Kind::Mariadb11; 2], "CREATE TABLE c (a INT CHECK (a > 0)); CREATE DATABASE other");
    pair.source.sql(
        "USE shop; SET check_constraint_checks = 0; INSERT INTO c VALUES (-1); ALTER TABLE c ADD b INT, FORCE; \
         SET sql_if_exists = 1; DROP TABLE nowhere; SET NAMES latin1; \
         CREATE TABLE named (a VARCHAR(9) CHARACTER SET utf8mb4 COMMENT '\u{e4}'); \
         SET character_set_collations = ''; CREATE TABLE older (a VARCHAR(9) CHARACTER SET utf8mb4); \
         ALTER DATABASE CHARACTER SET latin1; CREATE TABLE last (a VARCHAR(9))",
    );
    pair.run("--resume --cut-over").done();
    let collations =
        "SELECT table_name, collation_name FROM information_schema.columns WHERE table_schema = 'shop' ORDER BY 1, 2";
    assert_eq!(pair.target.sql(collations), pair.source.sql(collations));
    assert_eq!(
        pair.target
            .sql("SELECT default_character_set_name FROM information_schema.schemata WHERE schema_name = 'shop'"),
        "latin1\n"
    );
}
