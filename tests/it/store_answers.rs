//! Answers of stores that nobody should believe: they lead to another host, or have no end. In a module of this name, so that tests with servers
//! are found by it.

mod object_store {
    use fullbore_test_servers::{Fault, FaultProxy, ObjectStore, Request, StoreKind, StoreOptions};

    use crate::database::Shape;
    use crate::program::{self, Ended};
    use crate::world::World;

    type Variables = Vec<(&'static str, String)>;

    const SECRET: &str = "SESSIONTOKENSECRET";

    fn store() -> ObjectStore {
        let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
        store.make_bucket("media");
        store
    }

    fn run(world: &World, variables: &Variables, line: &str) -> Ended {
        let mut command = program::command(world.folder(), line.split_whitespace());
        command.envs(variables.iter().map(|(name, value)| (*name, value)));
        program::run(command)
    }

    fn azure_at(endpoint: &str) -> Variables {
        vec![
            ("AZURE_STORAGE_ENDPOINT", format!("{endpoint}/shop")),
            ("AZURE_STORAGE_ACCOUNT_NAME", "shop".into()),
            ("AZURE_STORAGE_SAS_TOKEN", format!("sv=2024-11-04&sig={SECRET}")),
        ]
    }

    /// A proxy before a store that sends requests to `elsewhere` for which `rule` says so.
    fn redirecting(
        store: &ObjectStore,
        elsewhere: &FaultProxy,
        status: u16,
        rule: impl Fn(&Request) -> bool + Send + Sync + 'static,
    ) -> FaultProxy {
        let to = elsewhere.endpoint().to_owned();
        FaultProxy::start(store.endpoint(), move |request| match rule(request) {
            true => Fault::Redirect { status, to: to.clone() },
            false => Fault::Pass,
        })
    }

    #[test]
    fn no_store_sends_a_request_with_its_token_to_another_host() {
        let (world, store) = (World::with_database(), store());
        let elsewhere = FaultProxy::start(store.endpoint(), |_| Fault::Pass);
        for status in [301, 302, 307, 308] {
            let proxy = redirecting(&store, &elsewhere, status, |_| true);
            let mut s3 = store.environment_at(proxy.endpoint());
            s3.push(("AWS_SESSION_TOKEN", SECRET.into()));
            let google = vec![("STORAGE_EMULATOR_HOST", proxy.endpoint().to_owned())];
            let kinds =
                [("s3", s3, "AWS_REGION"), ("az", azure_at(proxy.endpoint()), "AZURE_"), ("gs", google, "GOOGLE_")];
            for (scheme, variables, hint) in kinds {
                for line in [
                    format!("backup sqlite:app.db --to {scheme}://media/night/"),
                    format!("backup sqlite:app.db --to {scheme}://media/one.bore"),
                    format!("list --from {scheme}://media/night/"),
                    format!("restore --from {scheme}://media/one.bore --into sqlite:copy.db"),
                    format!("backup sqlite:app.db --repo {scheme}://media/repository/"),
                    format!("check --repo {scheme}://media/repository/ --max-age 1d"),
                ] {
                    let host = format!("the store redirects to {}", elsewhere.endpoint());
                    let ended = run(&world, &variables, &line).refused_once(1, &[&host, "trust that host", hint]);
                    assert!(!ended.err.contains(SECRET), "{ended}");
                }
            }
        }
        world.assert_no_copy();
        assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
    }

    #[test]
    fn parts_of_a_backup_and_ranges_of_a_restore_stay_with_the_store_that_was_named() {
        let world = World::with_shape(Shape { rows: 40_000, ..Shape::default() });
        let (store, line) = (store(), "backup sqlite:app.db --to s3://media/one.bore --compression none");
        let elsewhere = FaultProxy::start(store.endpoint(), |_| Fault::Pass);
        let host = format!("the store redirects to {}", elsewhere.endpoint());
        for (status, operation) in [(301, "UploadPart"), (307, "UploadPart"), (308, "CompleteMultipartUpload")] {
            let proxy = redirecting(&store, &elsewhere, status, move |request| request.operation() == operation);
            let variables = store.environment_at(proxy.endpoint());
            run(&world, &variables, line).refused_once(1, &[&host, "elsewhere-7", "AWS_ENDPOINT_URL"]);
            assert!(store.objects("media").is_empty() && store.uploads("media").is_empty());
        }
        run(&world, &store.environment(), line).done();
        let proxy = redirecting(&store, &elsewhere, 307, |request| {
            request.operation() == "GetObject" && request.attempt == 0 && request.number > 8
        });
        let variables = store.environment_at(proxy.endpoint());
        let restored = run(&world, &variables, "restore --from s3://media/one.bore --into sqlite:copy.db");
        restored.refused_once(1, &[&host]);
        world.assert_no_copy();
        assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
    }

    #[test]
    fn a_key_service_that_redirects_is_not_followed() {
        let (world, store) = (World::with_database(), store());
        let elsewhere = FaultProxy::start(store.endpoint(), |_| Fault::Pass);
        let proxy = redirecting(&store, &elsewhere, 307, |_| true);
        let at = proxy.endpoint();
        let token = world.at("token");
        std::fs::write(&token, SECRET).unwrap();
        let client = [("AZURE_STORAGE_ENDPOINT", format!("{at}/shop")), ("AZURE_STORAGE_ACCOUNT_NAME", "shop".into())];
        let mut identity = client.to_vec();
        identity
            .extend([("AZURE_IDENTITY_ENDPOINT", format!("{at}/identity")), ("AZURE_IDENTITY_HEADER", SECRET.into())]);
        let cases: [(&str, Variables); 3] = [
            ("s3", vec![("AWS_ENDPOINT_URL", at.into()), ("AWS_METADATA_ENDPOINT", at.into())]),
            (
                "s3",
                vec![
                    ("AWS_ENDPOINT_URL", at.into()),
                    ("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("{at}/keys")),
                    ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.display().to_string()),
                ],
            ),
            ("az", identity),
        ];
        for (scheme, variables) in cases {
            let before = proxy.requests().len();
            let ended = run(&world, &variables, &format!("list --from {scheme}://media/night/"));
            assert!(ended.code != 0 && !ended.err.contains(SECRET), "{ended}");
            assert!(proxy.requests().len() > before, "nobody was asked for keys: {ended}");
        }
        assert!(elsewhere.requests().is_empty(), "{:?}", elsewhere.requests());
    }

    #[test]
    fn an_answer_without_an_end_is_left_after_some_mib() {
        let (world, store) = (World::with_database(), store());
        for status in [200, 403] {
            let proxy = FaultProxy::start(store.endpoint(), move |_| Fault::Flood { status });
            let google = vec![("STORAGE_EMULATOR_HOST", proxy.endpoint().to_owned())];
            let kinds = [
                ("s3", store.environment_at(proxy.endpoint()), "8 MiB", 48),
                ("az", azure_at(proxy.endpoint()), "32 MiB", 72),
                ("gs", google, "8 MiB", 48),
            ];
            for (scheme, variables, bound, most) in kinds {
                let mut lines = vec![format!("list --from {scheme}://media/night/")];
                // Of a success the head alone may be read.
                if status == 403 {
                    lines.push(format!("backup sqlite:app.db --to {scheme}://media/night/"));
                    lines.push(format!("check --repo {scheme}://media/repository/ --max-age 1d"));
                }
                for line in lines {
                    let words = format!("the store's answer is longer than {bound}");
                    run(&world, &variables, &line).refused_once(1, &[&format!("{scheme}://media/"), &words]);
                }
                let longest = proxy.requests().iter().map(|seen| seen.answered_bytes).max().unwrap();
                // What stands in sockets is not read.
                assert!(longest < most << 20, "{scheme}: {longest} bytes were taken");
            }
        }
    }

    #[test]
    fn a_listing_that_leads_back_to_itself_is_left() {
        let (world, store) = (World::with_database(), store());
        let proxy = FaultProxy::start(store.endpoint(), |request| match request.operation() {
            "ListObjectsV2" => Fault::Answer {
                body: "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken>\
                       </ListBucketResult>",
            },
            _ => Fault::Pass,
        });
        let ended = run(&world, &store.environment_at(proxy.endpoint()), "list --from s3://media/night/");
        ended.refused_once(1, &["s3://media/night/", "the store's listing does not end"]);
        assert!(proxy.requests().len() < 10);
    }

    #[test]
    fn a_key_that_is_a_prefix_of_others_is_refused_as_a_directory_is() {
        let (world, store) = (World::with_database(), store());
        let variables = store.environment();
        run(&world, &variables, "backup sqlite:app.db --to s3://media/night/").done();
        let ended = run(&world, &variables, "backup sqlite:app.db --to s3://media/night");
        ended.refused_once(2, &["s3://media/night", "there are objects below it", "end it with `/`"]);
        let ended = run(&world, &variables, "copy --from s3://media/night/ --to s3://media/night");
        ended.refused_once(2, &["s3://media/night", "there are objects below it"]);
        run(&world, &variables, "backup sqlite:app.db --to s3://media/nigh").done();
        assert_eq!((store.objects("media").len(), store.uploads("media").len()), (2, 0));
    }

    #[test]
    fn a_request_that_fails_for_long_is_told_of_while_it_is_tried_again() {
        let (world, store) = (World::with_database(), store());
        let proxy = FaultProxy::start(store.endpoint(), |request| match request.operation() {
            "UploadPart" if request.attempt < 7 => Fault::INTERNAL_ERROR,
            _ => Fault::Pass,
        });
        let variables = store.environment_at(proxy.endpoint());
        let ended = run(&world, &variables, "backup sqlite:app.db --to s3://media/one.bore").done();
        assert!(
            ended.err.contains("note: retrying PUT /media/one.bore (") && ended.err.contains(": InternalError"),
            "{ended}"
        );
        assert!(ended.err.lines().filter(|line| line.contains("retrying")).count() < 5, "{ended}");
        proxy.set_rule(|request| match request.operation() {
            "UploadPart" if request.attempt < 7 => Fault::INTERNAL_ERROR,
            _ => Fault::Pass,
        });
        let ended = run(&world, &variables, "backup sqlite:app.db --to s3://media/two.bore --quiet").done();
        assert!(!ended.err.contains("retrying"), "{ended}");
    }

    #[test]
    fn a_key_that_is_taken_by_nothing_is_asked_for_again_and_then_said_in_these_words() {
        let (world, store) = (World::with_database(), store());
        let taken = Fault::Error { status: 412, code: "PreconditionFailed", retry_after: None, done: false };
        let once = taken.clone();
        let proxy = FaultProxy::start(store.endpoint(), move |request| match request.operation() {
            "PutObject" if request.attempt == 0 => once.clone(),
            _ => Fault::Pass,
        });
        let variables = store.environment_at(proxy.endpoint());
        run(&world, &variables, "backup sqlite:app.db --to s3://media/night/").done();
        proxy.set_rule(move |request| if request.operation() == "PutObject" { taken.clone() } else { Fault::Pass });
        let line = "backup sqlite:app.db --to s3://media/night/ --device-timeout 4";
        let ended = run(&world, &variables, line);
        let words = "the store refuses this key as taken (412), but then finds no object there";
        ended.refused_once(1, &["cannot write it", words]);
    }
}
