//! A load on the database: connections that write and read while a job runs, and their throughput with and without the
//! job.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fullbore_core::{Error, Result, threads};
use rusqlite::{Connection, OptionalExtension, params};

use super::data::ACCOUNTS;
use super::matrix::Load;
use super::results::{LoadResult, Throughput};
use fullbore_core::conduct::Conduct;

/// How long a connection waits for a lock before its transaction counts as failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// Documents that a reader reads in one transaction.
const READ_AT_ONCE: i64 = 20;

/// Measures a load on `database` alone, and then runs `job` beside it.
///
/// # Errors
/// The error of the job, or of the load.
pub fn beside<T>(
    (name, load): (&str, &Load),
    database: &Path,
    conduct: &Conduct,
    job: impl FnOnce() -> Result<T>,
) -> Result<(T, LoadResult)> {
    let (never, asked) = (AtomicBool::new(false), Duration::from_secs(load.seconds));
    let alone = work(load, database, &never, || {
        let begun = Instant::now();
        while begun.elapsed() < asked {
            conduct.check()?;
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    })?;
    let over = AtomicBool::new(false);
    let (done, beside) = work(load, database, &over, job)?;
    Ok((done, LoadResult { name: name.to_owned(), alone: alone.1, beside }))
}

/// Runs `meanwhile` while the load works, and returns the throughput of the load.
fn work<T>(
    load: &Load,
    database: &Path,
    over: &AtomicBool,
    meanwhile: impl FnOnce() -> Result<T>,
) -> Result<(T, Throughput)> {
    std::thread::scope(|scope| {
        let begun = Instant::now();
        let connections = (0..load.writers + load.readers).map(|number| {
            let writes = number < load.writers;
            threads::start_in(scope, "load", move || connection(database, number as u64, writes, over))
        });
        let connections: Vec<_> = connections.collect();
        let done = meanwhile();
        over.store(true, Ordering::Relaxed);
        let seconds = begun.elapsed().as_secs_f64();
        let mut times = Vec::new();
        for connection in connections {
            times.extend(connection?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok((done?, throughput(times, seconds)))
    })
}

/// Seconds of each transaction of one connection, until `over`.
fn connection(path: &Path, seed: u64, writes: bool, over: &AtomicBool) -> Result<Vec<f32>> {
    let failed = |e: rusqlite::Error| {
        Error::io("put a load on", path.display().to_string(), std::io::Error::other(e.to_string()))
    };
    let mut times = Vec::new();
    let database = Connection::open(path).map_err(failed)?;
    database.busy_timeout(PATIENCE).map_err(failed)?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let last = "SELECT max(id) FROM document";
    let last: i64 = database.query_row(last, [], |row| row.get::<_, Option<i64>>(0)).map_err(failed)?.unwrap_or(1);
    while !over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let done = if writes { write(&database, &mut rng) } else { read(&database, rng.i64(1..=last)) };
        done.map_err(failed)?;
        times.push(begun.elapsed().as_secs_f32());
    }
    Ok(times)
}

/// Moves money from one account to another.
fn write(database: &Connection, rng: &mut fastrand::Rng) -> rusqlite::Result<()> {
    let (from, to, amount) = (rng.i64(..ACCOUNTS), rng.i64(..ACCOUNTS), rng.i64(1..10));
    database.execute_batch("BEGIN IMMEDIATE")?;
    for (account, amount) in [(from, -amount), (to, amount)] {
        let mut update = database.prepare_cached("UPDATE account SET balance = balance + ?2 WHERE id = ?1")?;
        update.execute(params![account, amount])?;
    }
    database.execute_batch("COMMIT")
}

/// Reads some documents in a row.
fn read(database: &Connection, first: i64) -> rusqlite::Result<()> {
    let query = "SELECT sum(length(body)) FROM document WHERE id BETWEEN ?1 AND ?2";
    let mut select = database.prepare_cached(query)?;
    select.query_row([first, first + READ_AT_ONCE], |row| row.get::<_, Option<i64>>(0)).optional().map(drop)
}

/// Transactions in a second, and the time that 99 of 100 did not exceed.
fn throughput(mut times: Vec<f32>, seconds: f64) -> Throughput {
    times.sort_unstable_by(f32::total_cmp);
    let at = (times.len() * 99).div_ceil(100).saturating_sub(1);
    let p99_s = times.get(at).copied().unwrap_or(0.0);
    let per_s = if seconds > 0.0 { times.len() as f64 / seconds } else { 0.0 };
    Throughput { per_s, p99_ms: f64::from(p99_s) * 1000.0 }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::data;
    use crate::matrix::DataFrom;

    #[test]
    fn the_99th_percentile_is_that_of_the_sorted_times() {
        let times = (1..=200).rev().map(|number| number as f32 / 1000.0).collect();
        let Throughput { per_s, p99_ms } = throughput(times, 2.0);
        assert!((per_s - 100.0).abs() < 1e-9 && (p99_ms - 198.0).abs() < 0.01, "{per_s} {p99_ms}");
        assert_eq!(throughput(Vec::new(), 1.0), Throughput::default());
    }

    #[test]
    fn a_load_works_alone_and_beside_a_job_and_money_is_neither_made_nor_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        data::make(&path, &DataFrom::Made { full_bytes: 1 << 20, bytes: 1 << 20, random: 0.4, seed: 1 }).unwrap();
        let load = Load { writers: 1, readers: 1, seconds: 1 };
        // On a busy machine, the load may not run at all in a short time.
        for milliseconds in [300, 3_000, 30_000] {
            let job = || {
                std::thread::sleep(Duration::from_millis(milliseconds));
                Ok(7)
            };
            let (done, result) = beside(("l", &load), &path, &Conduct::default(), job).unwrap();
            assert_eq!(done, 7);
            let is_at_work = result.alone.per_s > 0.0 && result.beside.per_s > 0.0;
            assert!(is_at_work || milliseconds < 30_000, "{result:?}");
            if is_at_work {
                break;
            }
        }
        let sum = "SELECT sum(balance) FROM account";
        let sum: i64 = Connection::open(&path).unwrap().query_row(sum, [], |row| row.get(0)).unwrap();
        assert_eq!(sum, 1000 * ACCOUNTS);
    }
}
