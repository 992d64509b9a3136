//! Each wrong input: the exit code, a message with thing, cause and next step, and nothing left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::database::{self, Shape};
use crate::program::{self, Ended};
use crate::world::World;

/// `backup sqlite:SOURCE` is refused and nothing is left.
#[track_caller]
fn refused_source(world: &World, source: &str, code: i32, cause: &str) -> Ended {
    let thing = source.split_once(':').map_or(source, |(_, path)| path).to_owned();
    let ended = world.run(&format!("backup {source} --to a/ --to b/")).refused(code, &thing, cause);
    world.assert_no_media();
    ended
}

#[test]
fn a_missing_source_is_refused() {
    refused_source(&World::new(), "sqlite:gone.db", 2, "No such file or directory");
}

#[test]
fn a_source_without_a_path_or_scheme_is_refused() {
    let world = World::with_database();
    for source in ["sqlite:", "app.db", "foo:app.db", "mysql://db1"] {
        world.run(&format!("backup {source} --to a/")).refused(2, source, "");
    }
    world.assert_no_media();
}

#[test]
fn an_empty_source_is_refused() {
    let world = World::new();
    world.write("empty.db", b"");
    refused_source(&world, "sqlite:empty.db", 1, "empty");
}

#[test]
fn a_source_that_is_no_database_is_refused() {
    let world = World::new();
    world.write("text.db", &b"This is a text and no database. ".repeat(400));
    refused_source(&world, "sqlite:text.db", 1, "not an SQLite database");
    world.write("noise.db", &(0..40_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<_>>());
    refused_source(&world, "sqlite:noise.db", 1, "not an SQLite database");
}

#[test]
fn a_database_cut_off_before_the_backup_is_refused() {
    let world = World::with_database();
    let bytes = world.read("app.db");
    for length in [50, 100, 4000, 4096, bytes.len() / 2] {
        world.write("app.db", &bytes[..length]);
        world.run("backup sqlite:app.db --to a/").refused(1, "app.db", "");
        world.assert_no_media();
    }
}

#[test]
fn a_directory_as_source_is_refused() {
    let world = World::new();
    refused_source(&world, "sqlite:b", 1, "directory");
}

#[test]
fn a_pipe_or_a_device_as_source_is_refused() {
    let world = World::new();
    refused_source(&world, "sqlite:/dev/null", 1, "");
}

/// A folder that everybody may enter, with the program in it, and `app.db` in it.
fn open_to_all() -> World {
    let world = World::with_database();
    // By another program: a child of another test would inherit a handle that writes to it, and then it cannot be run.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_fullbore")).arg(world.at("fullbore")).status();
    assert!(copied.unwrap().success());
    world
}

/// The line run by a user without rights; `None` where that cannot be done.
fn unprivileged(world: &World, line: &str) -> Option<Ended> {
    let folder = world.folder();
    if !program::is_root() {
        return Some(world.run(line));
    }
    // Nobody may pass through closed directories above: bind the folder's descriptor as working directory instead.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("./fullbore");
    program::surroundings(&mut command, folder);
    command.args(line.split_whitespace()).uid(65534).gid(65534).env("TMPDIR", "/tmp");
    match command.output() {
        Ok(output) => Some(Ended::from(line.to_owned(), output)),
        Err(error) => {
            program::skipped("a test of permissions", &error.to_string());
            None
        }
    }
}

#[test]
fn a_source_that_may_not_be_read_is_refused() {
    let world = open_to_all();
    fs::set_permissions(world.at("app.db"), fs::Permissions::from_mode(0o000)).unwrap();
    let Some(ended) = unprivileged(&world, "backup sqlite:app.db --to nul:") else { return };
    ended.refused(1, "app.db", "ermission denied");
}

#[test]
fn a_directory_that_may_not_be_written_is_refused() {
    let world = open_to_all();
    fs::set_permissions(world.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(world.at("a"), fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(world.at("app.db"), fs::Permissions::from_mode(0o644)).unwrap();
    if program::is_root() {
        // In rollback mode a reader needs no file beside the database.
        database::sql(&world.at("app.db"), "PRAGMA journal_mode = delete");
    }
    let Some(ended) = unprivileged(&world, "backup sqlite:app.db --to a/app.bore") else { return };
    ended.refused(1, "a/app.bore", "ermission denied");
    world.assert_no_media();
    fs::set_permissions(world.at("a"), fs::Permissions::from_mode(0o755)).unwrap();
    world.run("backup sqlite:app.db --to a/app.bore").done();
    fs::set_permissions(world.at("a/app.bore"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(world.at("b"), fs::Permissions::from_mode(0o555)).unwrap();
    let Some(ended) = unprivileged(&world, "restore --from a --into sqlite:b/copy.db") else { return };
    ended.refused(1, "b/", "ermission denied");
    assert!(world.names("b").is_empty());
}

#[test]
fn an_unknown_scheme_as_target_is_refused() {
    let world = World::with_database();
    for device in ["s3://Bucket/key", "gopher://x/y", "disk:x", "nul:x", "file://host/x", "sqlite:x"] {
        world.run(&format!("backup sqlite:app.db --to {device}")).refused(2, device, "");
    }
}

#[test]
fn a_family_named_twice_is_refused() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/x.bore --to ./a/../a/x.bore").refused(2, "a/x.bore", "two families");
    std::os::unix::fs::symlink("a", world.at("link")).unwrap();
    world.run("backup sqlite:app.db --to a/x.bore --to link/x.bore").refused(2, "link/x.bore", "two families");
    world.run("backup sqlite:app.db --to a/ --stripes 3 --name-template same.bore").refused(
        2,
        "same.bore",
        "two families",
    );
    world.run("backup sqlite:app.db --to a/ --to link/ --name-template same.bore").refused(
        2,
        "same.bore",
        "two families",
    );
    world.assert_no_media();
}

#[test]
fn two_names_of_one_file_are_one_family() {
    let world = World::with_small_set("");
    fs::hard_link(world.at("a/app.bore"), world.at("b/same.bore")).unwrap();
    let before = world.read("a/app.bore");
    world.run("backup sqlite:app.db --to a/app.bore --to b/same.bore --init").refused(1, "b/same.bore", "");
    assert!(world.read("a/app.bore") == before && world.names("a").len() == 1 && world.names("b").len() == 1);
}

#[test]
fn the_database_itself_is_no_target() {
    let world = World::with_database();
    let before = world.read("app.db");
    std::os::unix::fs::symlink("../app.db", world.at("a/link.bore")).unwrap();
    for target in ["app.db", "./app.db", "app.db-wal", "app.db-journal", "app.db-shm", "a/link.bore"] {
        for init in ["", " --init"] {
            let ended = world.run(&format!("backup sqlite:app.db --to {target}{init}"));
            assert!([1, 2].contains(&ended.code), "{ended}");
            ended.says(&["error: ", target, "hint: "]);
        }
    }
    world.run("backup sqlite:app.db --to ./ --name-template app.db --init").refused(2, "app.db", "the database itself");
    assert!(world.read("app.db") == before);
    assert!(!world.names(".").iter().any(|name| name.contains(".new-") || name.contains("-wal")));
}

#[test]
fn too_many_stripes_or_too_few_are_refused() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a/ --stripes 65").refused(2, "--stripes", "65 is not from 1 to 64");
    world.run("backup sqlite:app.db --to a/ --stripes 0").refused(2, "--stripes", "0 is not from 1 to 64");
    world.run("backup sqlite:app.db --to a/ --to b/ --stripes 1").refused(2, "--stripes", "cannot use 2 devices");
    world.run("backup sqlite:app.db --to a/one.bore --stripes 2").refused(2, "a/one.bore", "one file");
    world.assert_no_media();
}

#[test]
fn more_memory_than_there_is_is_refused_in_one_line() {
    let world = World::with_database();
    let ended = world.run("backup sqlite:app.db --to a/ --buffer-count 1000000 --max-transfer-size 64MiB").refused(
        2,
        "memory",
        "available",
    );
    let line = ended.err.lines().next().unwrap();
    assert!(line.contains("asked") && line.contains("--buffer-count 1000000") && line.contains("64.0 MiB"), "{line}");
    ended.says(&["lower --buffer-count or --max-transfer-size"]);
    world.run("backup sqlite:app.db --to a/ --buffer-count 99999999999").refused(2, "--buffer-count", "");
    world.assert_no_media();
    world.run("backup sqlite:app.db --to a/app.bore").done();
    world.run("verify --from a --buffer-count 1000000").refused(2, "memory", "available");
    world.run("restore --from a --into sqlite:copy.db --buffer-count 1000000").refused(2, "memory", "available");
    world.assert_no_copy();
}

#[test]
fn too_few_buffers_name_the_minimum_and_the_minimum_is_enough() {
    let world = World::with_database();
    for (stripes, more) in [(1, ""), (1, "--compression none"), (5, "--readers 3 --workers 3"), (64, "--queue-depth 8")]
    {
        let line = format!(
            "backup sqlite:app.db --to a/ --stripes {stripes} --name-template x-{{family}} --max-transfer-size 64KiB {more}"
        );
        let ended = world.run(&format!("{line} --buffer-count 2")).refused(2, "--buffer-count", "fewer than");
        let least: usize =
            ended.err.split("give at least ").nth(1).unwrap().split([',', '\n']).next().unwrap().parse().unwrap();
        world.run(&format!("{line} --buffer-count {}", least - 1)).refused(2, "--buffer-count", "fewer than");
        world.assert_no_media();
        world.run(&format!("{line} --buffer-count {least}")).done();
        world.assert_restores("--from a");
        for name in world.names("a") {
            fs::remove_file(world.at("a").join(name)).unwrap();
        }
    }
}

#[test]
fn misaligned_and_impossible_sizes_are_refused() {
    let world = World::with_database();
    for (flag, value) in [
        ("--max-transfer-size", "100000"),
        ("--max-transfer-size", "0"),
        ("--max-transfer-size", "65MiB"),
        ("--max-transfer-size", "32KiB"),
        ("--max-transfer-size", "much"),
        ("--block-size", "1000"),
        ("--block-size", "256"),
        ("--block-size", "128KiB"),
        ("--throttle", "200MiB/m"),
        ("--throttle", "0/s"),
        ("--readers", "0"),
        ("--workers", "257"),
        ("--queue-depth", "0"),
        ("--max-wal-growth", "-1"),
    ] {
        world.run(&format!("backup sqlite:app.db --to a/ {flag}={value}")).refused(2, flag, "");
    }
    for codec in ["lzma", "zstd:20", "zstd:x", "gzip:0", "gzip:13", "lz4:1", ""] {
        world.run(&format!("backup sqlite:app.db --to a/ --compression={codec}")).refused(2, "compression", "");
    }
    world.assert_no_media();
}

#[test]
fn a_wrong_configuration_is_refused_with_its_line() {
    let world = World::with_database();
    world.write("fullbore.toml", b"compression = \"lz4\"\nstrips = 4\n");
    world.run("backup sqlite:app.db --to a/").refused(2, "fullbore.toml, line 2", "strips");
    world.write("fullbore.toml", b"compression = \n");
    world.run("backup sqlite:app.db --to a/").refused(2, "fullbore.toml, line 1", "");
    world.run("backup sqlite:app.db --to a/ --config gone.toml").refused(2, "gone.toml", "No such file");
    world.assert_no_media();
}

#[test]
fn unknown_flags_and_verbs_are_usage_errors() {
    let world = World::new();
    for line in [
        "",
        "bakcup",
        "backup",
        "backup sqlite:x",
        "backup sqlite:x --to a/ --strips 2",
        "verify",
        "inspect everything --from a",
        "backup sqlite:x --to a/ --stats 0",
    ] {
        let ended = world.run(line).with_code(2);
        assert!(!ended.err.is_empty(), "{ended}");
    }
    assert!(world.run("--help").done().text().contains("Exit codes: 0 done"));
    assert!(world.run("--version").done().text().starts_with("fullbore "));
}

/// A file system of `size` at `full/`, or `None` where it cannot be made.
struct SmallFileSystem {
    world: World,
}

impl SmallFileSystem {
    fn new(test: &str, size: &str, shape: Shape) -> Option<Self> {
        let world = World::with_shape(shape);
        fs::create_dir(world.at("full")).unwrap();
        let mounted = program::is_root()
            && Command::new("mount")
                .args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"])
                .arg(world.at("full"))
                .status()
                .is_ok_and(|status| status.success());
        if !mounted {
            program::skipped(test, "a tmpfs cannot be mounted (it needs root)");
            return None;
        }
        Some(Self { world })
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.world.at("full")).status(); // The folder is removed next.
    }
}

#[test]
fn a_target_without_room_for_the_estimate_is_refused_before_anything_is_written() {
    let Some(small) = SmallFileSystem::new("no room", "256k", Shape::default()) else { return };
    let world = &small.world;
    world
        .run("backup sqlite:app.db --to full/app.bore --compression none")
        .refused(1, "full", "the backup needs about")
        .says(&["free"]);
    assert!(world.names("full").is_empty());
    world.run("backup sqlite:app.db --to a/app.bore").done();
    world.run("restore --from a --into sqlite:full/copy.db").refused(1, "full", "the database needs");
    assert!(world.names("full").is_empty());
}

#[test]
fn room_that_a_killed_backup_has_reserved_is_free_for_the_next_one() {
    let Some(small) = SmallFileSystem::new("reserved room", "3m", Shape::default()) else { return };
    let world = &small.world;
    world.run("backup sqlite:app.db --to full/app.bore --compression none").done();
    let size = world.read("full/app.bore").len();
    // Made empty first: a child process of another test may still have it open, and then its room would not be free.
    world.write("full/app.bore", b"");
    fs::remove_file(world.at("full/app.bore")).unwrap();
    let dead = "app.bore.new-0192f0c1-2b3a-7c4d-8e5f-001122334455";
    world.write(&format!("full/{dead}"), &vec![0; (3 << 20) - size / 2]);
    let line = "backup sqlite:app.db --to full/app.bore --compression none";
    world.run(&format!("{line} --dry-run")).done().says(&["note: ", dead, "would be removed first"]);
    assert!(world.at("full").join(dead).exists());
    world.run(line).done().says(&["note: removed", dead]);
    assert_eq!(world.names("full"), ["app.bore"]);
    // Also when that is not enough, what was removed is told.
    world.write("full/app.bore", b"");
    fs::remove_file(world.at("full/app.bore")).unwrap();
    world.write(&format!("full/{dead}"), &[1; 4096]);
    world.write("full/other", &vec![0; (3 << 20) - size / 2]);
    world.run(line).refused(1, "full", "the backup needs about").says(&["removed", dead]);
}

#[test]
fn the_probe_of_the_limit_takes_no_more_than_there_is_room_for() {
    let Some(small) = SmallFileSystem::new("a small probe", "3m", Shape::default()) else { return };
    let world = &small.world;
    world.run("backup sqlite:app.db --to full/app.bore --measure-limit").done();
    assert_eq!(world.names("full"), ["app.bore"]);
    let measured = |line: &str| world.run(line).done().json()["limit"]["sink_mib_per_s"].clone();
    let line = "backup sqlite:app.db --to full/app.bore --init --measure-limit --report json --max-transfer-size";
    assert!(measured(&format!("{line} 64KiB")).is_number());
    assert!(measured(&format!("{line} 1MiB")).is_null(), "no room for a single transfer: the backup goes on without");
}

#[test]
fn a_disk_that_fills_up_during_the_backup_is_an_error_and_leaves_nothing() {
    // Every sample of the estimate is of zeros, so the estimate is far too small.
    let shape = Shape { rows: 10, ..Shape::default() };
    let Some(small) = SmallFileSystem::new("disk full", "1300k", shape) else { return };
    let world = &small.world;
    let misleading = "CREATE TABLE mixed (id INTEGER PRIMARY KEY, blob BLOB);
        WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 12000)
        INSERT INTO mixed SELECT x, CASE WHEN x / 64 % 12 < 1 THEN zeroblob(900) ELSE randomblob(900) END FROM n";
    database::sql(&world.at("app.db"), misleading);
    let size = fs::metadata(world.at("app.db")).unwrap().len();
    assert!(size > 8 << 20);
    // With so much of the file system taken meanwhile that it cannot end well.
    let running = world.start("backup sqlite:app.db --to full/app.bore --kind full --compression none --dry-run");
    running.wait().refused(1, "full", "needs about");
    // A differential has no estimate: it is refused by the disk itself.
    world.run("backup sqlite:app.db --to a/full.bore").done();
    database::sql(&world.at("app.db"), "UPDATE mixed SET blob = randomblob(900)");
    let ended = world.run("backup sqlite:app.db --to full/app.bore --kind differential --base a");
    ended.refused(1, "full/app.bore", "No space left on device").says(&["free space there"]);
    assert!(world.names("full").is_empty());
}

#[test]
fn a_file_size_limit_during_the_backup_is_an_error_and_leaves_nothing() {
    let world = World::with_database();
    let line = |what: &str| {
        let script = format!("ulimit -f 400; exec {} {what}", env!("CARGO_BIN_EXE_fullbore"));
        let mut command = Command::new("sh");
        program::surroundings(&mut command, world.folder());
        command.args(["-c", &script]);
        program::run(command)
    };
    line("backup sqlite:app.db --to a/app.bore --compression none").with_code(1).says(&[
        "error: ",
        "a/app.bore",
        "File too large",
        "hint: ",
    ]);
    world.assert_no_media();
    world.run("backup sqlite:app.db --to a/app.bore").done();
    line("restore --from a --into sqlite:copy.db").with_code(1).says(&[
        "error: ",
        "copy.db",
        "File too large",
        "hint: ",
    ]);
    world.assert_no_copy();
}

#[test]
fn a_wrong_template_is_refused() {
    let world = World::with_database();
    for template in ["{nonsense}", "{family", "x/y", "..", "{database}/{family}"] {
        world.run(&format!("backup sqlite:app.db --to a/ --name-template {template}")).refused(
            2,
            "--name-template",
            "",
        );
    }
    world.assert_no_media();
}

#[test]
fn a_family_as_a_directory_and_a_directory_as_a_file_are_refused() {
    let world = World::with_database();
    world.run("backup sqlite:app.db --to a").with_code(2).says(&["error: ", "hint: "]);
    world.run("backup sqlite:app.db --to app.db/").with_code(1).says(&["error: ", "hint: "]);
    world.run("backup sqlite:app.db --to app.db/x.bore").with_code(1).says(&["error: ", "hint: "]);
    world.assert_no_media();
}

#[test]
fn a_very_long_name_is_refused_before_anything_is_written() {
    let world = World::with_database();
    world.run(&format!("backup sqlite:app.db --to a/{}", "x".repeat(250))).refused(2, "xxx", "file name");
    world.assert_no_media();
}

#[test]
fn an_encryption_key_that_is_none_is_refused_before_anything_is_written() {
    let world = World::with_database();
    world.write("noise.key", b"no key");
    world.run("backup sqlite:app.db --to a/ --encrypt-to noise.key").refused(1, "noise.key", "");
    world.run("backup sqlite:app.db --to a/ --encrypt-to gone.key").refused(2, "gone.key", "No such file");
    world.assert_no_media();
}

#[test]
fn a_named_pipe_among_the_media_is_refused_and_not_waited_for() {
    let world = World::with_small_set("");
    assert!(std::process::Command::new("mkfifo").arg(world.at("pipe")).status().unwrap().success());
    for verb in ["verify", "list", "restore --into sqlite:copy.db", "inspect files"] {
        world.run(&format!("{verb} --from pipe")).refused(2, "--from pipe", "not a regular file").says(&["--from -"]);
    }
    let line = "backup sqlite:app.db --to b/d.bore --kind differential";
    world.run(&format!("{line} --base pipe")).refused(2, "--base pipe", "not a regular file");
    world.run("backup sqlite:pipe --to b/x.bore").refused(1, "pipe", "");
}

#[test]
fn help_of_a_verb_is_had_in_both_ways() {
    let world = World::new();
    for verb in ["backup", "restore", "prune", "key"] {
        let asked = world.run(&format!("help {verb}")).done().text();
        assert_eq!(asked, world.run(&format!("{verb} --help")).done().text());
    }
    assert_eq!(world.run("help log follow").done().text(), world.run("log follow --help").done().text());
    world.run("help nothing").with_code(2);
}

#[test]
fn a_missing_flag_is_named_with_the_repository_as_the_alternative() {
    let world = World::new();
    for (line, flag) in [
        ("backup sqlite:app.db", "--to"),
        ("log follow sqlite:app.db", "--to"),
        ("verify", "--from"),
        ("list", "--from"),
        ("restore --into sqlite:copy.db", "--from"),
        ("copy --to a/", "--from"),
    ] {
        let refused = world.run(line).with_code(2);
        assert!(refused.err.contains(&format!("{flag} <DEVICE>|--repo <REPOSITORY>")), "{refused}");
    }
}
