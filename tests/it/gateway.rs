//! The gateway, as S3 clients meet it. The clients are curl, which signs by itself.

use std::time::Duration;

use fullbore_test_servers::{Call, S3Client, wait_until};

use crate::program::{self, Running};
use crate::world::World;

pub const SECRET: &str = "0123456789abcdefSECRET";

/// A gateway with the bucket `nightly`, in a world.
pub struct Gateway {
    pub running: Running,
    pub client: S3Client,
    _ender: Ender,
}

/// Ends the gateway of a test that fails.
struct Ender(u32);

impl Drop for Ender {
    fn drop(&mut self) {
        let program = std::fs::read_link(format!("/proc/{}/exe", self.0)).unwrap_or_default();
        if program.file_name().is_some_and(|name| name == "fullbore") {
            let _ = std::process::Command::new("kill").args(["-s", "KILL", &self.0.to_string()]).status();
        }
    }
}

/// All rights, write and list, read and list.
const KEYS: &str = r#"
[[key]]
id = "ALL"
secret = "0123456789abcdefSECRET"
rights = ["write", "read", "list", "delete"]
[[key]]
id = "WRITER"
secret = "0123456789abcdefSECRET"
rights = ["write", "list"]
[[key]]
id = "READER"
secret = "0123456789abcdefSECRET"
rights = ["read", "list"]
[[key]]
id = "ELSEWHERE"
secret = "0123456789abcdefSECRET"
rights = ["write", "read", "list", "delete"]
buckets = ["other"]
"#;

/// Certificates, keys and a configuration for the bucket `nightly`, with these lines for its repository.
pub fn prepared(lines: &str) -> World {
    let world = World::new();
    std::fs::create_dir(world.at("repo")).unwrap();
    std::fs::create_dir(world.at("tls")).unwrap();
    world.run("gateway cert tls --host localhost --host 127.0.0.1").done();
    let repository = world.at("repo").display().to_string();
    std::fs::write(world.at("fullbore.toml"), format!("[repository.nightly]\nto = [\"{repository}/\"]\n{lines}\n"))
        .unwrap();
    world.write_secret("keys", KEYS.as_bytes());
    world
}

/// Starts a gateway with these options.
pub fn started(world: &World, options: &str) -> Gateway {
    started_with(world, options, &[])
}

/// The same with these variables in its environment.
pub fn started_with(world: &World, options: &str, environment: &[(&str, String)]) -> Gateway {
    let line = format!(
        "gateway --repo nightly --listen 127.0.0.1:0 --tls-cert tls/gateway.crt --tls-key tls/gateway.key --keys keys {options}"
    );
    let mut command = program::command(world.folder(), line.split_whitespace());
    command.envs(environment.iter().map(|(name, value)| (*name, value)));
    let running = program::start(command);
    running.says("listening on https://");
    let said = running.said();
    let address = said.split("listening on ").nth(1).unwrap().lines().next().unwrap().to_owned();
    let client = S3Client::new(&address, "eu-west-1", "ALL", SECRET, Some(world.at("tls/ca.crt")));
    let _ender = Ender(running.child.id());
    Gateway { running, client, _ender }
}

/// Bytes that no codec makes shorter, and that tell their place.
pub fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

/// Begins an upload; gives its id.
pub fn begin(client: &S3Client, key: &str) -> String {
    let answer = client.demand(&Call::new("POST", &format!("/nightly/{key}")).query("uploads", ""));
    answer.element("UploadId").unwrap()
}

pub fn part(key: &str, id: &str, number: u32, body: &[u8]) -> Call {
    let call = Call::new("PUT", &format!("/nightly/{key}"));
    call.query("partNumber", &number.to_string()).query("uploadId", id).body(body)
}

/// Completes an upload with these parts and their ETags.
pub fn complete(key: &str, id: &str, parts: &[(u32, String)]) -> Call {
    let one =
        |(number, etag): &(u32, String)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
    let list: String = parts.iter().map(one).collect();
    let body = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
    Call::new("POST", &format!("/nightly/{key}")).query("uploadId", id).body(body.as_bytes())
}

fn etag(answer: &fullbore_test_servers::Answer) -> String {
    answer.header("etag").unwrap().to_owned()
}

fn status(client: &S3Client, call: &Call) -> u16 {
    client.send(call).unwrap().status
}

