//! The program: arguments → job → exit code.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
