//! What can go wrong in the data plane: on which thing, why, and what to do next.
//!
//! Code decides by [`Error::exit_kind`], never by the text.

use std::io;

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure, with the thing it happened to, its cause and the next step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused an operation on a named thing.
    #[error("cannot {action} `{thing}`: {source}{}", hint_line(hint))]
    Io {
        /// What was tried, as a verb: "open", "write 1 MiB at offset 4096 to".
        action: String,
        /// The file, directory or device.
        thing: String,
        /// The cause.
        source: io::Error,
        /// The next step; empty when there is nothing more to say.
        hint: String,
    },
    /// The request itself cannot be carried out: a wrong flag, URL, size or combination.
    #[error("{thing}: {why}{}", hint_line(hint))]
    Usage {
        /// The flag or value.
        thing: String,
        /// Why it is not possible.
        why: String,
        /// What to write instead.
        hint: String,
    },
    /// The request is well formed, but the state of the world forbids it.
    #[error("{thing}: {why}{}", hint_line(hint))]
    Refused {
        /// The database, file or device.
        thing: String,
        /// What forbids the job.
        why: String,
        /// The next step.
        hint: String,
    },
    /// Media do not hold what was written to them.
    #[error("`{device}` is damaged at byte {offset}: {what}{}", hint_line(hint))]
    Damaged {
        /// The family's device.
        device: String,
        /// Where in the family, in bytes from its start.
        offset: u64,
        /// What was found there.
        what: String,
        /// The next step.
        hint: String,
    },
    /// A media set lacks something that it had when it was written.
    #[error("{thing}: {why}{}", hint_line(hint))]
    Incomplete {
        /// The set or family.
        thing: String,
        /// What is missing or does not belong.
        why: String,
        /// The next step.
        hint: String,
    },
    /// The user or a signal asked to stop.
    #[error("cancelled by {by}; nothing usable was left behind")]
    Cancelled {
        /// "SIGINT", "SIGTERM", "SIGHUP".
        by: &'static str,
    },
    /// Another thread failed first; its error is the one to show.
    #[error("stopped because another part of the job failed")]
    Halted,
}

/// Numbers of the operating system for "too many open files", of this process and of the machine.
const TOO_MANY_FILES: [i32; 2] = [24, 23];

/// What a caller does about an error; also its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitKind {
    /// The job failed, nothing usable was left behind: exit 1.
    Failed,
    /// The command was wrong: exit 2.
    Usage,
    /// Media are damaged: exit 3.
    Damaged,
    /// Stopped by SIGINT: exit 130.
    Interrupted,
    /// Stopped by SIGTERM: exit 143.
    Terminated,
    /// Stopped by SIGHUP: exit 129.
    HungUp,
}

impl ExitKind {
    /// The exit code of the program.
    pub fn exit_code(self) -> u8 {
        match self {
            ExitKind::Failed => 1,
            ExitKind::Usage => 2,
            ExitKind::Damaged => 3,
            ExitKind::Interrupted => 130,
            ExitKind::Terminated => 143,
            ExitKind::HungUp => 129,
        }
    }
}

impl Error {
    /// The next step; empty if there is none to name.
    pub fn hint(&self) -> &str {
        match self {
            Error::Io { hint, .. }
            | Error::Usage { hint, .. }
            | Error::Refused { hint, .. }
            | Error::Damaged { hint, .. }
            | Error::Incomplete { hint, .. } => hint,
            _ => "",
        }
    }

    /// The message without its hint.
    pub fn without_hint(&self) -> String {
        let whole = self.to_string();
        whole.strip_suffix(&hint_line(self.hint())).unwrap_or(&whole).to_owned()
    }

    /// An operating-system error on `thing`, with the hint that its number suggests.
    pub fn io(action: impl Into<String>, thing: impl Into<String>, source: io::Error) -> Self {
        let hint = hint_for(&source).to_owned();
        Error::Io { action: action.into(), thing: thing.into(), source, hint }
    }

    /// The error of this program inside `source`, or that of a failed read of `thing`. A device that is read through a
    /// supply, and a signal, have such an error inside.
    pub fn of_read(thing: impl Into<String>, source: io::Error) -> Self {
        source.downcast().unwrap_or_else(|source| Self::io("read", thing, source))
    }

    /// A wrong flag, URL or size.
    pub fn usage(thing: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::Usage { thing: thing.into(), why: why.into(), hint: hint.into() }
    }

    /// A state of the world that forbids the job.
    pub fn refused(thing: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::Refused { thing: thing.into(), why: why.into(), hint: hint.into() }
    }

    /// Damage on media, with the usual next step.
    pub fn damaged(device: impl Into<String>, offset: u64, what: impl Into<String>) -> Self {
        Error::Damaged {
            device: device.into(),
            offset,
            what: what.into(),
            hint: "this backup set cannot be restored as it is; use another set or another copy of this family".into(),
        }
    }

    /// A media set that is not whole.
    pub fn incomplete(thing: impl Into<String>, why: impl Into<String>, hint: impl Into<String>) -> Self {
        Error::Incomplete { thing: thing.into(), why: why.into(), hint: hint.into() }
    }

