//! Each fault of the proxy, as a client of a real store sees it.

use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use fullbore_test_servers::{
    At, Call, Failure, Fault, FaultProxy, ObjectStore, Plan, Request, S3Client, Seen, StoreKind, StoreOptions, Which,
    wait_until,
};

/// curl's exit codes.
const PARTIAL: i32 = 18;
const TIMEOUT: i32 = 28;
const NO_ANSWER: i32 = 52;
const RESET: i32 = 56;

const SHORT: Duration = Duration::from_millis(1500);

struct Bed {
    store: ObjectStore,
    proxy: FaultProxy,
    /// By way of the proxy.
    through: S3Client,
}

/// A store with a bucket that has an object, `there`, and a proxy in which all requests have one fault.
fn bed(rule: impl Fn(&Request) -> Fault + Send + Sync + 'static) -> Bed {
    let store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new().versioning());
    store.make_bucket("backups");
    store.client().put("backups", "there", &BYTES);
    let proxy = FaultProxy::start(store.endpoint(), rule);
    let through = store.client().at(proxy.endpoint());
    Bed { store, proxy, through }
}

/// More than one piece, and enough for curl to wait for an invitation.
static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| (0..3_000_000_u32).map(|number| (number % 251) as u8).collect());

fn put(key: &str) -> Call {
    Call::new("PUT", &format!("/backups/{key}")).body(&BYTES)
}

fn get() -> Call {
    Call::new("GET", "/backups/there")
}

impl Bed {
    fn has(&self, key: &str) -> bool {
        let found = self.store.client().get("backups", key);
        assert!(found.is_none() || found.as_ref() == Some(&*BYTES), "half an object");
        found.is_some()
    }

    /// Status of the store, and of what the client was told, of the last request.
    fn last(&self) -> (Option<u16>, Option<u16>) {
        let seen: Seen = self.proxy.requests().pop().unwrap();
        (seen.store_status, seen.status)
    }

    fn fails(&self, call: &Call) -> Failure {
        self.through.send(call).expect_err("an answer came")
    }
}

#[test]
fn forwarded_bytes_are_unchanged_and_recorded() {
    let bed = bed(|_| Fault::Pass);
    bed.through.demand(&put("new"));
    assert!(bed.has("new"));
    assert_eq!(bed.through.get("backups", "there").unwrap(), *BYTES);
    let range = bed.through.demand(&get().header("Range", "bytes=70000-70099"));
    assert_eq!((range.status, &range.body[..]), (206, &BYTES[70_000..70_100]));
    let head = bed.through.demand(&Call::new("HEAD", "/backups/there"));
    assert_eq!(head.header("content-length"), Some(BYTES.len().to_string().as_str()));
    bed.through.delete("backups", "new");
    assert_eq!(bed.through.send(&Call::new("GET", "/backups/no?where")).unwrap().status, 404);
    let record: Vec<_> =
        bed.proxy.requests().iter().map(|s| (s.request.operation(), s.store_status, s.status)).collect();
    let same = |name, status| (name, Some(status), Some(status));
    assert_eq!(
        record,
        [
            same("PutObject", 200),
            same("GetObject", 200),
            same("GetObject", 206),
            same("HeadObject", 200),
            same("DeleteObject", 204),
            same("GetObject", 404),
        ]
    );
    assert_eq!(bed.proxy.faults(), 0);
}