/// No family and no file of an unfinished set.
fn families(world: &World) -> Vec<String> {
    let names = std::fs::read_dir(world.at("repo")).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).filter(|name| name != ".fullbore").collect()
}

#[test]
fn objects_come_back_byte_for_byte_whole_and_by_ranges_and_without_the_gateway() {
    let world = prepared("compression = \"zstd\"");
    let gateway = started(&world, "");
    let client = &gateway.client;
    let small = bytes(1, 100_000);
    client.put("nightly", "a/small file+ü.bin", &small);
    assert_eq!(client.get("nightly", "a/small file+ü.bin"), Some(small.clone()));
    client.put("nightly", "empty", b"");
    assert_eq!(client.get("nightly", "empty"), Some(Vec::new()));
    assert_eq!(client.get("nightly", "none"), None);
    // Parts come in another order, one of them twice with other bytes; one is not listed. There are zeros in it.
    let parts = [bytes(2, 5 << 20), vec![0; (5 << 20) + 3], bytes(3, 1_500_001)];
    let id = begin(client, "big");
    let third = etag(&client.demand(&part("big", &id, 7, &parts[2])));
    client.demand(&part("big", &id, 9, &small));
    client.demand(&part("big", &id, 2, &small));
    let first = etag(&client.demand(&part("big", &id, 1, &parts[0])));
    let second = etag(&client.demand(&part("big", &id, 2, &parts[1])));
    assert_eq!(status(client, &Call::new("HEAD", "/nightly/big")), 404);
    let answer = client.demand(&complete("big", &id, &[(1, first), (2, second), (7, third)]));
    assert!(answer.element("ETag").unwrap().ends_with("-3\""), "{}", answer.text());
    let whole = parts.concat();
    assert!(client.get("nightly", "big") == Some(whole.clone()));
    let length = whole.len();
    for (range, from, to) in [
        ("bytes=0-0".to_owned(), 0, 1),
        ("bytes=1048575-1048577".to_owned(), 1_048_575, 1_048_578),
        (format!("bytes={}-{}", (5 << 20) - 2, (10 << 20) + 9), (5 << 20) - 2, (10 << 20) + 10),
        ("bytes=-7".to_owned(), length - 7, length),
        (format!("bytes={}-", length - 1), length - 1, length),
        (format!("bytes={}-999999999999", length - 5), length - 5, length),
    ] {
        let answer = client.demand(&Call::new("GET", "/nightly/big").header("range", &range));
        assert_eq!(answer.status, 206, "{range}");
        assert!(answer.body == whole[from..to], "{range}");
        let said = format!("bytes {from}-{}/{length}", to - 1);
        assert_eq!(answer.header("content-range"), Some(&said[..]), "{range}");
    }
    let beyond = Call::new("GET", "/nightly/big").header("range", &format!("bytes={length}-"));
    assert_eq!(status(client, &beyond), 416);
    gateway.running.signal("TERM");
    gateway.running.wait().done();
    world.run("verify --repo nightly").done();
    world.run("restore --repo nightly --database big --into object:out --mkdir").done();
    assert!(std::fs::read(world.at("out/big")).unwrap() == whole);
    world.run("restore --repo nightly --database big --into object:out").with_code(1);
    world.run("restore --repo nightly --database big --into dir:out2").with_code(2);
    world.run("restore-test --repo nightly --database big").done();
}

#[test]
fn the_newest_object_of_a_key_counts_and_the_earlier_ones_are_older_sets() {
    let world = prepared("");
    let gateway = started(&world, "");
    let client = &gateway.client;
    let id = begin(client, "key");
    let sum = etag(&client.demand(&part("key", &id, 1, b"began first, completed last")));
    client.put("nightly", "key", b"between");
    assert_eq!(client.get("nightly", "key").as_deref(), Some(&b"between"[..]));
    let call = complete("key", &id, &[(1, sum)]);
    let answer = client.demand(&call);
    assert_eq!(client.get("nightly", "key").as_deref(), Some(&b"began first, completed last"[..]));
    // A client whose answer was lost asks again.
    let again = client.demand(&call);
    assert_eq!(again.element("ETag"), answer.element("ETag"));
    assert_eq!(world.run("list --repo nightly").done().text().matches("object").count(), 2);
}

