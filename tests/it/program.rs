//! Runs the binary and says what came of it.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use fullbore_test_servers::wait_until;

/// A run that has ended.
#[derive(Debug)]
pub struct Ended {
    pub line: String,
    /// The exit code; minus the signal's number when a signal ended it.
    pub code: i32,
    pub out: Vec<u8>,
    pub err: String,
}

/// A run that goes on.
pub struct Running {
    pub child: Child,
    line: String,
    heard: Heard,
}

/// What a run says on standard error. It is read while it runs: one that says much is not held up by a pipe that is full.
struct Heard {
    said: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

/// The number on Linux of the signal that the program is the last to listen to.
const LAST_LISTENED_TO: u32 = 25;

/// The binary in `folder`, with nothing of this user's configuration.
pub fn command(folder: &Path, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    // A campaign runs for hours beside what is built meanwhile, and takes a program that stays.
    let program = std::env::var_os("FULLBORE_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_fullbore").into());
    let mut command = Command::new(program);
    surroundings(&mut command, folder);
    command.args(arguments);
    command
}

/// How variables begin that the program reads. Those of the user who runs the tests do not count.
const READ: [&str; 7] =
    ["AWS_", "AZURE_", "GOOGLE_", "FULLBORE_PASSWORD", "FULLBORE_HOST", "FULLBORE_CONFIG", "FULLBORE_REPO"];

/// The folder and the environment of a run.
pub fn surroundings(command: &mut Command, folder: &Path) {
    for (name, _) in std::env::vars_os() {
        if READ.iter().any(|start| name.as_encoded_bytes().starts_with(start.as_bytes())) {
            command.env_remove(name);
        }
    }
    command.current_dir(folder).env("HOME", folder.join("home")).env("NO_COLOR", "1");
    command.env("XDG_STATE_HOME", folder.join("state"));
    command.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null());
}

/// Runs a command to its end.
pub fn run(mut command: Command) -> Ended {
    let line = format!("{command:?}");
    Ended::from(line, command.output().unwrap())
}

/// Starts a command.
pub fn start(mut command: Command) -> Running {
    let line = format!("{command:?}");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let heard = Heard::from(child.stderr.take().unwrap());
    Running { child, line, heard }
}

impl Heard {
    fn from(mut pipe: ChildStderr) -> Self {
        let said = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&said);
        let reader = std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(length @ 1..) = pipe.read(&mut part) {
                kept.lock().unwrap().extend_from_slice(&part[..length]);
            }
        });
        Self { said, reader }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().unwrap()).into_owned()
    }
}

impl Running {
    /// Waits until it listens to signals: before, one ends it without a word, and how long that takes nobody knows.
    #[track_caller]
    pub fn listens(&self) {
        let status = format!("/proc/{}/status", self.child.id());
        wait_until("it listens to signals", || {
            let status = std::fs::read_to_string(&status).unwrap_or_default();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
            mask.is_some_and(|mask| mask >> (LAST_LISTENED_TO - 1) & 1 == 1)
        });
    }

    /// Waits until it has said that on standard error.
    #[track_caller]
    pub fn says(&self, words: &str) {
        self.says_any(&[words]);
    }

    /// Waits until it has said one of these.
    #[track_caller]
    pub fn says_any(&self, these: &[&str]) {
        wait_until(&format!("one of {these:?} is said"), || {
            let ended = self.heard.reader.is_finished();
            let said = self.heard.text();
            let has_said = these.iter().any(|words| said.contains(words));
            assert!(has_said || !ended, "it ended and said none of {these:?}: {said}");
            has_said
        });
    }

    /// What it has said on standard error so far.
    pub fn said(&self) -> String {
        self.heard.text()
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        let done = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).stderr(Stdio::null()).status();
        done.unwrap(); // The process may have ended already.
    }

    /// Stops it with SIGSTOP and waits until each of its threads stands still. A thread that writes to a disk stands still only when that is
    /// done; until then the others run. A run that has ended stands still, too.
    #[track_caller]
    pub fn stop(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.child.id());
        wait_until("every thread of it stands still", || {
            let Ok(tasks) = std::fs::read_dir(&tasks) else { return true };
            let state_of = |task: std::fs::DirEntry| {
                let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
                stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
            };
            // A thread that has gone meanwhile has no state.
            tasks.flatten().filter_map(state_of).all(|state| matches!(state, 'T' | 'Z' | 'X'))
        });
    }

    /// Lets it run again.
    pub fn go_on(&self) {
        self.signal("CONT");
    }

    /// Waits for the end.
    pub fn wait(self) -> Ended {
        let mut output = self.child.wait_with_output().unwrap();
        let said = self.heard.said;
        self.heard.reader.join().unwrap();
        output.stderr = std::mem::take(&mut *said.lock().unwrap());
        Ended::from(self.line, output)
    }
}

fn code_of(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
}

impl Ended {
    pub fn from(line: String, output: std::process::Output) -> Self {
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        let ended = Ended { line, code: code_of(output.status), out: output.stdout, err };
        assert!(!ended.err.contains("panicked"), "a panic: {ended}");
        ended
    }

    /// It did what it should, without a warning.
    #[track_caller]
    pub fn done(self) -> Self {
        self.with_code(0)
    }

    #[track_caller]
    pub fn with_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self}");
        self
    }

    /// Standard error has all of these.
    #[track_caller]
    pub fn says(self, words: &[&str]) -> Self {
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not said: {self}");
        }
        self
    }

    /// An error that names the thing, the cause and the next step.
    #[track_caller]
    pub fn refused(self, code: i32, thing: &str, cause: &str) -> Self {
        self.with_code(code).says(&["error: ", thing, cause, "hint: "])
    }

    /// The same where it is the only error, and nothing of it is a secret.
    #[track_caller]
    pub fn refused_once(self, code: i32, words: &[&str]) -> Self {
        let ended = self.with_code(code).says(&["hint: "]).says(words);
        assert_eq!(ended.err.lines().filter(|line| line.starts_with("error: ")).count(), 1, "{ended}");
        for secret in ["not-it", "s3cret"] {
            assert!(!ended.err.contains(secret), "a password is shown: {ended}");
        }
        ended
    }

    /// Standard output.
    pub fn text(&self) -> String {
        String::from_utf8(self.out.clone()).unwrap()
    }

    /// Standard output as JSON: the object of a job, or what a listing lists.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        let object = self.object();
        let listed = match object["command"].as_str() {
            Some("list" | "inspect header" | "inspect label") => "sets",
            Some("inspect files") => "manifests",
            Some("tasks") => "tasks",
            Some("task" | "cancel") => "task",
            Some("check") => "databases",
            _ => return object,
        };
        object[listed].clone()
    }

    /// Standard output as a JSON object.
    #[track_caller]
    pub fn object(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|error| panic!("{error}: {self}"))
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text: String = String::from_utf8_lossy(&self.out).chars().take(2000).collect();
        write!(out, "{}\nexit code {}\n--- stdout\n{text}\n--- stderr\n{}", self.line, self.code, self.err)
    }
}

/// True for root, who may do what the tests of permissions forbid.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Says that a test did not run.
pub fn skipped(test: &str, why: &str) {
    tell(&format!("SKIPPED {test}: {why}"));
}

/// Says something that is worth knowing of a test that passes too.
pub fn tell(text: &str) {
    // Not by the macro, whose output a passing test keeps to itself.
    let _ = writeln!(std::io::stderr(), "{text}");
}
