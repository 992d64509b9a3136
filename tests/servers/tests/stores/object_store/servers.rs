//! The S3 servers themselves: that they do what a backup's safety rests on, and never outlive the test.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use fullbore_test_servers::{Call, Object, ObjectStore, StoreKind, StoreOptions, wait_until};

fn versitygw() -> ObjectStore {
    ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new())
}

fn alive(pid: u32) -> bool {
    // A process that has ended and was not waited for is not alive.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn crc32c(bytes: &[u8]) -> String {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    BASE64.encode(u32::try_from(sum).unwrap().to_be_bytes())
}

#[test]
fn an_object_comes_back_to_who_has_the_secret_and_to_nobody_else() {
    let store = versitygw();
    let client = store.client();
    store.make_bucket("backups");
    let key = "a folder/ü+&=%.bore";
    let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    client.put("backups", key, &bytes);
    assert_eq!(client.get("backups", key).unwrap(), bytes);
    assert_eq!(client.get("backups", "nothing"), None);
    assert_eq!(store.objects("backups"), [Object { key: key.to_owned(), size: bytes.len() as u64 }]);
    assert!(store.data().join("backups").join(key).is_file());

    let get = Call::new("GET", &format!("/backups/{key}"));
    let wrong = client.clone().with_secret("wrong").send(&get).unwrap();
    assert_eq!((wrong.status, wrong.element("Code").as_deref()), (403, Some("SignatureDoesNotMatch")));
    let nobody = client.send(&get.unsigned()).unwrap();
    assert_eq!((nobody.status, nobody.element("Code").as_deref()), (403, Some("AccessDenied")));

    client.delete("backups", key);
    assert_eq!(store.objects("backups"), []);
}

#[test]
fn no_command_line_knows_the_secret_and_two_stores_have_different_ones() {
    let (one, two) = (versitygw(), versitygw());
    for pid in [one.pid(), one.supervisor()] {
        let command_line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(command_line.contains("versitygw") && !command_line.contains(one.secret_key()), "{command_line}");
    }
    assert!(!format!("{one:?} {:?}", one.client()).contains(one.secret_key()));
    assert!(!one.log().contains(one.secret_key()));
    assert_ne!((one.access_key(), one.secret_key(), one.port()), (two.access_key(), two.secret_key(), two.port()));
    let environment = one.environment();
    let of = |name: &str| environment.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str());
    assert_eq!(of("AWS_ENDPOINT_URL"), Some(one.endpoint()));
    assert_eq!(of("AWS_SECRET_ACCESS_KEY"), Some(one.secret_key()));
    assert_eq!(of("AWS_CA_BUNDLE"), None);
}

#[test]
fn a_listing_of_more_than_one_page_is_whole() {
    let store = versitygw();
    store.make_bucket("backups");
    for number in 0..2_345 {
        // A file there is an object: faster than as many requests.
        fs::write(store.data().join(format!("backups/{number:05}")), "x").unwrap();
    }
    let keys: Vec<String> = store.objects("backups").into_iter().map(|object| object.key).collect();
    assert_eq!(keys, (0..2_345).map(|number| format!("{number:05}")).collect::<Vec<_>>());
}

#[test]
fn a_killed_store_comes_back_at_the_same_place_with_its_objects() {
    let mut store = versitygw();
    store.make_bucket("backups");
    store.client().put("backups", "kept", b"bytes");
    let (first, endpoint) = (store.pid(), store.endpoint().to_owned());
    store.kill();
    assert!(!alive(first));
    assert_eq!(store.client().send(&Call::new("GET", "/")).unwrap_err().code, 7);
    store.start_again();
    assert_eq!(store.endpoint(), endpoint);
    assert_eq!(store.client().get("backups", "kept").unwrap(), b"bytes");
}

#[test]
fn a_store_outlives_the_thread_that_started_it_and_is_gone_when_it_is_dropped() {
    let store = thread::spawn(versitygw).join().unwrap();
    thread::sleep(Duration::from_millis(200));
    store.make_bucket("backups");
    let (server, supervisor, data) = (store.pid(), store.supervisor(), store.data());
    drop(store);
    assert!(!alive(server) && !alive(supervisor) && !data.exists());
}

/// Not a test: what `a_store_is_gone_when_…` starts as a process of its own, in order to kill it.
#[test]
#[ignore = "started by another test"]
fn a_process_with_a_store() {
    let store = versitygw();
    println!("\nstore {} {} {}", store.pid(), store.supervisor(), store.data().display());
    thread::sleep(Duration::from_secs(60));
}

/// That process, and the server's, the supervisor's, and the data's place.
fn process_with_a_store() -> (Child, u32, u32, PathBuf) {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process
        .args(["--exact", "object_store::servers::a_process_with_a_store", "--ignored", "--nocapture"])
        .stdout(Stdio::piped());
    let mut process = process.spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.starts_with("store ")).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let (server, supervisor, data) = (words[1].parse().unwrap(), words[2].parse().unwrap(), words[3].into());
    assert!(alive(server) && alive(supervisor));
    (process, server, supervisor, data)
}

