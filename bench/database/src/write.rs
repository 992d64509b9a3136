//! The writer under load: moves money between accounts, adds and removes entries, and says how long it had to wait.

use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::digest;
use crate::history::{CHAIN, History, Transaction};

#[derive(Args)]
pub struct Options {
    /// The database, made by `make`.
    pub path: PathBuf,
    /// How long to write; SIGTERM ends it sooner.
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Transactions: `full` for as many as there can be, or so many a second, as `200/s`.
    #[arg(long, default_value = "full", value_parser = parse_rate)]
    pub rate: Rate,
    /// A file of the writer's own, outside the database: one line `sequence chain` for each commit.
    #[arg(long)]
    pub log: Option<PathBuf>,
}

/// How many transactions a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    Full,
    PerSecond(f64),
}

fn parse_rate(text: &str) -> Result<Rate, String> {
    if text == "full" {
        return Ok(Rate::Full);
    }
    let number = text.trim_end_matches("/s").parse().ok().filter(|rate| (0.01..1e6).contains(rate));
    number.map(Rate::PerSecond).ok_or_else(|| format!("`{text}` is no rate; write `full` or `200/s`"))
}

/// What was done.
#[derive(Debug)]
pub struct Written {
    pub transactions: u64,
    pub last: i64,
    pub elapsed: Duration,
    pub longest: Duration,
}

impl fmt::Display for Written {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        write!(out, "transactions={} last_sequence={} seconds={seconds:.2}", self.transactions, self.last)?;
        let rate = self.transactions as f64 / seconds.max(1e-9);
        write!(out, " per_second={rate:.0} longest_wait_ms={:.1}", self.longest.as_secs_f64() * 1e3)
    }
}

/// Writes until the time is over or a signal comes.
pub fn run(options: &Options) -> anyhow::Result<Written> {
    ensure!(options.seconds.is_finite() && options.seconds >= 0.0, "--seconds {} is no time", options.seconds);
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let mut database = digest::open(&options.path)?;
    // A rollback-mode backup may hold the writer up for as long as it takes: that wait is what is measured.
    database.busy_timeout(Duration::from_secs(3600))?;
    database.pragma_update(None, "synchronous", "NORMAL")?;
    let history = History::open(&database)?;
    let last = "SELECT sequence, chain FROM ledger ORDER BY sequence DESC LIMIT 1";
    let last =
        database.query_row(last, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, [u8; CHAIN]>(1)?))).optional()?;
    let (first, mut chain) = last.unwrap_or((0, [0; CHAIN]));
    let mut log = match &options.log {
        Some(path) => {
            let file = File::options().create(true).append(true).open(path);
            Some(file.with_context(|| format!("cannot write the log `{}`", path.display()))?)
        }
        None => None,
    };
    let started = Instant::now();
    let mut written = Written { transactions: 0, last: first, elapsed: Duration::ZERO, longest: Duration::ZERO };
    while !stop.load(Ordering::Relaxed) && started.elapsed().as_secs_f64() < options.seconds {
        let transaction = history.transaction(written.last + 1);
        chain = transaction.chain(&chain);
        let begun = Instant::now();
        commit(&mut database, &transaction, &chain)?;
        written.longest = written.longest.max(begun.elapsed());
        written.transactions += 1;
        written.last = transaction.sequence;
        if let Some(log) = &mut log {
            let hex: String = chain.iter().map(|byte| format!("{byte:02x}")).collect();
            log.write_all(format!("{} {hex}\n", written.last).as_bytes())?;
        }
        if let Rate::PerSecond(rate) = options.rate {
            let due = Duration::from_secs_f64(written.transactions as f64 / rate);
            while started.elapsed() < due && !stop.load(Ordering::Relaxed) {
                thread::sleep((due - started.elapsed().min(due)).min(Duration::from_millis(100)));
            }
        }
    }
    written.elapsed = started.elapsed();
    Ok(written)
}

fn commit(database: &mut Connection, told: &Transaction, chain: &[u8; CHAIN]) -> anyhow::Result<()> {
    let transaction = database.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (account, change) in [(told.from, -told.amount), (told.to, told.amount)] {
        let update = "UPDATE accounts SET balance = balance + ?2, changed_by = ?3 WHERE id = ?1";
        transaction.prepare_cached(update)?.execute(params![account, change, told.sequence])?;
    }
    let insert = "INSERT INTO ledger VALUES (?1, ?2, ?3, ?4, ?5)";
    let row = params![told.sequence, told.from, told.to, told.amount, chain];
    transaction.prepare_cached(insert)?.execute(row)?;
    let entry = params![told.sequence, told.entry];
    transaction.prepare_cached("INSERT INTO entries VALUES (?1, ?2)")?.execute(entry)?;
    if let Some(removed) = told.removed {
        transaction.prepare_cached("DELETE FROM entries WHERE id = ?1")?.execute([removed])?;
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_full_or_a_number() {
        assert_eq!(parse_rate("full"), Ok(Rate::Full));
        assert_eq!(parse_rate("200/s"), Ok(Rate::PerSecond(200.0)));
        assert!(parse_rate("fast").is_err() && parse_rate("0/s").is_err() && parse_rate("nan").is_err());
    }
}