    /// The same error on a thing that the command or the configuration names. If the thing does not exist, the command is
    /// wrong (docs/exit-codes.md). The text stays.
    #[must_use]
    pub fn on_named_thing(self) -> Self {
        match self {
            Error::Io { action, thing, source, hint } if source.kind() == io::ErrorKind::NotFound => {
                Error::Usage { thing: format!("cannot {action} `{thing}`"), why: source.to_string(), hint }
            }
            other => other,
        }
    }

    /// The first line, without the hint.
    pub fn one_line(&self) -> String {
        self.to_string().lines().next().unwrap_or_default().to_owned()
    }

    /// The same error with another next step.
    #[must_use]
    pub fn with_hint(mut self, next: &str) -> Self {
        if let Error::Io { hint, .. }
        | Error::Usage { hint, .. }
        | Error::Refused { hint, .. }
        | Error::Damaged { hint, .. }
        | Error::Incomplete { hint, .. } = &mut self
        {
            next.clone_into(hint);
        }
        self
    }

    /// The same error with one more note about what is left behind.
    #[must_use]
    pub fn noting(mut self, more: &str) -> Self {
        if let Error::Io { hint, .. }
        | Error::Usage { hint, .. }
        | Error::Refused { hint, .. }
        | Error::Damaged { hint, .. }
        | Error::Incomplete { hint, .. } = &mut self
        {
            let between = if hint.is_empty() { "" } else { "; " };
            *hint = format!("{hint}{between}{more}");
        }
        self
    }

    /// True when the process or the machine has no more descriptors: the thing itself may be fine.
    pub fn is_exhaustion(&self) -> bool {
        let number = match self {
            Error::Io { source, .. } => source.raw_os_error(),
            _ => None,
        };
        number.is_some_and(|number| TOO_MANY_FILES.contains(&number))
    }

    /// True when a device, a quota or a limit on the size of files allows no more bytes.
    pub fn is_lack_of_room(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self, Error::Io { source, .. } if matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge))
    }

    /// What a caller does about it.
    pub fn exit_kind(&self) -> ExitKind {
        match self {
            Error::Usage { .. } => ExitKind::Usage,
            Error::Damaged { .. } | Error::Incomplete { .. } => ExitKind::Damaged,
            Error::Cancelled { by: "SIGTERM" } => ExitKind::Terminated,
            Error::Cancelled { by: "SIGHUP" } => ExitKind::HungUp,
            Error::Cancelled { .. } => ExitKind::Interrupted,
            Error::Io { .. } | Error::Refused { .. } | Error::Halted => ExitKind::Failed,
        }
    }
}

fn hint_line(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!("\n  hint: {hint}") }
}

/// The next step for the usual causes.
fn hint_for(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::NotFound => "check the path; a missing directory may be a disk that is not mounted",
        io::ErrorKind::NotADirectory => "a part of this path is a file, not a directory: check the path",
        io::ErrorKind::PermissionDenied => "run as a user that may do this, or change the permissions",
        io::ErrorKind::StorageFull => {
            "free space there, or name another place; a backup can have more devices (--to) or a stronger --compression"
        }
        io::ErrorKind::QuotaExceeded => "the quota of this user or directory is used up",
        io::ErrorKind::ReadOnlyFilesystem => "the file system is mounted read-only",
        io::ErrorKind::FileTooLarge => {
            "the file system or `ulimit -f` allows no larger file: raise the limit; a backup can have more --stripes"
        }
        io::ErrorKind::AlreadyExists => {
            "nothing is overwritten: name another place; a backup can have --init, a restore --replace"
        }
        _ => match source.raw_os_error() {
            Some(5) => "the device reports a hardware error; look at the kernel log (dmesg)",
            Some(24) => "too many open files: raise `ulimit -n`; a backup can have fewer --stripes",
            _ => "",
        },
    }
}

/// `1 stripe`, `4 stripes`, `2 families`.
pub fn counted(number: u64, what: &str) -> String {
    let consonant = |stem: &str| !stem.ends_with(['a', 'e', 'i', 'o', 'u']);
    match what.strip_suffix('y').filter(|stem| consonant(stem)) {
        _ if number == 1 => format!("{number} {what}"),
        Some(stem) => format!("{number} {stem}ies"),
        None => format!("{number} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_thing_the_cause_and_the_next_step() {
        let error = Error::io("write to", "/mnt/a/x.bore", io::Error::from_raw_os_error(28));
        let text = error.to_string();
        assert!(text.contains("/mnt/a/x.bore") && text.contains("No space left") && text.contains("hint: free space"));
        assert_eq!(error.exit_kind().exit_code(), 1);
    }

    #[test]
    fn a_named_thing_that_does_not_exist_is_a_usage_error_with_the_same_text() {
        let error = |number| Error::io("open", "/mnt/a", io::Error::from_raw_os_error(number));
        let (missing, forbidden) = (error(2).on_named_thing(), error(13).on_named_thing());
        assert_eq!((missing.exit_kind(), forbidden.exit_kind()), (ExitKind::Usage, ExitKind::Failed));
        assert_eq!((missing.to_string(), forbidden.to_string()), (error(2).to_string(), error(13).to_string()));
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "stripe")), ["0 stripes", "1 stripe", "2 stripes"]);
    }
}
