//! Backups in a real object store: there and back, what is refused, and what goes wrong on the way.

use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use fullbore_core::media::{FOOTER, Footer};
use fullbore_test_servers::{At, Call, Fault, FaultProxy, ObjectStore, Plan, StoreKind, StoreOptions, wait_until};

use crate::database::{self, Shape};
use crate::program::{self, Ended, Running};
use crate::world::World;

/// So long that no object is one part.
fn large() -> World {
    World::with_shape(Shape { rows: 40_000, ..Shape::default() })
}

fn store() -> ObjectStore {
    let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
    store.make_bucket("media");
    store
}

/// `fullbore LINE` with these variables.
fn command(world: &World, variables: &[(&'static str, String)], line: &str) -> Command {
    let mut command = program::command(world.folder(), line.split_whitespace());
    command.envs(variables.iter().map(|(name, value)| (*name, value)));
    command
}

fn run_with(world: &World, variables: &[(&'static str, String)], line: &str) -> Ended {
    program::run(command(world, variables, line))
}

fn run(world: &World, store: &ObjectStore, line: &str) -> Ended {
    run_with(world, &store.environment(), line)
}

fn start(world: &World, store: &ObjectStore, line: &str) -> Running {
    program::start(command(world, &store.environment(), line))
}

fn errors(ended: &Ended) -> usize {
    ended.err.lines().filter(|line| line.starts_with("error: ")).count()
}

fn keys(store: &ObjectStore) -> Vec<String> {
    let mut keys: Vec<String> = store.objects("media").into_iter().map(|object| object.key).collect();
    keys.sort();
    keys
}

fn object(store: &ObjectStore, key: &str) -> Vec<u8> {
    store.client().get("media", key).unwrap()
}

/// No object, no claim, no unfinished upload.
#[track_caller]
fn assert_nothing_is_left(store: &ObjectStore) {
    assert_eq!((keys(store), store.uploads("media")), (Vec::new(), Vec::new()));
}

fn assert_restores(world: &World, store: &ObjectStore, from: &str) {
    run(world, store, &format!("restore {from} --into sqlite:copy.db")).done();
    world.assert_copy();
    std::fs::remove_file(world.at("copy.db")).unwrap();
}

#[test]
fn a_database_goes_to_a_store_in_stripes_and_comes_back() {
    let (world, store) = (large(), store());
    run(&world, &store, "backup sqlite:app.db --to s3://media/night/ --stripes 3 --compression none").done();
    let made = keys(&store);
    assert!(made.len() == 3 && made.iter().all(|key| key.starts_with("night/app-full-")), "{made:?}");
    assert_eq!(store.uploads("media"), Vec::new());
    let listed = run(&world, &store, "list --from s3://media/night/ --json").done().json();
    assert_eq!(listed[0]["families"], 3);
    assert!(listed[0]["devices"][0].as_str().unwrap().starts_with("s3://media/night/"), "{listed}");
    run(&world, &store, "inspect files --from s3://media/night/").done();
    run(&world, &store, "verify --from s3://media/night/").done();
    assert_restores(&world, &store, "--from s3://media/night/");
    // By the names of its families, of which one is in a file.
    world.write("third.bore", &object(&store, &made[2]));
    let from = format!("--from s3://media/{} --from s3://media/{} --from third.bore", made[0], made[1]);
    assert_restores(&world, &store, &from);
}

#[test]
fn a_log_is_followed_into_a_store_and_comes_back() {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    let app = crate::log::kept_open(&world);
    app.execute_batch("CREATE TABLE ledger (n INTEGER PRIMARY KEY, t TEXT); INSERT INTO ledger VALUES (0, '')")
        .unwrap();
    let store = store();
    let follower = start(&world, &store, "log follow sqlite:app.db --to s3://media/app/ --interval 200ms");
    let log_sets = || keys(&store).iter().filter(|key| key.contains("-log-") && key.ends_with(".bore")).count();
    wait_until("a full in the store", || keys(&store).iter().any(|key| key.contains("-full-")));
    for n in 1..=4 {
        app.execute_batch(&format!("INSERT INTO ledger VALUES ({n}, 'row')")).unwrap();
        wait_until("a log set in the store", || log_sets() >= n);
    }
    let time = crate::log::now();
    std::thread::sleep(Duration::from_millis(300));
    // Right before the signal: the last set is stored when it has come.
    app.execute_batch("INSERT INTO ledger VALUES (5, 'row')").unwrap();
    follower.signal("TERM");
    follower.wait().done();
    assert_eq!(store.uploads("media"), Vec::new());
    for (stop, rows) in [(String::new(), 6), (format!("--stop-at {time}"), 5)] {
        run(&world, &store, &format!("restore --from s3://media/app/ --into sqlite:copy.db {stop}")).done();
        assert_eq!(database::number(&world.at("copy.db"), "SELECT count(*) FROM ledger"), rows);
        for name in ["copy.db", "copy.db-wal", "copy.db-shm"] {
            let _ = std::fs::remove_file(world.at(name)); // The side files may not be there.
        }
    }
    let listed = run(&world, &store, "list --from s3://media/app/ --json").done().json();
    assert!(listed.as_array().unwrap().iter().skip(1).all(|set| set["log_at"].is_string()), "{listed:#}");
}

/// A family as long as a store takes, of which the file system keeps the beginning and the end: `bytes` with a hole before its trailer.
fn stretch(bytes: &[u8], length: u64, to: &std::path::Path) {
    let footer = Footer::decode(&bytes[bytes.len() - FOOTER..]).unwrap();
    let trailer = footer.trailer_offset as usize;
    let longer = length - bytes.len() as u64;
    let moved = Footer { family_length: length, trailer_offset: footer.trailer_offset + longer, ..footer };
    let file = std::fs::File::create(to).unwrap();
    file.write_all_at(&bytes[..trailer], 0).unwrap();
    file.write_all_at(&bytes[trailer..bytes.len() - FOOTER], moved.trailer_offset).unwrap();
    file.write_all_at(&moved.encode(|_| [0; 32]), length - FOOTER as u64).unwrap();
}

#[test]
fn the_directory_of_a_family_of_a_terabyte_is_below_a_mebibyte() {
    const TEBIBYTE: u64 = 1 << 40;
    let (world, store) = (World::with_small_set(""), store());
    let family = world.names("a").pop().unwrap();
    stretch(&world.read(&format!("a/{family}")), TEBIBYTE, &store.data().join("media/huge.bore"));
    let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Pass);
    for line in ["inspect header --from s3://media/huge.bore --json", "list --from s3://media/ --json"] {
        let before: u64 = proxy.requests().iter().map(|seen| seen.answered_bytes).sum();
        let said = run_with(&world, &store.environment_at(proxy.endpoint()), line).done().json();
        let cost = proxy.requests().iter().map(|seen| seen.answered_bytes).sum::<u64>() - before;
        assert_eq!(
            (said[0]["stored_bytes"].as_u64(), said[0]["complete"].as_bool()),
            (Some(TEBIBYTE), Some(true)),
            "{said}"
        );
        assert!((FOOTER as u64..1 << 20).contains(&cost), "{line} costs {cost} bytes");
    }
}

#[test]
fn a_log_is_followed_into_a_repository_in_a_store_until_it_is_cancelled() {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    let app = crate::log::kept_open(&world);
    app.execute_batch("CREATE TABLE ledger (n INTEGER PRIMARY KEY, t TEXT); INSERT INTO ledger VALUES (0, '')")
        .unwrap();
    let store = store();
    let follower = start(&world, &store, "log follow sqlite:app.db --repo s3://media/app/ --interval 200ms");
    let records = || keys(&store).iter().filter(|key| key.starts_with("app/.fullbore/sets/")).count();
    let mut times = Vec::new();
    for n in 1..=3 {
        wait_until("a set in the store", || records() >= n);
        app.execute_batch(&format!("INSERT INTO ledger VALUES ({n}, 'row')")).unwrap();
        wait_until("a log set in the store", || records() > n);
        times.push(crate::log::now());
        std::thread::sleep(Duration::from_millis(300));
    }
    let tasks = run(&world, &store, "tasks --repo s3://media/app/ --json").done().json();
    assert!(tasks[0]["verb"] == "log follow" && tasks[0]["needs"].as_array().unwrap().len() == 2, "{tasks:#}");
    app.execute_batch("INSERT INTO ledger VALUES (4, 'row')").unwrap();
    let id = tasks[0]["task"].as_str().unwrap();
    run(&world, &store, &format!("cancel {id} --repo s3://media/app/")).done();
    follower.wait().done();
    assert_eq!(store.uploads("media"), Vec::new());
    for (stop, rows) in [(String::new(), 5), (format!("--stop-at {}", times[1]), 3)] {
        run(&world, &store, &format!("restore --repo s3://media/app/ --into sqlite:copy.db {stop}")).done();
        assert_eq!(database::number(&world.at("copy.db"), "SELECT count(*) FROM ledger"), rows);
        for name in ["copy.db", "copy.db-wal", "copy.db-shm"] {
            let _ = std::fs::remove_file(world.at(name)); // The side files may not be there.
        }
    }
}

#[test]
fn a_differential_and_its_full_may_be_in_a_store_or_in_a_directory() {
    let (world, store) = (World::with_database(), store());
    run(&world, &store, "backup sqlite:app.db --to s3://media/full.bore").done();
    database::sql(&world.at("app.db"), "CREATE TABLE more AS SELECT 1 AS one, 2 AS two");
    run(&world, &store, "backup sqlite:app.db --to a/ --kind differential --base s3://media/full.bore").done();
    run(&world, &store, "backup sqlite:app.db --to s3://media/ --kind differential --base s3://media/full.bore").done();
    assert_restores(&world, &store, "--from s3://media/ --latest");
    assert_restores(&world, &store, "--from s3://media/full.bore --from a");
}

#[test]
fn keys_and_endpoint_may_stand_in_a_profile_and_without_any_it_is_said() {
    let (world, store) = (World::with_database(), store());
    let line = "backup sqlite:app.db --device-timeout 15 --to s3://media/app.bore";
    let alone =
        [("AWS_EC2_METADATA_DISABLED", "true".to_owned()), ("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9".into())];
    let ended = run_with(&world, &alone, line);
    assert!(ended.code == 1 && ended.err.contains("AWS_ACCESS_KEY_ID"), "{ended}");
    let profile = format!(
        "[night]\naws_access_key_id = {}\naws_secret_access_key = {}\nregion = {}\nendpoint_url = {}\n",
        store.access_key(),
        store.secret_key(),
        store.region(),
        store.endpoint()
    );
    std::fs::create_dir_all(world.at("home/.aws")).unwrap();
    world.write("home/.aws/credentials", profile.as_bytes());
    let named = |name: &str| vec![("AWS_PROFILE", name.to_owned())];
    run_with(&world, &named("day"), line).refused(2, "profile `day`", "AWS_PROFILE");
    run_with(&world, &named("night"), line).done();
    run_with(&world, &named("night"), "verify --from s3://media/").done();
}

#[test]
fn nothing_is_overwritten_without_init_and_sets_of_several_objects_not_at_all() {
    let (world, store) = (World::with_database(), store());
    let backup = "backup sqlite:app.db --to s3://media/app.bore";
    run(&world, &store, backup).done();
    let first = object(&store, "app.bore");
    run(&world, &store, backup).refused(1, "s3://media/app.bore", "exists already");
    assert_eq!((keys(&store), store.uploads("media")), (vec!["app.bore".to_owned()], Vec::new()));
    assert!(object(&store, "app.bore") == first);
    run(&world, &store, &format!("{backup} --init")).done();
    assert!(object(&store, "app.bore") != first);
    assert_restores(&world, &store, "--from s3://media/app.bore");
    run(&world, &store, &format!("{backup} --to s3://media/b.bore --init")).refused(2, "--init", "several families");
    assert_eq!(keys(&store), ["app.bore"]);
    // Neither what is no family, nor a part of a set, nor the full of the differential itself.
    store.client().put("media", "diary", b"Dear diary, this is no family at all");
    run(&world, &store, "backup sqlite:app.db --to s3://media/diary --init").refused(
        1,
        "s3://media/diary",
        "is not a media family",
    );
    assert_eq!(object(&store, "diary"), b"Dear diary, this is no family at all");
    run(&world, &store, &format!("{backup} --init --kind differential --base s3://media/app.bore")).refused(
        2,
        "app.bore",
        "is the full",
    );
    run(&world, &store, "backup sqlite:app.db --to s3://media/1.bore --to s3://media/2.bore").done();
    run(&world, &store, "backup sqlite:app.db --to s3://media/1.bore --init").refused(
        1,
        "1.bore",
        "the whole set unusable",
    );
    assert_eq!(
        (keys(&store), store.uploads("media")),
        (["1.bore", "2.bore", "app.bore", "diary"].map(str::to_owned).to_vec(), Vec::new())
    );
}

#[test]
fn one_of_two_backups_to_one_key_is_refused_and_a_killed_one_leaves_a_claim_and_no_family() {
    let (world, store) = (large(), store());
    let slow = "backup sqlite:app.db --to s3://media/app.bore --throttle 1MiB/s --max-transfer-size 64KiB";
    let first = start(&world, &store, slow);
    wait_until("the first has claimed the key", || keys(&store) == ["app.bore.claim"]);
    let other = World::with_database();
    let to_it = "backup sqlite:app.db --to s3://media/app.bore";
    run(&other, &store, to_it).refused(1, "s3://media/app.bore", "is claimed by the backup of media set");
    first.signal("KILL");
    first.wait();
    // Nobody sees a family, and the place is still claimed.
    run(&other, &store, "list --from s3://media/").with_code(2).says(&["no backup set was found"]);
    run(&other, &store, to_it).refused(1, "app.bore.claim", "if it was killed");
    run(&other, &store, "backup sqlite:app.db --to s3://media/x/").done();
    run(&other, &store, "verify --from s3://media/x/").done();
}

#[test]
fn a_signal_ends_a_backup_and_a_restore_and_leaves_nothing() {
    let (world, store) = (large(), store());
    let slow = "backup sqlite:app.db --to s3://media/a/ --to s3://media/b/ --throttle 1MiB/s --max-transfer-size 64KiB";
    let running = start(&world, &store, slow);
    wait_until("it has begun", || keys(&store).len() == 2);
    running.signal("INT");
    running.wait().with_code(130);
    assert_nothing_is_left(&store);
    run(&world, &store, "backup sqlite:app.db --to s3://media/a/").done();
    let proxy = FaultProxy::start(store.endpoint(), |request| match request.method.as_str() {
        "GET" if request.header("range").is_some_and(|range| !range.starts_with("bytes=0-")) => Fault::Stall(At::Body),
        _ => Fault::Pass,
    });
    let line = "restore --from s3://media/a/ --into sqlite:copy.db";
    let running = program::start(command(&world, &store.environment_at(proxy.endpoint()), line));
    wait_until("it waits for the store", || proxy.faults() > 0);
    let begun = Instant::now();
    running.signal("TERM");
    running.wait().with_code(143);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    world.assert_no_copy();
}

#[test]
fn a_wrong_bucket_key_endpoint_or_certificate_is_named_before_any_write() {
    let (world, store) = (World::with_database(), store());
    let backup = "backup sqlite:app.db --device-timeout 15 --to s3://media/app.bore";
    let with = |name: &str, value: &str| {
        let mut variables = store.environment();
        variables.iter_mut().filter(|(known, _)| *known == name).for_each(|(_, old)| value.clone_into(old));
        run_with(&world, &variables, backup)
    };
    let secret = store.secret_key().to_owned();
    let elsewhere = "backup sqlite:app.db --to s3://no-such-bucket/app.bore";
    run(&world, &store, elsewhere).refused(2, "s3://no-such-bucket/app.bore", "there is no such bucket");
    let ended = with("AWS_SECRET_ACCESS_KEY", "wrong-wrong-wrong").refused(1, "secret key", "AWS_SECRET_ACCESS_KEY");
    assert!(!ended.err.contains("wrong-wrong"), "{ended}");
    with("AWS_ACCESS_KEY_ID", "NOBODY").refused(1, "does not know this access key", "AWS_ACCESS_KEY_ID");
    with("AWS_ENDPOINT_URL", "http://127.0.0.1:9").refused(1, "nothing listens", "AWS_ENDPOINT_URL");
    with("AWS_REGION", "eu-north-7").refused(1, "region", "AWS_REGION");
    let tls = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new().tls());
    tls.make_bucket("media");
    let without = |name: &str| -> Vec<(&'static str, String)> {
        tls.environment().into_iter().filter(|(known, _)| *known != name).collect()
    };
    run_with(&world, &without("AWS_CA_BUNDLE"), backup).refused(1, "certificate is not trusted", "AWS_CA_BUNDLE");
    let mut endless = without("AWS_CA_BUNDLE");
    endless.push(("AWS_CA_BUNDLE", "/dev/zero".to_owned()));
    run_with(&world, &endless, backup).refused(2, "too long", "PEM form");
    let mut trusting = without("AWS_CA_BUNDLE");
    trusting.push(("AWS_CA_BUNDLE", tls.ca().unwrap().display().to_string()));
    run_with(&world, &trusting, backup).done();
    run_with(&world, &trusting, "verify --from s3://media/app.bore").done();
    for (text, why) in [("s3://media", "--from"), ("s3://media/none.bore", "is not there")] {
        let ended = run(&world, &store, &format!("verify --from {text}"));
        assert!(ended.code != 0 && ended.err.contains(why) && !ended.err.contains(&secret), "{ended}");
    }
    assert_nothing_is_left(&store);
}

#[test]
fn a_store_that_falls_silent_or_fails_for_good_ends_the_backup_in_time_and_leaves_nothing() {
    let (world, store) = (large(), store());
    let line = "backup sqlite:app.db --device-timeout 4 --to s3://media/app.bore --compression none";
    for fault in [Fault::Stall(At::Start), Fault::Stall(At::Answer), Fault::slow_down(None), Fault::INTERNAL_ERROR] {
        let name = fault.name();
        let proxy = FaultProxy::start(store.endpoint(), move |request| {
            if request.operation() == "UploadPart" { fault.clone() } else { Fault::Pass }
        });
        let begun = Instant::now();
        let ended = run_with(&world, &store.environment_at(proxy.endpoint()), line);
        assert!(ended.code == 1 && errors(&ended) == 1, "{name}: {ended}");
        assert!(ended.err.contains("s3://media/app.bore") && ended.err.contains("hint: "), "{name}: {ended}");
        assert!(begun.elapsed() < Duration::from_secs(150), "{name}: {:?}", begun.elapsed());
        assert_nothing_is_left(&store);
    }
}

#[test]
fn an_answer_to_the_last_request_that_is_lost_does_not_lose_the_backup() {
    let (world, store) = (World::with_database(), store());
    for (at, fault) in [Fault::Reset(At::Answer), Fault::Truncate].into_iter().enumerate() {
        let proxy = FaultProxy::start(store.endpoint(), move |request| {
            if request.operation() == "CompleteMultipartUpload" { fault.clone() } else { Fault::Pass }
        });
        let line = format!("backup sqlite:app.db --device-timeout 30 --to s3://media/{at}.bore");
        run_with(&world, &store.environment_at(proxy.endpoint()), &line).done();
        assert!(proxy.faults() > 0);
        assert_restores(&world, &store, &format!("--from s3://media/{at}.bore"));
    }
}

#[test]
fn bytes_that_are_wrong_on_the_way_are_never_taken_for_the_backup() {
    let (world, store) = (large(), store());
    // On the way there: the store compares the checksum of each part, and it is sent again.
    let proxy = FaultProxy::start(store.endpoint(), |request| match request.parameter("partNumber") == Some("1") {
        true if request.attempt == 0 => Fault::FlipRequest(70_000),
        _ => Fault::Pass,
    });
    let line = "backup sqlite:app.db --device-timeout 20 --to s3://media/app.bore --compression none";
    run_with(&world, &store.environment_at(proxy.endpoint()), line).done();
    run(&world, &store, "verify --from s3://media/app.bore").done();
    assert_restores(&world, &store, "--from s3://media/app.bore");
    // And when it is wrong each time, there is an end to it, and nothing is left.
    let proxy = FaultProxy::start(store.endpoint(), |request| match request.parameter("partNumber") == Some("1") {
        true => Fault::FlipRequest(70_000),
        false => Fault::Pass,
    });
    let variables = store.environment_at(proxy.endpoint());
    let never = "backup sqlite:app.db --device-timeout 15 --to s3://media/never.bore --compression none";
    run_with(&world, &variables, never).refused(1, "never.bore", "a part arrived changed");
    assert_eq!((keys(&store), store.uploads("media")), (vec!["app.bore".to_owned()], Vec::new()));
    // And on the way back: our own checksums.
    let proxy = FaultProxy::start(store.endpoint(), |request| match request.header("range") {
        Some(range) if !range.starts_with("bytes=0-") => Fault::FlipAnswer(5_000),
        _ => Fault::Pass,
    });
    let variables = store.environment_at(proxy.endpoint());
    run_with(&world, &variables, "verify --from s3://media/app.bore").with_code(3);
    run_with(&world, &variables, "restore --from s3://media/app.bore --into sqlite:copy.db").with_code(3);
    world.assert_no_copy();
}

#[test]
fn parts_are_hashed_for_their_signature_where_that_was_asked_for_and_nobody_writes_without_an_account() {
    let (world, store) = (large(), store());
    let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Pass);
    for (said, hashed) in [("true", false), ("false", true)] {
        let mut variables = store.environment_at(proxy.endpoint());
        variables.push(("AWS_UNSIGNED_PAYLOAD", said.to_owned()));
        let before = proxy.requests().len();
        run_with(&world, &variables, &format!("backup sqlite:app.db --to s3://media/{said}.bore --compression none"))
            .done();
        let parts: Vec<_> = proxy.requests().split_off(before);
        let parts = parts.iter().filter(|seen| seen.request.parameter("partNumber").is_some());
        let hashes: Vec<&str> = parts.map(|seen| seen.request.header("x-amz-content-sha256").unwrap()).collect();
        assert!(!hashes.is_empty() && hashes.iter().all(|hash| (*hash != "UNSIGNED-PAYLOAD") == hashed), "{hashes:?}");
        assert_restores(&world, &store, &format!("--from s3://media/{said}.bore"));
        store.client().delete("media", &format!("{said}.bore"));
    }
    let mut variables = store.environment();
    variables.push(("AWS_SKIP_SIGNATURE", "true".to_owned()));
    let ended = run_with(&world, &variables, "backup sqlite:app.db --to s3://media/nobody.bore");
    ended.refused(1, "s3://media/nobody.bore", "AWS_SKIP_SIGNATURE is set");
    assert_nothing_is_left(&store);
}

#[test]
fn an_object_that_is_cut_replaced_or_gone_is_named() {
    let (world, store) = (World::with_database(), store());
    run(&world, &store, "backup sqlite:app.db --to s3://media/1.bore --to s3://media/2.bore").done();
    let (first, second) = (object(&store, "1.bore"), object(&store, "2.bore"));
    store.client().put("media", "2.bore", &second[..second.len() / 2]);
    run(&world, &store, "verify --from s3://media/").with_code(3).says(&["s3://media/2.bore"]);
    store.client().put("media", "2.bore", &first);
    let ended = run(&world, &store, "restore --from s3://media/ --into sqlite:copy.db").with_code(3);
    assert!(ended.err.contains("family 2"), "{ended}");
    store.client().delete("media", "2.bore");
    run(&world, &store, "restore --from s3://media/ --into sqlite:copy.db").with_code(3);
    world.assert_no_copy();
}

#[test]
fn any_store_failure_leaves_a_complete_backup_or_none() {
    let world = World::with_shape(Shape::default());
    let store = store();
    let (mut done, mut failed) = (0, 0);
    let seeds = std::env::var("FULLBORE_STORE_SEEDS").map_or(6, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let proxy = FaultProxy::start(store.endpoint(), Plan::seeded(seed).per_cent(25).rule());
        let variables = store.environment_at(proxy.endpoint());
        let line =
            format!("backup sqlite:app.db --device-timeout 9 --to s3://media/{seed}/ --stripes 2 --compression none");
        let begun = Instant::now();
        let ended = run_with(&world, &variables, &line);
        assert!(begun.elapsed() < Duration::from_secs(300), "seed {seed}: {:?}", begun.elapsed());
        if ended.code == 0 {
            done += 1;
            assert_restores(&world, &store, &format!("--from s3://media/{seed}/"));
            let restored = run_with(
                &world,
                &variables,
                &format!("restore --device-timeout 9 --from s3://media/{seed}/ --into sqlite:copy.db"),
            );
            if restored.code == 0 {
                world.assert_copy();
                std::fs::remove_file(world.at("copy.db")).unwrap();
            }
            world.assert_no_copy();
        } else {
            failed += 1;
            assert_eq!(errors(&ended), 1, "seed {seed}: {ended}");
            let left = run(&world, &store, &format!("restore --from s3://media/{seed}/ --into sqlite:copy.db"));
            assert_ne!(left.code, 0, "seed {seed}: a failed backup looks whole");
            world.assert_no_copy();
        }
    }
    assert!(done > 0, "{done} done, {failed} failed");
}

/// Every record and every family in a store: what two hosts agree upon there.
#[test]
fn a_repository_in_a_store_is_backed_up_into_pruned_and_restored_from_by_two_hosts() {
    let (world, store) = (World::with_database(), store());
    world.write(
        "fullbore.toml",
        b"stripes = 2\n[repository.night]\nto = [\"s3://media/night/\"]\n[repository.night.keep]\nlast = 1\n",
    );
    let host = |name: &str, line: &str| {
        let mut variables = store.environment();
        variables.push(("XDG_STATE_HOME", world.at(name).display().to_string()));
        run_with(&world, &variables, line)
    };
    host("one", "backup sqlite:app.db --repo night").done();
    database::sql(&world.at("app.db"), "CREATE TABLE more AS SELECT 1 AS one, 2 AS two");
    host("two", "backup sqlite:app.db --repo night --kind auto").done().says(&["a differential of full"]);
    host("two", "backup sqlite:app.db --repo night --kind full").done();
    host("one", "prune --repo night --confirm --grace 0s").with_code(4);
    host("one", "restore-test --repo night --scratch b").done();
    host("two", "check --repo night --max-age 1h --max-unproven 1h").done();
    let pruned = host("two", "prune --repo night --confirm --grace 0s --json").done().json();
    assert_eq!(pruned["deleted"].as_array().unwrap().len(), 2, "{pruned}");
    let listed = host("one", "list --repo night --json").done().json();
    assert!(listed.as_array().unwrap().len() == 1 && listed[0]["proven_at"].is_string(), "{listed}");
    let left: Vec<String> = keys(&store).into_iter().filter(|key| !key.contains("/.fullbore/")).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    host("one", "restore --repo night --into sqlite:copy.db").done();
    world.assert_copy();
    let tasks = host("one", "tasks --repo s3://media/night/ --json").done().json();
    assert!(tasks.as_array().unwrap().iter().all(|task| task["ended_at"].is_string()), "{tasks}");
    host("three", "list --repo s3://nowhere/night/").refused(2, "s3://nowhere", "bucket");
}

/// The host dies between two requests: the next run of another host puts it right.
#[test]
fn another_host_removes_leftovers_in_a_store_after_the_lease() {
    let (world, store) = (large(), store());
    world.write(
        "fullbore.toml",
        b"stripes = 2\n[repository.night]\nto = [\"s3://media/night/\"]\n[repository.night.keep]\nlast = 1\n",
    );
    run(&world, &store, "backup sqlite:app.db --repo night").done();
    let running = start(&world, &store, "backup sqlite:app.db --repo night --throttle 1MiB/s --compression none");
    wait_until("parts are uploaded", || !store.uploads("media").is_empty());
    running.signal("KILL");
    running.wait();
    let of_task = |key: &String| key.contains("/tasks/") && !key.ends_with(".cancel");
    let open = keys(&store).into_iter().filter(of_task).find(|key| {
        let record: serde_json::Value = serde_json::from_slice(&object(&store, key)).unwrap();
        record["ended_at"].is_null()
    });
    let key = open.unwrap();
    let record = String::from_utf8(object(&store, &key)).unwrap().replace("\"lease_s\": 300", "\"lease_s\": 0");
    store.client().put("media", &key, record.as_bytes());
    std::thread::sleep(Duration::from_millis(2100)); // Its clock tells whole seconds.
    run(&world, &store, "prune --repo night --confirm --grace 0s")
        .done()
        .says(&["its host died; its files were removed"]);
    let left: Vec<String> = keys(&store).into_iter().filter(|key| !key.contains("/.fullbore/")).collect();
    assert_eq!(left.len(), 2, "the first backup, and no claim of the second: {left:?}");
    assert_eq!(store.uploads("media"), Vec::new());
}

#[test]
fn a_locked_set_is_not_pruned_before_its_time_and_stays_usable() {
    let world = World::with_database();
    let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new().versioning());
    store.make_bucket_with_object_lock("vault");
    world.write(
        "fullbore.toml",
        b"[repository.vault]\nto = [\"s3://vault/\"]\nlock-until = \"2d\"\n[repository.vault.keep]\nlast = 1\n",
    );
    run(&world, &store, "backup sqlite:app.db --repo vault").done();
    run(&world, &store, "backup sqlite:app.db --repo vault").done();
    run(&world, &store, "verify --repo vault").done();
    let ended = run(&world, &store, "prune --repo vault --confirm --grace 0s").done();
    assert!(ended.text().contains("locked until") && ended.text().contains("removed: 0 sets"), "{ended}");
    let listed = run(&world, &store, "list --repo vault --json").done().json();
    assert!(listed.as_array().unwrap().iter().all(|set| set["tombstone"] == false), "{listed}");
    let oldest = listed[0]["backup_set_id"].as_str().unwrap();
    run(&world, &store, &format!("restore --repo vault --set {oldest} --into sqlite:copy.db")).done();
}

