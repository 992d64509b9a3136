//! Proves a database or a restored copy of one right, although its writer never stopped.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::digest::{self, Digest};
use crate::history::History;
use crate::schema::{OPENING_BALANCE, WRITTEN};

#[derive(Args)]
pub struct Options {
    /// The database or the restored copy.
    path: PathBuf,
    /// The writer's own log (`write --log`): the copy's last transaction must be in it, with the same running hash.
    #[arg(long)]
    log: Option<PathBuf>,
    /// What `digest` printed before the writer started: the tables that the writer does not touch must be the same.
    #[arg(long)]
    digests: Option<PathBuf>,
    /// The copy must hold this transaction: it was committed before the backup began.
    #[arg(long)]
    at_least: Option<i64>,
    /// The copy must hold no later transaction: it was the last when the backup ended.
    #[arg(long)]
    at_most: Option<i64>,
}

/// One line for each proof that held; an error names the first that did not.
pub fn run(options: &Options) -> anyhow::Result<Vec<String>> {
    let database = digest::open(&options.path)?;
    database.execute_batch("BEGIN")?;
    let mut lines = Vec::new();
    let answer: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    ensure!(answer == "ok", "integrity_check: {answer}");
    lines.push("integrity_check: ok".to_owned());

    let history = History::open(&database)?;
    let money: i64 = database.query_row("SELECT sum(balance) FROM accounts", [], |row| row.get(0))?;
    let told = history.accounts * OPENING_BALANCE;
    ensure!(money == told, "money: the accounts hold {money} cents instead of {told}");
    lines.push(format!("money: {} accounts hold {money} cents, as at the start", history.accounts));

    let (last, chain) = history.prove(&database)?;
    let chain: String = chain.iter().map(|byte| format!("{byte:02x}")).collect();
    lines.push(format!("history: every row is as transactions 1 to {last} left it, chain {chain}"));
    if let Some(first) = options.at_least {
        ensure!(
            last >= first,
            "history: transaction {first} was committed before the backup began and is not in the copy"
        );
        lines.push(format!("history: not before {first}, the last transaction when the backup began"));
    }
    if let Some(latest) = options.at_most {
        ensure!(
            last <= latest,
            "history: transaction {last} is in the copy, but {latest} was the last when the backup ended"
        );
        lines.push(format!("history: not after {latest}, the last transaction when the backup ended"));
    }
    if let Some(log) = &options.log {
        let text = fs::read_to_string(log).with_context(|| format!("cannot read `{}`", log.display()))?;
        let line = format!("{last} {chain}");
        ensure!(last == 0 || text.lines().any(|l| l == line), "log: the writer's log has no line `{line}`");
        lines.push(format!("log: the writer's own log has transaction {last} with the same chain"));
    }
    if let Some(before) = &options.digests {
        let text = fs::read_to_string(before).with_context(|| format!("cannot read `{}`", before.display()))?;
        let tables = compare(&text, &digest::tables(&database)?)?;
        lines.push(format!("digests: the {tables} tables that the writer does not touch are the same, row for row"));
    }
    database.execute_batch("COMMIT")?;
    Ok(lines)
}

/// How many tables were compared.
fn compare(before: &str, now: &[Digest]) -> anyhow::Result<usize> {
    let steady = |table: &str| !WRITTEN.contains(&table) && table != "total";
    let mut told: Vec<&str> = before.lines().filter(|l| l.split_whitespace().next().is_some_and(steady)).collect();
    let compared = told.len();
    ensure!(compared > 0, "digests: the file holds none");
    for digest in now.iter().filter(|digest| steady(&digest.table)) {
        let line = digest.to_string();
        let Some(place) = told.iter().position(|l| *l == line) else {
            bail!("digests: `{}` is not what it was before the backup", digest.table);
        };
        told.swap_remove(place);
    }
    ensure!(told.is_empty(), "digests: missing in the copy: {}", told.join("; "));
    Ok(compared)
}
