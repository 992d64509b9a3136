//! A run that is killed right before it changes a file for the n-th time: the kernel shows each system call before it happens, so that no moment
//! has to be guessed and nothing has to be built into the program.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// How a traced run ended.
#[derive(Debug)]
pub enum Traced {
    /// It was killed before this call.
    Killed(String),
    /// By itself, with this exit code: it made fewer changes.
    Ended(i32),
}

/// Whether the kernel lets this process trace another; in some containers it does not.
pub fn is_allowed() -> bool {
    cfg!(target_arch = "x86_64") && killed_before(&program_that_does_nothing(), Path::new("/"), usize::MAX).is_some()
}

fn program_that_does_nothing() -> Command {
    let mut command = Command::new("true");
    command.current_dir("/");
    command
}

/// Runs a command and kills it before the `n`-th call (from 1) that changes a file in `folder`, but for those of its catalog in `state/`, which
/// is SQLite's to keep and may be lost at any time. Of what it says nothing is kept. Nothing, where
/// the kernel lets nobody trace.
#[allow(clippy::zombie_processes)] // It is waited for, as every traced process is.
pub fn killed_before(command: &Command, folder: &Path, n: usize) -> Option<Traced> {
    let mut stopped = Command::new("sh");
    // Stopped before it becomes the program: from its first call on it is traced.
    stopped.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
    stopped.current_dir(command.get_current_dir().unwrap());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => stopped.env(name, value),
            None => stopped.env_remove(name),
        };
    }
    let child = stopped.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let process = Pid::from_raw(child.id().cast_signed());
    waitpid(process, Some(WaitPidFlag::WUNTRACED)).unwrap();
    let wanted = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
    if ptrace::seize(process, wanted).is_err() {
        kill(process, Signal::SIGKILL).unwrap();
        waitpid(process, None).unwrap();
        return None;
    }
    kill(process, Signal::SIGCONT).unwrap();
    Some(follow(process, folder, n))
}

fn follow(process: Pid, folder: &Path, n: usize) -> Traced {
    let mut inside: Vec<Pid> = Vec::new();
    let (mut changes, mut last) = (0, String::new());
    // Those of this thread alone: other tests have children too.
    let ours = Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD);
    loop {
        let (thread, signal) = match waitpid(None, ours).unwrap() {
            WaitStatus::Exited(ended, code) if ended == process => return Traced::Ended(code),
            WaitStatus::Signaled(ended, ..) if ended == process => return Traced::Killed(last),
            WaitStatus::PtraceSyscall(thread) => {
                let was_inside = inside.iter().position(|known| *known == thread);
                match was_inside {
                    Some(at) => drop(inside.swap_remove(at)),
                    None => inside.push(thread),
                }
                if let (None, Some(change)) = (was_inside, change(thread, folder)) {
                    changes += 1;
                    if changes == n {
                        last = change;
                        kill(process, Signal::SIGKILL).unwrap();
                    }
                }
                (thread, None)
            }
            WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
            WaitStatus::PtraceEvent(thread, ..) => (thread, None),
            _ => continue,
        };
        let _ = ptrace::syscall(thread, signal); // It may be dead by now.
    }
}

/// Where nobody has written down how calls are numbered and where their arguments are, nothing is killed.
#[cfg(not(target_arch = "x86_64"))]
fn change(_: Pid, _: &Path) -> Option<String> {
    None
}

/// The call that a thread is about to make, if it changes a file in `folder`.
#[cfg(target_arch = "x86_64")]
fn change(thread: Pid, folder: &Path) -> Option<String> {
    let registers = ptrace::getregs(thread).ok()?;
    let (call, arguments) = (registers.orig_rax.cast_signed(), [registers.rdi, registers.rsi, registers.rdx]);
    let by_name = |name: u64| text_at(thread, name).map(|text| absolute(thread, &text));
    let by_number = |number: u64| fs::read_link(format!("/proc/{thread}/fd/{number}")).ok();
    let creates = arguments[2] & (libc::O_CREAT.cast_unsigned() as u64) != 0;
    let (name, path) = match call {
        libc::SYS_openat if creates => ("create", by_name(arguments[1])),
        libc::SYS_rename => ("rename", by_name(arguments[0])),
        libc::SYS_renameat | libc::SYS_renameat2 => ("rename", by_name(arguments[1])),
        libc::SYS_unlink => ("unlink", by_name(arguments[0])),
        libc::SYS_unlinkat => ("unlink", by_name(arguments[1])),
        libc::SYS_mkdir | libc::SYS_rmdir => ("mkdir or rmdir", by_name(arguments[0])),
        libc::SYS_mkdirat => ("mkdir", by_name(arguments[1])),
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_pwritev => ("write", by_number(arguments[0])),
        libc::SYS_ftruncate | libc::SYS_fallocate => ("set the length of", by_number(arguments[0])),
        _ => return None,
    };
    let path = path?;
    let within = path.strip_prefix(folder).ok().filter(|path| !path.starts_with("state"))?;
    Some(format!("{name} {}", within.display()))
}

fn absolute(thread: Pid, path: &Path) -> PathBuf {
    // Where it runs, for a relative name.
    fs::read_link(format!("/proc/{thread}/cwd")).unwrap_or_default().join(path)
}

/// The name at an address in the thread's memory.
fn text_at(thread: Pid, address: u64) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let memory = File::open(format!("/proc/{thread}/mem")).ok()?;
    let mut bytes = vec![0; 4096];
    let read = memory.read_at(&mut bytes, address).ok()?;
    bytes.truncate(bytes[..read].iter().position(|byte| *byte == 0)?);
    Some(PathBuf::from(OsString::from_vec(bytes)))
}