#[test]
fn the_base_of_a_new_set_is_locked_as_long_as_the_set() {
    for kind in [StoreKind::Versitygw, StoreKind::Minio] {
        locks_of_a_chain(kind);
    }
}

fn locks_of_a_chain(kind: StoreKind) {
    let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
    let app = crate::log::kept_open(&world);
    let store = ObjectStore::start(kind, &StoreOptions::new().versioning());
    store.make_bucket_with_object_lock("vault");
    let back_up = |kind: &str, lock: &str| {
        let text = format!("[repository.vault]\nto = [\"s3://vault/\"]\nstripes = 2\n{lock}\n");
        world.write("fullbore.toml", text.as_bytes());
        app.execute_batch(&format!("CREATE TABLE of_{} AS SELECT 1 AS n", fastrand::u64(..))).unwrap();
        run(&world, &store, &format!("backup sqlite:app.db --repo vault --kind {kind}")).done()
    };
    // Of each family: its key, and until when it is locked.
    let locks = || -> Vec<(String, Option<String>)> {
        let keys = store.objects("vault").into_iter().map(|object| object.key).filter(|key| key.ends_with(".bore"));
        let lock = |key: String| {
            let answer = store.client().send(&Call::new("GET", &format!("/vault/{key}")).query("retention", ""));
            (key, answer.unwrap().element("RetainUntilDate"))
        };
        keys.map(lock).collect()
    };
    let of = |kind: &str| -> Vec<String> {
        let of_kind = locks().into_iter().filter(|(key, _)| key.contains(&format!("-{kind}-")));
        of_kind.map(|(_, until)| until.unwrap()).collect()
    };
    back_up("full", "");
    assert!(locks().iter().all(|(_, until)| until.is_none()));
    back_up("differential", "lock-until = \"2099-01-01T00:00:00Z\"")
        .says(&["also locked until 2099-01-01T00:00:00Z: 1 set that this set needs"]);
    assert_eq!((of("full").len(), of("differential").len()), (2, 2));
    back_up("log", "lock-until = \"2099-02-01T00:00:00Z\"");
    back_up("log", "lock-until = \"2099-03-01T00:00:00Z\"").says(&["3 sets"]);
    assert!(locks().iter().all(|(_, until)| until.as_ref().unwrap().starts_with("2099-03-01")), "{:?}", locks());
    // What is locked for longer stays so.
    let ended = back_up("log", "lock-until = \"2099-01-15T00:00:00Z\"");
    assert!(!ended.err.contains("as well"), "{ended}");
    assert_eq!(locks().iter().filter(|(_, until)| until.as_ref().unwrap().starts_with("2099-03-01")).count(), 8);
    run(&world, &store, "verify --repo vault").done();
}

