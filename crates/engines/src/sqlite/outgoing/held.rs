//! A database whose log is held, compared with its copy.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread::scope;
use std::time::{Duration, Instant};

use fullbore_core::error::counted;
use fullbore_core::threads::start_in;
use fullbore_core::{Error, Result};

use super::super::connection::read_index;
use super::super::digest::{Digest, digest_until, read_for};
use super::super::integrity::open_alone;
use super::super::wal::FRAME_HEADER_SIZE;
use super::super::wal_index::IndexHeader;
use super::Outgoing;
use crate::engine::{Compared, Foreseen, Held};

impl Held for Outgoing {
    /// Both are read at the same time.
    fn compare(&self, file: &Path, definitions: bool) -> Result<Compared> {
        let (copy, halt) = (open_alone(file)?, self.halt.as_ref());
        let (ours, theirs) = scope(|scope| {
            let theirs = start_in(scope, "compare", move || digest_until(&copy, file, halt))?;
            let ours = digest_until(&self.connection, &self.path, halt);
            let theirs = theirs.join().unwrap_or_else(|panic| resume_unwind(panic));
            Ok::<_, Error>((ours?, theirs?))
        })?;
        demand_equal(&ours, &theirs, definitions)?;
        let rows = ours.tables.values().map(|table| table.rows).sum();
        Ok(Compared { tables: ours.tables.len() as u64, rows })
    }
}

impl Outgoing {
    /// Reads rows for at most this time.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn look(&self, most: Duration) -> Result<Foreseen> {
        let (begun, before) = (Instant::now(), self.log_end()?);
        let (read_bytes, is_all) = read_for(&self.connection, &self.path, most, self.halt.as_ref())?;
        let (read, now) = (begun.elapsed(), self.log_end()?);
        Ok(Foreseen { read_bytes, read, is_all, log_bytes: grown(before.as_ref(), now.as_ref()) })
    }

    /// Where the log ends now; none without a log, and while a writer changes it.
    fn log_end(&self) -> Result<Option<IndexHeader>> {
        let index = self.claim.open_beside("-shm").ok();
        index.map_or(Ok(None), |index| read_index(&index))
    }
}

/// Bytes of the log between two looks.
fn grown(before: Option<&IndexHeader>, now: Option<&IndexHeader>) -> u64 {
    let (Some(before), Some(now)) = (before, now) else { return 0 };
    // A log that was restarted begins with its first frame.
    let from = if before.salts == now.salts { before.max_frame } else { 0 };
    u64::from(now.max_frame.saturating_sub(from)) * (FRAME_HEADER_SIZE as u64 + u64::from(now.page_size))
}

/// The error about the first difference.
fn demand_equal(source: &Digest, target: &Digest, definitions: bool) -> Result<()> {
    let hint = "another program may have written to the unfinished target: begin again with --replace";
    let names: BTreeSet<&String> = source.tables.keys().chain(target.tables.keys()).collect();
    for name in names {
        let why = match (source.tables.get(name), target.tables.get(name)) {
            (one, other) if one == other => continue,
            (Some(one), Some(other)) if one.rows != other.rows => {
                format!("it has {}, and the source has {}", counted(other.rows, "row"), one.rows)
            }
            (Some(_), Some(_)) => "the digest of its rows is not that of the source".to_owned(),
            (Some(_), None) => "it is not there".to_owned(),
            (None, _) => "the source does not have it".to_owned(),
        };
        return Err(Error::refused(format!("table {name} of the target"), why, hint));
    }
    match definitions && source.schema != target.schema {
        true => Err(Error::refused("the target", "its definitions are not those of the source", hint)),
        false => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sqlite::digest::tests::of;

    #[test]
    fn a_row_a_table_or_a_definition_that_differs_is_named() {
        let made = "CREATE TABLE a (x); INSERT INTO a VALUES (1), (2); CREATE TABLE b (x);";
        let source = of(made);
        demand_equal(&source, &of(made), true).unwrap();
        for (more, thing, why) in [
            ("UPDATE a SET x = 3 WHERE x = 2", "table a", "digest"),
            ("DELETE FROM a WHERE x = 2", "table a", "it has 1 row, and the source has 2"),
            ("DROP TABLE b", "table b", "is not there"),
            ("CREATE TABLE c (x)", "table c", "the source does not have it"),
            ("CREATE INDEX ax ON a (x)", "the target", "definitions"),
        ] {
            let error = demand_equal(&source, &of(&format!("{made} {more}")), true).unwrap_err().to_string();
            assert!(error.contains(thing) && error.contains(why), "{more}: {error}");
        }
        demand_equal(&source, &of(&format!("{made} CREATE INDEX ax ON a (x)")), false).unwrap();
    }
}
