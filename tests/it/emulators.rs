//! Backups in Azure and in Google Cloud Storage, as their emulators have them: there and back, repositories, and what is refused.
//! `tests/servers/install-stores azurite fake-gcs` installs these; `./test` leaves the tests out where they are not installed.

use fullbore_test_servers::{ObjectStore, StoreKind, StoreOptions, wait_until};

use crate::database::{self, Shape};
use crate::program::{self, Ended, Running};
use crate::world::World;

type Variables = Vec<(&'static str, String)>;

/// Both, with what their URLs begin with.
fn both() -> [(ObjectStore, &'static str); 2] {
    [(store(StoreKind::Azurite), "az"), (store(StoreKind::FakeGcs), "gs")]
}

fn store(kind: StoreKind) -> ObjectStore {
    let store = ObjectStore::start(kind, &StoreOptions::new());
    store.make_bucket("media");
    store
}

fn command(world: &World, variables: &Variables, line: &str) -> std::process::Command {
    let mut command = program::command(world.folder(), line.split_whitespace());
    command.envs(variables.iter().map(|(name, value)| (*name, value)));
    command
}

fn run_with(world: &World, variables: &Variables, line: &str) -> Ended {
    let ended = program::run(command(world, variables, line));
    for (name, secret) in variables.iter().filter(|(name, _)| name.contains("KEY") || name.contains("TOKEN")) {
        assert!(
            !ended.err.contains(secret.as_str()) && !ended.text().contains(secret.as_str()),
            "{name} is shown: {ended}"
        );
    }
    ended
}

fn run(world: &World, store: &ObjectStore, line: &str) -> Ended {
    run_with(world, &store.environment(), line)
}

fn start(world: &World, store: &ObjectStore, line: &str) -> Running {
    program::start(command(world, &store.environment(), line))
}

fn keys(store: &ObjectStore) -> Vec<String> {
    let mut keys: Vec<String> = store.objects("media").into_iter().map(|object| object.key).collect();
    keys.sort();
    keys
}

fn assert_restores(world: &World, store: &ObjectStore, from: &str) {
    run(world, store, &format!("restore {from} --into sqlite:copy.db")).done();
    world.assert_copy();
    std::fs::remove_file(world.at("copy.db")).unwrap();
}

fn with(variables: &Variables, name: &'static str, value: &str) -> Variables {
    let mut changed: Variables = variables.iter().filter(|(known, _)| *known != name).cloned().collect();
    changed.push((name, value.to_owned()));
    changed
}

#[test]
fn a_database_and_its_differential_go_there_in_stripes_and_come_back() {
    for (store, scheme) in both() {
        // So long that no object is one part.
        let world = World::with_shape(Shape { rows: 40_000, ..Shape::default() });
        let at = format!("{scheme}://media/night/");
        run(&world, &store, &format!("backup sqlite:app.db --to {at} --stripes 2 --compression none")).done();
        let made = keys(&store);
        assert!(made.len() == 2 && made.iter().all(|key| key.starts_with("night/app-full-")), "{made:?}");
        let listed = run(&world, &store, &format!("list --from {at} --json")).done().json();
        assert_eq!(listed[0]["families"], 2);
        assert!(listed[0]["devices"][0].as_str().unwrap().starts_with(&at), "{listed}");
        run(&world, &store, &format!("inspect header --from {at}")).done();
        run(&world, &store, &format!("verify --from {at}")).done();
        assert_restores(&world, &store, &format!("--from {at}"));
        database::sql(&world.at("app.db"), "CREATE TABLE more AS SELECT 1 AS one, 2 AS two");
        run(&world, &store, &format!("backup sqlite:app.db --to {at} --kind differential --base {at}")).done();
        assert_restores(&world, &store, &format!("--from {at} --latest"));
        assert_eq!((keys(&store).len(), store_uploads(&store)), (3, 0));
    }
}

/// How many uploads are unfinished, where the store itself tells.
fn store_uploads(store: &ObjectStore) -> usize {
    if store.kind() == StoreKind::Azurite { store.uploads("media").len() } else { 0 }
}

#[test]
fn a_repository_there_is_backed_up_into_verified_pruned_and_restored_from() {
    for (store, scheme) in both() {
        let world = World::with_shape(Shape { rows: 300, ..Shape::default() });
        let config =
            format!("[repository.night]\nto = [\"{scheme}://media/night/\"]\n[repository.night.keep]\nlast = 1\n");
        world.write("fullbore.toml", config.as_bytes());
        run(&world, &store, "backup sqlite:app.db --repo night").done();
        database::sql(&world.at("app.db"), "CREATE TABLE more AS SELECT 1 AS one, 2 AS two");
        run(&world, &store, "backup sqlite:app.db --repo night --kind differential").done();
        database::sql(&world.at("app.db"), "CREATE TABLE yet_more AS SELECT 1 AS one, 2 AS two");
        run(&world, &store, "backup sqlite:app.db --repo night").done();
        run(&world, &store, "verify --repo night --latest").done();
        run(&world, &store, "prune --repo night --grace 0s --confirm").done();
        let listed = run(&world, &store, "list --repo night --json").done().json();
        assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
        let families = keys(&store).into_iter().filter(|key| key.ends_with(".bore")).count();
        assert_eq!(families, 1);
        assert_restores(&world, &store, "--repo night");
        run(&world, &store, "check --repo night --max-age 1h").done();
        let tasks = run(&world, &store, "tasks --repo night").done().text();
        assert!(tasks.contains(" done "), "{tasks}");
    }
}

#[test]
fn only_init_replaces_an_object_and_only_if_it_is_a_family() {
    for (store, scheme) in both() {
        let world = World::with_database();
        let backup = format!("backup sqlite:app.db --to {scheme}://media/app.bore");
        run(&world, &store, &backup).done();
        let first = store.get("media", "app.bore");
        run(&world, &store, &backup).refused(1, &format!("{scheme}://media/app.bore"), "exists already");
        assert!(store.get("media", "app.bore") == first && keys(&store) == ["app.bore"]);
        run(&world, &store, &format!("{backup} --init")).done();
        assert!(store.get("media", "app.bore") != first && keys(&store) == ["app.bore"]);
        assert_restores(&world, &store, &format!("--from {scheme}://media/app.bore"));
        store.put("media", "diary", b"Dear diary, this is no family at all");
        let line = format!("backup sqlite:app.db --to {scheme}://media/diary --init");
        run(&world, &store, &line).refused(1, "media/diary", "is not a media family");
        assert_eq!(store.get("media", "diary"), b"Dear diary, this is no family at all");
    }
}

#[test]
fn one_of_two_backups_to_one_key_is_refused_and_a_killed_one_leaves_a_claim_and_no_family() {
    for (store, scheme) in both() {
        let world = World::with_shape(Shape { rows: 40_000, ..Shape::default() });
        let line = format!("backup sqlite:app.db --to {scheme}://media/app.bore");
        let first = start(&world, &store, &format!("{line} --throttle 1MiB/s --max-transfer-size 64KiB"));
        wait_until("the first has claimed the key", || keys(&store) == ["app.bore.claim"]);
        let other = World::with_database();
        run(&other, &store, &line).refused(1, "media/app.bore", "is claimed by the backup of media set");
        first.signal("KILL");
        first.wait();
        run(&other, &store, &format!("list --from {scheme}://media/")).with_code(2).says(&["no backup set was found"]);
        run(&other, &store, &line).refused(1, "app.bore.claim", "if it was killed");
        // A signal leaves nothing.
        let signalled = start(
            &world,
            &store,
            &format!("backup sqlite:app.db --to {scheme}://media/b/ --throttle 1MiB/s --max-transfer-size 64KiB"),
        );
        wait_until("the second has begun", || keys(&store).len() == 2);
        signalled.signal("INT");
        signalled.wait().with_code(130);
        assert_eq!(keys(&store), ["app.bore.claim"]);
    }
}

#[test]
fn wrong_names_keys_and_endpoints_are_named_in_the_words_of_the_service() {
    let world = World::with_database();
    for (store, scheme) in both() {
        let right = store.environment();
        let line = format!("backup sqlite:app.db --device-timeout 6 --to {scheme}://media/app.bore");
        let is_azure = scheme == "az";
        let elsewhere = format!("backup sqlite:app.db --to {scheme}://no-such/app.bore");
        let there_is_none = if is_azure { "there is no such container" } else { "there is no such bucket" };
        run(&world, &store, &elsewhere).refused(2, &format!("{scheme}://no-such/app.bore"), there_is_none);
        let (key, hint) = match is_azure {
            true => ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCOUNT_KEY"),
            false => ("GOOGLE_BEARER_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS"),
        };
        run_with(&world, &with(&right, key, "d3Jvbmcgc2VjcmV0"), &line).refused(1, "media/app.bore", hint);
        let endpoint = if is_azure { "AZURE_STORAGE_ENDPOINT" } else { "STORAGE_EMULATOR_HOST" };
        run_with(&world, &with(&right, endpoint, "http://127.0.0.1:9/x"), &line).refused(
            1,
            "nothing listens",
            endpoint,
        );
        run(&world, &store, &format!("verify --from {scheme}://media/none.bore")).refused(
            2,
            "none.bore",
            "is not there",
        );
        run(&world, &store, &format!("{line} --lock-until 1d")).refused(2, "--lock-until", "speak S3");
        run(&world, &store, &format!("{line} --storage-class COOL")).refused(2, "--storage-class", "speak S3");
        assert_eq!(keys(&store), Vec::<String>::new());
    }
    let nothing = Variables::new();
    let line = |to: &str| format!("backup sqlite:app.db --to {to}");
    run_with(&world, &nothing, &line("az://media/a")).refused(2, "az://media", "AZURE_STORAGE_ACCOUNT_NAME");
    let missing = vec![("GOOGLE_SERVICE_ACCOUNT", "gone.json".to_owned())];
    run_with(&world, &missing, &line("gs://media/a")).refused(1, "gs://media", "GOOGLE_APPLICATION_CREDENTIALS");
    for (url, why) in [
        ("azure://media/a", "az://CONTAINER/KEY"),
        ("https://shop.blob.core.windows.net/media/a?sig=sekret", "az://CONTAINER/KEY"),
        ("az://media/a?sv=1&sig=sekret", "do not put a signature"),
        ("gcs://media/a", "gs://BUCKET/KEY"),
        ("az://me--dia/a", "container"),
    ] {
        let ended = run_with(&world, &nothing, &line(url)).refused(2, "device", why);
        assert!(!ended.err.contains("sekret"), "{ended}");
    }
}

#[test]
fn azure_lets_in_by_a_signature_and_by_a_connection_string_too() {
    let (world, store) = (World::with_database(), store(StoreKind::Azurite));
    let endpoint = format!("{}/{}", store.endpoint(), store.access_key());
    let pairs: Vec<String> = store
        .azure_signature()
        .iter()
        .map(|(n, v)| format!("{n}={}", v.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")))
        .collect();
    let signature = pairs.join("&");
    let by_signature = vec![
        ("AZURE_STORAGE_ACCOUNT", store.access_key().to_owned()),
        ("AZURE_STORAGE_ENDPOINT", endpoint.clone()),
        ("AZURE_STORAGE_SAS_TOKEN", signature.clone()),
    ];
    let by_string = |rest: &str| {
        vec![(
            "AZURE_STORAGE_CONNECTION_STRING",
            format!("BlobEndpoint={endpoint};AccountName={};{rest}", store.access_key()),
        )]
    };
    let ways = [
        by_signature.clone(),
        by_string(&format!("AccountKey={}", store.secret_key())),
        by_string(&format!("SharedAccessSignature={signature}")),
    ];
    for (at, way) in ways.iter().enumerate() {
        let ended = run_with(&world, way, &format!("backup sqlite:app.db --to az://media/{at}.bore")).done();
        assert!(!ended.text().contains(store.secret_key()) && !ended.text().contains("sig="), "{ended}");
        run_with(&world, way, &format!("verify --from az://media/{at}.bore")).done();
    }
    let wrong = with(&by_signature, "AZURE_STORAGE_SAS_TOKEN", &signature.replace("sig=", "sig=AA"));
    let ended = run_with(&world, &wrong, "backup sqlite:app.db --to az://media/x.bore");
    ended.refused(1, "az://media/x.bore", "AZURE_STORAGE_SAS_TOKEN");
}

#[test]
fn azure_by_https_is_reached_with_its_authority_and_not_without() {
    let world = World::with_database();
    let store = ObjectStore::start(StoreKind::Azurite, &StoreOptions::new().tls());
    store.make_bucket("media");
    let line = "backup sqlite:app.db --device-timeout 6 --to az://media/app.bore";
    run(&world, &store, line).done();
    let without: Variables = store.environment().into_iter().filter(|(name, _)| *name != "SSL_CERT_FILE").collect();
    run_with(&world, &without, "verify --device-timeout 6 --from az://media/app.bore").refused(
        1,
        "certificate is not trusted",
        "SSL_CERT_FILE",
    );
}
