//! Copies to and from an object store, and what a killed one need not send again.

use fullbore_test_servers::{Fault, FaultProxy, ObjectStore, StoreKind, StoreOptions, wait_until};

use crate::copy_verdict::verdict;
use crate::database::Shape;
use crate::program::{self, Ended};
use crate::world::World;

/// The buckets `media` and `other`.
fn store() -> ObjectStore {
    let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
    store.make_bucket("media");
    store.make_bucket("other");
    store
}

/// A set in `a/`, so long that no object of it is one part.
fn large() -> World {
    let world = World::with_shape(Shape { rows: 150_000, ..Shape::default() });
    world.run("backup sqlite:app.db --to a/app.bore --compression none").done();
    world
}

fn run_at(world: &World, variables: Vec<(&'static str, String)>, line: &str) -> Ended {
    let mut command = program::command(world.folder(), line.split_whitespace());
    command.envs(variables);
    program::run(command)
}

fn run(world: &World, store: &ObjectStore, line: &str) -> Ended {
    run_at(world, store.environment(), line)
}

fn keys(store: &ObjectStore, bucket: &str) -> Vec<String> {
    let mut keys: Vec<String> = store.objects(bucket).into_iter().map(|object| object.key).collect();
    keys.sort();
    keys
}

fn assert_restores(world: &World, store: &ObjectStore, from: &str) {
    run(world, store, &format!("restore {from} --into sqlite:copy.db")).done();
    world.assert_copy();
    std::fs::remove_file(world.at("copy.db")).unwrap();
}

#[test]
fn sets_go_to_a_store_between_buckets_and_back_to_files() {
    let (world, store) = (World::with_database(), store());
    world.run("backup sqlite:app.db --to a/ --stripes 2").done();
    let verdict_of = |line: &str| {
        let report = run(&world, &store, &format!("{line} --report json")).done().json();
        verdict(&report);
        assert_eq!(report["verdict"]["one_device"], false, "a store is on no device of this machine");
    };
    verdict_of("copy --from a --to s3://media/night/");
    assert_eq!(keys(&store, "media").len(), 2);
    assert_restores(&world, &store, "--from s3://media/night/");
    verdict_of("copy --from s3://media/night/ --to s3://other/x/ --stripes 3 --compression zstd:1");
    assert_eq!(keys(&store, "other").len(), 3);
    assert_restores(&world, &store, "--from s3://other/x/");
    verdict_of("copy --from s3://media/night/ --to b/");
    for (one, other) in world.names("a").iter().zip(world.names("b")) {
        assert!(world.read(&format!("a/{one}")) == world.read(&format!("b/{other}")));
    }
    run(&world, &store, "copy --from s3://other/x/ --to b/ --stripes 1").done();
    assert_eq!((store.uploads("media"), store.uploads("other")), (Vec::new(), Vec::new()));
    // Again: it is there.
    let again = run(&world, &store, "copy --from a --to s3://media/night/").done();
    assert!(again.text().contains("COPY: stored nothing"), "{again}");
    again.says(&["is already there, as it is"]);
    let family = keys(&store, "media").remove(0);
    run(&world, &store, &format!("copy --from a --to s3://media/{family} --stripes 1")).refused(
        1,
        &family,
        "exists already",
    );
    assert_restores(&world, &store, "--from s3://media/night/");
}

#[test]
fn between_repositories_in_a_store_a_chain_is_copied() {
    let (world, store) = (World::with_database(), store());
    run(&world, &store, "backup sqlite:app.db --repo s3://media/night/").done();
    crate::database::change(&world.at("app.db"), 1);
    run(&world, &store, "backup sqlite:app.db --repo s3://media/night/ --kind differential").done();
    run(&world, &store, "copy --repo s3://media/night/ --to-repo s3://other/away/").done();
    assert_restores(&world, &store, "--repo s3://other/away/");
    run(&world, &store, "verify --repo s3://other/away/").done();
}

#[test]
fn a_copy_that_was_killed_goes_on_by_the_parts_that_the_store_has() {
    let (world, store) = (large(), store());
    let line = "copy --from a --to s3://media/app.bore";
    let length = std::fs::metadata(world.at("a/app.bore")).unwrap().len();
    let parts = length.div_ceil(8 << 20) as usize;
    assert!(parts >= 4, "{length} bytes are too few");
    let slow = format!("{line} --throttle 4MiB/s");
    let mut command = program::command(world.folder(), slow.split_whitespace());
    command.envs(store.environment());
    let running = program::start(command);
    let client = store.client();
    let there = || {
        store.uploads("media").first().map_or(0, |(key, upload)| {
            let call = fullbore_test_servers::Call::new("GET", &format!("/media/{key}")).query("uploadId", upload);
            client.demand(&call).text().matches("<PartNumber>").count()
        })
    };
    wait_until("two parts are there", || there() >= 2);
    running.signal("KILL");
    running.wait();
    let had = there();
    assert_eq!(keys(&store, "media"), ["app.bore.claim"]);
    // A backup is refused there, and another set too.
    run(&world, &store, "backup sqlite:app.db --to s3://media/app.bore").refused(1, "app.bore", "is claimed");
    let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Pass);
    run_at(&world, store.environment_at(proxy.endpoint()), line).done();
    let sent: Vec<&str> = proxy.requests().iter().map(|seen| seen.request.operation()).collect();
    let times = |operation: &str| sent.iter().filter(|other| **other == operation).count();
    assert!((2..parts).contains(&had), "{had} of {parts}");
    assert_eq!(times("UploadPart"), parts - had, "of {parts} parts {had} were there: {sent:?}");
    assert_eq!((times("CreateMultipartUpload"), times("CompleteMultipartUpload")), (0, 1), "{sent:?}");
    assert_eq!((keys(&store, "media"), store.uploads("media")), (vec!["app.bore".to_owned()], Vec::new()));
    assert!(client.get("media", "app.bore").unwrap() == world.read("a/app.bore"));
    assert_restores(&world, &store, "--from s3://media/app.bore");
}

