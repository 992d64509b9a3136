//! Object Lock and prune: what is locked stays, whole, also where the account may not know of it. In a module of this name, so that tests with
//! servers are found by it.

mod object_store {
    use std::process::Command;

    use fullbore_test_servers::{Call, ObjectStore, StoreKind, StoreOptions};

    use crate::database::Shape;
    use crate::program::{self, Ended};
    use crate::world::World;

    const PRUNE: &str = "prune --repo vault --grace 0s";
    /// What docs/object-stores.md asks of the account.
    const USUAL: &str = r#""s3:GetObject","s3:PutObject","s3:DeleteObject","s3:ListBucket","s3:ListBucketMultipartUploads","s3:AbortMultipartUpload","s3:ListMultipartUploadParts""#;
    const LOCKS: &str = r#","s3:GetObjectRetention","s3:GetObjectLegalHold""#;

    type Variables = Vec<(&'static str, String)>;

    fn run(world: &World, variables: &Variables, line: &str) -> Ended {
        let mut command: Command = program::command(world.folder(), line.split_whitespace());
        command.envs(variables.clone());
        program::run(command)
    }

    fn world(more: &str) -> World {
        let world = World::with_shape(Shape { rows: 150, ..Shape::default() });
        let text = format!(
            "[repository.vault]\nto = [\"s3://vault/\"]\nstripes = 2\n{more}\n[repository.vault.keep]\nlast = 1\n"
        );
        world.write("fullbore.toml", text.as_bytes());
        world
    }

    fn lockable(kind: StoreKind) -> ObjectStore {
        let store = ObjectStore::start(kind, &StoreOptions::new().versioning());
        store.make_bucket_with_object_lock("vault");
        store
    }

    /// As many fulls, all verified; the ids, oldest first.
    fn fulls(world: &World, variables: &Variables, count: usize) -> Vec<String> {
        for _ in 0..count {
            run(world, variables, "backup sqlite:app.db --repo vault --kind full").done();
        }
        run(world, variables, "verify --repo vault").done();
        let listed = run(world, variables, "list --repo vault --json").json();
        listed.as_array().unwrap().iter().map(|set| set["backup_set_id"].as_str().unwrap().to_owned()).collect()
    }

    fn families(store: &ObjectStore) -> Vec<String> {
        let keys = store.objects("vault").into_iter().map(|object| object.key);
        keys.filter(|key| key.ends_with(".bore")).collect()
    }

    /// The second family of a set, as its record names it.
    fn second_family(store: &ObjectStore, id: &str) -> String {
        let record = store.get("vault", &format!(".fullbore/sets/{id}.json"));
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
        record["families"][1]["name"].as_str().unwrap().to_owned()
    }

    fn put(store: &ObjectStore, key: &str, what: &str, body: &str) {
        store.client().demand(&Call::new("PUT", &format!("/vault/{key}")).query(what, "").part(body.as_bytes()));
    }

    /// Keys of MinIO's for an hour that may do this and nothing else.
    fn account(store: &ObjectStore, actions: &str) -> Variables {
        let policy = format!(
            r#"{{"Version":"2012-10-17","Statement":[{{"Effect":"Allow","Action":[{actions}],"Resource":["arn:aws:s3:::vault","arn:aws:s3:::vault/*"]}}]}}"#
        );
        let mut curl = Command::new("curl");
        curl.args(["-q", "--silent", "--show-error", "--noproxy", "*", "--aws-sigv4"]);
        curl.arg(format!("aws:amz:{}:sts", store.region()));
        curl.args(["--user", &format!("{}:{}", store.access_key(), store.secret_key())]);
        curl.args(["--data", "Action=AssumeRole&Version=2011-06-15&DurationSeconds=3600", "--data-urlencode"]);
        let answer = curl.arg(format!("Policy={policy}")).arg(format!("{}/", store.endpoint())).output().unwrap();
        let text = String::from_utf8(answer.stdout).unwrap();
        let element = |name: &str| {
            let inside = text.split_once(&format!("<{name}>")).and_then(|(_, rest)| rest.split_once("</"));
            inside.unwrap_or_else(|| panic!("no {name}: {text}")).0.to_owned()
        };
        let ours = [
            ("AWS_ACCESS_KEY_ID", element("AccessKeyId")),
            ("AWS_SECRET_ACCESS_KEY", element("SecretAccessKey")),
            ("AWS_SESSION_TOKEN", element("SessionToken")),
        ];
        let mut variables = store.environment();
        variables.retain(|(name, _)| ours.iter().all(|(own, _)| own != name));
        variables.extend(ours);
        variables
    }

    #[test]
    fn a_lock_on_any_family_keeps_its_whole_set() {
        for kind in [StoreKind::Versitygw, StoreKind::Minio] {
            let (world, store) = (world(""), lockable(kind));
            let variables = store.environment();
            let ids = fulls(&world, &variables, 4);
            let until = "<Retention xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Mode>GOVERNANCE</Mode>\
                         <RetainUntilDate>2099-01-01T00:00:00Z</RetainUntilDate></Retention>";
            put(&store, &second_family(&store, &ids[0]), "retention", until);
            let held = "<LegalHold xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Status>ON</Status></LegalHold>";
            put(&store, &second_family(&store, &ids[1]), "legal-hold", held);
            let planned = run(&world, &variables, PRUNE).done().says(&["s3://vault", "NoncurrentVersionExpiration"]);
            let text = planned.text();
            assert!(
                text.contains("1 of 4 sets can be removed") && text.contains("locked until 2099-01-01"),
                "{kind:?}: {planned}"
            );
            assert!(text.contains("locked, and the end of the lock is not known"), "{kind:?}: {planned}");
            let pruned = run(&world, &variables, &format!("{PRUNE} --confirm --json")).done().json();
            assert_eq!(pruned["deleted"], serde_json::json!([ids[2]]), "{kind:?}");
            assert_eq!(families(&store).len(), 6, "{kind:?}");
            for id in &ids[..2] {
                run(&world, &variables, &format!("restore --repo vault --set {id} --into sqlite:{id}.db")).done();
            }
        }
    }

    #[test]
    fn a_version_with_an_unknown_lock_is_kept() {
        let (world, store) = (world("lock-until = \"1d\"\nlock-mode = \"compliance\""), lockable(StoreKind::Minio));
        fulls(&world, &store.environment(), 2);
        let blind = account(&store, USUAL);
        let ended = run(&world, &blind, &format!("{PRUNE} --confirm")).with_code(4);
        let ended =
            ended.says(&["kept: 1 set, whose lock state is unknown", "s3:GetObjectRetention", "s3:GetObjectLegalHold"]);
        assert!(ended.text().contains("removed: 0 sets"), "{ended}");
        assert_eq!(families(&store).len(), 4);
        let sees = account(&store, &format!("{USUAL}{LOCKS}"));
        let ended = run(&world, &sees, &format!("{PRUNE} --confirm")).done();
        assert!(ended.text().contains("locked until") && ended.text().contains("removed: 0 sets"), "{ended}");
        assert_eq!(families(&store).len(), 4);
    }

    #[test]
    fn an_account_that_may_ask_for_nothing_prunes_where_nothing_can_be_locked() {
        let (world, store) = (world(""), ObjectStore::start(StoreKind::Minio, &StoreOptions::new()));
        store.make_bucket("vault");
        let blind = account(&store, USUAL);
        fulls(&world, &blind, 2);
        let ended = run(&world, &blind, &format!("{PRUNE} --confirm")).done();
        assert!(ended.text().contains("removed: 1 set"), "{ended}");
        assert!(!ended.err.contains("NoncurrentVersionExpiration"), "{ended}");
        assert_eq!(families(&store).len(), 2);
    }

    #[test]
    fn a_locked_family_that_a_killed_backup_has_left_does_not_stop_prune() {
        let (world, store) = (world("lock-until = \"1d\""), lockable(StoreKind::Versitygw));
        let variables = store.environment();
        let ids = fulls(&world, &variables, 2);
        // The newer one is as if its host had died between the commits of its families.
        let key = store.objects("vault").into_iter().map(|object| object.key).filter(|key| key.contains("/tasks/"));
        let of_it = |key: &String| {
            let record: serde_json::Value = serde_json::from_slice(&store.get("vault", key)).unwrap();
            record["writes"] == ids[1].as_str()
        };
        let key = key.into_iter().find(of_it).unwrap();
        let mut task: serde_json::Value = serde_json::from_slice(&store.get("vault", &key)).unwrap();
        (task["state"], task["ended_at"], task["lease_s"]) = ("IN_PROGRESS".into(), serde_json::Value::Null, 0.into());
        store.put("vault", &key, task.to_string().as_bytes());
        let second = second_family(&store, &ids[1]);
        store.remove("vault", &second.replace("-2of2", "-1of2"));
        store.remove("vault", &format!(".fullbore/sets/{}.json", ids[1]));
        let keys = store.objects("vault").into_iter().map(|object| object.key);
        let on_it = format!("/verdicts/{}.", ids[1]);
        keys.filter(|key| key.contains(&on_it)).for_each(|key| store.remove("vault", &key));
        std::thread::sleep(std::time::Duration::from_millis(2100)); // Its clock tells whole seconds.
        let said = "its files are locked; a later prune removes them";
        for _ in 0..2 {
            let ended = run(&world, &variables, &format!("{PRUNE} --confirm")).says(&[said]);
            assert!(ended.text().contains("removed: 0 sets") && [0, 4].contains(&ended.code), "{ended}");
            assert!(families(&store).contains(&second) && families(&store).len() == 3, "{:?}", families(&store));
        }
    }
}
