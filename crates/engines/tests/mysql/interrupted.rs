//! Clones that end before their time: the error is clear, every thread ends, and the donor is free at once.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::clone_target;
use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};
use fullbore_engines::mysql::clone::donor::{Donor, DonorOptions};
use fullbore_engines::mysql::clone::message::Ddl;
use fullbore_engines::mysql_family::url::ServerAddress;
use fullbore_test_servers::{Kind, Options, Server};

use super::directory::Directory;
use super::{assert_clean, begin, load, root};

/// How long an interrupted clone may take to end, on a busy machine; a silent server is given up after two minutes.
const SOON: Duration = Duration::from_secs(90);

fn donor_with_tables() -> Server {
    let server = Server::start(Kind::Mysql9, &Options::new());
    load::fill(&server);
    server
}

/// Runs a clone whose target calls `then` once, after `bytes` were taken.
fn run_until(
    donor: Donor,
    halt: &Halt,
    bytes: u64,
    then: impl Fn() -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let mut directory = Directory::new();
    let (taken, done) = (AtomicU64::new(0), AtomicU64::new(0));
    directory.on_data = Box::new(move |extent| {
        let now = taken.fetch_add(u64::from(extent.length), Ordering::Relaxed);
        if now >= bytes && done.fetch_add(1, Ordering::Relaxed) == 0 { then() } else { Ok(()) }
    });
    let started = Instant::now();
    let ended = clone_target::run(donor, &directory, halt).map(drop);
    assert!(started.elapsed() < SOON, "it took {:?}", started.elapsed());
    ended
}

#[test]
fn a_stopped_job_and_a_target_that_fails_leave_the_donor_clean() {
    let server = donor_with_tables();
    for tasks in [1, 4] {
        let halt = Halt::new();
        let stop = halt.clone();
        let donor = begin(&server, "", tasks, &halt).unwrap();
        let ended = run_until(donor, &halt, 8 << 20, move || {
            stop.stop(Error::Cancelled { by: "SIGINT" });
            Ok(())
        });
        assert!(matches!(ended, Err(Error::Cancelled { by: "SIGINT" })), "{ended:?}");
        assert_clean(&server);
        let halt = Halt::new();
        let donor = begin(&server, "", tasks, &halt).unwrap();
        let ended = run_until(donor, &halt, 8 << 20, || Err(Error::refused("target", "the disk is full", "")));
        assert!(ended.unwrap_err().to_string().contains("disk is full"));
        assert_clean(&server);
    }
}

#[test]
fn a_donor_that_is_dropped_before_or_between_events_is_clean() {
    let server = donor_with_tables();
    let mut donor = begin(&server, "", 2, &Halt::new()).unwrap();
    let mut tasks = donor.take_tasks();
    assert!(tasks[0].next_event().unwrap().is_some());
    drop(tasks);
    drop(donor);
    assert_clean(&server);
}

#[test]
fn a_target_that_is_slower_than_the_servers_timeouts_does_not_end_the_clone() {
    let options = Options::new().option("net_write_timeout=1").option("net_retry_count=1").option("wait_timeout=3");
    let server = Server::start(Kind::Mysql9, &options);
    load::fill(&server);
    let halt = Halt::new();
    let donor = begin(&server, "", 2, &halt).unwrap();
    run_until(donor, &halt, 8 << 20, || {
        std::thread::sleep(Duration::from_secs(8));
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_killed_server_ends_the_clone_with_a_clear_error() {
    let server = Arc::new(std::sync::Mutex::new(donor_with_tables()));
    let halt = Halt::new();
    let donor = begin(&server.lock().unwrap(), "", 2, &halt).unwrap();
    let victim = server.clone();
    let ended = run_until(donor, &halt, 8 << 20, move || {
        victim.lock().unwrap().kill();
        Ok(())
    });
    let text = ended.unwrap_err().to_string();
    assert!(text.contains("connection was cut"), "{text}");
}

#[test]
fn a_cut_connection_ends_the_clone_and_the_next_one_can_begin_at_once() {
    let server = donor_with_tables();
    for tasks in [1, 3] {
        let port = cutting_proxy(server.port(), 12 << 20);
        let address = ServerAddress::parse(&format!("mysql://127.0.0.1:{port}/")).unwrap();
        let halt = Halt::new();
        let how = DonorOptions { tasks, ddl: Ddl::Runs, halt: halt.clone() };
        let donor = Donor::begin(&address, &root(&server), &how).unwrap();
        let text = run_until(donor, &halt, u64::MAX, || Ok(())).unwrap_err().to_string();
        assert!(text.contains("connection was cut"), "{text}");
        assert_clean(&server);
    }
}

/// Passes bytes on in both directions, until the server has sent `limit` over all connections: then it cuts all of
/// them.
fn cutting_proxy(server: u16, limit: u64) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let sent = Arc::new(AtomicU64::new(0));
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", server)).unwrap());
            let ends = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let sent = sent.clone();
            std::thread::spawn(move || pass(client, server, &AtomicU64::new(0), u64::MAX));
            std::thread::spawn(move || pass(ends.1, ends.0, &sent, limit));
        }
    });
    port
}

fn pass(mut from: TcpStream, mut to: TcpStream, sent: &AtomicU64, limit: u64) {
    let mut buffer = vec![0; 64 << 10];
    from.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    loop {
        if sent.load(Ordering::Relaxed) > limit {
            break;
        }
        match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => {
                sent.fetch_add(length as u64, Ordering::Relaxed);
                if to.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