#[test]
fn a_part_that_differs_is_sent_again_and_a_forgotten_upload_begun_anew() {
    let (world, store) = (large(), store());
    let line = "copy --from a --to s3://media/app.bore";
    // The second part goes wrong for ever: the process ends without tidying up, for it is killed.
    let slow = format!("{line} --throttle 2MiB/s");
    for forget in [false, true] {
        let mut command = program::command(world.folder(), slow.split_whitespace());
        command.envs(store.environment());
        let running = program::start(command);
        wait_until("the upload has begun", || !store.uploads("media").is_empty());
        running.signal("KILL");
        running.wait();
        let (key, upload) = store.uploads("media").remove(0);
        let client = store.client();
        let call = |method: &str| {
            fullbore_test_servers::Call::new(method, &format!("/media/{key}")).query("uploadId", &upload)
        };
        if forget {
            client.demand(&call("DELETE"));
        } else {
            client.demand(&call("PUT").query("partNumber", "1").part(&vec![7; 8 << 20]));
        }
        run(&world, &store, line).done();
        assert!(client.get("media", "app.bore").unwrap() == world.read("a/app.bore"));
        assert_eq!((keys(&store, "media"), store.uploads("media")), (vec!["app.bore".to_owned()], Vec::new()));
        client.delete("media", "app.bore");
    }
}

#[test]
fn wrong_bytes_on_the_way_from_a_store_never_become_a_copy() {
    let (world, store) = (World::with_database(), store());
    world.run("backup sqlite:app.db --to a/ --compression none").done();
    run(&world, &store, "copy --from a --to s3://media/night/").done();
    let proxy = FaultProxy::start(store.endpoint(), |request| match request.header("range") {
        Some(range) if !range.starts_with("bytes=0-") => Fault::FlipAnswer(5_000),
        _ => Fault::Pass,
    });
    for change in ["", "--stripes 2"] {
        run_at(
            &world,
            store.environment_at(proxy.endpoint()),
            &format!("copy --from s3://media/night/ --to b/ {change}"),
        )
        .with_code(3);
        assert_eq!(world.names("b"), Vec::<String>::new());
    }
}

/// Two endpoints, two accounts, one job: each repository says by its profile how it is reached, and the environment names neither.
#[test]
fn between_two_stores_of_different_owners_sets_are_copied_mirrored_and_come_back() {
    let world = World::with_database();
    let stores = ["one", "two"].map(|name| {
        let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
        store.make_bucket("media");
        (name, store)
    });
    let profile = |(name, store): &(&str, ObjectStore)| {
        let (endpoint, region) = (store.endpoint(), store.region());
        let keys =
            format!("aws_access_key_id = {}\naws_secret_access_key = {}", store.access_key(), store.secret_key());
        format!("[{name}]\n{keys}\nendpoint_url = {endpoint}\nregion = {region}\n")
    };
    std::fs::create_dir_all(world.at("home/.aws")).unwrap();
    world.write("home/.aws/credentials", stores.iter().map(profile).collect::<String>().as_bytes());
    let of = |name: &str| format!("[repository.{name}]\nto = [\"s3://media/\"]\naws-profile = \"{name}\"\n");
    world.write("fullbore.toml", format!("{}{}", of("one"), of("two")).as_bytes());
    // What the environment says is of nobody here.
    let run = |line: &str| {
        let mut command = crate::program::command(world.folder(), line.split_whitespace());
        command.env("AWS_ACCESS_KEY_ID", "nobody").env("AWS_SECRET_ACCESS_KEY", "nothing");
        command.env("AWS_ENDPOINT_URL", "http://127.0.0.1:9").env("AWS_REGION", "nowhere");
        crate::program::run(command)
    };
    let sets = |name: &str| run(&format!("list --repo {name} --json")).done().json().as_array().unwrap().len();
    run("backup sqlite:app.db --repo one").done();
    run("copy --repo one --to-repo two").done();
    assert_eq!((sets("one"), sets("two")), (1, 1));
    run("backup sqlite:app.db --repo one --copy-to two --kind differential").done();
    assert_eq!((sets("one"), sets("two")), (2, 2));
    for name in ["one", "two"] {
        run(&format!("verify --repo {name}")).done();
        run(&format!("restore --repo {name} --into sqlite:copy.db")).done();
        world.assert_copy();
        std::fs::remove_file(world.at("copy.db")).unwrap();
        run(&format!("tasks --repo {name}")).done();
        run(&format!("check --repo {name} --max-age 26h")).done();
        run(&format!("prune --repo {name} --keep-last 1 --confirm --grace 0s")).done();
    }
    run("copy --repo two --to-repo gone").with_code(2);
    world.write("fullbore.toml", format!("{}{}", of("one"), of("two").replace("\"two\"", "\"gone\"")).as_bytes());
    run("copy --repo one --to-repo two").refused(2, "profile `gone`", "is neither in");
}
