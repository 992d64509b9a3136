//! The identity of a process, unique across machines. Containers share host names and process numbers, and only the
//! kernel that runs a process knows whether it has ended.

use std::fs;
use std::process;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

/// A process of this start of this kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The id of the kernel's start: different on each machine, and after each reboot.
    pub boot: String,
    /// The namespace that its number is in, as the kernel names it.
    pub namespace: String,
    /// Its number there.
    pub number: u32,
    /// When it was started, in ticks since the start of the kernel: process numbers are reused.
    pub started: u64,
}

impl Process {
    /// This process; `None` if the kernel does not show it, or if `/proc` belongs to another process namespace.
    pub fn this() -> Option<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
        let namespace = fs::read_link("/proc/self/ns/pid").ok()?.into_os_string().into_string().ok()?;
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let number = process::id();
        // A `/proc` of another namespace would show another process with this number.
        let is_ours = stat.split(' ').next()?.parse() == Ok(number);
        let known = Self { boot, namespace, number, started: started(&stat)? };
        (is_ours && !known.boot.is_empty()).then_some(known)
    }

    /// True when it ran on this kernel, in this namespace, and has ended. False if this is not known.
    pub fn is_gone(&self) -> bool {
        let Some(here) = Self::this() else { return false };
        if (&self.boot, &self.namespace) != (&here.boot, &here.namespace) {
            return false;
        }
        let Some(number) = i32::try_from(self.number).ok().and_then(Pid::from_raw) else { return false };
        // Not by `/proc`, which may hide the processes of other users.
        match test_kill_process(number) {
            Err(Errno::SRCH) => true,
            _ => {
                let stat = fs::read_to_string(format!("/proc/{}/stat", self.number)).unwrap_or_default();
                started(&stat).is_some_and(|started| started != self.started)
            }
        }
    }
}

/// Field 22 of a process's `stat`. The name in field 2 may contain anything, so count after its parenthesis.
fn started(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_of_this_kernel_and_namespace_is_ever_gone() {
        let this = Process::this().unwrap();
        assert!(!this.is_gone());
        let mut child = process::Command::new("true").spawn().unwrap();
        let number = child.id();
        child.wait().unwrap();
        let child = Process { number, ..this.clone() };
        // Another process may have its number by now, but with another start time.
        assert!(child.is_gone());
        assert!(Process { started: this.started + 1, ..this.clone() }.is_gone(), "the number was given again");
        for elsewhere in [
            Process { boot: "another".into(), ..child.clone() },
            Process { namespace: "pid:[1]".into(), ..child.clone() },
            Process { number: u32::MAX, ..child.clone() },
            Process { number: 0, ..child },
        ] {
            assert!(!elsewhere.is_gone(), "{elsewhere:?}");
        }
    }

    #[test]
    fn a_name_of_a_process_may_look_like_its_numbers() {
        let fields: Vec<String> = (3..=52).map(|at| at.to_string()).collect();
        assert_eq!(started(&format!("7 (a) S 1 (b) {}", fields.join(" "))), Some(22));
        assert_eq!(started(""), None);
    }
}