#[test]
fn an_object_that_is_uploaded_after_the_clock_was_set_back_is_the_newest_all_the_same() {
    let world = prepared("");
    let gateway = started(&world, "");
    gateway.client.put("nightly", "k", b"earlier");
    gateway.running.signal("TERM");
    gateway.running.wait().done();
    // An hour later than now, as if the clock had been an hour ahead.
    let record = std::fs::read_dir(world.at("repo/.fullbore/sets")).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&record).unwrap();
    let written: serde_json::Value = serde_json::from_str(&text).unwrap();
    let moment = written["position"]["last"]["completed_at"].as_i64().unwrap();
    let ahead = moment + 3_600_000_000;
    std::fs::write(&record, text.replace(&moment.to_string(), &ahead.to_string())).unwrap();
    // The catalog of this host has the record as it was.
    std::fs::remove_dir_all(world.at("state/fullbore")).unwrap();
    let gateway = started(&world, "");
    gateway.client.put("nightly", "k", b"later");
    assert_eq!(gateway.client.get("nightly", "k").as_deref(), Some(&b"later"[..]));
    gateway.running.signal("TERM");
    gateway.running.wait().done();
    let gateway = started(&world, "");
    assert_eq!(gateway.client.get("nightly", "k").as_deref(), Some(&b"later"[..]));
}

#[test]
fn a_part_counts_only_with_the_right_bytes_and_an_upload_only_with_all_of_its_parts() {
    let world = prepared("");
    let gateway = started(&world, "");
    let client = &gateway.client;
    let id = begin(client, "k");
    let good = etag(&client.demand(&part("k", &id, 1, b"good")));
    // In base64, the MD5 and the CRC-32C of other bytes.
    let wrong = [("content-md5", "rL0Y20zC+Fzt72VPzMSk2A=="), ("x-amz-checksum-crc32c", "AAAAAA==")];
    for (name, value) in wrong {
        let answer = client.send(&part("k", &id, 2, b"bad").header(name, value)).unwrap();
        assert_eq!((answer.status, answer.element("Code").as_deref()), (400, Some("BadDigest")), "{name}");
    }
    let other = client.send(&part("k", &id, 2, b"bad").announcing(b"good")).unwrap();
    assert_eq!(other.status, 400, "{}", other.text());
    for parts in [vec![(2, good.clone())], vec![(1, "\"0123\"".to_owned())], vec![(1, good.clone()), (2, good.clone())]]
    {
        let answer = client.send(&complete("k", &id, &parts)).unwrap();
        assert_eq!((answer.status, answer.element("Code").as_deref()), (400, Some("InvalidPart")));
    }
    for number in [0, 10_001] {
        assert_eq!(status(client, &part("k", &id, number, b"x")), 400);
    }
    assert_eq!(status(client, &part("k", "unknown", 1, b"x")), 404);
    assert_eq!(client.get("nightly", "k"), None);
    client.demand(&complete("k", &id, &[(1, good)]));
    assert_eq!(client.get("nightly", "k").as_deref(), Some(&b"good"[..]));
}

#[test]
fn keys_do_what_their_rights_say_and_nothing_else() {
    let world = prepared("");
    let gateway = started(&world, "");
    let all = &gateway.client;
    all.put("nightly", "k", b"bytes");
    let get = Call::new("GET", "/nightly/k");
    let put = Call::new("PUT", "/nightly/new").body(b"new");
    let list = Call::new("GET", "/nightly").query("list-type", "2");
    let delete = Call::new("DELETE", "/nightly/k");
    for (id, statuses) in [("WRITER", [403, 200, 200, 403]), ("READER", [200, 403, 200, 403]), ("ELSEWHERE", [403; 4])]
    {
        let client = all.with_key(id);
        let found = [&get, &put, &list, &delete].map(|call| status(&client, call));
        assert_eq!(found, statuses, "{id}");
    }
    assert_eq!(status(&all.with_key("NOBODY"), &get), 403);
    assert_eq!(status(&all.clone().with_secret("0123456789abcdefWRONG"), &get), 403);
    assert_eq!(status(all, &get.clone().unsigned()), 403);
    for (minutes, wanted) in [(-20, 403), (20, 403), (10, 200), (-10, 200)] {
        assert_eq!(status(all, &get.clone().signed_at(&at(minutes))), wanted, "{minutes} minutes off");
    }
    assert_eq!(status(all, &Call::new("GET", "/unknown/k")), 404);
    assert!(all.clone().without_ca().send(&get).is_err());
    let copy = Call::new("PUT", "/nightly/copy").header("x-amz-copy-source", "/nightly/k");
    assert_eq!(status(all, &copy), 501);
    assert_eq!(status(all, &delete), 204);
    assert_eq!(status(all, &get), 404);
    assert_eq!(status(all, &delete), 204);
    assert!(!gateway.running.said().contains("SECRET"));
}