#[test]
fn a_store_is_gone_when_its_process_is_killed() {
    let (mut process, server, supervisor, data) = process_with_a_store();
    process.kill().unwrap();
    process.wait().unwrap();
    wait_until("the server and its supervisor ended with their process", || !alive(server) && !alive(supervisor));
    wait_until("the directory is removed", || !data.exists() && !data.parent().unwrap().exists());
}

#[test]
fn a_store_is_gone_when_its_supervisor_is_killed() {
    let (mut process, server, supervisor, data) = process_with_a_store();
    assert!(Command::new("kill").args(["-KILL", &supervisor.to_string()]).status().unwrap().success());
    wait_until("the server ended with its supervisor", || !alive(server));
    process.kill().unwrap();
    process.wait().unwrap();
    // Nobody is left to remove it.
    fs::remove_dir_all(data.parent().unwrap()).unwrap();
}

#[test]
fn a_server_that_is_not_installed_says_what_to_run() {
    let nowhere = tempfile::tempdir().unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "object_store::servers::a_process_with_a_store", "--ignored", "--nocapture"]);
    let done = process.env("FULLBORE_TEST_SERVERS", nowhere.path()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains("tests/servers/install-stores versitygw`"), "{said}");
}

#[test]
fn one_of_sixteen_creators_of_an_object_wins() {
    let store = versitygw();
    store.make_bucket("backups");
    for round in 0..3 {
        let path = format!("/backups/claim-{round}");
        let put = |number: u8| Call::new("PUT", &path).header("If-None-Match", "*").body(&[number; 1000]);
        let client = store.client();
        let send = |number: u8| (number, client.send(&put(number)).unwrap().status);
        let statuses = thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|number| {
                    scope.spawn({
                        let send = &send;
                        move || send(number)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let winners: Vec<u8> = statuses.iter().filter(|answer| answer.1 == 200).map(|answer| answer.0).collect();
        assert_eq!(winners.len(), 1, "{statuses:?}");
        assert!(statuses.iter().all(|answer| matches!(answer.1, 200 | 409 | 412)), "{statuses:?}");
        assert_eq!(store.client().get("backups", &path["/backups/".len()..]).unwrap(), [winners[0]; 1000]);
    }
}

#[test]
fn a_multipart_upload_is_checked_part_by_part_and_visible_only_when_it_is_complete() {
    let store = versitygw();
    let client = store.client();
    store.make_bucket("backups");
    let object = || Call::new("POST", "/backups/big");
    let begun = client.demand(&object().query("uploads", "").header("x-amz-checksum-algorithm", "CRC32C"));
    let id = begun.element("UploadId").unwrap();
    let parts = [vec![1_u8; 5 << 20], vec![2; 5 << 20], vec![3; 1000]];
    let put = |number: usize, sum: &str| {
        let call = Call::new("PUT", "/backups/big").query("partNumber", &number.to_string()).query("uploadId", &id);
        client.send(&call.header("x-amz-checksum-crc32c", sum).body(&parts[number - 1])).unwrap()
    };
    let refused = put(1, &crc32c(b"something else"));
    assert_eq!((refused.status, refused.element("Code").as_deref()), (400, Some("BadDigest")));
    let mut listed = String::new();
    for (number, part) in (1..).zip(&parts) {
        let answer = put(number, &crc32c(part));
        assert_eq!((answer.status, answer.header("x-amz-checksum-crc32c")), (200, Some(crc32c(part).as_str())));
        let (tag, sum) = (answer.header("etag").unwrap(), crc32c(part));
        let part = format!("<ETag>{tag}</ETag><PartNumber>{number}</PartNumber><ChecksumCRC32C>{sum}</ChecksumCRC32C>");
        listed += &format!("<Part>{part}</Part>");
    }
    assert_eq!(store.objects("backups"), []);
    assert_eq!(store.uploads("backups"), [("big".to_owned(), id.clone())]);
    let body = format!("<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>");
    let done = client.demand(&object().query("uploadId", &id).body(body.as_bytes()));
    let sums: Vec<u8> = parts.iter().flat_map(|part| BASE64.decode(crc32c(part)).unwrap()).collect();
    assert_eq!(done.element("ChecksumCRC32C"), Some(format!("{}-3", crc32c(&sums))));
    assert_eq!(client.get("backups", "big").unwrap(), parts.concat());
    assert_eq!(store.uploads("backups"), []);
}

#[test]
fn over_tls_who_knows_the_authority_is_answered() {
    let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new().tls());
    assert!(store.endpoint().starts_with("https://127.0.0.1:"));
    store.make_bucket("backups");
    store.client().put("backups", "sealed", b"bytes");
    assert_eq!(store.client().get("backups", "sealed").unwrap(), b"bytes");
    let unknown = store.client().without_ca().send(&Call::new("GET", "/")).unwrap_err();
    assert_eq!(unknown.code, 60, "{unknown}");
    let ca = store.ca().unwrap().display().to_string();
    assert!(store.environment().contains(&("AWS_CA_BUNDLE", ca)));
}

#[test]
fn a_request_for_another_region_is_refused() {
    let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new().region("eu-central-1"));
    store.make_bucket("backups");
    assert!(store.environment().contains(&("AWS_REGION", "eu-central-1".to_owned())));
    let wrong = store.client().in_region("us-east-1").send(&Call::new("GET", "/backups")).unwrap();
    assert_eq!((wrong.status, wrong.element("Code").as_deref()), (400, Some("AuthorizationHeaderMalformed")));
}

#[test]
fn a_locked_version_stays_until_its_day_and_another_bucket_has_no_versions() {
    let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new().versioning());
    let client = store.client();
    store.make_bucket_with_object_lock("locked");
    let path = "/locked/full.bore";
    let put = Call::new("PUT", path).body(b"first").header("x-amz-object-lock-mode", "COMPLIANCE");
    let written = client.demand(&put.header("x-amz-object-lock-retain-until-date", "2099-01-01T00:00:00Z"));
    let version = written.header("x-amz-version-id").unwrap().to_owned();
    client.put("locked", "full.bore", b"second");
    let refused = client.send(&Call::new("DELETE", path).query("versionId", &version)).unwrap();
    assert_eq!((refused.status, refused.element("Code").as_deref()), (403, Some("AccessDenied")));
    assert_eq!(client.get("locked", "full.bore").unwrap(), b"second");
    let first = client.demand(&Call::new("GET", path).query("versionId", &version));
    assert_eq!(first.body, b"first");

    store.make_bucket("plain");
    let plain = client.demand(&Call::new("PUT", "/plain/a").body(b"first"));
    assert_eq!(plain.header("x-amz-version-id"), None);
}

