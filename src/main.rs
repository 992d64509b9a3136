//! The program: arguments → job → exit code.

mod cli;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn main() -> std::process::ExitCode {
    allow_open_files();
    cli::main(fullbore_bench::volume::environment::volumes)
}

/// Allows as many open files as the system permits: the usual 1024 are few for 64 families and their devices.
fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }); // The old limit may be enough.
}