/// The present moment, moved by so many minutes, as SigV4 writes it.
fn at(minutes: i64) -> String {
    let now = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(minutes);
    now.strftime("%Y%m%dT%H%M%SZ").to_string()
}

#[test]
fn a_gateway_that_is_killed_at_any_step_of_an_upload_leaves_an_object_that_is_whole_or_none() {
    let world = prepared("compression = \"none\"");
    let object = [bytes(11, 2 << 20), bytes(12, 1 << 20)];
    let mut gateway = started(&world, "");
    for step in 0..5 {
        let key = format!("step{step}");
        let client = gateway.client.clone();
        let id = begin(&client, &key);
        let mut etags = Vec::new();
        if step >= 1 {
            etags.push((1, etag(&client.demand(&part(&key, &id, 1, &object[0])))));
        }
        // In the middle of a part, with all parts, and in the middle of Complete.
        let late = match step {
            2 => Some(part(&key, &id, 2, &object[1]).rate("200k")),
            3 | 4 => {
                etags.push((2, etag(&client.demand(&part(&key, &id, 2, &object[1])))));
                (step == 4).then(|| complete(&key, &id, &etags))
            }
            _ => None,
        };
        let sent =
            std::thread::spawn(move || late.and_then(|call| client.send(&call).ok()).map(|answer| answer.status));
        std::thread::sleep(Duration::from_millis(if step == 2 { 800 } else { 30 }));
        gateway.running.signal("KILL");
        gateway.running.wait();
        let answered = sent.join().unwrap();
        gateway = started(&world, "");
        match gateway.client.get("nightly", &key) {
            Some(found) => assert!(step == 4 && found == object.concat(), "{key}"),
            // An answer of 200 may still end with an error or with nothing.
            None => assert!(step < 4 || answered.is_none() || !world_has(&world, &key), "{key}: {answered:?}"),
        }
    }
    gateway.running.signal("TERM");
    gateway.running.wait().done();
    let verified = world.run("verify --repo nightly");
    assert!([0, 2].contains(&verified.code), "{verified:?}");
}

fn world_has(world: &World, key: &str) -> bool {
    families(world).iter().any(|name| name.starts_with(key))
}

#[test]
fn two_uploads_to_one_key_both_end_well_and_the_one_that_is_completed_later_counts() {
    let world = prepared("compression = \"none\"");
    let gateway = started(&world, "");
    let client = &gateway.client;
    let uploads: Vec<_> = (0..2_u64)
        .map(|number| {
            let (id, object) = (begin(client, "k"), bytes(20 + number, 3 << 20));
            let sum = etag(&client.demand(&part("k", &id, 1, &object)));
            (complete("k", &id, &[(1, sum)]), object)
        })
        .collect();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = uploads.iter().map(|(call, _)| scope.spawn(|| client.send(call).unwrap())).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .map(|answer| {
                assert!(answer.text().contains("CompleteMultipartUploadResult"), "{}", answer.text());
                answer.status
            })
            .collect()
    });
    assert_eq!(statuses, [200, 200]);
    let found = client.get("nightly", "k").unwrap();
    assert!(uploads.iter().any(|(_, object)| *object == found));
    assert_eq!(families(&world).len(), 2);
    // The sets tell which one was completed last.
    let records = std::fs::read_dir(world.at("repo/.fullbore/sets")).unwrap();
    let last = records.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
    let last = last.map(|text| serde_json::from_str::<serde_json::Value>(&text).unwrap()["position"]["last"].clone());
    let last = last.max_by_key(|facts| facts["completed_at"].as_i64()).unwrap();
    let head = client.demand(&Call::new("HEAD", "/nightly/k"));
    assert_eq!(head.header("etag").unwrap().trim_matches('"'), last["etag"].as_str().unwrap());
}

