//! `fullbore advise` and `backup --auto`: what is chosen for a goal on a calibrated machine, what stays as it was said, and what is refused.

use serde_json::Value;

use crate::world::World;

fn calibrated() -> World {
    let world = World::with_database();
    world.run("calibrate --read app.db --write a --write b --seconds 1 --space 32MiB").done();
    world
}

fn advise(world: &World, options: &str) -> Value {
    world.run(&format!("advise sqlite:app.db --to a/ --report json {options}")).done().json()
}

/// The printed command, without the name of the program.
fn command(advice: &Value) -> String {
    let words: Vec<&str> = advice["command"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(words[..2], ["fullbore", "backup"]);
    words[1..].join(" ")
}

#[test]
fn the_advised_command_is_a_backup_that_can_be_restored() {
    let world = calibrated();
    let before = world.read("app.db");
    let advice = advise(&world, "--fastest");
    world.assert_no_media();
    let text = world.run("advise sqlite:app.db --to a/ --json").done().text();
    assert_eq!(
        text.lines().filter(|line| line.starts_with("  \"command\":")).count(),
        1,
        "each key comes once: {text}"
    );
    assert_eq!(world.read("app.db"), before, "nothing is written");
    assert!(advice["compared"].as_u64().unwrap() > 50, "{advice:#}");
    let middle = |line: &str| advice[line]["backup"]["p50_s"].as_f64().unwrap();
    assert!(middle("advised") <= middle("as_asked") * 1.011, "{advice:#}");
    let made = world.run(&format!("{} --report json", command(&advice))).done().json();
    assert_eq!(made["pool"]["buffer_count"], advice["advised"]["buffer_count"]);
    assert_eq!(made["families"].as_array().unwrap().len() as u64, advice["advised"]["stripes"].as_u64().unwrap());
    world.run("restore --from a/ --into sqlite:back.db").done();
    let shown = world.run("advise sqlite:app.db --to a/ --smallest").done();
    assert!(shown.text().lines().last().unwrap().starts_with("fullbore backup sqlite:app.db --to"), "{shown}");
}

#[test]
fn advice_for_one_file_is_one_stripe() {
    let world = calibrated();
    let advice = world.run("advise sqlite:app.db --to a/one.bore --size 1TB --report json").done().json();
    assert_eq!(advice["advised"]["stripes"], 1, "{advice:#}");
    world.run(&command(&advice)).done();
    world.run("backup sqlite:app.db --to a/two.bore --to b/three.bore --auto").done();
    world.run("advise sqlite:app.db --to a/four.bore --stripes 2").refused(2, "--stripes", "is one file");
}

#[test]
fn given_settings_stay_and_the_others_are_chosen() {
    let world = calibrated();
    let words = "--compression gzip:1 --stripes 3 --workers 1 --buffer-count 31 --max-transfer-size 512KiB --readers 2";
    let advice = advise(&world, words);
    let command = command(&advice);
    for word in words.split(" --") {
        assert!(command.contains(word.trim_start_matches("--")), "{word} in {command}");
    }
    assert_eq!(advice["compared"], 1);
    world.write("fullbore.toml", b"compression = \"zstd:1\"\nthrottle = \"1000MiB/s\"\n");
    let configured = advise(&world, "--smallest");
    assert_eq!(configured["advised"]["compression"], "zstd:1", "the configuration says it");
    assert!(self::command(&configured).contains("--throttle 1000MiB/s"));
}

#[test]
fn the_smallest_is_not_larger_than_the_fastest_and_not_faster() {
    let world = calibrated();
    let of = |goal: &str| {
        let advice = advise(&world, &format!("--size 1TB {goal}"));
        let line = &advice["advised"];
        (line["backup"]["p50_s"].as_f64().unwrap(), line["stored_bytes"].as_f64().unwrap())
    };
    let (fastest, smallest) = (of("--fastest"), of("--smallest"));
    // Times that differ by less than 1 % are the same: on a busy disk the smallest may be the fastest too.
    assert!(fastest.0 <= smallest.0 * 1.011 && smallest.1 <= fastest.1, "{fastest:?} {smallest:?}");
    // A deadline alone asks for the smallest that keeps it.
    let within = of("--deadline 52w");
    assert!((within.1 - smallest.1).abs() < 0.02 * smallest.1, "{within:?} {smallest:?}");
}

#[test]
fn balanced_is_the_default_and_takes_the_smaller_of_what_is_as_fast() {
    let world = calibrated();
    let of = |goal: &str| advise(&world, goal)["advised"].clone();
    let (balanced, fastest) = (of(""), of("--fastest"));
    assert_eq!(of("--balanced"), balanced);
    let seconds = |line: &Value, which: &str| line["backup"][which].as_f64().unwrap();
    assert!(seconds(&balanced, "p50_s") <= 1.05 * seconds(&fastest, "p90_s"), "{balanced:#} {fastest:#}");
    let stored = |line: &Value| line["stored_bytes"].as_f64().unwrap();
    assert!(stored(&balanced) <= 1.01 * stored(&fastest), "{balanced:#} {fastest:#}");
    world.run("advise sqlite:app.db --to a/ --balanced --smallest").with_code(2).says(&["--balanced"]);
    world.run("backup sqlite:app.db --to a/ --balanced").refused(2, "--balanced", "--auto");
}

#[test]
fn a_limit_of_the_processors_is_kept_by_a_throttle_if_by_nothing_else() {
    let world = calibrated();
    // One configuration, and a quarter of what it takes by itself: then only a throttle keeps the limit, whatever the machine is doing just now.
    let one = "--size 1TB --compression none --stripes 1 --workers 1 --buffer-count 32";
    let cores = std::thread::available_parallelism().unwrap().get() as f64;
    let share = |advice: &Value| {
        let line = &advice["advised"];
        line["cpu_s"].as_f64().unwrap() / line["backup"]["p50_s"].as_f64().unwrap() / cores
    };
    let limit = share(&advise(&world, one)) / 4.0;
    let advice = advise(&world, &format!("{one} --cpu-limit {:.3}%", 100.0 * limit));
    // The limit is kept in the middle; where rounds differ much, the median of all that may be is above it.
    assert!(share(&advice) < 1.8 * limit, "{limit}: {advice:#}");
    assert!(advice["throttle"].as_u64().is_some() && command(&advice).contains("--throttle"), "{advice:#}");
    for text in ["0", "101%", "lots", "-3%", "nan"] {
        world.run(&format!("advise sqlite:app.db --to a/ --cpu-limit={text}")).refused(2, "--cpu-limit", "25%");
    }
}

#[test]
fn a_deadline_that_nothing_keeps_names_the_nearest_and_warns() {
    let world = calibrated();
    let run = world.run("advise sqlite:app.db --to a/ --size 1000TB --deadline 1h --report json").with_code(4);
    let advice = run.json();
    assert_eq!(advice["keeps_deadline"], false);
    assert!(advice["advised"]["backup"]["p90_s"].as_f64().unwrap() > 3600.0);
    run.says(&["no configuration keeps the deadline"]);
    world.run("advise sqlite:app.db --to a/ --fastest --smallest").with_code(2).says(&["--smallest"]);
    world.run("advise sqlite:app.db --to -").refused(2, "-", "other end of a pipe");
}

#[test]
fn without_a_profile_nothing_is_advised() {
    let world = World::with_database();
    world.run("advise sqlite:app.db --to a/").refused(2, "default", "fullbore calibrate");
    world.run("backup sqlite:app.db --to a/ --auto").refused(2, "default", "fullbore calibrate");
    world.assert_no_media();
}

#[test]
fn a_backup_chooses_by_itself_and_says_what() {
    let world = calibrated();
    let made = world.run("backup sqlite:app.db --to a/ --auto --smallest --stripes 2 --report json").done().json();
    let notes: Vec<&str> = made["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let chosen = notes.iter().find(|note| note.starts_with("chosen by --auto: ")).unwrap();
    assert!(chosen.contains("2 stripes"), "{chosen}");
    let codec = chosen.trim_start_matches("chosen by --auto: ").split(',').next().unwrap();
    assert_ne!(codec, "none", "it compresses");
    let header = world.run("inspect header --from a/ --json").done();
    assert!(header.text().contains(codec), "{codec} in {header}");
    world.run("restore --from a/ --into sqlite:back.db").done();
    std::fs::create_dir(world.at("b/depot")).unwrap();
    let into = world.run("backup sqlite:app.db --repo b/depot/ --auto --report json").done().json();
    assert!(into["notes"].to_string().contains("chosen by --auto"), "{into:#}");
}

#[test]
fn a_chosen_plan_is_enough_for_both_sides() {
    let world = calibrated();
    std::fs::create_dir_all(world.at("c")).unwrap();
    world.write("two.toml", b"[repository.one]\nto = [\"a/\"]\n[repository.two]\nto = [\"b/\", \"c/\"]\n");
    // One worker and little to do: more stripes bring nothing.
    let line = "backup sqlite:app.db --config two.toml --repo one --copy-to two --auto --report json";
    let made = world.run(line).done().json();
    assert!(made["families"].as_array().unwrap().len() >= 2, "{made:#}");
    world.run(&format!("{line} --stripes 1")).refused(2, "--stripes", "cannot use the 2 places");
}

#[test]
fn a_goal_without_auto_and_an_auto_that_cannot_be_are_refused() {
    let world = calibrated();
    for flag in ["--fastest", "--smallest", "--cpu-limit 5%", "--deadline 2h", "--direction both"] {
        let name = flag.split(' ').next().unwrap();
        world.run(&format!("backup sqlite:app.db --to a/ {flag}")).refused(2, name, "--auto");
    }
    world.run("backup sqlite:app.db --to a/ --data-path /var/lib").with_code(2).says(&["--auto"]);
    // Without --auto the verdict compares with it.
    for line in ["backup sqlite:app.db --to a/", "backup sqlite:app.db --to a/ --auto"] {
        world.run(&format!("{line} --profile fast")).refused(2, "profile `fast`", "there is no such profile");
    }
    world.run("backup sqlite:app.db --to a/ --auto --kind log --base b/").refused(2, "--auto", "log set");
    world.run("backup sqlite:app.db --to nul: --auto --deadline 0s").refused(2, "--deadline", "2h");
    world.assert_no_media();
}

/// The profile, changed.
fn change_profile(world: &World, change: impl FnOnce(&mut Value)) {
    let file = "state/fullbore/profiles/default.json";
    let mut profile: Value = serde_json::from_slice(&world.read(file)).unwrap();
    change(&mut profile);
    world.write(file, profile.to_string().as_bytes());
}

#[test]
fn a_nightly_backup_that_becomes_a_differential_chooses_for_one() {
    let world = calibrated();
    for (folder, kinds) in [("b/auto", ["auto", "auto"]), ("b/said", ["full", "differential"])] {
        std::fs::create_dir(world.at(folder)).unwrap();
        // So half the buffers of a full are the least that it can do with, and a small database needs no more.
        let shape = "--compression lz4 --workers 1 --stripes 1 --report json";
        let line = format!("backup sqlite:app.db --repo {folder}/ --auto {shape} --kind");
        let made = kinds.map(|kind| world.run(&format!("{line} {kind}")).done().json());
        assert_eq!((&made[0]["kind"], &made[1]["kind"]), (&"full".into(), &"differential".into()));
        assert!(made[1]["notes"].to_string().contains("chosen by --auto"), "{:#}", made[1]);
    }
    world.run("restore --repo b/auto/ --into sqlite:back.db").done();
}

#[test]
fn a_profile_of_another_machine_costs_a_warning_and_no_backup() {
    let world = calibrated();
    change_profile(&world, |profile| profile["machine"]["cores"] = 999.into());
    let run = world.run("backup sqlite:app.db --to a/ --auto --deadline 1h --report json").with_code(4);
    let made = run.json();
    let warnings = made["warnings"].to_string();
    assert!(warnings.contains("--auto chose nothing") && warnings.contains("999 processors"), "{made:#}");
    world.run("restore --from a/ --into sqlite:back.db").done();
    std::fs::create_dir(world.at("b/depot")).unwrap();
    world.run("backup sqlite:app.db --repo b/depot/ --auto --kind auto --profile default").with_code(4);
    world.run("backup sqlite:app.db --repo b/depot/ --auto --profile fast").refused(2, "profile `fast`", "no such");
    world.run("advise sqlite:app.db --to a/").refused(1, "profile `default`", "another machine");
}

#[test]
fn the_printed_command_encrypts_as_the_configuration_says_and_keeps_every_flag() {
    let world = calibrated();
    world.run("key new --no-recovery k.key").done();
    world.write("enc.toml", b"encrypt-to = [\"k.key.pub\"]\n");
    std::fs::copy(world.at("state/fullbore/profiles/default.json"), world.at("state/fullbore/profiles/night.json"))
        .unwrap();
    let options = "--config enc.toml --outage 60 --device-timeout 90 --profile night";
    let command = command(&advise(&world, options));
    for flag in options.split(" --").chain(["encrypt-to k.key.pub"]) {
        assert!(command.contains(flag.trim_start_matches("--")), "{flag} in {command}");
    }
    world.run(&command).done();
    world.run("restore --from a/ --into sqlite:back.db").refused(1, "it is encrypted", "--key");
    let missing = "advise sqlite:app.db --to a/ --encrypt-to none.pub";
    world.run(missing).with_code(2).says(&["none.pub"]);
    std::fs::remove_file(world.at("k.key.pub")).unwrap();
    world.run("advise sqlite:app.db --to a/ --config enc.toml").with_code(2).says(&["k.key.pub"]);
}

#[test]
fn a_deadline_that_nothing_keeps_is_told_with_the_time_of_what_it_is_for() {
    let world = calibrated();
    change_profile(&world, |profile| {
        for cost in profile["job_costs"].as_array_mut().unwrap() {
            (cost["backup_s"], cost["restore_s"]) = (serde_json::json!([5.0, 5.0]), serde_json::json!([700.0, 700.0]));
        }
    });
    for (direction, least) in [("restore", 690.0), ("both", 695.0)] {
        let line = format!("backup sqlite:app.db --to a/ --auto --deadline 60s --direction {direction}");
        let run = world.run(&line).with_code(2).says(&["--deadline", "restore, in nine of ten runs"]);
        let text = run.err.split("the nearest one needs ").nth(1).unwrap().split(' ').next().unwrap();
        assert!(text.parse::<f64>().unwrap() > least, "{run}");
    }
    world.assert_no_media();
}