/// Whether a dead run has committed is asked of the store; where that does not answer, nothing goes.
#[test]
fn a_run_in_an_unreachable_store_does_not_count_as_ended() {
    let (world, store) = (World::with_database(), store());
    world.write(
        "fullbore.toml",
        b"stripes = 2\n[repository.night]\nto = [\"s3://media/night/\"]\n[repository.night.keep]\nlast = 1\n",
    );
    run(&world, &store, "backup sqlite:app.db --repo night").done();
    let key = keys(&store).into_iter().find(|key| key.contains("/tasks/")).unwrap();
    let mut task: serde_json::Value = serde_json::from_slice(&object(&store, &key)).unwrap();
    (task["state"], task["ended_at"], task["lease_s"]) = ("IN_PROGRESS".into(), serde_json::Value::Null, 0.into());
    store.client().put("media", &key, task.to_string().as_bytes());
    // The set's own record would tell without the families.
    let record = keys(&store).into_iter().find(|key| key.contains("/sets/")).unwrap();
    store.client().delete("media", &record);
    std::thread::sleep(Duration::from_millis(2100)); // Its clock tells whole seconds.
    let proxy = FaultProxy::start(store.endpoint(), |request| {
        let asks = request.method == "HEAD" && request.path.ends_with("1of2.bore");
        if asks { Fault::INTERNAL_ERROR } else { Fault::Pass }
    });
    let line = "prune --repo night --confirm --grace 0s --device-timeout 15";
    let ended = run_with(&world, &store.environment_at(proxy.endpoint()), line).with_code(4);
    ended.says(&["its host died; its files stay", "1of2.bore", "500"]);
    let families = || keys(&store).into_iter().filter(|key| key.ends_with(".bore")).count();
    assert_eq!(families(), 2);
    run(&world, &store, line).done().says(&["it had committed its set"]);
    assert_eq!(families(), 2);
    assert_restores(&world, &store, "--repo night");
}