#[test]
fn requests_that_this_gateway_would_understand_otherwise_change_nothing() {
    let world = prepared("");
    let gateway = started(&world, "");
    let client = &gateway.client;
    client.put("nightly", "k", b"earlier");
    client.put("nightly", "k", b"later");
    let key = "/nightly/k";
    for call in [
        Call::new("DELETE", key).query("versionId", "3HL4kqtJvjVBH40Nrjfkd"),
        Call::new("DELETE", key).header("if-match", "\"0123\""),
        Call::new("GET", key).query("versionId", "3HL4kqtJvjVBH40Nrjfkd"),
        Call::new("HEAD", key).query("versionId", "null"),
        Call::new("PUT", key).header("if-none-match", "*").body(b"other"),
        Call::new("PUT", key).header("x-amz-object-lock-mode", "COMPLIANCE").body(b"other"),
        Call::new("PUT", key).header("content-encoding", "gzip").body(b"other"),
    ] {
        assert_eq!(status(client, &call), 501, "{call:?}");
    }
    for condition in ["<VersionId>old</VersionId>", "<ETag>\"0123\"</ETag>"] {
        let list = format!("<Delete><Object><Key>k</Key>{condition}</Object></Delete>");
        let answer = client.send(&Call::new("POST", "/nightly").query("delete", "").body(list.as_bytes())).unwrap();
        assert_eq!((answer.status, answer.element("Code").as_deref()), (501, Some("NotImplemented")));
    }
    assert_eq!(client.get("nightly", "k").as_deref(), Some(&b"later"[..]));
    assert_eq!(families(&world).len(), 2);
}

#[test]
fn odd_keys_are_listed_page_by_page_and_a_key_sees_its_own_buckets_only() {
    let world = prepared("");
    let gateway = started(&world, "");
    let client = &gateway.client;
    for key in ["a", "c\rd", "e"] {
        client.put("nightly", key, b"");
    }
    let (mut seen, mut token) = (Vec::new(), None::<String>);
    loop {
        let mut call = Call::new("GET", "/nightly").query("list-type", "2").query("max-keys", "1");
        call = token.iter().fold(call, |call, token| call.query("continuation-token", token));
        let answer = client.demand(&call.query("encoding-type", "url"));
        seen.extend(answer.element("Key"));
        token = answer.element("NextContinuationToken");
        if token.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["a", "c%0Dd", "e"]);
    assert_eq!(status(client, &Call::new("GET", "/nightly/a").header("range", "bytes=-5")), 416);
    let buckets = |client: &S3Client| client.demand(&Call::new("GET", "/")).text();
    assert!(buckets(client).contains("<Name>nightly</Name>"));
    assert!(!buckets(&client.with_key("ELSEWHERE")).contains("nightly"));
}

