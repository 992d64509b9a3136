//! A child process: the same binary, with limits of processors and memory, and its measurements. For `bench` and
//! `calibrate`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::{Error, Result, threads};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid as NixPid;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::conduct::Conduct;

/// The variable with the process number of the parent, for a child.
const PARENT: &str = "FULLBORE_BENCH_PARENT";
/// How often the bench checks for a signal and for the end of the time.
const TICK: Duration = Duration::from_millis(100);
/// How long a child that was asked to end may take to clean up before it is killed.
const GRACE: Duration = Duration::from_secs(20);
/// How many bytes of a child's output are kept.
const SAID_MAX: usize = 64 << 10;

/// The processors and the memory of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Processors.
    pub threads: Option<usize>,
    /// Bytes of memory.
    pub memory: Option<u64>,
}

/// What a child got of its limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Caps {
    /// Requested processors.
    pub threads: Option<usize>,
    /// Processors that it may run on.
    pub threads_given: usize,
    /// Requested memory.
    pub memory_bytes: Option<u64>,
    /// Whether the memory was capped.
    pub memory_capped: bool,
    /// Why the caps differ from the request.
    pub why: Option<String>,
}

/// The environment of a child, besides its arguments.
pub struct Surroundings<'a> {
    /// The processors and the memory that it may use.
    pub limits: Option<Limits>,
    /// An environment variable for this child only.
    pub variable: Option<(&'static str, String)>,
    /// The longest time that it may take.
    pub timeout: Duration,
    /// Called when the child is asked to end: a thread that waits for a slow volume reacts to no signal.
    pub relief: &'a (dyn Fn() + Sync),
}

/// How a child ended.
pub struct Ended {
    /// From its start to its exit.
    pub seconds: f64,
    /// Its exit status.
    pub status: ExitStatus,
    /// Its output on standard error.
    pub said: String,
    /// It took too long and was ended.
    pub timed_out: bool,
}

/// What this machine can give of these limits.
pub fn caps(limits: Option<Limits>) -> Caps {
    let there = processors().len();
    let asked = limits.and_then(|class| class.threads);
    let memory_bytes = limits.and_then(|class| class.memory);
    let mut whys = Vec::new();
    if let Some(asked) = asked.filter(|&asked| asked > there) {
        whys.push(format!("{asked} processors were asked for, but there are only {there}"));
    }
    let group = memory_bytes.map(MemoryGroup::make);
    let memory_capped = matches!(group, Some(Ok(_)));
    if let Some(Err(why)) = group {
        whys.push(format!("memory is not capped: {why}"));
    }
    Caps {
        threads: asked,
        threads_given: asked.unwrap_or(there).min(there),
        memory_bytes,
        memory_capped,
        why: (!whys.is_empty()).then(|| whys.join("; ")),
    }
}

/// Numbers of the processors that this process may run on.
fn processors() -> Vec<usize> {
    let own = sched_getaffinity(NixPid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|&number| own.is_set(number).unwrap_or(false)).collect()
}

