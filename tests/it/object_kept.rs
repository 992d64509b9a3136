//! How stores keep families: what is asked for is sent, looked up, and refused where a store ignores it. In a module of this name, so that
//! tests with servers are found by it.

mod object_store {
    use std::os::unix::fs::FileExt;
    use std::process::Command;
    use std::time::Duration;

    use fullbore_test_servers::{Call, Fault, FaultProxy, ObjectStore, Plan, StoreKind, StoreOptions, wait_until};

    use crate::database;
    use crate::program::{self, Ended};
    use crate::world::World;

    fn run_at(world: &World, store: &ObjectStore, endpoint: &str, line: &str) -> Ended {
        let mut command: Command = program::command(world.folder(), line.split_whitespace());
        command.envs(store.environment_at(endpoint));
        program::run(command)
    }

    fn run(world: &World, store: &ObjectStore, line: &str) -> Ended {
        run_at(world, store, store.endpoint(), line)
    }

    fn keys(store: &ObjectStore) -> Vec<String> {
        store.objects("media").into_iter().map(|object| object.key).collect()
    }

    /// What the store says of an object, by another client.
    fn header(store: &ObjectStore, key: &str, name: &str) -> Option<String> {
        store.client().demand(&Call::new("HEAD", &format!("/media/{key}"))).header(name).map(str::to_owned)
    }

    fn lockable(kind: StoreKind) -> ObjectStore {
        let store = ObjectStore::start(kind, &StoreOptions::new().versioning());
        store.make_bucket_with_object_lock("media");
        store
    }