#[test]
fn lists_have_prefixes_delimiters_and_pages() {
    let world = prepared("");
    let gateway = started(&world, "");
    let client = &gateway.client;
    for key in ["a/1", "a/2", "b", "c/x/1", "c/y"] {
        client.put("nightly", key, key.as_bytes());
    }
    let listed = |query: &[(&str, &str)]| {
        let mut call = Call::new("GET", "/nightly").query("list-type", "2");
        for (name, value) in query {
            call = call.query(name, value);
        }
        let text = client.demand(&call).text();
        let between = |from: &str, to: &str| -> Vec<String> {
            text.split(from).skip(1).map(|rest| rest.split(to).next().unwrap().to_owned()).collect()
        };
        let next = between("<NextContinuationToken>", "<").pop();
        (between("<Key>", "<"), between("<CommonPrefixes><Prefix>", "<"), next)
    };
    let all = ["a/1", "a/2", "b", "c/x/1", "c/y"].map(str::to_owned).to_vec();
    assert_eq!(listed(&[]), (all.clone(), vec![], None));
    assert_eq!(listed(&[("prefix", "a/")]).0, all[..2]);
    let folders = (vec!["b".to_owned()], vec!["a/".to_owned(), "c/".to_owned()], None);
    assert_eq!(listed(&[("delimiter", "/")]), folders);
    assert_eq!(
        listed(&[("delimiter", "/"), ("prefix", "c/")]),
        (vec!["c/y".to_owned()], vec!["c/x/".to_owned()], None)
    );
    assert_eq!(listed(&[("start-after", "a/2")]).0, all[2..]);
    for delimiter in ["", "/"] {
        let (mut seen, mut token): (Vec<String>, Option<String>) = (Vec::new(), None);
        loop {
            let mut query = vec![("max-keys", "1"), ("delimiter", delimiter)];
            query.extend(token.as_deref().map(|token| ("continuation-token", token)));
            let (keys, prefixes, next) = listed(&query);
            assert_eq!(keys.len() + prefixes.len(), 1);
            seen.extend(keys.into_iter().chain(prefixes));
            match next {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        let wanted = if delimiter.is_empty() { all.clone() } else { ["a/", "b", "c/"].map(str::to_owned).to_vec() };
        assert_eq!(seen, wanted);
    }
    let old = client.demand(&Call::new("GET", "/nightly").query("prefix", "c/")).text();
    assert!(old.contains("<Key>c/x/1</Key>") && !old.contains("<Key>b</Key>"), "{old}");
    assert!(client.demand(&Call::new("GET", "/")).text().contains("<Name>nightly</Name>"));
    assert_eq!(status(client, &Call::new("HEAD", "/nightly")), 200);
    assert_eq!(status(client, &Call::new("HEAD", "/unknown")), 404);
    assert!(client.demand(&Call::new("GET", "/nightly").query("location", "")).text().contains("LocationConstraint"));
}

#[test]
fn a_spent_budget_is_told_at_the_beginning_and_comes_back_with_the_end_of_an_upload() {
    let world = prepared("compression = \"none\"");
    let gateway = started(&world, "--memory 40MiB --idle-timeout 3s");
    let client = &gateway.client;
    let create = |key: &str| Call::new("POST", &format!("/nightly/{key}")).query("uploads", "");
    let first = begin(client, "first");
    let mut begun = 1;
    let refused = loop {
        let answer = client.send(&create(&format!("more{begun}"))).unwrap();
        if answer.status != 200 {
            break answer;
        }
        begun += 1;
        assert!(begun < 10, "the budget is never spent");
    };
    assert_eq!((refused.status, refused.element("Code").as_deref()), (503, Some("SlowDown")));
    client.demand(&Call::new("DELETE", "/nightly/first").query("uploadId", &first));
    assert_eq!(status(client, &create("again")), 200);
    // The others stand still, and end by themselves.
    gateway.running.says("stood still");
    wait_until("the memory is back", || status(client, &Call::new("PUT", "/nightly/late").body(b"x")) == 200);
    wait_until("only the object is there", || families(&world).len() == 1);
}

pub fn wait_for(is_so: impl Fn() -> bool) {
    wait_until("the gateway has told it", is_so);
}

#[test]
fn a_signal_ends_an_object_that_comes_in_one_request_and_nothing_of_it_stays() {
    let world = prepared("compression = \"none\"");
    let gateway = started(&world, "");
    let slow = Call::new("PUT", "/nightly/slow").body(&bytes(30, 30 << 20)).rate("300k");
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| gateway.client.send(&slow));
        wait_until("some of it has come", || !families(&world).is_empty());
        gateway.running.signal("TERM");
        assert!(!sending.join().unwrap().is_ok_and(|answer| answer.status == 200));
    });
    gateway.running.says("was ended with the gateway");
    gateway.running.wait().done();
    assert_eq!(families(&world), Vec::<String>::new());
}

#[test]
fn the_reason_of_a_failed_upload_is_in_the_log_and_in_the_answer() {
    let world = prepared("encrypt-to = [\"k.key.pub\"]\n");
    let line =
        "gateway --repo nightly --listen 127.0.0.1:0 --tls-cert tls/gateway.crt --tls-key tls/gateway.key --keys keys";
    let refused = world.run(line);
    assert!(refused.code != 0 && format!("{refused:?}").contains("k.key.pub"), "{refused:?}");
    world.run("key new k.key --no-recovery").done();
    let gateway = started(&world, "");
    std::fs::remove_file(world.at("k.key.pub")).unwrap();
    let answer = gateway.client.send(&Call::new("PUT", "/nightly/k").body(&bytes(31, 3 << 20))).unwrap();
    assert_eq!(answer.status, 500);
    assert!(answer.text().contains("k.key.pub"), "{}", answer.text());
    gateway.running.says("upload of `k` failed");
    assert!(gateway.running.said().contains("k.key.pub"));
}

