//! The gateway in a bad world: a second gateway in front of the same repository, a disk that is full, and a repository in an
//! object store.

use fullbore_test_servers::{Call, ObjectStore, S3Client, StoreKind, StoreOptions, wait_until};

use crate::gateway::{begin, bytes, complete, part, prepared, started, started_with, wait_for};
use crate::program;
use crate::small_disk::SmallDisk;

/// Uploads two parts, and completes; the status and the text of the last answer.
fn upload(client: &S3Client, key: &str, parts: [&[u8]; 2]) -> (u16, String) {
    let id = begin(client, key);
    let sent: Vec<(u32, String)> = (1..)
        .zip(parts)
        .map(|(number, body)| (number, client.demand(&part(key, &id, number, body)).header("etag").unwrap().to_owned()))
        .collect();
    let answer = client.send(&complete(key, &id, &sent)).unwrap();
    (answer.status, answer.text())
}

#[test]
fn two_gateways_of_one_repository_lose_no_object_and_agree_on_the_newest_one() {
    let world = prepared("compression = \"none\"");
    let gateways = [started(&world, ""), started(&world, "")];
    let objects: Vec<[Vec<u8>; 2]> =
        (0..4_u64).map(|seed| [bytes(seed, 1_200_000), bytes(seed + 10, 70_000)]).collect();
    // At once: each of them writes an object of its own, and the same key twice.
    std::thread::scope(|scope| {
        for (at, gateway) in gateways.iter().enumerate() {
            let client = &gateway.client;
            let [own, shared] = [&objects[at], &objects[at + 2]];
            scope.spawn(move || {
                let key = format!("own{at}");
                assert_eq!(upload(client, &key, [&own[0], &own[1]]).0, 200);
            });
            scope.spawn(move || {
                let (status, text) = upload(client, "shared", [&shared[0], &shared[1]]);
                assert!(status == 200 && text.contains("CompleteMultipartUploadResult"), "{status} {text}");
            });
        }
    });
    // An object of the other gateway that was never asked for is found at once.
    for (at, gateway) in gateways.iter().enumerate() {
        std::thread::sleep(std::time::Duration::from_secs(2));
        let other = 1 - at;
        assert!(gateway.client.get("nightly", &format!("own{other}")) == Some(objects[other].concat()), "{other}");
    }
    // Both objects of the same key are there, as two versions; every gateway gives the one that was completed last.
    let listed = world.run("list --repo nightly --json").done().json();
    let versions: Vec<&serde_json::Value> =
        listed.as_array().unwrap().iter().filter(|set| set["database"] == "shared").collect();
    assert_eq!(versions.len(), 2, "{listed}");
    let third = started(&world, "");
    let newest = third.client.get("nightly", "shared").unwrap();
    assert!([&objects[2], &objects[3]].iter().any(|parts| parts.concat() == newest));
    for gateway in gateways {
        // A gateway gives a key that it knows for half a minute without a look at the repository. One that nobody has makes it look.
        assert!(gateway.client.get("nightly", "none").is_none());
        assert!(gateway.client.get("nightly", "shared").unwrap() == newest);
        gateway.running.signal("TERM");
        gateway.running.wait().done();
    }
    world.run("verify --repo nightly").done();
    let etag = third.client.demand(&Call::new("HEAD", "/nightly/shared")).header("etag").unwrap().to_owned();
    third.client.delete("nightly", "shared");
    assert_eq!(third.client.get("nightly", "shared"), None, "{etag}");
}

