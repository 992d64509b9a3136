//! Stores that cannot be used, or not any more: one error that names the thing, the cause and the next step, and nothing left. In a module of
//! this name, so that tests with servers are found by it.

mod object_store {
    use std::process::{Child, Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};

    use fullbore_test_servers::{Call, Fault, FaultProxy, ObjectStore, Request, StoreKind, StoreOptions, wait_until};

    use crate::database;
    use crate::program::{self, Ended};
    use crate::world::World;

    type Variables = Vec<(&'static str, String)>;

    fn store() -> ObjectStore {
        let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
        store.make_bucket("media");
        store
    }

    /// With the repository `night` at the bucket's root, of which places may be named that are nowhere.
    fn world() -> World {
        let world = World::with_database();
        world.write(
            "fullbore.toml",
            b"device-timeout = 15\n[repository.night]\nto = [\"s3://media/night/\"]\n[repository.night.keep]\nlast = 1\n\
              [repository.nowhere]\nto = [\"s3://no-such-bucket/night/\"]\n[repository.nowhere.keep]\nlast = 1\n",
        );
        world
    }

    fn run(world: &World, variables: &Variables, line: &str) -> Ended {
        let mut command = program::command(world.folder(), line.split_whitespace());
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        program::run(command)
    }

    fn with(store: &ObjectStore, name: &'static str, value: &str) -> Variables {
        let mut variables = store.environment();
        variables.retain(|(known, _)| *known != name);
        variables.push((name, value.to_owned()));
        variables
    }

    fn keys(store: &ObjectStore) -> Vec<String> {
        let mut keys: Vec<String> = store.objects("media").into_iter().map(|object| object.key).collect();
        keys.sort();
        keys
    }

    #[track_caller]
    fn assert_nothing_is_left(store: &ObjectStore) {
        assert_eq!((keys(store), store.uploads("media")), (Vec::new(), Vec::new()));
    }

    /// Each verb that works on a repository, with the copy of one that is there.
    const VERBS: [&str; 8] = [
        "backup sqlite:app.db --repo night",
        "list --repo night",
        "restore --repo night --into sqlite:copy.db",
        "verify --repo night",
        "prune --repo night --confirm --grace 0s",
        "check --repo night --max-age 1d",
        "tasks --repo night",
        "catalog rebuild --repo night",
    ];

    /// One error, with exit code 1 and a next step, from every verb; nothing of it is a secret.
    #[track_caller]
    fn assert_each_verb_says(world: &World, store: &ObjectStore, variables: &Variables, words: &[&str]) {
        assert_each_says(&VERBS, world, store, variables, words);
    }

    #[track_caller]
    fn assert_each_says(lines: &[&str], world: &World, store: &ObjectStore, variables: &Variables, words: &[&str]) {
        for line in lines {
            let ended = run(world, variables, line).refused_once(1, words);
            assert!(!ended.err.contains(store.secret_key()), "{ended}");
        }
        world.assert_no_copy();
    }

    #[test]
    fn every_verb_names_what_is_wrong_with_a_repository() {
        let (world, store) = (world(), store());
        run(&world, &store.environment(), "backup sqlite:app.db --repo night").done();
        let before = keys(&store);
        let says = |name, value: &str, words: &[&str]| {
            assert_each_verb_says(&world, &store, &with(&store, name, value), words);
        };
        says(
            "AWS_SECRET_ACCESS_KEY",
            "wrong-wrong-wrong",
            &["s3://media/night/", "secret key", "AWS_SECRET_ACCESS_KEY"],
        );
        says("AWS_ACCESS_KEY_ID", "NOBODY", &["s3://media/night/", "does not know this access key"]);
        says("AWS_REGION", "eu-north-7", &["s3://media/night/", "region", "set AWS_REGION"]);
        says("AWS_ENDPOINT_URL", "http://127.0.0.1:9", &["s3://media/night/", "nothing listens", "AWS_ENDPOINT_URL"]);
        for line in VERBS.map(|line| line.replace("--repo night", "--repo nowhere")) {
            run(&world, &store.environment(), &line).refused_once(2, &["s3://no-such-bucket/night/", "no such bucket"]);
        }
        assert_eq!(keys(&store), before);
    }

    #[test]
    fn a_clock_that_differs_from_the_stores_is_named() {
        let (world, store) = (world(), store());
        let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Error {
            status: 403,
            code: "RequestTimeTooSkewed",
            retry_after: None,
            done: false,
        });
        let variables = store.environment_at(proxy.endpoint());
        let words = ["s3://media/", "the clock of this machine differs", "set the clock"];
        assert_each_verb_says(&world, &store, &variables, &words);
        run(&world, &variables, "backup sqlite:app.db --to s3://media/a.bore").refused_once(1, &words);
        assert_nothing_is_left(&store);
    }