    #[test]
    fn class_and_tags_are_sent_with_the_request_that_begins_an_object_and_with_no_other() {
        let (world, store) = (World::with_database(), ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new()));
        store.make_bucket("media");
        let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Pass);
        let line = "backup sqlite:app.db --to s3://media/night/ --stripes 2 --storage-class STANDARD --tag team=pay+roll --tag a=b";
        run_at(&world, &store, proxy.endpoint(), line).done();
        let seen = proxy.requests();
        let begun: Vec<_> = seen.iter().filter(|seen| seen.request.operation() == "CreateMultipartUpload").collect();
        assert_eq!(begun.len(), 2);
        for seen in &seen {
            let begins = seen.request.operation() == "CreateMultipartUpload";
            assert_eq!(seen.request.header("x-amz-tagging"), begins.then_some("team=pay%2Broll&a=b"));
            assert_eq!(seen.request.header("x-amz-storage-class"), begins.then_some("STANDARD"));
        }
        let tags =
            store.client().demand(&Call::new("GET", &format!("/media/{}", keys(&store)[0])).query("tagging", ""));
        assert!(tags.text().contains("pay+roll"), "{}", tags.text());
    }

    #[test]
    fn a_class_that_the_store_does_not_have_is_a_warning_and_tags_that_it_loses_too() {
        let (world, store) = (World::with_database(), ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new()));
        store.make_bucket("media");
        // Whatever it is asked for, versitygw keeps everything as STANDARD.
        let line = "backup sqlite:app.db --to s3://media/a.bore --storage-class STANDARD_IA --tag team=pay";
        let ended = run(&world, &store, line).with_code(4).says(&["warning: ", "s3://media/a.bore", "STANDARD_IA"]);
        assert!(!ended.err.contains("the tag"), "{ended}");
        let client = store.client();
        let proxy = FaultProxy::start(store.endpoint(), move |request| {
            if request.method == "GET" && request.parameter("tagging").is_some() {
                client.demand(&Call::new("DELETE", &request.path).query("tagging", ""));
            }
            Fault::Pass
        });
        let line = "backup sqlite:app.db --to s3://media/b.bore --tag team=pay";
        run_at(&world, &store, proxy.endpoint(), line).with_code(4).says(&["s3://media/b.bore", "the tag `team`"]);
        run(&world, &store, "verify --from s3://media/").done();
    }

    #[test]
    fn every_family_is_locked_and_its_claim_is_not() {
        for kind in [StoreKind::Versitygw, StoreKind::Minio] {
            let (world, store) = (World::with_database(), lockable(kind));
            let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Pass);
            let line = "backup sqlite:app.db --to s3://media/night/ --stripes 2 --lock-until 30d";
            run_at(&world, &store, proxy.endpoint(), line).done();
            let made = keys(&store);
            assert_eq!(made.len(), 2, "{made:?}");
            for key in &made {
                let until = store.client().demand(&Call::new("GET", &format!("/media/{key}")).query("retention", ""));
                assert_eq!(until.element("Mode").as_deref(), Some("GOVERNANCE"), "{kind:?}");
            }
            for seen in proxy.requests() {
                let begins = seen.request.operation() == "CreateMultipartUpload";
                assert_eq!(seen.request.header("x-amz-object-lock-mode"), begins.then_some("GOVERNANCE"));
            }
            run(&world, &store, "verify --from s3://media/night/").done();
        }
    }

    #[test]
    fn init_over_what_is_locked_is_refused_with_its_date_before_anything_is_written() {
        for kind in [StoreKind::Versitygw, StoreKind::Minio] {
            let (world, store) = (World::with_database(), lockable(kind));
            let line = "backup sqlite:app.db --to s3://media/app.bore";
            run(&world, &store, &format!("{line} --lock-until 2099-01-02T03:04:05Z --lock-mode governance")).done();
            let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Pass);
            let ended = run_at(&world, &store, proxy.endpoint(), &format!("{line} --init"));
            ended.refused(1, "s3://media/app.bore", "locked until 2099-01-02T03:04:05Z");
            let writes = proxy
                .requests()
                .iter()
                .filter(|seen| seen.request.method != "GET" && seen.request.method != "HEAD")
                .count();
            assert_eq!(writes, 0, "{:?}", proxy.counts());
        }
    }

    /// The lock is short, so that a thirtieth of its time, after which a follower moves it, is soon over.
    #[test]
    fn each_set_of_a_followed_log_is_locked_from_its_own_time_and_what_it_stands_on_for_as_long() {
        const LOCKED: Duration = Duration::from_secs(90);
        let (world, store) = (World::with_database(), lockable(StoreKind::Versitygw));
        world.write("fullbore.toml", b"[repository.night]\nto = [\"s3://media/night/\"]\nlock-until = \"90s\"\n");
        database::sql(&world.at("app.db"), "PRAGMA journal_mode = wal; CREATE TABLE ledger (n INTEGER)");
        let app = crate::log::kept_open(&world);
        let mut command: Command = program::command(
            world.folder(),
            "log follow sqlite:app.db --repo night --interval 100ms".split_whitespace(),
        );
        command.envs(store.environment());
        let follower = program::start(command);
        let families = |kind: &str| -> Vec<String> {
            let of_it = keys(&store).into_iter().filter(|key| key.contains(kind) && key.ends_with(".bore"));
            of_it.collect()
        };
        let until = |key: &String| -> jiff::Timestamp {
            let told = store.client().demand(&Call::new("GET", &format!("/media/{key}")).query("retention", ""));
            told.element("RetainUntilDate").unwrap().parse().unwrap()
        };
        wait_until("a full", || families("-full-").len() == 1);
        let mut ends = Vec::new();
        for n in 0..3 {
            let (before, committed) = (families("-log-"), jiff::Timestamp::now());
            app.execute("INSERT INTO ledger VALUES (?1)", [n]).unwrap();
            wait_until("what was committed is stored", || families("-log-").len() > before.len());
            let logs = families("-log-");
            for key in logs.iter().filter(|key| !before.contains(key)) {
                assert!(until(key) >= committed + LOCKED, "{key}, committed at {committed}: {}", until(key));
                ends.push(until(key));
            }
            // Down to the full.
            let newest = ends.last().unwrap();
            for key in families("-full-").iter().chain(&logs) {
                assert!(until(key) >= *newest, "{key} until {}, what needs it until {newest}", until(key));
            }
            std::thread::sleep(LOCKED / 30);
        }
        assert!(ends.last() > ends.first(), "the lock was never moved: {ends:?}");
        follower.signal("TERM");
        let ended = follower.wait();
        assert!(ended.code == 0, "{ended}");
    }

    #[test]
    fn a_bucket_without_object_lock_is_one_clear_error_and_nothing_is_left() {
        for kind in [StoreKind::Versitygw, StoreKind::Minio] {
            let (world, store) = (World::with_database(), ObjectStore::start(kind, &StoreOptions::new().versioning()));
            store.make_bucket("media");
            let ended = run(&world, &store, "backup sqlite:app.db --to s3://media/night/ --stripes 2 --lock-until 1d");
            ended.refused(1, "s3://media", "has no Object Lock");
            assert_eq!((keys(&store), store.uploads("media")), (Vec::new(), Vec::new()));
            run(&world, &store, "backup sqlite:app.db --to s3://nowhere/a --lock-until 1d").refused(
                2,
                "s3://nowhere",
                "no such bucket",
            );
        }
    }

    #[test]
    fn a_lock_that_is_over_already_by_the_stores_clock_is_refused() {
        let (world, store) = (World::with_database(), lockable(StoreKind::Versitygw));
        let line = "backup sqlite:app.db --to s3://media/a.bore --lock-until 2020-01-01T00:00:00Z";
        run(&world, &store, line).refused(2, "--lock-until", "not in the future");
        assert!(keys(&store).is_empty());
    }

    #[test]
    fn a_store_that_ignores_encryption_is_found_out_before_the_first_part() {
        let (world, store) = (World::with_database(), ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new()));
        store.make_bucket("media");
        let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Pass);
        let ended =
            run_at(&world, &store, proxy.endpoint(), "backup sqlite:app.db --to s3://media/app.bore --sse AES256");
        ended.refused(1, "s3://media/app.bore", "it ignores --sse");
        assert!(!proxy.requests().iter().any(|seen| seen.request.operation() == "UploadPart"));
        let begun =
            proxy.requests().into_iter().find(|seen| seen.request.operation() == "CreateMultipartUpload").unwrap();
        assert_eq!(begun.request.header("x-amz-server-side-encryption"), Some("AES256"));
        assert_eq!((keys(&store), store.uploads("media")), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_store_that_encrypts_is_believed_once_it_has_said_so() {
        let (world, store) = (World::with_database(), ObjectStore::start(StoreKind::Minio, &StoreOptions::new()));
        store.make_bucket("media");
        for (sse, shown) in [("AES256", "AES256"), ("aws:kms:fullbore-tests", "aws:kms")] {
            let key = format!("{}.bore", shown.replace(':', "-"));
            run(&world, &store, &format!("backup sqlite:app.db --to s3://media/{key} --sse {sse}")).done();
            assert_eq!(header(&store, &key, "x-amz-server-side-encryption").as_deref(), Some(shown));
            run(&world, &store, &format!("verify --from s3://media/{key}")).done();
        }
        // The environment says it too, and an option wins over all of that.
        let of_environment = |line: &str| {
            let mut command: Command = program::command(world.folder(), line.split_whitespace());
            command.envs(store.environment());
            command.envs([("AWS_SERVER_SIDE_ENCRYPTION", "aws:kms"), ("AWS_SSE_KMS_KEY_ID", "fullbore-tests")]);
            program::run(command).done();
        };
        of_environment("backup sqlite:app.db --to s3://media/d.bore");
        of_environment("backup sqlite:app.db --to s3://media/e.bore --sse AES256");
        for (key, shown) in [("d.bore", "aws:kms"), ("e.bore", "AES256")] {
            assert_eq!(header(&store, key, "x-amz-server-side-encryption").as_deref(), Some(shown));
        }
        let unknown = run(&world, &store, "backup sqlite:app.db --to s3://media/c.bore --sse aws:kms:nobody");
        unknown.refused(1, "s3://media/c.bore", "cannot begin to write it");
        assert_eq!((keys(&store).len(), store.uploads("media")), (4, Vec::new()));
    }

    #[test]
    fn in_a_store_of_few_parts_they_are_as_large_as_the_estimate_demands() {
        let (world, store) =
            (World::with_database(), ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new().max_parts(10)));
        store.make_bucket("media");
        let more = "CREATE TABLE more AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 180) \
                    SELECT i, randomblob(1000000) AS blob FROM n";
        database::sql(&world.at("app.db"), more);
        let line = "backup sqlite:app.db --to s3://media/app.bore --compression none";
        // Of 16 MiB each it takes eleven.
        run(&world, &store, line).refused(1, "s3://media/app.bore", "--max-parts");
        assert_eq!((keys(&store), store.uploads("media")), (Vec::new(), Vec::new()));
        let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Pass);
        run_at(&world, &store, proxy.endpoint(), &format!("{line} --max-parts 10")).done();
        let parts = proxy.requests().iter().filter(|seen| seen.request.operation() == "UploadPart").count();
        assert!((2..=10).contains(&parts), "{parts}");
        run(&world, &store, "verify --from s3://media/app.bore").done();
    }

    #[test]
    fn more_stripes_than_destinations_are_planned_where_an_object_would_be_too_long() {
        let (world, store) = (World::with_database(), ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new()));
        store.make_bucket("media");
        // Twelve GiB of holes, and a header that says so: nobody reads them here.
        let path = world.at("app.db");
        database::sql(&path, "PRAGMA journal_mode = DELETE; PRAGMA page_size = 65536; VACUUM");
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(12 << 30).unwrap();
        file.write_all_at(&(12_u32 << 14).to_be_bytes(), 28).unwrap();
        let line = |rest: &str| format!("backup sqlite:app.db --dry-run --compression none --max-parts 100 {rest}");
        let planned = run(&world, &store, &line("--to s3://media/night/")).done();
        let planned = planned.says(&["3 stripes instead of 1", "s3://media/night/"]).text();
        assert!(planned.contains("parts of objects 192.0 MiB"), "{planned}");
        let json = run(&world, &store, &line("--to s3://media/night/ --report json")).done().json();
        assert_eq!(json["pool"]["part_bytes"], 3 * (64 << 20));
        run(&world, &store, &line("--to s3://media/a.bore")).refused(2, "s3://media/a.bore", "--stripes 3");
        run(&world, &store, &line("--to s3://media/night/ --stripes 2")).refused(2, "s3://media/night/", "--stripes 3");
        assert!(keys(&store).is_empty());
    }

    /// Kills the store in the middle of the job, which reaches it by `proxy`, and starts it again.
    fn interrupted(world: &World, store: &mut ObjectStore, proxy: &FaultProxy, line: &str, away: u64) -> Ended {
        let mut command: Command = program::command(world.folder(), line.split_whitespace());
        command.envs(store.environment_at(proxy.endpoint()));
        let running = program::start(command);
        let moves = |operation| matches!(operation, "UploadPart" | "GetObject");
        let moved = || proxy.requests().iter().filter(|seen| moves(seen.request.operation())).count();
        wait_until("some of it has been moved", || moved() > 8);
        store.kill();
        std::thread::sleep(Duration::from_secs(away));
        store.start_again();
        running.wait()
    }

    #[test]
    fn a_backup_and_a_restore_outlast_a_store_that_is_away_for_no_longer_than_was_said() {
        let (world, mut store) =
            (World::with_database(), ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new()));
        store.make_bucket("media");
        let more = "CREATE TABLE more AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 80) \
                    SELECT i, randomblob(1000000) AS blob FROM n";
        database::sql(&world.at("app.db"), more);
        // Slow enough to be found in the middle.
        let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Delay(Duration::from_millis(100)));
        let line = |outage: u64| {
            format!(
                "backup sqlite:app.db --to s3://media/night/ --stripes 2 --compression none --throttle 16MiB/s --device-timeout 8 --outage {outage}"
            )
        };
        interrupted(&world, &mut store, &proxy, &line(60), 4).done();
        run(&world, &store, "verify --from s3://media/night/").done();
        let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Delay(Duration::from_millis(100)));
        let restore =
            "restore --from s3://media/night/ --into sqlite:copy.db --queue-depth 2 --device-timeout 8 --outage 60";
        interrupted(&world, &mut store, &proxy, restore, 4).done();
        world.assert_copy();
        store.objects("media").iter().for_each(|object| store.client().delete("media", &object.key));
        let proxy = FaultProxy::start(store.endpoint(), |_| Fault::Delay(Duration::from_millis(100)));
        let ended = interrupted(&world, &mut store, &proxy, &line(2), 13);
        ended.refused(1, "s3://media/night/", "--outage");
        assert!(keys(&store).iter().all(|key| key.ends_with(".claim")), "{:?}", keys(&store));
    }

    #[test]
    fn locked_backups_through_a_store_that_fails_now_and_then_are_whole_or_not_there() {
        let (world, store) = (World::with_database(), lockable(StoreKind::Versitygw));
        let mut done = 0;
        for seed in 0..8 {
            let proxy = FaultProxy::start(store.endpoint(), Plan::seeded(seed).per_cent(25).rule());
            let line =
                format!("backup sqlite:app.db --to s3://media/{seed}/ --stripes 2 --lock-until 1d --device-timeout 9");
            let ended = run_at(&world, &store, proxy.endpoint(), &line);
            if ended.code == 0 {
                done += 1;
                run(&world, &store, &format!("verify --from s3://media/{seed}/")).done();
            } else {
                let left: Vec<String> =
                    keys(&store).into_iter().filter(|key| key.starts_with(&format!("{seed}/"))).collect();
                assert!(
                    !left.iter().any(|key| key.contains("-1of2.bore") && key.ends_with(".bore")),
                    "{left:?}: {ended}"
                );
            }
        }
        assert!(done > 0, "none was done");
    }

    #[test]
    fn store_options_are_refused_for_files_and_empty_ones_by_name() {
        let world = World::with_database();
        for (line, thing, why) in [
            ("--to a/ --lock-until 30d", "--lock-until", "only an object store"),
            ("--to s3://media/ --to a/ --sse AES256", "--sse", "only an object store"),
            ("--to s3://media/ --sse SSE-C", "--sse", "--encrypt-to"),
            ("--to s3://media/ --storage-class DEEP_ARCHIVE", "--storage-class", "GLACIER_IR"),
            ("--to s3://media/ --tag team", "--tag", "key=value"),
            ("--to s3://media/ --lock-mode compliance", "--lock-mode", "--lock-until"),
            ("--to s3://media/ --lock-until soon", "--lock-until", "14d"),
            ("--to s3://media/ --max-parts 7", "--max-parts", "between 10 and 10000"),
        ] {
            program::run(program::command(world.folder(), format!("backup sqlite:app.db {line}").split_whitespace()))
                .refused(2, thing, why);
        }
    }
}
