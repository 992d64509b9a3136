//! Makes real SQLite databases of a given size, writes to them under load, and proves copies of them.
//!
//! Everything that it writes is a function of a seed and, for the writer, of the number of the transaction. So a
//! copy taken at any instant can be checked without having stopped the writer: the copy says which transaction was
//! its last, and [`history`] says what the database holds after it.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bak;
mod check;
mod digest;
mod flip;
mod history;
mod make;
mod schema;
mod table;
mod text;
mod write;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// Test databases: make one, write to it under load, prove a copy of it.
#[derive(Parser)]
#[command(name = "fullbore-testdata", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a database with a realistic mixture of text, numbers, JSON, blobs, indexes and free pages.
    Make(make::Options),
    /// Write a full backup of SQL Server with one table, without a server; one line of JSON at the end.
    Bak(bak::Options),
    /// Write to a database at full speed or at a rate; one line at the end, also on SIGTERM.
    Write(write::Options),
    /// Print the row count and the content hash of each table, and a total, from one snapshot.
    Digest {
        /// The database.
        path: PathBuf,
    },
    /// Check a database or a restored copy: integrity, money, and the whole history of the writer.
    Check(check::Options),
    /// Flip one bit of a file and print where.
    Flip {
        /// The file.
        file: PathBuf,
        /// The byte to flip a bit in; the middle of the file unless given.
        #[arg(long)]
        offset: Option<u64>,
    },
    /// Print fullbore's reports as the table that DBAs publish.
    Table {
        /// `LABEL=REPORT.json`, one for each row.
        reports: Vec<String>,
    },
}

/// SQLite's two ways to make a transaction atomic.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Journal {
    /// Write-ahead log: readers and the writer do not wait for each other.
    Wal,
    /// Rollback journal: a reader keeps the writer from committing.
    Delete,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().verb {
        Verb::Make(options) => make::run(&options).map(|made| println!("{made}")),
        Verb::Bak(options) => bak::run(&options).map(|written| println!("{written}")),
        Verb::Write(options) => write::run(&options).map(|written| println!("{written}")),
        Verb::Digest { path } => digest::run(&path).map(|digests| digests.iter().for_each(|line| println!("{line}"))),
        Verb::Check(options) => check::run(&options).map(|lines| lines.iter().for_each(|line| println!("{line}"))),
        Verb::Flip { file, offset } => flip::run(&file, offset).map(|flipped| println!("{flipped}")),
        Verb::Table { reports } => table::run(&reports).map(|lines| lines.iter().for_each(|line| println!("{line}"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fullbore-testdata: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Reads `1GiB`, `64MiB`, `512KiB` or plain bytes.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is no size; write 1GiB, 64MiB or bytes"))?;
    let unit: u64 = match &text[digits.len()..] {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        unit => return Err(format!("`{unit}` is no unit; write KiB, MiB or GiB")),
    };
    number.checked_mul(unit).ok_or_else(|| format!("`{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units_and_nonsense_is_refused() {
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("3M"), Ok(3 << 20));
        assert_eq!(parse_size("17"), Ok(17));
        for bad in ["", "GiB", "1TBB", "-1", "99999999999GiB"] {
            assert!(parse_size(bad).is_err(), "{bad} was taken");
        }
    }
}