#[test]
fn one_connection_carries_many_requests_and_each_has_its_own_fault() {
    let bed = bed(|request| if request.number == 1 { Fault::INTERNAL_ERROR } else { Fault::Pass });
    let url = format!("{}/backups/there", bed.proxy.endpoint());
    let user = format!("{}:{}", bed.store.access_key(), bed.store.secret_key());
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let mut config = format!("silent\nnoproxy=\"*\"\nuser=\"{user}\"\naws-sigv4=\"aws:amz:us-east-1:s3\"\n");
    config += &format!("header=\"x-amz-content-sha256: {empty}\"\nwrite-out=\"%{{http_code}} %{{num_connects}};\"\n");
    config += &format!("url=\"{url}\"\noutput=\"/dev/null\"\n").repeat(3);
    let mut curl = Command::new("curl");
    let mut curl = curl.args(["-q", "--config", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    curl.stdin.take().unwrap().write_all(config.as_bytes()).unwrap();
    let done = curl.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "200 1;500 0;200 0;");
}

#[test]
fn a_reset_at_the_start_or_in_the_request_leaves_no_object() {
    for at in [At::Start, At::Request] {
        let bed = bed(move |_| Fault::Reset(at));
        let failure = bed.fails(&put("new"));
        // While it still sends, curl says 55.
        assert!([RESET, NO_ANSWER, 55].contains(&failure.code), "{failure}");
        assert_eq!(bed.last(), (None, None));
        assert!(!bed.has("new"));
        assert_eq!(bed.fails(&get()).code, RESET);
    }
}

#[test]
fn a_lost_response_leaves_an_object_that_the_client_does_not_know_of() {
    let bed = bed(|_| Fault::Reset(At::Answer));
    let failure = bed.fails(&put("new"));
    assert_eq!(failure.code, RESET, "{failure}");
    assert_eq!(bed.last(), (Some(200), None));
    assert!(bed.has("new"));
}

#[test]
fn a_reset_in_the_answer_and_a_truncated_answer_give_half_of_a_body() {
    for (fault, code) in [(Fault::Reset(At::Body), RESET), (Fault::Truncate, PARTIAL)] {
        let bed = bed(move |_| fault.clone());
        let failure = bed.fails(&get());
        assert_eq!(failure.code, code, "{failure}");
        assert_eq!(bed.last(), (Some(200), Some(200)));
        // A body that is empty: half of the head, and a client that is content with that does not know the ETag.
        let half = bed.through.send(&put("new"));
        assert!(half.is_err() || half.unwrap().header("x-amz-object-size").is_none(), "the whole head came");
        assert!(bed.has("new"));
    }
}

#[test]
fn a_stall_lasts_until_the_client_gives_up_and_the_store_has_done_what_it_heard() {
    for (at, done) in [(At::Start, false), (At::Request, false), (At::Answer, true), (At::Body, true)] {
        let bed = bed(move |_| Fault::Stall(at));
        for call in [put("new"), get()] {
            let started = Instant::now();
            let failure = bed.fails(&call.patience(SHORT));
            assert!(failure.code == TIMEOUT && started.elapsed() >= SHORT, "{at:?}: {failure}");
        }
        // It may have heard it late.
        if done {
            wait_until("it is done", || bed.has("new"));
        }
        assert_eq!(bed.has("new"), done, "{at:?}");
    }
}

#[test]
fn errors_are_those_of_s3() {
    let bed = bed(|_| Fault::INTERNAL_ERROR);
    let answer = bed.through.send(&put("new")).unwrap();
    assert_eq!((answer.status, answer.element("Code").as_deref()), (500, Some("InternalError")));
    assert_eq!(bed.last(), (None, Some(500)));
    assert!(!bed.has("new"));

    bed.proxy.set_rule(|_| Fault::slow_down(Some(2)));
    let answer = bed.through.send(&get()).unwrap();
    assert_eq!((answer.status, answer.element("Code").as_deref()), (503, Some("SlowDown")));
    assert_eq!(answer.header("retry-after"), Some("2"));
    let head = bed.through.send(&Call::new("HEAD", "/backups/there")).unwrap();
    assert_eq!((head.status, head.body.len()), (503, 0));
    bed.proxy.set_rule(|_| Fault::slow_down(None));
    assert_eq!(bed.through.send(&get()).unwrap().header("retry-after"), None);

    // An upload that S3 finds out late to have failed, or says so and has done it.
    bed.proxy.set_rule(|_| Fault::Error { status: 200, code: "InternalError", retry_after: None, done: true });
    let answer = bed.through.send(&put("new")).unwrap();
    assert_eq!((answer.status, answer.element("Code").as_deref()), (200, Some("InternalError")));
    assert!(bed.has("new"));
    assert_eq!(bed.proxy.counts().get("error"), Some(&5));
}

#[test]
fn a_duplicated_request_reaches_the_store_twice_and_is_answered_once() {
    let bed = bed(|_| Fault::Duplicate(Which::Second));
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    bed.store.client().demand(&Call::new("PUT", "/backups").query("versioning", "").body(enabled.as_bytes()));
    let create = |key: &str| put(key).header("If-None-Match", "*");
    // It has won, and is told that it has lost.
    assert_eq!(bed.through.send(&create("second")).unwrap().status, 412);
    assert!(bed.has("second"));
    bed.proxy.set_rule(|_| Fault::Duplicate(Which::First));
    assert_eq!(bed.through.send(&create("first")).unwrap().status, 200);
    assert_eq!(bed.last(), (Some(200), Some(200)));
    bed.through.demand(&put("twice"));
    let versions = bed.store.client().demand(&Call::new("GET", "/backups").query("versions", "")).text();
    let count = |key: &str| versions.matches(&format!("<Key>{key}</Key>")).count();
    assert_eq!((count("first"), count("second"), count("twice")), (1, 1, 2));
    assert_eq!(bed.through.get("backups", "there").unwrap(), *BYTES);
}

#[test]
fn a_flipped_answer_has_one_wrong_bit_and_a_flipped_request_is_refused_for_its_signature() {
    for at in [0, 1_234_567, 3_000_000 * 7 + 99] {
        let bed = bed(move |_| Fault::FlipAnswer(at));
        let mut bytes = bed.through.get("backups", "there").unwrap();
        bytes[usize::try_from(at).unwrap() % 3_000_000] ^= 0x10;
        assert!(bytes == *BYTES);
        bed.proxy.set_rule(move |_| Fault::FlipRequest(at));
        let refused = bed.through.send(&put("new")).unwrap();
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(!bed.has("new"));
    }
}

#[test]
fn a_delayed_request_takes_longer_and_a_dead_store_is_a_reset() {
    let mut bed = bed(|_| Fault::Delay(Duration::from_millis(700)));
    let started = Instant::now();
    assert_eq!(bed.through.get("backups", "there").unwrap(), *BYTES);
    assert!(started.elapsed() >= Duration::from_millis(700));
    bed.proxy.set_rule(|_| Fault::Pass);
    bed.store.kill();
    assert_eq!(bed.fails(&get()).code, RESET);
    bed.store.start_again();
    assert_eq!(bed.through.get("backups", "there").unwrap(), *BYTES);
}

#[test]
fn a_proxy_that_is_dropped_ends_whatever_is_under_way() {
    let bed = bed(|request| match request.number % 3 {
        0 => Fault::Stall(At::Start),
        1 => Fault::Stall(At::Body),
        _ => Fault::Delay(Duration::from_secs(1000)),
    });
    let idle = TcpStream::connect(bed.proxy.endpoint().trim_start_matches("http://")).unwrap();
    let Bed { store, proxy, through } = bed;
    let clients: Vec<_> = (0..6)
        .map(|number| {
            let through = through.clone();
            thread::spawn(move || through.send(&if number < 3 { put("new") } else { get() }))
        })
        .collect();
    wait_until("all have asked", || proxy.requests().len() >= 6);
    let started = Instant::now();
    drop(proxy);
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
    for client in clients {
        assert!(client.join().unwrap().is_err());
    }
    drop((store, idle));
}

#[test]
fn a_client_that_repeats_gets_everything_through_a_plan_of_faults() {
    let bed = bed(|_| Fault::Pass);
    let bytes = |number: usize| BYTES[..number * 1000].to_vec();
    bed.proxy.set_rule(Plan::seeded(5).per_cent(60).rule());
    thread::scope(|scope| {
        for lane in 0..4 {
            let through = &bed.through;
            scope.spawn(move || {
                for number in (lane..40).step_by(4) {
                    let key = format!("/backups/{number}");
                    let put = Call::new("PUT", &key).body(&bytes(number)).patience(SHORT);
                    let right = (0..3).any(|_| through.send(&put).is_ok_and(|answer| answer.status == 200));
                    assert!(right, "{key}: the third attempt has to pass");
                }
            });
        }
    });
    for number in 0..40 {
        assert_eq!(bed.store.client().get("backups", &number.to_string()).unwrap(), bytes(number));
    }
    assert!(bed.proxy.faults() >= 20 && bed.proxy.counts().len() >= 5, "{:?}", bed.proxy.counts());
}