    /// A server with a certificate whose time is over; killed when dropped.
    struct Expired(Child);

    impl Drop for Expired {
        fn drop(&mut self) {
            let _ = self.0.kill(); // It may have ended.
            let _ = self.0.wait();
        }
    }

    /// That server, its port and the file with its authority.
    fn expired(world: &World) -> (Expired, u16) {
        let openssl = |arguments: &str| {
            let mut command = Command::new("openssl");
            command.current_dir(world.folder()).args(arguments.split_whitespace());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let authority =
            b"[ca]\ndefault_ca = d\n[d]\ndatabase = index\nnew_certs_dir = .\nserial = serial\ndefault_md = sha256\n\
            policy = p\ncertificate = ca.pem\nprivate_key = ca.key\nx509_extensions = e\n[p]\ncommonName = supplied\n\
            [e]\nsubjectAltName = IP:127.0.0.1\nbasicConstraints = CA:FALSE\nextendedKeyUsage = serverAuth\n";
        world.write("authority", authority);
        world.write("index", b"");
        world.write("serial", b"01");
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
        for line in [
            format!("req -x509 {key} -days 30 -subj /CN=tests -keyout ca.key -out ca.pem"),
            format!("req {key} -subj /CN=localhost -keyout server.key -out request.pem"),
            "ca -batch -notext -config authority -startdate 200101000000Z -enddate 200102000000Z -in request.pem -out server.pem"
                .to_owned(),
        ] {
            assert!(openssl(&line).status().unwrap().success(), "openssl {line}");
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let line = format!("s_server -accept 127.0.0.1:{port} -cert server.pem -key server.key -www");
        let server = Expired(openssl(&line).spawn().unwrap());
        wait_until("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        (server, port)
    }

    #[test]
    fn a_certificate_that_is_over_or_of_nobody_and_a_port_without_tls_are_told_apart() {
        let (world, store) = (world(), store());
        let (server, port) = expired(&world);
        let mut variables = with(&store, "AWS_ENDPOINT_URL", &format!("https://127.0.0.1:{port}"));
        variables.push(("AWS_CA_BUNDLE", world.at("ca.pem").display().to_string()));
        assert_each_says(&VERBS[..2], &world, &store, &variables, &["s3://media/night/", "certificate", "expired"]);
        drop(server);
        let tls = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new().tls());
        let mut variables = tls.environment();
        variables.retain(|(name, _)| *name != "AWS_CA_BUNDLE");
        variables.push(("AWS_CA_BUNDLE", world.at("ca.pem").display().to_string()));
        assert_each_says(
            &VERBS[..2],
            &world,
            &store,
            &variables,
            &["s3://media/night/", "certificate", "AWS_CA_BUNDLE"],
        );
        let plain = with(&store, "AWS_ENDPOINT_URL", &store.endpoint().replace("http:", "https:"));
        assert_each_says(&VERBS[..2], &world, &store, &plain, &["s3://media/night/", "does not speak TLS", "http://"]);
        let mut to_tls = with(&tls, "AWS_ENDPOINT_URL", &tls.endpoint().replace("https:", "http:"));
        to_tls.retain(|(name, _)| *name != "AWS_CA_BUNDLE");
        // versitygw says nothing to who speaks without TLS.
        run(&world, &to_tls, VERBS[1]).refused_once(1, &["s3://media/night/", "the connection was cut", "https://"]);
        assert_nothing_is_left(&store);
    }

    #[test]
    fn a_store_without_multipart_uploads_is_named() {
        let (world, store) = (world(), store());
        for (status, code) in [(501, "NotImplemented"), (400, "InvalidRequest"), (405, "MethodNotAllowed")] {
            let proxy = FaultProxy::start(store.endpoint(), move |request| match request.operation() {
                "CreateMultipartUpload" => Fault::Error { status, code, retry_after: None, done: false },
                _ => Fault::Pass,
            });
            let variables = store.environment_at(proxy.endpoint());
            let words = ["s3://media/", "cannot begin to write it", "multipart uploads"];
            run(&world, &variables, "backup sqlite:app.db --to s3://media/a.bore").refused_once(1, &words);
            assert_nothing_is_left(&store);
            run(&world, &variables, "backup sqlite:app.db --repo night").refused_once(1, &words);
            let left: Vec<String> = keys(&store).into_iter().filter(|key| !key.contains("/.fullbore/")).collect();
            assert_eq!((left, store.uploads("media")), (Vec::new(), Vec::new()));
            keys(&store).iter().for_each(|key| store.client().delete("media", key));
        }
    }

    /// What a store does that takes no notice of a condition: the old object is gone when the new one comes.
    fn without_conditions(store: &ObjectStore) -> impl Fn(&Request) -> Fault + Send + Sync + 'static {
        let client = store.client();
        move |request| {
            if request.header("if-none-match").is_some() {
                client.delete("media", request.path.trim_start_matches("/media/"));
            }
            Fault::Pass
        }
    }

    #[test]
    fn a_store_without_conditional_writes_is_named_where_two_could_meet() {
        let (world, store) = (world(), store());
        let proxy = FaultProxy::start(store.endpoint(), without_conditions(&store));
        let variables = store.environment_at(proxy.endpoint());
        run(&world, &variables, "backup sqlite:app.db --repo night")
            .refused_once(1, &["probe-", "If-None-Match", "--to"]);
        run(&world, &variables, "backup sqlite:app.db --to s3://media/app.bore")
            .refused_once(1, &["s3://media/app.bore", "If-None-Match", "a prefix that ends in `/`"]);
        assert_nothing_is_left(&store);
        // Under names that nobody else has there is nothing to agree upon.
        run(&world, &variables, "backup sqlite:app.db --to s3://media/plain/").done();
        run(&world, &variables, "verify --from s3://media/plain/").done();
    }

    #[test]
    fn a_part_or_an_object_of_a_size_that_the_store_does_not_take_is_one_error() {
        let (world, store) = (world(), store());
        for (operation, code, why) in [
            ("UploadPart", "EntityTooLarge", "larger than the store takes"),
            ("CompleteMultipartUpload", "EntityTooSmall", "too small for the store"),
            ("CompleteMultipartUpload", "EntityTooLarge", "larger than the store takes"),
        ] {
            let proxy = FaultProxy::start(store.endpoint(), move |request| match request.operation() == operation {
                true => Fault::Error { status: 400, code, retry_after: None, done: false },
                false => Fault::Pass,
            });
            let line = "backup sqlite:app.db --to s3://media/a.bore";
            run(&world, &store.environment_at(proxy.endpoint()), line).refused_once(1, &["s3://media/a.bore", why]);
            assert_nothing_is_left(&store);
        }
    }

    #[test]
    fn an_object_that_goes_or_is_replaced_in_the_middle_of_a_read_is_named_and_nothing_is_restored() {
        let (world, store) = (world(), store());
        let variables = store.environment();
        let more = "CREATE TABLE more AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30) \
                    SELECT i, randomblob(1000000) AS blob FROM n";
        database::sql(&world.at("app.db"), more);
        run(&world, &variables, "backup sqlite:app.db --repo night --compression none").done();
        let key = keys(&store).into_iter().find(|key| key.ends_with(".bore")).unwrap();
        let whole = store.client().get("media", &key).unwrap();
        for (what, why) in [("gone", "it is not there"), ("cut", "replaced meanwhile"), ("other", "replaced meanwhile")]
        {
            for line in ["restore --repo night --into sqlite:copy.db", "verify --repo night --latest"] {
                store.client().put("media", &key, &whole);
                let (client, done) = (store.client(), AtomicBool::new(false));
                let (of, bytes) = (key.clone(), whole.clone());
                let proxy = FaultProxy::start(store.endpoint(), move |request| {
                    let start =
                        request.header("range").and_then(|range| range.strip_prefix("bytes=")?.split('-').next());
                    let offset: u64 = start.and_then(|start| start.parse().ok()).unwrap_or(0);
                    // Not its footer, which is looked at first.
                    let within = (4 << 20..20 << 20).contains(&offset) && request.path.ends_with(&of);
                    if request.method == "GET" && within && !done.swap(true, Ordering::Relaxed) {
                        match what {
                            "gone" => client.delete("media", &of),
                            "cut" => client.put("media", &of, &bytes[..bytes.len() / 2]),
                            _ => client.put("media", &of, &[&bytes[..], b"more"].concat()),
                        }
                    }
                    Fault::Pass
                });
                // So long that the request which waits for the change is not given up and sent again before it.
                let line = format!("--device-timeout 120 {line} --queue-depth 2");
                let ended = run(&world, &store.environment_at(proxy.endpoint()), &line);
                assert!([1, 3].contains(&ended.code), "{what}: {ended}");
                let code = ended.code;
                ended.refused_once(code, &[&key, why]);
                world.assert_no_copy();
            }
        }
        store.client().put("media", &key, &whole);
        run(&world, &variables, "restore --repo night --into sqlite:copy.db").done();
        world.assert_copy();
    }

    #[test]
    fn a_repository_of_a_newer_fullbore_in_a_store_is_left_alone() {
        let (world, store) = (world(), store());
        let variables = store.environment();
        run(&world, &variables, "backup sqlite:app.db --repo night").done();
        let record = store.client().get("media", "night/.fullbore/repository.json").unwrap();
        let newer = String::from_utf8(record).unwrap().replace("\"format\": 2", "\"format\": 3");
        store.client().put("media", "night/.fullbore/repository.json", newer.as_bytes());
        let before = keys(&store);
        assert_each_verb_says(
            &world,
            &store,
            &variables,
            &["repository.json", "newer fullbore", "use the newer fullbore"],
        );
        assert_eq!(keys(&store), before);
    }

    /// Only in the end the store is away: what the run has begun stays, and it has ended all the same.
    #[test]
    fn prune_removes_leftovers_of_a_failed_run_and_nothing_else() {
        let (world, store) = (world(), store());
        let variables = store.environment();
        run(&world, &variables, "backup sqlite:app.db --repo night").done();
        let whole = keys(&store).into_iter().filter(|key| key.ends_with(".bore")).count();
        let proxy = FaultProxy::start(store.endpoint(), |request| match request.operation() {
            "UploadPart" | "AbortMultipartUpload" | "DeleteObject" | "DeleteObjects" => Fault::INTERNAL_ERROR,
            _ => Fault::Pass,
        });
        let line = "backup sqlite:app.db --repo night --stripes 2";
        run(&world, &store.environment_at(proxy.endpoint()), line).with_code(1);
        let claims = || keys(&store).into_iter().filter(|key| key.ends_with(".claim")).collect::<Vec<_>>();
        assert_eq!((claims().len(), store.uploads("media").len()), (2, 2), "nothing could be tidied up");
        // What no run of the repository has begun is somebody else's.
        store.client().put("media", "night/else.bore.claim", b"{}");
        store.client().demand(&Call::new("POST", "/media/night/else.bore").query("uploads", ""));
        // And this run is at work.
        let words = "backup sqlite:app.db --repo night --throttle 256KiB/s --max-transfer-size 64KiB";
        let mut command = program::command(world.folder(), words.split_whitespace());
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        let running = program::start(command);
        wait_until("it has claimed its key", || claims().len() == 4);
        running.stop();
        let ended = run(&world, &variables, "prune --repo night --confirm --grace 0s").done();
        assert!(ended.err.contains("it ended, but could not tidy up; its files were removed"), "{ended}");
        assert_eq!(claims().len(), 2, "{:?}", claims());
        running.go_on();
        running.wait().done();
        assert_eq!(claims(), ["night/else.bore.claim"]);
        assert_eq!(store.uploads("media").into_iter().map(|(key, _)| key).collect::<Vec<_>>(), ["night/else.bore"]);
        assert_eq!(keys(&store).into_iter().filter(|key| key.ends_with(".bore")).count(), whole + 1);
        run(&world, &variables, "verify --repo night").done();
    }

    /// It goes on with the same run's next set, and what it could not tidy up of the one before is found beside it.
    #[test]
    fn a_prune_removes_abandoned_sets_of_a_running_log_follower() {
        let (world, store) = (world(), store());
        let app = crate::log::kept_open(&world);
        let variables = store.environment();
        run(&world, &variables, "backup sqlite:app.db --repo night").done();
        let fails = std::sync::Arc::new(AtomicBool::new(false));
        let failing = std::sync::Arc::clone(&fails);
        let proxy = FaultProxy::start(store.endpoint(), move |request| match request.operation() {
            "UploadPart" | "AbortMultipartUpload" | "DeleteObject" | "DeleteObjects"
                if failing.load(Ordering::Relaxed) =>
            {
                Fault::INTERNAL_ERROR
            }
            _ => Fault::Pass,
        });
        let words = "log follow sqlite:app.db --repo night --interval 200ms".split_whitespace();
        let mut command = program::command(world.folder(), words);
        command.envs(store.environment_at(proxy.endpoint()));
        let follower = program::start(command);
        let claims = || keys(&store).into_iter().filter(|key| key.ends_with(".claim")).count();
        let logs = || keys(&store).into_iter().filter(|key| key.contains("-log-") && key.ends_with(".bore")).count();
        wait_until("the follower is there", || keys(&store).iter().filter(|key| key.contains("/tasks/")).count() > 1);
        app.execute_batch("CREATE TABLE followed AS SELECT 1 AS n").unwrap();
        wait_until("a set is stored, and its claim is gone", || logs() == 1 && claims() == 0);
        fails.store(true, Ordering::Relaxed);
        app.execute_batch("CREATE TABLE again AS SELECT 1 AS n").unwrap();
        wait_until("a set was given up, and another is tried", || claims() > 1);
        fails.store(false, Ordering::Relaxed);
        wait_until("it was stored at last", || logs() > 1);
        let ended = run(&world, &variables, "prune --repo night --confirm --grace 0s");
        assert!(ended.code == 0 && ended.err.contains("a set that it gave up"), "{ended}");
        assert_eq!((claims(), store.uploads("media")), (0, Vec::new()));
        app.execute_batch("CREATE TABLE more AS SELECT 2 AS n").unwrap();
        follower.signal("TERM");
        let ended = follower.wait();
        assert!([0, 4].contains(&ended.code), "{ended}");
        run(&world, &variables, "restore --repo night --into sqlite:copy.db").done();
        assert_eq!(database::number(&world.at("copy.db"), "SELECT n FROM more"), 2);
    }

    #[test]
    fn a_record_that_comes_back_changed_is_asked_for_again_and_is_not_believed() {
        let (world, store) = (world(), store());
        let variables = store.environment();
        run(&world, &variables, "backup sqlite:app.db --repo night").done();
        let good = run(&world, &variables, "list --repo night --json").done().json();
        std::fs::remove_dir_all(world.at("state")).unwrap();
        for times in [1, 1000] {
            let proxy = FaultProxy::start(store.endpoint(), move |request| {
                let is_record = request.method == "GET" && request.path.contains("/.fullbore/sets/");
                // In the middle of a number: still JSON.
                if is_record && request.attempt < times { Fault::FlipAnswer(100) } else { Fault::Pass }
            });
            let ended = run(&world, &store.environment_at(proxy.endpoint()), "list --repo night --json");
            assert!(proxy.faults() > 0);
            if times == 1 {
                assert_eq!(ended.done().json(), good);
            } else {
                // Its media tell the same.
                let ended = ended.with_code(4).says(&["/.fullbore/sets/", "differ from those that were written"]);
                assert_eq!(ended.json(), good);
            }
            let _ = std::fs::remove_dir_all(world.at("state")); // It may not have come so far.
        }
    }

    #[test]
    fn a_record_in_a_store_that_is_larger_than_any_locks_nobody_out_who_only_reads() {
        let (world, store) = (world(), store());
        let variables = store.environment();
        run(&world, &variables, "backup sqlite:app.db --repo night").done();
        let record = keys(&store).into_iter().find(|key| key.contains("/.fullbore/sets/")).unwrap();
        for key in [&record[..], "night/.fullbore/tasks/large.json"] {
            store.client().put("media", key, &vec![b' '; (1 << 20) + 1]);
        }
        std::fs::remove_dir_all(world.at("state")).unwrap();
        for line in [
            "list --repo night",
            "verify --repo night",
            "restore --repo night --into sqlite:copy.db",
            "tasks --repo night",
            "check --repo night --max-age 26h",
        ] {
            run(&world, &variables, line).with_code(4).says(&["tasks/large.json", "1048577 bytes"]);
        }
        world.assert_copy();
        let refused = run(&world, &variables, "prune --repo night --confirm --grace 0s");
        refused.refused_once(3, &["tasks/large.json", "at most 1048576 were expected"]);
    }

    /// A busy repository has thousands of them, and a prune asks four times who runs.
    #[test]
    fn a_prune_reads_what_a_run_that_has_ended_says_of_itself_once() {
        let (world, store) = (world(), store());
        for _ in 0..3 {
            run(&world, &store.environment(), "backup sqlite:app.db --repo night").done();
        }
        run(&world, &store.environment(), "verify --repo night").done();
        let ended: Vec<String> = keys(&store).into_iter().filter(|key| key.contains("/tasks/")).collect();
        assert_eq!(ended.len(), 4, "{ended:?}");
        let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Pass);
        let pruned =
            run(&world, &store.environment_at(proxy.endpoint()), "prune --repo night --confirm --grace 0s --json");
        assert_eq!(pruned.done().json()["deleted"].as_array().unwrap().len(), 2);
        let asked = proxy.requests();
        for key in ended {
            let times = asked.iter().filter(|seen| seen.request.method == "GET" && seen.request.path.ends_with(&key));
            assert_eq!(times.count(), 1, "{key}");
        }
    }

    #[test]
    fn one_of_two_prunes_in_a_store_works_and_the_other_names_it() {
        let (world, store) = (world(), store());
        let variables = store.environment();
        run(&world, &variables, "backup sqlite:app.db --repo night").done();
        run(&world, &variables, "backup sqlite:app.db --repo night").done();
        run(&world, &variables, "verify --repo night --latest").done();
        let words = "prune --repo night --confirm --grace 4s --json".split_whitespace();
        let mut command = program::command(world.folder(), words);
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        let first = program::start(command);
        wait_until("the first has said what is to go", || keys(&store).iter().any(|key| key.contains("/tombstones/")));
        // However long the other takes to come.
        first.stop();
        let second = run(&world, &variables, "prune --repo night --confirm --grace 0s");
        second.refused_once(1, &["another prune runs", "fullbore cancel"]);
        first.go_on();
        let pruned = first.wait().done().json();
        assert_eq!(pruned["deleted"].as_array().unwrap().len(), 1, "{pruned}");
        run(&world, &variables, "restore --repo night --into sqlite:copy.db").done();
        world.assert_copy();
    }
}
