//! `fullbore bench`: whose results and directories are whose, and what is known of runs that failed.

use std::path::Path;

use fullbore_test_servers::wait_until;

use crate::bench_matrix::{SMALL, assert_swept, bench, endless, under_way, world};
use crate::program;

/// The processes that a process has started.
fn children(parent: u32) -> Vec<u32> {
    let parent = format!("PPid:\t{parent}\n");
    let numbers =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let is_child = |number: &u32| {
        std::fs::read_to_string(format!("/proc/{number}/status")).is_ok_and(|text| text.contains(&parent))
    };
    numbers.filter(is_child).collect()
}

#[test]
fn a_dry_run_of_a_resume_leaves_results_as_a_kill_has_left_them() {
    let world = world(SMALL);
    std::fs::create_dir(world.at("m-results")).unwrap();
    world.write("m-results/results.jsonl", b"{\"schema_version\":1,\"ti");
    assert!(bench(&world, "--dry-run --resume").done().text().contains("4 cells, 4 runs, "));
    assert_eq!(world.read("m-results/results.jsonl"), b"{\"schema_version\":1,\"ti");
    assert_eq!(world.names("."), ["a", "b", "m-results", "m.toml"]);
    assert_eq!(world.names("m-results"), ["results.jsonl"]);
}

#[test]
fn results_of_another_place_and_without_the_raw_path_are_not_taken_for_this_matrix() {
    let world = world(SMALL);
    bench(&world, "").done();
    let planned = |options: &str| bench(&world, &format!("--resume --dry-run {options}")).done().text();
    assert!(planned("").contains("4 cells, 0 runs (4 are done)"));
    let elsewhere = planned("--work other");
    assert!(
        elsewhere.contains("4 cells, 4 runs, ") && elsewhere.contains("4 results of other settings"),
        "{elsewhere}"
    );
    world.write("m.toml", format!("raw-path = true\n{SMALL}").as_bytes());
    assert!(planned("").contains("4 cells, 2 runs (2 are done)"), "only a backup has one");
    world.write("m.toml", format!("media-directories = [\"a\"]\n{SMALL}").as_bytes());
    assert!(planned("").contains("4 cells, 4 runs, "));
    bench(&world, "--resume").done();
    assert!(planned("").contains("4 cells, 0 runs (4 are done)"));
    world.write("m.toml", format!("media-directories = [\"b\"]\n{SMALL}").as_bytes());
    assert!(planned("").contains("4 cells, 4 runs, "));
}

#[test]
fn two_benches_do_not_share_a_work_directory() {
    let world = endless();
    let running = under_way(&world);
    world.run("bench m.toml --out other").refused(1, "fullbore-bench", "another bench is running there");
    running.signal("TERM");
    running.wait();
    assert_swept(&world);
}

#[test]
fn two_benches_do_not_share_their_results() {
    let world = endless();
    let running = under_way(&world);
    for options in ["--resume", ""] {
        let line = format!("bench m.toml --work other {options}");
        world.run(&line).refused(1, "m-results/results.jsonl", "another bench is writing its results there");
    }
    assert!(!world.at("other").exists(), "before anything is made");
    assert!(bench(&world, "--work other --resume --dry-run").done().text().contains("cells"));
    running.signal("TERM");
    running.wait();
    assert_swept(&world);
}

#[test]
fn two_benches_do_not_share_a_media_directory() {
    let world = endless();
    let text = world.text("m.toml");
    world.write("m.toml", format!("media-directories = [\"a\"]\n{text}").as_bytes());
    let running = world.start("bench m.toml");
    let media = || world.at("a/fullbore-bench-run").exists() && !world.names("a/fullbore-bench-run").is_empty();
    wait_until("media under way", media);
    world.run("bench m.toml --work w --out o").refused(1, "/a: another bench is running there", "media-directories");
    assert!(media(), "those of the first stay");
    running.signal("TERM");
    running.wait();
    assert_eq!(world.names("a"), Vec::<String>::new(), "nothing is left, and no lock");
}

#[test]
fn a_media_directory_that_does_not_exist_is_refused_before_anything_is_made() {
    let world = world(&format!("media-directories = [\"a\", \"mnt/disk\"]\n{SMALL}"));
    for options in ["", "--dry-run"] {
        bench(&world, options).refused(2, "mnt/disk: does not exist", "not mounted");
    }
    assert_eq!(world.names("."), ["a", "b", "m.toml"]);
}

#[test]
fn a_table_of_which_a_run_was_killed_does_not_look_whole_until_that_is_run_again() {
    let world = endless();
    let text = world.text("m.toml");
    world.write("m.toml", text.replace("1KiB/s", "256KiB/s").replace("repetitions = 1", "repetitions = 3").as_bytes());
    let running = under_way(&world);
    for child in children(running.child.id()) {
        std::process::Command::new("kill").args(["-s", "KILL", &child.to_string()]).status().unwrap();
    }
    let ended = running.wait().with_code(4).says(&["1 run failed", "the notes"]);
    let shown = |name: &str| world.text(&format!("m-results/{name}"));
    for text in [ended.text(), shown("results.md"), shown("report.html")] {
        for words in ["Runs have failed", "as it is (2 of 3 rounds)", "round 1 failed: ", "SIGKILL"] {
            assert!(text.contains(words), "`{words}` is not in {text}");
        }
    }
    let text = bench(&world, "--resume").done().text();
    assert!(!text.contains("failed") && text.contains("| as it is |"), "{text}");
}

#[test]
fn the_control_group_of_a_killed_bench_is_removed_by_the_next() {
    let world = endless();
    let text = world.text("m.toml");
    world.write("m.toml", format!("{text}instance = \"one\"\n[instance.one]\nmemory = \"512MiB\"\n").as_bytes());
    let running = under_way(&world);
    let name = format!("fullbore-bench-{}", running.child.id());
    let group = [Path::new("/sys/fs/cgroup/memory").join(&name), Path::new("/sys/fs/cgroup").join(&name)];
    let group = group.into_iter().find(|path| path.exists());
    running.signal("KILL");
    running.wait();
    let Some(group) = group else {
        let test = "the_control_group_of_a_killed_bench_is_removed_by_the_next";
        return program::skipped(test, "this machine caps no memory");
    };
    let is_empty = || std::fs::read_to_string(group.join("cgroup.procs")).unwrap().is_empty();
    wait_until("the child has ended too", is_empty);
    world.write("m.toml", SMALL.as_bytes());
    bench(&world, "--resume").done();
    assert!(!group.exists(), "{}", group.display());
}
