//! The model against the published tables: fits, predicts each number from the others, writes the report.
//!
//! `cargo run --release --example published_model [FILE]`, in the repository; FILE is bench/results/published-model.md unless it is named.

#![allow(clippy::print_stdout)] // It says where the report is.

mod study;

fn main() -> std::io::Result<()> {
    let file = std::env::args().nth(1).unwrap_or_else(|| "bench/results/published-model.md".into());
    std::fs::write(&file, study::report::whole())?;
    println!("{file}");
    Ok(())
}
