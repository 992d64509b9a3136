//! Another process that has databases open: the test binary, started again. It takes commands by line.
//!
//! In this process a writer would count as "open already by this process", and its locks would be ours.
#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fullbore_engines::engine::{Over, Restorer};
use fullbore_engines::sqlite::{Snapshot, restore};
use rusqlite::Connection;
use rusqlite::fallible_iterator::FallibleIterator;

pub const ROLE: &str = "FULLBORE_TEST_CHILD";
/// The seed of a storm of tiny commits only.
pub const SPRINT: u64 = 999;
const REPLY: &str = "@@ ";

pub struct Child {
    process: std::process::Child,
    replies: BufReader<std::process::ChildStdout>,
}

impl Child {
    pub fn start() -> Self {
        Self::start_command(Command::new(std::env::current_exe().unwrap()))
    }

    /// As a user without rights, where the tests run as root.
    pub fn start_unprivileged(folder: &Path) -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self::start();
        }
        // A copy, because the build directory may be closed to others.
        let program = folder.join("test-binary");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut command = Command::new(program);
        command.uid(65534).gid(65534).current_dir(folder);
        Self::start_command(command)
    }

    fn start_command(mut command: Command) -> Self {
        command.args(["--exact", "child_process", "--nocapture", "--test-threads=1"]).env(ROLE, "1");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let replies = BufReader::new(process.stdout.take().unwrap());
        let mut child = Self { process, replies };
        assert_eq!(child.reply().unwrap(), "ready");
        child
    }

    /// The result of the command, or its error.
    pub fn ask(&mut self, command: &str) -> Result<String, String> {
        let line = command.replace('\n', " ");
        writeln!(self.process.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.reply()
    }

    /// Runs SQL on connection `number`.
    pub fn sql(&mut self, number: u32, sql: &str) -> String {
        self.ask(&format!("sql {number} {sql}")).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub fn open(&mut self, number: u32, path: &Path) {
        self.ask(&format!("open {number} {}", path.display())).unwrap();
    }

    /// SIGKILL, as by the kernel when memory runs out.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn reply(&mut self) -> Result<String, String> {
        loop {
            let mut line = String::new();
            if self.replies.read_line(&mut line).unwrap() == 0 {
                return Err("gone".into());
            }
            if let Some((_, reply)) = line.trim_end().split_once(REPLY) {
                let (kind, text) = reply.split_once(' ').unwrap_or((reply, ""));
                return if kind == "ok" { Ok(text.to_owned()) } else { Err(text.to_owned()) };
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// The other end: until its input ends.
pub fn serve() {
    println!("\n{REPLY}ok ready");
    let mut connections = HashMap::new();
    let mut storm: Option<Storm> = None;
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let mut words = line.splitn(3, ' ');
        let (verb, first, rest) = (words.next().unwrap(), words.next().unwrap_or(""), words.next().unwrap_or(""));
        let result = match verb {
            "open" => Connection::open(rest).map_err(|e| e.to_string()).map(|connection| {
                connection.busy_timeout(Duration::from_millis(100)).unwrap();
                connections.insert(first.to_owned(), connection);
                String::new()
            }),
            "close" => {
                connections.remove(first);
                Ok(String::new())
            }
            "sql" => run(&connections[first], rest),
            "storm" => {
                storm = Some(Storm::start(first.parse().unwrap(), rest.to_owned()));
                Ok(String::new())
            }
            "calm" => storm.take().map(|storm| storm.end().to_string()).ok_or_else(|| "no storm".into()),
            "snapshot" => snapshot(rest),
            "publish" => publish(first, rest),
            _ => Err(format!("unknown command {line}")),
        };
        match result {
            Ok(text) => println!("{REPLY}ok {}", text.replace('\n', " ")),
            Err(text) => println!("{REPLY}error {}", text.replace('\n', " ")),
        }
    }
}

/// Runs all statements; gives the first column of the last row.
fn run(connection: &Connection, sql: &str) -> Result<String, String> {
    let mut last = String::new();
    let mut batch = rusqlite::Batch::new(connection, sql);
    while let Some(mut statement) = batch.next().map_err(|e| e.to_string())? {
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next().map_err(|e| e.to_string())? {
            last = row.get_ref(0).map_or(String::new(), |value| format!("{value:?}"));
        }
    }
    Ok(last)
}

fn snapshot(path: &str) -> Result<String, String> {
    let options = fullbore_engines::Options { lock_timeout: Duration::from_millis(200), ..Default::default() };
    Snapshot::open(Path::new(path), &options).map(|_| String::new()).map_err(|error| error.to_string())
}

/// Publishes a copy of `rest`'s first path over its second and kills this process after the step of that number.
fn publish(step: &str, rest: &str) -> Result<String, String> {
    let step = restore::Step::ALL[step.parse::<usize>().unwrap()];
    let (from, to) = rest.split_once(' ').unwrap();
    let restore = restore::prepare(Path::new(to), Over::Database).map_err(|e| e.to_string())?;
    std::fs::copy(from, restore.temporary()).unwrap();
    let kill = |done| {
        if done == step {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
        }
        Ok(())
    };
    restore.publish_with(&kill).map(|_| "survived".into()).map_err(|e| e.to_string())
}

/// A writer that never rests, with checkpoints of every kind.
struct Storm {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl Storm {
    fn start(seed: u64, path: String) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || write_until(&told, seed, &path));
        Self { stop, thread }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Gives the number of commits.
fn write_until(stop: &AtomicBool, seed: u64, path: &str) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_millis(20)).unwrap();
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 50").unwrap();
    let mut commits = 0;
    // The smallest and fastest commits there are.
    while seed == SPRINT && !stop.load(Ordering::Relaxed) {
        let number = random.u32(..);
        let sql = format!("BEGIN IMMEDIATE; UPDATE a SET x = {number}; UPDATE w SET v = -{number}; COMMIT");
        let update = connection.execute_batch(&sql);
        commits += u64::from(update.is_ok());
    }
    while !stop.load(Ordering::Relaxed) {
        let (id, size) = (random.u32(..400), random.u32(..9000));
        let sql = match random.u8(..20) {
            0..10 => format!(
                "BEGIN; UPDATE t SET b = randomblob({size}) WHERE id % 400 = {id}; INSERT INTO t(k, b) VALUES \
                 (hex(randomblob(9)), randomblob({size})); COMMIT"
            ),
            10..14 => format!(
                "BEGIN; DELETE FROM t WHERE id % 97 = {}; REPLACE INTO w VALUES ({id}, randomblob(99)); COMMIT",
                id % 97
            ),
            14..16 => format!("INSERT INTO f VALUES ('word{id} and word{size}')"),
            16 => "PRAGMA wal_checkpoint(PASSIVE)".into(),
            17 => "PRAGMA wal_checkpoint(RESTART)".into(),
            18 => "PRAGMA wal_checkpoint(TRUNCATE)".into(),
            _ => {
                if id < 20 {
                    "VACUUM".into()
                } else {
                    "PRAGMA incremental_vacuum(9)".into()
                }
            }
        };
        match run(&connection, &sql) {
            Ok(_) => commits += 1,
            Err(_) if connection.is_autocommit() => {} // Busy: that is what the test is about.
            Err(_) => connection.execute_batch("ROLLBACK").unwrap(),
        }
    }
    commits
}
