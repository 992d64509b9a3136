//! `fullbore unpack`: compressed backups of SQL Server become plain ones, whole or not at all.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use fullbore_engines::compressed::Writer;

use crate::pipe::fed;
use crate::program;
use crate::world::World;

fn rows(length: usize) -> Vec<u8> {
    (0_u32..).flat_map(|row| format!("row {row} of {};", row.wrapping_mul(40503)).into_bytes()).take(length).collect()
}

/// A world with the compressed backup `x.bak` of so many bytes, and the plain backup that it stands for.
fn with_backup(length: usize) -> (World, Vec<u8>) {
    let (world, made) = (World::new(), Writer::one_set(&rows(length)));
    world.write("x.bak", &made.container);
    (world, made.plain)
}

#[test]
fn a_compressed_backup_becomes_the_plain_one_and_only_its_owner_can_read_it() {
    let (world, plain) = with_backup(3_000_000);
    let ended = world.run("unpack x.bak --to a/plain.bak").done();
    assert!(ended.text().contains("UNPACK: x.bak to a/plain.bak"), "{ended}");
    assert!(world.read("a/plain.bak") == plain);
    assert_eq!(world.names("a"), ["plain.bak"]);
    assert_eq!(fs::metadata(world.at("a/plain.bak")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_container_that_unpacks_to_a_hundred_times_its_bytes_takes_no_more_memory() {
    const PLAIN: usize = 160 << 20;
    let (world, made) = (World::new(), Writer::one_set(&vec![0; PLAIN]));
    assert!(made.container.len() * 100 < PLAIN, "{}", made.container.len());
    world.write("x.bak", &made.container);
    let report = world.run("unpack x.bak --to nul: --report json").done().object();
    assert!(report["source_bytes"].as_u64().max(report["stored_bytes"].as_u64()) > Some(PLAIN as u64), "{report:#}");
    let peak = report["peak_rss_bytes"].as_u64().unwrap();
    assert!(peak < 128 << 20, "{peak}");
}

#[test]
fn pipes_on_both_sides_and_other_numbers_of_threads_give_the_same_bytes() {
    let (world, plain) = with_backup(2_500_000);
    let container = world.read("x.bak");
    for options in ["", "--workers 1 --queue-depth 1", "--workers 9 --queue-depth 2"] {
        let ended = fed(&world, &format!("unpack - --to - {options}"), &container).done();
        assert!(ended.out == plain, "{options}");
        fed(&world, &format!("unpack - --to a/plain.bak {options}"), &container).done();
        assert!(world.read("a/plain.bak") == plain, "{options}");
        fs::remove_file(world.at("a/plain.bak")).unwrap();
    }
    fed(&world, "unpack - --to nul:", &container).done();
    fed(&world, "unpack - --to - --json", &container).refused(2, "--report json", "is the plain backup itself");
    fed(&world, "unpack - --to a/plain.bak", &[]).refused(3, "-", "is empty");
    world.assert_no_media();
}

#[test]
fn nothing_is_overwritten_without_init_and_only_a_plain_backup_with_it() {
    let (world, plain) = with_backup(100_000);
    world.write("a/plain.bak", b"TAPE, an older one");
    world.run("unpack x.bak --to a/plain.bak").refused(1, "a/plain.bak", "exists");
    assert_eq!(world.read("a/plain.bak"), b"TAPE, an older one");
    world.run("unpack x.bak --to a/plain.bak --init").done();
    assert!(world.read("a/plain.bak") == plain);
    assert_eq!(world.names("a"), ["plain.bak"]);
    world.write("a/app.db", b"SQLite format 3\0");
    world.run("unpack x.bak --to a/app.db --init").refused(1, "a/app.db", "is not a plain backup");
    assert_eq!(world.read("a/app.db"), b"SQLite format 3\0");
    world.run("unpack x.bak --to x.bak --init").refused(2, "x.bak", "is the compressed backup itself");
}

#[test]
fn a_missing_directory_is_made_only_with_mkdir() {
    let (world, plain) = with_backup(1000);
    world.run("unpack x.bak --to c/plain.bak").with_code(2).says(&["c", "hint: "]);
    world.run("unpack x.bak --to c/plain.bak --mkdir").done();
    assert!(world.read("c/plain.bak") == plain);
}

#[test]
fn damage_is_named_with_its_place_and_leaves_nothing() {
    let (world, _) = with_backup(900_000);
    let mut container = world.read("x.bak");
    let at = container.len() - 20_000;
    container[at] ^= 4;
    world.write("x.bak", &container);
    for to in ["a/plain.bak", "nul:"] {
        world.run(&format!("unpack x.bak --to {to}")).refused(3, "`x.bak` is damaged at byte", "checksum");
    }
    world.write("a/plain.bak", b"TAPE, an older one");
    world.run("unpack x.bak --to a/plain.bak --init").refused(3, "`x.bak` is damaged at byte", "checksum");
    assert_eq!(world.read("a/plain.bak"), b"TAPE, an older one");
    assert_eq!(world.names("a"), ["plain.bak"]);
}

#[test]
fn a_backup_that_is_cut_off_is_incomplete_and_leaves_nothing() {
    let (world, _) = with_backup(300_000);
    let container = world.read("x.bak");
    for length in [9, 480, 5000, container.len() / 2, container.len() - 512, container.len() - 1] {
        world.write("x.bak", &container[..length]);
        world.run("unpack x.bak --to a/plain.bak").with_code(3).says(&["error: x.bak: ends at byte", "hint: "]);
        world.assert_no_media();
    }
}

#[test]
fn other_files_are_refused_by_their_kind() {
    let (world, _) = with_backup(1000);
    world.write("plain.bak", b"TAPE and more");
    world.run("unpack plain.bak --to a/plain.bak").refused(1, "plain.bak", "without compression");
    world.write("x.zip", b"PK and more bytes");
    world.run("unpack x.zip --to a/plain.bak").refused(1, "x.zip", "does not begin with MSSQLBAK");
    world.run("unpack none.bak --to a/plain.bak").refused(2, "none.bak", "No such file");
    world.run("unpack x.bak --to a/").refused(2, "a/", "directory");
    world.run("unpack x.bak --to nul: --workers 0").refused(2, "--workers 0", "out of range");
    world.run("unpack x.bak --to nul: --queue-depth 5000").refused(2, "--queue-depth 5000", "out of range");
    world.assert_no_media();
}

#[test]
fn the_report_has_the_bytes_of_both_sides_also_of_a_run_that_failed() {
    let (world, plain) = with_backup(700_000);
    let container = world.read("x.bak");
    let report = world.run("unpack x.bak --to a/plain.bak --report json").done().json();
    assert_eq!(report["command"], "unpack");
    assert_eq!(report["status"], "done");
    assert_eq!(report["source_bytes"], plain.len());
    assert_eq!(report["stored_bytes"], container.len());
    assert_eq!(report["into"], "a/plain.bak");
    world.write("x.bak", &container[..5000]);
    let report = world.run("unpack x.bak --to b/plain.bak --report json").with_code(3).json();
    assert_eq!(report["status"], "failed");
    assert_eq!(report["exit_code"], 3);
}

#[test]
fn a_signal_while_a_pipe_is_silent_ends_it_and_leaves_nothing() {
    let (world, _) = with_backup(3_000_000);
    let half = world.read("x.bak");
    let half = half[..half.len() / 2].to_vec();
    let mut command = program::command(world.folder(), "unpack - --to a/plain.bak".split_whitespace());
    command.stdin(Stdio::piped());
    let mut running = program::start(command);
    running.listens();
    let mut input = running.child.stdin.take().unwrap();
    input.write_all(&half).unwrap();
    running.signal("TERM");
    running.wait().with_code(143).says(&["cancelled by SIGTERM"]);
    world.assert_no_media();
    drop(input);
}