#[test]
fn a_full_disk_fails_an_upload_with_its_reason_and_the_next_small_one_succeeds() {
    let world = prepared("");
    let name = "a_full_disk_fails_an_upload_with_its_reason_and_the_next_small_one_succeeds";
    let Some(disk) = SmallDisk::mount(&world, "small", 6, name) else { return };
    let place = world.at("small").display().to_string();
    world.write(
        "fullbore.toml",
        format!("[repository.nightly]\nto = [\"{place}/\"]\ncompression = \"none\"\n").as_bytes(),
    );
    let gateway = started(&world, "");
    let client = &gateway.client;
    let names = disk.names();
    let big = bytes(1, 8 << 20);
    // The connection may end while the client still sends: then it has no answer.
    let put = Call::new("PUT", "/nightly/big");
    let whole = (0..20).find_map(|_| client.send(&put.clone().body(&big)).ok()).unwrap();
    assert_eq!(
        (whole.status, whole.element("Code").as_deref()),
        (507, Some("InsufficientStorage")),
        "{}",
        whole.text()
    );
    assert!(whole.text().contains("small"), "{}", whole.text());
    gateway.running.says("upload of `big` failed");
    let id = begin(client, "parts");
    // The end of a part may be in buffers when its answer comes. The next part tells the error.
    let mut parts = (1..4).map(|number| client.send(&part("parts", &id, number, &big)));
    let failed = parts.find(|sent| sent.as_ref().map_or(true, |answer| answer.status != 200)).unwrap();
    if let Ok(failed) = failed {
        assert_eq!((failed.status, failed.element("Code").as_deref()), (507, Some("InsufficientStorage")));
    }
    // The upload has ended with its disk: it cannot be completed.
    let sum = "\"d41d8cd98f00b204e9800998ecf8427e\"".to_owned();
    let answer = client.send(&complete("parts", &id, &[(1, sum)])).unwrap();
    assert!(!answer.text().contains("CompleteMultipartUploadResult"), "{}", answer.text());
    for key in ["big", "parts"] {
        assert_eq!(client.get("nightly", key), None, "{key}");
    }
    wait_until("nothing is left of them", || disk.names() == names);
    let small = bytes(2, 1 << 20);
    client.put("nightly", "small", &small);
    assert!(client.get("nightly", "small") == Some(small));
    gateway.running.signal("TERM");
    gateway.running.wait().done();
}

#[test]
fn a_repository_in_an_object_store_takes_uploads_and_gives_them_back() {
    for kind in [StoreKind::Versitygw, StoreKind::Minio] {
        takes_uploads_and_gives_them_back(kind);
    }
}

fn takes_uploads_and_gives_them_back(kind: StoreKind) {
    let (world, store) = (prepared(""), ObjectStore::start(kind, &StoreOptions::new()));
    store.make_bucket("media");
    world.write("fullbore.toml", b"[repository.nightly]\nto = [\"s3://media/nightly/\"]\ncompression = \"zstd\"\n");
    let environment = store.environment();
    let gateway = started_with(&world, "", &environment);
    let client = &gateway.client;
    let [first, second, small] = [bytes(1, 5 << 20), bytes(2, 300_000), bytes(3, 1000)];
    let (status, text) = upload(client, "big.bin", [&first, &second]);
    assert!(status == 200 && text.contains("CompleteMultipartUploadResult"), "{status} {text}");
    client.put("nightly", "small", &small);
    let whole = [&first[..], &second].concat();
    assert!(client.get("nightly", "big.bin") == Some(whole.clone()));
    let range = Call::new("GET", "/nightly/big.bin").header("range", "bytes=5242870-5242890");
    assert!(client.demand(&range).body == whole[5_242_870..5_242_891]);
    // An upload that ends without its end leaves nothing in the store, and neither does a cut body.
    let id = begin(client, "aborted");
    client.demand(&part("aborted", &id, 1, &first));
    client.demand(&Call::new("DELETE", "/nightly/aborted").query("uploadId", &id));
    assert!(store.objects("media").iter().all(|object| !object.key.contains("aborted")));
    wait_for(|| store.uploads("media").is_empty());
    client.put("nightly", "small", b"newer");
    client.delete("nightly", "small");
    assert_eq!(client.get("nightly", "small"), None);
    gateway.running.signal("TERM");
    gateway.running.wait().done();
    let run = |line: &str| {
        let mut command = program::command(world.folder(), line.split_whitespace());
        command.envs(environment.clone());
        program::run(command)
    };
    run("verify --repo nightly").done();
    run("restore --repo nightly --database big.bin --into object:out --mkdir").done();
    assert!(world.read("out/big.bin") == whole);
}
