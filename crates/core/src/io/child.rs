//! Processes that are started, and must not outlive the process that started them.
//!
//! Invariant for the `unsafe` here: between fork and exec the child makes only two system calls, and neither of them
//! allocates or takes a lock.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Makes the kernel kill the started process when the thread that starts it ends, also when our process is killed and
/// cannot clean up. That thread has to live for as long as the child is to.
pub fn end_with_this_thread(command: &mut Command) {
    let parent = getpid();
    let ask = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the starting process was killed before this call, it is no longer the parent.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: see the invariant above.
    unsafe { command.pre_exec(ask) };
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::{Child, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    fn sleeping() -> Child {
        let mut command = Command::new("sleep");
        end_with_this_thread(command.arg("60").stdin(Stdio::null()));
        command.spawn().unwrap()
    }

    #[test]
    fn a_child_ends_with_the_thread_that_has_started_it_and_not_before() {
        let mut ours = sleeping();
        let mut of_another = std::thread::spawn(sleeping).join().unwrap();
        let begun = Instant::now();
        let ended = of_another.wait().unwrap();
        assert!(ended.code().is_none() && begun.elapsed() < Duration::from_secs(50), "{ended}");
        assert_eq!(ours.try_wait().unwrap(), None);
        ours.kill().unwrap();
        ours.wait().unwrap();
    }
}