/// Runs the program with these arguments to its end.
///
/// # Errors
/// It cannot be started, or a signal came: then the child has been asked to end, and has ended.
pub fn run(arguments: &[String], surroundings: &Surroundings<'_>, conduct: &Conduct) -> Result<Ended> {
    let program = std::env::current_exe().map_err(|e| Error::io("find", "this program", e))?;
    let group = surroundings.limits.and_then(|class| class.memory).and_then(|bytes| MemoryGroup::make(bytes).ok());
    let mut command = match &group {
        None => Command::new(&program),
        Some(group) => group.joining(&program),
    };
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    if let Some((name, value)) = &surroundings.variable {
        command.env(name, value);
    }
    command.env(PARENT, std::process::id().to_string());
    let threads = surroundings.limits.and_then(|class| class.threads);
    // Use a separate thread: a child inherits the affinity of the thread that starts it.
    std::thread::scope(|scope| {
        let running = threads::start_in(scope, "child", || {
            let failed = |e| Error::io("start", program.display().to_string(), e);
            threads.map_or(Ok(()), run_on).map_err(failed)?;
            let started = Instant::now();
            let child = command.spawn().map_err(failed)?;
            wait(child, started, surroundings, conduct)
        })?;
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Limits this thread to this many processors.
fn run_on(count: usize) -> std::io::Result<()> {
    let mut allowed = CpuSet::new();
    for number in processors().into_iter().take(count) {
        allowed.set(number)?;
    }
    Ok(sched_setaffinity(NixPid::from_raw(0), &allowed)?)
}

/// In a child of [`run`]: ends it, with its cleanup, when its parent is killed, because no other process would end it.
/// In any other process: does nothing.
///
/// # Errors
/// The parent has ended already.
pub fn end_with_the_parent() -> Result<()> {
    let parent = std::env::var(PARENT).ok().and_then(|number| number.parse::<i32>().ok());
    let Some(parent) = parent.filter(|&number| number > 0) else { return Ok(()) };
    let is_there = move || rustix::process::getppid().map(Pid::as_raw_nonzero).is_some_and(|now| now.get() == parent);
    if !is_there() {
        return Err(Error::refused(
            PARENT,
            "the process that started this one has ended",
            "unset it: only `fullbore bench` and `fullbore calibrate` set it",
        ));
    }
    // Not the kernel's own signal (PR_SET_PDEATHSIG): it may come twice if the parent has several threads, and a second
    // signal ends a job at once, without cleanup.
    let watch = move || {
        while is_there() {
            std::thread::sleep(TICK);
        }
        let _ = kill_process(rustix::process::getpid(), Signal::TERM); // This process exists.
    };
    threads::start("parent", watch).map(drop)
}

fn wait(mut child: Child, started: Instant, surroundings: &Surroundings<'_>, conduct: &Conduct) -> Result<Ended> {
    let (timeout, relief) = (surroundings.timeout, surroundings.relief);
    let id = Pid::from_child(&child);
    let errors = child.stderr.take();
    std::thread::scope(|scope| {
        let (ended, has_ended) = channel::<()>();
        let watch = threads::start_in(scope, "timeout", move || {
            let mut asked: Option<Instant> = None;
            let mut timed_out = false;
            while let Err(RecvTimeoutError::Timeout) = has_ended.recv_timeout(TICK) {
                timed_out |= asked.is_none() && started.elapsed() > timeout;
                match asked {
                    None if timed_out || conduct.check().is_err() => {
                        let _ = kill_process(id, Signal::TERM); // It may have ended by now.
                        relief();
                        asked = Some(Instant::now());
                    }
                    Some(since) if since.elapsed() > GRACE => {
                        let _ = kill_process(id, Signal::KILL);
                    }
                    _ => {}
                }
            }
            timed_out
        })?;
        let said = errors.map(read_end).unwrap_or_default();
        let status = child.wait().map_err(|e| Error::io("wait for", "a child process", e))?;
        let seconds = started.elapsed().as_secs_f64();
        drop(ended);
        let timed_out = watch.join().unwrap_or(false);
        conduct.check()?;
        Ok(Ended { seconds, status, said, timed_out })
    })
}

/// The output of a child, up to the limit.
fn read_end(mut errors: impl Read) -> String {
    let mut said = Vec::new();
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = errors.read(&mut part) {
        if said.len() < SAID_MAX {
            said.extend_from_slice(&part[..count]);
        }
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// A control group that caps memory; removed when dropped.
struct MemoryGroup {
    folder: PathBuf,
}

/// Hierarchies in which a memory group can be made, and the file of the limit in each.
const HIERARCHIES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
/// The prefix of every group's name; the process number of its bench follows.
const GROUP: &str = "fullbore-bench-";

/// Removes the groups of benches that were killed.
pub fn sweep() {
    for (root, _) in HIERARCHIES {
        remove_dead_groups(Path::new(root));
    }
}

fn remove_dead_groups(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().filter_map(std::result::Result::ok) {
        let name = entry.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix(GROUP)).and_then(|number| number.parse::<u32>().ok());
        // A group with the number of this process is from an older process: this one has no group yet.
        let dead = |number: u32| number == std::process::id() || !Path::new("/proc").join(number.to_string()).exists();
        if number.is_some_and(dead) {
            let _ = fs::remove_dir(entry.path()); // A group with a process in it stays until the next start.
        }
    }
}

impl MemoryGroup {
    /// Makes a group of this many bytes, in a hierarchy of this machine.
    fn make(bytes: u64) -> std::result::Result<Self, String> {
        let mut last = "this machine has no memory controller".to_owned();
        for (root, limit) in HIERARCHIES {
            let folder = Path::new(root).join(format!("{GROUP}{}", std::process::id()));
            if !Path::new(root).join("cgroup.procs").exists() {
                continue;
            }
            if let Err(e) = fs::create_dir(&folder) {
                last = format!("no control group can be made in {root}: {e}");
                continue;
            }
            let group = Self { folder };
            match fs::metadata(group.folder.join(limit))
                .and_then(|_| fs::write(group.folder.join(limit), bytes.to_string()))
            {
                Ok(()) => return Ok(group),
                Err(e) => last = format!("{limit} in {root}: {e}"),
            }
        }
        Err(last)
    }

    /// A command that puts itself into the group before it becomes the program.
    fn joining(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.folder.join("cgroup.procs")).arg(program);
        command
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder); // Empty: its only process has ended.
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_benches_that_are_gone_are_removed_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero();
        // No process has a number above 2^22.
        let names = [
            "fullbore-bench-4999999".to_owned(),
            format!("fullbore-bench-{parent}"),
            "fullbore-bench-x".into(),
            "4999999".into(),
        ];
        names.iter().for_each(|name| fs::create_dir(root.path().join(name)).unwrap());
        remove_dead_groups(root.path());
        let left: Vec<bool> = names.iter().map(|name| root.path().join(name).exists()).collect();
        assert_eq!(left, [false, true, true, true]);
    }
}
