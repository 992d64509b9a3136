//! `fullbore bench`: a matrix is planned, run, resumed and refused, by the real binary on tiny databases.

use std::collections::BTreeSet;
use std::path::Path;

use fullbore_test_servers::wait_until;
use serde_json::Value;

use crate::charts;
use crate::database;
use crate::program::{self, Ended, Running};
use crate::world::World;

/// A matrix of four cells and one counted round.
pub const SMALL: &str = "title = \"Small\"\nrepetitions = 1\nwarm-up = 0\n[data.tiny]\nsize = \"1MiB\"\n[axes]\n\
                     operation = [\"backup\", \"restore\"]\ncodec = [\"none\", \"lz4\"]\n";

/// Where it is `m.toml`.
pub fn world(matrix: &str) -> World {
    let world = World::new();
    world.write("m.toml", matrix.as_bytes());
    world
}

/// What its runs have left, a record for each.
pub fn records(world: &World) -> Vec<Value> {
    let text = world.text("m-results/results.jsonl");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn bench(world: &World, options: &str) -> Ended {
    world.run(&format!("bench m.toml {options}"))
}

/// The work directory has its data sets and nothing of a run.
#[track_caller]
pub fn assert_swept(world: &World) {
    assert_eq!(world.names("fullbore-bench"), ["data"]);
}

#[test]
fn a_matrix_gives_a_record_for_each_run_and_tables_charts_and_a_page() {
    let world = world(&SMALL.replace("warm-up = 0", "warm-up = 1"));
    let text = bench(&world, "").done().text();
    assert!(text.contains("## restore, tiny") && text.contains("| none"), "{text}");
    let records = records(&world);
    assert_eq!(records.len(), 8);
    assert_eq!(records.iter().filter(|record| record["warm_up"] == true).count(), 4);
    for record in &records {
        assert_eq!((record["status"].as_str(), record["error"].as_str()), (Some("done"), None));
        for field in ["seconds", "mib_per_s", "source_bytes", "stored_bytes", "peak_rss_bytes", "pool_bytes"] {
            assert!(record[field].as_f64().unwrap() > 0.0, "{field} of {record}");
        }
        assert_eq!(record["stages"].as_array().unwrap().len(), 3);
    }
    for name in ["report.html", "results.md", "results.csv", "charts/1-speed.svg", "charts/2-stages.svg"] {
        assert!(!world.read(&format!("m-results/{name}")).is_empty(), "{name}");
    }
    assert_swept(&world);
}

#[test]
fn charts_have_the_numbers_of_the_runs_and_the_page_has_their_date_commands_and_files() {
    let world = world(&SMALL.replace("repetitions = 1", "repetitions = 2"));
    let text = bench(&world, "").done().text();
    assert_eq!(text.matches(", fastest |").count(), 2, "one of each table: {text}");
    let names = ["both", "speed", "stages", "stored"].map(|name| format!("1-{name}.svg"));
    let of_restores = ["speed", "stages", "stored"].map(|name| format!("2-{name}.svg"));
    assert_eq!(world.names("m-results/charts"), [&names[..], &of_restores[..]].concat());
    let chart = |name: &str| world.text(&format!("m-results/charts/{name}.svg"));
    world
        .names("m-results/charts")
        .iter()
        .for_each(|name| charts::check(&world.text(&format!("m-results/charts/{name}"))));
    let records = records(&world);
    let of = |operation: &str, codec: &str| {
        let speeds = records.iter().filter(|record| {
            (&record["cell"]["operation"], &record["cell"]["codec"]) == (&operation.into(), &codec.into())
        });
        let speeds: Vec<f64> = speeds.map(|record| record["mib_per_s"].as_f64().unwrap()).collect();
        format!("{:.0}", fullbore_model::statistics::median(speeds.into_iter()).unwrap())
    };
    for codec in ["none", "lz4"] {
        charts::says(&chart("1-speed"), &of("backup", codec));
        charts::says(&chart("2-speed"), &of("restore", codec));
        ["backup", "restore"].iter().for_each(|operation| charts::says(&chart("1-both"), &of(operation, codec)));
        charts::says(&chart("1-stored"), codec);
    }
    charts::says(&chart("1-stages"), "limit: ");
    let (page, day) = (world.text("m-results/report.html"), &records[0]["started_at"].as_str().unwrap()[..10]);
    let command = records[0]["command"].as_str().unwrap();
    assert!(command.contains("--compression ") || command.starts_with("fullbore restore --from "), "{command}");
    for words in [day, command, "href=\"results.csv\"", "href=\"results.jsonl\"", "<tr class=\"best\">"] {
        assert!(page.contains(words), "{words}: {page}");
    }
}

#[test]
fn a_command_line_is_quoted_for_a_shell() {
    let world = world("work = \"my bench\"\nrepetitions = 1\nwarm-up = 0\n[data.tiny]\nsize = \"1MiB\"\n");
    bench(&world, "").done();
    let command = records(&world)[0]["command"].as_str().unwrap().to_owned();
    assert!(command.starts_with("fullbore backup ") && !command.contains("--report"), "{command}");
    let source = format!("sqlite:{}", world.at("my bench/data").display());
    assert!(shlex::split(&command).unwrap()[2].starts_with(&source), "{command}");
    assert!(world.text("m-results/report.html").contains("my bench/data"));
}

#[test]
fn a_dry_run_says_how_many_runs_and_how_long_and_makes_nothing() {
    let world = world(SMALL);
    let text = bench(&world, "--dry-run").done().text();
    assert!(text.contains("4 cells, 4 runs, about ") && text.contains("restore data=tiny codec=lz4"), "{text}");
    assert_eq!(world.names("."), ["a", "b", "m.toml"]);
}

#[test]
fn a_given_database_is_benched_and_stays_as_it_was() {
    let text = "repetitions = 1\nwarm-up = 0\n[data.app]\nsource = \"sqlite:app.db\"\n[axes]\noperation = [\"backup\", \"restore\"]\nstripes = 2\n";
    let world = World::with_database();
    world.write("m.toml", text.as_bytes());
    let before = database::contents(&world.at("app.db"));
    bench(&world, "--work w --out m-results").done();
    assert_eq!(database::contents(&world.at("app.db")), before);
    assert_eq!(records(&world).len(), 2);
}

#[test]
fn finished_runs_are_not_repeated_and_failed_ones_are() {
    let world = world(SMALL);
    bench(&world, "").done();
    bench(&world, "").refused(1, "m-results/results.jsonl", "has 4 results already").says(&["--resume"]);
    let done = records(&world);
    bench(&world, "--resume").done();
    assert_eq!(records(&world), done, "nothing was run");
    let text = world.text("m-results/results.jsonl");
    world.write("m-results/results.jsonl", text.replacen("\"status\":\"done\"", "\"status\":\"failed\"", 1).as_bytes());
    assert!(bench(&world, "--resume --dry-run").done().text().contains("4 cells, 1 runs (3 are done)"));
    bench(&world, "--resume").done();
    let again = records(&world);
    assert_eq!(again.len(), 5);
    assert_eq!((&again[4]["identity"], &again[4]["status"]), (&done[0]["identity"], &Value::from("done")));
}

#[test]
fn a_larger_matrix_goes_on_with_the_results_of_a_smaller_one_and_another_size_does_not() {
    let world = world(SMALL);
    bench(&world, "").done();
    world.write("m.toml", SMALL.replace("\"lz4\"]", "\"lz4\", \"zstd:1\"]").as_bytes());
    assert!(bench(&world, "--resume --dry-run").done().text().contains("6 cells, 2 runs (4 are done)"));
    world.write("m.toml", SMALL.replace("1MiB", "2MiB").as_bytes());
    assert!(bench(&world, "--resume --dry-run").done().text().contains("4 cells, 4 runs, "));
}

/// One cell whose medium is so slow that it never ends by itself.
pub fn endless() -> World {
    world(
        "volumes = \"in-process\"\nrepetitions = 1\nwarm-up = 0\n[data.tiny]\nsize = \"1MiB\"\n[volume.slow]\nrate = \"1KiB/s\"\n[axes]\nmedia-volume = \"slow\"\ncodec = \"none\"\n",
    )
}

/// A bench that writes media.
#[track_caller]
pub fn under_way(world: &World) -> Running {
    let mut running = world.start("bench m.toml");
    let mut ended = false;
    wait_until("media under way, or its end", || {
        ended = running.child.try_wait().is_ok_and(|status| status.is_some());
        ended || media_under_way(world)
    });
    if ended {
        panic!("it ended before its media were seen: {}", running.wait());
    }
    running
}

fn media_under_way(world: &World) -> bool {
    let media = world.at("fullbore-bench/fullbore-bench-run/media-1");
    std::fs::read_dir(media).is_ok_and(|entries| entries.count() > 0)
}

#[test]
fn an_interrupted_run_leaves_nothing_and_is_run_again() {
    for signal in ["INT", "TERM"] {
        let world = endless();
        let running = under_way(&world);
        running.signal(signal);
        let ended = running.wait();
        assert!([130, 143].contains(&ended.code), "{ended}");
        assert_swept(&world);
        assert_eq!(world.read("m-results/results.jsonl"), b"");
        assert!(bench(&world, "--resume --dry-run").done().text().contains("1 cells, 1 runs, "));
    }
}

#[test]
fn the_next_bench_removes_leftovers_of_a_killed_one() {
    let world = endless();
    let running = under_way(&world);
    running.signal("KILL");
    running.wait();
    assert!(world.at("fullbore-bench/fullbore-bench-run").exists());
    wait_until("the child has ended too", || !media_under_way(&world));
    world.write("m.toml", SMALL.as_bytes());
    bench(&world, "--resume").done();
    assert_swept(&world);
}

#[test]
fn an_emulated_volume_is_in_the_record_and_in_the_tables() {
    let text = "volumes = \"in-process\"\nrepetitions = 1\nwarm-up = 0\n[data.tiny]\nsize = \"1MiB\"\n[axes]\noperation = [\"backup\", \"restore\"]\nvolume = [\"none\", \"gp2-1.5tb\"]\nmedia-volume = \"io1-9000\"\n";
    let world = world(text);
    let ended = bench(&world, "").done().says(&["volume gp2-1.5tb: emulated in process"]);
    assert!(ended.text().contains("emulated by a token bucket in process"), "{ended}");
    let records = records(&world);
    assert_eq!(records.len(), 4);
    for record in &records {
        let volumes = record["volumes"].as_array().unwrap();
        assert!(volumes.iter().all(|volume| volume["how"] == "in process" && volume["why"] != ""), "{record}");
        let expected = if record["cell"]["volume"] == "none" { 1 } else { 2 };
        assert_eq!(volumes.len(), expected, "{record}");
    }
}

#[test]
fn bytes_pass_an_emulated_volume_no_faster_than_it_promises() {
    let axes = [
        "operation = \"backup\"\nvolume = \"slow\"",
        "operation = \"backup\"\nmedia-volume = \"slow\"",
        "operation = \"restore\"\nvolume = \"slow\"",
    ];
    for axes in axes {
        let text = format!(
            "volumes = \"in-process\"\nrepetitions = 1\nwarm-up = 0\n[data.tiny]\nsize = \"1MiB\"\n[volume.slow]\nrate = \"2MiB/s\"\n[axes]\ncodec = \"none\"\n{axes}\n"
        );
        let world = world(&text);
        bench(&world, "").done();
        // A lower bound: no machine is too slow for it.
        let record = &records(&world)[0];
        assert!(record["mib_per_s"].as_f64().unwrap() <= 2.1, "{axes}: {record}");
    }
}

#[test]
fn a_load_is_measured_alone_and_beside_the_job() {
    let text = "repetitions = 1\nwarm-up = 0\n[data.tiny]\nsize = \"2MiB\"\n[load.some]\nwriters = 1\nreaders = 1\nseconds = 1\n[axes]\nload = [\"none\", \"some\"]\n";
    let world = world(text);
    let shown = bench(&world, "").done().text();
    assert!(shown.contains("p99 alone ms"), "{shown}");
    let records = records(&world);
    let loaded = records.iter().find(|record| record["cell"]["load"] == "some").unwrap();
    for side in ["alone", "beside"] {
        assert!(loaded["load"][side]["per_s"].as_f64().unwrap() > 0.0, "{loaded}");
    }
    assert!(records.iter().any(|record| record["load"].is_null()));
}

#[test]
fn differentials_are_backed_up_and_restored() {
    let text = "repetitions = 1\nwarm-up = 0\n[data.tiny]\nsize = \"2MiB\"\n[axes]\noperation = [\"backup\", \"restore\"]\nkind = [\"full\", \"differential\"]\ncodec = \"none\"\n";
    let world = world(text);
    bench(&world, "").done();
    let stored = |kind: &str| {
        let records = records(&world);
        let of = |record: &&Value| record["cell"]["kind"] == kind && record["cell"]["operation"] == "backup";
        records.iter().find(of).unwrap()["stored_bytes"].as_u64().unwrap()
    };
    assert!(stored("differential") < stored("full"), "it holds what was changed");
    assert_eq!(records(&world).len(), 4);
}

#[test]
fn a_class_larger_than_the_machine_gets_what_there_is_and_the_record_says_so() {
    let text = "repetitions = 1\nwarm-up = 0\n[data.tiny]\nsize = \"1MiB\"\n[instance.one]\nthreads = 1\nmemory = \"512MiB\"\n[instance.huge]\nthreads = 1024\n[axes]\ninstance = [\"one\", \"huge\"]\nreaders = 1\n";
    let world = world(text);
    bench(&world, "").done().says(&["1024 processors were asked for"]);
    let records = records(&world);
    let of = |name: &str| records.iter().find(|record| record["cell"]["instance"] == name).unwrap()["caps"].clone();
    assert_eq!((of("one")["threads_given"].as_u64(), of("one")["threads"].as_u64()), (Some(1), Some(1)));
    assert!(of("one")["memory_capped"] == true || !of("one")["why"].is_null(), "{}", of("one"));
    assert!(of("huge")["threads_given"].as_u64().unwrap() < 1024 && !of("huge")["why"].is_null());
}

#[test]
fn a_cell_that_fails_is_written_down_and_the_others_go_on() {
    let text = SMALL
        .replace("codec = [\"none\", \"lz4\"]", "stripes = [1, 16]\nbuffer-count = 12")
        .replace("[\"backup\", \"restore\"]", "\"backup\"");
    let world = world(&text);
    let ended = bench(&world, "").with_code(4).says(&["1 run failed"]);
    assert!(ended.text().contains("failed: "), "{ended}");
    let statuses: BTreeSet<String> =
        records(&world).iter().map(|record| record["status"].as_str().unwrap().to_owned()).collect();
    assert_eq!(statuses, BTreeSet::from(["done".to_owned(), "failed".to_owned()]));
    assert_swept(&world);
}

#[test]
fn a_run_that_takes_too_long_has_failed() {
    let world = endless();
    let text = world.text("m.toml");
    world.write("m.toml", format!("timeout = \"1s\"\n{text}").as_bytes());
    bench(&world, "").with_code(4);
    assert!(records(&world)[0]["error"].as_str().unwrap().contains("longer than `timeout`"));
    assert_swept(&world);
}

#[test]
fn a_matrix_with_an_unknown_key_is_refused_with_its_line() {
    let world = world(&format!("{SMALL}strips = [1, 2]\n"));
    bench(&world, "").refused(2, "m.toml, line 9", "unknown word `strips`").says(&["did you mean `stripes`?"]);
    assert_eq!(world.names("."), ["a", "b", "m.toml"]);
}

#[test]
fn thousands_of_runs_are_refused_with_their_number_and_time_until_yes_is_said() {
    let numbers = (1..=40).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    let world = world(&format!("{SMALL}workers = [{numbers}]\nqueue-depth = [{numbers}]\n"));
    bench(&world, "").refused(2, "6400 cells, 6400 runs, about ", "is a long bench").says(&["--yes"]);
    assert_eq!(world.names("."), ["a", "b", "m.toml"], "nothing was begun, and nothing is left");
    assert!(bench(&world, "--dry-run").done().text().contains("6400 cells"));
}

#[test]
fn contradictory_axes_are_refused_by_their_cell() {
    for (axes, cause) in [
        ("media = [\"files\", \"nul\"]", "nul keeps no data to restore"),
        ("devices = 4\nstripes = 2", "more devices than stripes"),
    ] {
        let world = world(&format!("{SMALL}{axes}\n"));
        bench(&world, "").refused(2, "the cell `", cause);
    }
    let world = World::with_database();
    world.write("m.toml", b"[data.app]\nsource = \"sqlite:app.db\"\n[axes]\nload = \"l\"\n[load.l]\nwriters = 1\n");
    bench(&world, "").refused(2, "the cell `", "a load writes to the database");
}

#[test]
fn a_matrix_without_an_end_is_refused_and_not_read_into_memory() {
    let world = World::new();
    world.run("bench /dev/zero --dry-run").refused(2, "/dev/zero", "is longer than 1.0 MiB");
    world.write("m.toml", b"title = \"\xff\"\n");
    bench(&world, "").refused(2, "m.toml", "is not text");
}

#[test]
fn a_new_price_counts_for_what_was_run_before() {
    let priced =
        |price: &str| format!("price-per-hour = {price}\n{SMALL}").replace("[\"backup\", \"restore\"]", "\"backup\"");
    let world = world(&priced("1"));
    let of_first = |text: String| -> f64 {
        let row = text.lines().find(|line| line.starts_with("| none")).unwrap().to_owned();
        row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap().trim().parse().unwrap()
    };
    let before = of_first(bench(&world, "").done().text());
    world.write("m.toml", priced("100\ncurrency = \"EUR\"").as_bytes());
    let text = bench(&world, "--resume").done().text();
    assert!(text.contains("EUR per TB/h"), "{text}");
    let after = of_first(text);
    assert!((after / before / 100.0 - 1.0).abs() < 0.01, "{before} and {after}");
}

#[test]
fn volumes_that_are_not_ours_are_refused() {
    let world = World::with_database();
    let mut command = program::command(world.folder(), ["backup", "sqlite:app.db", "--to", "nul:"]);
    command.env("FULLBORE_BENCH_VOLUMES", "fast");
    program::run(command).refused(2, "FULLBORE_BENCH_VOLUMES", "only `fullbore bench` sets it");
}

#[test]
fn every_ready_matrix_can_be_planned() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("bench/matrices");
    let world = World::new();
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = world.run(&format!("bench {} --dry-run", path.display())).done().text();
        assert!(text.contains(" runs, about ") && !text.contains("--yes"), "{}: {text}", path.display());
        count += 1;
    }
    assert_eq!(count, 5, "rds, buffers, devices, threads, nul");
}