#[test]
fn a_list_of_parts_with_another_length_or_checksum_makes_no_object() {
    let world = prepared("");
    let gateway = started(&world, "");
    let client = &gateway.client;
    let id = begin(client, "k");
    let sum = etag(&client.demand(&part("k", &id, 1, b"bytes")));
    let good = complete("k", &id, &[(1, sum.clone())]);
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{sum}</ETag>\
         <ChecksumCRC32>AAAAAA==</ChecksumCRC32></Part></CompleteMultipartUpload>"
    );
    for (call, wanted) in [
        (good.clone().header("x-amz-mp-object-size", "999999"), 400),
        (good.clone().header("x-amz-checksum-crc64nvme", "AAAAAAAAAAA="), 501),
        (good.clone().header("if-none-match", "*"), 501),
        (Call::new("POST", "/nightly/k").query("uploadId", &id).body(list.as_bytes()), 400),
    ] {
        assert_eq!(status(client, &call), wanted, "{call:?}");
    }
    assert_eq!(client.get("nightly", "k"), None);
    client.demand(&good.header("x-amz-mp-object-size", "5"));
    assert_eq!(client.get("nightly", "k").as_deref(), Some(&b"bytes"[..]));
}

#[test]
fn nothing_looks_whole_after_an_abort_a_cut_a_signal_and_a_kill() {
    let world = prepared("compression = \"none\"");
    let gateway = started(&world, "");
    let client = &gateway.client;
    let aborted = begin(client, "aborted");
    client.demand(&part("aborted", &aborted, 1, &bytes(4, 3 << 20)));
    client.demand(&Call::new("DELETE", "/nightly/aborted").query("uploadId", &aborted));
    assert_eq!(status(client, &part("aborted", &aborted, 2, b"late")), 404);
    // The client goes away in the middle of a body.
    let slow = Call::new("PUT", "/nightly/cut").body(&bytes(5, 4 << 20)).rate("300k").patience(Duration::from_secs(2));
    assert!(client.send(&slow).is_err());
    wait_until("nothing is left of the cut upload", || families(&world).is_empty());
    let open = begin(client, "open");
    client.demand(&part("open", &open, 1, &bytes(6, 3 << 20)));
    gateway.running.signal("TERM");
    gateway.running.wait().done();
    assert_eq!(families(&world), Vec::<String>::new());
    let gateway = started(&world, "");
    let id = begin(&gateway.client, "killed");
    gateway.client.demand(&part("killed", &id, 1, &bytes(7, 3 << 20)));
    gateway.running.signal("KILL");
    gateway.running.wait();
    let gateway = started(&world, "");
    for key in ["aborted", "cut", "open", "killed"] {
        assert_eq!(gateway.client.get("nightly", key), None, "{key}");
    }
    gateway.client.put("nightly", "killed", b"again");
    assert_eq!(gateway.client.get("nightly", "killed").as_deref(), Some(&b"again"[..]));
}

#[test]
fn an_encrypted_repository_gives_objects_back_with_its_key() {
    let world = prepared("encrypt-to = [\"k.key.pub\"]\nkey = \"k.key\"\nstripes = 2\n");
    world.run("key new k.key --no-recovery").done();
    let gateway = started(&world, "");
    let object = bytes(8, 2_500_000);
    gateway.client.put("nightly", "sealed", &object);
    assert!(gateway.client.get("nightly", "sealed") == Some(object));
    assert_eq!(families(&world).len(), 2);
}

#[test]
fn a_trace_shows_requests_and_answers_and_no_secret() {
    let world = prepared("");
    let gateway = started(&world, "--trace");
    gateway.client.put("nightly", "k", b"bytes");
    gateway.running.says("PUT /nightly/k");
    gateway.running.says("answer 1 ");
    let said = gateway.running.said();
    assert!(said.contains("Credential=ALL/") && !said.contains(SECRET), "{said}");
    let signature = said.split("Signature=").nth(1).unwrap();
    assert!(signature.starts_with('…'), "{said}");
}

#[test]
fn what_cannot_be_served_is_refused_before_the_address_is_taken() {
    let world = prepared("");
    let line = |more: &str| format!("gateway --listen 127.0.0.1:0 --tls-cert tls/gateway.crt --keys keys {more}");
    world.run(&line("--repo nightly --tls-key tls/gateway.crt")).with_code(1);
    world.run(&line("--repo nightly --tls-key tls/ca.key")).with_code(2);
    world.run(&line("--repo unknown --tls-key tls/gateway.key")).with_code(2);
    world.run(&line("--repo nightly --tls-key tls/gateway.key --memory 1MiB")).with_code(2);
    world.run(&line("--repo nightly --tls-key tls/gateway.key --idle-timeout 0s")).with_code(2);
    world.run("gateway --repo nightly").with_code(2);
    world.run("gateway cert tls --host localhost").with_code(1);
}