#[test]
fn one_of_eight_uploads_and_eight_creations_of_an_object_wins() {
    let store = versitygw();
    let client = store.client();
    store.make_bucket("backups");
    let complete = |number: u8| {
        let object = |method: &str| Call::new(method, "/backups/claim");
        let id = client.demand(&object("POST").query("uploads", "")).element("UploadId").unwrap();
        let part = object("PUT").query("partNumber", "1").query("uploadId", &id).body(&[number; 1000]);
        let tag = client.demand(&part).header("etag").unwrap().to_owned();
        let part = format!("<Part><ETag>{tag}</ETag><PartNumber>1</PartNumber></Part>");
        let body = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
        object("POST").query("uploadId", &id).body(body.as_bytes())
    };
    let put = |number: u8| Call::new("PUT", "/backups/claim").body(&[number; 1000]);
    let calls: Vec<Call> = (0..16).map(|number| if number % 2 == 0 { put(number) } else { complete(number) }).collect();
    let statuses = thread::scope(|scope| {
        let client = &client;
        let send = move |call: Call| client.send(&call.header("If-None-Match", "*")).unwrap().status;
        let threads: Vec<_> = calls.into_iter().map(|call| scope.spawn(move || send(call))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let winners: Vec<usize> = (0..16).filter(|number| statuses[*number] == 200).collect();
    assert!(winners.len() == 1 && statuses.iter().all(|status| matches!(status, 200 | 409 | 412)), "{statuses:?}");
    assert_eq!(client.get("backups", "claim").unwrap(), [u8::try_from(winners[0]).unwrap(); 1000]);
}

#[test]
fn a_bucket_is_named_by_the_host_and_parts_are_limited_if_that_is_wanted() {
    let options = StoreOptions::new().virtual_host("localhost").max_parts(3);
    let store = ObjectStore::start(StoreKind::Versitygw, &options);
    store.make_bucket("backups");
    store.client().put("backups", "by-path", b"bytes");
    let host = store.client().at(&format!("http://backups.localhost:{}", store.port()));
    assert_eq!(host.demand(&Call::new("GET", "/by-path")).body, b"bytes");

    let object = |method: &str| Call::new(method, "/backups/big");
    let begun = store.client().demand(&object("POST").query("uploads", ""));
    let part = object("PUT").query("uploadId", &begun.element("UploadId").unwrap());
    let status = |number: &str| store.client().send(&part.clone().query("partNumber", number)).unwrap().status;
    assert_eq!((status("3"), status("4")), (200, 400));
}

#[test]
fn minio_starts_locks_conditions_and_comes_back_too() {
    for options in [StoreOptions::new(), StoreOptions::new().tls()] {
        let mut store = ObjectStore::start(StoreKind::Minio, &options);
        store.make_bucket_with_object_lock("backups");
        let create = Call::new("PUT", "/backups/claim").header("If-None-Match", "*").body(b"mine");
        assert_eq!(store.client().send(&create).unwrap().status, 200);
        assert_eq!(store.client().send(&create).unwrap().status, 412);
        store.kill();
        store.start_again();
        assert_eq!(store.objects("backups"), [Object { key: "claim".to_owned(), size: 4 }]);
    }
}
