//! The transactions of a killed load: the server rolls them back when the connection is lost, or after its start.

use std::collections::{BTreeSet, HashMap};

use fullbore_core::Result;

use super::plan::Plan;
use crate::engine::LoadOrder;
use crate::mysql_family::connection::{Connection, Failure, NOT_ALLOWED};
use crate::mysql_family::logical_set::set::Detail;

/// How many tables a statement locks.
const AT_ONCE: usize = 500;
/// How often the wait is repeated, and its seconds: ten minutes in all. Another session may hold a table for ever.
const TRIES: u32 = 12;
const WAIT_S: u32 = 50;
/// ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK.
const HELD: [u32; 2] = [1205, 1213];

/// Waits until no transaction of the killed run holds a table whose chunks are not all noted as `done`. Rows that wait for rows of such a
/// transaction inherit its locks of gaps, and then the connections of this run wait for each other.
///
/// An account without LOCK TABLES does not wait.
///
/// # Errors
/// The connection fails.
pub fn wait(control: &mut Connection, order: &LoadOrder, plan: &Plan, done: &HashMap<u32, Option<u64>>) -> Result<()> {
    let open = order.streams.iter().filter(|stream| !matches!(done.get(&stream.id), Some(None)));
    let places: BTreeSet<usize> = open
        .filter_map(|stream| match Detail::of(stream)? {
            Detail::Chunk { schema, table, .. } => plan.places.get(&(schema, table)).copied(),
            _ => None,
        })
        .collect();
    let tables: Vec<String> = places.iter().filter_map(|at| Some(plan.tables.get(*at)?.quoted() + " WRITE")).collect();
    // Without autocommit, the lock waits for transactions of before a start of the server, too.
    let timeouts = format!("autocommit = 0, lock_wait_timeout = {WAIT_S}");
    control.query(&format!("SET SESSION {timeouts}"))?;
    for some in tables.chunks(AT_ONCE) {
        lock_once(control, &format!("LOCK TABLES {}", some.join(", ")))?;
    }
    control.query("UNLOCK TABLES")?;
    control.query("SET SESSION autocommit = 1, lock_wait_timeout = DEFAULT")?;
    Ok(())
}

fn lock_once(control: &mut Connection, statement: &str) -> Result<()> {
    for _ in 0..TRIES {
        match control.query(statement) {
            Err(Failure::Server(error)) if HELD.contains(&error.code) => {}
            Err(Failure::Server(error)) if NOT_ALLOWED.contains(&error.code) => break,
            other => return Ok(other.map(drop)?),
        }
    }
    Ok(())
}
